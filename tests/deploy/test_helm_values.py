"""The values of the Helm chart: what the schema and the chart refuse, and that each is documented."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
import yaml

from rarestream import __version__
from tests.deploy.helm import CASES, CHART, KEYED, LEAST, PASSWORD, SPREAD, helm, template, with_helm

pytestmark = pytest.mark.integration

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())


@with_helm
def test_helm_lint_accepts_the_chart() -> None:
    for options in CASES.values():
        reply = helm("lint", "--strict", str(CHART), *options, check=False)
        assert reply.returncode == 0, reply.stdout


@with_helm
@pytest.mark.parametrize(
    ("options", "names"),
    [
        ((), "keys.existingSecret keys.file insecure"),
        (("--set", "store.url=redis://r:6379/0"), "keys.existingSecret keys.file insecure"),
        ((*LEAST, "--set", "keys.existingSecret=keys"), "insecure keys"),
        ((*KEYED, "--set", "keys.file=[]"), "keys.existingSecret keys.file"),
        (("--set", "insecure=true"), "store.existingSecret store.url redis.enabled"),
        ((*LEAST, "--set", "store.existingSecret=redis"), "store.existingSecret store.url redis.enabled"),
        (
            (*LEAST, "--set", "redis.enabled=true", "--set", f"redis.password={PASSWORD}"),
            "store.existingSecret store.url redis.enabled",
        ),
        (("--set", "insecure=true", "--set", "redis.enabled=true"), "redis.enabled redis.password"),
        ((*LEAST, "--set-string", "settings.STORE=memory:"), "settings.STORE"),
        ((*SPREAD, "--set", "tls.existingSecret=certificate"), "settings.REPLICATION tls"),
        ((*LEAST, "--set", "preStopSeconds=40"), "terminationGracePeriodSeconds preStopSeconds"),
        (
            (*LEAST, "--set", "autoscaling.enabled=true", "--set", "autoscaling.maxReplicas=1"),
            "autoscaling.maxReplicas autoscaling.minReplicas",
        ),
        ((*LEAST, "--set", "replica=3"), "replica"),
        ((*LEAST, "--set", "replicas=-1"), "replicas"),
        ((*LEAST, "--set", "image.tags=x"), "tags"),
        ((*LEAST, "--set", "settings.WORKERS=2"), "settings"),  # a number would be rewritten where it is large
        ((*LEAST, "--set-string", "settings.workers=2"), "workers"),
        ((*LEAST, "--set-string", "settings.RARESTREAM_WORKERS=2"), "RARESTREAM_WORKERS"),
        (("--set", "insecure=true", "--set", "store.url=sqlite:///x.db"), "url"),  # pods share no file
        (("--set", "insecure=true", "--set", "redis.enabled=true", "--set", "redis.password=short"), "password"),
        ((*LEAST, "--set", "serviceMonitor.keySecret.name=scrape"), "keySecret"),
    ],
)
def test_invalid_values_are_refused(options: tuple[str, ...], names: str) -> None:
    reply = template(*options, check=False)
    assert reply.returncode != 0
    assert [name for name in names.split() if not re.search(rf"\b{name}\b", reply.stderr)] == []


def test_every_value_is_documented_and_in_the_schema() -> None:
    """Each default has a line of comment before it or before the group it stands in, and the schema knows no others."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    documented = {after.strip().split(":")[0] for line, after in pairwise(lines) if line.strip().startswith("#")}

    def compare(values: dict[str, Any], schema: dict[str, Any], path: str) -> None:
        assert schema["additionalProperties"] is False, path
        assert set(values) == set(schema["properties"]) - {"global"}, path
        for name, value in values.items():
            inner = schema["properties"][name]
            if isinstance(value, dict) and "properties" in inner and name != "settings":  # test_helm_settings.py
                compare(value, inner, f"{path}.{name}")

    compare(VALUES, SCHEMA, "")
    plain = {
        "service",
        "topologySpread",
        "autoscaling",
        "podDisruptionBudget",
        "networkPolicy",
        "tls",
        "redis",
        "image",
    }
    placing = {
        "replicas",
        "nodeSelector",
        "tolerations",
        "affinity",
        "priorityClassName",
        "podAnnotations",
        "podLabels",
    }
    assert set(VALUES) - plain - placing <= documented
    for group in plain - {"service"}:
        assert set(VALUES[group]) & documented, group


def test_the_chart_version_is_the_release_version() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__
