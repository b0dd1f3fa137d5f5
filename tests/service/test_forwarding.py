"""Requests that are passed on to a host that takes connections and says nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from service.placement import _weight
from service.store.redis_nodes import IDS, NODE
from tests.service.process import Process
from tests.service.redis_server import RedisServer
from tests.service.test_placement import CONFIG, event

NAMES = [f"learner-{i}" for i in range(100)]


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """One that no other nodes share."""
    with RedisServer() as server:
        yield server


@contextmanager
def silent() -> Iterator[str]:
    """The address of one who accepts connections, by the system alone, and never reads or answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def with_silent(redis: RedisServer, log: Path, seconds: float) -> Iterator[tuple[httpx.Client, str, str]]:
    """A client of a node, the address of a silent host, and a learner that is to be hosted there alone."""
    redis.flush()
    node = Process(redis.url, log, replication=1, follow_seconds=0.2, forward_seconds=seconds, advertised=True)
    with silent() as address, node, httpx.Client(base_url=f"{node.url}/v1", timeout=60, trust_env=False) as http:
        name = next(name for name in NAMES if _weight(address, name) > _weight(node.url, name))
        assert http.put(f"/learners/{name}", json=CONFIG).status_code == 201
        redis.command("SET", f"{NODE}silent", address)
        redis.command("SADD", IDS, "silent")
        until = time.monotonic() + 60
        while name not in http.get("/learners").json()["asleep"]:  # a while later, as a guest
            assert time.monotonic() < until
            time.sleep(0.05)
        yield http, address, name


def test_a_host_that_does_not_answer_in_time(redis: RedisServer, tmp_path: Path) -> None:
    with with_silent(redis, tmp_path / "log", 1.0) as (http, address, name):
        for path in (f"/learners/{name}/update", f"/learners/{name}/labels"):
            reply = http.post(path, json={"events": [event(1)]})
            assert reply.status_code == 503, reply.text
            assert (reply.json()["code"], address in reply.json()["detail"]) == ("host-unavailable", True)
            assert int(reply.headers["retry-after"]) >= 1
        events = {"events": [{"x": [1, 2]}, {"x": [2, 1]}]}
        large = {**events, "padding": "x" * 2**20}  # not kept, so not answered here
        assert http.post(f"/learners/{name}/predict", json=large).json()["code"] == "host-unavailable"
        said = http.post(f"/learners/{name}/predict", json=events)
        assert (said.status_code, len(said.json()["results"])) == (200, 2), said.text
        # it is in memory now, for a while, and answers for itself once the nodes have settled to that


def test_a_host_that_is_gone_is_not_waited_for(redis: RedisServer, tmp_path: Path) -> None:
    with (
        with_silent(redis, tmp_path / "log", 10_000.0) as (http, address, name),
        ThreadPoolExecutor() as threads,
    ):
        waiting = threads.submit(http.post, f"/learners/{name}/update", json={"events": [event(1)]})
        assert http.get("/nodes").json()["nodes"].count(address) == 1
        assert wait([waiting], timeout=1.0).not_done
        redis.command("DEL", f"{NODE}silent")
        assert waiting.result(60).json()["code"] == "host-unavailable"
        assert http.post(f"/learners/{name}/update", json={"events": [event(1)]}).json()["applied"] == 1
