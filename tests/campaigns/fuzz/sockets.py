"""Websockets: messages that nearly fit, and streams of frames that do not, through real connections.

Every message is answered, with a refusal where it is one, or the connection is closed with a code that says why; a
stream of frames that is none is closed. The server goes on answering others, and logs no fault of its own.
"""

from __future__ import annotations

import base64
import itertools
import json
import socket
import struct
from collections.abc import Iterable
from random import Random
from typing import Any

import msgspec
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.campaigns.fuzz.bodies import columns, events, jsonable
from tests.campaigns.fuzz.mutations import mutated_bytes, mutated_value, packed
from tests.campaigns.fuzz.report import Report, until
from tests.campaigns.fuzz.serving import LEARNERS, Served, served

__all__ = ["frames", "messages"]

_PATIENCE = 300.0  # seconds
_EXPECTED = (1000, 1002, 1003, 1007, 1008, 1009)  # codes of a close for what the client did
_MASK = b"\x01\x02\x03\x04"


def _message(random: Random, seq: int) -> str | bytes:
    """Return a message that has been mutated, mostly in what it says."""
    name = random.choice(list(LEARNERS))
    operation = random.choice(["update", "predict", "labels"])
    binary = random.random() < 0.5
    body = columns(name, operation) if binary else {"events": events(name, operation)}
    value: Any = mutated_value(random, {"seq": seq, "learner": name, "op": operation, **body})
    if random.random() < 0.8 and isinstance(value, dict):
        value["seq"] = seq
    if binary:
        data = packed(value)
        if data is None or random.random() < 0.25:
            data = mutated_bytes(random, msgspec.msgpack.encode({"seq": seq, "learner": name, "op": operation, **body}))
        return data
    text = json.dumps(jsonable(value))
    if random.random() < 0.25:
        return mutated_bytes(random, text.encode()).decode("utf-8", "replace")
    return text


def messages(seconds: float, seed: int = 0, count: int | None = None) -> Report:
    """Mutated messages."""
    report, random = Report("websocket messages"), Random(seed)
    with served(ws_message_bytes=2**20) as service:
        todo = until(seconds, count)
        for i in todo:
            with connect(f"ws://127.0.0.1:{service.port}/v1/ws", proxy=None, max_size=2**24) as client:
                client.recv(_PATIENCE)  # hello
                _conversation(report, service, random, client, itertools.chain([i], todo))
        _sane(report, service)
    return report


def _conversation(
    report: Report, service: Served, random: Random, client: ClientConnection, numbers: Iterable[int]
) -> None:
    """Messages on one connection, until it is closed."""
    for i in numbers:
        message = _message(random, i)
        kind = "text" if isinstance(message, str) else "binary"
        try:
            client.send(message)
            answer = client.recv(_PATIENCE)
        except ConnectionClosed as closed:
            code = None if closed.rcvd is None else closed.rcvd.code
            report.note(kind, f"closed {code}")
            if code not in _EXPECTED:
                report.fail(f"closed with {code} after {message[:400]!r}")
            return
        except TimeoutError:
            report.note(kind, "NO ANSWER")
            report.fail(f"no answer to {message[:400]!r}")
            return
        _answered(report, kind, message, answer)
        for fault in service.faults():
            report.fail(f"{fault} after {message[:400]!r}")


def _answered(report: Report, kind: str, message: str | bytes, answer: str | bytes) -> None:
    actual = json.loads(answer) if isinstance(answer, str) else msgspec.msgpack.decode(answer)
    status = actual["status"] if "code" in actual else 200
    report.note(kind, status)
    if status >= 500 or isinstance(answer, str) != isinstance(message, str):
        report.fail(f"answered {str(actual)[:400]} to {message[:400]!r}")


def _frame(random: Random) -> bytes:
    """Return a frame of a client, or what is nearly one."""
    payload = random.choice([b"", b'{"seq": 1}', random.randbytes(random.choice([1, 125, 126, 200]))])
    first = random.choice([0x81, 0x82, 0x81, 0x01, 0x02, 0x00, 0x80, 0x88, 0x89, 0x8A, 0x83, 0xC1, 0xF1, 0x8B, 0x0F])
    if first == 0x88 and random.random() < 0.5:
        payload = struct.pack("!H", random.choice([0, 999, 1000, 1005, 1006, 3000, 65535])) + payload[:100]
    size = random.choice([len(payload)] * 8 + [len(payload) + 1, 2**16, 2**31, 2**63 - 1, 2**64 - 1])
    masked = 0x80 if random.random() < 0.95 else 0
    if size < 126:
        head = bytes([first, masked | size])
    elif size < 2**16:
        head = bytes([first, masked | 126]) + struct.pack("!H", size)
    else:
        head = bytes([first, masked | 127]) + struct.pack("!Q", size)
    if masked:
        payload = bytes(item ^ _MASK[i % 4] for i, item in enumerate(payload))
        head += _MASK
    return head + payload


def _handshake(random: Random, port: int) -> bytes:
    """Return a client's request for a websocket; some are damaged."""
    key = base64.b64encode(random.randbytes(16)).decode()
    lines = [
        "GET /v1/ws HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
    ]
    data = "\r\n".join(lines).encode() + b"\r\n\r\n"
    return mutated_bytes(random, data) if random.random() < 0.15 else data


def frames(seconds: float, seed: int = 0, count: int | None = None) -> Report:
    """Streams of frames, cut anywhere, some behind a handshake that is none."""
    report, random = Report("websocket frames"), Random(seed)
    with served(ws_message_bytes=2**17, body_seconds=1.0) as service:
        for _ in until(seconds, count):
            stream = b"".join(_frame(random) for _ in range(random.choice([1, 2, 5, 20])))
            if random.random() < 0.4:
                stream = mutated_bytes(random, stream)
            message = _exchange(random, service.port, _handshake(random, service.port), stream)
            report.note("streams of frames", message)
            if message == "STILL OPEN":
                report.fail(f"still open after {stream[:300].hex()}")
            for fault in service.faults():
                report.fail(f"{fault} after {stream[:300].hex()}")
        _sane(report, service)
    return report


def _exchange(random: Random, port: int, handshake: bytes, stream: bytes) -> str:
    """Send this in pieces over a new connection; return how the connection ended."""
    with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE) as client:
        try:
            if random.random() < 0.3:
                client.sendall(handshake + stream)
            else:
                client.sendall(handshake)
                cut = random.randrange(len(stream) + 1)
                client.sendall(stream[:cut])
                client.sendall(stream[cut:])
            client.shutdown(socket.SHUT_WR)
            message = b""
            while data := client.recv(2**16):
                message += data
        except TimeoutError:
            return "STILL OPEN"
        except OSError:  # it was closed while this was being sent
            return "cut off"
    status = message[9:12].decode("latin-1") if message.startswith(b"HTTP/1.1 ") else "nothing"
    return f"{status}, then closed"


def _sane(report: Report, service: Served) -> None:
    """Check that the service answers, and that no message is in progress."""
    if not service.alive():
        report.fail("the server does not answer any more")
    holder = service.server._app.state.bodies.bytes
    report.figures["bytes of messages still held at the end"] = str(holder)
    if holder:
        report.fail(f"{holder} bytes of messages are held at the end")
