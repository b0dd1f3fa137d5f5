"""Processes behind one port exchange their metrics, so that a scrape of any of them covers all.

Each listens on a unix socket named NUMBER.GENERATION in a shared directory. A process that replaces another has the
same number and a later generation. A question is one MessagePack message up to the end of the stream, and so is the
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

_PATIENCE = 2.0  # seconds that a sibling has to answer

Ask = Callable[[msgspec.Raw], Awaitable[Any]]  # answers a question that is still encoded
Answer = TypeVar("Answer")


class Siblings:
    """One of several processes that share a directory."""

    def __init__(self, directory: Path, number: int, generation: int) -> None:
        self.number = number
        self._directory = directory
        self._path = directory / f"{number}.{generation}"
        self._server: asyncio.Server | None = None

    async def listen(self, answer: Ask) -> None:
        """Start to answer the others. Raises `OSError` if the socket cannot be created."""

        async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                async with asyncio.timeout(_PATIENCE):
                    question = msgspec.Raw(await reader.read())
                    writer.write(msgspec.msgpack.encode(await answer(question)))
                    await writer.drain()
            except (OSError, TimeoutError, msgspec.MsgspecError) as error:
                logger.debug("could not answer another worker: %r", error)
            finally:
                writer.close()

        self._server = await asyncio.start_unix_server(reply, self._path)

    def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            self._server.close()
        self._path.unlink(missing_ok=True)

    async def ask_all(self, question: Any, kind: type[Answer]) -> dict[int, Answer]:
        """Ask all others; return their answers by number, without those that do not answer in time."""
        numbers = sorted(self._others())
        answers = await asyncio.gather(*(self.ask(number, question, kind) for number in numbers))
        return {number: answer for number, answer in zip(numbers, answers, strict=True) if answer is not None}

    async def ask(self, number: int, question: Any, kind: type[Answer]) -> Answer | None:
        """Ask one of them; None if it does not answer."""
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
        """Return the sockets of the others, the latest generation of each number."""
        latest: dict[int, tuple[int, Path]] = {}
        for path in self._directory.glob("*.*"):
            number, generation = map(int, path.name.split("."))
            if number != self.number:
                latest[number] = max(latest.get(number, (0, path)), (generation, path))
        return {number: path for number, (_, path) in latest.items()}
