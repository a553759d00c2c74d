"""Every family of public drafters, from a folder with its keys and names to a running engine.

The folders are made here: small, with the tensors and keys that the family's own files have. The text is that of
`doubles.counting_world`, where a drafter of the right slot layout has nearly all of its tokens accepted.
"""

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from speccorrect.correctors.dels import convert_pt
from specmodels import load_target
from specrun import assemble
from specrun.assemble import load_engine
from specrun.config import DraftOptions, Sampling
from specrun.engine import Generation

from doubles import counting_world as world

BLOCK, RANK, V, D = 8, 4, world.VOCAB, world.WIDTH
SAMPLING = Sampling(max_new_tokens=24)
PLAIN = [(world.PROMPT[-1] + 1 + step) % world.PERIOD for step in range(24)]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Family:
    """What the folders of one family look like."""

    name: str
    method: str
    config: dict[str, Any]
    shifted: bool
    tensors: Callable[[], dict[str, Tensor]] = dict  # beside the backbone's
    key: str | None = None  # says the layout; None where the family has one alone
    target: str = "qwen3"
    draft_ids: tuple[int, ...] = ()  # of a reduced vocabulary

    def write(self, folder: Path, *, trained: bool | None = None, **changes: Any) -> Path:
        """A folder of the family; `trained` is the layout that the weights are made for."""
        backbone = world.drafter_tensors(shifted=self.shifted if trained is None else trained)
        return world.write(folder, edited(self.config, **changes), backbone | self.tensors())


def edited(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A deep copy in which keys have other values wherever they stand, None meaning that they are gone."""
    copy = {}
    for name, value in config.items():
        new = changes.get(name, value)
        if isinstance(new, dict):
            new = edited(new, **changes)
        if new is not None or name not in changes:
            copy[name] = new
    return copy


# Layouts of files


def zlab(architecture: str = "DFlashDraftModel", *, inside: dict[str, Any], **top: Any) -> dict[str, Any]:
    """What z-lab writes, and whoever builds on it: the old place of the block size, the old names of rotation and dtype."""
    return {
        **world.BACKBONE,
        **world.OLD_ROPE,
        "architectures": [architecture],
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "model_type": "qwen3",
        "block_size": BLOCK,
        "num_target_layers": world.TARGET_LAYERS,
        "layer_types": ["full_attention"] * world.LAYERS,
        "max_window_layers": world.LAYERS,
        "sliding_window": None,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.57.1",
        "dflash_config": {"mask_token_id": world.MASK, "target_layer_ids": list(world.TAPS), **inside},
        **top,
    }


def zlab_new(architecture: str = "DFlashDraftModel", **inside: Any) -> dict[str, Any]:
    """The newer way: the block size inside, rotation and dtype as transformers 5 spells them, layers of two kinds."""
    old = zlab(architecture, inside={"block_size": BLOCK, "mask_token": "<|MASK|>", **inside})
    gone = ("block_size", "rope_theta", "rope_scaling", "torch_dtype")
    return {
        **{name: value for name, value in old.items() if name not in gone},
        **world.NEW_ROPE,
        "dtype": "bfloat16",
        "layer_types": ["full_attention", "sliding_attention"],
        "sliding_window": 64,
        "use_sliding_window": True,
        "is_causal": False,
        "transformers_version": "5.2.0",
    }


def deepspec(**keys: Any) -> dict[str, Any]:
    """DeepSpec: everything at the top."""
    flat = zlab("Qwen3DSparkModel", inside={})
    inner = flat.pop("dflash_config")
    return {**flat, **inner, "block_size": 7, "num_anchors": 512, **keys}


def speculators(kind: str, **keys: Any) -> dict[str, Any]:
    """The package speculators: the backbone in a section of its own, ids of layers counted from the embedding."""
    architectures = {
        "dflash": "DFlashSpeculator",
        "dflash2": "DFlash2DraftModel",
        "dspark": "DSparkSpeculator",
        "xpress": "XPressSpeculator",
    }
    return {
        "architectures": [architectures[kind]],
        "auto_map": {"": f"config.{architectures[kind]}Config"},
        "aux_hidden_state_layer_ids": [tap + 1 for tap in world.TAPS],
        "base_model_ep_plan": None,
        "block_size": BLOCK,
        "draft_vocab_size": V,
        "dtype": "bfloat16",
        "has_no_defaults_at_init": False,
        "mask_token_id": world.MASK,
        "sample_from_anchor": False,
        "sliding_window_non_causal": False,
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 7}],
            "verifier": {"architectures": ["Qwen3ForCausalLM"], "name_or_path": "Qwen/Qwen3-8B"},
        },
        "speculators_model_type": kind,
        "speculators_version": "0.9.0",
        "target_hidden_size": None,
        "transformer_layer_config": {
            **world.BACKBONE,
            **world.NEW_ROPE,
            "model_type": "qwen3",
            "layer_types": ["full_attention", "sliding_attention"],
            "max_window_layers": 28,
            "sliding_window": 64,
            "use_sliding_window": False,
        },
        "transformers_version": "5.1.0",
        **keys,
    }


# Heads by their public names


def domino(prefix: str = "") -> dict[str, Tensor]:
    state = 6
    return world.small(
        {
            f"{prefix}prefix_gru.weight_ih_l0": (3 * state, D),
            f"{prefix}prefix_gru.weight_hh_l0": (3 * state, state),
            f"{prefix}embed_proj.0.weight": (RANK, D + state),
            f"{prefix}embed_proj.2.weight": (V, RANK),
        }
    )


DOMINO = {"pure_draft_prefix_len": 1, "emb_dim": RANK, "gru_hidden_dim": 6}
JUDGE: Shapes = {"confidence_head.proj.weight": (1, D + RANK), "confidence_head.proj.bias": (1,)}


def markov(rows: int = V, more: Shapes | None = None, *, flat: bool = False) -> dict[str, Tensor]:
    shapes = {
        "markov_head.markov_w1.weight": (V, RANK),
        "markov_head.markov_w2.weight": (rows, RANK),
        **(more or {}),
    }
    tensors = world.small(shapes)
    if flat:
        return {
            name.removeprefix("markov_head.").replace("confidence_head.proj", "confidence_proj"): tensor
            for name, tensor in tensors.items()
        }
    return tensors


def copies() -> dict[str, Tensor]:
    """What a trainer saves along that saves all it has."""
    return {"embed_tokens.weight": world.embedding(), "lm_head.weight": world.head()}


MIXER = {
    "w1.weight": "token_embed.weight",
    "w2.weight": "readout.weight",
    "down_h.weight": "down_h.weight",
    "down_g.weight": "down_g.weight",
    "in_proj.weight": "in_proj.weight",
    "mix.L": "mix_l",
    "mlp.gate_proj.weight": "mlp_gate.weight",
    "mlp.up_proj.weight": "mlp_up.weight",
    "mlp.down_proj.weight": "mlp_down.weight",
}


def xpress(*, theirs: bool, rows: int = V) -> dict[str, Tensor]:
    shapes = {
        "w1.weight": (V, RANK),
        "w2.weight": (rows, RANK),
        "down_h.weight": (RANK, D),
        "down_g.weight": (RANK, D),
        "in_proj.weight": (RANK, 3 * RANK),
        "mix.L": (RANK, BLOCK, BLOCK),
        "mlp.gate_proj.weight": (2 * RANK, RANK),
        "mlp.up_proj.weight": (2 * RANK, RANK),
        "mlp.down_proj.weight": (RANK, 2 * RANK),
    }
    return world.small(
        {
            (f"refiner_head.{MIXER[name]}" if theirs else f"xpress_head.{name}"): size
            for name, size in shapes.items()
        }
    )


CONV = {"conv_kernel_size": 2, "conv_group_size": 4, "selector_rank": RANK, "selector_top_k": 4}


def dflash2(suffix: str = "") -> dict[str, Tensor]:
    tensors = world.small(
        {
            f"candidate_selector.predecessor_codebook{suffix}": (V, RANK),
            f"candidate_selector.successor_codebook{suffix}": (V, RANK),
            "candidate_selector.hidden_projection.weight": (RANK, D),
        }
    )
    for layer in range(world.LAYERS):
        for part in ("attention_conv", "mlp_conv"):
            kernel = torch.zeros(2, 2, D)
            kernel[:, 0] = 1.0
            at = f"layers.{layer}.{part}."
            tensors[at + "base_kernel"] = kernel
            tensors |= world.small({at + "kernel_projection.weight": (2 * 2 * D // 4, D)}, scale=0.003)
    return tensors


LILICORR = {
    "lilicorr_candidate_topk": 4,
    "lilicorr_hidden_size": 8,
    "lilicorr_num_layers": 2,
    "lilicorr_num_heads": 2,
    "lilicorr_mlp_ratio": 2.0,
    "lilicorr_factor_dim": 6,
    "lilicorr_vector_eps": 1e-4,
    "lilicorr_logit_scale": 8.0,
}


def lilicorr(*, servers: bool) -> dict[str, Tensor]:
    width, factor, slots, best, heads = 8, 6, BLOCK - 1, 4, 2

    def linear(name: str, rows: int, columns: int) -> Shapes:
        return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}

    shapes: Shapes = {
        **linear("token_proj", width, D),
        **linear("pass_hidden_proj", width, D),
        **linear("context_proj", width, D),
        **{f"{'feature_norm' if servers else 'feature_mlp.0'}.{kind}": (5,) for kind in ("weight", "bias")},
        **linear("feature_mlp.up_proj" if servers else "feature_mlp.1", width, 5),
        **linear("feature_mlp.down_proj" if servers else "feature_mlp.3", width, width),
        "slot_embedding": (1, 1, slots, 1, width),
        "rank_embedding": (1, 1, 1, best, width),
        "relative_slot_bias": (heads, 2 * BLOCK - 1),
        "same_slot_bias": (heads,),
        "output_norm.weight": (width,),
        "anchor_norm.weight": (width,),
        **linear("factor_input_proj", width, 3 * width),
        **linear("out_head", factor, width),
        **linear("in_head", factor, width),
        **linear("anchor_out_head", factor, width),
    }
    for layer in range(2):
        at = f"layers.{layer}."
        shapes |= {
            f"{at}attn_norm.weight": (width,),
            f"{at}attn.in_proj_weight": (3 * width, width),
            f"{at}attn.in_proj_bias": (3 * width,),
            **linear(f"{at}attn.out_proj", width, width),
            f"{at}mlp_norm.weight": (width,),
            **linear(f"{at}mlp.up_proj" if servers else f"{at}mlp.0", 2 * width, width),
            **linear(f"{at}mlp.down_proj" if servers else f"{at}mlp.2", width, 2 * width),
        }
    tensors = world.small({f"lilicorr.{name}": size for name, size in shapes.items()})
    # all candidates of a slot score alike, and a tie goes to the drafter's own best
    tensors["lilicorr.in_head.weight"].zero_()
    tensors["lilicorr.in_head.bias"] = torch.eye(factor)[0]
    return tensors


def dels() -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What the converter makes of the two public files."""
    state = 6
    inside = world.small(
        {
            "prefix_gru.weight_ih_l0": (3 * state, D),
            "prefix_gru.weight_hh_l0": (3 * state, state),
            "rank_proj.weight": (RANK, state),
            "low_rank_lm_head.weight": (V, RANK),
        }
    )
    keys = {
        "vocab_size": V,
        "embed_dim": D,
        "gru_hidden_dim": state,
        "low_rank_dim": RANK,
        "lm_head_mode": "low_rank",
        "rank_activation": "silu",
        "pure_draft_prefix_len": 1,
        "shift_label": False,
    }
    with tempfile.TemporaryDirectory() as name:
        head, unigram = Path(name) / "local_head.pt", Path(name) / "loss_mask_unigram.pt"
        torch.save({"model_config": keys, "model_state_dict": inside}, head)
        torch.save({"counts": torch.full((V,), 3)}, unigram)
        return convert_pt(head, unigram, vocab_size=V, shifted=False)


def reduced(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Beside a head: the drafter's own rows of the vocabulary, and which they are."""
    ids = torch.tensor(REDUCED)
    member = torch.zeros(V, dtype=torch.bool)
    member[ids] = True
    return {
        **tensors,
        "lm_head.weight": world.head(ids),
        "d2t": ids - torch.arange(len(REDUCED)),
        "t2d": member,
    }


REDUCED = (0, 1, 2, 4, 5, 6, 7, 9, 10)  # token 3 cannot be drafted
XPRESS = {"xpress_rank": RANK, "xpress_mlp_hidden": 2 * RANK, "xpress_num_passes": 6}
REFINER = {"xpress_rank": RANK, "xpress_mlp_ratio": 2, "num_jacobi_passes": 6}
CONFIDENT = {
    "markov_rank": RANK,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
}
GATE: Shapes = {"markov_head.gate_proj.weight": (RANK, D + RANK), "markov_head.gate_proj.bias": (RANK,)}
JOINT: Shapes = {
    "markov_head.joint_proj.weight": (3 * RANK, 2 * RANK + D),
    "markov_head.joint_proj.bias": (3 * RANK,),
}

FAMILIES = (
    Family(name="zlab-old", method="dflash", config=zlab(inside={}), shifted=False),
    Family(name="zlab-new", method="dflash", config=zlab_new(), shifted=False),
    Family(name="zlab-llama", method="dflash", config=zlab(inside={}), shifted=False, target="llama"),
    Family(
        name="zlab-dflash2",
        method="dflash2",
        config=zlab_new("DFlash2DraftModel", **CONV),
        shifted=False,
        tensors=dflash2,
    ),
    Family(
        name="zlab-dflash2-weight",
        method="dflash2",
        config=zlab_new("DFlash2DraftModel", **CONV),
        shifted=False,
        tensors=lambda: dflash2(".weight"),
    ),
    Family(
        name="domino-huang",
        method="domino",
        config=zlab(inside={"projector_type": "domino", "shift_label": True, **DOMINO}, emb_dim=RANK),
        shifted=True,
        tensors=domino,
        key="shift_label",
    ),
    Family(
        name="domino-specforge",
        method="domino",
        config=zlab("DominoDraftModel", inside={"projector_type": "domino", "shift_label": False, **DOMINO}),
        shifted=False,
        tensors=lambda: domino("logit_head."),
        key="shift_label",
    ),
    Family(
        name="domino-causal-v5",
        method="domino",
        config=zlab(inside={"projector_type": "causal_v5", "shift_label": True, **DOMINO}),
        shifted=True,
        tensors=domino,
        key="shift_label",
    ),
    Family(
        name="deepspec-dspark",
        method="dspark",
        config=deepspec(**CONFIDENT, sample_from_anchor=True),
        shifted=True,
        tensors=lambda: markov(more=JUDGE) | copies(),
        key="sample_from_anchor",
    ),
    Family(
        name="deepspec-dflash",
        method="dflash",
        config=deepspec(
            **{**CONFIDENT, "markov_rank": 0, "enable_confidence_head": False, "sample_from_anchor": True}
        ),
        shifted=True,
        tensors=copies,
        key="sample_from_anchor",
    ),
    Family(
        name="uiuc-markov",
        method="dspark",
        config=deepspec(
            block_size=BLOCK,
            markov_rank=RANK,
            markov_head_type="vanilla",
            enable_confidence_head=False,
            dspark_bonus_anchor=True,
        ),
        shifted=False,
        tensors=markov,
        key="dspark_bonus_anchor",
    ),
    Family(
        name="specforge-dspark",
        method="dspark",
        config=zlab(
            "DSparkDraftModel",
            inside={
                **CONFIDENT,
                "projector_type": "dspark",
                "markov_head_type": "gated",
                "sample_from_anchor": True,
                "confidence_head_alpha": 1.0,
                "attention_mode": "gqa",
            },
        ),
        shifted=True,
        tensors=lambda: markov(more=GATE | JUDGE),
        key="sample_from_anchor",
    ),
    Family(
        name="modelopt-dspark",
        method="dspark",
        config=zlab(
            inside={
                "projector_type": "dspark",
                "shift_label": True,
                "markov_rank": RANK,
                "markov_head_type": "rnn",
                "use_confidence_head": True,
                "causal": False,
            }
        ),
        shifted=True,
        tensors=lambda: markov(more=JOINT | JUDGE, flat=True),
        key="shift_label",
    ),
    Family(
        name="xpress-uiuc",
        method="xpress",
        config=edited(
            zlab(
                "Qwen3XPressModel",
                inside={},
                **XPRESS,
                xpress_block_size=BLOCK,
                num_speculative_steps=BLOCK - 1,
                xpress_topc=512,
                xpress_compile_head=True,
            ),
            block_size=None,
        ),
        shifted=False,
        tensors=lambda: xpress(theirs=False),
    ),
    Family(
        name="lilicorr",
        method="lilicorr",
        config=zlab("LiLiCorrDraftModel", inside={**LILICORR, "causal": False}),
        shifted=False,
        tensors=lambda: lilicorr(servers=False),
    ),
    Family(
        name="lilicorr-servers",
        method="lilicorr",
        config=zlab("LiLiCorrDraftModel", inside={**LILICORR, "projector_type": "lilicorr"}),
        shifted=False,
        tensors=lambda: lilicorr(servers=True),
    ),
    Family(
        name="dels",
        method="dels",
        config={**zlab(inside={}), **dels()[0]},
        shifted=False,
        tensors=lambda: dels()[1],
    ),
    Family(
        name="speculators-dflash",
        method="dflash",
        config=speculators("dflash"),
        shifted=False,
        tensors=lambda: {"lm_head.weight": world.head()},
    ),
    Family(
        name="speculators-dflash-reduced",
        method="dflash",
        config=speculators("dflash", draft_vocab_size=len(REDUCED)),
        shifted=False,
        tensors=lambda: reduced({"embed_tokens.weight": world.embedding()}),
        draft_ids=REDUCED,
    ),
    Family(
        name="speculators-llama",
        method="dflash",
        config=edited(speculators("dflash"), model_type="llama"),
        shifted=False,
        target="llama",
    ),
    Family(
        name="speculators-dflash2",
        method="dflash2",
        config=speculators("dflash2", **CONV, sliding_window_non_causal=True),
        shifted=False,
        tensors=dflash2,
        key="sample_from_anchor",
    ),
    Family(
        name="speculators-dspark",
        method="dspark",
        config=speculators("dspark", **CONFIDENT, sample_from_anchor=True),
        shifted=True,
        tensors=lambda: markov(more=JUDGE),
        key="sample_from_anchor",
    ),
    Family(
        name="speculators-dspark-reduced",
        method="dspark",
        config=speculators("dspark", **CONFIDENT, sample_from_anchor=True, draft_vocab_size=len(REDUCED)),
        shifted=True,
        tensors=lambda: reduced(markov(len(REDUCED), JUDGE)),
        key="sample_from_anchor",
        draft_ids=REDUCED,
    ),
    Family(
        name="speculators-xpress",
        method="xpress",
        config=speculators("xpress", **REFINER),
        shifted=False,
        tensors=lambda: xpress(theirs=True),
        key="sample_from_anchor",
    ),
    Family(
        name="speculators-xpress-reduced",
        method="xpress",
        config=speculators("xpress", **REFINER, draft_vocab_size=len(REDUCED)),
        shifted=False,
        tensors=lambda: reduced(xpress(theirs=True, rows=len(REDUCED))),
        key="sample_from_anchor",
        draft_ids=REDUCED,
    ),
)
BY_NAME = {family.name: family for family in FAMILIES}
TREES = {"dflash": "ddtree"}

every_family = pytest.mark.parametrize("family", FAMILIES, ids=list(BY_NAME))
with_a_key = pytest.mark.parametrize(
    "family", [family for family in FAMILIES if family.key], ids=lambda family: family.name
)
with_a_head = pytest.mark.parametrize(
    "family",
    [family for family in FAMILIES if family.method != "dflash"],
    ids=lambda family: family.name,
)


@pytest.fixture(scope="module")
def targets(tmp_path_factory) -> dict[str, Path]:
    """Folders of targets, whose plain text is the one that drafters are made for."""
    folder = tmp_path_factory.mktemp("targets")
    found = {kind: world.target_folder(folder / kind, kind) for kind in ("qwen3", "llama")}
    for target in found.values():
        assert load_engine(target, "ar").generate(world.PROMPT, SAMPLING).token_ids == PLAIN
    return found


def drafted(targets: dict[str, Path], family: Family, folder: Path, method: str | None = None) -> Generation:
    """Decode with a drafter of the family; whatever it drafts, the text is the target's own."""
    engine = load_engine(targets[family.target], method or family.method, draft=folder)
    found = engine.generate(world.PROMPT, SAMPLING)
    assert found.token_ids == PLAIN
    return found


def refused(call: Callable[[], object], *parts: str) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message, "one line"
    assert all(part in message for part in parts), message


# The right layout, and the other one


@every_family
def test_a_folder_becomes_an_engine_that_decodes_like_plain_decoding(targets, tmp_path, family):
    folder = family.write(tmp_path / "draft")
    chain = drafted(targets, family, folder)
    tree = drafted(targets, family, folder, TREES.get(family.method, f"{family.method}tree"))
    # a token that cannot be drafted ends every block that meets it
    least = 3.0 if family.draft_ids else 5.0
    assert chain.stats.tokens_per_round > least
    assert tree.stats.tokens_per_round > least


@every_family
def test_weights_of_the_other_layout_accept_next_to_nothing(targets, tmp_path, family):
    folder = family.write(tmp_path / "draft", trained=not family.shifted)
    assert drafted(targets, family, folder).stats.tokens_per_round < 1.3


@with_a_key
def test_the_other_value_of_the_layout_s_key_accepts_next_to_nothing(targets, tmp_path, family):
    assert family.key is not None
    other = not family.shifted if family.key != "dspark_bonus_anchor" else family.shifted
    folder = family.write(tmp_path / "draft", **{family.key: other})
    assert drafted(targets, family, folder).stats.tokens_per_round < 1.3


@with_a_key
def test_a_missing_layout_is_an_error(targets, tmp_path, family):
    assert family.key is not None
    folder = family.write(tmp_path / "draft", **{family.key: None})
    wanted = family.key if family.key == "shift_label" and "domino" in family.name else "sample_from_anchor"
    refused(
        lambda: load_engine(targets[family.target], family.method, draft=folder),
        f"{wanted}",
        "missing, expected true or false: the layout of the slots; state it",
    )


def test_a_markov_head_in_a_plain_file_does_not_take_that_family_s_habit(targets, tmp_path):
    """Nothing in the config tells of a head; the tensors do, after the drafter was read as one that fills in."""
    folder = BY_NAME["modelopt-dspark"].write(
        tmp_path / "draft", shift_label=None, projector_type=None, trained=True
    )
    refused(lambda: load_engine(targets["qwen3"], "dspark", draft=folder), str(folder), "sample_from_anchor")


def test_layouts_that_heads_cannot_share(targets, tmp_path):
    """Shapes of a head and counts of tokens give a wrong layout away before a token is drafted."""
    folder = BY_NAME["lilicorr"].write(tmp_path / "lattice")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "sample_from_anchor": True}))
    refused(
        lambda: load_engine(targets["qwen3"], "lilicorr", draft=folder), "slot_embedding", "[1, 1, 8, 1, 8]"
    )
    folder = BY_NAME["xpress-uiuc"].write(tmp_path / "mixer")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "sample_from_anchor": True}))
    refused(
        lambda: load_engine(targets["qwen3"], "xpress", draft=folder),
        "num_speculative_steps: got 7, expected 8",
    )


def test_the_sizes_of_a_block_of_xpress(targets, tmp_path):
    family = BY_NAME["xpress-uiuc"]
    for number, changes in enumerate(({"xpress_block_size": None}, {"num_speculative_steps": None})):
        assert (
            drafted(targets, family, family.write(tmp_path / str(number), **changes)).stats.tokens_per_round
            > 5
        )
    gone = family.write(tmp_path / "gone", xpress_block_size=None, num_speculative_steps=None)
    refused(lambda: load_engine(targets["qwen3"], "xpress", draft=gone), "block_size: missing")
    none = family.write(tmp_path / "none", xpress_num_passes=0)
    refused(lambda: load_engine(targets["qwen3"], "xpress", draft=none), "xpress_num_passes", "got 0")


@pytest.mark.parametrize(("name", "method"), [("deepspec-dspark", "dspark"), ("uiuc-markov", "dspark")])
def test_what_is_known_of_a_public_repository_is_stated_for_it(targets, tmp_path, monkeypatch, name, method):
    """Files of DeepSpec are silent; whoever names the model or the repository gets the layout that was looked up."""
    family = BY_NAME[name]
    folder = family.write(tmp_path / "draft", sample_from_anchor=None, dspark_bonus_anchor=None)
    found = {"qwen3-8b": targets["qwen3"]}
    monkeypatch.setattr(assemble, "resolve", lambda name, **_: found.get(str(name), folder))
    known = load_engine("qwen3-8b", method).generate(world.PROMPT, SAMPLING)
    repository = "deepseek-ai/dspark_qwen3_8b_block7@03326e5043815da1f81b109078b2889737c26017"
    named = load_engine("qwen3-8b", method, draft=repository).generate(world.PROMPT, SAMPLING)
    assert (known.stats.tokens_per_round > 5) == family.shifted
    assert named.stats.tokens_per_round == known.stats.tokens_per_round


# What is missing, and what is left


@with_a_head
def test_every_tensor_of_a_head_is_needed(targets, tmp_path, family):
    folder = family.write(tmp_path / "draft")
    stored = load_file(folder / "model.safetensors")
    own = sorted(family.tensors().keys() - {"embed_tokens.weight", "lm_head.weight", "d2t", "t2d"})
    for number, name in enumerate({own[0], own[-1]}):
        rest = {other: tensor for other, tensor in stored.items() if other != name}
        less = world.write(tmp_path / str(number), family.config, rest)
        refused(
            lambda less=less: load_engine(targets[family.target], family.method, draft=less), str(less), name
        )


@every_family
def test_strangers_are_refused_by_name(targets, tmp_path, family):
    folder = family.write(tmp_path / "draft")
    stored = load_file(folder / "model.safetensors")
    more = world.write(tmp_path / "tensor", family.config, {**stored, "stranger.weight": torch.zeros(2, 3)})
    refused(
        lambda: load_engine(targets[family.target], family.method, draft=more),
        str(more),
        "1 unexpected tensor(s): stranger.weight [2, 3]",
        "the config announces",
    )
    more = world.write(tmp_path / "key", {**family.config, "stranger": 5}, stored)
    refused(
        lambda: load_engine(targets[family.target], family.method, draft=more),
        str(more),
        "1 unknown config key(s): stranger = 5",
    )


@pytest.mark.parametrize(
    "name", ["domino-huang", "deepspec-dspark", "lilicorr", "xpress-uiuc", "zlab-dflash2"]
)
def test_a_head_s_keys_without_its_tensors_and_the_other_way_round(targets, tmp_path, name):
    family = BY_NAME[name]
    keys_alone = world.write(tmp_path / "keys", family.config, world.drafter_tensors(shifted=family.shifted))
    refused(lambda: load_engine(targets["qwen3"], family.method, draft=keys_alone), str(keys_alone))
    plain = zlab(inside={} if not family.shifted else {"sample_from_anchor": True}, block_size=BLOCK)
    tensors_alone = world.write(
        tmp_path / "tensors",
        plain,
        world.drafter_tensors(shifted=family.shifted) | family.tensors(),
    )
    if name != "deepspec-dspark":  # whose head follows from its tensors
        refused(lambda: load_engine(targets["qwen3"], family.method, draft=tensors_alone), str(tensors_alone))


LENGTH_KEYS = {
    "use_thresh_head_two_model": True,
    "thresh_head_direct_len": True,
    "thresh_head_bottleneck_dim": 5,
}


def length_head_tensors():
    names = {"down": (5, 2 * D), "res.0": (5, 5), "out": (1, 5)}
    shapes = {f"thresh_head_two_model.{name}.weight": shape for name, shape in names.items()}
    return world.small(shapes | {name.replace("weight", "bias"): shape[:1] for name, shape in shapes.items()})


def test_the_length_head_of_adaflash_comes_with_its_drafter(targets, tmp_path):
    family = BY_NAME["zlab-old"]
    stored = length_head_tensors()
    folder = world.write(
        tmp_path / "both", zlab(inside=LENGTH_KEYS), world.drafter_tensors(shifted=False) | stored
    )
    options = DraftOptions(policy="adaflash")
    engine = load_engine(targets["qwen3"], family.method, draft=folder, options=options)
    weight = engine.parts.length_head.residual.weight
    assert torch.equal(weight, stored["thresh_head_two_model.res.0.weight"].to(weight.dtype))
    load_engine(targets["qwen3"], family.method, draft=folder)
    without = world.write(tmp_path / "without", zlab(inside={}), world.drafter_tensors(shifted=False))
    refused(
        lambda: load_engine(targets["qwen3"], family.method, draft=without, options=options),
        "policy: got adaflash",
        "no head of lengths",
    )


@pytest.mark.parametrize("case", ["keys", "switched off", "tensors", "other kind", "part"])
def test_a_length_head_that_is_not_whole_is_refused(targets, tmp_path, case):
    stored = length_head_tensors()
    if case == "part":
        del stored["thresh_head_two_model.out.bias"]
    keys = LENGTH_KEYS | {
        "switched off": {"use_thresh_head_two_model": False},
        "other kind": {"thresh_head_direct_len": False},
    }.get(case, {})
    folder = world.write(
        tmp_path / "draft",
        zlab(inside={} if case == "tensors" else keys),
        world.drafter_tensors(shifted=False) | ({} if case == "keys" else stored),
    )
    refused(
        lambda: load_engine(targets["qwen3"], BY_NAME["zlab-old"].method, draft=folder),
        str(folder),
        "thresh_head_",
    )


@pytest.mark.parametrize("name", ["domino-huang", "zlab-dflash2"])
def test_heads_without_a_reduced_form_are_refused_by_shape(targets, tmp_path, name):
    family = BY_NAME[name]
    tensors = reduced(family.tensors())
    cut = "embed_proj.2.weight" if name == "domino-huang" else "candidate_selector.successor_codebook"
    tensors[cut] = tensors[cut][: len(REDUCED)]
    folder = world.write(
        tmp_path / "draft",
        {**family.config, "draft_vocab_size": len(REDUCED)},
        world.drafter_tensors(shifted=family.shifted) | tensors,
    )
    refused(
        lambda: load_engine(targets["qwen3"], family.method, draft=folder), cut, "[9, 4], expected [12, 4]"
    )


def test_a_reduced_table_of_a_head_is_read_by_the_drafter_s_own_rows(targets, tmp_path):
    """W2 says a token of the draft vocabulary loudly; the token that it stands for is what is drafted."""
    family = BY_NAME["speculators-dspark-reduced"]
    for row, token in ((3, 4), (7, 9)):
        tensors = world.drafter_tensors(shifted=True) | family.tensors()
        tensors["markov_head.markov_w1.weight"] = torch.ones(V, RANK)
        tensors["markov_head.markov_w2.weight"] = torch.zeros(len(REDUCED), RANK)
        tensors["markov_head.markov_w2.weight"][row] = 100.0
        folder = world.write(tmp_path / str(row), family.config, tensors)
        engine = load_engine(targets["qwen3"], "dspark", draft=folder)
        seen = []
        head = engine.parts.corrector
        assert head is not None
        inner = head.scores
        object.__setattr__(
            head,
            "scores",
            lambda prepared, depth, state, inner=inner, seen=seen: (
                seen.append(
                    prepared.candidates.tokens(
                        depth, (best := inner(prepared, depth, state)).argmax(dim=-1)
                    ).item()
                )
                or best
            ),
        )
        engine.generate(world.PROMPT, SAMPLING)
        assert set(seen) == {token}


def test_copies_have_to_be_the_target_s_own(targets, tmp_path):
    family = BY_NAME["deepspec-dspark"]
    folder = family.write(tmp_path / "draft")
    stored = load_file(folder / "model.safetensors")
    stored["lm_head.weight"] = stored["lm_head.weight"] + 1
    other = world.write(tmp_path / "other", family.config, stored)
    refused(lambda: load_engine(targets["qwen3"], "dspark", draft=other), "lm_head.weight", "a copy")
    assert load_target(targets["qwen3"]).head_VD.shape == (V, D)
