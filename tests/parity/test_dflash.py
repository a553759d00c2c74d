"""The drafter against the authors' package `dflash`: the same weights, through the folder that we write, and features.

Catches a context that passes a norm it should not, wrong positions, wrong masks of sliding and causal layers, and taps
off by one.
"""

import pytest
import torch

from specmodels import save_drafter
from specmodels.dflash import BlockRows, ConvConfig, LayerKind, block_mask
from specmodels.kv import CacheMemory, ContextMemory, RowsMemory
from specmodels.layers.rope import RopeConfig

from doubles.tiny import dflash_config, qwen3_config, tiny_drafter, tiny_target

pytest.importorskip("transformers")
reference = pytest.importorskip("dflash.model")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

# fp32 on hidden rows of size 1
HIDDEN = 1e-5
TARGET = qwen3_config(num_layers=6)
CONTEXT, SECOND = 23, 4

FULL, SLIDING = LayerKind(window=None, causal=False), LayerKind(window=7, causal=True)
CONFIGS = {
    "full": {},
    "sliding": {"layers": (SLIDING, SLIDING)},
    "mixed": {"layers": (FULL, SLIDING, FULL)},
    "sliding-both-ways": {"layers": (LayerKind(window=3, causal=False),) * 2},
    "causal": {"layers": (LayerKind(window=None, causal=True),) * 2},
    "bias": {"attention_bias": True},
    "yarn": {
        "rope": RopeConfig(theta=1e4, kind="yarn", factor=4.0, original_positions=16),
        "max_positions": 64,
    },
    "conv": {"conv": ConvConfig(taps=3, group=8)},
}


@pytest.fixture(params=CONFIGS)
def pair(request, tmp_path):
    config = dflash_config(TARGET, **{"target_layers": (1, 4, 2), **CONFIGS[request.param]})
    ours = tiny_drafter(TARGET, config)
    save_drafter(ours, TARGET, tmp_path)
    kind = reference.DFlashDraftModel
    if config.conv is not None:
        # their class insists on a selector too; its weights are of no consequence for the hidden rows
        add_selector(tmp_path)
        kind = reference.DFlash2DraftModel
    theirs, report = kind.from_pretrained(tmp_path, dtype=torch.float32, output_loading_info=True)
    assert not report["unexpected_keys"], report
    assert all(name.startswith("candidate_selector") for name in report["missing_keys"]), report
    return ours, theirs.eval()


def add_selector(folder) -> None:
    import json

    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["dflash_config"] |= {"selector_rank": 4, "selector_top_k": 4}
    path.write_text(json.dumps(config))


def features(rows: int, seed: int) -> torch.Tensor:
    return torch.randn(1, rows, 3 * TARGET.hidden_size, generator=torch.Generator().manual_seed(seed))


def block(seed: int) -> torch.Tensor:
    return torch.randn(1, 6, TARGET.hidden_size, generator=torch.Generator().manual_seed(seed))


def masks(drafter, anchor: int, key_position, key_block):
    at = torch.arange(anchor, anchor + 6)[None]
    queries = BlockRows(at, torch.zeros_like(at), torch.full_like(at, anchor))
    return [block_mask(kind, queries, key_position[None], key_block[None]) for kind in drafter.config.layers]


@torch.no_grad()
def test_two_rounds_with_a_cache(pair):
    """The second round adds context rows only, after the block rows of the first were dropped."""
    ours, theirs = pair
    cache = reference._make_cache(theirs.config)
    kv = ours.new_kv(batch=1, capacity=48)
    filled = 0
    for anchor, seed in ((CONTEXT, 1), (CONTEXT + SECOND, 2)):
        rows = features(anchor - filled, seed)
        expected = theirs(
            position_ids=torch.arange(filled, anchor + 6)[None],
            noise_embedding=block(seed),
            target_hidden=rows,
            past_key_values=cache,
            use_cache=True,
        )
        reference._crop_to(cache, anchor)
        new = torch.arange(filled, anchor)[None]
        for layer, (key, value) in enumerate(ours.context_kv(ours.context(rows), new)):
            kv.write(layer, new, key, value)
        at = torch.arange(anchor, anchor + 6)[None]
        slots = torch.arange(48)
        owner = torch.where(slots < anchor, -1, torch.where(slots < anchor + 6, 0, 7))
        memories = tuple(CacheMemory(kv, at, mask) for mask in masks(ours, anchor, slots, owner))
        torch.testing.assert_close(ours(block(seed), at, memories), expected, atol=HIDDEN, rtol=0)
        filled = anchor


@torch.no_grad()
def test_training_form_of_the_same_block(pair):
    ours, theirs = pair
    rows = features(CONTEXT, 1)
    expected = theirs(
        position_ids=torch.arange(CONTEXT + 6)[None],
        noise_embedding=block(1),
        target_hidden=rows,
        use_cache=False,
    )
    at = torch.arange(CONTEXT, CONTEXT + 6)[None]
    context = ours.context_kv(ours.context(rows), torch.arange(CONTEXT)[None])
    owner = torch.cat([torch.full((CONTEXT,), -1), torch.zeros(6, dtype=torch.int64)])
    memories = tuple(
        ContextMemory(context, mask) for mask in masks(ours, CONTEXT, torch.arange(CONTEXT + 6), owner)
    )
    torch.testing.assert_close(ours(block(1), at, memories), expected, atol=HIDDEN, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize(
    "changes", [{}, {"output_multiplier": 0.3}, {"softcap": 2.0, "output_multiplier": 3.0}]
)
def test_logits(tmp_path, changes):
    target = tiny_target(TARGET)
    ours = tiny_drafter(TARGET, dflash_config(TARGET, **changes))
    save_drafter(ours, TARGET, tmp_path)
    theirs = reference.DFlashDraftModel.from_pretrained(tmp_path, dtype=torch.float32)
    head = torch.nn.Linear(32, TARGET.vocab_size, bias=False)
    head.weight = torch.nn.Parameter(target.head_VD)
    hidden = block(3)
    torch.testing.assert_close(
        ours.logits(hidden, target.head_VD), theirs.compute_logits(hidden, head), atol=HIDDEN, rtol=0
    )


@torch.no_grad()
def test_features_are_the_reference_s(tmp_path):
    from specmodels import save_target

    ours = tiny_target(TARGET)
    save_target(ours, tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    tokens = torch.randint(61, (1, 12), generator=torch.Generator().manual_seed(0))
    states = theirs(tokens, output_hidden_states=True).hidden_states
    expected = reference.extract_context_feature(states, [1, 4, 2])
    out = ours(tokens, torch.arange(12)[None], RowsMemory(), taps=(1, 4, 2))
    # rows between layers are not normalised: their last bit is as large as they are
    close = HIDDEN * max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(out.features_BQF, expected, atol=close, rtol=0)


def test_default_layers_are_the_reference_s():
    from specmodels.checkpoint.dflash import default_target_layers

    for layers in range(6, 80):
        for drafter in range(1, 8):
            expected = tuple(reference.build_target_layer_ids(layers, drafter))
            assert default_target_layers(layers, drafter) == expected
