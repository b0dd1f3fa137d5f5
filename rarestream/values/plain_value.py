"""Turns a value of an event into the value that JSON has for it: number, text, boolean, list, map or null."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import numpy as np

from rarestream.values.quoting import show, show_feature

__all__ = ["EXPECTED_FEATURE", "EXPECTED_ITEM", "LARGEST", "plain_value"]

LARGEST = 1e30  # the largest magnitude of a feature: its powers then stay finite in every algorithm

EXPECTED_FEATURE = "expected a number, string, boolean, list of tokens or null"
EXPECTED_ITEM = "expected a string, number or boolean"
_PLAIN = frozenset({str, bool, type(None)})
_DIGITS = 31  # of whole numbers that a learner takes


def plain_value(value: Any) -> Any:
    """Return the value of a feature as JSON has it: number, text, boolean, list of these, or None.

    - NaN, NaT and NA are null. An infinite number, which JSON does not have, is its text.
    - A decimal is a whole number with all digits, or else a float. A scalar of NumPy or Arrow is what it holds.
    - A date, a time or both is its ISO 8601 text, cut to microseconds. A time difference is its seconds.
    - A set, an array or a column is a list; an enumeration is its value, a UUID its text.

    Raises ValueError for anything else, and for a whole number beyond `LARGEST`. O(1), of lists O(items).
    """
    return _plain(value, EXPECTED_FEATURE)


def _plain(value: Any, expected: str) -> Any:
    """Return the plain value, which for an item of a list is no list; the error says what was `expected`."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        if abs(value) > LARGEST:
            raise ValueError(f"is {show(value)}; expected at most {LARGEST:g} in magnitude")
        return value
    if kind is float:
        return value if math.isfinite(value) else _text_of_infinite(value)
    if isinstance(value, (list, tuple)) and expected is EXPECTED_FEATURE and not any(map(_is_nested, value)):
        return [_plain(item, EXPECTED_ITEM) for item in value]
    if isinstance(value, np.generic):
        return _of_scalar(value, expected)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return plain_value(int(value))
    if isinstance(value, float):
        return plain_value(float(value))
    if isinstance(value, Decimal):
        return _of_decimal(value)
    if isinstance(value, Enum):
        return _plain(value.value, expected)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return _plain(sorted(value, key=str), expected)
    if _is_nested(value):
        raise _refusal(value, expected)
    if _is_missing(value):
        return None
    if isinstance(value, datetime):
        return datetime.isoformat(value)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    for method in ("as_py", "tolist", "to_list"):  # of Arrow's scalars, of arrays and pandas, of polars
        if getattr(kind, method, None) is not None:
            return _plain(getattr(value, method)(), expected)
    raise _refusal(value, expected)


def _is_nested(item: Any) -> bool:
    return isinstance(item, (list, tuple, Mapping))


def _refusal(value: Any, expected: str) -> ValueError:
    return ValueError(f"is {show_feature(value)}; {expected}")


def _text_of_infinite(value: float) -> str | None:
    return None if math.isnan(value) else str(value)


def _of_scalar(value: np.generic, expected: str) -> Any:
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return None
        days = np.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D")
        moment: Any = value.item() if days else value.astype("datetime64[us]").item()
        if not isinstance(moment, date):  # beyond the years 1 to 9999
            raise _refusal(value, expected)
        return moment.isoformat()
    if isinstance(value, np.timedelta64):
        if np.isnat(value):
            return None
        if np.datetime_data(value.dtype)[0] in ("Y", "M", "generic"):
            raise _refusal(value, expected)
        return float(value / np.timedelta64(1, "s"))
    if isinstance(value, np.floating):
        return plain_value(float(value))
    plain = value.item()
    if isinstance(plain, (np.generic, tuple)):  # complex numbers of many bits, records
        raise _refusal(value, expected)
    return plain_value(plain)


def _of_decimal(value: Decimal) -> Any:
    if not value.is_finite():
        return _text_of_infinite(math.nan if value.is_nan() else float(value))
    whole = value.adjusted() < _DIGITS and value == value.to_integral_value()
    return int(value) if whole else plain_value(float(value))


def _is_missing(value: Any) -> bool:
    """Tell whether a value is NaT or NA, without importing pandas: they alone do not equal themselves."""
    try:
        return bool(value != value)
    except TypeError:  # NA is neither true nor false
        return True
    except ValueError:  # an array, or a column
        return False
