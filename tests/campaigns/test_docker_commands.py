"""The documents' lines for Docker and Compose, carried out by an engine.

Names are other than documented, so that nothing of whoever runs the tests is touched, and so are ports, which may be
taken. What bears these names is removed again; what the builder keeps for the next build stays.

It takes minutes. It is skipped where no engine answers, or where an image is not there and cannot be pulled.
"""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from rarestream import __version__
from tests.deploy.image import instructions
from tests.docs.consoles import Console
from tests.docs.documents import ROOT, block, commands, inline, instead
from tests.harness.process import free_port
from tests.harness.waiting import eventually

BUILD, FIRST, MAKE, SECOND = commands(block("docs/how-to/containers.md", "$ docker build"))
IMAGE = f"rarestream:{__version__}"  # as documented
LOCAL = f"rarestream-test-{secrets.token_hex(4)}"  # the image, the volume and the containers of this run
UP, LOGS, DOWN = commands(block("docs/how-to/containers.md", "$ docker compose"))
COMPOSE = ROOT / "docker" / "compose.yaml"
PROJECT = f"label=com.docker.compose.project={LOCAL}"
CREATED = {"algorithm": "cbr-diag", "features": {"kind": "named"}}
EVENTS = [{"id": str(n), "features": {"a": n}, "label": n % 2} for n in range(20)]
DIRECT: dict[str, Any] = {"trust_env": False, "timeout": 60}  # by no proxy of the environment
PATIENCE = 300.0  # seconds until it is healthy, and until a Prometheus has scraped it


def docker(*words: str, seconds: float = 60) -> str:
    """Return what a command of the engine prints. Raises RuntimeError where it fails or takes longer."""
    try:
        done = subprocess.run(["docker", *words], check=False, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"docker {words[0]} took more than {seconds} s") from error
    if done.returncode:
        raise RuntimeError(f"docker {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def need_engine() -> None:
    """Skip the test unless a Docker engine answers that has the images which ours is built from."""
    if shutil.which("docker") is None:
        pytest.skip("no Docker engine: there is no docker on PATH")
    try:
        docker("version", "--format", "{{.Server.Version}}", seconds=10)
    except RuntimeError as error:
        pytest.skip(f"no Docker engine answers: {str(error).splitlines()[-1]}")
    need_image(instructions()[0][1].split()[0])


def need_image(name: str) -> None:
    """Skip the test if the engine has no such image and cannot pull it."""
    if not docker("image", "ls", "--quiet", name):
        try:
            docker("pull", name, seconds=300)
        except RuntimeError as error:
            pytest.skip(f"the Docker engine has no {name} and cannot pull it: {error}")


@pytest.fixture
def console(tmp_path: Path) -> Console:
    """Return the console in which the lines are typed."""
    return Console(tmp_path)


@pytest.fixture
def names(console: Console) -> Iterator[dict[str, object]]:
    """Build the documented image and yield replacements for its names."""
    need_engine()
    image = f"{LOCAL}:{__version__}"
    console.run(instead(BUILD, {IMAGE: image}), cwd=ROOT)
    yield {"-v rarestream:": f"-v {LOCAL}:", IMAGE: image}
    docker("volume", "rm", "--force", LOCAL)
    docker("image", "rm", image)


@contextmanager
def running(console: Console, command: str, names: dict[str, object]) -> Iterator[httpx.Client]:
    """Run the service by `docker run`; yield it once its health check succeeds, then stop it."""
    port = free_port()
    named = instead(command, {"docker run": f"docker run --name {LOCAL}", "8000:8000": f"{port}:8000", **names})
    with console.start(named) as run, httpx.Client(base_url=f"http://127.0.0.1:{port}", **DIRECT) as client:
        try:

            def healthy() -> str:
                assert run.poll() is None, console.errors()
                return docker("ps", "--quiet", "--filter", f"name={LOCAL}", "--filter", "health=healthy")

            eventually(healthy, console.errors, seconds=PATIENCE)
            yield client
            docker("stop", "-t", "30", LOCAL)  # as the table below the lines has it
            assert run.wait(60) == 0, console.errors()
            assert "stopped" in console.errors()
            assert "kernels" not in console.errors()  # they could be copied
        finally:
            if run.poll() is None:
                docker("rm", "--force", LOCAL)


def learnt(client: httpx.Client) -> dict[str, Any]:
    """Return the digest of a new learner that has learnt something."""
    assert client.get("/v1/health/ready").status_code == 200
    assert client.put("/v1/learners/cards", json=CREATED).status_code == 201
    reply = client.post("/v1/learners/cards/update", json={"events": EVENTS})
    assert reply.status_code == 200, reply.text
    digest: dict[str, Any] = client.get("/v1/learners/cards/digest").json()
    return digest


def test_a_second_container_with_keys_keeps_the_learnt_state(console: Console, names: dict[str, object]) -> None:
    with running(console, FIRST, names) as client:
        digest = learnt(client)

    key = console.run(MAKE).stdout.strip()
    with running(console, SECOND, names) as client:
        assert client.get("/v1/learners/cards/digest").status_code == 401
        client.headers["authorization"] = f"Bearer {key}"
        assert client.get("/v1/learners/cards/digest").json() == digest
        status = dict(line.split(":\t", 1) for line in docker("exec", LOCAL, "cat", "/proc/1/status").splitlines())
        assert (status["Name"], int(status["CapBnd"], 16), status["NoNewPrivs"]) == ("rarestream", 0, "1")
        with pytest.raises(RuntimeError, match="Read-only"):
            docker("exec", "--user", "0", LOCAL, "touch", "/x")


def test_build_arguments_take_effect(console: Console) -> None:
    need_engine()
    image = f"{LOCAL}:besides"
    besides = sorted(
        text for text in inline(ROOT / "docs" / "how-to" / "containers.md") if text.startswith("--build-arg ")
    )
    assert besides == ["--build-arg EXTRAS=kafka", "--build-arg KERNEL_CPU=x86-64-v3"]
    console.run(" ".join([instead(BUILD, {IMAGE: image}), *besides]), cwd=ROOT)
    code = "import aiokafka, os; print(os.environ['NUMBA_CPU_NAME'])"
    try:
        assert docker("run", "--rm", "--entrypoint", "python", image, "-c", code) == "x86-64-v3"
    finally:
        docker("image", "rm", image)


@pytest.fixture
def composed(console: Console, tmp_path: Path) -> Iterator[tuple[dict[str, object], dict[str, int]]]:
    """Return the replacement of the documented file, and the host ports by the ports of the containers."""
    need_engine()
    try:
        docker("compose", "version", seconds=10)
    except RuntimeError:
        pytest.skip("Docker has no Compose: there is no `docker compose`")
    text = COMPOSE.read_text()
    for service in yaml.safe_load(text)["services"].values():
        if "build" not in service:
            need_image(service["image"])
    ports = {port: free_port() for port in re.findall(r'"127\.0\.0\.1:(\d+):\1"', text)}
    other = {f"127.0.0.1:{port}:": f"127.0.0.1:{free}:" for port, free in ports.items()}
    (tmp_path / "compose.yaml").write_text(instead(text, {IMAGE: f"{LOCAL}:{__version__}", **other}))
    file: dict[str, object] = {
        "-f docker/compose.yaml": f"-p {LOCAL} --project-directory docker -f {tmp_path}/compose.yaml"
    }
    yield file, ports
    console.run(f"{instead(DOWN, file)} --volumes", cwd=ROOT)
    assert not docker("volume", "ls", "--quiet", "--filter", PROJECT)
    if docker("image", "ls", "--quiet", LOCAL):
        docker("image", "rm", f"{LOCAL}:{__version__}")


def compose_up(console: Console, file: dict[str, object]) -> None:
    """Wait until all are healthy; fail the test with their logs otherwise."""
    try:
        console.run(instead(UP, file), cwd=ROOT)
    except RuntimeError as error:
        logged = console.run(instead(LOGS, {**file, " --follow rarestream": ""}), cwd=ROOT).stdout
        pytest.fail(f"{error}\n{logged}")


def test_compose_starts_all_its_services(console: Console, composed: tuple[dict[str, object], dict[str, int]]) -> None:
    file, ports = composed
    services = yaml.safe_load(COMPOSE.read_text())["services"].keys()
    healthy = ["ps", "--filter", PROJECT, "--filter", "health=healthy", "--format"]

    compose_up(console, file)
    assert set(docker(*healthy, '{{.Label "com.docker.compose.service"}}').split()) == services
    at = {port: f"http://127.0.0.1:{free}" for port, free in ports.items()}
    with httpx.Client(base_url=at["8000"], **DIRECT) as client:
        digest = learnt(client)
    with httpx.Client(base_url=at["9090"], **DIRECT) as client:
        assert client.get("/-/ready").status_code == 200
        assert client.get("/api/v1/rules").json()["data"]["groups"]
        query = {"query": 'up{job="rarestream"} == 1'}
        eventually(lambda: client.get("/api/v1/query", params=query).json()["data"]["result"], seconds=PATIENCE)
    assert httpx.get(f"{at['3000']}/api/health", **DIRECT).status_code == 200
    assert "learner=cards" in console.run(instead(LOGS, {**file, " --follow": ""}), cwd=ROOT).stdout

    console.run(instead(DOWN, file), cwd=ROOT)
    assert not docker("ps", "--all", "--quiet", "--filter", PROJECT)
    compose_up(console, file)  # the volumes outlast `down`
    with httpx.Client(base_url=at["8000"], **DIRECT) as client:
        assert client.get("/v1/learners/cards/digest").json() == digest
