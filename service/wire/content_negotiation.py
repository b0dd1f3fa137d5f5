"""Choose the codings of a request's body and of its reply by Content-Type and Accept (RFC 9110)."""

from __future__ import annotations

from functools import lru_cache

from service.errors import NotAcceptable, WrongType
from service.wire import json_decode, json_encode, msgpack_encode
from service.wire.coding import Coding, SplitReplies
from service.wire.headers import form_hint, in_utf8
from service.wire.msgpack_decode import MSGPACK
from service.wire.ndjson import NDJSON

__all__ = ["JSON", "JSON_PARTS", "MSGPACK_PARTS", "negotiated"]

JSON = Coding(
    "application/json",
    (b"content-type", b"application/json"),
    json_decode.decode_update,
    json_decode.decode_labels,
    json_decode.decode_events,
    json_encode.encode_learnt,
    json_encode.encode_scores,
)
JSON_PARTS = SplitReplies(json_encode.encode_learnt_parts, json_encode.encode_scores_parts)
MSGPACK_PARTS = SplitReplies(msgpack_encode.encode_learnt_parts, msgpack_encode.encode_scores_parts)
_CODINGS = {item.media_type: item for item in (JSON, MSGPACK, NDJSON)}


@lru_cache(maxsize=64)  # a client sends the same two headers each time
def negotiated(content_type: bytes, accept: bytes) -> tuple[Coding, Coding]:
    """Choose the codings of the body and of the reply by the values of the headers; b"" for a missing one.

    A body without a type is JSON. The reply has the coding of the request unless the client prefers another one. Only a
    body of lines is answered in lines, and always. Raises `WrongType` and `NotAcceptable`.
    """
    body_type, reply_type = content_type.decode("latin-1"), accept.decode("latin-1")
    kind, _, parameters = body_type.lower().partition(";")
    read = _CODINGS.get(kind.strip() or JSON.media_type)
    if read is None or not in_utf8(parameters):
        expected = f"one of {', '.join(_CODINGS)}, text in UTF-8{form_hint(kind)}"
        raise WrongType(f"the body is {body_type[:100]}; expected {expected}")
    offered = [read] if read is NDJSON else [read, *(item for item in (JSON, MSGPACK) if item is not read)]
    weights = [_weight(reply_type, item.media_type) for item in offered]
    if not max(weights):
        listed = ", ".join(item.media_type for item in offered)
        raise NotAcceptable(f"the request accepts {reply_type[:100]}; this reply is written as one of {listed}")
    return read, offered[weights.index(max(weights))]


def _weight(accept: str, media_type: str) -> float:
    """Return the quality of a media type, 0 to 1, by the most specific range of `accept` that includes it."""
    if not accept.strip():
        return 1.0
    main = media_type.partition("/")[0]
    specific = {"*/*": 0, f"{main}/*": 1, media_type: 2}
    actual: dict[int, float] = {}
    for entry in accept.lower().split(","):
        name, *parameters = (part.strip() for part in entry.split(";"))
        if name in specific:
            actual[specific[name]] = max(actual.get(specific[name], 0.0), _quality(parameters))
    return actual[max(actual)] if actual else 0.0


def _quality(parameters: list[str]) -> float:
    """Return the `q` of a range; 1 if it is missing or no number."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, max(0.0, float(value)))  # in this order NaN is 0
            except ValueError:
                return 1.0
    return 1.0
