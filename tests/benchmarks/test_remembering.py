"""The benchmark of the stores' memory runs from end to end, on each kind of store."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import remembering

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_the_program_measures_its_own_store(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(remembering, "RECALLS", 2)
    monkeypatch.setattr(remembering, "FULL_BATCHES", 2)
    written = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["remembering", "--store", kind, "--events", "3000", "--json", str(written)])
    remembering.main()
    figures = json.loads(written.read_text())
    assert figures["events"] == 3000
    assert figures["of these id and data"] == 216
    assert 216 < figures["bytes per event"] < 1000
    assert all(figure > 0 for figure in figures.values())
    assert len(capsys.readouterr().out.splitlines()) == len(figures)
