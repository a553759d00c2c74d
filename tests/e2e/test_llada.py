"""The embedded pair of block diffusion: its answers have the form of the corpus, and the command shows draft and revision."""

from importlib.metadata import entry_points

import pytest

from specrun import Sampling, load_diffusion_engine
from specrun.diffusion.config import PRESETS, Refinement
from specrun_cli.main import main
from spectiny.corpus.reasoning import final_answer
from spectiny.corpus.small import held_out_small

if "tiny-llada" not in {point.name for point in entry_points(group="specrun.models")}:
    pytest.skip("an older spectiny is installed here", allow_module_level=True)

PROBLEMS = held_out_small()[:8]
LIMIT = Sampling(max_new_tokens=160)


@pytest.mark.parametrize("draft", [None, "tiny-llada-mini"])
def test_answers_end_with_a_number(draft):
    engine = load_diffusion_engine(
        "tiny-llada",
        "draft-refine",
        draft=draft,
        decoding=PRESETS["quality"],
        refinement=Refinement(ahead=0, steps=2),
    )
    found = [engine.generate(engine.chat_ids(problem.prompt), LIMIT) for problem in PROBLEMS]
    assert sum(one.finish == "stop" for one in found) >= 7
    assert sum(final_answer(one.text) is not None for one in found) >= 6
    # more tokens than passes: blocks are not written one token at a time
    assert sum(one.stats.tokens for one in found) > sum(one.stats.forwards for one in found)


def test_the_command_streams_the_draft_and_shows_the_revision(capsys):
    options = "--model tiny-llada --method draft-refine --refine-threshold 0.5 --max-new-tokens 160 --stats"
    code = main(["generate", PROBLEMS[0].prompt, *options.split()])
    shown = capsys.readouterr()
    assert code == 0
    assert "The answer is" in shown.out
    assert "demonstration model" in shown.err
    assert "\nrevision" in shown.err
    assert "for its refinement" in shown.err
