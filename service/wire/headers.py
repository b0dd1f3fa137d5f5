"""The headers of a request that say how its body is written and its reply wanted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Heading", "form_hint", "heading_of", "in_utf8"]


class Heading(NamedTuple):
    """What a request's headers say of its body, of the reply's, and of its id; b"" where they say nothing."""

    content_type: bytes
    accept: bytes
    encoding: bytes
    length: bytes
    request_id: bytes


def heading_of(headers: Iterable[tuple[bytes, bytes]]) -> Heading:
    """Parse these headers."""
    content_type = accept = encoding = length = given_id = b""
    for name, value in headers:
        if name == b"content-type":
            content_type = value
        elif name == b"accept":
            accept = accept + b"," + value if accept else value
        elif name == b"content-encoding":
            encoding = encoding + b"," + value if encoding else value
        elif name == b"content-length":
            length = value
        elif name == b"x-request-id":
            given_id = value
    return Heading(content_type, accept, encoding, length, given_id)


def form_hint(kind: str) -> str:
    """Return a hint for a Content-Type (lower case) that is not supported and may be a mistake."""
    if kind.strip() != "application/x-www-form-urlencoded":
        return ""
    return "; curl -d says so unless it is given -H 'content-type: application/json'"


def in_utf8(parameters: str) -> bool:
    """Whether the parameters of a Content-Type, in lower case, say UTF-8, or nothing, of the characters."""
    for item in parameters.split(";"):
        name, _, value = item.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in ("utf-8", "utf8"):
            return False
    return True
