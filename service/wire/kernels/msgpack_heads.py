"""Scan the heads of MessagePack messages and find their columns, in compiled code.

    {"seq", "op", "learner"?, "x": ARRAY (n, width)?, "labels"?, "weights"?, "times"?, "ids"?}     members in any order
    ARRAY {"dtype", "shape", "data"}; a column is an ARRAY of n numbers, a list of n scalars, or nil

Columns are found and not read: their decoder checks the values. An unusual message (a repeated or unknown member,
columns of different lengths, a rare type) is left to the caller, who decodes it in another way. About 0.2 us for a
message, because the bytes of numbers are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from learners.numerics import bare_kernel, inlined
from service.wire.kernels.json_text import code, packed
from service.wire.kernels.websocket import MAX_SEQ, OPERATIONS

__all__ = [
    *(
        "COLUMNS",
        "COUNT",
        "DTYPES",
        "KINDS",
        "LEARNER",
        "LEARNER_END",
        "LIST",
        "MAKE",
        "OPERATION",
        "PLACES",
        "SEQ",
        "WIDTH",
    ),
    "columnar_heads",
]

COLUMNS = ("x", "labels", "weights", "times", "ids")
DTYPES = ("", "float32", "float64", "int8", "uint64")  # by kind; 0 is a column that is not there,
LIST = len(DTYPES)  # and this a list
COUNT, SEQ, LEARNER, LEARNER_END, OPERATION, WIDTH, KINDS = range(7)  # of a head; KINDS of each of COLUMNS,
PLACES = KINDS + len(COLUMNS)  # and behind them where each begins and ends
MAKE = slice(OPERATION, PLACES)  # what has to be the same to be put together
_HEAD = PLACES + 2 * len(COLUMNS)

_SEQ_NAME, _OP_NAME, _LEARNER_NAME, _DTYPE_NAME, _SHAPE_NAME, _DATA_NAME = map(
    code, ("seq", "op", "learner", "dtype", "shape", "data")
)
_X_NAME, _LABELS_NAME, _WEIGHTS_NAME, _TIMES_NAME, _IDS_NAME = map(code, COLUMNS)
_UPDATE, _PREDICT, _LABELS = map(code, OPERATIONS)
_FLOAT32, _FLOAT64, _INT8, _UINT64 = map(code, DTYPES[1:])
_NIL = 0xC0


@inlined
def _number(body, at, size):  # type: ignore[no-untyped-def]
    """Read big-endian bytes as a number; eight of them may be below 0."""
    number = np.int64(0)
    for k in range(at, at + size):
        number = number << 8 | np.int64(body[k])
    return number


@inlined
def _sized(body, at, stop, short, fixed, first, sizes):  # type: ignore[no-untyped-def]
    """Return (start of a value's content, its size), or (-1, 0) if the value is not complete at `at`.

    A short value has its size in the last bits of its first byte: up to `fixed`, above `short`. Others begin with
    `first` or one of the next bytes, and a size of 1, 2 or 4 bytes; it has the `sizes` largest of these.
    """
    if not 0 <= at < stop:
        return -1, np.int64(0)
    byte = np.int64(body[at])
    if short <= byte <= short + fixed:
        return at + 1, byte - short
    step = byte - first
    if 0 <= step < sizes:
        width = 4 >> (sizes - 1 - step)
        if at + 1 + width <= stop:
            return at + 1 + width, _number(body, at + 1, width)
    return -1, np.int64(0)


@inlined
def _text(body, at, stop):  # type: ignore[no-untyped-def]
    """Return (start, end) of a string; (-1, -1) unless it is complete."""
    start, size = _sized(body, at, stop, 0xA0, 0x1F, 0xD9, 3)
    return (start, start + size) if start >= 0 and start + size <= stop else (-1, -1)


@inlined
def _bytes(body, at, stop):  # type: ignore[no-untyped-def]
    """Return (start, end) of bytes; (-1, -1) unless they are complete."""
    start, size = _sized(body, at, stop, 0x100, 0, 0xC4, 3)
    return (start, start + size) if start >= 0 and start + size <= stop else (-1, -1)


@inlined
def _list(body, at, stop):  # type: ignore[no-untyped-def]
    """Return (place of the first entry, number of entries) of a list; (-1, 0) without one."""
    return _sized(body, at, stop, 0x90, 0x0F, 0xDC, 2)


@inlined
def _whole(body, at, stop):  # type: ignore[no-untyped-def]
    """Return the place behind a whole number from 0 to MAX_SEQ, and the number; (-1, 0) without one."""
    if not 0 <= at < stop:
        return -1, np.int64(0)
    byte = np.int64(body[at])
    if byte < 0x80:
        return at + 1, byte
    size = 1 << (byte - 0xCC) if 0xCC <= byte <= 0xCF else 0
    if size == 0 or at + 1 + size > stop:
        return -1, np.int64(0)
    number = _number(body, at + 1, size)
    return (at + 1 + size, number) if 0 <= number <= MAX_SEQ else (-1, np.int64(0))


@inlined
def _after_scalar(body, at, stop):  # type: ignore[no-untyped-def]
    """Return the place behind a number, string, boolean or nil; -1 if none is complete."""
    if not 0 <= at < stop:
        return -1
    byte = np.int64(body[at])
    size = 0
    if byte < 0x80 or byte >= 0xE0 or byte in (_NIL, 0xC2, 0xC3):
        size = 1
    elif byte in (0xCA, 0xCB):
        size = 5 if byte == 0xCA else 9
    elif 0xCC <= byte <= 0xD3:
        size = 1 + int(1 << ((byte - 0xCC) & 3))
    if size == 0:
        return _text(body, at, stop)[1]
    return at + size if at + size <= stop else -1


@bare_kernel
def _array(body, at, stop, dimensions):  # type: ignore[no-untyped-def]
    """Read an ARRAY: return the place behind it (or -1), kind, n, width, start and stop of its data."""
    kind, size, seen = 0, 0, 0
    n, width = np.int64(0), np.int64(1)
    first, last = -1, -1
    good = 0 <= at < stop and body[at] == 0x83
    at += 1
    for _ in range(3):
        start, end = _text(body, at, stop) if good else (-1, -1)
        name = packed(body, start, end) if 0 < end - start <= 5 else np.int64(0)
        if name == _DTYPE_NAME:
            seen |= 1
            start, at = _text(body, end, stop)
            message = packed(body, start, at) if 0 < at - start <= 7 else np.int64(0)
            if message == _FLOAT32:
                kind, size = 1, 4
            elif message == _FLOAT64:
                kind, size = 2, 8
            elif message == _INT8:
                kind, size = 3, 1
            elif message == _UINT64:
                kind, size = 4, 8
        elif name == _SHAPE_NAME:
            seen |= 2
            at, axes = _list(body, end, stop)
            good = axes == dimensions
            at, n = _whole(body, at if good else -1, stop)
            if dimensions == 2:
                at, width = _whole(body, at, stop)
        elif name == _DATA_NAME:
            seen |= 4
            first, last = _bytes(body, end, stop)
            at = last
        else:
            at = -1
        good = good and at >= 0
    right = good and seen == 7 and kind > 0 and n <= stop and width <= stop and last - first == n * width * size
    return at if right else -1, kind, n, width, first, last


@bare_kernel
def _columnar_heads(body, ends, rows):  # type: ignore[no-untyped-def]
    """Fill a row of `rows` for each message; the messages follow each other and end at `ends`.

    Places are counted from the beginning of the message.
    """
    rows[:] = 0
    at = 0
    for m in range(len(ends)):
        begin, stop = at, ends[m]
        head = rows[m]
        head[LEARNER] = -1
        members, seen = np.int64(0), 0
        n = -1  # events; not known yet
        if at < stop and body[at] & 0xF0 == 0x80:
            members = np.int64(body[at] & 0x0F)
        at += 1
        for _ in range(members):
            start, end = _text(body, at, stop)
            name = packed(body, start, end) if 0 < end - start <= 7 else np.int64(0)
            at = end
            member, column = 0, -1
            if name == _SEQ_NAME:
                member = 1
                at, head[SEQ] = _whole(body, at, stop)
            elif name == _OP_NAME:
                start, at = _text(body, at, stop)
                message = packed(body, start, at) if 0 < at - start <= 7 else np.int64(0)
                member = 2 if message in (_UPDATE, _PREDICT, _LABELS) else 0
                head[OPERATION] = 0 if message == _UPDATE else 1 if message == _PREDICT else 2
            elif name == _LEARNER_NAME:
                member = 4
                if 0 <= at < stop and body[at] == _NIL:
                    at += 1
                else:
                    start, at = _text(body, at, stop)
                    head[LEARNER], head[LEARNER_END] = start - begin, at - begin
                    for k in range(start, at):
                        if not 32 <= body[k] <= 126:
                            at = -1
                            break
            elif name == _X_NAME:
                member, column = 8, 0
            elif name == _LABELS_NAME:
                member, column = 16, 1
            elif name == _WEIGHTS_NAME:
                member, column = 32, 2
            elif name == _TIMES_NAME:
                member, column = 64, 3
            elif name == _IDS_NAME:
                member, column = 128, 4
            if column >= 0 and 0 <= at < stop and body[at] == _NIL:
                at += 1
            elif column >= 0:
                kind, length, width = LIST, np.int64(0), np.int64(0)
                first, count = _list(body, at, stop)
                last = first
                if first >= 0 and column > 0:
                    length = count
                    for _ in range(count):
                        last = _after_scalar(body, last, stop)
                        if last < 0:
                            break
                    at = last
                else:
                    at, kind, length, width, first, last = _array(body, at, stop, 2 if column == 0 else 1)
                    if column == 0:
                        head[WIDTH] = width
                        at = at if kind <= 2 else -1
                head[KINDS + column] = kind
                head[PLACES + 2 * column], head[PLACES + 2 * column + 1] = first - begin, last - begin
                if n >= 0 and length != n:
                    at = -1
                n = length
            if member == 0 or seen & member or at < 0:
                at = -1
                break
            seen |= member
        good = at == stop and seen & 3 == 3
        head[COUNT] = n if good and n > 0 and (head[KINDS] or head[PLACES - 1]) else 0
        at = stop


def columnar_heads(messages: Sequence[bytes]) -> NDArray[np.int64]:
    """Return the heads of n messages, (n, 21).

    A head has: the number of events, 0 if the message is unusual; `seq`; start and end of the learner's name, -1
    without one; the index into OPERATIONS; the width of `x`; for each of COLUMNS its kind, see DTYPES and LIST, and
    start and end of its data or entries. O(entries of lists).
    """
    body = b"".join(messages)
    actual = np.empty((len(messages), _HEAD), dtype=np.int64)
    _columnar_heads(np.frombuffer(body, np.uint8), np.cumsum(list(map(len, messages))), actual)
    return actual
