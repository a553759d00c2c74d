"""The whole loop against the authors' loop on the embedded pair: the same ids, and the same accepted lengths per round.

Catches what no comparison of single passes can: features of the wrong rows, a cache cropped by one too many, an anchor
that is counted twice.
"""

import pytest
import torch

import spectiny
from specmodels import load_target
from specrun import Sampling, load_engine
from specrun.engine import Engine

pytest.importorskip("transformers")
reference = pytest.importorskip("dflash.model")
transformers = pytest.importorskip("transformers")
# the reference passes its cache under a name that transformers is about to retire
pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore:.past_key_values:FutureWarning")]

PROMPTS, NEW_TOKENS = 40, 64


@pytest.fixture(scope="module")
def theirs():
    """Both models in the reference implementations; its timer wants a GPU only for statistics."""
    target = transformers.AutoModelForCausalLM.from_pretrained(
        spectiny.folder("qwen3-tiny"), dtype=torch.float32
    )
    drafter = reference.DFlashDraftModel.from_pretrained(
        spectiny.folder("qwen3-tiny-dflash"), dtype=torch.float32
    )
    return target.eval(), drafter.eval()


def our_rounds(engine: Engine, ids: list[int], sampling: Sampling) -> tuple[list[int], list[int]]:
    """Ids, and new tokens per round behind the first token."""
    pieces = list(engine.stream(ids, sampling))
    tokens = [token for piece in pieces for token in piece.token_ids]
    return tokens, [len(piece.token_ids) for piece in pieces[1:]]


@torch.no_grad()
def test_ids_and_accepted_lengths(theirs, monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    target, drafter = theirs
    engine = load_engine("tiny", "dflash")
    block = engine.plan_for([Sampling()]).block_size
    prompts = [
        document.prompt for domain in spectiny.DOMAINS[:4] for document in spectiny.prompts(domain)[:10]
    ]
    assert len(prompts) == PROMPTS
    compared = 0
    for prompt in prompts:
        ids = engine.chat_ids(prompt)
        expected = reference.dflash_generate(
            drafter, target, torch.tensor([ids]), NEW_TOKENS, list(engine.stop_ids), return_stats=True
        )
        tokens, rounds = our_rounds(engine, ids, Sampling(max_new_tokens=NEW_TOKENS))
        assert tokens == expected.output_ids[0, len(ids) :].tolist()
        # near the budget the reference drafts a shorter block, which changes what the drafter says
        whole, emitted = 0, 1
        for length in rounds:
            if NEW_TOKENS - emitted < block:
                break
            whole, emitted = whole + 1, emitted + length
        assert rounds[:whole] == expected.acceptance_lengths[:whole]
        compared += whole
    assert compared > 2 * PROMPTS


@torch.no_grad()
def test_plain_decoding_is_transformers(theirs):
    target, _ = theirs
    engine = load_engine("tiny", "ar")
    assert load_target(spectiny.folder("qwen3-tiny")).config.num_layers == target.config.num_hidden_layers
    for document in spectiny.prompts("math")[:4]:
        ids = engine.chat_ids(document.prompt)
        expected = target.generate(
            torch.tensor([ids]), max_new_tokens=48, do_sample=False, eos_token_id=list(engine.stop_ids)
        )
        assert engine.generate(ids, Sampling(max_new_tokens=48)).token_ids == expected[0, len(ids) :].tolist()
