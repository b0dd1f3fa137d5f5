"""What every reply has in common: an error is problem+json (RFC 9457), and a request has an id, which comes back."""

from __future__ import annotations

import itertools
import os

from fastapi.responses import JSONResponse

from service.errors import ServiceError

__all__ = ["PROBLEM", "headers_of", "internal_error", "problem_reply", "request_id"]

PROBLEM = "application/problem+json"

_own = f"{os.urandom(10).hex()}{{:012x}}".format  # of this process, then the how manieth: as unique as a random one
_next = itertools.count(1).__next__


def request_id(given: bytes) -> str:
    """The id of a request: what its `X-Request-ID` gives where that is a sane one, else a new one."""
    if given:
        report = given.decode("latin-1")
        if len(report) <= 64 and report.isascii() and report.isprintable():
            return report
    return _own(_next())


def internal_error(error: Exception) -> ServiceError:
    """What is said of a fault of ours; the server logs it."""
    return ServiceError(f"an error of the service's own ({type(error).__name__}); it was logged")


def problem_reply(error: ServiceError, request_id: str) -> JSONResponse:
    """The reply that says what is wrong with a request."""
    return JSONResponse(error.document(request_id), error.status, headers_of(error), PROBLEM)


def headers_of(error: ServiceError) -> dict[str, str]:
    """The headers that a refusal has beside those of every reply."""
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if error.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="rarestream"'
    return headers
