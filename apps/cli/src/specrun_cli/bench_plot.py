"""A record of `specrun bench` in, one picture out. It needs the extra `plots`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def plot(record: Mapping[str, Any], path: Path) -> None:
    """Left: speed against plain decoding. Right: a round's milliseconds by stage. First temperature, first batch size."""
    first = record["cells"][0]
    cells = [
        cell
        for cell in record["cells"]
        if (cell["temperature"], cell["batch_size"]) == (first["temperature"], first["batch_size"])
    ]
    names = [cell["method"] for cell in cells]
    figure = Figure(figsize=(11, 1.5 + 0.3 * len(cells)), layout="constrained")
    FigureCanvasAgg(figure)
    speed, stages = figure.subplots(1, 2, sharey=True)
    speed.barh(names, [cell["faster"] for cell in cells], color="tab:blue")
    speed.axvline(1.0, color="black", linewidth=0.8)
    speed.invert_yaxis()
    speed.set_xlabel("speed against plain decoding" + (" (simulated)" if first["simulated"] else ""))
    left = [0.0] * len(cells)
    for stage in dict.fromkeys(name for cell in cells for name in cell["stages"]):
        widths = [cell["stages"].get(stage, 0.0) for cell in cells]
        stages.barh(names, widths, left=left, label=stage)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    stages.set_xlabel("milliseconds per round")
    stages.legend(fontsize="small")
    heat, size = first["temperature"], first["batch_size"]
    figure.suptitle(f"{record['model']}, temperature {heat:g}, batch size {size}, {record['device']}")
    figure.savefig(path, dpi=120)
