"""Clones, exports, imports and weights: equal states, complete or not at all, and refusals."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from learners import Config, Learner
from service.engine.engine import Engine
from service.engine.records.codec import Created, Snapshot, pack_record, pack_snapshot, unpack_record, unpack_snapshot
from service.engine.weights import MAX_TOP
from service.errors import StoreUnavailable
from service.storage.memory import MemoryStore
from service.storage.store_protocol import LogHead
from tests.harness.apps import DENSE, client, events
from tests.harness.nodes import T0, digest, node, over, posted, serving
from tests.harness.process import Process
from tests.harness.waiting import eventually_async

pytestmark = pytest.mark.integration

URL = "/v1/learners"
SETUPS: dict[str, dict[str, Any]] = {
    "dense": DENSE,
    "single": {**DENSE, "algorithm": "cbr", "precision": "float32"},
    "budget": {**DENSE, "threshold": {"objective": "budget", "alerts": 3}, "calibration": {"kind": "isotonic"}},
    "embedded": {**DENSE, "algorithm": "nsauc", "embedding": {"kind": "nystroem", "components": 4, "warmup": 20}},
    "batch": {**DENSE, "algorithm": "ranksvm", "refit_every": 30, "refit_window": 50},
    "members": {**DENSE, "algorithm": "auto", "params": {"members": ["bins", "fofo"], "memory": 200}},
    "custom": {
        **DENSE,
        "algorithm": "auto",
        "params": {
            "members": [
                "fofo",
                {"algorithm": "cbr", "embedding": {"kind": "nystroem", "components": 4, "warmup": 20}},
                {"algorithm": "forest", "params": {"trees": 2}},
            ]
        },
        "refit_every": 30,
        "refit_window": 50,
    },
}


@pytest.fixture
async def http():
    async with client(max_import_bytes=2**20) as node:
        await node.put(f"{URL}/a", json=DENSE)
        await node.post(f"{URL}/a/update", json={"events": events(40)})
        yield node


async def digest_of(http: httpx.AsyncClient, name: str) -> str:
    document: str = (await http.get(f"{URL}/{name}/digest")).json()["digest"]
    return document


def timed(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Return events with fixed times."""
    return [{**event, "time": T0 + 60.0 * k} for k, event in enumerate(events(count, start), start)]


async def fitted(engine: Engine) -> None:
    """Wait until no fit of a is running."""
    await eventually_async(lambda: not engine.get("a").fits.running)


# Clones


@pytest.mark.parametrize(
    "setup", [pytest.param(name, marks=[pytest.mark.integration] * (name == "single")) for name in SETUPS]
)
async def test_a_clone_copies_the_state_and_evolves_separately(setup):
    async with serving(MemoryStore()) as (http, engine):
        await http.put("/learners/a", json=SETUPS[setup])
        await posted(http, "/learners/a/update", timed(60))
        await engine.get("a").snapshots.save()
        await posted(http, "/learners/a/update", timed(20, 60))
        await fitted(engine)  # what a fit makes would come between the looks below
        reply = await http.post("/learners/a/clone", json={"to": "b"})
        assert reply.status_code == 201
        document = reply.json()
        source = (await http.get("/learners/a")).json()
        assert {**document, "name": "a", "position": source["position"], "snapshot": source["snapshot"]} == source
        assert document["position"] == 1
        assert (await digest(http, "b"))[1] == (await digest(http, "a"))[1]
        for name in "ab":
            await posted(http, f"/learners/{name}/update", timed(20, 80))
        await fitted(engine)
        if setup != "batch":  # whose fits come when they are done
            assert (await digest(http, "b"))[1] == (await digest(http, "a"))[1]
        before = await digest(http, "a")
        again = await posted(http, "/learners/b/update", timed(21, 80))
        assert (again["duplicate"], again["applied"]) == (20, 1)  # the ids came along
        assert await digest(http, "a") == before
        assert (await digest(http, "b"))[1] != before[1]


async def test_served_events_stay_with_the_source_of_a_clone(http):
    served = [{key: event[key] for key in ("id", "x")} for event in events(1, 900)]
    await http.post(f"{URL}/a/predict", json={"events": served})
    await http.post(f"{URL}/a/clone", json={"to": "b"})
    label = {"events": [{"id": "e900", "label": 1}]}
    assert (await http.post(f"{URL}/b/labels", json=label)).json()["unknown"] == 1
    assert (await http.post(f"{URL}/a/labels", json=label)).json()["applied"] == 1


@pytest.mark.parametrize("trim", [True, False])
async def test_a_clone_survives_a_crash_at_any_later_time(open_again, trim):
    async with serving(await open_again(), trim_log=trim, snapshots_kept=1) as (http, _):
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/update", events(50))
        await http.post("/learners/a/clone", json={"to": "b"})
        first = await digest(http, "b")
    async with serving(await open_again(), trim_log=trim, snapshots_kept=1) as (http, engine):  # from its first record
        assert await digest(http, "b") == first
        assert await digest(http, "b") == (1, (await digest(http, "a"))[1])
        await posted(http, "/learners/b/update", events(10, 50))
        second = await digest(http, "b")
    async with serving(await open_again(), trim_log=trim, snapshots_kept=1) as (
        http,
        engine,
    ):  # from its first and second
        assert await digest(http, "b") == second
        await engine.get("b").snapshots.save()
    async with serving(await open_again(), trim_log=trim, snapshots_kept=1) as (http, _):  # from a snapshot of its own
        assert await digest(http, "b") == second


class Failing(MemoryStore):
    """A store whose creations fail before or after they are written, like a crash."""

    fails: str | None = None

    async def create(self, learner: str, token: bytes, data: bytes) -> LogHead:
        if self.fails == "before":
            raise StoreUnavailable("the store is away")
        head = await super().create(learner, token, data)
        if self.fails == "after":
            raise StoreUnavailable("the answer was lost")
        return head


@pytest.mark.parametrize("fails", ["before", "after"])
async def test_a_clone_is_created_completely_or_not_at_all(fails):
    store = Failing()
    async with serving(store) as (http, _):
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/update", events(50))
        store.fails = fails
        assert (await http.post("/learners/a/clone", json={"to": "b"})).status_code == 503
        source = await digest(http, "a")
    async with serving(store) as (http, _):
        if fails == "before":
            assert (await http.get("/learners/b")).status_code == 404
        else:
            assert (await digest(http, "b"))[1] == source[1]
        assert await digest(http, "a") == source


async def test_a_clone_is_visible_on_another_node():
    store = MemoryStore()
    async with serving(store) as (node_a, first), serving(store) as (node_b, second):
        await node_a.put("/learners/a", json=DENSE)
        await second.sync.check_heads()
        await posted(node_b, "/learners/a/update", events(30))  # which the first node has not read yet
        assert (await node_a.post("/learners/a/clone", json={"to": "b"})).status_code == 201
        await second.sync.check_heads()
        assert (await digest(node_a, "b"))[1] == (await digest(node_b, "b"))[1] == (await digest(node_b, "a"))[1]
        await second.delete("b")
        await node_b.put("/learners/b", json=DENSE)
        await first.sync.check_heads()
        assert (await node_a.get("/learners/b")).json()["events"] == 0


async def test_a_name_created_meanwhile_by_another_node_is_reported():
    store = MemoryStore()
    async with serving(store) as (node_a, _), serving(store) as (node_b, second):
        await node_a.put("/learners/a", json=DENSE)
        await second.sync.check_heads()
        await node_b.put("/learners/b", json={**DENSE, "seed": 5})
        reply = await node_a.post("/learners/a/clone", json={"to": "b"})
        assert (reply.status_code, reply.json()["code"]) == (409, "name-taken")
        assert (await node_a.get("/learners/b")).json()["config"]["seed"] == 5


async def test_an_evicted_learner_is_loaded():
    store = MemoryStore()
    async with serving(store) as (http, _):
        for name in "abcd":
            await http.put(f"/learners/{name}", json={**DENSE, "seed": ord(name)})
            await posted(http, f"/learners/{name}/update", events(20))
    async with serving(store, max_resident=1) as (http, engine):
        asleep = next(iter(engine.evicted))
        assert (await http.get(f"/learners/{asleep}/weights")).json()["total"] == 3
        asleep = next(iter(engine.evicted))
        assert (await http.post(f"/learners/{asleep}/clone", json={"to": "copy"})).status_code == 201
        assert (await digest(http, "copy"))[1] == (await digest(http, asleep))[1]
        engine.residency.evict_idle()
        assert engine.residency.eviction is not None
        await asyncio.wait([engine.residency.eviction])
        evicted_name = next(iter(engine.evicted))
        reply = await http.post("/learners/copy/clone", json={"to": evicted_name})
        assert (reply.status_code, reply.json()["code"]) == (409, "name-taken")
        asleep = next(iter(engine.evicted))
        assert (await http.get(f"/learners/{asleep}/export")).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"to": "no good"}, 422, "/to"),
        ({"to": 5}, 422, "/to"),
        ({}, 422, "/to"),
        ({"to": "b", "from": "a"}, 422, "/from"),
        ([], 422, ""),
        ({"to": "a"}, 409, None),
    ],
)
async def test_an_invalid_clone_is_refused(http, body, status, pointer):
    reply = await http.post(f"{URL}/a/clone", json=body)
    assert reply.status_code == status
    assert [error["pointer"] for error in reply.json()["errors"]] == ([] if pointer is None else [pointer])
    assert [error["name"] for error in (await http.get(URL)).json()["learners"]] == ["a"]


async def test_clones_of_missing_learners_and_unreadable_bodies_are_refused(http):
    assert (await http.post(f"{URL}/nobody/clone", json={"to": "b"})).status_code == 404
    assert (await http.post(f"{URL}/a/clone", content=b"{")).status_code == 400
    assert (await http.post(f"{URL}/a/clone", content=b"{}", headers={"content-type": "text/csv"})).status_code == 415
    assert (await http.post(f"{URL}/a/clone?deep=1", json={"to": "b"})).status_code == 422


async def test_copies_count_towards_the_learner_limit():
    async with client(max_learners=1) as http:
        await http.put(f"{URL}/a", json=DENSE)
        reply = await http.post(f"{URL}/a/clone", json={"to": "b"})
        assert (reply.status_code, reply.json()["code"]) == (409, "limit-reached")


async def test_a_state_too_large_for_the_store_is_refused(http, monkeypatch):
    monkeypatch.setattr("service.engine.engine.RECORD_BYTES", 1000)
    reply = await http.post(f"{URL}/a/clone", json={"to": "b"})
    assert (reply.status_code, reply.json()["code"]) == (413, "too-large")
    assert (await http.get(f"{URL}/b")).status_code == 404


async def test_concurrent_clones_to_one_name_create_one_learner(http):
    replies = await asyncio.gather(*(http.post(f"{URL}/a/clone", json={"to": "b"}) for _ in range(5)))
    assert sorted(reply.status_code for reply in replies) == [201, 409, 409, 409, 409]
    assert await digest_of(http, "b") == await digest_of(http, "a")


@pytest.mark.integration
def test_clones_survive_kill_9(tmp_path: Path) -> None:
    process = Process(f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "log")
    with process, httpx.Client(base_url=f"{process.url}{URL}", timeout=300, trust_env=False) as http:
        http.put("/a", json=DENSE).raise_for_status()
        http.post("/a/update", json={"events": events(100)}).raise_for_status()
        for name in ("b", "c"):
            http.post("/a/clone", json={"to": name}).raise_for_status()
        process.kill()
        process.start()
        document = {http.get(f"/{name}/digest").json()["digest"] for name in "abc"}
        assert len(document) == 1


@pytest.mark.campaign  # `test_clones_survive_kill_9` kills once
def test_clones_interrupted_by_kill_9_are_complete_or_absent(tmp_path: Path) -> None:
    process = Process(f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "log")
    chance = random.Random(0)
    with process, httpx.Client(base_url=f"{process.url}{URL}", timeout=300, trust_env=False) as http:
        http.put("/a", json={**DENSE, "algorithm": "cbr", "features": {"kind": "dense", "dim": 500}}).raise_for_status()
        rows = [{"x": [float((i * j) % 7) for j in range(500)], "label": i % 2} for i in range(20)]
        http.post("/a/update", json={"events": rows}).raise_for_status()
        source = http.get("/a/digest").json()["digest"]
        for turn in range(5):
            names = [f"copy-{turn}-{k}" for k in range(20)]

            def clone(names: list[str] = names) -> None:
                for name in names:
                    with contextlib.suppress(httpx.TransportError):  # killed before the answer
                        httpx.post(f"{process.url}{URL}/a/clone", json={"to": name}, trust_env=False, timeout=300)

            thread = threading.Thread(target=clone)
            thread.start()
            time.sleep(chance.uniform(0.0, 0.15))
            process.kill()
            thread.join()
            process.start()
            for name in names:
                reply = http.get(f"/{name}/digest")
                assert reply.status_code == 404 or reply.json()["digest"] == source
                if reply.status_code == 200:
                    http.delete(f"/{name}").raise_for_status()
        assert http.get("/a/digest").json()["digest"] == source


# Files


async def test_an_export_can_be_imported_elsewhere(http):
    reply = await http.get(f"{URL}/a/export")
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["content-disposition"] == 'attachment; filename="a-2.rarestream"'
    headers = {"content-type": "application/octet-stream"}
    async with client() as other_http:
        created = await other_http.post(f"{URL}/b/import", content=reply.content, headers=headers)
        assert created.status_code == 201
        assert created.json()["events"] == 40
        assert await digest_of(other_http, "b") == await digest_of(http, "a")
        assert (await other_http.get(f"{URL}/b/export")).content[10:].endswith(reply.content[-1000:])
        conflict = await other_http.post(f"{URL}/b/import", content=reply.content)
        assert (conflict.status_code, conflict.json()["code"]) == (409, "name-taken")


async def test_an_export_of_a_learner_whose_log_is_damaged_has_what_can_be_read():
    store = MemoryStore()
    async with node(store) as engine, over(engine) as http:
        replica, _ = await engine.create("a", Config.of(DENSE))
        (await http.post("/learners/a/update", json={"events": events(40)})).raise_for_status()
        before = (await http.get("/learners/a/digest")).json()
        await store.append("a", replica.birth, [(b"t" * 16, b"rubbish")], replica.position)
        for _ in range(2):
            assert (await http.post("/learners/a/update", json={"events": events(1)})).json()["code"] == "damaged"
            assert (await http.post("/learners/a/clone", json={"to": "c"})).json()["code"] == "damaged"
            exported = (await http.get("/learners/a/export")).raise_for_status()
        headers = {"content-type": "application/octet-stream"}
        (await http.post("/learners/b/import", content=exported.content, headers=headers)).raise_for_status()
        assert (await http.get("/learners/b/digest")).json()["digest"] == before["digest"]
        assert f"a-{before['position']}." in exported.headers["content-disposition"]
        assert (await http.get("/learners/a")).json()["failed"]
        assert (await http.post("/learners/b/update", json={"events": events(1)})).status_code == 200


async def test_invalid_import_files_are_refused(http):
    good = (await http.get(f"{URL}/a/export")).content
    snapshot: Snapshot = unpack_snapshot(good, "file")
    assert isinstance(snapshot.config, Config)
    other = Learner(Config.of({**DENSE, "features": {"kind": "dense", "dim": 4}}))
    nan = {name: array.copy() for name, array in snapshot.state.items()}
    spoilt = next(name for name, item in nan.items() if name.startswith("algorithm.") and item.dtype == np.float64)
    nan[spoilt][...] = np.nan
    lacking = dict(snapshot.state)
    del lacking["ids.count"]
    wrong = {
        "a part": good[:7],
        "a byte too few": good[:-1],
        "another format": b"PK" + good,
        "nothing": b"",
        "another version": good[:4] + b"\x09" + good[5:],
        "a record": pack_record(Created(snapshot.config.to_json())),
        "another dimension": pack_snapshot(3, snapshot.config, other.state()),
        "an array too few": pack_snapshot(3, snapshot.config, lacking),
        "no number": pack_snapshot(3, snapshot.config, nan),
    }
    details = set()
    for name, data in wrong.items():
        reply = await http.post(f"{URL}/b/import", content=data)
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid"), name
        details.add(reply.json()["detail"])
    assert len(details) == len(wrong)  # each has its reason
    assert (await http.get(f"{URL}/b")).status_code == 404


async def test_an_invalid_name_and_an_invalid_file_are_refused_immediately(http):
    good = (await http.get(f"{URL}/a/export")).content
    reply = await http.post(f"{URL}/no name/import", content=good[:-1])
    name = await http.post(f"{URL}/no name/import", content=good)
    assert (reply.status_code, name.status_code) == (422, 422)
    assert "checksum" in reply.json()["detail"]
    assert "checksum" not in name.json()["detail"]
    assert reply.json()["errors"] == name.json()["errors"]
    assert [error["pointer"] for error in name.json()["errors"]] == ["/name"]
    assert [error["name"] for error in (await http.get(URL)).json()["learners"]] == ["a"]


async def test_every_flipped_byte_is_detected(http):
    good = (await http.get(f"{URL}/a/export")).content
    for place in np.random.default_rng(0).integers(0, len(good), 40).tolist():
        bad = bytearray(good)
        bad[place] ^= 0x41
        assert (await http.post(f"{URL}/b/import", content=bytes(bad))).status_code == 422


async def test_the_state_of_a_group_cannot_be_imported_as_a_learner():
    async with serving(MemoryStore()) as (http, engine):
        for name in "ab":
            await http.put(f"/learners/{name}", json=DENSE)
        await http.put("/groups/g", json={"learners": ["a", "b"]})
        machine = (await engine.group("g")).log.machine.core
        reply = await http.post("/learners/c/import", content=pack_snapshot(2, machine.config, machine.state()))
        assert reply.status_code == 422
        assert "group" in reply.json()["detail"]


async def test_imports_are_limited(http):
    reply = await http.post(f"{URL}/b/import", content=bytes(2**20 + 1))
    assert (reply.status_code, reply.json()["code"]) == (413, "too-large")
    assert "max_import_bytes" in reply.json()["detail"]
    reply = await http.post(f"{URL}/b/import", content=b"{}", headers={"content-type": "application/json"})
    assert reply.status_code == 415
    assert (await http.post(f"{URL}/no%20good/import", content=b"x")).status_code == 422
    assert (await http.post(f"{URL}/b/import?force=1", content=b"x")).status_code == 422


async def test_an_import_may_be_larger_than_other_bodies():
    async with client(max_body_bytes=1024) as http:
        await http.put(f"{URL}/a", json=DENSE)
        data = (await http.get(f"{URL}/a/export")).content
        assert len(data) > 1024
        assert (await http.post(f"{URL}/b/import", content=data)).status_code == 201


def test_the_creation_record_of_a_copy_is_a_snapshot_at_position_1():
    learner = Learner(Config.of(DENSE))
    data = pack_record(Created(learner.config.to_json(), learner.state()))
    snapshot, record = unpack_snapshot(data, "it"), unpack_record(data, "it")
    assert (snapshot.position, snapshot.config) == (1, learner.config)
    assert isinstance(record, Created)
    assert record.state is not None
    assert Learner.restored(Config.of(record.config), record.state).digest() == learner.digest()


# Weights


async def weights_of(http: httpx.AsyncClient, name: str, query: str = "") -> Any:
    reply = await http.get(f"{URL}/{name}/weights{query}")
    assert reply.status_code == 200, reply.text
    return reply.json()


async def test_weights_are_those_used_for_scoring(http):
    weights = await weights_of(http, "a")
    assert (weights["total"], weights["reason"]) == (3, None)
    assert weights["position"] == (await http.get(f"{URL}/a")).json()["position"]
    sizes = [abs(weight["weight"]) for weight in weights["weights"]]
    assert sizes == sorted(sizes, reverse=True)
    assert {weight["name"] for weight in weights["weights"]} == {"x[0]", "x[1]", "x[2]"}
    assert (await weights_of(http, "a", "?top=1"))["weights"] == weights["weights"][:1]
    plain = {**DENSE, "scaling": {"kind": "none"}}
    await http.put(f"{URL}/plain", json=plain)
    await http.post(f"{URL}/plain/update", json={"events": events(40)})
    weights = await weights_of(http, "plain")
    x = [0.5, -2.0, 3.0]
    score = (await http.post(f"{URL}/plain/predict", json={"events": [{"x": x}]})).json()["results"][0]["score"]
    by_name = {weight["name"]: weight["weight"] for weight in weights["weights"]}
    assert score == pytest.approx(weights["intercept"] + sum(x[k] * by_name[f"x[{k}]"] for k in range(3)))


async def test_names_of_sparse_columns(http):
    sparse = {"algorithm": "fofo", "features": {"kind": "sparse", "dim": 1000}}
    await http.put(f"{URL}/s", json=sparse)
    rows = [{"indices": [7, 900], "values": [1.0, 2.0], "label": k % 2} for k in range(6)]
    await http.post(f"{URL}/s/update", json={"events": rows})
    weights = await weights_of(http, "s")
    assert ({weight["name"] for weight in weights["weights"]}, weights["total"]) == ({"[7]", "[900]"}, 2)


async def test_known_names_of_hashed_features(http):
    named = {
        "algorithm": "fofo", "features": {"kind": "named", "bits": 12, "log": ["amount", "age"]},
        "scaling": {"kind": "none"},
    }  # fmt: skip
    await http.put(f"{URL}/n", json=named)
    rows = [{"features": {"amount": 5.0 * k, "country": "XX"}, "label": k % 2} for k in range(1, 9)]
    await http.post(f"{URL}/n/update", json={"events": rows})
    weights = await weights_of(http, "n")
    by_name = {weight["name"]: weight["weight"] for weight in weights["weights"]}
    assert weights["total"] == 2
    assert "amount" in by_name
    assert len([name for name in by_name if name.startswith("column ")]) == 1
    event = {"features": {"amount": 30.0}}
    predictions = (await http.post(f"{URL}/n/predict?explain=1", json={"events": [event]})).json()["results"][0]
    output = predictions["explanation"]["features"][0]
    assert output["contribution"] == pytest.approx(by_name["amount"] * np.log1p(30.0))  # its sign is the feature's own


async def test_names_of_table_columns(http):
    fields = [{"name": "amount", "kind": "numeric"}, {"name": "country", "kind": "categorical", "categories": 2}]
    await http.put(f"{URL}/t", json={"algorithm": "cbr", "features": {"kind": "table", "fields": fields}})
    rows = [{"features": {"amount": k, "country": "ABC"[k % 3]}, "label": k % 2} for k in range(12)]
    await http.post(f"{URL}/t/update", json={"events": rows})
    weights = await weights_of(http, "t")
    assert {weight["name"] for weight in weights["weights"]} == {
        "amount", "amount (missing)", "country (others)", *(f"country (category {k})" for k in (1, 2))
    }  # fmt: skip
    assert weights["unnamed"] == 2


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"algorithm": "nsauc", "embedding": {"kind": "nystroem", "components": 4, "warmup": 20}},
            "nystroem",
        ),
        ({"algorithm": "npsvor", "params": {"ranks": 3}}, "npsvor"),
        ({"algorithm": "ranksvm", "refit_every": 500}, "model"),
    ],
)
async def test_learners_without_weights_state_the_reason(http, config, message):
    await http.put(f"{URL}/x", json={"features": DENSE["features"], **config})
    weights = await weights_of(http, "x")
    assert (weights["intercept"], weights["weights"], weights["total"]) == (None, [], 0)
    assert message in weights["reason"]


@pytest.mark.parametrize("query", ["top=0", f"top={MAX_TOP + 1}", "top=many", "most=3"])
async def test_invalid_requests_for_weights_are_refused(http, query):
    reply = await http.get(f"{URL}/a/weights?{query}")
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["pointer"].endswith(query.partition("=")[0])
    assert (await http.get(f"{URL}/nobody/weights")).status_code == 404


async def test_openapi_describes_clone_export_import_and_weights(http):
    paths = (await http.get("/openapi.json")).json()["paths"]
    clone = paths["/v1/learners/{name}/clone"]["post"]
    assert clone["requestBody"]["content"]["application/json"]["examples"]
    assert {"201", "404", "409", "413", "422"} <= clone["responses"].keys()
    assert "application/octet-stream" in paths["/v1/learners/{name}/export"]["get"]["responses"]["200"]["content"]
    assert "application/octet-stream" in paths["/v1/learners/{name}/import"]["post"]["requestBody"]["content"]
    top = paths["/v1/learners/{name}/weights"]["get"]["parameters"]
    schema = next(item for item in top if item["name"] == "top")["schema"]
    assert schema.pop("description")
    assert schema == {"type": "integer", "maximum": MAX_TOP, "minimum": 1, "default": 20, "title": "Top"}
