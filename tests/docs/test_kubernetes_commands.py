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

TRIAL = commands(block("docs/how-to/containers.md", "$ helm install"))
PRODUCTION = commands(block("docs/how-to/containers.md", "$ kubectl create namespace"))
VALUES = block("docs/how-to/containers.md", "# scores.yaml").text


@pytest.fixture
def console(tmp_path: Path) -> Console:
    """A console beside the repository's `deploy`, with a keys file and the documents' values."""
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
    objects = [one for one in yaml.safe_load_all(console.run(command).stdout) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


@with_helm
def test_a_trial_installs_all_that_the_other_commands_name(console: Console) -> None:
    install, test, forward, uninstall, delete = TRIAL
    objects = rendered(console, install)
    assert {"Deployment", "StatefulSet", "Service", "Secret", "Pod"} <= {kind for kind, _ in objects}
    assert ("Service", re.search(r"service/(\S+)", forward)[1]) in objects  # type: ignore[index]
    assert test == "helm test scores --namespace scores"
    assert uninstall == "helm uninstall scores --namespace scores"
    assert delete == "kubectl delete namespace scores"


@with_helm
def test_production_reads_the_secrets_that_were_made_before(console: Console) -> None:
    *secrets, upgrade, _ = PRODUCTION
    objects = rendered(console, upgrade)
    (deployment,) = (one for (kind, _), one in objects.items() if kind == "Deployment")
    assert deployment["spec"]["replicas"] == 3
    assert not {"Secret", "StatefulSet"} & {kind for kind, _ in objects}
    assert {"ServiceMonitor", "PrometheusRule", "ConfigMap"} <= {kind for kind, _ in objects}
    text = yaml.safe_dump(deployment)
    for name in (re.search(r"secret generic (\S+)", one)[1] for one in secrets[1:]):  # type: ignore[index]
        assert re.search(rf"(secretName|name): {name}\n", text)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on PATH")
def test_kubectl_makes_the_documented_objects(console: Console) -> None:
    made = [yaml.safe_load(console.run(f"{one} --dry-run=client --output yaml").stdout) for one in PRODUCTION[:3]]
    assert [(one["kind"], one["metadata"]["name"]) for one in made] == [
        ("Namespace", "scores"),
        ("Secret", "keys"),
        ("Secret", "redis"),
    ]
    assert [list(one["data"]) for one in made[1:]] == [["keys.json"], ["url"]]
