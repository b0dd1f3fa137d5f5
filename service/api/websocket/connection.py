"""Websockets that are open: pipelined operations, for one learner or for all of them.

    a handshake (`handshakes.py`) -> hello -> messages (`frames.py`) -> a lane for each learner (`lanes.py`) -> replies

A reply may overtake one of another learner's, never one of its own. What was received is carried out, whether or not
the client stays for the replies; a client that has more messages unanswered than it was granted is sent away, one that
reads nothing for long is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Sequence
from time import perf_counter
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Scope, Send

from learners import ABSENT, Problem
from service.api.state import app_state
from service.api.websocket.learner_queue import Lane
from service.api.websocket.messages import BINARY, MessageBatch, new_seqs, read
from service.api.websocket.transport import EXTENSION, Transport
from service.auth import NEEDED, Grant
from service.engine.replica import LearnerReplica
from service.errors import Invalid, LearnerGone, QueueFull, ServiceError, UnknownLearner
from service.names import check_name, check_parameters

__all__ = ["NO_LEARNER", "VIOLATION", "Connection", "Connections"]

logger = logging.getLogger("rarestream.sockets")

# close codes of the websocket registry, and one of ours
_AWAY = 1001
VIOLATION = 1008
_FAULT = 1011
_LATER = 1013
NO_LEARNER = 4404

_REASON = 123  # bytes that a close frame has room for


class Connections:
    """The websockets of an application that are open."""

    def __init__(self) -> None:
        self.open: set[Connection] = set()
        self.closing = False

    async def close(self, seconds: float) -> None:
        """Take no more messages; answer those that are here, as far as the time allows, and say good-bye."""
        self.closing = True
        if self.open:
            await asyncio.wait([asyncio.ensure_future(one.leave(seconds)) for one in self.open])


class Connection:
    """One websocket, and the owner of its lanes."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, name: str | None, grant: Grant) -> None:
        """`name`: of the learner, where it is for one."""
        self._grant = grant
        self.spend = grant.spend
        state = app_state(scope)
        self._name = name
        self._engine = state.engine
        self._settings = self._engine.node.settings
        self._credit, self._most_bytes = self._settings.ws_credit, self._settings.max_buffered_bytes
        self._connections = state.websockets
        self._bodies = state.bodies
        self._access = state.access
        self._scope = scope
        self._query: bytes = scope.get("query_string", b"")
        self._transport: Transport | None = scope.get("extensions", {}).get(EXTENSION)
        self._receive = receive
        self._send = send
        self._read = self._read_each if self._transport is None else self._transport.read
        self._write = self._write_each if self._transport is None else self._transport.write
        self._lanes: dict[str, Lane] = {}
        self._unanswered = 0  # messages
        self._seqs: set[int | None] = set()  # of those,
        self._held = 0  # and their bytes
        self._answered = 0  # messages,
        self._refused = 0  # and of these with an error
        self._leaving = False  # no more messages are taken
        self._over = False  # nothing is sent any more
        self._sending = 0  # writes that wait until the client has read
        self._sent = 0  # writes that are done
        self._failing: asyncio.Task[None] | None = None

    # From the handshake to the end

    async def serve(self) -> None:
        """Accept it, and carry out what comes."""
        began = perf_counter()
        await self._send({"type": "websocket.accept"})
        refusal = await self._refusal()
        if refusal is not None:
            await self.close(*refusal)
            self._access.websocket(self._scope, self._name, began, closed=refusal[0])
            return
        self._connections.open.add(self)
        watch = asyncio.create_task(self._watch(), name="watch over a websocket")
        try:
            hello = {"type": "hello", "credit": self._credit, "max_bytes": self._settings.ws_message_bytes}
            await self._written(self._write([msgspec.json.encode(hello)], False))
            while messages := await self._read():
                came = perf_counter()
                for request in self._asked(messages):
                    if self._leaving:
                        break
                    request.came = [(came, len(request))]
                    said = self._take(request)
                    if said is not None:
                        await said
            self._over = self._leaving = True
            await self._idle()
        finally:
            self._release(self._held)  # of messages that an error of ours has left without an answer
            watch.cancel()
            self._connections.open.discard(self)
            self._access.websocket(self._scope, self._name, began, self._answered, self._refused)

    async def _refusal(self) -> tuple[int, str] | None:
        """The code and the reason to close with at once, if there are any."""
        if self._connections.closing:
            return _AWAY, "this node stops"
        if len(self._connections.open) >= self._settings.ws_connections:
            return _LATER, f"{len(self._connections.open)} websockets are open, this node's limit"
        try:
            given = parse_qsl(self._query.decode("latin-1"), keep_blank_values=True)
            check_parameters((name for name, _ in given), ())
        except Invalid as error:
            return VIOLATION, f"{error.problems[0].pointer} {error.problems[0].detail}"
        if self._name is not None:
            try:
                self._grant.find(self._name)
                await self._engine.discover(self._name)
                self._engine.check_exists(self._name)
            except UnknownLearner as error:
                return NO_LEARNER, error.detail
            except ServiceError as error:
                return _LATER, error.detail
        return None

    async def leave(self, seconds: float) -> None:
        """Take no more messages, answer those that are here if that is done in time, and close."""
        self._leaving = True
        try:
            async with asyncio.timeout(seconds):
                await self._idle()
                await self.close(_AWAY, "this node stops")
        except TimeoutError:
            logger.warning("a websocket was left with %d messages unanswered", self._unanswered)

    async def close(self, code: int, reason: str) -> None:
        """Say why, and send nothing any more; what was received is still carried out."""
        if not self._over:
            self._over = self._leaving = True
            cut = reason.encode()[:_REASON].decode(errors="ignore")
            await self._written(self._send({"type": "websocket.close", "code": code, "reason": cut}))

    async def _idle(self) -> None:
        for lane in list(self._lanes.values()):
            await lane.idle()

    # Messages

    def _asked(self, messages: Sequence[str | bytes]) -> Iterator[MessageBatch]:
        """What messages that were read ask for, those that may be carried out together as one request.

        Of a key that counts or measures its messages each is one by itself. What the key does not allow is refused.
        """
        free = self._grant.free
        for some in [messages] if free else zip(messages, strict=True):
            for request in read(some):
                if self._grant.key is not None:
                    self._check(request, 0 if free else _bytes(some[0]))
                yield request

    def _take(self, request: MessageBatch) -> Awaitable[None] | None:
        """Take messages that came together as far as they may be sent; what else is to be done."""
        if self._grant.key is not None and self._grant.over:
            return self.close(VIOLATION, "the API key was revoked, changed or has expired")
        room = self._credit - self._unanswered
        fresh = new_seqs(request.seqs, self._seqs, room)
        if fresh == len(request):
            return self._hand(request)
        reason = f"more than {self._credit} messages are unanswered"
        if fresh < room:
            reason = f"seq {request.seqs[fresh]} is that of a message that is not answered yet"
        return self._take_last(request.part(0, fresh), reason)

    async def _take_last(self, request: MessageBatch, reason: str) -> None:
        """Take messages, of which there may be none, and no others."""
        said = self._hand(request) if len(request) else None
        if said is not None:
            await said
        await self.close(VIOLATION, reason)

    def _hand(self, request: MessageBatch) -> Awaitable[None] | None:
        """Hand messages to the lane of their learner; or what else is to be done."""
        if 0 < self._bodies.bytes > self._most_bytes - request.size:
            if len(request) > 1:  # some of them may have room
                return self._hand_each(request.each())
            request.refused(QueueFull("this node holds as many bytes of requests as it may; try again in a moment"))
            request.size, request.body = 0, b""
        self._unanswered += len(request)
        self._seqs.update(request.seqs)
        self._bodies.bytes += request.size
        self._held += request.size
        name = self._name
        if name is None:
            name = request.learner
            if name is None:
                request.refused(_invalid(Problem.mismatch("/learner", ABSENT, "a name", {"type": "string"})))
            elif name not in self._lanes:
                try:
                    check_name(name)
                except Invalid as error:
                    request.refused(_invalid(error.problems[0]._replace(pointer="/learner")))
                    name = None
        elif request.learner is not None:
            detail = "unknown member; the path names the learner"
            request.refused(_invalid(Problem("/learner", detail, "unknown")))
        lane = self._lanes.get(name) if name is not None else None
        if lane is None:
            try:
                if name is None:
                    assert request.error is not None
                    raise request.error
                self._grant.find(name)
                self._engine.check_exists(name)
            except UnknownLearner:
                assert name is not None
                return self._sought(name, request)
            except ServiceError as error:
                return self.refuse(request, error)
            lane = self._lanes[name] = Lane(name, self)
        lane.put(request)
        return None

    async def _hand_each(self, requests: Sequence[MessageBatch]) -> None:
        for request in requests:
            said = self._hand(request)
            if said is not None:
                await said

    async def _sought(self, name: str, request: MessageBatch) -> None:
        """Hand messages to a learner that this node does not know: another one may have created it a moment ago."""
        try:
            self._grant.find(name)
            await self._engine.discover(name)
            self._engine.check_exists(name)
        except ServiceError as error:
            await self.refuse(request, error)
            return
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(name, self)
        lane.put(request)

    def _check(self, request: MessageBatch, size: int) -> None:
        """Refuse messages that the key does not allow; one that is counted has so many bytes."""
        try:
            self._grant.message(NEEDED[request.operation] if request.operation else None, size)
        except ServiceError as error:
            request.refused(error)

    # What lanes ask for

    async def hold(self, name: str) -> LearnerReplica:
        """The learner of this name, awake until it is let go of. Raises `ServiceError`."""
        return await self._engine.acquire(name)

    async def reply(self, request: MessageBatch, replies: Sequence[bytes], status: int = 200) -> None:
        """Answer the messages of a request, in their order."""
        if not self._over:
            await self._written(self._write(replies, request.form is BINARY))
        self._unanswered -= len(request)
        self._answered += len(request)
        self._seqs.difference_update(request.seqs)
        timed, now = self._access.messages_of(request.operation, status), perf_counter()
        for came, count in request.came:
            timed.observe(now - came, count)
        self._release(request.size)

    def _release(self, size: int) -> None:
        """So many bytes of messages are done with: those that are held, of which there are none after the end."""
        size = min(size, self._held)
        self._held -= size
        self._bodies.bytes -= size

    async def refuse(self, request: MessageBatch, error: ServiceError) -> None:
        """Answer them with an error."""
        self._refused += len(request)
        await self.reply(request, [request.form.refused(seq, error) for seq in request.seqs], error.status)
        if self._name is not None and isinstance(error, (UnknownLearner, LearnerGone)):
            await self.close(NO_LEARNER, error.detail)

    def ended(self, task: asyncio.Task[None]) -> None:
        """A task of a lane is over; after an error of ours nobody can be told any more what became of messages."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.critical("a websocket ended by an error", exc_info=error)
            self._failing = asyncio.create_task(self.close(_FAULT, "an error of the service's own; it was logged"))

    # Reading and writing

    async def _read_each(self) -> Sequence[str | bytes]:
        """As `Transport.read`, for servers that do not have it."""
        message = await self._receive()
        if message["type"] != "websocket.receive":
            return []
        text: str | None = message.get("text")
        return [message["bytes"] if text is None else text]

    async def _written(self, write: Awaitable[None]) -> None:
        """Await a write, which waits until the client has read enough of what was written before."""
        self._sending += 1
        try:
            await write
        except OSError:  # it has gone, which will be read, too
            self._over = True
        finally:
            self._sending -= 1
            self._sent += 1

    async def _write_each(self, messages: Sequence[bytes], binary: bool) -> None:
        """As `Transport.write`, for servers that do not have it."""
        for one in messages:
            if not self._over:
                content = {"bytes": one} if binary else {"text": one.decode()}
                await self._send({"type": "websocket.send", **content})

    async def _watch(self) -> None:
        """Drop the client when no write has come to its end for long. A server of another kind has its own means."""
        stuck: int | None = None
        while self._transport is not None:
            await asyncio.sleep(self._settings.ws_stall_seconds)
            last, stuck = stuck, self._sent if self._sending else None
            if stuck is not None and stuck == last:
                logger.warning("a websocket was dropped: nothing was read in %g s", self._settings.ws_stall_seconds)
                self._over = self._leaving = True
                self._transport.abort()
                return


def _bytes(message: str | bytes) -> int:
    """How many a message had on its way."""
    if isinstance(message, bytes) or message.isascii():
        return len(message)
    return len(message.encode("utf-8", "surrogatepass"))


def _invalid(problem: Problem) -> Invalid:
    return Invalid("the message is refused", [problem])
