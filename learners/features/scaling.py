"""Scale features with running statistics, one event at a time, including the event itself.

    none      unchanged
    unit      each event divided by its Euclidean norm
    standard  dense: (x - mean) / sd; sparse: x / sd, zeros counted, without centring so that zeros stay zeros
    maxabs    x / the largest |x| seen in the column

`learn` moves the statistics and scales. `transform` scales an event exactly as `learn` would, without moving them. So
`/predict` gives the same score to the bit as `/update`. A column without spread so far becomes 0. In dense rows NaN (a
table's missing number) becomes 0, which is the mean with `standard`.

One absurd value, such as 9999999999 among amounts, must not change the scale of all others for good. So a value is
limited, and scaled as the limit, if its column has had v >= 16 values that are not 0, and it is ten times farther away
than any of them can have been:

    standard  |x - mean| > 10 sqrt(m2): limited to mean +- 4 sqrt(m2 / v)
    maxabs    |x| > 10 largest:         limited to +- (1 + 8 / v) largest

Each such value lets the scale grow by a factor of about 1 + 8 / v. A share p of them lets it grow as v^(8 p): 1 % of
absurd values double it in 100,000, and a column that changes its unit has its new scale after twice as many values.
Learners of earlier versions count such values whole (`outliers`: `counted`).
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


_FEWEST = 16  # values of a column before one is limited
_FAR = 10.0  # times the distance of all values so far, at least
_SPREAD, _GROWTH = 4.0, 8.0  # of a limited value, see above
_NO_COUNTS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Scaling(Parameters):
    """Settings of the running scaling."""

    kind: Literal["none", "unit", "standard", "maxabs"] = param("none", "which running scale")
    clip: float | None = param(None, "limit the scaled values to [-clip, clip]; null: no limit", above=0)
    outliers: Literal["limited", "counted"] = param(
        "limited",
        "a value ten times beyond all earlier ones of its column: limited, so that it hardly moves the scale, or "
        "counted whole",
        applies_to={"kind": ["standard", "maxabs"]},
        earlier="counted",
    )

    @property
    def limits(self) -> bool:
        """Whether the state counts the values of each column, to limit outliers."""
        return self.outliers == "limited" and self.kind in ("standard", "maxabs")


class ScalingState(NamedTuple):
    """Arrays of the running statistics, (dim,) each if the kind needs them, else (0,)."""

    rows: Counts  # (1,) events seen
    seen: Counts  # standard: values taken in; sparse: events up to the column's last appearance
    mean: Vector
    m2: Vector  # sum of squared deviations (Welford)
    largest: Vector  # maxabs
    values: Counts = _NO_COUNTS  # if outliers are limited: values that were not 0


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
        values=np.zeros(dim if settings.limits else 0, dtype=np.int64),
    )


def extend(settings: Scaling, state: ScalingState, dim: int) -> ScalingState:
    """Extend the state to `dim` columns."""
    if settings.limits:
        state = state._replace(values=_grown_counts(state.values, dim))
    if settings.kind == "standard":
        seen, mean, m2 = _grown_counts(state.seen, dim), grown(state.mean, dim), grown(state.m2, dim)
        return state._replace(seen=seen, mean=mean, m2=m2)
    return state._replace(largest=grown(state.largest, dim)) if settings.kind == "maxabs" else state


def _grown_counts(counts: Counts, dim: int) -> Counts:
    more = np.zeros(dim, dtype=np.int64)
    more[: len(counts)] = counts
    return more


def problems(state: ScalingState) -> Issues:
    """Find values that no stream can produce in a state of valid shapes."""
    yield from counters({"rows": state.rows, "seen": state.seen, "values": state.values})
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
def _limited_distance(x, mean, m2, values):  # type: ignore[no-untyped-def]
    """Return x, limited if it is an outlier of a column with this mean and these squared deviations."""
    distance = x - mean
    if values < _FEWEST or not m2 > 0.0 or not distance * distance > _FAR * _FAR * m2:
        return x
    return mean + math.copysign(_SPREAD * math.sqrt(m2 / values), distance)


@bare_kernel
def _limited_size(x, largest, values):  # type: ignore[no-untyped-def]
    """Return x, limited if it is an outlier of a column with this largest magnitude."""
    if values < _FEWEST or not largest > 0.0 or not abs(x) > _FAR * largest:
        return x
    return math.copysign(largest * (1.0 + _GROWTH / values), x)


@bare_kernel
def _limit_row(row, scaled, mean, m2, values):  # type: ignore[no-untyped-def]
    """Limit the outliers of a dense row in place; most rows have none."""
    far = False
    for j in range(row.shape[0]):
        distance = row[j] - mean[j]
        far |= (distance * distance > _FAR * _FAR * m2[j]) & scaled[j]
    if far:
        for j in range(row.shape[0]):
            if scaled[j]:
                row[j] = _limited_distance(row[j], mean[j], m2[j], values[j])


@bare_kernel
def dense_standard(X, scaled, seen, mean, m2, values, clip, moving, out):  # type: ignore[no-untyped-def]
    limits = values.shape[0] > 0
    # no branches, so that several columns are computed at once; unneeded results are discarded
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            out[i, j] = X[i, j]
        if limits:
            _limit_row(out[i], scaled, mean, m2, values)
            if moving:
                for j in range(X.shape[1]):
                    values[j] += scaled[j] & (out[i, j] != 0.0) & (out[i, j] == out[i, j])
        for j in range(X.shape[1]):
            x = out[i, j]
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
def dense_maxabs(X, scaled, largest, values, clip, moving, out):  # type: ignore[no-untyped-def]
    limits = values.shape[0] > 0
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            x = X[i, j]
            if np.isnan(x):
                out[i, j] = 0.0
                continue
            if not scaled[j]:
                out[i, j] = x
                continue
            if limits:
                x = _limited_size(x, largest[j], values[j])
                if moving and x != 0.0:
                    values[j] += 1
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
def _sparse_standard(data, indices, indptr, rows, seen, mean, m2, values, clip, moving, out):  # type: ignore[no-untyped-def]
    events, limits = rows[0], values.shape[0] > 0
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
            if limits:
                x = _limited_distance(x, middle, spread, values[j])
                if moving and x != 0.0:
                    values[j] += 1
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
def _sparse_maxabs(data, indices, indptr, largest, values, clip, moving, out):  # type: ignore[no-untyped-def]
    limits = values.shape[0] > 0
    for i in range(indptr.shape[0] - 1):
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            if j < 0:
                out[k] = 0.0
                continue
            x = data[k]
            if limits:
                x = _limited_size(x, largest[j], values[j])
                if moving and x != 0.0:
                    values[j] += 1
            most = max(largest[j], abs(x))
            out[k] = _clipped(x / most, clip) if most > 0.0 else 0.0
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
        moments = state.rows, state.seen, state.mean, state.m2, state.values
        _sparse_standard(rows.data, rows.indices, rows.indptr, *moments, clip, moving, out)
    else:
        _sparse_maxabs(rows.data, rows.indices, rows.indptr, state.largest, state.values, clip, moving, out)
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
        dense_standard(X, scaled, state.seen, state.mean, state.m2, state.values, clip, moving, out)
    else:
        dense_maxabs(X, scaled, state.largest, state.values, clip, moving, out)
    return out
