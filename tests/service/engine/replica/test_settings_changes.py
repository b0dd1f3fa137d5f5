"""PATCH changes settings of a live learner; the model stays, on every node and over restarts."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from learners.config import Config
from service.storage.memory import MemoryStore
from service.storage.store_protocol import Store
from tests.harness.nodes import digest, posted, replayed, serving
from tests.service.engine.replica.test_served_events import SETUPS, event, labelled, late

pytestmark = pytest.mark.integration

NAMED = {**SETUPS["named"], "window": 500}
CHANGES: dict[str, dict[str, Any]] = {
    "precision": {"threshold": {"objective": "precision", "target": 0.9}},
    "recall": {"threshold": {"objective": "recall", "target": 0.5}},
    "fpr": {"threshold": {"objective": "fpr", "target": 0.01}},
    "fixed": {"threshold": {"objective": "fixed", "value": 0.25}},
    "cost": {"threshold": {"objective": "cost", "false_positive": 2.0, "false_negative": 6.0}},
    "cost of a field": {"threshold": {"objective": "cost", "field": "amount"}},
    "budget": {"threshold": {"objective": "budget", "alerts": 5}},
    "figures": {"figures": {"beta": 2.0, "k": 3}},
    "late": {"late": {"label_ttl": 1e9, "unlabelled": "negative"}},  # so long that nothing is assumed meanwhile
    "all": {
        "threshold": {"objective": "optroc", "memory": 1000},
        "figures": {"max_fpr": 0.5},
        "late": {"max_events": 3},
    },
}
REFUSED: dict[str, tuple[Any, list[str]]] = {
    "nothing": ({}, [""]),
    "no object": ([1], [""]),
    "unknown part": ({"windw": 5}, ["/windw"]),
    "a part that is fixed": ({"features": SETUPS["dense"]["features"], "window": 5}, ["/features", "/window"]),
    "bad settings": (
        {"figures": {"beta": -1, "k": 0}, "late": {"unlabelled": "maybe"}},
        ["/figures/beta", "/figures/k", "/late/unlabelled"],
    ),
    "no target": ({"threshold": {"objective": "precision"}}, ["/threshold/target"]),
    "of another objective": ({"threshold": {"objective": "fixed", "target": 0.5}}, ["/threshold/target"]),
    "unknown setting": ({"late": {"ttl": 5}}, ["/late/ttl"]),
    "good and bad": ({"figures": {"k": 5}, "threshold": {"objective": "best"}}, ["/threshold/objective"]),
}
FITTING = {"fixed": 0.25, "cost": 0.25, "cost of a field": 0.5}  # the live threshold that follows


async def fed(http: Any, setup: str = "named", count: int = 100) -> None:
    """Create a learner that has learnt some events and served more."""
    await http.put("/learners/a", json=NAMED if setup == "named" else SETUPS[setup])
    await posted(http, "/learners/a/update", labelled(setup, 0, count))
    await posted(http, "/learners/a/predict", [event(setup, i) for i in range(count, count + 10)])


def state_of(engine: Any) -> dict[str, Any]:
    """Copy the state that a change must not touch; the journal tells of it."""
    state = engine.get("a").learner.state()
    changing = ("threshold.", "life.journal")
    return {name: array.copy() for name, array in state.items() if not name.startswith(changing)}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_keeps_the_learnt_state_and_updates_the_threshold(store: Store, change: str) -> None:
    async with serving(store) as (http, engine):
        await fed(http)
        await engine.get("a").log.catch_up()
        before, document = state_of(engine), (await http.get("/learners/a")).json()
        figures = (await http.get("/learners/a/metrics")).json()
        reply = await http.patch("/learners/a", json=CHANGES[change])
        assert reply.status_code == 200, reply.text
        after = reply.json()
        assert after["position"] == document["position"] + 1
        for part, values in CHANGES[change].items():
            rest = {} if part == "threshold" else document["config"][part]
            expected = {**rest, **values}
            assert {name: after["config"][part][name] for name in expected} == expected
        unchanged = set(document["config"]) - set(CHANGES[change])
        assert {name: after["config"][name] for name in unchanged} == {
            name: document["config"][name] for name in unchanged
        }
        now = state_of(engine)
        assert now.keys() == before.keys()
        assert all(np.array_equal(now[name], before[name], equal_nan=before[name].dtype.kind == "f") for name in now)
        metrics = (await http.get("/learners/a/metrics")).json()
        assert metrics["window"]["confusion"] == figures["window"]["confusion"]
        assert metrics["window"]["auc"] == figures["window"]["auc"]
        if change in FITTING:
            assert metrics["threshold"] == FITTING[change]
        if change == "figures":
            precision, recall = metrics["window"]["precision"], metrics["window"]["recall"]
            assert metrics["window"]["fbeta"] == pytest.approx(5 * precision * recall / (4 * precision + recall))
            assert metrics["window"]["precision_at_k"] != figures["window"]["precision_at_k"]
        predictions = (await posted(http, "/learners/a/predict", [{**event("named", 7), "id": None}]))["results"][0]
        assert predictions["label"] == int(predictions["probability"] >= predictions["threshold"])
        at = await digest(http)
        assert at == await replayed(store)
    async with serving(store) as (http, _):  # after a crash
        assert await digest(http) == at
        assert (await http.get("/learners/a")).json()["config"] == after["config"]
        await http.post("/learners/a/snapshots")  # trims the log with its change
    async with serving(store) as (http, _):
        assert await digest(http) == at
        assert (await http.get("/learners/a")).json()["config"] == after["config"]


async def test_the_cost_field_is_read_from_the_served_event(store: Store) -> None:
    async with serving(store) as (http, _):
        await fed(http)
        await http.patch("/learners/a", json=CHANGES["cost of a field"])
        dear, cheap = ({**event("named", 3), "features": {"amount": amount, "shop": "s0"}} for amount in (99.0, 0.0))
        cheap["id"] = "cheap"
        predictions = (await posted(http, "/learners/a/predict", [dear, cheap]))["results"]
        assert [item["threshold"] for item in predictions] == [0.01, 1.0]
        learnt = await posted(http, "/learners/a/labels", [{**late("named", 3, 4)[0], "label": 1}])
        assert learnt["duplicate"] + learnt["relabelled"] == 1  # e3 was learnt before it was served
        learnt = await posted(http, "/learners/a/labels", [{"id": "cheap", "label": 1, "time": dear["time"]}])
        assert learnt["results"][0]["threshold"] == 1.0
        missing = {**event("named", 200), "features": {"shop": "s1"}}
        reply = await http.post("/learners/a/predict", json={"events": [missing]})
        assert reply.status_code == 422
        assert [item["pointer"] for item in reply.json()["errors"]] == ["/events/0/features/amount"]


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refused_change_changes_nothing(case: str) -> None:
    values, pointers = REFUSED[case]
    async with serving(MemoryStore()) as (http, engine):
        await fed(http)
        await engine.get("a").log.catch_up()
        before, document = await digest(http), (await http.get("/learners/a")).json()
        reply = await http.patch("/learners/a", json=values)
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid")
        assert sorted(error["pointer"] for error in reply.json()["errors"]) == sorted(pointers)
        assert await digest(http) == before
        assert (await http.get("/learners/a")).json() == document


@pytest.mark.parametrize(
    ("setup", "values", "pointer"),
    [
        ("dense", {"threshold": {"objective": "cost", "field": "3"}}, "/threshold/field"),
        ("dense", {"threshold": {"objective": "cost", "field": "amount"}}, "/threshold/field"),
        ("table", {"threshold": {"objective": "cost", "field": "shop"}}, "/threshold/field"),
        ("named", {"threshold": {"objective": "cost", "field": "shop"}}, "/threshold/field"),
        ("ordinal", {"late": {"unlabelled": "negative"}}, "/late/unlabelled"),
        ("ordinal", {"threshold": {"objective": "fixed"}}, "/threshold"),
    ],
)
async def test_a_change_must_be_compatible_with_fixed_settings(
    setup: str, values: dict[str, Any], pointer: str
) -> None:
    async with serving(MemoryStore()) as (http, _):
        await fed(http, setup)
        before = await digest(http)
        reply = await http.patch("/learners/a", json=values)
        assert reply.status_code == 422
        assert [error["pointer"] for error in reply.json()["errors"]] == [pointer]
        assert (await digest(http))[1] == before[1]


async def test_an_unsuitable_cost_field_is_refused_but_read_from_a_log(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfit = {"threshold": {"objective": "cost", "field": "shop"}}
    async with serving(store) as (http, _):
        await fed(http)
        for reply in (
            await http.put("/learners/b", json={**NAMED, **unfit}),
            await http.patch("/learners/a", json=unfit),
        ):
            assert (reply.status_code, reply.json()["code"]) == (422, "invalid")
            assert [error["pointer"] for error in reply.json()["errors"]] == ["/threshold/field"]
        assert (await http.get("/learners/b")).status_code == 404
        with monkeypatch.context() as earlier:  # as an earlier build took it
            earlier.setattr(Config, "objections", lambda _, **__: [])
            assert (await http.patch("/learners/a", json=unfit)).status_code == 200
            assert (await http.put("/learners/b", json={**NAMED, **unfit})).status_code == 201
        at = await digest(http)
    async with serving(store) as (http, _):
        assert await digest(http) == at
        assert (await http.put("/learners/b", json={**NAMED, **unfit})).status_code == 200
        assert (await http.patch("/learners/a", json={"figures": {"k": 3}})).status_code == 200
        assert (await http.patch("/learners/a", json={"threshold": {"objective": "f1"}})).status_code == 200
        assert (await http.patch("/learners/a", json=unfit)).status_code == 422


async def test_a_field_declared_twice_is_refused_but_read_from_a_log(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfit = {"algorithm": "cbr-diag", "features": {"kind": "named", "categorical": ["a"], "log": ["b", "a"]}}
    async with serving(store) as (http, _):
        reply = await http.put("/learners/a", json=unfit)
        assert (reply.status_code, [error["pointer"] for error in reply.json()["errors"]]) == (422, ["/features/log/1"])
        with monkeypatch.context() as earlier:  # as an earlier build took it
            earlier.setattr(Config, "objections", lambda _, **__: [])
            assert (await http.put("/learners/a", json=unfit)).status_code == 201
    async with serving(store) as (http, _):
        assert (await http.put("/learners/a", json=unfit)).status_code == 200
        assert (await http.patch("/learners/a", json={"threshold": {"objective": "f1"}})).status_code == 200


async def test_unchanged_settings_and_unknown_learners_write_no_record(store: Store) -> None:
    async with serving(store) as (http, engine):
        await fed(http)
        await engine.get("a").log.catch_up()
        before = await digest(http)
        same = (await http.get("/learners/a")).json()["config"]
        reply = await http.patch("/learners/a", json={name: same[name] for name in ("threshold", "figures", "late")})
        assert reply.status_code == 200
        assert await digest(http) == before
        assert (await http.patch("/learners/b", json=CHANGES["fixed"])).status_code == 404


async def test_a_rollback_restores_the_settings_of_its_snapshot(store: Store) -> None:
    async with serving(store) as (http, _):
        await fed(http)
        snapshot = (await http.post("/learners/a/snapshots")).json()["position"]
        then, config = (await digest(http))[1], (await http.get("/learners/a")).json()["config"]
        await http.patch("/learners/a", json=CHANGES["all"])
        await posted(http, "/learners/a/update", labelled("named", 200, 220))
        assert (await http.post(f"/learners/a/snapshots/{snapshot}/restore")).status_code == 200
        assert (await digest(http))[1] == then
        assert (await http.get("/learners/a")).json()["config"] == config
        await posted(http, "/learners/a/update", labelled("named", 200, 210))
        at = await digest(http)
    async with serving(store) as (http, _):
        assert await digest(http) == at
        assert (await http.get("/learners/a")).json()["config"] == config


async def test_other_nodes_apply_a_settings_change(store: Store, open_again: Any) -> None:
    async with serving(store) as (local, first), serving(await open_again()) as (remote, second):
        for http in (local, remote):
            await http.put("/learners/a", json=NAMED)
        await posted(local, "/learners/a/update", labelled("named", 0, 50))
        await local.patch("/learners/a", json=CHANGES["precision"])
        await posted(remote, "/learners/a/update", labelled("named", 50, 60))  # applies what came before it
        await remote.patch("/learners/a", json=CHANGES["figures"])
        await first.get("a").log.catch_up()
        await second.get("a").log.catch_up()
        assert await digest(local) == await digest(remote) == await replayed(store)
        configs = [(await http.get("/learners/a")).json()["config"] for http in (local, remote)]
        assert configs[0] == configs[1]
        assert (configs[0]["threshold"]["objective"], configs[0]["figures"]["k"]) == ("precision", 3)


async def test_settings_changes_between_updates_lose_nothing(store: Store) -> None:
    async with serving(store, record_events=5) as (http, engine):
        await fed(http)
        updates = [posted(http, "/learners/a/update", labelled("named", 200 + i, 201 + i)) for i in range(60)]
        predicts = [posted(http, "/learners/a/predict", [event("named", 400 + i)]) for i in range(20)]
        changes = [http.patch("/learners/a", json=CHANGES[name]) for name in CHANGES]
        calls = [asyncio.ensure_future(item) for item in (*updates[:30], *changes, *updates[30:], *predicts)]
        outcomes = await asyncio.gather(*calls)
        assert {item.status_code for item in outcomes[30 : 30 + len(changes)]} == {200}
        await engine.get("a").log.catch_up()
        document = (await http.get("/learners/a")).json()
        assert document["events"] == 160
        assert document["config"]["threshold"]["objective"] == "optroc"
        assert await digest(http) == await replayed(store)
