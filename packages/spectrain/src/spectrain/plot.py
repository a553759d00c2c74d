"""Logs of runs go in, one picture of their curves comes out. It needs the extra `plots`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

_NOT_CURVES = frozenset({"step", "factor", "seconds_per_step", "gradient_norm"})


def read_log(path: Path) -> list[dict[str, float]]:
    """The rows of a run's log."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def curves(log: Sequence[Mapping[str, float]]) -> dict[str, list[tuple[float, float]]]:
    """Points (step, value) of everything that a log follows, by name."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in log:
        for name in row.keys() - _NOT_CURVES:
            found.setdefault(name, []).append((row["step"], row[name]))
    return {name: sorted(points) for name, points in sorted(found.items())}


def plot(logs: Mapping[str, Path], path: Path) -> None:
    """Draw the curves of some runs, one panel for each run, into a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  # an extra: import spectrain without it
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(6.0 * len(logs), 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    for place, (title, log) in enumerate(logs.items()):
        axes = figure.add_subplot(1, len(logs), place + 1)
        for name, points in curves(read_log(log)).items():
            steps, values = zip(*points, strict=True)
            measured = name != "loss"
            axes.plot(
                steps, values, label=name, linewidth=1.0, marker="o" if measured else None, markersize=3
            )
        axes.set(title=title, xlabel="step", yscale="log")
        axes.grid(visible=True, linewidth=0.3)
        axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
