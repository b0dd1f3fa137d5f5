"""Fills the kernel cache ahead of time, by running algorithms on a few events.

The container image runs this while it is built, so that its first request waits for no compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from learners.algorithms import Algorithm, algorithms, is_baseline
from learners.config import Config
from learners.decision import Predictions, decision_of
from learners.explain import explain_scores
from learners.learner import Learner
from learners.metrics import BinaryMetrics, RankMetrics
from learners.numerics import Rehearsal, hashes_of
from learners.records import ServedBatch

__all__ = ["REHEARSALS", "rehearse", "warm", "warm_metrics"]

_FEATURES: list[dict[str, Any]] = [
    {"kind": "dense", "dim": 2},
    {"kind": "table", "fields": [{"name": "a", "kind": "numeric"}, {"name": "b", "kind": "categorical"}]},
    {"kind": "named", "bits": 8},
    {"kind": "sparse", "dim": 8},
]
_EVENTS: dict[str, list[Any]] = {
    "dense": [[0.0, 1.0], [1.0, -1.0], [0.5, 0.0]],
    "table": [{"a": 1, "b": "x"}, {"a": None, "b": "y"}, {"a": -1}],
    "named": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": -1}],
    "sparse": [([0, 3], [1.0, 2.0]), ([1, 3], [1.0, -1.0]), ([], [])],
}
_SCALINGS = ("none", "unit", "standard", "maxabs")
_EMBEDDINGS = ("nystroem", "fourier")
_OBJECTIVES: list[dict[str, Any]] = [
    {"objective": "f1"},
    {"objective": "f1-window"},
    {"objective": "f1-ofo"},
    {"objective": "budget", "alerts": 1},
]
_CALIBRATIONS = ("platt", "none", "histogram", "isotonic")
REHEARSALS = tuple(
    Rehearsal(__name__, "rehearse", (algorithm, kind))
    for algorithm in ("auto", "cbr-diag", "loam-ada", "fofo")
    for kind in ("dense", "named")
)  # what most learners need, the default algorithm first
_START = 1_600_000_000.0  # seconds: times before 1980 are refused
_SINGLE_PRECISION = ("dense", "sparse")  # features that need all kernels that depend on the precision


def warm(baselines: bool = False) -> Iterator[str]:
    """Compile or load the kernels of every algorithm; yield the name of each when it is done.

    Baselines, which serve the benchmarks of the papers, only on request. With a cold cache some 45 s, and 25 s more for
    the baselines.
    """
    for name, algorithm in algorithms().items():
        if is_baseline(name) and not baselines:
            continue
        for features in _FEATURES:
            sparse = features["kind"] in ("named", "sparse")
            if not (algorithm.TRAITS.sparse if sparse else algorithm.TRAITS.dense):
                continue
            for number in range(len(_SCALINGS)):
                config = _configuration(name, algorithm, features, number)
                _exercise(Learner(Config.of(config)), _EVENTS[features["kind"]])
                if features["kind"] in _SINGLE_PRECISION and number < len(_EMBEDDINGS):
                    _exercise(Learner(Config.of({**config, "precision": "float32"})), _EVENTS[features["kind"]])
        yield name


def rehearse(name: str, kind: str) -> None:
    """Run a learner with an algorithm's defaults through every kind of record."""
    features = next(features for features in _FEATURES if features["kind"] == kind)
    _exercise(Learner(Config.of({"algorithm": name, "features": features})), _EVENTS[kind])


def _configuration(name: str, algorithm: Algorithm, features: dict[str, Any], number: int) -> dict[str, Any]:
    """Combine an algorithm and features with the scaling, objective, calibration and embedding of that number."""
    config: dict[str, Any] = {
        "algorithm": name,
        "features": features,
        "scaling": {"kind": _SCALINGS[number]},
        "window": 2,
        "remembered_ids": 2,
    }
    if not algorithm.TRAITS.ordinal:
        config["threshold"] = _OBJECTIVES[number % len(_OBJECTIVES)]
        if not algorithm.TRAITS.posterior:
            config["calibration"] = {"kind": _CALIBRATIONS[number % len(_CALIBRATIONS)]}
    if hasattr(algorithm, "fit"):
        config |= {"refit_every": 2, "refit_window": 4}
    if "embedding" in algorithm.TRAITS.defaults:
        config["embedding"] = {"kind": _EMBEDDINGS[number % len(_EMBEDDINGS)], "components": 2, "warmup": 2}
    return config


def warm_metrics(config: Config) -> None:
    """Compile or load what each such learner runs beside its model: live metrics and threshold.

    Runs them on made-up scores and discards the result. Takes some 15 s with a cold cache, else some 0.01 s.
    """
    for n in (3, 130):  # one by one, and together, with a row of the history
        metrics: BinaryMetrics | RankMetrics
        nan, no = np.full(n, np.nan), np.zeros(n, dtype=np.bool_)
        ones, hashes = np.ones(n), np.arange(n, dtype=np.uint64)
        values = np.linspace(-1.0, 1.0, n)
        y = np.where(np.arange(n) % 2, 1.0, -1.0)
        if config.labels.ranks is None:
            decision = decision_of(config)
            metrics = BinaryMetrics(n - 1, config.window_seconds, config.figures)
            clocks = metrics.tick(nan)
            predictions = decision.learn(values, y, ~no, ones, clocks)
            decision.note(predictions, clocks)
        else:
            metrics = RankMetrics(n - 1, config.window_seconds, config.labels.ranks)
            clocks = metrics.tick(nan)
            y = 1.0 + np.arange(n) % 2
            predictions = Predictions(values, y.astype(np.int64))
        scores, decisions, probabilities, thresholds = predictions
        metrics.learn(scores, probabilities, thresholds, y, decisions, clocks, nan, hashes, no)
        metrics.serve(hashes, scores, thresholds, decisions, clocks)
        metrics.view().frozen().as_json()


def _exercise(learner: Learner, events: list[Any]) -> None:
    """Take a learner through every kind of record."""
    warm_metrics(learner.config)
    low, high = (0, 1) if learner.config.labels.ranks is None else (1, 2)
    learner.learn(events, [low, high, low], ids=["a", "b", "c"])
    learner.learn(events, [high, low, high], ids=["d", "b", None])
    learner.learn(events[:1] * 64, [low] * 64, times=[_START + i for i in range(64)])  # a row of the history
    scores = learner.scorer().score(learner.encode(events))
    learner.apply(ServedBatch(hashes_of(["s", "t", "u"]), _START + np.arange(100.0, 103.0), *scores))
    learner.learn(events[:1], [high], ids=["a"])  # a correction
    learner.figures()
    if learner.config.labels.ranks is None:
        explain_scores(learner.scorer(), events, 1)
    Learner.restored(learner.config, learner.state())
