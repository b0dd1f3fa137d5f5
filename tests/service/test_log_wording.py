"""The words of log lines. All other tests look at levels, loggers, counts and the data in messages.

A changed sentence changes one row here. `TMP` stands for the folder of the test.
"""

from __future__ import annotations

import asyncio
import copy
import io
import json
import logging
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from learners import algorithms
from learners.config import Config
from service.api.body import Disconnected, read_in_time
from service.engine.clock_check import ClockCheck
from service.engine.node_resources import Node
from service.engine.replica.in_flight import InFlightRecords
from service.engine.webhooks import Webhook
from service.errors import StoreUnavailable
from service.server.listen import announce, warn
from service.server.worker_process import show_stacks
from service.settings import Settings
from service.storage.memory import MemoryStore
from service.storage.redis.leases import LeaseWatch
from service.storage.sqlite import checkpoints
from service.storage.store_protocol import URL_FORMS
from service.telemetry.log_writer import LineWriter, configure
from service.telemetry.request_log import _Allowance
from tests.harness.apps import DENSE, events
from tests.harness.fixtures import Machine
from tests.harness.keyring import Keyring, keyed
from tests.harness.nodes import app_over, node, posted, serving
from tests.harness.process import Process, free_port
from tests.harness.redis_server import REDIS, RedisServer
from tests.harness.waiting import eventually_async
from tests.harness.websocket import Gated, websocket
from tests.service.api.routes.test_metrics_routes import DENSE as DRIFTING
from tests.service.api.routes.test_metrics_routes import drifted
from tests.service.engine.replica.test_background_fits import SETUPS
from tests.service.engine.test_engine import batch_of
from tests.service.engine.test_webhooks import Posts
from tests.service.server.test_hanging_workers import Hanging
from tests.service.server.test_supervisor import no_descriptors
from tests.service.storage.test_full_stores import FullStore

Patch = pytest.MonkeyPatch


class Scenario:
    """What triggers may use: a folder, patches that end with the row, and what was logged so far."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        self.folder, self.patch, self.caplog = folder, patch, caplog

    async def logged(self, level: str) -> None:
        """Wait for a line of this level."""
        await eventually_async(lambda: any(record.levelname == level for record in self.caplog.records))


Trigger = Callable[[Scenario], Awaitable[None]]


class Away(MemoryStore):
    """A store whose methods fail that `failing` names."""

    failing: tuple[str, ...] = ()

    def __getattribute__(self, name: str) -> Any:
        if name in super().__getattribute__("failing"):

            async def fail(*_: Any, **__: Any) -> None:
                raise StoreUnavailable("unreachable")

            return fail
        return super().__getattribute__(name)


# Alarms


async def alarm(scenario: Scenario) -> None:
    async with serving(MemoryStore()) as (http, _engine):
        await http.put("/learners/a", json=DRIFTING)
        await drifted(http)
        await scenario.logged("WARNING")


async def alarm_without_receiver(scenario: Scenario) -> None:
    scenario.patch.setattr("service.engine.webhooks._PAUSES", (0.0,))
    webhook, posts = Webhook(f"http://127.0.0.1:{free_port()}/"), Posts()
    posts.add()
    webhook.note(posts, 0.0)
    await scenario.logged("ERROR")
    await webhook.close()


# Keys, requests, the store


async def keys_files(scenario: Scenario) -> None:
    scenario.patch.setattr("service.auth.guard._LOOK_EVERY", 0.01)
    ring = Keyring(scenario.folder)
    ring.make("first", "admin")
    async with keyed(ring):
        ring.make("second", "read")
        await scenario.logged("INFO")
        ring.path.write_bytes(b"{")
        await scenario.logged("ERROR")


async def too_many_requests(_: Scenario) -> None:
    allowance = _Allowance(1, 0.0)
    for now in (1.0, 1.1, 1.2, 3.0):
        allowance.take(now)


async def failing_checkpoint(_: Scenario) -> None:
    db = sqlite3.connect(":memory:")
    db.close()
    checkpoints._checkpoint(db)


async def reply_that_nobody_reads(_: Scenario) -> None:
    async def send(_: Any) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Disconnected):
        await read_in_time(send, 0.01, "a reply in lines")({})


async def silent_host(_: Scenario) -> None:
    async with node(MemoryStore()) as engine:
        forwarder = app_over(engine).state.forwarding
        for count in (1, 2):
            for _attempt in range(count):
                forwarder._note_failure("http://a:1", "does not answer", TimeoutError())
            forwarder._note_answer("http://a:1")


# Learners


async def lost_records_in_flight(_: Scenario) -> None:
    records = InFlightRecords("a")
    for token in (b"1", b"2"):
        with records.appending(token):
            pass
    with records.reading():
        pass


async def store_away_at_the_start(scenario: Scenario) -> None:
    scenario.patch.setattr("service.engine.cluster.store_sync._WARN_SECONDS", 0.0)
    store = Away()
    store.failing = ("heads",)
    scenario.patch.setattr(Node, "stale_seconds", 61.0)
    async with node(store, follow_seconds=0.01):
        await eventually_async(lambda: len(scenario.caplog.records) > 1)


async def store_away_for_a_while(scenario: Scenario) -> None:
    store = Away()
    async with node(store, follow_seconds=0.01):
        store.failing = ("heads", "head")
        await scenario.logged("WARNING")
        store.failing = ()
        await scenario.logged("INFO")


async def store_without_room_for_a_while(_: Scenario) -> None:
    store = FullStore()
    async with serving(store, snapshot_seconds=3600, snapshot_events=10**9) as (http, _):
        await http.put("/learners/a", json=DENSE)
        for room in (0, 0, 10**9):
            store.room = room
            await http.post("/learners/a/update", json={"events": events(20)})


async def store_away_while_serving(_: Scenario) -> None:
    store = Away()
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/update", events(5))
        store.failing = ("save", "serve", "deregister")
        await posted(http, "/learners/a/predict", [{"id": "q", "x": [1, 2, 3]}])
        await engine.get("a").close(save=True)


async def wrong_clocks(scenario: Scenario) -> None:
    machine, check = Machine(), ClockCheck()
    scenario.patch.setattr("service.clock.CLOCK", machine.clock())
    for step in (3 * 86_400.0, -3 * 86_400.0):
        machine.step(step)
        for _ in range(2):
            check.report()
    check.note_newest(machine.time + 7200.0, "a")
    check.report()
    check.compare(machine.time - 90.0, 0.0)
    check.report()


async def lease_that_nobody_renewed(_: Scenario) -> None:
    LeaseWatch().note("a", b"", b"of a dead node", 0, 10.0)


async def declared_fields_that_never_come(_: Scenario) -> None:
    async with serving(MemoryStore()) as (http, _engine):
        features = {"kind": "named", "log": ["Fee"], "categorical": ["Shop"]}
        await http.put("/learners/a", json={"algorithm": "cbr-diag", "features": features})
        for _ in range(2):
            await posted(http, "/learners/a/update", [{"features": {"fee": 1.5}, "label": i % 2} for i in range(1000)])


async def more_fields_than_are_remembered(_: Scenario) -> None:
    async with serving(MemoryStore()) as (http, _engine):
        await http.put("/learners/a", json={"algorithm": "cbr-diag", "features": {"kind": "named"}})
        for first in (0, 600, 1200):
            features = {f"x{i}": 1.5 for i in range(first, first + 600)}
            await posted(http, "/learners/a/update", [{"features": features, "label": 0}])


async def features_too_large_to_keep(_: Scenario) -> None:
    features = {"kind": "named", "text": ["text"]}
    async with serving(MemoryStore()) as (http, _engine):
        await http.put(
            "/learners/a", json={"algorithm": "cbr-diag", "features": features, "late": {"keep_features": True}}
        )
        for id in "xy":
            await posted(http, "/learners/a/predict", [{"id": id, "features": {"text": "a " * 33_000}}])


async def times_ahead_of_the_clock(_: Scenario) -> None:
    async with serving(MemoryStore()) as (http, _engine):
        await http.put("/learners/a", json=DENSE)
        for _time in range(2):
            await posted(http, "/learners/a/update", [{**events(1)[0], "time": time.time() + 3600}])


async def learner_that_cannot_be_recovered(_: Scenario) -> None:
    store = MemoryStore()
    async with node(store) as engine:
        replica, _created = await engine.create("a", Config.of(DENSE))
        await replica.label(batch_of(10))
        await replica.snapshots.save()
        await store.save("a", replica.birth, replica.position, b"rubbish", 1, True)
    async with node(store):
        pass


async def snapshot_that_cannot_be_read(_: Scenario) -> None:
    store = MemoryStore()
    async with node(store, trim_log=False) as engine:
        replica, _created = await engine.create("a", Config.of(DENSE))
        await replica.label(batch_of(10))
        await store.save("a", replica.birth, replica.position, b"rubbish", 1, False)
    async with node(store, trim_log=False):
        pass


async def record_that_cannot_be_read(_: Scenario) -> None:
    store = MemoryStore()
    async with node(store) as engine:
        replica, _created = await engine.create("a", Config.of(DENSE))
        await store.append("a", replica.birth, [(b"t" * 16, b"rubbish")], 1)
        await asyncio.gather(replica.label(batch_of(1)), return_exceptions=True)


async def log_that_lost_records(_: Scenario) -> None:
    store = MemoryStore()
    async with node(store, trim_log=False) as engine:
        replica, _created = await engine.create("a", Config.of(DENSE))
        before = copy.deepcopy(store._logs)
        await replica.label(batch_of(5))
        store._logs.update(before)
        await replica.log.catch_up()


async def log_that_was_trimmed(scenario: Scenario) -> None:
    store = MemoryStore()
    async with (
        node(store, follow_seconds=60) as behind,
        node(store, follow_seconds=60, snapshots_kept=1) as ahead,
    ):
        late, _created = await behind.create("a", Config.of(DENSE))
        scenario.patch.setattr(late.log, "follow", lambda *_: None)  # what it does at its start may come late
        await ahead.create("a", Config.of(DENSE))
        for i in range(4):
            await ahead.get("a").label(batch_of(5, 5 * i))
            await ahead.get("a").snapshots.save()
        await late.label(batch_of(5, 20))


async def learner_that_vanished(_: Scenario) -> None:
    store = MemoryStore()
    async with node(store, follow_seconds=3600) as engine:
        await engine.create("a", Config.of(DENSE))
        del store._logs["a"]
        await engine.sync.check_heads()


async def fault_in_a_task(scenario: Scenario) -> None:
    async with node(MemoryStore(), record_events=1) as engine:
        replica, _created = await engine.create("a", Config.of(DENSE))

        def broken(_: object) -> None:
            raise ZeroDivisionError

        scenario.patch.setattr(replica.log.machine, "apply", broken)
        await asyncio.gather(replica.label(batch_of(1)), return_exceptions=True)


def failing_fit(error: Exception) -> Trigger:
    """Return the failure of a learner's fit by an error."""

    async def fit(scenario: Scenario) -> None:
        def fails(*_: Any) -> Any:
            raise error

        scenario.patch.setattr(algorithms()["ranksvm"], "fit", fails)
        async with serving(MemoryStore()) as (http, _):
            await http.put("/learners/a", json=SETUPS["ranksvm"])
            await posted(http, "/learners/a/update", events(50))
            await scenario.logged("WARNING")

    return fit


# Websockets and servers


async def websocket_with_open_messages(_: Scenario) -> None:
    store = Gated()
    async with node(store) as engine:
        await engine.create("a", Config.of(DENSE))
        app = app_over(engine)
        async with websocket(app, "/v1/learners/a/ws") as client:
            gate = store.shut("a")
            client.send({"seq": 1, "op": "update", "events": events(1)})
            await store.waiting.wait()
            await app.state.close_websockets(0.01)
            gate.set()


async def faulty_websocket(scenario: Scenario) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("faulty")

    scenario.patch.setattr("service.api.websocket.learner_queue.join_body", broken)
    async with node(MemoryStore()) as engine:
        await engine.create("a", Config.of(DENSE))
        async with websocket(app_over(engine), "/v1/learners/a/ws") as client:
            client.send({"seq": 1, "op": "update", "events": events(1)})
            await client.closed()


async def stacks_of_a_worker(_: Scenario) -> None:
    lines = LineWriter(io.BytesIO(), "text")
    for form in ("json", "text"):
        show_stacks(lines, form, 1, "Thread 1:\n  File x")
    lines.close()


async def start_of_a_server(scenario: Scenario) -> None:
    settings = Settings(store="redis://ann:secret@127.0.0.1", log_format="json", workers=2)
    scenario.patch.setattr(sys.modules["service.server.listen"], "process_age", lambda: 1.25)
    warn(settings, ["insecure"])
    announce(settings, "http://127.0.0.1:8000")


# trigger; logger, level and message of each line of the service, repetitions left out
LINES: list[tuple[Trigger, list[tuple[str, str, str]]]] = [
    (alarm, [
        ("rarestream.webhook", "WARNING", "a: scores alarm at 50 events is open"),
    ]),
    (alarm_without_receiver, [
        ("rarestream.webhook", "WARNING", "a: posts wait for the webhook, which is tried again: ConnectError"),
        ("rarestream.webhook", "ERROR", "cannot post an alarm of a: ConnectError"),
    ]),
    (keys_files, [
        ("rarestream.guard", "INFO", "reloaded the keys file: 2 keys"),
        (
            "rarestream.guard", "ERROR",
            "cannot reload the keys file, keeping the previous keys: TMP/keys.json is not a keys file: Input data "
            "was truncated",
        ),
    ]),
    (too_many_requests, [
        ("rarestream.requests", "WARNING", "2 requests before this one were not logged: too many in a second"),
    ]),
    (failing_checkpoint, [
        (
            "rarestream.store", "WARNING",
            "cannot copy the store's WAL into its file, so the WAL keeps growing; check the disk. SQLite: Cannot "
            "operate on a closed database.",
        ),
    ]),
    (reply_that_nobody_reads, [
        ("rarestream.bodies", "WARNING", "a reply in lines was dropped: nothing of it was read in 0.01 s"),
    ]),
    (silent_host, [
        ("rarestream.forwarding", "WARNING", "http://a:1 does not answer: TimeoutError"),
        ("rarestream.forwarding", "INFO", "http://a:1 answers again after 1 unanswered request"),
        ("rarestream.forwarding", "INFO", "http://a:1 answers again after 2 unanswered requests"),
    ]),
    (lost_records_in_flight, [
        ("rarestream.serving", "ERROR", "the store has lost 2 records of events that a served"),
    ]),
    (store_away_at_the_start, [
        ("rarestream.sync", "WARNING", "waiting for the store: unreachable"),
        ("rarestream.sync", "WARNING", "still waiting for the store, which has not answered for 61 s: unreachable"),
    ]),
    (store_away_for_a_while, [
        ("rarestream.sync", "WARNING", "waiting for the store: unreachable"),
        ("rarestream.sync", "INFO", "the store answers again"),
    ]),
    (store_without_room_for_a_while, [
        ("rarestream.node", "ERROR", "no room"),
        ("rarestream.node", "INFO", "the store has room again"),
    ]),
    (features_too_large_to_keep, [
        (
            "rarestream.serving", "WARNING",
            "a keeps no features of events that have over 64 KiB of them; it counts these events",
        ),
    ]),
    (times_ahead_of_the_clock, [
        (
            "rarestream.serving", "WARNING",
            "a: some times are ahead of this node's clock and count as now; see rarestream_times_ahead_total",
        ),
    ]),
    (wrong_clocks, [
        (
            "rarestream.clock", "ERROR",
            "this node's clock is 3 days, 0:00:00 ahead of the time expected by the monotonic clock; times of events "
            "do not follow it, so nothing expires early. Correct the clock; if it is right now, restart the service",
        ),
        ("rarestream.clock", "WARNING", "this node's clock is right again; times of events follow it"),
        (
            "rarestream.clock", "ERROR",
            "this node's clock is 2:00:00 behind the newest event of a; correct the clock that is wrong",
        ),
        (
            "rarestream.clock", "ERROR",
            "this node's clock is 0:01:30 ahead of the store's clock; times of events do not follow it, so nothing "
            "expires early. Correct the clock",
        ),
    ]),
    (lease_that_nobody_renewed, [
        (
            "rarestream.store", "WARNING",
            "the learner a: took over a lease that nobody renewed; the clock of Redis was set back, or runs slowly",
        ),
    ]),
    (declared_fields_that_never_come, [
        (
            "rarestream.serving", "WARNING",
            "no event of a has had its declared fields 'Fee', 'Shop'; are they misspelt?",
        ),
    ]),
    (more_fields_than_are_remembered, [
        ("rarestream.serving", "WARNING", "a remembers no further fields: values of others are learnt, not counted"),
    ]),
    (store_away_while_serving, [
        ("rarestream.serving", "WARNING", "a cannot remember the events that it serves: unreachable"),
        ("rarestream.snapshots", "WARNING", "cannot save a snapshot of a at shutdown: unreachable"),
    ]),
    (learner_that_cannot_be_recovered, [
        (
            "rarestream.sync",
            "ERROR",
            "a: cannot recover a: snapshot 2 of a is cut short: 7 bytes. Restore a backup of the store; or delete the "
            "learner, create it anew and replay its events",
        ),
    ]),
    (snapshot_that_cannot_be_read, [
        (
            "rarestream.node", "ERROR",
            "snapshot 2 of a is cut short: 7 bytes; an older snapshot and the log are used instead. Check the disk of "
            "the store",
        ),
    ]),
    (record_that_cannot_be_read, [
        (
            "rarestream.log", "ERROR",
            "a cannot continue: record 2 of a is cut short: 7 bytes. Export it: the file has the state before that. "
            "Import it under another name, and send the events since then",
        ),
    ]),
    (log_that_lost_records, [
        (
            "rarestream.log", "ERROR",
            "position 2 of the learner a is ahead of its log, which ends at 1: the store lost records; this node "
            "had applied records up to 2; restarting from position 1",
        ),
    ]),
    (log_that_was_trimmed, [
        (
            "rarestream.log", "INFO",
            "position 1 of the learner a is behind its log, which was trimmed up to 3; this node continues from 1 with "
            "the snapshot at 5",
        ),
    ]),
    (learner_that_vanished, [
        (
            "rarestream.sync", "ERROR",
            "the learner a vanished from the store, and nobody deleted it. Restore a backup of the store; or delete "
            "the learner, create it anew and replay its events",
        ),
    ]),
    (fault_in_a_task, [
        ("rarestream.log", "CRITICAL", "internal error in the task of a"),
    ]),
    (failing_fit(ValueError("unfit")), [
        ("rarestream.fits", "WARNING", "a could not be fitted to its last events: unfit"),
    ]),
    (failing_fit(MemoryError()), [
        ("rarestream.fits", "WARNING", "a could not be fitted to its last events: there is not enough memory"),
    ]),
    (failing_fit(RuntimeError("faulty")), [
        ("rarestream.fits", "CRITICAL", "internal error in the fit of a"),
        (
            "rarestream.fits", "WARNING",
            "a could not be fitted to its last events: an internal error, which the node's log shows",
        ),
    ]),
    (websocket_with_open_messages, [
        ("rarestream.sockets", "WARNING", "a websocket was closed with 1 unanswered message"),
    ]),
    (faulty_websocket, [
        ("rarestream.sockets", "CRITICAL", "a websocket ended by an error"),
    ]),
    (stacks_of_a_worker, [
        ("rarestream.workers", "WARNING", "stack of worker 1: Thread 1:\n  File x"),
        ("rarestream.workers", "WARNING", "stacks of worker 1:"),
    ]),
    (start_of_a_server, [
        ("rarestream.server", "WARNING", "insecure"),
        (
            "rarestream.server", "INFO",
            "rarestream is ready in 1.2 s: http://127.0.0.1:8000 (dashboard), http://127.0.0.1:8000/docs, store "
            "redis://ann:***@127.0.0.1, 2 workers",
        ),
    ]),
]  # fmt: skip


async def test_refused_lines_are_decoded_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    differences = []
    for trigger, expected in LINES:
        caplog.clear()
        with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.INFO, "rarestream"):
            await trigger(Scenario(tmp_path, patch, caplog))
        lines = [
            (record.name, record.levelname, record.getMessage().replace(str(tmp_path), "TMP"))
            for record in caplog.records
            if record.name.startswith("rarestream.")
        ]
        if (lines := list(dict.fromkeys(lines))) != expected:  # some repeat
            differences.append(f"{trigger.__name__}: {lines}, expected {expected}")
    assert not differences, "\n".join(differences)


@pytest.mark.usefixtures("root_logger")
def test_words_of_a_traceback() -> None:
    stream = io.BytesIO()
    lines = configure(stream, "json", "info")
    try:
        try:
            dict[str, int]()["secret"]
        except KeyError as error:
            raise ExceptionGroup("secret", [OSError("secret")]) from error
    except ExceptionGroup:
        logging.getLogger("rarestream.app").exception("it failed")
    lines.close()
    text = json.loads(stream.getvalue())["exception"]
    assert [line for line in text.splitlines() if line and not line.startswith(" ")] == [
        "Traceback (most recent call last):",
        "KeyError: (its text is left out)",
        "which led to:",
        "Traceback (most recent call last):",
        "ExceptionGroup: (its text is left out)",
        "and of it:",
        "Traceback (most recent call last):",
        "OSError: (its text is left out)",
    ]


# Several processes


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def lines_of(path: Path, loggers: Iterable[str]) -> set[tuple[str, str]]:
    """Return level and message of the lines of a log in JSON; `N` stands for numbers, `URL` for addresses."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    messages = [(line["level"], line["message"]) for line in lines if line["logger"] in loggers]
    messages = [(level, re.sub(r"\w+://\S+?(?=[,;]? |$)", "URL", text)) for level, text in messages]
    return {(level, re.sub(r"\d+(\.\d+)?", "N", text)) for level, text in messages if not text.startswith("stack of")}


@pytest.mark.integration
def test_lines_of_several_processes(tmp_path: Path, redis: RedisServer) -> None:
    with Hanging(redis, tmp_path, worker_seconds=5, log_format="json") as service:
        service.wait_for("is ready in")
        workers = service.children()
        service.hang.touch()
        os.kill(workers[0], signal.SIGUSR1)
        service.wait_for("is ready again")
        service.hang.unlink()
        service.hang_up()
        service.wait_for("replaced all")
        service.kill()
        service.wait_for("stopped", 4)
    assert lines_of(tmp_path / "log", ["rarestream.server", "rarestream.workers"]) == {
        ("info", "rarestream is ready in N s: URL (dashboard), URL, store URL, N workers"),
        ("error", "worker N sent no heartbeat for N s; dumping its stacks, then killing it unless it recovers"),
        ("error", "killing worker N (acknowledged data is safe)"),
        ("error", "worker N exited unexpectedly (by SIGKILL (it sent no heartbeat for N s)); restarting in N s"),
        ("info", "worker N is ready again"),
        ("info", "replacing the workers, one at a time"),
        ("info", "replaced all workers"),
        ("error", "the supervisor exited; shutting down"),
        ("info", "stopping: finishing open requests, then saving changed learners"),
        ("info", "stopped"),
    }


@pytest.mark.integration
def test_lines_of_an_abandoned_restart(tmp_path: Path, redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with Process(redis.url, tmp_path / "log", workers=2, log_format="json") as service:
        service.wait_for("is ready in")
        with no_descriptors(service.pid):
            service.hang_up()
            service.wait_for("abandoning")
            os.kill(service.children()[0], signal.SIGKILL)
            service.wait_for("in 0.4 s")
        service.wait_for("is ready again")
        service.stop()
    abandoning = "abandoning the rolling restart, keeping the other workers"
    full = "[Errno N] Too many open files"
    assert lines_of(tmp_path / "log", ["rarestream.workers"]) == {
        ("info", "replacing the workers, one at a time"),
        ("error", f"cannot start the next worker N: {full}; {abandoning}"),
        ("error", "worker N exited unexpectedly (by SIGKILL); restarting in N s"),
        ("error", f"cannot start worker N: {full}; trying again in N s"),
        ("info", "worker N is ready again"),
    }
    with tempfile.TemporaryDirectory() as folder:  # whose name is short, as a socket's is to be
        monkeypatch.setenv("TMPDIR", folder)
        with Process(redis.url, tmp_path / "lost", workers=2, log_format="json") as service:
            service.wait_for("is ready in")
            (shared,) = Path(folder).iterdir()
            shared.rename(Path(folder) / "elsewhere")
            service.hang_up()
            service.wait_for("abandoning")
            assert lines_of(tmp_path / "lost", ["rarestream.workers"]) == {
                ("info", "replacing the workers, one at a time"),
                ("error", f"the next worker N exited with status N before it was ready; {abandoning}"),
            }


@pytest.mark.integration
def test_lines_without_a_master(tmp_path: Path) -> None:
    with RedisServer(REDIS, sentinel=True) as sentinel:
        service = Process(
            f"redis+sentinel://127.0.0.1:{sentinel.port}/0?master=main", tmp_path / "log", log_format="json"
        )
        service.start(ready=False)
        service.wait_for("waiting for the store")
        service.kill()
    assert lines_of(tmp_path / "log", ["rarestream.sync"]) == {
        ("warning", "waiting for the store: Redis: no Sentinel knows the master")
    }


@pytest.mark.integration
def test_errors_of_several_processes(tmp_path: Path, redis: RedisServer) -> None:
    stuck = Hanging(redis, tmp_path, "uvicorn", worker_start_seconds=5)
    stuck.hang.touch()
    stuck.launch()
    assert stuck.ended() == 1
    doing = "it starts its interpreter and imports its modules; no heartbeat yet"
    assert f"WARNING rarestream.workers: worker 1 is not ready after 1 s: {doing}\n" in stuck.log()
    assert errors_in(stuck.log()) == [
        f"error: worker 1 exited by SIGKILL (it made no progress with its start for 5 s: {doing}) before it was ready"
    ]
    wrong = Process("redis://127.0.0.1:1/not-a-number", tmp_path / "wrong", workers=2)
    wrong.launch()
    assert wrong.ended() == 2
    assert errors_in(wrong.log()) == [
        f"error: the service cannot start: the Redis URL or one of its options cannot be read; {URL_FORMS}",
        "error: worker 1 exited with status 2 before it was ready",
    ]
    program = "import sys; sys.executable = '/nowhere/python'; from service.cli.main import main; main()"
    command = [sys.executable, "-c", program, "serve", "--port", "0", "--workers", "2", "--store", redis.url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert errors_in(ended.stderr) == [
        "error: cannot start a worker: [Errno 2] No such file or directory: '/nowhere/python'"
    ]


def errors_in(log: str) -> list[str]:
    """Return the error messages of a log."""
    return [line for line in log.splitlines() if line.startswith("error: ")]
