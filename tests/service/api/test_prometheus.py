"""/metrics as Prometheus reads it."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rarestream import __version__
from service.api.app import create_app
from service.api.prometheus import Exposition
from service.api.prometheus_learners import LocalStatus
from service.errors import StoreUnavailable
from service.settings import Settings
from service.storage.memory import MemoryStore
from service.telemetry.histograms import BOUNDS, Histogram
from tests.harness.nodes import T0, app_over, node, posted, serving
from tests.harness.scrapes import Key, families, samples, scrape
from tests.harness.websocket import websocket
from tests.service.api.routes.test_metrics_routes import drifted
from tests.service.engine.replica.test_served_events import SETUPS, labelled, late

pytestmark = pytest.mark.integration

UPDATE = {"method": "POST", "route": "/v1/learners/{name}/update"}


def key(name: str, **labels: str) -> Key:
    return name, tuple(sorted(labels.items()))


def of(learner: str, learner_samples: dict[Key, float]) -> dict[Any, float]:
    """Return a learner's samples by name, or by name and the value of the label beside its own."""
    out: dict[Any, float] = {}
    for (name, labels), value in learner_samples.items():
        argument = dict(labels)
        if argument.pop("learner", None) == learner:
            out[(name, *argument.values()) if argument else name] = value
    return out


async def test_a_learner_exports_its_counters_and_live_metrics() -> None:
    began = time.time()
    async with serving(MemoryStore()) as (http, engine):
        for setup in ("dense", "ordinal"):
            await http.put(f"/learners/{setup}", json=SETUPS[setup])
        await drifted(http, "dense")
        await engine.get("dense").log.catch_up()
        await posted(http, "/learners/dense/labels", [{"id": "d600", "label": 1, "time": T0 + 600 + 86_400}])
        await posted(http, "/learners/dense/update", labelled("dense", 0, 2))
        await http.post("/learners/dense/snapshots")
        await posted(http, "/learners/ordinal/update", labelled("ordinal", 0, 20))
        document = (await http.get("/learners/dense/metrics")).json()
        ranks = (await http.get("/learners/ordinal/metrics")).json()
        actual = samples(await scrape(http))
        window, dense, ordinal = document["window"], of("dense", actual), of("ordinal", actual)
        for name, figure in {
            "auc_ratio": "auc",
            "average_precision_ratio": "average_precision",
            "f1_ratio": "f1",
            "precision_ratio": "precision",
            "recall_ratio": "recall",
            "alert_ratio": "alert_rate",
            "calibration_error_ratio": "calibration_error",
            "accuracy_ratio": "accuracy",
            "label_delay_median_seconds": "label_delay_median",
            "label_delay_p90_seconds": "label_delay_p90",
            "label_coverage_ratio": "label_coverage",
        }.items():
            assert dense[f"rarestream_{name}"] == window[figure] is not None, name
        assert [dense["rarestream_auc_lower_ratio"], dense["rarestream_auc_upper_ratio"]] == window["auc_interval"]
        assert dense["rarestream_label_delay_median_seconds"] == 86_400
        assert dense["rarestream_threshold_ratio"] == document["threshold"]
        assert dense["rarestream_clock_timestamp_seconds"] == document["clock"] == T0 + 600 + 86_400
        assert dense["rarestream_served_events_total"] == document["served"]["events"]
        assert dense["rarestream_served_labelled_events_total"] == document["served"]["labelled"] == 1
        share = dense["rarestream_served_alerts_total"] / dense["rarestream_served_events_total"]
        assert share == document["served"]["alert_rate"]
        assert dense["rarestream_duplicate_events_total"] == 2
        assert {(text, dense["rarestream_events_total", text]) for text in ("negative", "positive")} == {
            ("negative", 40),
            ("positive", 11),
        }
        assert (dense["rarestream_drift_alarms_total", "auc"], dense["rarestream_drift_alarms_total", "scores"]) == (
            0,
            1,
        )
        assert dense["rarestream_position"] == engine.get("dense").position
        assert (dense["rarestream_learner_ready"], dense["rarestream_learner_failed"]) == (1, 0)
        assert (dense["rarestream_queued_events"], dense["rarestream_queued_bytes"]) == (0, 0)
        assert 0 <= dense["rarestream_snapshot_age_seconds"] <= time.time() - began
        assert dense["rarestream_unsaved_events"] == 0
        assert dense["rarestream_remembered_events"] > 0

        assert {item: ordinal["rarestream_events_total", item] for item in "123"} == {"1": 16, "2": 0, "3": 4}
        assert ordinal["rarestream_mean_absolute_error"] == ranks["window"]["mae"]
        assert ordinal["rarestream_accuracy_ratio"] == ranks["window"]["accuracy"]
        assert ordinal["rarestream_unsaved_events"] == 20
        of_two_classes = ("auc", "f1", "alert", "threshold", "served_alert", "precision")
        assert not any(f"rarestream_{class_}_ratio" in ordinal for class_ in of_two_classes)

        await http.delete("/learners/ordinal")
        assert of("ordinal", samples(await scrape(http))) == {}


async def test_each_model_of_auto_has_its_weight() -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json={"features": {"kind": "dense", "dim": 3}})
        events = [{"x": [i % 2, i % 3, 1], "label": i % 2} for i in range(20)]
        assert (await http.post("/learners/a/update", json={"events": events})).status_code == 200
        exported = of("a", samples(await scrape(http)))
        *members, combination = (await http.get("/learners/a")).json()["members"]
        assert combination["weight"] is None
        assert len(members) == 5
        for member in members:
            assert exported["rarestream_member_weight", member["name"]] == member["weight"]


async def test_only_the_models_that_were_chosen_have_a_weight() -> None:
    async with serving(MemoryStore()) as (http, _):
        settings = {"features": {"kind": "dense", "dim": 3}, "params": {"members": ["pairs", "fofo"], "memory": 500}}
        document = (await http.put("/learners/a", json=settings)).json()
        assert document["config"]["params"] == {"budget": "balanced", **settings["params"]}
        assert document["config"]["refit_every"] is None
        events = [{"x": [i % 2, i % 3, 1], "label": i % 2} for i in range(20)]
        await posted(http, "/learners/a/update", events)
        exported = of("a", samples(await scrape(http)))
        assert [labels[0] for name, *labels in exported if name == "rarestream_member_weight"] == ["fofo", "pairs"]
        members = (await http.get("/learners/a")).json()["members"]
        assert [member["name"] for member in members] == ["fofo", "pairs", "auto"]


async def test_a_custom_model_has_its_weight() -> None:
    async with serving(MemoryStore()) as (http, _):
        members = ["fofo", {"algorithm": "fofo", "params": {"c": 2.0}}, {"algorithm": "cbr", "name": "mine"}]
        settings = {"features": {"kind": "dense", "dim": 3}, "params": {"members": members}}
        document = (await http.put("/learners/a", json=settings)).json()
        assert [item["name"] for item in document["config"]["params"]["members"][1:]] == ["fofo-2", "mine"]
        assert document["config"]["params"]["members"][1]["params"]["c"] == 2.0
        events = [{"x": [i % 2, i % 3, 1], "label": i % 2} for i in range(20)]
        await posted(http, "/learners/a/update", events)
        exported = of("a", samples(await scrape(http)))
        *members, _ = (await http.get("/learners/a")).json()["members"]
        assert [member["kind"] for member in members] == ["logistic regression", "custom fofo", "custom cbr"]
        for member in members:
            assert exported["rarestream_member_weight", member["name"]] == member["weight"] != 0.0


async def test_a_member_that_is_refused_is_named_by_its_pointer() -> None:
    async with serving(MemoryStore()) as (http, _):
        members = ["fofo", {"algorithm": "cbr", "params": {"capacity": 0}}, {"algorithm": "svc"}]
        settings = {"features": {"kind": "dense", "dim": 3}, "params": {"members": members}}
        reply = await http.put("/learners/a", json=settings)
        assert reply.status_code == 422
        pointers = ["/params/members/1/params/capacity", "/params/members/2/algorithm"]
        assert [error["pointer"] for error in reply.json()["errors"]] == pointers


async def test_undefined_metrics_have_no_sample() -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=SETUPS["dense"])
        new = of("a", samples(await scrape(http)))
        assert new["rarestream_events_total", "positive"] == 0
        assert new["rarestream_learner_ready"] == 0
        negatives = [item for item in labelled("dense", 1, 40) if not item["label"]]
        await posted(http, "/learners/a/update", negatives)
        samples_of_a = of("a", samples(await scrape(http)))
        assert samples_of_a["rarestream_events_total", "negative"] == len(negatives)
        for name in (
            "auc",
            "auc_lower",
            "recall",
            "average_precision",
            "f1",
            "threshold",
            "served_alert",
            "label_coverage",
        ):
            assert f"rarestream_{name}_ratio" not in new
            assert f"rarestream_{name}_ratio" not in samples_of_a
        assert "rarestream_snapshot_age_seconds" not in samples_of_a
        assert "rarestream_accuracy_ratio" in samples_of_a.keys() - new.keys()


async def test_a_learner_is_exported_again_after_an_update() -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=SETUPS["dense"])
        for start in range(0, 60, 20):
            await posted(http, "/learners/a/update", labelled("dense", start, start + 20))
            expected = (await http.get("/learners/a/metrics")).json()["window"]["auc"]
            for _ in range(2):
                assert of("a", samples(await scrape(http)))["rarestream_auc_ratio"] == expected


def test_several_processes_export_the_longest_queue_and_newest_snapshot() -> None:
    local = LocalStatus(7, 3, 30, False, False, 100.0, 50, 2, 1, (5, 50, 1, 0))
    remote = LocalStatus(9, 1, 90, True, False, 200.0, 20, 3, 4, (4, 40, 1, 3))
    fresh = LocalStatus(9, 0, 0, False, True, None, 70, 0, 0, None)
    together = LocalStatus(9, 3, 90, True, True, 200.0, 20, 5, 5, (4, 40, 1, 3))
    assert local.merge([remote, fresh]) == remote.merge([fresh, local]) == together
    assert fresh.merge([]) == fresh


async def test_exported_learners_are_limited_and_stay_the_same_between_scrapes() -> None:
    async with serving(MemoryStore(), metrics_learners=2) as (http, engine):
        for name in "abcd":
            await http.put(f"/learners/{name}", json=SETUPS["dense"])
        assert samples(await scrape(http))[key("rarestream_learners_left_out")] == 2
        for name, used in {"a": 9000.0, "b": 5.0, "c": 7000.0, "d": 8.0}.items():
            engine.get(name).last_used -= used

        async def exposition() -> set[str]:
            actual = samples(await scrape(http), "rarestream_position")
            return {dict(labels)["learner"] for _, labels in actual}

        assert await exposition() == {"b", "d"}
        engine.get("a").last_used += 8999  # as long ago as they were, about: those that are told of stay
        assert await exposition() == {"b", "d"}
        engine.get("d").last_used -= 3000
        assert await exposition() == {"a", "b"}
        async with engine.use("c"):
            engine.get("b").last_used -= 3000
            assert await exposition() == {"a", "c"}


async def test_the_limit_of_exported_learners_may_be_zero() -> None:
    async with serving(MemoryStore(), metrics_learners=0) as (http, _):
        await http.put("/learners/a", json=SETUPS["dense"])
        actual = samples(await scrape(http))
        assert actual[key("rarestream_learners_left_out")] == 1
        assert of("a", actual) == {}


async def test_a_scrape_loads_no_learner_and_does_not_count_as_use() -> None:
    async with serving(MemoryStore(), max_resident=1) as (http, engine):
        for name in ("a", "b"):
            await http.put(f"/learners/{name}", json=SETUPS["dense"])
        engine.residency.evict_idle()
        assert engine.residency.eviction is not None
        await asyncio.wait([engine.residency.eviction])
        (awake,), (asleep,) = engine.replicas, engine.evicted
        used = engine.get(awake).last_used
        actual = samples(await scrape(http))
        assert (list(engine.replicas), list(engine.evicted), engine.get(awake).last_used) == ([awake], [asleep], used)
        assert actual[key("rarestream_learners", state="asleep")] == 1
        assert (of(asleep, actual), of(awake, actual)["rarestream_position"]) == ({}, 1)


async def test_requests_are_counted_by_route_template_and_status() -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=SETUPS["dense"])
        await http.put("/learners/a", json={})
        for start in range(3):
            await posted(http, "/learners/a/update", labelled("dense", start, start + 1))
        await http.post("/learners/a/update", json={"events": [{"x": [1], "label": 1}]})
        await http.post("/learners/nobody/update", json={"events": []})
        await http.post("/learners/a/predict?card=number-of-a-card", content=b"{}")
        await http.get("/learners/a")
        await http.get("/learners/a/secret-path")
        await http.request("BREW", "/learners/a")
        text = await scrape(http)
        counted = {
            tuple(value for _, value in labels): value  # method, route, status
            for (_, labels), value in samples(text, "rarestream_request_seconds_count").items()
        }
        assert counted == {
            ("PUT", "/v1/learners/{name}", "201"): 1,
            ("PUT", "/v1/learners/{name}", "422"): 1,
            ("POST", "/v1/learners/{name}/update", "200"): 3,
            ("POST", "/v1/learners/{name}/update", "422"): 1,
            ("POST", "/v1/learners/{name}/update", "404"): 1,
            ("POST", "/v1/learners/{name}/predict", "422"): 1,
            ("GET", "/v1/learners/{name}", "200"): 1,
            ("GET", "other", "404"): 1,
            ("other", "/v1/learners/{name}", "405"): 1,
        }
        assert not re.search("secret|number-of-a-card|nobody|BREW", text)
        again = samples(await scrape(http))
        assert again[key("rarestream_request_seconds_count", method="GET", route="/metrics", status="200")] == 1


async def test_a_bucket_includes_its_upper_bound() -> None:
    item = Histogram()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.001, 0.3, BOUNDS[-1], 11.0, 12.0):
        item.observe(seconds)
    buckets = dict(item.buckets())
    assert list(buckets) == [*map(str, BOUNDS), "+Inf"]
    assert list(buckets.values()) == sorted(buckets.values())
    assert [buckets[at] for at in ("0.0001", "0.00025", "0.25", "0.5", "5.0", "10.0", "+Inf")] == [2, 3, 3, 4, 4, 5, 7]
    assert item.count == 7
    assert item.sum == pytest.approx(BOUNDS[0] * 2.001 + 33.3)


async def test_websocket_messages_are_counted_by_operation_and_status() -> None:
    async with node(MemoryStore()) as engine:
        app = app_over(engine)
        async with AsyncExitStack() as stack:
            http, _ = await stack.enter_async_context(serving(engine.node.store))
            await http.put("/learners/a", json=SETUPS["dense"])
        await engine.sync.check_heads()
        async with websocket(app, "/v1/learners/a/ws") as ws:
            ws.send(*({"seq": i, "op": "predict", "events": [{"x": [1, 2, 3]}]} for i in range(4)))
            await ws.replies(4)
            ws.send({"seq": 9, "op": "predict", "events": [{"x": [1]}]}, "nothing")
            await ws.replies(2)
        text = await app.exposition.text()
        counted = samples(text.decode(), "rarestream_websocket_message_seconds_count")
        assert counted == {
            key("rarestream_websocket_message_seconds_count", operation="predict", status="200"): 4,
            key("rarestream_websocket_message_seconds_count", operation="predict", status="422"): 1,
            key("rarestream_websocket_message_seconds_count", operation="other", status="400"): 1,
        }


async def test_store_calls_are_timed_by_operation_and_failures_are_counted(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=SETUPS["dense"])
        await posted(http, "/learners/a/update", labelled("dense", 0, 40))
        await posted(http, "/learners/a/predict", [{"id": "late", "x": [1, 2, 3], "time": T0}])
        await posted(http, "/learners/a/labels", [{"id": "late", "label": 1, "time": T0}])
        await http.post("/learners/a/snapshots")
        actual = samples(await scrape(http))
        for operation, least in {"create": 1, "append": 2, "serve": 1, "recall": 1, "save": 1, "heads": 1}.items():
            assert actual[key("rarestream_store_seconds_count", operation=operation)] >= least, operation
            assert actual[key("rarestream_store_errors_total", operation=operation)] == 0
        assert key("rarestream_store_seconds_count", operation="other") not in actual
        assert actual[key("rarestream_apply_seconds_count")] == 3
        assert actual[key("rarestream_store_up")] == 1

        async def append(*_: Any) -> Any:
            raise StoreUnavailable("by the test")

        monkeypatch.setattr(engine.node.store, "append", append)
        assert (await http.post("/learners/a/update", json={"events": labelled("dense", 40, 41)})).status_code == 503
        actual = samples(await scrape(http))
        assert actual[key("rarestream_store_errors_total", operation="append")] == 1
        assert (actual[key("rarestream_store_up")], actual[key("rarestream_node_ready")]) == (0, 0)
        assert actual[key("rarestream_store_stale_seconds")] > 0
        assert actual[key("rarestream_request_seconds_count", **UPDATE, status="503")] == 1


async def test_node_and_process_metrics_are_exported() -> None:
    async with serving(MemoryStore(), queue_bytes=4096, max_buffered_bytes=8192) as (http, _):
        actual = samples(await scrape(http))
        (build,) = (labels for (name, labels) in actual if name == "rarestream_build_info")
        assert dict(build)["version"] == __version__
        assert set(dict(build)) == {"version", "python", "implementation"}
        for name, value in {
            "websockets": 0,
            "streams": 0,
            "groups": 0,
            "body_bytes": 0,
            "body_limit_bytes": 8192,
            "queue_limit_bytes": 4096,
            "node_ready": 1,
        }.items():
            assert actual[key(f"rarestream_{name}")] == value, name
        assert actual[key("process_resident_memory_bytes")] > 1e6
        assert key("python_gc_collections_total", generation="0") in actual


async def test_two_applications_in_one_process_count_separately() -> None:
    async with serving(MemoryStore()) as (item, _), serving(MemoryStore()) as (other, _):
        await item.get("/learners")
        name = "rarestream_request_seconds_count"
        assert len(samples(await scrape(item), name)) == 1
        assert samples(await scrape(other), name) == {}


async def test_every_family_follows_the_naming_rules() -> None:
    """Prefix, base units, `_total`; and what the library's strict parser of OpenMetrics asks for besides."""
    async with node(MemoryStore()) as engine:
        app = app_over(engine)
        async with serving(engine.node.store) as (http, _):
            await http.put("/learners/dense", json=SETUPS["dense"])
            await http.put("/learners/ordinal", json=SETUPS["ordinal"])
            await posted(http, "/learners/dense/update", labelled("dense", 0, 40))
            await posted(http, "/learners/dense/predict", [{"id": "late", "x": [1, 2, 3], "time": T0}])
            await posted(http, "/learners/dense/labels", late("dense", 50, 51))
        await engine.sync.check_heads()
        actual = await app.exposition.families()

        class Whole:
            def collect(self) -> Any:
                return actual

        strict = list(text_string_to_metric_families(generate_latest(Whole()).decode()))
        assert [item.name for item in strict] == [item.name for item in actual]
        plain = families((await app.exposition.text()).decode())
        names = {item.name.removesuffix("_total").removesuffix("_info") for item in plain}
        assert names == {item.name for item in actual}
        for family in actual:
            name = family.name
            assert family.documentation.endswith(".") or not name.startswith("rarestream_")
            assert name.startswith(("rarestream_", "process_", "python_gc_"))
            assert not re.search(r"_(milli|micro|nano)|_(ms|kb|mb|percent|minutes|hours|days)\b|_total|_count$", name)
            if family.type == "histogram":
                assert name.endswith("_seconds")
            for sample in family.samples:
                assert (family.type == "counter") == sample.name.endswith("_total"), sample.name
                if name.endswith("_ratio"):
                    assert 0 <= sample.value <= 1, sample


async def test_a_family_with_many_samples_has_one_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.prometheus._LINES", 3)
    async with serving(MemoryStore()) as (http, _):
        for name in "abcdefg":
            await http.put(f"/learners/{name}", json=SETUPS["dense"])
        text = await scrape(http)
        assert len(samples(text, "rarestream_position")) == 7
        lines = text.splitlines()
        assert len(samples(text)) == len([line for line in lines if not line.startswith("#")])
        headings = [line.split()[2] for line in lines if line.startswith("# TYPE")]
        assert len(headings) == len(set(headings)) == len([line for line in lines if line.startswith("# HELP")])


async def test_a_scrape_does_not_block_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(MemoryStore()) as engine:
        app = app_over(engine)
        async with serving(engine.node.store) as (http, _):
            for i in range(20):
                await http.put(f"/learners/l{i:03}", json=SETUPS["dense"])
        await engine.sync.check_heads()
        monkeypatch.setattr("service.api.prometheus._SLICE", -1.0)  # it is always time
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        running = asyncio.create_task(other())
        text = await app.exposition.text()
        running.cancel()
        assert turns >= 20 + len(families(text.decode()))


async def test_a_learner_may_be_deleted_during_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(MemoryStore()) as engine:
        app = app_over(engine)
        async with serving(engine.node.store) as (http, _):
            for name in "abc":
                await http.put(f"/learners/{name}", json=SETUPS["dense"])
        await engine.sync.check_heads()
        monkeypatch.setattr("service.api.prometheus._SLICE", -1.0)
        scraping = asyncio.create_task(app.exposition.text())
        await asyncio.sleep(0)
        await engine.delete("b")
        assert samples((await scraping).decode())
        assert of("b", samples((await app.exposition.text()).decode())) == {}


async def test_the_metrics_endpoint_is_not_in_the_openapi_document() -> None:
    async with serving(MemoryStore()) as (http, _):
        document = (await http.get("http://rarestream/openapi.json")).json()
        assert "/metrics" not in document["paths"]
        assert (await http.post("http://rarestream/metrics")).status_code == 405


def test_each_application_has_its_own_exposition() -> None:
    apps = [create_app(Settings(store="memory:")) for _ in range(2)]
    assert isinstance(apps[0].exposition, Exposition)
    assert apps[0].exposition is not apps[1].exposition
    assert apps[0].access is not apps[1].access
