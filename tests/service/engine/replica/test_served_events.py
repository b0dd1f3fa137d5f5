"""Late labels by id: served events are learnt and counted, and each request reports the result of each."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from learners.config import Config
from learners.learner import Learner
from service.storage.memory import MemoryStore
from service.storage.store_protocol import Store
from service.wire import Events
from tests.harness.nodes import T0, digest, posted, replayed, serving
from tests.harness.websocket import Gated

pytestmark = pytest.mark.integration

VECTOR = {"kind": "dense", "dim": 3}
FIELDS = [{"name": "amount", "kind": "numeric"}, {"name": "shop", "kind": "categorical", "categories": 4}]
SETUPS: dict[str, dict[str, Any]] = {
    "dense": {"algorithm": "loam-ada", "features": VECTOR, "window": 500},
    "table": {"algorithm": "cbr", "params": {"capacity": 5}, "features": {"kind": "table", "fields": FIELDS}},
    "named": {"algorithm": "cbr-diag", "features": {"kind": "named", "categorical": ["shop"]}},
    "sparse": {"algorithm": "fofo", "features": {"kind": "sparse", "dim": 50}},
    "ordinal": {"algorithm": "npsvor", "params": {"ranks": 3}, "features": VECTOR},
    "embedded": {"algorithm": "nsauc", "features": VECTOR, "embedding": {"components": 8, "warmup": 30}},
}
EACH = pytest.mark.parametrize("setup", SETUPS)


def label_of(setup: str, i: int) -> int:
    """Return the label: one in five is positive, or of the highest rank."""
    positive = int(i % 5 == 0)
    return 1 + 2 * positive if setup == "ordinal" else positive


def event(setup: str, i: int, **more: Any) -> dict[str, Any]:
    """Return event `i` without its label, 10 s after the one before it."""
    x = [(i % 5 == 0) + (i * 7 % 11) / 11, (i * 3 % 13) / 13, float(i % 2)]
    carried: dict[str, Any] = {"x": x}
    if setup in ("table", "named"):
        carried = {"features": {"amount": x[0], "shop": f"s{i % 3}"}}
    elif setup == "sparse":
        carried = {"indices": [i % 2, 2 + i % 48], "values": x[:2]}
    return {"id": f"e{i}", **carried, "time": T0 + 10 * i, **more}


def labelled(setup: str, start: int, stop: int) -> list[dict[str, Any]]:
    return [event(setup, i, label=label_of(setup, i)) for i in range(start, stop)]


def late(setup: str, start: int, stop: int, delay: float = 3600.0) -> list[dict[str, Any]]:
    """Return the labels of served events, `delay` seconds after them."""
    return [{"id": f"e{i}", "label": label_of(setup, i), "time": T0 + 10 * i + delay} for i in range(start, stop)]


def model_of(learner: Learner) -> dict[str, Any]:
    """Return the arrays that were learnt from features."""
    parts = ("algorithm.", "scaling.", "columns.", "retained.", "embedding.")
    return {name: array for name, array in learner.state().items() if name.startswith(parts)}


def same(first: dict[str, Any], other: dict[str, Any]) -> bool:
    return first.keys() == other.keys() and all(np.array_equal(first[name], other[name]) for name in first)


def library(setup: str, batches: list[list[dict[str, Any]]]) -> Learner:
    """Return a library learner of the same configuration after labelled events in this order."""
    learner = Learner(Config.of(SETUPS[setup]))
    for batch in batches:
        carried = [
            (item["indices"], item["values"]) if setup == "sparse" else item.get("x", item.get("features"))
            for item in batch
        ]
        learner.learn(carried, [item["label"] for item in batch], ids=[item["id"] for item in batch])
    return learner


@EACH
async def test_a_label_learns_the_served_features_and_counts_the_served_score(store: Store, setup: str) -> None:
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=SETUPS[setup])
        first = await posted(http, "/learners/a/update", labelled(setup, 0, 40))
        requests = [event(setup, i) for i in range(40, 60)]
        served = await posted(http, "/learners/a/predict", requests)
        assert served["remembered"] == 20
        second = await posted(http, "/learners/a/update", labelled(setup, 60, 100))
        anonymous = [{name: value for name, value in item.items() if name != "id"} for item in requests]
        now = await posted(http, "/learners/a/predict", anonymous)
        assert [item["score"] for item in now["results"]] != [item["score"] for item in served["results"]]

        answer = await posted(http, "/learners/a/labels", late(setup, 40, 60))
        assert (answer["applied"], answer["position"]) == (20, second["position"] + 1)
        called = "rank" if setup == "ordinal" else "label"
        for prediction, counted in zip(served["results"], answer["results"], strict=True):
            assert counted["status"] == "applied"
            for name in {"score", "probability", "threshold", "rank"} & counted.keys():
                assert counted[name] == prediction[name]
            assert counted.get("decision", counted.get("rank")) == prediction[called]

        figures = (await http.get("/learners/a/metrics")).json()
        results = [item for part in (first, second, answer) for item in part["results"]]
        truth = np.array([label_of(setup, i) for i in [*range(40), *range(60, 100), *range(40, 60)]])
        if setup == "ordinal":
            ranks = np.array([item["rank"] for item in results])
            assert figures["window"]["mae"] == np.abs(ranks - truth).mean()
        else:
            scores = [item["score"] for item in results]
            decisions = np.array([item["decision"] for item in results])
            assert figures["window"]["auc"] == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
            assert figures["window"]["accuracy"] == pytest.approx((decisions == truth).mean(), abs=1e-12)
            assert figures["served"] == {
                "events": 20,
                "labelled": 20,
                "alert_rate": np.mean([item["label"] for item in served["results"]]),
            }
        assert figures["window"]["label_delay_median"] == figures["window"]["label_delay_p90"] == 3600.0
        assert figures["since_start"]["label_delay_median"] == pytest.approx(3600.0, rel=0.01)
        assert figures["window"]["label_coverage"] == figures["since_start"]["label_coverage"] == 1.0
        order = [labelled(setup, 0, 40), labelled(setup, 60, 100), labelled(setup, 40, 60)]
        assert same(model_of(engine.get("a").learner), model_of(library(setup, order)))
        assert await digest(http) == await replayed(store)


@EACH
async def test_batching_of_labels_changes_no_bit(store: Store, setup: str) -> None:
    async def run(name: str, size: int) -> str:
        await http.put(f"/learners/{name}", json=SETUPS[setup])
        for path, events in (
            ("update", labelled(setup, 0, 70)),
            ("predict", [event(setup, i) for i in range(70, 150)]),
            ("labels", late(setup, 70, 140)),
            ("update", labelled(setup, 130, 170)),
            ("predict", [event(setup, i) for i in range(170, 180)]),
        ):
            for start in range(0, len(events), size):
                await posted(http, f"/learners/{name}/{path}", events[start : start + size])
        return (await digest(http, name))[1]

    async with serving(store) as (http, _):
        assert len({await run("all", 1000), await run("some", 7), await run("one", 1)}) == 1


@pytest.mark.parametrize("path", ["labels", "update"])
async def test_one_request_contains_every_status(store: Store, path: str) -> None:
    config = {**SETUPS["dense"], "late": {"label_ttl": 5000.0}}
    async with serving(store) as (http, _):
        await http.put("/learners/a", json=config)
        await posted(http, "/learners/a/predict", [event("dense", 1000)])
        await posted(http, "/learners/a/update", labelled("dense", 1001, 1020))  # e1000 is not too old yet
        await posted(http, "/learners/a/predict", [event("dense", i) for i in (1600, 1601)])  # e1000 is now
        await posted(http, "/learners/a/predict", [event("dense", i) for i in (1602, 1603)])
        await posted(http, "/learners/a/labels", late("dense", 1601, 1602, 0.0))
        before = (await http.get("/learners/a/metrics")).json()
        body: list[dict[str, Any]] = [
            {"id": "e1600", "label": 1, "time": T0 + 16100},
            {"id": "e1601", "label": label_of("dense", 1601), "time": T0 + 16100},
            {"id": "e1002", "label": 1, "time": T0 + 16100},  # learnt with its features, as negative
            {"id": "never", "label": 1, "time": T0 + 16100},
            {"id": "e1000", "label": 1, "time": T0 + 16100},
            {"id": "e1602", "label": 0, "time": T0 + 16100},
            {"id": "e1602", "label": 0, "time": T0 + 16100},  # once more
            {"id": "e1603", "label": 0, "time": T0 + 16100},
            {"id": "e1603", "label": 1, "time": T0 + 16100},  # and at once corrected
        ]
        expected = ["applied", "duplicate", "relabelled", "unknown", "expired"]
        expected += ["applied", "duplicate", "applied", "relabelled"]
        if path == "update":
            body.insert(3, event("dense", 1604, label=1))
            expected.insert(3, "applied")
        answer = await posted(http, f"/learners/a/{path}", body)
        assert [result["status"] for result in answer["results"]] == expected
        assert {name: answer[name] for name in set(expected)} == {name: expected.count(name) for name in set(expected)}
        for result in answer["results"]:
            assert (result["score"] is None) == (result["status"] not in ("applied", "relabelled"))
        after = (await http.get("/learners/a/metrics")).json()
        assert after["corrections"] == before["corrections"] + 2
        assert after["duplicates"] == before["duplicates"] + 2
        assert after["events"] == before["events"] + expected.count("applied")
        corrected = expected.count("relabelled")  # both from negative to positive
        positives = sum(status == "applied" and result["label"] for result, status in zip(body, expected, strict=True))
        assert after["class_counts"]["positive"] == before["class_counts"]["positive"] + positives + corrected
        assert await digest(http) == await replayed(store)


async def test_the_latest_prediction_of_an_id_counts(store: Store) -> None:
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=SETUPS["dense"])
        await posted(http, "/learners/a/update", labelled("dense", 0, 40))
        await posted(http, "/learners/a/predict", [event("dense", 50)])
        await posted(http, "/learners/a/update", labelled("dense", 40, 45))
        twice = [event("dense", 50), {**event("dense", 55), "id": "e50"}]
        predictions = await posted(http, "/learners/a/predict", twice)
        answer = await posted(http, "/learners/a/labels", late("dense", 50, 51))
        assert answer["results"][0]["score"] == predictions["results"][1]["score"] != predictions["results"][0]["score"]
        replica = engine.get("a")
        assert (await store.pending("a", replica.birth)).events == 1
        assert (await http.get("/learners/a/metrics")).json()["served"]["events"] == 1
        events = [labelled("dense", 0, 45), [{**event("dense", 55, label=1), "id": "e50"}]]
        assert same(model_of(replica.learner), model_of(library("dense", events)))


async def test_ids_may_be_any_text_or_integer(store: Store) -> None:
    names = ["a b", "\u00e9", "e\u0301", "\u65e5\u672c", "\U0001f980", "\ufb00", "ff", "%00", "@g", "'; --", "x" * 256]
    names += ["\U0001d4b3", "\u05d0", "0", "a/b", '"', "\\", "\u0131" * 256]
    async with serving(store) as (http, _):
        await http.put("/learners/a", json=SETUPS["dense"])
        await posted(http, "/learners/a/update", labelled("dense", 0, 20))
        requests = [{**event("dense", 20 + i), "id": name} for i, name in enumerate(names)]
        served = await posted(http, "/learners/a/predict", [*requests, {**event("dense", 60), "id": 7}])
        assert [item["id"] for item in served["results"]] == [*names, "7"]
        labels = [{"id": item, "label": 0, "time": T0 + 700} for item in [*names, "7"]]
        answer = await posted(http, "/learners/a/labels", labels)
        assert answer["applied"] == len(names) + 1
        assert [item["score"] for item in answer["results"]] == [item["score"] for item in served["results"]]
        for bad in ("", "\n", "\u200d", "x" * 257, True, 1.5, None, "\ud800"):
            for path in ("labels", "update"):
                body = json.dumps({"events": [{"id": bad, "label": 1}]})  # as ASCII: a lone surrogate is no UTF-8
                reply = await http.post(f"/learners/a/{path}", content=body)
                assert reply.status_code == 422, (bad, reply.text)
                missing = "x" if bad is None and path == "update" else "id"  # without an id it has to carry features
                assert reply.json()["errors"][0]["pointer"] == f"/events/0/{missing}"


async def test_labels_may_have_weights_and_times(store: Store) -> None:
    async with serving(store) as (http, engine):
        for name in ("a", "b"):
            await http.put(f"/learners/{name}", json=SETUPS["dense"])
            await posted(http, f"/learners/{name}/update", labelled("dense", 0, 30))
        await posted(http, "/learners/a/predict", [event("dense", i) for i in range(30, 40)])
        delays = [5.0, 60.0, 60.0, 100.0, 100.0, 300.0, 900.0, 1000.0, 2000.0, 7000.0]
        weighted = [
            {**item, "weight": 1.0 + k, "time": T0 + 10 * (30 + k) + delays[k]}
            for k, item in enumerate(late("dense", 30, 40))
        ]
        await posted(http, "/learners/a/labels", weighted)
        plain = [{**item, "weight": 1.0 + k} for k, item in enumerate(labelled("dense", 30, 40))]
        await posted(http, "/learners/b/update", plain)
        assert same(model_of(engine.get("a").learner), model_of(engine.get("b").learner))
        figures = (await http.get("/learners/a/metrics")).json()
        assert figures["window"]["label_delay_median"] == pytest.approx(np.quantile(delays, 0.5), abs=1e-6)
        assert figures["window"]["label_delay_p90"] == pytest.approx(np.quantile(delays, 0.9), abs=1e-6)
        assert figures["clock"] == T0 + 390 + 7000
        assert figures["window"]["label_coverage"] == 1.0
        await posted(http, "/learners/a/predict", [event("dense", i) for i in range(50, 60)])
        await engine.get("a").log.catch_up()
        assert (await http.get("/learners/a/metrics")).json()["window"]["label_coverage"] == 0.5


async def test_a_label_without_a_time_gets_the_current_time(store: Store) -> None:
    async with serving(store) as (http, _):
        await http.put("/learners/a", json=SETUPS["dense"])
        began = time.time()
        await posted(http, "/learners/a/predict", [{"id": "one", "x": [1, 2, 3]}, {**event("dense", 5), "id": "old"}])
        await posted(http, "/learners/a/labels", [{"id": "one", "label": 1}])
        figures = (await http.get("/learners/a/metrics")).json()
        assert 0.0 <= figures["window"]["label_delay_median"] <= time.time() - began
        assert began <= figures["clock"] <= time.time()


@pytest.mark.parametrize("path", ["predict", "update", "labels"])
async def test_a_time_more_than_a_day_ahead_is_refused(path: str) -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=SETUPS["dense"])
        bare = {"id": "e1"} if path == "labels" else {"id": "e1", "x": [1, 2, 3]}
        if path != "predict":
            bare["label"] = 1
        before = await digest(http)
        for bad in (time.time() + 90_000.0, -1e13, 1e300):
            reply = await http.post(f"/learners/a/{path}", json={"events": [bare, {**bare, "time": bad}]})
            assert reply.status_code == 422
            assert [error["pointer"] for error in reply.json()["errors"]] == ["/events/1/time"]
        assert await digest(http) == before
        await posted(http, f"/learners/a/{path}", [{**bare, "time": time.time() + 80_000.0}])


async def test_a_correction_during_the_warm_up_changes_the_retained_events(store: Store) -> None:
    async with serving(store) as (http, engine):
        for name in ("a", "b"):
            await http.put(f"/learners/{name}", json=SETUPS["embedded"])
        await posted(http, "/learners/a/predict", [event("embedded", i) for i in range(10)])
        wrong = [{**item, "label": 1 - item["label"]} for item in late("embedded", 0, 10)]
        await posted(http, "/learners/a/labels", wrong)
        answer = await posted(http, "/learners/a/labels", late("embedded", 0, 10))
        assert answer["relabelled"] == 10
        await posted(http, "/learners/b/update", labelled("embedded", 0, 10))
        assert engine.get("a").learner.state()["retained.labels"].tolist() == [1, -1, -1, -1, -1] * 2
        for name in ("a", "b"):  # the embedding comes, and everything is learnt anew behind it
            await posted(http, f"/learners/{name}/update", labelled("embedded", 10, 50))
        assert (await http.get("/learners/a")).json()["ready"] is True
        assert same(model_of(engine.get("a").learner), model_of(engine.get("b").learner))
        assert await digest(http) == await replayed(store)


async def test_a_batch_algorithm_retains_served_events_with_corrected_labels(store: Store) -> None:
    config = {"algorithm": "ranksvm", "features": VECTOR, "refit_every": 10_000, "refit_window": 50}
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=config)
        served = await posted(http, "/learners/a/predict", [event("dense", i) for i in range(30)])
        assert served["ready"] is False
        assert {(item["score"], item["label"]) for item in served["results"]} == {(0.0, None)}
        wrong = [{**item, "label": 1 - item["label"]} for item in late("dense", 0, 30)]
        await posted(http, "/learners/a/labels", wrong)
        await posted(http, "/learners/a/update", late("dense", 0, 30))
        state = engine.get("a").learner.state()
        assert state["retained.labels"].tolist() == [1, -1, -1, -1, -1] * 6
        assert state["retained.values"].tolist() == [event("dense", i)["x"] for i in range(30)]
        figures = (await http.get("/learners/a/metrics")).json()
        assert (figures["events"], figures["corrections"]) == (30, 30)
        assert figures["class_counts"] == {"negative": 24, "positive": 6}
        assert figures["window"]["confusion"] == {"tp": 0, "fp": 0, "tn": 24, "fn": 6}


async def test_correcting_an_event_without_features_changes_only_the_metrics(store: Store) -> None:
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=SETUPS["dense"])
        await posted(http, "/learners/a/update", labelled("dense", 0, 50))
        before = model_of(engine.get("a").learner)
        before = {name: array.copy() for name, array in before.items()}
        answer = await posted(http, "/learners/a/labels", [{"id": "e1", "label": 1}, {"id": "e5", "label": 0}])
        assert answer["relabelled"] == 2
        assert answer["class_counts"] == {"negative": 40, "positive": 10}
        assert same(model_of(engine.get("a").learner), before)
        again = await posted(http, "/learners/a/update", [event("dense", 1, label=1)])
        assert again["duplicate"] == 1


async def test_large_requests_are_processed_in_threads(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many events at once: decoded, scored, packed, recalled and learnt in threads or in steps, with the same bits."""
    events = [event("dense", i) for i in range(40, 3040)]
    batch_events = [{**item, "time": T0 + 40_000} for item in late("dense", 40, 3040)]
    result = set()
    async with serving(store) as (http, engine):
        for name, size in (("a", 3000), ("b", 250)):
            monkeypatch.setattr("service.engine.replica.label_join._INLINE_WORK", 0 if name == "a" else 2**40)
            await http.put(f"/learners/{name}", json=SETUPS["dense"])
            await posted(http, f"/learners/{name}/update", labelled("dense", 0, 40))
            for start in range(0, 3000, size):
                served = await posted(http, f"/learners/{name}/predict", events[start : start + size])
                assert served["remembered"] == size
            for start in range(0, 3000, size):
                answer = await posted(http, f"/learners/{name}/labels", batch_events[start : start + size])
                assert answer["applied"] == size
            result.add((await engine.get(name).log.digest())[1])
            assert await digest(http, name) == await replayed(store, name)
    assert len(result) == 1


async def test_a_thread_scores_what_takes_long_as_plain_python(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = [0]
    monkeypatch.setattr("service.engine.replica.label_join.waiting_kernels", lambda: waiting[0])
    monkeypatch.setattr("service.engine.replica.label_join._PLAIN_WORK", 2**4)
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=SETUPS["dense"])
        served, rows = engine.get("a").served_events, np.zeros((100, VECTOR["dim"]))
        many, few = Events(rows, (None,) * 100), Events(rows[:1], (None,))
        assert served.at_once(many) is not None
        waiting[0] = 1
        assert served.at_once(many) is None
        assert served.at_once(few) is not None
        assert len((await served.predict(many)).scores.scores) == 100


async def test_a_429_for_labels_in_several_records_means_nothing_was_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("service.engine.replica.label_join._JOINED", 10)
    store = Gated()
    async with serving(store, queue_bytes=4096, record_events=1) as (http, engine):
        await http.put("/learners/a", json=SETUPS["dense"])
        replica = engine.get("a")
        await posted(http, "/learners/a/predict", [event("dense", i) for i in range(30)])
        first = store.shut("a")
        events = [{**item, "time": T0 + 1000} for item in late("dense", 0, 30)]
        labelling = asyncio.create_task(posted(http, "/learners/a/labels", events))
        await store.waiting.wait()
        others: list[asyncio.Task[httpx.Response]] = []
        while not any(item.done() for item in others):  # until the queue is full behind the first record
            body = {"events": labelled("dense", 100 + len(others), 101 + len(others))}
            others.append(asyncio.create_task(http.post("/learners/a/update", json=body)))
            for _ in range(50):
                await asyncio.sleep(0)
        second = store.shut("a")
        first.set()
        while replica.queued_events < len(others) - 2 + 10:  # until the second record waits behind the others
            await asyncio.sleep(0)
            assert not labelling.done()
        assert replica.queued_bytes > 4096
        refused = await http.post("/learners/a/labels", json={"events": events})
        assert (refused.status_code, refused.json()["code"]) == (429, "queue-full")
        second.set()
        assert (await labelling)["applied"] == 30
        assert sorted({(await item).status_code for item in others}) == [200, 429]
        assert (replica.queued_events, replica.queued_bytes) == (0, 0)
        assert replica.view.figures.counts.sum() == 30 + len(others) - 1
        assert await digest(http) == await replayed(store)


async def test_labels_may_complete_a_warm_up(store: Store) -> None:
    async with serving(store) as (http, engine):
        for name in ("a", "b"):
            await http.put(f"/learners/{name}", json=SETUPS["embedded"])
        await posted(http, "/learners/a/predict", [event("embedded", i) for i in range(100)])
        answer = await posted(http, "/learners/a/labels", late("embedded", 0, 100))
        assert answer["applied"] == 100
        await posted(http, "/learners/b/update", labelled("embedded", 0, 100))
        a, b = engine.get("a"), engine.get("b")
        assert a.view.fitted_events == b.view.fitted_events == 30
        assert same(model_of(a.learner), model_of(b.learner))
        assert await digest(http) == await replayed(store)


async def test_many_events_are_served_in_several_records(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply and the spent budget equal those of a single record."""
    monkeypatch.setattr("service.engine.replica.label_join._SERVED", 7)
    budget = {"threshold": {"objective": "budget", "alerts": 3, "unit_seconds": 1000}}
    events = [event("dense", i) for i in range(40, 70)] + [event("dense", 41), {"x": [0.0, 0.0, 0.0]}]
    async with serving(store) as (http, engine):
        for name, size in ("a", 7), ("b", 100):
            monkeypatch.setattr("service.engine.replica.label_join._SERVED", size)
            await http.put(f"/learners/{name}", json={**SETUPS["dense"], **budget})
            await posted(http, f"/learners/{name}/update", labelled("dense", 0, 40))
            before = engine.get(name).position
            answer = await posted(http, f"/learners/{name}/predict", events)
            await engine.get(name).log.catch_up()
            assert engine.get(name).position - before == (5 if name == "a" else 1)
            assert answer["remembered"] == 30
            if name == "a":
                output = answer["results"]
        assert answer["results"] == output
        assert 0 < sum(item["label"] for item in output) <= 3
        digests = [engine.get(name).learner.digest() for name in "ab"]
        assert digests[0] == digests[1]
        joined = await posted(http, "/learners/a/labels", late("dense", 40, 70))
        assert joined["applied"] == 30
        assert await digest(http) == await replayed(store)
