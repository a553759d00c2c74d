"""Method auto: the fastest of what there is, kept on disk, plain where nothing pays; and the text is the plain one."""

import itertools
from functools import cache

import pytest
import torch

from specrun import DraftOptions, Sampling, auto, load_engine, measure
from specrun.auto import Choice, Tried, choose, refuse_options
from specrun.costs import CostTable
from specrun.fallback import Fallback
from specrun.loop import decode

from doubles.drafters import mixed
from doubles.engines import ALL_METHODS, engine_for, scripted_engine, small_drafter, small_target
from doubles.family import write_family
from reference.plain import continuation, cut

TABLE = CostTable(batch=1, contexts=(64,), widths=(1, 40), round=((3.0, 4.0),), plain=(1.0,), stages={})


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "specrun"


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    return write_family(tmp_path_factory.mktemp("family"))


class Restless(Fallback):
    """Drafts in no order that follows from the text."""

    def __init__(self):
        super().__init__(tokens=1.0, seconds=1.0, plain=1.0)
        self.turn = itertools.cycle((False, True, False, False, True, True))
        self.asked = []

    def drafts(self, catching_up):
        self.asked.append(catching_up())
        return next(self.turn)


@cache
def lively():
    return small_target(dtype=torch.float64)


@cache
def requests(temperature):
    """Prompts, how to sample them, and what plain decoding makes of them."""
    prompts = [[5 + index, 9, index] for index in range(3)]
    samplings = [
        Sampling(max_new_tokens=14 + index, temperature=temperature, seed=index, stop_ids=())
        for index in range(3)
    ]
    expected = [
        cut(
            continuation(lively(), prompt, one, request=index, length=one.max_new_tokens).tokens,
            one.max_new_tokens,
        )
        for index, (prompt, one) in enumerate(zip(prompts, samplings, strict=True))
    ]
    return prompts, samplings, [tokens for tokens, _ in expected]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", [name for name in ALL_METHODS if name != "ar"])
def test_changing_between_drafting_and_plain_rounds_leaves_no_trace(name, temperature):
    engine = engine_for(name, lively(), small_drafter(lively()), costs=TABLE, fallback=Restless)
    prompts, samplings, expected = requests(temperature)
    answers = engine.generate_batch(prompts, samplings, batch_size=2)
    assert [answer.token_ids for answer in answers] == expected
    assert all(0 < answer.stats.plain_rounds < answer.stats.rounds for answer in answers)


def test_after_plain_rounds_the_drafter_knows_what_it_would_have_known():
    """The very same drafts as without the plain rounds: the same acceptance, at every place where both draft."""
    target = small_target(dtype=torch.float64)
    drafter = small_drafter(target)
    prompt, sampling = [4, 9, 2], Sampling(max_new_tokens=40, stop_ids=())

    def proposals(fallback):
        found = {}

        def watch(seen):
            start = int(state.length_B[0]) - int(seen.committed.count_B[0])
            found[start] = seen.tree.tokens_BN[0].tolist()

        engine = engine_for("dflash", target, drafter, costs=TABLE)
        request = engine._request(0, prompt, sampling)
        plan = engine.plan_for([sampling])
        state = engine._buffers(1, 64, plan)
        for _ in decode(state, engine.parts, plan, [request], watch=watch, fallback=fallback):
            pass
        return found

    always, restless = proposals(None), proposals(Restless())
    both = [start for start in always if len(restless.get(start, [0])) > 1]
    assert len(both) > 3
    assert all(always[start] == restless[start] for start in both)
    assert any(len(tokens) == 1 for tokens in restless.values())


def test_catching_up_costs_what_was_missed():
    target = small_target(dtype=torch.float64)
    judge = Restless()
    engine = engine_for("dflash", target, small_drafter(target), costs=TABLE, fallback=lambda: judge)
    engine.generate([4, 9, 2], Sampling(max_new_tokens=12, stop_ids=()))
    # nothing was missed before the first plain round; then one token more after each
    assert judge.asked[0] == 0
    assert judge.asked[1] > 0
    assert judge.asked[2] == 0
    assert judge.asked[4] > judge.asked[3] > 0


def test_oracles_are_drafted_with_and_wrong_drafts_are_not():
    target = small_target(dtype=torch.float64)
    sampling = Sampling(max_new_tokens=60, stop_ids=())
    prompt = [3, 1, 4]
    plain = continuation(target, prompt, sampling, request=0, length=68)
    for rule, share in (
        (lambda script, position, *_: script[position], 0.0),
        (mixed, None),
        (lambda *_: 0, 0.8),
    ):
        engine = scripted_engine(
            "chain",
            target,
            rule,
            [prompt + plain.tokens],
            costs=TABLE,
            fallback=lambda: Fallback(tokens=4.5, seconds=4.0, plain=1.0),
        )
        stats = engine.generate(prompt, sampling).stats
        if share is not None:
            assert stats.plain_rounds / stats.rounds == pytest.approx(share, abs=0.2 if share else 0)


@pytest.mark.usefixtures("kept")
def test_chains_are_tried_first_then_the_trees_of_the_better_heads(monkeypatch):
    gains = {"dflash": 1.0, "domino": 3.0, "dspark": 2.0, "ddtree": 9.0, "dominotree": 2.5, "dsparktree": 3.5}
    asked = []

    def tried(item, open_with):
        asked.append(item.name)
        return Tried(method=item.name, tokens=gains.get(item.name, 0.1), seconds=1.0, plain=1.0)

    monkeypatch.setattr(auto, "_try", tried)
    found = choose(("none", "domino", "dspark"), {"a": 1}, None)
    assert set(asked) == {"dflash", "domino", "dspark", "dominotree", "dartree", "dsparktree"}
    assert found.best.method == "dsparktree"
    assert "dsparktree promised 3.50 times" in found.why
    asked.clear()
    assert choose(("none", "domino", "dspark"), {"a": 1}, None) == found
    assert not asked
    choose(("none",), {"a": 2}, None)
    assert asked


@pytest.mark.usefixtures("kept")
def test_a_random_drafter_is_not_used(family, monkeypatch):
    # prices that no slow moment of the machine changes
    for module in (auto, measure):
        monkeypatch.setattr(module, "measure_costs", lambda *_, **__: TABLE)
    engine = load_engine(family.target, "auto", draft=family.drafter)
    assert engine.chosen.startswith(f"{engine.method.name} promised")
    sampling = Sampling(max_new_tokens=40, stop_ids=())
    answer = engine.generate([5, 6, 7], sampling)
    assert answer.stats.plain_rounds == answer.stats.rounds
    assert answer.token_ids == load_engine(family.target, "ar").generate([5, 6, 7], sampling).token_ids
    several = engine.generate_batch([[5, 6, 7]] * 2, sampling)
    assert several[0].token_ids == answer.token_ids


def test_without_a_drafter_decoding_is_plain(family):
    engine = load_engine(family.target, "auto")
    assert engine.method.name == "ar"
    assert engine.chosen == f"plain decoding: no drafter is known for {family.target}"


@pytest.mark.parametrize("options", [{"tree_budget": 4}, {"policy": "fixed"}, {"accept": "match"}])
def test_what_auto_decides_cannot_be_set(options):
    with pytest.raises(ValueError, match="with method auto, which chooses that itself"):
        refuse_options(DraftOptions(**options))


def test_a_choice_begins_as_its_trial_ended():
    choice = Choice(tried=(Tried(method="dflash", tokens=3.0, seconds=2.0, plain=1.0),))
    judge = choice.fallback()
    assert judge.gain == 1.5
    assert judge.drafting
