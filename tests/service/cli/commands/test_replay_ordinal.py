"""Replays to ordinal learners and to batch algorithms: labels, metrics and waiting for fits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learners import create
from tests.harness.process import Process
from tests.service.cli.conftest import run

pytestmark = pytest.mark.integration


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    path = tmp_path / "rows.npz"
    rng = np.random.default_rng(0)
    y = rng.random(2500) < 0.2
    np.savez(path, X=rng.normal(size=(2500, 3)) + y[:, None], y=y.astype(int))
    return path


@pytest.fixture
def grades(tmp_path: Path) -> Path:
    """Write rows of three grades in words, which a line through the features separates."""
    path = tmp_path / "grades.csv"
    rng = np.random.default_rng(0)
    grade = rng.integers(0, 3, 900)
    X = rng.normal(scale=0.3, size=(900, 2)) + grade[:, None]
    words = np.array(["poor", "fair", "good"])[grade]
    path.write_text("a,b,label\n" + "".join(f"{a},{b},{word}\n" for (a, b), word in zip(X, words, strict=True)))
    return path


def ordinal(server: Process, name: str, algorithm: str, *options: object) -> None:
    features = ["--features", "dense", "--dim", 2, "--param", "ranks=3"]
    run(server, "create", name, "--algorithm", algorithm, *features, *options)


def test_replay_to_an_ordinal_learner(server: Process, grades: Path) -> None:
    ordinal(server, "grades", "npsvor")
    text = run(server, "replay", grades, "--learner", "grades", status=2).stderr
    assert all(repr(word) in text for word in ("poor", "fair", "good"))
    assert "--ranks" in text
    order = ["--ranks", "poor, fair, good"]
    result = run(server, "replay", grades, "--learner", "grades", *order, "--limit", 500)
    assert "0 to 500: 500 " in result.stderr
    columns = [line.split()[:2] for line in result.stderr.splitlines()]
    assert columns[1:4] == [["a", "number"], ["b", "number"], ["label", "label"]]
    assert not re.search("AUC|F1|threshold|positives", result.stdout)
    assert re.search(r"MAE\W+0\.\d{4}\W+0\.\d{4}", result.stdout)
    assert re.search(r"MSE\W+0\.\d{4}\W+0\.\d{4}", result.stdout)
    assert re.search(r"accuracy\W+0\.\d{4}\W+0\.\d{4}", result.stdout)
    result = run(server, "replay", grades, "--learner", "grades", *order, "--json")
    document = json.loads(result.stdout)
    assert "row 500" in result.stderr
    assert "features:" not in result.stderr  # they were told
    assert (document["applied"], document["ready"], document["not_ready"], document["fit"]) == (400, True, None, None)
    assert document["metrics"]["since_start"]["accuracy"] > 0.6
    assert list(document["metrics"]["class_counts"]) == ["1", "2", "3"]


def test_ranks_are_refused_for_a_binary_learner(server: Process, arrays: Path) -> None:
    run(server, "create", "classes", "--algorithm", "loam-ada", "--features", "dense", "--dim", 3)
    text = run(server, "replay", arrays, "--learner", "classes", "--ranks", "0,1", status=2).stderr
    assert "--positive" in text


@pytest.mark.parametrize("order", ["", "low", "low,,high", "low,"])
def test_an_invalid_list_of_ranks_is_refused(server: Process, arrays: Path, order: str) -> None:
    text = run(server, "replay", arrays, "--learner", "any", "--ranks", order, status=2).stderr
    assert "--ranks" in text


def test_a_rank_label_may_contain_a_comma(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "comma.jsonl"
    labels = ["no", "yes, a little", "yes"]
    path.write_text("".join(json.dumps({"x": [i, 1], "label": labels[i % 3]}) + "\n" for i in range(30)))
    ordinal(server, "comma", "npsvor")
    result = run(server, "replay", path, "--learner", "comma", "--ranks", 'no,"yes, a little",yes', "--json")
    assert json.loads(result.stdout)["metrics"]["class_counts"] == {"1": 10, "2": 10, "3": 10}


def test_replay_reports_pending_and_completed_fits(server: Process, grades: Path) -> None:
    ordinal(server, "batch", "svc", "--set", "refit_every=600")
    replay = ["replay", grades, "--learner", "batch", "--ranks", "poor,fair,good"]
    assert re.search(r"^batch .*\b600\b", run(server, *replay, "--limit", 500).stderr, re.MULTILINE)
    run(server, *replay)
    while not (document := json.loads(run(server, *replay, "--json").stdout))["fit"]["events"]:
        assert document["fit"]["failed"] is None
    assert document["ready"]
    text = run(server, *replay).stderr
    assert "900 events" in text
    assert "batch " not in text


def test_a_replay_that_waits_for_fits_can_be_repeated(server: Process, arrays: Path) -> None:
    """The metrics equal those of the library, which makes each fit when it is due."""
    config: dict[str, Any] = {"refit_every": 300, "refit_window": 500}
    learner = create("ranksvm", dim=3, **config)
    with np.load(arrays) as rows:
        X, y = rows["X"], rows["y"]
    for start in range(0, len(y), 150):
        learner.learn(X[start : start + 150], y[start : start + 150])
    local = learner.figures()
    assert local["since_start"]["auc"] > 0.7
    for name in ("waits", "again"):
        fits = ["--set", "refit_every=300", "--set", "refit_window=500"]
        run(server, "create", name, "--algorithm", "ranksvm", "--features", "dense", "--dim", 3, *fits)
        part = ["replay", arrays, "--learner", name, "--batch", 150, "--wait", "--json"]
        run(server, *part, "--limit", 900)
        document = json.loads(run(server, *part).stdout)
        assert (document["start"], document["next"]) == (900, 2500)
        assert (document["fit"]["events"], document["fit"]["running"]) == (2400, False)
        assert {key: document["metrics"][key] for key in local} == local


def test_replay_reports_a_pending_embedding(server: Process, arrays: Path) -> None:
    run(server, "create", "warming", "--algorithm", "nsauc", "--features", "dense", "--dim", 3)
    text = run(server, "replay", arrays, "--learner", "warming", "--limit", 200).stderr
    assert "1,000 labelled" in text


def test_replay_of_ranks_to_a_missing_learner_fails(server: Process, grades: Path) -> None:
    text = run(server, "replay", grades, "--learner", "nobody", status=4).stderr
    assert "rarestream create nobody " in text
    text = run(server, "replay", grades, "--learner", "nobody", "--ranks", "poor,fair,good", status=4).stderr
    assert "--param ranks=3" in text
