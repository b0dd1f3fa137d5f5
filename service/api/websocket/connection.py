"""Open websockets: pipelined operations for one learner or for all of them.

    handshake (`handshake.py`) -> hello -> batches (`messages.py`) -> a `LearnerQueue` for each learner -> replies

Replies of one learner are in order; those of different learners may overtake each other. A received message is executed
whether or not the client stays for the reply. The connection is closed if the client exceeds its credit of unanswered
messages, or reads nothing for long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Sequence
from functools import partial
from time import perf_counter
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Scope, Send

from learners import ABSENT, Problem
from service.api.state import AppState
from service.api.websocket.learner_queue import LearnerQueue
from service.api.websocket.messages import BINARY, MAX_PART, MessageBatch, count_new_seqs, read
from service.api.websocket.transport import EXTENSION, Transport
from service.auth import NEEDED, Permissions
from service.engine.replica import LearnerReplica
from service.errors import Invalid, LearnerGone, QueueFull, ServiceError, UnknownLearner
from service.names import check_name, check_parameters
from service.text import counted

__all__ = ["NO_LEARNER", "VIOLATION", "Connection"]

logger = logging.getLogger("rarestream.sockets")

# close codes of the websocket registry; 4404 is ours
_AWAY = 1001
VIOLATION = 1008
_FAULT = 1011
_LATER = 1013
NO_LEARNER = 4404

_MAX_REASON = 123  # bytes of a close frame
_TURN = 0.001  # seconds after which other connections have their turns: a read may hold thousands of messages


class Connection:
    """One websocket, the owner of its learner queues."""

    def __init__(
        self, state: AppState, scope: Scope, receive: Receive, send: Send, name: str | None, permissions: Permissions
    ) -> None:
        """`name`: of the learner, or None for all learners."""
        self._permissions = permissions
        self.spend = permissions.spend
        self._state = state
        self._name = name
        self._engine = state.engine
        self._settings = self._engine.node.settings
        self._credit, self._most_bytes = self._settings.ws_credit, self._settings.max_buffered_bytes
        self._bodies = state.bodies
        self._access = state.access
        self._scope = scope
        self._query: bytes = scope.get("query_string", b"")
        self._transport: Transport | None = scope.get("extensions", {}).get(EXTENSION)
        self._receive = receive
        self._send = send
        self._read = self._read_each if self._transport is None else self._transport.read
        self._turn = partial(asyncio.sleep, 0) if self._transport is None else self._transport.turn
        self._write = self._write_each if self._transport is None else self._transport.write
        self._queues: dict[str, LearnerQueue] = {}
        self._unanswered = 0  # messages
        self._seqs: set[int | None] = set()  # of the unanswered messages
        self._bytes = 0  # of the unanswered messages
        self._answered = 0  # messages
        self._refused = 0  # messages answered with an error
        self._leaving = False  # no more messages are accepted
        self._over = False  # nothing more is sent
        self._writing = asyncio.Lock()  # for servers without `Transport`
        self._sending = 0  # writes in progress, which wait for the client to read
        self._writes = 0  # completed
        self._failing: asyncio.Task[None] | None = None

    # From the handshake to the end

    async def serve(self) -> None:
        """Accept the websocket and serve its messages until the end."""
        began = perf_counter()
        await self._send({"type": "websocket.accept"})
        refusal = await self._refusal()
        if refusal is not None:
            await self.close(*refusal)
            self._access.websocket(self._scope, self._name, began, closed=refusal[0])
            return
        self._state.websockets.add(self)
        watching = asyncio.create_task(self._watch(), name="watch over a websocket")
        watch = self._state.engine.node.background.watch(watching, "watch websockets")
        try:
            hello = {"type": "hello", "credit": self._credit, "max_bytes": self._settings.ws_message_bytes}
            await self._written(self._write([msgspec.json.encode(hello)], False))
            while await self._accept_all(await self._read()):
                pass
            self._over = self._leaving = True
            await self._idle()
        finally:
            self._release(self._bytes)  # of messages that a fault of ours left without an answer
            watch.cancel()
            self._state.websockets.discard(self)
            self._access.websocket(self._scope, self._name, began, self._answered, self._refused)

    async def _accept_all(self, messages: Sequence[str | bytes]) -> bool:
        """Accept the messages of one read; return whether there were any.

        In a function of its own, so that an idle websocket keeps no message in memory.
        """
        now = began = perf_counter()
        for batch in self._batches(messages):
            if perf_counter() - began > _TURN:
                await self._turn()
                began = perf_counter()
            if self._leaving:
                break
            batch.arrivals = [(now, len(batch))]
            rest = self._accept(batch)
            if rest is not None:
                await rest
        return bool(messages)

    async def _refusal(self) -> tuple[int, str] | None:
        """Return the code and the reason to close with at once, or None."""
        if self._state.closing.is_set():
            return _AWAY, "this node stops"
        if len(self._state.websockets) >= self._settings.ws_connections:
            return _LATER, f"{len(self._state.websockets)} websockets are open, this node's limit"
        try:
            parameters = parse_qsl(self._query.decode("latin-1"), keep_blank_values=True)
            check_parameters((name for name, _ in parameters), ())
        except Invalid as error:
            return VIOLATION, f"{error.problems[0].pointer} {error.problems[0].detail}"
        if self._name is not None:
            try:
                self._permissions.find(self._name)
                await self._engine.discover(self._name)
                self._engine.check_exists(self._name)
            except UnknownLearner as error:
                return NO_LEARNER, error.detail
            except ServiceError as error:
                return _LATER, error.detail
        return None

    async def leave(self, seconds: float) -> None:
        """Accept no more messages, answer the received ones within so many seconds, and close."""
        self._leaving = True
        try:
            async with asyncio.timeout(seconds):
                await self._idle()
                await self.close(_AWAY, "this node stops")
        except TimeoutError:
            logger.warning("a websocket was closed with %s", counted(self._unanswered, "unanswered message"))

    async def close(self, code: int, reason: str) -> None:
        """Close with a reason. Received messages are still executed, but nothing more is sent."""
        if not self._over:
            self._over = self._leaving = True
            cut = reason.encode()[:_MAX_REASON].decode(errors="ignore")
            await self._written(self._send({"type": "websocket.close", "code": code, "reason": cut}))

    async def _idle(self) -> None:
        for queue in list(self._queues.values()):
            await queue.idle()

    # Messages

    def _batches(self, messages: Sequence[str | bytes]) -> Iterator[MessageBatch]:
        """Yield the batches of received messages; refuse those that the key does not allow.

        If the key has limits, each message is a batch of its own.
        """
        free = self._permissions.free
        for group in [messages] if free else zip(messages, strict=True):
            for batch in read(group):
                if self._permissions.key is not None:
                    self._check(batch, 0 if free else _size(group[0]))
                yield batch

    def _accept(self, batch: MessageBatch) -> Awaitable[None] | None:
        """Accept the messages that the credit allows; return further work to await, or None."""
        if self._permissions.key is not None and self._permissions.over:
            return self.close(VIOLATION, "the API key was revoked, changed or has expired")
        room = self._credit - self._unanswered
        fresh = count_new_seqs(batch.seqs, self._seqs, room)
        if fresh == len(batch):
            return self._enqueue(batch)
        reason = f"more than {self._credit} messages are unanswered"
        if fresh < room:
            reason = f"seq {batch.seqs[fresh]} is that of a message that is not answered yet"
        return self._accept_last(batch.part(0, fresh), reason)

    async def _accept_last(self, batch: MessageBatch, reason: str) -> None:
        """Accept the last messages, perhaps none, and close."""
        rest = self._enqueue(batch) if len(batch) else None
        if rest is not None:
            await rest
        await self.close(VIOLATION, reason)

    def _enqueue(self, batch: MessageBatch) -> Awaitable[None] | None:
        """Put messages into the queue of their learner; return further work to await, or None."""
        if 0 < self._bodies.bytes > self._most_bytes - batch.size:
            if len(batch) > 1:  # there may be room for some of them
                return self._enqueue_each(batch.each())
            batch.refuse(QueueFull("this node holds as many bytes of batches as it may; try again in a moment"))
            batch.size, batch.body = 0, b""
        self._unanswered += len(batch)
        self._seqs.update(batch.seqs)
        self._bodies.bytes += batch.size
        self._bytes += batch.size
        name = self._name
        if name is None:
            name = batch.learner
            if name is None:
                batch.refuse(_invalid(Problem.mismatch("/learner", ABSENT, "a name", {"type": "string"})))
            elif name not in self._queues:
                try:
                    check_name(name)
                except Invalid as error:
                    batch.refuse(_invalid(error.problems[0]._replace(pointer="/learner")))
                    name = None
        elif batch.learner is not None:
            detail = "unknown member; the path names the learner"
            batch.refuse(_invalid(Problem("/learner", detail, "unknown")))
        queue = self._queues.get(name) if name is not None else None
        if queue is None:
            try:
                if name is None:
                    assert batch.error is not None
                    raise batch.error
                self._permissions.find(name)
                self._engine.check_exists(name)
            except UnknownLearner:
                assert name is not None
                return self._enqueue_after_discovery(name, batch)
            except ServiceError as error:
                return self.refuse(batch, error)
            queue = self._queues[name] = LearnerQueue(name, self)
        queue.put(batch)
        return None

    async def _enqueue_each(self, batches: Sequence[MessageBatch]) -> None:
        for batch in batches:
            rest = self._enqueue(batch)
            if rest is not None:
                await rest

    async def _enqueue_after_discovery(self, name: str, batch: MessageBatch) -> None:
        """Enqueue messages for a learner that is unknown here: another node may have created it a moment ago."""
        try:
            self._permissions.find(name)
            await self._engine.discover(name)
            self._engine.check_exists(name)
        except ServiceError as error:
            await self.refuse(batch, error)
            return
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = LearnerQueue(name, self)
        queue.put(batch)

    def _check(self, batch: MessageBatch, size: int) -> None:
        """Refuse messages that the key does not allow; `size`: bytes of a message that counts for a limit."""
        try:
            self._permissions.message(NEEDED[batch.operation] if batch.operation else None, size)
        except ServiceError as error:
            batch.refuse(error)

    # For the queues

    async def acquire(self, name: str) -> LearnerReplica:
        """Return the learner of this name, which stays in memory until its release. Raises `ServiceError`."""
        return await self._engine.acquire(name)

    async def reply(self, batch: MessageBatch, replies: Sequence[bytes], status: int = 200) -> None:
        """Send the replies to the messages of a batch, in order."""
        if max(map(len, replies), default=0) > MAX_PART:
            replies = batch.form.split_replies(batch.seqs, replies)
        if not self._over:
            await self._written(self._write(replies, batch.form is BINARY))
        self._unanswered -= len(batch)
        self._answered += len(batch)
        self._seqs.difference_update(batch.seqs)
        times, now = self._access.messages_of(batch.operation, status), perf_counter()
        for arrival, count in batch.arrivals:
            times.observe(now - arrival, count)
        self._release(batch.size)

    def _release(self, size: int) -> None:
        """Count fewer bytes of unanswered messages, at most all; after the end there are none."""
        size = min(size, self._bytes)
        self._bytes -= size
        self._bodies.bytes -= size

    async def refuse(self, batch: MessageBatch, error: ServiceError) -> None:
        """Send an error to each message of a batch."""
        self._refused += len(batch)
        await self.reply(batch, [batch.form.encode_problem(seq, error) for seq in batch.seqs], error.status)
        if self._name is not None and isinstance(error, (UnknownLearner, LearnerGone)):
            await self.close(NO_LEARNER, error.detail)

    def end_task(self, task: asyncio.Task[None]) -> None:
        """Close the connection if a task ended by a fault of ours, because its messages cannot be answered."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.critical("a websocket ended by an error", exc_info=error)
            self._failing = asyncio.create_task(self.close(_FAULT, "an error of the service's own; it was logged"))

    # Reading and writing

    async def _read_each(self) -> Sequence[str | bytes]:
        """Read like `Transport.read`, for servers without it."""
        message = await self._receive()
        if message["type"] != "websocket.receive":
            return []
        text: str | None = message.get("text")
        return [message["bytes"] if text is None else text]

    async def _written(self, write: Awaitable[None]) -> None:
        """Await a write, which waits until the client has read enough of the earlier ones."""
        self._sending += 1
        try:
            await write
        except OSError:  # the client has left; the next read reports that, too
            self._over = True
        finally:
            self._sending -= 1
            self._writes += 1

    async def _write_each(self, messages: Sequence[bytes], binary: bool) -> None:
        """Write like `Transport.write`, for servers without it: no other message goes between these."""
        async with self._writing:
            for message in messages:
                if not self._over:
                    content = {"bytes": message} if binary else {"text": message.decode()}
                    await self._send({"type": "websocket.send", **content})

    async def _watch(self) -> None:
        """Drop a client if no write has completed for long. Servers without `Transport` have their own means."""
        stuck: int | None = None
        while self._transport is not None:
            await asyncio.sleep(self._settings.ws_stall_seconds)
            last, stuck = stuck, self._writes if self._sending else None
            if stuck is not None and stuck == last:
                logger.warning("a websocket was dropped: nothing was read in %g s", self._settings.ws_stall_seconds)
                self._over = self._leaving = True
                self._transport.abort()
                return


def _size(message: str | bytes) -> int:
    """Return the bytes of a message in transfer."""
    if isinstance(message, bytes) or message.isascii():
        return len(message)
    return len(message.encode("utf-8", "surrogatepass"))


def _invalid(problem: Problem) -> Invalid:
    return Invalid("the message is refused", [problem])
