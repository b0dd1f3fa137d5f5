"""JSON bodies of dense events to columns, in one pass of compiled code over the bytes.

    {"events": [{"x": [0.5, ...], "label": 1, "weight": 2, "id": "a", "time": 1.7e9}, ...], "source": {...}}

Members come in any order, with any spaces between them. Whatever is unusual (an escape or a byte beyond ASCII in a
string, a member twice or unknown, an event without features, a malformed body, a number that is too large) makes the
body unfit for this: the caller then reads it in another way, which says what is wrong with it, if anything is.

Some 20 ns for a number of 17 digits; without the interpreter's lock, so that bodies are read side by side in threads.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np

from learners.features import LARGEST
from learners.numerics import Matrix, Vector, bare_kernel, inlined
from service.wire.kernels.decimals import decimals
from service.wire.kernels.json_text import (
    BEGIN,
    CLOSE,
    COLON,
    COMMA,
    END,
    OPEN,
    QUOTE,
    after_blanks,
    behind,
    code,
    packed,
    stands,
    text_end,
)

__all__ = ["MAX_ID", "Scanned", "scan"]

MAX_ID = 256  # characters

_LABEL, _WEIGHT, _TIME, _ID, _X, _UNKNOWN = range(6)  # members of an event; the first three are further numbers
_FURTHER = 3
_SOURCE = 4  # the column of row 0 of the notes that has the first byte of the source; the next has the one behind it
_GIVEN_ROW, _IDS_ROW, _COLUMNS = (
    0,
    1,
    6,
)  # of the notes: what is given of each member; the ids; behind them hard numbers
_NO_ID, _TEXT, _WHOLE = range(3)  # kinds of ids
_FLAG, _NUMERIC = 1, 2  # true or false, and numbers: bits of the kinds of a member
_LONGEST_WHOLE = 18  # digits of an id that is a whole number
_HARD, _PER_HARD = 16, 256  # numbers left to `float`: so many, and one for so many bytes, then another way is as fast
_MINUS, _ZERO = 45, 48


class Scanned(NamedTuple):
    """n events as columns, n > 0."""

    rows: Matrix  # (n, dim)
    labels: Vector | None  # (n,) NaN where missing or null; None: not looked for
    weights: Vector | None  # (n,) 1 where not given; None: nowhere
    times: Vector | None  # (n,) NaN where not given; None: nowhere
    ids: tuple[str | None, ...]
    flags: bool  # some label is true or false
    source: bytes | None  # its JSON


_NAMES = tuple(code(name) for name in ("label", "weight", "time", "id", "x"))
_NULL, _TRUE, _FALSE = code("null"), code("true"), code("false")
_EVENTS_NAME, _SOURCE_NAME = code("events"), code("source")


@inlined
def _member(name):  # type: ignore[no-untyped-def]
    """Which member of an event has this packed name."""
    actual = _UNKNOWN
    if name == _NAMES[0]:
        actual = _LABEL
    elif name == _NAMES[1]:
        actual = _WEIGHT
    elif name == _NAMES[2]:
        actual = _TIME
    elif name == _NAMES[3]:
        actual = _ID
    elif name == _NAMES[4]:
        actual = _X
    return actual


@inlined
def _id(body, at, stop, notes, row):  # type: ignore[no-untyped-def]
    """Return the place behind an id, or -1; fill `notes[row]`: kind, start, stop."""
    start = at
    if packed(body, at, min(stop, at + 4)) == _NULL:
        at += 4
    elif stands(body, at, stop, QUOTE):
        end = text_end(body, at + 1, stop)
        notes[row, 0], notes[row, 1], notes[row, 2] = _TEXT, start + 1, end
        at = end + 1 if 0 < end - start - 1 <= MAX_ID else -1
    else:
        if stands(body, at, stop, _MINUS):
            at += 1
        first = at
        while at < stop and 48 <= body[at] <= 57:
            at += 1
        notes[row, 0], notes[row, 1], notes[row, 2] = _WHOLE, start, at
        if not 0 < at - first <= _LONGEST_WHOLE or (body[first] == _ZERO and at - start > 1):
            at = -1
    return at  # where a fraction or an exponent stands, this is behind no number: only a comma or an end may follow


@inlined
def _number(body, at, stop, further, i, member, notes, hard_count):  # type: ignore[no-untyped-def]
    """Return the place behind a number, true, false or null (or -1), its kind, and the hard numbers so far."""
    four = packed(body, at, min(stop, at + 4))
    kind = 0
    if four == _NULL:
        at += 4
    elif four == _TRUE:
        further[i, member] = 1.0
        at += 4
        kind = _FLAG
    elif four == _FALSE >> 8:
        further[i, member] = 0.0
        at = at + 5 if stands(body, at + 4, stop, 101) else -1
        kind = _FLAG
    else:
        at, hard_count = decimals(body, at, stop, further, i, member, member, notes, hard_count, 1)
        kind = _NUMERIC
    return at, kind, hard_count


@inlined
def _event(body, at, stop, labelled, i, X, further, notes, hard_count):  # type: ignore[no-untyped-def]
    """Fill row i of the columns; return the place behind the event at `at` (or -1) and the hard numbers so far."""
    further[i, _LABEL], further[i, _WEIGHT], further[i, _TIME] = np.nan, 1.0, np.nan
    row = _IDS_ROW + i
    notes[row, 0] = _NO_ID
    at = behind(body, at, stop, BEGIN)
    seen = 0
    more = True
    while more:
        end = text_end(body, at + 1, stop) if stands(body, at, stop, QUOTE) else -1
        member = _member(packed(body, at + 1, end))
        if member == _UNKNOWN or seen >> member & 1 or (not labelled and member <= _WEIGHT):
            end = -1
        seen |= 1 << member
        at = behind(body, end + 1, stop, COLON) if end >= 0 else -1
        if at < 0:
            pass
        elif member == _X:
            at = behind(body, at, stop, OPEN)
            if at >= 0:
                at, hard_count = decimals(body, at, stop, X, i, 0, X.shape[1] - 1, notes, hard_count, 0)
            at = behind(body, at, stop, CLOSE)
        elif member == _ID:
            at = _id(body, at, stop, notes, row)
            notes[_GIVEN_ROW, _ID] |= notes[row, 0]
        else:
            at, kind, hard_count = _number(body, at, stop, further, i, member, notes, hard_count)
            if kind == _FLAG and member != _LABEL:
                at = -1
            notes[_GIVEN_ROW, member] |= kind
        at = after_blanks(body, at, stop)
        more = stands(body, at, stop, COMMA)
        if more:
            at = after_blanks(body, at + 1, stop)
    good = seen >> _X & 1 == 1
    for k in range(X.shape[1]):
        good = good and abs(X[i, k]) <= LARGEST
    return behind(body, at, stop, END) if good else -1, hard_count


@inlined
def _object_end(body, at, stop):  # type: ignore[no-untyped-def]
    """Return the place behind an object at `at` that contains no objects; or -1."""
    at = at + 1 if stands(body, at, stop, BEGIN) else -1
    while 0 <= at < stop and body[at] != END:
        end = at
        if body[at] == QUOTE:
            end = text_end(body, at + 1, stop)
        elif body[at] == BEGIN:
            end = -1
        at = end + 1 if end >= 0 else -1
    return at + 1 if 0 <= at < stop else -1


@bare_kernel
def _scan(body, labelled, X, further, notes):  # type: ignore[no-untyped-def]
    """(events, -1 where the body is unfit; the end of the hard numbers in `notes`). Fills the columns."""
    for column in range(_COLUMNS):
        notes[_GIVEN_ROW, column] = 0
    stop = len(body)
    at = behind(body, 0, stop, BEGIN)
    n, actual, sources = 0, _IDS_ROW + X.shape[0], 0
    more = True
    while more:
        end = text_end(body, at + 1, stop) if stands(body, at, stop, QUOTE) else -1
        name = packed(body, at + 1, end)
        at = behind(body, end + 1, stop, COLON) if end >= 0 else -1
        if n == 0 and name == _EVENTS_NAME:
            at = behind(body, at, stop, OPEN)
            another = at >= 0
            while another:
                at, actual = _event(body, at, stop, labelled, n, X, further, notes, actual)
                n += 1
                another = stands(body, at, stop, COMMA) and n < X.shape[0]
                if another:
                    at = after_blanks(body, at + 1, stop)
            at = behind(body, at, stop, CLOSE)
        elif labelled and sources == 0 and name == _SOURCE_NAME and at >= 0:
            sources = 1
            if packed(body, at, min(stop, at + 4)) == _NULL:
                at += 4
            else:
                notes[_GIVEN_ROW, _SOURCE] = at
                at = _object_end(body, at, stop)
                notes[_GIVEN_ROW, _SOURCE + 1] = at
            at = after_blanks(body, at, stop)
        else:
            at = -1
        more = stands(body, at, stop, COMMA)
        if more:
            at = after_blanks(body, at + 1, stop)
    at = behind(body, at, stop, END)
    return n if at == stop else -1, actual


def scan(body: bytes, dim: int, labelled: bool, most: int) -> Scanned | None:
    """Up to `most` events of `dim` numbers each as columns, to the bit as `float` reads them; None: unfit for this.

    `labelled`: an event may have a label and a weight, and the body a source; else neither. Values are finite, and
    those of x at most 1e30 in magnitude; an id is as it may be. Neither labels, weights and times nor the source are
    looked at further. O(bytes).
    """
    room = min(most, len(body) // (2 * dim + 8) + 1)  # {"x":[0,0]}, is the shortest event
    rows, further = np.empty((room, dim)), np.empty((room, _FURTHER))
    hard = _IDS_ROW + room
    notes = np.empty((hard + _HARD + len(body) // _PER_HARD, _COLUMNS), dtype=np.int64)
    n, end = _scan(body, labelled, rows, further, notes)
    if n < 1:
        return None
    if end > hard:
        for table, event, column, start, stop, _ in notes[hard:end].tolist():
            value = float(body[start:stop])
            if abs(value) > (sys.float_info.max if table else LARGEST):
                return None
            (further if table else rows)[event, column] = value
    label, weight, time, id_kinds, start, stop = notes[_GIVEN_ROW].tolist()
    ids: tuple[str | None, ...] = (None,) * n
    if id_kinds:
        spans = notes[_IDS_ROW : _IDS_ROW + n, :3].tolist()
        ids = tuple(body[first:behind].decode() if kind else None for kind, first, behind in spans)
    return Scanned(
        rows[:n],
        further[:n, _LABEL].copy() if labelled else None,
        further[:n, _WEIGHT].copy() if weight else None,
        further[:n, _TIME].copy() if time else None,
        ids,
        bool(label & _FLAG),
        body[start:stop] if start else None,
    )
