"""`GET /v1/learners?figures=true`: the small figures of all learners at once, and the score at which alerts begin."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from learners.metrics.alarm_life import KINDS
from service.api import overview
from service.engine.score_threshold import score_threshold
from service.storage.memory import MemoryStore
from tests.harness.nodes import fetched, posted, serving
from tests.harness.waiting import eventually_async
from tests.service.engine.replica.test_served_events import SETUPS, labelled

DENSE = SETUPS["dense"]


@pytest.fixture(autouse=True)
def always_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are worked out whenever the log has moved, however short ago they were."""
    monkeypatch.setattr(overview, "_LEAST", 0.0)


async def listed(http: httpx.AsyncClient) -> dict[str, Any]:
    return await fetched(http, "/learners", figures="true")


async def test_overview_metrics_equal_those_of_the_learners() -> None:
    async with serving(MemoryStore()) as (http, _):
        for name in ("b", "a"):
            await http.put(f"/learners/{name}", json=DENSE)
        await posted(http, "/learners/a/update", labelled("dense", 0, 300))
        report = await listed(http)
        assert [learner["name"] for learner in report["learners"]] == ["a", "b"]
        assert (report["asleep"], report["unavailable"]) == ([], {})
        actual = report["learners"][0]
        metrics = (await http.get("/learners/a/metrics")).json()
        document = (await http.get("/learners/a")).json()
        history = (await http.get("/learners/a/metrics/history")).json()
        for name in ("position", "threshold", "events", "class_counts", "clock"):
            assert actual[name] == metrics[name], name
        for name, value in actual["window"].items():
            assert value == metrics["window"][name], name
        assert actual["algorithm"] == document["config"]["algorithm"]
        assert (actual["ready"], actual["not_ready"], actual["failed"]) == (True, None, None)
        assert actual["trend"] == [round(point["auc"], 4) for point in history["points"]]
        assert (actual["alarms"], actual["last_alarm"]) == (dict.fromkeys(KINDS, 0), None)
        assert actual["open_alarms"] == 0

        new = report["learners"][1]
        assert new["window"]["auc"] is None
        assert "labelled" in new["undefined"]["/window/auc"]
        assert not new["ready"]
        undefined = {f"/window/{name}" for name, value in new["window"].items() if value is None}
        assert set(new["undefined"]) == undefined


async def test_overview_metrics_follow_the_log_and_are_cached_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(MemoryStore()) as (http, engine):
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/update", labelled("dense", 0, 50))
        assert (await listed(http))["learners"][0]["events"] == 50
        await posted(http, "/learners/a/update", labelled("dense", 50, 60))
        assert (await listed(http))["learners"][0]["events"] == 60

        monkeypatch.setattr(overview, "_LEAST", 1e9)
        await posted(http, "/learners/a/update", labelled("dense", 60, 70))
        assert (await listed(http))["learners"][0]["events"] == 70  # what was kept before is of another time
        await posted(http, "/learners/a/update", labelled("dense", 70, 80))
        assert (await listed(http))["learners"][0]["events"] == 70  # not so soon again
        assert engine.get("a").position == 5


async def test_evicted_learners_are_listed_without_loading() -> None:
    async with serving(MemoryStore(), max_resident=1) as (http, engine):
        for name in ("a", "b"):
            await http.put(f"/learners/{name}", json=DENSE)
        engine.residency.evict_idle()  # as a moment later, when nobody asks for anything
        await eventually_async(
            lambda: bool(engine.evicted) and engine.residency.eviction is not None and engine.residency.eviction.done()
        )
        asleep = sorted(engine.evicted)
        for _ in range(3):
            report = await listed(http)
            assert report["asleep"] == asleep
            assert not {learner["name"] for learner in report["learners"]} & set(asleep)
        assert sorted(engine.evicted) == asleep


async def test_an_ordinal_learner_reports_ranks() -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/ranks", json=SETUPS["ordinal"])
        await posted(http, "/learners/ranks/update", labelled("ordinal", 0, 130))
        (actual,) = (await listed(http))["learners"]
        metrics = (await http.get("/learners/ranks/metrics")).json()
        assert actual["window"]["mae"] == metrics["window"]["mae"]
        assert "auc" not in actual["window"]
        assert (actual["threshold"], actual["served"], actual["events"]) == (None, 0, 130)
        assert len(actual["trend"]) == 2
        curves = (await http.get("/learners/ranks/metrics/curves")).json()
        assert "score_threshold" not in curves


async def test_large_windows_are_computed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "LARGE_WINDOW", 10)
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/update", labelled("dense", 0, 100))
        (actual,) = (await listed(http))["learners"]
        assert actual["window"]["auc"] == (await http.get("/learners/a/metrics")).json()["window"]["auc"]


async def test_without_metrics_the_list_is_unchanged() -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=DENSE)
        whole = (await http.get("/learners")).json()
        assert whole == (await http.get("/learners", params={"figures": "false"})).json()
        assert "config" in whole["learners"][0]
        reply = await http.get("/learners", params={"figures": "some"})
        assert [error["pointer"] for error in reply.json()["errors"]] == ["/figures"]


# The score at which alerts begin


async def test_alerts_start_at_the_score_threshold() -> None:
    async with serving(MemoryStore()) as (http, engine):
        await http.put("/learners/a", json=DENSE)
        assert (await http.get("/learners/a/metrics/curves")).json()["score_threshold"] is None  # no events yet
        await posted(http, "/learners/a/update", labelled("dense", 0, 300))
        curves = (await http.get("/learners/a/metrics/curves")).json()
        edges, actual = curves["histogram"]["edges"], curves["score_threshold"]
        assert edges[0] < actual <= edges[-1]
        scorer = engine.get("a").view.scorer
        assert scorer.threshold is not None
        step = 1e-6 * (edges[-1] - edges[0])
        below, above = scorer.decide(np.array([actual - step, actual])).probabilities  # type: ignore[misc]
        assert below < scorer.threshold <= above

        assert score_threshold(scorer, [actual + step, actual + 1]) is None  # all scores of the range are alerts
        assert score_threshold(scorer, [actual - 1, actual - step]) is None  # none is
        assert score_threshold(scorer, []) is None
