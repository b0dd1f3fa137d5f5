"""Declared settings: one way to name, document and check the parameters of every part of a learner.

    @dataclass(frozen=True)
    class Params(Parameters):
        C: float = param(2.0**-8, "how far one pair (a positive, a negative) may move the ranker", above=0)

gives a checked constructor (`/C: is -1; expected more than 0`), a constructor from JSON that lists every problem with a
pointer to it, and a JSON schema for the HTTP catalogue and the forms built from it.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar

from rarestream.values import show, show_feature

__all__ = [
    "ABSENT",
    "InvalidInput",
    "Parameters",
    "Problem",
    "completed",
    "length_mismatch",
    "param",
    "pointer",
    "required",
    "show",
    "show_feature",
]

Value = TypeVar("Value")
ABSENT: Final = object()  # the value of a problem that has none: a member is missing, or JSON cannot express it
_MOST_UNKNOWN = 100  # unknown members, or wrong items, that are reported of a million
_LONGEST_VALUE = 120  # characters of a string that a problem repeats
_LARGEST_VALUE = 2**53  # whole numbers up to here are the same in every JSON parser


class Problem(NamedTuple):
    """One error in an input. Programs read the data; `detail` is text for people and may be reworded."""

    pointer: str  # JSON pointer (RFC 6901) to the offending value, "" for the whole input
    detail: str
    code: Literal["conflict", "invalid", "missing", "unknown"] = "invalid"
    value: Any = ABSENT  # the offending scalar, or the unknown name; bounded in size
    expected: Mapping[str, Any] | None = None  # JSON schema of what would be accepted

    @classmethod
    def mismatch(cls, pointer: str, value: Any, words: str, expected: Mapping[str, Any] | None = None) -> Self:
        """Report a value that is not as expected, or missing (`ABSENT`). `words` describe `expected` to people."""
        if value is ABSENT:
            return cls(pointer, f"is missing; expected {words}", "missing", ABSENT, expected)
        return cls(pointer, f"is {show(value)}; expected {words}", "invalid", _json_value(value), expected)

    @classmethod
    def choice(cls, pointer: str, value: Any, choices: Iterable[str]) -> Self:
        """Report a value that is none of the choices."""
        choices = list(choices)
        return cls.mismatch(pointer, value, f"one of {', '.join(choices)}", {"enum": choices})

    @classmethod
    def unknown(cls, prefix: str, name: Any, names: Iterable[str], noun: str = "setting") -> Self:
        """Report the unknown name of a member of the object at `prefix`."""
        names = list(names)
        detail = f"unknown {noun}; expected {'one of ' if len(names) > 1 else ''}{', '.join(names) or 'none'}"
        return cls(prefix + pointer(name), detail, "unknown", _json_value(name), {"enum": names})

    @classmethod
    def all_unknown(cls, values: Iterable[Any], names: Sequence[str], noun: str = "setting") -> list[Self]:
        """Report the first members of an object that are none of the names."""
        expected = frozenset(names)
        unknown = (name for name in values if name not in expected)
        return [cls.unknown("", name, names, noun) for name in islice(unknown, _MOST_UNKNOWN)]

    def under(self, prefix: str) -> Self:
        """Return the problem as seen from a document that holds the input at `prefix`."""
        return self._replace(pointer=prefix + self.pointer)

    def to_json(self) -> dict[str, Any]:
        """Return the entry of a problem document; `value` and `expected` only if there are any."""
        entry: dict[str, Any] = {"pointer": self.pointer, "detail": self.detail, "code": self.code}
        if self.value is not ABSENT:
            entry["value"] = self.value
        return entry if self.expected is None else {**entry, "expected": self.expected}


def _json_value(value: Any) -> Any:
    """Return a scalar that every JSON parser reads, of bounded size; `ABSENT` for anything else."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):  # a lone surrogate has no UTF-8
        return value[:_LONGEST_VALUE].encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int):
        return int(value) if abs(value) <= _LARGEST_VALUE else ABSENT
    return float(value) if isinstance(value, float) and math.isfinite(value) else ABSENT


class InvalidInput(ValueError):
    """Invalid input, which changed nothing; lists every problem (of a batch: the first 100)."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(f"{p.pointer}: {p.detail}" if p.pointer else p.detail for p in self.problems))

    def under(self, prefix: str) -> InvalidInput:
        """Return the same problems for a document that contains the input at `prefix`."""
        return InvalidInput([problem.under(prefix) for problem in self.problems])


def completed(value: Any, default: Mapping[str, Any], chooser: str | None = None) -> Any:
    """Complete an object of settings, or null, by defaults, which hold only for their own value of `chooser`."""
    if value is not None and not isinstance(value, Mapping):
        return value
    choices = dict(value or {})
    if chooser is not None and choices.get(chooser) not in (None, default.get(chooser)):
        return choices
    return {**default, **choices}


def length_mismatch(count: int, events: int) -> str:
    """Describe a column of the wrong length: `has 1 entry for 2 events`."""
    return f"has {count} {'entry' if count == 1 else 'entries'} for {events} event{'s' * (events != 1)}"


def param(
    default: Value,
    doc: str,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    unit: Literal["seconds", "bytes"] | None = None,
    applies_to: Mapping[str, Sequence[str]] | None = None,
    earlier: Value | None = None,
) -> Value:
    """Declare a field of a `Parameters` class: its meaning and its range (`least` and `most` are allowed values).

    A `unit` goes into the JSON schema, beside the range, for programs that show the number. So does `applies_to`, as
    `x-applies-to`: a setting beside this one, and those of its values with which this setting has an effect.

    A stored document that lacks the setting is older than it. It is read with `earlier`, if that is given, instead of
    the default; see `Parameters.as_stored`.
    """
    facts: dict[str, Any] = {"above": above, "least": least, "below": below, "most": most}
    facts |= {"unit": unit, "applies_to": applies_to, "earlier": earlier}
    metadata = {"doc": doc, **{name: fact for name, fact in facts.items() if fact is not None}}
    if isinstance(default, (list, dict)):
        raise TypeError("a default must be immutable")
    return field(default=default, metadata=metadata)


def required(
    doc: str,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> Any:
    """Declare a field like `param`, but without a default."""
    return param(dataclasses.MISSING, doc, above=above, least=least, below=below, most=most)


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(kind: type) -> dict[str, Any]:
    """Return the types of a class's fields; cached, because resolving them takes longer than all checks."""
    hints = _HINTS.get(kind)
    if hints is None:
        hints = _HINTS[kind] = typing.get_type_hints(kind)
    return hints


@dataclass(frozen=True)
class Parameters:
    """Base of all settings: frozen, checked on construction."""

    def __post_init__(self) -> None:
        hints = _hints(type(self))
        problems = []
        for item in fields(self):
            value, more = _checked(item.name, getattr(self, item.name), hints[item.name], item.metadata)
            problems += more
            if not more:
                object.__setattr__(self, item.name, value)
        if problems:
            raise InvalidInput(problems)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Read parsed JSON. Raises `InvalidInput` with all unknown names, missing names and invalid values."""
        if not isinstance(values, Mapping):
            raise InvalidInput([Problem.mismatch("", values, "an object", {"type": "object"})])
        items = {item.name: item for item in fields(cls)}
        hints = _hints(cls)
        problems = Problem.all_unknown(values, sorted(items))
        missing = [
            Problem(f"/{item.name}", "is missing", "missing", ABSENT, _schema(hints[item.name], item))
            for item in items.values()
            if item.default is dataclasses.MISSING
            and item.default_factory is dataclasses.MISSING
            and item.name not in values
        ]
        present = {name: values[name] for name in items if name in values}
        if missing:
            problems += missing
            for name, value in present.items():
                problems += _checked(name, value, hints[name], items[name].metadata)[1]
            raise InvalidInput(problems)
        try:
            parameters = cls(**present)
        except InvalidInput as error:
            problems += error.problems
        if problems:
            raise InvalidInput(problems)
        return parameters

    def as_stored(self, stored: Any) -> Self:
        """Return the settings, with earlier values of those that the `stored` document lacks and that matter."""
        present = stored if isinstance(stored, Mapping) else {}
        earlier = {
            item.name: item.metadata["earlier"]
            for item in fields(self)
            if "earlier" in item.metadata
            and item.name not in present
            and all(getattr(self, name) in values for name, values in item.metadata.get("applies_to", {}).items())
        }
        return dataclasses.replace(self, **earlier)

    def to_json(self) -> dict[str, Any]:
        """Return what `of` takes back, with every default written out."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema (2020-12) of the parameters."""
        hints = _hints(cls)
        properties = {item.name: _schema(hints[item.name], item) for item in fields(cls)}
        required = [item.name for item in fields(cls) if item.default is dataclasses.MISSING]
        body: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        return body | {"required": required} if required else body


def _plain(value: Any) -> Any:
    if isinstance(value, Parameters):
        return value.to_json()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def pointer(name: Any) -> str:
    """Return the JSON pointer to a member: at most 200 characters of its name, with escapes."""
    text = str(name)[:200].encode("utf-8", "backslashreplace").decode()
    return "/" + text.replace("~", "~0").replace("/", "~1")


def _show_number(value: float) -> str:
    """Write a number with every digit, because "1e+06" does not exceed 1,000,000; whole floats without a fraction."""
    return show(int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value)


def _checked(name: str, value: Any, hint: Any, limits: Mapping[str, Any]) -> tuple[Any, list[Problem]]:
    """Convert a value to its type (an int for a float becomes a float), or report what is wrong with it.

    An object is read as settings if its type is `Parameters`. Of a list, the first wrong items are reported.
    """
    fits, converted = _fits(value, hint)
    if fits:
        problem = _out_of_range(name, converted, hint, limits)
        return converted, [problem] if problem else []
    for option in _options(hint):
        if _is_settings(option) and isinstance(value, Mapping):
            try:
                return option.of(value), []
            except InvalidInput as error:
                return value, error.under(f"/{name}").problems
        if typing.get_origin(option) is tuple and isinstance(value, (list, tuple)):
            return _checked_items(name, value, typing.get_args(option)[0])
    return value, [Problem.mismatch(f"/{name}", value, _describe(hint), _range_schema(hint, limits))]


def _checked_items(name: str, values: Sequence[Any], hint: Any) -> tuple[tuple[Any, ...], list[Problem]]:
    """Convert the items of a list, or report the first that are wrong."""
    items: list[Any] = []
    problems: list[Problem] = []
    for i, value in enumerate(values):
        item, more = _checked(f"{name}/{i}", value, hint, {})
        items.append(item)
        problems += more
        if len(problems) >= _MOST_UNKNOWN:
            break
    return tuple(items), problems


def _options(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union; else the type itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _is_settings(hint: Any) -> bool:
    return isinstance(hint, type) and typing.get_origin(hint) is None and issubclass(hint, Parameters)


def _fits(value: Any, hint: Any) -> tuple[bool, Any]:
    if len(options := _options(hint)) > 1:
        return next((result for option in options if (result := _fits(value, option))[0]), (False, value))
    origin = typing.get_origin(hint)
    if hint is type(None):
        return value is None, None
    if origin is Literal:
        return isinstance(value, str) and value in typing.get_args(hint), value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            return False, value
        parts = [_fits(item, typing.get_args(hint)[0]) for item in value]
        return all(fits for fits, _ in parts), tuple(item for _, item in parts)
    if hint is float:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1.7e308
        return (True, float(value)) if fits and math.isfinite(value) else (False, value)
    if hint is int:
        is_integer = isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 2**53)
        return (True, int(value)) if is_integer and not isinstance(value, bool) else (False, value)
    if hint is bool:
        return isinstance(value, bool), value
    if hint is str:  # half a surrogate pair fits into neither UTF-8 nor a record of the log
        return isinstance(value, str) and value.encode("utf-8", "ignore").decode() == value, value
    return isinstance(value, hint), value


def _describe(hint: Any) -> str:
    if len(options := _options(hint)) > 1:
        return " or ".join(map(_describe, options))
    if _is_settings(hint):
        return "an object"
    origin = typing.get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(typing.get_args(hint))
    if origin is tuple:
        return f"a list, each item {_describe(typing.get_args(hint)[0])}"
    names = {float: "a finite number", int: "a whole number", bool: "true or false", str: "a string (of valid Unicode)"}
    return "null" if hint is type(None) else names.get(hint, getattr(hint, "__name__", str(hint)))


def _out_of_range(name: str, value: Any, hint: Any, limits: Mapping[str, Any]) -> Problem | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    for key, (holds, words) in _TESTS.items():
        if key in limits and not holds(value, limits[key]):
            detail = f"is {_show_number(value)}; expected {words} {_show_number(limits[key])}"
            return Problem(f"/{name}", detail, "invalid", _json_value(value), _range_schema(hint, limits))
    return None


_TESTS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "above": (operator.gt, "more than"),
    "least": (operator.ge, "at least"),
    "below": (operator.lt, "less than"),
    "most": (operator.le, "at most"),
}
_BOUNDS = {"above": "exclusiveMinimum", "least": "minimum", "below": "exclusiveMaximum", "most": "maximum"}


def _range_schema(hint: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a type with its bounds and its unit."""
    body = _type_schema(hint)
    target = next((part for part in body.get("anyOf", ()) if part["type"] in ("number", "integer")), body)
    target.update({_BOUNDS[key]: limit for key, limit in metadata.items() if key in _BOUNDS})
    if "unit" in metadata:
        target["unit"] = metadata["unit"]
    return body


def _schema(hint: Any, item: dataclasses.Field[Any]) -> dict[str, Any]:
    body = _range_schema(hint, item.metadata)
    if "applies_to" in item.metadata:
        body["x-applies-to"] = {name: list(values) for name, values in item.metadata["applies_to"].items()}
    if item.metadata.get("doc"):
        body["description"] = item.metadata["doc"]
    if item.default is not dataclasses.MISSING:
        body["default"] = _plain(item.default)
    return body


def _type_schema(hint: Any) -> dict[str, Any]:
    origin = typing.get_origin(hint)
    if len(options := _options(hint)) > 1:
        return {"anyOf": [_type_schema(option) for option in options]}
    if origin is Literal:
        return {"type": "string", "enum": list(typing.get_args(hint))}
    if origin is tuple:
        return {"type": "array", "items": _type_schema(typing.get_args(hint)[0])}
    if _is_settings(hint):
        schema: dict[str, Any] = hint.schema()
        return schema
    return {"type": {float: "number", int: "integer", bool: "boolean", str: "string", type(None): "null"}[hint]}
