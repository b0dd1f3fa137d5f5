"""Encode errors as problem+json (RFC 9457), and choose the id of a request, which every reply returns."""

from __future__ import annotations

import itertools
import os

from fastapi.responses import JSONResponse

from service.errors import ServiceError

__all__ = ["PROBLEM", "headers_of", "internal_error", "problem_reply", "request_id"]

PROBLEM = "application/problem+json"

_process_id = (
    f"{os.urandom(10).hex()}{{:012x}}".format
)  # random for this process, then an ordinal: unique, and cheaper than a random id
_next = itertools.count(1).__next__


def request_id(header: bytes) -> str:
    """Return the id of a request: its `X-Request-ID` if that is well-formed, else a new one."""
    if header:
        report = header.decode("latin-1")
        if len(report) <= 64 and report.isascii() and report.isprintable():
            return report
    return _process_id(_next())


def internal_error(error: Exception) -> ServiceError:
    """Return the error for a fault of ours; the server logs the traceback."""
    return ServiceError(f"an error of the service's own ({type(error).__name__}); it was logged")


def problem_reply(error: ServiceError, request_id: str) -> JSONResponse:
    """Return the problem document of an error as a reply."""
    return JSONResponse(error.document(request_id), error.status, headers_of(error), PROBLEM)


def headers_of(error: ServiceError) -> dict[str, str]:
    """Return the headers of a refusal beside those of every reply."""
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if error.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="rarestream"'
    return headers
