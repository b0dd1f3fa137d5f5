"""Names of hashed columns are noted from later events, through every door."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import numpy as np
import pytest

from learners.config import Config
from learners.features.column_map import columns_of
from learners.features.feature_kinds import Features
from learners.features.named import Named, Table
from learners.numerics.hashing import hash_strings
from service.engine import feature_names
from service.engine.engine import Engine
from service.engine.feature_names import MAX_COLUMNS, ColumnName, FeatureNames
from service.storage.memory import MemoryStore
from service.storage.store_protocol import Store
from tests.harness.msgpack_bodies import array, body
from tests.harness.nodes import app_over, digest, fetched, posted, serving
from tests.harness.websocket import websocket
from tests.service.api.fast_path.test_inline import request, served

pytestmark = pytest.mark.integration

NAMED: dict[str, Any] = {"algorithm": "fofo", "features": {"kind": "named"}, "scaling": {"kind": "none"}}
FIELDS = [{"name": "amount", "kind": "numeric"}, {"name": "country", "kind": "categorical", "categories": 3}]
TABLE: dict[str, Any] = {"algorithm": "cbr", "features": {"kind": "table", "fields": FIELDS}}
EVENT = {"amount": 3.0, "country": "XX"}
NAMES = {"amount", "country=XX"}
JSON, MSGPACK, LINES = "application/json", "application/msgpack", "application/x-ndjson"
COLUMNS = {"features": {"amount": array([3.0], "float64"), "country": ["XX"]}}


def learning(count: int = 8) -> list[dict[str, Any]]:
    """Return events after which no weight is 0."""
    return [{"features": {**EVENT, "amount": 1.0 + k}, "label": k % 2} for k in range(count)]


async def create_learner(http: httpx.AsyncClient, config: dict[str, Any] = NAMED, name: str = "a") -> None:
    assert (await http.put(f"/learners/{name}", json=config)).status_code in (200, 201)
    await posted(http, f"/learners/{name}/update", learning())


async def read_weights(http: httpx.AsyncClient, name: str = "a", top: int = 20) -> dict[str, Any]:
    return await fetched(http, f"/learners/{name}/weights", top=top)


async def names(http: httpx.AsyncClient, name: str = "a") -> set[str]:
    return {weight["name"] for weight in (await read_weights(http, name))["weights"]}


# The doors


async def by_json(operation: str, http: httpx.AsyncClient, _: Engine) -> None:
    await posted(http, f"/learners/a/{operation}", [{"features": EVENT, **_label(operation)}])


async def by_odd_json(operation: str, http: httpx.AsyncClient, _: Engine) -> None:
    """Send a body that takes the slow path of the decoder."""
    odd = {**EVENT, "serial": 2**70}
    await posted(http, f"/learners/a/{operation}", [{"features": odd, **_label(operation)}])


async def by_lines(operation: str, http: httpx.AsyncClient, _: Engine) -> None:
    await _posted(http, operation, json.dumps({"features": EVENT, **_label(operation)}).encode() + b"\n", LINES)


async def by_columns(operation: str, http: httpx.AsyncClient, _: Engine) -> None:
    labels = {"labels": [1]} if operation == "update" else {}
    await _posted(http, operation, body({**COLUMNS, **labels}), MSGPACK)


async def by_a_group(operation: str, http: httpx.AsyncClient, _: Engine) -> None:
    await create_learner(http, TABLE, "other")
    await http.put("/groups/g", json={"learners": ["a", "other"]})
    await posted(http, f"/groups/g/{operation}", [{"features": EVENT, **_label(operation)}])


async def by_text_frames(operation: str, http: httpx.AsyncClient, engine: Engine) -> None:  # noqa: ARG001
    events = [{"features": EVENT, **_label(operation)}]
    async with websocket(app_over(engine), "/v1/learners/a/ws") as end:
        for seq in (1, 2):  # the second may be put together with the first
            end.send({"seq": seq, "op": operation, "events": events})
        assert [reply["status"] for reply in await end.replies(2)] == [200, 200]


async def by_binary_frames(operation: str, http: httpx.AsyncClient, engine: Engine) -> None:  # noqa: ARG001
    labels = {"labels": [1]} if operation == "update" else {}
    async with websocket(app_over(engine), "/v1/learners/a/ws") as end:
        end.send({"seq": 1, "op": operation, **COLUMNS, **labels}, binary=True)
        reply = await end.reply()
        assert "position" in reply, reply


def _label(operation: str) -> dict[str, Any]:
    return {"label": 1} if operation == "update" else {}


async def _posted(http: httpx.AsyncClient, operation: str, content: bytes, media_type: str) -> None:
    headers = {"content-type": media_type, "accept": media_type}
    reply = await http.post(f"/learners/a/{operation}", content=content, headers=headers)
    assert reply.status_code == 200, reply.text


DOORS = (by_json, by_odd_json, by_lines, by_columns, by_a_group, by_text_frames, by_binary_frames)


@pytest.mark.parametrize("operation", ["update", "predict"])
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_requested_columns_are_named_by_the_next_matching_event(
    operation: str, door: Callable[[str, httpx.AsyncClient, Engine], Awaitable[None]]
) -> None:
    async with serving(MemoryStore()) as (http, engine):
        await create_learner(http)
        first = await read_weights(http)
        assert first["unnamed"] == 2
        assert all(weight["name"].startswith("column ") for weight in first["weights"])
        await door(operation, http, engine)
        second = await read_weights(http)
        names_ = {weight["name"] for weight in second["weights"]}
        assert names_ >= NAMES
        assert second["unnamed"] == len(names_ - NAMES)  # one that the event has brought


def test_an_inline_predict_names_columns() -> None:
    path = "/v1/learners/n"
    with served() as service:
        service.http("PUT", path, json=NAMED)
        service.http("POST", f"{path}/update", json={"events": learning()})
        assert service.http("GET", f"{path}/weights").json()["unnamed"] == 2
        body = json.dumps({"events": [{"features": EVENT}]}).encode()
        with service.over_asgi(0):
            assert service.ask(request(body, f"{path}/predict")).status == 200
        weights = service.http("GET", f"{path}/weights").json()
        assert {weight["name"] for weight in weights["weights"]} == NAMES


async def test_a_large_body_names_columns_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()
    look = FeatureNames.look

    def noted(self: FeatureNames, *arguments: Any) -> None:
        threads.add(threading.current_thread())
        look(self, *arguments)

    monkeypatch.setattr(FeatureNames, "look", noted)
    async with serving(MemoryStore()) as (http, _):
        await create_learner(http)
        await read_weights(http)
        other = [{"features": {"body": "x" * 300}}] * 1000
        await posted(http, "/learners/a/predict", [*other, {"features": EVENT}])
        assert await names(http) == NAMES
        assert threads
        assert threading.main_thread() not in threads


async def test_columns_of_table_categories_are_named() -> None:
    async with serving(MemoryStore()) as (http, _):
        await create_learner(http, TABLE)
        await posted(http, "/learners/a/update", [{"features": {"amount": 1, "country": 7}, "label": 0}])
        numbers = {"amount", "amount (missing)", "country (others)"}
        rest = {f"country (category {k})" for k in (1, 2, 3)}
        first = await read_weights(http)
        assert {weight["name"] for weight in first["weights"]} == numbers | rest
        first_name, _, last_name = sorted(rest)
        assert first["unnamed"] == 2  # the third is of no category yet, and nobody's name lacks
        await posted(http, "/learners/a/predict", [{"features": {"amount": None}}, {"features": {"country": "YY"}}])
        await posted(http, "/learners/a/predict", [{"features": {"amount": 2, "country": 7.0}}])
        assert await names(http) == numbers | {first_name, "country=7", last_name}
        await posted(http, "/learners/a/predict", [{"features": EVENT}])
        assert await names(http) == numbers | {"country=XX", "country=7", last_name}


# What the weights are then


async def test_a_weight_has_the_sign_of_its_feature() -> None:
    async with serving(MemoryStore()) as (http, _):
        await create_learner(http)
        texts = [f"t{k}" for k in range(16)]
        rows = [{"features": {"kind": text}, "label": k % 2} for k, text in enumerate(texts * 3)]
        await posted(http, "/learners/a/update", rows)
        raw = {item["name"]: item["weight"] for item in (await read_weights(http))["weights"]}
        events_ = [{"features": {"kind": text}} for text in texts] + [{"features": {"amount": -2.0}}]
        await posted(http, "/learners/a/predict", events_)
        result = {item["name"]: item["weight"] for item in (await read_weights(http))["weights"]}
        assert {f"kind={text}" for text in texts} < result.keys()
        assert sorted(map(abs, raw.values())) == sorted(map(abs, result.values()))
        assert any(weight not in raw.values() for weight in result.values())  # half of the hashes are negative
        predictions = (await http.post("/learners/a/predict?explain=1", json={"events": events_})).json()["results"]
        for item, value in zip(predictions, [1.0] * 16 + [-2.0], strict=True):
            (told_of,) = item["explanation"]["features"]
            assert told_of["contribution"] == pytest.approx(value * result[told_of["name"]])


async def test_neither_the_state_nor_the_log_contains_names(store: Store) -> None:
    async with serving(store) as (http, _):
        await create_learner(http)
        await create_learner(http, name="unasked")
        for _ in range(3):
            await read_weights(http)
            for name in ("a", "unasked"):
                await posted(http, f"/learners/{name}/update", learning(2))
        assert await names(http) == NAMES
        assert await digest(http) == await digest(http, "unasked")


# Which features share a column


def colliding(bits: int = 4) -> tuple[list[str], list[str]]:
    """Return names of the same column: those with a positive sign, and those with a negative one."""
    texts = [f"n{k}" for k in range(400)]
    hashes = hash_strings(texts)
    mine = hashes & np.uint64((1 << bits) - 1) == np.uint64(0)
    negative = hashes >> np.uint64(63) == np.uint64(1)
    return np.array(texts)[mine & ~negative].tolist(), np.array(texts)[mine & negative].tolist()


def looked(features: Features, columns: list[Any], *batches: list[dict[str, Any]]) -> FeatureNames:
    column_names = FeatureNames(features)
    column_names.request(columns)
    for batch in batches:
        column_names.look(columns_of(features).encoded(features.encode(batch)), batch)
    return column_names


def test_all_features_sharing_a_column_are_named() -> None:
    features = Named(bits=4)
    (a, b, c, d, *_), (minus, *_) = colliding()
    shared_names = looked(features, [0], [{a: 1.0, "elsewhere": 1.0}], [{b: 2.0}])
    assert shared_names.request([0]) == [ColumnName(f"{a} + {b}", 1.0)]
    together = looked(features, [0], [{a: 1.0, b: 2.0}], [{a: 5.0}])
    assert together.request([0]) == [ColumnName(f"{a} + {b}", 1.0)]
    in_one_batch = looked(features, [0], [{a: 1.0}, {b: 2.0}, {a: 3.0}])
    assert in_one_batch.request([0]) == [ColumnName(f"{a} + {b}", 1.0)]
    against = looked(features, [0], [{minus: 1.0}], [{a: 2.0}])
    assert against.request([0]) == [ColumnName(f"{minus} - {a}", -1.0)]
    many = looked(features, [0], [{name: 1.0} for name in (a, b, c, d)])
    assert many.request([0]) == [ColumnName(f"{a} + {b} + {c} + more", 1.0)]


def test_a_declared_number_shares_its_column() -> None:
    (a, b, *_), _ = colliding()
    features = Named(bits=4, log=(a, "n0"), categorical=("n0",))
    column_names = looked(features, [0], [{b: 1.0}])
    assert FeatureNames(features).request([0]) == [ColumnName(a, 1.0)]
    assert column_names.request([0]) == [ColumnName(f"{a} + {b}", 1.0)]


def test_truncated_and_unusual_names() -> None:
    features = Named(bits=12)
    for value in ("x" * 2000, "a + b", "\ud800", "é" * 3):
        event = {"k": value}
        rows = columns_of(features).encoded(features.encode([event]))
        (column,) = rows.indices.tolist()  # type: ignore[union-attr]
        column_names = looked(features, [column], [event]).request([column])
        (name,) = features.names(event, [column])
        assert column_names == [ColumnName(name, rows.data.item())]  # type: ignore[union-attr]


# What it costs, and what is kept


def spied(column_names: FeatureNames, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the events whose features are spelt."""
    spelt: list[Any] = []
    names = Named.names

    def noted(self: Named, value: Any, columns: Any) -> list[str]:
        spelt.append(value)
        return names(self, value, columns)

    monkeypatch.setattr(Named, "names", noted)
    assert not column_names.looking
    return spelt


async def test_events_are_not_searched_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(FeatureNames, "look", lambda *arguments: calls.append(arguments))
    async with serving(MemoryStore()) as (http, engine):
        await create_learner(http)
        for door in DOORS:
            for operation in ("update", "predict"):
                await door(operation, http, engine)
        for config in (NAMED["features"], {"kind": "dense", "dim": 2}, {"kind": "sparse", "dim": 9}):
            name = f"{config['kind']}-2"
            await http.put(f"/learners/{name}", json={**NAMED, "features": config})
            await read_weights(http, name)  # of one that has learnt nothing, or whose columns have names of their own
            assert not engine.get(name).feature_names.looking
        assert calls == []


def test_each_request_searches_few_events(monkeypatch: pytest.MonkeyPatch) -> None:
    features = Named()
    column_names = FeatureNames(features)
    spelt = spied(column_names, monkeypatch)
    events = [{**EVENT, "other": k} for k in range(2000)]
    rows = features.encode(events)
    columns = features.encode([EVENT]).indices.tolist()  # type: ignore[union-attr]
    for count in (1, 2):
        column_names.request(columns)
        assert column_names.looking
        column_names.look(rows, events)
        column_names.look(rows, events)
        assert not column_names.looking
        assert len(spelt) == count * feature_names._LOOKS
    column_names.request([*columns, 5])
    column_names.look(rows, events)
    assert column_names.looking  # for the one that nothing has
    del spelt[:]
    column_names.look(rows, events)
    assert spelt == []  # and nothing else is


def test_columns_with_equal_low_bits_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    features = Named(bits=24)
    column_names = FeatureNames(features)
    spelt = spied(column_names, monkeypatch)
    (column,) = features.encode([{"amount": 1.0}]).indices.tolist()  # type: ignore[union-attr]
    column_names.request([column ^ feature_names._TABLE])
    column_names.look(features.encode([{"amount": 1.0}]), [{"amount": 1.0}])
    assert spelt == []
    assert column_names.request([column ^ feature_names._TABLE]) == [None]


def test_categories_of_two_fields_are_distinguished() -> None:
    features = Table.of({"fields": [{"name": name, "kind": "categorical"} for name in "ab"]})
    event = {"a": "x", "b": "x"}
    ((_, hashed),) = features.encode([event]).tolist()  # type: ignore[union-attr]
    column_names = looked(features, [(1, hashed)], [{"a": "x"}])
    assert column_names.request([(0, hashed), (1, hashed)]) == [None, None]
    column_names.look(features.encode([event]), [event])
    assert column_names.request([(0, hashed), (1, hashed)]) == [ColumnName("a=x", 1.0), ColumnName("b=x", 1.0)]


def test_the_oldest_requests_are_forgotten() -> None:
    features = Named()
    events = [{f"n{k}": 1.0} for k in range(MAX_COLUMNS + 10)]
    rows = features.encode(events)
    columns = list(dict.fromkeys(rows.indices.tolist()))[: MAX_COLUMNS + 2]  # type: ignore[union-attr]
    column_names = FeatureNames(features)
    column_names.request(columns[:MAX_COLUMNS])
    column_names.look(rows, events)
    column_names.request(columns[1:MAX_COLUMNS])  # all but the first one are asked for again, and then two others
    assert column_names.request(columns[MAX_COLUMNS:]) == [None, None]
    assert len(column_names._columns) == MAX_COLUMNS
    assert None not in column_names.request(columns[2:MAX_COLUMNS])
    assert column_names.request(columns[:2]) == [None, None]


def test_several_threads_name_columns_concurrently() -> None:
    features = Named()
    events = [{f"n{k}": 1.0, "all": 1.0} for k in range(600)]
    rows = features.encode(events)
    columns = sorted(set(rows.indices.tolist()))  # type: ignore[union-attr]
    column_names = FeatureNames(features)
    failures: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            for _ in range(30):
                work()
        except BaseException as error:
            failures.append(error)
            raise

    works = [
        lambda: column_names.request(columns),
        lambda: column_names.look(rows, events),
        lambda: column_names.request(columns[::2]),
    ] * 2
    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    column_names.look(rows, events)
    assert None not in column_names.request(columns)


async def test_restart_and_eviction_forget_names_until_the_next_events(store: Store) -> None:
    async with serving(store) as (http, _):
        await create_learner(http)
        await read_weights(http)
        await posted(http, "/learners/a/update", learning(1))
        assert await names(http) == NAMES
        before = await digest(http)
    async with serving(store) as (http, engine):
        assert await digest(http) == before
        assert (await read_weights(http))["unnamed"] == 2
        await posted(http, "/learners/a/predict", [{"features": EVENT}])
        assert await names(http) == NAMES
        await engine.residency.evict(engine.get("a"))
        assert "a" in engine.evicted
        assert (await read_weights(http))["unnamed"] == 2


async def test_a_recreated_learner_starts_without_names() -> None:
    async with serving(MemoryStore()) as (http, _):
        await create_learner(http)
        await read_weights(http)
        await posted(http, "/learners/a/predict", [{"features": EVENT}])
        assert await names(http) == NAMES
        await http.post("/learners/a/clone", json={"to": "copy"})
        assert (await read_weights(http, "copy"))["unnamed"] == 2
        await http.delete("/learners/a")
        await create_learner(http)
        assert (await read_weights(http))["unnamed"] == 2


async def test_a_rollback_keeps_names(store: Store) -> None:
    async with serving(store) as (http, _):
        await create_learner(http)
        position = (await http.post("/learners/a/snapshots")).json()["position"]
        await posted(http, "/learners/a/update", [{"features": {"first": 1.0, **EVENT}, "label": 1}])
        await read_weights(http)
        await posted(http, "/learners/a/predict", [{"features": {"first": 1.0, **EVENT}}])
        assert await names(http) == {*NAMES, "first"}
        assert (await http.post(f"/learners/a/snapshots/{position}/restore")).status_code == 200
        assert await names(http) == NAMES


async def test_each_node_records_names_from_its_own_events(store: Store) -> None:
    async with serving(store) as (http, _), serving(store) as (other, _):
        await create_learner(http)
        position = (await read_weights(http))["position"]
        reply = await other.get(f"/learners/a/weights?at_least={position}")
        assert reply.json()["unnamed"] == 2
        position = (await posted(http, "/learners/a/update", learning(1)))["position"]
        assert await names(http) == NAMES
        reply = await other.get(f"/learners/a/weights?at_least={position}")
        assert (reply.json()["position"], reply.json()["unnamed"]) == (position, 2)
        await posted(other, "/learners/a/predict", [{"features": EVENT}])
        assert await names(other) == NAMES


async def test_log_lines_contain_no_feature_names(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(MemoryStore()) as (http, _):
        await create_learner(http)
        await read_weights(http)
        await posted(http, "/learners/a/predict", [{"features": EVENT}])
        assert await names(http) == NAMES
    assert "country" not in caplog.text


def test_a_label_by_id_names_no_columns() -> None:
    from service.wire.content_negotiation import JSON as CODING
    from service.wire.ndjson import NDJSON

    config = Config.of(NAMED)
    late = json.dumps({"events": [{"id": "e", "label": 1}]}).encode()
    for coding, item in ((CODING, late), (NDJSON, b'{"id": "e", "label": 1}\n')):
        events, carried = coding.decode_labels(item, config)
        assert (list(carried), len(events.rows.indptr)) == ([], 1)  # type: ignore[union-attr]
