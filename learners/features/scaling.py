"""Running scaling of features, one event at a time, the current event included.

    none      as they come
    unit      each event divided by its Euclidean norm
    standard  dense: (x - mean) / sd; sparse: x / sd, zeros counted, without centring so that zeros stay zeros
    maxabs    x / the largest |x| met in the column

`learn` moves the statistics and scales; `look` scales an event just as `learn` would, without moving them: so
`/predict` gives, to the bit, the score that `/update` would give for the same event. A column without spread so far
is scaled to 0. In dense rows NaN (a table's missing number) becomes 0, which under `standard` is the mean.
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
    "look",
    "problems",
]


@dataclass(frozen=True)
class Scaling(Parameters):
    """The settings."""

    kind: Literal["none", "unit", "standard", "maxabs"] = param("none", "which running scale")
    clip: float | None = param(None, "limit the scaled values to [-clip, clip]; null: no limit", above=0)


class ScalingState(NamedTuple):
    """Arrays of the running statistics, (dim,) each where the kind needs them, else (0,)."""

    rows: Counts  # (1,) events met
    seen: Counts  # standard: values taken in; sparse: events up to the column's last appearance
    mean: Vector
    m2: Vector  # sum of squared deviations (Welford)
    largest: Vector  # maxabs


def init(settings: Scaling, dim: int) -> ScalingState:
    """Nothing met yet."""
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
    """The state for `dim` columns instead of the fewer it has."""
    if settings.kind == "standard":
        seen = np.zeros(dim, dtype=np.int64)
        seen[: len(state.seen)] = state.seen
        return state._replace(seen=seen, mean=grown(state.mean, dim), m2=grown(state.m2, dim))
    return state._replace(largest=grown(state.largest, dim)) if settings.kind == "maxabs" else state


def problems(state: ScalingState) -> Issues:
    """What no rows can have led to in a state of the right shapes."""
    yield from counters({"rows": state.rows, "seen": state.seen})
    for name in ("mean", "m2", "largest"):
        yield from not_finite(name, getattr(state, name))


@bare_kernel
def _clipped(z, clip):  # type: ignore[no-untyped-def]
    return min(max(z, -clip), clip)


@bare_kernel
def _unit_norm(values):  # type: ignore[no-untyped-def]
    """(largest |x|, norm of x / largest): squares neither overflow nor vanish."""
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
    # nothing depends on a branch, so that several columns go at once; what is not wanted is worked out and left
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            x = X[i, j]
            known = not np.isnan(x)
            n = seen[j] + 1
            before = x - mean[j]
            middle = mean[j] + before / n
            after = x - middle
            spread = m2[j] + before * after
            sd = math.sqrt(spread / n)
            z = _clipped(after / sd, clip) if sd > 0.0 else 0.0
            z = z if scaled[j] else x
            out[i, j] = z if known else 0.0
            if moving:
                moves = known and scaled[j]
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
    met = rows[0]
    for i in range(indptr.shape[0] - 1):
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            if j < 0:
                out[k] = 0.0  # never met: no weight
                continue
            x = data[k]
            # first the zeros since the column's last appearance, all at once, then x (Chan, Golub, LeVeque)
            zeros = met - seen[j]
            old = float(seen[j])
            n = float(met)
            middle = mean[j]
            spread = m2[j]
            if zeros > 0 and met > 0:
                spread += middle * middle * (old * (zeros / n))
                middle *= old / n
            before = x - middle
            middle += before / (n + 1.0)
            spread += before * (x - middle)
            sd = math.sqrt(spread / (n + 1.0))
            out[k] = _clipped(x / sd, clip) if sd > 0.0 else 0.0
            if moving:
                seen[j] = met + 1
                mean[j] = middle
                m2[j] = spread
        if moving:
            met += 1
    if moving:
        rows[0] = met


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
    """Scale each row in order, its own values taken into the statistics first; `rows` stays as it is.

    `scaled` (dim,) marks the columns to scale in dense rows. O(values given).
    """
    return _apply(settings, state, rows, scaled, True)


def look(settings: Scaling, state: ScalingState, rows: Rows, scaled: NDArray[np.bool_]) -> Rows:
    """What `learn` would give each row if it came next, without moving the statistics."""
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
