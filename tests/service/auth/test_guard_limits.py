"""What a key may use and make, over every door; wrong keys; websockets; and what changes while the server runs."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from service.api.app import create_app
from service.api.sse import learner_news, stream
from service.auth import guard as guards
from service.auth.guard import Guard
from service.auth.keys import BadKeys, Key, load
from service.auth.permissions import Bucket
from service.errors import ServiceError, TooManyFailures, Unauthorized
from service.settings import Settings
from service.storage.memory import MemoryStore
from tests.harness.apps import DENSE, events
from tests.harness.keyring import Clock, Keyring, authorization, bearer, create_learners, keyed
from tests.harness.log_records import logged_data
from tests.harness.nodes import serving
from tests.harness.waiting import eventually_async
from tests.harness.websocket import websocket


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path)


# Failures


def test_wrong_keys_are_throttled_by_address_and_valid_keys_are_not(ring: Keyring) -> None:
    ring.make("one", "read")
    clock = Clock()
    guard = Guard(Settings(store="memory:", keys=str(ring.path)), clock)
    wrong = [(b"authorization", f"Bearer rs_{ring.id_of('one')}_{'0' * 64}".encode())]
    good = [(b"authorization", ring["one"]["Authorization"].encode())]

    def failure(address: str | None, headers: Any = wrong) -> type[ServiceError]:
        with pytest.raises(ServiceError) as caught:
            guard.admit(headers, "read", client=None if address is None else (address, 1234))
        return type(caught.value)

    for address in ("192.0.2.1", None, "2001:db8::1"):
        assert [failure(address) for _ in range(12)] == [Unauthorized] * 10 + [TooManyFailures] * 2
        assert guard.admit(good, "read", client=None if address is None else (address, 1)).id == ring.id_of("one")
    assert failure("192.0.2.2") is Unauthorized
    assert failure("2001:db8::ffff:1") is TooManyFailures  # of the same /64
    assert failure("2001:db8:0:1::1") is Unauthorized
    assert failure("::ffff:192.0.2.1") is TooManyFailures  # the IPv4 address
    assert failure("192.0.2.1", []) is Unauthorized  # no key is no guess
    with pytest.raises(TooManyFailures) as caught:
        guard.admit(wrong, "read", client=("192.0.2.1", 1))
    assert caught.value.retry_after == 1
    clock.now += 2.0
    assert [failure("192.0.2.1") for _ in range(3)] == [Unauthorized] * 2 + [TooManyFailures]


def test_the_number_of_tracked_addresses_is_bounded(ring: Keyring, monkeypatch: pytest.MonkeyPatch) -> None:
    ring.make("one", "read")
    monkeypatch.setattr(guards, "_ADDRESSES", 50)
    guard = Guard(Settings(store="memory:", keys=str(ring.path)), Clock())
    wrong = [(b"authorization", b"Bearer rs_a_b")]
    for i in range(500):
        with pytest.raises(Unauthorized):
            guard.admit(wrong, "read", client=(f"10.0.{i // 250}.{i % 250}", 1))
    assert len(guard._failures) == 50


# Limits


async def test_requests_per_second_are_limited_and_refusals_change_nothing(ring: Keyring) -> None:
    root = ring.make("root", "admin")
    slow = ring.make("slow", "read", "update", requests_per_second=2.0)
    clock = Clock()
    async with keyed(ring) as (app, http):
        app.state.guard._clock = clock
        for permissions in app.state.guard._permissions.values():
            if permissions._requests is not None:
                permissions._requests._clock, permissions._requests._at = clock, clock.now
        await create_learners(http, root, "a")
        before = (await http.get("/learners/a/digest", headers=root)).json()
        body = {"events": events(1, 100)}
        assert (await http.get("/learners", headers=slow)).status_code == 200
        assert (await http.get("/learners/a", headers=slow)).status_code == 200
        for path in ("/learners/a/update", "/learners/a/labels"):
            reply = await http.post(path, json=body, headers=slow)
            assert (reply.status_code, reply.json()["code"], reply.headers["retry-after"]) == (429, "rate-limited", "1")
        assert (await http.get("/learners", headers=root)).status_code == 200
        assert (await http.get("/learners/a/digest", headers=root)).json() == before
        clock.now += 0.5
        assert (await http.post("/learners/a/update", json=body, headers=slow)).status_code == 200
        assert (await http.post("/learners/a/update", json=body, headers=slow)).status_code == 429


async def test_events_per_second_are_limited_on_every_route(ring: Keyring) -> None:
    root = ring.make("root", "admin")
    async with keyed(ring) as (_, http):
        await create_learners(http, root, "a", "b")
        assert (await http.put("/groups/g", json={"learners": ["a", "b"]}, headers=root)).status_code == 201
    doors = {
        "json": ("/learners/a/update", {"json": {"events": events(30, 100)}}),
        "predict": ("/learners/a/predict", {"json": {"events": [{"x": [1, 2, 3]}] * 30}}),
        "labels": ("/learners/a/labels", {"json": {"events": [{"id": f"e{i}", "label": 0} for i in range(30)]}}),
        "group": ("/groups/g/update", {"json": {"events": events(15, 200)}}),
        "lines": (
            "/learners/a/update",
            {
                "content": "".join(json.dumps(event) + "\n" for event in events(30, 300)),
                "headers": {"content-type": "application/x-ndjson"},
            },
        ),
    }
    for door, (path, body) in doors.items():
        key = ring.make(door, "update", "predict", events_per_second=0.1)
        async with keyed(ring) as (_, http):
            await create_learners(http, root, "a", "b")
            assert (await http.put("/groups/g", json={"learners": ["a", "b"]}, headers=root)).status_code == 201
            headers = {**body.get("headers", {}), **key}
            more = {name: value for name, value in body.items() if name != "headers"}
            # thirty at once are let through where nothing is owed, and are owed then: five minutes
            assert (await http.post(path, headers=headers, **more)).status_code == 200, door
            before = (await http.get("/learners/a/digest", headers=root)).json()
            reply = await http.post(path, headers=headers, **more)
            assert (reply.status_code, reply.json()["code"]) == (429, "rate-limited"), door
            assert 100 < int(reply.headers["retry-after"]) <= 300
            assert (await http.get("/learners/a/digest", headers=root)).json() == before, door


async def test_an_ndjson_reply_ends_when_the_limit_is_reached(ring: Keyring, monkeypatch: pytest.MonkeyPatch) -> None:
    key = ring.make("one", "admin", events_per_second=5.0)
    monkeypatch.setattr("service.api.fast_path.ndjson_stream.LineReader.__init__.__defaults__", (4, 2**20))
    async with keyed(ring) as (_, http):
        assert (await http.put("/learners/a", json=DENSE, headers=key)).status_code == 201
        text = "".join(json.dumps(event) + "\n" for event in events(20))
        headers = {"content-type": "application/x-ndjson", **key}
        reply = await http.post("/learners/a/update", content=text, headers=headers)
        last = json.loads(reply.text.splitlines()[-1])
        assert (reply.status_code, last["code"], last["done"], last["lines"]) == (200, "rate-limited", False, 8)
        assert last["retry_after"] >= 1
        assert (await http.get("/learners/a", headers=key)).json()["events"] == 8


async def test_the_body_size_of_a_key_is_limited(ring: Keyring) -> None:
    root, small = ring.make("root", "admin"), ring.make("small", "admin", body_bytes=300)
    async with keyed(ring) as (app, http):
        await create_learners(http, root, "a")
        data = (await http.get("/learners/a/export", headers=root)).content
        assert len(data) > 300
        body = {"events": events(30, 100)}
        for path in ("/learners/a/update", "/learners/a/predict"):
            reply = await http.post(path, json=body, headers=small)
            assert (reply.status_code, reply.json()["code"]) == (413, "too-large")
        reply = await http.put("/learners/b", json={**DENSE, "threshold": {"objective": " " * 300}}, headers=small)
        assert reply.status_code == 413
        reply = await http.post("/learners/b/import", content=data, headers=small)
        assert (reply.status_code, reply.json()["code"]) == (413, "too-large")
        lines = "".join(json.dumps(event) + "\n" for event in events(30, 100))
        headers = {"content-type": "application/x-ndjson", **small}
        assert (await http.post("/learners/a/update", content=lines, headers=headers)).status_code == 200
        long = json.dumps({"id": "l" * 300, **events(1, 200, ids=False)[0]}) + "\n"
        assert (await http.post("/learners/a/update", content=long, headers=headers)).status_code == 413
        async with websocket(app, headers=[(b"authorization", small["Authorization"].encode())]) as socket:
            socket.send({"seq": 1, "op": "predict", "learner": "a", "events": [{"x": [1, 2, 3]}]})
            socket.send({"seq": 2, "op": "predict", "learner": "a", "events": [{"x": [1, 2, 3]}] * 20})
            assert [item.get("code") for item in await socket.replies(2)] == [None, "too-large"]


async def test_the_size_of_learners_created_by_a_key_is_limited(ring: Keyring) -> None:
    root = ring.make("root", "admin")
    key = ring.make("team", "admin", pattern="t-*", dimensions=3, remembered_events=1000)
    late = {"late": {"max_events": 1000}}
    async with keyed(ring) as (_, http):
        wide = {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": 4}, **late}
        embedded = {
            "algorithm": "noam",
            "features": {"kind": "dense", "dim": 3},
            "embedding": {"kind": "nystroem"},
            **late,
        }
        hashed = {"algorithm": "cbr-diag", "features": {"kind": "named"}, **late}
        for config, pointer in (
            (wide, "/features"),
            (hashed, "/features"),
            (embedded, "/features"),
            (DENSE, "/late/max_events"),
        ):
            reply = await http.put("/learners/t-a", json=config, headers=key)
            assert (reply.status_code, [error["pointer"] for error in reply.json()["errors"]]) == (422, [pointer]), (
                config
            )
        assert (await http.get("/learners", headers=root)).json()["learners"] == []
        assert (await http.put("/learners/t-a", json={**DENSE, **late}, headers=key)).status_code == 201
        reply = await http.patch("/learners/t-a", json={"late": {"max_events": 1001}}, headers=key)
        assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (422, "/late/max_events")
        assert (await http.patch("/learners/t-a", json={"late": {"max_events": 900}}, headers=key)).status_code == 200

        # by way of a copy, too; but what another key has made may be used, and changed in all else
        assert (await http.put("/learners/t-wide", json=wide, headers=root)).status_code == 201
        reply = await http.post("/learners/t-wide/clone", json={"to": "t-b"}, headers=key)
        assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (422, "/features")
        data = (await http.get("/learners/t-wide/export", headers=key)).content
        reply = await http.post("/learners/t-b/import", content=data, headers=key)
        assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (422, "/features")
        assert (await http.patch("/learners/t-wide", json={"figures": {"k": 50}}, headers=key)).status_code == 200
        assert (await http.patch("/learners/t-wide", json={"late": {"max_events": 10}}, headers=key)).status_code == 200


async def test_the_number_of_learners_of_a_key_is_limited(ring: Keyring) -> None:
    root = ring.make("root", "admin")
    key = ring.make("team", "admin", pattern="t-*", learners=3)
    async with keyed(ring) as (_, http):
        await create_learners(http, root, "other-1", "other-2", "other-3")
        for name in ("t-1", "t-2"):
            assert (await http.put(f"/learners/{name}", json=DENSE, headers=key)).status_code == 201
        assert (await http.put("/groups/t-g", json={"learners": ["t-1", "t-2"]}, headers=key)).status_code == 201
        full = [
            await http.put("/learners/t-3", json=DENSE, headers=key),
            await http.post("/learners/t-1/clone", json={"to": "t-3"}, headers=key),
            await http.put("/groups/t-h", json={"learners": ["t-1", "t-2"]}, headers=key),
        ]
        for reply in full:
            assert (reply.status_code, reply.json()["code"]) == (409, "limit-reached")
        assert (await http.put("/learners/t-1", json=DENSE, headers=key)).status_code == 200
        assert (await http.delete("/groups/t-g", headers=key)).status_code == 204
        done = await asyncio.gather(*(http.put(f"/learners/t-{i}", json=DENSE, headers=key) for i in range(4, 9)))
        assert sorted(item.status_code for item in done) == [201, 409, 409, 409, 409]


async def test_learners_created_on_other_nodes_count_towards_the_limit(ring: Keyring) -> None:
    root = ring.make("root", "admin")
    key = ring.make("team", "admin", pattern="t-*", learners=3)
    store, keys = MemoryStore(), str(ring.path)
    async with serving(store, keys=keys) as (item, _), serving(store, keys=keys) as (other, unaware):
        await unaware.sync.stop()  # it hears of nothing that the first one does
        await create_learners(item, root, "other-1", "other-2", "other-3")
        for name in ("t-1", "t-2"):
            assert (await item.put(f"/learners/{name}", json=DENSE, headers=key)).status_code == 201
        assert (await item.put("/groups/t-g", json={"learners": ["t-1", "t-2"]}, headers=key)).status_code == 201
        assert unaware.replicas == {}
        full = [
            await other.put("/learners/t-3", json=DENSE, headers=key),
            await other.post("/learners/t-1/clone", json={"to": "t-3"}, headers=key),
            await other.put("/groups/t-h", json={"learners": ["t-1", "t-2"]}, headers=key),
        ]
        for reply in full:
            assert (reply.status_code, reply.json()["code"]) == (409, "limit-reached")
        assert sorted(await store.heads()) == ["@t-g", "other-1", "other-2", "other-3", "t-1", "t-2"]
        assert (await other.put("/learners/t-1", json=DENSE, headers=key)).status_code == 200
        assert (await item.delete("/groups/t-g", headers=key)).status_code == 204
        assert (await other.put("/learners/t-3", json=DENSE, headers=key)).status_code == 201
        assert (await item.put("/learners/t-4", json=DENSE, headers=key)).status_code == 409


# Websockets


async def test_websockets_require_a_key_at_the_handshake(ring: Keyring) -> None:
    reads = ring.make("reads", "read")
    async with keyed(ring) as (app, _):
        wrong = {"Authorization": "Bearer rs_a_b"}
        for headers, status in (([], 401), (authorization(wrong), 401), (authorization(reads), 403)):
            extensions = ["websocket.http.response"]
            async with websocket(app, headers=headers, extensions=extensions, greeted=False) as socket:
                start = await socket.event()
                assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
                assert (b"www-authenticate" in dict(start["headers"])) == (status == 401)
                assert json.loads((await socket.event())["body"])["status"] == status


async def test_each_websocket_message_is_authorised_separately(ring: Keyring) -> None:
    root = ring.make("root", "admin")
    partial = ring.make("some", "predict", pattern="fraud-*")
    async with keyed(ring) as (app, http):
        await create_learners(http, root, "fraud-a", "spam")
        before = (await http.get("/learners/fraud-a/digest", headers=root)).json()
        event = [{"x": [1, 2, 3]}]
        async with websocket(app, headers=authorization(partial)) as socket:
            socket.send({"seq": 1, "op": "predict", "learner": "fraud-a", "events": event})
            assert (await socket.reply())["status"] == 200
            socket.send({"seq": 2, "op": "update", "learner": "fraud-a", "events": events(1, 50)})
            socket.send({"seq": 3, "op": "labels", "learner": "fraud-a", "events": [{"id": "e1", "label": 1}]})
            for refused in await socket.replies(2):
                assert (refused["status"], refused["code"]) == (403, "forbidden")
            socket.send({"seq": 4, "op": "predict", "learner": "spam", "events": event})
            socket.send({"seq": 5, "op": "predict", "learner": "nobody", "events": event})
            hidden = await socket.replies(2)
            assert [item["code"] for item in hidden] == ["unknown-learner"] * 2
        for name, code in (("spam", 4404), ("nobody", 4404)):
            async with websocket(app, f"/v1/learners/{name}/ws", authorization(partial), greeted=False) as socket:
                assert (await socket.event())["type"] == "websocket.accept"
                assert (await socket.closed())[0] == code
        assert (await http.get("/learners/fraud-a/digest", headers=root)).json() == before


@pytest.mark.parametrize("whole", [False, True])
async def test_limits_apply_to_each_websocket_message(ring: Keyring, whole: bool) -> None:
    root = ring.make("root", "admin")
    slow = ring.make("slow", "update", requests_per_second=0.001)
    small = ring.make("small", "update", body_bytes=200)
    scorer = ring.make("scorer", "predict")
    few = ring.make("few", "update", "predict", events_per_second=0.001)
    async with keyed(ring) as (app, http):
        await create_learners(http, root, "a")
        # the handshake was the request
        async with websocket(app, "/v1/learners/a/ws", authorization(slow), batched=whole) as socket:
            socket.send({"seq": 1, "op": "update", "events": events(1, 50)})
            refused = await socket.reply()
            assert (refused["status"], refused["code"], refused["retry_after"] > 100) == (429, "rate-limited", True)
        async with websocket(app, "/v1/learners/a/ws", authorization(few), batched=whole) as socket:
            socket.send({"seq": 0, "op": "update", "events": events(1, 50)})
            assert (await socket.reply())["status"] == 200
            socket.send(*({"seq": i, "op": "update", "events": events(1, 50 + i)} for i in range(1, 20)))
            replies = await socket.replies(19)  # put together, each is told
            assert [(reply["seq"], reply["status"]) for reply in replies] == [(i, 429) for i in range(1, 20)]
            socket.send({"seq": 21, "op": "predict", "events": [{"x": [1, 2, 3]}], "explain": 1})
            assert (await socket.reply())["code"] == "rate-limited"
        async with websocket(app, "/v1/learners/a/ws", authorization(small), batched=whole) as socket:
            socket.send(*({"seq": i, "op": "update", "events": events(1 + 2 * (i == 2), 90 + i)} for i in range(4)))
            assert [reply["status"] for reply in await socket.replies(4)] == [200, 200, 413, 200]
        async with websocket(app, "/v1/learners/a/ws", authorization(scorer), batched=whole) as socket:
            socket.send(*({"seq": i, "op": "update", "events": events(1, 50 + i)} for i in range(4)))
            socket.send({"seq": 4, "op": "predict", "events": [{"x": [1, 2, 3]}]})
            assert [reply["status"] for reply in await socket.replies(5)] == [403, 403, 403, 403, 200]
        assert (await http.get("/learners/a", headers=root)).json()["events"] == 14


# What changes while the server runs


async def test_the_file_is_reloaded_when_it_changes(
    ring: Keyring, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guards, "_LOOK_EVERY", 0.01)
    first = ring.make("first", "admin")
    async with keyed(ring) as (app, http):
        guard = app.state.guard
        await create_learners(http, first, "a")
        stored = guard._permissions[ring.id_of("first")]
        second = ring.make("second", "predict")
        await eventually_async(lambda: len(guard._permissions) == 2)
        assert guard._permissions[ring.id_of("first")] is stored  # with what it has used up
        assert (await http.get("/key", headers=second)).status_code == 200

        for broken in (b"{", b"", None):
            caplog.clear()
            before = ring.path.read_bytes()
            ring.path.write_bytes(broken) if broken is not None else ring.path.unlink()
            await eventually_async(lambda: len(logged_data(caplog, "rarestream.guard", "ERROR")) == 1)
            assert (await http.get("/key", headers=first)).status_code == 200
            seen = guard._seen
            ring.path.write_bytes(before)
            await eventually_async(lambda seen=seen: guard._seen != seen)

        caplog.clear()
        failures = 3

        def failing(path: Path) -> list[Key]:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise BadKeys("unreadable")
            return load(path)

        monkeypatch.setattr(guards, "load", failing)
        third = ring.make("third", "read")  # the file does not change again
        await eventually_async(lambda: len(guard._permissions) == 3)
        assert [str(error) for (error,) in logged_data(caplog, "rarestream.guard", "ERROR")] == ["unreadable"]
        assert (await http.get("/key", headers=third)).status_code == 200
        ring.drop("third")
        await eventually_async(lambda: len(guard._permissions) == 2)

        message = {"op": "predict", "learner": "a", "events": [{"x": [1, 2, 3]}]}
        async with websocket(app, headers=authorization(second)) as socket:
            socket.send({"seq": 1, **message})
            assert (await socket.reply())["status"] == 200
            ring.drop("second")
            await eventually_async(lambda: len(guard._permissions) == 1)
            assert (await http.get("/key", headers=second)).status_code == 401
            socket.send({"seq": 2, **message})
            assert (await socket.closed())[0] == 1008


async def test_streams_of_a_key_end_when_it_is_revoked(ring: Keyring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.sse._PING", 0.01)
    key = ring.make("one", "admin")
    async with keyed(ring) as (app, http):
        await create_learners(http, key, "a")
        engine, permissions = app.state.engine, app.state.guard._permissions[ring.id_of("one")]
        events_ = stream(learner_news(engine.replicas["a"]), 0.01, asyncio.Event(), permissions)
        assert b"event: figures" in await anext(events_)
        app.state.guard._take([])
        async with asyncio.timeout(300):
            assert [event async for event in events_ if not event.startswith(b":")] == []


def test_an_invalid_keys_file_prevents_the_start(ring: Keyring) -> None:
    with pytest.raises(BadKeys):
        create_app(Settings(store="memory:", keys=str(ring.path)))
    ring.path.write_text("[]")
    with pytest.raises(BadKeys):
        create_app(Settings(store="memory:", keys=str(ring.path)))


async def test_a_file_without_keys_admits_nobody(ring: Keyring) -> None:
    ring.path.write_text('{"keys": []}')
    async with keyed(ring) as (_, http):
        assert (await http.get("/learners", headers=bearer("rs_a_b"))).status_code == 401


def test_a_rate_limit_remembers_its_debt() -> None:
    clock = Clock()
    bucket = Bucket(10.0, clock)
    assert [bucket.take(1) for _ in range(11)] == [0] * 10 + [1]
    clock.now += 0.1
    assert bucket.take(101) == 0  # more than there ever is at once, when nothing is owed
    assert bucket.take(1) == 11
    clock.now += 10.0
    assert bucket.take(1) == 1
    clock.now += 0.1
    assert [bucket.take(0), bucket.take(1), bucket.take(1)] == [0, 0, 1]
    clock.now += 1e6
    assert [bucket.take(1) for _ in range(11)] == [0] * 10 + [1]
    slow = Bucket(0.5, clock)
    assert [slow.take(1), slow.take(1)] == [0, 2]


def test_a_bucket_tells_what_is_left_in_whole_numbers() -> None:
    clock = Clock()
    bucket, slow, odd = Bucket(10.0, clock), Bucket(0.5, clock), Bucket(2.5, clock)
    assert [item.quota for item in (bucket, slow, odd)] == [(10, 1), (1, 2), (2, 1)]
    assert [item.remainder() for item in (bucket, slow, odd)] == [(10, 0), (1, 0), (2, 0)]
    for item in (bucket, slow, odd):
        item.take(1)
    assert [item.remainder() for item in (bucket, slow, odd)] == [(9, 1), (0, 2), (1, 1)]
    bucket.take(100)
    assert bucket.remainder() == (0, 11)  # a debt of 91
    clock.now += 10.05
    assert bucket.remainder() == (9, 1)


async def test_replies_tell_the_rate_limits_of_their_key(ring: Keyring) -> None:
    root = ring.make("root", "admin")
    limited = ring.make("both", "admin", requests_per_second=0.001, events_per_second=0.002)
    event = {"events": [{"x": [1, 2, 3]}]}
    lines = {"content": b'{"x": [1, 2, 3]}\n', "headers": {**limited, "content-type": "application/x-ndjson"}}
    for path, arguments in (
        ("/learners/a/predict", {"json": event, "headers": limited}),
        ("/learners/a/predict", {"json": {}, "headers": limited}),
        ("/learners/a/predict", lines),
        ("/learners", {"headers": limited}),
    ):
        async with keyed(ring) as (_, http):
            await create_learners(http, root, "a")
            method = "GET" if path == "/learners" else "POST"
            replies = [await http.request(method, path, **arguments) for _ in range(2)]
            assert [replies[0].status_code < 429, replies[1].status_code] == [True, 429]
            for reply in replies:
                assert reply.headers["ratelimit-policy"] == '"requests";q=1;w=1000, "events";q=1;w=500'
            rest = [re.findall(r'"(\w+)";r=(\d+)', reply.headers["ratelimit"]) for reply in replies]
            spent = replies[0].status_code == 200 and method == "POST"
            assert rest == [[("requests", "0"), ("events", "0" if spent else "1")]] * 2
            assert "ratelimit" not in (await http.get("/learners", headers=root)).headers
