"""The running interpreter's standard library goes in, documents of real Python code come out.

The prompt is the beginning of a function, method or class, the response is what follows, cut at the end of a line.
Files are held out whole, so that held-out code is code of unseen modules.
"""

import ast
import hashlib
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from spectiny.document import Document

HELD_OUT_SHARE = 0.08
"""Share of the files that are kept out of training."""

_SKIPPED_FOLDERS = frozenset(
    "test tests idlelib lib2to3 site-packages encodings pydoc_data turtledemo __pycache__ lib-dynload".split()
)
_LONGEST_FILE = 400_000  # bytes; longer files are data
_FULL = 620  # characters after which a response ends at the next line end: about 180 tokens
_LONGEST = 800  # characters that a response never exceeds
_LONGEST_PROMPT = 420  # characters


def files(held_out: bool) -> list[Path]:
    """Return the library's source files of one side of the split, in a fixed order."""
    root = Path(sysconfig.get_path("stdlib"))
    found = []
    for path in sorted(_sources(root)):
        inside = path.relative_to(root)
        if inside.name.startswith("_sysconfigdata"):
            continue
        share = int.from_bytes(hashlib.sha256(inside.as_posix().encode()).digest()[:4], "big") / 2**32
        if (share < HELD_OUT_SHARE) == held_out and path.stat().st_size <= _LONGEST_FILE:
            found.append(path)
    return found


def _sources(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir() and path.name not in _SKIPPED_FOLDERS:
            yield from _sources(path)
        elif path.suffix == ".py":
            yield path


def chunks(path: Path, rng: random.Random) -> Iterator[Document]:
    """Yield the documents of one file; another generator cuts the same file at other lines."""
    source = path.read_text(encoding="utf-8", errors="replace")
    if not source.isascii():
        return
    lines = source.expandtabs(4).split("\n")
    for first, last in _pieces(ast.parse(source)):
        yield from _cut([line.rstrip() for line in lines[first:last]], rng)


def _pieces(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Yield the line ranges of functions, and of classes both whole and method by method."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            last = node.end_lineno or first
            if isinstance(node, ast.ClassDef):  # methods come by themselves
                last = min(last, first + 24)
            if last - first >= 3:
                yield first - 1, last


def _cut(lines: list[str], rng: random.Random) -> Iterator[Document]:
    """Cut one piece into windows of lines: some lines of prompt, then as many as a response may hold."""
    indent = len(lines[0]) - len(lines[0].lstrip())
    at = 0
    while at < len(lines) - 3:
        while at < len(lines) - 3 and not lines[at]:
            at += 1
        shown = rng.randint(2, 6)
        begin = at + shown
        while begin < len(lines) and not lines[begin]:
            begin += 1
        end, size = begin, 0
        while end < len(lines) and size < _FULL and size + len(lines[end]) < _LONGEST:
            size += len(lines[end]) + 1
            end += 1
        prompt = _dedent(lines[at:begin], indent)
        response = _dedent(lines[begin:end], indent)
        if len(response) >= 40 and 10 <= len(prompt) <= _LONGEST_PROMPT:
            yield Document("stdlib", prompt, response)
        at = max(end, at + 4)  # the next window starts where this one ended


def _dedent(lines: list[str], indent: int) -> str:
    cut = [line[indent:] if not line[:indent].strip() else line.lstrip() for line in lines]
    return "\n".join(cut).rstrip()


def stdlib(held_out: bool, seed: int) -> Iterator[Document]:
    """Yield every document of one side of the split, cut as the seed says."""
    for path in files(held_out):
        yield from chunks(path, random.Random(f"{seed}/{path.name}"))
