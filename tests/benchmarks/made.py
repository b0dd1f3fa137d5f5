"""Tiny made-up data sets, in files like those that the benchmarks read.

`python -m tests.benchmarks.made FOLDER` writes a handful of them under names that the papers' tables know, so that the
tables can be tried where the real sets are not at hand.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["binary", "ordinal", "write_dense", "write_sparse"]

Rows = NDArray[np.float64]
Labels = NDArray[np.int64]


def binary(
    n: int, dim: int, seed: int = 0, labels: tuple[int, int] = (-1, 1), share: float = 0.3
) -> tuple[Rows, Labels]:
    """Rows (n, dim), and labels of which `share` is the second of `labels`."""
    random = np.random.default_rng(seed)
    y = np.where(random.random(n) < share, labels[1], labels[0])
    X = random.normal(size=(n, dim)) + 0.8 * (y == labels[1])[:, None]
    return X, y.astype(np.int64)


def ordinal(n: int, dim: int, ranks: int, seed: int = 0) -> tuple[Rows, Labels]:
    """Rows (n, dim), and labels 0 to ranks - 1 that grow with the first column."""
    X = np.random.default_rng(seed).normal(size=(n, dim))
    return X, np.digitize(X[:, 0], np.linspace(-1, 1, ranks - 1)).astype(np.int64)


def write_dense(folder: Path, name: str, X: Rows, y: Labels) -> None:
    """NAME.npz with X and y."""
    np.savez(folder / f"{name}.npz", X=X, y=y)


def write_sparse(folder: Path, name: str, X: Rows, y: Labels) -> None:
    """NAME.npz with the parts of a CSR matrix and y."""
    m = sparse.csr_array(X)
    shape = np.array(X.shape)
    np.savez(folder / f"{name}.npz", data=m.data, indices=m.indices, indptr=m.indptr, shape=shape, y=y)


def main(folder: Path) -> None:
    """Write a handful of data sets: dense, sparse, with ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    write_dense(folder, "heart", *binary(270, 13))
    write_dense(folder, "svmguide3", *binary(600, 21, seed=1))
    write_dense(folder, "usps", *ordinal(600, 16, ranks=10))
    write_dense(folder, "usps_test", *ordinal(300, 16, ranks=10, seed=1))
    write_dense(folder, "ord_lev", *ordinal(400, 4, ranks=5))
    X, y = binary(600, 60, seed=2, share=0.1)
    write_sparse(folder, "w8a", np.where(np.random.default_rng(3).random(X.shape) < 0.1, X, 0.0), y)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
