"""Refusals of malformed HTTP requests and bodies; the connection is closed after them."""

from __future__ import annotations

import httptools
import msgspec

from service.errors import BadRequest, HeadTooLarge, ServiceError
from service.wire import PROBLEM

__all__ = ["HEAD_BYTES", "breaks_off", "endless", "no_request", "refusal", "too_large"]

HEAD_BYTES = 2**16  # limit of a request line with its headers, and of the framing of a chunked body

_REFUSAL = b"connection: close\r\nx-request-id: %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"
_HANDSHAKE = b"\x16\x03"  # of TLS
_HTTP_2 = b"PRI * HTTP/2"


def no_request(error: httptools.HttpParserError, data: bytes) -> BadRequest:
    """Return the error for bytes that the parser does not take for a request."""
    if data.startswith(_HANDSHAKE):
        return BadRequest("this is TLS, which this port does not speak: use http://; the connection is closed")
    if data.startswith(_HTTP_2):
        return BadRequest("this is HTTP/2, which this port does not speak; the connection is closed")
    return BadRequest(f"this is not an HTTP/1.1 request{_reason(error)}; the connection is closed")


def breaks_off(error: httptools.HttpParserError) -> BadRequest:
    """Return the error for a chunked body that breaks off."""
    return BadRequest(f"the body breaks off{_reason(error)}; the connection is closed")


def too_large() -> HeadTooLarge:
    """Return the error for a head over the limit."""
    return HeadTooLarge(f"the request line and headers are over {HEAD_BYTES} bytes")


def endless() -> HeadTooLarge:
    """Return the error for chunk framing over the limit."""
    return HeadTooLarge(f"the chunk framing or trailer of the body is over {HEAD_BYTES} bytes")


def refusal(error: ServiceError, request_id: str) -> bytes:
    """Encode a refusal behind the headers of every reply."""
    document = msgspec.json.encode(error.document(request_id))
    return _REFUSAL % (request_id.encode(), PROBLEM.encode(), len(document), document)


def _reason(error: httptools.HttpParserError) -> str:
    ours = isinstance(error, httptools.HttpParserCallbackError)  # its text is about the callback, not about the bytes
    return "" if ours or not str(error) else f": {error}"
