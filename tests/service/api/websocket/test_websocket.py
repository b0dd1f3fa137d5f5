"""Websockets: what they answer is what HTTP answers, in order; and each way in which a connection ends."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from service.api.websocket import connection, learner_queue
from service.api.websocket.connection import NO_LEARNER
from service.engine.engine import Engine
from service.errors import StoreUnavailable
from service.storage.memory import MemoryStore
from service.storage.store_protocol import Store
from tests.harness.apps import DENSE, events
from tests.harness.log_records import logged_data
from tests.harness.nodes import T0, app_over, digest, node
from tests.harness.websocket import Gated, websocket
from tests.service.engine.replica.test_served_events import SETUPS, event, label_of

SINGLE = "/v1/learners/a/ws"


@asynccontextmanager
async def serving(
    store: Store | None = None, learners: str = "a", **settings: Any
) -> AsyncIterator[tuple[Any, httpx.AsyncClient, Engine]]:
    """Return an application with some learners of one configuration, and a client of it."""
    async with node(store or MemoryStore(), **settings) as engine:
        app = app_over(engine)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://rarestream/v1", timeout=300) as http:
            for name in learners:
                await http.put(f"/learners/{name}", json=DENSE)
            yield app, http, engine


def updates(count: int, start: int = 0, **more: Any) -> Iterator[dict[str, Any]]:
    """Messages of one labelled event each, whose seq is the event's number."""
    for i, item in enumerate(events(count, start), start):
        yield {"seq": i, "op": "update", "events": [item], **more}


async def settled() -> None:
    """Until what can go on without anything from outside has done so."""
    for _ in range(50):
        await asyncio.sleep(0)


# What is answered


@pytest.mark.parametrize("setup", SETUPS)
async def test_pipelined_messages_equal_consecutive_http_requests(setup: str) -> None:
    random_numbers = random.Random(7)
    course: list[tuple[str, list[dict[str, Any]]]] = []
    for i in range(0, 240, 3):
        op = (
            random_numbers.choice(["update", "update", "update", "predict", "served", "labels"]) if i > 60 else "update"
        )
        private = [event(setup, i + k) for k in range(random_numbers.choice([1, 1, 3]))]
        if op == "update":
            private = [{**item, "label": label_of(setup, i + k)} for k, item in enumerate(private)]
        elif op == "predict":
            private = [{key: value for key, value in item.items() if key != "id"} for item in private]
        elif op == "labels":
            private = [{"id": f"e{i - 3}", "label": label_of(setup, i - 3)}]
        course.append(("predict" if op == "served" else op, private))
    async with serving(learners="") as (app, http, _):
        for name in ("a", "b"):
            await http.put(f"/learners/{name}", json=SETUPS[setup])
        expected = []
        for op, private in course:
            reply = await http.post(f"/learners/b/{op}", json={"events": private})
            assert reply.status_code == 200, reply.text
            expected.append(reply.json())
        async with websocket(app, SINGLE) as client:
            client.send(*({"seq": i, "op": op, "events": local} for i, (op, local) in enumerate(course)))
            actual = await client.replies(len(course))
        assert [item["seq"] for item in actual] == list(range(len(course)))
        for got, http_reply in zip(actual, expected, strict=True):
            assert got.keys() == http_reply.keys() | {"seq", "status"}
            # neighbours are one record: what is said of the moment is said of its end
            moment = {"seq", "status", "position", "class_counts", "stale_seconds"}
            assert {k: v for k, v in got.items() if k not in moment} == {
                k: v for k, v in http_reply.items() if k not in moment
            }
        assert (await digest(http, "a"))[1] == (await digest(http, "b"))[1]


def array(values: Any, dtype: str) -> dict[str, Any]:
    """Numbers as MessagePack has them."""
    column = np.asarray(values, dtype=dtype)
    return {"dtype": dtype, "shape": list(column.shape), "data": column.tobytes()}


def columns(count: int, start: int, *, labels: bool = True) -> dict[str, Any]:
    """Return the events as columns."""
    made = events(count, start)
    message = {"labels": array([item["label"] for item in made], "int8")} if labels else {}
    return {"x": array([item["x"] for item in made], "float64"), "ids": [item["id"] for item in made], **message}


async def test_text_and_binary_messages_may_alternate() -> None:
    async with serving(learners="ab") as (app, http, _), websocket(app, SINGLE) as client:
        for k in range(0, 40, 4):
            if k % 8:
                client.send({"seq": k, "op": "update", "events": events(4, k)})
            else:
                client.send({"seq": k, "op": "update", **columns(4, k)}, binary=True)
        client.send({"seq": 40, "op": "predict", **columns(3, 40, labels=False), "ids": None}, binary=True)
        client.send({"seq": 41, "op": "predict", "events": [{"x": item["x"]} for item in events(3, 40)]})
        client.send({"seq": 42, "op": "labels", "ids": ["e0"], "labels": [0], "times": [T0]}, binary=True)
        client.send({"seq": 43, "op": "nothing"}, binary=True)
        seqs = []
        for _ in range(14):
            reply = await client.reply()
            seqs.append(reply["seq"])
            assert client.binary == (reply["seq"] % 8 == 0 or reply["seq"] in (42, 43))
            assert reply.get("code") == ("invalid" if reply["seq"] == 43 else None)
            assert reply["seq"] not in (4, 41) or reply["status"] == 200
            if reply["seq"] == 40:
                scores = np.frombuffer(reply["scores"]["data"], "<f8").tolist()
            elif reply["seq"] == 41:
                assert [result["score"] for result in reply["results"]] == scores
            elif reply["seq"] == 42:
                assert reply["relabelled"] == 1
                assert [reply["statuses"][item] for item in reply["status"]["data"]] == ["relabelled"]
        assert seqs == [*range(0, 40, 4), 40, 41, 42, 43]
        await http.post("/learners/b/update", json={"events": events(40)})
        await http.post("/learners/b/labels", json={"events": [{"id": "e0", "label": 0, "time": T0}]})
        assert (await digest(http, "a"))[1] == (await digest(http, "b"))[1]


def course() -> list[dict[str, Any]]:
    """Messages of every operation in columns, of makes that can be put together and of others."""
    made: list[dict[str, Any]] = []
    for i in range(0, 120, 2):
        local = columns(2, i)
        local["times"] = [T0 + 1000 + i, T0 + 1001 + i]
        if i % 20 == 4:
            local["x"] = array(np.frombuffer(local["x"]["data"]).reshape(2, 3), "float32")
        elif i % 20 == 6:
            local |= {
                "labels": [bool(item) for item in local["labels"]["data"]],
                "weights": array([0.5, 2.0], "float32"),
            }
        elif i % 20 == 8:
            local |= {"ids": array([i, i + 1], "uint64"), "times": array([T0 + 1000 + i, np.nan], "float64")}
        elif i % 20 == 10:
            local["source"] = {"name": "s", "offset": i // 10}
        elif i % 20 == 18:
            local["ids"] = [None, f"e{i - 5}"]  # the second is a duplicate, or a correction
        made.append({"op": "update", **local})
    for i in range(60, 120, 10):
        probe = {
            "op": "predict",
            "x": columns(2, i)["x"],
            "times": array([T0 + 2000 + i, T0 + 2001 + i], "float64"),
        }
        made[i:i] = [
            {**probe, "ids": [f"p{i}", f"q{i}"]},
            {**probe, "ids": array([7, i], "uint64")},
            {**probe, "ids": [None, f"p{i}"], "times": [None, T0 + 2002 + i]},
            probe,
            {**probe, "explain": 1},
            {"op": "labels", "ids": [f"p{i}"], "labels": array([1], "int8"), "times": [T0 + 2003 + i]},
            {"op": "labels", "ids": [f"q{i}"], "labels": array([0], "int8"), "times": [T0 + 2003 + i]},
            {"op": "labels", "ids": ["nobody"], "labels": array([0], "int8"), "times": [T0 + 2003 + i]},
            {"op": "labels", "ids": array([i], "uint64"), "labels": [7]},
            {"op": "update", "x": array([[1, 2]], "float64"), "labels": [1]},
        ]
    return made


async def test_batched_columns_are_answered_like_consecutive_ones() -> None:
    messages = course()
    async with serving(learners="ab", ws_credit=200) as (app, http, engine), websocket(app) as client:
        for seq, message in enumerate(messages):
            client.send({"seq": seq, "learner": "a", **message}, binary=True)
        actual = await client.replies(len(messages))
        expected = []
        for seq, message in enumerate(messages):
            client.send({"seq": seq, "learner": "b", **message}, binary=True)
            expected.append(await client.reply())
        assert sum("code" in item for item in actual) == 12
        moment = {"position": None, "class_counts": None, "stale_seconds": None}
        assert [{**item, **moment} for item in actual] == [{**item, **moment} for item in expected]
        assert (await digest(http, "a"))[1] == (await digest(http, "b"))[1]
        assert engine.get("a").position < engine.get("b").position


async def test_explanations_and_sources_belong_to_their_own_message() -> None:
    async with serving() as (app, http, _), websocket(app) as client:
        client.send(*updates(20, learner="a"))
        probe = {"learner": "a", "op": "predict", "events": [{"x": [1, 0, 1]}]}
        client.send({"seq": 20, **probe}, {"seq": 21, "explain": 2, **probe}, {"seq": 22, **probe})
        source = {"name": "s", "offset": 0}
        for seq in (23, 24):
            client.send(
                {"seq": seq, "learner": "a", "op": "update", "events": events(3, 30, ids=False), "source": source}
            )
        client.send(
            {"seq": 25, "learner": "a", "op": "update", "events": events(1, 40), "source": {**source, "offset": 9}}
        )
        actual = (await client.replies(26))[20:]
        http_reply = (await http.post("/learners/a/predict?explain=2", json={"events": [{"x": [1, 0, 1]}]})).json()
        assert len(actual[1]["results"][0]["explanation"]["features"]) == 2
        assert actual[1]["results"][0].keys() == http_reply["results"][0].keys()
        assert "explanation" not in actual[0]["results"][0]
        assert actual[0]["results"] == actual[2]["results"]
        assert (actual[3]["applied"], actual[4]["duplicate"]) == (3, 3)
        assert (actual[5]["status"], actual[5]["code"]) == (409, "source-gap")


async def test_queued_messages_become_one_record() -> None:
    store = Gated()
    async with serving(store, ws_credit=100) as (app, _, engine), websocket(app, SINGLE) as client:
        before = engine.get("a").position
        gate = store.shut("a")
        client.send(*updates(1))
        await store.waiting.wait()
        for start in (1, 21, 41):  # while the first is being logged
            client.send(*updates(20, start))
            await settled()
        assert client.quiet
        gate.set()
        actual = await client.replies(61)
        assert [item["seq"] for item in actual] == list(range(61))
        assert [item["results"][0]["id"] for item in actual] == [f"e{i}" for i in range(61)]
        assert {(item["applied"], item["duplicate"]) for item in actual} == {(1, 0)}
        assert engine.get("a").position == before + 2


async def test_learners_do_not_block_each_other_and_each_is_answered_in_order() -> None:
    store = Gated()
    async with serving(store, learners="ab") as (app, _, _), websocket(app) as client:
        gate = store.shut("a")
        client.send(*updates(3, learner="a"))
        client.send({"seq": 3, "learner": "a", "op": "predict", "events": [{"x": [1, 1, 1]}]})
        client.send({"seq": 4, "learner": "a", "op": "update", "events": []})  # refused at once, but not out of turn
        client.send(*updates(3, 10, learner="b"))
        assert [reply["seq"] for reply in await client.replies(3)] == [10, 11, 12]
        await settled()
        assert client.quiet
        gate.set()
        actual = await client.replies(5)
        assert [(item["seq"], item["status"]) for item in actual] == [(0, 200), (1, 200), (2, 200), (3, 200), (4, 422)]


async def test_a_predict_uses_exactly_the_updates_before_it() -> None:
    probe = {"events": [{"x": [1.0, 0.5, 1.0]}]}
    async with serving(learners="ab") as (app, http, _), websocket(app, SINGLE) as client:
        http_reply = []
        for i in range(0, 40, 10):
            await http.post("/learners/b/update", json={"events": events(10, i)})
            http_reply.append((await http.post("/learners/b/predict", json=probe)).json()["results"])
        for i in range(0, 40, 10):
            client.send(*updates(10, i), {"seq": 100 + i, "op": "predict", **probe})
        actual = [reply for reply in await client.replies(44) if reply["seq"] >= 100]
        assert [item["results"] for item in actual] == http_reply


async def test_served_events_are_stored_and_counted_per_message() -> None:
    setup = {**DENSE, "late": {"label_ttl": 100.0}}
    x = {"x": [1.0, 0.0, 1.0]}
    served: list[list[dict[str, Any]]] = [
        [{"id": "p", "time": T0 + 1000, **x}],
        [{"id": "p", "time": T0 + 1001, **x}, {"id": "q", "time": T0 + 1002, **x}, {**x}],
        [{"id": "old", "time": T0 - 1e6, **x}, {"id": "new", "time": T0 + 1003, **x}],
        [{**x}],
    ]
    async with serving(learners="") as (app, http, _):
        for name in "ab":
            await http.put(f"/learners/{name}", json=setup)
            await http.post(f"/learners/{name}/update", json={"events": events(20)})
        http_reply = [(await http.post("/learners/b/predict", json={"events": local})).json() for local in served]
        async with websocket(app, SINGLE) as client:
            client.send(*({"seq": i, "op": "predict", "events": local} for i, local in enumerate(served)))
            actual = await client.replies(4)
            client.send(
                {
                    "seq": 4,
                    "op": "labels",
                    "events": [{"id": text, "label": 1, "time": T0 + 1005} for text in ("p", "q", "old", "x")],
                }
            )
            late = await client.reply()
        assert [item["remembered"] for item in http_reply] == [1, 2, 1, 0]
        assert [item["remembered"] for item in actual] == [1, 2, 1, 0]
        assert [result["status"] for result in late["results"]] == ["applied", "applied", "expired", "unknown"]


# What is refused, and the connection goes on


async def test_an_invalid_message_in_a_batch_is_refused_alone() -> None:
    async with serving() as (app, _, engine), websocket(app, SINGLE) as client:
        good = list(updates(6))
        good[2]["events"][0]["label"] = "maybe"
        good[4]["events"].append({"x": [1, 2], "label": 1})
        good[5]["surplus"] = 1
        client.send(*good)
        actual = await client.replies(6)
        assert [item["status"] for item in actual] == [200, 200, 422, 200, 422, 422]
        assert actual[2]["errors"][0]["pointer"] == "/events/0/label"
        assert actual[4]["errors"][0]["pointer"] == "/events/1/x"
        assert actual[5]["errors"][0]["pointer"] == "/surplus"
        assert {"code", "title", "detail", "errors", "seq", "status"} == actual[2].keys()
        assert sum(engine.get("a").view.class_counts.values()) == 3


MALFORMED: list[tuple[str | bytes, int, int | None, str]] = [
    ("", 400, None, ""),
    ("nonsense", 400, None, ""),
    ("[1, 2]", 400, None, ""),
    ('{"seq": 5, "op": "update", "events": [NaN]}', 422, 5, "/events/0"),
    ('{"seq": 5, "op": "update", "events": [{"x": [1, 2 3], "label": 1}]}', 400, 5, ""),
    ('{"seq": 5, "op": "update", "events": [{"x": [1, 2, 3], "label": 1},]}', 400, 5, ""),
    ('{"seq": 5, "op": "update", "events": [,{"x": [1, 2, 3], "label": 1}]}', 400, 5, ""),
    ('{"seq": 5, "op": "update", "events": [{"x": [1, 2, 3}, "label": 1]]}', 400, None, ""),
    ('{"seq": 5, "op": "update", "events": [{"x": [1, NaN, 3], "label": 1}]}', 422, 5, "/events/0/x/1"),
    ('{"seq": 5, "op": "predict", "events": [{"x": [1, 2, -Infinity]}]}', 422, 5, "/events/0/x/2"),
    ('{"seq": 5, "op": "predict", "events": [{"x": [1, 2, 3], "id": "\\ud800"}]}', 422, 5, "/events/0/id"),
    ('{"seq": NaN, "op": "predict", "events": [{}]}', 422, None, "/seq"),
    ("NaN", 400, None, ""),
    ('{"seq": %s, "op": "predict", "events": [{}]}' % ([0] * 1000), 422, None, "/seq"),
    ("{}", 422, None, "/seq"),
    ('{"seq": "1", "op": "update", "events": [{}]}', 422, None, "/seq"),
    ('{"seq": -1, "op": "update", "events": [{}]}', 422, None, "/seq"),
    ('{"seq": true, "op": "update", "events": [{}]}', 422, None, "/seq"),
    ('{"seq": 9007199254740993, "op": "update", "events": [{}]}', 422, None, "/seq"),
    ('{"op": "predict", "events": [{"x": [1, 2, 3]}]}', 422, None, "/seq"),
    ('{"seq": 5, "events": [{}]}', 422, 5, "/op"),
    ('{"seq": 5, "op": "delete"}', 422, 5, "/op"),
    ('{"seq": 5, "op": ["update"]}', 422, 5, "/op"),
    ('{"seq": 5, "op": "predict"}', 422, 5, "/events"),
    ('{"seq": 5, "op": "predict", "events": []}', 422, 5, "/events"),
    ('{"seq": 5, "op": "predict", "events": {}}', 422, 5, "/events"),
    ('{"seq": 5, "op": "predict", "events": [{"x": [1, 2, 3]}], "explain": 0}', 422, 5, "/explain"),
    ('{"seq": 5, "op": "labels", "events": [{"id": "a", "label": 1}], "explain": 1}', 422, 5, "/explain"),
    ('{"seq": 5, "op": "update", "learner": "a", "events": [{}]}', 422, 5, "/learner"),
    ('{"seq": 5, "op": "update", "learner": 7, "events": [{}]}', 422, 5, "/learner"),
    ('{"seq": 5, "op": "predict", "events": [{"x": [1, 2, 3]}], "a/b": 0}', 422, 5, "/a~1b"),
    ('{"seq": 5, "op": "update", "events": ' + "[" * 100_000, 400, None, ""),
    ('{"seq": 5, "op": "update", "events": [' + "[" * 100_000 + "]" * 100_000 + "]}", 400, None, ""),
    ('{"seq": 5, "op": "update", "learner": "\\ud800", "events": [{}]}', 422, 5, "/learner"),
    (b"\x91" * 100_000, 400, None, ""),
    (b"\x82\xa3seq\x05\xa6source" + b"\x91" * 100_000 + b"\xc0", 400, None, ""),
    (b"", 400, None, ""),
    (b"\xc1", 400, None, ""),
    (b"\x93\x01\x02\x03", 400, None, ""),
    (b"\x82\xa3seq\x05\xa2op\xa7predict\x00", 400, None, ""),
    (b"\x82\xa3seq\x05\xa2op\xa7predict", 422, 5, "/x"),
    (b"\x82\xa3seq\xa15\xa2op\xa7predict", 422, None, "/seq"),
    (b"\x82\xa3seq\xdc\x10\x00" + b"\x90" * 4096 + b"\xa2op\xa7predict", 422, None, "/seq"),
    (msgspec.msgpack.encode({"seq": 5, "op": "predict", **{str(i): i for i in range(100)}}), 400, None, ""),
    (msgspec.msgpack.encode({"seq": 5, "op": "labels", "ids": ["a", []], "labels": [1, 1]}), 422, 5, "/ids/1"),
    (msgspec.msgpack.encode({"seq": 5, "op": "labels", "ids": [[]] * 200_000}), 422, 5, "/ids"),
]


async def test_decoded_queued_messages_count_towards_the_limit() -> None:
    store = Gated()
    async with serving(store) as (app, _, _), websocket(app, SINGLE) as client:
        gate = store.shut("a")
        client.send(*updates(1))
        await store.waiting.wait()
        ids = [""] * 1000
        client.send({"seq": 7, "op": "labels", "ids": ids, "labels": array([1] * 1000, "int8")}, binary=True)
        client.send({"seq": 8, "op": "predict", "events": [0] * 1000})
        await settled()
        assert app.state.bodies.bytes > 2 * 1000 * sys.getsizeof("")
        gate.set()
        assert [reply["status"] for reply in await client.replies(3)] == [200, 422, 422]
        assert app.state.bodies.bytes == 0


ROWS: list[tuple[dict[str, Any], str]] = [
    ({"shape": [-2, -3]}, "/x/shape"),
    ({"shape": [0, 3]}, "/x/data"),
    ({"shape": []}, "/x/shape"),
    ({"shape": [2, 4]}, "/x/data"),
    ({"shape": [3, 2]}, "/x/shape"),
    ({"dtype": "int32"}, "/x/dtype"),
    ({"data": b""}, "/x/data"),
]
for other, where in ROWS:
    x = {"dtype": "float64", "shape": [2, 3], "data": bytes(48), **other}
    MALFORMED.append((msgspec.msgpack.encode({"seq": 5, "op": "predict", "x": x}), 422, 5, where))


@pytest.mark.parametrize(
    ("message", "status", "seq", "where"), MALFORMED, ids=[str(item[0])[:50] for item in MALFORMED]
)
async def test_a_malformed_message_does_not_affect_the_next_one(
    message: str | bytes, status: int, seq: int | None, where: str
) -> None:
    async with serving() as (app, _, engine), websocket(app, SINGLE) as client:
        client.send(message, *updates(1))
        refused, good = await client.replies(2)
        assert (refused["status"], refused["seq"]) == (status, seq)
        assert refused["code"] == {400: "bad-body", 422: "invalid"}[status]
        assert where in [error["pointer"] for error in refused["errors"]] or not where
        assert (good["status"], good["seq"]) == (200, 0)
        assert engine.get("a").position == 2


async def test_unsupported_explanations_are_refused() -> None:
    async with serving() as (app, _, _), websocket(app, SINGLE) as client:
        client.send({"seq": 5, "op": "labels", "events": [{"id": "a", "label": 1}], "explain": 2})
        (problem,) = (await client.reply())["errors"]
        assert (problem["pointer"], problem["code"]) == ("/explain", "unknown")


async def test_a_connection_for_all_learners_needs_a_name_in_each_message() -> None:
    async with serving(learners="ab") as (app, _, _), websocket(app) as client:
        client.send(*updates(1), *updates(1, 1, learner="nobody"), *updates(1, 2, learner="b"))
        missing, unknown, good = await client.replies(3)
        assert (missing["status"], missing["errors"][0]["pointer"]) == (422, "/learner")
        assert (unknown["status"], unknown["code"]) == (404, "unknown-learner")
        assert (good["status"], good["seq"]) == (200, 2)


@pytest.mark.parametrize("name", ["", "no body", "a/b", "../a", "x" * 101, "x" * 100_000], ids=lambda name: name[:9])
async def test_an_invalid_name_is_reported_briefly_at_its_member(name: str) -> None:
    async with serving() as (app, _, _), websocket(app) as client:
        client.send(*updates(1, learner=name), *updates(1, 1, learner="a"))
        refused, good = await client.replies(2)
        assert (refused["seq"], refused["status"], refused["code"]) == (0, 422, "invalid")
        assert [error["pointer"] for error in refused["errors"]] == ["/learner"]
        assert len(str(refused)) < 600
        assert (good["status"], good["seq"]) == (200, 1)


async def test_messages_beyond_the_capacity_are_refused_with_a_retry_after() -> None:
    store = Gated()
    async with (
        serving(store, queue_bytes=1024, max_buffered_bytes=2048) as (app, _, _),
        websocket(app, SINGLE) as client,
    ):
        gate = store.shut("a")
        client.send(*updates(1))
        await store.waiting.wait()
        for i in (1, 2, 3):  # each a batch of its own
            client.send(*updates(1, i))
            await settled()
        client.send({"seq": 4, "op": "update", "events": events(40, 100)})  # beyond the node's bound of what it holds
        gate.set()
        actual = await client.replies(5)
        assert [(item["seq"], item["status"]) for item in actual] == [(0, 200), (1, 200), (2, 429), (3, 429), (4, 429)]
        assert {item["retry_after"] for item in actual[2:]} == {1}
        client.send({"seq": 5, "op": "update", "events": events(40, 100)})  # nothing else is held any more
        assert (await client.reply())["applied"] == 40


async def test_without_a_store_predict_works_and_update_reports_the_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as (app, _, engine), websocket(app, SINGLE) as client:

        async def away(*_: object) -> None:
            raise StoreUnavailable("the store is away")

        client.send(*updates(3))
        await client.replies(3)
        with monkeypatch.context() as patch:
            patch.setattr(engine.node.store, "append", away)
            client.send(*updates(2, 3), {"seq": 5, "op": "predict", "events": [{"x": [1, 1, 1]}]})
            actual = await client.replies(3)
        assert [item["status"] for item in actual] == [503, 503, 200]
        assert actual[0]["retry_after"] == 1
        client.send(*updates(2, 3))
        assert [reply["applied"] for reply in await client.replies(2)] == [1, 1]


# How a connection begins and ends


async def test_the_hello_message_contains_credit_and_size_limit() -> None:
    async with serving(ws_credit=5, ws_message_bytes=4096) as (app, _, _), websocket(app, greeted=False) as client:
        assert (await client.event())["type"] == "websocket.accept"
        assert await client.reply() == {"type": "hello", "credit": 5, "max_bytes": 4096}


async def test_exceeding_the_credit_disconnects_and_keeps_granted_updates() -> None:
    store = Gated()
    async with serving(store, ws_credit=4) as (app, _, engine), websocket(app, SINGLE) as client:
        for i in range(0, 8, 4):  # a full window is no more than granted
            client.send(*updates(4, i))
            await client.replies(4)
        gate = store.shut("a")
        client.send(*updates(5, 8))
        assert (await client.closed())[0] == 1008
        gate.set()
        learner = engine.get("a")
        with learner.mailbox.watch() as changed:
            while sum(learner.view.class_counts.values()) < 12:
                await asyncio.wait_for(changed.wait(), 300)
                changed.clear()
        await settled()
        assert client.quiet
        assert sum(learner.view.class_counts.values()) == 12
        assert app.state.bodies.bytes == 0


async def test_a_seq_may_be_reused_after_its_reply() -> None:
    store = Gated()
    async with serving(store) as (app, _, _), websocket(app, SINGLE) as client:
        for i in range(3):
            client.send({"seq": 0, "op": "update", "events": events(1, i)})
            assert (await client.reply())["applied"] == 1
        gate = store.shut("a")
        client.send(*updates(2, 3), *updates(1, 3))
        assert (await client.closed())[0] == 1008
        gate.set()


async def test_received_messages_are_learnt_after_a_disconnect() -> None:
    async with serving() as (app, http, _):
        async with websocket(app, SINGLE) as client:
            client.send(*updates(30), {"seq": 30, "op": "predict", "events": [{"id": "p", "x": [1, 1, 1]}]})
            client.leave()
        assert client.quiet
        document = (await http.get("/learners/a")).json()
        assert document["events"] == 30


@pytest.mark.parametrize("path", ["/v1/learners/nobody/ws", "/v1/learners/no%20body/ws", "/v1/learners/@a/ws"])
async def test_a_connection_to_a_missing_learner_is_closed(path: str) -> None:
    async with serving() as (app, _, _), websocket(app, path, greeted=False) as client:
        assert (await client.event())["type"] == "websocket.accept"
        code, reason = await client.closed()
        assert code == NO_LEARNER
        assert len(reason.encode()) <= 123


async def test_a_learner_is_deleted_during_a_connection() -> None:
    store = Gated()
    async with (
        serving(store, learners="ab") as (app, http, _),
        websocket(app) as every,
        websocket(app, SINGLE) as client,
    ):
        gate = store.shut("a")
        client.send(*updates(2))
        await store.waiting.wait()
        await settled()
        deleting = asyncio.create_task(http.delete("/learners/a"))
        await settled()
        gate.set()
        await deleting
        first, second = await client.replies(2)
        assert (first["status"], second["status"]) == (404, 404)
        assert (await client.closed())[0] == NO_LEARNER
        every.send(*updates(1, learner="a"), *updates(1, 1, learner="b"))
        actual = await every.replies(2)
        assert [(item["seq"], item["status"]) for item in actual] == [(0, 404), (1, 200)]


async def test_a_node_still_loading_its_learners_asks_to_retry() -> None:
    async with serving(learners="") as (app, _, engine):
        engine.registry.ready = False
        async with websocket(app, SINGLE, greeted=False) as client:
            assert (await client.event())["type"] == "websocket.accept"
            assert (await client.closed())[0] == 1013


async def test_connections_are_counted_and_limited() -> None:
    async with serving(ws_connections=2) as (app, http, _):

        async def counted() -> str:
            text = (await http.get("http://rarestream/metrics")).text
            return next(line for line in text.splitlines() if line.startswith("rarestream_websockets "))

        assert await counted() == "rarestream_websockets 0.0"
        async with websocket(app, SINGLE), websocket(app):
            assert await counted() == "rarestream_websockets 2.0"
            async with websocket(app, greeted=False) as client:
                assert (await client.event())["type"] == "websocket.accept"
                assert (await client.closed())[0] == 1013
        assert await counted() == "rarestream_websockets 0.0"
        async with websocket(app):
            assert await counted() == "rarestream_websockets 1.0"


@pytest.mark.parametrize(
    ("origin", "accepted"),
    [
        (b"http://rarestream:8000", True),
        (b"http://elsewhere", False),
        (b"null", False),
        (b"http://[x", False),  # no URL
        (b"http://rarestream:8000\xe2\x84\x80", False),
    ],
)
async def test_pages_of_other_origins_are_refused(origin: bytes, accepted: bool) -> None:
    headers = [(b"host", b"rarestream:8000"), (b"origin", origin)]
    async with serving() as (app, _, _), websocket(app, SINGLE, headers, greeted=False) as client:
        assert (await client.event())["type"] == ("websocket.accept" if accepted else "websocket.close")


async def test_shutdown_answers_received_messages_and_says_goodbye() -> None:
    store = Gated()
    async with serving(store) as (app, _, engine), websocket(app, SINGLE) as client, websocket(app) as idle:
        gate = store.shut("a")
        client.send(*updates(3))
        await store.waiting.wait()
        app.state.closing.set()
        stopping = asyncio.create_task(app.state.close_websockets(60))
        await settled()
        client.send(*updates(1, 3))  # too late
        assert (await idle.closed())[0] == 1001
        async with websocket(app, greeted=False) as late:
            assert (await late.event())["type"] == "websocket.accept"
            assert (await late.closed())[0] == 1001
        gate.set()
        await stopping
        assert [reply["applied"] for reply in await client.replies(3)] == [1, 1, 1]
        assert (await client.closed())[0] == 1001
        assert sum(engine.get("a").view.class_counts.values()) == 3


async def test_shutdown_does_not_wait_forever(caplog: pytest.LogCaptureFixture) -> None:
    store = Gated()
    async with serving(store) as (app, _, _), websocket(app, SINGLE) as client:
        gate = store.shut("a")
        client.send(*updates(3))
        await store.waiting.wait()
        await app.state.close_websockets(0.01)
        ((unanswered,),) = logged_data(caplog, "rarestream.sockets", "WARNING")
        assert str(unanswered).split()[0] == "3"
        gate.set()


async def test_an_internal_error_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("faulty")

    monkeypatch.setattr(learner_queue, "join_body", broken)
    async with serving() as (app, _, _):
        async with websocket(app, SINGLE) as client:
            client.send(*updates(2))
            code, reason = await client.closed()
            assert (code, "logged" in reason) == (1011, True)
            assert "RuntimeError: faulty" in caplog.text
        assert app.state.bodies.bytes == 0


async def test_held_memory_is_released_once_despite_a_connection_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Gated()
    async with serving(store) as (app, _, engine):
        gate = store.shut("a")

        async def broken() -> None:
            async with websocket(app, SINGLE) as client:
                client.send(*updates(3))
                await store.waiting.wait()
                await settled()
                assert app.state.bodies.bytes > 0
                monkeypatch.delattr(connection, "read")
                client.send(*updates(1, 3))

        with pytest.raises(NameError):
            await broken()
        assert app.state.bodies.bytes == 0
        learner = engine.get("a")
        with learner.mailbox.watch() as changed:
            gate.set()
            while sum(learner.view.class_counts.values()) < 3:
                await asyncio.wait_for(changed.wait(), 300)
                changed.clear()
        await settled()
        assert not learner.users  # each message has had its answer
        assert app.state.bodies.bytes == 0


@pytest.mark.parametrize("path", ["/v1/ws", SINGLE])
async def test_websockets_work_under_a_root_path(path: str) -> None:
    async with serving() as (app, _, _), websocket(app, f"/under/here{path}", root="/under/here") as client:
        client.send(*updates(1, **({} if path == SINGLE else {"learner": "a"})))
        assert (await client.reply())["applied"] == 1


@pytest.mark.parametrize("path", ["/v1/ws", SINGLE, "/v1/learners/nobody/ws"])
@pytest.mark.parametrize(("query", "pointer"), [(b"b/c=1", "/b~1c"), (b"%C3%A9", "/\u00e9")])
async def test_a_query_parameter_is_refused_and_named(path: str, query: bytes, pointer: str) -> None:
    async with serving() as (app, _, _), websocket(app, path, query=query, greeted=False) as client:
        assert (await client.event())["type"] == "websocket.accept"
        code, reason = await client.closed()
        assert (code, reason.split()[0]) == (1008, pointer)
        assert not app.state.websockets


async def test_other_paths_accept_no_websockets() -> None:
    path = "/v1/learners/a/other"
    async with serving() as (app, _, _), websocket(app, path, greeted=False) as client:
        assert (await client.closed())[0] == 1008


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        ("/v1/learners/a/other", [], 404, "not-found"),
        (SINGLE, [(b"origin", b"http://elsewhere")], 403, "foreign-origin"),
    ],
)
async def test_a_capable_server_refuses_a_websocket_with_a_reason(
    path: str, headers: list[tuple[bytes, bytes]], status: int, code: str
) -> None:
    request = [*headers, (b"x-request-id", b"mine")]
    async with (
        serving() as (app, _, _),
        websocket(app, path, request, extensions=["websocket.http.response"], greeted=False) as client,
    ):
        start, body = await client.event(), await client.event()
        assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
        assert dict(start["headers"])[b"content-type"] == b"application/problem+json"
        document = msgspec.json.decode(body["body"])
        assert (document["code"], document["status"], document["request_id"]) == (code, status, "mine")


@pytest.mark.parametrize("path", ["/v1/ws", SINGLE])
async def test_a_request_without_an_upgrade_gets_426_with_an_explanation(path: str) -> None:
    async with serving() as (_, http, _):
        reply = await http.get(path.removeprefix("/v1"))
        assert (reply.status_code, reply.headers["content-type"]) == (426, "application/problem+json")
        assert reply.headers["upgrade"] == "websocket"
        assert reply.json()["code"] == "upgrade-required"
        assert reply.json()["request_id"] == reply.headers["x-request-id"]
        assert (await http.post(path.removeprefix("/v1"))).status_code == 404
