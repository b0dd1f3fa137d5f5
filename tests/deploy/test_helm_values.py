"""The values of the Helm chart: what the schema and the chart refuse, and that each is documented."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
import yaml

from rarestream import __version__
from tests.deploy.helm import CASES, CHART, KEYED, LEAST, PASSWORD, SPREAD, helm, template, with_helm

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())


@with_helm
def test_helm_lint_accepts_the_chart() -> None:
    for options in CASES.values():
        reply = helm("lint", "--strict", str(CHART), *options, check=False)
        assert reply.returncode == 0, reply.stdout


@with_helm
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "no API keys"),
        (("--set", "store.url=redis://r:6379/0"), "no API keys"),
        ((*LEAST, "--set", "keys.existingSecret=keys"), "serves without keys, and keys are given"),
        ((*KEYED, "--set", "keys.file=[]"), "give one of them"),
        (("--set", "insecure=true"), "no store"),
        ((*LEAST, "--set", "store.existingSecret=redis"), "give one of them"),
        ((*LEAST, "--set", "redis.enabled=true", "--set", f"redis.password={PASSWORD}"), "give one of them"),
        (("--set", "insecure=true", "--set", "redis.enabled=true"), "wants redis.password"),
        ((*LEAST, "--set-string", "settings.STORE=memory:"), "settings.STORE is set by the chart itself"),
        ((*SPREAD, "--set", "tls.existingSecret=certificate"), "settings.REPLICATION with tls"),
        ((*LEAST, "--set", "preStopSeconds=40"), "terminationGracePeriodSeconds is less than"),
        ((*LEAST, "--set", "autoscaling.enabled=true", "--set", "autoscaling.maxReplicas=1"), "maxReplicas is less"),
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
def test_invalid_values_are_refused(options: tuple[str, ...], message: str) -> None:
    reply = template(*options, check=False)
    assert reply.returncode != 0
    assert message in reply.stderr


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
