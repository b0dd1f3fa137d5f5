"""The fields of named events over every door: a value gives the same feature, or the same refusal, however it comes."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import InvalidInput, create
from learners.config import Config
from learners.features import MAX_FIELDS
from rarestream.client.encode import EventBatch, encode_labelled
from service.errors import BadBody, Invalid
from service.storage.memory import MemoryStore
from service.wire import json_decode, msgpack_decode
from tests.harness.apps import client
from tests.harness.msgpack_bodies import HEADERS, columns_of
from tests.harness.nodes import app_over, node
from tests.harness.websocket import websocket

pytestmark = pytest.mark.integration

CONFIG: dict[str, Any] = {
    "algorithm": "cbr-diag",
    "features": {"kind": "named", "bits": 16, "categorical": ["shop"], "log": ["fee"], "text": ["body"]},
    "seed": 3,
}
STREAM: list[dict[str, Any]] = [
    {"amount": 12.5, "shop": 17, "new": True, " city": "C\u00f3rdoba", "fee": 3, "zip": "01234", "body": "Buy now"},
    {"amount": "950", "shop": "17.0", "new": "True", "city": " Co\u0301rdoba ", "fee": "3.5", "zip": 1234},
    {"amount": "-", "shop": 17.0, "new": "false", "city": None, "fee": "NULL", "tags": ["a", 7, "7.0", True]},
    {"amount": "DE", "shop": "", "new": 1, "fee": None, "id2": 9007199254740993, "tags": []},
    {"amount": True, "shop": True, "city": 12.5, "body": 7, "id2": "9007199254740993"},
]


def labelled(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"features": event, "label": i % 2} for i, event in enumerate(events)]


@asynccontextmanager
async def service() -> AsyncIterator[tuple[Any, httpx.AsyncClient]]:
    async with node(MemoryStore()) as engine:
        app = app_over(engine)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://rarestream/v1") as http:
            yield app, http


async def test_every_door_leads_to_the_same_state() -> None:
    local = create(**CONFIG)
    local.learn(STREAM, [i % 2 for i in range(len(STREAM))])
    events = labelled(STREAM)
    async with service() as (app, http):
        for door in ("json", "msgpack", "ndjson", "websocket", "client"):
            assert (await http.put(f"/learners/{door}", json=CONFIG)).status_code == 201
        await http.post("/learners/json/update", json={"events": events})
        await http.post("/learners/msgpack/update", content=msgpack.packb(columns_of(events)), headers=HEADERS)
        lines = "".join(json.dumps(event) + "\n" for event in events)
        ndjson = {"content-type": "application/x-ndjson"}
        await http.post("/learners/ndjson/update", content=lines.encode(), headers=ndjson)
        async with websocket(app, "/v1/learners/websocket/ws") as socket:
            for i, event in enumerate(events):
                socket.send(json.dumps({"seq": i, "op": "update", "events": [event]}))
                assert json.loads((await socket.event())["text"])["seq"] == i
        scalars = [{**event, "amount": _scalar(event.get("amount"))} for event in STREAM]
        batch = EventBatch(scalars, [i % 2 for i in range(len(STREAM))])
        encoded = encode_labelled(batch)
        await http.post("/learners/client/update", content=encoded.body(0, len(STREAM)), headers=HEADERS)
        documents = {}
        for door in ("json", "msgpack", "ndjson", "websocket", "client"):
            assert (await http.get(f"/learners/{door}/digest")).json()["digest"] == local.digest(), door
            documents[door] = (await http.get(f"/learners/{door}/fields")).json()["fields"]
        assert all(fields == documents["json"] for fields in documents.values())


def _scalar(value: Any) -> Any:
    return np.float64(value) if isinstance(value, float) else value


async def test_the_document_of_fields() -> None:
    async with client() as http:
        await http.put("/v1/learners/a", json=CONFIG)
        assert (await http.get("/v1/learners/a/fields")).json()["events"] == 0
        await http.post("/v1/learners/a/update", json={"events": labelled(STREAM)})
        document = (await http.get("/v1/learners/a/fields")).json()
        assert (document["position"], document["events"], document["absent"], document["reason"]) == (2, 5, [], None)
        fields = {field["name"]: field for field in document["fields"]}
        assert list(fields)[:3] == ["fee", "shop", "body"]
        assert fields["amount"] == {
            "name": "amount",
            "kind": "number",
            "declared": False,
            "values": 4,
            "missing": 1,
            "missing_texts": 1,
            "numbers": 1,
            "numbers_as_text": 1,
            "booleans": 1,
            "texts": 1,
            "lists": 0,
            "contradictions": 2,
            "new_categories": 0,
            "out_of_range": 0,
            "remarks": [],
            "smallest": 12.5,
            "largest": 950.0,
            "low": None,
            "high": None,
            "last": 5,
        }
        assert (fields["city"]["kind"], fields["city"]["new_categories"]) == ("category", 2)
        await http.put("/v1/learners/b", json={"algorithm": "fofo", "features": {"kind": "dense", "dim": 1}})
        other = (await http.get("/v1/learners/b/fields")).json()
        assert (other["fields"], other["reason"] is None) == ([], False)


async def test_fields_of_events_that_wait_for_labels_are_remembered() -> None:
    async with client() as http:
        for name in ("a", "b"):
            await http.put(f"/v1/learners/{name}", json={**CONFIG, "late": {"label_ttl": 1000.0}})
        served = [{"id": f"e{i}", "features": event, "time": 1.7e9} for i, event in enumerate(STREAM)]
        await http.post("/v1/learners/a/predict", json={"events": served})
        labels = [{"id": f"e{i}", "label": i % 2, "time": 1.7e9} for i in range(len(STREAM))]
        reply = (await http.post("/v1/learners/a/labels", json={"events": labels})).json()
        assert reply["applied"] == len(STREAM)
        await http.post("/v1/learners/b/update", json={"events": labelled(STREAM)})
        fields = [(await http.get(f"/v1/learners/{name}/fields")).json()["fields"] for name in ("a", "b")]
        assert fields[0] == fields[1]


values = (
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["17", "17.0", "-", "NULL", " x ", "01", "1e400", "\u0130", "nan", "C\u0327"])
    | st.lists(st.booleans() | st.integers(-9, 9) | st.text(max_size=3) | st.none(), max_size=3)
    | st.dictionaries(st.text(max_size=2), st.integers(-9, 9), max_size=1)
)
events_of_any_value = st.lists(
    st.dictionaries(st.sampled_from(["a", " a", "shop", "fee", "body", "C\u0327"]), values, min_size=1, max_size=3),
    min_size=1,
    max_size=4,
)


def outcome(decode: Any) -> Any:
    """Return what an encoding of events becomes: rows to the bit and fields, or that they are refused."""
    try:
        rows, fields = decode()
    except (InvalidInput, Invalid, BadBody):
        return "refused"  # which of several bad values is named depends on the order of columns or events
    return [part.tobytes() for part in rows], fields


@given(events_of_any_value)
@settings(max_examples=60, deadline=None)
def test_any_value_gives_the_same_feature_or_the_same_refusal(events: list[dict[str, Any]]) -> None:
    config = Config.of(CONFIG)

    def library() -> Any:
        return config.encode(events), config.features.field_names(events)

    def by_json() -> Any:
        batch, _ = json_decode.decode_update(json.dumps({"events": labelled(events)}).encode(), config)
        return batch.rows, batch.fields

    def by_msgpack() -> Any:
        batch, _ = msgpack_decode.decode_update(msgpack.packb(columns_of(labelled(events))), config)
        return batch.rows, batch.fields

    expected = outcome(library)
    assert outcome(by_msgpack) == expected
    if all(value == value and abs(value) < np.inf for event in events for value in event.values() if _is_float(value)):
        assert outcome(by_json) == expected  # JSON has no NaN and no infinity


def _is_float(value: Any) -> bool:
    return isinstance(value, float)


@pytest.mark.parametrize("value", ["twelve", [1], "1e31", "1_000"])
async def test_a_refused_value_leaves_no_field(value: Any) -> None:
    async with client() as http:
        await http.put("/v1/learners/a", json=CONFIG)
        reply = await http.post("/v1/learners/a/update", json={"events": labelled([{"other": 1, "fee": value}])})
        assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (422, "/events/0/features/fee")
        document = (await http.get("/v1/learners/a/fields")).json()
        assert ([field["name"] for field in document["fields"]], document["events"]) == (["fee", "shop", "body"], 0)


async def test_fields_beyond_the_bound_are_reported() -> None:
    async with client() as http:
        await http.put("/v1/learners/a", json=CONFIG)
        for count in (MAX_FIELDS - 1, MAX_FIELDS, MAX_FIELDS + 1):
            events = labelled([{f"x{i}": 1.5 for i in range(count)}])
            await http.post("/v1/learners/a/update", json={"events": events})
            document = (await http.get("/v1/learners/a/fields")).json()
            assert document["omitted"] == (count >= MAX_FIELDS)
            assert sum(not field["declared"] for field in document["fields"]) == min(count, MAX_FIELDS)


async def test_declared_fields_that_never_come_and_counts_are_exported() -> None:
    async with client() as http:
        features = {"kind": "named", "log": ["Fee"], "categorical": ["shop"]}
        await http.put("/v1/learners/a", json={"algorithm": "fofo", "features": features})
        await http.put("/v1/learners/b", json={"algorithm": "fofo", "features": {"kind": "dense", "dim": 1}})
        events = [{"fee": 1.5, "shop": i % 7} for i in range(997)] + [{"fee": "12.5"}, {"fee": "-"}, {"fee": "x"}]
        await http.post("/v1/learners/a/update", json={"events": labelled(events)})
        assert (await http.get("/v1/learners/a/fields")).json()["absent"] == ["Fee"]
        assert (await http.get("/v1/learners/a")).json()["absent_fields"] == ["Fee"]
        assert (await http.get("/v1/learners/b")).json()["absent_fields"] == []
        lines = (await http.get("/metrics")).text.splitlines()
        exported = {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in lines if "field" in line)
            if name.startswith(("rarestream_field", "rarestream_absent_fields"))
        }
        expected = {
            'rarestream_fields{kind="number",learner="a"}': 1,
            'rarestream_fields{kind="category",learner="a"}': 1,
            'rarestream_fields{kind="text",learner="a"}': 0,
            'rarestream_fields{kind="list",learner="a"}': 0,
            'rarestream_fields{kind="mixed",learner="a"}': 0,
            'rarestream_absent_fields{learner="a"}': 1,
            **{f'rarestream_field_events_total{{kind="{kind}",learner="a"}}': 0 for kind in ("text", "list", "mixed")},
            **{f'rarestream_field_missing_total{{kind="{kind}",learner="a"}}': 0 for kind in ("text", "list", "mixed")},
            'rarestream_field_events_total{kind="number",learner="a"}': 2 * 1000,
            'rarestream_field_missing_total{kind="number",learner="a"}': 1000 + 1,  # Fee never comes
            'rarestream_field_events_total{kind="category",learner="a"}': 1000,
            'rarestream_field_missing_total{kind="category",learner="a"}': 3,
            'rarestream_field_values_total{learner="a",sent="numbers"}': 2 * 997,
            'rarestream_field_values_total{learner="a",sent="numbers_as_text"}': 1,
            'rarestream_field_values_total{learner="a",sent="booleans"}': 0,
            'rarestream_field_values_total{learner="a",sent="texts"}': 1,
            'rarestream_field_values_total{learner="a",sent="lists"}': 0,
            'rarestream_field_values_total{learner="a",sent="missing_texts"}': 1,
            'rarestream_field_contradictions_total{learner="a"}': 1,
            'rarestream_field_new_categories_total{learner="a"}': 7,
            'rarestream_field_out_of_range_total{learner="a"}': 1,  # 12.5 after 1.5
        }
        assert exported == expected


@pytest.mark.parametrize(
    "features",
    [
        {"kind": "named"},
        {"kind": "named", "text": ["body"]},
        {"kind": "table", "fields": [{"name": "fee", "kind": "numeric"}]},
        {"kind": "dense", "dim": 1},
        {"kind": "sparse", "dim": 1},
    ],
)
async def test_a_learner_without_events_is_shown_by_every_route(features: dict[str, Any]) -> None:
    async with client() as http:
        (await http.put("/v1/learners/a", json={"algorithm": "fofo", "features": features})).raise_for_status()
        described = (await http.get("/openapi.json")).json()["paths"]
        paths = [
            path for path, item in described.items() if "get" in item and not re.search(r"\{(?!name\})|stream", path)
        ]
        assert len(paths) > 10
        for path in [*(path.replace("{name}", "a") for path in paths if "/groups/" not in path), "/metrics"]:
            assert (await http.get(path)).status_code < 500, path


async def test_a_field_that_goes_missing_is_an_alarm_everywhere() -> None:
    async with client() as http:
        await http.put("/v1/learners/a", json={"algorithm": "fofo", "features": {"kind": "named"}})
        usual, worse = [{"fee": 1.5, "shop": i % 7} for i in range(26 * 512)], [{"shop": i % 7} for i in range(512)]
        for events in (usual, worse):
            reply = await http.post("/v1/learners/a/update", json={"events": labelled(events)})
            reply.raise_for_status()
        document = (await http.get("/v1/learners/a/alarms")).json()
        expected = {"kind": "missing", "events": 27 * 512, "before": 0.0, "after": 1.0, "field": "fee", "fields": 1}
        assert document["counts"]["missing"] == 1
        (alarm,) = [alarm for alarm in document["alarms"] if alarm["kind"] == "missing"]
        assert {name: alarm[name] for name in expected} == expected
        listed = (await http.get("/v1/learners", params={"figures": True})).json()
        assert listed["learners"][0]["alarms"] == document["counts"]
        assert listed["learners"][0]["last_alarm"] == document["alarms"][-1]
        sample = 'rarestream_drift_alarms_total{kind="missing",learner="a"} 1.0'
        assert sample in (await http.get("/metrics")).text.splitlines()


async def test_a_field_that_changes_its_unit_is_an_alarm_everywhere() -> None:
    async with client() as http:
        await http.put("/v1/learners/a", json={"algorithm": "fofo", "features": {"kind": "named"}})
        usual = [{"fee": 1.5 + i % 90} for i in range(26 * 512)]
        cents = [{"fee": 100 * event["fee"]} for event in usual[:512]]
        (await http.post("/v1/learners/a/update", json={"events": labelled(usual)})).raise_for_status()
        (field,) = (await http.get("/v1/learners/a/fields")).json()["fields"]
        assert (field["low"], field["high"], field["out_of_range"]) == (
            pytest.approx(2, abs=1),
            pytest.approx(90, abs=1),
            0,
        )
        (await http.post("/v1/learners/a/update", json={"events": labelled(cents)})).raise_for_status()
        (field,) = (await http.get("/v1/learners/a/fields")).json()["fields"]
        out = sum(event["fee"] > 4 * 90.5 for event in cents)
        assert (field["out_of_range"], field["largest"]) == (out, 9050.0)
        document = (await http.get("/v1/learners/a/alarms")).json()
        assert (document["counts"]["out_of_range"], document["open"]["out_of_range"]) == (1, 1)
        (alarm,) = [alarm for alarm in document["alarms"] if alarm["kind"] == "out_of_range"]
        assert (alarm["events"], alarm["before"], alarm["after"], alarm["field"]) == (27 * 512, 0.0, out / 512, "fee")
        lines = (await http.get("/metrics")).text.splitlines()
        assert 'rarestream_drift_alarms_total{kind="out_of_range",learner="a"} 1.0' in lines
        assert f'rarestream_field_out_of_range_total{{learner="a"}} {out}.0' in lines
