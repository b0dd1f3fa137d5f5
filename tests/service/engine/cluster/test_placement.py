"""Learners spread over nodes: their hosts, and that any node answers for all of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect
from yarl import URL

from rarestream import AsyncClient, Client
from rarestream.client.redirects import redirect_target
from service.api.forwarding import _mark
from service.engine.cluster.placement import Placement, _weight
from service.engine.node_resources import Node
from service.settings import Settings
from service.storage.memory import MemoryStore
from service.storage.open_store import open_store
from service.storage.redis.key_names import KeyNames
from tests.harness.keyring import Keyring
from tests.harness.process import LIVE_NODES, Process
from tests.harness.redis_server import RedisServer
from tests.harness.waiting import eventually, eventually_async
from tests.service.api.test_sse import Live

pytestmark = pytest.mark.integration

NAMES = [f"learner-{i}" for i in range(12)]
CONFIG = {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": 2}}


Placed = Callable[..., Awaitable[Placement]]


@pytest.fixture
async def placed(redis_server: RedisServer) -> AsyncIterator[Placed]:
    """Return a function that makes placements over one Redis."""
    nodes: list[Node] = []

    async def make(address: str | None, replication: int = 2, follow_seconds: float = 0.2) -> Placement:
        url = redis_server.url
        settings = Settings(store=url, replication=replication, advertise=address, follow_seconds=follow_seconds)
        nodes.append(Node(await open_store(url), settings))
        return Placement(nodes[-1])

    yield make
    for node in nodes:
        await node.close()


async def test_a_new_node_takes_its_share_and_other_learners_stay(placed: Placed) -> None:
    nodes = [await placed(f"http://10.0.0.{i}:8000", follow_seconds=60.0) for i in range(5)]  # all stay alive
    names = [f"n{i}" for i in range(2000)]
    for node in nodes[:4]:
        await node.update_membership()
    for node in nodes[:4]:
        await node.update_membership()
    before = {name: nodes[0].places(name) for name in names}
    assert all(node.places(name) == before[name] for node in nodes[:4] for name in names)
    replica = Counter(address for places in before.values() for address in places)
    assert len(replica) == 4
    assert min(replica.values()) > 800, replica  # 1,000 each, by chance
    for name in names:
        assert len(set(before[name])) == 2
        assert [node.hosts(name) for node in nodes[:4]].count(True) == 2
    assert await nodes[4].update_membership()
    assert await nodes[0].update_membership()
    assert nodes[0].settling
    after = {name: nodes[0].places(name) for name in names}
    moved = [name for name in names if set(before[name]) != set(after[name])]
    assert all(nodes[4].address in after[name] for name in moved)
    assert all(len(set(before[name]) - set(after[name])) == 1 for name in moved)
    assert 600 < len(moved) < 1000, len(moved)  # two of five: 800, by chance
    await nodes[4].leave()
    assert await nodes[0].update_membership()
    assert {name: nodes[0].places(name) for name in names} == before


async def test_a_silent_node_is_removed(placed: Placed) -> None:
    local, remote = [await placed(f"http://10.0.0.{i}:8000", 1) for i in range(2)]
    await remote.update_membership()
    assert await local.update_membership()
    assert local.addresses == ("http://10.0.0.0:8000", "http://10.0.0.1:8000")

    async def alone() -> bool:
        await local.update_membership()
        return len(local.addresses) == 1

    await eventually_async(alone)
    assert local.addresses == ("http://10.0.0.0:8000",)
    assert local.hosts("anything")


async def test_a_node_that_comes_back_was_not_gone(placed: Placed, monkeypatch: pytest.MonkeyPatch) -> None:
    local, remote = [await placed(f"http://10.0.0.{i}:8000", 1, 60.0) for i in range(2)]
    await remote.update_membership()
    await local.update_membership()
    departure = asyncio.create_task(local.wait_until_gone(remote.address))
    for _ in range(2):  # too busy for a heartbeat, then back in time
        await remote.leave()
        assert await local.update_membership()
        await asyncio.sleep(0)
        await remote.update_membership()
        assert await local.update_membership()
        await asyncio.sleep(0)
        assert not departure.done()
    monkeypatch.setattr(local, "_seconds", 0.0)
    await remote.leave()
    assert await local.update_membership()
    await departure


async def test_nodes_share_a_key_and_restore_it_to_the_store(placed: Placed, redis_server: RedisServer) -> None:
    first, second = [await placed(f"http://10.0.0.{i}:8000") for i in range(2)]
    await first.update_membership(alive=False)
    await second.update_membership(alive=False)
    (key,) = first.keys
    assert len(key) == 32
    assert second.keys == (key,)
    redis_server.flush()
    await second.update_membership()
    await first.update_membership()
    assert first.keys == second.keys == (key,)
    redis_server.command("SET", KeyNames().secret, b"another store's")
    await first.update_membership()
    assert first.keys == (b"another store's", key)  # of nodes that have not heard of it yet
    await second.update_membership()
    assert second.keys == first.keys


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"replication": 1, "advertise": "http://a:1"}, "Redis"), ({"replication": 0}, None)],
)
def test_replication_needs_a_shared_store(settings: dict[str, Any], message: str | None) -> None:
    node = Node(MemoryStore(), Settings(store="memory:", **settings))
    if message is None:
        assert Placement(node).hosts("anything")
        assert not Placement(node).spread
        return
    with pytest.raises(ValueError, match=message):
        Placement(node)


async def test_replication_needs_an_address(placed: Placed) -> None:
    with pytest.raises(ValueError, match="advertise"):
        await placed(None)


@pytest.mark.parametrize(
    "address",
    [
        *("10.0.0.7:8000", "ftp://a", "http://a/v1", "http://u:p@a", "http://", "http://:8000", "http://a b:80"),
        *("http://a:b", "http://a:0", "http://a:99999", "http://a:", "http://fd00::7:8000", "http://[fd00::x]:80"),
        *("http://[fd00::7", "http://[10.0.0.7.8]:80", "http://a..b", "http://ä:80", "http://a\nb"),
        *("http://1:80", "http://10.0.0.256:80", f"http://{'a' * 64}:80", f"http://{'a.' * 127}:80"),
    ],
)
def test_an_invalid_advertised_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="advertise"):
        Settings(advertise=address)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("http://10.0.0.7:8000", None),
        ("https://Node-1.Example.:8443", "https://node-1.example.:8443"),
        ("http://a_b", None),
        ("http://[fd00::7]:8000", None),
        ("http://[FD00:0::7]:08000", "http://[fd00::7]:8000"),
        ("http://[10.0.0.7]:8000", "http://10.0.0.7:8000"),  # as the chart tells that of a pod
    ],
)
def test_an_advertised_address_is_normalised(value: str, message: str | None) -> None:
    assert Settings(advertise=value).advertise == (message or value)
    assert str(URL((message or value) + "/v1", encoded=True)) == (message or value) + "/v1"


async def test_a_registered_address_that_is_invalid_is_ignored(placed: Placed, redis_server: RedisServer) -> None:
    """Another release may have registered it."""
    item = await placed("http://10.0.0.0:8000")
    for number, address in enumerate(("http://fd00::7:8000", "http://a:99999", "")):
        redis_server.command("SET", f"{KeyNames().node}{number}", address)
        redis_server.command("SADD", KeyNames().nodes, str(number))
    await item.update_membership()
    assert item.addresses == ("http://10.0.0.0:8000",)


# Over real processes


class Spread:
    """Three nodes, each learner hosted by one of them."""

    def __init__(self, nodes: list[Process], redis: RedisServer) -> None:
        self.nodes = nodes
        self.redis = redis
        self.http = httpx.Client(timeout=300, trust_env=False)

    def get(self, node: int, path: str) -> Any:
        reply = self.http.get(f"{self.nodes[node].url}/v1{path}")
        assert reply.status_code == 200, reply.text
        return reply.json()

    def host(self, name: str) -> int:
        (address,) = self.get(0, f"/nodes?learner={name}")["hosts"]
        return [node.url for node in self.nodes].index(address)

    def other_node(self, name: str) -> int:
        """Return a node that does not host a learner."""
        return (self.host(name) + 1) % len(self.nodes)

    def forwarded(self, node: int) -> float:
        text = self.http.get(f"{self.nodes[node].url}/metrics").text
        (line,) = [line for line in text.splitlines() if line.startswith("rarestream_forwarded_requests_total ")]
        return float(line.split()[1])

    def request_count(self, node: int) -> float:
        """Return how often a node was asked for all its learners."""
        text = self.http.get(f"{self.nodes[node].url}/metrics").text
        lines = [line for line in text.splitlines() if "_count{" in line and 'route="/v1/learners",' in line]
        return sum(float(line.split()[-1]) for line in lines)

    def mark(self, node: int, target: str) -> str:
        """Return the header that a node sends with a forwarded GET."""
        key = self.redis.command("GET", KeyNames().secret)
        assert isinstance(key, bytes)
        return _mark(key, self.nodes[node].url, "GET", target).decode()

    def passed_on(self, node: int, target: str) -> httpx.Response:
        """Send a node a request as another node forwards it; return the reply."""
        headers = {"x-rarestream-forwarded": self.mark(node, target)}
        return self.http.get(self.nodes[node].url + target, headers=headers)

    def agreed(self, name: str, nodes: Iterable[int]) -> dict[str, Any]:
        """Wait until all nodes report the same position and digest; return them."""
        lines: list[dict[str, Any]] = []

        def all_agree() -> bool:
            lines[:] = [self.get(node, f"/learners/{name}/digest") for node in nodes]
            return all(item == lines[0] for item in lines)

        eventually(all_agree)
        return lines[0]


@pytest.fixture(scope="module")
def spread(running_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spread]:
    running_redis.start()
    running_redis.flush()
    folder: Path = tmp_path_factory.mktemp("nodes")
    nodes = [
        Process(running_redis.url, folder / f"{i}.log", replication=1, follow_seconds=0.2, advertised=True)
        for i in range(3)
    ]
    with ExitStack() as stack:
        for node in nodes:
            stack.enter_context(node)
        spread = Spread(nodes, running_redis)
        stack.callback(spread.http.close)
        eventually(lambda: all(len(spread.get(i, "/nodes")["nodes"]) == 3 for i in range(3)))
        for i, name in enumerate(NAMES):
            reply = spread.http.put(f"{nodes[i % 3].url}/v1/learners/{name}", json=CONFIG)
            assert reply.status_code == 201, reply.text
        for i in range(3):
            eventually(lambda i=i: len(listed(spread, i)) == len(NAMES))  # type: ignore[misc]
        yield spread


def listed(spread: Spread, node: int) -> set[str]:
    """Return the names of all learners by one node, on pages that several nodes fill."""
    names: list[str] = []
    query = "limit=2"
    while True:
        page = spread.get(node, f"/learners?{query}")
        names += sorted({learner["name"] for learner in page["learners"]} | set(page["asleep"]))
        if page["cursor"] is None:
            assert names == sorted(set(names))
            return set(names)
        query = f"limit=2&cursor={page['cursor']}"


def event(i: int) -> dict[str, Any]:
    return {"id": f"e{i}", "x": [i % 7, i % 5], "label": i % 3 == 0}


def test_any_node_accepts_events_for_every_learner(spread: Spread) -> None:
    for name in NAMES:
        for i in range(12):
            url = f"{spread.nodes[i % 3].url}/v1/learners/{name}"
            reply = spread.http.post(f"{url}/update", json={"events": [event(i), event(i - 1)][: i + 1]})
            assert reply.status_code == 200, reply.text
            assert reply.json()["applied"] == 1
        spread.agreed(name, range(3))
        scores = [
            spread.http.post(f"{node.url}/v1/learners/{name}/predict", json={"events": [{"x": [1, 2]}]}).json()
            for node in spread.nodes
        ]
        assert scores[0]["results"] == scores[1]["results"] == scores[2]["results"]
    assert all(spread.forwarded(node) > 0 for node in range(3))


def test_each_learner_is_in_the_memory_of_its_host_only(spread: Spread) -> None:
    hosts = {name: spread.host(name) for name in NAMES}
    assert len(set(hosts.values())) > 1

    def settled() -> bool:
        local = [
            {item["name"] for item in spread.passed_on(i, "/v1/learners").json()["learners"]}
            for i in range(len(spread.nodes))
        ]
        return all({name for name in NAMES if hosts[name] == i} == local[i] & set(NAMES) for i in range(3))

    eventually(settled)
    for figures in ("", "?figures=true"):
        lines = [spread.get(node, f"/learners{figures}") for node in range(3)]
        for item in lines:  # each node tells of all
            assert set(NAMES) <= {learner["name"] for learner in item["learners"]}


def test_a_forwarded_request_is_not_forwarded_again(spread: Spread) -> None:
    name = NAMES[0]
    node = spread.other_node(name)
    before = spread.forwarded(node)
    assert spread.passed_on(node, f"/v1/learners/{name}").status_code == 200
    assert spread.forwarded(node) == before


def test_only_nodes_can_mark_a_request_as_forwarded(spread: Spread) -> None:
    name = NAMES[0]
    node = spread.other_node(name)
    url = f"{spread.nodes[node].url}/v1/learners"
    of_another = spread.mark(node, f"/v1/learners/{NAMES[1]}")
    for origin in ("http://elsewhere:1", spread.nodes[spread.host(name)].url, "", of_another):
        before = spread.forwarded(node)
        reply = spread.http.get(f"{url}/{name}", headers={"x-rarestream-forwarded": origin})
        assert reply.status_code == 200
        assert spread.forwarded(node) == before + 1
        reply = spread.http.get(url, headers={"x-rarestream-forwarded": origin})
        assert set(NAMES) <= {learner["name"] for learner in reply.json()["learners"]} | set(reply.json()["asleep"])


def test_forwarded_replies_equal_those_of_the_host(spread: Spread) -> None:
    name = NAMES[1]
    url = f"{spread.nodes[spread.other_node(name)].url}/v1/learners/{name}"
    refused = spread.http.post(f"{url}/update", json={"events": [{"x": [1]}]}, headers={"x-request-id": "mine"})
    assert refused.status_code == 422
    assert refused.json()["request_id"] == "mine"
    assert refused.headers.get_list("x-request-id") == ["mine"]
    assert len(refused.headers.get_list("date")) == 1
    assert refused.headers["content-type"] == "application/problem+json"
    packed = spread.http.post(
        f"{url}/predict", json={"events": [{"x": [1, 2]}]}, headers={"accept": "application/msgpack"}
    )
    assert packed.headers["content-type"] == "application/msgpack"
    head = spread.http.head(f"{url}/digest")
    assert (head.status_code, head.content) == (200, b"")
    assert spread.http.get(f"{url}/digest?unknown=1").status_code == 422
    assert spread.http.get(f"{url}/nothing").status_code == 404


def test_streams_are_forwarded(spread: Spread) -> None:
    name = NAMES[2]
    url = f"{spread.nodes[spread.other_node(name)].url}/v1/learners/{name}"
    lines = b"".join(json.dumps({"x": [i % 7, i % 5]}).encode() + b"\n" for i in range(20_000))

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(lines), 2**16):
            yield lines[start : start + 2**16]

    scored = 0
    with spread.http.stream(
        "POST", f"{url}/predict", content=pieces(), headers={"content-type": "application/x-ndjson"}
    ) as reply:
        assert reply.status_code == 200
        last = ""
        for line in reply.iter_lines():
            scored, last = scored + 1, line
    assert '"done"' in last
    assert scored > 1
    with spread.http.stream("GET", f"{url}/metrics/stream") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert next(stream.iter_lines())


def test_the_overview_stream_includes_the_learners_of_every_node(spread: Spread) -> None:
    name = NAMES[5]
    node = spread.other_node(name)
    url = spread.nodes[node].url
    with ExitStack() as stack:
        streams = [stack.enter_context(Live(spread.http, f"{url}/v1/stream")) for _ in range(3)]
        requests, began = [spread.request_count(i) for i in range(3)], time.monotonic()
        for stream in streams:
            ((_, listing),) = stream.until("learners")
            assert {row["name"] for row in listing["learners"]} | set(listing["asleep"]) == set(NAMES)
        body = {"events": [event(i) for i in range(20_000, 20_050)]}
        assert spread.http.post(f"{url}/v1/learners/{name}/update", json=body).status_code == 200
        learnt = spread.get(node, f"/learners/{name}")["events"]
        for stream in streams:
            changed = (data for kind, data in stream if kind == "changed")
            assert any((row["name"], row["events"]) == (name, learnt) for data in changed for row in data["learners"])
        for i in {0, 1, 2} - {node}:  # once in two seconds, however many streams there are
            assert spread.request_count(i) - requests[i] <= (time.monotonic() - began) / 2 + 1


def test_a_websocket_accepts_messages_for_learners_of_every_node(spread: Spread) -> None:
    with connect(f"{spread.nodes[0].url.replace('http', 'ws')}/v1/ws") as socket:
        assert json.loads(socket.recv())["type"] == "hello"
        for seq, name in enumerate(NAMES):
            event = {"id": "by-websocket", "x": [0.5, 1], "label": 1}
            socket.send(json.dumps({"seq": seq, "learner": name, "op": "update", "events": [event]}))
        replies = [json.loads(socket.recv()) for _ in NAMES]
    assert {reply["seq"] for reply in replies} == set(range(len(NAMES)))
    assert all(reply["applied"] == 1 for reply in replies)
    for name in NAMES:
        spread.agreed(name, range(3))


def test_another_node_answers_if_the_host_does_not(spread: Spread) -> None:
    name = NAMES[3]
    host = spread.host(name)
    others = [i for i in range(3) if i != host]
    before = spread.agreed(name, range(3))
    spread.nodes[host].kill()
    try:
        for i in others:  # at once, before anybody has noticed
            assert spread.get(i, f"/learners/{name}/digest") == before
        eventually(lambda: all(len(spread.get(i, "/nodes")["nodes"]) == 2 for i in others))
        for entry in NAMES:
            spread.agreed(entry, others)
    finally:
        spread.nodes[host].start()
    eventually(lambda: all(len(spread.get(i, "/nodes")["nodes"]) == 3 for i in range(3)))
    assert spread.agreed(name, range(3)) == before


def test_a_paused_host_blocks_nobody(spread: Spread) -> None:
    name = NAMES[4]
    host = spread.host(name)
    others = [i for i in range(3) if i != host]
    urls = [f"{spread.nodes[i].url}/v1/learners/{name}" for i in others]

    def passes_on(node: int) -> bool:  # not while it answers itself what it hosted a moment ago
        count = spread.forwarded(node)
        spread.get(node, f"/learners/{name}/digest")
        return spread.forwarded(node) > count

    for number in range(10_000, 10_005):
        eventually(lambda: all(passes_on(i) for i in others))
        before = spread.agreed(name, range(3))
        body = {"events": [event(number)]}
        spread.nodes[host].pause()
        try:
            with ThreadPoolExecutor() as threads:  # all of them before anybody has noticed
                update = threads.submit(spread.http.post, f"{urls[0]}/update", json=body)
                predict = threads.submit(spread.http.post, f"{urls[1]}/predict", json={"events": [{"x": [1, 2]}]})
                got = threads.submit(spread.http.get, f"{urls[0]}/digest")
            assert predict.result().status_code == 200
            refused = update.result()  # what became of it is not known
            if refused.status_code == 200:  # a busy machine: somebody had noticed
                continue
            assert got.result().json() == before
            assert refused.status_code == 503, refused.text
            assert refused.json()["code"] == "host-unavailable"
            assert spread.nodes[host].url in refused.json()["detail"]
            assert int(refused.headers["retry-after"]) >= 1
            eventually(lambda: all(len(spread.get(i, "/nodes")["nodes"]) == 2 for i in others))
            again = spread.http.post(f"{urls[0]}/update", json=body)
            assert again.json()["applied"] == 1
            break
        finally:
            spread.nodes[host].resume()
            eventually(lambda: all(len(spread.get(i, "/nodes")["nodes"]) == 3 for i in range(3)))
    else:
        pytest.fail("it was noticed at once, five times")
    spread.agreed(name, range(3))


def test_our_clients_follow_redirects_with_their_key(tmp_path: Path) -> None:
    """With redirects, other HTTP clients drop the key on the way to another address."""
    ring = Keyring(tmp_path)
    admin, key = ring.make("admin", "admin"), ring.secret("admin")
    settings = {"replication": 1, "follow_seconds": 0.2, "elsewhere": "redirect", "keys": ring.path}
    with RedisServer() as server, ExitStack() as stack:
        local, remote = (
            stack.enter_context(Process(server.url, tmp_path / f"{i}.log", advertised=True, **settings))
            for i in range(2)
        )
        for node in (local, remote):
            node.wait_for(LIVE_NODES, 2)
        client = stack.enter_context(Client(local.url, key=key))
        name = next(name for name in NAMES if _weight(remote.url, name) > _weight(local.url, name))
        learner = client.create(name, **CONFIG)
        digest = f"{local.url}/v1/learners/{name}/digest"
        options: dict[str, Any] = {"headers": admin, "trust_env": False, "follow_redirects": True}
        eventually(lambda: httpx.get(digest, **options).history)
        other = httpx.get(digest, **options)
        assert other.status_code == 401
        assert learner.update([[1.0, 2.0], [2.0, 1.0]], [0, 1], ids=["a", "b"]).applied == 2
        assert len(learner.predict([[1.0, 2.0]]).scores) == 1
        assert learner.digest() == asyncio.run(_digest(local.url, key, name))
        assert learner.metrics()["events"] == 2
        with learner.events() as events:
            assert next(events)
        requests: list[bytes] = []
        assert learner.export(requests.append) == sum(map(len, requests)) > 0


async def _digest(url: str, key: str, name: str) -> dict[str, Any]:
    async with AsyncClient(url, key=key) as client:
        return await client.learner(name).digest()


@pytest.mark.parametrize(
    ("target", "status", "location", "followed"),
    [
        ("http://a:1/v1/learners/x?y=1", 307, "http://b:2/v1/learners/x?y=1", True),
        ("https://proxy/fraud/v1/learners/x", 307, "https://b:2/v1/learners/x", True),
        ("http://a:1/v1/learners/x", 307, "https://b:2/v1/learners/x", True),
        ("https://a:1/v1/learners/x", 307, "http://b:2/v1/learners/x", False),  # the key would go out in the clear
        ("http://a:1/v1/learners/x", 307, "http://b:2/v1/learners/y", False),
        ("http://a:1/v1/learners/x", 307, "http://login.example/?to=/v1/learners/x", False),
        ("http://a:1/v1/learners/x", 307, "/v1/learners/x", False),
        ("http://a:1/v1/learners/x", 307, "ftp://b/v1/learners/x", False),
        ("http://a:1/v1/learners/x", 307, "http://b:x/v1/learners/x", False),
        ("http://a:1/v1/learners/x", 302, "http://b:2/v1/learners/x", False),
        ("http://a:1/v1/learners/x", 307, None, False),
    ],
)
def test_only_redirects_of_nodes_are_followed(target: str, status: int, location: str | None, followed: bool) -> None:
    headers = {} if location is None else {"location": location}
    response = httpx.Response(status, headers=headers, request=httpx.Request("GET", target))
    assert redirect_target(response) == (location if followed else None)


def test_requests_are_redirected_to_the_host(running_redis: RedisServer, spread: Spread, tmp_path: Path) -> None:
    node = Process(running_redis.url, tmp_path / "log", replication=1, follow_seconds=0.2, elsewhere="redirect",
                   advertised=True)  # fmt: skip
    with node:
        eventually(lambda: len(spread.get(0, "/nodes")["nodes"]) == 4)
        document = spread.http.get(f"{node.url}/v1/nodes").json()["nodes"]
        name = next(name for name in NAMES if spread.get(0, f"/nodes?learner={name}")["hosts"] != [node.url])

        def redirected() -> bool:
            reply = spread.http.get(f"{node.url}/v1/learners/{name}/digest?x=%20")
            return reply.status_code == 307

        eventually(redirected)
        reply = spread.http.get(f"{node.url}/v1/learners/{name}/digest?x=%20")
        (host,) = spread.get(0, f"/nodes?learner={name}")["hosts"]
        assert reply.headers["location"] == f"{host}/v1/learners/{name}/digest?x=%20"
        assert host in document
        followed = spread.http.post(
            f"{node.url}/v1/learners/{name}/predict", json={"events": [{"x": [1, 2]}]}, follow_redirects=True
        )
        assert followed.status_code == 200
        assert len(followed.json()["results"]) == 1
    eventually(lambda: all(len(spread.get(i, "/nodes")["nodes"]) == 3 for i in range(3)))
