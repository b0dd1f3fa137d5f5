"""The body of a request that is passed on to another node: sent on as it comes, and kept where that may fail.

The host's time runs from the last piece on: that in which the client is waited for is not its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.types import Message, Receive, Scope

from service.api.body import BODY_BREAKS
from service.errors import ServiceError

__all__ = ["PassedBody", "is_large", "kept_of"]

_HELD_BYTES = 2**15  # of what was sent and nobody has read, by any system
_KEPT_BYTES = 2**20  # of a request's body, so that another host may be asked


def kept_of(length: bytes) -> int:
    """Bytes to keep of a body that says it is so long, so that it can be sent once more; 0: it is too long."""
    told = int(length) if length.isdigit() and len(length) < 10 else _KEPT_BYTES
    return told if told <= _KEPT_BYTES else 0


def is_large(length: bytes) -> bool:
    """Whether a body that says it is so long may not fit into what a connection holds of it that nobody reads."""
    return not (length.isdigit() and len(length) < 10 and int(length) <= _HELD_BYTES)


class PassedBody:
    """One, piece by piece as it comes."""

    def __init__(self, receive: Receive, scope: Scope, *, has_any: bool, keep: int, large: bool = False) -> None:
        """`keep`: of a body of so many bytes all are kept, to be sent once more; `large`: see `is_large`."""
        self.large = large
        self._receive = receive
        self._scope = scope
        self._has_any = has_any
        self._keep = keep
        self._pieces_kept: list[bytes] | None = []  # None: it is larger
        self._whole = asyncio.Event()
        self._limit: asyncio.Timeout | None = None
        self._seconds = 0.0
        self.left = False  # the client went away before all of it had come

    @property
    def broken(self) -> ServiceError | None:
        """Why it has no rest."""
        return self._scope.get(BODY_BREAKS)

    @property
    def kept(self) -> bool:
        """Whether all of it has come, and can be sent once more."""
        return self._whole.is_set() and self._pieces_kept is not None

    def waits_for(self, limit: asyncio.Timeout | None, seconds: float = 0.0) -> None:
        """The host has so many seconds, but for those in which the client is waited for."""
        self._limit, self._seconds = limit, seconds
        self._hurry(hurry=True)

    def give_up(self) -> None:
        """The host has no time any more."""
        self._ends(0.0)
        self._limit = None

    def _hurry(self, *, hurry: bool) -> None:
        self._ends(asyncio.get_running_loop().time() + self._seconds if hurry else None)

    def _ends(self, when: float | None) -> None:
        """The host has until then, if its time is not over already, which nothing takes back."""
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(when)

    def pieces(self) -> AsyncIterator[bytes] | None:
        """What has come so far and what comes; None where the request has no body."""
        if not self._has_any:
            self._whole.set()
            return None
        return self._again() if self._whole.is_set() else self._pieces()

    async def _again(self) -> AsyncIterator[bytes]:
        for piece in self._pieces_kept or ():
            yield piece

    async def _pieces(self) -> AsyncIterator[bytes]:
        while True:
            self._hurry(hurry=False)
            message = await self._receive()
            self._hurry(hurry=True)
            if message["type"] == "http.disconnect":
                self.left = True
                raise ConnectionResetError("the client went away")
            more = message.get("more_body", False)
            if not more and self.broken:
                raise ConnectionResetError("the body breaks off")
            piece: bytes = message.get("body", b"")
            self._keep -= len(piece)
            if self._keep < 0:
                self._pieces_kept = None
            elif self._pieces_kept is not None and piece:
                self._pieces_kept.append(piece)
            if piece:
                yield piece
            if not more:
                self._whole.set()
                return

    async def receive(self) -> Message:
        """As the application received the request, from its beginning: it is answered here after all."""
        if self._has_any and self.kept:
            kept, self._pieces_kept = b"".join(self._pieces_kept or ()), None
            return {"type": "http.request", "body": kept, "more_body": False}
        return await self._receive()

    async def gone(self) -> None:
        """Until the client goes away that has sent everything."""
        await self._whole.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
