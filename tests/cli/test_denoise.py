"""`specrun generate` with models that denoise blocks: what goes where, and what is refused, on random models."""

from itertools import takewhile

import pytest

from specrun import Sampling, load_diffusion_engine
from specrun.diffusion.config import Decoding, Refinement
from specrun_cli import denoise as command

from doubles.family import write_diffusion_family

PROMPT = "Once upon a time"
LIMIT = 40
EDITING = ("--refine-threshold", "0", "--refine-steps", "2")
KEYS = (
    "text token_ids draft_text draft_token_ids prompt_tokens tokens draft_forwards refine_forwards"
    " tokens_per_forward draft_edits edits_per_step method model draft device dtype seed temperature finish_reason"
    " prefill_seconds draft_seconds refine_seconds"
).split()


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return write_diffusion_family(tmp_path_factory.mktemp("diffusion"))


@pytest.fixture
def generate(specrun, pair):
    def run(*arguments, method="draft-refine"):
        return specrun(
            "generate",
            PROMPT,
            *("--model", pair.model, "--method", method, "--max-new-tokens", LIMIT),
            *arguments,
        )

    return run


def expected(pair, method, **settings):
    engine = load_diffusion_engine(pair.model, method, **settings)
    return engine, engine.generate(engine.chat_ids(PROMPT), Sampling(max_new_tokens=LIMIT))


def test_blocks_stream_to_the_output(generate, pair, monkeypatch):
    _, found = expected(pair, "block-diffusion")
    pieces = []

    def listen(text, **how):
        pieces.append(text)
        print(text, **how)

    monkeypatch.setattr(command, "print", listen, raising=False)
    outcome = generate(method="block-diffusion")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == found.text + "\n"
    assert len(pieces) >= 2


def test_the_draft_and_its_revisions_are_shown_beside_the_text(generate, pair):
    engine, found = expected(pair, "draft-refine", refinement=Refinement(edit_threshold=0.0, steps=2))
    outcome = generate(*EDITING)
    assert outcome.code == 0
    assert outcome.out == found.text + "\n"
    draft = engine.tokenizer.decode(found.draft_ids)
    assert outcome.err.startswith(f"{draft}\nrevision 1: ")
    assert found.token_ids != found.draft_ids
    assert outcome.err.count("\nrevision ") == sum(1 for edits in found.stats.edits_per_step if edits)


def test_a_revision_names_what_it_changed(generate, pair):
    engine, found = expected(pair, "draft-refine", refinement=Refinement(edit_threshold=0.0, steps=1))
    line = generate("--refine-threshold", "0", "--refine-steps", "1").err.split("\nrevision 1: ")[1]
    pairs = list(zip(found.draft_ids, found.token_ids, strict=True))
    first = next(place for place, (before, after) in enumerate(pairs) if before != after)
    run = list(takewhile(lambda pair: pair[0] != pair[1], pairs[first:]))
    before, after = ("".join(map(engine.tokenizer.spelling, ids)) for ids in zip(*run, strict=True))
    assert line.startswith(f"{before!r} to {after!r}")


def test_a_draft_that_stays_says_so(generate):
    outcome = generate("--refine-steps", "0")
    assert outcome.err.endswith("\nrevision: nothing changed\n")
    assert outcome.err.startswith(outcome.out.strip("\n"))


def test_json_has_its_keys_and_both_texts(generate, pair):
    outcome = generate("--json", *EDITING, "--draft", pair.drafter)
    assert outcome.err == ""
    record = outcome.record
    assert list(record) == KEYS
    _, found = expected(
        pair, "draft-refine", draft=pair.drafter, refinement=Refinement(edit_threshold=0.0, steps=2)
    )
    assert record["token_ids"] == found.token_ids
    assert record["draft_token_ids"] == found.draft_ids
    assert (record["draft"], record["method"]) == (str(pair.drafter), "draft-refine")
    assert record["tokens"] == len(found.token_ids)


def test_options_reach_the_engine(generate, pair):
    record = generate(
        "--json", "--preset", "speed", "--edit-steps", "2", "--block-size", "16", method="block-diffusion"
    ).record
    _, found = expected(
        pair,
        "block-diffusion",
        decoding=Decoding(mask_threshold=0.5, edit_threshold=0.0, edit_steps=2, block=16),
    )
    assert (record["token_ids"], record["draft_forwards"]) == (found.token_ids, found.stats.draft_forwards)


def test_stats_fit_eighty_columns(generate):
    outcome = generate("--stats", "--no-stream")
    assert max(map(len, outcome.err.splitlines())) <= 80
    assert "for the draft" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("--model", "tiny-llada", "--method", "dflash"),
            "method: got dflash with tiny-llada, which denoises",
        ),
        (("--model", "tiny", "--method", "draft-refine"), "method: got draft-refine with tiny, which writes"),
        (("--refine-steps", "3"), "refine-steps: has no effect without a model that denoises blocks"),
    ],
)
def test_models_and_methods_of_two_kinds(specrun, arguments, complaint):
    outcome = specrun("generate", PROMPT, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert complaint in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--tree-budget", "8"), "tree-budget: has no effect with method draft-refine"),
        (("--top-k", "8", "--temperature", "1"), "top-k: has no effect with block diffusion"),
        (("--remask", "2"), "remask: got 2.0, expected a share from 0 to 1"),
        (("--mask-threshold", "-1"), "mask threshold: got -1.0, expected a probability"),
        (("--max-new-tokens", "400"), "expected at most 256 together"),
        (("--draft", "/nowhere"), "/nowhere"),
    ],
)
def test_what_is_refused(generate, arguments, complaint):
    outcome = generate(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert complaint in outcome.err
    assert outcome.err.count("\n") == 1


def test_block_diffusion_has_no_refinement(generate):
    outcome = generate("--refine-ahead", "1", method="block-diffusion")
    assert "refine-ahead: has no effect with method block-diffusion" in outcome.err


def test_a_drafter_with_another_tokenizer(generate, pair, tmp_path):
    other = write_diffusion_family(tmp_path).drafter
    path = other / "tokenizer.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"Ġalso"', '"Ġelse"'), encoding="utf-8")
    outcome = generate("--draft", other)
    assert outcome.code == 2
    assert "has another tokenizer than the model" in outcome.err


def test_both_are_listed(specrun):
    listed = specrun("methods")
    assert {"block-diffusion", "draft-refine"} <= set(listed.out.splitlines())
    assert [one["name"] for one in specrun("methods", "--json").record["diffusion"]] == [
        "block-diffusion",
        "draft-refine",
    ]
    models = {entry["name"]: entry for entry in specrun("models", "--json").record["models"]}
    assert models["llada2.1-flash"]["diffusion"]
    assert not models["qwen3-8b"]["diffusion"]
    assert "methods block-diffusion, draft-refine" in specrun("models").out
