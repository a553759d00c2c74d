"""Refinement of a whole draft: against passes over the whole text without a cache, and its rules on scripted models."""

from itertools import pairwise

import pytest
import torch

from specrun.config import Sampling
from specrun.diffusion.canvas import new_canvas
from specrun.diffusion.config import Decoding, Refinement
from specrun.diffusion.engine import DiffusionEngine
from specrun.diffusion.guess import Draw
from specrun.diffusion.methods import DIFFUSION_METHODS
from specrun.diffusion.refine import refine
from specrun.diffusion.stats import DiffusionStats

from doubles.scripted import Scripted
from doubles.tiny import tiny_llada2
from reference import block_diffusion as reference

BLOCK, END, MASK = 8, 1, 52
MODEL = tiny_llada2(dtype=torch.float64)
GREEDY = Draw()


def drafted(prompt: list[int], draft: list[int], budget: int | None = None):
    canvas = new_canvas(
        prompt,
        len(draft) if budget is None else budget,
        block=BLOCK,
        longest=256,
        mask_id=MASK,
        end_ids=(END,),
        device=torch.device("cpu"),
    )
    canvas.ids_T[len(prompt) : len(prompt) + len(draft)] = torch.tensor(draft, dtype=torch.int64)
    return canvas


def random_ids(count: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, 52, (count,), generator=generator).tolist()


def run(model, canvas, refinement) -> DiffusionStats:
    stats = DiffusionStats()
    list(refine(model, canvas, refinement, GREEDY, stats))
    return stats


def at(truth: list[int], start: int, sure: float = 0.99):
    """An oracle: it knows the text from `start` on."""

    def rule(positions, tokens):
        return [(truth[place - start] if 0 <= place - start < len(truth) else 5, sure) for place in positions]

    return rule


@pytest.mark.parametrize("ahead", [0, 1, 2, None])
@pytest.mark.parametrize("length", [3, 8, 21, 24])
def test_the_prompt_s_cache_changes_no_id(ahead, length):
    """Looking ahead, rows of the prompt depend on the answer, even where they see the prompt alone."""
    prompt = random_ids(length, seed=length)
    draft = random_ids(-length % BLOCK + 16, seed=1)
    settings = Refinement(ahead=ahead, edit_threshold=0.15, steps=2)
    canvas = drafted(prompt, draft)
    stats = run(MODEL, canvas, settings)
    assert sum(stats.edits_per_step) > 2
    assert canvas.ids_T.tolist() == prompt + reference.refine(MODEL, prompt, draft, settings, BLOCK)


def test_views_differ():
    prompt, draft = random_ids(9, seed=0), random_ids(23, seed=1)
    found = set()
    for ahead in (0, 1, None):
        canvas = drafted(prompt, draft)
        run(MODEL, canvas, Refinement(ahead=ahead, edit_threshold=0.15, steps=2))
        found.add(tuple(canvas.ids_T.tolist()))
    assert len(found) == 3


def test_no_steps_leave_the_draft_as_it_is():
    model = Scripted(at([9] * 12, 5))
    canvas = drafted([2] * 5, [3] * 11)
    stats = run(model, canvas, Refinement(steps=0))
    assert canvas.answer() == [3] * 11
    assert (model.passes, stats.refine_forwards, stats.edits_per_step) == (0, 0, [])


def test_an_oracle_mends_everything_in_one_pass_and_a_second_finds_nothing():
    truth = [*random_ids(10, seed=3), END]
    canvas = drafted([2] * 5, random_ids(11, seed=4))
    stats = run(Scripted(at(truth, 5)), canvas, Refinement())
    assert canvas.answer() == truth
    assert stats.refine_forwards == 2
    assert stats.edits_per_step[1] == 0


def test_a_fixed_point_takes_one_pass():
    truth = [*random_ids(10, seed=3), END]
    canvas = drafted([2] * 5, truth)
    assert run(Scripted(at(truth, 5)), canvas, Refinement()).refine_forwards == 1
    assert canvas.answer() == truth


def test_the_prompt_never_changes():
    prompt = random_ids(13, seed=5)
    canvas = drafted(prompt, random_ids(19, seed=6))
    run(Scripted(lambda positions, tokens: [(9, 0.99)] * len(tokens)), canvas, Refinement())
    assert canvas.ids_T[:13].tolist() == prompt
    assert canvas.answer() == [9] * 19


@pytest.mark.parametrize(("threshold", "edits"), [(0.9, 0), (0.89, 11), (1.0, 0), (0.0, 11)])
def test_the_threshold_is_strict(threshold, edits):
    canvas = drafted([2] * 5, [3] * 11)
    model = Scripted(lambda positions, tokens: [(9, 0.9)] * len(tokens))
    stats = run(model, canvas, Refinement(edit_threshold=threshold))
    assert stats.edits_per_step[0] == edits


def test_the_surest_edits_come_first():
    canvas = drafted([2] * 5, [3] * 11)
    model = Scripted(lambda positions, tokens: [(9, 0.9 + place / 1000) for place in positions])
    stats = DiffusionStats()
    passes = refine(model, canvas, Refinement(most_edits=4, edit_threshold=0.5), GREEDY, stats)
    assert next(passes) == 4
    assert canvas.answer() == [3] * 7 + [9] * 4


def test_what_lies_behind_the_end_is_left_alone():
    draft = [3, 4, END, 6, 7, 8]
    model = Scripted(lambda positions, tokens: [(9, 0.99)] * len(tokens))
    canvas = drafted([2] * 5, draft)
    run(model, canvas, Refinement())
    # the end itself may move, and then the next one of the filling ends the answer
    assert canvas.ids_T[5:11].tolist() == [9, 9, 9, END, END, END]


def test_an_open_tail_lets_the_answer_grow():
    model = Scripted(lambda positions, tokens: [(9, 0.99)] * len(tokens))
    canvas = drafted([2] * 5, [3, 4, END], budget=11)
    run(model, canvas, Refinement(open_tail=True))
    assert canvas.answer() == [9] * 11


def test_an_answer_that_is_empty_stays_so():
    truth = [END]
    canvas = drafted([2] * 5, [END], budget=11)
    stats = run(Scripted(at(truth, 5)), canvas, Refinement())
    assert canvas.answer() == [END]
    assert stats.refine_forwards == 1
    nothing = drafted([2] * 5, [], budget=0)
    assert run(Scripted(at(truth, 5)), nothing, Refinement()).refine_forwards == 0


def test_a_cycle_ends_in_the_state_that_the_model_explains_best():
    def rule(positions, tokens):
        return [(6, 0.6) if token == 7 else (7, 0.9) for token in tokens]

    canvas = drafted([2] * 8, [6] * 8)
    stats = run(Scripted(rule), canvas, Refinement(edit_threshold=0.5, steps=1_000))
    assert canvas.answer() == [7] * 8
    assert stats.refine_forwards == 2


def test_the_least_sure_share_is_found_again():
    canvas = drafted([2] * 8, [3] * 8)
    canvas.sure_T[8:] = torch.tensor([0.9, 0.2, 0.8, 0.1, 0.7, 0.95, 0.6, 0.99])
    seen = []

    def rule(positions, tokens):
        seen.append(list(tokens))
        return [(9, 0.3)] * len(tokens)

    run(Scripted(rule), canvas, Refinement(remask=0.25, steps=3))
    first = seen[0][-8:]
    assert [place for place, token in enumerate(first) if token == MASK] == [1, 3]
    assert canvas.answer() == [3, 9, 3, 9, 3, 3, 3, 3]


@pytest.mark.parametrize("steps", [1, 3, 5, 40])
def test_no_mask_is_left_after_a_draft_of_masks_alone(steps):
    """Refinement that begins with nothing spreads the masks over its steps; a last pass may find that all is well."""
    canvas = drafted([2] * 5, [], budget=30)
    model = Scripted(lambda positions, tokens: [(9, 0.1 + place / 1000) for place in positions])
    stats = run(model, canvas, Refinement(steps=steps))
    assert not canvas.masked(0, len(canvas.ids_T)).any()
    assert stats.refine_forwards == min(steps, 36)
    filled = stats.edits_per_step
    assert all(before - after in (0, 1) or after == 0 for before, after in pairwise(filled))


def test_a_small_model_drafts_and_a_large_one_corrects():
    truth = [*random_ids(10, seed=3), END]
    wrong = [*truth[:4], 7, *truth[5:]]
    drafter, model = Scripted(at(wrong, 5)), Scripted(at(truth, 5))
    engine = DiffusionEngine(
        model,
        DIFFUSION_METHODS["draft-refine"],
        drafter=drafter,
        stop_ids=(END,),
        decoding=Decoding(block=BLOCK),
    )
    pieces = list(engine.stream([2] * 5, Sampling(max_new_tokens=16)))
    found = pieces[-1].generation
    assert (found.draft_ids, found.token_ids) == (wrong, truth)
    assert [piece.changes for piece in pieces if piece.phase == "refine"] == [1, 0]
    assert found.stats.draft_forwards == drafter.passes > 0
    assert found.stats.refine_forwards == model.passes == 2


def test_models_of_two_vocabularies_do_not_go_together():
    with pytest.raises(ValueError, match="draft: got vocab_size 60, expected 53"):
        DiffusionEngine(MODEL, DIFFUSION_METHODS["draft-refine"], drafter=Scripted(at([], 0), vocab_size=60))


def test_a_draft_has_no_effect_without_refinement():
    with pytest.raises(ValueError, match="draft: has no effect with method block-diffusion"):
        DiffusionEngine(MODEL, DIFFUSION_METHODS["block-diffusion"], drafter=MODEL)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Decoding, {"block": 0}),
        (Decoding, {"mask_threshold": 1.5}),
        (Decoding, {"edit_threshold": -0.1}),
        (Decoding, {"edit_steps": -1}),
        (Decoding, {"reopened": 0}),
        (Refinement, {"steps": -1}),
        (Refinement, {"ahead": -1}),
        (Refinement, {"remask": 1.1}),
        (Refinement, {"most_edits": 0}),
    ],
)
def test_values_outside_their_range(kind, settings):
    (value,) = settings.values()
    with pytest.raises(ValueError, match=f"got {value}, expected"):
        kind(**settings)
