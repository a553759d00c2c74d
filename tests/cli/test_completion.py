"""Tab in the shell: asked as bash asks, answered without torch."""

import os
import subprocess
import sys

import pytest

from specrun.methods import methods


@pytest.mark.parametrize(
    ("line", "offered", "not_offered"),
    [
        ("specrun che", {"check"}, {"chat"}),
        ("specrun generate --temp", {"--temperature"}, {"--top-p"}),
        ("specrun generate --method ", set(methods()), {"tiny"}),
        ("specrun check --methods ar,dominot", {"ar,dominotree"}, {"ar,domino"}),
        ("specrun generate --model qwen3-", {"qwen3-4b", "qwen3-8b"}, {"tiny"}),
        ("specrun generate --draft tiny-dom", {"tiny-domino"}, {"tiny-dels"}),
        ("specrun generate --accept ", {"match", "reject"}, {"ar"}),
        ("specrun generate --prompt-file ", {"a-file"}, {"ar"}),
    ],
)
def test_what_tab_offers(line, offered, not_offered, tmp_path):
    (tmp_path / "a-file").touch()
    answer = tmp_path.parent / f"{tmp_path.name}.answer"
    environment = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "_ARGCOMPLETE_SUPPRESS_SPACE": "0",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
        # whoever imports torch here fails
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "no"), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    (tmp_path / "no" / "torch").mkdir(parents=True)
    (tmp_path / "no" / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')")
    subprocess.run([sys.executable, "-m", "specrun_cli"], env=environment, cwd=tmp_path, check=False)
    found = {text.strip() for text in answer.read_text().split("\n")}
    assert offered <= found
    assert not not_offered & found
