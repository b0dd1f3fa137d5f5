"""The experiments behind benchmarks/PAPERS.md: one thing of the protocol varied at a time, one split each.

    python -m benchmarks.papers.misses --datasets DIR [--only cod-rna] [--rows N]

cod-rna and covtype: CBR with FIFO buffers of 50 by scaling, training rows and class. vehicle: LOAM_ILSC by grouping of
the classes, the mean over five parts. usps and ijcnn1: NBAUC behind 1,600 landmarks by scaling, C and training rows. A
fifth of the rows is the test part (usps has its own). Prints AUC. `--rows` takes a sample of each set: quick, and not
what PAPERS.md has.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.datasets import dense, file_of, load
from benchmarks.papers.measures import auc
from benchmarks.papers.scaling import Kind, scaled
from learners import algorithms
from learners.algorithms.base import linear_scores
from learners.features import kernel_approximation
from learners.numerics.arrays import Matrix, Sparse, Vector

__all__ = ["main"]

_KINDS: tuple[Kind, ...] = ("unit", "standard", "range")
_PIXELS: tuple[Kind, ...] = ("standard", "none")

Split = tuple[Matrix, Vector, Matrix, Vector]  # training rows and labels, test rows and labels


def _read(folder: Path, name: str, rows: int | None) -> tuple[Matrix, Vector]:
    """Rows and the source's labels, in random order."""
    X, dim, labels = load(folder, name)
    matrix = dense(X, dim) if isinstance(X, Sparse) else X
    order = np.random.default_rng(0).permutation(len(labels))[:rows]
    return np.ascontiguousarray(matrix[order], dtype=np.float64), labels[order].astype(np.float64)


def _split(X: Matrix, y: Vector, part: int = 0) -> Split:
    """One of the five parts for the test, the others for training."""
    test = len(y) // 5
    X, y = np.roll(X, -part * test, axis=0), np.roll(y, -part * test)
    return X[test:], y[test:], X[:test], y[:test]


def _score(name: str, split: Split, kind: Kind, train: int | None = None, embed: bool = False, **params: Any) -> float:
    """Return the AUC of an algorithm after one pass over, or a fit to, the first `train` training rows."""
    X, y, Z, z = split
    A, B = scaled(kind, X, Z, X.shape[1])
    assert not isinstance(A, Sparse)
    assert not isinstance(B, Sparse)
    if embed:
        settings = kernel_approximation.Embedding(kind="nystroem", components=1600)
        space = kernel_approximation.fit(settings, A[:20_000], 0)
        A, B = kernel_approximation.look(settings, space, A[:train]), kernel_approximation.look(settings, space, B)
    algorithm: Any = algorithms()[name]
    A, y = np.ascontiguousarray(A[:train]), y[:train]
    chosen, weight = algorithm.Params(**params), np.ones(len(y))
    if hasattr(algorithm, "fit"):
        state = algorithm.fit(chosen, A, A.shape[1], y, weight, 0)
    else:
        state = algorithm.init(chosen, A.shape[1], 0)
        state = algorithm.learn(chosen, state, A, y, weight, np.empty(len(y)))
    return auc(linear_scores(algorithm.weights(chosen, state), B), z)


def _signed(labels: Vector, positive: tuple[int, ...]) -> Vector:
    return np.where(np.isin(labels, positive), 1.0, -1.0)


def _cod_rna(folder: Path, rows: int | None) -> None:
    X, labels = _read(folder, "cod-rna", rows)
    split = _split(X, _signed(labels, (1,)))
    for kind, train in itertools.product(_KINDS, (3_000, 12_000, None)):
        best = max(_score("cbr", split, kind, train, C=2.0**c, capacity=50) for c in (-10, -6, -2, 2, 6, 10))
        print(f"cod-rna, rows {kind}, {train or 'all'} training rows, best C: {best:.4f}", flush=True)


def _covtype(folder: Path, rows: int | None) -> None:
    X, labels = _read(folder, "covtype", rows)
    variants: tuple[tuple[int, Kind, int], ...] = (
        (2, "unit", 0),
        (2, "unit", 8),
        (2, "standard", -10),
        (1, "unit", 0),
    )
    for positive, kind, c in variants:
        value = _score("cbr", _split(X, _signed(labels, (positive,))), kind, C=2.0**c, capacity=50)
        print(f"covtype [{positive}], rows {kind}, C = 2^{c}: {value:.4f}", flush=True)


def _vehicle(folder: Path, rows: int | None) -> None:
    X, labels = _read(folder, "vehicle", rows)
    for size in (1, 2):
        for classes in itertools.combinations((1, 2, 3, 4), size):
            y = _signed(labels, classes)
            value = np.mean([_score("loam-ilsc", _split(X, y, part), "range", lam=0.1) for part in range(5)])
            print(f"vehicle {list(classes)}, LOAM_ILSC: {value:.4f}", flush=True)


def _usps(folder: Path, rows: int | None) -> None:
    (X, digits), (Z, others) = _read(folder, "usps", rows), _read(folder, "usps_test", rows)
    split = (X, _signed(digits, (0, 1, 2, 3, 4)), Z, _signed(others, (0, 1, 2, 3, 4)))
    for kind, c in itertools.product(_PIXELS, (12, 14, 16)):
        value = _score("nbauc", split, kind, embed=True, C=2.0**c)
        print(f"usps [0-4], NBAUC, rows {kind}, C = 2^{c}: {value:.4f}", flush=True)


def _ijcnn1(folder: Path, rows: int | None) -> None:
    X, labels = _read(folder, "ijcnn1", rows)
    for train in (5_000, 10_000, 20_000, None):
        value = _score("nbauc", _split(X, _signed(labels, (1,))), "standard", train, embed=True, C=2.0**18)
        print(f"ijcnn1 [1], NBAUC, {train or 'all'} training rows, C = 2^18: {value:.4f}", flush=True)


_EXPERIMENTS: dict[str, Callable[[Path, int | None], None]] = {
    "cod-rna": _cod_rna,
    "covtype": _covtype,
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
    chosen = parser.parse_args(arguments)
    for name in chosen.only or _EXPERIMENTS:
        needed = ("usps", "usps_test") if name == "usps" else (name,)
        if any(file_of(chosen.datasets, item) is None for item in needed):
            print(f"{name}: not in {chosen.datasets}")
            continue
        _EXPERIMENTS[name](chosen.datasets, chosen.rows)


if __name__ == "__main__":
    main()
