"""Commands use the same words for the same things, and a word for missing values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from service.cli.main import app
from service.cli.options_service import console
from service.cli.score_output import TableLines, decision_of
from tests.harness.apps import DENSE
from tests.harness.process import Process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with Process("memory:", tmp_path_factory.mktemp("server") / "log") as process:
        yield process


def printed(server: Process, *arguments: str) -> list[str]:
    """Run a command; return its lines."""
    result = CliRunner().invoke(app, arguments, env={"RARESTREAM_URL": server.url})
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_predict_and_update_use_the_same_word_for_a_decision(server: Process) -> None:
    values = {**DENSE, "threshold": {"objective": "fixed", "value": 0.5}, "calibration": {"kind": "none"}}
    httpx.put(f"{server.url}/v1/learners/a", json=values, timeout=300, trust_env=False).raise_for_status()
    rows = [{"id": str(i), "x": [float(i % 2), 1, 0], "label": i % 2} for i in range(200)]
    printed(server, "update", "a", json.dumps(rows))
    events = [{"id": f"n{i}", "x": [value, 1, 0]} for i, value in enumerate((5000, -5000))]
    lines = [line.split()[-1] for line in printed(server, "predict", "a", json.dumps(events))[1:]]
    assert lines == ["ALERT", "no"]
    learnt = printed(server, "labels", "a", "n0=1", "n1=0", "nobody=1")
    assert [line.split()[-1] for line in learnt[1:4]] == ["ALERT", "no", "-"]
    again = [{**event, "id": f"m{i}", "label": 0} for i, event in enumerate(events)]
    assert [line.split()[-1] for line in printed(server, "update", "a", json.dumps(again[1:]))[1:2]] == ["no"]


def test_undefined_numbers_are_shown_as_a_dash(server: Process, capsys: pytest.CaptureFixture[str]) -> None:
    httpx.put(f"{server.url}/v1/learners/fresh", json=DENSE, timeout=300, trust_env=False).raise_for_status()
    (line,) = printed(server, "predict", "fresh", '{"id": "a", "x": [1, 0, 0]}')[1:]
    assert line.split() == ["a", "0", "0.5", "-", "not", "ready"]
    overflowed = {"id": "b", "score": None, "probability": 1.0, "threshold": 0.5, "label": 1}
    TableLines(console()).write([overflowed], 0)
    assert capsys.readouterr().out.splitlines()[1].split() == ["b", "-", "1", "0.5", "ALERT"]


def test_words_for_missing_decisions_and_ranks() -> None:
    assert [decision_of(item) for item in (None, 0, 1)] == ["not ready", "no", "ALERT"]
    assert [decision_of(item, ranks=True) for item in (None, 1, 4)] == ["not ready", "1", "4"]


def test_an_empty_keys_file_is_reported(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text('{"keys": []}')
    (line,) = printed(server, "keys", "list", "--keys", str(path))
    assert line == f"{path} has no keys; `rarestream keys create --keys {path} --name NAME --scope SCOPE` creates one"
    assert printed(server, "keys", "list", "--keys", str(path), "--json") == ['{"keys": []}']
