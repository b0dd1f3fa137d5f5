"""Expand compressed request bodies while they arrive: gzip (RFC 1952) and Zstandard (RFC 8878), within a bound.

At most one expanded piece of 64 KiB is in memory, however well a body is compressed, and reading ends once the whole
exceeds its limit. Other requests run between pieces. A body may have several gzip members or Zstandard frames in a
row, and must end at the end of one.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from service.errors import BadBody, TooLarge, WrongType

__all__ = ["ENCODINGS", "expanded"]

_PIECE = 2**16  # bytes that come out at a time
_EMPTY = 10_000  # members or frames in a row that may hold nothing: they take time, and no bound on bytes counts it
_TOO_LONG = "Frame requires too much memory"  # what libzstd says of a larger window; its errors have no code here
_WINDOW = 23  # log2 of the bytes that Zstandard may look back on: 8 MiB, as RFC 9659 has it for HTTP


class _Decompressor(Protocol):
    """One gzip member or Zstandard frame, which is expanded piece by piece."""

    @property
    def eof(self) -> bool:
        """Whether the end was reached; the input behind it is `unused_data`."""
        ...

    @property
    def unused_data(self) -> bytes:
        """The input after the end."""
        ...

    def expand(self, data: bytes) -> bytes:
        """Take more input and return at most a piece of the output; b"" if nothing is left."""
        ...


class _Gzip:
    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def expand(self, data: bytes) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, _PIECE)


class _Zstd:
    def __init__(self) -> None:
        self._inner = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW})

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def expand(self, data: bytes) -> bytes:
        return self._inner.decompress(data, _PIECE)


_STREAMS: dict[str, Callable[[], _Decompressor]] = {"gzip": _Gzip, "x-gzip": _Gzip, "zstd": _Zstd}
ENCODINGS = ("identity", "gzip", "zstd")


async def expanded(chunks: AsyncIterator[bytes], encoding: str, limit: int | None) -> AsyncIterator[bytes]:
    """Expand compressed `chunks` and yield the body in pieces; `encoding`: the Content-Encoding.

    Raises `WrongType` for an unsupported encoding, `TooLarge` once more than `limit` bytes (None: no limit) have
    arrived or come out, and `BadBody` if the data are damaged or incomplete. O(bytes); memory: a piece, a window.
    """
    pieces = _pieces(_within(chunks, limit), encoding.strip().lower() or "identity")
    async for piece in _within(pieces, limit):
        yield piece


async def _within(chunks: AsyncIterator[bytes], limit: int | None) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if limit is not None and size > limit:
            raise TooLarge(f"the body is over {limit} bytes: send smaller batches")
        yield chunk


async def _pieces(chunks: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    if encoding == "identity":
        async for chunk in chunks:
            yield chunk
        return
    make = _STREAMS.get(encoding)
    if make is None:
        raise WrongType(f"the body's Content-Encoding is {encoding[:100]}; expected one of {', '.join(ENCODINGS)}")
    stream: _Decompressor | None = None
    seen = False  # a member or a frame, whole
    empty = 0  # of those, the last ones that held nothing
    async for rest in _cut(chunks):
        while rest:
            stream = stream or make()
            for piece in _out_of(stream, rest, encoding, seen):
                empty = -1  # so that it is 0 after this member
                yield piece
                await asyncio.sleep(0)
            rest = b""
            if stream.eof:
                seen, rest, stream = True, stream.unused_data, None
                empty += 1
                if empty > _EMPTY:
                    raise BadBody(f"over {_EMPTY} parts of the {encoding} stream, one after the other, hold nothing")
                await asyncio.sleep(0)  # members that hold nothing give no piece after which others have their turn
    if stream is not None or not seen:
        raise BadBody(f"the body ends in the middle of its {encoding} stream")


async def _cut(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Cut chunks into pieces, because the rest of a chunk is copied each time that a part of it is expanded."""
    async for chunk in chunks:
        for start in range(0, len(chunk), _PIECE):
            yield chunk[start : start + _PIECE]


def _out_of(stream: _Decompressor, data: bytes, encoding: str, started: bool) -> Iterator[bytes]:
    """Expand more data of a member or a frame; `started`: a whole one came before it."""
    try:
        while piece := stream.expand(data):
            yield piece
            data = b""
            if stream.eof:
                return
    except (zlib.error, zstd.ZstdError) as error:
        if _TOO_LONG in str(error):
            most = 2**_WINDOW // 2**20
            raise BadBody(f"the zstd window is over {most} MiB; compress without --long and --ultra") from None
        if started:
            raise BadBody(f"what follows the end of the {encoding} stream is not {encoding}: {error}") from None
        raise BadBody(f"the body is not {encoding}: {error}") from None
