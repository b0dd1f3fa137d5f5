"""`rarestream thresholds`: other thresholds as a table, and previews beside what was decided."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.harness.process import Process
from tests.harness.terminal import in_terminal
from tests.service.cli.commands.test_commands import document
from tests.service.cli.commands.test_scored_events import event, learner
from tests.service.cli.conftest import run

pytestmark = pytest.mark.integration

CONFIG: dict[str, Any] = {
    "algorithm": "cbr-diag",
    "features": {"kind": "named", "bits": 12},
    "threshold": {"objective": "fixed", "value": 0.5},
}


@pytest.fixture(scope="module")
def server(server: Process) -> Process:
    with learner(server) as http:
        for name in ("cards", "empty"):
            http.put(f"/{name}", json=CONFIG).raise_for_status()
        http.put("/ranks", json={"algorithm": "npsvor", "features": {"kind": "dense", "dim": 3}}).raise_for_status()
        labelled = [event(i, label=int(i % 4 == 0)) for i in range(400)]
        http.post("/cards/update", json={"events": labelled}).raise_for_status()
    return server


def served(server: Process, **query: Any) -> dict[str, Any]:
    reply = httpx.get(f"{server.url}/v1/learners/cards/thresholds", params=query, trust_env=False)
    result: dict[str, Any] = reply.raise_for_status().json()
    return result


def rows(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines() if line]


def test_thresholds_are_a_table_with_the_one_in_force(server: Process) -> None:
    expected = served(server, points=6, false_negative=20)
    options = ("thresholds", "cards", "--points", 6, "--false-negative", 20)
    assert document(run(server, *options, "--json")) == expected
    head, *lines = run(server, *options).stdout.splitlines()
    assert head.split() == ["threshold", "precision", "recall", "F1", "alerts/day", "cost", "TP", "FP", "FN"]
    points = expected["points"]
    table = lines[: lines.index("")]
    in_force, actual = (next(line for line in table if mark in line) for mark in (">", "as decided"))
    others = [line for line in table if line not in (in_force, actual)]
    assert [float(line.split()[0]) for line in others] == pytest.approx(points["threshold"], rel=1e-5)
    assert in_force.split()[:2] == [">", "0.5"]
    for line, figures in ((in_force, expected["live"]), (actual, expected["actual"])):
        assert line.split()[-3:] == [str(figures["confusion"][cell]) for cell in ("tp", "fp", "fn")]
        assert f"({figures['precision_interval'][0]:.4f} to " in line


def test_a_preview_is_shown_next_to_actual_decisions(server: Process) -> None:
    options = ("thresholds", "cards", "--preview", "budget", "--alerts", 5)
    tried = document(run(server, *options, "--json"))
    assert tried["settings"]["objective"] == "budget"
    assert tried["settings"]["alerts"] == 5
    printed = run(server, *options).stdout
    table = {line[0]: line[1:] for line in rows(printed)}
    assert table["TP"] == [str(tried[what]["confusion"]["tp"]) for what in ("actual", "preview")]
    assert float(table["precision"][0]) == pytest.approx(tried["actual"]["precision"], abs=1e-4)
    assert served(server)["threshold"] == 0.5  # nothing was changed


def test_settings_of_the_present_objective_are_tried(server: Process) -> None:
    tried = document(run(server, "thresholds", "cards", "--set", "threshold.value=0.9", "--json"))
    assert tried["threshold"] == 0.9
    rate = document(run(server, "thresholds", "cards", "--preview", "budget", "--set", "threshold.rate=0.01", "--json"))
    assert (rate["settings"]["rate"], rate["settings"]["alerts"]) == (0.01, None)


def test_a_learner_without_labels_is_reported(server: Process) -> None:
    assert document(run(server, "thresholds", "empty", "--json"))["points"] is None
    assert len(rows(run(server, "thresholds", "empty").stdout)) == 1
    printed = run(server, "thresholds", "empty", "--preview", "f1").stdout
    assert {line[0]: line[1:] for line in rows(printed)}["recall"] == ["-", "-"]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("nobody",), 4),
        (("ranks",), 5),
        (("ranks", "--preview", "f1"), 5),
        (("cards", "--preview", "precision"), 5),
        (("cards", "--preview", "luck"), 5),
        (("cards", "--points", 1), 2),
        (("cards", "--false-positive", -1), 5),
        (("cards", "--set", "late.label_ttl=5"), 2),
    ],
)
def test_refusals(server: Process, arguments: tuple[object, ...], status: int) -> None:
    run(server, "thresholds", *arguments, status=status)


def test_a_narrow_terminal_has_a_table_without_intervals(server: Process) -> None:
    output = in_terminal("thresholds", "cards", columns=80, environment={"RARESTREAM_URL": server.url})
    assert output.status == 0
    table = output.text.partition("\n\n")[0].splitlines()
    assert len(table) == len(served(server, points=20)["points"]["threshold"]) + 3
    assert not any(" to " in line for line in table)
