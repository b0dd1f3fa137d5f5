"""A transport under a protocol: what is written to it is kept."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["Pipe"]


class Pipe(asyncio.Transport):
    """A transport that keeps what is written, and whose peer never reads."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.grown = asyncio.Event()
        self.aborted = asyncio.Event()
        self.closed = False
        self.paused = False

    def write(self, data: Any) -> None:
        self.written += data
        self.grown.set()

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    async def until(self, size: int) -> None:
        """Until so many bytes are written."""
        while len(self.written) < size:
            self.grown.clear()
            await asyncio.wait_for(self.grown.wait(), 300)

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def abort(self) -> None:
        self.aborted.set()
