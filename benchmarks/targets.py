"""Kernels compared with their targets, and with the same algorithm in C.

Both learn the same dense rows from the same state, in turns, so other work on the machine slows both equally. The
distance of the classes lets about a quarter of the pairs of cbr move the model. The time is processor time of the
thread. A call is long enough for the clock, and its rows stay in the cache, like those of a request.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks import native
from learners import algorithms
from learners.numerics.arrays import Matrix, Vector
from learners.numerics.packed_symmetric import at_lines

__all__ = ["TARGETS", "Measured", "against"]

TARGETS: dict[tuple[str, int | None], dict[int, int]] = {
    ("cbr", 50): {10: 1500, 54: 5000, 300: 95_000},
    ("cbr", 10): {10: 500, 54: 2500, 300: 40_000},
    ("cbr-diag", 50): {10: 600, 54: 1000, 300: 3200},
    ("loam-ilsc", None): {10: 100, 54: 800, 300: 25_000},
    ("loam-ada", None): {10: 40, 54: 90, 300: 500},
    ("fofo", None): {10: 30, 54: 50, 300: 150},
}
"""ns per event by algorithm and capacity, then by columns."""

GAPS = {10: 1.85, 54: 1.4, 300: 0.4}  # between the classes' means, in standard deviations
WARM = 2000  # events before the clock starts
MOST = 2**19  # numbers in the rows of one call: 4 MiB
AGREE = 1e-9  # relative, or of the largest number of an array


class Measured(NamedTuple):
    """One kernel at one width. C's figures are NaN where there is no compiler."""

    algorithm: str
    capacity: int | None  # stored examples per class
    dim: int
    target: int | None  # ns per event
    ns: float  # per event: median of the calls
    c: float  # the same of C
    ratio: float  # median over the turns of ours to C's
    steps: float  # made per event: for cbr and cbr-diag pairs that move the model


def stream(n: int, dim: int, seed: int) -> tuple[Matrix, Vector]:
    """Rows (n, dim) and labels, a tenth of them +1."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, dim))
    y = np.where(random.random(n) < 0.1, 1.0, -1.0)
    X[:, 0] += 0.5 * GAPS.get(dim, 1.5) * y
    return X, y


def copied(state: Any) -> Any:
    """Copy a state, with its arrays at multiples of 64 bytes."""
    return type(state)(*(at_lines(array) if array.dtype == np.float64 else array.copy() for array in state))


def against(
    name: str, capacity: int | None, dim: int, library: ctypes.CDLL | None, turns: int, seconds: float
) -> Measured:
    """Take so many turns of about so many seconds each. Raises ValueError where C says something else than we do."""
    algorithm: Any = algorithms()[name]
    params = algorithm.Params(**({} if capacity is None else {"capacity": capacity}))
    X, y = stream(WARM, dim, 0)
    warm = algorithm.learn(params, algorithm.init(params, dim, 0), X, y, np.ones(WARM), np.empty(WARM))

    def ours(n: int) -> tuple[float, Any, Vector, int]:
        state, scores = copied(warm), np.empty(n)
        seconds, state = timed(lambda: algorithm.learn(params, state, X[:n], y[:n], weight[:n], scores))
        return seconds, state, scores, 0

    def theirs(n: int) -> tuple[float, Any, Vector, int]:
        state, scores = copied(warm), np.empty(n)
        seconds, steps = timed(native.TWINS[name](library, params, state, X[:n], y[:n], weight[:n], scores))
        return seconds, state, scores, steps

    most = MOST // dim
    X, y = stream(most, dim, 1)
    weight = np.ones(most)
    n = min(16, most)
    while (spent := ours(n)[0]) < seconds / 2 and n < most:
        n = min(most, max(2 * n, int(0.75 * n * seconds / max(spent, 1e-6))))
    turned = [(ours(n), theirs(n) if library is not None else None) for _ in range(turns)]
    mine = [1e9 * we[0] / n for we, _ in turned]
    other = [1e9 * they[0] / n for _, they in turned if they is not None]
    target = TARGETS.get((name, capacity), {}).get(dim)
    if library is None or turned[0][1] is None:
        return Measured(name, capacity, dim, target, median(mine), np.nan, np.nan, np.nan)
    compare(name, turned[0][0], turned[0][1])
    ratio = median(a / b for a, b in zip(mine, other, strict=True))
    return Measured(name, capacity, dim, target, median(mine), median(other), ratio, turned[0][1][3] / n)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor seconds of this thread, and the result of the call."""
    began = time.thread_time()
    result = call()
    return time.thread_time() - began, result


def compare(name: str, we: tuple[float, Any, Vector, int], they: tuple[float, Any, Vector, int]) -> None:
    """Raise ValueError if the scores or the states differ by more than rounding."""
    for array, mine, other in zip(("scores", *we[1]._fields), (we[2], *we[1]), (they[2], *they[1]), strict=True):
        if not np.allclose(mine, other, rtol=AGREE, atol=AGREE * np.abs(mine).max(initial=0.0)):
            raise ValueError(f"{name}: C has other {array}")
