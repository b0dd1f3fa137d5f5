"""Runs every algorithm over a short stream, and tells what came out by digests.

A case is a learner's settings and a stream. Its outcome has the digest of the scores, the digest of each part of the
state, the digest that the learner itself reports, and its metrics. `cases()` lists the cases that are recorded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np

from learners import Learner, algorithms, create, restore
from tests.compatibility.events import KINDS, START, events, labels, ranks

__all__ = ["AS_RECORDED", "cases", "machine", "run"]

EVENTS = 200
BLOCKS = 8  # of scores, each with a digest of its own, to say where a difference begins
_CUTS = (0, 1, 4, 20, 21, 64, 100, 130, EVENTS)
_HALF = 100  # events after which the learner is saved and restored

FEATURES: dict[str, dict[str, Any]] = {
    "dense": {"kind": "dense", "dim": 4},
    "sparse": {"kind": "sparse", "dim": 300},
    "named": {
        "kind": "named",
        "bits": 12,
        "text": ["body"],
        "categorical": ["merchant"],
        "log": ["amount"],
    },
    "table": {
        "kind": "table",
        "fields": [
            {"name": "amount", "kind": "numeric", "log": True},
            {"name": "country", "kind": "categorical", "categories": 3},
            {"name": "age", "kind": "numeric"},
        ],
    },
}
AS_RECORDED: dict[str, Any] = {"scaling": {"outliers": "counted"}}  # settings with defaults that are newer
_SMALL: dict[str, Any] = {"window": 60, "seed": 7}
_PARAMS: dict[str, dict[str, Any]] = {
    "cbr": {"C": 0.5, "capacity": 5},
    "cbr-diag": {"C": 0.5, "capacity": 5},
    "forest": {"trees": 3},
    "gbdt": {"trees": 3, "leaf_events": 2},
    "noam": {"capacity": 8},
    "npsvor": {"capacity": 20},
    "nsauc": {"capacity": 12},
    "oam": {"C": 0.125, "capacity": 8},
    "stamp": {"length": 16},
}
_OPTIONS: dict[str, list[dict[str, Any]]] = {
    "cbr": [{"buffer": "reservoir"}],
    "cbr-diag": [{"buffer": "reservoir"}, {"mode": "exact"}, {"mode": "paper"}],
    "fofo": [{"averaging": "suffix"}],
    "lr": [{"averaging": "suffix"}],
    "noam": [{"buffer": "reservoir"}, {"weighted": True}],
    "npsvor": [{"rule": "old"}, {"replays": 0}, {"ranks": 6}],
    "npsvor-batch": [{"rule": "old"}, {"bias": False}],
    "nsauc": [{"buffer": "reservoir"}],
    "oam": [{"buffer": "fifo"}, {"weighted": True}],
    "ofo": [{"averaging": "suffix"}],
    "stamp": [{"level": "logistic"}],
}
_THRESHOLDS: list[dict[str, Any]] = [
    {"objective": "f1"},
    {"objective": "f1", "horizon": EVENTS},
    {"objective": "f1", "n1": 32, "kappa": 4.0},
    {"objective": "f1-window", "memory": 100},
    {"objective": "f1-ofo"},
    {"objective": "fixed", "value": 0.25},
    {"objective": "fbeta", "beta": 2.0},
    {"objective": "jaccard", "memory": None},
    {"objective": "cost", "false_positive": 1.0, "false_negative": 5.0},
    {"objective": "fpr", "target": 0.125},
    {"objective": "precision", "target": 0.5},
    {"objective": "recall", "target": 0.75},
    {"objective": "budget", "alerts": 5, "unit_seconds": 3600.0},
    {"objective": "budget", "rate": 0.125},
    {"objective": "optroc"},
]
_PLAIN = False  # events have features and a label
_WHOLE = True  # and also ids, times and weights; some are repeated, some corrected


def cases() -> Iterator[dict[str, Any]]:
    """List every case: a name, an algorithm, the kind of its events, its settings, and what its events carry."""
    for name in algorithms():
        for kind in KINDS:
            yield from _case(f"{name}-{kind}", name, kind, _WHOLE)
        for kind in ("dense", "sparse"):
            yield from _case(f"{name}-{kind}-float32", name, kind, _PLAIN, precision="float32")
        for space in ("nystroem", "fourier"):
            embedding = {"kind": space, "components": 8, "warmup": 60}
            embedding |= {"width": 4.0} if space == "fourier" else {}
            yield from _case(f"{name}-{space}", name, "dense", _WHOLE, embedding=embedding)
        for option in _OPTIONS.get(name, []):
            label = "-".join(f"{key}-{value}" for key, value in option.items())
            yield from _case(f"{name}-{label}", name, "dense", _PLAIN, **option)
    yield from _parts()


def _parts() -> Iterator[dict[str, Any]]:
    """List the cases of scaling, calibration, thresholds and metrics."""
    for kind in KINDS:
        for scaling in ("none", "unit", "standard", "maxabs"):
            yield from _case(f"scaling-{scaling}-{kind}", "cbr-diag", kind, _WHOLE, scaling={"kind": scaling})
    yield from _case("scaling-clip", "fofo", "dense", _PLAIN, scaling={"kind": "standard", "clip": 1.5})
    for name in ("cbr-diag", "fofo"):
        for settings in _THRESHOLDS:
            label = "-".join(f"{value}" for value in settings.values())
            yield from _case(f"threshold-{label}-{name}", name, "dense", _WHOLE, threshold=settings)
        for calibration in ("posterior", "platt", "none", "histogram", "isotonic"):
            for objective in ("f1-window", "f1"):
                yield from _case(
                    f"calibration-{calibration}-{objective}-{name}",
                    name,
                    "dense",
                    _WHOLE,
                    calibration={"kind": calibration, "memory": 50},
                    threshold={"objective": objective},
                )
    cost = {"objective": "cost", "false_positive": 2.0, "false_negative": 1.0, "field": "amount"}
    for kind in ("named", "table"):
        yield from _case(f"threshold-cost-of-field-{kind}", "fofo", kind, _WHOLE, threshold=cost)
    yield from _case("window-seconds", "fofo", "dense", _WHOLE, window_seconds=1800.0)
    yield from _case("metrics", "fofo", "dense", _WHOLE, figures={"beta": 2.0, "max_fpr": 0.25, "k": 10})
    yield from _case("few-ids", "fofo", "dense", _WHOLE, remembered_ids=20)
    yield from _case("table-extra", "fofo", "table", _WHOLE, features={**FEATURES["table"], "extra": "ignore"})


def _case(label: str, algorithm: str, kind: str, whole: bool, **settings: Any) -> Iterator[dict[str, Any]]:
    """Give the case, or nothing if the algorithm takes no such settings."""
    settings = {"features": FEATURES[kind], **_SMALL, **_PARAMS.get(algorithm, {}), **settings}
    settings["scaling"] = {**AS_RECORDED["scaling"], **settings.get("scaling", {})}
    small = {"embedding": {"kind": "none"}} if "embedding" not in settings else {}
    for rest in ({"refit_every": 50, "refit_window": 80}, {}):
        try:
            create(algorithm, **{**settings, **small, **rest})
        except ValueError:
            continue
        yield {
            "name": label,
            "algorithm": algorithm,
            "kind": kind,
            "whole": whole,
            "fits": bool(rest) or settings.get("embedding", {}).get("kind") == "nystroem",
            "settings": {**settings, **small, **rest},
        }
        return


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case: learn in pieces, save and restore halfway, score what comes next before each piece."""
    n, whole = EVENTS, case["whole"]
    learner = create(case["algorithm"], **case["settings"])
    ordinal = "ranks" in learner.config.to_json()["params"]
    y = list(ranks(n) if ordinal else labels(n))
    features = [_features(event) for event in events(case["kind"], n)]
    ids: list[str | None] = [None] * n
    times = weights = None
    if whole:
        ids = [f"id-{i}" if i % 7 else None for i in range(n)]
        for i in range(10, n, 10):  # repeated: the same label once more, and every other time a correction
            if (before := i - 9) % 7:
                ids[i], features[i] = ids[before], features[before]
                y[i] = y[before] if i % 20 else (6 - y[before] if ordinal else 1 - y[before])
        times = [math.nan if i % 11 == 5 else float(START + 37 * i - 100 * (i % 4)) for i in range(n)]
        weights = [(1.0, 0.5, 2.0, 0.0, 1.0)[i % 5] for i in range(n)]
    predictions: list[bytes] = []
    scores: list[Any] = []
    for start, stop in pairwise(_CUTS):
        if start == _HALF:
            learner = _restored(learner)
        predictions += _predict(learner, features[start : start + 5])
        cut = slice(start, stop)
        scores.append(
            learner.learn(
                features[cut],
                y[cut],
                weights=None if weights is None else weights[cut],
                ids=ids[cut] if whole else None,
                times=None if times is None else times[cut],
            )
        )
    learnt = np.concatenate(scores)
    if case["fits"]:
        _fit(learner, features[60:140], y[60:140])
        predictions += _predict(learner, features[:20])
    return {
        "scores": [_digest(block.tobytes(), 4) for block in np.array_split(learnt, BLOCKS)],
        "predictions": _digest(b"".join(predictions), 8),
        "state": _parts_of(learner),
        "digest": learner.digest(),
        "metrics": learner.figures(),
    }


def _fit(learner: Learner, features: list[Any], y: list[int]) -> None:
    """Fit to these events, if the learner can be fitted by now."""
    try:
        learner.fit(features, y)
    except ValueError:
        return


def _features(event: dict[str, Any]) -> Any:
    if "x" in event:
        return event["x"]
    return (event["indices"], event["values"]) if "indices" in event else event["features"]


def _predict(learner: Learner, features: list[Any]) -> list[bytes]:
    """Score events without learning them: scores, decisions, probabilities and thresholds."""
    scores = learner.scorer().score(learner.encode(features))
    return [np.ascontiguousarray(column).tobytes() for column in scores if column is not None]


def _restored(learner: Learner) -> Learner:
    config = json.loads(json.dumps(learner.config.to_json()))
    return restore(config, {name: array.copy() for name, array in learner.state().items()})


def _parts_of(learner: Learner) -> dict[str, str]:
    """Return the digest of each part of the state: names, types, shapes and bytes of its arrays."""
    parts: dict[str, Any] = {}
    for name, array in sorted(learner.state().items()):
        part = parts.setdefault(name.partition(".")[0], blake2b(digest_size=4))
        part.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        part.update(np.ascontiguousarray(array).data)
    return {name: part.hexdigest() for name, part in parts.items()}


def _digest(data: bytes, size: int = 16) -> str:
    return blake2b(data, digest_size=size).hexdigest()


def machine() -> str:
    """Fingerprint the libraries whose last bits differ among machines, on fixed data of this module's own."""
    from sklearn.cluster import KMeans
    from sklearn.svm import LinearSVC
    from threadpoolctl import threadpool_limits

    X = np.array([event["x"] for event in events("dense", 120, seed=5)]) / [1.0, 16.0, 0.125, 1.0]
    similar = np.exp(-np.square(X[:40, None] - X[None, :40]).sum(axis=2) / 4.0)
    with threadpool_limits(1):
        results = [
            X.T @ X,
            *np.linalg.eigh(similar),
            KMeans(8, n_init=1, random_state=7).fit(X).cluster_centers_,
            LinearSVC(random_state=7, dual=True, max_iter=10_000).fit(X, labels(120, 5)).coef_,
        ]
    return _digest(b"".join(np.ascontiguousarray(result).tobytes() for result in results), 8)
