"""What a table is, as data: tasks, methods with their grids, one protocol, the measure shown, the paper's figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from benchmarks.papers.datasets import Task
from benchmarks.papers.figures import Figures
from benchmarks.papers.scaling import WORDS, Kind

__all__ = ["Method", "Protocol", "Table", "powers", "settings"]

_QUICK_ROWS = 800


def powers(first: int, last: int, step: int = 1) -> tuple[float, ...]:
    """2^first, 2^(first + step), ... up to 2^last."""
    return tuple(2.0**exponent for exponent in range(first, last + 1, step))


@dataclass(frozen=True)
class Method:
    """An algorithm of the catalogue as a table runs it."""

    name: str  # as the tables print it
    algorithm: str
    grid: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # parameters that are tuned
    fixed: Mapping[str, Any] = field(default_factory=dict)  # parameters that are not
    passes: int = 1  # over the training rows
    embedding: Literal["nystroem", "fourier"] | None = None
    components: int | None = None  # of the embedding, instead of the protocol's
    threshold: Mapping[str, Any] | None = None  # of "online": instead of the algorithm's own; horizon 0: the stream's
    most: int | None = None  # training rows: more would take too long

    def words(self, points: int | None = None) -> str:
        """Describe the tuned parameters, the size of their grid, and other settings that are not defaults."""
        parts = [f"{name} in {_span(values)}" for name, values in self.grid_of(points).items()]
        parts += [f"{name} = {value}" for name, value in self.fixed.items()]
        if self.threshold:
            parts.append("threshold " + ", ".join(f"{k} {v or 'of the stream'}" for k, v in self.threshold.items()))
        if self.embedding:
            parts.append(f"behind {self.embedding}" + (f" of {self.components}" if self.components else ""))
        if self.passes > 1:
            parts.append(f"{self.passes} passes")
        if self.most:
            parts.append(f"trained on at most {self.most:,} rows")
        return f"{self.name} ({self.algorithm}): " + ("; ".join(parts) or "nothing to tune")

    def grid_of(self, points: int | None) -> dict[str, tuple[float, ...]]:
        """Return the grid with at most this many values per parameter; two thirds of that if several are tuned."""
        if points is None:
            return dict(self.grid)
        each = points if len(self.grid) == 1 else max(1, 2 * points // 3)
        return {name: _thinned(values, each) for name, values in self.grid.items()}


def _span(values: Sequence[float]) -> str:
    """Return the powers of two of a grid."""
    texts = [f"2^{math.log2(value):g}" for value in values]
    return ", ".join(texts) if len(texts) <= 3 else f"{texts[0]}, {texts[1]}, ... {texts[-1]}"


def _thinned(values: tuple[float, ...], points: int) -> tuple[float, ...]:
    """At most so many of the values, evenly spread and off the ends."""
    if len(values) <= points:
        return values
    return tuple(values[int((i + 0.5) * len(values) / points)] for i in range(points))


@dataclass(frozen=True)
class Protocol:
    """How figures come about: splits, repetitions, tuning, scaling."""

    kind: Literal["ranking", "ordinal", "online"]
    scaling: Kind  # of dense rows
    sparse_scaling: Kind | None  # None: sparse rows are written out and scaled as dense ones
    trials: int
    folds: int = 1  # of cross-validation, for sets without a test part; 1: a fifth of the rows is the test part
    folds_run: int | None = None  # only so many of them
    most_runs: int | None = None  # of a method on a task: the first ones
    tuning_folds: int = 3
    tuning_rows: int = 10_000  # tuning takes at most so many training rows
    rows: int | None = None  # of a set: a sample of at most so many
    components: int = 1600  # of an embedding
    grid_points: int | None = None  # of the grids, see `Method.grid_of`
    quick: bool = False

    @property
    def criterion(self) -> str:
        """The measure that parameters are chosen by."""
        return {"ranking": "auc", "ordinal": "mae", "online": "f1"}[self.kind]

    def runs(self, task: Task) -> list[tuple[int, int]]:
        """(trial, fold) of each run."""
        folds = 1 if task.divided else self.folds_run or self.folds
        return list(itertools.product(range(self.trials), range(folds)))[: self.most_runs]

    def quickly(self) -> Protocol:
        """Return the protocol for a quick run: a sample, one trial, two folds and a coarse grid."""
        return replace(
            self,
            trials=1 if self.folds > 1 else 2,
            folds_run=2 if self.folds > 1 else None,
            tuning_folds=2,
            tuning_rows=_QUICK_ROWS,
            rows=2 * _QUICK_ROWS if self.kind == "online" else _QUICK_ROWS,
            components=40,
            grid_points=3,
            quick=True,
        )

    @property
    def words(self) -> str:
        """The protocol in a sentence or two."""
        tuned = f"parameters by mean {self.criterion} of {self.tuning_folds}-fold cross-validation on the training part"
        if self.kind == "online":
            how = f"one pass over nine tenths of the set in random order, {self.trials} orders"
            tuned = "parameters by the online F of a pass over the other tenth"
        elif self.folds == 1:
            how = f"{self.trials} times a stratified fifth for the test, the other rows in random order"
        else:
            how = f"{self.trials} x {self.folds}-fold stratified cross-validation in random order"
            how += f" ({self.folds_run} of the folds)" if self.folds_run else ""
        if self.kind != "online":
            how += f" (sets that come with a test part: that one, {self.trials} random order{'s'[: self.trials > 1]})"
        rows = f"rows {WORDS[self.scaling]}"
        if self.sparse_scaling not in (None, self.scaling):
            rows += f" (sparse sets: {WORDS[self.sparse_scaling or 'none']})"
        parts = [how, tuned + f" (at most {self.tuning_rows:,} rows of it)", rows]
        if self.most_runs:
            parts.append(f"only the first {self.most_runs} of these runs")
        if self.rows:
            parts.append(f"a sample of at most {self.rows:,} rows of each set")
        return "; ".join(parts)

    def choices(self, method: Method) -> list[dict[str, float]]:
        """List the settings of the grid; the first parameter changes slowest."""
        grid = method.grid_of(self.grid_points)
        return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper."""

    name: str
    paper: str  # its short name
    title: str
    measure: str
    protocol: Protocol
    tasks: tuple[Task, ...]
    methods: tuple[Method, ...]
    figures: Figures  # the paper's results
    cells: int = 0  # that the paper's table has, those of other data sets included
    notes: tuple[str, ...] = ()
    plot: Literal["curves", "seconds"] | None = None

    @property
    def heading(self) -> str:
        """The paper and the table's title."""
        return f"{self.paper}, {self.title}"

    def only_printed(self) -> Table:
        """Restrict the table to tasks and methods with a result in the paper."""
        tasks = tuple(task for task in self.tasks if any(task.name == name for name, _ in self.figures))
        methods = tuple(method for method in self.methods if any(method.name == name for _, name in self.figures))
        return replace(self, tasks=tasks, methods=methods)


def settings(method: Method, values: Mapping[str, float]) -> dict[str, Any]:
    """All parameters of the algorithm that are not left at their defaults."""
    return {**method.fixed, **values}
