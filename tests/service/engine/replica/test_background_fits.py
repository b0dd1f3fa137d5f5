"""Fits in the service: in the background, logged, the same on every node; and ordinal learners."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from learners import Learner, algorithms, create
from learners.config import Config
from learners.model import FitJob
from learners.records import FitResult
from learners.scorer import Scorer
from service.engine.records.codec import Created, unpack_record
from service.engine.replica.background_fits import BackgroundFits
from service.errors import StoreUnavailable
from service.storage.memory import MemoryStore
from service.storage.store_protocol import LogEntry, Store
from service.wire.json_decode import decode_update
from tests.harness.apps import client, events
from tests.harness.process import Process
from tests.harness.store_records import whole_log
from tests.harness.waiting import eventually_async
from tests.service.engine.test_engine import engine

pytestmark = pytest.mark.integration

FEATURES = {"kind": "dense", "dim": 3}
SETUPS: dict[str, dict[str, Any]] = {
    "nsauc": {"algorithm": "nsauc", "features": FEATURES, "embedding": {"components": 10, "warmup": 40}},
    "cbr, fourier": {
        "algorithm": "cbr",
        "features": FEATURES,
        "embedding": {"kind": "fourier", "components": 10, "warmup": 40},
    },
    "ranksvm": {"algorithm": "ranksvm", "features": FEATURES, "refit_every": 50, "refit_window": 80},
    "nbauc": {
        "algorithm": "nbauc",
        "features": FEATURES,
        "embedding": {"components": 10},
        "refit_every": 50,
        "refit_window": 80,
    },
    "gbdt": {
        "algorithm": "gbdt",
        "features": FEATURES,
        "params": {"trees": 5, "leaf_events": 3},
        "refit_every": 50,
        "refit_window": 80,
    },
    "forest": {
        "algorithm": "forest",
        "features": FEATURES,
        "params": {"trees": 5},
        "refit_every": 50,
        "refit_window": 80,
    },
    "svr": {
        "algorithm": "svr",
        "features": FEATURES,
        "params": {"ranks": 3},
        "refit_every": 50,
        "refit_window": 80,
    },
}
EACH = pytest.mark.parametrize("name", SETUPS)


def labelled(name: str, count: int, start: int = 0) -> list[dict[str, Any]]:
    """Return events with labels of the library."""
    batch_events = events(count, start)
    if name == "svr":
        for event in batch_events:
            event["label"] = 1 + 2 * event["label"]
    return batch_events


def batch_of(name: str, count: int, start: int = 0) -> Any:
    return decode_update(msgspec.json.encode({"events": labelled(name, count, start)}), Config.of(SETUPS[name]))[0]


async def replayed(store: Store, birth: bytes, position: int) -> tuple[Learner, int]:
    """Apply the log's records up to a position with the library; return the learner and the number of fits."""
    learner, fits = None, 0
    for entry in await whole_log(store, "a", birth):
        record = unpack_record(entry.data, "a record")
        if entry.position > position:
            break
        if isinstance(record, Created):
            learner = Learner(Config.of(record.config))
        else:
            assert learner is not None
            learner.apply(record)
            fits += isinstance(record, FitResult)
    assert learner is not None
    return learner, fits


@EACH
async def test_fits_are_log_records(name: str, store: Store) -> None:
    async with engine(store, trim_log=False) as node:
        replica, _ = await node.create("a", Config.of(SETUPS[name]))
        for start in range(0, 200, 10):
            await replica.label(batch_of(name, 10, start))
        await eventually_async(
            lambda: not replica.fits.running and not replica.learner.fit_due and replica.view.not_ready is None
        )
        assert replica.fits.failure is None
        position, digest = await replica.log.digest()
        learner, fits = await replayed(store, replica.birth, position)
        assert fits >= 1
        assert learner.digest() == digest
        assert learner.view().fitted_events == replica.view.fitted_events
        scores = replica.view.scorer.score(batch_of(name, 50).rows).scores
        assert len(np.unique(scores)) > 1  # a tree of few events has few leaves
    async with engine(store) as other:  # after a crash, from the log
        assert await other.get("a").log.digest() == (position, digest)
        await other.get("a").snapshots.save()
    async with engine(store) as third:  # and from a snapshot
        assert await third.get("a").log.digest() == (position, digest)


@EACH
async def test_two_nodes_agree_on_fits(name: str, store: Store, open_again: Any) -> None:
    second = await open_again()
    async with engine(store, follow_seconds=0.02) as node_a, engine(second, follow_seconds=0.02) as node_b:
        local, _ = await node_a.create("a", Config.of(SETUPS[name]))
        remote, _ = await node_b.create("a", Config.of(SETUPS[name]))
        for start in range(0, 240, 20):
            await asyncio.gather(local.label(batch_of(name, 10, start)), remote.label(batch_of(name, 10, start + 10)))
        await eventually_async(
            lambda: not local.fits.running and not remote.fits.running and local.view.not_ready is None
        )

        async def settled() -> bool:
            await local.log.catch_up()
            await remote.log.catch_up()
            return await local.log.digest() == await remote.log.digest() and not local.learner.fit_due

        await eventually_async(settled)


@EACH
async def test_one_node_fits_and_the_others_wait_for_its_record(
    name: str, store: Store, open_again: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    run = BackgroundFits._run

    def counted(self: BackgroundFits, fitting: Any) -> Any:
        calls.append(self)
        return run(self, fitting)

    monkeypatch.setattr(BackgroundFits, "_run", counted)
    second = await open_again()
    settings = {"follow_seconds": 0.02, "trim_log": False}
    async with engine(store, **settings) as node_a, engine(second, **settings) as node_b:
        local, _ = await node_a.create("a", Config.of(SETUPS[name]))
        remote, _ = await node_b.create("a", Config.of(SETUPS[name]))
        for start in range(0, 240, 20):
            await asyncio.gather(local.label(batch_of(name, 10, start)), remote.label(batch_of(name, 10, start + 10)))

        async def settled() -> bool:
            await local.log.catch_up()
            await remote.log.catch_up()
            return (
                await local.log.digest() == await remote.log.digest()
                and not local.learner.fit_due
                and not remote.learner.fit_due
            )

        await eventually_async(settled)
        await eventually_async(lambda: not local.fits.running and not remote.fits.running)
        _, fits = await replayed(store, local.birth, local.position)
        assert len(calls) == fits >= 1


@EACH
@pytest.mark.parametrize("way", ["is gone", "goes on claiming"])
async def test_another_node_fits_if_the_lease_holder_does_not(
    name: str, way: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "is gone":
        monkeypatch.setattr("service.engine.replica.lease._SECONDS", 0.5)
    else:
        monkeypatch.setattr("service.engine.replica.background_fits._PATIENCE", 0.5)
        monkeypatch.setattr("service.engine.replica.background_fits._URGENT_PATIENCE", 0.5)
        monkeypatch.setattr("service.engine.replica.lease._SECONDS", 0.2)
    async with engine(store) as node:
        replica, _ = await node.create("a", Config.of(SETUPS[name]))
        assert await store.lease("a", replica.birth, b"another node, 16", 0.5 if way == "is gone" else 3600.0)
        for start in range(0, 200, 10):
            await replica.label(batch_of(name, 10, start))
        await eventually_async(
            lambda: not replica.fits.running and not replica.learner.fit_due and replica.view.not_ready is None
        )
        assert replica.fits.failure is None


class BlockedFit:
    """A fit that waits until the test releases it."""

    def __init__(self, fit: Any) -> None:
        self._fit = fit
        self.has_begun, self.go = threading.Event(), threading.Event()

    def __call__(self, *arguments: Any) -> Any:
        self.has_begun.set()
        assert self.go.wait(60)
        return self._fit(*arguments)


async def test_events_are_learnt_and_scored_during_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "/v1/learners/a"
    async with client() as http:
        await http.put(url, json=SETUPS["ranksvm"])
        await http.post(f"{url}/update", json={"events": events(50)})

        async def fitted() -> bool:
            document: dict[str, Any] = (await http.get(url)).json()
            return bool(document["ready"] and document["fit"]["events"] == 50 and not document["fit"]["running"])

        await eventually_async(fitted)
        blocked = BlockedFit(algorithms()["ranksvm"].fit)  # type: ignore[attr-defined]
        monkeypatch.setattr(algorithms()["ranksvm"], "fit", blocked)
        await http.post(f"{url}/update", json={"events": events(60, 50)})
        await eventually_async(blocked.has_begun.is_set)
        fit = {"events": 50, "running": True, "waiting": False, "failed": None}
        assert (await http.get(url)).json()["fit"] == fit
        reply = (await http.post(f"{url}/update", json={"events": events(30, 110)})).json()
        assert reply["applied"] == 30
        predictions = (await http.post(f"{url}/predict", json={"events": [{"x": [1.5, 0.1, 0]}]})).json()
        assert predictions["ready"]
        assert predictions["results"][0]["score"] != 0
        blocked.go.set()

        async def fitted_again() -> bool:
            return bool((await http.get(url)).json()["fit"]["events"] == 110)

        await eventually_async(fitted_again)
        assert (await http.get(f"{url}/metrics")).json()["events"] == 140


async def test_shutdown_does_not_wait_for_a_fit(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fit = algorithms()["ranksvm"].fit  # type: ignore[attr-defined]
    for name, setup in (("a", SETUPS["ranksvm"]), ("b", SETUPS["nsauc"])):
        blocked = BlockedFit(fit)
        monkeypatch.setattr(algorithms()["ranksvm"], "fit", blocked)
        monkeypatch.setattr("learners.features.kernel_approximation.fit", blocked)
        async with asyncio.timeout(300), client(f"sqlite:///{tmp_path / name}.db") as http:
            await http.put("/v1/learners/a", json=setup)
            update = asyncio.create_task(http.post("/v1/learners/a/update", json={"events": events(60)}))
            await eventually_async(blocked.has_begun.is_set)
            if name == "a":
                assert (await update).status_code == 200
        blocked.go.set()
        assert (await update).status_code == 200
        monkeypatch.undo()
        async with client(f"sqlite:///{tmp_path / name}.db") as http:  # is fitted by the next start

            async def fitted(http: Any = http) -> bool:
                return bool((await http.get("/v1/learners/a")).json()["fit"]["events"] == 60)

            await eventually_async(fitted)
            assert (await http.get("/v1/learners/a")).json()["ready"]
    assert "error" not in caplog.text.lower()


@pytest.mark.integration
@pytest.mark.parametrize("way", ["stop", "interrupt", "kill"])
@pytest.mark.campaign
def test_a_process_is_killed_during_a_fit(way: str, tmp_path: Path) -> None:
    """The exit is clean, no event is lost, and the next start makes the fit."""
    long = {"embedding": {"components": 400}, "refit_every": 2000, "refit_window": 2000}
    X = np.random.default_rng(0).normal(size=(2000, 8)).tolist()
    log, count = tmp_path / "log", 0
    with Process(f"sqlite:///{tmp_path / 'store.db'}", log) as server:
        url = f"{server.url}/v1/learners/a"
        with httpx.Client(timeout=300, trust_env=False) as http:
            http.put(url, json={"algorithm": "nbauc", "features": {"kind": "dense", "dim": 8}, **long})
            while not http.get(url).json()["fit"]["running"]:  # again, where a fit was over before we looked
                batch_events = [{"x": x, "label": int(i % 3 == 0), "id": f"{count + i}"} for i, x in enumerate(X)]
                assert http.post(f"{url}/update", json={"events": batch_events}).status_code == 200
                count += len(batch_events)
        ended = getattr(server, way)()
        assert ended == {"stop": -signal.SIGTERM, "interrupt": 0, "kill": None}[way]
        assert not re.search(r"error|exception|corruption", log.read_text(), re.IGNORECASE)
        server.start()
        with httpx.Client(timeout=300, trust_env=False) as http:
            while (document := http.get(url).json())["fit"]["events"] < count:
                assert document["fit"]["failed"] is None
            assert (document["events"], document["ready"]) == (count, True)
            assert http.post(f"{url}/update", json={"events": batch_events[:5]}).json()["duplicate"] == 5


class Away(MemoryStore):
    """A store that can be away only for fits."""

    away = False
    refused = 0

    async def append(
        self, learner: str, birth: bytes, records: Any, after: int, known_token: bytes = b"", reserve: bool = False
    ) -> list[LogEntry]:
        fits = [record for record in records if isinstance(unpack_record(record[1], "it"), FitResult)]
        if self.away and fits:
            self.refused += 1
            raise StoreUnavailable("away")
        return await super().append(learner, birth, records, after, known_token, reserve)


@pytest.mark.parametrize("name", ["nsauc", "ranksvm"])
async def test_a_fit_that_cannot_be_logged_is_kept_and_blocks_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.engine.replica.background_fits._PAUSE", 0.05)
    calls = []
    run = FitJob.run
    monkeypatch.setattr(FitJob, "run", lambda self: calls.append(1) or run(self))
    store = Away()
    async with engine(store) as node:
        replica, _ = await node.create("a", Config.of(SETUPS[name]))
        store.away = True
        for start in range(0, 60, 10):
            try:
                await replica.label(batch_of(name, 10, start))
            except StoreUnavailable:  # the part of the batch beyond the warm-up: sent again, it is learnt
                await replica.label(batch_of(name, 10, start))
        await eventually_async(lambda: store.refused > 2)
        assert (await replica.label(batch_of(name, 10, 60))).outcome.applied.all()
        assert replica.fits.running
        assert replica.view.not_ready is not None
        store.away = False
        await eventually_async(lambda: replica.view.not_ready is None and not replica.fits.running)
        assert len(calls) == 1
        assert replica.view.fitted_events in (40, 50)


async def test_a_fit_too_large_for_the_log_is_refused_and_the_next_one_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = {**SETUPS["nsauc"], "embedding": {"components": 40, "warmup": 40}}  # a fit of over 12 KiB
    async with engine(MemoryStore()) as node:
        replica, _ = await node.create("a", Config.of(config))
        with monkeypatch.context() as patched:
            patched.setattr("service.engine.replica.log_follower.RECORD_BYTES", 4096)
            for start in range(0, 60, 10):
                assert (await replica.label(batch_of("nsauc", 10, start))).outcome.applied.all()
            await eventually_async(lambda: not replica.fits.running)
            assert replica.fits.failure is not None
            assert "4096" in replica.fits.failure
            assert replica.learner.metrics.events == 60
        for start in range(60, 160, 10):
            assert (await replica.label(batch_of("nsauc", 10, start))).outcome.applied.all()
        await eventually_async(lambda: replica.view.not_ready is None and not replica.fits.running)
        assert replica.fits.failure is None


async def test_an_urgent_fit_does_not_wait_for_another_learners_background_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocked = BlockedFit(algorithms()["ranksvm"].fit)  # type: ignore[attr-defined]
    monkeypatch.setattr(algorithms()["ranksvm"], "fit", blocked)
    async with client() as http:
        for name in ("slow", "next"):
            await http.put(f"/v1/learners/{name}", json=SETUPS["ranksvm"])
            await http.post(f"/v1/learners/{name}/update", json={"events": events(60)})
        await eventually_async(blocked.has_begun.is_set)
        await http.put("/v1/learners/k", json=SETUPS["nsauc"])
        for start in (0, 50):
            reply = await http.post("/v1/learners/k/update", json={"events": events(50, start)})
            assert reply.status_code == 200
        assert (await http.get("/v1/learners/k")).json()["ready"]
        fits = [(await http.get(f"/v1/learners/{name}")).json()["fit"] for name in ("slow", "next")]
        assert [(fit["running"], fit["waiting"]) for fit in fits] == [(True, False), (True, True)]
        blocked.go.set()

        async def fitted() -> bool:
            return bool((await http.get("/v1/learners/next")).json()["ready"])

        await eventually_async(fitted)


@pytest.mark.parametrize(
    ("error", "word"),
    [(RuntimeError("a fault"), "log"), (MemoryError(), "memory")],
)
async def test_a_failing_fit_keeps_the_learner_alive(
    error: Exception, word: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(algorithms()["ranksvm"], "fit", fails)
    url = "/v1/learners/a"
    async with client() as http:
        await http.put(url, json=SETUPS["ranksvm"])
        await http.post(f"{url}/update", json={"events": events(50)})

        async def failed() -> bool:
            failure = (await http.get(url)).json()["fit"]["failed"]
            return failure is not None and word in failure

        await eventually_async(failed)
        assert ("a fault" in caplog.text) == isinstance(error, RuntimeError)
        assert (await http.post(f"{url}/update", json={"events": events(40, 50)})).json()["applied"] == 40
        monkeypatch.undo()
        await http.post(f"{url}/update", json={"events": events(20, 90)})

        async def fitted() -> bool:
            return bool((await http.get(url)).json()["fit"]["failed"] is None)

        await eventually_async(fitted)


@pytest.mark.parametrize("size", [1, 30, 200])
async def test_the_warm_up_ends_at_the_same_event_for_any_request_size(size: int) -> None:
    setup = SETUPS["nsauc"]
    learner = create("nsauc", **{key: value for key, value in setup.items() if key != "algorithm"})
    batch_events = events(200)
    scores = learner.learn(
        [item["x"] for item in batch_events],
        [item["label"] for item in batch_events],
        ids=[item["id"] for item in batch_events],
    )
    url = "/v1/learners/a"
    async with client() as http:
        await http.put(url, json=setup)
        results = []
        for start in range(0, 200, size):
            reply = await http.post(f"{url}/update", json={"events": batch_events[start : start + size]})
            results += reply.json()["results"]
        assert [item["score"] for item in results] == scores.tolist()
        assert (await http.get(f"{url}/digest")).json()["digest"] == learner.digest()
        assert (await http.get(url)).json()["fit"]["events"] == 40


async def test_a_large_request_is_scored_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    values = Scorer.values

    def noted(self: Scorer, rows: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return values(self, rows)

    async with client() as http:
        await http.put("/v1/learners/a", json=SETUPS["nsauc"])
        await http.post("/v1/learners/a/update", json={"events": events(60)})
        monkeypatch.setattr(Scorer, "values", noted)
        few = [{"x": [0.5, 0.25, 1]}] * 3
        predictions = [
            (await http.post("/v1/learners/a/predict", json={"events": few * times})).json()["results"][:3]
            for times in (1, 30_000)
        ]
        assert predictions[0] == predictions[1]
        assert threads == [True, False]


async def test_a_failed_fit_is_reported_and_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    fit, tries = algorithms()["ranksvm"].fit, []  # type: ignore[attr-defined]

    def fails(*arguments: Any) -> Any:
        tries.append(len(arguments[3]))
        if len(tries) == 1:
            raise ValueError("unfit")
        return fit(*arguments)

    monkeypatch.setattr(algorithms()["ranksvm"], "fit", fails)
    url = "/v1/learners/a"
    async with client() as http:
        await http.put(url, json=SETUPS["ranksvm"])
        await http.post(f"{url}/update", json={"events": events(50)})

        async def failed() -> bool:
            return bool((await http.get(url)).json()["fit"]["failed"])

        await eventually_async(failed)
        document = (await http.get(url)).json()
        assert (document["fit"]["events"], document["fit"]["running"]) == (0, False)
        assert document["fit"]["failed"] == "unfit"
        assert "fit" in document["not_ready"]
        await http.post(f"{url}/update", json={"events": events(49, 50)})
        assert len(tries) == 1
        await http.post(f"{url}/update", json={"events": events(1, 99)})

        async def fitted() -> bool:
            fit = (await http.get(url)).json()["fit"]
            return bool(fit == {"events": 100, "running": False, "waiting": False, "failed": None})

        await eventually_async(fitted)


# Ordinal learners

RANKED: dict[str, Any] = {"algorithm": "npsvor", "features": FEATURES, "params": {"ranks": 3, "capacity": 50}}


def ranked(count: int, start: int = 0) -> list[dict[str, Any]]:
    batch_events = events(count, start)
    for event in batch_events:
        event["label"] = 1 + int(event["x"][0] > 0.6) + int(event["x"][0] > 1.2)
    return batch_events


async def test_ranks_over_http_equal_those_of_the_library() -> None:
    learner = create("npsvor", dim=3, ranks=3, capacity=50)
    batch_events = ranked(400)
    ranks = learner.learn(
        [item["x"] for item in batch_events],
        [item["label"] for item in batch_events],
        ids=[item["id"] for item in batch_events],
    )
    url = "/v1/learners/a"
    async with client() as http:
        created = (await http.put(url, json=RANKED)).json()
        assert created["config"]["threshold"] is created["config"]["calibration"] is None
        assert created["class_counts"] == {"1": 0, "2": 0, "3": 0}
        early = (await http.post(f"{url}/predict", json={"events": [{"x": [0, 0, 0]}]})).json()
        assert early["ready"] is False
        assert early["results"] == [{"id": None, "score": 0.0, "rank": None}]
        results = []
        for start in range(0, 400, 50):
            reply = (await http.post(f"{url}/update", json={"events": batch_events[start : start + 50]})).json()
            results += reply["results"]
        assert [item["rank"] for item in results] == ranks.tolist()
        assert set(results[0]) == {"id", "status", "score", "rank"}
        again = (await http.post(f"{url}/update", json={"events": batch_events[:2]})).json()
        assert again["results"][1] == {"id": "e1", "status": "duplicate", "score": None, "rank": None}
        assert (await http.get(f"{url}/digest")).json()["digest"] != ""
        learner.learn(
            [item["x"] for item in batch_events[:2]], [item["label"] for item in batch_events[:2]], ids=["e0", "e1"]
        )
        assert (await http.get(f"{url}/digest")).json()["digest"] == learner.digest()
        figures = (await http.get(f"{url}/metrics")).json()
        local = learner.figures()
        assert {key: figures[key] for key in local} == local
        assert figures["window"]["mae"] == np.mean(np.abs(ranks - [item["label"] for item in batch_events]))
        assert "threshold" not in figures
        predictions = (
            await http.post(f"{url}/predict", json={"events": [{"x": [1.9, 0.5, 0]}, {"x": [0, 0.5, 0]}]})
        ).json()
        assert [item["rank"] for item in predictions["results"]] == [3, 1]
        assert predictions["results"][0]["score"] > predictions["results"][1]["score"]
        points = (await http.get(f"{url}/metrics/history")).json()["points"]
        assert points[-1]["accuracy"] > 0.5
        document = (await http.get("/v1/learners")).json()["learners"][0]
        assert sum(document["class_counts"].values()) == document["events"] == 400


@pytest.mark.parametrize("label", [0, 4, 1.5, True, None, "2", -1, 2**70])
async def test_an_invalid_rank_is_refused_with_its_position(label: Any) -> None:
    url = "/v1/learners/a"
    created = ranked(3)
    created[1]["label"] = label
    async with client() as http:
        await http.put(url, json=RANKED)
        reply = await http.post(f"{url}/update", json={"events": created})
        assert reply.status_code == 422
        assert [error["pointer"] for error in reply.json()["errors"]] == ["/events/1/label"]
        assert reply.json()["errors"][0]["detail"].endswith("3")
        assert (await http.get(url)).json()["events"] == 0


async def test_ranks_are_refused_by_a_binary_learner() -> None:
    async with client() as http:
        await http.put("/v1/learners/a", json={"algorithm": "cbr", "features": FEATURES})
        reply = await http.post("/v1/learners/a/update", json={"events": [{"x": [1, 2, 3], "label": 2}]})
        assert reply.status_code == 422
