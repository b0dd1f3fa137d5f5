"""One request and its retries, without I/O.

A call is a generator. It yields an `ApiRequest` to send, or the `RetryPause` to wait, receives the answer, and returns
the call's result. `Client` and `AsyncClient` only do the I/O: one blocks, the other awaits.

When a request is sent again
    Certainly nothing was done (no connection, 429): always.
    The outcome is unknown (a broken connection, a time-out, 502, 503, 504): only if a repeat changes nothing. That is
    so for everything but updates in which some event has no id and there is no source, roll-backs, clones and imports.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple, TypeVar

from rarestream.client.errors import ClientError, OutcomeUnknown, RequestRefused, ServiceUnreachable, error_of

__all__ = [
    "JSON",
    "MSGPACK",
    "Answer",
    "ApiRequest",
    "ApiResponse",
    "Call",
    "Failure",
    "Retries",
    "RetryPause",
    "exchange",
]

JSON, MSGPACK = "application/json", "application/msgpack"
_TEMPORARY = frozenset({502, 503, 504})
_TOO_BUSY, _NOT_FOUND = 429, 404
_NOT_REPEATED = "the request may or may not have been applied, and was not sent again"


class ApiRequest(NamedTuple):
    """A request to send."""

    method: str
    path: str  # under /v1/, quoted
    body: bytes | None = None
    media_type: str = JSON  # of the body and of the answer
    repeatable: bool = True  # whether it may be sent again if the outcome is unknown
    remedy: str = ""  # what would make it repeatable


class RetryPause(NamedTuple):
    """A wait before the next attempt."""

    seconds: float
    error: ClientError  # of the last attempt
    left: float  # seconds until the client gives up


class ApiResponse(NamedTuple):
    """A complete answer."""

    status: int
    headers: Mapping[str, str]  # by names in lower case
    body: bytes
    url: str = ""  # that answered, without a password


class Failure(NamedTuple):
    """There is no answer."""

    may_have_arrived: bool  # whether the service may have received some of the request
    why: str
    code: str | None = None  # of `TLS_CODES`: another attempt would fail in the same way

    def to_error(self, request: ApiRequest) -> ClientError:
        """Return the error of the request that has no answer."""
        error = (OutcomeUnknown if self.may_have_arrived else ServiceUnreachable)(self.why, code=self.code)
        error.path, error.repeatable = request.path, request.repeatable
        return error


Answer = ApiResponse | Failure | None  # None: after a pause
Result = TypeVar("Result")
Call = Generator[ApiRequest | RetryPause, Answer, Result]


class Retries(NamedTuple):
    """How long and how often a request is sent again: full jitter under a bound that doubles."""

    patience: float  # seconds of failing after which the request fails for good; 0: it is sent once
    first: float = 0.25  # longest first pause in seconds
    longest: float = 8.0
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random  # from [0, 1)


def exchange(
    request: ApiRequest,
    retries: Retries,
    *,
    deleting: bool = False,
    check: Callable[[ApiResponse], ClientError | None] = lambda _: None,
) -> Call[tuple[ApiResponse, int]]:
    """Return the answer to a request, and how often the request was sent again.

    `deleting`: 404 is an answer, too, after an attempt that may have been applied. `check` returns an error for a
    successful answer that does not suffice.
    """
    first_failure: float | None = None
    bound = retries.first
    repeats = 0
    maybe_deleted = False
    while True:
        answer = yield request
        assert answer is not None
        error = _error_of(answer, request)
        if error is None or (maybe_deleted and error.status == _NOT_FOUND):
            assert isinstance(answer, ApiResponse)
            error = check(answer)
            if error is None:
                return answer, repeats
        error.path, error.repeatable = request.path, request.repeatable
        maybe_deleted = maybe_deleted or (deleting and isinstance(error, OutcomeUnknown))
        if not _is_temporary(error):
            raise error
        if not request.repeatable and isinstance(error, OutcomeUnknown):
            error.detail = "; ".join(filter(None, [error.detail, _NOT_REPEATED, request.remedy]))
            raise error
        now = retries.clock()
        first_failure = now if first_failure is None else first_failure
        error.retried_seconds = now - first_failure
        delay = (error.retry_after or 0.0) + bound * retries.jitter()
        if now + delay >= first_failure + retries.patience:
            raise error
        yield RetryPause(delay, error, first_failure + retries.patience - now)
        bound = min(2 * bound, retries.longest)
        repeats += 1


def _error_of(answer: ApiResponse | Failure, request: ApiRequest) -> ClientError | None:
    if isinstance(answer, Failure):
        return answer.to_error(request)
    if 200 <= answer.status < 300:
        return None
    return error_of(answer.status, answer.headers, answer.body, url=answer.url)


def _is_temporary(error: ClientError) -> bool:
    """Tell whether another attempt may succeed."""
    if isinstance(error, RequestRefused):
        return error.status == _TOO_BUSY
    return error.code is None if error.status is None else error.status in _TEMPORARY
