"""Float32 compared with float64: the measurements, not their speed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import precision
from benchmarks.precision import Case, measure

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("case", [Case("loam-ilsc", 8), Case("fofo", 1000, sparse=True)])
def test_both_precisions_learn_the_same_stream(case: Case) -> None:
    double, single = measure(case, 300, 2)
    assert (double.precision, single.precision) == ("float64", "float32")
    assert 0.45 < single.bytes / double.bytes < 0.8
    assert double.ns > 0
    assert single.ns > 0
    assert double.auc > 0.6
    assert single.auc == pytest.approx(double.auc, abs=0.01)


def test_the_program_measures_and_writes_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "deep" / "precision.json"
    monkeypatch.setattr(precision, "CASES", (Case("loam-ada", 3), Case("oam", 16, sparse=True, params={"capacity": 2})))
    monkeypatch.setattr("sys.argv", ["precision", "--quick", "--json", str(path)])
    precision.main()
    result = [(item["algorithm"], item["precision"]) for item in json.loads(path.read_text())]
    assert result == [(name, kind) for name in ("loam-ada", "oam") for kind in ("float64", "float32")]
    assert "oam capacity=2" in capsys.readouterr().out
