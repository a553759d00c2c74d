"""What the engine refuses, keeps and hands out, beside the text itself."""

import pytest

from specrun import DraftOptions, Engine, Sampling, method

from doubles.engines import engine_for, head_for, small_drafter, small_target
from doubles.pieces import bytes_and_words


@pytest.fixture(name="engine", scope="module")
def _engine():
    return engine_for("dflash", small_target())


def test_a_method_that_drafts_needs_a_drafter():
    with pytest.raises(ValueError, match="method: ddtree needs a drafter"):
        Engine(small_target(), method("ddtree"))


def test_sizes_that_cannot_work_are_refused_before_any_request():
    target = small_target()
    drafter = small_drafter(target)
    with pytest.raises(ValueError, match="block size: got 7"):
        engine_for("dflash", target, drafter, options=DraftOptions(block_size=7))
    with pytest.raises(ValueError, match="tree budget: has no effect"):
        engine_for("dflash", target, drafter, options=DraftOptions(tree_budget=3))


def test_plain_decoding_takes_no_notice_of_a_drafter():
    target = small_target()
    drafter = small_drafter(target)
    head = head_for("none", target, drafter)
    engine = Engine(target, method("ar"), drafter=drafter, corrector=head)
    assert engine.parts.drafter is None
    assert engine.generate([1], Sampling(max_new_tokens=3)).stats.rounds == 2


@pytest.mark.parametrize("token", [-1, 31])
def test_ids_outside_the_vocabulary_are_refused(engine, token):
    with pytest.raises(ValueError, match=r"prompt: got a token id outside 0\.\.30"):
        engine.generate([1, token])


def test_text_needs_a_tokenizer(engine):
    with pytest.raises(ValueError, match="prompt: got text, but this engine has no tokenizer"):
        engine.generate("text")
    with pytest.raises(ValueError, match="chat template: this engine has none"):
        engine.chat_ids("hello")


def test_a_missing_template_says_why_when_it_is_asked_for():
    pieces = bytes_and_words()
    reason = ValueError("chat template: none in this folder")
    engine = Engine(small_target(vocab_size=pieces.size), method("ar"), tokenizer=pieces, template=reason)
    assert engine.generate("a", Sampling(max_new_tokens=1)).stats.tokens == 1
    with pytest.raises(ValueError, match="none in this folder"):
        engine.chat_ids("hello")


def test_batches_need_one_sampling_or_one_each(engine):
    with pytest.raises(ValueError, match="sampling: got 2 for 3 prompts"):
        engine.generate_batch([[1]] * 3, [Sampling()] * 2)
    with pytest.raises(ValueError, match="batch size: got 0"):
        engine.generate_batch([[1]], Sampling(), batch_size=0)
    assert engine.generate_batch([], Sampling()) == []


def test_buffers_are_kept_while_they_fit_and_replaced_when_not(engine):
    engine.generate([1], Sampling(max_new_tokens=4))
    held = engine._state
    engine.generate([2, 2], Sampling(max_new_tokens=9, temperature=1.0))
    assert engine._state is held
    engine.generate([2] * 100, Sampling(max_new_tokens=9))
    grown = engine._state
    assert grown.capacity > held.capacity
    engine.generate([1], Sampling(max_new_tokens=4))
    assert engine._state is grown
    engine.generate([1], Sampling(max_new_tokens=4, presence_penalty=1.0))
    assert engine._state.output_BV.shape == (1, 31)


def test_a_refused_request_leaves_the_engine_in_order(engine):
    sampling = Sampling(max_new_tokens=6)
    before = engine.generate([4, 4], sampling).token_ids
    with pytest.raises(ValueError, match="prompt"):
        engine.generate_batch([[4], []], sampling)
    assert engine.generate([4, 4], sampling).token_ids == before


def test_a_stream_tells_what_each_round_added(engine):
    pieces = list(engine.stream([3, 9], Sampling(max_new_tokens=8, temperature=1.0)))
    done = pieces[-1].generation
    assert len(pieces) == done.stats.rounds + 1
    assert len(pieces[0].token_ids) == 1
    assert [token for piece in pieces for token in piece.token_ids] == done.token_ids
    assert all(piece.text == "" for piece in pieces)


def test_a_stream_of_nothing_has_one_piece(engine):
    (piece,) = engine.stream([3], Sampling(max_new_tokens=0))
    assert (piece.token_ids, piece.generation.finish) == ([], "length")


def test_the_clock_is_told_every_stage_in_order():
    told = []
    engine = engine_for("ddtree", small_target(), options=DraftOptions(tree_budget=4))
    list(engine.stream([3], Sampling(max_new_tokens=2), clock=told.append))
    assert told == ["start", "draft", "correct", "grow", "verify", "accept", "commit"]


@pytest.mark.parametrize("method", ["ar", "dflash", "ddtree"])
def test_answers_that_nobody_wants_end_and_the_others_go_on(method):
    target = small_target()
    engine, plain = engine_for(method, target), engine_for("ar", target)
    prompts, sampling = [[1, 2], [3], [4, 5, 6], [7]], Sampling(max_new_tokens=30)
    gone = set()
    seen = {place: [] for place in range(4)}
    for piece in engine.stream_batch(prompts, sampling, batch_size=2, dropped=gone.__contains__):
        seen[piece.index] += piece.token_ids
        gone |= {0, 3} if len(seen[0]) > 4 else set()
    whole = [one.token_ids for one in plain.generate_batch(prompts, sampling)]
    assert (seen[1], seen[2]) == (whole[1], whole[2])
    assert 4 < len(seen[0]) < 30
    assert seen[0] == whole[0][: len(seen[0])]
    assert seen[3] == [], "dropped before a row was free"
    assert engine.generate([1, 2], sampling).token_ids == whole[0]
