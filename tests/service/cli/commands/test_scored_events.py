"""`rarestream events`, `event` and `alerts`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import httpx
import pytest

from tests.harness.process import Process
from tests.service.cli.commands.test_commands import document
from tests.service.cli.conftest import run

pytestmark = pytest.mark.integration

CONFIG: dict[str, Any] = {
    "algorithm": "cbr-diag",
    "features": {"kind": "named", "bits": 12, "text": ["note"]},
    "threshold": {"objective": "fixed", "value": 0.5},
    "late": {"keep_features": True},
}


def event(i: int, **more: Any) -> dict[str, Any]:
    """Return event `i`; one in four is a fraud, of a large amount."""
    features = {"amount": 900.0 + i if i % 4 == 0 else 10.0 + i, "country": "XX" if i % 4 == 0 else "DE"}
    return {"id": f"e{i}", "features": features, "time": 1.7e9 + i, **more}


@pytest.fixture(scope="module")
def server(server: Process) -> Process:
    with learner(server) as http:
        http.put("/cards", json=CONFIG).raise_for_status()
        send(server, "update", *(event(i, label=int(i % 4 == 0)) for i in range(400)))
        send(server, "predict", *(event(i) for i in range(400, 420)))
        send(server, "labels", *({"id": f"e{i}", "label": int(i == 400), "time": 1.7e9 + 900} for i in (400, 401)))
    return server


def learner(server: Process) -> httpx.Client:
    return httpx.Client(base_url=f"{server.url}/v1/learners", trust_env=False, timeout=300)


def send(server: Process, operation: str, *events: dict[str, Any]) -> None:
    with learner(server) as http:
        http.post(f"/cards/{operation}", json={"events": events}).raise_for_status()


def ids(events: list[dict[str, Any]]) -> list[str]:
    return [item["id"] for item in events]


def test_alerts_are_listed_with_their_reasons(server: Process) -> None:
    listed = document(run(server, "alerts", "cards", "--json"))["events"]
    assert sorted(ids(listed)) == ["e404", "e408", "e412", "e416"]
    assert [item["score"] for item in listed] == sorted((item["score"] for item in listed), reverse=True)
    first, *rest = run(server, "alerts", "cards", "--explain", 2).stdout.splitlines()
    assert first.split() == ["time", "id", "features", "why", "label", "score", "probability", "decision"]
    assert len(rest) == 4
    assert all("country=XX" in line.split("amount=")[1] for line in rest)


def test_events_are_filtered(server: Process) -> None:
    def listed(*options: object) -> list[str]:
        return ids(document(run(server, "events", "cards", "--json", *options))["events"])

    assert listed("--status", "labelled") == ["e401", "e400"]
    assert listed("--label", 1) == ["e400"]
    assert listed("--find", "country=XX", "--limit", 2) == ["e416", "e412"]
    assert listed("--find", "e41", "--sort", "score", "--limit", 2) != listed("--find", "e41", "--limit", 2)
    assert listed("--decision", 0, "--find", "e40") == ["e409", "e407", "e406", "e405", "e403", "e402", "e401"]
    assert len(listed("--min-probability", 0)) == 20
    assert listed("--from", "2023-11-14T22:20:18Z", "--to", 1.7e9 + 420) == ["e419", "e418"]
    assert "from" in run(server, "events", "cards", "--from", "yesterday", status=5).stderr


def test_an_event_is_shown_whole(server: Process) -> None:
    output = run(server, "event", "cards", "e404", "--explain", 2).stdout
    rows = dict(line.strip().split(maxsplit=1) for line in output.splitlines())
    assert (rows["id"], rows["label"], rows["amount"], rows["country"]) == ("e404", "-", "1304.0", "XX")
    assert "country=XX" in rows["why"]
    assert document(run(server, "event", "cards", "e400", "--json"))["label"] == 1
    assert run(server, "event", "cards", "nobody", status=4).stdout == ""


def test_an_event_is_labelled_by_a_word_and_corrected(server: Process) -> None:
    with learner(server) as http:  # of its own, because labels are of now
        http.put("/desk", json=CONFIG).raise_for_status()
        http.post("/desk/update", json={"events": [{**event(i), "label": i % 2, "time": None} for i in range(4)]})
        http.post("/desk/predict", json={"events": [{**event(430), "id": "a=1, b", "time": None}]}).raise_for_status()
    lines = [run(server, "label", "desk", "a=1, b", word).stdout.strip() for word in ("fraud", "1", "Legitimate")]
    assert lines == [
        "the event a=1, b of desk is labelled",
        "the event a=1, b of desk had this label already",
        "the event a=1, b of desk had another label, which is corrected",
    ]
    assert document(run(server, "label", "desk", "a=1, b", "yes", "--json"))["status"] == "relabelled"
    steps = document(run(server, "event", "desk", "a=1, b", "--json"))["history"]
    assert [(step["kind"], step["label"]) for step in steps] == [
        ("served", None), ("labelled", 1), ("corrected", 0), ("corrected", 1),
    ]  # fmt: skip
    output = run(server, "event", "desk", "a=1, b").stdout
    names = [line.split()[0] for line in output.splitlines()]
    assert [name for name in names if name in ("served", "labelled", "corrected")] == [step["kind"] for step in steps]
    assert "nothing was labelled" in run(server, "label", "desk", "nobody", "fraud", status=4).stderr
    assert "maybe" in run(server, "label", "desk", "e1", "maybe", status=2).stderr


def test_features_cannot_control_the_terminal(server: Process) -> None:
    features = {"note\x1b[2J": "a\x1b]0;b\x07\nc", "country": "\u202ereversed"}
    send(server, "predict", {"id": "hostile", "features": features, "time": 1.6e9})
    for command in (("event", "cards", "hostile"), ("events", "cards", "--find", "hostile")):
        printed = run(server, *command, "--explain", 3).stdout
        assert "reversed" in printed
        assert not set("\x1b\x07\u202e") & set(printed)


def test_new_alerts_are_followed(server: Process) -> None:
    command = [
        sys.executable,
        "-m",
        "service",
        "alerts",
        "cards",
        "--follow",
        "--json",
        "--limit",
        "1",
        "--explain",
        "1",
    ]
    environment = {**os.environ, "RARESTREAM_URL": server.url}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["id"] == "e416"
        send(server, "predict", *(event(i) for i in range(500, 510)))
        followed = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.terminate()
    assert ids(followed) == ["e500", "e504", "e508"]
    assert all(item["explanation"]["features"] for item in followed)


def test_a_list_of_no_event_has_one_line_without_a_heading(server: Process) -> None:
    printed = run(server, "events", "cards", "--find", "nobody").stdout
    assert (printed.count("\n"), printed.split()[-1]) == (1, "event")
