"""Predicts that wait for nothing, answered by the connection itself: without a task, a scope and messages of ASGI.

    a whole request -> Direct.asked (its head) -> Direct.answer (its body) -> the reply's bytes
                    -> None: it goes the way of all others, by ASGI to `edge.py`

Those cost about as much as all that is done for one event. So what is plain (a small JSON or MessagePack body that is
not compressed, no query, a learner that is awake) and only has to be decoded, scored and encoded is done where it is
read. Nothing is refused here: whatever this does not answer with 200 is answered, and worded, by the edge. So a server
that knows nothing of this serves the same replies.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

from starlette.types import Scope

from service.access import Access
from service.bodies import Bodies, heading_of
from service.engine import Engine
from service.errors import ServiceError
from service.guard import Guard
from service.hot import Coding, at_once
from service.ndjson import NDJSON
from service.negotiation import negotiated
from service.problems import request_id

__all__ = ["Asked", "Direct"]

_LARGEST = 2**16  # bytes of a body: it is read, scored and answered in one go, and others wait meanwhile
_END = b"\r\n\r\n"  # of a head
_FORWARDED = b"\r\nx-forwarded-"
_AUTHORIZATION = b"\r\nauthorization:"
_ADMITTED_BY = (b"authorization", b"host", b"origin", b"sec-fetch-site")
_LONGEST = 1024  # bytes of a head that is kept in mind,
_HEADS = 1024  # and so many of them
_DIGITS = len(str(_LARGEST))
_BEFORE, _BEHIND = b"/v1/learners/", b"/predict"


class Asked(NamedTuple):
    """What the head of a request asks for."""

    name: str  # of the learner
    read: Coding
    write: Coding
    length: int  # of its body, in bytes
    request_id: bytes  # that it brings; b"" where it brings none
    headers: tuple[tuple[bytes, bytes], ...]  # by which it is admitted


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
        if not target.startswith(_BEFORE) or not target.endswith(_BEHIND):
            return None
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
        name = target[len(_BEFORE) : -len(_BEHIND)].decode("latin-1")  # with a query in it, it is no learner's
        admitted_by = tuple(one for one in headers if one[0] in _ADMITTED_BY)
        return Asked(name, read, write, int(length), heading.request_id, admitted_by)

    def answer(self, asked: Asked, body: bytes, scope: Scope) -> bytes | None:
        """The reply with status 200, behind the headers that a server has of its own; None: it is not answered here.

        `scope`: its `client` is read, for the log. Who may not ask this is refused by the edge.
        """
        began = perf_counter()
        learner = None if self.engine is None else self.engine.hosted.get(asked.name)
        if learner is None or learner.serving.named or not self._bodies.has_room(len(body)):
            return None
        if self._guard.on:
            grant = self._guard.glance(asked.headers, "predict", asked.name)
            if grant is None:  # refused, or counted: by the edge
                return None
            if grant.id is not None:
                scope = {**scope, "state": {"key": grant.id}}
        try:
            answered = at_once(learner, body, asked.read, asked.write)
        except Exception:  # the edge meets it once more: what is refused it words, a fault of ours it tells and logs
            return None
        if answered is None:
            return None
        reply, events = answered
        learner.used = time.monotonic()
        own_id = request_id(asked.request_id)
        self._access.hot("predict", 200, began, scope, own_id, asked.name, len(body), events)
        return b"%b: %b\r\ncontent-length: %d\r\nx-request-id: %b\r\n\r\n%b" % (
            *asked.write.content_type,
            len(reply),
            own_id.encode(),
            reply,
        )
