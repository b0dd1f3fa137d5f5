"""Features of an event -> columns: the four kinds a learner can be created with.

Encoding has two halves. The first, `encode`, needs no state: it runs where an event arrives, refuses what cannot be
read, and gives the columns that go into the log (dense float64, or CSR for sparse and hashed events). The second,
`columns.py`, is part of the learner: it moves forward in log order (which category got which one-hot column).

    dense    a list of `dim` numbers
    sparse   indices and values, up to 2^24 columns
    named    names to numbers, strings, booleans or lists of tokens, hashed with a sign to 2^bits columns
    table    declared numeric and categorical fields to a small dense vector
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from learners.arrays import Matrix, Rows, Sparse, Words
from learners.hashing import hash_strings
from learners.jit import kernel
from learners.parameters import Parameters, Problem, Refused, param, pointer, required, show

__all__ = [
    "KINDS",
    "LARGEST",
    "MAX_COLUMNS",
    "MAX_NAME",
    "MAX_NONZERO",
    "MAX_PROBLEMS",
    "Dense",
    "Features",
    "Field",
    "Named",
    "SparseColumns",
    "Table",
    "features_of",
    "number_fault",
]

LARGEST = 1e30  # the largest magnitude of a feature: its powers then stay finite in every algorithm
MAX_COLUMNS = 100_000  # of dense rows
MAX_NONZERO = 2**16  # non-zero columns of one event
MAX_NAME = 256  # characters of a feature's name: each of an event's tokens is spelt with it
MAX_PROBLEMS = 100  # listed of one batch
_TOKENS = 2**16  # held before they are hashed


@kernel
def _canonical(data, indices, indptr):  # type: ignore[no-untyped-def]
    """Sort each row by column and add up what fell on the same column, in place; the new row ends are written back."""
    out = 0
    start = 0
    for i in range(indptr.shape[0] - 1):
        stop = indptr[i + 1]
        order = np.argsort(indices[start:stop], kind="mergesort")  # stable: sums are taken in the order of arrival
        row_data = data[start:stop][order]
        row_indices = indices[start:stop][order]
        begin = out
        for k in range(row_data.shape[0]):
            if out > begin and indices[out - 1] == row_indices[k]:
                data[out - 1] += row_data[k]
            else:
                data[out] = row_data[k]
                indices[out] = row_indices[k]
                out += 1
        start = stop
        indptr[i + 1] = out
    return out


def _is_csr(rows: Sparse) -> bool:
    """Whether the parts make a CSR matrix that a kernel can be trusted with."""
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


class _Problems:
    """The first problems of a batch; events are numbered as in the request."""

    def __init__(self) -> None:
        self.found: list[Problem] = []
        self._last = -1

    @property
    def full(self) -> bool:
        """Whether no more will be listed, so that reading on is in vain."""
        return len(self.found) == MAX_PROBLEMS

    def met(self, event: int) -> bool:
        """Whether this event is known to be bad. Events come in order."""
        return event == self._last

    def add(self, event: int, pointer: str, detail: str) -> None:
        """Note what is wrong with an event, unless something was noted of it before."""
        if event != self._last and not self.full:
            self._last = event
            self.found.append(Problem(f"/{event}{pointer}", detail))

    def check(self) -> None:
        """Refuse the batch if anything was noted."""
        if self.found:
            raise Refused(self.found)


def _first_fault(numbers: Sequence[Any]) -> tuple[str, str] | None:
    """Pointer to and fault of the first bad number in a list, if there is one."""
    return next(((f"/{k}", fault) for k, item in enumerate(numbers) if (fault := number_fault(item))), None)


def number_fault(value: Any) -> str | None:
    """What is wrong with a feature's number, if anything."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"is {show(value)}; expected a number"
    if value != value or value in (math.inf, -math.inf):
        return f"is {value}; expected a finite number"
    if abs(value) > LARGEST:
        return f"is {show(value)}; expected at most {LARGEST:g} in magnitude"
    return None


@dataclass(frozen=True)
class Features(Parameters):
    """Base of the four kinds."""

    KIND: ClassVar[str]
    MEMBER: ClassVar[str]  # which member of an event carries its features: x, indices (and values), features

    @property
    def sparse(self) -> bool:
        """Whether rows are `Sparse`."""
        return False

    @property
    def columns(self) -> int:
        """Columns after encoding and mapping: exact for dense rows, an upper bound for sparse ones."""
        raise NotImplementedError

    def encode(self, values: Sequence[Any], typed: bool = False) -> Rows:
        """The columns of n events' features, (n, k).

        `typed`: the JSON types were checked already. Raises `Refused` with a pointer to each bad event (the first
        100). O(numbers given).
        """
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """What `features_of` takes back."""
        return {"kind": self.KIND, **super().to_json()}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """The JSON schema of what `features_of` takes, the kind included."""
        body = super().schema()
        kind = {"const": cls.KIND, "description": "the kind of features"}
        return body | {
            "properties": {"kind": kind, **body["properties"]},
            "required": ["kind", *body.get("required", ())],
        }


@dataclass(frozen=True)
class Dense(Features):
    """A fixed number of numbers."""

    dim: int = required("numbers of each event", least=1, most=MAX_COLUMNS)
    KIND: ClassVar[str] = "dense"
    MEMBER: ClassVar[str] = "x"

    @property
    def columns(self) -> int:
        """`dim`."""
        return self.dim

    def encode(self, values: Sequence[Any] | Matrix, typed: bool = False) -> Rows:
        """A C-ordered (n, dim) float64 matrix, a copy; see `Features.encode`."""
        numbers = values.dtype.kind in "fiu" if isinstance(values, np.ndarray) else typed
        if numbers:
            try:
                X = np.array(values, dtype=np.float64, order="C", ndmin=2)
            except (TypeError, ValueError, OverflowError):  # ragged, or a number beyond float64
                X = np.empty((0, 0))
            if X.shape == (len(values), self.dim) and bool((np.abs(X) <= LARGEST).all()):
                return X
        problems = _Problems()
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


@dataclass(frozen=True)
class SparseColumns(Features):
    """Pairs of column and value; columns that are not named are 0."""

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

    def encode(self, values: Sequence[Any] | Sparse, typed: bool = False) -> Rows:
        """`values` are (indices, values) pairs, or `Sparse` at once, which is not copied; see `Features.encode`."""
        if isinstance(values, Sparse):
            return self._checked(values)
        if typed and all(len(indices) == len(data) for indices, data in values):
            indptr = np.zeros(len(values) + 1, dtype=np.int64)
            np.cumsum([len(indices) for indices, _ in values], out=indptr[1:])
            try:
                flat = np.array([one for indices, _ in values for one in indices], dtype=np.int64)
                data = np.array([one for _, data in values for one in data], dtype=np.float64)
                return self._checked(Sparse(data, flat, indptr))
            except (OverflowError, Refused):  # the precise answer comes from the slow way below
                pass
        problems = _Problems()
        for i, value in enumerate(values):
            self._check_event(problems, i, value)
            if problems.full:
                break
        problems.check()
        return self.encode(values, typed=True)

    def _checked(self, rows: Sparse) -> Sparse:
        if not _is_csr(rows):
            raise Refused([Problem("", "is not a CSR matrix: expected float64 data, int64 indices and int64 row ends")])
        faults = np.zeros(len(rows.indptr) - 1, dtype=np.int64)
        if _row_faults(rows.data, rows.indices, rows.indptr, self.dim, LARGEST, MAX_NONZERO, faults):
            columns = f"at most {MAX_NONZERO} ascending, distinct columns from 0 to {self.dim - 1}"
            detail = f"expected {columns}, and values of at most {LARGEST:g} in magnitude"
            raise Refused([Problem(f"/{i}", detail) for i in np.flatnonzero(faults)[:MAX_PROBLEMS]])
        return rows

    def _check_event(self, problems: _Problems, i: int, value: Any) -> None:
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
                whole = isinstance(column, int) and not isinstance(column, bool)
                if not whole or not 0 <= column < self.dim:
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


_WORD = re.compile(r"\w+")


def _text(value: Any) -> str:
    """A category's spelling: a whole number reads the same as int and as float."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _signed_log(value: float) -> float:
    return math.copysign(math.log1p(abs(value)), value)


@dataclass(frozen=True)
class Named(Features):
    """Names to values, hashed: nothing is declared but what numbers and texts mean."""

    bits: int = param(18, "2^bits columns to hash into", least=4, most=24)
    text: tuple[str, ...] = param((), "fields that are text: lower-case words and pairs of neighbouring words")
    categorical: tuple[str, ...] = param((), "fields whose numbers are names, such as a customer's number")
    log: tuple[str, ...] = param((), "numeric fields to take as sign(v) log(1 + |v|)")
    KIND: ClassVar[str] = "named"
    MEMBER: ClassVar[str] = "features"

    @property
    def sparse(self) -> bool:
        """Always."""
        return True

    @property
    def columns(self) -> int:
        """2^bits."""
        return 1 << self.bits

    def encode(self, values: Sequence[Any], typed: bool = False) -> Rows:  # noqa: ARG002 - any value is looked at
        """CSR rows over the hashed columns; see `Features.encode`."""
        problems = _Problems()
        tokens: list[str] = []
        data: list[float] = []
        hashed: list[Words] = []
        ends = [0]
        for i, event in enumerate(values):
            if not isinstance(event, Mapping):
                problems.add(i, "", f"is {show(event)}; expected an object of names and values")
            else:
                self._event(problems, i, event, tokens, data)
                if len(data) - ends[-1] > MAX_NONZERO:
                    problems.add(i, "", f"has more than {MAX_NONZERO} features; expected at most so many")
            if problems.full:
                break
            ends.append(len(data))
            if len(tokens) >= _TOKENS:
                hashed.append(hash_strings(tokens))
                tokens.clear()
        problems.check()
        hashes = np.concatenate([*hashed, hash_strings(tokens)])
        indices = (hashes & np.uint64(self.columns - 1)).astype(np.int64)
        signs = 1.0 - 2.0 * (hashes >> np.uint64(63)).astype(np.float64)
        signed = np.array(data, dtype=np.float64) * signs
        indptr = np.array(ends, dtype=np.int64)
        size = _canonical(signed, indices, indptr)
        return Sparse(signed[:size].copy(), indices[:size].copy(), indptr)

    def _event(
        self, problems: _Problems, i: int, event: Mapping[Any, Any], tokens: list[str], data: list[float]
    ) -> None:
        """Append the tokens of an event, and a number for each, until it is found to be bad or too long."""
        start = len(data)
        for name, value in event.items():
            if len(str(name)) > MAX_NAME:
                problems.add(i, pointer(name), f"is a name of {len(str(name))} characters; expected at most {MAX_NAME}")
            elif value is not None:
                self._tokens(problems, i, str(name), value, tokens, data)
            if problems.met(i) or len(data) - start > MAX_NONZERO:
                return

    def _tokens(self, problems: _Problems, i: int, name: str, value: Any, tokens: list[str], data: list[float]) -> None:
        if isinstance(value, str) and name in self.text:
            # an event of more words than it may have tokens is refused: those beyond need not be looked at
            words = [match.group() for match in itertools.islice(_WORD.finditer(value.lower()), MAX_NONZERO + 1)]
            tokens += [f"{name}~{word}" for word in words]
            tokens += [f"{name}~{one} {two}" for one, two in itertools.pairwise(words)]
            data += [1.0] * max(0, 2 * len(words) - 1)
        elif isinstance(value, (str, bool)):
            tokens.append(f"{name}={_text(value)}")
            data.append(1.0)
        elif isinstance(value, (int, float)):
            if fault := number_fault(value):
                problems.add(i, pointer(name), fault)
            elif name in self.categorical:
                tokens.append(f"{name}={_text(value)}")
                data.append(1.0)
            elif value != 0:
                tokens.append(name)
                data.append(_signed_log(value) if name in self.log else float(value))
        elif isinstance(value, (list, tuple)):
            for k, item in enumerate(value[: MAX_NONZERO + 1]):
                if not isinstance(item, (str, bool)) and number_fault(item):
                    detail = f"is {show(item)}; expected a string, number or boolean"
                    problems.add(i, f"{pointer(name)}/{k}", detail)
                    return
                tokens.append(f"{name}={_text(item)}")
                data.append(1.0)
        else:
            detail = f"is {show(value)}; expected a number, string, boolean, list of tokens or null"
            problems.add(i, pointer(name), detail)


@dataclass(frozen=True)
class Field(Parameters):
    """One declared field of a table."""

    name: str = required("the feature's name in an event")
    kind: Literal["numeric", "categorical"] = required("how its values are read")
    log: bool = param(False, "numeric: take sign(v) log(1 + |v|)")
    categories: int = param(
        16, "categorical: this many get a column of their own, by first appearance", least=1, most=4096
    )

    @property
    def width(self) -> int:
        """Columns: value and missing bit, or one per category and one for all others."""
        return 2 if self.kind == "numeric" else self.categories + 1


@dataclass(frozen=True)
class Table(Features):
    """Declared fields to a small dense vector, so that full-covariance CBR works on named events."""

    fields: tuple[Field, ...] = required("the declared fields, in the order of their columns")
    extra: Literal["refuse", "ignore"] = param("refuse", "what happens to a feature that is not declared")
    KIND: ClassVar[str] = "table"
    MEMBER: ClassVar[str] = "features"

    def __post_init__(self) -> None:
        problems = []
        if isinstance(self.fields, (list, tuple)):
            parsed = []
            for i, item in enumerate(self.fields):
                try:
                    parsed.append(item if isinstance(item, Field) else Field.of(item))
                except Refused as error:
                    problems += error.under(f"/fields/{i}").problems
            object.__setattr__(self, "fields", tuple(parsed))
        try:
            super().__post_init__()
        except Refused as error:
            problems += error.problems
        if not problems:
            problems = self._layout_problems()
        if problems:
            raise Refused(problems)

    def _layout_problems(self) -> list[Problem]:
        if not self.fields:
            return [Problem("/fields", "is empty; expected at least one field")]
        names = [one.name for one in self.fields]
        first = {name: i for i, name in reversed(list(enumerate(names)))}
        problems = [
            Problem(f"/fields/{i}/name", f"is {show(name)}, as of field {first[name]}; expected distinct names")
            for i, name in enumerate(names)
            if first[name] < i
        ]
        problems += [
            Problem(f"/fields/{i}/name", f"has {len(name)} characters; expected at most {MAX_NAME}")
            for i, name in enumerate(names)
            if len(name) > MAX_NAME
        ]
        if self.columns > MAX_COLUMNS:
            problems.append(Problem("/fields", f"makes {self.columns} columns; expected at most {MAX_COLUMNS}"))
        return problems

    @property
    def columns(self) -> int:
        """The widths of all fields."""
        return sum(one.width for one in self.fields)

    def encode(self, values: Sequence[Any], typed: bool = False) -> Rows:  # noqa: ARG002 - any value is looked at
        """One float64 per field: the number, or 53 bits of the category's hash; NaN where missing."""
        problems = _Problems()
        known = {one.name for one in self.fields}
        missing = [math.nan] * len(self.fields)
        rows: list[list[float]] = []
        places: list[int] = []
        texts: list[str] = []
        for i, event in enumerate(values):
            if not isinstance(event, Mapping):
                problems.add(i, "", f"is {show(event)}; expected an object of names and values")
            elif self.extra == "refuse" and not known.issuperset(event):
                name = next(name for name in event if name not in known)
                detail = f"is not declared; declared fields are {', '.join(sorted(known))[:300]}"
                problems.add(i, pointer(name), detail)
            else:
                rows.append(missing.copy())
                self._event(problems, i, event, rows[-1], places, texts)
            if problems.full:
                break
        problems.check()
        X = np.array(rows, dtype=np.float64).reshape(len(values), len(self.fields))
        X.ravel()[places] = (hash_strings(texts) >> np.uint64(11)).astype(np.float64)
        return X

    def _event(
        self,
        problems: _Problems,
        i: int,
        event: Mapping[str, Any],
        row: list[float],
        places: list[int],
        texts: list[str],
    ) -> None:
        """Fill the numbers of an event into its row; append its categories, and where in the matrix they belong."""
        for k, field in enumerate(self.fields):
            value = event.get(field.name)
            if value is None:
                continue
            if field.kind == "categorical":
                if not isinstance(value, (str, bool)) and number_fault(value):
                    detail = f"is {show(value)}; expected a string, boolean, finite number or null"
                    problems.add(i, pointer(field.name), detail)
                    return
                places.append(i * len(row) + k)
                texts.append(_text(value))
            elif not isinstance(value, bool) and (fault := number_fault(value)):
                problems.add(i, pointer(field.name), f"{fault} or null")
                return
            else:
                row[k] = _signed_log(value) if field.log else float(value)


KINDS: dict[str, type[Features]] = {one.KIND: one for one in (Dense, SparseColumns, Named, Table)}


def features_of(values: Any) -> Features:
    """The kind that a learner's configuration names, `{"kind": "dense", "dim": 8}`. Raises `Refused`."""
    if not isinstance(values, Mapping):
        raise Refused([Problem("", f"is {show(values)}; expected an object with a kind")])
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise Refused([Problem("/kind", f"is {show(kind)}; expected one of {', '.join(KINDS)}")])
    return KINDS[kind].of({name: value for name, value in values.items() if name != "kind"})
