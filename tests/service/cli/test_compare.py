"""Groups on the command line, and the verdict on which learner is better."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from service.cli.commands.compare import verdict_of
from service.cli.main import app
from service.exits import ExitStatus
from tests.harness.process import Process

DENSE = {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": 1}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("server")
    with Process(f"sqlite:///{folder / 'store.db'}", folder / "log") as process:
        yield process


@pytest.fixture(scope="module")
def http(server: Process) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{server.url}/v1", timeout=300, trust_env=False) as client:
        yield client


def run(server: Process, *arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, arguments, env={"RARESTREAM_URL": server.url})
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.stderr


def test_groups_are_listed_and_compared(server: Process, http: httpx.Client) -> None:
    assert run(server, "groups").startswith("there is no group yet; create one by PUT /v1/groups/NAME")
    for name, more in (("better", {}), ("worse", {"scaling": {"kind": "standard", "clip": 0.01}})):
        http.put(f"/learners/{name}", json={**DENSE, **more}).raise_for_status()
    http.put("/groups/duel", json={"learners": ["better", "worse"]}).raise_for_status()
    assert "/v1/groups/duel/update" in run(server, "compare", "duel").splitlines()[0]
    rows = [{"id": str(i), "x": [i * 7 % 10 + 4 * (i % 5 == 0)], "label": int(i % 5 == 0)} for i in range(400)]
    http.post("/groups/duel/update", json={"events": rows}).raise_for_status()
    listed = run(server, "groups").splitlines()
    assert [line.split() for line in listed] == [["group", "learners", "events"], ["duel", "better,", "worse", "400"]]
    document = http.get("/groups/duel/compare").json()
    output = run(server, "compare", "duel")
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
    assert json.loads(run(server, "compare", "duel", "--json")) == document
    assert json.loads(run(server, "groups", "--json")) == http.get("/groups").json()


def test_a_missing_group_is_reported(server: Process) -> None:
    output = run(server, "compare", "nobody", status=ExitStatus.NOT_FOUND)
    assert "nobody" in output
    output = run(server, "compare", "Duell", status=ExitStatus.NOT_FOUND)
    assert "duel?" in output


def outcome(verdict: str | None, a: float, b: float) -> dict[str, Any]:
    evidence = {"a_better": a, "b_better": b}
    return {"a": "x", "b": "y", "verdict": verdict, "evidence": evidence, "since_events": 1234, "since_clock": None}


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (outcome(None, 0.0, 0.0), "x or y: not decided. Keep watching: evidence 1 to 1; 40 to 1 decides."),
        (
            outcome(None, 0.0, 1.0),
            "x or y: not decided. Keep watching: it leans to y, evidence 10 to 1; 40 to 1 decides.",
        ),
        (outcome("b", -5.0, 3.0), "y is better than x: 99.8 % sure since event 1,234; keep watching."),
        (outcome("a", 12.3, 0.0), "x is better than y: over 99.99 % sure since event 1,234; keep watching."),
        (
            outcome("a", 1.0, 0.0),
            "x was better than y: decided at event 1,234, but the evidence is 10 to 1 by now; keep watching.",
        ),
        (
            outcome("a", -4.0, 0.0),
            "x was better than y: decided at event 1,234, but the evidence is 0 to 1 by now; keep watching.",
        ),
    ],
)
def test_the_verdict_is_expressed_in_words(test: dict[str, Any], message: str) -> None:
    assert verdict_of(test, 0.05) == message


def test_a_verdict_contradicted_by_the_window_is_flagged() -> None:
    """The verdict is about all events, and the text says that the other learner has been ahead lately."""
    behind = ": in the window its AUC is behind by 0.0123."
    for test, difference in ((outcome("a", 3.0, 0.0), -0.0123), (outcome("b", 0.0, 3.0), 0.0123)):
        plain = verdict_of(test, 0.05)
        assert verdict_of(test, 0.05, difference) == plain.removesuffix(".") + behind
        for no_news in (-difference, 0.0, difference / 1e6, None):
            assert verdict_of(test, 0.05, no_news) == plain
    was = outcome("a", 1.0, 0.0)
    assert verdict_of(was, 0.05, -0.5).endswith(
        "the evidence is 10 to 1 by now; keep watching: in the window its AUC is behind by 0.5000."
    )
    assert "behind" not in verdict_of(outcome(None, 1.0, 0.0), 0.05, -0.5)
