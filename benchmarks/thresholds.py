"""Each objective of the threshold, compared with the best fixed threshold in hindsight.

    python -m benchmarks.thresholds --datasets DIR [--quick] [--only a9a] [--json FILE]

The data sets are those of the FOFO paper in DIR (benchmarks/papers/datasets.py), and two sets of text. A stream is a
set in random order. The numbers are means over five orders, or two orders for sets of more than 200,000 rows. Each
stream runs twice: unchanged ("whole"), and without three of four positives in its second half ("before" and "after" the
fall of their share).

A model passes over the stream once and scores each event before learning it. Then calibration and threshold pass over
these scores, with each label right after its decision. All objectives get the same scores. The scores of fofo are
log-odds without calibration, with the step that suits the rows: 8 for columns in [0, 1] or rows of unit norm, 1 for
binary rows. cbr-diag, with buffers of 50 and rows of unit norm, only ranks, so its scores are calibrated.

"Hindsight" is the best fixed threshold for the probabilities of the part in question: the whole stream, or the part
before or after the fall. A threshold that moves with the stream can be even better. None is `cautious` at the start.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Column, Table

from benchmarks.hindsight import COSTS, DAY, Curve, Figures, Flags, figures_of
from benchmarks.papers import measures
from benchmarks.papers.datasets import Data, Task, file_of, make, pick
from benchmarks.papers.scaling import Kind, scaled
from benchmarks.papers.tables import TABLES
from learners import algorithms
from learners.decisions import calibration, threshold
from learners.decisions.calibration import Calibration
from learners.decisions.threshold import Threshold
from learners.numerics.arrays import Counts, Rows, Sparse, Vector

__all__ = ["OBJECTIVES", "Objective", "compared", "decided", "made_up_clocks", "main", "thin"]

_NARROWEST = 160  # columns: the tables must not be folded
SHUFFLES, LONG_SHUFFLES = 5, 2
LONG = 200_000  # rows: a longer stream varies less, and takes long
QUICK_ROWS = 1500
LATE_SHARE = 0.25  # of the positives of the second half
A_DAY = 1000  # events, in the mean of made-up days
SHARE = 0.01  # of events that a budget allows

TASKS = (*TABLES["fofo"].tasks, Task("farm-ads", (1,)), Task("reuters21578_tfidf", (0,)))  # topic 0: acq
TEXT = ("farm-ads", "reuters21578_tfidf")


class Objective(NamedTuple):
    """An objective with its settings, and what it is judged by."""

    settings: Mapping[str, Any]
    measure: str
    best: Callable[[Curve, int], float]  # the measure in hindsight; the number is that of the objective's alerts


def _f1(settings: Mapping[str, Any]) -> Objective:
    return Objective(settings, "f1", lambda curve, _: curve.f_beta(1.0))


def _fpr(target: float) -> Objective:
    return Objective({"objective": "fpr", "target": target}, "recall", lambda curve, _: curve.recall_at_fpr(target))


def _budget(**settings: float) -> Objective:
    return Objective({"objective": "budget", **settings}, "precision", lambda curve, alerts: curve.precision_at(alerts))


OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        "f1 (n)": _f1({"objective": "f1", "horizon": 0}),  # 0: the stream's length
        "f1": _f1({"objective": "f1"}),
        "f1-ofo": _f1({"objective": "f1-ofo"}),
        "f1-window": _f1({"objective": "f1-window"}),
        "fbeta 1": _f1({"objective": "fbeta", "beta": 1.0}),
        "fbeta 2": Objective({"objective": "fbeta", "beta": 2.0}, "f2", lambda curve, _: curve.f_beta(2.0)),
        "jaccard": Objective({"objective": "jaccard"}, "jaccard", lambda curve, _: curve.jaccard()),
        "optroc": Objective({"objective": "optroc"}, "accuracy", lambda curve, _: curve.accuracy()),
        "fixed 0.5": _f1({"objective": "fixed", "value": 0.5}),
        "fpr 0.01": _fpr(0.01),
        "fpr 0.05": _fpr(0.05),
        "precision 0.8": Objective(
            {"objective": "precision", "target": 0.8}, "recall", lambda curve, _: curve.recall_at_precision(0.8)
        ),
        "recall 0.8": Objective(
            {"objective": "recall", "target": 0.8}, "precision", lambda curve, _: curve.precision_at_recall(0.8)
        ),
        "rate 0.01": _budget(rate=SHARE),
        "10 a day": _budget(alerts=SHARE * A_DAY, unit_seconds=DAY),
        "cost": Objective(
            {"objective": "cost", "false_positive": COSTS[0], "false_negative": COSTS[1]},
            "cost",
            lambda curve, _: curve.cost(),
        ),
    }
)


Calibrated = Literal["posterior", "platt", "isotonic"]


class Model(NamedTuple):
    """An algorithm, and which objectives meet its scores behind which calibrations."""

    algorithm: str
    params: Mapping[str, Any]
    passes: Mapping[Calibrated, Sequence[str]]


MODELS = (
    Model(
        "fofo", {}, {"posterior": tuple(OBJECTIVES), "platt": ("f1-window", "cost"), "isotonic": ("f1-window", "cost")}
    ),
    Model("cbr-diag", {"capacity": 50}, {"platt": ("f1-window", "cost"), "isotonic": ("f1-window", "cost")}),
)


def thin(y: Vector, random: np.random.Generator) -> Counts:
    """Return the events that stay, ascending: all but three of four positives of the second half."""
    half = len(y) // 2
    late = half + np.flatnonzero(y[half:] > 0.0)
    dropped = random.choice(late, len(late) - round(LATE_SHARE * len(late)), replace=False)
    return np.setdiff1d(np.arange(len(y)), dropped)


def made_up_clocks(n: int, random: np.random.Generator) -> Vector:
    """Draw ascending times of n events in seconds: days of about A_DAY events, most of them around noon."""
    longest = 3 + 11 * n // (10 * A_DAY)  # days: more than chance makes of them
    days = np.linspace(0.0, longest, 100 * longest + 1)
    mass = A_DAY * (days - 0.8 * np.sin(2 * np.pi * days) / (2 * np.pi))  # events until then, as expected
    return DAY * np.interp(np.cumsum(random.exponential(size=n)), mass, days)


def rows_for(task: Task, data: Data, algorithm: str) -> tuple[Rows, Kind]:
    """Return the rows in the form that suits the algorithm, and their scaling."""
    kind: Kind = "zero-one"
    if algorithm != "fofo" or task.file in TEXT:
        kind = "unit"
    elif isinstance(data.rows, Sparse):
        kind = "none"
    return scaled(kind, data.rows, data.rows, data.dim)[0], kind


def scores_of(model: Model, kind: Kind, rows: Rows, dim: int, y: Vector) -> Vector:
    """Score each event before learning it, (n,)."""
    algorithm: Any = algorithms()[model.algorithm]
    params = dict(model.params)
    if model.algorithm == "fofo":
        params["c"] = 1.0 if kind == "none" else 8.0
    scores = np.empty(len(y))
    options = algorithm.Params(**params)
    algorithm.learn(options, algorithm.init(options, dim, 0), rows, y, np.ones(len(y)), scores)
    return scores


def decided(objective: Objective, probabilities: Vector, y: Vector, clocks: Vector) -> Flags:
    """Which events the objective calls positive, each before its label is known, (n,)."""
    n = len(y)
    settings = {**objective.settings}
    if settings.get("horizon") == 0:
        settings["horizon"] = n
    options = Threshold(**settings, cautious=settings["objective"] not in threshold.CAUTIOUS)
    thresholds, decisions = np.empty(n), np.empty(n, dtype=np.int64)
    state = threshold.init(options)
    threshold.learn(options, state, probabilities, y, np.ones(n, bool), np.ones(n), clocks, thresholds, decisions)
    called: Flags = decisions == 1
    return called


Key = tuple[str, str, str, str]  # model, calibration, objective, part of the stream
Runs = dict[Key, list[Figures]]  # one of each order


def judged(
    model: Model, scores: Vector, y: Vector, clocks: Vector, parts: Mapping[str, slice]
) -> Iterator[tuple[Key, Figures]]:
    """Judge all objectives on the scores of a model, by part."""
    for calibrated, names in model.passes.items():
        settings = Calibration(kind=calibrated)
        probabilities = calibration.learn(settings, calibration.init(settings), scores, y)
        curves = {part: Curve.of(probabilities[where], y[where]) for part, where in parts.items()}
        for name in names:
            objective = OBJECTIVES[name]
            called = decided(objective, probabilities, y, clocks)
            for part, where in parts.items():
                best = objective.best(curves[part], int(called[where].sum()))
                figures = figures_of(called[where], y[where], clocks[where]) | {"hindsight": best}
                yield (model.algorithm, calibrated, name, part), figures


def compared(task: Task, data: Data, shuffles: int) -> tuple[Runs, dict[str, list[float]]]:
    """All figures of a task by order; and the models' AUC on the whole stream."""
    runs: Runs = {}
    aucs: dict[str, list[float]] = {model.algorithm: [] for model in MODELS}
    for model in MODELS:
        rows, kind = rows_for(task, data, model.algorithm)
        for shuffle in range(shuffles):
            random = np.random.default_rng(zlib.crc32(f"{task.name} {shuffle}".encode()))
            order = random.permutation(len(data.y))
            fallen = order[thin(data.y[order], random)]
            half = len(order) // 2
            for options, parts in (
                (order, {"whole": slice(None)}),
                (fallen, {"before": slice(half), "after": slice(half, None)}),
            ):
                y = data.y[options]
                scores = scores_of(model, kind, pick(rows, options), data.dim, y)
                if "whole" in parts:
                    aucs[model.algorithm].append(measures.auc(scores, y))
                for key, figures in judged(model, scores, y, made_up_clocks(len(y), random), parts):
                    runs.setdefault(key, []).append(figures)
    return runs, aucs


class TableColumn(NamedTuple):
    """A column of a table: a figure of an objective's runs, and its heading."""

    head: str
    objective: str
    part: str
    figure: str
    calibrated: str = "posterior"
    model: str = "fofo"


_WORDS = {"hindsight": "best", "alert_rate": "alerts", "most_a_day": "most a day", "f1": "F", "f2": "F2", "fpr": "FPR"}


def _columns(
    names: Sequence[str],
    parts: Sequence[str],
    *more: str,
    kinds: Sequence[str] = ("posterior",),
    model: str = "fofo",
) -> list[TableColumn]:
    """Return the columns of a table: `more`, then the metrics of the objectives beside the best in hindsight."""
    return [
        TableColumn(
            f"{name if len(kinds) == 1 else kind}\n{part}\n{_WORDS.get(figure, figure)}",
            name,
            part,
            figure,
            kind,
            model,
        )
        for name in names
        for kind in kinds
        for part in parts
        for figure in (*more, OBJECTIVES[name].measure, "hindsight")
    ]


def _tables() -> Iterator[tuple[str, list[TableColumn]]]:
    """Title and columns of each."""
    names = ("f1 (n)", "f1", "f1-ofo", "f1-window", "fbeta 1", "jaccard", "optroc", "fixed 0.5")
    for part, when in (
        ("whole", "the whole stream"),
        ("after", "what came after the share of positives fell fourfold"),
    ):
        columns = [TableColumn(name, name, part, "f1") for name in names]
        yield f"online F of {when}", [*columns, TableColumn("hindsight", "f1", part, "hindsight")]
    steady, relative = ("whole", "after"), ("before", "after")
    for model in ("fofo", "cbr-diag"):
        columns = _columns(("f1-window",), steady, kinds=("platt", "isotonic"), model=model)
        yield f"online F by f1-window, {model}'s scores calibrated", columns
    yield "each by its own measure", _columns(("fbeta 2", "jaccard", "optroc"), steady)
    yield "fpr: share of negatives called positive, and recall", _columns(("fpr 0.01", "fpr 0.05"), relative, "fpr")
    yield "precision of .8, and recall", _columns(("precision 0.8",), relative, "precision")
    yield "recall of .8, and precision", _columns(("recall 0.8",), relative, "recall")
    yield f"budget of {SHARE:.0%} of all events", _columns(("rate 0.01",), relative, "alert_rate")
    a_day = f"budget of {SHARE * A_DAY:g} alerts a day of about {A_DAY:,} events"
    yield a_day, _columns(("10 a day",), relative, "alert_rate", "most_a_day")
    alarm, miss = COSTS
    errors = f"{alarm:g} of a false alarm, {miss:g} of a missed positive: positive where p >= 1/{1 + miss / alarm:g}"
    for item in MODELS:
        columns = _columns(("cost",), relative, kinds=tuple(item.passes), model=item.algorithm)
        yield f"cost per event, {errors}; {item.algorithm}", columns


class Result(NamedTuple):
    """What a task came to."""

    task: str
    events: int
    positives: int
    aucs: dict[str, list[float]]
    runs: Runs

    def mean(self, column: TableColumn) -> str:
        """Over the shuffles that have the figure."""
        runs = self.runs[column.model, column.calibrated, column.objective, column.part]
        values = [run[column.figure] for run in runs if not np.isnan(run[column.figure])]
        if column.figure == "most_a_day":
            return f"{np.mean(values):.1f}"
        return f"{np.mean(values):.3f}".removeprefix("0") if values else "-"

    def as_json(self) -> dict[str, Any]:
        """All figures, in the order of the shuffles; null for the precision of no alerts."""
        rows = [
            {
                **dict(zip(("model", "calibration", "objective", "part"), key, strict=True)),
                "hindsight_of": OBJECTIVES[key[2]].measure,
                **{name: [None if np.isnan(run[name]) else round(run[name], 6) for run in runs] for name in runs[0]},
            }
            for key, runs in self.runs.items()
        ]
        return {"task": self.task, "events": self.events, "positives": self.positives, "auc": self.aucs, "rows": rows}


def _print(results: Sequence[Result], console: Console) -> None:
    first = Table(Column("data set", no_wrap=True), box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("events", "positives", *(f"AUC, {model.algorithm}" for model in MODELS)):
        first.add_column(head, justify="right")
    for result in results:
        aucs = [f"{np.mean(result.aucs[model.algorithm]):.3f}" for model in MODELS]
        first.add_row(escape(result.task), f"{result.events:,}", f"{result.positives / result.events:.2%}", *aucs)
    console.print("the streams", highlight=False)
    console.print(first)
    for title, columns in _tables():
        table = Table(Column("data set", no_wrap=True), box=box.SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            table.add_column(column.head, justify="right")
        for result in results:
            table.add_row(escape(result.task), *(result.mean(column) for column in columns))
        console.print(title, highlight=False)
        console.print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the tables, write JSON."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.thresholds", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--quick", action="store_true", help="one shuffle of samples: some seconds once compiled")
    files = sorted({task.file for task in TASKS})
    parser.add_argument("--only", action="append", choices=files, help="only this data set (may be repeated)")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/thresholds.json"), help="written here")
    options = parser.parse_args(arguments)
    selection = [task for task in TASKS if task.file in (options.only or files)]
    tasks = [task for task in selection if file_of(options.datasets, task.file)]
    if not tasks:
        parser.error(f"{options.datasets} has none of {', '.join(dict.fromkeys(task.file for task in selection))}")
    console = Console(width=max(_NARROWEST, Console().width))
    results = []
    for task in track(tasks, "measuring", console=console):
        data = make(options.datasets, task, QUICK_ROWS if options.quick else None)
        runs, aucs = compared(task, data, 1 if options.quick else SHUFFLES if len(data.y) < LONG else LONG_SHUFFLES)
        results.append(Result(task.name, len(data.y), int((data.y > 0.0).sum()), aucs, runs))
    _print(results, console)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    versions = {"python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__}
    figures = {"quick": options.quick, "machine": machine | versions}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(figures | {"tasks": [result.as_json() for result in results]}, indent=1))
    console.print(f"Written: {options.json}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
