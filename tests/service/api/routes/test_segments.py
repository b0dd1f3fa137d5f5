"""Segments over HTTP: the same on every store, after late labels, corrections, restarts, and in every coding."""

from __future__ import annotations

from typing import Any

import httpx
import msgpack
import numpy as np
import pytest

from learners import Config, Learner
from service.api import schemas
from service.storage.memory import MemoryStore
from service.storage.store_protocol import Store
from tests.harness.nodes import T0, digest, fetched, node, over, posted, replayed, serving

CONFIG: dict[str, Any] = {
    "algorithm": "lr",
    "features": {"kind": "named", "bits": 10},
    "figures": {"segments": ["country"]},
    "window": 100,
}
COUNTRIES = ("DE", "FR", "日本", None)


def event(i: int, **more: Any) -> dict[str, Any]:
    features = {"amount": float((i * 7) % 11), "country": COUNTRIES[i % 3 if i % 7 else 3]}
    return {"id": f"e{i}", "features": features, "time": T0 + i, **more}


def label(i: int) -> int:
    return int((i * 7) % 11 > 7)


async def segments(http: httpx.AsyncClient, **query: Any) -> dict[str, Any]:
    return await fetched(http, "/learners/a/segments", **{"by": "country", "positives": 1, **query})


async def test_late_labels_count_in_the_segment_that_was_served(store: Store) -> None:
    async with serving(store) as (http, _):
        await http.put("/learners/a", json=CONFIG)
        await posted(http, "/learners/a/update", [event(i, label=label(i)) for i in range(40)])
        await posted(http, "/learners/a/predict", [event(i) for i in range(40, 80)])
        before = await segments(http)
        assert before["all"]["events"] == 40
        late = [{"id": f"e{i}", "label": label(i), "time": T0 + 900} for i in range(40, 80)]
        mixed = [*late[:20], *(event(i, label=label(i)) for i in range(80, 90)), *late[20:], {"id": "?", "label": 1}]
        await posted(http, "/learners/a/update", mixed)
        await posted(http, "/learners/a/labels", [{"id": "e41", "label": 1 - label(41)}])
        document = await segments(http)
        schemas.Segments.model_validate(document)
        truth = {i: label(i) for i in range(90)} | {41: 1 - label(41)}
        for row in [*document["segments"], {**document["missing"], "value": None}]:
            labels = [truth[i] for i in range(90) if event(i)["features"]["country"] == row["value"]]
            assert row["class_counts"] == {"negative": labels.count(0), "positive": labels.count(1)}
        assert document["all"]["events"] == 90
        assert document["unrecorded"] == 0
        expected = await digest(http)
    assert await replayed(store) == expected


async def test_expired_labels_count_in_the_segment_that_was_served(store: Store) -> None:
    late = {"label_ttl": 100.0, "unlabelled": "negative"}
    async with node(store) as engine, over(engine) as http:
        await http.put("/learners/a", json={**CONFIG, "late": late})
        await posted(http, "/learners/a/predict", [event(i) for i in range(30)])
        await posted(http, "/learners/a/update", [event(900, label=1)])
        document = await segments(http)
        assert document["all"]["class_counts"] == {"negative": 30, "positive": 1}
        expected = sum(event(i)["features"]["country"] == "FR" for i in range(30))
        assert next(row["events"] for row in document["segments"] if row["value"] == "FR") == expected


async def test_every_coding_and_the_library_give_the_same_segments() -> None:
    config = {**CONFIG, "features": {"kind": "dense", "dim": 2}, "figures": {"segments": ["1"]}}
    X = np.array([[i % 5, i % 4] for i in range(60)], dtype=np.float64)
    y = (X[:, 0] > 2).astype(np.int8)
    learner = Learner(Config.of(config))
    learner.learn(X, y)
    expected = learner.review_segments("1").document(20, 1)

    def column(array: Any) -> dict[str, Any]:
        return {"dtype": array.dtype.name, "shape": list(array.shape), "data": array.tobytes()}

    async with serving(MemoryStore()) as (http, _):
        plain = {"events": [{"x": x, "label": int(v)} for x, v in zip(X.tolist(), y, strict=True)]}
        slow = {"events": [*plain["events"][:-1], {**plain["events"][-1], "weight": 1, "time": None}]}
        packed = msgpack.packb({"x": column(X.astype(np.float32)), "labels": column(y)})
        whole = msgpack.packb({"x": column(X), "labels": column(y), "weights": [1] * 60})
        for name, body in (("json", plain), ("slow", slow), ("dense", packed), ("columns", whole)):
            await http.put(f"/learners/{name}", json=config)
            coded = {"json": body} if isinstance(body, dict) else {"content": body}
            kind = {} if isinstance(body, dict) else {"content-type": "application/msgpack"}
            reply = await http.post(f"/learners/{name}/update", headers=kind, **coded)  # type: ignore[arg-type]
            assert reply.status_code == 200, reply.text
            document = await fetched(http, f"/learners/{name}/segments", by="1", positives=1)
            assert {member: document[member] for member in expected} == expected, name


async def test_fields_are_declared_by_a_patch_and_others_are_refused() -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json={**CONFIG, "figures": {}})
        await posted(http, "/learners/a/update", [event(i, label=label(i)) for i in range(30)])
        reply = await http.get("/learners/a/segments", params={"by": "country"})
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid")
        assert [item["pointer"] for item in reply.json()["errors"]] == ["/by"]
        assert (await http.patch("/learners/a", json={"figures": {"segments": ["country"]}})).status_code == 200
        await posted(http, "/learners/a/update", [event(i, label=label(i)) for i in range(30, 50)])
        document = await segments(http)
        assert (document["unrecorded"], document["all"]["events"]) == (30, 50)
        assert sum(row["events"] for row in document["segments"]) + document["missing"]["events"] == 20
        clone = await http.post("/learners/a/clone", json={"to": "b"})
        assert clone.status_code == 201
        copied = await fetched(http, "/learners/b/segments", by="country", positives=1)
        assert copied["segments"] == document["segments"]
        for wrong in (["country", "country"], [f"f{i}" for i in range(17)], "country", [3]):
            before = await digest(http)
            reply = await http.patch("/learners/a", json={"figures": {"segments": wrong}})
            assert reply.status_code == 422
            assert reply.json()["errors"][0]["pointer"].startswith("/figures/segments")
            assert await digest(http) == before


@pytest.mark.parametrize("query", [{}, {"by": "country", "limit": 65}, {"by": "country", "positives": 0}])
async def test_queries_out_of_range_are_refused(query: dict[str, Any]) -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=CONFIG)
        assert (await http.get("/learners/a/segments", params=query)).status_code == 422
