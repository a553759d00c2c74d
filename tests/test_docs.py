"""The pages for users: links lead somewhere, every method has a page, and commands on them are commands."""

import re
import shlex
from pathlib import Path

import pytest

from specrun.methods import methods
from specrun_cli.arguments import parser

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown(path):
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
    for target in filter(None, (one or other for one, other in links)):
        if target.startswith(("http://", "https://")):
            continue
        place, _, heading = target.partition("#")
        found = (page.parent / place).resolve() if place else page
        assert found.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in headings}
            assert heading in slugs, target


def test_every_method_has_a_page():
    for method in methods().values():
        if method.corrector is not None:
            text = (ROOT / "docs" / "methods" / f"{method.corrector}.md").read_text(encoding="utf-8")
            assert method.name in text, method.name
        assert f"`{method.name}`" in (ROOT / "docs" / "methods" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_commands_are_commands(page):
    """Every line of a block that calls specrun parses, whatever it names."""
    blocks = re.findall(
        r"^```(?:bash|sh)?\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    lines = [
        line for block in blocks for line in block.splitlines() if re.match(r"(?:\S+ .*&& )?specrun ", line)
    ]
    for line in lines:
        words = shlex.split(line.partition("specrun ")[2], comments=True)
        words = words[
            : next((place for place, word in enumerate(words) if word in {"|", ">", "&&", "&"}), None)
        ]
        assert parser().parse_args(words), line
