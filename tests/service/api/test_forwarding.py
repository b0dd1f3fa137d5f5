"""Requests that are passed on to a host that takes connections and says nothing, until it does."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from starlette.types import Message

from service.api.forwarded_body import ForwardedBody
from service.engine.cluster.placement import _weight
from service.storage.redis.key_names import KeyNames
from tests.harness.keyring import Keyring
from tests.harness.process import LIVE_NODES, Process
from tests.harness.redis_server import RedisServer
from tests.harness.waiting import eventually
from tests.service.engine.cluster.test_placement import CONFIG, event

pytestmark = pytest.mark.integration

JSON = {"content-type": "application/json"}
NAMES = [f"learner-{i}" for i in range(100)]


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """One that no other nodes share."""
    with RedisServer() as server:
        yield server


@contextmanager
def with_silent(
    redis: RedisServer, log: Path, seconds: float, listener: socket.socket | None = None
) -> Iterator[tuple[httpx.Client, str, str]]:
    """Return a client of a node, the address of a silent host, and a learner that is to be hosted there alone.

    The `listener` of the host accepts connections, by the system alone; it never reads or answers.
    """
    redis.flush()
    node = Process(redis.url, log, replication=1, follow_seconds=0.2, forward_seconds=seconds, advertised=True)
    with (
        listener or socket.create_server(("127.0.0.1", 0)) as open_one,
        node,
        httpx.Client(base_url=f"{node.url}/v1", timeout=300, trust_env=False) as http,
    ):
        address = f"http://127.0.0.1:{open_one.getsockname()[1]}"
        name = next(name for name in NAMES if _weight(address, name) > _weight(node.url, name))
        assert http.put(f"/learners/{name}", json=CONFIG).status_code == 201
        redis.command("SET", f"{KeyNames().node}silent", address)
        redis.command("SADD", KeyNames().nodes, "silent")
        eventually(lambda: name in http.get("/learners").json()["asleep"])  # after some time, because others host it
        yield http, address, name


def test_an_unresponsive_host_times_out(redis: RedisServer, tmp_path: Path) -> None:
    with with_silent(redis, tmp_path / "log", 1.0) as (http, address, name):
        for path in (f"/learners/{name}/update", f"/learners/{name}/labels"):
            reply = http.post(path, json={"events": [event(1)]})
            assert reply.status_code == 503, reply.text
            assert (reply.json()["code"], address in reply.json()["detail"]) == ("host-unavailable", True)
            assert int(reply.headers["retry-after"]) >= 1
        events = {"events": [{"x": [1, 2]}, {"x": [2, 1]}]}
        large = {**events, "padding": "x" * 2**20}  # not kept, so not answered here
        assert http.post(f"/learners/{name}/predict", json=large).json()["code"] == "host-unavailable"
        message = http.post(f"/learners/{name}/predict", json=events)
        assert (message.status_code, len(message.json()["results"])) == (200, 2), message.text
        # it is in memory now, for a while, and answers for itself once the nodes have settled to that


def test_a_removed_host_is_not_awaited(redis: RedisServer, tmp_path: Path) -> None:
    with (
        with_silent(redis, tmp_path / "log", 10_000.0) as (http, address, name),
        ThreadPoolExecutor() as threads,
    ):
        waiting = threads.submit(http.post, f"/learners/{name}/update", json={"events": [event(1)]})
        assert http.get("/nodes").json()["nodes"].count(address) == 1
        assert wait([waiting], timeout=1.0).not_done
        redis.command("DEL", f"{KeyNames().node}silent")
        assert waiting.result(60).json()["code"] == "host-unavailable"
        assert http.post(f"/learners/{name}/update", json={"events": [event(1)]}).json()["applied"] == 1


def answers(listener: socket.socket, body: bytes = b"answered") -> None:
    """Answer each request in the same way, one connection after another, until the listener is shut down."""
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, suppress(OSError):  # whoever asked may have gone meanwhile
            message = b""
            while b"\r\n\r\n" not in message and (piece := connection.recv(65536)):
                message += piece
            connection.sendall(head + body)


def test_a_host_failure_is_logged_once(redis: RedisServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    listener = socket.create_server(("127.0.0.1", 0))
    with with_silent(redis, log, 0.3, listener) as (http, address, name):
        for _ in range(4):
            assert http.post(f"/learners/{name}/update", json={"events": [event(1)]}).status_code == 503
        speaker = threading.Thread(target=answers, args=(listener,), daemon=True)
        speaker.start()
        eventually(lambda: http.get(f"/learners/{name}").text == "answered")
        pattern = rf"INFO +rarestream\.forwarding: {address}\b.*? ([0-9]+) unanswered request"
        again = eventually(lambda: re.findall(pattern, log.read_text()))  # a thread writes the log
        assert int(again[0]) >= 4
        report = re.split(pattern, log.read_text())[0]
        assert len(re.findall(rf"WARNING +rarestream\.forwarding: {address}\b", report)) == 1
        listener.shutdown(socket.SHUT_RDWR)
        speaker.join()


@pytest.mark.campaign
def test_the_last_report_of_a_host_is_kept_for_a_while(redis: RedisServer, tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with with_silent(redis, tmp_path / "log", 0.3, listener) as (http, _, _):
        report = {"learners": [{"name": "theirs"}], "asleep": [], "creating": [], "unavailable": {}}
        speaker = threading.Thread(target=answers, args=(listener, json.dumps(report).encode()), daemon=True)
        speaker.start()

        def theirs() -> bool:
            return {"name": "theirs"} in http.get("/learners?figures=true").json()["learners"]

        assert theirs()
        listener.shutdown(socket.SHUT_RDWR)
        speaker.join()
        assert theirs()
        eventually(lambda: not theirs())


@pytest.mark.parametrize("hurried", ["client", "watch"])
async def test_an_expired_deadline_is_not_extended(hurried: str) -> None:
    """A piece of the body, or word of the host's end, that comes while the wait is being called off."""
    pieces = asyncio.Event()

    async def receive() -> Message:
        await pieces.wait()
        return {"type": "http.request", "body": b"piece", "more_body": False}

    body = ForwardedBody(receive, {}, has_any=True, keep=10)

    async def waited() -> None:
        async with asyncio.timeout(None) as limit:
            body.limit_host(limit, 60.0)
            stream = body.pieces()
            assert stream is not None
            reading = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
            limit.reschedule(0.0)
            try:
                await asyncio.sleep(60)
            finally:
                assert limit.expired()
                if hurried == "client":
                    pieces.set()
                    assert await reading == b"piece"
                else:
                    body.give_up()
                    reading.cancel()
                body.limit_host(None)

    with pytest.raises(TimeoutError):
        await waited()


@contextmanager
def two_nodes(redis: RedisServer, folder: Path, **settings: object) -> Iterator[tuple[Process, Process]]:
    """Nodes that know each other, each learner hosted by one of them."""
    redis.flush()
    nodes = [
        Process(redis.url, folder / f"{i}.log", replication=1, follow_seconds=0.2, advertised=True, **settings)
        for i in range(2)
    ]
    with nodes[0], nodes[1]:
        for node in nodes:
            node.wait_for(LIVE_NODES, 2)
        yield nodes[0], nodes[1]


def created_there(
    http: httpx.Client, local: Process, remote: Process, folder: Path, key: dict[str, str] | None = None
) -> str:
    """Create a learner that the second of two nodes hosts; return its name."""
    name = next(name for name in NAMES if _weight(remote.url, name) > _weight(local.url, name))
    assert http.put(f"/learners/{name}", json=CONFIG, headers=key).status_code == 201

    def passed_on() -> bool:
        assert http.get(f"/learners/{name}", headers=key).status_code == 200
        return f"learner={name}" in (folder / "1.log").read_text()

    eventually(passed_on)
    return name


@pytest.mark.campaign
def test_an_early_refusal_by_the_host_is_forwarded_unchanged(redis: RedisServer, tmp_path: Path) -> None:
    """It closes the connection on a body that it does not want to read, of which more is on its way than fits."""
    ring = Keyring(tmp_path)
    admin = ring.make("admin", "admin")
    narrow = ring.make("narrow", "predict", body_bytes=2**16)
    with (
        two_nodes(redis, tmp_path, keys=ring.path, max_body_bytes=2**20) as (local, remote),
        httpx.Client(base_url=f"{local.url}/v1", timeout=300, trust_env=False) as http,
    ):
        learner = f"/learners/{created_there(http, local, remote, tmp_path, admin)}"
        events = json.dumps({"events": [{"x": [1, 2], "label": i % 2} for i in range(5000)]}).encode()
        for _ in range(10):
            for path, key, size, status, message in (
                ("update", admin, 2**25, 413, "1048576"),
                ("update", narrow, 2**19, 403, "update"),
                ("predict", narrow, 2**19, 413, "65536"),
                ("update", {}, 2**19, 401, "key"),
            ):
                reply = http.post(f"{learner}/{path}", content=bytes(size), headers=key)
                assert (reply.status_code, message in reply.json()["detail"]) == (status, True), reply.text
        in_pieces = (events[start : start + 2**16] for start in range(0, len(events), 2**16))
        for body in (events, in_pieces):
            reply = http.post(f"{learner}/update", content=body, headers={**admin, **JSON})
            assert reply.status_code == 200, reply.text
            assert reply.json()["applied"] == 5000


@pytest.mark.campaign
def test_a_forwarded_request_is_counted_on_the_answering_node(redis: RedisServer, tmp_path: Path) -> None:
    ring = Keyring(tmp_path)
    admin = ring.make("admin", "admin")
    rare = ring.make("rare", "predict", requests_per_second=0.001)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        absent = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with two_nodes(redis, tmp_path, keys=ring.path) as (local, remote):
        others = (local.url, remote.url)
        name = next(name for name in NAMES if all(_weight(absent, name) > _weight(other, name) for other in others))
        with httpx.Client(base_url=f"{local.url}/v1", timeout=300, trust_env=False) as http:
            assert http.put(f"/learners/{name}", json=CONFIG, headers=admin).status_code == 201
            redis.command("SET", f"{KeyNames().node}gone", absent)
            redis.command("SADD", KeyNames().nodes, "gone")
            local.wait_for(absent)
            eventually(lambda: name in http.get("/learners", headers=admin).json()["asleep"])
            predict = {"events": [{"x": [1, 2]}]}
            message = http.post(f"/learners/{name}/predict", json=predict, headers=rare)
            assert message.status_code == 200, message.text  # this node answers, because the other cannot be reached
            assert http.post(f"/learners/{name}/predict", json=predict, headers=rare).status_code == 429


def test_a_request_with_an_incomplete_body_is_logged(redis: RedisServer, tmp_path: Path) -> None:
    with (
        two_nodes(redis, tmp_path) as (local, remote),
        httpx.Client(base_url=f"{local.url}/v1", trust_env=False, timeout=300) as http,
    ):
        name = created_there(http, local, remote, tmp_path)
        head = f"POST /v1/learners/{name}/update HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        body = "1\r\n{\r\n"
        with socket.create_connection(("127.0.0.1", local.port), timeout=300) as connection:
            connection.sendall(f"{head}{body}no size\r\n".encode())
            read = b"".join(iter(lambda: connection.recv(2**16), b""))
        report = json.loads(read.partition(b"\r\n\r\n")[2])
        assert (report["status"], report["code"]) == (400, "bad-request")
        with socket.create_connection(("127.0.0.1", local.port), timeout=300) as connection:
            connection.sendall(f"{head}{body}".encode())
            time.sleep(0.2)  # it is being passed on
        eventually(lambda: len(re.findall("POST .*", (tmp_path / "0.log").read_text())) >= 2)
        lines = re.findall("POST .*", (tmp_path / "0.log").read_text())
        assert [line.split()[2] for line in lines] == ["400", "499"]
        assert f"request_id={report['request_id']}" in lines[0]
        assert "code=bad-request" in lines[0]
        assert http.get(f"/learners/{name}").json()["position"] == 1  # that it was created
