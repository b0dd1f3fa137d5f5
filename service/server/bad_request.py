"""What is said to a connection that sends what is no request of HTTP, or no rest of one's body; it is closed then."""

from __future__ import annotations

import httptools
import msgspec

from service.errors import BadRequest, HeadTooLarge, ServiceError
from service.wire import PROBLEM

__all__ = ["HEAD_BYTES", "breaks_off", "endless", "no_request", "refusal", "too_large"]

HEAD_BYTES = 2**16  # of a request's line and its headers, or of what is between the pieces of a body, and behind them

_REFUSAL = b"connection: close\r\nx-request-id: %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"
_HANDSHAKE = b"\x16\x03"  # of TLS
_HTTP_2 = b"PRI * HTTP/2"


def no_request(error: httptools.HttpParserError, data: bytes) -> BadRequest:
    """These bytes, as the parser says, begin or go on with nothing that is a request."""
    if data.startswith(_HANDSHAKE):
        return BadRequest("this is TLS, which this port does not speak: use http://; the connection is closed")
    if data.startswith(_HTTP_2):
        return BadRequest("this is HTTP/2, which this port does not speak; the connection is closed")
    return BadRequest(f"this is no request of HTTP/1.1{_reason(error)}; the connection is closed")


def breaks_off(error: httptools.HttpParserError) -> BadRequest:
    """What has come of a body in chunks goes on with none."""
    return BadRequest(f"the body breaks off{_reason(error)}; the connection is closed")


def too_large() -> HeadTooLarge:
    """A head is."""
    return HeadTooLarge(f"the request's line and its headers are over {HEAD_BYTES} bytes")


def endless() -> HeadTooLarge:
    """So much has come of a body in chunks, or after it, and nothing of what it holds."""
    return HeadTooLarge(f"what frames the body, or follows it, is over {HEAD_BYTES} bytes")


def refusal(error: ServiceError, request_id: str) -> bytes:
    """A reply behind the headers of every reply."""
    document = msgspec.json.encode(error.document(request_id))
    return _REFUSAL % (request_id.encode(), PROBLEM.encode(), len(document), document)


def _reason(error: httptools.HttpParserError) -> str:
    ours = isinstance(error, httptools.HttpParserCallbackError)  # which tells of the callback, not of what came
    return "" if ours or not str(error) else f": {error}"
