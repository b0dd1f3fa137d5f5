"""Groups on the command line, and the verdict on which learner is better."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from service.cli.commands.compare import verdict_of
from service.exits import ExitStatus
from tests.harness.process import Process
from tests.service.cli.conftest import run

pytestmark = pytest.mark.integration

DENSE = {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": 1}}


@pytest.fixture(scope="module")
def http(server: Process) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{server.url}/v1", timeout=300, trust_env=False) as client:
        yield client


def create_duel(http: httpx.Client) -> None:
    """Create the group `duel` of a good and a bad learner; harmless if it exists."""
    for name, more in (("better", {}), ("worse", {"scaling": {"kind": "standard", "clip": 0.01}})):
        http.put(f"/learners/{name}", json={**DENSE, **more}).raise_for_status()
    http.put("/groups/duel", json={"learners": ["better", "worse"]}).raise_for_status()


def test_groups_are_listed_and_compared(server: Process, http: httpx.Client) -> None:
    assert "rarestream groups create" in run(server, "groups").stdout
    create_duel(http)
    assert "/v1/groups/duel/update" in run(server, "compare", "duel").stdout.splitlines()[0]
    rows = [{"id": str(i), "x": [i * 7 % 10 + 4 * (i % 5 == 0)], "label": int(i % 5 == 0)} for i in range(400)]
    http.post("/groups/duel/update", json={"events": rows}).raise_for_status()
    listed = run(server, "groups").stdout.splitlines()
    assert [line.split() for line in listed] == [["group", "learners", "events"], ["duel", "better,", "worse", "400"]]
    document = http.get("/groups/duel/compare").json()
    output = run(server, "compare", "duel").stdout
    assert output.splitlines()[0] == verdict_of(
        document["tests"][0], document["alpha"], document["window"]["differences"][0]["difference"]
    )
    assert "5 %" in output
    lines = [line.split() for line in output.splitlines()]
    heads = next(line for line in lines if line[:3] == ["A", "-", "B"])
    assert heads.count("evidence") == 2
    for name, item in document["window"]["auc"].items():
        low, high = item["interval"]
        assert [name, f"{item['auc']:.4f}", f"{low:.4f}", "to", f"{high:.4f}"] in lines
    row = next(line for line in lines if line[:3] == ["better", "-", "worse"])
    assert row[3] == f"{document['window']['differences'][0]['difference']:+.4f}"
    assert row[-6:] == ["10\N{SUPERSCRIPT SIX}", "to", "1", "1", "to", "1"]
    assert json.loads(run(server, "compare", "duel", "--json").stdout) == document
    assert json.loads(run(server, "groups", "--json").stdout) == http.get("/groups").json()


def test_a_missing_group_is_reported(server: Process, http: httpx.Client) -> None:
    create_duel(http)
    output = run(server, "compare", "nobody", status=ExitStatus.NOT_FOUND).stderr
    assert "nobody" in output
    output = run(server, "compare", "Duell", status=ExitStatus.NOT_FOUND).stderr
    assert "duel?" in output
