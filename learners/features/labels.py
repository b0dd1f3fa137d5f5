"""What a learner's labels are, and the numbers that they become: -1 and +1, or the ranks 1 to p."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.features.base import MAX_PROBLEMS
from learners.numerics import Vector, bare_kernel
from learners.settings import InvalidInput, Problem

__all__ = ["Labels", "as_array"]


@bare_kernel
def _two_classes(values, y):  # type: ignore[no-untyped-def]
    """Whether all of some numbers are -1, 0 or 1; `y` gets -1 or +1 for each."""
    good = True
    for i in range(values.shape[0]):
        good &= values[i] == 0.0 or abs(values[i]) == 1.0
        y[i] = 1.0 if values[i] > 0.0 else -1.0
    return good


@dataclass(frozen=True)
class Labels:
    """Two classes, given as 0/1, -1/1 or false/true; or, with `ranks`, whole numbers from 1 to that."""

    ranks: int | None = None

    @property
    def classes(self) -> list[str]:
        """The names of the classes as figures and counts have them, in order."""
        return ["negative", "positive"] if self.ranks is None else [str(rank) for rank in range(1, self.ranks + 1)]

    @property
    def expected(self) -> str:
        """What a label has to be, in words."""
        return "-1, 0 or 1, or a boolean" if self.ranks is None else f"a rank: a whole number from 1 to {self.ranks}"

    @property
    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of a label."""
        if self.ranks is None:
            return {"enum": [-1, 0, 1, False, True]}
        return {"type": "integer", "minimum": 1, "maximum": self.ranks}

    def good(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of some numbers are labels, (n,)."""
        if self.ranks is None:
            good: NDArray[np.bool_] = (values == 0.0) | (np.abs(values) == 1.0)
        else:
            good = (values >= 1.0) & (values <= self.ranks) & (values == np.floor(values))
        return good

    def accepts(self, value: Any) -> bool:
        """Return whether a JSON value is a label."""
        number = isinstance(value, (int, float)) and (self.ranks is None or not isinstance(value, bool))
        return number and value == value and abs(value) <= 64 and bool(self.good(np.array(value, dtype=np.float64)))

    def mismatch(self, pointer: str, value: Any) -> Problem:
        """Report a value that is not a label, or missing (`ABSENT`)."""
        return Problem.mismatch(pointer, value, self.expected, self.schema)

    def columns(self, values: Vector) -> Vector:
        """Good labels as a learner's log and kernels have them, (n,)."""
        return np.where(values > 0, 1.0, -1.0) if self.ranks is None else values

    def read(self, labels: Any) -> Vector:
        """A list or array of labels as `columns` gives them. Raises `InvalidInput` with a pointer to each bad one."""
        y = as_array(labels)
        if y is None or y.ndim != 1:
            raise InvalidInput(
                [Problem.mismatch("/labels", labels, "a list of labels", {"type": "array", "items": self.schema})]
            )
        if y.dtype.kind in ("biuf" if self.ranks is None else "iuf"):
            whole = y.dtype.kind != "f" or y.dtype == np.float64  # to cast a NaN that signals would be a warning
            if self.ranks is None and whole:  # most are good: that is found in one pass
                numbers = np.ascontiguousarray(y, dtype=np.float64)
                read = np.empty(len(y))
                if _two_classes(numbers, read):
                    return read
            good = self.good(y)
        else:  # something is no number, or too large for one: look at each as it was given
            y = np.fromiter(labels, dtype=object, count=len(y))
            good = np.array([self.accepts(label) for label in y], dtype=np.bool_)
        if not good.all():
            bad = np.flatnonzero(~good)[:MAX_PROBLEMS]
            raise InvalidInput([self.mismatch(f"/labels/{i}", y.item(i)) for i in bad])
        return self.columns(y.astype(np.float64))


def as_array(values: Any) -> NDArray[Any] | None:
    """As NumPy reads it; None for a list of unequal lists."""
    try:
        return np.asarray(values)
    except ValueError:
        return None
