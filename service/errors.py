"""The tree of errors that a request can be answered with; each has an HTTP status and a code.

ServiceError               500  internal             internal error
|- BadRequest              400  bad-request          malformed HTTP; the connection is closed
|- BadBody                 400  bad-body             the body is not JSON, or not the JSON of this route
|- Unauthorized            401  unauthorized         no API key, or an unknown one
|- Forbidden               403  forbidden            the key lacks a scope, or may not access this learner
|- Invalid                 422  invalid              well-formed, but some values are invalid (each is listed)
|- UnknownLearner          404  unknown-learner
|- UnknownGroup            404  unknown-group
|- UnknownSnapshot         404  unknown-snapshot
|- UnknownEvent            404  unknown-event        no event of this id was served, or it is no longer remembered
|- UnknownAlarm            404  unknown-alarm        no stored alarm has this number
|- UnknownPath             404  not-found            there is no websocket at this path
|- NameTaken               409  name-taken           the name exists, with another configuration
|- AlreadyAcknowledged     409  acknowledged         somebody else has acknowledged the alarm
|- SourceGap               409  source-gap           events of the source between the last one and these are missing
|- BeyondLog               409  beyond-log           the log is shorter than the position to wait for
|- LimitReached            409  limit-reached        the limit of learners is reached
|- TooSlow                 408  too-slow             the body did not arrive in time
|- TooLarge                413  too-large            the body exceeds the limit
|- HeadTooLarge            431  head-too-large       the request line and headers exceed the limit
|- NotAcceptable           406  not-acceptable       no reply has a type that Accept allows
|- WrongType               415  unsupported-type     the route does not read this Content-Type or Content-Encoding
|- ForeignOrigin           403  foreign-origin       a page of another site requests a websocket, or a change
|- ForeignHost             421  foreign-host         the Host is no name of this node
|- UpgradeRequired         426  upgrade-required     the path is a websocket; the request is none
|- QueueFull               429  queue-full           Retry-After: the learner's queue is full; nothing was accepted
|- TooManyStreams          429  too-many-streams     Retry-After: the limit of open streams is reached
|- HostUnavailable         503  host-unavailable     Retry-After: the node of the learner does not respond
|- Behind                  503  behind               Retry-After: this node did not reach a position in time
|- RateLimited             429  rate-limited         Retry-After: the key exceeds its requests or events per second
|  |- TooManyFailures      429  too-many-failures    Retry-After: too many wrong keys from this address
|- Stopping                503  stopping             Retry-After: this node is shutting down
|- Disconnected            499  gone                 in api/body.py, for the log: the client disconnected
|- StoreError              500  internal             the store failed
   |- StoreUnavailable     503  store-unavailable    Retry-After: the store cannot be written now
   |  |- StoreFull         503  store-full           Retry-After: the store has no room; what needs none still works
   |  |- BehindLog         503  store-unavailable    the log was trimmed beyond this replica: load a snapshot
   |  |- LostRecords       503  store-unavailable    the store lost records that this replica has applied
   |  |- WrongStore        503  store-unavailable    at start: the path or URL is not a store; waiting does not help
   |- LearnerGone          404  unknown-learner      the learner was deleted or recreated while the request waited
   |- Damaged              500  damaged              a record or snapshot cannot be read
      |- Vanished          500  vanished             the store no longer has the learner, though nobody deleted it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from learners import Problem
from learners.features import MAX_PROBLEMS

__all__ = [
    "AlreadyAcknowledged",
    "BadBody",
    "BadRequest",
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
    "LearnerMissing",
    "LimitReached",
    "LostRecords",
    "NameTaken",
    "NotAcceptable",
    "PositionNotReached",
    "QueueFull",
    "RateLimited",
    "ServiceError",
    "SourceGap",
    "Stopping",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "TooLarge",
    "TooManyFailures",
    "TooManyStreams",
    "TooSlow",
    "Unauthorized",
    "UnknownAlarm",
    "UnknownEvent",
    "UnknownGroup",
    "UnknownLearner",
    "UnknownPath",
    "UnknownSnapshot",
    "UpgradeRequired",
    "WrongStore",
    "WrongType",
]


class ServiceError(Exception):
    """Base: an error whose reply is RFC 9457 problem+json."""

    status = 500
    code = "internal"
    title = "Internal error"
    retry_after: int | None = None  # seconds

    def __init__(self, detail: str, problems: Sequence[Problem] = ()) -> None:
        self.detail = detail
        self.problems = list(problems[:MAX_PROBLEMS])  # an object may have any number of invalid members
        super().__init__(detail)

    def document(self, request_id: str = "") -> dict[str, Any]:
        """Return the problem document (RFC 9457) of this error."""
        return {
            "type": f"/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "errors": [problem.to_json() for problem in self.problems],
            "request_id": request_id,
        }


class BadRequest(ServiceError):
    """The bytes received are not an HTTP request; the connection is closed."""

    status, code, title = 400, "bad-request", "Malformed HTTP request"


class BadBody(ServiceError):
    """The body is not JSON, or not the JSON of this route."""

    status, code, title = 400, "bad-body", "Malformed body"


class Unauthorized(ServiceError):
    """The request has no API key, or an unknown, revoked or expired one."""

    status, code, title = 401, "unauthorized", "A valid API key is required"


class Forbidden(ServiceError):
    """The key is valid, but does not permit this request."""

    status, code, title = 403, "forbidden", "The key does not permit this"


class Invalid(ServiceError):
    """The request is well-formed, but has invalid values; `problems` points at each."""

    status, code, title = 422, "invalid", "Invalid values"


class UnknownLearner(ServiceError):
    """No learner has this name."""

    status, code, title = 404, "unknown-learner", "No such learner"


class UnknownGroup(ServiceError):
    """No group has this name."""

    status, code, title = 404, "unknown-group", "No such group"


class UnknownSnapshot(ServiceError):
    """No retained snapshot has this position."""

    status, code, title = 404, "unknown-snapshot", "No such snapshot"


class UnknownEvent(ServiceError):
    """No event of this id was served, or it is no longer remembered."""

    status, code, title = 404, "unknown-event", "No such event"


class UnknownAlarm(ServiceError):
    """No stored alarm has this number."""

    status, code, title = 404, "unknown-alarm", "No such alarm"


class AlreadyAcknowledged(ServiceError):
    """Somebody else has acknowledged the alarm; the note of the request was not added."""

    status, code, title = 409, "acknowledged", "The alarm is acknowledged already"


class NameTaken(ServiceError):
    """The name exists: with another configuration or, for a copy, at all."""

    status, code, title = 409, "name-taken", "The name is already in use"


class SourceGap(ServiceError):
    """The request starts after the next event of its source; learning it would skip the events between."""

    status, code, title = 409, "source-gap", "Events of the source are missing"


class TooSlow(ServiceError):
    """The body did not arrive in time."""

    status, code, title = 408, "too-slow", "The body did not arrive in time"


class TooLarge(ServiceError):
    """The body exceeds the limit."""

    status, code, title = 413, "too-large", "The body is too large"


class HeadTooLarge(ServiceError):
    """The request line and headers exceed the limit; the connection is closed."""

    status, code, title = 431, "head-too-large", "The request headers are too large"


class NotAcceptable(ServiceError):
    """No reply has a type that the request accepts."""

    status, code, title = 406, "not-acceptable", "No reply has an accepted type"


class WrongType(ServiceError):
    """The route does not read this Content-Type or Content-Encoding."""

    status, code, title = 415, "unsupported-type", "The media type is not supported"


class ForeignOrigin(ServiceError):
    """A page of another site requests a websocket, or a change if the node has no keys."""

    status, code, title = 403, "foreign-origin", "The page has another origin"


class ForeignHost(ServiceError):
    """The Host header is no name of this node, e.g. after DNS rebinding."""

    status, code, title = 421, "foreign-host", "The request is for another host"


class UnknownPath(ServiceError):
    """There is no websocket at this path."""

    status, code, title = 404, "not-found", "No such path"


class UpgradeRequired(ServiceError):
    """The path is a websocket, and the request does not upgrade."""

    status, code, title = 426, "upgrade-required", "This path is a websocket"


class QueueFull(ServiceError):
    """The learner's queue is full; nothing of the request was accepted."""

    status, code, title, retry_after = 429, "queue-full", "The learner's queue is full", 1


class TooManyStreams(ServiceError):
    """The limit of open streams is reached."""

    status, code, title, retry_after = 429, "too-many-streams", "Too many streams are open", 10


class HostUnavailable(ServiceError):
    """The node that hosts the learner does not respond; the outcome of the request is unknown."""

    status, code, title, retry_after = 503, "host-unavailable", "The learner's node does not respond", 1


class PositionNotReached(ServiceError):
    """This node did not reach a position of the log in time that other nodes have reached."""

    status, code, title, retry_after = 503, "behind", "This node is behind", 1


class BeyondLog(ServiceError):
    """The log has no such position: it belongs to another learner, or the store lost it."""

    status, code, title = 409, "beyond-log", "The log is shorter"


class RateLimited(ServiceError):
    """The key exceeds its limit per second; nothing was changed."""

    status, code, title = 429, "rate-limited", "The key exceeds its rate limit"

    def __init__(self, detail: str, retry_after: int) -> None:
        """Create the error; `retry_after` is in seconds."""
        super().__init__(detail)
        self.retry_after = retry_after


class TooManyFailures(RateLimited):
    """Too many wrong keys arrived from the client's address."""

    code, title = "too-many-failures", "Too many wrong keys"


class Stopping(ServiceError):
    """This node is shutting down and accepts no more of the request."""

    status, code, title, retry_after = 503, "stopping", "This node is shutting down", 1


class LimitReached(ServiceError):
    """A configured bound leaves no room."""

    status, code, title = 409, "limit-reached", "A limit is reached"


class StoreError(ServiceError):
    """The store failed."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or written now."""

    status, code, title, retry_after = 503, "store-unavailable", "The store is unavailable", 1


class StoreFull(StoreUnavailable):
    """The store answers, but has no room for this. Deletions, trimming and changes of settings still work."""

    code, title = "store-full", "The store is full"


class WrongStore(StoreUnavailable):
    """The path or URL is not a store: the folder is missing, or the file is something else."""


class BehindLog(StoreUnavailable):
    """The log was trimmed beyond the caller's position: load a snapshot. Nothing was written."""


class LostRecords(StoreUnavailable):
    """The store lost records that the caller applied; perhaps others were appended since. Nothing was written."""


class LearnerGone(StoreError):
    """The learner was deleted or recreated while the request waited."""

    status, code, title = 404, "unknown-learner", "No such learner"


class Damaged(StoreError):
    """A record or a snapshot cannot be read."""

    status, code, title = 500, "damaged", "Stored data is damaged"


class LearnerMissing(Damaged):
    """The store no longer has the learner, and no record of its deletion."""

    code, title = "vanished", "The store lost the learner"

    def __init__(self, detail: str, birth: bytes) -> None:
        """Create the error; `birth` is that of the lost log."""
        super().__init__(detail)
        self.birth = birth
