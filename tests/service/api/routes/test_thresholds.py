"""Thresholds that are tried over HTTP: the same as by the library, refusals of a change, nothing changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from learners import CostChoice, ThresholdReview
from service.api import schemas
from service.engine import threshold_trials
from service.storage.memory import MemoryStore
from service.storage.store_protocol import Store
from tests.harness.keyring import Keyring, keyed
from tests.harness.nodes import digest, fetched, posted, serving
from tests.service.engine.replica.test_served_events import EACH, SETUPS, event, labelled, late

DENSE = SETUPS["dense"]
PREVIEW = "/learners/a/thresholds/preview"


async def previewed(http: httpx.AsyncClient, settings: Any, **query: Any) -> dict[str, Any]:
    reply = await http.post(PREVIEW, json=settings, params=query)
    assert reply.status_code == 200, reply.text
    document: dict[str, Any] = reply.json()
    return document


@EACH
async def test_thresholds_are_tried_on_learners_of_every_kind(store: Store, setup: str) -> None:
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=SETUPS[setup])
        await posted(http, "/learners/a/update", labelled(setup, 0, 60))
        await posted(http, "/learners/a/predict", [event(setup, i) for i in range(60, 80)])
        await posted(http, "/learners/a/labels", late(setup, 60, 70))
        before = await digest(http)
        if setup == "ordinal":
            for reply in (await http.get("/learners/a/thresholds"), await http.post(PREVIEW, json={})):
                assert (reply.status_code, reply.json()["code"]) == (422, "invalid")
            return
        document = await fetched(http, "/learners/a/thresholds", points=7, false_negative=3)
        schemas.ThresholdPoints.model_validate(document)
        review = ThresholdReview.of(engine.replicas["a"].learner)
        assert document == {"name": "a", "position": before[0], **review.points(7, CostChoice(None, 3.0))}
        figures = await fetched(http, "/learners/a/metrics")
        assert document["threshold"] == figures["threshold"]
        for name in ("precision", "recall", "f1", "fpr", "alert_rate", "confusion"):
            assert document["actual"][name] == figures["window"][name]
        for name in ("events", "class_counts", "label_coverage", "events_per_second"):
            assert document["window"][name] == figures["window"][name]
        tried = await previewed(http, {"objective": "budget", "alerts": 3, "unit_seconds": 600}, false_positive=2)
        schemas.ThresholdPreview.model_validate(tried)
        assert tried["costs"] == {"false_positive": 2.0, "false_negative": 1.0}
        assert await digest(http) == before
        applied = await http.patch("/learners/a", json={"threshold": {"objective": "recall", "target": 0.9}})
        assert applied.status_code == 200


async def test_a_preview_shows_what_a_change_leads_to() -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json={**DENSE, "threshold": {"objective": "fbeta", "beta": 2}})
        await posted(http, "/learners/a/update", labelled("dense", 0, 100))
        for settings in (
            {},
            {"beta": 3},
            {"objective": "precision", "target": 0.5},
            {"objective": "budget", "rate": 0.1},
        ):
            tried = await previewed(http, settings)
            document = (await http.patch("/learners/a", json={"threshold": settings})).json()
            assert tried["settings"] == document["config"]["threshold"]
            assert tried["threshold"] == document["threshold"]


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"objective": "precision"}, {"/target"}),
        ({"objective": "luck"}, {"/objective"}),
        ({"objective": "fixed", "value": 2, "surplus": 1}, {"/value", "/surplus"}),
        ({"objective": "budget", "alerts": 1, "rate": 0.5}, {"/alerts"}),
        ({"objective": "cost", "field": "7"}, {"/field"}),
        ([1], {""}),
    ],
)
async def test_a_preview_is_refused_where_a_change_is(body: Any, pointers: set[str]) -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=DENSE)
        refused = await http.patch("/learners/a", json={"threshold": body})
        reply = await http.post(PREVIEW, json=body)
        assert reply.status_code == refused.status_code == 422
        problems = reply.json()["errors"]
        assert {problem["pointer"] for problem in problems} == pointers
        assert [{**problem, "pointer": f"/threshold{problem['pointer']}"} for problem in problems] == refused.json()[
            "errors"
        ]


@pytest.mark.parametrize(
    "query", ["points=1", "points=1001", "points=x", "false_positive=0", "false_negative=1e13", "surplus=1"]
)
async def test_parameters_are_checked(query: str) -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=DENSE)
        reply = await http.get(f"/learners/a/thresholds?{query}")
        assert reply.status_code == 422
        assert [problem["pointer"] for problem in reply.json()["errors"]] == [f"/{query.partition('=')[0]}"]


async def test_unknown_learners_bodies_and_keys() -> None:
    async with serving(MemoryStore()) as (http, _):
        assert (await http.get("/learners/nobody/thresholds")).status_code == 404
        await http.put("/learners/a", json=DENSE)
        assert (await http.post("/learners/nobody/thresholds/preview", json={})).status_code == 404
        headers = {"content-type": "application/json"}
        assert (await http.post(PREVIEW, content=b"{", headers=headers)).status_code == 400
        assert (await http.post(PREVIEW, content=b'{"beta": 1, "beta": 2}', headers=headers)).status_code == 400
        assert (await http.get(PREVIEW)).status_code == 405


async def test_a_learner_without_labels_and_large_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=DENSE)
        document = await fetched(http, "/learners/a/thresholds")
        assert document["points"] is None is document["threshold"]
        await posted(http, "/learners/a/update", labelled("dense", 0, 100))
        document, tried = await fetched(http, "/learners/a/thresholds"), await previewed(http, {})
        monkeypatch.setattr(threshold_trials, "LARGE_WINDOW", 10)
        assert await fetched(http, "/learners/a/thresholds") == document
        assert await previewed(http, {}) == tried


async def test_a_key_that_may_read_may_try_a_threshold(tmp_path: Path) -> None:
    ring = Keyring(tmp_path)
    everything, reader, scorer = ring.make("all", "admin"), ring.make("r", "read"), ring.make("p", "predict")
    async with keyed(ring) as (_, http):
        await http.put("/learners/a", json=DENSE, headers=everything)
        for key, status in ((reader, 200), (scorer, 403), (None, 401)):
            assert (await http.get("/learners/a/thresholds", headers=key)).status_code == status
            assert (await http.post(PREVIEW, json={}, headers=key)).status_code == status
