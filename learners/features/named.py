"""Encode features that are names and values: hashed (`Named`), or declared (`Table`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from learners.features.feature_kinds import MAX_COLUMNS, MAX_NONZERO, Features, Problems, number_fault
from learners.features.field_encoder import MAX_NAME, FieldEncoder
from learners.features.field_summary import FieldKind
from learners.features.value_rule import (
    LOST_DIGITS,
    ValueKind,
    declared_number,
    loses_digits,
    normalised,
    read_text,
    signed_log,
    spelt_boolean,
    spelt_number,
    value_of,
)
from learners.numerics import Rows, hash_strings
from learners.settings import InvalidInput, Parameters, Problem, param, pointer, required, show, show_feature
from rarestream.values import plain_value

__all__ = ["MAX_LISTED", "MAX_NAME", "MAX_SPELT", "Field", "Named", "Table", "spelt_category"]

MAX_SPELT = 512  # characters of a column's name, which includes values
_EXPANSION = 18  # entries at most per character of a text: U+FDFA is as many in form NFKC
MAX_LISTED = 256  # fields in each of the lists `text`, `categorical` and `log`


def spelt_category(value: Any) -> str | None:
    """Spell the category of a value; None if it is missing. Raises ValueError if it is none."""
    kind, number, text = ValueKind.NUMBER, value, ""
    if isinstance(value, str):
        kind, number, text = read_text(value)
    elif value is None:
        return None
    elif isinstance(value, bool):
        kind = ValueKind.BOOLEAN
    elif number_fault(value):
        raise ValueError(f"is {show_feature(value)}; expected a string, boolean, finite number or null")
    if loses_digits(kind, number):
        raise ValueError(f"is {show(value)}, {LOST_DIGITS}")
    if kind == ValueKind.BOOLEAN:
        return spelt_boolean(number)
    return spelt_number(number) if kind <= ValueKind.NUMBER_TEXT else text or None


def _spelt(tokens: Iterable[str]) -> str:
    """Name a column that these tokens share: cut if too long, with escapes for what UTF-8 cannot encode."""
    name = " + ".join(tokens)[: MAX_SPELT + 1].encode("utf-8", "backslashreplace").decode()
    return name if len(name) <= MAX_SPELT else name[: MAX_SPELT - 3] + "..."


@lru_cache(maxsize=16)  # the events of a learner have few sets of names
def _field_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of fields as a learner remembers them, once each. O(characters)."""
    return tuple(dict.fromkeys(map(normalised, names)))


@lru_cache(maxsize=256)  # learners of the same features share what it caches of names
def _encoder(features: Named) -> FieldEncoder:
    return FieldEncoder(features.columns, features.declared_kinds, features.words)


@dataclass(frozen=True)
class Named(Features):
    """Names and values, hashed: only the meaning of numbers and texts is declared."""

    bits: int = param(18, "2^bits columns to hash into", least=4, most=24)
    text: tuple[str, ...] = param((), "fields that are text: lower-case words and pairs of neighbouring words")
    categorical: tuple[str, ...] = param((), "fields whose numbers are names, such as a customer's number")
    log: tuple[str, ...] = param((), "numeric fields to take as sign(v) log(1 + |v|): other values are refused")
    words: Literal["normalised", "literal"] = param(
        "normalised", "how text is split into words; literal: as learners of earlier versions do", earlier="literal"
    )
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

    @property
    def declared_kinds(self) -> dict[str, FieldKind]:
        """The kinds of declared fields, by name; `categorical` wins over `log`, `text` over both."""
        kinds = ((self.log, FieldKind.NUMBER), (self.categorical, FieldKind.CATEGORY), (self.text, FieldKind.TEXT))
        return {normalised(name): kind for names, kind in kinds for name in names}

    def field_names(self, values: Sequence[Any]) -> tuple[str, ...]:
        """Return the names of the fields of events that `encode` accepted, as a learner remembers them. O(fields)."""
        names: dict[str, None] = {}
        shape: list[Any] = []
        for event in values:
            if (keys := list(event)) != shape:  # most events have the names of the one before
                spelt = list(map(str, keys))
                names.update(dict.fromkeys(spelt))
                shape = keys if keys == spelt else []  # 1 and True are equal, but not spelt the same
        return _field_names(tuple(names))

    def encode(self, values: Sequence[Any], typed: bool = False, most: int = MAX_NONZERO) -> Rows:  # noqa: ARG002
        """Encode events as CSR rows of entries, see `fields.py`, and hashed columns; see `Features.encode`."""
        return _encoder(self).encode(values, most)

    def cut_texts(self, event: Mapping[Any, Any], most: int = MAX_NONZERO) -> list[str]:
        """Return the names of the texts of a valid event of which only the first words are learnt. O(words)."""
        size = sum(len(value) for value in event.values() if isinstance(value, str))
        return _encoder(self).cut_texts(event, most) if self.text and size * _EXPANSION > most else []

    def names(self, value: Any, columns: Sequence[int]) -> list[str]:
        """Name columns as they are hashed: `amount`, `country=DE`, in a list `items=gift card`, in a text `body~money`.

        Features that share a column are joined by " + ", in the event's order. A number names a column as a category if
        nothing else of the event does. At most `MAX_SPELT` characters each. See `Features.names`.
        """
        sharing: dict[int, dict[str, None]] = {column: {} for column in columns}
        for tokens in _encoder(self).tokens(value):
            free = {column for column in columns if not sharing[column]}
            for token, column in tokens:
                if column in free:
                    sharing[column][token] = None  # once, even if the event repeats it
        return [_spelt(sharing[column]) for column in columns]


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
    """Declared fields as a small dense vector, so that full-covariance CBR works on named events.

    Values are read by the rule of values, names as well.
    """

    fields: tuple[Field, ...] = required("the declared fields, in the order of their columns")
    extra: Literal["refuse", "ignore"] = param("refuse", "what happens to a feature that is not declared")
    KIND: ClassVar[str] = "table"
    MEMBER: ClassVar[str] = "features"

    def __post_init__(self) -> None:
        super().__post_init__()
        if problems := self._layout_problems():
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

    def objections(self) -> list[Problem]:
        """List fields whose names differ only in blanks around them, or in Unicode's form."""
        names = [normalised(field.name) for field in self.fields]
        detail = "is the name of an earlier field, too, once trimmed and in form NFC"
        return [Problem(f"/fields/{i}/name", detail, "conflict") for i, name in enumerate(names) if name in names[:i]]

    @property
    def columns(self) -> int:
        """The sum of the widths of all fields."""
        return sum(field.width for field in self.fields)

    def encode(self, values: Sequence[Any], typed: bool = False, most: int = MAX_NONZERO) -> Rows:  # noqa: ARG002
        """Encode each field as one float64: the number, or 53 bits of the category's hash; NaN if missing.

        An event with features, none of which is declared, is refused even if `extra` is `ignore`: it was meant for
        another learner. An event without any feature has everything missing.
        """
        problems = Problems()
        declared = {normalised(field.name): field.name for field in self.fields}
        missing = [math.nan] * len(self.fields)
        rows: list[list[float]] = []
        places: list[int] = []
        texts: list[str] = []
        for i, event in enumerate(values):
            if not isinstance(event, Mapping):
                problems.add(i, "", f"is {show(event)}; expected an object of names and values")
            else:
                rows.append(missing.copy())
                self._event(problems, i, self._by_field(problems, i, event, declared), rows[-1], places, texts)
            if problems.full:
                break
        problems.check()
        X = np.array(rows, dtype=np.float64).reshape(len(values), len(self.fields))
        X.ravel()[places] = (hash_strings(texts) >> np.uint64(11)).astype(np.float64)
        return X

    def _by_field(
        self, problems: Problems, i: int, event: Mapping[Any, Any], declared: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """Return the values of an event by the names of fields, of which some of the event's may be other spellings."""
        if not event or all(declared.get(name) == name for name in event):
            return event
        values: dict[str, Any] = {}
        for name, value in event.items():
            field = declared.get(normalised(str(name)))
            if field is None and self.extra == "refuse":
                detail = f"is not declared; declared fields are {', '.join(sorted(declared))[:300]}"
                problems.add(i, pointer(name), detail)
            elif field is not None and value is not None and values.get(field) is not None:
                problems.add(i, pointer(name), "is the name of another field, too, once trimmed and in form NFC")
            elif field is not None and (value is not None or field not in values):
                values[field] = value
        if not values:
            problems.add(i, "", f"has none of the declared fields, which are {', '.join(sorted(declared))[:300]}")
        return values

    def names(self, value: Any, columns: Sequence[int]) -> list[str]:
        """Name columns by field and category: `amount`, `country=DE`; `amount (missing)` if the event lacks it.

        At most `MAX_SPELT` characters each. See `Features.names`.
        """
        names = []
        for field in (self.fields[column] for column in columns):
            feature = value_of(value, field.name)
            read = spelt_category(feature) if field.kind == "categorical" else declared_number(feature)
            if read is None:
                names.append(_spelt([f"{field.name} (missing)"]))
            else:
                names.append(_spelt([f"{field.name}={read}"]) if field.kind == "categorical" else field.name)
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
            try:
                kind = type(value)
                if kind is not str and (kind is not float or value - value):  # a float that is not finite
                    value = plain_value(value)
                if field.kind == "categorical":
                    if (text := spelt_category(value)) is not None:
                        places.append(i * len(row) + k)
                        texts.append(text)
                elif (number := declared_number(value)) is not None:
                    row[k] = signed_log(number) if field.log else number
            except ValueError as error:
                problems.add(i, pointer(field.name), str(error))
                return
