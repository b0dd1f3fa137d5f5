"""What the linear support vector machines for ranks share: their settings, LIBLINEAR behind one door, parallel planes.

LIBLINEAR is scikit-learn's: dual coordinate descent on the hinge loss or the epsilon-insensitive loss, the losses of
the paper of npsvor, which compares with these machines. An intercept b is the weight of a column that is
`intercept_scaling` (s) everywhere, and that weight is penalised like any other: by (b / s)^2 / 2. A large s leaves b
nearly free and takes more sweeps.
"""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

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

# LIBLINEAR shuffles by one generator for the whole process and runs without the GIL: two fits at once would share it,
# and neither could be repeated.
_SOLVER = threading.Lock()

_MOST_ENTRIES = 2**27  # of a matrix: 12 bytes each and 16 more in LIBLINEAR's copy, together 3.5 GiB


@dataclass(frozen=True)
class MachineParams(Parameters):
    """Settings that all the machines have."""

    ranks: int = param(5, "how many ranks there are: labels are 1 to this", least=2, most=64)
    C: float = param(1.0, "weight of the losses against the penalty", above=0, most=2.0**20)
    intercept_scaling: float = param(
        1.0, "value of the constant column: the larger, the less intercepts are penalised", least=2.0**-10, most=2.0**10
    )
    tolerance: float = param(1e-4, "violation of the optimality conditions that may be left", least=1e-12, most=1)
    sweeps: int = param(1000, "at most so many sweeps over the events per plane", least=1, most=1_000_000)


class Examples(NamedTuple):
    """The n events that count."""

    X: Any  # (n, dim) scipy CSR with 32-bit indices, as LIBLINEAR wants them
    y: Counts  # (n,) ranks
    weight: Vector  # (n,) above 0


class Planes(NamedTuple):
    """What LIBLINEAR found: k planes w.x + bias."""

    w: Matrix  # (k, dim)
    bias: Vector  # (k,)
    sweeps: Counts  # (1,) made; for the plane that took most


def examples(params: MachineParams, rows: Rows, dim: int, y: Vector, weight: Vector) -> Examples:
    """The events whose weight is above 0.

    Raises ValueError if a label is not a rank, unless two ranks occur, and for more than 2^27 entries. O(entries) time
    and memory; the arguments are not written to.
    """
    counted = weight > 0.0
    labels = y[counted]
    if not np.isin(labels, np.arange(1, params.ranks + 1)).all():
        raise ValueError(f"a label is not a rank; expected whole numbers from 1 to {params.ranks}")
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
    """Raises ValueError if a matrix of `count` entries is too large to fit by."""
    if count > _MOST_ENTRIES:
        raise ValueError(f"there are {count} entries to fit by; expected at most {_MOST_ENTRIES}")


def solve_svc(params: MachineParams, X: Any, y: Counts, weight: Vector, seed: int, *, intercept: bool = True) -> Planes:
    """One-vs-rest machines with the hinge loss: a plane per value of `y`, ascending; of two only the second's.

    Raises ValueError if the rows are too large for finite planes.
    """
    from sklearn.svm import LinearSVC  # half a second that only a fit should wait for

    return _solve(LinearSVC(loss="hinge", fit_intercept=intercept, **_options(params, seed)), X, y, weight)


def solve_svr(params: MachineParams, X: Any, y: Counts, weight: Vector, seed: int, *, eps: float) -> Planes:
    """A regression of `y` with the epsilon-insensitive loss: one plane. Raises ValueError as `solve_svc` does."""
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
        # the last sweep's planes are taken as they are: on raw data they may come no nearer; the state's `sweeps` tells
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(X, y, sample_weight=weight)
    w = np.array(np.atleast_2d(machine.coef_), dtype=np.float64, order="C")
    bias = np.array(np.broadcast_to(machine.intercept_, len(w)), dtype=np.float64)
    if not (np.isfinite(w).all() and np.isfinite(bias).all()):
        raise ValueError("LIBLINEAR found no finite planes: the rows, the weights or C are too large")
    return Planes(w, bias, np.array([machine.n_iter_], dtype=np.int64))


def parallel(w: Vector, thresholds: Vector) -> Linear:
    """The planes w.x - threshold, all with one w (dim,): k views of it, not copies."""
    # not np.broadcast_to, whose read-only rows would have the kernels compiled once more
    shared = np.lib.stride_tricks.as_strided(w, (len(thresholds), len(w)), (0, w.strides[0]))
    return Linear(shared, -thresholds)


def ranks_above(values: Matrix) -> Counts:
    """The ranks (n,) that parallel planes' values (n, ranks - 1) say: 1 + how many are above 0."""
    ranks: Counts = 1 + np.count_nonzero(values > 0.0, axis=1).astype(np.int64)
    return ranks
