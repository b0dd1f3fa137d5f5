"""The live metrics over HTTP: their history, curves, alarms, and the stream of them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect

from learners.metrics.alarm_life import KINDS
from service.api.sse import LEARNER_PACE, learner_news, parsed_id, stream
from service.engine.replica.learner_replica import LearnerReplica
from service.storage.memory import MemoryStore
from service.storage.store_protocol import Store
from tests.harness.nodes import T0, app_over, fetched, node, over, posted, serving
from tests.harness.process import Process
from tests.harness.waiting import eventually_async
from tests.service.engine.replica.test_served_events import SETUPS, event, labelled

pytestmark = pytest.mark.integration

STEP = 64  # events between two rows of the history
DENSE = SETUPS["dense"]


async def history(http: httpx.AsyncClient, **query: Any) -> dict[str, Any]:
    return await fetched(http, "/learners/a/metrics/history", **query)


DRIFTED = 21 * 512  # events that `drifted` serves


async def drifted(http: httpx.AsyncClient, name: str = "a") -> None:
    """Serve as many events as the detector wants, then others with much higher scores: an alarm."""
    await posted(http, f"/learners/{name}/update", labelled("dense", 0, 50))
    for start in range(0, DRIFTED, 512):
        moved = 50.0 if start == DRIFTED - 512 else 0.0
        request = [
            {"id": f"d{i}", "x": [i * 7 % 11 / 11 + moved, 0.5, 0.5], "time": T0 + i} for i in range(start, start + 512)
        ]
        await posted(http, f"/learners/{name}/predict", request)


# History


async def test_the_history_has_a_row_per_stride_and_survives_a_crash(store: Store) -> None:
    async with serving(store) as (http, _):
        await http.put("/learners/a", json=DENSE)
        for start in range(0, 400, 40):
            await posted(http, "/learners/a/update", labelled("dense", start, start + 40))
        whole = await history(http)
    assert whole["by"] == "clock"
    points = whole["points"]
    assert [point["events"] for point in points] == [STEP * n for n in range(1, 7)]
    assert [point["clock"] for point in points] == [T0 + 10 * (STEP * n - 1) for n in range(1, 7)]
    assert all(set(point) == set(whole["columns"]) for point in points)
    async with serving(store) as (http, _):
        assert await history(http) == whole
        middle = points[1:4]
        assert (await history(http, by="events", **{"from": 128, "to": 256}))["points"] == middle
        assert (await history(http, **{"from": T0 + 1270, "to": T0 + 2559}))["points"] == middle
        assert (await history(http, by="events", step=128))["points"] == points[1::2]  # the last of each
        assert (await history(http, by="events", **{"from": 1e6}))["points"] == []


async def test_a_history_row_is_independent_of_batching(store: Store) -> None:
    async with serving(store) as (http, _):
        for name, size in (("a", 400), ("b", 1)):
            for setup in ("dense", "ordinal"):
                await http.put(f"/learners/{setup}-{name}", json=SETUPS[setup])
                seen = labelled(setup, 0, 150)
                for start in range(0, 150, size):
                    await posted(http, f"/learners/{setup}-{name}/update", seen[start : start + size])
        for setup in ("dense", "ordinal"):
            actual = [(await http.get(f"/learners/{setup}-{name}/metrics/history")).json() for name in "ab"]
            assert actual[0] == actual[1]


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"step": 0}, "step"),
        ({"step": -1}, "step"),
        ({"by": "age"}, "by"),
        ({"from": "now"}, "from"),
        ({"step": "nan"}, "step"),
    ],
)
async def test_an_invalid_query_is_refused(query: dict[str, Any], pointer: str) -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/update", labelled("dense", 0, 130))
        reply = await http.get("/learners/a/metrics/history", params=query)
        assert reply.status_code == 422
        assert [error["pointer"] for error in reply.json()["errors"]] == [f"/{pointer}"]


async def test_without_times_the_history_axis_is_events() -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=DENSE)
        bare = [{name: value for name, value in item.items() if name != "time"} for item in labelled("dense", 0, 130)]
        await posted(http, "/learners/a/update", bare)
        actual = await history(http)
        assert actual["by"] == "events"
        assert [(point["events"], point["clock"]) for point in actual["points"]] == [(64, None), (128, None)]
        assert (await history(http, by="clock", **{"from": 0}))["points"] == []


# Curves and alarms


async def test_curves_of_the_window(store: Store) -> None:
    async with serving(store) as (http, _):
        await http.put("/learners/a", json=DENSE)
        assert (await http.get("/learners/a/metrics/curves")).status_code == 200
        await posted(http, "/learners/a/update", labelled("dense", 0, 300))
        curves = (await http.get("/learners/a/metrics/curves", params={"points": 20})).json()
        figures = (await http.get("/learners/a/metrics")).json()["window"]
        roc = curves["roc"]
        assert len(roc["fpr"]) == len(roc["tpr"]) <= 20
        assert (roc["fpr"][0], roc["tpr"][0], roc["fpr"][-1], roc["tpr"][-1]) == (0, 0, 1, 1)
        assert curves["confusion"] == figures["confusion"]
        assert sum(curves["histogram"]["negative"]) == 240
        assert sum(curves["histogram"]["positive"]) == 60
        for bad in ("1", "2001", "x"):
            assert (await http.get("/learners/a/metrics/curves", params={"points": bad})).status_code == 422
        await http.put("/learners/ranks", json=SETUPS["ordinal"])
        await posted(http, "/learners/ranks/update", labelled("ordinal", 0, 30))
        curves = (await http.get("/learners/ranks/metrics/curves")).json()
        assert sum(map(sum, curves["confusion"])) == 30


async def test_alarms_are_listed_and_survive_a_crash(store: Store) -> None:
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=DENSE)
        assert (await http.get("/learners/a/alarms")).json() == {
            "counts": dict.fromkeys(KINDS, 0),
            "open": dict.fromkeys(KINDS, 0),
            "alarms": [],
            "cursor": None,
        }
        await drifted(http)
        await engine.get("a").log.catch_up()
        document = (await http.get("/learners/a/alarms")).json()
        assert document["counts"] == {**dict.fromkeys(KINDS, 0), "scores": 1}
        (alarm,) = document["alarms"]
        assert (alarm["number"], alarm["kind"], alarm["events"], alarm["clock"]) == (0, "scores", 50, T0 + DRIFTED - 1)
        assert (await http.get("/learners/a/alarms", params={"since": 1})).json()["alarms"] == []
        assert (await http.get("/learners/a/alarms", params={"since": -1})).status_code == 422
    async with serving(store) as (http, _):
        assert (await http.get("/learners/a/alarms")).json() == document


# The stream, from within


def _parsed(text: bytes) -> tuple[str, str, Any]:
    lines = dict(line.split(": ", 1) for line in text.decode().strip().splitlines())
    return lines["event"], lines["id"], json.loads(lines["data"])


class Reader:
    """Reads one stream of a learner in this process."""

    def __init__(self, learner: LearnerReplica, since: str | None = None) -> None:
        self.closing = asyncio.Event()
        self.last = since
        news = learner_news(learner, parsed_id(since) if since else None)
        self._events: AsyncIterator[bytes] = stream(news, LEARNER_PACE, self.closing)

    async def next(self) -> tuple[str, Any]:
        async with asyncio.timeout(300):
            kind, self.last, data = _parsed(await anext(self._events))
            return kind, data

    async def until(self, kind: str) -> list[tuple[str, Any]]:
        """Everything up to the next event of a kind."""
        actual = [await self.next()]
        while actual[-1][0] != kind:
            actual.append(await self.next())
        return actual


async def test_a_reconnecting_reader_misses_no_events(store: Store) -> None:
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/update", labelled("dense", 0, 100))
        replica = engine.get("a")
        first = Reader(replica)
        kind, figures = await first.next()
        assert (kind, figures["events"], figures["position"]) == ("figures", 100, replica.position)
        assert figures == (await http.get("/learners/a/metrics")).json()
        assert first.last == "0.1.0.0"
        await posted(http, "/learners/a/update", labelled("dense", 100, 150))
        assert [item for item, _ in await first.until("figures")] == ["point", "figures"]
        assert first.last == "0.2.0.0"
        await first._events.aclose()
        await posted(http, "/learners/a/update", labelled("dense", 150, 400))
        await drifted(http)
        await replica.log.catch_up()
        again = Reader(replica, first.last)
        actual = await again.until("figures")
        rows = (400 + DRIFTED) // STEP  # events learnt, and served
        assert again.last == f"0.{rows}.1.1"
        points = (await history(http))["points"]  # all that stand: rows of long ago are thinned
        missed = [point for point in points if point["events"] + point["served"] > 2 * STEP]
        assert len(missed) > 64
        assert [item for item, _ in actual] == ["point"] * len(missed) + ["alarm", "changes", "figures"]
        assert [data for kind, data in actual if kind == "point"] == missed
        assert [data for kind, data in actual if kind == "alarm"] == (await http.get("/learners/a/alarms")).json()[
            "alarms"
        ]
        from_the_start = await Reader(replica, "0.0.0").until("figures")
        assert len(from_the_start) == len(points) + 3


async def test_points_of_served_events_arrive_without_learning(store: Store) -> None:
    """Whoever reconnects after any of them gets the rest, and none twice, though no labelled event came between."""
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/update", labelled("dense", 0, 50))
        replica = engine.get("a")
        first = Reader(replica)
        assert (await first.next())[0] == "figures"
        assert first.last == "0.0.0.0"
        for start in (0, 90):  # a record with a row inside, and then one with several
            request = [event("dense", 100 + i) for i in range(start, 5 * start + 90)]
            await posted(http, "/learners/a/predict", request)
            await replica.log.catch_up()
            actual = await first.until("figures")
            assert {kind for kind, _ in actual[:-1]} == {"point"}
        points = (await history(http))["points"]
        steps = [(50, STEP * i - 50) for i in range(1, (50 + 540) // STEP + 1)]
        assert [(point["events"], point["served"]) for point in points] == steps
        assert [point["clock"] for point in points] == [T0 + 10 * (100 + served - 1) for _, served in steps]
        assert first.last == f"0.{len(steps)}.0.0"
        for number in range(len(steps) + 1):
            missed = await Reader(replica, f"0.{number}.0").until("figures")
            assert [data for _, data in missed[:-1]] == points[number:]
    async with serving(store) as (http, engine):  # the same after a crash
        assert (await history(http))["points"] == points
        again = await Reader(engine.get("a"), "0.3.0").until("figures")
        assert [data for _, data in again[:-1]] == points[3:]


async def test_a_rollback_is_sent_as_a_reset() -> None:
    async with serving(MemoryStore()) as (http, engine):
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/update", labelled("dense", 0, 70))
        position = (await http.post("/learners/a/snapshots")).json()["position"]
        await posted(http, "/learners/a/update", labelled("dense", 70, 200))
        reader = Reader(engine.get("a"), "0.0.0")
        await reader.until("figures")
        await http.post(f"/learners/a/snapshots/{position}/restore")
        actual = await reader.until("figures")
        assert actual[0] == ("reset", {})
        assert [data["events"] for kind, data in actual if kind == "point"] == [64]
        assert (actual[-1][0], actual[-1][1]["events"], reader.last) == ("figures", 70, "1.1.0.1")
        # who was away meanwhile is told as well, though as many events have come since
        await posted(http, "/learners/a/update", labelled("dense", 70, 250))
        late = await Reader(engine.get("a"), "0.3.0").until("figures")
        assert [kind for kind, _ in late] == ["reset", "point", "point", "point", "figures"]


async def test_the_stream_of_a_deleted_learner_ends() -> None:
    async with serving(MemoryStore()) as (http, engine):
        await http.put("/learners/a", json=DENSE)
        reader = Reader(engine.get("a"))
        await reader.next()
        await http.delete("/learners/a")
        assert (await reader.until("gone"))[-1][1]["code"] == "unknown-learner"
        with pytest.raises(StopAsyncIteration):
            await anext(reader._events)


async def test_the_stream_of_a_failed_learner_ends() -> None:
    store = MemoryStore()
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=DENSE)
        replica = engine.get("a")
        reader = Reader(replica)
        await reader.next()
        await store.append("a", replica.birth, [(b"t" * 16, b"rubbish")], 1)
        assert (await http.post("/learners/a/update", json={"events": labelled("dense", 0, 1)})).status_code == 500
        assert (await reader.until("gone"))[-1][1]["code"] == "damaged"


@pytest.mark.parametrize(
    "bad", ["x", "1", "1.2", "1.2.3.4.5", "-1.0.0", "1.0.", "..", "1.0.x", "\u0661.0.0", "1e3.0.0"]
)
async def test_an_invalid_last_event_id_is_refused(bad: str) -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=DENSE)
        headers = {"last-event-id": bad.encode()}
        reply = await http.get("/learners/a/metrics/stream", headers=headers)  # type: ignore[arg-type]
        assert reply.status_code == 422
        assert [error["pointer"] for error in reply.json()["errors"]] == ["/last-event-id"]
        assert (await http.get("/learners/none/metrics/stream")).status_code == 404


async def test_the_number_of_streams_is_bounded() -> None:
    async with node(MemoryStore(), max_streams=2) as engine, over(engine) as setup:
        await setup.put("/learners/a", json=DENSE)
        app = app_over(engine)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://rarestream/v1") as http:
            path = "/learners/a/metrics/stream"
            open_ = [asyncio.create_task(http.get(path)) for _ in range(2)]
            await eventually_async(lambda: app.state.streams == 2)
            refused = await http.get(path)
            assert (refused.status_code, refused.json()["code"]) == (429, "too-many-streams")
            assert int(refused.headers["retry-after"]) >= 1
            open_[0].cancel()
            await asyncio.wait([open_[0]])
            assert app.state.streams == 1
            app.state.closing.set()
            reply = await open_[1]
            assert reply.headers["content-type"].startswith("text/event-stream")
            assert _parsed(reply.content)[0] == "figures"
            assert app.state.streams == 0


async def test_an_immediately_closed_connection_is_not_counted() -> None:
    async with node(MemoryStore()) as engine, over(engine) as http:
        await http.put("/learners/a", json=DENSE)
        app = app_over(engine)

        async def leave(_: Any) -> None:
            raise OSError("the connection is closed")

        async def waiting() -> Any:
            await asyncio.Event().wait()

        path = "/v1/learners/a/metrics/stream"
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
        scope |= {"headers": [], "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1"}
        with pytest.raises(ClientDisconnect):
            await app({**scope, "scheme": "http", "server": ("rarestream", 80)}, waiting, leave)
        assert app.state.streams == 0


# The stream, of a server


def test_a_stopping_server_ends_its_streams(tmp_path: Path) -> None:
    with Process(f"sqlite:///{tmp_path / 'log.db'}", tmp_path / "server.log") as service:
        url = f"{service.url}/v1/learners/a"
        with httpx.Client(timeout=300, trust_env=False) as http:
            http.put(url, json=DENSE).raise_for_status()
            http.post(f"{url}/update", json={"events": labelled("dense", 0, 100)}).raise_for_status()
            lines: list[str] = []
            whole = {"last-event-id": "0.0.0"}
            first_point, ended = threading.Event(), threading.Event()

            def read() -> None:
                with httpx.stream("GET", f"{url}/metrics/stream", headers=whole, timeout=300, trust_env=False) as reply:
                    for line in reply.iter_lines():
                        lines.append(line)
                        if line.startswith("data") and lines[-2] == "event: figures":
                            first_point.set()
                ended.set()

            thread = threading.Thread(target=read)
            thread.start()
            assert first_point.wait(300)
            began = time.monotonic()
            service.stop()
            assert ended.wait(300)
            thread.join()
        assert time.monotonic() - began < 120
        assert [line for line in lines if line.startswith("event")] == ["event: point", "event: figures"]
        service.start()  # what it was stopped with is there, and a client goes on where it was
        with httpx.Client(timeout=300, trust_env=False) as http:
            http.post(f"{url}/update", json={"events": labelled("dense", 100, 200)}).raise_for_status()
            last = next(line for line in reversed(lines) if line.startswith("id: "))[4:]
            with http.stream("GET", f"{url}/metrics/stream", headers={"last-event-id": last}) as reply:
                actual = reply.iter_lines()
                assert [next(actual) for _ in range(2)] == ["id: 0.2.0.0", "event: point"]


# Explanations


@pytest.mark.parametrize("setup", ["dense", "table", "named", "sparse", "embedded"])
async def test_an_explanation_adds_up_to_the_served_score(setup: str) -> None:
    async with serving(MemoryStore()) as (http, engine):
        free = {"objective": "f1", "cautious": False}  # no decision depends on those of other events
        await http.put("/learners/a", json={**SETUPS[setup], "threshold": free})
        await posted(http, "/learners/a/update", labelled(setup, 0, 60))
        request = [event(setup, i) for i in range(60, 70)]
        plain = await posted(http, "/learners/a/predict", request)
        for k in (1, 2, 1000):
            message = await posted(http, f"/learners/a/predict?explain={k}", request)
            assert message["remembered"] == 10
            for result, bare in zip(message["results"], plain["results"], strict=True):
                why = result.pop("explanation")
                assert result == bare
                parts = [feature["contribution"] for feature in why["features"]]
                assert why["intercept"] + sum(parts) + why["rest"] == pytest.approx(result["score"], abs=1e-9)
                assert len(parts) <= k
                assert sorted(map(abs, parts), reverse=True) == [abs(part) for part in parts]
                assert k < 1000 or why["rest"] == 0.0
        await engine.get("a").log.catch_up()
        labels = [{"id": item["id"], "label": 0, "time": T0} for item in request]
        assert (await posted(http, "/learners/a/labels", labels))["applied"] == 10


async def test_explanations_name_features_and_ordinal_learners_have_none() -> None:
    async with serving(MemoryStore()) as (http, engine):
        for setup in ("named", "ordinal"):
            await http.put(f"/learners/{setup}", json=SETUPS[setup])
            await posted(http, f"/learners/{setup}/update", labelled(setup, 0, 60))
        request = {**event("named", 61), "features": {"amount": 0.5, "shop": "s1", "": 3.0, "new": 1.0}}
        message = await posted(http, "/learners/named/predict?explain=10", [request])
        names = [feature["name"] for feature in message["results"][0]["explanation"]["features"]]
        assert len(names) == len(set(names)) == 4
        assert any("amount" in name for name in names)
        assert any("shop" in name for name in names)
        for query in ("0", "-1", "1001", "x", "1.5"):
            reply = await http.post(f"/learners/named/predict?explain={query}", json={"events": [request]})
            assert (reply.status_code, [error["pointer"] for error in reply.json()["errors"]]) == (422, ["/explain"])
        before = engine.get("ordinal").position
        refused = await http.post("/learners/ordinal/predict?explain=1", json={"events": [event("ordinal", 70)]})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
        await engine.get("ordinal").log.catch_up()
        assert engine.get("ordinal").position == before  # nothing was served
