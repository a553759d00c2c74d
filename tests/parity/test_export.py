"""Exports in the format of speculators, opened by the package's own classes: every tensor finds its place, and the
hidden rows and scores of a block are ours.
"""

import importlib
import importlib.util
import sys
import warnings
from types import ModuleType

import pytest
import torch

from speccorrect.registry import corrector_specs
from speccorrect.source import HeadShape
from specmodels.dflash import BlockRows, ConvConfig, block_mask
from specmodels.kv import CacheMemory
from spectrain.export import export

from doubles.blocks import randomise
from doubles.tiny import dflash_config, qwen3_config, tiny_drafter, tiny_target

pytestmark = pytest.mark.parity

CLOSE = 1e-5  # fp32 on rows of size 1, summed in another order
TARGET = qwen3_config()
CONTEXT = 17
CLASSES = {
    "none": "DFlashDraftModel",
    "dspark": "DSparkDraftModel",
    "dflash2": "DFlash2DraftModel",
    "xpress": "XPressDraftModel",
}


@pytest.fixture(name="reference", scope="module")
def _reference():
    """Classes of the package by head. Its own `__init__` asks for trainers and servers, and is not run."""
    others = {
        name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "speculators"
    }
    found = importlib.util.find_spec("speculators")
    if found is None:
        pytest.skip("speculators is not installed")
    (root,) = found.submodule_search_locations
    for package in ("speculators", "speculators.models"):
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = ["/".join([root, *package.split(".")[1:]])]
    config = importlib.import_module("speculators.config")
    sys.modules["speculators"].SpeculatorModelConfig = config.SpeculatorModelConfig

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # what the package and torch say of themselves while they are imported
        importlib.import_module("speculators.proposals.greedy")
        cores = {
            name: importlib.import_module(f"speculators.models.{'dflash' if name == 'none' else name}.core")
            for name in CLASSES
        }
        config.reload_schemas()
    yield {name: getattr(core, CLASSES[name]) for name, core in cores.items()}
    for name in [name for name in sys.modules if name.partition(".")[0] == "speculators"]:
        del sys.modules[name]
    sys.modules.update(others)


@pytest.mark.parametrize("name", CLASSES)
@torch.no_grad()
def test_the_package_opens_an_export(reference, tmp_path, monkeypatch, name):
    conv = {"conv": ConvConfig(taps=2, group=8)} if name == "dflash2" else {}
    config = dflash_config(TARGET, **conv)
    drafter, target = tiny_drafter(TARGET, config), tiny_target(TARGET)
    shape = HeadShape(hidden_size=32, vocab_size=61, block_size=config.block_size, shifted=config.shifted)
    head = randomise(corrector_specs()[name].new(shape), 1)
    export(drafter, name, head, TARGET, tmp_path, dtype=torch.float32, layout="speculators", verifier="none")
    kind = reference[name]
    # the target's own tensors are not in the folder; the test gives them below
    monkeypatch.setattr(kind, "load_verifier_weights", lambda self: None)
    config_of_theirs = kind.config_class.from_pretrained(tmp_path)
    config_of_theirs.transformer_layer_config._attn_implementation = "eager"  # not compiled
    theirs, report = kind.from_pretrained(
        tmp_path, config=config_of_theirs, dtype=torch.float32, output_loading_info=True
    )
    owned = ("embed_tokens", "lm_head", "verifier", "t2d", "d2t")
    assert not report["unexpected_keys"], report
    assert not [key for key in report["missing_keys"] if not key.startswith(owned)], report
    theirs.embed_tokens.weight.copy_(target.embedding)
    theirs.lm_head.weight.copy_(target.head_VD)

    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, 60, (1, 40), generator=generator)
    features = torch.randn(1, 40, len(config.target_layers) * TARGET.hidden_size, generator=generator)
    only = torch.zeros(1, 40)
    only[0, CONTEXT] = 1
    hidden, logits, *_ = theirs.eval()._backbone_forward(
        features,
        tokens,
        only,
        torch.zeros(1, 40, TARGET.hidden_size),
        torch.zeros(1, 40, dtype=torch.long),
        max_anchors=1,
    )
    ours = rows_of(drafter, target, features[:, :CONTEXT], tokens[:, CONTEXT])
    torch.testing.assert_close(ours, hidden, atol=CLOSE, rtol=0)
    torch.testing.assert_close(drafter.logits(ours, target.head_VD), logits, atol=10 * CLOSE, rtol=0)
    theirs_by_name = dict(theirs.state_dict())
    for key, tensor in corrector_specs()[name].save(head)[1].items():
        renamed = RENAMED.get(key, key)
        found = theirs_by_name[renamed if renamed in theirs_by_name else renamed + ".weight"]
        assert torch.equal(found, tensor), key


def rows_of(drafter, target, features, anchor):
    """Hidden rows of one block behind a context, as the engine computes them."""
    config, kv = drafter.config, drafter.new_kv(batch=1, capacity=48)
    past = torch.arange(CONTEXT)[None]
    for layer, (key, value) in enumerate(drafter.context_kv(drafter.context(features), past)):
        kv.write(layer, past, key, value)
    at = torch.arange(CONTEXT, CONTEXT + config.block_size)[None]
    slots = torch.arange(48)
    owner = torch.where(slots < CONTEXT, -1, torch.where(slots < CONTEXT + config.block_size, 0, 7))
    queries = BlockRows(at, torch.zeros_like(at), torch.full_like(at, CONTEXT))
    memories = tuple(
        CacheMemory(kv, at, block_mask(kind, queries, slots[None], owner[None])) for kind in config.layers
    )
    filled = torch.full_like(at, config.mask_token_id)
    filled[:, 0] = anchor
    return drafter(target.embed(filled), at, memories)


RENAMED = {
    "xpress_head.w1.weight": "refiner_head.token_embed.weight",
    "xpress_head.w2.weight": "refiner_head.readout.weight",
    "xpress_head.down_h.weight": "refiner_head.down_h.weight",
    "xpress_head.down_g.weight": "refiner_head.down_g.weight",
    "xpress_head.in_proj.weight": "refiner_head.in_proj.weight",
    "xpress_head.mix.L": "refiner_head.mix_l",
    "xpress_head.mlp.gate_proj.weight": "refiner_head.mlp_gate.weight",
    "xpress_head.mlp.up_proj.weight": "refiner_head.mlp_up.weight",
    "xpress_head.mlp.down_proj.weight": "refiner_head.mlp_down.weight",
}
