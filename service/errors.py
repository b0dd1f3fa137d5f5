"""Everything that can go wrong at the edge or below it, one tree. Each knows its HTTP status and its code.

ServiceError               500  internal             a fault of ours
|- BadRequest              400  bad-request          no HTTP at all; the connection is closed
|- BadBody                 400  bad-body             not JSON, or not the JSON of this route
|- Unauthorized            401  unauthorized         no key, or none that this service knows
|- Forbidden               403  forbidden            the key is not for this: a scope lacks, or another name
|- Invalid                 422  invalid              well-formed, but some values are wrong (each is listed)
|- UnknownLearner          404  unknown-learner
|- UnknownGroup            404  unknown-group
|- UnknownSnapshot         404  unknown-snapshot
|- UnknownPath             404  not-found            no websocket is there
|- NameTaken               409  name-taken           the name exists with another configuration, or at all
|- SourceGap               409  source-gap           the request begins after the next event of its source
|- BeyondLog               409  beyond-log           a position that is to be waited for is not in the log
|- LimitReached            409  limit-reached        no room for one more learner
|- TooSlow                 408  too-slow             the body did not come in time
|- TooLarge                413  too-large            the body is over the limit
|- HeadTooLarge            431  head-too-large       the request's line and headers are over the limit
|- NotAcceptable           406  not-acceptable       no reply is written as the request's Accept wants it
|- WrongType               415  unsupported-type     a Content-Type or Content-Encoding that the route does not read
|- ForeignOrigin           403  foreign-origin       a page of another site asks for a websocket, or for a change
|- ForeignHost             421  foreign-host         the request is for a host by whose name this node is not known
|- UpgradeRequired         426  upgrade-required     Upgrade: a websocket is there, and the request asks for none
|- QueueFull               429  queue-full           Retry-After: the learner is behind; nothing was taken
|- TooManyStreams          429  too-many-streams     Retry-After: as many streams are open as may be
|- HostUnavailable         503  host-unavailable     Retry-After: the node that hosts the learner does not answer
|- Behind                  503  behind               Retry-After: this node has not come to a position in time
|- RateLimited             429  rate-limited         Retry-After: the key's limit of requests or events a second
|  |- TooManyFailures      429  too-many-failures    Retry-After: wrong keys keep coming from this address
|- Stopping                503  stopping             Retry-After: this node stops; another, or its next start, goes on
|- Disconnected            499  gone                 in bodies.py, for the log: the client went away
|- StoreError              500  internal             the store failed
   |- StoreUnavailable     503  store-unavailable    Retry-After: the log cannot be written just now
   |  |- BehindLog         503  store-unavailable    the log was trimmed past the caller: load a snapshot
   |  |- LostRecords       503  store-unavailable    the store lost records that the caller has applied: begin again
   |  |- WrongStore        503  store-unavailable    at a start: what was named is no store, and becomes none by waiting
   |- LearnerGone          404  unknown-learner      deleted (or created anew) while the request waited
   |- Damaged              500  damaged              a record or snapshot that cannot be read back
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from learners import Problem
from learners.features import MAX_PROBLEMS

__all__ = [
    "BadBody",
    "BadRequest",
    "Behind",
    "BehindLog",
    "BeyondLog",
    "Damaged",
    "Forbidden",
    "ForeignHost",
    "ForeignOrigin",
    "HeadTooLarge",
    "HostUnavailable",
    "Invalid",
    "LearnerGone",
    "LimitReached",
    "LostRecords",
    "NameTaken",
    "NotAcceptable",
    "QueueFull",
    "RateLimited",
    "ServiceError",
    "SourceGap",
    "Stopping",
    "StoreError",
    "StoreUnavailable",
    "TooLarge",
    "TooManyFailures",
    "TooManyStreams",
    "TooSlow",
    "Unauthorized",
    "UnknownGroup",
    "UnknownLearner",
    "UnknownPath",
    "UnknownSnapshot",
    "UpgradeRequired",
    "WrongStore",
    "WrongType",
]


class ServiceError(Exception):
    """Base: an error that is answered as RFC 9457 problem+json."""

    status = 500
    code = "internal"
    title = "Internal error"
    retry_after: int | None = None  # seconds

    def __init__(self, detail: str, problems: Sequence[Problem] = ()) -> None:
        self.detail = detail
        self.problems = list(problems[:MAX_PROBLEMS])  # settings may have any number of wrong members
        super().__init__(detail)

    def document(self, request_id: str = "") -> dict[str, Any]:
        """The problem document (RFC 9457) of this error."""
        return {
            "type": f"urn:rarestream:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "errors": [problem.to_json() for problem in self.problems],
            "request_id": request_id,
        }


class BadRequest(ServiceError):
    """What came is no request of HTTP; the connection is closed."""

    status, code, title = 400, "bad-request", "No request of HTTP"


class BadBody(ServiceError):
    """The body is not JSON, or not the JSON that this route reads."""

    status, code, title = 400, "bad-body", "The body cannot be read"


class Unauthorized(ServiceError):
    """The request has no key, or none that is known, or one that is over."""

    status, code, title = 401, "unauthorized", "A key is needed"


class Forbidden(ServiceError):
    """The key is a good one, and not for this."""

    status, code, title = 403, "forbidden", "The key is not for this"


class Invalid(ServiceError):
    """Well-formed, but with values that are refused; `problems` points at each."""

    status, code, title = 422, "invalid", "Some values are refused"


class UnknownLearner(ServiceError):
    """No learner has this name."""

    status, code, title = 404, "unknown-learner", "No such learner"


class UnknownGroup(ServiceError):
    """No group has this name."""

    status, code, title = 404, "unknown-group", "No such group"


class UnknownSnapshot(ServiceError):
    """No retained snapshot stands at this position."""

    status, code, title = 404, "unknown-snapshot", "No such snapshot"


class NameTaken(ServiceError):
    """The name exists with another configuration, or, where a copy is made, at all."""

    status, code, title = 409, "name-taken", "The name is taken"


class SourceGap(ServiceError):
    """The request begins after the next event of its source; learning it would lose those between."""

    status, code, title = 409, "source-gap", "Events are missing before these"


class TooSlow(ServiceError):
    """The body did not come in time."""

    status, code, title = 408, "too-slow", "The body did not come in time"


class TooLarge(ServiceError):
    """The body is over the limit."""

    status, code, title = 413, "too-large", "The body is too large"


class HeadTooLarge(ServiceError):
    """The request's line and its headers are over the limit; the connection is closed."""

    status, code, title = 431, "head-too-large", "The request's head is too large"


class NotAcceptable(ServiceError):
    """No reply is written in any form that the request accepts."""

    status, code, title = 406, "not-acceptable", "No reply of an accepted type"


class WrongType(ServiceError):
    """The route does not read this Content-Type or Content-Encoding."""

    status, code, title = 415, "unsupported-type", "The media type is not supported"


class ForeignOrigin(ServiceError):
    """A page of another site asks for a websocket, or, where no keys are asked for, for a change."""

    status, code, title = 403, "foreign-origin", "The page is of another origin"


class ForeignHost(ServiceError):
    """The request's Host is a name by which this node is not known: that of a page whose name was bent to us."""

    status, code, title = 421, "foreign-host", "The request is for another host"


class UnknownPath(ServiceError):
    """There is no websocket at this path."""

    status, code, title = 404, "not-found", "No such path"


class UpgradeRequired(ServiceError):
    """A websocket is at this path, and the request asks for none."""

    status, code, title = 426, "upgrade-required", "This path is a websocket"


class QueueFull(ServiceError):
    """The learner is behind; nothing of the request was taken."""

    status, code, title, retry_after = 429, "queue-full", "The learner's queue is full", 1


class TooManyStreams(ServiceError):
    """As many streams are open as may be."""

    status, code, title, retry_after = 429, "too-many-streams", "Too many streams are open", 10


class HostUnavailable(ServiceError):
    """The node that hosts the learner does not answer; what became of the request is not known."""

    status, code, title, retry_after = 503, "host-unavailable", "The learner's node does not answer", 1


class Behind(ServiceError):
    """This node has not come to a position of the log in time, to which others have come."""

    status, code, title, retry_after = 503, "behind", "This node is behind", 1


class BeyondLog(ServiceError):
    """A position is not in the log: it is another learner's, or the store has lost it."""

    status, code, title = 409, "beyond-log", "The log does not reach so far"


class RateLimited(ServiceError):
    """The key has used up what it may use in a second; nothing of the request was done."""

    status, code, title = 429, "rate-limited", "A limit of the key is reached"

    def __init__(self, detail: str, retry_after: int) -> None:
        """`retry_after`: seconds."""
        super().__init__(detail)
        self.retry_after = retry_after


class TooManyFailures(RateLimited):
    """Wrong keys keep coming from the client's address."""

    code, title = "too-many-failures", "Too many wrong keys"


class Stopping(ServiceError):
    """This node stops: it takes no more of the request."""

    status, code, title, retry_after = 503, "stopping", "This node stops", 1


class LimitReached(ServiceError):
    """A configured bound leaves no room."""

    status, code, title = 409, "limit-reached", "A limit is reached"


class StoreError(ServiceError):
    """The store failed."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or written just now."""

    status, code, title, retry_after = 503, "store-unavailable", "The log cannot be written just now", 1


class WrongStore(StoreUnavailable):
    """What was named as the store cannot be one: its folder is not there, or the file holds something else."""


class BehindLog(StoreUnavailable):
    """The log was trimmed past where the caller stands: only a snapshot leads on. Nothing was written."""


class LostRecords(StoreUnavailable):
    """The log is not the one any more that led to where the caller stands: it ends before, or others have gone on from
    an earlier record. Nothing was written."""


class LearnerGone(StoreError):
    """The learner was deleted, or created anew, while the request waited."""

    status, code, title = 404, "unknown-learner", "No such learner"


class Damaged(StoreError):
    """A record or a snapshot cannot be read back."""

    status, code, title = 500, "damaged", "Stored data cannot be read back"
