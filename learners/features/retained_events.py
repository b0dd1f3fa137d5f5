"""Retain the last events of a stream for fits: a window bounded in events and in numbers.

The window is the longest run of newest events within both bounds, and always has the newest event. It is a function of
the events alone, however they were batched. The arrays are contiguous, so that a fit reads them without a copy.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.numerics import Issues, Rows, Sparse, Vector, length, not_finite, outside

__all__ = ["EventWindow", "problems"]

_FEWEST = 64  # minimum capacity of a queue


class _Queue:
    """A contiguous array that grows at its end and shrinks at its start.

    O(1) amortised per entry: entries move to the front, or to an array of twice the size, when the end is reached. Each
    time at least half the array has been filled since.
    """

    def __init__(self, dtype: type[np.generic], shape: tuple[int, ...] = ()) -> None:
        """Create an empty queue of entries with this `shape`."""
        self._array: NDArray[Any] = np.empty((0, *shape), dtype=dtype)
        self._start = self._stop = 0

    @property
    def entries(self) -> NDArray[Any]:
        """The entries, oldest first: a view, valid until the next call."""
        return self._array[self._start : self._stop]

    @property
    def room(self) -> int:
        """Number of entries that memory is allocated for."""
        return len(self._array)

    def __len__(self) -> int:
        return self._stop - self._start

    def append(self, entries: NDArray[Any]) -> None:
        """Copy `entries` to the end."""
        if self._stop + len(entries) > len(self._array):
            previous, need = self.entries, len(self) + len(entries)
            if 2 * need > len(self._array):
                self._array = np.empty((max(2 * need, _FEWEST), *previous.shape[1:]), dtype=previous.dtype)
            self._array[: len(previous)] = previous  # in place, they come from the array's other half: no overlap
            self._start, self._stop = 0, len(previous)
        self._array[self._stop : self._stop + len(entries)] = entries
        self._stop += len(entries)

    def drop(self, count: int) -> None:
        """Remove the `count` oldest entries."""
        self._start += count


class EventWindow:
    """The last events: rows before scaling, labels and weights.

    Memory is at most about twice the bounds. O(numbers) amortised per event.
    """

    def __init__(self, window: int, most: int, dim: int | None, number: type[np.floating[Any]] = np.float64) -> None:
        """Retain at most `window` events with at most `most` feature numbers, and always the newest event.

        `dim` is the number of columns of dense rows, all of which count; None for sparse rows, whose non-zeros count.
        Feature numbers are stored as `number`; if that is float32, incoming ones are rounded already.
        """
        self.window = window if dim is None else max(1, min(window, most // max(dim, 1)))
        self.most = most
        self.dim = dim
        self._number = number
        self.clear()

    def clear(self) -> None:
        """Remove every event and free the memory."""
        self._labels = _Queue(np.float64)
        self._weights = _Queue(np.float64)
        self._values = _Queue(self._number, () if self.dim is None else (self.dim,))
        self._indices = _Queue(np.int64)  # of sparse rows, as the next two
        self._ends = _Queue(np.int64)  # where each row ends, counting every non-zero since `clear`
        self._start = 0  # where the oldest row starts, likewise

    def __len__(self) -> int:
        return len(self._labels)

    def learn(self, rows: Rows, y: Vector, weight: Vector) -> None:
        """Append copies of n events: `rows`, labels and weights (n,)."""
        if not len(y):
            return
        if isinstance(rows, Sparse):
            first = self._learn_sparse(rows)
        else:
            first = max(0, len(y) - self.window)
            self._drop(len(self) + len(y) - first - self.window)
            self._values.append(rows[first:])
        self._labels.append(y[first:])
        self._weights.append(weight[first:])

    def _learn_sparse(self, rows: Sparse) -> int:
        """Append the rows that fit, after making room; return how many rows of the batch were left out."""
        n = length(rows)
        first = n - self._fitting(np.diff(rows.indptr))
        if first:
            self._drop(len(self))
        begin, end = int(rows.indptr[first]), int(rows.indptr[n])
        excess = len(self._values) + end - begin - self.most
        late = int(np.searchsorted(self._ends.entries, self._start + excess)) + 1 if excess > 0 else 0
        self._drop(max(late, len(self) + n - first - self.window))
        self._ends.append(rows.indptr[first + 1 :] + (self._start + len(self._values) - begin))
        self._values.append(rows.data[begin:end])
        self._indices.append(rows.indices[begin:end])
        return first

    def _fitting(self, sizes: NDArray[np.int64]) -> int:
        """Return how many of the newest rows fit, given the non-zeros of each."""
        totals = np.cumsum(sizes[::-1][: self.window])
        return max(int(np.searchsorted(totals, self.most, side="right")), min(1, len(sizes)))

    def _drop(self, count: int) -> None:
        """Remove the `count` oldest events, or all if there are fewer."""
        count = max(0, min(count, len(self)))
        numbers = count
        if self.dim is None and count:
            end = int(self._ends.entries[count - 1])
            numbers, self._start = end - self._start, end
            self._ends.drop(count)
            self._indices.drop(numbers)
        self._values.drop(numbers)
        self._labels.drop(count)
        self._weights.drop(count)

    def relabel(self, back: int, label: float) -> bool:
        """Replace the label of the event `back` events before the newest; return False if it is not retained."""
        if not 0 <= back < len(self):
            return False
        self._labels.entries[len(self) - 1 - back] = label
        return True

    # The retained events, oldest first: views, valid until the next change

    def rows(self) -> Rows:
        """Return the n rows; if they are stored as float32, a copy in float64."""
        values = self._values.entries.astype(np.float64, copy=False)
        if self.dim is not None:
            return values
        indptr = np.concatenate([[0], self._ends.entries - self._start])
        return Sparse(values, self._indices.entries, indptr)

    def labels(self) -> Vector:
        """Return the labels, (n,)."""
        return self._labels.entries

    def weights(self) -> Vector:
        """Return the weights, (n,)."""
        return self._weights.entries

    # Saving

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of the state, without spare capacity."""
        state = {"labels": self.labels(), "weights": self.weights(), "values": self._values.entries}
        if self.dim is None:
            state |= {"indices": self._indices.entries, "sizes": np.diff(self._ends.entries, prepend=self._start)}
        return state

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take the arrays of a state."""
        self.clear()
        self._labels.append(state["labels"])
        self._weights.append(state["weights"])
        self._values.append(state["values"])
        if self.dim is None:
            self._indices.append(state["indices"])
            self._ends.append(np.cumsum(state["sizes"]))

    def shapes(self, state: dict[str, NDArray[np.generic]]) -> dict[str, tuple[int, ...]]:
        """Return the shapes that a valid state's arrays have, given its number of labels or the sizes of its rows.

        The arrays of an invalid state, with too many events or impossible sizes, have other shapes. O(events).
        """
        if self.dim is not None:
            n = min(len(state["labels"]), self.window)
            return {"labels": (n,), "weights": (n,), "values": (n, self.dim)}
        sizes = state["sizes"].astype(np.int64)
        possible = bool(((sizes >= 0) & (sizes <= len(state["values"]))).all())
        n = self._fitting(sizes) if possible else 0
        numbers = int(sizes[len(sizes) - n :].sum())
        return {"labels": (n,), "weights": (n,), "values": (numbers,), "indices": (numbers,), "sizes": (n,)}


def problems(state: dict[str, NDArray[np.generic]], ranks: int | None, *, missing: bool) -> Issues:
    """Find impossible values among the retained events of a state of valid shapes. O(numbers).

    Labels are -1 and +1, or the ranks 1 to `ranks`. `missing`: values may be NaN, as those of a table. Column numbers
    are checked elsewhere, where the number of columns is known.
    """
    if not np.isin(state["labels"], [-1, 1] if ranks is None else np.arange(1, ranks + 1)).all():
        yield "labels", f"has numbers that are not {'-1 or 1' if ranks is None else f'whole, from 1 to {ranks}'}"
    yield from outside("weights", state["weights"], 0.0, sys.float_info.max)
    if not missing:
        yield from not_finite("values", state["values"])
    elif np.isinf(state["values"]).any():
        yield "values", "has infinite numbers"
