"""Encode the features of an event as columns: the base of all kinds, and the kinds `dense` and `sparse`.

Encoding has two halves. The first, `encode`, needs no state. It runs where an event arrives, refuses invalid events,
and returns the columns that go into the log: dense float64, or CSR for sparse and hashed events. The second,
`column_map.py`, is part of the learner and moves in log order: it assigns one-hot columns to categories.

    dense    a list of `dim` numbers
    sparse   indices and values, up to 2^24 columns
    named    (`named.py`) names to numbers, strings, booleans or lists of tokens, hashed with a sign to 2^bits columns
    table    (`named.py`) declared numeric and categorical fields to a small dense vector
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learners.numerics import Matrix, Rows, Sparse, bare_kernel, kernel
from learners.settings import InvalidInput, Parameters, Problem, required, show, show_feature
from rarestream.values import LARGEST

__all__ = [
    "LARGEST",
    "MAX_COLUMNS",
    "MAX_NONZERO",
    "MAX_PROBLEMS",
    "Dense",
    "Features",
    "Problems",
    "SparseColumns",
    "number_fault",
]

MAX_COLUMNS = 100_000  # of dense rows
MAX_NONZERO = 2**16  # non-zero columns of one event
MAX_PROBLEMS = 100  # listed of one batch, and by the service of any request


def _is_csr(rows: Sparse) -> bool:
    """Return whether the parts are a valid CSR matrix, which kernels do not check."""
    parts = ((rows.data, np.float64), (rows.indices, np.int64), (rows.indptr, np.int64))
    if not all(part.ndim == 1 and part.dtype == dtype for part, dtype in parts):
        return False
    ends = rows.indptr
    return bool(
        len(rows.data) == len(rows.indices)
        and len(ends)
        and ends[0] == 0
        and ends[-1] == len(rows.data)
        and (ends[1:] >= ends[:-1]).all()
    )


@bare_kernel
def _within(X, largest):  # type: ignore[no-untyped-def]
    """Return whether every number of X is at most `largest` in magnitude, and none is NaN."""
    good = True
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            good &= abs(X[i, j]) <= largest
    return good


@kernel
def _row_faults(data, indices, indptr, dim, largest, most, faults):  # type: ignore[no-untyped-def]
    """Mark rows that are too long, whose columns are not ascending and below `dim`, or whose values are too large."""
    bad = 0
    for i in range(indptr.shape[0] - 1):
        before = -1
        faults[i] = 1 if indptr[i + 1] - indptr[i] > most else 0
        for k in range(indptr[i], indptr[i + 1]):
            if indices[k] <= before or indices[k] >= dim or not abs(data[k]) <= largest:
                faults[i] = 1
            before = indices[k]
        bad += faults[i]
    return bad


class Problems:
    """Collect the first problems of a batch; events are numbered as in the request."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._last = -1

    @property
    def full(self) -> bool:
        """Whether the list is full, so that the caller can stop reading."""
        return len(self.problems) == MAX_PROBLEMS

    def has(self, event: int) -> bool:
        """Return whether this event has a problem already. Events must be passed in order."""
        return event == self._last

    def add(self, event: int, pointer: str, detail: str) -> None:
        """Add a problem of an event, unless the event has one already."""
        if event != self._last and not self.full:
            self._last = event
            self.problems.append(Problem(f"/{event}{pointer}", detail))

    def check(self) -> None:
        """Raise `InvalidInput` if there are problems."""
        if self.problems:
            raise InvalidInput(self.problems)


def _first_fault(numbers: Sequence[Any]) -> tuple[str, str] | None:
    """Return the pointer and the fault of the first invalid number in a list, if any."""
    return next(((f"/{k}", fault) for k, item in enumerate(numbers) if (fault := number_fault(item))), None)


def _refuse(X: Matrix) -> None:
    """Raise `InvalidInput` for the first number of each row (n, dim) that is too large or NaN."""
    problems = Problems()
    good: NDArray[np.bool_] = np.abs(X) <= LARGEST
    for i in np.flatnonzero(~good.all(axis=1))[:MAX_PROBLEMS].tolist():
        k = int(good[i].argmin())
        problems.add(i, f"/{k}", str(number_fault(float(X[i, k]))))
    problems.check()


def number_fault(value: Any) -> str | None:
    """Describe what is wrong with a feature's number, if anything."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"is {show_feature(value)}; expected a number"
    if value != value or value in (math.inf, -math.inf):
        return f"is {value}; expected a finite number"
    if abs(value) > LARGEST:
        return f"is {show(value)}; expected at most {LARGEST:g} in magnitude"
    return None


@dataclass(frozen=True)
class Features(Parameters, ABC):
    """Base of the four kinds."""

    KIND: ClassVar[str]
    MEMBER: ClassVar[str]  # which member of an event carries its features: x, indices (and values), features

    @property
    def sparse(self) -> bool:
        """Whether rows are `Sparse`."""
        return False

    @property
    @abstractmethod
    def columns(self) -> int:
        """Columns after encoding and mapping: exact for dense rows, an upper bound for sparse ones."""

    @abstractmethod
    def encode(self, values: Sequence[Any], typed: bool = False, most: int = MAX_NONZERO) -> Rows:
        """Encode the features of n events as columns, (n, k).

        `typed`: the JSON types are already checked. If an event has more than `most` non-zeros, its texts are cut.
        Raises `InvalidInput` with a pointer to each invalid event (the first 100). O(numbers).
        """

    @abstractmethod
    def names(self, value: Any, columns: Sequence[int]) -> list[str]:
        """Name columns of an event's encoded row, (k,).

        `value` is the event's features, as `encode` takes them. O(numbers).
        """

    def field_names(self, values: Sequence[Any]) -> tuple[str, ...]:  # noqa: ARG002 - only named events have any
        """Return the names of the fields of encoded events, if a learner remembers fields, else none. O(fields)."""
        return ()

    def objections(self) -> list[Problem]:
        """List declarations that contradict each other, so that one of them would be ignored silently."""
        return []

    def to_json(self) -> dict[str, Any]:
        """Return what `features_of` reads."""
        return {"kind": self.KIND, **super().to_json()}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema of what `features_of` reads, including the kind."""
        body = super().schema()
        kind = {"const": cls.KIND, "description": "the kind of features"}
        return body | {
            "properties": {"kind": kind, **body["properties"]},
            "required": ["kind", *body.get("required", ())],
        }


def _as_float64(values: Sequence[Any] | Matrix) -> Matrix:
    """Copy rows in C order. Raises as NumPy does if they are ragged, no numbers, or beyond float64."""
    if isinstance(values, np.ndarray) and values.dtype == np.float64:
        return np.array(values, dtype=np.float64, order="C", ndmin=2)
    with np.errstate(invalid="ignore"):  # a float32 NaN that signals: refused like every NaN
        return np.array(values, dtype=np.float64, order="C", ndmin=2)


@dataclass(frozen=True)
class Dense(Features):
    """A fixed number of numbers for each event."""

    dim: int = required("numbers of each event", least=1, most=MAX_COLUMNS)
    KIND: ClassVar[str] = "dense"
    MEMBER: ClassVar[str] = "x"

    @property
    def columns(self) -> int:
        """`dim`."""
        return self.dim

    def encode(
        self,
        values: Sequence[Any] | Matrix,
        typed: bool = False,
        most: int = MAX_NONZERO,  # noqa: ARG002
    ) -> Rows:
        """Copy the rows into a C-ordered (n, dim) float64 matrix; see `Features.encode`."""
        numbers = values.dtype.kind in "fiu" if isinstance(values, np.ndarray) else typed
        if numbers:
            try:
                X = _as_float64(values)
            except (TypeError, ValueError, OverflowError):  # ragged, or a number beyond float64
                X = np.empty((0, 0))
            if X.shape == (len(values), self.dim):
                if _within(X, LARGEST):
                    return X
                if isinstance(values, np.ndarray):
                    _refuse(X)
        problems = Problems()
        for i, value in enumerate(values):
            items = value.tolist() if isinstance(value, np.ndarray) else value
            if not isinstance(items, (list, tuple)):
                problems.add(i, "", f"is {show(value)}; expected a list of {self.dim} numbers")
            elif len(items) != self.dim:
                problems.add(i, "", f"has {len(items)} numbers; expected {self.dim}")
            elif fault := _first_fault(items):
                problems.add(i, *fault)
            if problems.full:
                break
        problems.check()
        return np.array(values, dtype=np.float64, order="C").reshape(len(values), self.dim)

    def names(self, value: Any, columns: Sequence[int]) -> list[str]:  # noqa: ARG002 - all events' are the same
        """Name columns `x[3]`, counted from 0; see `Features.names`."""
        return [f"x[{column}]" for column in columns]


@dataclass(frozen=True)
class SparseColumns(Features):
    """Pairs of column and value; other columns are 0."""

    dim: int = required("columns: indices are 0 to dim - 1", least=1, most=2**24)
    KIND: ClassVar[str] = "sparse"
    MEMBER: ClassVar[str] = "indices"

    @property
    def sparse(self) -> bool:
        """Always."""
        return True

    @property
    def columns(self) -> int:
        """`dim`."""
        return self.dim

    def encode(
        self,
        values: Sequence[Any] | Sparse,
        typed: bool = False,
        most: int = MAX_NONZERO,  # noqa: ARG002
    ) -> Rows:
        """Encode (indices, values) pairs, or check a `Sparse`, which is not copied; see `Features.encode`."""
        if isinstance(values, Sparse):
            return self._checked(values)
        if typed and all(len(indices) == len(data) for indices, data in values):
            indptr = np.zeros(len(values) + 1, dtype=np.int64)
            np.cumsum([len(indices) for indices, _ in values], out=indptr[1:])
            try:
                flat = np.array([index for indices, _ in values for index in indices], dtype=np.int64)
                data = np.array([number for _, data in values for number in data], dtype=np.float64)
                return self._checked(Sparse(data, flat, indptr))
            except (OverflowError, InvalidInput):  # the loop below finds every problem
                pass
        problems = Problems()
        for i, value in enumerate(values):
            self._check_event(problems, i, value)
            if problems.full:
                break
        problems.check()
        return self.encode(values, typed=True)

    def names(self, value: Any, columns: Sequence[int]) -> list[str]:  # noqa: ARG002 - all events' are the same
        """Name columns `[7]`, as in `indices`; see `Features.names`."""
        return [f"[{column}]" for column in columns]

    def _checked(self, rows: Sparse) -> Sparse:
        if not _is_csr(rows):
            raise InvalidInput(
                [Problem("", "is not a CSR matrix: expected float64 data, int64 indices and int64 row ends")]
            )
        faults = np.zeros(len(rows.indptr) - 1, dtype=np.int64)
        if _row_faults(rows.data, rows.indices, rows.indptr, self.dim, LARGEST, MAX_NONZERO, faults):
            columns = f"at most {MAX_NONZERO} ascending, distinct columns from 0 to {self.dim - 1}"
            detail = f"expected {columns}, and values of at most {LARGEST:g} in magnitude"
            raise InvalidInput([Problem(f"/{i}", detail) for i in np.flatnonzero(faults)[:MAX_PROBLEMS]])
        return rows

    def _check_event(self, problems: Problems, i: int, value: Any) -> None:
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            problems.add(i, "", f"is {show(value)}; expected a pair: indices and values")
            return
        indices, data = value
        if not isinstance(indices, (list, tuple)):
            problems.add(i, "/indices", f"is {show(indices)}; expected a list of columns")
        elif not isinstance(data, (list, tuple)):
            problems.add(i, "/values", f"is {show(data)}; expected a list of numbers")
        elif len(indices) != len(data):
            problems.add(i, "/values", f"has {len(data)} numbers for {len(indices)} indices")
        elif len(indices) > MAX_NONZERO:
            problems.add(i, "/indices", f"has {len(indices)} columns; expected at most {MAX_NONZERO}")
        else:
            before = -1
            for k, column in enumerate(indices):
                is_integer = isinstance(column, int) and not isinstance(column, bool)
                if not is_integer or not 0 <= column < self.dim:
                    detail = f"is {show(column)}; expected a whole number from 0 to {self.dim - 1}"
                    problems.add(i, f"/indices/{k}", detail)
                    return
                if column <= before:
                    detail = f"is {column} after {before}; expected ascending, distinct columns"
                    problems.add(i, f"/indices/{k}", detail)
                    return
                before = column
            if fault := _first_fault(data):
                problems.add(i, f"/values{fault[0]}", fault[1])
