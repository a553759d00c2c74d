"""A recipe goes in; its target, and drafter and head in their first state, come out."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn

from speccorrect.registry import corrector_spec
from speccorrect.source import HeadShape
from specmodels.dflash import DFlash, DFlashConfig, LayerKind
from specmodels.dflash.conv import BlockConv
from specmodels.initialise import initialise
from specmodels.qwen3.config import Qwen3Config
from specrun import Engine, load_engine
from spectrain.heads import Pair
from spectrain.runs.recipe import NewDrafter, RunRecipe


class Models(NamedTuple):
    """What a run starts from, all in fp32."""

    engine: Engine  # decodes the target plainly
    pair: Pair


def load_models(chosen: RunRecipe, device: str) -> Models:
    """Load the target, load or make the drafter, make the head."""
    engine, drafter = _engine_and_drafter(chosen, device)
    target = engine.parts.target.requires_grad_(requires_grad=False)
    pair = Pair(drafter, _head(chosen, drafter.config, target.config)).to(device)
    pair.drafter.requires_grad_(requires_grad=chosen.drafter_learns)
    pair.head.requires_grad_(requires_grad=True)
    return Models(engine, pair)


def _engine_and_drafter(chosen: RunRecipe, device: str) -> tuple[Engine, DFlash]:
    model, part = chosen.target.model, chosen.drafter
    if part.new is not None:
        plain = load_engine(model, "ar", device=device, dtype="float32")
        drafter = DFlash(_new_config(part.new, plain.parts.target.config))
        initialise(drafter, torch.Generator().manual_seed(chosen.run.seed), residual_layers=part.new.layers)
    else:
        drafting = load_engine(model, "dflash", draft=part.start, device=device, dtype="float32")
        loaded = drafting.parts.drafter
        assert loaded is not None, "the method drafts"
        plain, drafter = drafting.plain(), loaded
    if part.conv is not None:
        drafter = _with_conv(drafter, replace(drafter.config, conv=part.conv))
    if drafter.config.draft_vocab_size is not None:
        raise ValueError("drafter.start: has a vocabulary of its own, expected the target's; name another")
    return plain, drafter


def _new_config(new: NewDrafter, target: Qwen3Config) -> DFlashConfig:
    if not all(0 <= layer < target.num_layers for layer in new.target_layers) or not new.target_layers:
        raise ValueError(
            f"drafter.new.target_layers: got {list(new.target_layers)}, expected some of 0 to {target.num_layers - 1}"
        )
    if not 0 <= new.mask_token_id < target.vocab_size:
        raise ValueError(
            f"drafter.new.mask_token_id: got {new.mask_token_id}, expected 0 to {target.vocab_size - 1}"
        )
    return DFlashConfig(
        hidden_size=target.hidden_size,
        intermediate_size=new.intermediate_size or target.intermediate_size,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        norm_eps=target.norm_eps,
        rope=target.rope,
        max_positions=target.max_positions,
        layers=(LayerKind(window=None, causal=False),) * new.layers,
        attention_bias=False,
        block_size=new.block_size,
        mask_token_id=new.mask_token_id,
        target_layers=new.target_layers,
        target_hidden_size=target.hidden_size,
        shifted=False,
    )


def _with_conv(drafter: DFlash, config: DFlashConfig) -> DFlash:
    """The same drafter with convolutions that change nothing yet."""
    if drafter.config.conv is not None:
        raise ValueError("drafter.conv: the drafter has convolutions already; remove the table")
    wider = DFlash(config)
    wider.load_state_dict(drafter.state_dict(), strict=False)
    for module in wider.modules():
        if isinstance(module, BlockConv):
            module.set_identity()
    return wider


def _head(chosen: RunRecipe, drafter: DFlashConfig, target: Qwen3Config) -> nn.Module:
    """A fresh head that corrects nothing yet."""
    head: Any = corrector_spec(chosen.corrector).new(
        HeadShape(
            hidden_size=drafter.hidden_size,
            vocab_size=target.vocab_size,
            block_size=drafter.block_size,
            shifted=drafter.shifted,
            norm_eps=drafter.norm_eps,
        )
    )
    if chosen.head:
        unknown = chosen.head.keys() - set(head.config.__dataclass_fields__)
        if unknown:
            raise ValueError(
                f"head: got {', '.join(sorted(unknown))}, expected some of {', '.join(head.config.__dataclass_fields__)}"
            )
        head = type(head)(replace(head.config, **chosen.head))
        head.reset(torch.Generator().manual_seed(chosen.run.seed))
    return head
