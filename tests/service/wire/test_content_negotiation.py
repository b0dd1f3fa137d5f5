"""Content-Type and Accept: which coding is read, which is written, and what is refused."""

from __future__ import annotations

import pytest

from service.errors import NotAcceptable, WrongType
from service.wire.content_negotiation import JSON, negotiated
from service.wire.msgpack_decode import MSGPACK
from service.wire.ndjson import NDJSON

NAMES = {"application/json": JSON, "application/msgpack": MSGPACK, "application/x-ndjson": NDJSON}


@pytest.mark.parametrize(
    ("header", "accept", "read", "write"),
    [
        ("", "", JSON, JSON),
        ("application/json", "*/*", JSON, JSON),
        ("Application/JSON; Charset=UTF-8", "text/html, */*;q=0.1", JSON, JSON),
        ("application/msgpack", "", MSGPACK, MSGPACK),
        ("application/msgpack", "application/*", MSGPACK, MSGPACK),
        ("application/msgpack", "application/json", MSGPACK, JSON),
        ("application/msgpack", "application/json, */*;q=0.5", MSGPACK, JSON),
        ("application/msgpack", "application/msgpack;q=0.1, */*", MSGPACK, JSON),
        ("application/msgpack", "application/msgpack;q=0, */*", MSGPACK, JSON),
        ("application/json", "application/msgpack", JSON, MSGPACK),
        ("application/json", "APPLICATION/MSGPACK ; Q=0.9 , application/json;q=0.8", JSON, MSGPACK),
        ("application/json", "application/json;q=odd", JSON, JSON),
        ('application/json; charset="utf8"', "", JSON, JSON),
        ("application/json; q=1 ; CHARSET = utf8", "", JSON, JSON),
        ("application/x-ndjson", "", NDJSON, NDJSON),
        ("application/x-ndjson", "application/json, */*;q=0.1", NDJSON, NDJSON),
    ],
)
def test_media_types_are_negotiated(header, accept, read, write):
    assert negotiated(header.encode(), accept.encode()) == (read, write)


@pytest.mark.parametrize(
    "header", ["text/csv", "application/json; charset=latin-1", "application", "application/x-msgpack"]
)
def test_unsupported_media_types_are_refused(header):
    with pytest.raises(WrongType, match="application/x-ndjson"):
        negotiated(header.encode(), b"*/*")


def test_the_default_content_type_of_curl_gets_a_hint():
    with pytest.raises(WrongType, match="curl"):
        negotiated(b"application/x-www-form-urlencoded", b"")


@pytest.mark.parametrize(
    ("header", "accept"),
    [
        ("application/json", "text/html"),
        ("application/json", "*/*;q=0"),
        ("application/json", "*/*;q=nan"),
        ("application/json", "application/*;q=0, text/*"),
        ("application/json", "application/x-ndjson"),
        ("application/x-ndjson", "application/json"),
    ],
)
def test_unacceptable_media_types_are_refused(header, accept):
    with pytest.raises(NotAcceptable):
        negotiated(header.encode(), accept.encode())
