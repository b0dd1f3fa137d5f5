"""The documents' commands for Kubernetes, word for word and in their order, by `helm` and `kubectl` against a cluster.

The cluster is a stand-in, whose pods are processes of this very code: see `tests/deploy/kubernetes/__init__.py`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.deploy.helm import PASSWORD, with_cluster
from tests.deploy.kubernetes import Cluster
from tests.docs.consoles import Console
from tests.docs.documents import ROOT, block, commands, inline, instead
from tests.harness.process import free_port
from tests.harness.redis_server import VALKEY, RedisServer

pytestmark = with_cluster
TRIED = commands(block("docs/operations.md", "$ helm install"))
EARNEST = commands(block("docs/operations.md", "$ kubectl create namespace"))
VALUES = block("docs/operations.md", "# scores.yaml").text
NODES = "app.kubernetes.io/component=service"
REDIS_URL = "rediss://:PASSWORD@redis.example:6379/0"  # as the documents have it


class Operator(Console):
    """A console beside the repository's `deploy`, with a keys file, from which a cluster is reached."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        super().__init__(folder, **cluster.environment)
        self._cluster = cluster
        (folder / "deploy").symlink_to(ROOT / "deploy")
        (folder / "scores.yaml").write_text(VALUES)
        self.key = self.run("rarestream keys create --keys keys.json --name me --scope admin").stdout.split()[-1]

    def run(self, command: str, *, status: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Raises RuntimeError with the last words of every pod, too."""
        try:
            return super().run(command, status=status, cwd=cwd)
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{self._cluster.logs()}") from None

    def json(self, command: str) -> Any:
        """What a command prints so."""
        return json.loads(self.run(f"{command} --output json").stdout)

    def pods(self, selector: str = NODES) -> set[str]:
        """Names of those that run and are not about to end."""
        listed = self.json(f"kubectl --namespace scores get pods --selector {selector}")["items"]
        return {one["metadata"]["name"] for one in listed if "deletionTimestamp" not in one["metadata"]}

    def wait(self, what: str) -> None:
        """`kubectl wait`."""
        self.run(f"kubectl --namespace scores wait --timeout 120s {what}")

    def told(self, command: str, pattern: str) -> str:
        """What `helm test` prints once it says this: any node is asked, and each finds out by itself."""
        until = time.monotonic() + 120  # seconds
        while not re.search(pattern, printed := self.run(f"{command} || echo status $?").stdout):
            assert time.monotonic() < until, f"{printed}\n{self._cluster.logs()}"
        return printed

    def fails(self, command: str) -> str:
        """Its standard error; it ends with status 1."""
        return self.run(command, status=1).stderr

    @contextmanager
    def forwarding(self, command: str) -> Iterator[httpx.Client]:
        """A client of what the printed command forwards to, on a port that is free; it ends by Ctrl-C."""
        assert command.endswith(" 8000")
        port = free_port()
        with self.start(f"exec {command[: -len('8000')]}{port}:8000") as forwarded:
            assert forwarded.stdout is not None
            try:
                assert forwarded.stdout.readline() == f"Forwarding from 127.0.0.1:{port} -> 8000\n", self.said()
                with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
                    yield client
            finally:
                os.killpg(forwarded.pid, signal.SIGINT)


def redis(replicas: int) -> str:
    """The command that has so many pods of the chart's Redis."""
    patch = json.dumps({"spec": {"replicas": replicas}})
    return f"kubectl --namespace scores patch statefulset/scores-rarestream-redis --type merge --patch '{patch}'"


def until(client: httpx.Client, path: str, status: int) -> httpx.Response:
    """The first reply of this status; pytest's own time is the limit."""
    while True:
        reply = client.get(path)
        if reply.status_code == status:
            return reply


def test_it_is_tried_out(tmp_path: Path) -> None:
    install, test, forward, uninstall, delete = TRIED
    if shutil.which("openssl") is None:
        install = instead(install, {"$(openssl rand -hex 32)": PASSWORD})
    with Cluster(tmp_path / "cluster") as cluster:
        operator = Operator(tmp_path / "operator", cluster)
        installed = operator.run(install).stdout
        assert "STATUS: deployed" in installed
        ready, tested, forwarded = re.findall(r"^  ((?:kubectl|helm) .*)$", installed, re.MULTILINE)  # NOTES.txt
        assert "successfully rolled out" in operator.run(ready).stdout
        assert re.search(r"Phase: +Succeeded", operator.run(tested).stdout)
        assert forwarded == instead(forward, {"--namespace": "-n", " 8000": " 8000:8000"})
        assert len(operator.pods()) == 2
        made = {kind for kind, name in cluster.names("scores") if name.startswith("scores-rarestream")}
        account = {"ServiceAccount", "Secret", "Service", "NetworkPolicy", "PodDisruptionBudget", "Pod"}
        assert made == account | {"Deployment", "StatefulSet"}
        (release,) = operator.json("helm list --namespace scores")
        assert (release["name"], release["revision"], release["status"]) == ("scores", "1", "deployed")
        assert "cannot reuse a name that is still in use" in operator.fails(install)
        assert re.search(r"Phase: +Succeeded", operator.run(test).stdout)

        with operator.forwarding(forward) as client:
            assert client.get("/v1/learners").status_code == 401
            client.headers["Authorization"] = f"Bearer {operator.key}"
            created = client.put(
                "/v1/learners/payments", json={"algorithm": "oam", "features": {"kind": "dense", "dim": 2}}
            )
            assert created.status_code == 201, created.text
            # a node whose Redis is away is not ready, of which the test tells; it stays in the Service
            operator.run(redis(0))
            operator.wait("--for delete pod/scores-rarestream-redis-0")
            until(client, "/v1/health/ready", 503)
            assert operator.told(test, r"Phase: +Failed").endswith("status 1\n")
            assert client.get("/v1/health/live").status_code == 200
            operator.run(redis(1))
            until(client, "/v1/health/ready", 200)
            assert client.get("/v1/learners/payments").status_code == 200  # the volume has outlived the pod
        assert not operator.told(test, r"Phase: +Succeeded").endswith("status 1\n")

        operator.run(uninstall)
        operator.wait("--for delete pod --all")
        assert operator.json("helm list --namespace scores") == []
        assert cluster.names("scores") == {("PersistentVolumeClaim", "log-scores-rarestream-redis-0")}
        operator.run(delete)
        assert 'namespaces "scores" not found' in operator.fails("kubectl get namespace scores")


def test_it_is_run_in_earnest(tmp_path: Path) -> None:
    """With a Redis outside of the cluster, through two upgrades and a restart; the operator's own Secrets stay."""
    namespace, of_keys, of_redis, upgrade, uninstall = EARNEST
    (restart,) = (one for one in inline(ROOT / "docs/operations.md") if one.startswith("kubectl rollout restart"))
    (none,) = (one for one in inline(ROOT / "docs/operations.md") if one.startswith("--reuse-values"))
    with (
        RedisServer(VALKEY) as server,
        Cluster(tmp_path / "cluster", outside={REDIS_URL: server.url}, operator=True) as cluster,
    ):
        operator = Operator(tmp_path / "operator", cluster)
        operator.run(namespace)
        for command in (of_keys, of_redis):
            operator.run(command)
            assert "already exists" in operator.fails(command)
        own = {("Secret", "keys"), ("Secret", "redis")}
        operator.run(upgrade)
        first = operator.pods()
        assert len(first) == 3
        made = {kind for kind, _ in cluster.names("scores") - own}
        assert made >= {"ServiceMonitor", "PrometheusRule", "ConfigMap"}
        assert "StatefulSet" not in made
        secrets = {name for kind, name in cluster.names("scores") - own if kind == "Secret"}
        assert secrets == {"sh.helm.release.v1.scores.v1"}  # Helm's own: the chart makes none
        (deployment,) = operator.json("kubectl --namespace scores get deployments")["items"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"].startswith("registry.example/rarestream:")
        environment = {one["name"]: one.get("value") for one in container["env"]}
        assert (environment["RARESTREAM_ACKS"], environment["RARESTREAM_LOG_FORMAT"]) == ("aof", "json")

        # another setting: new nodes take over, of which there are never fewer than three
        began = len(cluster.objects.events)
        operator.run(f"{upgrade} --set-string settings.SNAPSHOT_SECONDS=30")
        second = operator.pods()
        assert len(second) == 3
        assert not first & second
        ready = [
            one.object["status"]["readyReplicas"]
            for one in cluster.objects.events[began:]
            if one.kind.name == "Deployment" and "status" in one.object
        ]
        assert min(ready) == 3
        assert len(ready) > 3
        (release,) = operator.json("helm list --namespace scores")
        assert (release["revision"], release["status"]) == ("2", "deployed")

        operator.run(restart)
        operator.run("kubectl --namespace scores rollout status deployment/scores-rarestream")
        assert not second & operator.pods()

        operator.run(f"helm upgrade scores deploy/helm/rarestream --namespace scores {none}")
        operator.wait(f"--for delete pod --selector {NODES}")
        assert operator.pods() == set()
        assert "Phase:          Failed" in operator.run("helm test scores --namespace scores", status=1).stdout
        operator.run(upgrade)
        assert len(operator.pods()) == 3
        operator.run("helm test scores --namespace scores")

        operator.run(uninstall)
        operator.wait("--for delete pod --all")
        assert operator.json("helm list --namespace scores") == []
        assert cluster.names("scores") == own


def test_what_it_lacks_is_told(tmp_path: Path) -> None:
    """Without the Prometheus operator, then without the namespace, then without the Secrets that nodes read."""
    namespace, of_keys, _, upgrade, _ = EARNEST
    with Cluster(tmp_path / "none") as cluster:
        operator = Operator(tmp_path / "first", cluster)
        assert 'no matches for kind "ServiceMonitor"' in operator.fails(upgrade)
    with Cluster(tmp_path / "cluster", operator=True) as cluster:
        operator = Operator(tmp_path / "operator", cluster)
        for command in (of_keys, upgrade):
            assert 'namespaces "scores" not found' in operator.fails(command)
        operator.run(namespace)
        operator.run(of_keys)
        assert "context deadline exceeded" in operator.fails(f"{upgrade} --timeout 2s")
        waiting = "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CreateContainerConfigError"
        operator.wait(f"--for {waiting} pod --selector {NODES}")  # there is no Secret `redis`
        assert len(operator.pods()) == 3
