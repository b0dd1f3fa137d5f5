"""The last events of a stream, kept for fits: a window bounded in events and in numbers.

What is kept is the longest run of newest events within both bounds, and the newest event in any case: a function of
the events alone, however they were cut into batches. The arrays are always in one piece, so that a fit reads them
without a copy.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.numerics import Issues, Rows, Sparse, Vector, length, not_finite, outside

__all__ = ["Retained", "problems"]

_FEWEST = 64  # entries that a queue has room for at least


class _Queue:
    """An array that is appended to at its end and dropped from at its start, always in one piece.

    O(1) amortised per entry: the kept ones move to the front, or to an array of twice their number, when the end of
    the array is reached, and each time at least half the array has been filled since.
    """

    def __init__(self, dtype: type[np.generic], shape: tuple[int, ...] = ()) -> None:
        """An empty queue of entries with this `shape`."""
        self._array: NDArray[Any] = np.empty((0, *shape), dtype=dtype)
        self._start = self._stop = 0

    @property
    def held(self) -> NDArray[Any]:
        """The entries, oldest first: a view, right until the next call."""
        return self._array[self._start : self._stop]

    @property
    def room(self) -> int:
        """Entries that memory is allocated for."""
        return len(self._array)

    def __len__(self) -> int:
        return self._stop - self._start

    def append(self, entries: NDArray[Any]) -> None:
        """Copy `entries` to the end."""
        if self._stop + len(entries) > len(self._array):
            kept, need = self.held, len(self) + len(entries)
            if 2 * need > len(self._array):
                self._array = np.empty((max(2 * need, _FEWEST), *kept.shape[1:]), dtype=kept.dtype)
            self._array[: len(kept)] = kept  # in place, they came from the array's other half: no overlap
            self._start, self._stop = 0, len(kept)
        self._array[self._stop : self._stop + len(entries)] = entries
        self._stop += len(entries)

    def drop(self, count: int) -> None:
        """Leave out the `count` oldest."""
        self._start += count


class Retained:
    """The last events: rows as they are before scaling, labels and weights.

    Memory is at most about twice what may be kept. O(numbers) amortised per event.
    """

    def __init__(self, window: int, most: int, dim: int | None, number: type[np.floating[Any]] = np.float64) -> None:
        """Keep at most `window` events of at most `most` feature numbers in all, the newest event in any case.

        `dim` is the number of columns of dense rows, all of which count as numbers; None for sparse rows, of which
        the non-zeros count. Feature numbers are held as `number`; where that is float32, those that come are such.
        """
        self.window = window if dim is None else max(1, min(window, most // max(dim, 1)))
        self.most = most
        self.dim = dim
        self._number = number
        self.clear()

    def clear(self) -> None:
        """Forget every event, and free the memory."""
        self._labels = _Queue(np.float64)
        self._weights = _Queue(np.float64)
        self._values = _Queue(self._number, () if self.dim is None else (self.dim,))
        self._indices = _Queue(np.int64)  # of sparse rows, as the next two
        self._ends = _Queue(np.int64)  # where each row ends, counting every non-zero since `clear`
        self._start = 0  # where the oldest row starts, likewise

    def __len__(self) -> int:
        return len(self._labels)

    def learn(self, rows: Rows, y: Vector, weight: Vector) -> None:
        """Keep copies of n events: `rows`, labels and weights (n,)."""
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
        """Make room for the rows that are to be kept, and keep them; how many of the batch come before those."""
        n = length(rows)
        first = n - self._fitting(np.diff(rows.indptr))
        if first:
            self._drop(len(self))
        begin, end = int(rows.indptr[first]), int(rows.indptr[n])
        excess = len(self._values) + end - begin - self.most
        late = int(np.searchsorted(self._ends.held, self._start + excess)) + 1 if excess > 0 else 0
        self._drop(max(late, len(self) + n - first - self.window))
        self._ends.append(rows.indptr[first + 1 :] + (self._start + len(self._values) - begin))
        self._values.append(rows.data[begin:end])
        self._indices.append(rows.indices[begin:end])
        return first

    def _fitting(self, sizes: NDArray[np.int64]) -> int:
        """How many of the newest rows, of so many non-zeros each, are kept if nothing comes after them."""
        totals = np.cumsum(sizes[::-1][: self.window])
        return max(int(np.searchsorted(totals, self.most, side="right")), min(1, len(sizes)))

    def _drop(self, count: int) -> None:
        """Leave out the `count` oldest events, as far as there are so many."""
        count = max(0, min(count, len(self)))
        numbers = count
        if self.dim is None and count:
            end = int(self._ends.held[count - 1])
            numbers, self._start = end - self._start, end
            self._ends.drop(count)
            self._indices.drop(numbers)
        self._values.drop(numbers)
        self._labels.drop(count)
        self._weights.drop(count)

    def relabel(self, back: int, label: float) -> bool:
        """Give the event that came `back` events before the newest another label; False where it is not kept."""
        if not 0 <= back < len(self):
            return False
        self._labels.held[len(self) - 1 - back] = label
        return True

    # What is kept, oldest first: views, right until the next call that changes it

    def rows(self) -> Rows:
        """The rows, n of them; where they are held as float32, a copy in float64."""
        values = self._values.held.astype(np.float64, copy=False)
        if self.dim is not None:
            return values
        indptr = np.concatenate([[0], self._ends.held - self._start])
        return Sparse(values, self._indices.held, indptr)

    def labels(self) -> Vector:
        """The labels, (n,)."""
        return self._labels.held

    def weights(self) -> Vector:
        """The weights, (n,)."""
        return self._weights.held

    # Saving

    def state(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of the state, no longer than what is kept."""
        state = {"labels": self.labels(), "weights": self.weights(), "values": self._values.held}
        if self.dim is None:
            state |= {"indices": self._indices.held, "sizes": np.diff(self._ends.held, prepend=self._start)}
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
        """The shapes that a state's arrays have by the number of its labels, or by the sizes of its sparse rows.

        A state that holds more than is kept here, or sizes that cannot be, shows by arrays of other shapes. O(events).
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
    """What cannot be among the events that a state retains, its shapes being right. O(numbers).

    Labels are -1 and +1, or the ranks 1 to `ranks`. `missing`: values may be NaN, as a table's are where they are not
    given. Column numbers are checked where it is known how many there are.
    """
    if not np.isin(state["labels"], [-1, 1] if ranks is None else np.arange(1, ranks + 1)).all():
        yield "labels", f"has numbers that are not {'-1 or 1' if ranks is None else f'whole, from 1 to {ranks}'}"
    yield from outside("weights", state["weights"], 0.0, sys.float_info.max)
    if not missing:
        yield from not_finite("values", state["values"])
    elif np.isinf(state["values"]).any():
        yield "values", "has infinite numbers"
