"""Predicts and updates answered by the connection itself: without a task, a scope and messages of ASGI.

    a whole request -> Direct.asked (its head) -> Direct.answer (the body of a predict) -> the reply's bytes
                                               -> Direct.learn (the body of an update)  -> Learning: the reply to come
                    -> None: it goes the way of all others, by ASGI to `edge.py`

Those cost about as much as all that is done for one event. So what is plain (a small JSON or MessagePack body that is
not compressed, no query, a learner that is awake) is decoded where it is read, and then scored and encoded, or queued
to be learnt. Nothing is refused here but what was queued and could not be learnt: whatever else this does not answer
with 200 is answered, and worded, by the edge. So a server that knows nothing of this serves the same replies.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

from starlette.types import Scope

from service.api.body import Bodies
from service.api.fast_path.operations import at_once
from service.api.paths import match_operation
from service.auth import NEEDED, Guard
from service.engine import Engine
from service.engine.replica import LearnerReplica
from service.errors import ServiceError, StoreUnavailable
from service.telemetry import Access, current_request
from service.wire import (
    NDJSON,
    Coding,
    Learnt,
    Operation,
    heading_of,
    internal_error,
    negotiated,
    problem_reply,
    request_id,
)

__all__ = ["STOPS", "Asked", "Direct", "Learning"]

logger = logging.getLogger("rarestream.direct")

_LARGEST = 2**16  # bytes of a body: it is read, scored and answered in one go, and others wait meanwhile
_END = b"\r\n\r\n"  # of a head
_FORWARDED = b"\r\nx-forwarded-"
_AUTHORIZATION = b"\r\nauthorization:"
_ADMITTED_BY = (b"authorization", b"host", b"origin", b"sec-fetch-site")
_LONGEST = 1024  # bytes of a head that is kept in mind,
_HEADS = 1024  # and so many of them
_DIGITS = len(str(_LARGEST))
STOPS = "this node stops; whether the request is in the log is not known"  # to a client that still waits


class Asked(NamedTuple):
    """What the head of a request asks for."""

    name: str  # of the learner
    operation: Operation
    read: Coding
    write: Coding
    length: int  # of its body, in bytes
    request_id: bytes  # that it brings; b"" where it brings none
    headers: tuple[tuple[bytes, bytes], ...]  # by which it is admitted


class Learning:
    """An update that is queued, and the reply to come."""

    def __init__(
        self,
        done: asyncio.Future[Learnt],
        asked: Asked,
        learner: LearnerReplica,
        ids: tuple[str | None, ...] | None,
        access: Access,
        entry: tuple[float, Scope, int, int],
    ) -> None:
        """`entry`: when it began, by `perf_counter()`, its scope, bytes and events; the learner is held until `reply`.

        Who cancels `done` gives up waiting, and then the reply says so.
        """
        self.done = done
        self._asked = asked
        self._learner = learner
        self._ids = ids
        self._access = access
        self._entry = entry
        learner.users += 1

    def reply(self) -> tuple[int, bytes]:
        """The status, and all that follows the headers that a server has of its own; once, when `done` is."""
        self._learner.release()
        own_id = request_id(self._asked.request_id)
        status, code = 200, None
        try:
            learnt = self.done.result()
            reply = _told(self._asked.write, self._asked.write.encode_learnt(learnt, self._ids), own_id)
        except asyncio.CancelledError:  # by the server, whose time to stop is over
            status, code, reply = _refusal(StoreUnavailable(STOPS), own_id)
        except ServiceError as error:
            status, code, reply = _refusal(error, own_id)
        except Exception as error:  # a fault of ours: the client is told, and the log has all of it
            current_request.set(own_id)
            logger.exception("an update of %s", self._asked.name)
            status, code, reply = _refusal(internal_error(error), own_id)
        began, scope, size, events = self._entry
        known = events if status == 200 else None
        self._access.hot("update", status, began, scope, own_id, self._asked.name, size, known, code)
        return status, reply


class Direct:
    """Answers of one application."""

    def __init__(self, bodies: Bodies, access: Access, guard: Guard) -> None:
        self.engine: Engine | None = None  # while the application runs
        self._access = access
        self._bodies = bodies
        self._guard = guard
        self._heads: dict[bytes, Asked] = {}  # what these ask for

    def known(self, data: bytes) -> tuple[Asked, bytes] | None:
        """What is asked by a piece that is one whole request, whose head is known from an earlier one; and its body."""
        end = data.find(_END, 0, _LONGEST) + len(_END)
        asked = self._heads.get(data[:end])
        return None if asked is None or len(data) != end + asked.length else (asked, data[end:])

    def know(self, data: bytes, asked: Asked) -> None:
        """Keep in mind what was asked by a piece, at whose beginning a request begins, if it has no other in it."""
        end = data.find(_END, 0, _LONGEST) + len(_END)
        head = data[:end]
        if len(data) != end + asked.length or asked.request_id:
            return  # more than one, or what is another each time
        lower = head.lower()
        if _FORWARDED in lower or _AUTHORIZATION in lower:
            return  # not every connection's to say, or a secret
        if len(self._heads) == _HEADS:
            self._heads.clear()
        self._heads[head] = asked

    def asked(self, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> Asked | None:
        """What a POST asks for by its target and headers (names in lower case), where it may be answered here."""
        matched = match_operation(target.decode("latin-1"))  # with a query in it, it is none of these
        if matched is None or matched[1] == "labels":
            return None
        name, operation = matched
        heading = heading_of(headers)
        length = heading.length
        if heading.encoding or not length.isdigit() or len(length) > _DIGITS or int(length) > _LARGEST:
            return None
        try:
            read, write = negotiated(heading.content_type, heading.accept)
        except ServiceError:
            return None
        if read is NDJSON:
            return None
        admitted_by = tuple(one for one in headers if one[0] in _ADMITTED_BY)
        return Asked(name, operation, read, write, int(length), heading.request_id, admitted_by)

    def _admitted(self, asked: Asked, size: int, scope: Scope) -> tuple[LearnerReplica, Scope] | None:
        """The learner, where it is awake, there is room for the body, and who asks may; the scope with the key's id."""
        learner = None if self.engine is None else self.engine.replicas.get(asked.name)
        if learner is None or not self._bodies.has_room(size):
            return None
        if self._guard.on:
            grant = self._guard.glance(asked.headers, NEEDED[asked.operation], asked.name)
            if grant is None:  # refused, or counted: by the edge
                return None
            if grant.id is not None:
                scope = {**scope, "state": {"key": grant.id}}
        return learner, scope

    def hold(self, asked: Asked, size: int, scope: Scope) -> bool:
        """So many more bytes of a body have come, and are held until `let_go`; False: it is not waited for here."""
        if self._admitted(asked, size, scope) is None:
            return False
        self._bodies.hold(size)
        return True

    def let_go(self, size: int) -> None:
        """So many bytes are held no longer."""
        self._bodies.let_go(size)

    def answer(self, asked: Asked, body: bytes, scope: Scope) -> bytes | None:
        """The reply with status 200, behind the headers that a server has of its own; None: it is not answered here.

        `scope`: its `client` is read, for the log. Who may not ask this is refused by the edge.
        """
        began = perf_counter()
        admitted = self._admitted(asked, len(body), scope)
        if admitted is None or admitted[0].served_events.named:
            return None
        learner, scope = admitted
        try:
            answered = at_once(learner, body, asked.read, asked.write)
        except Exception:  # the edge meets it once more: what is refused it words, a fault of ours it tells and logs
            return None
        if answered is None:
            return None
        reply, events = answered
        learner.last_used = time.monotonic()
        own_id = request_id(asked.request_id)
        self._access.hot("predict", 200, began, scope, own_id, asked.name, len(body), events)
        return _told(asked.write, reply, own_id)

    def learn(self, asked: Asked, body: bytes, scope: Scope) -> Learning | None:
        """Queue the events of an update; None: it is not done here, and nothing was done. `scope`: as for `answer`."""
        began = perf_counter()
        admitted = self._admitted(asked, len(body), scope)
        if admitted is None:
            return None
        learner, scope = admitted
        try:
            events, carried = asked.read.decode_update(body, learner.learner.config)
            if not events.plain:
                return None
            if learner.feature_names.looking:
                learner.feature_names.look(events.rows, carried)
            done = learner.update(events.batch())
        except Exception:  # as above
            return None
        entry = began, scope, len(body), len(events.labels)
        return Learning(done, asked, learner, events.ids, self._access, entry)


def _told(write: Coding, reply: bytes, own_id: str) -> bytes:
    """A reply with status 200, behind the headers that a server has of its own."""
    headers = *write.content_type, len(reply), own_id.encode()
    return b"%b: %b\r\ncontent-length: %d\r\nx-request-id: %b\r\n\r\n%b" % (*headers, reply)


def _refusal(error: ServiceError, own_id: str) -> tuple[int, str, bytes]:
    """The status, the code, and the reply, as the edge words it."""
    reply = problem_reply(error, own_id)
    headers = b"".join(b"%b: %b\r\n" % one for one in reply.raw_headers)
    told = b"%bx-request-id: %b\r\n\r\n%b" % (headers, own_id.encode(), bytes(reply.body))
    return error.status, error.code, told
