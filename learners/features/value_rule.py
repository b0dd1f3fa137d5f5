"""The rule that turns a value of a named event into what is learnt. It stands here once, for every door.

A value is a number, a text, a boolean, a list or null, as JSON has them. Names and texts are trimmed, without invisible
characters, and in Unicode's form NFC. An empty text is null. The table of the rule is in docs/reference/learners.md.

    read_text         a text of any field
    declared_number   a value of a field that is declared numeric
    column_number     a text of a field that holds numbers, undeclared: what is no number there is missing
    cell_value        a text of a door that has nothing but text, so that numbers are text, too: files and flat messages
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from learners.features.feature_kinds import LARGEST, number_fault
from learners.features.words import visible
from learners.settings import show
from rarestream.values import plain_value

__all__ = [
    "EXACT",
    "LOST_DIGITS",
    "MISSING",
    "ValueKind",
    "cell_value",
    "column_number",
    "declared_fault",
    "declared_number",
    "is_missing",
    "is_plain",
    "is_too_large",
    "loses_digits",
    "name_reason",
    "normalised",
    "read_declared",
    "read_text",
    "sent_as",
    "signed_log",
    "spelt_boolean",
    "spelt_number",
    "value_of",
]

EXACT = 2**53  # whole numbers beyond it are names, because float64 cannot tell them apart
LOST_DIGITS = "a number beyond 2^53 whose last digits are lost; send names as text"
_EXACT_DIGITS = 16  # of 2^53
MISSING = frozenset(
    {
        *("nan", "na", "n/a", "n.a.", "<na>", "#n/a", "#na", "#n/a n/a", "nat", "null", "(null)", "none", "nil"),
        *("undefined", "unknown", "missing", "?", "-", "--", ".", "\\n"),
        *("#null!", "#ref!", "#value!", "#num!", "#name?", "#div/0!"),  # errors of spreadsheets
    }
)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?P<fraction>\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
# the most frequent numbers, of which none is a name
is_plain = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]+)?", re.ASCII).fullmatch
_INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.ASCII | re.IGNORECASE)
_NOT_FINITE = re.compile(rf"[+-]?nan|{_INFINITE.pattern}", re.ASCII | re.IGNORECASE)
_BEGINS_NUMBER = frozenset("0123456789+-.")
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


class ValueKind(IntEnum):
    """How a value was sent. The numbers are part of the stored format."""

    NUMBER = 1
    WHOLE_TEXT = 2  # a text that spells a whole number
    NUMBER_TEXT = 3  # a text that spells a number with a fraction or an exponent
    BOOLEAN = 4
    TEXT = 5
    MISSING_TEXT = 6  # a text such as NA, which is missing if the field has numbers, else a category
    LIST = 7  # or the words of a text field


_NUMBERS = (ValueKind.NUMBER, ValueKind.WHOLE_TEXT, ValueKind.NUMBER_TEXT, ValueKind.BOOLEAN)  # in fields of numbers
_FRACTION, _WHOLE_NUMBER = ValueKind.NUMBER_TEXT, ValueKind.WHOLE_TEXT


def normalised(text: str) -> str:
    """Trim a text, remove its invisible characters, and bring it to Unicode's form NFC. O(characters)."""
    trimmed = text.strip()
    return trimmed if trimmed.isascii() else unicodedata.normalize("NFC", visible(trimmed).strip())


def value_of(event: Mapping[Any, Any], name: str) -> Any:
    """Return the plain value of a field of an event that `Features.encode` accepted, None without one.

    The name may be spelt otherwise: O(fields) then.
    """
    if name in event:
        return plain_value(event[name])
    name = normalised(name)
    return plain_value(next((value for other, value in event.items() if normalised(str(other)) == name), None))


def name_reason(text: str) -> str | None:
    """Say why a trimmed text that spells a whole number is a name; None if it is a number, or spells none."""
    if not _WHOLE.fullmatch(text):
        return None
    digits = text.lstrip("+-")
    if digits[0] == "0" and len(digits) > 1:
        return "has a leading zero"
    return "is beyond 2^53" if len(digits) > _EXACT_DIGITS or int(digits) > EXACT else None


def _number_of_text(text: str) -> float | None:
    """Read a decimal number of any size, infinite beyond those of float64; None if the text spells none."""
    return float(text) if text[:1] in _BEGINS_NUMBER and _NUMBER.fullmatch(text) else None


def read_text(text: str) -> tuple[ValueKind, float, str]:
    """Return how a text reads, its number (0 or 1 for a boolean, 0 for a name), and the normalised text.

    Whole numbers with leading zeros or beyond 2^53 are names. Other numbers beyond `LARGEST` are missing in a field of
    numbers. An empty text is missing at any field.
    """
    if is_plain(text):
        return _FRACTION if "." in text else _WHOLE_NUMBER, float(text), text
    text = normalised(text)
    if not text:
        return ValueKind.TEXT, 0.0, text
    value = _number_of_text(text)
    if value is not None:
        if _WHOLE.fullmatch(text):
            return (ValueKind.TEXT, 0.0, text) if name_reason(text) else (ValueKind.WHOLE_TEXT, value, text)
        kind = ValueKind.NUMBER_TEXT if abs(value) <= LARGEST else ValueKind.MISSING_TEXT
        return kind, value if kind == ValueKind.NUMBER_TEXT else 0.0, text
    if text in _BOOLEANS:
        return ValueKind.BOOLEAN, float(_BOOLEANS[text]), text
    missing = text.lower() in MISSING or _NOT_FINITE.fullmatch(text)
    return ValueKind.MISSING_TEXT if missing else ValueKind.TEXT, 0.0, text


def is_too_large(text: str) -> bool:
    """Tell whether a text spells a number beyond `LARGEST`, or an infinite one."""
    value = _number_of_text(text.strip())
    return _INFINITE.fullmatch(text.strip()) is not None if value is None else abs(value) > LARGEST


def is_missing(text: str) -> bool:
    """Tell whether a text is missing in a field of numbers."""
    kind, _, text = read_text(text)
    return not text or kind == ValueKind.MISSING_TEXT


def sent_as(value: Any) -> ValueKind | None:
    """Return how a value of an undeclared field is sent; None if it is missing at any field."""
    if isinstance(value, str):
        kind, _, text = read_text(value)
        return kind if text else None
    if value is None or isinstance(value, bool):
        return None if value is None else ValueKind.BOOLEAN
    if isinstance(value, int):
        return ValueKind.TEXT if abs(value) > EXACT else ValueKind.NUMBER
    return ValueKind.NUMBER if isinstance(value, float) else ValueKind.LIST


def read_declared(text: str) -> tuple[ValueKind, float, str]:
    """Return the same of a text in a field that is declared numeric.

    Any whole number is a number there. A finite one beyond `LARGEST` is a name, which the field refuses.
    """
    kind, number, text = read_text(text)
    if kind in (ValueKind.TEXT, ValueKind.MISSING_TEXT) and (value := _number_of_text(text)) is not None:
        if abs(value) <= LARGEST:
            return ValueKind.NUMBER_TEXT, value, text
        return ValueKind.TEXT if math.isfinite(value) else kind, 0.0, text
    return kind, number, text


def declared_number(value: Any) -> float | None:
    """Return the number of a value in a field that is declared numeric; None if it is missing.

    Raises ValueError if it is neither.
    """
    if isinstance(value, str):
        kind, number, text = read_declared(value)
        if kind in _NUMBERS:
            return number
        if not text or kind == ValueKind.MISSING_TEXT:
            return None
    elif value is None or isinstance(value, bool):
        return None if value is None else float(value)
    if fault := declared_fault(value):
        raise ValueError(f"{fault} or null")
    return float(value)


def declared_fault(value: Any) -> str | None:
    """Describe what is wrong with a value that is not missing in a field that is declared numeric, if anything."""
    if isinstance(value, str) and is_too_large(value):
        return f"is {show(value)}; expected at most {LARGEST:g} in magnitude"
    return number_fault(value)


def column_number(text: str) -> float | None:
    """Return the number of a text in an undeclared field of numbers; None if nothing is learnt of it."""
    kind, number, _ = read_text(text)
    return number if kind in _NUMBERS else None


def cell_value(text: str) -> float | str:
    """Return the value of a text of a door that has nothing but text: the number that it spells, or the text."""
    kind, number, _ = read_text(text)
    return number if kind in (ValueKind.WHOLE_TEXT, ValueKind.NUMBER_TEXT) else text


def loses_digits(kind: ValueKind, value: Any) -> bool:
    """Tell whether a number that is meant as a name has lost its last digits: a float beyond 2^53, also as text."""
    is_float = kind == ValueKind.NUMBER_TEXT or isinstance(value, float)
    return is_float and kind <= ValueKind.NUMBER_TEXT and abs(value) > EXACT


def spelt_boolean(value: float) -> str:
    """Spell a boolean as a category."""
    return "true" if value else "false"


def signed_log(value: float) -> float:
    """Return sign(v) log(1 + |v|)."""
    return math.copysign(math.log1p(abs(value)), value)


def spelt_number(value: Any) -> str:
    """Spell a number as a category: 17, 17.0 and "17" are the category 17."""
    if isinstance(value, int):
        return str(value)
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(float(value))
