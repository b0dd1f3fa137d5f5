"""The streams of all learners, of the groups and of one: whole first, then what changes, and who is told of what."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec
import pytest
from starlette.datastructures import State
from starlette.types import Message

from service.api import overview
from service.api.overview import Overview, OverviewDocument
from service.api.sse import News, alert_news, all_news, opened, stream
from service.auth.permissions import UNRESTRICTED, Permissions
from service.settings import Settings
from service.storage.memory import MemoryStore
from tests.harness.apps import events
from tests.harness.keyring import Keyring
from tests.harness.nodes import posted, serving
from tests.harness.process import Process
from tests.harness.waiting import eventually, eventually_async
from tests.service.engine.replica.test_served_events import SETUPS, labelled

DENSE = SETUPS["dense"]
STREAMS = 3


class Live:
    """A stream that is read, and the document of all learners as it tells it."""

    def __init__(self, http: httpx.Client, path: str, headers: dict[str, str] | None = None) -> None:
        self._opened = http.stream("GET", path, headers=headers)
        self.learners: dict[str, Any] = {}

    def __enter__(self) -> Self:
        reply = self._opened.__enter__()
        assert reply.status_code == 200, reply.read()
        assert reply.headers["content-type"].startswith("text/event-stream")
        self._lines = reply.iter_lines()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, trace)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        kind = ""
        for line in self._lines:
            if line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: "):
                data = json.loads(line[6:])
                if kind == "learners":
                    self.learners = data
                elif kind == "changed":
                    self.learners = merged(self.learners, data)
                yield kind, data

    def until(self, kind: str) -> list[tuple[str, Any]]:
        """Everything up to the next event of a kind."""
        actual = []
        for item in self:
            actual.append(item)
            if item[0] == kind:
                return actual
        raise AssertionError(f"it ended with {actual}")


def merged(document: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return the document with what has changed in it."""
    rest = dict(change)
    rows = {learner["name"]: learner for learner in document["learners"]}
    for name in rest.pop("gone"):
        del rows[name]
    rows |= {item["name"]: item for item in rest.pop("learners")}
    return {**document, **rest, "learners": [rows[name] for name in sorted(rows)]}


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Keyring:
    actual = Keyring(tmp_path_factory.mktemp("keys"))
    actual.make("root", "admin")
    actual.make("some", "read", pattern="b*")
    return actual


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, ring: Keyring) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("service")
    store = f"sqlite:///{folder / 'log.db'}"
    with Process(store, folder / "server.log", keys=ring.path, max_streams=STREAMS) as process:
        yield process


@pytest.fixture
def http(service: Process, ring: Keyring) -> Iterator[httpx.Client]:
    base = f"{service.url}/v1"
    with httpx.Client(base_url=base, headers=ring["root"], timeout=300, trust_env=False) as client:
        for name in ("a", "b1", "b2"):
            client.put(f"/learners/{name}", json=DENSE).raise_for_status()
        client.put("/groups/g", json={"learners": ["a", "b1"]}).raise_for_status()
        client.put("/groups/bs", json={"learners": ["b1", "b2"]}).raise_for_status()
        yield client
        for path in (
            f"/{what}/{item['name']}" for what in ("groups", "learners") for item in listed(client, what)[what]
        ):
            client.delete(path).raise_for_status()


def listed(http: httpx.Client, what: str) -> dict[str, Any]:
    """Return what there is, as a poll tells it."""
    reply = http.get(f"/{what}", params={"learners": {"figures": True}, "groups": {"tests": True}}[what])
    reply.raise_for_status()
    document: dict[str, Any] = reply.json()
    return document


def update(http: httpx.Client, path: str, start: int, stop: int) -> None:
    http.post(f"/{path}/update", json={"events": labelled("dense", start, stop)}).raise_for_status()


def test_the_first_events_contain_everything_and_later_ones_changes(http: httpx.Client) -> None:
    with Live(http, "/stream") as live:
        (kind, whole), groups = live.until("groups")
        assert (kind, whole) == ("learners", listed(http, "learners"))
        assert groups[1] == listed(http, "groups")

        def merged(names: set[str], **events: int) -> None:
            """Until the stream has told what a poll tells: of these learners it speaks, and of no others."""
            spoken_of: set[str] = set()
            for kind, data in live:
                assert kind == "changed"
                assert data["learners"] or data["gone"] or len(data) > 2
                spoken_of |= {learner["name"] for learner in data["learners"]} | set(data["gone"])
                actual = {learner["name"]: learner["events"] for learner in live.learners["learners"]}
                if actual == events and live.learners == listed(http, "learners"):
                    break
            assert spoken_of == names

        update(http, "learners/a", 0, 300)
        merged({"a"}, a=300, b1=0, b2=0)
        update(http, "learners/b1", 0, 100)
        update(http, "learners/a", 300, 400)
        merged({"a", "b1"}, a=400, b1=100, b2=0)
        http.put("/learners/c", json=DENSE).raise_for_status()
        http.delete("/learners/b2").raise_for_status()
        merged({"c", "b2"}, a=400, b1=100, c=0)

        update(http, "groups/g", 400, 500)
        assert {kind for kind, _ in live.until("groups")[:-1]} <= {"changed"}


@pytest.mark.integration  # waits for looks at all groups
def test_the_stream_can_be_limited_to_groups(http: httpx.Client) -> None:
    with Live(http, "/stream?learners=false") as live:

        def merged() -> dict[str, int]:
            """Return the events of each stream, once they agree with a poll; nothing else is sent."""
            for kind, data in live:
                assert kind == "groups"
                if data == listed(http, "groups"):
                    return {group["name"]: group["events"] for group in data["groups"]}
            raise AssertionError("it ended")

        assert merged().keys() == {"bs", "g"}
        update(http, "groups/g", 0, 20)
        assert merged() == {"bs": 0, "g": 20}
        http.delete("/groups/g").raise_for_status()
        assert merged() == {"bs": 0}


@pytest.mark.integration  # waits for looks at all groups
def test_a_comparison_is_sent_whenever_it_has_changed(http: httpx.Client) -> None:
    with Live(http, "/groups/g/compare/stream") as live:
        for stop in (0, 100, 150):
            if stop:
                update(http, "groups/g", stop - 50, stop)
            ((_, report),) = live.until("comparison")
            assert report == http.get("/groups/g/compare").json()
        assert report["events"] == 100
        http.delete("/learners/b1").raise_for_status()
        ((_, report),) = live.until("comparison")
        assert report["gone"] == ["b1"]
        http.delete("/groups/g").raise_for_status()
        ((kind, report),) = live  # and it ends
        assert (kind, list(report)) == ("gone", ["code", "detail"])
    assert http.get("/groups/g/compare/stream").json()["code"] == "unknown-group"


def test_a_key_receives_its_learners_until_it_is_revoked(http: httpx.Client, ring: Keyring) -> None:
    key = ring["some"]
    assert http.get("/groups/g/compare/stream", headers=key).json()["code"] == "unknown-group"
    with Live(http, "/stream", key) as live, Live(http, "/groups/bs/compare/stream", key) as group:
        assert [kind for kind, _ in group.until("comparison")] == ["comparison"]
        (_, whole), (_, groups) = live.until("groups")
        assert [learner["name"] for learner in whole["learners"]] == ["b1", "b2"]
        assert [item["name"] for item in groups["groups"]] == ["bs"]
        for name in ("a", "b2"):
            update(http, f"learners/{name}", 0, 50)
        http.delete("/learners/a").raise_for_status()
        while live.learners["learners"][1]["events"] < 50:
            ((_, changed),) = live.until("changed")
            assert ([learner["name"] for learner in changed["learners"]], changed["gone"]) == (["b2"], [])
        ring.drop("some")
        assert {kind for kind, _ in live} <= {"changed"}  # they end
        assert list(group) == []


def test_streams_of_every_kind_share_one_limit(http: httpx.Client) -> None:
    paths = ["/stream", "/groups/g/compare/stream", "/learners/a/metrics/stream"]
    assert len(paths) == STREAMS
    first, second, third = (Live(http, path) for path in paths)
    with first, second:
        with third:
            assert all(next(iter(item)) for item in (first, second, third))
            for path in paths:
                refused = http.get(path)
                assert (refused.status_code, refused.json()["code"]) == (429, "too-many-streams")
                assert int(refused.headers["retry-after"]) >= 1

        def has_room() -> bool:  # a stream that was left makes room
            with http.stream("GET", "/stream") as reply:
                return reply.status_code == 200

        eventually(has_room)


def test_a_learner_may_be_named_stream(http: httpx.Client) -> None:
    http.put("/learners/stream", json=DENSE).raise_for_status()
    http.put("/groups/stream", json={"learners": ["stream", "a"]}).raise_for_status()
    assert http.get("/learners/stream").json()["name"] == "stream"
    assert http.get("/groups/stream").json()["name"] == "stream"


def test_a_stopping_node_ends_its_streams(tmp_path: Path) -> None:
    with (
        Process("memory:", tmp_path / "server.log") as service,
        httpx.Client(base_url=f"{service.url}/v1", timeout=300, trust_env=False) as http,
    ):
        for name in ("a", "b"):
            http.put(f"/learners/{name}", json=DENSE).raise_for_status()
        http.put("/groups/g", json={"learners": ["a", "b"]}).raise_for_status()
        with Live(http, "/stream") as live, Live(http, "/groups/g/compare/stream") as group:
            assert len(live.until("groups")) == 2
            assert len(group.until("comparison")) == 1
            service.stop()
            assert list(live) == list(group) == []  # as streams end, and not as connections break


# From within


async def told_of(events: AsyncIterator[bytes], kind: str) -> dict[str, Any]:
    """Return the next event, which is of this kind."""
    async with asyncio.timeout(300):
        name, data = (await anext(events)).decode().strip().split("\n")
    assert name == f"event: {kind}"
    actual: dict[str, Any] = json.loads(data.removeprefix("data: "))
    return actual


async def test_alerts_are_streamed_in_order_and_go_on_behind_the_last_id() -> None:
    async with serving(MemoryStore()) as (http, engine):
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/update", events(200))

        async def score(*ids: str) -> None:
            request = [{"id": id, "x": [30.0 if id.startswith("alert") else -30.0, 0.5, 0.0]} for id in ids]
            await posted(http, "/learners/a/predict", request)

        async def read(count: int, last: bytes) -> tuple[list[str], bytes]:
            """Read so many alerts behind the last id; return their ids and the last id."""
            learner, ids = engine.get("a"), list[str]()
            async with aclosing(stream(alert_news(learner, int(last)), 0.01, asyncio.Event())) as chunks:
                assert await anext(chunks) == b"id: " + last + b"\n\n"  # also of a client that has had no alert yet
                async for chunk in chunks:
                    id_line, kind, data = chunk.splitlines()[:3]
                    assert kind == b"event: alert"
                    last = id_line.removeprefix(b"id: ")
                    ids.append(json.loads(data.removeprefix(b"data: "))["id"])
                    if len(ids) == count:
                        return ids, last
            raise AssertionError(f"it ended after {ids}")

        await score("alert-1", "quiet-1", "alert-2")
        first, last = await read(2, b"0")
        assert first == ["alert-1", "alert-2"]
        reading = asyncio.create_task(read(3, last))
        await score("quiet-2", "alert-3")
        await score("alert-4", "alert-1")  # a second time
        assert (await reading)[0] == ["alert-3", "alert-4", "alert-1"]
        await engine.delete("a")
        reply = await http.get("/learners/a/alerts/stream")
        assert reply.status_code == 404


async def test_the_stream_of_alerts_refuses_ranks_and_other_ids() -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=DENSE)
        ranks = {"algorithm": "npsvor", "params": {"ranks": 3}, "features": DENSE["features"]}
        await http.put("/learners/ranks", json=ranks)
        for path, headers in (("a", {"last-event-id": "1.2.3"}), ("a", {"last-event-id": "-1"}), ("ranks", {})):
            reply = await http.get(f"/learners/{path}/alerts/stream", headers=headers)
            assert (reply.status_code, reply.json()["code"]) == (422, "invalid")


async def test_a_slow_reader_gets_fewer_events_with_all_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "_LEAST", 0.0)
    stored = Overview()
    async with serving(MemoryStore()) as (http, engine):

        async def learners_document() -> OverviewDocument:
            return OverviewDocument(await stored.document(engine))

        async def groups() -> bytes:
            return b"{}"

        for name in ("a", "b"):
            await http.put(f"/learners/{name}", json=DENSE)
        events = stream(all_news(learners_document, groups), 0.01, asyncio.Event())
        whole = await told_of(events, "learners")
        assert await told_of(events, "groups") == {}
        for start in range(0, 100, 10):
            await posted(http, "/learners/a/update", labelled("dense", start, start + 10))
        await http.delete("/learners/b")
        await http.put("/learners/c", json=DENSE)
        changed = await told_of(events, "changed")
        assert [learner["name"] for learner in changed["learners"]] == ["a", "c"]
        assert changed["gone"] == ["b"]
        assert changed["learners"][0]["events"] == 100
        assert {**merged(whole, changed), "cursor": None} == (await http.get("/learners?figures=true")).json()


async def test_an_evicted_learner_is_reported_as_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "_LEAST", 0.0)
    stored = Overview()
    async with serving(MemoryStore(), max_resident=1) as (http, engine):
        for name in ("a", "b"):
            await http.put(f"/learners/{name}", json=DENSE)
        before = OverviewDocument(await stored.document(engine))
        assert before.since(before) is None
        engine.residency.evict_idle()  # as a moment later, when nobody asks for anything
        await eventually_async(
            lambda: bool(engine.evicted) and engine.residency.eviction is not None and engine.residency.eviction.done()
        )
        now = OverviewDocument(await stored.document(engine))
        changed = json.loads(msgspec.json.encode(now.since(before)))
        assert len(changed["gone"]) == 1
        assert changed == {"learners": [], "gone": changed["gone"], "asleep": changed["gone"]}


async def test_a_document_for_many_readers_is_computed_once() -> None:
    stored = Overview()
    query = 0

    async def document() -> dict[str, Any]:
        nonlocal query
        query += 1
        await asyncio.sleep(0)
        return {"learners": [], "loaded": True}

    actual = await asyncio.gather(*(stored.learners_document(UNRESTRICTED, 1e9, document) for _ in range(10)))
    assert query == 1
    assert all(item is actual[0] for item in actual)
    another = Permissions(None)
    first = await stored.learners_document(another, 0.0, document)  # another may be told of others
    assert query == 2
    second = await stored.learners_document(another, 0.0, document)
    assert query == 3
    assert second is not first
    assert second.since(first) is None


def row(name: str, events: int) -> dict[str, Any]:
    return {"name": name, "events": events}


def test_all_readers_get_the_same_difference() -> None:
    first = OverviewDocument({"learners": [row("a", 1), row("b", 1)], "loaded": False})
    second = OverviewDocument({"learners": [row("a", 2), row("b", 1)], "loaded": True}, first)
    third = OverviewDocument({"learners": [row("a", 2), row("c", 1)], "loaded": True}, second)
    report = [json.loads(msgspec.json.encode(now.since(before))) for now, before in ((second, first), (third, second))]
    assert report[0] == {"learners": [row("a", 2)], "gone": [], "loaded": True}
    assert report[1] == {"learners": [row("c", 1)], "gone": ["b"]}
    late = json.loads(msgspec.json.encode(third.since(first)))
    assert late == {"learners": [row("a", 2), row("c", 1)], "gone": ["b"], "loaded": True}


async def test_a_ping_is_sent_when_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.sse._PING", 0.05)

    async def learners_document() -> OverviewDocument:
        return OverviewDocument({"learners": []})

    async def groups() -> bytes:
        return b"{}"

    events = stream(all_news(learners_document, groups), 0.01, asyncio.Event())
    assert await told_of(events, "learners") == {"learners": []}
    assert await told_of(events, "groups") == {}
    async with asyncio.timeout(300):
        assert [await anext(events) for _ in range(3)] == [b": still here\n\n"] * 3


async def test_a_client_that_does_not_read_is_dropped() -> None:
    state = State({"streams": 0, "settings": Settings(ws_stall_seconds=0.05), "closing": asyncio.Event()})

    async def news() -> News:
        while True:
            yield b"data: {}\n\n"

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    reply = opened(state, news(), 0.01, UNRESTRICTED)
    assert state.streams == 1
    async with asyncio.timeout(300):
        await reply({"type": "http", "method": "GET", "asgi": {"spec_version": "2.3"}}, receive, send)
    assert state.streams == 0


async def test_a_stream_releases_its_source_when_it_ends() -> None:
    ended = asyncio.Event()

    async def news() -> News:
        try:
            while True:
                yield b"data: {}\n\n"
        finally:
            ended.set()

    events = stream(news(), 0.01, asyncio.Event())
    for _ in range(3):
        await anext(events)
    await events.aclose()
    assert ended.is_set()
