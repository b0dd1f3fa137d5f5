"""Read labels as numbers: -1 and +1, or the ranks 1 to p."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.features.feature_kinds import MAX_PROBLEMS
from learners.numerics import Vector, bare_kernel
from learners.settings import InvalidInput, Problem

__all__ = ["Labels", "as_array"]


@bare_kernel
def _two_classes(values, y):  # type: ignore[no-untyped-def]
    """Return whether all values are -1, 0 or 1; fill `y` with -1 or +1 for each."""
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
        """Names of the classes in metrics and counts, in order."""
        return ["negative", "positive"] if self.ranks is None else [str(rank) for rank in range(1, self.ranks + 1)]

    @property
    def expected(self) -> str:
        """Describe what a label must be."""
        return "-1, 0 or 1, or a boolean" if self.ranks is None else f"a rank: a whole number from 1 to {self.ranks}"

    @property
    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of a label."""
        if self.ranks is None:
            return {"enum": [-1, 0, 1, False, True]}
        return {"type": "integer", "minimum": 1, "maximum": self.ranks}

    def good(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Mark the values that are labels, (n,)."""
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
        """Convert valid labels to those of the log and the kernels, (n,)."""
        return np.where(values > 0, 1.0, -1.0) if self.ranks is None else values

    def read(self, labels: Any) -> Vector:
        """Read a list or array of labels. Raises `InvalidInput` with a pointer to each invalid one."""
        y = as_array(labels)
        if y is None or y.ndim != 1:
            raise InvalidInput(
                [Problem.mismatch("/labels", labels, "a list of labels", {"type": "array", "items": self.schema})]
            )
        if y.dtype.kind in ("biuf" if self.ranks is None else "iuf"):
            castable = y.dtype.kind != "f" or y.dtype == np.float64  # casting a signalling NaN would warn
            if self.ranks is None and castable:  # usually all are valid: one pass
                numbers = np.ascontiguousarray(y, dtype=np.float64)
                read = np.empty(len(y))
                if _two_classes(numbers, read):
                    return read
            good = self.good(y)
        else:  # something is no number, or too large: check each original value
            y = np.fromiter(labels, dtype=object, count=len(y))
            good = np.array([self.accepts(label) for label in y], dtype=np.bool_)
        if not good.all():
            bad = np.flatnonzero(~good)[:MAX_PROBLEMS]
            raise InvalidInput([self.mismatch(f"/labels/{i}", y.item(i)) for i in bad])
        return self.columns(y.astype(np.float64))


def as_array(values: Any) -> NDArray[Any] | None:
    """Return the values as NumPy reads them; None for a ragged list."""
    try:
        return np.asarray(values)
    except ValueError:
        return None
