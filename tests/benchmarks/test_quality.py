"""The benchmark of quality: its streams, its figures, its tables, and what a second run does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.quality.__main__ import main
from benchmarks.quality.contestants import steps
from benchmarks.quality.scoring import decisions_of, interval, judge
from benchmarks.quality.streams import Stream, read, read_file
from tests.benchmarks.made import binary, write_dense, write_sparse

pytestmark = pytest.mark.integration


def stream_of(events: Any, positive: list[bool], **more: Any) -> Stream:
    return Stream("made", events, np.array(positive), {"kind": "dense", "dim": 1}, **more)


def test_labels_that_come_late_are_learnt_after_their_time() -> None:
    stream = stream_of(np.zeros((6, 1)), [True, False] * 3, times=np.arange(6.0), delay=2.0)
    assert list(steps(stream, 2)) == [(0, 2, 0), (2, 4, 2), (4, 6, 4)]
    assert list(steps(stream_of(np.zeros((3, 1)), [True, False, True]), 2)) == [(0, 2, 2), (2, 3, 3)]


def test_figures_of_a_perfect_ranking_that_alerts_too_often() -> None:
    positive = np.array([True, False, False, True])
    scores = np.array([3.0, 1.0, 0.0, 2.0])
    quality = judge(positive, scores, np.array([1.0, 1.0, 1.0, 1.0]), np.array([1.0, 0.0, 0.0, 1.0]))
    assert (quality.auc, quality.ap, quality.recall) == (1.0, 1.0, 1.0)
    assert quality.f1 == pytest.approx(2 * 2 / 6)
    assert (quality.alerts, quality.ece) == (1.0, 0.0)
    assert np.isnan(judge(positive, scores).f1)
    assert np.isnan(judge(positive[:1], scores[:1])).all()
    assert interval(positive, scores, scores) == (0.0, 0.0)


def test_positives_are_known_once_their_labels_have_come() -> None:
    positive = [True, True, False, True, False]
    assert stream_of(np.zeros((5, 1)), positive).known_positives().tolist() == [0, 1, 2, 2, 3]
    late = stream_of(np.zeros((5, 1)), positive, times=np.arange(5.0), delay=2.0)
    assert late.known_positives().tolist() == [0, 0, 1, 2, 2]


def test_decisions_are_compared_with_the_best_threshold_from_100_known_positives_on() -> None:
    positive = np.tile([True, False, False, False], 150)
    known_positives = np.concatenate([[0], np.cumsum(positive)[:-1]])
    probabilities = np.where(positive, 0.9, 0.1)
    judged = decisions_of(positive, known_positives, np.tile([1.0, 1.0, 0.0, 0.0], 150), probabilities)
    assert judged.early == pytest.approx(0.5, abs=0.01)
    assert judged.early_positive == pytest.approx(0.25, abs=0.01)
    assert judged.alerts == pytest.approx(2.0, rel=0.02)  # those of the best threshold are half as many
    assert judged.f1 == pytest.approx(2 / 3, rel=0.02)
    assert judged.best_f1 == 1.0
    assert np.isnan(judged.ece)  # the stream is too short
    assert np.isnan(decisions_of(positive[:40], known_positives[:40], np.ones(40), probabilities[:40]).f1)


def test_missing_values_of_named_events_are_none() -> None:
    frame = pd.DataFrame({"amount": [1.0, np.nan], "country": ["DE", None]})
    assert stream_of(frame, [True, False]).rows(0, 2) == [
        {"amount": 1.0, "country": "DE"},
        {"amount": None, "country": None},
    ]


def test_the_demo_stream_needs_no_file(tmp_path: Path) -> None:
    stream = read("demo", tmp_path)
    assert len(stream) == 200_000
    assert 0.005 < stream.positive.mean() < 0.02
    assert stream.rows(0, 1)[0].keys() == set(stream.events)


def test_the_rarest_label_of_a_file_is_positive(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("amount,fraud\n1,no\n2,yes\n3,no\n")
    assert read_file(file, "fraud").positive.tolist() == [False, True, False]
    with pytest.raises(ValueError, match="no column label; it has amount, fraud"):
        read_file(file, "label")


def test_tables_and_figures_of_a_run_that_goes_on_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dense(tmp_path, "heart", *binary(240, 5))
    X, y = binary(240, 8, seed=1)
    write_sparse(tmp_path, "a9a", X, y)
    command = ["--datasets", str(tmp_path), "--only", "heart", "a9a", "--out", str(tmp_path / "out")]
    assert main([*command, "--contestants", "auto"]) == 0
    scores = (tmp_path / "out" / "heart-240-auto.npz").read_bytes()
    assert main([*command, "--contestants", "auto", "sgd"]) == 0
    assert (tmp_path / "out" / "heart-240-auto.npz").read_bytes() == scores
    table = (tmp_path / "out" / "table.md").read_text()
    assert capsys.readouterr().out.endswith(table + "\n")
    assert "| stream | auto | sgd | auto - best peer |" in table
    assert "recall at 1 % FPR | F1 | alert rate | ECE" in table
    assert "alerts from 100 on, by those of the best threshold | F1 | best F1 | ECE after 10,000 events" in table
    figures = json.loads((tmp_path / "out" / "figures.json").read_text())
    assert [(row["stream"], row["contestant"]) for row in figures] == [
        ("heart", "auto"),
        ("heart", "sgd"),
        ("a9a", "auto"),
        ("a9a", "sgd"),
    ]
    for row in figures:
        assert 0.6 < row["half"]["auc"] <= 1.0
        assert (row["whole"]["ece"] < 0.2) is (row["contestant"] == "auto")
    assert len(figures[0]["interval"]) == 2
    assert (tmp_path / "out" / "gaps.png").stat().st_size > 1000


def test_a_stream_is_named_or_comes_from_a_file() -> None:
    with pytest.raises(SystemExit):
        main([])
