"""Scan JSON text byte by byte in compiled code; a place of -1 means that something was not found."""

from __future__ import annotations

import numpy as np

from learners.numerics import inlined
from service.wire.kernels.decimals import blank

__all__ = [
    "BEGIN",
    "CLOSE",
    "COLON",
    "COMMA",
    "END",
    "ESCAPE",
    "OPEN",
    "QUOTE",
    "after_blanks",
    "behind",
    "character_at",
    "code",
    "packed",
    "text_end",
]

QUOTE, COMMA, COLON, ESCAPE = 34, 44, 58, 92
OPEN, CLOSE, BEGIN, END = 91, 93, 123, 125  # [ ] { }


def code(word: str) -> int:
    """Pack a word of at most 7 letters into a number."""
    return int.from_bytes(word.encode(), "big")


@inlined
def after_blanks(body, at, stop):  # type: ignore[no-untyped-def]
    """Return the next place that is not blank; -1 stays -1."""
    while 0 <= at < stop and blank(body[at]):
        at += 1
    return at


@inlined
def character_at(body, at, stop, character):  # type: ignore[no-untyped-def]
    """Tell whether a character is at a place."""
    return 0 <= at < stop and body[at] == character


@inlined
def behind(body, at, stop, character):  # type: ignore[no-untyped-def]
    """Skip blanks, a character and blanks again; return the place behind, or -1 if the character is missing."""
    at = after_blanks(body, at, stop)
    return after_blanks(body, at + 1, stop) if character_at(body, at, stop, character) else -1


@inlined
def text_end(body, at, stop):  # type: ignore[no-untyped-def]
    """Return the place of the quote that ends a string at `at`; -1 unless it is printable ASCII without escapes."""
    while at < stop and 32 <= body[at] <= 126 and body[at] != QUOTE and body[at] != ESCAPE:
        at += 1
    return at if character_at(body, at, stop, QUOTE) else -1


@inlined
def packed(body, start, stop):  # type: ignore[no-untyped-def]
    """Pack at most 7 bytes from `start` to `stop` into a number, as `code` does."""
    number = np.int64(0)
    for k in range(start, min(stop, start + 7)):
        number = number << 8 | np.int64(body[k])
    return number
