"""The papers' figures as PNG files; needs matplotlib."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path

from benchmarks.papers.protocol import Table
from benchmarks.papers.report import Row

__all__ = ["can_draw", "draw"]

_ACROSS = 3


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(table: Table, rows: Sequence[Row], path: Path) -> None:
    """One panel per task: online F over events, or the seconds of training of each method."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no window, no global state
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys(row.task for row in rows if row.values))
    down = max(1, math.ceil(len(tasks) / _ACROSS))
    figure = Figure(figsize=(4.5 * _ACROSS, 3.2 * down), layout="constrained")
    FigureCanvasAgg(figure)
    methods = list(dict.fromkeys(row.method for row in rows))
    for k, task in enumerate(tasks):
        axes = figure.add_subplot(down, _ACROSS, k + 1)
        axes.set_title(task, fontsize=10)
        for row in rows:
            colour = f"C{methods.index(row.method)}"
            if row.task != task or not row.values:
                continue
            if row.curve:
                axes.plot(*row.curve, color=colour, label=row.method, linewidth=1.2)
            elif row.seconds:
                axes.barh(row.method, row.seconds, color=colour)
        if table.plot == "curves":
            axes.set(xlabel="events", ylabel="online F")
            if k == 0:
                axes.legend(fontsize=7)
        else:
            axes.set(xscale="log", xlabel="seconds of training")
            axes.invert_yaxis()
    figure.suptitle(table.heading + (" (quick)" if table.protocol.quick else ""))
    figure.savefig(path, dpi=120)
