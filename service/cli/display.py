"""Output of the command line: progress of a replay, metrics of a learner, the learners of the demo.

A learner of two classes has AUC and F1, an ordinal learner has mean absolute error (MAE) and accuracy. If events are
scored before their labels arrive, label coverage and label delay are added.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from service.cli.format import format_duration, rough_duration
from service.text import counted, figure, share

__all__ = [
    "FiguresLines",
    "LearnersDisplay",
    "ReplayDisplay",
    "describe_fit",
    "describe_metrics",
    "figures_table",
    "fit_notes",
]

Figures = Mapping[str, Any]  # a learner's metrics of the API
Document = Mapping[str, Any]  # a learner of the API

_PLAIN_EVERY = 5.0  # seconds between lines without a terminal


class ReplayDisplay:
    """A progress bar (rows, events/s, metrics so far); without a terminal, a line every few seconds."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._printed = clock()
        self._began: tuple[float, float] | None = None  # time and fraction of the file after the first batch
        self._bar: Progress | None = None
        if console.is_terminal:
            self._bar = Progress(
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[rows]:,} rows"),
                TextColumn("{task.fields[speed]}"),
                TextColumn("{task.fields[left]}"),
                TextColumn("{task.fields[figures]}"),
                console=console,
            )
            self._task = self._bar.add_task("", total=1.0, rows=0, speed="", left="", figures="")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, rows: int, fraction: float, speed: float | None, figures: str) -> None:
        """Show the learnt rows, their fraction of the file, and the metrics by `describe_metrics`."""
        left, rate = self._left(fraction), _rate(speed)
        if self._bar:
            self._bar.update(self._task, completed=fraction, rows=rows, speed=rate, left=left, figures=figures)
        elif self._clock() - self._printed >= _PLAIN_EVERY:
            self._printed = self._clock()
            parts = [f"{counted(rows, 'row')} ({fraction:.0%})", rate, left, figures]
            self._console.print(", ".join(filter(None, parts)))

    def _left(self, fraction: float) -> str:
        """Estimate the remaining time at the speed so far; empty if unknown."""
        now = self._clock()
        if self._began is None:
            self._began = now, fraction
        since, progress = now - self._began[0], fraction - self._began[1]
        if progress <= 0 or since <= 0 or fraction >= 1:
            return ""
        return f"{rough_duration(since / progress * (1 - fraction))} left"


def describe_metrics(metrics: Figures, learner: Document) -> str:
    """Return the main metrics since the start, or why the learner is not ready."""
    if not learner["ready"]:
        return f"not ready: {learner['not_ready']}"
    start = metrics["since_start"]
    if _ordinal(metrics):
        return f"MAE so far {figure(start['mae'])}, accuracy {figure(start['accuracy'])}"
    return f"AUC so far {figure(start['auc'])}"


def describe_fit(learner: Document) -> str | None:
    """Describe the state of a learner's fits; None if it has none."""
    fit = learner["fit"]
    if fit is None:
        return None
    parts = [f"after {counted(fit['events'], 'event')}" if fit["events"] else "none yet"]
    if fit["running"]:
        parts.append("the next waits for fits of other learners" if fit["waiting"] else "the next is running")
    if fit["failed"] is not None:
        parts.append(f"the last one failed: {fit['failed']}")
    return "; ".join(parts)


def fit_notes(learner: Document) -> list[str]:
    """Return notes on events that the metrics of a batch learner do not cover yet."""
    fit = learner["fit"]
    if fit is None or learner["config"]["refit_every"] is None:
        return []
    notes = []
    if not fit["events"] and not learner["ready"]:
        notes.append("no event was scored by a fitted model yet: the metrics do not describe the algorithm")
    elif fit["events"] >= learner["events"]:
        notes.append("the model of the last fit has not scored an event yet: the metrics do not include it")
    if fit["running"]:
        state = "waiting" if fit.get("waiting") else "running"
        notes.append(
            f"a fit is {state}: the metrics do not include it; it is used when it ends; "
            "a replay with --wait waits for each fit"
        )
    return notes


def figures_table(metrics: Figures, speed: float | None = None) -> Table:
    """Return a table of a learner's metrics over its window and since the start, with those of late labels if any.

    `speed`: of a replay, in events per second.
    """
    window, start = metrics["window"], metrics["since_start"]
    table = Table(title=f"{metrics['name']}: {counted(metrics['events'], 'event')}")
    table.add_column("")
    table.add_column(f"last {window['size']:,}", justify="right")
    table.add_column("since start", justify="right")
    table.add_row("events", f"{window['events']:,}", f"{metrics['events']:,}")
    figures: list[tuple[str, str, Callable[[float | None], str]]]
    if _ordinal(metrics):
        figures = [("MAE", "mae", figure), ("MSE", "mse", figure), ("accuracy", "accuracy", figure)]
    else:
        positives = [part["class_counts"]["positive"] for part in (window, metrics)]
        table.add_row("positives", *(f"{count:,}" for count in positives))
        alerts = [part["confusion"]["tp"] + part["confusion"]["fp"] for part in (window, start)]
        table.add_row("alerts", *(f"{count:,}" for count in alerts))
        table.add_row("AUC", figure(window["auc"]), figure(start["auc"]) + _error(start, "auc"))
        table.add_row("AUC, 95 % interval", *(_interval(part["auc_interval"]) for part in (window, start)))
        precision = figure(start["average_precision"]) + _error(start, "average_precision")
        table.add_row("average precision", figure(window["average_precision"]), precision)
        figures = [
            ("F1", "f1", figure),
            ("precision", "precision", figure),
            ("recall", "recall", figure),
            ("alert rate", "alert_rate", share),
            ("log loss", "log_loss", figure),
            ("calibration error", "calibration_error", figure),
        ]
    if window["label_coverage"] is not None or start["label_coverage"] is not None:
        figures += [
            ("label coverage", "label_coverage", share),
            ("label delay, median", "label_delay_median", _delay),
            ("label delay, p90", "label_delay_p90", _delay),
        ]
    for label, key, format_cell in figures:
        table.add_row(label, format_cell(window[key]), format_cell(start[key]))
    if not _ordinal(metrics):
        table.add_row("threshold now", figure(metrics["threshold"]), "")
    if speed is not None:
        table.add_row("events/s of this run", f"{speed:,.0f}", "")
    return table


class LearnersDisplay:
    """A live line per learner; without a terminal, plain lines every few seconds."""

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

    def show(self, learners: Sequence[Figures], speed: float | None, final: bool = False) -> None:
        """Show the newest metrics of each. `final`: print them even if some were printed just before."""
        if self._live:
            self._live.update(_learners_table(learners, speed), refresh=True)
        elif final or self._clock() - self._printed >= _PLAIN_EVERY:
            self._printed = self._clock()
            for learner in learners:
                name, events, *figures = _line(learner)
                self._console.print("  ".join([f"{name:<14} {events:>9} events", *filter(None, figures)]))


class FiguresLines:
    """The counterpart of `LearnersDisplay` for programs: a line of JSON per learner, as in `watch --json`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: no resource is open."""

    def show(self, learners: Sequence[Figures], speed: float | None, final: bool = False) -> None:  # noqa: ARG002
        """Print the newest metrics of each."""
        for learner in learners:
            print(json.dumps({"event": "figures", **learner}), flush=True)


def _learners_table(learners: Sequence[Figures], speed: float | None) -> Table:
    table = Table(caption=None if speed is None else f"{_rate(speed)} to each learner")
    table.add_column("learner")
    for heading in ("events", "in the window", "in the window", "seen"):
        table.add_column(heading, justify="right")
    for learner in learners:
        table.add_row(*_line(learner))
    return table


def _line(metrics: Figures) -> tuple[str, ...]:
    window = metrics["window"]
    name, events = metrics["name"], f"{metrics['events']:,}"
    if _ordinal(metrics):
        return name, events, f"MAE {figure(window['mae'])}", f"accuracy {figure(window['accuracy'])}", ""
    positives = metrics["class_counts"]["positive"]
    return name, events, f"AUC {figure(window['auc'])}", f"F1 {figure(window['f1'])}", f"positives {positives:,}"


def _rate(speed: float | None) -> str:
    """Format a speed; empty if unknown."""
    return "" if speed is None else f"{speed:,.0f} events/s"


def _ordinal(metrics: Figures) -> bool:
    return "positive" not in metrics["class_counts"]


def _error(figures: Figures, key: str) -> str:
    """Format the bound of a metric's error; empty if there is none."""
    error = figures[f"{key}_error"]
    if figures[key] is None or error is None:
        return ""
    return f" \N{PLUS-MINUS SIGN} {figure(math.ceil(error * 1e4) / 1e4)}"  # rounded up, because it is a bound


def _interval(ends: Sequence[float] | None) -> str:
    return "-" if ends is None else " to ".join(map(figure, ends))


def _delay(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)
