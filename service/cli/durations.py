"""Lengths of time as people write and read them: 45s, 30m, 12h, 7d."""

from __future__ import annotations

import math

__all__ = ["roughly", "seconds_of", "spoken"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_NAMES = {"d": "d", "h": "h", "m": "min", "s": "s"}  # from the longest


def seconds_of(text: str) -> float:
    """The seconds that a text like 7d, 1.5h, 30m, 45s or 45 stands for. Raises ValueError."""
    text = text.strip()
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    try:
        value = float(number) * _UNITS[unit]
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"{text!r}; expected a number with s, m, h or d: 45s, 30m, 12h, 7d")
    return value


def roughly(seconds: float) -> str:
    """A length of time as a whole number of the largest unit of which it has one: "7 d", "2 h", "0 s"."""
    unit = next((unit for unit in _NAMES if abs(seconds) >= _UNITS[unit]), "s")
    return f"{round(seconds / _UNITS[unit])} {_NAMES[unit]}"


def spoken(seconds: float) -> str:
    """A length of time in the largest unit of which it has one: "7 d", "1.5 h", "0.25 s"."""
    unit = next((unit for unit in _NAMES if abs(seconds) >= _UNITS[unit]), "s")
    return f"{seconds / _UNITS[unit]:.4g} {_NAMES[unit]}"
