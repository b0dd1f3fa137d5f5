"""Read the headers of a request that describe its body and the reply that it accepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

__all__ = ["Heading", "form_hint", "heading_of", "in_utf8", "local_path"]


class Heading(NamedTuple):
    """The headers of a request that describe its body, the reply and its id; b"" for a missing one."""

    content_type: bytes
    accept: bytes
    encoding: bytes
    length: bytes
    request_id: bytes


def local_path(scope: Mapping[str, Any]) -> str:
    """Return the path of an ASGI scope below the application's root."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def heading_of(headers: Iterable[tuple[bytes, bytes]]) -> Heading:
    """Read the heading from the headers of a request."""
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
    """Tell whether the parameters of a Content-Type, in lower case, name UTF-8 or no charset."""
    for item in parameters.split(";"):
        name, _, value = item.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in ("utf-8", "utf8"):
            return False
    return True
