"""Scale features with running statistics, one event at a time, including the event itself.

    none      unchanged
    unit      each event divided by its Euclidean norm
    standard  dense: (x - mean) / sd; sparse: x / sd, zeros counted, without centring so that zeros stay zeros
    maxabs    x / the largest |x| seen in the column

`learn` moves the statistics and scales. `transform` scales an event exactly as `learn` would, without moving them. So
`/predict` gives the same score to the bit as `/update`. A column without spread so far becomes 0. In dense rows NaN (a
table's missing number) becomes 0, which is the mean with `standard`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.numerics import Counts, Issues, Matrix, Rows, Sparse, Vector, bare_kernel, counters, grown, not_finite
from learners.settings import Parameters, param

__all__ = [
    "Scaling",
    "ScalingState",
    "dense_maxabs",
    "dense_none",
    "dense_standard",
    "dense_unit",
    "extend",
    "init",
    "learn",
    "problems",
    "transform",
]


@dataclass(frozen=True)
class Scaling(Parameters):
    """Settings of the running scaling."""

    kind: Literal["none", "unit", "standard", "maxabs"] = param("none", "which running scale")
    clip: float | None = param(None, "limit the scaled values to [-clip, clip]; null: no limit", above=0)


class ScalingState(NamedTuple):
    """Arrays of the running statistics, (dim,) each if the kind needs them, else (0,)."""

    rows: Counts  # (1,) events seen
    seen: Counts  # standard: values taken in; sparse: events up to the column's last appearance
    mean: Vector
    m2: Vector  # sum of squared deviations (Welford)
    largest: Vector  # maxabs


def init(settings: Scaling, dim: int) -> ScalingState:
    """Return the state before the first event."""
    standard = dim if settings.kind == "standard" else 0
    maxabs = dim if settings.kind == "maxabs" else 0
    return ScalingState(
        rows=np.zeros(1, dtype=np.int64),
        seen=np.zeros(standard, dtype=np.int64),
        mean=np.zeros(standard),
        m2=np.zeros(standard),
        largest=np.zeros(maxabs),
    )


def extend(settings: Scaling, state: ScalingState, dim: int) -> ScalingState:
    """Extend the state to `dim` columns."""
    if settings.kind == "standard":
        seen = np.zeros(dim, dtype=np.int64)
        seen[: len(state.seen)] = state.seen
        return state._replace(seen=seen, mean=grown(state.mean, dim), m2=grown(state.m2, dim))
    return state._replace(largest=grown(state.largest, dim)) if settings.kind == "maxabs" else state


def problems(state: ScalingState) -> Issues:
    """Find values that no stream can produce in a state of valid shapes."""
    yield from counters({"rows": state.rows, "seen": state.seen})
    for name in ("mean", "m2", "largest"):
        yield from not_finite(name, getattr(state, name))


@bare_kernel
def _clipped(z, clip):  # type: ignore[no-untyped-def]
    return min(max(z, -clip), clip)


@bare_kernel
def _unit_norm(values):  # type: ignore[no-untyped-def]
    """Return (largest |x|, norm of x / largest): squares neither overflow nor vanish."""
    largest = 0.0
    for k in range(values.shape[0]):
        if abs(values[k]) > largest:
            largest = abs(values[k])
    total = 0.0
    if largest > 0.0:
        for k in range(values.shape[0]):
            if not np.isnan(values[k]):
                r = values[k] / largest
                total += r * r
    return largest, math.sqrt(total)


@bare_kernel
def dense_none(X, clip, out):  # type: ignore[no-untyped-def]
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            x = X[i, j]
            out[i, j] = 0.0 if np.isnan(x) else _clipped(x, clip)


@bare_kernel
def dense_unit(X, clip, out):  # type: ignore[no-untyped-def]
    for i in range(X.shape[0]):
        largest, norm = _unit_norm(X[i])
        for j in range(X.shape[1]):
            x = X[i, j]
            out[i, j] = 0.0 if np.isnan(x) or largest == 0.0 else _clipped((x / largest) / norm, clip)


@bare_kernel
def dense_standard(X, scaled, seen, mean, m2, clip, moving, out):  # type: ignore[no-untyped-def]
    # no branches, so that several columns are computed at once; unneeded results are discarded
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            x = X[i, j]
            present = not np.isnan(x)
            n = seen[j] + 1
            before = x - mean[j]
            middle = mean[j] + before / n
            after = x - middle
            spread = m2[j] + before * after
            sd = math.sqrt(spread / n)
            z = _clipped(after / sd, clip) if sd > 0.0 else 0.0
            z = z if scaled[j] else x
            out[i, j] = z if present else 0.0
            if moving:
                moves = present and scaled[j]
                seen[j] = n if moves else seen[j]
                mean[j] = middle if moves else mean[j]
                m2[j] = spread if moves else m2[j]


@bare_kernel
def dense_maxabs(X, scaled, largest, clip, moving, out):  # type: ignore[no-untyped-def]
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            x = X[i, j]
            if np.isnan(x):
                out[i, j] = 0.0
                continue
            if not scaled[j]:
                out[i, j] = x
                continue
            most = max(largest[j], abs(x))
            out[i, j] = _clipped(x / most, clip) if most > 0.0 else 0.0
            if moving:
                largest[j] = most


@bare_kernel
def _sparse_unit(data, indptr, clip, out):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        start, stop = indptr[i], indptr[i + 1]
        largest, norm = _unit_norm(data[start:stop])
        for k in range(start, stop):
            out[k] = _clipped((data[k] / largest) / norm, clip) if largest > 0.0 else 0.0


@bare_kernel
def _sparse_standard(data, indices, indptr, rows, seen, mean, m2, clip, moving, out):  # type: ignore[no-untyped-def]
    events = rows[0]
    for i in range(indptr.shape[0] - 1):
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            if j < 0:
                out[k] = 0.0  # unknown: no weight
                continue
            x = data[k]
            # first the zeros since the column's last appearance, all at once, then x (Chan, Golub, LeVeque)
            zeros = events - seen[j]
            old = float(seen[j])
            n = float(events)
            middle = mean[j]
            spread = m2[j]
            if zeros > 0 and events > 0:
                spread += middle * middle * (old * (zeros / n))
                middle *= old / n
            before = x - middle
            middle += before / (n + 1.0)
            spread += before * (x - middle)
            sd = math.sqrt(spread / (n + 1.0))
            out[k] = _clipped(x / sd, clip) if sd > 0.0 else 0.0
            if moving:
                seen[j] = events + 1
                mean[j] = middle
                m2[j] = spread
        if moving:
            events += 1
    if moving:
        rows[0] = events


@bare_kernel
def _sparse_maxabs(data, indices, indptr, largest, clip, moving, out):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            if j < 0:
                out[k] = 0.0
                continue
            most = max(largest[j], abs(data[k]))
            out[k] = _clipped(data[k] / most, clip) if most > 0.0 else 0.0
            if moving:
                largest[j] = most


def learn(settings: Scaling, state: ScalingState, rows: Rows, scaled: NDArray[np.bool_]) -> Rows:
    """Add each row to the statistics and scale it, in order; `rows` stays unchanged.

    `scaled` (dim,) marks the columns to scale in dense rows. O(values).
    """
    return _apply(settings, state, rows, scaled, True)


def transform(settings: Scaling, state: ScalingState, rows: Rows, scaled: NDArray[np.bool_]) -> Rows:
    """Scale each row as `learn` would if it came next, without moving the statistics."""
    return _apply(settings, state, rows, scaled, False)


def _apply(settings: Scaling, state: ScalingState, rows: Rows, scaled: NDArray[np.bool_], moving: bool) -> Rows:
    clip = math.inf if settings.clip is None else settings.clip
    if isinstance(rows, Sparse):
        return _sparse(settings, state, rows, clip, moving)
    return _dense(settings, state, rows, scaled, clip, moving)


def _sparse(settings: Scaling, state: ScalingState, rows: Sparse, clip: float, moving: bool) -> Sparse:
    if settings.kind == "none":
        return rows if settings.clip is None else rows._replace(data=np.clip(rows.data, -clip, clip))
    out = np.empty_like(rows.data)
    if settings.kind == "unit":
        _sparse_unit(rows.data, rows.indptr, clip, out)
    elif settings.kind == "standard":
        _sparse_standard(
            rows.data, rows.indices, rows.indptr, state.rows, state.seen, state.mean, state.m2, clip, moving, out
        )
    else:
        _sparse_maxabs(rows.data, rows.indices, rows.indptr, state.largest, clip, moving, out)
    return rows._replace(data=out)


def _dense(
    settings: Scaling, state: ScalingState, X: Matrix, scaled: NDArray[np.bool_], clip: float, moving: bool
) -> Matrix:
    out = np.empty_like(X)
    if settings.kind == "none":
        dense_none(X, clip, out)
    elif settings.kind == "unit":
        dense_unit(X, clip, out)
    elif settings.kind == "standard":
        dense_standard(X, scaled, state.seen, state.mean, state.m2, clip, moving, out)
    else:
        dense_maxabs(X, scaled, state.largest, clip, moving, out)
    return out
