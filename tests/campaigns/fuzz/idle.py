"""The clients of idle connections, as a process of their own: `python -m tests.campaigns.fuzz.idle KIND PORT COUNT`.

It opens them, says in a line of JSON how many there are, and waits for the end of its input. Then it closes websockets
as they should be closed, and of connections that have sent nothing waits until the server does; and says how many were.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time

__all__ = ["main"]

_AT_ONCE = 100  # that are being opened
_PATIENCE = 300.0  # seconds
_CLOSE = b"\x88\x82\x00\x00\x00\x00\x03\xe8"  # a frame: 1000, masked by zeros

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _opened(kind: str, port: int, slots: asyncio.Semaphore) -> Pair:
    """One more; a websocket once its hello has come."""
    async with slots:
        reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), _PATIENCE)
        if kind == "websocket":
            key = base64.b64encode(bytes(16)).decode()
            writer.write(
                f"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
            )
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _PATIENCE)
            if not head.startswith(b"HTTP/1.1 101 "):
                raise ConnectionError(head.decode("latin-1"))
            frame = await asyncio.wait_for(reader.readexactly(2), _PATIENCE)
            hello = await asyncio.wait_for(reader.readexactly(frame[1]), _PATIENCE)
            if frame[0] != 0x81 or json.loads(hello)["type"] != "hello":
                raise ConnectionError(hello.decode("latin-1"))
        return reader, writer


async def _closed(kind: str, pair: Pair) -> bool:
    """Whether it is closed as it should be."""
    reader, writer = pair
    try:
        if kind == "websocket":
            writer.write(_CLOSE)
        message = await asyncio.wait_for(reader.read(), _PATIENCE)
    except (OSError, TimeoutError):
        return False
    finally:
        writer.transport.abort()
    return message.endswith(b"\x88\x02\x03\xe8") if kind == "websocket" else message == b""


async def _run(kind: str, port: int, count: int) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)
    began = time.monotonic()
    actual = await asyncio.gather(*(_opened(kind, port, slots) for _ in range(count)), return_exceptions=True)
    pairs = [item for item in actual if not isinstance(item, BaseException)]
    failed = [repr(item) for item in actual if isinstance(item, BaseException)]
    report = {"open": len(pairs), "seconds": time.monotonic() - began, "failed": failed[:3]}
    print(json.dumps(report), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    closed = await asyncio.gather(*(_closed(kind, pair) for pair in pairs))
    how = "by the client's close" if kind == "websocket" else "by the server"
    print(json.dumps({"closed": sum(closed), "how": how}), flush=True)


def main() -> None:
    """Parse the command line and run."""
    kind, port, count = sys.argv[1:]
    asyncio.run(_run(kind, int(port), int(count)))


if __name__ == "__main__":
    main()
