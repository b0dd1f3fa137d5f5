"""The documents' commands for Kubernetes: Helm renders the chart with their options, kubectl makes their objects."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.helm import PASSWORD, with_helm
from tests.docs.consoles import Console
from tests.docs.documents import ROOT, block, commands

pytestmark = pytest.mark.integration

TRIAL = commands(block("docs/how-to/containers.md", "$ helm install"))
PRODUCTION = commands(block("docs/how-to/containers.md", "$ kubectl create namespace"))
VALUES = block("docs/how-to/containers.md", "# scores.yaml").text


@pytest.fixture
def console(tmp_path: Path) -> Console:
    """Open a console beside the repository's `deploy`, with a keys file and the documented values."""
    console = Console(tmp_path)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "keys.json").write_text("[]")
    (tmp_path / "scores.yaml").write_text(VALUES)
    return console


def rendered(console: Console, command: str) -> dict[tuple[str, str], Any]:
    """Render what an installation would make: every object by kind and name."""
    command = re.sub(
        r"^helm (install|upgrade --install)", "helm template", command.replace("$(openssl rand -hex 32)", PASSWORD)
    )
    objects = [item for item in yaml.safe_load_all(console.run(command).stdout) if item]
    return {(item["kind"], item["metadata"]["name"]): item for item in objects}


@with_helm
def test_the_trial_installs_everything_the_other_commands_name(console: Console) -> None:
    install, test, forward, uninstall, delete = TRIAL
    objects = rendered(console, install)
    assert {"Deployment", "StatefulSet", "Service", "Secret", "Pod"} <= {kind for kind, _ in objects}
    assert ("Service", re.search(r"service/(\S+)", forward)[1]) in objects  # type: ignore[index]
    assert test == "helm test scores --namespace scores"
    assert uninstall == "helm uninstall scores --namespace scores"
    assert delete == "kubectl delete namespace scores"


@with_helm
def test_production_uses_the_secrets_created_before(console: Console) -> None:
    *secrets, upgrade, _ = PRODUCTION
    objects = rendered(console, upgrade)
    (deployment,) = (item for (kind, _), item in objects.items() if kind == "Deployment")
    assert deployment["spec"]["replicas"] == 3
    assert not {"Secret", "StatefulSet"} & {kind for kind, _ in objects}
    assert {"ServiceMonitor", "PrometheusRule", "ConfigMap"} <= {kind for kind, _ in objects}
    text = yaml.safe_dump(deployment)
    for name in (re.search(r"secret generic (\S+)", secret)[1] for secret in secrets[1:]):  # type: ignore[index]
        assert re.search(rf"(secretName|name): {name}\n", text)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on PATH")
def test_kubectl_creates_the_documented_objects(console: Console) -> None:
    manifests = [
        yaml.safe_load(console.run(f"{item} --dry-run=client --output yaml").stdout) for item in PRODUCTION[:3]
    ]
    assert [(item["kind"], item["metadata"]["name"]) for item in manifests] == [
        ("Namespace", "scores"),
        ("Secret", "keys"),
        ("Secret", "redis"),
    ]
    assert [list(manifest["data"]) for manifest in manifests[1:]] == [["keys.json"], ["url"]]
