"""Encode features that are names and values: hashed (`Named`), or declared (`Table`)."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from learners.features.feature_kinds import MAX_COLUMNS, MAX_NONZERO, Features, Problems, number_fault
from learners.numerics import Counts, Rows, Sparse, Words, hash_strings, kernel
from learners.settings import InvalidInput, Parameters, Problem, param, pointer, required, show

__all__ = ["MAX_LISTED", "MAX_NAME", "MAX_SPELT", "Field", "Named", "Table"]

MAX_NAME = 256  # characters of a feature's name, which each of its tokens repeats
MAX_SPELT = 512  # characters of a column's name, which includes values
MAX_LISTED = 256  # fields in each of the lists `text`, `categorical` and `log`
_TOKENS = 2**16  # tokens that are collected before they are hashed


@kernel
def _canonical(data, indices, indptr):  # type: ignore[no-untyped-def]
    """Sort each row by column and sum values of the same column, in place; return the number of entries."""
    out = 0
    start = 0
    for i in range(indptr.shape[0] - 1):
        stop = indptr[i + 1]
        order = np.argsort(indices[start:stop], kind="mergesort")  # stable: values are summed in order of arrival
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


_WORD = re.compile(r"\w+")


def _text(value: Any) -> str:
    """Spell a category: a whole number is spelt the same as int and as float."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _spelt(tokens: Iterable[str]) -> str:
    """Name a column that these tokens share: cut if too long, with escapes for what UTF-8 cannot encode."""
    name = " + ".join(tokens)[: MAX_SPELT + 1].encode("utf-8", "backslashreplace").decode()
    return name if len(name) <= MAX_SPELT else name[: MAX_SPELT - 3] + "..."


def _signed_log(value: float) -> float:
    return math.copysign(math.log1p(abs(value)), value)


@dataclass(frozen=True)
class Named(Features):
    """Names and values, hashed: only the meaning of numbers and texts is declared."""

    bits: int = param(18, "2^bits columns to hash into", least=4, most=24)
    text: tuple[str, ...] = param((), "fields that are text: lower-case words and pairs of neighbouring words")
    categorical: tuple[str, ...] = param((), "fields whose numbers are names, such as a customer's number")
    log: tuple[str, ...] = param((), "numeric fields to take as sign(v) log(1 + |v|): nothing but numbers or null")
    KIND: ClassVar[str] = "named"
    MEMBER: ClassVar[str] = "features"

    def __post_init__(self) -> None:
        """Check that the lists are short, because each token searches them."""
        super().__post_init__()
        problems = [
            Problem(f"/{name}", f"names {len(fields)} fields; expected at most {MAX_LISTED}")
            for name, fields in (("text", self.text), ("categorical", self.categorical), ("log", self.log))
            if len(fields) > MAX_LISTED
        ]
        if problems:
            raise InvalidInput(problems)

    def objections(self) -> list[Problem]:
        """List fields of `log` that are also declared as text or categorical."""
        others = (("text", self.text), ("categorical", self.categorical))
        return [
            Problem(
                f"/log/{i}",
                f"is {show(field)}, which is declared as {kind}, too; expected a field of numbers",
                "conflict",
            )
            for i, field in enumerate(self.log)
            for kind, fields in others
            if field in fields
        ]

    @property
    def sparse(self) -> bool:
        """Always."""
        return True

    @property
    def columns(self) -> int:
        """2^bits."""
        return 1 << self.bits

    def encode(self, values: Sequence[Any], typed: bool = False) -> Rows:  # noqa: ARG002 - every value is checked
        """Encode events as CSR rows over the hashed columns; see `Features.encode`."""
        problems = Problems()
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
        indices = self._hashed(hashes)
        signs = 1.0 - 2.0 * (hashes >> np.uint64(63)).astype(np.float64)
        signed = np.array(data, dtype=np.float64) * signs
        indptr = np.array(ends, dtype=np.int64)
        size = _canonical(signed, indices, indptr)
        return Sparse(signed[:size].copy(), indices[:size].copy(), indptr)

    def _hashed(self, hashes: Words) -> Counts:
        return (hashes & np.uint64(self.columns - 1)).astype(np.int64)

    def names(self, value: Any, columns: Sequence[int]) -> list[str]:
        """Name columns as they are hashed: `amount`, `country=DE`, in a list `items=gift card`, in a text `body~money`.

        Features that share a column are joined by " + ", in the event's order.
        At most `MAX_SPELT` characters each. See `Features.names`.
        """
        tokens: list[str] = []
        self._event(Problems(), 0, value, tokens, [])
        sharing: dict[int, dict[str, None]] = {column: {} for column in columns}
        for token, column in zip(tokens, self._hashed(hash_strings(tokens)).tolist(), strict=True):
            if column in sharing:
                sharing[column][token] = None  # once, even if the event repeats it
        return [_spelt(sharing[column]) for column in columns]

    def _event(
        self, problems: Problems, i: int, event: Mapping[Any, Any], tokens: list[str], data: list[float]
    ) -> None:
        """Append the tokens of an event, and a number for each; stop if the event is invalid or too long."""
        start = len(data)
        for name, value in event.items():
            if len(str(name)) > MAX_NAME:
                problems.add(i, pointer(name), f"is a name of {len(str(name))} characters; expected at most {MAX_NAME}")
            elif value is not None:
                self._tokens(problems, i, str(name), value, tokens, data)
            if problems.has(i) or len(data) - start > MAX_NONZERO:
                return

    def _tokens(self, problems: Problems, i: int, name: str, value: Any, tokens: list[str], data: list[float]) -> None:
        if isinstance(value, str) and name in self.text:
            # an event with more words than tokens are allowed is refused: the rest need not be read
            words = [match.group() for match in itertools.islice(_WORD.finditer(value.lower()), MAX_NONZERO + 1)]
            tokens += [f"{name}~{word}" for word in words]
            tokens += [f"{name}~{first} {second}" for first, second in itertools.pairwise(words)]
            data += [1.0] * max(0, 2 * len(words) - 1)
        elif (
            (isinstance(value, bool) or not isinstance(value, (int, float)))
            and name in self.log
            and name not in self.categorical
        ):
            detail = f"is {show(value)}; expected a number or null, as its log is taken"
            problems.add(i, pointer(name), detail)
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
    log: bool = param(False, "take sign(v) log(1 + |v|)", applies_to={"kind": ["numeric"]})
    categories: int = param(
        16,
        "this many values get a column of their own, by first appearance",
        least=1,
        most=4096,
        applies_to={"kind": ["categorical"]},
    )

    @property
    def width(self) -> int:
        """Number of columns: value and missing bit, or one per category and one for all others."""
        return 2 if self.kind == "numeric" else self.categories + 1


@dataclass(frozen=True)
class Table(Features):
    """Declared fields as a small dense vector, so that full-covariance CBR works on named events."""

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
                except InvalidInput as error:
                    problems += error.under(f"/fields/{i}").problems
            object.__setattr__(self, "fields", tuple(parsed))
        try:
            super().__post_init__()
        except InvalidInput as error:
            problems += error.problems
        if not problems:
            problems = self._layout_problems()
        if problems:
            raise InvalidInput(problems)

    def _layout_problems(self) -> list[Problem]:
        if not self.fields:
            return [Problem("/fields", "is empty; expected at least one field", expected={"minItems": 1})]
        names = [field.name for field in self.fields]
        first = {name: i for i, name in reversed(list(enumerate(names)))}
        problems = [
            Problem(
                f"/fields/{i}/name", f"is {show(name)}, as of field {first[name]}; expected distinct names", "conflict"
            )
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
        """The sum of the widths of all fields."""
        return sum(field.width for field in self.fields)

    def encode(self, values: Sequence[Any], typed: bool = False) -> Rows:  # noqa: ARG002 - every value is checked
        """Encode each field as one float64: the number, or 53 bits of the category's hash; NaN if missing.

        An event with features, none of which is declared, is refused even if `extra` is `ignore`: it was meant for
        another learner. An event without any feature has everything missing.
        """
        problems = Problems()
        declared = {field.name for field in self.fields}
        missing = [math.nan] * len(self.fields)
        rows: list[list[float]] = []
        places: list[int] = []
        texts: list[str] = []
        for i, event in enumerate(values):
            if not isinstance(event, Mapping):
                problems.add(i, "", f"is {show(event)}; expected an object of names and values")
            elif self.extra == "refuse" and not declared.issuperset(event):
                name = next(name for name in event if name not in declared)
                detail = f"is not declared; declared fields are {', '.join(sorted(declared))[:300]}"
                problems.add(i, pointer(name), detail)
            elif event and declared.isdisjoint(event):
                problems.add(i, "", f"has none of the declared fields, which are {', '.join(sorted(declared))[:300]}")
            else:
                rows.append(missing.copy())
                self._event(problems, i, event, rows[-1], places, texts)
            if problems.full:
                break
        problems.check()
        X = np.array(rows, dtype=np.float64).reshape(len(values), len(self.fields))
        X.ravel()[places] = (hash_strings(texts) >> np.uint64(11)).astype(np.float64)
        return X

    def names(self, value: Any, columns: Sequence[int]) -> list[str]:
        """Name columns by field and category: `amount`, `country=DE`; `amount (missing)` if the event lacks it.

        At most `MAX_SPELT` characters each. See `Features.names`.
        """
        names = []
        for field in (self.fields[column] for column in columns):
            feature = value.get(field.name)
            if feature is None:
                names.append(_spelt([f"{field.name} (missing)"]))
            elif field.kind == "categorical":
                names.append(_spelt([f"{field.name}={_text(feature)}"]))
            else:
                names.append(field.name)
        return names

    def _event(
        self,
        problems: Problems,
        i: int,
        event: Mapping[str, Any],
        row: list[float],
        places: list[int],
        texts: list[str],
    ) -> None:
        """Fill the numbers of an event into its row; append its categories and their places in the matrix."""
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
