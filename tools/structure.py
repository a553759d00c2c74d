"""Module docstrings go in, the file list of STRUCTURE.md comes out: python tools/structure.py, after adding a file."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- file list: begin -->\n", "<!-- file list: end -->\n"


def described(path: Path) -> str:
    """Return the first sentence of a module's docstring."""
    lines = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
    return " ".join(lines.split()).partition(". ")[0].rstrip(".")


def listing() -> str:
    """Return one block per package, one line per file."""
    blocks = []
    for source in sorted([*ROOT.glob("packages/*/src/*"), *ROOT.glob("apps/*/src/*")]):
        paths = sorted(source.rglob("*.py"), key=lambda path: (path.parent != source, path.as_posix()))
        rows = [
            f"| {path.relative_to(source)} | {described(path)} |"
            for path in paths
            if path.name != "__init__.py"
        ]
        blocks.append("\n".join([f"### {source.name}", "", "| file | what |", "|---|---|", *rows]))
    return "\n\n".join(blocks)


if __name__ == "__main__":
    page = ROOT / "STRUCTURE.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n{listing()}\n\n{END}{after}", encoding="utf-8")
