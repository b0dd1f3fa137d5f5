"""TLS that one thread reads while another writes, and a stream that is interrupted: nobody waits for good."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from types import FrameType
from typing import Any

import pytest
import trustme
from websockets.exceptions import ConnectionClosed, InvalidHandshake, WebSocketException
from websockets.sync.client import SSLSSLSocket, connect
from websockets.sync.server import ServerConnection, serve

from rarestream.client.tls_stream import SecuredSocket, StreamConnection

pytestmark = pytest.mark.integration

Serve = Callable[[ssl.SSLSocket], None]
_PATIENCE = 60.0  # seconds


class Pair:
    """Both sides' contexts, and connections between them."""

    def __init__(self) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1")
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        issued.configure_cert(self.server)
        self.trusted = ssl.create_default_context()
        authority.configure_trust(self.trusted)

    @contextmanager
    def serving(self, serve: Serve) -> Iterator[int]:
        """Serve one connection in a thread; return the port."""
        with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as threads:

            def accept() -> None:
                plain, _ = listener.accept()
                plain.settimeout(_PATIENCE)
                with closing(self.server.wrap_socket(plain, server_side=True)) as connection:
                    serve(connection)

            served = threads.submit(accept)
            yield listener.getsockname()[1]
            served.result(_PATIENCE)

    @contextmanager
    def connected(self, serve: Serve) -> Iterator[SecuredSocket]:
        """Connect to such a server."""
        with self.serving(serve) as port:
            plain = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE)
            with closing(SecuredSocket(self.trusted.wrap_socket(plain, server_hostname="127.0.0.1"))) as secured:
                secured.settimeout(_PATIENCE)
                yield secured


@pytest.fixture
def pair() -> Pair:
    return Pair()


def echo(connection: ssl.SSLSocket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


def hold(finished: threading.Event) -> None:
    """Neither read nor send."""
    assert finished.wait(_PATIENCE)


def received(connection: SecuredSocket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size and (data := connection.recv(65536)):
        got += data
    return bytes(got)


def test_everything_arrives_in_order_with_both_directions_busy(pair: Pair) -> None:
    messages = [number.to_bytes(4, "big") * (1 + number * 7919 % 9000) for number in range(2000)]
    data = b"".join(messages)
    with pair.connected(echo) as secured, ThreadPoolExecutor() as threads:
        read = threads.submit(received, secured, len(data))
        for message in messages:
            secured.sendall(message)
        assert read.result(_PATIENCE) == data


def test_messages_from_several_threads_stay_intact(pair: Pair) -> None:
    size, each = 100_000, 20
    with pair.connected(echo) as secured, ThreadPoolExecutor() as threads:
        read = threads.submit(received, secured, 4 * each * size)
        for letter in b"abcd":
            for _ in range(each):
                threads.submit(secured.sendall, bytes([letter]) * size)
        got = read.result(_PATIENCE)
    parts = [got[start : start + size] for start in range(0, len(got), size)]
    assert [len(set(part)) for part in parts] == [1] * 4 * each


def test_a_waiting_reader_does_not_block_writers(pair: Pair) -> None:
    """As after the handshake of TLS 1.3: tickets come, which are no data."""

    def answer(connection: ssl.SSLSocket) -> None:
        waiting = connection.recv(10)
        connection.sendall(waiting.upper())

    with pair.connected(answer) as secured, ThreadPoolExecutor() as threads:
        read = threads.submit(secured.recv, 10)
        waits(secured)
        secured.sendall(b"question")
        assert read.result(_PATIENCE) == b"QUESTION"


def waits(secured: SecuredSocket) -> None:
    """Until a thread waits for the network."""
    wait = threading.Event()
    while not secured._waiting:
        wait.wait(0.001)


def test_a_close_unblocks_both_threads(pair: Pair) -> None:
    finished = threading.Event()
    with pair.connected(lambda _: hold(finished)) as secured:
        secured.settimeout(None)
        with ThreadPoolExecutor() as threads:
            read = threads.submit(secured.recv, 10)
            sending = threads.submit(secured.sendall, bytes(2**26))  # more than the network holds
            while secured._waiting < 2:
                waits(secured)
            number = secured.fileno()
            secured.close()
            secured.close()
            assert read.result(_PATIENCE) == b""
            with pytest.raises(BrokenPipeError, match="closed"):
                sending.result(_PATIENCE)
        assert (number > 0, secured.fileno()) == (True, -1)
        assert secured.recv(10) == b""
        with pytest.raises(BrokenPipeError):
            secured.sendall(b"more")
        finished.set()


def test_a_call_times_out(pair: Pair) -> None:
    finished = threading.Event()
    with pair.connected(lambda _: hold(finished)) as secured:
        secured.settimeout(0.01)
        with pytest.raises(TimeoutError):
            secured.recv(10)
        with pytest.raises(TimeoutError):
            secured.sendall(bytes(2**26))
        finished.set()


def test_received_data_is_readable_after_closing_our_side(pair: Pair) -> None:
    """`SSLSocket.shutdown` removes TLS: later data is read as it is on the wire."""

    def answer(connection: ssl.SSLSocket) -> None:
        connection.sendall(b"all of it")
        assert connection.recv(10) == b""

    with pair.connected(answer) as secured:
        secured.shutdown(socket.SHUT_WR)
        assert received(secured, 9) == b"all of it"


def test_addresses_equal_those_of_the_connection(pair: Pair) -> None:
    with pair.connected(echo) as secured:
        assert secured.getpeername()[0] == secured.getsockname()[0] == "127.0.0.1"
        assert secured.getpeername() != secured.getsockname()


def test_an_unanswered_handshake_times_out(pair: Pair) -> None:
    """The thread that reads waits within TLS, and is waited for."""
    with pair.serving(echo_nothing) as port, pytest.raises((TimeoutError, InvalidHandshake)):
        connect(
            f"wss://127.0.0.1:{port}/",
            ssl=pair.trusted,
            proxy=None,
            open_timeout=2.0,
            create_connection=StreamConnection,
        )


def echo_nothing(connection: ssl.SSLSocket) -> None:
    while connection.recv(65536):
        pass


def test_tls_inside_proxy_tls_is_refused() -> None:
    within = object.__new__(SSLSSLSocket)
    with pytest.raises(WebSocketException, match="proxy"):
        StreamConnection(within)  # type: ignore[arg-type]


@contextmanager
def streaming(pair: Pair, secured: bool, behaviour: Callable[[ServerConnection], None]) -> Iterator[StreamConnection]:
    """Open a stream to a websocket server with this behaviour."""
    context = pair.server if secured else None
    with serve(behaviour, "127.0.0.1", 0, ssl=context, max_queue=1, close_timeout=0.1) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"{'wss' if secured else 'ws'}://127.0.0.1:{server.socket.getsockname()[1]}"
        trusted = pair.trusted if secured else None
        with connect(
            address, ssl=trusted, create_connection=StreamConnection, proxy=None, close_timeout=_PATIENCE
        ) as stream:
            assert isinstance(stream, StreamConnection)
            yield stream


def read(connection: ServerConnection) -> None:
    with suppress(ConnectionClosed):
        for _ in connection:
            pass


@pytest.mark.parametrize("secured", [False, True])
def test_an_interrupt_within_a_message_ends_the_stream_immediately(pair: Pair, secured: bool) -> None:
    finished = threading.Event()
    took: list[float] = []

    def send_on() -> None:
        with streaming(pair, secured, lambda _: hold(finished)) as stream:

            def interrupt(_number: int, _frame: FrameType | None) -> None:
                if stream._in_send:  # between two messages a close waits for the peer, as it should
                    raise KeyboardInterrupt

            signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.5, 0.1)
            try:
                while True:  # until the server's buffers are full
                    stream.send(bytes(1_000_000))
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                interrupted = time.monotonic()
                stream.close()
                took.append(time.monotonic() - interrupted)
                finished.set()

    handled = signal.getsignal(signal.SIGALRM)
    try:
        with pytest.raises(KeyboardInterrupt):
            send_on()
    finally:
        signal.signal(signal.SIGALRM, handled)
    assert took[0] < _PATIENCE / 2  # for all of which websockets would wait


def test_an_interrupt_during_locking_ends_the_stream_immediately(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    entering = contextlib._GeneratorContextManager.__enter__.__code__

    def within(_frame: FrameType, event: str, _result: Any) -> Any:
        if event == "return":  # `send_context` has the lock, and nobody has it yet to leave it
            raise KeyboardInterrupt
        return within

    def call(frame: FrameType, _event: str, _result: Any) -> Any:
        return within if frame.f_code is entering else None

    states: list[bool] = []

    def leave() -> None:
        with streaming(pair, False, read) as stream:
            traced = sys.gettrace()
            sys.settrace(call)
            try:
                stream.send(b"half")
            except KeyboardInterrupt:
                sys.settrace(traced)
                states.append(stream.protocol_mutex.locked())
                stream.close()
            finally:
                sys.settrace(traced)

    thread = threading.Thread(target=leave, daemon=True)
    thread.start()
    thread.join(_PATIENCE / 2)
    assert not thread.is_alive()
    assert states == [True]  # it was interrupted there
    assert not [record for record in caplog.records if record.name == "websockets.client"]
