"""Messages about an unreachable service or source, by real connections."""

from __future__ import annotations

import logging
import re
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trustme
import typer

from rarestream import Client, ServiceUnreachable
from rarestream.client.errors import ClientError
from service.cli.options_service import connected, reporting
from service.cli.request_errors import RequestFailed
from service.connectors.connection_errors import log_to_notes, reason_of
from service.exits import ExitStatus
from tests.harness.process import free_port
from tests.harness.terminal import in_terminal

pytestmark = pytest.mark.integration


@contextmanager
def answering(reply: bytes, context: ssl.SSLContext | None = None, pause: float = 0.0) -> Iterator[int]:
    """Run a server that answers each connection with these bytes; yield its port.

    `context`: of TLS. `pause`: seconds before the answer.
    """

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # a handshake that is none, a client that has gone
                connection = self.request if context is None else context.wrap_socket(self.request, server_side=True)
                with connection as connection:
                    connection.recv(65536)
                    time.sleep(pause)
                    connection.sendall(reply)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def no_pause(seconds: float) -> None:
    pytest.fail(f"another attempt was to come in {seconds} s")


def test_calling_a_tls_server_without_tls_suggests_https() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with (
        answering(b"", context) as port,
        Client(f"http://127.0.0.1:{port}", sleep=no_pause) as client,
        pytest.raises(ServiceUnreachable, match=rf"https://127\.0\.0\.1:{port}$") as caught,
    ):
        client.learners()
    assert caught.value.code == "tls-needed"


def test_calling_a_plain_server_with_tls_suggests_http() -> None:
    with (
        answering(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n") as port,
        Client(f"https://127.0.0.1:{port}", sleep=no_pause) as client,
        pytest.raises(ServiceUnreachable, match=rf"http://127\.0\.0\.1:{port}$"),
    ):
        client.learners()


def test_a_scheme_hint_replaces_the_hint_to_start_the_service(capsys: pytest.CaptureFixture[str]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    refusal = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"
    with answering(b"", context) as tls, answering(refusal) as plain:
        for url, use in [(f"http://127.0.0.1:{tls}", "https"), (f"https://127.0.0.1:{plain}", "http")]:
            with pytest.raises(typer.Exit) as caught, reporting(), connected(url, None) as client:
                client.learners()
            assert caught.value.exit_code == ExitStatus.UNREACHABLE
            lines = capsys.readouterr().err.splitlines()
            assert len(lines) == 2
            assert lines[1].endswith(f" {use}://{url.partition('://')[2]}")


def test_a_refused_certificate_is_reported_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for name, ca, helps in [
        ("rarestream.example", tmp_path / "ca.pem", r"--url\b.*\bRARESTREAM_URL\b"),
        ("127.0.0.1", "", r"\bRARESTREAM_CA\b"),
    ]:
        monkeypatch.setenv("RARESTREAM_CA", str(ca))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(context)
        with (
            answering(b"", context) as port,
            pytest.raises(typer.Exit) as caught,
            reporting(),
            connected(f"https://127.0.0.1:{port}", None) as client,
        ):
            client.learners()
        assert caught.value.exit_code == ExitStatus.UNREACHABLE
        assert re.search(helps, capsys.readouterr().err.splitlines()[-1])


def test_a_dropped_connection_is_not_mistaken_for_tls() -> None:
    with (
        answering(b"") as port,
        Client(f"http://127.0.0.1:{port}", patience=0) as client,
        pytest.raises(ClientError, match=r"http://127\.0\.0\.1:\d+:"),
    ):
        client.learners()


def test_repeated_failures_for_one_reason_are_reported_occasionally() -> None:
    messages: list[str] = []
    url = f"http://127.0.0.1:{free_port()}"
    with (
        pytest.raises(RequestFailed, match="retries"),
        connected(url, None, patience=0.5, wait=lambda _: False, notice=messages.append) as client,
    ):
        client.learners()
    assert len(messages) == 1  # of many attempts
    assert re.fullmatch(rf".* {url}: .*; .* [\d.e-]+ s, .* \d s .*\(--retry-seconds\)", messages[0])


def test_a_slow_first_answer_is_reported_on_terminals_only() -> None:
    reply = b'{"name":"a","config":{"algorithm":"x","params":{},"features":{"kind":"dense","dim":2},"scaling":null,'
    reply += b'"embedding":null,"calibration":null,"threshold":null,"late":{"label_ttl":1,"unlabelled":"nothing"},'
    reply += b'"refit_every":null},"warnings":[],"position":1,"events":0}'
    head = b"HTTP/1.1 201 Created\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(reply)
    with answering(head + reply, pause=8.0) as port:
        url = f"http://127.0.0.1:{port}"
        output = in_terminal("create", "a", "--algorithm", "x", "--url", url)
        assert output.status == 0, output.text
        piped = subprocess.run(
            [sys.executable, "-m", "service", "create", "a", "--algorithm", "x", "--url", url],
            capture_output=True,
            text=True,
            check=True,
        )
    created = piped.stdout.splitlines()[0]
    assert created.startswith("a ")
    assert output.text.index(created) > 0  # something is printed before
    assert piped.stderr == ""


def test_system_errors_are_put_into_plain_words() -> None:
    port = free_port()
    with pytest.raises(ConnectionRefusedError) as refused:
        socket.create_connection(("127.0.0.1", port))
    with pytest.raises(socket.gaierror) as nameless:
        socket.getaddrinfo("nobody.invalid", port)
    wrapped = RuntimeError("Error 111 connecting to it.")
    wrapped.__context__ = refused.value
    assert reason_of(refused.value) == reason_of(wrapped)
    assert "refused" in reason_of(wrapped)
    assert "111" not in reason_of(wrapped)
    assert "host" in reason_of(nameless.value)
    assert "time" in reason_of(TimeoutError())
    assert reason_of(RuntimeError("closed.")) == "closed"
    assert reason_of(RuntimeError()) == "RuntimeError"


def test_library_log_messages_are_reported_once_in_plain_words(caplog: pytest.LogCaptureFixture) -> None:
    messages: list[str] = []
    log = logging.getLogger("aiokafka.client")
    with log_to_notes("Kafka", "aiokafka", messages.append):
        for _ in range(3):
            log.error('Unable connect to "%s:%s": %s', "broker", 9092, ConnectionRefusedError(111, "refused"))
        log.warning("Heartbeat failed\nand more")
        log.info("nothing")
    assert [message.split(":")[0] for message in messages] == ["Kafka", "Kafka"]
    assert "refused" in messages[0]
    assert not caplog.records
    log.warning("again")
    assert [record.message for record in caplog.records] == ["again"]
