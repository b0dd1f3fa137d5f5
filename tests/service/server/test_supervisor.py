"""Several processes behind one port: started, killed, replaced, told of as one."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from service.settings import Settings
from tests.campaigns.rolling import campaign
from tests.harness.apps import DENSE, events
from tests.harness.process import READY, REPLACEMENT, RESTART_FAILURE, Process
from tests.harness.redis_server import RedisServer
from tests.harness.scrapes import samples
from tests.harness.waiting import eventually
from tests.service.api.test_prometheus import key

pytestmark = pytest.mark.integration

WORKERS = 3
ALONE = (  # what the expressions of the dashboard and of the alerts match by the instance has one series
    "rarestream_build_info",
    "rarestream_body_bytes",
    "rarestream_body_limit_bytes",
    "rarestream_queue_limit_bytes",
    "rarestream_node_ready",
    "rarestream_store_up",
    "rarestream_store_stale_seconds",
    "rarestream_clock_offset_seconds",
    "rarestream_store_clock_offset_seconds",
    "rarestream_learners_left_out",
)


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workers") / "log"


@pytest.fixture(scope="module")
def service(redis: RedisServer, log: Path) -> Iterator[Process]:
    """Three workers over Redis, with the learner `a`, which all of them have."""
    with Process(redis.url, log, workers=WORKERS, log_format="json") as process:
        process.wait_for(READY)
        assert httpx.put(f"{process.url}/v1/learners/a", json=DENSE, timeout=300, trust_env=False).status_code == 201
        with connections(process) as clients:
            eventually(lambda: all(item.get("/v1/learners/a").status_code == 200 for item in clients))
        yield process
        assert process.stop() == -signal.SIGTERM


def answered(process: Process) -> dict[str, float]:
    """How many probes each worker has answered, of those that have answered any."""
    name = "rarestream_request_seconds_count"
    collected = ((dict(labels), value) for (_, labels), value in scraped(process, name).items())
    return {item["worker"]: value for item, value in collected if item["route"] == "/v1/health/live"}


@contextmanager
def connections(process: Process) -> Iterator[list[httpx.Client]]:
    """Return a connection to each worker, in the order of their numbers; idle ones are reopened after five seconds."""
    with ExitStack() as opened:
        collected: dict[str, httpx.Client] = {}
        before = answered(process)
        for _ in range(100):
            client = opened.enter_context(httpx.Client(base_url=process.url, timeout=300, trust_env=False))
            assert client.get("/v1/health/live").status_code == 200
            after = answered(process)
            (worker,) = (item for item, count in after.items() if count > before.get(item, 0))
            collected.setdefault(worker, client)  # another one to the same stays open, so that others have fewer
            before = after
            if len(collected) == WORKERS:
                yield [collected[worker] for worker in sorted(collected)]
                return
        raise AssertionError(f"of 100 connections all went to the workers {sorted(collected)}")


def has_exited(pid: int) -> bool:
    """Whether there is no such process, or only what is left of one that nobody has asked after."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def scraped(process: Process, *names: str) -> dict[object, float]:
    """Return the scrape of any worker; repeat it if a busy machine does not answer in time."""

    def complete() -> dict[object, float] | None:
        collected = samples(httpx.get(f"{process.url}/metrics", timeout=300, trust_env=False).raise_for_status().text)
        return collected if collected[key("rarestream_workers")] == WORKERS else None

    collected = eventually(complete)
    assert collected is not None
    return {item: value for item, value in collected.items() if not names or item[0] in names}  # type: ignore[index]


def lines(log: Path) -> list[dict[str, object]]:
    """Return the lines of the log that are whole: another may be written just now."""
    return [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]


@pytest.mark.parametrize("count", [WORKERS, 8 * WORKERS])
def test_simultaneous_connections_are_spread_evenly(service: Process, count: int) -> None:
    """On a busy machine a process may not run while others accept, so one even round of many is enough."""
    with connections(service):  # each worker has answered one
        pass
    largest = [max(connections_by_worker(service, count)) for _ in range(10)]
    assert min(largest) <= 2 * count / WORKERS  # left to the system, one of them would get nearly all


def connections_by_worker(service: Process, count: int) -> list[float]:
    """Open so many connections at once, and return how many each worker answered."""
    before = answered(service)
    with ExitStack() as opened:
        sockets = [
            opened.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=300))
            for _ in range(count)
        ]
        for item in sockets:
            item.sendall(b"GET /v1/health/live HTTP/1.1\r\nHost: here\r\n\r\n")
        for item in sockets:
            assert item.recv(1000).startswith(b"HTTP/1.1 200")
        share = [value - before[worker] for worker, value in answered(service).items()]
    assert sum(share) == count
    return share


def test_a_scrape_of_any_worker_covers_all(service: Process) -> None:
    posted = 0
    workers: set[str] = set()
    while len(workers) < WORKERS:
        with connections(service) as clients:
            for client in clients:
                assert client.post("/v1/learners/a/update", json={"events": events(20)}).status_code == 200
                posted += 1
        updates = {
            dict(labels)["worker"]: value
            for (_, labels), value in scraped(service, "rarestream_request_seconds_count").items()
            if {"route": "/v1/learners/{name}/update", "status": "200"}.items() <= dict(labels).items()
        }
        workers = {*updates}
    assert sorted(workers) == [str(number) for number in range(1, WORKERS + 1)]
    assert sum(updates.values()) == posted
    for _ in range(2 * WORKERS):  # whichever they reach
        collected = scraped(service)
        assert collected[key("rarestream_node_ready")] == collected[key("rarestream_store_up")] == 1
        assert (
            collected[key("rarestream_events_total", learner="a", **{"class": "positive"})] == 4
        )  # of each, not added up
        assert collected[key("rarestream_duplicate_events_total", learner="a")] == 20 * (posted - 1)
        assert collected[key("rarestream_learners", state="resident")] == 1
        assert collected[key("rarestream_body_limit_bytes")] == WORKERS * Settings().max_buffered_bytes
        assert collected[key("rarestream_queue_limit_bytes")] == Settings().queue_bytes
        for name in ALONE:
            assert sum(item == name for item, _ in collected) == 1, name
        worker_ids = {dict(labels)["worker"] for name, labels in collected if name == "process_resident_memory_bytes"}
        assert worker_ids == workers


def test_learner_counters_never_decrease_between_scrapes(service: Process) -> None:
    """Whoever is scraped is as far as any of them: to Prometheus a counter that falls has begun anew."""
    seen = 0.0
    with connections(service) as clients:
        for start in range(100, 160):
            clients[start % WORKERS].post("/v1/learners/a/update", json={"events": events(1, start)})
            collected = samples(clients[(start + 1) % WORKERS].get("/metrics").text, "rarestream_events_total")
            now = sum(value for (_, labels), value in collected.items() if ("learner", "a") in labels)
            assert now > seen
            seen = now


def test_a_learner_created_by_one_worker_is_available_on_the_others(service: Process) -> None:
    with connections(service) as clients:
        assert clients[0].put("/v1/learners/fresh", json=DENSE).status_code == 201
        replies = [item.post("/v1/learners/fresh/update", json={"events": events(2, ids=False)}) for item in clients]
        assert [item.status_code for item in replies] == [200] * WORKERS
        assert replies[-1].json()["position"] == 1 + WORKERS
        assert clients[0].delete("/v1/learners/fresh").status_code == 204


def test_log_lines_of_all_workers_are_complete_and_name_the_worker(service: Process, log: Path) -> None:
    def report() -> list[object]:
        return [item["worker"] for item in lines(log) if item.get("request_id") == "of-lines"]

    attempts = 0
    while set(report()) != set(range(1, WORKERS + 1)):
        with connections(service) as clients:
            for client in clients:
                for _ in range(50):
                    assert client.get("/v1/learners/a", headers={"X-Request-ID": "of-lines"}).status_code == 200
                    attempts += 1
        eventually(lambda: len(report()) == attempts)  # noqa: B023 (it is called here)


def test_a_killed_worker_is_restarted(service: Process, log: Path) -> None:
    before = service.children()
    victim = before[0]
    os.kill(victim, signal.SIGKILL)
    with httpx.Client(base_url=service.url, timeout=300, trust_env=False) as http:
        eventually(lambda: "SIGKILL" in log.read_text())
        for start in range(300, 320):  # the others go on
            assert http.post("/v1/learners/a/update", json={"events": events(1, start)}).status_code == 200
    service.wait_for(REPLACEMENT)
    after = service.children()
    assert len(after) == WORKERS
    assert set(before) - set(after) == {victim}
    assert len(answered(service)) <= WORKERS  # all of them answer a scrape


@pytest.mark.campaign
def test_workers_paused_together_continue(redis: RedisServer, tmp_path: Path) -> None:
    """As a container is paused, or a machine sleeps: the supervisor stands still as well."""
    with Process(redis.url, tmp_path / "log", workers=2, worker_seconds=12) as service:
        service.wait_for(READY)
        all_of_them = [service.pid, *service.children()]
        for pid in all_of_them:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(16)  # longer than a worker may be silent
        for pid in all_of_them:
            os.kill(pid, signal.SIGCONT)
        for _ in range(50):
            assert httpx.get(f"{service.url}/v1/health/live", timeout=300, trust_env=False).status_code == 200
            time.sleep(0.1)
        assert [service.pid, *service.children()] == all_of_them


@pytest.mark.campaign
def test_workers_run_the_code_that_started_them(
    redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of another copy that is installed."""
    folder = Path(__file__).parents[3]
    for package in ("rarestream", "learners", "service"):
        shutil.copytree(folder / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    version = tmp_path / "rarestream" / "__init__.py"
    version.write_text(re.sub(r'__version__ = ".*"', '__version__ = "0.0.0+copy"', version.read_text()))
    monkeypatch.chdir(tmp_path)
    service = Process(redis.url, tmp_path / "log", workers=2)
    service.environment["PYTHONPATH"] = str(folder)  # there for all, behind the folder in which one starts
    with service:
        report = httpx.get(f"{service.url}/metrics", timeout=300, trust_env=False).text
    assert 'version="0.0.0+copy"' in report


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where processes that are started now have their temporary files; names of sockets have 107 characters at most."""
    with tempfile.TemporaryDirectory() as short:
        monkeypatch.setenv("TMPDIR", short)
        yield Path(short)


@pytest.mark.campaign
def test_a_replacement_that_fails_to_start_keeps_the_old_worker(
    redis: RedisServer, tmp_path: Path, temporary: Path
) -> None:
    """None can start any more, because the directory that they share is not where it was."""
    with Process(redis.url, tmp_path / "log", workers=2) as service:
        service.wait_for(READY)
        before = service.children()
        (shared,) = temporary.iterdir()
        shared.rename(temporary / "elsewhere")
        service.hang_up()
        service.wait_for(RESTART_FAILURE)
        assert service.children() == before
        assert httpx.get(f"{service.url}/v1/health/live", timeout=300, trust_env=False).status_code == 200
        os.kill(before[1], signal.SIGKILL)
        assert service.ended() == 1
    log_text = (tmp_path / "log").read_text()
    assert len(re.findall(rf"^error: .*{shared}\b", log_text, re.MULTILINE)) == 6
    assert re.search(r"^error: worker \d .*\b6\b.*\b1$", log_text, re.MULTILINE)
    eventually(lambda: all(map(has_exited, before)))


@contextmanager
def no_descriptors(pid: int) -> Iterator[None]:
    """Return a process that has none to spare, so that nothing can be started by it."""
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    descriptors = {int(item.name) for item in Path(f"/proc/{pid}/fd").iterdir()}
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(set(range(limits[1])) - descriptors), limits[1]))
    yield
    assert {int(item.name) for item in Path(f"/proc/{pid}/fd").iterdir()} <= descriptors
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


@pytest.mark.campaign
def test_a_failed_fork_keeps_the_other_workers(redis: RedisServer, tmp_path: Path) -> None:
    with Process(redis.url, tmp_path / "log", workers=2) as service:
        service.wait_for(READY)
        before = service.children()
        with no_descriptors(service.pid):
            service.hang_up()
            service.wait_for(RESTART_FAILURE)
            assert service.children() == before
            os.kill(before[0], signal.SIGKILL)
            service.wait_for("in 0.4 s")
            assert service.children() == before[1:]
            assert httpx.get(f"{service.url}/v1/health/live", timeout=300, trust_env=False).status_code == 200
        service.wait_for(REPLACEMENT)
        assert len(service.children()) == 2
        assert service.stop() == -signal.SIGTERM


def test_the_service_ends_if_no_worker_can_be_started(redis: RedisServer) -> None:
    program = "import sys; sys.executable = '/nowhere/python'; from service.cli.main import main; main()"
    command = [sys.executable, "-c", program, "serve", "--port", "0", "--workers", "2", "--store", redis.url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 1
    assert "'/nowhere/python'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_killed_supervisor_leaves_no_workers(redis: RedisServer, tmp_path: Path, temporary: Path) -> None:
    with Process(redis.url, tmp_path / "log", workers=2, log_requests="errors") as service:
        service.wait_for(READY)
        workers = service.children()
        assert len(workers) == 2
        (shared,) = temporary.iterdir()
        assert shared.stat().st_mode & 0o777 == 0o700
        service.kill()
        eventually(lambda: all(map(has_exited, workers)))
    assert list(temporary.iterdir()) == []
    log_text = (tmp_path / "log").read_text()
    assert len(re.findall(r" ERROR +worker=\d rarestream\.workers: ", log_text)) == 2
    assert log_text.count("rarestream.server: stopped") == 2  # in good order


def test_a_service_stopped_before_it_is_ready_ends(redis: RedisServer, tmp_path: Path) -> None:
    service = Process(redis.url, tmp_path / "log", workers=2)
    service.launch()
    try:
        eventually(lambda: bool(service.children()))
        workers = service.children()
        assert service.stop() == -signal.SIGTERM
    finally:
        service.kill()
    assert all(map(has_exited, workers))


@pytest.mark.parametrize("store", ["memory:", "sqlite:///{}/store.db"])
def test_single_process_stores_are_refused(store: str, tmp_path: Path) -> None:
    service = Process(store.format(tmp_path), tmp_path / "log", workers=2)
    service.launch()
    assert service.ended() == 2
    assert "Redis" in (tmp_path / "log").read_text()
    assert not (tmp_path / "store.db").exists()


def test_a_start_failure_is_reported_once(tmp_path: Path) -> None:
    service = Process("redis://127.0.0.1:1/not-a-number", tmp_path / "log", workers=4)
    service.launch()
    assert service.ended() == 2
    log_text = (tmp_path / "log").read_text()
    assert sorted(re.findall(r"^error: (?:worker (\d+))?", log_text, re.MULTILINE)) == ["", "1"]


def test_settings_reach_the_workers_unchanged() -> None:
    settings = Settings(store="redis://:secret@host/0", workers=4, webhook="http://x/", log_format="json")
    assert Settings(**json.loads(json.dumps(settings.model_dump(mode="json")))) == settings


def test_shutdown_is_announced_and_answers_requests_in_progress(tmp_path: Path) -> None:
    with (
        Process("memory:", tmp_path / "log") as service,
        socket.create_connection(("127.0.0.1", service.port), timeout=300) as connection,
        connection.makefile("rb") as reply,
    ):

        def answer() -> bytes | None:
            """Return the head of a reply; None if the connection has come to an orderly end."""
            connection.sendall(b"GET /v1/health/live HTTP/1.1\r\nHost: here\r\n\r\n")
            if not (status := reply.readline()):
                return None
            assert status.lower().startswith(b"http/1.1 200")
            head = b"".join(iter(reply.readline, b"\r\n")).lower()
            (length,) = re.findall(rb"content-length: (\d+)", head)
            assert json.loads(reply.read(int(length)))["status"] == "ok"
            return head

        answer()  # the service has accepted the connection
        os.kill(service.pid, signal.SIGTERM)
        while (head := answer()) is not None:  # if this program is starved, the end comes between two requests
            if b"connection: close" in head:
                break
        assert reply.read() == b""
        assert service.ended() == -signal.SIGTERM


@pytest.mark.campaign
def test_a_rolling_restart_under_load_loses_nothing(tmp_path: Path) -> None:
    with (
        RedisServer() as redis,  # its own: the workers of the other tests would trim the log that is read at the end
        Process(redis.url, tmp_path / "log", workers=4, trim_log=False, log_requests="errors") as service,
    ):
        service.wait_for(READY)
        result = campaign(service, redis.url, seconds=9, restarts=1, workers=4)
    assert result.good, str(result)
    assert result.requests["update"] > 20
    assert result.requests["predict"] > 20
    assert result.requests["socket"] > 20
