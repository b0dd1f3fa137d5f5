"""Bodies of requests, within the node's bounds: of one, of all that are not answered yet, and of the time they take.

And of replies without a known end: how long a client may read nothing of them.
"""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import AsyncIterator, Awaitable, Coroutine, Generator
from typing import Any, cast

from starlette.types import Message, Receive, Scope, Send

from service.errors import QueueFull, ServiceError, TooLarge, TooSlow, WrongType
from service.settings import Settings
from service.wire import Heading, expanded, form_hint, in_utf8

__all__ = ["BODY_BREAKS", "BODY_ENDS", "Bodies", "Disconnected", "check_json", "pieces", "read_in_time"]

logger = logging.getLogger("rarestream.bodies")

BODY_BREAKS = "rarestream.body_breaks"  # in a scope: why what was received last is not the rest of the body
BODY_ENDS = "rarestream.body_ends"  # in a scope: by when the body has to be whole, where it was waited for before
_DIGITS = 18  # of a length that is read


class Disconnected(ServiceError):
    """The client went away before its body, or the reply, was complete; nobody is there to be answered."""

    status, code, title = 499, "gone", "The client went away"  # for the log: nginx's status


def check_json(heading: Heading) -> None:
    """Refuse what is no JSON in UTF-8. Raises `WrongType`."""
    kind, _, parameters = heading.content_type.decode("latin-1").lower().partition(";")
    if kind.strip() not in ("", "application/json") or not in_utf8(parameters):
        raise WrongType(f"the body is {(kind + parameters)[:100]}; expected application/json in UTF-8{form_hint(kind)}")


async def pieces(
    receive: Receive, scope: Scope, first: Message | Generator[Any, Any, Message] | None = None
) -> AsyncIterator[bytes]:
    """The body of the request of this scope as it comes; its `first` message may be here, or have begun to be awaited.

    Raises `Disconnected`, and what the scope says where the body breaks off.
    """
    waited = await cast(Awaitable[Message], first) if isinstance(first, types.GeneratorType) else first
    message = cast("Message | None", waited)
    while True:
        message = await receive() if message is None else message
        if message["type"] != "http.request":
            raise Disconnected("the client went away before its body was complete")
        if not (more := message.get("more_body", False)):
            _check_end(scope)
        yield message.get("body", b"")
        if not more:
            return
        message = None


def _check_end(scope: Scope) -> None:
    """Refuse a body that has come to an end which is none of its own."""
    if broken := scope.get(BODY_BREAKS):
        raise cast(ServiceError, broken)


class Bodies:
    """The bodies of a node that are read and not answered yet."""

    def __init__(self, settings: Settings) -> None:
        self.bytes = 0
        self._most = settings.max_body_bytes
        self._most_of_all = settings.max_buffered_bytes
        self._seconds = settings.body_seconds

    async def read(self, receive: Receive, scope: Scope, heading: Heading, most: int | None = None) -> bytes:
        """The body, expanded, which counts as held until `release`. `most` bytes, where that is less than all may have.
        It has to be whole by when the scope says, or else within the node's seconds from now on.

        Raises `TooLarge`, also by its own word, `QueueFull`, `TooSlow`, or as `pieces` and `expanded`. The timer,
        which costs more than all else here, is started only where the first message is not there yet, or is not the
        whole.
        """
        ends: float | None = scope.get(BODY_ENDS)
        most = self._most if most is None else min(most, self._most)
        if heading.length.isdigit() and (told := _length(heading.length)) > most:
            raise TooLarge(f"the body has {told} bytes; at most {most} are taken: send smaller batches")
        if heading.encoding not in (b"", b"identity"):
            return await self._gathered(
                expanded(pieces(receive, scope), heading.encoding.decode("latin-1"), most), most, ends
            )
        first: Coroutine[Any, Any, Message] = receive()  # type: ignore[assignment]  # as servers have it
        try:
            waits = first.send(None)
        except StopIteration as done:
            message: Message = done.value
            if message.get("more_body", False) or message["type"] != "http.request":
                return await self._gathered(pieces(receive, scope, message), most, ends)
            _check_end(scope)
            body: bytes = message.get("body", b"")
            self.bytes += len(body)
            try:
                self._check_size(len(body), most)
            except ServiceError:
                self.bytes -= len(body)
                raise
            return body
        return await self._gathered(pieces(receive, scope, _resumed(first, waits)), most, ends)

    async def _gathered(self, parts: AsyncIterator[bytes], most: int, ends: float | None) -> bytes:
        """The whole of what comes in parts."""
        gathered: list[bytes] = []
        size, complete = 0, False
        try:
            async with asyncio.timeout(self._seconds) if ends is None else asyncio.timeout_at(ends):
                async for part in parts:
                    gathered.append(part)
                    size += len(part)
                    self.bytes += len(part)
                    self._check_size(size, most)
            complete = True
        except TimeoutError:
            raise TooSlow(f"the body was not complete after {self._seconds:g} s") from None
        finally:
            if not complete:  # whatever ended it, a cancellation too: nothing of it is held any more
                self.bytes -= size
        return b"".join(gathered)

    def has_room(self, size: int) -> bool:
        """Whether a body of that size may be read that is answered at once, and so never held."""
        return size <= self._most and (self.bytes == 0 or self.bytes + size <= self._most_of_all)

    def _check_size(self, size: int, most: int) -> None:
        """Refuse a body of which so much is here, and counted."""
        if size > most:
            raise TooLarge(f"the body is over {most} bytes: send smaller batches")
        if self.bytes > self._most_of_all and size < self.bytes:
            raise QueueFull("this node holds as many bytes of requests as it may; try again in a moment")

    def hold(self, size: int) -> None:
        """So many bytes of a body are read, beside those of `read`."""
        self.bytes += size

    def let_go(self, size: int) -> None:
        """So many bytes that were held are answered, or nobody asks for them any more."""
        self.bytes -= size

    def release(self, body: bytes) -> None:
        """The request with this body is answered."""
        self.bytes -= len(body)


def _length(digits: bytes) -> int:
    """A Content-Length; 10^18 where it is larger, for Python reads no more than 4,300 digits."""
    if len(digits) > _DIGITS:
        digits = digits.lstrip(b"0") or b"0"
    return int(digits) if len(digits) <= _DIGITS else 10**_DIGITS


@types.coroutine
def _resumed(begun: Coroutine[Any, Any, Message], waits: Any) -> Generator[Any, Any, Message]:
    """The rest of a coroutine that has run up to its first wait."""
    try:
        yield waits
    except asyncio.CancelledError:
        begun.close()
        raise
    message: Message = yield from begun  # which goes on behind that wait
    return message


def read_in_time(send: Send, seconds: float, what: str) -> Send:
    """`send` of a reply without a known end, as which it raises `Disconnected` where nothing is read for so long.

    `what` names the reply in the log.
    """

    async def sent(message: Message) -> None:
        try:
            async with asyncio.timeout(seconds):
                await send(message)
        except TimeoutError:
            logger.warning("%s was dropped: nothing of it was read in %g s", what, seconds)
            raise Disconnected("the client does not read its reply") from None

    return sent
