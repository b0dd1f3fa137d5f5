"""The benchmark of alarms and verdicts: what it measures on streams where the answer is known, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from benchmarks import alarm_streams, alarms
from benchmarks.alarm_streams import SETTINGS, Effort

pytestmark = pytest.mark.integration

TINY = Effort(streams=2, powers=2, positives=200, most_positives=400, stationary=2, events=3000, seconds=0.0)


def test_the_program_measures_and_writes_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "deep" / "alarms.json"
    monkeypatch.setattr(alarms, "QUICK", TINY)
    monkeypatch.setattr(alarm_streams, "RUN_IN", 40)
    monkeypatch.setattr(alarm_streams, "LONGEST", 10)
    monkeypatch.setattr("sys.argv", ["alarms", "--quick", "--streams", "3", "--json", str(path)])
    alarms.main()
    figures = json.loads(path.read_text())
    assert figures["effort"]["streams"] == 3
    assert [row["setting"] for row in figures["equals"]] == [setting.name for setting in SETTINGS]
    assert all(row["verdicts"] <= row["streams"] == 3 for row in figures["equals"])
    assert len(figures["differences"]) == 12
    assert [row["events"] for row in figures["false alarms"]] == [6000] * 18
    assert [row["streams"] for row in figures["falls"]] == [1, 3, 3] * 4
    assert figures["served"][0] == {"change": "none", "alarms": 0, "events": 6000}
    assert figures["served"][3]["found"] == 1.0
    assert {row[name] for row in figures["steady fields"] for name in ("alarms", "early")} == {0}
    assert {row["alarms"] for row in figures["steady numbers"]} == {0}
    assert all(row["out"] <= 0.02 for row in figures["steady numbers"])
    late, early = ([row for row in figures["worse fields"] if row["after"] == run] for run in (20_000, 3_000))
    assert [row["found"] for row in late[:3]] == [1.0, 1.0, 1.0]
    assert [row["found"] for row in late[6:]] == [1.0, 1.0, 1.0, 1.0]
    assert [row["found"] for row in early[:2] + early[6:8]] == [1.0, 1.0, 1.0, 1.0]
    assert all(0 < row["median"] <= row["most"] <= 8 * 512 for row in figures["worse fields"] if row["found"])
    assert all(row["median"] > 0 for row in figures["costs"])
    printed = capsys.readouterr().out
    rows = {
        "equals": "setting",
        "served": "change",
        "steady fields": "stream",
        "steady numbers": "numbers",
        "worse fields": "change",
    }
    for part, name in rows.items():
        assert [row[name] for row in figures[part] if row[name] not in printed] == []
    assert "0.75 -> 0.65" in printed
    assert printed.rstrip().endswith(f" {path}")


def test_the_number_of_streams_is_at_least_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["alarms", "--streams", "0"])
    with pytest.raises(SystemExit, match="2"):
        alarms.main()
    assert "--streams" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("setting", SETTINGS, ids=[setting.name for setting in SETTINGS])
def test_the_scorers_have_the_requested_aucs(setting: alarm_streams.Setting) -> None:
    random = np.random.default_rng(0)
    labels, scores = alarm_streams.compared(setting, 200_000, (0.8, 0.8), random)
    aucs = [roc_auc_score(labels, scores[:, j]) for j in range(2)]
    assert aucs[0] == pytest.approx(aucs[1], abs=0.02)
    if not setting.levels:
        assert aucs[0] == pytest.approx(0.8, abs=0.02)
    assert labels.mean() == pytest.approx(setting.share, rel=0.1)


def test_a_large_drop_and_a_large_difference_are_detected() -> None:
    delays, early = alarm_streams.falls(0.95, 0.2, 5)
    assert len(delays) == 5
    assert early == 0
    assert delays.max() <= alarm_streams.WITHIN
    verdicts = alarm_streams.verdicts(SETTINGS[3], TINY._replace(most_positives=1000), 0.9)
    assert (verdicts > 10).all()


def test_upper_confidence_limits() -> None:
    assert alarms.most_of(0, 59) == pytest.approx(1 - 0.05 ** (1 / 59))
    assert alarms.most_of(3, 3) == 1.0
    assert alarms.most_rate(0) == pytest.approx(-np.log(0.05))
