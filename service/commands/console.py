"""What the command line shows: a replay under way, a learner's figures, the learners of the demo."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

__all__ = ["LearnersDisplay", "ReplayDisplay", "figures_table"]

Figures = Mapping[str, Any]  # a learner's metrics, as the API gives them

_PLAIN_EVERY = 5.0  # seconds between lines where the output is not a terminal


class ReplayDisplay:
    """A progress bar (rows, events/s, AUC so far); where the output is not a terminal, a line every few seconds."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._printed = clock()
        self._bar: Progress | None = None
        if console.is_terminal:
            self._bar = Progress(
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[rows]:,} rows"),
                TextColumn("{task.fields[speed]:,.0f} events/s"),
                TextColumn("AUC so far {task.fields[auc]}"),
                console=console,
            )
            self._task = self._bar.add_task("", total=1.0, rows=0, speed=0.0, auc="-")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, rows: int, fraction: float, speed: float, auc: float | None) -> None:
        """Rows of the file that have been learnt, and what part of it that is."""
        if self._bar:
            self._bar.update(self._task, completed=fraction, rows=rows, speed=speed, auc=_figure(auc))
        elif self._clock() - self._printed >= _PLAIN_EVERY:
            self._printed = self._clock()
            self._console.print(f"{rows:,} rows ({fraction:.0%}), {speed:,.0f} events/s, AUC so far {_figure(auc)}")


def figures_table(metrics: Figures, speed: float) -> Table:
    """A learner's figures, over its window and since the start."""
    window, start = metrics["window"], metrics["since_start"]
    table = Table(title=f"{metrics['name']}: {metrics['events']:,} events")
    table.add_column("")
    table.add_column(f"last {window['size']:,}", justify="right")
    table.add_column("since start", justify="right")
    table.add_row("events", f"{window['events']:,}", f"{metrics['events']:,}")
    positives = [part["class_counts"]["positive"] for part in (window, metrics)]
    table.add_row("positives", *(f"{count:,}" for count in positives))
    error = f" \N{PLUS-MINUS SIGN} {_figure(start['auc_error'])}" if start["auc"] is not None else ""
    table.add_row("AUC", _figure(window["auc"]), _figure(start["auc"]) + error)
    for label, key in (("F1", "f1"), ("precision", "precision"), ("recall", "recall")):
        table.add_row(label, _figure(window[key]), _figure(start[key]))
    table.add_row("threshold now", _figure(metrics["threshold"]), "")
    table.add_row("events/s of this run", f"{speed:,.0f}", "")
    return table


class LearnersDisplay:
    """A live line per learner; where the output is not a terminal, plain lines every few seconds."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._printed = float("-inf")
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, learners: Sequence[Figures], speed: float, final: bool = False) -> None:
        """The newest figures of each. `final`: print them even if some were printed just before."""
        if self._live:
            self._live.update(_learners_table(learners, speed), refresh=True)
        elif final or self._clock() - self._printed >= _PLAIN_EVERY:
            self._printed = self._clock()
            for one in learners:
                self._console.print("{:<14} {:>9} events  AUC {}  F1 {}  positives {}".format(*_line(one)))


def _learners_table(learners: Sequence[Figures], speed: float) -> Table:
    table = Table(caption=f"{speed:,.0f} events/s to each learner")
    table.add_column("learner")
    for heading in ("events", "AUC in the window", "F1 in the window", "positives seen"):
        table.add_column(heading, justify="right")
    for one in learners:
        table.add_row(*_line(one))
    return table


def _line(metrics: Figures) -> tuple[str, ...]:
    window = metrics["window"]
    positives = metrics["class_counts"]["positive"]
    return (
        metrics["name"],
        f"{metrics['events']:,}",
        _figure(window["auc"]),
        _figure(window["f1"]),
        f"{positives:,}",
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
