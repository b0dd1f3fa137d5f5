"""The program that measures the first requests with an empty kernel cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.cold import BARS, kernel_costs, main

pytestmark = pytest.mark.integration


def test_the_program_prints_and_saves_the_first_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Starts a service, because an empty cache is one of a new process."""
    main(["--quick", "--algorithm", "fofo", "--json", str(tmp_path / "out" / "cold.json")])
    assert "fofo" in capsys.readouterr().out
    document = json.loads((tmp_path / "out" / "cold.json").read_text())
    assert set(document["requests"]["fofo dense"]) == set(BARS)
    assert document["kernels"] == []


def test_a_kernel_is_listed_once_with_the_seconds_of_its_signatures() -> None:
    costs = kernel_costs(["fofo"], ["dense"])
    names = [cost.name for cost in costs]
    assert len(set(names)) == len(names) > 30
    assert "learners.algorithms.fmeasure.fofo._learn_dense" in names
    assert all(cost.seconds > 0 and cost.signatures > 0 for cost in costs)
    assert [cost.seconds for cost in costs] == sorted((cost.seconds for cost in costs), reverse=True)
