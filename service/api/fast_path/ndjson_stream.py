r"""NDJSON bodies of any length and speed: read, executed and answered chunk by chunk.

    pieces of the body -> chunks of whole lines -> decode, learn or score -> a line of the reply, or one for each event

The next chunk is read after the reply to the last one. So memory is bounded, and a client that sends faster than the
learner learns is slowed down. A chunk is a number of lines, or the lines of a fifth of a second, so that a slow stream
gets replies while it lives. The cuts have no effect on the learner. Each line of the reply to labelled events states
the progress, and that part of the body is in the log:

    {"lines": 2000, "bytes": 1048320, "applied": 1000, "duplicate": 0, ..., "position": 17, "class_counts": {...}}

The last line states success, with the sums over the complete body:

    {"done": true, "lines": 2300, "bytes": 1205568, "applied": 2300, ...}

If a chunk is refused, nothing of it is learnt and the chunks before it stay. The last line is then the problem document
with `"done": false`, the "lines" and "bytes" of the progress, and pointers such as `/lines/2017/x/3`; lines count from
1. If the first chunk is refused, the request is refused with the status of the error.
"""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, NamedTuple, Protocol

import msgspec

from learners import Problem
from service.api.body import Disconnected
from service.api.operations import answer
from service.auth import UNRESTRICTED, Permissions
from service.engine.replica import LearnerReplica
from service.errors import BadBody, Invalid, QueueFull, ServiceError, Stopping, TooLarge, TooSlow
from service.wire import NDJSON, STATUSES, Operation

__all__ = ["BodyShare", "ByteCounter", "LineChunk", "LineReader", "ndjson_replies"]

_LINES = 1000  # of a chunk
_BYTES = 2**20  # of a chunk, besides the rest of the last line
_LIVE = 0.2  # seconds of a chunk: short for a reader, long compared to the cost of a chunk
_POLL = 0.01  # seconds between two looks for room
_GROWS = 8  # largest ratio of bytes in a learner's queue to bytes of JSON, about
_SUMS = frozenset((*STATUSES, "remembered"))  # summed over the chunks; of all else the last value counts

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class ByteCounter(Protocol):
    """Counts the bytes of requests in memory."""

    bytes: int

    def hold(self, size: int) -> None:
        """Count more bytes."""
        ...

    def let_go(self, size: int) -> None:
        """Count fewer bytes."""
        ...


class BodyShare:
    """The bytes in memory of one body: of chunks in the making and in execution."""

    def __init__(self, counter: ByteCounter, most: int) -> None:
        """`most`: bytes of all bodies."""
        self._counter = counter
        self._most = most
        self._bytes = 0
        self.waits = False  # for room

    async def take(self, size: int) -> None:
        """Count more bytes once there is room. A body that is the only one always has room."""
        self.waits = True
        while self._counter.bytes > self._bytes and self._counter.bytes + size > self._most:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(_POLL)
        self.waits = False
        self._counter.hold(size)
        self._bytes += size

    def give(self, size: int | None = None) -> None:
        """Count fewer bytes; None: all."""
        size = self._bytes if size is None else size
        self._counter.let_go(size)
        self._bytes -= size


class LineChunk(NamedTuple):
    """Complete lines."""

    body: bytes
    lines: int


class LineReader:
    """Cuts a body that arrives in pieces into chunks of complete lines."""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        share: BodyShare,
        longest: int,
        seconds: float,
        closing: asyncio.Event,
        lines: int = _LINES,
        size: int = _BYTES,
    ) -> None:
        """Count what is read in the `share`; the caller discounts executed chunks.

        `longest`: bytes of a line; `seconds` for a line to arrive; `lines` and `size`: of a chunk.
        """
        self._pieces = pieces
        self._share = share
        self._longest = longest
        self._seconds = seconds
        self._lines = lines
        self._size = size
        self._closing = asyncio.ensure_future(closing.wait())
        self._next_piece: asyncio.Task[bytes | None] | None = None  # the next piece
        self._over = False  # there are no more pieces
        self._buffer = bytearray()
        self._number = self._lines_buffered = 0  # complete lines of the body, and of the buffer
        self._end = self._seen = 0  # in the buffer: end of the last complete line, and of the searched part

    async def next(self) -> LineChunk | None:
        """Return the next chunk: full by lines or by bytes, or as complete as it is some time after its first line.

        At the end return the rest, then None. Raises `TooLarge` for a line that is too long, `TooSlow` if no line
        begins or ends in time, `QueueFull` if there is no room for as long, `Stopping` when the node stops, and the
        errors of the pieces. Cost: O(bytes).
        """
        await asyncio.sleep(0)  # lines without events are executed without waiting: others have their turns in between
        now = asyncio.get_running_loop().time
        live = ends = 0.0
        buffered, number, has_started = 0, -1, False
        while (chunk := self._full()) is None and not self._over:
            if self._lines_buffered and not buffered:
                live = now() + _LIVE
            if self._number > number or self._has_started > has_started:
                ends = now() + self._seconds
            buffered, number, has_started = self._lines_buffered, self._number, self._has_started
            if not await self._more(live if buffered else ends):
                if buffered:
                    return self._cut()
                raise self._late()
        return chunk or self._rest()

    async def close(self) -> None:
        """Stop reading."""
        next_piece, self._next_piece = self._next_piece, None
        self._closing.cancel()
        if next_piece is not None:
            next_piece.cancel()
            await asyncio.wait([next_piece])
            if not next_piece.cancelled():
                next_piece.exception()  # retrieved, so that it is not logged

    @property
    def _has_started(self) -> bool:
        """Tell whether a line has begun."""
        return self._end < len(self._buffer)

    async def _more(self, until: float) -> bool:
        """Read the next piece or the end; False if neither arrives by then. The next call continues the wait."""
        if self._next_piece is None:
            self._next_piece = asyncio.ensure_future(self._piece())
        left = until - asyncio.get_running_loop().time()
        await asyncio.wait([self._next_piece, self._closing], timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if self._closing.done():
            raise Stopping("this node stops; what follows was not taken")
        if not self._next_piece.done():
            return False
        next_piece, self._next_piece = self._next_piece, None
        piece = next_piece.result()
        if piece is None:
            self._over = True
        else:
            self._buffer += piece
        return True

    async def _piece(self) -> bytes | None:
        piece = await anext(self._pieces, None)
        if piece is not None:
            await self._share.take(len(piece))
        return piece

    def _full(self) -> LineChunk | None:
        """Cut a full chunk off the buffer, or return None. Searches each byte once."""
        while cut := self._buffer.find(b"\n", self._seen) + 1:
            self._number, self._lines_buffered = self._number + 1, self._lines_buffered + 1
            self._check(cut - 1 - self._end, self._number)
            self._end = self._seen = cut
            if self._lines_buffered == self._lines or cut >= self._size:
                return self._cut()
        self._seen = len(self._buffer)
        self._check(self._seen - self._end, self._number + 1)
        return None

    def _cut(self) -> LineChunk:
        """Cut the complete lines off the buffer."""
        chunk = LineChunk(bytes(self._buffer[: self._end]), self._lines_buffered)
        del self._buffer[: self._end]
        self._seen -= self._end
        self._end = self._lines_buffered = 0
        return chunk

    def _rest(self) -> LineChunk | None:
        """Cut off everything, or return None if the buffer is empty."""
        if not self._buffer:
            return None
        if self._has_started:
            self._number, self._lines_buffered, self._end = (
                self._number + 1,
                self._lines_buffered + 1,
                len(self._buffer),
            )
        return self._cut()

    def _check(self, size: int, number: int) -> None:
        if size > self._longest:
            raise TooLarge(f"line {number} is over {self._longest} bytes", [Problem(f"/lines/{number}", "is too long")])

    def _late(self) -> ServiceError:
        if self._share.waits:
            return _no_room(self._seconds)
        what = "was not complete" if self._has_started else "did not come"
        return TooSlow(f"line {self._number + 1} {what} within {self._seconds:g} s")


class _BodyProgress:
    """The progress through a body, and the sums over its replies."""

    def __init__(self) -> None:
        self.lines = 0
        self.bytes = 0
        self.answered = False  # whether there was a reply
        self._total: dict[str, Any] = {}

    def advance(self, chunk: LineChunk) -> None:
        """Count a chunk."""
        self.lines += chunk.lines
        self.bytes += len(chunk.body)

    def add(self, head: dict[str, Any]) -> None:
        """Add the reply to a chunk."""
        self.answered = True
        for name, value in head.items():
            self._total[name] = self._total.get(name, 0) + value if name in _SUMS else value

    def encode_chunk(self, head: dict[str, Any]) -> bytes:
        """Encode the reply to a chunk behind the progress."""
        return _encode({"lines": self.lines, "bytes": self.bytes, **head}) + b"\n"

    def encode_end(self) -> bytes:
        """Encode the last line of a success."""
        return _encode({"done": True, "lines": self.lines, "bytes": self.bytes, **self._total}) + b"\n"

    def encode_refusal(self, error: ServiceError, request_id: str, state: str) -> bytes:
        """Encode the last line after an error; `state`: of the lines before it."""
        document = error.document(request_id)
        document["detail"] = f"{error.detail}; lines 1 to {self.lines} were {state}"
        if isinstance(
            error, (BadBody, Invalid, TooLarge)
        ):  # after others it may be unknown, for example if the store is down
            document["detail"] = f"{error.detail}; nothing of this chunk was {state}; lines 1 to {self.lines} were"
        document |= {"done": False, "lines": self.lines, "bytes": self.bytes}
        if error.retry_after is not None:  # the headers were sent before
            document["retry_after"] = error.retry_after
        return _encode(document) + b"\n"


async def ndjson_replies(
    learner: LearnerReplica,
    operation: Operation,
    pieces: AsyncIterator[bytes],
    counter: ByteCounter,
    explain: int | None = None,
    request_id: str = "",
    closing: asyncio.Event | None = None,
    permissions: Permissions = UNRESTRICTED,
) -> AsyncGenerator[bytes]:
    """Yield the reply to a body chunk by chunk: one line, or for predict one per event.

    Raises the `ServiceError` of the first chunk; that of a later one becomes the last line. Each line has the limits
    of other bodies, in time and in bytes. `counter` counts the bytes in memory from the first piece of a line on. If
    it or the learner's queue is full, reading waits for as long, and then raises `QueueFull`. Once `closing` is set,
    the reply ends with `Stopping`. The permissions bound the bytes of a line and count the events of each chunk. Close
    the generator if you do not exhaust it.
    """
    settings = learner.node.settings
    closing = closing or asyncio.Event()
    share = BodyShare(counter, settings.max_buffered_bytes)
    longest = (
        settings.max_body_bytes
        if permissions.body_bytes is None
        else min(permissions.body_bytes, settings.max_body_bytes)
    )
    lines = LineReader(pieces, share, longest, settings.body_seconds, closing)
    progress = _BodyProgress()
    try:
        while (chunk := await lines.next()) is not None:
            text, head = b"", None
            if not chunk.body.isspace():
                if operation != "predict":
                    await _wait_for_room(learner, len(chunk.body), closing)
                body = chunk.body if progress.lines else chunk.body.removeprefix(BOM_UTF8)
                text, head = await _answer_chunk(learner, operation, body, explain, progress.lines, permissions)
            share.give(len(chunk.body))
            progress.advance(chunk)
            if head is not None:
                progress.add(head)
                yield text or progress.encode_chunk(head)
        if not progress.answered:
            raise Invalid(
                "the body has no lines",
                [Problem("/lines", "is empty; expected at least one event", expected={"minItems": 1})],
            )
        yield progress.encode_end()
    except Disconnected:  # there is nobody to answer
        raise
    except ServiceError as error:
        if not progress.answered:
            raise
        share.give()
        yield progress.encode_refusal(error, request_id, "answered" if operation == "predict" else "learnt")
    finally:
        await lines.close()
        share.give()


async def _answer_chunk(
    learner: LearnerReplica,
    operation: Operation,
    body: bytes,
    explain: int | None,
    before: int,
    permissions: Permissions,
) -> tuple[bytes, dict[str, Any]]:
    """Return the lines about a chunk's events, and the reply to the chunk; errors count lines of the body."""
    try:
        reply, _ = await answer(learner, operation, body, NDJSON, NDJSON, explain, permissions.spend)
    except (BadBody, Invalid) as error:
        problems = [problem._replace(pointer=_shift_line(problem.pointer, before)) for problem in error.problems]
        raise type(error)(error.detail, problems) from None
    cut = reply.rfind(b"\n", 0, -1) + 1
    return reply[:cut], _decode(reply[cut:])


def _shift_line(pointer: str, before: int) -> str:
    """`/lines/4/x/2` -> `/lines/2004/x/2`."""
    if not pointer.startswith("/lines/"):
        return pointer
    number, _, rest = pointer.removeprefix("/lines/").partition("/")
    return f"/lines/{before + int(number)}" + (f"/{rest}" if rest else "")


async def _wait_for_room(learner: LearnerReplica, size: int, closing: asyncio.Event) -> None:
    """Wait until the learner's queue has room for a chunk. Raises `QueueFull` if that takes too long."""
    settings = learner.node.settings
    ends = asyncio.get_running_loop().time() + settings.body_seconds
    while (waiting := learner.queued_bytes) and waiting + _GROWS * size > settings.queue_bytes:
        if closing.is_set():
            raise Stopping("this node stops; what follows was not taken")
        if asyncio.get_running_loop().time() > ends:
            raise _no_room(settings.body_seconds)
        await asyncio.sleep(_POLL)


def _no_room(seconds: float) -> QueueFull:
    return QueueFull(f"no room for more lines within {seconds:g} s; try again in a moment")
