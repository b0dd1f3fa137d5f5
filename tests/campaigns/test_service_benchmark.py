"""Every case of the service's benchmark runs from end to end, in tiny turns on real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.service import peers
from tests.benchmarks.test_service import EXPECTED, check_contest, run


@pytest.mark.parametrize("case", EXPECTED)
def test_a_comparison_measures_every_contestant(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_contest(case, tmp_path, capsys)


def test_many_learners_are_created_trained_and_queried(tmp_path: Path) -> None:
    document = run("memory", tmp_path)
    requests = {row["what"]: row["requests"] for row in document["rows"]}
    assert requests == {
        "create": 20,
        "learn 20 events": 20,
        "predict, untouched the longest": 10,
        "predict, once more": 10,
    }
    memory, cold = document["verdicts"]
    assert 0 < memory["reached"] < 8
    assert cold["reached"] == next(row["max ms"] for row in document["rows"] if row["what"].endswith("longest"))


def test_peers_score_the_stream_before_learning_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # of those that the tests' environment is sure to have, and one that none has
    monkeypatch.setattr(
        peers, "LIBRARIES", [library for library in peers.LIBRARIES if library.distributions in ((), ("scikit-learn",))]
    )
    nowhere = peers.SERVICES[0]._replace(name="Nowhere", distributions=("nowhere-at-all", "fastapi"))
    monkeypatch.setattr(peers, "SERVICES", [nowhere])
    document = run("peers", tmp_path)
    rows = [row for row in document["rows"] if "absent" not in row]
    (absent,) = [row["absent"] for row in document["rows"] if "absent" in row]
    assert "nowhere-at-all" in absent
    assert "fastapi" not in absent
    assert sorted(row["job"] for row in rows) == sorted([peers.SOCKET] * 6 + [peers.MANY] * 3 + [peers.SINGLE] * 3)
    assert all(row["events/s"] > 0 and row["per core-second"] > 0 and 0.3 < row["AUC"] < 1 for row in rows)
    for ours in ("rarestream, loam-ilsc", "rarestream, loam-ada"):
        single, many = (row["AUC"] for row in rows if row["who"] == ours)
        assert single == many  # prequential however the stream is cut
    assert sum("rarestream is" in row for row in rows) == 2
