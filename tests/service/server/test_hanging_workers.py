"""Several processes behind one port, of which one hangs, or gets no further with its start."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness.process import CRASH, DUMP, READY, RECOVERY, REPLACEMENT, STACKS, Process
from tests.harness.redis_server import RedisServer
from tests.harness.waiting import eventually
from tests.service.server.test_supervisor import lines

pytestmark = pytest.mark.integration

HANG = Path(__file__).parent / "hang"


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


class Hanging(Process):
    """Whose workers hang at SIGUSR1, or at the import of a module, while the file `hang` is there."""

    def __init__(self, redis: RedisServer, folder: Path, module: str = "", **settings: object) -> None:
        self.log_path, self.hang = folder / "log", folder / "hang"
        super().__init__(redis.url, self.log_path, workers=2, **settings)
        path = os.pathsep.join(filter(None, [str(HANG), os.environ.get("PYTHONPATH")]))
        self.environment |= {"PYTHONPATH": path, "HANG": str(self.hang), "HANG_IMPORT": module}


def test_a_hanging_worker_is_replaced_and_its_stacks_are_logged(redis: RedisServer, tmp_path: Path) -> None:
    with Hanging(redis, tmp_path, worker_seconds=5, log_format="json") as service:
        service.wait_for(READY)
        before = service.children()
        victim = before[0]
        service.hang.touch()
        os.kill(victim, signal.SIGUSR1)
        service.wait_for(REPLACEMENT)
        after = service.children()
        assert len(after) == 2
        assert set(before) - set(after) == {victim}
        assert service.stop() == -signal.SIGTERM
    messages = [str(line["message"]) for line in lines(service.log_path)]  # every line is JSON
    assert any(re.match(r"worker \d .*\b5 s\b.*\bstacks\b", message) for message in messages)
    stacks = [message for message in messages if "\n" in message]
    assert all(stack.count("(most") == 1 for stack in stacks)
    assert any("sitecustomize.py" in stack and "in _hang" in stack for stack in stacks)
    assert any(re.search(r"\bSIGKILL\b.*\b\d+ s\b", message) for message in messages)


@pytest.mark.campaign
def test_a_worker_recovering_during_its_stack_dump_is_kept(redis: RedisServer, tmp_path: Path) -> None:
    with Hanging(redis, tmp_path, worker_seconds=5) as service:
        service.wait_for(READY)
        before = service.children()
        service.hang.touch()
        os.kill(before[0], signal.SIGUSR1)
        service.wait_for(DUMP)
        service.hang.unlink()
        service.wait_for(RECOVERY)
        os.kill(before[1], signal.SIGSTOP)  # the signal to show its stacks comes with one to go on
        service.wait_for(RECOVERY, 2)
        assert service.children() == before
        assert "SIGKILL" not in service.log()
        assert service.stop() == -signal.SIGTERM


@pytest.mark.campaign
def test_stacks_are_shown_on_demand(redis: RedisServer, tmp_path: Path) -> None:
    with Hanging(redis, tmp_path) as service:
        service.wait_for(READY)
        before = service.children()
        for pid in before:
            os.kill(pid, signal.SIGUSR2)
        service.wait_for(f"{STACKS} 1:")
        service.wait_for(f"{STACKS} 2:")
        eventually(lambda: service.log().count("(most") >= 2)
        assert httpx.get(f"{service.url}/v1/health/live", timeout=300, trust_env=False).status_code == 200
        assert service.children() == before
        assert service.stop() == -signal.SIGTERM
    expected = re.compile(rf"\d{{4}}-\d\d-\d\dT|{READY}| {{4}}\S| {{6}}File | {{4}}$")
    assert [line for line in service.log().splitlines() if not expected.match(line)] == []


@pytest.mark.campaign
def test_a_first_start_that_hangs_ends_the_service(redis: RedisServer, tmp_path: Path) -> None:
    service = Hanging(redis, tmp_path, "uvicorn", worker_start_seconds=20)
    service.hang.touch()
    service.launch()
    assert service.ended() == 1
    log = service.log()
    assert re.search(r" WARNING +rarestream\.workers: worker 1\b.*\b4 s\b", log)
    assert "in find_spec" in log  # its stacks
    assert re.search(r"^error: worker 1\b.*\bSIGKILL\b.*\b20 s\b", log, re.MULTILINE)


@pytest.mark.campaign
def test_a_hanging_replacement_is_replaced(redis: RedisServer, tmp_path: Path) -> None:
    with Hanging(redis, tmp_path, "uvicorn", worker_start_seconds=20) as service:
        service.wait_for(READY)
        service.hang.touch()
        os.kill(service.children()[0], signal.SIGKILL)
        service.wait_for(CRASH)
        service.hang.unlink()
        service.wait_for(REPLACEMENT)
        assert len(service.children()) == 2
        assert service.stop() == -signal.SIGTERM


@pytest.mark.campaign
def test_no_worker_is_killed_for_an_unreachable_store(tmp_path: Path) -> None:
    with RedisServer() as server:
        server.kill()
        service = Hanging(server, tmp_path, worker_start_seconds=30, log_format="json")
        service.launch()
        try:
            service.wait_for("45 s")
            before = service.children()
            server.start()
            service.wait_for(READY)
            assert set(before) <= set(service.children())
        finally:
            assert service.stop() == -signal.SIGTERM
    assert len(lines(service.log_path)) == service.log().count("\n")
