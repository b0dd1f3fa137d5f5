"""What the command line reads of the service's answers: documents, and refusals as errors in words for people.

It imports neither NumPy nor the service: commands start quickly.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from service.exits import CommandFailed, ExitStatus

__all__ = ["ApiError", "Document", "Problem", "decode", "refused", "told", "unknown", "unreachable"]

Document = dict[str, Any]  # a reply as the API describes it
Reply = TypeVar("Reply")

_ARGUMENTS = {"/name": "NAME", "/to": "TO"}  # what stands in a path, or alone in a body, is an argument
_LISTED = 10  # problems of one reply that its error shows
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_CUT_OFF = (httpx.RemoteProtocolError, httpx.ReadError)  # as a server of TLS answers what is none
_HANDSHAKE = 2.0  # seconds that an address has to show that it speaks TLS


class Problem(msgspec.Struct):
    """One value that was refused."""

    pointer: str = ""
    detail: str = ""
    code: str = "invalid"  # unknown: there is no setting of this name
    value: Any = None  # the scalar that was refused, or the unknown name
    expected: dict[str, Any] = {}  # JSON schema


class _ProblemBody(msgspec.Struct):
    detail: str
    code: str | None = None
    errors: list[Problem] = []


class ApiError(CommandFailed):
    """The service refused, or cannot be reached. The text is for people: what was wrong, one line per problem."""

    def __init__(
        self,
        text: str,
        status: int | None = None,
        retry_after: float | None = None,
        code: str | None = None,
        problems: Sequence[Problem] = (),
    ) -> None:
        super().__init__(text)
        self.status = status  # of HTTP; None where there was no answer
        self.code = code  # of the problem, "unknown-learner" and so on; None where rarestream did not name one
        self.retry_after = retry_after  # seconds
        self.problems = tuple(problems)
        self.pointers = tuple(one.pointer for one in problems)  # to the values of the request that were refused
        self.nothing_done = status == httpx.codes.TOO_MANY_REQUESTS  # for certain, though it passes
        self.lasting = False  # it will not pass: there is no use in another attempt
        if status is None or (status == httpx.codes.NOT_FOUND and code is None):
            self.exit_status = ExitStatus.UNREACHABLE
        elif status == httpx.codes.NOT_FOUND and code != "not-found":  # that is of a path: of a name that is none
            self.exit_status = ExitStatus.NOT_FOUND
        elif status < 500:
            self.exit_status = ExitStatus.REFUSED


def told(detail: str, problems: Sequence[Problem]) -> str:
    """A refusal as it is printed: a line for each problem, of the first few."""
    lines = [f"  {_ARGUMENTS.get(one.pointer, one.pointer)}: {one.detail}" for one in problems]
    more = [f"  and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return "\n".join([detail, *lines[:_LISTED], *more])


def refused(response: httpx.Response, url: str) -> ApiError:
    """What an answer that is no success says; `url` is where the service was called."""
    after = response.headers.get("retry-after", "")
    retry_after = float(after) if after.isdecimal() else None  # a date, as some proxies send, is not honoured
    try:
        body = msgspec.json.decode(response.content, type=_ProblemBody)
    except msgspec.MsgspecError:  # not from the service itself: a proxy, or another program at that address
        body = None
    missing = response.status_code == httpx.codes.NOT_FOUND
    if body is None or (missing and (body.code is None or (body.code == "not-found" and not body.errors))):
        text = f"{_where(response)} answered {response.status_code} {response.reason_phrase}"
        if missing:
            text = f"no rarestream service answers at {url}: {text}"
        return ApiError(text, response.status_code, retry_after)
    return ApiError(told(body.detail, body.errors), response.status_code, retry_after, body.code, body.errors)


def unreachable(url: str, error: httpx.TransportError) -> ApiError:
    """The error of a call that got no answer; where the scheme of the URL is why, it says so."""
    text, hint = f"cannot reach {url}: {error or type(error).__name__}", ""
    if isinstance(error, _CUT_OFF) and url.startswith("http://") and _speaks_tls(url):
        hint = f"\nTLS answers there: use https{url.removeprefix('http')}"
    elif "WRONG_VERSION_NUMBER" in str(error):  # what OpenSSL makes of an answer without TLS
        hint = f"\nWhat answers there does not speak TLS, as https takes: use http{url.removeprefix('https')}"
    found = ApiError(text + hint)
    found.nothing_done = isinstance(error, _NOT_SENT)
    found.lasting = bool(hint)
    return found


def unknown(error: ApiError) -> ApiError:
    """The error of a call that may have been carried out, and is not repeated for that."""
    text = f"{error}\nWhether the request was carried out is not known, and it was not sent again"
    found = ApiError(text, error.status, code=error.code)
    found.exit_status = ExitStatus.FAILED
    return found


def decode(response: httpx.Response, kind: type[Reply]) -> Reply:
    """The body of an answer. Raises `ApiError` where it is not what the service would say."""
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.MsgspecError as error:
        found = ApiError(f"{_where(response)} does not answer like rarestream: {error}", response.status_code)
        found.exit_status = ExitStatus.UNREACHABLE
        raise found from None


def _where(response: httpx.Response) -> str:
    """The URL that answered, without a password."""
    return str(response.request.url.copy_with(userinfo=b""))


def _speaks_tls(url: str) -> bool:
    """Whether a TLS handshake with that address comes about, by whatever certificate."""
    parts = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent, and nothing believed
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=_HANDSHAKE) as connection:
            context.wrap_socket(connection, server_hostname=parts.hostname).close()
    except OSError:  # of ssl, too
        return False
    return True
