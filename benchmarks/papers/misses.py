"""The experiments behind benchmarks/PAPERS.md: one thing of the protocol varied at a time.

    python -m benchmarks.papers.misses --datasets DIR [--only cod-rna] [--rows N]

cod-rna: CBR with FIFO buffers of 50 by scaling and training rows. covtype: CBR, and OPAUC and AdaOAM by penalty, Linear
RankSVM by class, NBAUC by C and training rows, NSOLAM by passes. german and australian: AdaOAM by penalty and first
step. hill-valley: LOAM_ILSC by penalty, and how rough the raw rows are. vehicle: LOAM_ILSC by grouping of the classes.
usps and ijcnn1: NBAUC behind 1,600 landmarks by scaling, C and training rows; RBF-RankSVM by rows, NSAUC and NSOLAM by
passes. A fifth of the rows is the test part, of small sets each fifth in turn (usps has its own). Prints AUC. `--rows`
takes a sample of each set: quick, and not what PAPERS.md has.
"""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.datasets import Task, dense, file_of, make
from benchmarks.papers.measures import auc
from benchmarks.papers.scaling import Kind, scaled
from benchmarks.papers.tables import TABLES
from learners import algorithms
from learners.algorithms.base import linear_scores
from learners.features import kernel_approximation
from learners.numerics.arrays import Matrix, Sparse, Vector

__all__ = ["main"]

_KINDS: tuple[Kind, ...] = ("unit", "standard", "range")
_PIXELS: tuple[Kind, ...] = ("standard", "none")
_CBR = {task.file: task for task in TABLES["cbr3"].tasks}  # with raw columns
_DIGITS = (0, 1, 2, 3, 4)
_SAMPLE = 60_000  # rows of covtype whose embedding is to fit into memory

Split = tuple[Matrix, Vector, Matrix, Vector]  # training rows and labels, test rows and labels


def _read(folder: Path, task: Task, rows: int | None) -> tuple[Matrix, Vector]:
    """Rows and labels, in random order."""
    data = make(folder, task, rows)
    matrix = dense(data.rows, data.dim) if isinstance(data.rows, Sparse) else data.rows
    order = np.random.default_rng(0).permutation(len(data.y))
    return np.ascontiguousarray(matrix[order]), data.y[order]


def _split(X: Matrix, y: Vector, part: int = 0) -> Split:
    """One of the five parts for the test, the others for training."""
    test = len(y) // 5
    X, y = np.roll(X, -part * test, axis=0), np.roll(y, -part * test)
    return X[test:], y[test:], X[:test], y[:test]


def _scaled(kind: Kind, split: Split) -> Split:
    X, y, Z, z = split
    A, B = scaled(kind, X, Z, X.shape[1])
    assert not isinstance(A, Sparse)
    assert not isinstance(B, Sparse)
    return A, y, B, z


def _embedded(split: Split, components: int, rows: int) -> Split:
    """Embed by Nystroem landmarks of the first `rows` training rows."""
    X, y, Z, z = split
    settings = kernel_approximation.Embedding(kind="nystroem", components=components)
    space = kernel_approximation.fit(settings, X[:rows], 0)
    return kernel_approximation.transform(settings, space, X), y, kernel_approximation.transform(settings, space, Z), z


def _score(name: str, split: Split, train: int | None = None, passes: int = 1, **params: Any) -> float:
    """Return the AUC of an algorithm after passes over, or a fit to, the first `train` training rows."""
    X, y, Z, z = split
    algorithm: Any = algorithms()[name]
    X, y = np.ascontiguousarray(X[:train]), y[:train]
    options, weight = algorithm.Params(**params), np.ones(len(y))
    if hasattr(algorithm, "fit"):
        state = algorithm.fit(options, X, X.shape[1], y, weight, 0)
    else:
        state = algorithm.init(options, X.shape[1], 0)
        for _ in range(passes):
            state = algorithm.learn(options, state, X, y, weight, np.empty(len(y)))
    return auc(linear_scores(algorithm.weights(options, state), Z), z)


def _mean(name: str, X: Matrix, y: Vector, kind: Kind, **params: Any) -> float:
    """Return the mean AUC over the five parts."""
    return float(np.mean([_score(name, _scaled(kind, _split(X, y, part)), **params) for part in range(5)]))


def _show(what: str, value: float) -> None:
    print(f"{what}: {value:.4f}", flush=True)


def _cod_rna(folder: Path, rows: int | None) -> None:
    raw = _split(*_read(folder, _CBR["cod-rna"], rows))
    for kind in _KINDS:
        split = _scaled(kind, raw)
        for train in (3_000, 12_000, None):
            best = max(_score("cbr", split, train, C=2.0**c, capacity=50) for c in (-10, -6, -2, 2, 6, 10))
            _show(f"cod-rna, rows {kind}, {train or 'all'} training rows, best C", best)


def _covtype(folder: Path, rows: int | None) -> None:
    variants: tuple[tuple[int, Kind, int], ...] = (
        (2, "unit", 0),
        (2, "unit", 8),
        (2, "standard", -10),
        (1, "unit", 0),
    )
    for positive, kind, c in variants:
        split = _scaled(kind, _split(*_read(folder, Task("covtype", (positive,)), rows)))
        _show(f"covtype [{positive}], rows {kind}, C = 2^{c}", _score("cbr", split, C=2.0**c, capacity=50))
    split = _scaled("unit", _split(*_read(folder, Task("covtype", (1,)), rows)))
    for name, lam in itertools.product(("opauc", "adaoam"), (-10, -14, -20)):
        best = max(_score(name, split, eta=2.0**eta, lam=2.0**lam) for eta in (-4, -2, 0, 2, 4, 6, 8))
        _show(f"covtype [1], {name}, rows unit, penalty 2^{lam}, best step", best)
    for task in (Task("covtype", (1,)), Task("covtype", (2,)), Task("covtype", (4, 5, 6, 7))):
        split = _scaled("standard", _split(*_read(folder, task, rows)))
        _show(f"{task.name}, Linear RankSVM, rows standard, C = 2^12", _score("ranksvm", split, C=2.0**12))
    sample = _read(folder, Task("covtype", (4, 5, 6, 7)), min(rows or _SAMPLE, _SAMPLE))
    embedded = _embedded(_scaled("standard", _split(*sample)), 1600, 20_000)
    for train, c in itertools.product((12_000, 48_000), (16, 20)):
        value = _score("nbauc", embedded, train, C=2.0**c)
        _show(f"covtype [4-7], NBAUC, {train} training rows, C = 2^{c}", value)
    for passes in (1, 5):
        best = max(_score("nsolam", embedded, passes=passes, R=2.0**r, c=64.0) for r in (2, 4))
        _show(f"covtype [4-7], NSOLAM, passes {passes}, best R", best)


def _adaoam(name: str, folder: Path, rows: int | None) -> None:
    X, y = _read(folder, _CBR[name], rows)
    for delta, lam in itertools.product((0.5, 1e-8), (-10, -14, -20)):
        best = max(_mean("adaoam", X, y, "unit", eta=2.0**eta, lam=2.0**lam, delta=delta) for eta in range(-12, 11, 2))
        _show(f"{name}, AdaOAM, delta {delta:g}, penalty 2^{lam}, best step", best)


def _hill_valley(folder: Path, rows: int | None) -> None:
    X, y = _read(folder, Task("hill-valley", (1,)), rows)
    for kind, lam in itertools.product(("range", "none"), (0, -6, -10, -20)):
        _show(f"hill-valley, LOAM_ILSC, rows {kind}, lambda 2^{lam}", _mean("loam-ilsc", X, y, kind, lam=2.0**lam))
    raw, _ = _read(folder, Task("hill-valley_test", (1,)), rows)
    steps = np.abs(np.diff(raw, axis=1)).mean(axis=1) / raw.std(axis=1)
    _show("hill-valley_test, mean step from column to column in standard deviations of the row", float(steps.mean()))


def _vehicle(folder: Path, rows: int | None) -> None:
    for size in (1, 2):
        for classes in itertools.combinations((1, 2, 3, 4), size):
            X, y = _read(folder, Task("vehicle", classes), rows)
            _show(f"vehicle {list(classes)}, LOAM_ILSC", _mean("loam-ilsc", X, y, "range", lam=0.1))


def _usps(folder: Path, rows: int | None) -> None:
    split = *_read(folder, Task("usps", _DIGITS), rows), *_read(folder, Task("usps_test", _DIGITS), rows)
    for kind in _PIXELS:
        embedded = _embedded(_scaled(kind, split), 1600, 20_000)
        for c in (12, 14, 16):
            _show(f"usps [0-4], NBAUC, rows {kind}, C = 2^{c}", _score("nbauc", embedded, C=2.0**c))


def _ijcnn1(folder: Path, rows: int | None) -> None:
    split = _scaled("standard", _split(*_read(folder, Task("ijcnn1", (1,)), rows)))
    embedded = _embedded(split, 1600, 20_000)
    for train in (5_000, 10_000, 20_000, None):
        value = _score("nbauc", embedded, train, C=2.0**18)
        _show(f"ijcnn1 [1], NBAUC, {train or 'all'} training rows, C = 2^18", value)
    for passes in (1, 5, 20):
        _show(f"ijcnn1 [1], NSAUC, passes {passes}", _score("nsauc", embedded, passes=passes, lam=2.0**-32))
        best = max(_score("nsolam", embedded, passes=passes, R=2.0**r, c=64.0) for r in (2, 4, 6))
        _show(f"ijcnn1 [1], NSOLAM, passes {passes}, best R", best)
    for train in (1_000, 2_000, 4_000):
        exact = _embedded((split[0][:train], *split[1:]), train, train)
        best = max(_score("rbf-ranksvm", exact, train, C=2.0**c) for c in (12, 14, 16, 18))
        _show(f"ijcnn1 [1], RBF-RankSVM, {train} training rows, best C", best)


_EXPERIMENTS: dict[str, Callable[[Path, int | None], None]] = {
    "cod-rna": _cod_rna,
    "covtype": _covtype,
    "german": functools.partial(_adaoam, "german"),
    "australian": functools.partial(_adaoam, "australian"),
    "hill-valley": _hill_valley,
    "vehicle": _vehicle,
    "usps": _usps,
    "ijcnn1": _ijcnn1,
}


def main(arguments: list[str] | None = None) -> None:
    """Run the experiments whose data sets are there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.misses", description=__doc__)
    parser.add_argument("--datasets", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--only", action="append", choices=_EXPERIMENTS, help="only this one (may be repeated)")
    parser.add_argument("--rows", type=int, help="a sample of so many rows of each set")
    options = parser.parse_args(arguments)
    for name in options.only or _EXPERIMENTS:
        needed = (name, f"{name}_test") if name in ("usps", "hill-valley") else (name,)
        if any(file_of(options.datasets, item) is None for item in needed):
            print(f"{name}: not in {options.datasets}")
            continue
        _EXPERIMENTS[name](options.datasets, options.rows)


if __name__ == "__main__":
    main()
