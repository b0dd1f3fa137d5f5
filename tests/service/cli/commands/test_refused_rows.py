"""Rows that only the service refuses are bad rows: they are left out with line and reason, and the others are sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness.process import Process
from tests.service.cli.commands.test_inspect import learner
from tests.service.cli.conftest import run

pytestmark = pytest.mark.integration

REFUSED: dict[int, dict[str, Any]] = {  # by line
    3: {"amount": 1e31},
    4: {"amount": ["a"] * 65_537},
    7: {"amount": 1, " amount": 2},
    9: {"n" * 300: 1},
    20: {"amount": -1e300},
}
ROWS = 20


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    rows = (
        {"id": f"e{i}", "time": 1.7e9 + 60 * i, "label": i % 2, **REFUSED.get(i, {"amount": i})}
        for i in range(1, ROWS + 1)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def create(server: Process, name: str) -> None:
    run(server, "create", name, "--algorithm", "cbr-diag", "--features", "named", "--set", "features.bits=10")


FLAT = ("--id", "id", "--time", "time")
COMMANDS = {
    "replay": ("replay", "FILE", "--learner", "NAME", *FLAT),
    "replay in pieces": ("replay", "FILE", "--learner", "NAME", "--batch", "3", *FLAT),
    "update": ("update", "NAME", "FILE", *FLAT),
    "predict": ("predict", "NAME", "FILE", "--json", *FLAT),
    "late": ("replay", "FILE", "--learner", "NAME", "--label-delay", "2m", "--batch", "4", *FLAT),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_refused_row_is_written_with_line_and_reason(
    server: Process, file: Path, tmp_path: Path, command: str
) -> None:
    name = command.replace(" ", "-")
    create(server, name)
    bad = tmp_path / "bad.jsonl"
    arguments = [{"FILE": str(file), "NAME": name}.get(part, part) for part in COMMANDS[command]]
    result = run(server, *arguments, "--on-bad", bad)
    rows = [json.loads(line) for line in bad.read_text().splitlines()]
    assert [row["line"] for row in rows] == list(REFUSED)
    assert all(row["file"] == str(file) and row["reason"] for row in rows)
    originals = [row["row"] if isinstance(row["row"], dict) else json.loads(row["row"]) for row in rows]
    assert [row["id"] for row in originals] == [f"e{line}" for line in REFUSED]
    good = ROWS - len(REFUSED)
    if command == "predict":
        ids = [json.loads(line)["id"] for line in result.stdout.splitlines() if line.startswith("{")]
        assert ids == [f"e{i}" for i in range(1, ROWS + 1) if i not in REFUSED]
        return
    assert learner(server, name)["events"] == good
    if "replay" in arguments:
        run(server, *arguments, "--on-bad", "skip")  # what is left of it: refused rows at its end
        assert learner(server, name)["events"] == good


def test_a_refused_row_ends_a_replay_that_may_go_on(server: Process, file: Path) -> None:
    create(server, "stopped")
    arguments = ("replay", file, "--learner", "stopped", "--batch", "2")
    text = run(server, *arguments, status=6).output
    assert f"{file}, line 3: /features/amount:" in text
    assert "--on-bad skip" in text
    run(server, *arguments, "--on-bad", "skip")
    assert learner(server, "stopped")["events"] == ROWS - len(REFUSED)


def test_refused_labels_are_bad_rows(server: Process, tmp_path: Path) -> None:
    create(server, "labels")
    events = [{"id": f"e{i}", "features": {"amount": i}} for i in range(3)]
    run(server, "predict", "labels", json.dumps(events))
    labels = [{"id": f"e{i}", "label": i % 2, **({"weight": 2e6} if i == 1 else {})} for i in range(3)]
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps(label) + "\n" for label in labels))
    assert "line 2: /weight:" in run(server, "labels", "labels", path, status=5).output
    assert "line 2: weight:" in run(server, "labels", "labels", path, "--on-bad", "skip").output
    assert learner(server, "labels")["events"] == 2
