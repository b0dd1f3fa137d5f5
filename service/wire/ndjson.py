"""The coding of bodies of lines, one JSON event each: how a chunk of whole lines is decoded and answered.

A chunk is decoded as the JSON body of the same events, so the same rules hold. Pointers name the line in the chunk,
from 1: `/lines/17/x/3`. The reply has a line for each scored event, or none for learnt ones, then a line about the
chunk. `ndjson_stream.py` cuts bodies into chunks and joins their replies.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from learners import Config, Predictions, Problem, ScoreExplanation
from service.errors import BadBody, Invalid
from service.wire import json_decode
from service.wire import json_encode as json_replies
from service.wire.coding import Coding
from service.wire.msgpack_encode import counted, statuses
from service.wire.requests import Events, Labelled, Learnt

__all__ = ["NDJSON"]

Made = TypeVar("Made")

_one_value = msgspec.json.Decoder(msgspec.Raw).decode
_encode = msgspec.json.Encoder().encode


class _Reply(msgspec.Struct):
    """The members of a JSON reply, with the results of events as text."""

    results: list[msgspec.Raw]


_results = msgspec.json.Decoder(_Reply).decode


def _decode_update(body: bytes, config: Config) -> tuple[Labelled, Any]:
    return _decoded(json_decode.decode_update, body, config)


def _decode_labels(body: bytes, config: Config) -> tuple[Labelled, Any]:
    return _decoded(json_decode.decode_labels, body, config)


def _decode_events(body: bytes, config: Config) -> tuple[Events, Sequence[Any]]:
    return _decoded(json_decode.decode_events, body, config)


def _decoded(decode: Callable[[bytes, Config], Made], body: bytes, config: Config) -> Made:
    """Decode lines as the JSON body of the same events. Raises `BadBody` or `Invalid` with the lines from 1 on."""
    lines = [(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line and not line.isspace()]
    odd = 0
    for number, line in lines:
        try:
            _one_value(line)  # each line is one value: none ends in the next line or holds two
        except (msgspec.DecodeError, RecursionError):
            _check_line(number, line)
            odd = odd or number  # valid for this decoder, perhaps with NaN in it; the error report points at that
    try:
        return decode(b'{"events":[' + b",".join([line for _, line in lines]) + b"]}", config)
    except BadBody:  # the first check misses some, such as text that is not UTF-8
        for number, line in lines:
            _check_line(number, line)
        if odd:  # the line itself is not nested too deeply, but the body made of it is
            raise _bad_line(odd, "is nested too deeply") from None
        raise
    except Invalid as error:
        problems = [problem._replace(pointer=_lined(problem.pointer, lines)) for problem in error.problems]
        raise Invalid(error.detail, problems) from None


def _check_line(number: int, line: bytes) -> None:
    """Raise `BadBody` if a line is not one JSON value to the most lenient decoder."""
    if line.startswith(BOM_UTF8):
        raise _bad_line(number, "has a byte order mark, which only the first line may have")
    try:
        json_decode.decode_value(line)
    except json_decode.Malformed as error:
        position = "" if error.column is None else f" at column {error.column}"
        raise _bad_line(number, f"{error.reason}{position}") from None


def _bad_line(number: int, detail: str) -> BadBody:
    return BadBody("a line is not JSON", [Problem(f"/lines/{number}", detail)])


def _lined(pointer: str, lines: Sequence[tuple[int, bytes]]) -> str:
    """`/events/3/x/2` -> `/lines/4/x/2`, of the line that the event came in."""
    _, _, rest = pointer.partition("/events/")
    event, _, inner = rest.partition("/")
    if not event:
        return "/lines"
    return f"/lines/{lines[int(event)][0]}" + (f"/{inner}" if inner else "")


def _encode_learnt(learnt: Learnt, ids: tuple[str | None, ...] | None) -> bytes:  # noqa: ARG001 - sums only
    head = {**counted(statuses(learnt)), "position": learnt.position, "class_counts": learnt.class_counts}
    return _encode(head) + b"\n"


def _encode_scores(
    scores: Predictions,
    ids: tuple[str | None, ...],
    head: json_replies.Head,
    explained: Sequence[ScoreExplanation] | None = None,
) -> bytes:
    results = _results(json_replies.encode_scores(scores, ids, head, explained)).results
    return b"".join([bytes(result) + b"\n" for result in results]) + _encode(head) + b"\n"


NDJSON = Coding(
    "application/x-ndjson",
    (b"content-type", b"application/x-ndjson"),
    _decode_update,
    _decode_labels,
    _decode_events,
    _encode_learnt,
    _encode_scores,
)
