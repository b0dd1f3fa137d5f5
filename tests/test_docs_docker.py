"""The documents' lines for Docker, carried out by an engine: the image is built, run, and run again with keys.

Names are other than documented, so that nothing of whoever runs the tests is touched, and so is the port, which may be
taken. What bears these names is removed again; what the builder keeps for the next build stays.

It takes minutes. It is skipped where no engine answers, or where the base image is not there and cannot be pulled.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from service import __version__
from tests.consoles import Console
from tests.documents import ROOT, block, commands, instead
from tests.image import instructions
from tests.service.process import free_port

BUILD, FIRST, MAKE, SECOND = commands(block("docs/operations.md", "$ docker build"))
IMAGE = f"rarestream:{__version__}"  # as documented
OWN = f"rarestream-test-{secrets.token_hex(4)}"  # the image, the volume and the containers of this run
CREATED = {"algorithm": "cbr-diag", "features": {"kind": "named"}}
EVENTS = [{"id": str(n), "features": {"a": n}, "label": n % 2} for n in range(20)]
DIRECT: dict[str, Any] = {"trust_env": False, "timeout": 60}  # by no proxy of the environment
PATIENCE = 120.0  # seconds until it is healthy


def docker(*words: str, seconds: float = 60) -> str:
    """What a command of the engine prints. Raises RuntimeError where it fails or takes longer."""
    try:
        done = subprocess.run(["docker", *words], check=False, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"docker {words[0]} took more than {seconds} s") from error
    if done.returncode:
        raise RuntimeError(f"docker {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def need_engine() -> None:
    """Skips the test unless there is one, which has what the image is built from."""
    if shutil.which("docker") is None:
        pytest.skip("no Docker engine: there is no docker on PATH")
    try:
        docker("version", "--format", "{{.Server.Version}}", seconds=10)
    except RuntimeError as error:
        pytest.skip(f"no Docker engine answers: {str(error).splitlines()[-1]}")
    base = instructions()[0][1].split()[0]
    if not docker("image", "ls", "--quiet", base):
        try:
            docker("pull", base, seconds=300)
        except RuntimeError as error:
            pytest.skip(f"the Docker engine has no {base} and cannot pull it: {error}")


@pytest.fixture
def console(tmp_path: Path) -> Console:
    """Where the lines are typed."""
    return Console(tmp_path)


@pytest.fixture
def names(console: Console) -> Iterator[dict[str, object]]:
    """Of an image that the document's line builds, and of a volume for it, in the place of the document's own."""
    need_engine()
    image = f"{OWN}:{__version__}"
    console.run(instead(BUILD, {IMAGE: image}), cwd=ROOT)
    yield {"-v rarestream:": f"-v {OWN}:", IMAGE: image}
    docker("volume", "rm", "--force", OWN)
    docker("image", "rm", image)


@contextmanager
def running(console: Console, command: str, names: dict[str, object]) -> Iterator[httpx.Client]:
    """The service of a `docker run`, from the moment that its health check succeeds; then it is stopped in order."""
    port = free_port()
    named = instead(command, {"docker run": f"docker run --name {OWN}", "8000:8000": f"{port}:8000", **names})
    with console.start(named) as run, httpx.Client(base_url=f"http://127.0.0.1:{port}", **DIRECT) as client:
        try:
            until = time.monotonic() + PATIENCE
            while not docker("ps", "--quiet", "--filter", f"name={OWN}", "--filter", "health=healthy"):
                assert run.poll() is None, console.said()
                assert time.monotonic() < until, console.said()
                time.sleep(0.2)
            yield client
            docker("stop", "-t", "30", OWN)  # as the table below the lines has it
            assert run.wait(60) == 0, console.said()
            assert "stopped" in console.said()
            assert "compiled anew" not in console.said()
        finally:
            if run.poll() is None:
                docker("rm", "--force", OWN)


def test_what_one_container_learnt_the_next_has_which_asks_for_keys(console: Console, names: dict[str, object]) -> None:
    with running(console, FIRST, names) as client:
        assert client.get("/v1/health/ready").status_code == 200
        assert client.put("/v1/learners/cards", json=CREATED).status_code == 201
        learnt = client.post("/v1/learners/cards/update", json={"events": EVENTS})
        assert learnt.status_code == 200, learnt.text
        digest = client.get("/v1/learners/cards/digest").json()

    key = console.run(MAKE).stdout.strip()
    with running(console, SECOND, names) as client:
        assert client.get("/v1/learners/cards/digest").status_code == 401
        client.headers["authorization"] = f"Bearer {key}"
        assert client.get("/v1/learners/cards/digest").json() == digest
        status = dict(line.split(":\t", 1) for line in docker("exec", OWN, "cat", "/proc/1/status").splitlines())
        assert (status["Name"], int(status["CapBnd"], 16), status["NoNewPrivs"]) == ("rarestream", 0, "1")
        with pytest.raises(RuntimeError, match="Read-only file system"):
            docker("exec", "--user", "0", OWN, "touch", "/x")
