"""Logistic regression over bins and over crosses of pairs of columns: a model of curves and of interactions.

A cell is a bin of a column, or a pair of bins of two columns; an event has one value in each cell that it falls into.
With sigma the logistic function, x the numbers of an event and c its cells:

    main   s1 = b + w.x + sum of v_c over the bins          p1 = sigma(s1)
    both   s2 = s1 + sum of v_c over the pairs              p2 = sigma(s2)

Numbers, bins and b descend the log loss of p1, pairs that of p2, each with its own AdaGrad step. So pairs explain what
is left, and do not disturb the rest where they only add noise. As models of `auto` main is called bins, both pairs.

The first `BINNED` columns have bins: the sixteenths of their last `SAMPLE` values, once they have had twice as many.
Later columns are rare, and their value only says that they are there. An event of at most `CROSSED` numbers has all
pairs of its columns. A longer one has those of the `CROSSED` columns whose bins and numbers moved the scores most so
far, which are chosen anew at each power of two. A pair gets its cell when it comes a second time, as far as one byte
for each of 2^16 hashes remembers. There are at most `MOST_CELLS` cells; what comes later is not learnt.

O(values + CROSSED^2 / 2) time per event. 24 bytes per cell and 1.2 kB per column with bins.

References
----------
Duchi, Hazan, Singer. Adaptive Subgradient Methods for Online Learning and Stochastic Optimization. JMLR 12, 2011.
McMahan et al. Ad Click Prediction: a View from the Trenches. KDD 2013: bins, crosses, and cells from a second sight on.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.numerics import (
    Counts,
    Issues,
    Matrix,
    Rows,
    Sparse,
    Vector,
    Words,
    grown,
    kernel,
    order_statistics,
    outside,
    sigmoid,
)

__all__ = [
    "CrossState",
    "Crosses",
    "attribute",
    "crosses",
    "grow",
    "init",
    "layout",
    "learn",
    "problems",
    "score_cells",
]

BINNED, SAMPLE, CROSSED, MOST_CELLS = 256, 128, 22, 60_000
_EDGES = 15
_BITS = 29  # of a cell of one column: 16 bins of 2^24 columns, from 1
_NEVER = 1e308  # an edge that no value exceeds
_NUMBER_STEP, _BIN_STEP, _PAIR_STEP = 0.1, 0.05, 0.1  # of AdaGrad
_PRIOR = 1e-2  # its sums of squares at the start
_SEEN_ONCE = 2**16
_FIRST_CHOICE = 256  # events before columns are chosen


class CrossState(NamedTuple):
    """Weights and sums of squares of numbers and cells, and what the bins are made from; m = min(dim, BINNED)."""

    w: Vector  # (dim,)
    h: Vector  # (dim,) sums of squared gradients
    bias: Vector  # (2,) b and its sum of squares
    edges: Matrix  # (m, 15) ascending; `_NEVER` for edges that repeat, or are not known yet
    sample: Matrix  # (m, SAMPLE) the last values
    values: Counts  # (m,) had so far; the edges are set when it reaches 2 SAMPLE
    influence: Vector  # (m,) sum of the absolute parts of s1
    chosen: NDArray[np.uint8]  # (m,) whether long events have pairs of this column
    events: Counts  # (2,) events, cells
    keys: Words  # (size,) open addressing by key; 0: free
    cells: Matrix  # (size, 2) v and its sum of squares
    once: NDArray[np.uint8]  # (2^16,) part of the key of the last pair of each hash without a cell; empty: no pairs


class Crosses(NamedTuple):
    """What scoring reads of a `CrossState`: views."""

    w: Vector
    bias: Vector
    edges: Matrix
    chosen: NDArray[np.uint8]
    keys: Words
    cells: Matrix
    paired: NDArray[np.bool_]  # (1,) whether there are pairs


def init(dim: int, paired: bool = True) -> CrossState:
    """Return the state before any event; without pairs both scores are those of the bins."""
    m = min(dim, BINNED)
    return CrossState(
        w=np.zeros(dim),
        h=np.zeros(dim),
        bias=np.zeros(2),
        edges=np.full((m, _EDGES), _NEVER),
        sample=np.zeros((m, SAMPLE)),
        values=np.zeros(m, dtype=np.int64),
        influence=np.zeros(m),
        chosen=np.zeros(m, dtype=np.uint8),
        events=np.zeros(2, dtype=np.int64),
        keys=np.zeros(0, dtype=np.uint64),
        cells=np.zeros((0, 2)),
        once=np.zeros(_SEEN_ONCE * paired, dtype=np.uint8),
    )


def grow(state: CrossState, dim: int) -> CrossState:
    """Return the state with `dim` columns."""
    m, new = len(state.values), init(min(dim, BINNED), paired=False)
    for name in ("edges", "sample", "values", "influence", "chosen"):
        getattr(new, name)[:m] = getattr(state, name)
    longer = {name: getattr(new, name) for name in ("edges", "sample", "values", "influence", "chosen")}
    return state._replace(w=grown(state.w, dim), h=grown(state.h, dim), **longer)


def crosses(state: CrossState) -> Crosses:
    """Return what scoring reads."""
    paired = np.array([len(state.once) > 0])
    return Crosses(state.w, state.bias, state.edges, state.chosen, state.keys, state.cells, paired)


def learn(state: CrossState, rows: Rows, y: Vector, weight: Vector, main: Vector, sums: Vector) -> CrossState:
    """Score each row, then learn from it, in order; fill `main` and `sums` (n,) and return the state.

    The arrays change in place, but a longer table of cells replaces a full one.
    """
    data, indices, indptr = _sparse(rows)
    start = 0
    while start < len(y):
        start = _learn(state, data, indices, indptr, y, weight, start, main, sums)
        if start < len(y):
            state = _doubled(state)
    return state


def attribute(model: Crosses, rows: Rows, of_main: Vector, of_both: Vector) -> Vector:
    """Attribute of_main * main + of_both * both of each row to its numbers, without the bias: (numbers,).

    A pair counts half for each of its columns, which is the Shapley value. O(values + pairs) per row.
    """
    data, indices, indptr = _sparse(rows)
    parts = np.zeros(len(data))
    _attribute(model, data, indices, indptr, of_main, of_both, parts)
    return parts


def problems(state: CrossState) -> Issues:
    """Find values in a restored state that no events lead to."""
    size = len(state.keys)
    if size & (size - 1) or len(state.cells) != size or state.cells.shape[1:] != (2,):
        yield "keys", "and the cells have no common length that is a power of two"
    elif int(np.count_nonzero(state.keys)) != state.events[1] or 2 * int(state.events[1]) > size:
        yield "keys", "has another number of cells than was counted"
    elif size and _count_unreachable(state.keys):
        yield "keys", "has a cell that no search finds"
    yield from outside("chosen", state.chosen, 0, 1)
    for name in ("h", "influence"):
        yield from outside(name, getattr(state, name), 0, math.inf)
    yield from outside("cells", state.cells[:, 1:], 0, math.inf)
    if (np.diff(state.edges, axis=1) < 0).any():
        yield "edges", "has edges that are not ascending"


def _sparse(rows: Rows) -> Sparse:
    """Return the rows as sparse ones, with their zeros."""
    if isinstance(rows, Sparse):
        return rows
    return Sparse(rows.ravel(), *layout(*rows.shape))


def layout(n: int, dim: int) -> tuple[Counts, Counts]:
    """Return `indices` and `indptr` of n dense rows."""
    return _layout_of_one(dim) if n == 1 else _layout(n, dim)


def _layout(n: int, dim: int) -> tuple[Counts, Counts]:
    return np.tile(np.arange(dim), n), np.arange(0, n * dim + 1, dim)


@lru_cache(maxsize=64)
def _layout_of_one(dim: int) -> tuple[Counts, Counts]:
    """Return the layout of a single event; making it would take as long as scoring the event."""
    return _layout(1, dim)


def _doubled(state: CrossState) -> CrossState:
    size = max(1024, 2 * len(state.keys))
    keys, cells = np.zeros(size, dtype=np.uint64), np.zeros((size, 2))
    _move(state.keys, state.cells, keys, cells)
    return state._replace(keys=keys, cells=cells)


@kernel
def _find(keys, key):  # type: ignore[no-untyped-def]
    """Return the place of a key, or the free place for it."""
    mask = np.uint64(keys.shape[0] - 1)
    at = ((key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask
    while keys[at] != 0 and keys[at] != key:
        at = (at + np.uint64(1)) & mask
    return np.int64(at)


@kernel
def _value(keys, cells, key):  # type: ignore[no-untyped-def]
    """Return the weight of a cell; 0 for one that is not there."""
    if keys.shape[0] == 0:
        return 0.0
    at = _find(keys, key)
    return cells[at, 0] if keys[at] != 0 else 0.0


@kernel
def _move(keys, cells, new_keys, new_cells):  # type: ignore[no-untyped-def]
    for k in range(keys.shape[0]):
        if keys[k] != 0:
            at = _find(new_keys, keys[k])
            new_keys[at] = keys[k]
            for i in range(cells.shape[1]):  # assigning the row would compile numba's text of an error
                new_cells[at, i] = cells[k, i]


@kernel
def _count_unreachable(keys):  # type: ignore[no-untyped-def]
    """Count the keys that a search does not find; one place at least must be free."""
    count = 0
    for k in range(keys.shape[0]):
        count += keys[k] != 0 and _find(keys, keys[k]) != k
    return count


@kernel
def _keys_of(edges, chosen, paired, data, indices, start, stop, owners, keys):  # type: ignore[no-untyped-def]
    """Collect the keys of a row's cells: first the bins, then the pairs if `paired`; return (bins, cells).

    `owners` (2, cells) gets the entries of each cell; both are the same for a bin.
    """
    binned = edges.shape[0]
    long = stop - start > CROSSED
    entries = np.empty(CROSSED, dtype=np.int64)  # of the columns that make pairs
    sides = np.empty(CROSSED, dtype=np.uint64)
    bins = count = 0
    for k in range(start, stop):
        j = indices[k]
        if j < 0:
            continue
        cell = np.uint64(j * (_EDGES + 1) + (_bin(edges, j, data[k]) if j < binned else 0) + 1)
        if j < binned and edges[j, 0] < _NEVER:
            keys[bins] = cell
            owners[0, bins] = owners[1, bins] = k
            bins += 1
        if paired and (not long or (j < binned and chosen[j] != 0)):
            entries[count], sides[count] = k, cell
            count += 1
    total = bins
    for second in range(count):
        for first in range(second):
            keys[total] = (sides[second] << np.uint64(_BITS)) | sides[first]
            owners[0, total], owners[1, total] = entries[first], entries[second]
            total += 1
    return bins, total


@kernel
def _bin(edges, column, value):  # type: ignore[no-untyped-def]
    count = 0
    for k in range(_EDGES):
        count += value > edges[column, k]
    return count


@kernel
def _room(edges):  # type: ignore[no-untyped-def]
    """Return the most cells that an event has."""
    return edges.shape[0] + CROSSED * CROSSED // 2


@kernel
def score_cells(model, data, indices, indptr, main, sums):  # type: ignore[no-untyped-def]
    """Score each row: fill `main` and `sums` (n,)."""
    w, bias, edges, chosen, table, cells, paired = model
    keys = np.empty(_room(edges), dtype=np.uint64)
    owners = np.empty((2, keys.shape[0]), dtype=np.int64)
    for t in range(indptr.shape[0] - 1):
        bins, total = _keys_of(edges, chosen, paired[0], data, indices, indptr[t], indptr[t + 1], owners, keys)
        s = 0.0
        for k in range(indptr[t], indptr[t + 1]):
            if indices[k] >= 0:
                s += data[k] * w[indices[k]]
        s += bias[0]
        for c in range(total):
            if c == bins:
                main[t] = s
            s += _value(table, cells, keys[c])
        if bins == total:
            main[t] = s
        sums[t] = s


@kernel
def _attribute(model, data, indices, indptr, of_main, of_both, parts):  # type: ignore[no-untyped-def]
    w, _, edges, chosen, table, cells, paired = model
    keys = np.empty(_room(edges), dtype=np.uint64)
    owners = np.empty((2, keys.shape[0]), dtype=np.int64)
    for t in range(indptr.shape[0] - 1):
        bins, total = _keys_of(edges, chosen, paired[0], data, indices, indptr[t], indptr[t + 1], owners, keys)
        for k in range(indptr[t], indptr[t + 1]):
            if indices[k] >= 0:
                parts[k] += (of_main[t] + of_both[t]) * data[k] * w[indices[k]]
        for c in range(total):
            factor = of_main[t] + of_both[t] if c < bins else of_both[t]
            for side in range(2):
                parts[owners[side, c]] += 0.5 * factor * _value(table, cells, keys[c])


@kernel
def _learn(state, data, indices, indptr, y, weight, first, main, sums):  # type: ignore[no-untyped-def]
    """Score and learn rows from `first` on; return the row before which the table must grow, or the number of rows."""
    w, h, bias, edges, sample, values, influence, chosen, events, table, cells, once = state
    keys = np.empty(_room(edges), dtype=np.uint64)
    owners = np.empty((2, keys.shape[0]), dtype=np.int64)
    places = np.empty(keys.shape[0], dtype=np.int64)
    binned = edges.shape[0]
    for t in range(first, y.shape[0]):
        start, stop = indptr[t], indptr[t + 1]
        bins, total = _keys_of(edges, chosen, once.shape[0] > 0, data, indices, start, stop, owners, keys)
        if events[1] < MOST_CELLS and 2 * (events[1] + total) > table.shape[0]:
            return t
        s = 0.0
        for k in range(start, stop):
            s += data[k] * w[indices[k]]
        s += bias[0]
        for c in range(total):
            if c == bins:
                main[t] = s
            places[c] = _find(table, keys[c])
            if table[places[c]] != 0:
                s += cells[places[c], 0]
        if bins == total:
            main[t] = s
        sums[t] = s
        if weight[t] == 0.0:
            continue
        events[0] += 1
        label = 1.0 if y[t] > 0.0 else 0.0
        error = weight[t] * (sigmoid(main[t]) - label)
        bias[1] += error * error
        bias[0] -= _NUMBER_STEP * error / math.sqrt(_PRIOR + bias[1])
        for k in range(start, stop):
            j = indices[k]
            if j < binned:
                influence[j] += abs(data[k] * w[j])
                _note(edges, sample, values, j, data[k])
            g = error * data[k]
            h[j] += g * g
            w[j] -= _NUMBER_STEP * g / math.sqrt(_PRIOR + h[j])
        for c in range(total):
            if c == bins:
                error = weight[t] * (sigmoid(sums[t]) - label)
            at = places[c]
            if table[at] != keys[c]:  # free when the event came
                if events[1] >= MOST_CELLS or (c >= bins and not _again(once, keys[c])):
                    continue
                at = _find(table, keys[c])  # another cell of this event may have taken the place
                table[at] = keys[c]
                events[1] += 1
            elif c < bins:
                influence[indices[owners[0, c]]] += abs(cells[at, 0])
            cells[at, 1] += error * error
            cells[at, 0] -= (_BIN_STEP if c < bins else _PAIR_STEP) * error / math.sqrt(_PRIOR + cells[at, 1])
        if events[0] >= _FIRST_CHOICE and events[0] & (events[0] - 1) == 0:
            _choose(influence, chosen)
    return y.shape[0]


@kernel
def _again(once, key):  # type: ignore[no-untyped-def]
    """Return whether this key was the last of its hash, and note it."""
    mixed = (key ^ (key >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    mark = np.uint8((mixed >> np.uint64(56)) | np.uint64(1))
    at = np.int64((mixed >> np.uint64(24)) & np.uint64(_SEEN_ONCE - 1))
    if once[at] == mark:
        return True
    once[at] = mark
    return False


@kernel
def _note(edges, sample, values, column, value):  # type: ignore[no-untyped-def]
    """Take in a value of a column; set the edges when it has had enough."""
    if values[column] >= 2 * SAMPLE:
        return
    sample[column, values[column] % SAMPLE] = value
    values[column] += 1
    if values[column] < 2 * SAMPLE:
        return
    ordered = np.empty(SAMPLE)
    for k in range(SAMPLE):
        ordered[k] = sample[column, k]
    order_statistics.sort(ordered, SAMPLE)
    count = 0
    for k in range(1, _EDGES + 1):
        edge = ordered[k * SAMPLE // (_EDGES + 1)]
        if edge < ordered[SAMPLE - 1] and (count == 0 or edge > edges[column, count - 1]):
            edges[column, count] = edge
            count += 1


@kernel
def _choose(influence, chosen):  # type: ignore[no-untyped-def]
    """Choose the columns of the largest influence; the first of equal ones."""
    chosen[:] = 0
    for _ in range(min(CROSSED, influence.shape[0])):
        best = -1
        for j in range(influence.shape[0]):
            if chosen[j] == 0 and influence[j] > 0.0 and (best < 0 or influence[j] > influence[best]):
                best = j
        if best < 0:
            return
        chosen[best] = 1
