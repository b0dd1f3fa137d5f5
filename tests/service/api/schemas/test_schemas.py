"""What the routes of events, figures and groups answer is what the OpenAPI document says of it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from service.api import schemas
from service.storage.memory import MemoryStore
from tests.harness.nodes import posted, serving
from tests.service.api.routes.test_metrics_routes import drifted
from tests.service.engine.replica import test_group as groups
from tests.service.engine.replica.test_served_events import SETUPS, event, labelled, late


async def got(http: httpx.AsyncClient, path: str, model: type[BaseModel]) -> None:
    reply = await http.get(path)
    assert reply.status_code == 200, reply.text
    model.model_validate_json(reply.content, strict=True)


@pytest.mark.parametrize("setup", ["dense", "ordinal", "embedded"])
async def test_learner_replies_match_their_schemas(setup: str) -> None:
    two = setup != "ordinal"

    async def figures() -> None:
        await got(http, "/learners/a", schemas.LearnerDocument)
        await got(http, "/learners", schemas.LearnerList)
        await got(http, "/learners?figures=true", schemas.LearnerFigureList)
        await got(http, "/learners/a/metrics", schemas.Metrics if two else schemas.OrdinalMetrics)
        await got(http, "/learners/a/metrics/history", schemas.History)
        await got(http, "/learners/a/alarms", schemas.Alarms)

    update = schemas.UpdateReply if two else schemas.OrdinalUpdateReply
    predict = schemas.PredictReply if two else schemas.OrdinalPredictReply
    async with serving(MemoryStore()) as (http, engine):
        await http.put("/learners/a", json=SETUPS[setup])
        request = [event(setup, i) for i in range(200, 210)]
        predict.model_validate(await posted(http, "/learners/a/predict", request[:5]))
        await figures()  # most are null yet
        if two:
            await drifted(http)
        update.model_validate(await posted(http, "/learners/a/update", labelled(setup, 50, 250)))
        predict.model_validate(await posted(http, "/learners/a/predict", request))
        expected: list[dict[str, Any]] = [*late(setup, 200, 205), {"id": "never", "label": 1}]
        update.model_validate(await posted(http, "/learners/a/labels", [*expected, {**expected[0], "label": 1}]))
        if two:
            predict.model_validate(await posted(http, "/learners/a/predict?explain=2", request))
        await engine.get("a").log.catch_up()
        await figures()
        snapshot = await http.post("/learners/a/snapshots")
        schemas.SnapshotDocument.model_validate_json(snapshot.content)
        changed = await http.patch("/learners/a", json={"late": {"label_ttl": 5}})
        schemas.LearnerDocument.model_validate_json(changed.content)


async def test_a_learner_document_with_warnings_and_one_with_members_match_the_schema() -> None:
    async with serving(MemoryStore()) as (http, _):
        created = await http.put("/learners/steady", json={**SETUPS["dense"], "algorithm": "cbr", "params": {}})
        document = schemas.LearnerDocument.model_validate_json(created.content)
        assert [(warning.code, warning.pointer) for warning in document.warnings] == [
            ("moving-base-rate", "/algorithm")
        ]
        several = {**SETUPS["dense"], "algorithm": "auto", "params": {"budget": "fast"}}
        await http.put("/learners/several", json=several)
        await posted(http, "/learners/several/update", labelled("dense", 0, 50))
        reply = await http.get("/learners/several")
        document = schemas.LearnerDocument.model_validate_json(reply.content)
        assert document.warnings == []
        assert [member.name for member in document.members or []] == [
            "cbr-diag",
            "loam-ada",
            "fofo",
            "bins",
            "pairs",
            "auto",
        ]


async def test_group_replies_match_their_schemas() -> None:
    async with serving(MemoryStore()) as (http, _):
        await groups.created(http)
        await got(http, "/groups/g/compare", schemas.Comparison)  # null yet
        updated = await posted(http, "/groups/g/update", groups.labelled(0, 100))
        schemas.GroupUpdateReply.model_validate(updated)
        served = await posted(http, "/groups/g/predict", [groups.event(100)])
        schemas.GroupPredictReply.model_validate(served)
        await got(http, "/groups/g/compare", schemas.Comparison)
        await got(http, "/groups/g", schemas.GroupDocument)
        await got(http, "/groups", schemas.GroupList)
        await got(http, "/groups?tests=true", schemas.GroupList)
        report = (await http.get("/groups?tests=true")).json()["groups"][0]
        assert report.pop("tests") == (await http.get("/groups/g/compare")).json()["tests"]
        assert report == (await http.get("/groups/g")).json()
