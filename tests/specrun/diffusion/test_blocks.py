"""Block decoding with a cache against decoding without one, and its rules on scripted models.

Catches keys of masks left in the cache, a prompt that shares its block, thresholds that are not strict, endless edits.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specrun.config import Sampling
from specrun.diffusion.config import Decoding
from specrun.diffusion.engine import DiffusionEngine
from specrun.diffusion.methods import DIFFUSION_METHODS

from doubles.scripted import Scripted
from doubles.tiny import llada2_config, tiny_llada2
from reference.block_diffusion import decode

BLOCK = 8
END = 1
MODEL = tiny_llada2(dtype=torch.float64)
# a random model is seldom sure: these thresholds let some masks and edits pass and not others
LOOSE = Decoding(block=BLOCK, mask_threshold=0.3, edit_threshold=0.25, edit_steps=4)


def engine(model=MODEL, decoding=LOOSE, **settings):
    return DiffusionEngine(
        model, DIFFUSION_METHODS["block-diffusion"], stop_ids=(END,), decoding=decoding, **settings
    )


def prompt(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, 52, (length,), generator=generator).tolist()


# Ends inside a block, at an edge, one before and one behind it; shorter than a block; several blocks
@pytest.mark.parametrize("length", [1, 5, 7, 8, 9, 15, 16, 17, 24])
@pytest.mark.parametrize("budget", [1, 13, 24])
def test_a_cache_changes_no_id(length, budget):
    ids = prompt(length, seed=length)
    found = engine().generate(ids, Sampling(max_new_tokens=budget))
    assert found.token_ids == decode(MODEL, ids, budget, LOOSE, END)


@settings(max_examples=40)
@given(
    length=st.integers(1, 20),
    budget=st.integers(0, 16),
    seed=st.integers(0, 10**6),
    mask_threshold=st.floats(0, 1),
    edit_threshold=st.one_of(st.none(), st.floats(0, 1)),
    edit_steps=st.integers(0, 5),
    block=st.sampled_from([1, 3, 8]),
)
def test_a_cache_changes_no_id_whatever_the_settings(
    length, budget, seed, mask_threshold, edit_threshold, edit_steps, block
):
    decoding = Decoding(
        block=block, mask_threshold=mask_threshold, edit_threshold=edit_threshold, edit_steps=edit_steps
    )
    ids = prompt(length, seed)
    found = engine(decoding=decoding).generate(ids, Sampling(max_new_tokens=budget))
    assert found.token_ids == decode(MODEL, ids, budget, decoding, END)


def test_edits_happen_in_these_tests():
    stats = [engine().generate(prompt(9, seed), Sampling(max_new_tokens=24)).stats for seed in range(8)]
    assert sum(one.draft_edits for one in stats) > 10
    assert sum(one.settle_forwards for one in stats) > 2
    assert sum(one.tokens for one in stats) > sum(one.forwards for one in stats) / 3


def test_a_pass_fills_at_least_one_mask_and_never_writes_the_mask():
    mask = MODEL.config.mask_token_id
    # the mask itself is the likeliest token of this model, and nothing else is likely
    model = Scripted(lambda positions, tokens: [(mask, 0.9)] * len(tokens))
    found = engine(model, Decoding(block=BLOCK, edit_steps=0)).generate(prompt(8), Sampling(max_new_tokens=8))
    assert len(found.token_ids) == 8
    assert mask not in found.token_ids
    assert found.stats.forwards == model.passes - 1 == 8, "the prompt's pass is none of them"


def test_thresholds_are_strict():
    model = Scripted(lambda positions, tokens: [(7, 0.5)] * len(tokens))
    at = Decoding(block=BLOCK, mask_threshold=0.5, edit_threshold=None)
    below = Decoding(block=BLOCK, mask_threshold=0.49, edit_threshold=None)
    ids = prompt(8)
    assert engine(model, below).generate(ids, Sampling(max_new_tokens=8)).stats.forwards == 2
    assert engine(model, at).generate(ids, Sampling(max_new_tokens=8)).stats.forwards == 9


def test_an_answer_that_is_empty():
    model = Scripted(lambda positions, tokens: [(END, 0.99)] * len(tokens))
    found = engine(model).generate(prompt(5), Sampling(max_new_tokens=20))
    assert (found.token_ids, found.finish) == ([END], "stop")
    none = engine(model).generate(prompt(5), Sampling(max_new_tokens=0))
    assert (none.token_ids, none.finish, none.stats.forwards) == ([], "length", 0)


def test_decoding_stops_at_the_first_end():
    """An end in the second block: the third is never decoded."""
    model = Scripted(lambda positions, tokens: [(END if place == 19 else 7, 0.99) for place in positions])
    found = engine(model).generate(prompt(8), Sampling(max_new_tokens=40))
    assert found.token_ids == [7] * 11 + [END]
    assert found.stats.draft_forwards == 4


def test_a_cycle_of_edits_ends():
    """The model always wants the other of two tokens; the state that it explains better stays."""

    def rule(positions, tokens):
        return [(6, 0.6) if token == 7 else (7, 0.9) for token in tokens]

    model = Scripted(rule)
    decoding = Decoding(block=BLOCK, mask_threshold=0.5, edit_threshold=0.5, edit_steps=1_000)
    found = engine(model, decoding).generate(prompt(8), Sampling(max_new_tokens=8))
    # a row of 7 is held with probability .4 / 51, a row of 6 with .1 / 51
    assert found.token_ids == [7] * 8
    assert found.stats.draft_forwards == 3


def test_a_mask_inside_the_prompt_is_the_user_s_own():
    mask = MODEL.config.mask_token_id
    ids = [*prompt(9), mask, 4]
    found = engine().generate(ids, Sampling(max_new_tokens=8))
    assert found.token_ids == decode(MODEL, ids, 8, LOOSE, END)


def test_a_block_that_the_context_cuts():
    model = tiny_llada2(llada2_config(max_positions=21))
    found = engine(model).generate(prompt(9), Sampling(max_new_tokens=12))
    assert len(found.token_ids) == 12 or found.finish == "stop"


def test_a_prompt_longer_than_the_context():
    with pytest.raises(ValueError, match=r"prompt: got 250 tokens and 10 new ones, expected at most 256"):
        engine().generate(prompt(250), Sampling(max_new_tokens=10))


@pytest.mark.parametrize(
    "sampling",
    [Sampling(top_k=5), Sampling(top_p=0.5), Sampling(stop=("x",)), Sampling(repetition_penalty=1.1)],
)
def test_what_has_no_effect_is_refused(sampling):
    with pytest.raises(ValueError, match="has no effect with block diffusion"):
        engine().generate(prompt(5), sampling)


def test_reopened_blocks_are_edited_with_sight_of_each_other():
    """A token of the first block that is wrong in the light of the second is mended once both are open."""

    def rule(positions, tokens):
        wide = len(positions) > BLOCK
        return [(9 if wide and place == 10 else 7, 0.99) for place in positions]

    alone = engine(Scripted(rule)).generate(prompt(8), Sampling(max_new_tokens=16))
    assert alone.token_ids == [7] * 16
    decoding = Decoding(block=BLOCK, reopened=2)
    together = engine(Scripted(rule), decoding).generate(prompt(8), Sampling(max_new_tokens=16))
    assert together.token_ids == [7, 7, 9, *[7] * 13]


def test_what_was_given_out_does_not_change():
    decoding = Decoding(block=BLOCK, mask_threshold=0.3, edit_threshold=0.2, reopened=2)
    for seed in range(4):
        pieces = list(engine(decoding=decoding).stream(prompt(9, seed), Sampling(max_new_tokens=30)))
        final = pieces[-1].generation.token_ids
        assert all(final[: len(piece.token_ids)] == piece.token_ids for piece in pieces)
        assert len(pieces) > 3


def test_equal_seeds_draw_equal_answers():
    ids = prompt(9)

    def drawn(seed):
        return engine().generate(ids, Sampling(max_new_tokens=24, temperature=1.5, seed=seed)).token_ids

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(4)}) > 1
