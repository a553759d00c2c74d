"""The corrector of CONTRIBUTING.md, saved as one file, becomes two lossless methods and nothing else changes."""

import re
import sys
from pathlib import Path

import pytest
import torch

from speccorrect import correctors, registry
from speccorrect.source import HeadShape, HeadSource
from specrun.config import Sampling
from specrun.engine import Engine
from specrun.methods import method, methods

from doubles.tiny import dflash_config, qwen3_config, tiny_drafter, tiny_target

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture
def bigram(tmp_path, monkeypatch):
    """The guide's code as a file of the correctors' folder."""
    code = re.search(r'```python\n("""Bigram.*?)```', GUIDE.read_text(), re.DOTALL)
    assert code is not None, "the guide holds no corrector"
    (tmp_path / "bigram.py").write_text(code.group(1))
    monkeypatch.setattr(correctors, "__path__", [*correctors.__path__, str(tmp_path)])
    registry.corrector_specs.cache_clear()
    methods.cache_clear()
    yield registry.corrector_spec("bigram")
    monkeypatch.undo()
    sys.modules.pop("speccorrect.correctors.bigram", None)
    registry.corrector_specs.cache_clear()
    methods.cache_clear()


def test_one_file_is_two_lossless_methods(bigram):
    target = tiny_target(qwen3_config())
    drafter = tiny_drafter(target.config, dflash_config(target.config))
    vocab = target.config.vocab_size
    shape = HeadShape(hidden_size=32, vocab_size=vocab, block_size=6, shifted=False)
    head = bigram.new(shape)
    head.table_VV.data.normal_(generator=torch.Generator().manual_seed(0))
    sampling = Sampling(max_new_tokens=24, temperature=0.9, seed=3, stop_ids=())
    prompts = [[1, 2, 3], [9]]
    expected = Engine(target, method("ar")).generate_batch(prompts, sampling)
    for name in ("bigram", "bigramtree"):
        engine = Engine(target, method(name), drafter=drafter, corrector=head)
        answers = engine.generate_batch(prompts, sampling)
        assert [answer.token_ids for answer in answers] == [answer.token_ids for answer in expected]

    config, tensors = bigram.save(head)
    source = HeadSource(shape, dict(config), dict(tensors))
    name, loaded = registry.claim_head(source)
    assert name == "bigram"
    assert not source.config
    assert not source.tensors
    assert torch.equal(loaded.table_VV, head.table_VV)


def test_the_registry_is_as_before():
    assert "bigram" not in registry.corrector_specs()
