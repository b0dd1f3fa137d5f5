"""The program that measures what the live metrics cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.figures import main

pytestmark = pytest.mark.integration


def test_the_program_prints_and_saves_a_row_per_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--json", str(tmp_path / "out" / "figures.json")])
    printed = capsys.readouterr().out
    assert "1,000" in printed
    result = json.loads((tmp_path / "out" / "figures.json").read_text())
    assert [(cost["window"], cost["share"]) for cost in result] == [(1000, 0.01), (1000, 0.5)]
    assert all(cost["event"] > 0 and cost["poll"] > 0 and cost["sorted_poll"] > 0 for cost in result)
