"""`rarestream alarms` and `annotate`: one time line, on which an alarm is acknowledged and resolved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.process import Process
from tests.service.cli.commands.test_commands import document, run
from tests.service.cli.commands.test_scored_events import learner

pytestmark = pytest.mark.integration

CONFIG = {"algorithm": "cbr-diag", "features": {"kind": "dense", "dim": 1}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Run a service with a learner whose positive labels stop, and one without events."""
    with Process("memory:", tmp_path_factory.mktemp("server") / "log") as process:
        with learner(process) as http:
            for name in ("cards", "empty"):
                http.put(f"/{name}", json=CONFIG).raise_for_status()
        update(process, [1, *[0] * 9] * 60)
        yield process


def update(server: Process, labels: list[int]) -> None:
    with learner(server) as http:
        events = [{"x": [1.0 * label], "label": label} for label in labels]
        http.post("/cards/update", json={"events": events}).raise_for_status()


def test_an_incident_on_the_time_line(server: Process) -> None:
    noted = run(server, "annotate", "cards", "labels moved <b>\nto another topic", "--by", "CI").stdout
    assert noted.split() == ["noted", "at", "600", "events", "of", "cards"]
    update(server, [0] * 400)
    run(server, "alarms", "cards", "ack", 1, status=4)
    printed = run(server, "alarms", "cards", "ack", 0, "--note", "feed broke", "--by", "Ann").stdout
    assert (printed.count("\n"), "acknowledged" in printed) == (1, True)
    run(server, "alarms", "cards", "ack", 0, "--note", "feed broke", "--by", "Ann")
    run(server, "alarms", "cards", "ack", 0, "--note", "I saw it", "--by", "Bob", status=5)
    update(server, [1, *[0] * 9] * 20)
    run(server, "threshold", "cards", "budget", "--alerts", 5)
    listed = document(run(server, "alarms", "cards", "--json"))
    (alarm,) = listed["alarms"]
    assert (alarm["kind"], alarm["state"], alarm["acknowledged"]["by"]) == ("positives", "resolved", "Ann")
    assert [entry["kind"] for entry in listed["annotations"]] == ["note", "settings"]
    head, *lines = run(server, "alarms", "cards").stdout.splitlines()
    assert head.split() == ["when", "alarm", "state", "what"]
    words = [line.split() for line in lines]
    assert words[0][:6] == ["event", "600", "note", "labels", "moved", "<b>"]
    assert words[1][-1] == "(CI)"
    assert words[2][:4] == ["event", f"{alarm['events']:,}", "0", "resolved"]
    assert words[3] == ["acknowledged", "by", "Ann:", "feed", "broke"]
    assert words[4][:6] == ["event", "1,200", "settings", "threshold", "budget", "alerts=5"]
    about = next(line for line in run(server, "show", "cards").stdout.splitlines() if line.startswith("alarms"))
    assert "open" not in about


def test_a_learner_without_alarms(server: Process) -> None:
    assert run(server, "alarms", "empty").stdout.count("\n") == 1
    assert document(run(server, "alarms", "empty", "--json"))["alarms"] == []
    assert document(run(server, "annotate", "empty", "deployed", "--json"))["text"] == "deployed"


@pytest.mark.parametrize(
    "arguments", [["ack"], ["ack", "-1"], ["drop", "0"], ["--note", "why"], ["ack", "0", "1"], ["ack", "first"]]
)
def test_wrong_arguments(server: Process, arguments: list[str]) -> None:
    run(server, "alarms", "cards", *arguments, status=2)
