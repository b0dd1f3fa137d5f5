"""Scan what one read of a websocket brings, in compiled code: whole frames, and the heads of JSON messages.

    frames  -> the payloads of the plain ones (see `ws_protocol.py`), unmasked, in a row
    message -> {"seq": 7, "op": "update", "learner": "a", "events": [...]}, members in any order, with white space

The events of a message are only counted: brackets, braces and strings must end, and the decoder finds all other
problems. An unusual head (a repeated or unknown member, an escape in a string, no events) is left to the caller, who
decodes it in another way. About 0.3 ns for a byte of a frame, and 0.6 ns for one of a message.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from learners.numerics import bare_kernel, inlined, waiting_kernels
from service.wire.kernels.json_events import LARGE_BODY
from service.wire.kernels.json_text import (
    BEGIN,
    CLOSE,
    COLON,
    COMMA,
    END,
    ESCAPE,
    OPEN,
    QUOTE,
    after_blanks,
    behind,
    character_at,
    code,
    packed,
    text_end,
)

__all__ = ["BINARY", "MASKED", "MAX_SEQ", "OPERATIONS", "TEXT", "heads", "payloads"]

MAX_SEQ = 2**53  # a whole number that every JSON parser reads exactly
OPERATIONS = ("update", "predict", "labels")
MASKED = 0x80  # the second byte of a frame that a client sends, at least
TEXT, BINARY = 0x81, 0x82  # first bytes of messages in one piece

_FRAMES = 512  # of one call: a read of small messages brings more
_HEAD = 7  # columns of a head
_SPAN = 3  # columns of a span: the first byte of the frame, and where its payload begins and ends
_COUNT, _SEQ, _OPERATION, _START, _STOP, _LEARNER, _LEARNER_END = range(7)  # of a head: columns
_DEEP = 60  # nested so deeply, events are unusual
_BLOCK = 32  # bytes that are looked at together
_DIGITS = 16  # of a seq
_SEQ_NAME, _OP_NAME, _EVENTS_NAME, _LEARNER_NAME = map(code, ("seq", "op", "events", "learner"))
_UPDATE, _PREDICT, _LABELS = map(code, OPERATIONS)
_NULL = code("null")


@bare_kernel
def _payloads(data, at, largest, plain, spans):  # type: ignore[no-untyped-def]
    """Fill `plain` and `spans`; return the number of plain frames and the place behind them."""
    n, filled, size = 0, np.int64(0), len(data)
    more = True
    while more and n < spans.shape[0] and at + 6 <= size:
        first, second = data[at], data[at + 1]
        length, start = np.int64(second & 0x7F), at + 6
        extra = 2 if length == 126 else 8 if length == 127 else 0
        more = bool(second >= MASKED and first in (TEXT, BINARY) and start + extra <= size)
        if more and extra:
            length = np.int64(0)
            for k in range(at + 2, at + 2 + extra):
                more = more and bool(length < 2**47)
                length = length << 8 | np.int64(data[k])
            start += extra
        more = more and bool(length <= largest and length <= size - start)
        if more:
            mask = np.uint32(0)
            for k in range(4):
                mask |= np.uint32(data[start - 4 + k]) << np.uint32(8 * k)
            masked, payload = data[start : start + length], plain[filled : filled + length]
            for i in range(length):
                payload[i] = masked[i] ^ np.uint8(mask >> np.uint32((i & 3) << 3))
            spans[n, 0], spans[n, 1], spans[n, 2] = first, filled, filled + length
            filled += length
            at = start + length
            n += 1
    return n, at


def payloads(data: bytes, at: int, largest: int) -> tuple[bytes, list[list[int]], int]:
    """Return the payloads of the plain frames from `at` on, (first byte, start, stop) of each, and their end.

    None is larger than `largest`, and their number is bounded. There is none if the next frame is not plain or not
    complete, or if there are many bytes while kernels wait to be compiled. O(bytes).
    """
    if len(data) - at > LARGE_BODY and waiting_kernels():
        return b"", [], at
    plain = np.empty(len(data) - at, dtype=np.uint8)
    spans = np.empty((_FRAMES, _SPAN), dtype=np.int64)
    n, end = _payloads(np.frombuffer(data, np.uint8), at, largest, plain, spans)
    actual: list[list[int]] = spans[:n].tolist()
    return plain[: actual[-1][-1] if actual else 0].tobytes(), actual, end


@inlined
def _special(block):  # type: ignore[no-untyped-def]
    """Tell whether a block may have a quote, a bracket or a brace; some letters count as well."""
    actual = np.uint8(0)
    for k in range(_BLOCK):
        byte = block[k]
        actual |= np.uint8(byte ^ np.uint8(QUOTE) == np.uint8(0)) | np.uint8(byte & np.uint8(0xD9) == np.uint8(0x59))
    return actual != np.uint8(0)


@inlined
def _array_end(body, at, stop):  # type: ignore[no-untyped-def]
    """Return the place of the bracket that ends an array (or -1), and its entries; `at`: its first entry."""
    entries, depth, objects = np.int64(0), 0, np.int64(0)  # objects: a bit for each depth that an object is at
    filled = False  # there is something behind the last comma
    more = True
    while more:
        while depth and at + _BLOCK <= stop and not _special(body[at : at + _BLOCK]):
            at += _BLOCK
        if at >= stop or depth > _DEEP:
            at, more = -1, False
            continue
        byte = body[at]
        if byte == QUOTE:
            filled = True
            at += 1
            while at < stop and body[at] != QUOTE:
                at += 2 if body[at] == ESCAPE else 1
        elif byte in (OPEN, BEGIN):
            filled = True
            depth += 1
            objects = objects << 1 | np.int64(byte == BEGIN)
        elif byte in (CLOSE, END):
            if depth == 0:
                at, more = at if byte == CLOSE else -1, False
                continue
            if objects & 1 != np.int64(byte == END):
                at, more = -1, False
                continue
            depth -= 1
            objects >>= 1
        elif depth == 0:
            if byte == COMMA:
                entries += 1
            elif byte > 32:
                filled = True
        at += 1
    return at, entries + 1 if filled else 0


@inlined
def _seq(body, at, stop):  # type: ignore[no-untyped-def]
    """Return the place behind a number without sign, fraction and exponent (or -1), and the number."""
    start = at
    number = np.int64(0)
    while at < stop and at - start <= _DIGITS and 48 <= body[at] <= 57:
        number = 10 * number + np.int64(body[at]) - 48
        at += 1
    good = 0 < at - start <= _DIGITS and number <= MAX_SEQ and (body[start] != 48 or at - start == 1)
    return at if good else -1, number


@bare_kernel
def _heads(body, ends, rows):  # type: ignore[no-untyped-def]
    """Fill a row of `rows` for each message; the messages follow each other and end at `ends`."""
    at = 0
    for m in range(len(ends)):
        stop = ends[m]
        at = behind(body, at, stop, BEGIN)
        count, seen = np.int64(0), 0
        rows[m, _LEARNER] = -1
        more = True
        while more:
            end = text_end(body, at + 1, stop) if character_at(body, at, stop, QUOTE) else -1
            name = packed(body, at + 1, end) if 0 < end - at - 1 <= 7 else np.int64(0)
            member = 0
            at = behind(body, end + 1, stop, COLON) if end >= 0 else -1
            if at < 0:
                pass
            elif name == _SEQ_NAME:
                member = 1
                at, rows[m, _SEQ] = _seq(body, at, stop)
            elif name == _OP_NAME:
                member = 2
                end = text_end(body, at + 1, stop) if character_at(body, at, stop, QUOTE) else -1
                message = packed(body, at + 1, end) if 0 < end - at - 1 <= 7 else np.int64(0)
                rows[m, _OPERATION] = 0 if message == _UPDATE else 1 if message == _PREDICT else 2
                at = end + 1 if message in (_UPDATE, _PREDICT, _LABELS) else -1
            elif name == _EVENTS_NAME:
                member = 4
                at = behind(body, at, stop, OPEN)
                rows[m, _START] = at
                if at >= 0:
                    at, count = _array_end(body, at, stop)
                rows[m, _STOP] = at
                at = at + 1 if at >= 0 else -1
            elif name == _LEARNER_NAME:
                member = 8
                if packed(body, at, min(stop, at + 4)) == _NULL:
                    at += 4
                else:
                    end = text_end(body, at + 1, stop) if character_at(body, at, stop, QUOTE) else -1
                    rows[m, _LEARNER], rows[m, _LEARNER_END] = at + 1, end
                    at = end + 1 if end >= 0 else -1
            if member == 0 or seen & member:
                at = -1
            seen |= member
            at = after_blanks(body, at, stop)
            more = character_at(body, at, stop, COMMA)
            if more:
                at = after_blanks(body, at + 1, stop)
        at = behind(body, at, stop, END)
        rows[m, _COUNT] = count if at == stop and seen & 7 == 7 else 0
        at = stop


def heads(texts: Sequence[str]) -> tuple[bytes, NDArray[np.int64]]:
    """Return n messages in a row, and their heads, (n, 7).

    A head has: the number of events, 0 if the message is unusual; `seq`; the index into OPERATIONS; start and end of
    the events; start and end of the learner's name, -1 without one. Raises `UnicodeEncodeError` for text that UTF-8
    cannot encode. O(bytes).
    """
    body = "".join(texts).encode()
    sizes = list(map(len, texts))
    if len(body) != sum(sizes):  # not all of it is ASCII
        sizes = [len(text.encode()) for text in texts]
    actual = np.empty((len(texts), _HEAD), dtype=np.int64)
    _heads(np.frombuffer(body, np.uint8), np.cumsum(sizes), actual)
    return body, actual
