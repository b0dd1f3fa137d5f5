r"""Bodies of lines, one event in JSON each, however long: read, learnt or scored, and answered chunk by chunk.

    pieces of the body -> chunks of whole lines -> decode, learn or score -> a line of the reply, or one for each event

The next chunk is read when the last one has been answered, so memory is bounded and a client that sends faster than
events are learnt is slowed down. Each line of the reply to labelled events says how far the body has been taken by
then, and that much is in the log:

    {"lines": 2000, "bytes": 1048320, "applied": 1000, "duplicate": 0, ..., "position": 17, "class_counts": {...}}

Where a chunk is refused nothing of it is learnt, what stood before it stays, and the problem document is the last line,
with "lines" and "bytes" of what was taken, and pointers such as `/lines/2017/x/3`; lines count from 1. The first chunk
is another matter: nothing has been answered by then, so the whole request is refused, with its status.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from learners.config import Config
from learners.explain import Explanation
from learners.parameters import Problem
from learners.scorer import Scores
from service import replies as json_replies
from service import wire
from service.bodies import Disconnected
from service.columnar_replies import counted, statuses
from service.errors import BadBody, Invalid, QueueFull, ServiceError, TooLarge, TooSlow
from service.hosted import Hosted, Learnt
from service.hot import Coding, Operation, answer
from service.serving import Events, Labelled

__all__ = ["NDJSON", "Held", "replies"]

_LINES = 1000  # of a chunk,
_BYTES = 2**20  # or so many bytes, and what is needed to end the line
_POLL = 0.01  # seconds between two looks whether there is room
_GROWS = 8  # bytes in a learner's queue that a byte of JSON becomes, about, at the most

Made = TypeVar("Made")

_one_value = msgspec.json.Decoder(msgspec.Raw).decode
_encode = msgspec.json.Encoder().encode


# The coding of a chunk


class _Reply(msgspec.Struct):
    """What a reply in JSON has for each event, as text."""

    results: list[msgspec.Raw]


_results = msgspec.json.Decoder(_Reply).decode


def _decode_update(body: bytes, config: Config) -> Labelled:
    return _decoded(wire.decode_update, body, config)


def _decode_labels(body: bytes, config: Config) -> Labelled:
    return _decoded(wire.decode_labels, body, config)


def _decode_events(body: bytes, config: Config) -> tuple[Events, Sequence[Any]]:
    return _decoded(wire.decode_events, body, config)


def _decoded(decode: Callable[[bytes, Config], Made], body: bytes, config: Config) -> Made:
    """Lines, by way of the JSON body that has the same events. Raises `BadBody`, `Invalid`: of lines from 1 on."""
    lines = [(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line and not line.isspace()]
    odd = 0
    for number, line in lines:
        try:
            _one_value(line)  # each line is one value, so that none ends in the next one or holds two
        except (msgspec.DecodeError, RecursionError):
            _look(number, line)
            odd = odd or number  # a value to this decoder, with NaN in it perhaps, which the precise way points at
    try:
        return decode(b'{"events":[' + b",".join([line for _, line in lines]) + b"]}", config)
    except BadBody as error:  # what the first look passes over, such as text that is not UTF-8
        for number, line in lines:
            _look(number, line)
        if odd:  # nested too deeply only where it is the events of a body
            raise _refused(odd, error.detail) from None
        raise
    except Invalid as error:
        problems = [Problem(_lined(one.pointer, lines), one.detail) for one in error.problems]
        raise Invalid(error.detail, problems) from None


def _look(number: int, line: bytes) -> None:
    """Refuse a line that is not one JSON value to the decoder that takes most. Raises `BadBody`."""
    try:
        wire.decode_json(line)
    except BadBody as error:
        raise _refused(number, error.detail) from None


def _refused(number: int, detail: str) -> BadBody:
    return BadBody("a line is not JSON; nothing of its chunk was taken", [Problem(f"/lines/{number}", detail)])


def _lined(pointer: str, lines: Sequence[tuple[int, bytes]]) -> str:
    """`/events/3/x/2` -> `/lines/4/x/2`, of the line that the event came in."""
    _, _, rest = pointer.partition("/events/")
    event, _, inner = rest.partition("/")
    if not event:
        return "/lines"
    return f"/lines/{lines[int(event)][0]}" + (f"/{inner}" if inner else "")


def _encode_learnt(learnt: Learnt, ids: tuple[str | None, ...] | None) -> bytes:  # noqa: ARG001 - sums only
    head = {**counted(statuses(learnt)), "position": learnt.position, "class_counts": learnt.class_counts}
    return _encode(head) + b"\n"


def _encode_scores(
    scores: Scores,
    ids: tuple[str | None, ...],
    head: dict[str, Any],
    explained: Sequence[Explanation] | None = None,
) -> bytes:
    results = _results(json_replies.encode_scores(scores, ids, head, explained)).results
    return b"".join([bytes(one) + b"\n" for one in results])


NDJSON = Coding(
    "application/x-ndjson",
    (b"content-type", b"application/x-ndjson"),
    _decode_update,
    _decode_labels,
    _decode_events,
    _encode_learnt,
    _encode_scores,
)


# The stream


class Held(Protocol):
    """The bytes of requests that are read and not answered yet."""

    bytes: int

    def hold(self, size: int) -> None:
        """So many more."""
        ...

    def let_go(self, size: int) -> None:
        """So many fewer."""
        ...


class _Share:
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
        while True:
            if self._held.bytes <= self._bytes or self._held.bytes + size <= self._most:
                break
            await asyncio.sleep(_POLL)
        self.waits = False
        self._held.hold(size)
        self._bytes += size

    def give(self, size: int | None = None) -> None:
        """Count so many fewer; None: all."""
        size = self._bytes if size is None else size
        self._held.let_go(size)
        self._bytes -= size


class _Chunk(NamedTuple):
    body: bytes  # of whole lines
    lines: int


@dataclass
class _Taken:
    """How far a body has been taken."""

    lines: int = 0
    size: int = 0  # bytes


async def replies(
    learner: Hosted,
    operation: Operation,
    pieces: AsyncIterator[bytes],
    held: Held,
    explain: int | None = None,
    request_id: str = "",
) -> AsyncGenerator[bytes]:
    """The reply to a body that comes in pieces, chunk by chunk: one line, or for predict one for each event.

    Raises the `ServiceError` of the first chunk; that of a later one is the last line. Each chunk has to come within
    the time that the node gives to a whole body otherwise, and a line may have as many bytes as a body. `held` counts
    what is read and not answered, from the first piece of a line on: where that, or the learner's queue, is full,
    reading waits for as long, and then it is `QueueFull`. Close it, where not all of it is asked for.
    """
    settings = learner.node.settings
    share = _Share(held, settings.max_buffered_bytes)
    chunks = _chunks(pieces, settings.max_body_bytes, share)
    taken = _Taken()
    begun = False  # with the reply
    try:
        while (chunk := await _next(chunks, share, settings.body_seconds, taken.lines)) is not None:
            if chunk.body.isspace():
                said = b""
            else:
                if operation != "predict":
                    await _room(learner, len(chunk.body))
                said = await _answered(learner, operation, chunk.body, explain, taken.lines)
            share.give(len(chunk.body))
            taken.lines += chunk.lines
            taken.size += len(chunk.body)
            if said:
                begun = True
                yield said if operation == "predict" else _placed(said, taken)
        if not begun:
            raise Invalid("the body has no lines", [Problem("/lines", "is empty; expected at least one event")])
    except Disconnected:  # nobody is there to be told
        raise
    except ServiceError as error:
        if not begun:
            raise
        document = {**error.document(request_id), "lines": taken.lines, "bytes": taken.size}
        share.give()
        if error.retry_after is not None:  # the header of a reply that has begun cannot say it
            document["retry_after"] = error.retry_after
        yield _encode(document) + b"\n"
    finally:
        share.give()


def _placed(said: bytes, taken: _Taken) -> bytes:
    """What was said of a chunk, an object, after how far the body has been taken."""
    return b'{"lines":%d,"bytes":%d,' % (taken.lines, taken.size) + said[1:]


async def _next(chunks: AsyncIterator[_Chunk], share: _Share, seconds: float, before: int) -> _Chunk | None:
    try:
        async with asyncio.timeout(seconds):
            return await anext(chunks, None)
    except TimeoutError:
        if share.waits:
            raise _no_room(seconds) from None
        raise TooSlow(f"what follows line {before} was not complete after {seconds:g} s") from None


async def _answered(learner: Hosted, operation: Operation, body: bytes, explain: int | None, before: int) -> bytes:
    """The reply to one chunk; its refusal counts lines from the beginning of the body."""
    try:
        return await answer(learner, operation, body, NDJSON, NDJSON, explain)
    except (BadBody, Invalid) as error:
        problems = [Problem(_moved(one.pointer, before), one.detail) for one in error.problems]
        raise type(error)(error.detail, problems) from None


def _moved(pointer: str, before: int) -> str:
    """`/lines/4/x/2` -> `/lines/2004/x/2`."""
    if not pointer.startswith("/lines/"):
        return pointer
    number, _, rest = pointer.removeprefix("/lines/").partition("/")
    return f"/lines/{before + int(number)}" + (f"/{rest}" if rest else "")


async def _room(learner: Hosted, size: int) -> None:
    """Wait until the learner's queue can take a chunk. Raises `QueueFull` where it cannot for too long."""
    settings = learner.node.settings
    ends = asyncio.get_running_loop().time() + settings.body_seconds
    while (waiting := learner.queued_bytes) and waiting + _GROWS * size > settings.queue_bytes:
        if asyncio.get_running_loop().time() > ends:
            raise _no_room(settings.body_seconds)
        await asyncio.sleep(_POLL)


def _no_room(seconds: float) -> QueueFull:
    return QueueFull(f"no room for more lines within {seconds:g} s; try again in a moment")


async def _chunks(
    pieces: AsyncIterator[bytes], longest: int, share: _Share, lines: int = _LINES, size: int = _BYTES
) -> AsyncIterator[_Chunk]:
    """Whole lines: so many `lines`, or a `size` in bytes and the rest of the last one; at the end what is left.

    What is read is taken of the `share`; whoever asks for the chunks gives it back. Raises `TooLarge` for a line of
    more than `longest` bytes.
    """
    buffer = bytearray()
    number = held = 0  # whole lines: of the body, of the buffer
    end = seen = 0  # of the last whole line in the buffer, of what was looked through for ends of lines
    async for piece in pieces:
        await share.take(len(piece))
        buffer += piece
        while cut := buffer.find(b"\n", seen) + 1:
            number, held = number + 1, held + 1
            _check_line(cut - 1 - end, longest, number)
            end = seen = cut
            if held == lines or cut >= size:
                yield _Chunk(bytes(buffer[:cut]), held)
                del buffer[:cut]
                end = seen = held = 0
        seen = len(buffer)
        _check_line(seen - end, longest, number + 1)
    if buffer:
        yield _Chunk(bytes(buffer), held + (end < len(buffer)))


def _check_line(size: int, longest: int, number: int) -> None:
    if size > longest:
        raise TooLarge(f"line {number} is over {longest} bytes", [Problem(f"/lines/{number}", "is too long")])
