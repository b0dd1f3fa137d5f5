"""What the processes behind one port tell each other of their figures, so that a scrape of any of them is of all.

Each listens on a unix socket in the directory that they share, under the name NUMBER.GENERATION: a process that takes
the place of another has its number and a later generation. A question is one MessagePack message, to its end; so is the
answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

__all__ = ["Ask", "Siblings"]

logger = logging.getLogger("rarestream.workers")

_PATIENCE = 2.0  # seconds in which a sibling answers, or is left out

Ask = Callable[[msgspec.Raw], Awaitable[Any]]  # what a question, still encoded, is answered with
Answer = TypeVar("Answer")


class Siblings:
    """One of several processes that share a directory."""

    def __init__(self, directory: Path, number: int, generation: int) -> None:
        self.number = number
        self._directory = directory
        self._own = directory / f"{number}.{generation}"
        self._server: asyncio.Server | None = None

    async def listen(self, answer: Ask) -> None:
        """Answer the others from now on. Raises `OSError` where there can be no socket."""

        async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                async with asyncio.timeout(_PATIENCE):
                    question = msgspec.Raw(await reader.read())
                    writer.write(msgspec.msgpack.encode(await answer(question)))
                    await writer.drain()
            except (OSError, TimeoutError, msgspec.MsgspecError) as error:
                logger.debug("a sibling was not answered: %r", error)
            finally:
                writer.close()

        self._server = await asyncio.start_unix_server(answered, self._own)

    def close(self) -> None:
        """Answer nobody any more."""
        if self._server is not None:
            self._server.close()
        self._own.unlink(missing_ok=True)

    async def ask_all(self, question: Any, kind: type[Answer]) -> dict[int, Answer]:
        """What the others answer, by number; those that do not, in time, are left out."""
        numbers = sorted(self._others())
        answers = await asyncio.gather(*(self.ask(number, question, kind) for number in numbers))
        return {number: one for number, one in zip(numbers, answers, strict=True) if one is not None}

    async def ask(self, number: int, question: Any, kind: type[Answer]) -> Answer | None:
        """What one of them answers, or None."""
        try:
            async with asyncio.timeout(_PATIENCE):
                reader, writer = await asyncio.open_unix_connection(self._others()[number])
                try:
                    writer.write(msgspec.msgpack.encode(question))
                    writer.write_eof()
                    return msgspec.msgpack.decode(await reader.read(), type=kind)
                finally:
                    writer.close()
        except (KeyError, OSError, TimeoutError, msgspec.MsgspecError) as error:
            logger.debug("worker %d did not answer: %r", number, error)
            return None

    def _others(self) -> dict[int, Path]:
        """The others' sockets: of each number the one of the latest generation."""
        latest: dict[int, tuple[int, Path]] = {}
        for path in self._directory.glob("*.*"):
            number, generation = map(int, path.name.split("."))
            if number != self.number:
                latest[number] = max(latest.get(number, (0, path)), (generation, path))
        return {number: path for number, (_, path) in latest.items()}
