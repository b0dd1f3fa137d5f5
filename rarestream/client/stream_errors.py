"""What websockets' errors mean, in terms of this package's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from rarestream.client.errors import RequestRefused, ServiceUnreachable, error_of

__all__ = ["close_reason", "opening"]

_UNKNOWN_LEARNER = 4404  # close code


def close_reason(error: ConnectionClosed) -> str:
    """Return why a stream ended, with the service's reason if it sent one."""
    if error.rcvd is None:
        return "the connection broke"
    return f"the service closed the stream: {error.rcvd.reason or 'without a reason'} ({int(error.rcvd.code)})"


@contextmanager
def opening() -> Iterator[None]:
    """Convert the errors of opening a websocket."""
    try:
        yield
    except InvalidStatus as error:
        response = error.response
        cause = error_of(response.status_code, response.headers, bytes(response.body))
        if isinstance(cause, RequestRefused):
            raise cause from None
        raise ServiceUnreachable(
            cause.detail, status=cause.status, code=cause.code, retry_after=cause.retry_after
        ) from None
    except ConnectionClosed as error:
        if error.rcvd is not None and error.rcvd.code == _UNKNOWN_LEARNER:
            raise RequestRefused(error.rcvd.reason, status=404, code="unknown-learner") from None
        raise ServiceUnreachable(f"the stream was not opened: {close_reason(error)}") from None
    except (OSError, WebSocketException) as error:  # TimeoutError is an OSError
        raise ServiceUnreachable(f"the stream cannot be opened ({type(error).__name__}: {error})") from None
