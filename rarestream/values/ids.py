"""Reads ids of events: text, or a whole number, which is the same id as its text. 2.0 is the whole number 2."""

from __future__ import annotations

import math
from typing import Any

from rarestream.values.plain_value import plain_value
from rarestream.values.quoting import show

__all__ = ["EXPECTED_ID", "MAX_ID", "id_text", "plain_id"]

MAX_ID = 256  # characters
_LARGEST = 2.0**53  # a float of so much may have lost digits
EXPECTED_ID = f"1 to {MAX_ID} printable characters, or a whole number"


def _is_good(text: str) -> bool:
    """Tell whether a text may be an id."""
    return 0 < len(text) <= MAX_ID and text.isprintable()


def plain_id(value: Any) -> Any:
    """Return an id of Python as JSON has it; a whole number beyond 64 bits, which MessagePack lacks, as its text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return int(value) if value.is_integer() and abs(value) < _LARGEST else float(value)
    plain = plain_value(value)
    return plain_id(plain) if isinstance(plain, float) else plain


def id_text(value: Any) -> str | None:
    """Return the text of an id of Python; None if it is missing. Raises ValueError if it is none."""
    plain = plain_id(value)
    if plain is None:
        return None
    text = str(plain) if isinstance(plain, (str, int)) and not isinstance(plain, bool) else ""
    if not _is_good(text):
        raise ValueError(f"is {show(plain)}; expected {EXPECTED_ID}")
    return text
