"""The words of the Helm chart: why it refuses values, and its notes. Other tests look at the names of values.

A changed sentence changes one row here.
"""

from __future__ import annotations

import os
import subprocess

import pytest

from rarestream import __version__
from tests.deploy.helm import CHART, KEYED, LEAST, PASSWORD, SPREAD, helm, template, with_helm
from tests.docs.documents import ROOT

pytestmark = pytest.mark.integration

ONE_STORE = "store.existingSecret, store.url and redis.enabled: give one of them"
REFUSALS: list[tuple[tuple[str, ...], str]] = [
    ((), "no API keys: set keys.existingSecret or keys.file; insecure: true serves everybody without a key"),
    (
        (*LEAST, "--set", "keys.existingSecret=keys"),
        "insecure: true serves without keys, and keys are given: leave one of them out",
    ),
    ((*KEYED, "--set", "keys.file=[]"), "keys.existingSecret and keys.file: give one of them"),
    (
        ("--set", "insecure=true"),
        "no store: give store.existingSecret or store.url, or set redis.enabled: true to try it out",
    ),
    ((*LEAST, "--set", "store.existingSecret=redis"), ONE_STORE),
    ((*LEAST, "--set", "redis.enabled=true", "--set", f"redis.password={PASSWORD}"), ONE_STORE),
    (
        ("--set", "insecure=true", "--set", "redis.enabled=true"),
        "redis.enabled wants redis.password: openssl rand -hex 32",
    ),
    ((*LEAST, "--set-string", "settings.STORE=memory:"), "settings.STORE is set by the chart itself"),
    (
        (*SPREAD, "--set", "tls.existingSecret=certificate"),
        "settings.REPLICATION with tls: nodes call each other by pod address, which no certificate names; end TLS at "
        "an ingress",
    ),
    (
        (*LEAST, "--set", "preStopSeconds=40"),
        "terminationGracePeriodSeconds is less than preStopSeconds and thirty more: a node needs them to end in order",
    ),
    (
        (*LEAST, "--set", "autoscaling.enabled=true", "--set", "autoscaling.maxReplicas=1"),
        "autoscaling.maxReplicas is less than autoscaling.minReplicas",
    ),
]


@with_helm
@pytest.mark.parametrize(("options", "text"), REFUSALS)
def test_refusals(options: tuple[str, ...], text: str) -> None:
    reply = template(*options, check=False)
    assert reply.returncode != 0
    assert f"): {text}\n" in reply.stderr


def test_kernels_that_cannot_be_copied() -> None:
    environment = {"PATH": os.environ["PATH"], "NUMBA_CACHE_DIR": "/dev/null/nowhere"}
    command = ["sh", str(ROOT / "docker" / "entrypoint.sh"), "sh", "-c", "echo $NUMBA_CACHE_DIR"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout == "/opt/rarestream/kernels\n"
    assert ended.stderr.splitlines()[-1] == (
        "the compiled kernels cannot be copied to /dev/null/nowhere; they are read from the image"
    )


@with_helm
def test_notes() -> None:
    output = helm("install", "rs", str(CHART), "--dry-run=client", "--namespace", "scoring", *LEAST).stdout
    assert output.partition("NOTES:\n")[2].rstrip() == (
        f"rs-rarestream runs 2 node(s) of rarestream:{__version__}.\n"
        "\n"
        "Wait until they are ready, and open the dashboard:\n"
        "\n"
        "  kubectl -n scoring rollout status deployment/rs-rarestream\n"
        "  helm -n scoring test rs\n"
        "  kubectl -n scoring port-forward service/rs-rarestream 8000:8000\n"
        "\n"
        "Then http://127.0.0.1:8000/\n"
        "\n"
        "It needs NO API KEY: anybody who reaches the Service may read, change and delete every learner.\n"
        "\n"
        "Only the peers of networkPolicy.from reach the nodes: by default the pods of this namespace."
    )
