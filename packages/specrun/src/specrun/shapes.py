"""The name of a public shape in, an engine with random weights out: what a round costs does not depend on their values.

What a round yields does: nothing that was drafted with random weights is accepted.
"""

import torch

from speccorrect.registry import corrector_spec
from speccorrect.source import HeadShape
from specmodels.dflash import DFlash, DFlashConfig, LayerKind
from specmodels.initialise import initialise
from specmodels.layers.rope import RopeConfig
from specmodels.qwen3 import Qwen3, Qwen3Config
from specrun.config import DraftOptions
from specrun.engine import Engine
from specrun.methods import Method

SHAPES = {
    # hidden, inner, layers, heads, key heads, head width, vocabulary, drafter layers, taps
    "tiny": (192, 384, 4, 6, 2, 32, 2048, 2, (0, 1, 2)),
    "qwen3-0.6b": (1024, 3072, 28, 16, 8, 128, 151936, 5, (1, 7, 13, 19, 25)),
}
BLOCK = 16


def random_pair(shape: str, dtype: torch.dtype, positions: int) -> tuple[Qwen3, DFlash]:
    """A target and a DFlash drafter of a named shape."""
    hidden, inner, layers, heads, kv_heads, width, vocab, draft_layers, taps = SHAPES[shape]
    rope = RopeConfig(theta=1e6)
    target = Qwen3(
        Qwen3Config(
            vocab_size=vocab,
            hidden_size=hidden,
            intermediate_size=inner,
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=width,
            norm_eps=1e-6,
            rope=rope,
            max_positions=positions,
            qk_norm=True,
            qkv_bias=False,
            output_bias=False,
            mlp_bias=False,
            tie_embeddings=True,
        )
    )
    drafter = DFlash(
        DFlashConfig(
            hidden_size=hidden,
            intermediate_size=inner,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=width,
            norm_eps=1e-6,
            rope=rope,
            max_positions=positions,
            layers=(LayerKind(window=None, causal=False),) * draft_layers,
            attention_bias=False,
            block_size=BLOCK,
            mask_token_id=vocab - 1,
            target_layers=taps,
            target_hidden_size=hidden,
            shifted=False,
        )
    )
    generator = torch.Generator().manual_seed(0)
    for model in (target, drafter):
        initialise(model, generator)
        model.to(dtype).requires_grad_(requires_grad=False)
    return target, drafter


def random_engine(
    chosen: Method,
    models: tuple[Qwen3, DFlash],
    *,
    options: DraftOptions | None = None,
) -> Engine:
    """An engine over such a pair, with an untrained head."""
    target, drafter = models
    if chosen.corrector is None:
        return Engine(target, chosen, options=options)
    shape = HeadShape(
        hidden_size=drafter.config.hidden_size,
        vocab_size=target.config.vocab_size,
        block_size=drafter.config.block_size,
        shifted=False,
    )
    head = corrector_spec(chosen.corrector).new(shape).to(target.embedding)
    head.requires_grad_(requires_grad=False)
    return Engine(
        target,
        chosen,
        drafter=drafter,
        corrector=head,  # type: ignore[arg-type]  # modules of the registry fulfil the protocol
        options=options,
    )
