"""Measure drafts and their revision on held-out small word problems: right answers against time, as JSON and picture.

Run from the root of the repository: `python tools/train_tiny/revision.py measure --out part.json`, then
`python tools/train_tiny/revision.py report part.json`; parts of other problems (`--first 50`) can be measured at the same
time and reported together. It needs matplotlib. Compared are decoding by
blocks under a grid of thresholds, by both models; drafts of either that the larger one refines; and refinement that
begins with masks alone. Time is the processor time of one thread, the prompt's pass included, one prompt at a time.
"""

import argparse
import json
import math
import re
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass
from operator import add, mul, sub
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from family import LLADA_FOLDERS, SOURCES

from specmodels import load_llada2, read_chat_template, read_stop_ids
from specmodels.kv import RowsMemory
from specmodels.llada2 import BLOCK, Llada2, block_causal
from specmodels.template import conversation
from specrun.diffusion.blocks import decode_blocks
from specrun.diffusion.canvas import Canvas, new_canvas
from specrun.diffusion.config import PRESETS, Decoding, Refinement
from specrun.diffusion.guess import Draw
from specrun.diffusion.refine import refine
from specrun.diffusion.stats import DiffusionStats
from specrun.tokens import Tokenizer
from spectiny.corpus import check
from spectiny.corpus.small import held_out_small
from spectiny.document import Document
from spectrain.record import commit, source_hash

mpl.use("Agg")
from matplotlib import pyplot as plt

RESULTS = Path("tools/train_tiny/results")
PICTURE = Path("docs/images/llada-revision.png")
BUDGET = 160  # tokens of an answer at most
NEAR = 0.1  # a setting is as fast as another one within this share of its time

BLOCKS = {
    **PRESETS,
    "no edits .5": Decoding(mask_threshold=0.5, edit_threshold=None),
    ".3/.3": Decoding(mask_threshold=0.3, edit_threshold=0.3),
}
DRAFT = "speed"
REVISIONS = {
    "global .9": Refinement(),
    "global .7": Refinement(edit_threshold=0.7),
    "global .5": Refinement(edit_threshold=0.5),
    "global .5, 2 steps": Refinement(edit_threshold=0.5, steps=2),
    "local .9": Refinement(ahead=0),
    "local .5": Refinement(ahead=0, edit_threshold=0.5),
    "local .5, 2 steps": Refinement(ahead=0, edit_threshold=0.5, steps=2),
    "one block ahead .5": Refinement(ahead=1, edit_threshold=0.5),
    "global, a quarter masked": Refinement(edit_threshold=0.5, remask=0.25),
}
FROM_MASKS = {f"{steps} steps": Refinement(edit_threshold=0.5, steps=steps) for steps in (8, 16)}


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What one setting made of one problem."""

    canvas: Canvas
    right: bool
    sums: tuple[int, int]  # stated in the answer as `a + b = c`: how many, and how many of them hold
    seconds: float
    stats: DiffusionStats


class Bench:
    """The problems, and what turns ids into text."""

    def __init__(self, folder: Path, documents: list[Document]) -> None:
        self.documents, self.tokenizer = documents, Tokenizer(folder)
        self.stop_ids = read_stop_ids(folder)
        template = read_chat_template(folder)
        self.prompts = [
            self.tokenizer.encode(
                template.render(conversation(one.prompt), enable_thinking=False), special=False
            )
            for one in documents
        ]

    def canvas(self, index: int, model: Llada2) -> Canvas:
        """An empty canvas for one problem."""
        return new_canvas(
            self.prompts[index],
            BUDGET,
            block=BLOCK,
            longest=model.config.max_positions,
            mask_id=model.config.mask_token_id,
            end_ids=self.stop_ids,
            device=torch.device("cpu"),
        )

    def blocks(self, model: Llada2, decoding: Decoding) -> list[Outcome]:
        """Decode every problem by blocks."""
        found = []
        for index in range(len(self.documents)):
            canvas, stats = self.canvas(index, model), DiffusionStats()
            work = decode_blocks(model, canvas, decoding, Draw(), stats)
            found.append(self._outcome(index, canvas, work, stats, 0.0))
        return found

    def revised(self, model: Llada2, drafts: list[Outcome], refinement: Refinement) -> list[Outcome]:
        """Refine every draft; its time is counted in."""
        found = []
        for index, draft in enumerate(drafts):
            canvas, stats = deepcopy(draft.canvas), deepcopy(draft.stats)
            work = refine(model, canvas, refinement, Draw(), stats)
            found.append(self._outcome(index, canvas, work, stats, draft.seconds))
        return found

    def nothing(self, model: Llada2) -> list[Outcome]:
        """Drafts that are masks from end to end, and cost nothing."""
        return [
            Outcome(
                canvas=self.canvas(index, model),
                right=False,
                sums=(0, 0),
                seconds=0.0,
                stats=DiffusionStats(),
            )
            for index in range(len(self.documents))
        ]

    def _outcome(
        self, index: int, canvas: Canvas, work: Iterator[int], stats: DiffusionStats, before: float
    ) -> Outcome:
        started = time.process_time()
        for _ in work:
            pass
        seconds = before + time.process_time() - started
        stats.tokens = len(canvas.answer())
        text = self.tokenizer.decode(canvas.answer())
        right = check(self.documents[index], text)
        return Outcome(canvas=canvas, right=right, sums=sums_of(text), seconds=seconds, stats=stats)

    @torch.no_grad()
    def losses(self, model: Llada2) -> dict[str, float]:
        """Nats per token that stand in the corpus's own answers, seen by blocks and seen as a whole."""
        totals = {"by blocks": 0.0, "as a whole": 0.0}
        for prompt, document in zip(self.prompts, self.documents, strict=True):
            answer = [*self.tokenizer.encode(document.response, special=False), self.stop_ids[0]]
            length = -(-(len(prompt) + len(answer)) // BLOCK) * BLOCK
            ids = torch.tensor([*prompt, *answer] + [self.stop_ids[0]] * (length - len(prompt) - len(answer)))
            place = torch.arange(length)[None]
            for name, block in (("by blocks", BLOCK), ("as a whole", length)):
                memory = RowsMemory(block_causal(place, place, block))
                log_TV = model.logits(model(ids[None], place, memory))[0].log_softmax(dim=-1)
                held = log_TV.gather(1, ids[:, None])[len(prompt) : len(prompt) + len(answer)]
                totals[name] -= float(held.mean()) / len(self.documents)
        return totals


Row = dict[str, Any]


def row(kind: str, setting: str, found: list[Outcome], drafts: list[Outcome] | None = None) -> Row:
    """What one setting made of every problem, in a form that a file can hold."""
    outcomes = [
        {
            "right": one.right,
            "draft_right": None if drafts is None else drafts[place].right,
            "sums": one.sums,
            "seconds": one.seconds,
            "tokens": one.stats.tokens,
            "draft_forwards": one.stats.draft_forwards,
            "refine_forwards": one.stats.refine_forwards,
            "draft_edits": one.stats.draft_edits,
            "refine_changes": sum(one.stats.edits_per_step),
        }
        for place, one in enumerate(found)
    ]
    return {"kind": kind, "setting": setting, "outcomes": outcomes}


def figures(measured_row: Row) -> Row:
    """The means of one setting over all its problems."""
    outcomes = measured_row["outcomes"]
    count, right = len(outcomes), sum(one["right"] for one in outcomes)
    names = ("seconds", "tokens", "draft_forwards", "refine_forwards", "draft_edits", "refine_changes")
    mean = {name: sum(one[name] for one in outcomes) / count for name in names}
    pairs = [(one["draft_right"], one["right"]) for one in outcomes]
    stated = sum(one["sums"][0] for one in outcomes)
    return {
        "kind": measured_row["kind"],
        "setting": measured_row["setting"],
        "problems": count,
        "right": right / count,
        "interval": wilson(right, count),
        "sums_that_hold": sum(one["sums"][1] for one in outcomes) / max(1, stated),
        **mean,
        "tokens_per_forward": mean["tokens"] / (mean["draft_forwards"] + mean["refine_forwards"]),
        "mended": pairs.count((False, True)),
        "broken": pairs.count((True, False)),
    }


def sums_of(text: str) -> tuple[int, int]:
    """How many sums a text states, and how many of them hold."""
    stated = re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)", text)
    signs = {"+": add, "-": sub, "*": mul, "/": lambda a, b: a / b if b else None}
    return len(stated), sum(signs[sign](int(a), int(b)) == int(c) for a, sign, b, c in stated)


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share."""
    share, scale = hits / count, 1 + z * z / count
    middle = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def measured(bench: Bench, flash: Llada2, mini: Llada2) -> Iterator[Row]:
    """All settings, one row each."""
    drafts: dict[str, list[Outcome]] = {}
    for who, model in (("flash", flash), ("mini", mini)):
        for name, decoding in BLOCKS.items():
            found = bench.blocks(model, decoding)
            yield row(f"{who} by blocks", name, found)
            if name == DRAFT:
                drafts[who] = found
    for who, before in drafts.items():
        for name, refinement in REVISIONS.items():
            after = bench.revised(flash, before, refinement)
            yield row(f"{who} drafts, flash refines", name, after, before)
    nothing = bench.nothing(flash)
    for name, refinement in FROM_MASKS.items():
        yield row("flash refines masks", name, bench.revised(flash, nothing, refinement))


def front(rows: list[Row]) -> list[Row]:
    """The settings that no other one beats in both time and answers, by time."""
    kept: list[Row] = []
    for one in sorted(rows, key=lambda row: (row["seconds"], -row["right"])):
        if not kept or one["right"] > kept[-1]["right"]:
            kept.append(one)
    return kept


def matched(rows: list[Row]) -> list[Row]:
    """For the best refined setting of each kind, the best one of decoding by blocks that takes no longer."""
    found = []
    alone = [one for one in rows if one["kind"] == "flash by blocks"]
    for kind in ("flash drafts, flash refines", "mini drafts, flash refines"):
        best = max(
            (one for one in rows if one["kind"] == kind), key=lambda one: (one["right"], -one["seconds"])
        )
        window = [one for one in alone if one["seconds"] <= best["seconds"] * (1 + NEAR)]
        rival = max(window, key=lambda one: one["right"], default=None)
        found.append({"refined": best, "by_blocks_in_that_time": rival})
    return found


def draw(rows: list[Row], path: Path) -> None:
    """The picture of answers against time."""
    figure, axes = plt.subplots(figsize=(7, 4.5))
    for kind, marker in zip(dict.fromkeys(one["kind"] for one in rows), "os^vD", strict=True):
        here = [one for one in rows if one["kind"] == kind]
        axes.plot(
            [1000 * one["seconds"] for one in here],
            [100 * one["right"] for one in here],
            marker,
            label=kind,
            alpha=0.7,
        )
    best = front(rows)
    axes.step(
        [1000 * one["seconds"] for one in best],
        [100 * one["right"] for one in best],
        where="post",
        color="black",
        linewidth=0.8,
    )
    axes.set_xlabel("milliseconds per answer, one thread")
    axes.set_ylabel("right answers, %")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def measure(options: argparse.Namespace) -> None:
    """Decode the problems under every setting."""
    folders = LLADA_FOLDERS
    if options.models:
        folders = {name: options.models / name for name in LLADA_FOLDERS}
    torch.set_num_threads(1)
    flash, mini = (load_llada2(folders[name], dtype=torch.float32) for name in ("flash", "mini"))
    bench = Bench(folders["flash"], held_out_small()[options.first : options.first + options.problems])
    rows = []
    for found in measured(bench, flash, mini):
        rows.append(found)
        print(as_line(figures(found)), flush=True)
    part = {
        "commit": commit(),
        "sources": source_hash(SOURCES),
        "first": options.first,
        "problems": options.problems,
        "budget": BUDGET,
        "losses_of_right_answers": {"flash": bench.losses(flash), "mini": bench.losses(mini)},
        "decodings": {name: asdict(decoding) for name, decoding in BLOCKS.items()},
        "refinements": {name: asdict(refinement) for name, refinement in (REVISIONS | FROM_MASKS).items()},
        "rows": rows,
    }
    options.out.write_text(json.dumps(part) + "\n", encoding="utf-8")


def report(options: argparse.Namespace) -> None:
    """Put parts together: a table, a picture and one file of figures."""
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in options.parts]
    joined = [
        {**found, "outcomes": [one for part in parts for one in part["rows"][place]["outcomes"]]}
        for place, found in enumerate(parts[0]["rows"])
    ]
    rows = [figures(found) for found in joined]
    for found in rows:
        print(as_line(found))
    kept = {name: value for name, value in parts[0].items() if name not in {"rows", "first", "problems"}}
    record = {
        **kept,
        "losses_of_right_answers": [part["losses_of_right_answers"] for part in parts],
        "rows": rows,
        "front": front(rows),
        "matched": matched(rows),
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    draw(rows, options.picture)


def as_line(found: Row) -> str:
    """One row of the table."""
    return (
        f"{found['kind']:<27} {found['setting']:<37} {100 * found['right']:5.1f} % {100 * found['sums_that_hold']:5.1f} %"
        f" {1000 * found['seconds']:6.0f} ms {found['draft_forwards']:5.1f} + {found['refine_forwards']:4.1f}"
        f" {found['mended']:3d} {found['broken']:3d}"
    )


def main() -> None:
    """Measure or report; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    add = commands.add_parser("measure", help="decode problems under every setting")
    add.set_defaults(run=measure)
    add.add_argument("--first", type=int, default=0, help="the first problem")
    add.add_argument("--problems", type=int, default=50)
    add.add_argument("--models", type=Path, help="folder with flash and mini instead of the package's")
    add.add_argument("--out", type=Path, required=True)
    add = commands.add_parser("report", help="put measured parts together")
    add.set_defaults(run=report)
    add.add_argument("parts", type=Path, nargs="+")
    add.add_argument("--out", type=Path, default=RESULTS / "revision.json")
    add.add_argument("--picture", type=Path, default=PICTURE)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
