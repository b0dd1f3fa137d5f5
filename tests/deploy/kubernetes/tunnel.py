"""`kubectl port-forward`: a websocket that carries frames of SPDY/3.1, of which each connection takes two streams.

The first of the two is for errors and the second has the bytes; their headers name the pod's port. What is not here:
flow control (kubectl opens its windows by itself), priorities and pushes.

https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from tests.deploy.kubernetes.pods import Container

__all__ = ["WebSocketProtocol", "forward"]

SUBPROTOCOL = "SPDY/3.1+portforward.k8s.io"
SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GOAWAY, WINDOW_UPDATE = 1, 2, 3, 6, 7, 9
CONTROL, VERSION, FIN = 0x8000, 3, 1
_NAMES = """
options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age
allow authorization cache-control connection content-base content-encoding content-language content-length
content-location content-md5 content-range content-type date etag expect expires from host if-match if-modified-since
if-none-match if-range if-unmodified-since last-modified location max-forwards pragma proxy-authenticate
proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade user-agent vary via warning
www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin
"""
DICTIONARY = b"".join(struct.pack(">I", len(one)) + one.replace("_", " ").encode() for one in _NAMES.split()) + (
    b"100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative "
    b"Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 "
    b"Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec "
    b"00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,"
    b"application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-"
    b"8859-1,utf-,*,enq=0."
)


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """With a subprotocol that has a slash in its name, which no name of one may have; `forward` looks at it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn.process_subprotocol = lambda _: None  # type: ignore[assignment, method-assign]


async def forward(websocket: WebSocket, container: Container) -> None:
    """Until the client ends it."""
    if SUBPROTOCOL not in websocket.scope["subprotocols"]:
        await websocket.close()
        return
    await websocket.accept(subprotocol=SUBPROTOCOL)
    tunnel = _Tunnel(websocket, container)
    try:
        await tunnel.run()
    except WebSocketDisconnect:
        pass
    finally:
        tunnel.close()


class _Tunnel:
    def __init__(self, websocket: WebSocket, container: Container) -> None:
        self._websocket, self._container = websocket, container
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._writers: dict[int, asyncio.StreamWriter] = {}  # of the connections to the pod, by their stream
        self._errors: dict[str, int] = {}  # the stream for them, by the number of the request
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Each frame that comes. Raises WebSocketDisconnect."""
        got = b""
        while True:
            got += await self._websocket.receive_bytes()
            while len(got) >= 8:
                first, second = struct.unpack(">II", got[:8])
                size = second & 0xFFFFFF
                if len(got) < 8 + size:
                    break
                body, got = got[8 : 8 + size], got[8 + size :]
                if first >> 31:
                    await self._control(first & 0xFFFF, body)
                else:
                    await self._data(first, second >> 24, body)

    async def _control(self, type: int, body: bytes) -> None:
        if type == SYN_STREAM:
            (stream,) = struct.unpack(">I", body[:4])
            await self._opened(stream, self._headers(body[10:]))
        elif type == PING:
            await self._send(PING, body)
        elif type == RST_STREAM:
            (stream,) = struct.unpack(">I", body[:4])
            if stream in self._writers:
                self._writers.pop(stream).close()
        elif type not in (WINDOW_UPDATE, GOAWAY):
            raise NotImplementedError(f"a frame of SPDY of type {type}")

    async def _data(self, stream: int, flags: int, body: bytes) -> None:
        writer = self._writers.get(stream)
        if writer is None:
            return
        with suppress(OSError):
            if body:
                writer.write(body)
                await writer.drain()
            if flags & FIN:
                writer.write_eof()

    async def _opened(self, stream: int, headers: dict[str, str]) -> None:
        none = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        await self._send(SYN_REPLY, struct.pack(">I", stream) + none)
        if headers["streamtype"] == "error":
            self._errors[headers["requestid"]] = stream
            return
        errors = self._errors.pop(headers["requestid"])
        try:
            port = self._container.port(int(headers["port"]))
            reader, self._writers[stream] = await asyncio.open_connection("127.0.0.1", port)
        except (KeyError, OSError) as error:
            await self._write(errors, f"port {headers['port']} of the pod: {error!r}".encode(), FIN)
            await self._write(stream, b"", FIN)
            return
        task = asyncio.get_running_loop().create_task(self._back(reader, stream, errors))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _back(self, reader: asyncio.StreamReader, stream: int, errors: int) -> None:
        """What the pod sends."""
        with suppress(OSError, WebSocketDisconnect):
            while data := await reader.read(16_384):
                await self._write(stream, data, 0)
            await self._write(stream, b"", FIN)
            await self._write(errors, b"", FIN)

    async def _send(self, type: int, body: bytes) -> None:
        await self._websocket.send_bytes(struct.pack(">HHI", CONTROL | VERSION, type, len(body)) + body)

    async def _write(self, stream: int, data: bytes, flags: int) -> None:
        await self._websocket.send_bytes(struct.pack(">II", stream, flags << 24 | len(data)) + data)

    def _headers(self, block: bytes) -> dict[str, str]:
        plain = self._inflate.decompress(block)
        parts, at = [], 4
        for _ in range(2 * struct.unpack(">I", plain[:4])[0]):
            (size,) = struct.unpack(">I", plain[at : at + 4])
            parts.append(plain[at + 4 : at + 4 + size].decode())
            at += 4 + size
        return dict(zip(parts[::2], parts[1::2], strict=True))

    def close(self) -> None:
        """Its connections with it."""
        for task in self._tasks:
            task.cancel()
        for writer in self._writers.values():
            writer.close()
