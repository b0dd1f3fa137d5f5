"""What can go wrong with a call, one tree: what the caller has to know is whether anything was changed.

ClientError
|- Refused          the service said no (4xx), or is too busy for now (429): nothing of the request was done
|- Unreachable      there was no connection: nothing of the request was done
|- Unanswered       it was sent, and no answer says what became of it (a broken connection, a time-out, any 5xx)
   |- StreamBroken  so it is with all requests of a stream that had not been answered when it broke

Arguments that do not fit together (as many labels as events, and so on) raise ValueError before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

__all__ = ["ClientError", "Lost", "Problem", "Refused", "StreamBroken", "Unanswered", "Unreachable", "error_of"]

_LISTED = 10  # problems that an error's text shows


class Problem(NamedTuple):
    """One value of a request that was refused."""

    pointer: str  # JSON pointer (RFC 6901) into the request's body: "/labels/3"
    detail: str  # what it is, and what was expected


class Lost(NamedTuple):
    """A request of a stream that broke before the answer."""

    seq: int
    operation: str
    ids: Sequence[str | int | None] | None  # as they were sent: the request may be repeated where every event has one


class ClientError(Exception):
    """Base. `str()` of it is for people: the detail, and a line for each of the first problems."""

    def __init__(
        self,
        detail: str,
        *,
        status: int | None = None,
        code: str | None = None,
        problems: Sequence[Problem] = (),
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status  # of HTTP; None where there was no answer
        self.code = code  # "invalid", "unknown-learner", ...; None where rarestream did not name one
        self.problems = tuple(problems)
        self.retry_after = retry_after  # seconds
        self.request_id = request_id  # as in the service's log
        self.done = 0  # events of the call that were answered before, in requests of their own: go on from there
        self.ids: Sequence[str | int | None] | None = None  # of the call (of an upload: the batch), ids="auto" or not

    def __str__(self) -> str:
        lines = [self.detail, *(f"  {one.pointer}: {one.detail}" for one in self.problems[:_LISTED])]
        if len(self.problems) > _LISTED:
            lines.append(f"  and {len(self.problems) - _LISTED} more")
        if self.done:
            lines.append(f"The {self.done} events before were answered; this is about a request that begins after them")
        return "\n".join(lines)


class Refused(ClientError):
    """The service said no; nothing of the request was done."""


class Unreachable(ClientError):
    """There was no connection; nothing of the request was done."""


class Unanswered(ClientError):
    """No answer says what became of the request: it was carried out, or it was not."""


class StreamBroken(Unanswered):
    """The websocket was closed, by the other side or by the network, with requests unanswered."""

    def __init__(self, detail: str, unanswered: Sequence[Lost]) -> None:
        super().__init__(detail)
        self.unanswered = tuple(unanswered)  # in the order in which they were sent
        self.raised = False  # whether the caller knows

    def __str__(self) -> str:
        if not self.unanswered:
            return f"{self.detail}; every request had been answered"
        numbers = ", ".join(str(one.seq) for one in self.unanswered[:_LISTED])
        more = f" and {len(self.unanswered) - _LISTED} more" if len(self.unanswered) > _LISTED else ""
        return f"{self.detail}; no answer to {numbers}{more}: repeat those whose events have ids"


class _Problem(msgspec.Struct):
    pointer: str = ""
    detail: str = ""


class _ProblemBody(msgspec.Struct):
    detail: str
    code: str | None = None
    errors: list[_Problem] = []
    retry_after: float | None = None  # of a stream, where there are no headers
    request_id: str | None = None


def error_of(status: int, headers: Mapping[str, str], body: bytes | memoryview, coding: str = "json") -> ClientError:
    """What an answer that is no success says; `coding`: "json", or "msgpack" for a message of a stream."""
    after = headers.get("retry-after", "")
    retry_after = float(after) if after.isdecimal() else None  # a date, as some proxies send, is not honoured
    kind = Refused if status < 500 else Unanswered
    decode = msgspec.json.decode if coding == "json" else msgspec.msgpack.decode
    try:
        found = decode(body, type=_ProblemBody)
    except msgspec.MsgspecError:  # not from rarestream: a proxy, or another program at that address
        return kind(f"the answer is {status}, and not in rarestream's words", status=status, retry_after=retry_after)
    return kind(
        found.detail,
        status=status,
        code=found.code,
        problems=[Problem(one.pointer, one.detail) for one in found.errors],
        retry_after=found.retry_after if retry_after is None else retry_after,
        request_id=found.request_id,
    )
