r"""Bodies of lines, however long or slow: read, learnt or scored, and answered chunk by chunk (`ndjson.py`).

    pieces of the body -> chunks of whole lines -> decode, learn or score -> a line of the reply, or one for each event

The next chunk is read when the last one has been answered, so memory is bounded and a client that sends faster than
events are learnt is slowed down. A chunk is so many lines, or what has come of them a fifth of a second after the
first: a stream that drips is answered while it lives. Where it is cut changes nothing of what is learnt. Each line of
the reply to labelled events says how far the body has been taken by then, and that much is in the log:

    {"lines": 2000, "bytes": 1048320, "applied": 1000, "duplicate": 0, ..., "position": 17, "class_counts": {...}}

The last line says that this was all, with the sums of the whole body:

    {"done": true, "lines": 2300, "bytes": 1205568, "applied": 2300, ...}

Where a chunk is refused nothing of it is learnt, what stood before it stays, and the last line is the problem document,
with `"done": false`, "lines" and "bytes" of what was taken, and pointers such as `/lines/2017/x/3`; lines count from 1.
The first chunk is another matter: nothing has been answered by then, so the whole request is refused, with its status.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, NamedTuple, Protocol

import msgspec

from learners import Problem
from service.api.body import Disconnected
from service.api.operations import answer
from service.auth import FREE, Grant
from service.engine.replica import LearnerReplica
from service.errors import BadBody, Invalid, QueueFull, ServiceError, Stopping, TooLarge, TooSlow
from service.wire import NDJSON, STATUSES, Operation

__all__ = ["Chunk", "Held", "Lines", "Share", "ndjson_replies"]

_LINES = 1000  # of a chunk,
_BYTES = 2**20  # or so many bytes, and what is needed to end the line,
_LIVE = 0.2  # or seconds after its first line: soon to somebody who watches, and rare beside what a chunk costs
_POLL = 0.01  # seconds between two looks whether there is room
_GROWS = 8  # bytes in a learner's queue that a byte of JSON becomes, about, at the most
_SUMS = frozenset((*STATUSES, "remembered"))  # what is added up over the chunks; of all else the last one's stands

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Held(Protocol):
    """The bytes of requests that are read and not answered yet."""

    bytes: int

    def hold(self, size: int) -> None:
        """So many more."""
        ...

    def let_go(self, size: int) -> None:
        """So many fewer."""
        ...


class Share:
    """What one body has of the bytes that are held: of lines that are gathered, and of those that are answered."""

    def __init__(self, held: Held, most: int) -> None:
        """`most`: that may be held by all."""
        self._held = held
        self._most = most
        self._bytes = 0
        self.waits = False  # for room

    async def take(self, size: int) -> None:
        """Count so many more, once there is room. A body that is the only one has it."""
        self.waits = True
        while self._held.bytes > self._bytes and self._held.bytes + size > self._most:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(_POLL)
        self.waits = False
        self._held.hold(size)
        self._bytes += size

    def give(self, size: int | None = None) -> None:
        """Count so many fewer; None: all."""
        size = self._bytes if size is None else size
        self._held.let_go(size)
        self._bytes -= size


class Chunk(NamedTuple):
    """Whole lines."""

    body: bytes
    lines: int


class Lines:
    """Chunks of the whole lines of a body that comes in pieces."""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        share: Share,
        longest: int,
        seconds: float,
        closing: asyncio.Event,
        lines: int = _LINES,
        size: int = _BYTES,
    ) -> None:
        """What is read is taken of the `share`; whoever asks for the chunks gives it back.

        `longest`: bytes of a line; `seconds` in which it has to come; `lines` and `size`: of a chunk.
        """
        self._pieces = pieces
        self._share = share
        self._longest = longest
        self._seconds = seconds
        self._lines = lines
        self._size = size
        self._closing = asyncio.ensure_future(closing.wait())
        self._coming: asyncio.Task[bytes | None] | None = None  # the next piece
        self._over = False  # there are no more
        self._buffer = bytearray()
        self._number = self._held = 0  # whole lines: of the body, of the buffer
        self._end = self._seen = 0  # of the last whole line in the buffer, of what was looked through for ends of lines

    async def next(self) -> Chunk | None:
        """So many lines, or a size in bytes and the rest of the last line, or what there is some time after the first.

        At the end it is what is left, and then None. Raises `TooLarge` for a line that is too long, `TooSlow` where a
        line does not end in time after it began, or none begins, `QueueFull` where there is no room to read on for as
        long, `Stopping` when the node stops, and what the pieces raise. Cost: O(bytes).
        """
        now = asyncio.get_running_loop().time
        live = ends = 0.0
        held, number, begun = 0, -1, False
        while (chunk := self._full()) is None and not self._over:
            if self._held and not held:
                live = now() + _LIVE
            if self._number > number or self._begun > begun:
                ends = now() + self._seconds
            held, number, begun = self._held, self._number, self._begun
            if not await self._more(live if held else ends):
                if held:
                    return self._cut()
                raise self._late()
        return chunk or self._rest()

    async def close(self) -> None:
        """Read no more."""
        coming, self._coming = self._coming, None
        self._closing.cancel()
        if coming is not None:
            coming.cancel()
            await asyncio.wait([coming])
            if not coming.cancelled():
                coming.exception()  # nobody asks for it any more

    @property
    def _begun(self) -> bool:
        """Whether there is a beginning of a line."""
        return self._end < len(self._buffer)

    async def _more(self, until: float) -> bool:
        """Read the next piece, or that there is none; False: it does not come by then, and is waited for further on."""
        if self._coming is None:
            self._coming = asyncio.ensure_future(self._piece())
        left = until - asyncio.get_running_loop().time()
        await asyncio.wait([self._coming, self._closing], timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if self._closing.done():
            raise Stopping("this node stops; what follows was not taken")
        if not self._coming.done():
            return False
        coming, self._coming = self._coming, None
        piece = coming.result()
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

    def _full(self) -> Chunk | None:
        """A chunk, where the buffer has a full one. Looks at each byte once."""
        while cut := self._buffer.find(b"\n", self._seen) + 1:
            self._number, self._held = self._number + 1, self._held + 1
            self._check(cut - 1 - self._end, self._number)
            self._end = self._seen = cut
            if self._held == self._lines or cut >= self._size:
                return self._cut()
        self._seen = len(self._buffer)
        self._check(self._seen - self._end, self._number + 1)
        return None

    def _cut(self) -> Chunk:
        """The whole lines that there are."""
        chunk = Chunk(bytes(self._buffer[: self._end]), self._held)
        del self._buffer[: self._end]
        self._seen -= self._end
        self._end = self._held = 0
        return chunk

    def _rest(self) -> Chunk | None:
        """All that there is, if anything is."""
        if not self._buffer:
            return None
        if self._begun:
            self._number, self._held, self._end = self._number + 1, self._held + 1, len(self._buffer)
        return self._cut()

    def _check(self, size: int, number: int) -> None:
        if size > self._longest:
            raise TooLarge(f"line {number} is over {self._longest} bytes", [Problem(f"/lines/{number}", "is too long")])

    def _late(self) -> ServiceError:
        if self._share.waits:
            return _no_room(self._seconds)
        what = "was not complete" if self._begun else "did not come"
        return TooSlow(f"line {self._number + 1} {what} within {self._seconds:g} s")


class _Taken:
    """How far a body has been taken, and the sums of what was said of it."""

    def __init__(self) -> None:
        self.lines = 0
        self.bytes = 0
        self.answered = False  # whether anything was said
        self._total: dict[str, Any] = {}

    def take(self, chunk: Chunk) -> None:
        """So much more."""
        self.lines += chunk.lines
        self.bytes += len(chunk.body)

    def add(self, head: dict[str, Any]) -> None:
        """What was said of a chunk as a whole."""
        self.answered = True
        for name, value in head.items():
            self._total[name] = self._total.get(name, 0) + value if name in _SUMS else value

    def placed(self, head: dict[str, Any]) -> bytes:
        """What was said of a chunk, after how far the body has been taken."""
        return _encode({"lines": self.lines, "bytes": self.bytes, **head}) + b"\n"

    def whole(self) -> bytes:
        """The last line, where all was taken."""
        return _encode({"done": True, "lines": self.lines, "bytes": self.bytes, **self._total}) + b"\n"

    def refused(self, error: ServiceError, request_id: str, said: str) -> bytes:
        """The last line, where something was not; `said`: what became of the lines before it."""
        document = error.document(request_id)
        document["detail"] = f"{error.detail}; lines 1 to {self.lines} were {said}"
        if isinstance(error, (BadBody, Invalid, TooLarge)):  # of others it may not be known, as when the store is away
            document["detail"] = f"{error.detail}; nothing of this chunk was {said}; lines 1 to {self.lines} were"
        document |= {"done": False, "lines": self.lines, "bytes": self.bytes}
        if error.retry_after is not None:  # the header of a reply that has begun cannot say it
            document["retry_after"] = error.retry_after
        return _encode(document) + b"\n"


async def ndjson_replies(
    learner: LearnerReplica,
    operation: Operation,
    pieces: AsyncIterator[bytes],
    held: Held,
    explain: int | None = None,
    request_id: str = "",
    closing: asyncio.Event | None = None,
    grant: Grant = FREE,
) -> AsyncGenerator[bytes]:
    """The reply to a body that comes in pieces, chunk by chunk: one line, or for predict one for each event.

    Raises the `ServiceError` of the first chunk; that of a later one is the last line. Each line has to come within
    the time that the node gives to a whole body otherwise, and may have as many bytes as a body. `held` counts what is
    read and not answered, from the first piece of a line on: where that, or the learner's queue, is full, reading waits
    for as long, and then it is `QueueFull`. Once `closing` is set it ends with `Stopping`. The grant bounds a line, and
    counts the events of each chunk. Close it, where not all of it is asked for.
    """
    settings = learner.node.settings
    closing = closing or asyncio.Event()
    share = Share(held, settings.max_buffered_bytes)
    longest = settings.max_body_bytes if grant.body_bytes is None else min(grant.body_bytes, settings.max_body_bytes)
    lines = Lines(pieces, share, longest, settings.body_seconds, closing)
    taken = _Taken()
    try:
        while (chunk := await lines.next()) is not None:
            said, head = b"", None
            if not chunk.body.isspace():
                if operation != "predict":
                    await _room(learner, len(chunk.body), closing)
                said, head = await _answered(learner, operation, chunk.body, explain, taken.lines, grant)
            share.give(len(chunk.body))
            taken.take(chunk)
            if head is not None:
                taken.add(head)
                yield said or taken.placed(head)
        if not taken.answered:
            raise Invalid(
                "the body has no lines",
                [Problem("/lines", "is empty; expected at least one event", expected={"minItems": 1})],
            )
        yield taken.whole()
    except Disconnected:  # nobody is there to be told
        raise
    except ServiceError as error:
        if not taken.answered:
            raise
        share.give()
        yield taken.refused(error, request_id, "answered" if operation == "predict" else "learnt")
    finally:
        await lines.close()
        share.give()


async def _answered(
    learner: LearnerReplica, operation: Operation, body: bytes, explain: int | None, before: int, grant: Grant
) -> tuple[bytes, dict[str, Any]]:
    """The lines about the events of a chunk, and what is said of it as a whole.

    Its refusal counts lines from the beginning of the body.
    """
    try:
        reply, _ = await answer(learner, operation, body, NDJSON, NDJSON, explain, grant.spend)
    except (BadBody, Invalid) as error:
        problems = [problem._replace(pointer=_moved(problem.pointer, before)) for problem in error.problems]
        raise type(error)(error.detail, problems) from None
    cut = reply.rfind(b"\n", 0, -1) + 1
    return reply[:cut], _decode(reply[cut:])


def _moved(pointer: str, before: int) -> str:
    """`/lines/4/x/2` -> `/lines/2004/x/2`."""
    if not pointer.startswith("/lines/"):
        return pointer
    number, _, rest = pointer.removeprefix("/lines/").partition("/")
    return f"/lines/{before + int(number)}" + (f"/{rest}" if rest else "")


async def _room(learner: LearnerReplica, size: int, closing: asyncio.Event) -> None:
    """Wait until the learner's queue can take a chunk. Raises `QueueFull` where it cannot for too long."""
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
