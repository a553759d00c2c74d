"""Tables and paragraphs that fit a terminal of 80 columns."""

import textwrap
from collections.abc import Sequence

WIDTH = 80


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, gap: int = 2) -> str:
    """Left-aligned columns, each as wide as its widest cell."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) + gap for column in range(len(header))]
    return "\n".join(
        "".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def paragraph(label: str, text: str, *, indent: int, width: int = WIDTH) -> str:
    """A label, and a wrapped text beside it; words are never broken."""
    body = textwrap.wrap(text, width - indent, break_long_words=False, break_on_hyphens=False) or [""]
    first = label.ljust(indent) if len(label) < indent else f"{label}\n{' ' * indent}"
    return "\n".join([first + body[0], *(" " * indent + line for line in body[1:])]).rstrip()
