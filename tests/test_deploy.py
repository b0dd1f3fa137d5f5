"""The image, compose.yaml and the Kubernetes manifests against each other and against the code.

What they name in the service (settings, paths, commands) must exist there; ports, users and directories must agree; the
promises that the store needs from Redis must be kept wherever Redis is started.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from service.app import create_app
from service.cli import app as command_line
from service.settings import Settings

ROOT = Path(__file__).parent.parent
MANIFESTS = ROOT / "deploy" / "kubernetes"


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile as (INSTRUCTION, the rest), comments left out and continued lines joined."""
    text = (ROOT / "docker" / "Dockerfile").read_text()
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def last_stage() -> dict[str, str]:
    """The last of each instruction of the final stage."""
    stages = instructions()
    begin = max(i for i, (name, _) in enumerate(stages) if name == "FROM")
    return dict(stages[begin:])


def image_environment() -> dict[str, str]:
    """What the final stage sets."""
    return dict(pair.split("=", 1) for pair in shlex.split(last_stage()["ENV"]))


def kubernetes() -> dict[tuple[str, str], dict[str, Any]]:
    """Every manifest, by (kind, name)."""
    resources = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]
    documents = [one for file in resources for one in yaml.safe_load_all((MANIFESTS / file).read_text())]
    return {(one["kind"], one["metadata"]["name"]): one for one in documents}


def container(kind: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod template's spec, and its only container."""
    pod = kubernetes()[kind, name]["spec"]["template"]["spec"]
    (only,) = pod["containers"]
    return pod, only


COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())
NODE_POD, NODE = container("Deployment", "rarestream")
REDIS_POD, REDIS = container("StatefulSet", "rarestream-redis")


def test_every_setting_exists_and_its_value_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    (generated,) = KUSTOMIZATION["configMapGenerator"]
    literals = dict(one.split("=", 1) for one in generated["literals"])
    given = [image_environment(), COMPOSE["rarestream"]["environment"], literals]
    given.append({one["name"]: one["value"] for one in NODE["env"] if "value" in one})
    for environment in given:
        own = {name: value for name, value in environment.items() if name.startswith("RARESTREAM_")}
        assert own
        for name, value in own.items():
            field = name.removeprefix("RARESTREAM_").lower()
            assert field in Settings.model_fields, name
            with monkeypatch.context() as patch:
                patch.setenv(name, value)
                assert str(getattr(Settings(), field)).removesuffix(".0") == value


def test_probed_paths_are_routes() -> None:
    paths = set(create_app(Settings(store="memory:")).openapi()["paths"])
    probed = {NODE[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")}
    probed |= set(re.findall(r"/v1/[a-z/]+", last_stage()["HEALTHCHECK"]))
    assert probed == {"/v1/health/ready", "/v1/health/live"}
    assert probed <= paths


def test_a_node_stays_in_the_service_while_redis_is_away() -> None:
    """It can still predict; /v1/health/ready, which is about updates, is only asked at the start."""
    assert NODE["startupProbe"]["httpGet"]["path"] == "/v1/health/ready"
    assert NODE["readinessProbe"]["httpGet"]["path"] == "/v1/health/live"
    assert NODE["livenessProbe"]["httpGet"]["path"] == "/v1/health/live"


def test_ports_agree() -> None:
    port = Settings.model_fields["port"].default
    assert last_stage()["EXPOSE"] == str(port)
    assert image_environment()["RARESTREAM_PORT"] == str(port)
    assert COMPOSE["rarestream"]["ports"] == [f"127.0.0.1:{port}:{port}"]  # no authentication: not for other hosts
    assert f"RARESTREAM_PORT={port}" in KUSTOMIZATION["configMapGenerator"][0]["literals"]
    assert NODE["ports"] == [{"name": "http", "containerPort": port}]
    assert {NODE[probe]["httpGet"]["port"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")} == {"http"}
    (service,) = kubernetes()["Service", "rarestream"]["spec"]["ports"]
    assert (service["port"], service["targetPort"]) == (port, "http")
    # A Service named rarestream would otherwise put RARESTREAM_PORT=tcp://... into the pods.
    assert NODE_POD["enableServiceLinks"] is False

    (store,) = (one["value"] for one in NODE["env"] if one["name"] == "RARESTREAM_STORE")
    assert store == "redis://:$(REDIS_PASSWORD)@rarestream-redis:6379/0"
    assert kubernetes()["Service", "rarestream-redis"]["spec"]["ports"][0]["port"] == 6379
    assert REDIS["ports"] == [{"name": "redis", "containerPort": 6379}]
    assert COMPOSE["rarestream"]["environment"]["RARESTREAM_STORE"] == "redis://redis:6379/0"


def test_no_container_runs_as_root_or_writes_its_root() -> None:
    user = last_stage()["USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)  # a number: Kubernetes cannot tell that a name is not root
    uid = int(user.split(":")[0])
    assert f"--uid {uid}" in last_stage()["RUN"]
    assert NODE_POD["securityContext"]["runAsUser"] == uid
    for pod, one in ((NODE_POD, NODE), (REDIS_POD, REDIS)):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["automountServiceAccountToken"] is False
        assert one["securityContext"]["readOnlyRootFilesystem"] is True
        assert one["securityContext"]["allowPrivilegeEscalation"] is False
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    for service in COMPOSE.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    assert COMPOSE["redis"]["user"] != "root"


def test_the_kernels_are_copied_to_where_they_can_be_written() -> None:
    compiled = re.search(r"NUMBA_CACHE_DIR=(\S+) (\S+) -m service warm", (ROOT / "docker" / "Dockerfile").read_text())
    assert compiled
    entrypoint = (ROOT / "docker" / "entrypoint.sh").read_text()
    assert f'cp -R {compiled[1]}/. "$NUMBA_CACHE_DIR"' in entrypoint
    assert entrypoint.rstrip().endswith('exec "$@"')  # signals reach the service itself
    cache = image_environment()["NUMBA_CACHE_DIR"]
    assert cache in {mount["mountPath"] for mount in NODE["volumeMounts"]}
    assert cache in {mount.split(":")[0] for mount in COMPOSE["rarestream"]["tmpfs"]}
    assert "/tmp" in {mount["mountPath"] for mount in NODE["volumeMounts"]}


def test_commands_of_the_image_exist() -> None:
    served = json.loads(last_stage()["CMD"])
    assert served[0] == "rarestream"
    commands = {
        " ".join(served[1:]),
        re.findall(r"-m service (\w+)", " ".join(rest for name, rest in instructions() if name == "RUN"))[0],
    }
    for command in commands:
        reply = CliRunner().invoke(command_line, [*command.split(), "--help"])
        assert reply.exit_code == 0, reply.output


def test_build_context_holds_what_the_image_is_made_of() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copies = [rest.split() for name, rest in instructions() if name == "COPY" and "--from" not in rest]
    named = {word for words in copies for word in words[:-1] if not word.startswith("--")} - {"."}
    assert "docker/entrypoint.sh" in named
    assert named <= kept
    assert {"learners", "service", "pyproject.toml", "constraints.txt", "README.md"} <= kept
    for path in kept - {"LICENSE"}:
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("arguments", [COMPOSE["redis"]["command"], REDIS["args"]], ids=["compose", "kubernetes"])
def test_redis_keeps_what_it_acknowledges(arguments: list[str]) -> None:
    options = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    assert arguments[0] == "redis-server"
    assert options["--appendonly"] == "yes"
    assert options["--appendfsync"] == "always"
    assert options["--save"] == ""
    assert options["--maxmemory-policy"] == "noeviction"


def test_redis_has_a_volume_and_is_waited_for() -> None:
    assert COMPOSE["redis"]["volumes"] == ["log:/data"]
    assert "ports" not in COMPOSE["redis"]
    assert COMPOSE["rarestream"]["depends_on"] == {"redis": {"condition": "service_healthy"}}
    assert [mount["mountPath"] for mount in REDIS["volumeMounts"]] == ["/data"]
    assert COMPOSE["redis"]["image"] == REDIS["image"]


def test_password_is_in_no_file() -> None:
    """It comes from a Secret made of redis.env, which git ignores and whose example holds a marked placeholder."""
    (secret,) = KUSTOMIZATION["secretGenerator"]
    assert secret["envs"] == ["redis.env"]
    assert "redis.env" in (MANIFESTS / ".gitignore").read_text().split()
    example = (MANIFESTS / "redis.env.example").read_text()
    pairs = dict(line.split("=", 1) for line in example.splitlines() if line and not line.startswith("#"))
    assert pairs == {"REDIS_PASSWORD": "REPLACE-ME"}
    for one in (NODE, REDIS):
        (password,) = (entry for entry in one["env"] if entry["name"] == "REDIS_PASSWORD")
        assert password["valueFrom"] == {"secretKeyRef": {"name": secret["name"], "key": "REDIS_PASSWORD"}}
        # $(REDIS_PASSWORD) is only replaced in what stands after it.
        assert one["env"].index(password) == 0
    assert not any(kind == "Secret" for kind, _ in kubernetes())


def test_selectors_find_their_pods() -> None:
    manifests = kubernetes()
    label = "app.kubernetes.io/component"
    for (kind, name), document in manifests.items():
        component = document["metadata"]["labels"][label]
        assert component == ("redis" if name == "rarestream-redis" else "service")
        spec = document["spec"]
        if kind in ("Deployment", "StatefulSet"):
            assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"] == {label: component}
        elif kind == "Service":
            assert spec["selector"] == {label: component}
        elif kind == "PodDisruptionBudget":
            assert spec["selector"]["matchLabels"] == {label: component}
            assert spec["minAvailable"] < manifests["Deployment", name]["spec"]["replicas"]
        else:
            assert (kind, spec["podSelector"]["matchLabels"]) == ("NetworkPolicy", {label: component})
