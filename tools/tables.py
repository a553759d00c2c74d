"""Recorded runs go in, the tables of the pages come out: python tools/tables.py, after a run was recorded.

A page holds `<!-- table: NAME T=0 -->` and `<!-- end -->`; what stands between them is written from
tools/train_tiny/results/NAME.json and NAME-2.json, NAME-3.json..., as far as it was measured at that temperature.
"""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "tools/train_tiny/results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PLACE = re.compile(r"(<!-- table: ([\w-]+) T=([\d.]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def cell(row: dict[str, Any]) -> str:
    """Tokens per round, and their change against the baseline with its interval."""
    text = f"{row['tokens_per_round']:.2f}"
    if "change_percent" in row:
        low, high = row["change_interval"]
        text += f" ({row['change_percent']:+.0f} % [{low:.0f}, {high:.0f}])"
    return text


def label(entry: str) -> str:
    """`domino:reject@0.5` in words."""
    name, _, rule = entry.partition(":")
    kind, _, value = rule.partition("@")
    if not rule:
        return f"`{name}`"
    if kind == "reject":
        return f"`{name}`, reject, drafts at {value}"
    told = {"0": "noise unseen", "fit": "coupled, calibrated"}
    return f"`{name}`, {told.get(value, f'coupled, {value}')}"


def table(name: str, temperature: float) -> str:
    """The cells of one temperature: a row per method, a column per domain, and the rows that a token costs."""
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob(f"{name}*.json"))]
    cells = [row for run in runs for row in run["cells"] if row["temperature"] == temperature]
    domains = list(dict.fromkeys(row["domain"] for row in cells))
    lines = [f"| method | {' | '.join(domains)} | rows per token |", "|---" * (len(domains) + 2) + "|"]
    for entry in dict.fromkeys(row["method"] for row in cells):
        found = {row["domain"]: row for row in cells if row["method"] == entry}
        rows_per_token = f"{found['all']['rows_per_token']:.1f}"
        lines.append(
            f"| {label(entry)} | {' | '.join(cell(found[one]) for one in domains)} | {rows_per_token} |"
        )
    return "\n".join(lines) + "\n"


def filled(page: str) -> str:
    """A page with its tables as they were measured."""
    return PLACE.sub(lambda found: found[1] + table(found[2], float(found[3])) + found[4], page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
