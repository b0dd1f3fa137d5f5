"""Errors of a call, one tree. The class says whether the request changed anything.

ClientError
|- RequestRefused       the service refused it (4xx), or is too busy (429): nothing was done
|- ServiceUnreachable   there was no connection: nothing was done
|- OutcomeUnknown       it was sent, but no answer says what was done (a broken connection, a time-out, any 5xx)
   |- StreamBroken      the same for all unanswered requests of a stream that broke

Arguments that do not fit together (for example fewer labels than events) raise ValueError before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

__all__ = [
    "ClientError",
    "InvalidSetting",
    "InvalidValue",
    "OutcomeUnknown",
    "RequestRefused",
    "ServiceUnreachable",
    "StreamBroken",
    "UnansweredRequest",
    "error_of",
]

_MAX_PRINTED = 10  # values in an error's text
TLS_CODES = ("tls-needed", "tls-missing", "certificate-name", "certificate-untrusted")  # why there is no connection


class InvalidSetting(ValueError):
    """An argument of `Client` is unusable; `setting` is its name."""

    def __init__(self, setting: str, detail: str) -> None:
        super().__init__(detail)
        self.setting = setting


class InvalidValue(NamedTuple):
    """A refused value of a request."""

    pointer: str  # JSON pointer (RFC 6901) into the request's body: "/labels/3"
    detail: str  # what is wrong, for people
    code: str = "invalid"  # or "missing", "unknown" (a name) or "conflict" (with another value)
    value: Any = None  # the scalar, or the unknown name, if the service sends it
    expected: Mapping[str, Any] | None = None  # JSON schema of what is accepted, if known


class UnansweredRequest(NamedTuple):
    """A request of a stream that broke before the answer."""

    seq: int
    operation: str
    ids: Sequence[str | int | None] | None  # as sent; safe to repeat if every event has one


class ClientError(Exception):
    """Base. `str()` is for people: the detail, and a line for each of the first refused values."""

    def __init__(
        self,
        detail: str,
        *,
        status: int | None = None,
        code: str | None = None,
        problems: Sequence[InvalidValue] = (),
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status  # of HTTP; None without an answer
        self.code = code  # "invalid", "unknown-learner", ...; without an answer one of `TLS_CODES`, or None
        self.problems = tuple(problems)
        self.retry_after = retry_after  # seconds
        self.request_id = request_id  # as in the service's log
        self.path: str | None = None  # of the request, under /v1/
        self.repeatable = True  # whether it is safe to send the same request again
        self.retried_seconds = 0.0  # how long the client retried before it gave up
        self.done = 0  # events of the call in requests answered before this one: continue after them
        self.ids: Sequence[str | int | None] | None = None  # of the call (of an upload: of the batch), ids="auto" too

    def __str__(self) -> str:
        lines = [self.detail, *(f"  {problem.pointer}: {problem.detail}" for problem in self.problems[:_MAX_PRINTED])]
        if len(self.problems) > _MAX_PRINTED:
            lines.append(f"  and {len(self.problems) - _MAX_PRINTED} more")
        if self.done:
            lines.append(f"The {self.done} events before were answered; this request begins after them")
        return "\n".join(lines)


class RequestRefused(ClientError):
    """The service refused the request; nothing was done."""


class ServiceUnreachable(ClientError):
    """There was no connection; nothing was done."""


class OutcomeUnknown(ClientError):
    """No answer says whether the request was applied."""


class StreamBroken(OutcomeUnknown):
    """The websocket was closed, by the other side or by the network, before every answer arrived."""

    def __init__(self, detail: str, unanswered: Sequence[UnansweredRequest]) -> None:
        super().__init__(detail)
        self.unanswered = tuple(unanswered)  # in the order in which they were sent
        self.raised = False  # whether the caller has seen this error

    def __str__(self) -> str:
        if not self.unanswered:
            return f"{self.detail}; every request had been answered"
        numbers = ", ".join(str(request.seq) for request in self.unanswered[:_MAX_PRINTED])
        more = f" and {len(self.unanswered) - _MAX_PRINTED} more" if len(self.unanswered) > _MAX_PRINTED else ""
        return f"{self.detail}; no answer to {numbers}{more}: repeat those whose events have ids"


class _InvalidValueBody(msgspec.Struct):
    pointer: str = ""
    detail: str = ""
    code: str = "invalid"
    value: Any = None
    expected: dict[str, Any] | None = None


class _ErrorBody(msgspec.Struct):
    detail: str
    code: str | None = None
    errors: list[_InvalidValueBody] = []
    retry_after: float | None = None  # of a stream, which has no headers
    request_id: str | None = None


def error_of(
    status: int, headers: Mapping[str, str], body: bytes | memoryview, coding: str = "json", url: str = ""
) -> ClientError:
    """Return the error that an unsuccessful answer stands for; `coding` "msgpack": a message of a stream."""
    header = headers.get("retry-after", "")
    retry_after = float(header) if header.isdecimal() else None  # a date, as some proxies send, is ignored
    kind = RequestRefused if status < 500 else OutcomeUnknown
    decode = msgspec.json.decode if coding == "json" else msgspec.msgpack.decode
    try:
        reply: _ErrorBody | None = decode(body, type=_ErrorBody)
    except msgspec.MsgspecError:  # from a proxy, or another program at that address
        reply = None
    not_found = status == HTTPStatus.NOT_FOUND
    if reply is None or (not_found and (reply.code is None or (reply.code == "not-found" and not reply.errors))):
        text = f"{url or 'the server'} answered {status} {_phrase(status)}".rstrip()
        text = f"no rarestream service answers: {text}" if not_found else f"{text}, which is no reply of rarestream"
        return kind(text, status=status, retry_after=retry_after)
    return kind(
        reply.detail,
        status=status,
        code=reply.code,
        problems=[InvalidValue(*msgspec.structs.astuple(value)) for value in reply.errors],
        retry_after=reply.retry_after if retry_after is None else retry_after,
        request_id=reply.request_id,
    )


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
