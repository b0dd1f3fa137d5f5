"""Shared parts of the linear support vector machines for ranks: settings, calls of LIBLINEAR, parallel planes.

scikit-learn ships LIBLINEAR: dual coordinate descent on the hinge loss or the epsilon-insensitive loss. The paper of
npsvor compares with machines of these losses. An intercept b is the weight of a column with the value
`intercept_scaling` (s) everywhere. It is penalised like any other weight, by (b / s)^2 / 2. A large s leaves b nearly
free and takes more sweeps.
"""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from learners.algorithms.base import Linear
from learners.numerics import Counts, Matrix, Rows, Sparse, Vector
from learners.records import select_rows
from learners.settings import Parameters, param

__all__ = [
    "Examples",
    "MachineParams",
    "Planes",
    "check_entries",
    "examples",
    "parallel",
    "ranks_above",
    "solve_svc",
    "solve_svr",
]

# LIBLINEAR has one random generator for the whole process and runs without the GIL. Two fits at once would share the
# generator, and neither would be reproducible.
_SOLVER = threading.Lock()

_MOST_ENTRIES = 2**27  # of a matrix, with 12 bytes each and 16 in the copy of LIBLINEAR: 3.5 GiB in all


@dataclass(frozen=True)
class MachineParams(Parameters):
    """Settings of every machine."""

    ranks: int = param(5, "how many ranks there are: labels are 1 to this", least=2, most=64)
    C: float = param(1.0, "weight of the losses against the penalty", above=0, most=2.0**20)
    intercept_scaling: float = param(
        1.0, "value of the constant column; a larger one penalises intercepts less", least=2.0**-10, most=2.0**10
    )
    tolerance: float = param(1e-4, "largest violation of the optimality conditions at the end", least=1e-12, most=1)
    sweeps: int = param(1000, "most sweeps over the events per plane", least=1, most=1_000_000)


class Examples(NamedTuple):
    """The n events with a positive weight."""

    X: Any  # (n, dim) scipy CSR with 32-bit indices, as LIBLINEAR needs them
    y: Counts  # (n,) ranks
    weight: Vector  # (n,) above 0


class Planes(NamedTuple):
    """k planes w.x + bias from LIBLINEAR."""

    w: Matrix  # (k, dim)
    bias: Vector  # (k,)
    sweeps: Counts  # (1,) of the plane that took most


def examples(most: int, rows: Rows, dim: int, y: Vector, weight: Vector) -> Examples:
    """Select the events with a weight above 0, whose labels are ranks up to `most`.

    Raises ValueError for a label that is not a rank, for fewer than two different ranks, and for more than 2^27
    entries. O(entries) time and memory; the arguments do not change.
    """
    from scipy import sparse

    counted = weight > 0.0
    labels = y[counted]
    if not np.isin(labels, np.arange(1, most + 1)).all():
        raise ValueError(f"a label is not a rank; expected whole numbers from 1 to {most}")
    ranks = labels.astype(np.int64)
    if len(np.unique(ranks)) < 2:
        raise ValueError("the events with a weight above 0 are of one rank or none; expected at least two")
    picked = select_rows(rows, counted)
    check_entries(len(picked.data) if isinstance(picked, Sparse) else int(np.count_nonzero(picked)))
    if isinstance(picked, Sparse):
        parts = (picked.data, picked.indices.astype(np.int32), picked.indptr.astype(np.int32))
        return Examples(sparse.csr_array(parts, shape=(len(ranks), dim)), ranks, weight[counted])
    return Examples(sparse.csr_array(picked), ranks, weight[counted])


def check_entries(count: int) -> None:
    """Raise ValueError if a matrix of `count` entries is too large for a fit."""
    if count > _MOST_ENTRIES:
        raise ValueError(f"there are {count} entries to fit by; expected at most {_MOST_ENTRIES}")


def solve_svc(params: MachineParams, X: Any, y: Counts, weight: Vector, seed: int, *, intercept: bool = True) -> Planes:
    """Fit one-vs-rest machines with the hinge loss: a plane per value of `y`, ascending; for two values one plane.

    Raises ValueError if the rows are too large for finite planes.
    """
    from sklearn.svm import LinearSVC  # takes half a second, so only a fit imports it

    return _solve(LinearSVC(loss="hinge", fit_intercept=intercept, **_options(params, seed)), X, y, weight)


def solve_svr(params: MachineParams, X: Any, y: Counts, weight: Vector, seed: int, *, eps: float) -> Planes:
    """Fit a regression of `y` with the epsilon-insensitive loss: one plane. Raises ValueError as `solve_svc` does."""
    from sklearn.svm import LinearSVR

    machine = LinearSVR(loss="epsilon_insensitive", epsilon=eps, **_options(params, seed))
    return _solve(machine, X, y.astype(np.float64), weight)


def _options(params: MachineParams, seed: int) -> dict[str, Any]:
    return {
        "C": params.C,
        "dual": True,
        "intercept_scaling": params.intercept_scaling,
        "tol": params.tolerance,
        "max_iter": params.sweeps,
        "random_state": seed % 2**32,
    }


def _solve(machine: Any, X: Any, y: Any, weight: Vector) -> Planes:
    from sklearn.exceptions import ConvergenceWarning

    with _SOLVER, warnings.catch_warnings():
        # use the planes of the last sweep: on raw data more sweeps may not help, and `sweeps` in the state shows the
        # limit
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(X, y, sample_weight=weight)
    w = np.array(np.atleast_2d(machine.coef_), dtype=np.float64, order="C")
    bias = np.array(np.broadcast_to(machine.intercept_, len(w)), dtype=np.float64)
    if not (np.isfinite(w).all() and np.isfinite(bias).all()):
        raise ValueError("LIBLINEAR found no finite planes: the rows, the weights or C are too large")
    return Planes(w, bias, np.array([machine.n_iter_], dtype=np.int64))


def parallel(w: Vector, thresholds: Vector) -> Linear:
    """Return the planes w.x - threshold with one w (dim,): k views of it, not copies."""
    # np.broadcast_to gives read-only rows, for which the kernels would be compiled once more
    shared = np.lib.stride_tricks.as_strided(w, (len(thresholds), len(w)), (0, w.strides[0]))
    return Linear(shared, -thresholds)


def ranks_above(values: Matrix) -> Counts:
    """Return the ranks (n,) from the values (n, ranks - 1) of parallel planes: 1 + the number above 0."""
    ranks: Counts = 1 + np.count_nonzero(values > 0.0, axis=1).astype(np.int64)
    return ranks
