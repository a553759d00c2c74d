"""Pairs in the layouts of other engines load again, with the same scores, and what a layout cannot say is refused."""

import json

import pytest
import torch

from speccorrect.registry import claim_head, corrector_specs
from speccorrect.source import HeadShape, HeadSource
from specmodels import load_drafter
from specmodels.checkpoint.files import TensorFolder
from specmodels.dflash import ConvConfig, LayerKind
from spectrain.export import export

from doubles.blocks import randomise
from doubles.tiny import dflash_config, qwen3_config, tiny_drafter

TARGET = qwen3_config()
IN_SPECULATORS = ("none", "dspark", "dflash2", "xpress")
SLIDING = LayerKind(window=5, causal=True)


def pair(name, **changes):
    config = dflash_config(TARGET, **changes)
    shape = HeadShape(hidden_size=32, vocab_size=61, block_size=config.block_size, shifted=config.shifted)
    return tiny_drafter(TARGET, config), randomise(corrector_specs()[name].new(shape), 1)


def loaded(folder):
    """The pair in a folder, with nothing of it left over."""
    found = load_drafter(folder, TARGET, dtype=torch.float32)
    config = found.drafter.config
    shape = HeadShape(hidden_size=32, vocab_size=61, block_size=config.block_size, shifted=config.shifted)
    source = HeadSource(shape, dict(found.leftover_config), dict(found.leftover_tensors))
    name, head = claim_head(source)
    assert not source.config
    assert not source.tensors
    return name, found.drafter, head


def same(ours, theirs):
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, theirs.state_dict()[name]), name


@pytest.mark.parametrize(
    ("name", "layout"),
    [(name, "public") for name in corrector_specs()] + [(name, "speculators") for name in IN_SPECULATORS],
)
def test_a_pair_comes_back(tmp_path, name, layout):
    conv = {"conv": ConvConfig(taps=2, group=8)} if name == "dflash2" else {}
    drafter, head = pair(name, **conv)
    export(
        drafter, name, head, TARGET, tmp_path, dtype=torch.float32, layout=layout, verifier="Qwen/Qwen3-8B"
    )
    found, its_drafter, its_head = loaded(tmp_path)
    assert found == name
    assert its_drafter.config == drafter.config
    same(drafter, its_drafter)
    same(head, its_head)


@pytest.mark.parametrize("layers", [(SLIDING, SLIDING), (LayerKind(window=5, causal=False),) * 2])
@pytest.mark.parametrize("shifted", [False, True])
def test_layers_and_layout_of_slots_come_back(tmp_path, layers, shifted):
    drafter, head = pair("dspark", layers=layers, shifted=shifted)
    export(drafter, "dspark", head, TARGET, tmp_path, dtype=torch.float32, layout="speculators", verifier="x")
    assert loaded(tmp_path)[1].config == drafter.config


def test_the_config_of_the_format(tmp_path):
    drafter, head = pair("xpress")
    export(
        drafter,
        "xpress",
        head,
        TARGET,
        tmp_path,
        dtype=torch.bfloat16,
        layout="speculators",
        verifier="Qwen/X",
    )
    config = json.loads((tmp_path / "config.json").read_text())
    # ids count from the embedding's output, and five of six rows draft
    assert config["aux_hidden_state_layer_ids"] == [layer + 1 for layer in drafter.config.target_layers]
    assert config["speculators_config"]["verifier"]["name_or_path"] == "Qwen/X"
    assert config["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 5
    assert config["speculators_model_type"] == "xpress"
    assert config["transformer_layer_config"]["num_hidden_layers"] == 2
    assert (config["xpress_mlp_ratio"], config["num_jacobi_passes"]) == (2, 6)
    assert "refiner_head.mix_l" in TensorFolder(tmp_path).names


def test_a_reduced_vocabulary_has_both_maps(tmp_path):
    drafter, head = pair("none", draft_vocab_size=20)
    drafter.draft_to_target_v.copy_(torch.arange(20) * 3)
    export(drafter, "none", head, TARGET, tmp_path, dtype=torch.float32, layout="speculators", verifier="x")
    held = TensorFolder(tmp_path).read("t2d")
    assert held.nonzero().flatten().tolist() == list(range(0, 60, 3))
    assert torch.equal(loaded(tmp_path)[1].draft_to_target_v, drafter.draft_to_target_v)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "domino",
            {},
            "the format of speculators has no head domino, expected one of dflash, dflash2, dspark, xpress",
        ),
        ("none", {"layers": (LayerKind(window=None, causal=True),) * 2}, "no causal full layers"),
        ("none", {"output_multiplier": 2.0}, "has no output_multiplier"),
        ("none", {"softcap": 9.0}, "has no final_logit_softcapping"),
    ],
)
def test_what_the_format_cannot_say(tmp_path, name, changes, message):
    drafter, head = pair(name, **changes)
    with pytest.raises(ValueError, match=message):
        export(drafter, name, head, TARGET, tmp_path, dtype=torch.float32, layout="speculators", verifier="x")
    with pytest.raises(ValueError, match="layout: got 'onnx', expected one of public, speculators"):
        export(drafter, name, head, TARGET, tmp_path, dtype=torch.float32, layout="onnx")
