"""The costs of the kernels: what is measured, not how long it takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import kernels


def test_it_measures_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "deep" / "kernels.json"
    monkeypatch.setattr(kernels, "DIMS", (2, 3))
    monkeypatch.setattr(
        "sys.argv", ["kernels", "--quick", "--algorithm", "fofo", "--algorithm", "npsvor", "--json", str(path)]
    )
    kernels.main()
    costs = json.loads(path.read_text())["costs"]
    assert [(cost["algorithm"], cost["dim"]) for cost in costs] == [
        ("fofo", 2),
        ("fofo", 3),
        ("npsvor", 2),
        ("npsvor", 3),
    ]
    assert all(0 < cost["low"] <= cost["ns"] <= cost["high"] and cost["events"] >= 16 for cost in costs)
    printed = capsys.readouterr().out
    assert "npsvor" in printed
    assert "online algorithms: ns per event" in printed


def test_a_batch_algorithm_has_no_cost_per_event(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kernels", "--algorithm", "ranksvm"])
    with pytest.raises(SystemExit, match="2"):
        kernels.main()
    said = capsys.readouterr().err
    assert said.startswith("usage: python -m benchmarks.kernels ")
    assert "invalid choice: 'ranksvm'" in said
