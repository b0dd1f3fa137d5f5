"""Reads the bodies of requests within the limits of the node: size, total size in memory, and time.

Also bounds how long a client may read nothing of a reply without a known end.
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

BODY_BREAKS = "rarestream.body_breaks"  # in a scope: the error if the body is incomplete
BODY_ENDS = "rarestream.body_ends"  # in a scope: the deadline of the body, if part of its time has passed
_MAX_DIGITS = 18  # of a Content-Length


class Disconnected(ServiceError):
    """The client left before the body or the reply was complete, so there is nobody to answer."""

    status, code, title = 499, "gone", "The client went away"  # for the log: nginx's status


def check_json(heading: Heading) -> None:
    """Raise `WrongType` unless the body is JSON in UTF-8."""
    kind, _, parameters = heading.content_type.decode("latin-1").lower().partition(";")
    if kind.strip() not in ("", "application/json") or not in_utf8(parameters):
        raise WrongType(f"the body is {(kind + parameters)[:100]}; expected application/json in UTF-8{form_hint(kind)}")


async def pieces(
    receive: Receive, scope: Scope, first: Message | Generator[Any, Any, Message] | None = None
) -> AsyncIterator[bytes]:
    """Yield the pieces of a body as they arrive. The `first` message may be received, or partly awaited, already.

    Raises `Disconnected`, or the error in the scope if the body is incomplete.
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
    """Raise the error in the scope if the body is incomplete."""
    if broken := scope.get(BODY_BREAKS):
        raise cast(ServiceError, broken)


class Bodies:
    """The bodies of a node that are in memory until their replies."""

    def __init__(self, settings: Settings) -> None:
        self.bytes = 0
        self._max_size = settings.max_body_bytes
        self._max_total = settings.max_buffered_bytes
        self._seconds = settings.body_seconds

    async def read(self, receive: Receive, scope: Scope, heading: Heading, most: int | None = None) -> bytes:
        """Read and decompress a body, and count its bytes until `release`; `most`: a lower limit than the node's.

        The deadline is that of the scope, or else the node's `body_seconds` from now. Raises `TooLarge`, `QueueFull`,
        `TooSlow`, or as `pieces` and `expanded` do. The timer costs more than all else here. So it starts only if the
        first message has not arrived or is not the complete body.
        """
        ends: float | None = scope.get(BODY_ENDS)
        most = self._max_size if most is None else min(most, self._max_size)
        if heading.length.isdigit() and (size := _length(heading.length)) > most:
            raise TooLarge(f"the body has {size} bytes; at most {most} are taken: send smaller batches")
        if heading.encoding not in (b"", b"identity"):
            return await self._gather(
                expanded(pieces(receive, scope), heading.encoding.decode("latin-1"), most), most, ends
            )
        first: Coroutine[Any, Any, Message] = receive()  # type: ignore[assignment]  # a coroutine in all servers
        try:
            waits = first.send(None)
        except StopIteration as done:
            message: Message = done.value
            if message.get("more_body", False) or message["type"] != "http.request":
                return await self._gather(pieces(receive, scope, message), most, ends)
            _check_end(scope)
            body: bytes = message.get("body", b"")
            self.bytes += len(body)
            try:
                self._check_size(len(body), most)
            except ServiceError:
                self.bytes -= len(body)
                raise
            return body
        return await self._gather(pieces(receive, scope, _resumed(first, waits)), most, ends)

    async def _gather(self, parts: AsyncIterator[bytes], most: int, ends: float | None) -> bytes:
        """Join the parts of a body."""
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
            if not complete:  # after any error or a cancellation
                self.bytes -= size
        return b"".join(gathered)

    def has_room(self, size: int) -> bool:
        """Tell whether a body of that size may be answered at once, without counting it."""
        return size <= self._max_size and (self.bytes == 0 or self.bytes + size <= self._max_total)

    def _check_size(self, size: int, most: int) -> None:
        """Refuse a body that has so many bytes by now, which are counted."""
        if size > most:
            raise TooLarge(f"the body is over {most} bytes: send smaller batches")
        if self.bytes > self._max_total and size < self.bytes:
            raise QueueFull("this node holds as many bytes of requests as it may; try again in a moment")

    def hold(self, size: int) -> None:
        """Count bytes that another reader than `read` has read."""
        self.bytes += size

    def let_go(self, size: int) -> None:
        """Discount bytes that `hold` has counted."""
        self.bytes -= size

    def release(self, body: bytes) -> None:
        """Discount a body after its reply."""
        self.bytes -= len(body)


def _length(digits: bytes) -> int:
    """Parse a Content-Length, at most 10^18, because Python parses no more than 4,300 digits."""
    if len(digits) > _MAX_DIGITS:
        digits = digits.lstrip(b"0") or b"0"
    return int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS


@types.coroutine
def _resumed(coroutine: Coroutine[Any, Any, Message], waits: Any) -> Generator[Any, Any, Message]:
    """Run the rest of a coroutine that has run up to its first wait."""
    try:
        yield waits
    except asyncio.CancelledError:
        coroutine.close()
        raise
    message: Message = yield from coroutine  # continues after that wait
    return message


def read_in_time(send: Send, seconds: float, what: str) -> Send:
    """Wrap `send` for a reply without a known end: it raises `Disconnected` if the client reads nothing for so long.

    `what` names the reply in the log.
    """

    async def bounded_send(message: Message) -> None:
        try:
            async with asyncio.timeout(seconds):
                await send(message)
        except TimeoutError:
            logger.warning("%s was dropped: nothing of it was read in %g s", what, seconds)
            raise Disconnected("the client does not read its reply") from None

    return bounded_send
