"""Scan JSON bodies of dense events to columns, in one compiled pass over the bytes.

    {"events": [{"x": [0.5, ...], "label": 1, "weight": 2, "id": "a", "time": 1.7e9}, ...], "source": {...}}

Members may be in any order, with any white space. An unusual body is unfit: an escape or a byte beyond ASCII in a
string, a repeated member, an event without features, malformed JSON. The caller then decodes it in another way. A body
that no learner of the width takes is refused at once: another number of numbers in x, one that is too large, an unknown
member. Only the report of its problems reads it again.

About 20 ns for a number of 17 digits. The interpreter's lock is released, so threads scan bodies in parallel.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np

from learners.features import LARGEST
from learners.numerics import Matrix, Vector, bare_kernel, inlined, waiting_kernels
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
    character_at,
    code,
    packed,
    text_end,
)

__all__ = ["LARGE_BODY", "MAX_ID", "RefusedEvents", "ScannedEvents", "scan"]

MAX_ID = 256  # characters
LARGE_BODY = 2**15  # bytes from which on a scanner is not used before it is compiled

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
_REFUSED = -2  # instead of a number of events


class RefusedEvents(Exception):
    """No learner of this width takes the events."""


class ScannedEvents(NamedTuple):
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
    """Return the member of an event that has this packed name."""
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
    elif character_at(body, at, stop, QUOTE):
        end = text_end(body, at + 1, stop)
        notes[row, 0], notes[row, 1], notes[row, 2] = _TEXT, start + 1, end
        at = end + 1 if 0 < end - start - 1 <= MAX_ID else -1
    else:
        if character_at(body, at, stop, _MINUS):
            at += 1
        first = at
        while at < stop and 48 <= body[at] <= 57:
            at += 1
        notes[row, 0], notes[row, 1], notes[row, 2] = _WHOLE, start, at
        if not 0 < at - first <= _LONGEST_WHOLE or (body[first] == _ZERO and at - start > 1):
            at = -1
    return at  # a fraction or an exponent fails later: only a comma or an end may follow


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
        at = at + 5 if character_at(body, at + 4, stop, 101) else -1
        kind = _FLAG
    else:
        at, hard_count = decimals(body, at, stop, further, i, member, member, notes, hard_count, 1)
        kind = _NUMERIC
    return at, kind, hard_count


@inlined
def _event(body, at, stop, labelled, i, X, further, notes, hard_count):  # type: ignore[no-untyped-def]
    """Fill row i of the columns.

    Returns the place behind the event at `at` (or -1), the hard numbers so far, and whether no learner takes it.
    """
    further[i, _LABEL], further[i, _WEIGHT], further[i, _TIME] = np.nan, 1.0, np.nan
    row = _IDS_ROW + i
    notes[row, 0] = _NO_ID
    at = behind(body, at, stop, BEGIN)
    seen = 0
    more, refused = True, False
    while more:
        end = text_end(body, at + 1, stop) if character_at(body, at, stop, QUOTE) else -1
        member = _member(packed(body, at + 1, end))
        if member == _UNKNOWN or (not labelled and member <= _WEIGHT):
            refused = end >= 0
            end = -1
        elif seen >> member & 1:
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
                refused = at < 0 and hard_count < notes.shape[0]  # else the numbers may be right, but are too hard
        elif member == _ID:
            at = _id(body, at, stop, notes, row)
            notes[_GIVEN_ROW, _ID] |= notes[row, 0]
        else:
            at, kind, hard_count = _number(body, at, stop, further, i, member, notes, hard_count)
            if kind == _FLAG and member != _LABEL:
                at = -1
            notes[_GIVEN_ROW, member] |= kind
        at = after_blanks(body, at, stop)
        more = character_at(body, at, stop, COMMA)
        if more:
            at = after_blanks(body, at + 1, stop)
    good = seen >> _X & 1 == 1
    if good and at >= 0:
        for k in range(X.shape[1]):
            good = good and abs(X[i, k]) <= LARGEST
        refused = refused or not good
    return behind(body, at, stop, END) if good else -1, hard_count, refused


@inlined
def _object_end(body, at, stop):  # type: ignore[no-untyped-def]
    """Return the place behind an object at `at` that contains no objects; or -1."""
    at = at + 1 if character_at(body, at, stop, BEGIN) else -1
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
    """Fill the columns; return the events and the end of the hard numbers in `notes`.

    Instead of the events: 0 or -1 if the body is unfit, `_REFUSED` if no learner takes it.
    """
    for column in range(_COLUMNS):
        notes[_GIVEN_ROW, column] = 0
    stop = len(body)
    at = behind(body, 0, stop, BEGIN)
    n, actual, sources = 0, _IDS_ROW + X.shape[0], 0
    more, refused = True, False
    while more:
        end = text_end(body, at + 1, stop) if character_at(body, at, stop, QUOTE) else -1
        name = packed(body, at + 1, end)
        at = behind(body, end + 1, stop, COLON) if end >= 0 else -1
        if n == 0 and name == _EVENTS_NAME:
            at = behind(body, at, stop, OPEN)
            another = at >= 0
            while another:
                at, actual, refused = _event(body, at, stop, labelled, n, X, further, notes, actual)
                n += 1
                another = character_at(body, at, stop, COMMA)
                refused = refused or (another and n == X.shape[0])
                another = another and n < X.shape[0]
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
            unknown = name != _EVENTS_NAME and not (labelled and name == _SOURCE_NAME)
            refused = refused or (end >= 0 and unknown)
            at = -1
        more = character_at(body, at, stop, COMMA)
        if more:
            at = after_blanks(body, at + 1, stop)
    at = behind(body, at, stop, END)
    if refused:
        n = _REFUSED
    elif at != stop:
        n = -1
    return n, actual


def scan(body: bytes, dim: int, labelled: bool, most: int) -> ScannedEvents | None:
    """Return up to `most` events of `dim` numbers each as columns, to the bit as `float` reads them; None: unfit.

    A large body is unfit, too, while kernels wait to be compiled.

    `labelled`: an event may have a label and a weight, and the body a source; otherwise neither. Values are finite,
    those of x at most 1e30 in magnitude, and ids are valid. Labels, weights, times and the source are not checked.
    Raises `RefusedEvents` if no learner of this width takes the body. O(bytes).
    """
    if len(body) > LARGE_BODY and waiting_kernels():  # plain Python would take longer than another way
        return None
    room = min(most, len(body) // (2 * dim + 8) + 1)  # {"x":[0,0]}, is the shortest event
    rows, further = np.empty((room, dim)), np.empty((room, _FURTHER))
    hard = _IDS_ROW + room
    notes = np.empty((hard + _HARD + len(body) // _PER_HARD, _COLUMNS), dtype=np.int64)
    n, end = _scan(body, labelled, rows, further, notes)
    if n == _REFUSED:
        raise RefusedEvents
    if n < 1:
        return None
    if end > hard:
        for table, event, column, start, stop, _ in notes[hard:end].tolist():
            value = float(body[start:stop])
            if abs(value) > (sys.float_info.max if table else LARGEST):
                raise RefusedEvents
            (further if table else rows)[event, column] = value
    label, weight, time, id_kinds, start, stop = notes[_GIVEN_ROW].tolist()
    ids: tuple[str | None, ...] = (None,) * n
    if id_kinds:
        spans = notes[_IDS_ROW : _IDS_ROW + n, :3].tolist()
        ids = tuple(body[first:behind].decode() if kind else None for kind, first, behind in spans)
    return ScannedEvents(
        rows[:n],
        further[:n, _LABEL].copy() if labelled else None,
        further[:n, _WEIGHT].copy() if weight else None,
        further[:n, _TIME].copy() if time else None,
        ids,
        bool(label & _FLAG),
        body[start:stop] if start else None,
    )
