"""The image and compose.yaml against each other, against the code, and before the linters of their kind.

What they name in the service (settings, paths, commands) must exist there; ports, users and directories must agree;
the promises that the store needs from Redis must be kept. tests/campaigns/test_image.py carries the Dockerfile out,
tests/deploy/test_helm.py has the chart.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from rarestream import __version__
from service.api.app import create_app
from service.cli.main import app as command_line
from service.settings import Settings
from tests.deploy.image import DOCKERFILE, context, instructions
from tests.docs.documents import ROOT
from tests.harness.process import free_port
from tests.harness.redis_server import REDIS

pytestmark = pytest.mark.integration

DOCKER = ROOT / "docker"
DOCUMENT: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
COMPOSE: dict[str, Any] = DOCUMENT["services"]


def last_stage() -> dict[str, str]:
    """Return the last of each instruction of the final stage."""
    stages = instructions()
    begin = max(i for i, (name, _) in enumerate(stages) if name == "FROM")
    return dict(stages[begin:])


def image_environment() -> dict[str, str]:
    """Return the environment of the final stage."""
    return dict(pair.split("=", 1) for pair in shlex.split(last_stage()["ENV"]))


def mounted(service: str) -> dict[str, str]:
    """Return the mounts from this repository, by their path in the container."""
    pairs = [volume.split(":") for volume in COMPOSE[service]["volumes"] if volume.startswith(".")]
    assert all(rest == ["ro"] for _, _, *rest in pairs)
    return {target: source for source, target, _ in pairs}


# Linters


@pytest.mark.parametrize(
    "command",
    [
        ["hadolint", "--failure-threshold", "style", "docker/Dockerfile"],
        ["shellcheck", "docker/entrypoint.sh"],
        ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", "docker/compose.yaml"],
        ["check-jsonschema", "--check-metaschema", "deploy/helm/rarestream/values.schema.json"],
    ],
    ids=lambda command: Path(command[-1]).name,
)
def test_linters_accept_the_docker_files(command: list[str]) -> None:
    program = Path(sys.executable).parent / command[0]  # each comes with a package of the test extra
    reply = subprocess.run([program, *command[1:]], cwd=ROOT, check=False, capture_output=True, text=True)
    assert reply.returncode == 0, reply.stdout + reply.stderr


# The image


def test_every_setting_exists_and_its_value_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = image_environment() | COMPOSE["rarestream"]["environment"]
    ours = {name: value for name, value in variables.items() if name.startswith("RARESTREAM_")}
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    for name, value in ours.items():
        field = name.removeprefix("RARESTREAM_").lower()
        assert str(getattr(settings, field)).lower() == value


def test_ports_are_consistent() -> None:
    port = Settings.model_fields["port"].default
    assert last_stage()["EXPOSE"] == str(port)
    assert image_environment()["RARESTREAM_PORT"] == str(port)
    assert COMPOSE["rarestream"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert COMPOSE["rarestream"]["environment"]["RARESTREAM_STORE"] == "redis://redis:6379/0"


def test_no_container_runs_as_root_or_writes_its_root_file_system() -> None:
    user = last_stage()["USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)  # a number: Kubernetes cannot tell that a name is not root
    assert f"--uid {user.split(':')[0]}" in last_stage()["RUN"]
    for service in COMPOSE.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    assert COMPOSE["redis"]["user"] != "root"


def test_the_kernels_are_copied_to_a_writable_folder() -> None:
    compiled = re.search(r"NUMBA_CACHE_DIR=(\S+) (\S+) -m service warm", DOCKERFILE.read_text())
    assert compiled
    entrypoint = (DOCKER / "entrypoint.sh").read_text()
    assert f'cp -R {compiled[1]}/. "$NUMBA_CACHE_DIR"' in entrypoint
    assert entrypoint.rstrip().endswith('exec "$@"')  # signals reach the service itself
    cache = image_environment()["NUMBA_CACHE_DIR"]
    uid, gid = last_stage()["USER"].split(":")
    assert f"{cache}:uid={uid},gid={gid},mode=0700" in COMPOSE["rarestream"]["tmpfs"]
    assert "/tmp" in COMPOSE["rarestream"]["tmpfs"]


def test_commands_in_the_image_exist() -> None:
    served = json.loads(last_stage()["CMD"])
    assert served[0] == "rarestream"
    commands = {
        " ".join(served[1:]),
        re.findall(r"-m service (\w+)", " ".join(rest for name, rest in instructions() if name == "RUN"))[0],
    }
    for command in commands:
        reply = CliRunner().invoke(command_line, [*command.split(), "--help"])
        assert reply.exit_code == 0, reply.output


@pytest.mark.parametrize("extras", ["", "kafka"])
def test_the_image_installs_the_requested_extras(extras: str, tmp_path: Path) -> None:
    (step,) = (rest for name, rest in instructions() if name == "RUN" and "requirements.txt" in rest)
    command = step.partition("&&")[0].replace("python -c", f"{sys.executable} -c")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, env={**os.environ, "EXTRAS": extras})
    requirements = (tmp_path / "requirements.txt").read_text().splitlines()
    assert any(item.startswith("fastapi") for item in requirements)
    assert any(item.startswith("aiokafka") for item in requirements) == (extras == "kafka")


def test_the_build_context_contains_only_files_used_by_the_image() -> None:
    files = context()
    assert {"pyproject.toml", "constraints.txt", "README.md", "docker/entrypoint.sh", "docker/healthcheck.py"} <= set(
        files
    )
    assert {Path(file).parts[0] for file in files} - {"LICENSE"} == {
        *("learners", "rarestream", "service", "docker", "pyproject.toml", "constraints.txt", "README.md")
    }
    packages = ("learners", "rarestream", "service")
    tracked = {str(path.relative_to(ROOT)) for item in packages for path in (ROOT / item).rglob("*.py")}
    assert tracked <= set(files)
    assert not any("__pycache__" in file or file.endswith(".db") for file in files)


def test_the_build_context_follows_docker_rules(tmp_path: Path) -> None:
    """The last matching pattern decides; `**/` is any number of folders; a folder includes its contents."""
    for file in ("a/b.py", "a/__pycache__/b.pyc", "c.py", "d/e/f.db", "d/e/f.py", "d/g"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / ".dockerignore").write_text("# all but\n*\n!a\n!d\n**/__pycache__\n**/*.db*\nd/?\n")
    assert context(tmp_path) == ["a/b.py"]
    (tmp_path / ".dockerignore").write_text("*\n!d/e\n")
    assert context(tmp_path) == ["d/e/f.db", "d/e/f.py"]
    (tmp_path / ".dockerignore").write_text("d\n")
    assert context(tmp_path) == [".dockerignore", "a/__pycache__/b.pyc", "a/b.py", "c.py"]


def test_all_files_use_one_version() -> None:
    labels = dict(pair.split("=", 1) for pair in shlex.split(last_stage()["LABEL"]))
    assert labels["org.opencontainers.image.version"] == __version__
    assert COMPOSE["rarestream"]["image"] == f"rarestream:{__version__}"
    assert f"-t rarestream:{__version__} " in DOCKERFILE.read_text()


# The health check


class Health(http.server.BaseHTTPRequestHandler):
    """Answers at the path that is looked at, and only there, with the status of its server."""

    def do_GET(self) -> None:
        self.send_response(self.server.status if self.path == "/v1/health/ready" else 404)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the tests' output stays clean."""


@pytest.fixture
def serving() -> Iterator[Callable[..., int]]:
    """Start a server that answers with a status, with TLS if it gets a certificate; return its port."""
    servers = []

    def start(status: int, certificate: Path | None = None) -> int:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health)
        server.status = status  # type: ignore[attr-defined]
        if certificate:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever).start()
        servers.append(server)
        return int(server.server_address[1])

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def checked(*arguments: str, **environment: str) -> int:
    """Return the exit status of the health check; the proxy in the environment does not exist."""
    variables = {"PATH": os.environ["PATH"], "http_proxy": "http://127.0.0.1:1", **environment}
    command = [sys.executable, str(DOCKER / "healthcheck.py"), *arguments]
    return subprocess.run(command, env=variables, check=False, capture_output=True).returncode


def test_the_health_check_uses_the_configured_port(serving: Callable[..., int]) -> None:
    assert last_stage()["HEALTHCHECK"].endswith('CMD ["healthcheck"]')
    assert "install docker/healthcheck.py /opt/rarestream/bin/healthcheck" in DOCKERFILE.read_text()
    assert "/v1/health/ready" in create_app(Settings(store="memory:")).openapi()["paths"]
    port = serving(200)
    assert checked(RARESTREAM_PORT=str(port)) == 0
    assert checked(f"http://127.0.0.1:{port}/v1/health/ready") == 0
    assert checked(f"http://127.0.0.1:{port}/elsewhere") == 1
    assert checked(RARESTREAM_PORT=str(serving(503))) == 1
    assert checked(RARESTREAM_PORT="1") == 1


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_the_health_check_uses_tls_if_the_service_does(serving: Callable[..., int], tmp_path: Path) -> None:
    certificate = tmp_path / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=elsewhere", "-days", "1"]
    subprocess.run([*command, "-keyout", certificate, "-out", tmp_path / "c.pem"], check=True, capture_output=True)
    certificate.write_text(certificate.read_text() + (tmp_path / "c.pem").read_text())
    port = str(serving(200, certificate))
    assert checked(RARESTREAM_PORT=port, RARESTREAM_TLS_CERTIFICATE="/etc/rarestream/tls/tls.crt") == 0
    assert checked(RARESTREAM_PORT=port) == 1


# compose.yaml


def test_published_ports_are_reachable_from_this_machine_only() -> None:
    for service in COMPOSE.values():
        assert all(re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port) for port in service.get("ports", []))
    assert COMPOSE["rarestream"]["environment"]["RARESTREAM_INSECURE"] == "true"
    assert "ports" not in COMPOSE["redis"]
    assert COMPOSE["redis"]["networks"] == ["store"]
    assert DOCUMENT["networks"]["store"] == {"internal": True}
    assert [name for name, service in COMPOSE.items() if "store" in service["networks"]] == ["rarestream", "redis"]


def test_redis_persists_acknowledged_data_and_the_service_waits_for_it() -> None:
    arguments = COMPOSE["redis"]["command"]
    options = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    assert arguments[0] == "redis-server"
    assert options["--appendonly"] == "yes"
    assert options["--appendfsync"] == "always"
    assert options["--save"] == ""
    assert options["--maxmemory-policy"] == "noeviction"
    assert (options["--maxmemory"], COMPOSE["redis"]["mem_limit"]) == ("1gb", "2g")  # a rewrite may copy it all
    assert COMPOSE["redis"]["volumes"] == ["log:/data"]
    assert COMPOSE["rarestream"]["depends_on"] == {"redis": {"condition": "service_healthy"}}
    redis = yaml.safe_load((ROOT / "deploy/helm/rarestream/values.yaml").read_text())["redis"]
    assert COMPOSE["redis"]["image"] == redis["image"]


def test_redis_accepts_the_service_on_another_host(tmp_path: Path) -> None:
    """Start a standard Redis, not built for containers, with the command of compose.yaml."""
    port = free_port()
    command = [REDIS, *COMPOSE["redis"]["command"][1:], "--port", str(port), "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as redis:
        try:
            assert redis.stdout is not None
            assert any("Ready to" in line for line in redis.stdout)
            # to this Redis 127.0.0.2 is another host
            with socket.create_connection(("127.0.0.1", port), 60, source_address=("127.0.0.2", 0)) as client:
                client.sendall(b"PING\r\n")
                assert client.recv(100) == b"+PONG\r\n"
        finally:
            redis.kill()


def test_every_service_has_limits_restarts_and_health_checks() -> None:
    for name, service in COMPOSE.items():
        assert "healthcheck" in service or name == "rarestream"  # its own is in the image
        assert service["restart"] == "unless-stopped"
        assert service["mem_limit"]
        assert service["pids_limit"]
        assert service["logging"]["options"] == {"max-size": "20m", "max-file": "5"}
        assert ":" in service["image"]
        for volume in service.get("volumes", []):
            assert volume.startswith(".") or volume.split(":")[0] in DOCUMENT["volumes"]
        assert set(service["networks"]) <= set(DOCUMENT["networks"])


def test_prometheus_scrapes_the_service_and_loads_the_rules() -> None:
    arguments = dict(item.lstrip("-").split("=", 1) for item in COMPOSE["prometheus"]["command"])
    ((target, source),) = mounted("prometheus").items()
    folder = (DOCKER / source).resolve()
    config = yaml.safe_load((folder / Path(arguments["config.file"]).relative_to(target)).read_text())
    assert all((folder / rules).is_file() for rules in config["rule_files"])
    (job,) = config["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"rarestream:{Settings.model_fields['port'].default}"]
    assert "rarestream" in COMPOSE["rarestream"]["environment"]["RARESTREAM_HOSTS"].split(",")
    assert set(COMPOSE["prometheus"]["networks"]) & set(COMPOSE["rarestream"]["networks"])
    assert COMPOSE["prometheus"]["volumes"][-1] == f"figures:{arguments['storage.tsdb.path']}"


def test_grafana_shows_the_dashboard_without_an_account() -> None:
    grafana = COMPOSE["grafana"]
    folders = mounted("grafana")
    provisioning = (DOCKER / folders["/etc/grafana/provisioning"]).resolve()
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert COMPOSE["prometheus"]["ports"] == ["127.0.0.1:9090:9090"]
    assert source["isDefault"] is True  # what the dashboard's variable of the data source begins with
    (provider,) = yaml.safe_load((provisioning / "dashboards/rarestream.yaml").read_text())["providers"]
    folder = (DOCKER / folders[provider["options"]["path"]]).resolve()
    environment = grafana["environment"]
    home = Path(environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    dashboard = json.loads((folder / home.relative_to(provider["options"]["path"])).read_text())
    (variable,) = (item for item in dashboard["templating"]["list"] if item["type"] == "datasource")
    assert variable["query"] == source["type"] == "prometheus"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert not any("PASSWORD" in name for name in environment)
