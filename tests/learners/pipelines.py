"""Every algorithm with every kind of features it takes: a configuration and a stream of what events carry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from learners import Config, Learner, algorithms
from learners.algorithms.base import Traits
from learners.learner import State
from learners.numerics.arrays import Vector
from learners.records import BatchOutcome, LabelledBatch, Segment, join_outcomes

FEATURES: dict[str, dict[str, Any]] = {
    "dense": {"kind": "dense", "dim": 4},
    "table": {
        "kind": "table",
        "fields": [
            {"name": "amount", "kind": "numeric", "log": True},
            {"name": "country", "kind": "categorical", "categories": 3},
            {"name": "age", "kind": "numeric"},
        ],
    },
    "sparse": {"kind": "sparse", "dim": 300},
    "named": {"kind": "named", "bits": 12, "text": ["body"], "log": ["amount"]},
}
_PARAMS = {
    "cbr": {"capacity": 3, "buffer": "reservoir"},
    "cbr-diag": {"capacity": 3},
    "nsauc": {"capacity": 4},
    "npsvor": {"capacity": 20},
    "forest": {"trees": 3, "leaf_events": 1},
    "gbdt": {"trees": 3, "leaf_events": 2},
}


@dataclass(frozen=True)
class Pipeline:
    """An algorithm behind a kind of features."""

    algorithm: str
    kind: str

    @property
    def traits(self) -> Traits:
        """What holds for the algorithm."""
        return algorithms()[self.algorithm].TRAITS

    @property
    def batch(self) -> bool:
        """Whether the algorithm is fitted now and then."""
        return hasattr(algorithms()[self.algorithm], "fit")

    def config(self, **settings: Any) -> Config:
        """Return a configuration with small buffers and bounds."""
        params = _PARAMS.get(self.algorithm, {})
        small: dict[str, Any] = {"window": 40, "remembered_ids": 25, "seed": 7}
        if self.batch:
            small |= {"refit_every": 20, "refit_window": 60 if self.algorithm == "auto" else 30}
        if "embedding" in self.traits.defaults:
            small["embedding"] = {"components": 6, "warmup": 25}
        return Config.of(
            {"algorithm": self.algorithm, "params": params, "features": FEATURES[self.kind], **small, **settings}
        )

    def learner(self, **settings: Any) -> Learner:
        """Return a new learner."""
        return Learner(self.config(**settings))


def events(pipeline: Pipeline, n: int, seed: int = 0) -> tuple[list[Any], Vector]:
    """Draw features and labels of n events; a third is positive (ordinal: ranks 3 to 5) and larger."""
    random = np.random.default_rng(seed)
    y = np.where(random.random(n) < 0.33, 1.0, -1.0)
    carried = [_event(pipeline.kind, random, label) for label in y]
    if pipeline.traits.ordinal:
        y = np.where(y > 0, 3.0 + np.arange(n) % 3, 1.0 + np.arange(n) % 2)
    return carried, y


def _event(kind: str, random: np.random.Generator, label: float) -> Any:
    x = (random.normal(size=4) * [1.0, 10.0, 0.1, 3.0] + label).tolist()
    if kind == "dense":
        return x
    if kind == "sparse":
        columns = sorted(random.choice(300, random.integers(0, 9), replace=False).tolist())
        return columns, (random.normal(size=len(columns)) + label).tolist()
    country = ["DE", "FR", "US", "IN", "BR", None][random.integers(0, 6)]
    event = {"amount": x[1], "country": country, "age": x[0] if random.random() < 0.8 else None}
    if kind == "named":
        event["body"] = " ".join(random.choice(["free", "money", "now", "hello", f"word{random.integers(999)}"], 3))
    return event


def batch(learner: Learner, carried: list[Any], y: Vector, **columns: Any) -> LabelledBatch:
    """Labelled events as a record of the log holds them."""
    return LabelledBatch(learner.encode(carried), y, **columns)


def copied(learner: Learner) -> State:
    """Copy the state of a learner."""
    return {name: array.copy() for name, array in learner.state().items()}


def bits(outcomes: list[BatchOutcome]) -> list[bytes]:
    """Predictions of some events as bytes."""
    return [array.tobytes() for array in vars(join_outcomes(outcomes)).values() if array is not None]


def cut(first_batch: LabelledBatch, learner: Learner, carried: list[Any], cuts: list[int]) -> Iterator[LabelledBatch]:
    """Cut a batch into pieces."""
    for start, stop in pairwise([0, *sorted(cuts), len(first_batch)]):
        segments = tuple(
            Segment(
                max(a, start) - start,
                min(b, stop) - start,
                name,
                offset + max(a, start) - a,
                after if a >= start else offset + start - a,
            )
            for a, b, name, offset, after in first_batch.segments
            if max(a, start) < min(b, stop)
        )
        yield batch(
            learner,
            carried[start:stop],
            first_batch.labels[start:stop],
            weights=None if first_batch.weights is None else first_batch.weights[start:stop],
            ids=None if first_batch.ids is None else first_batch.ids[start:stop],
            segments=segments,
        )


def stream(pipeline: Pipeline, learner: Learner, n: int, seed: int = 0) -> tuple[LabelledBatch, list[Any]]:
    """Draw a batch with weights, some repeated ids, and an overlapping source."""
    random = np.random.default_rng(seed)
    carried, y = events(pipeline, n, seed)
    ids = tuple(None if random.random() < 0.2 else f"id{random.integers(n)}" for _ in range(n))
    third = n // 3
    segments = (
        Segment(0, third, "s", 0, 0),
        Segment(third, 2 * third, "t", 9, 4),
        Segment(2 * third, n, "s", third - 5, third - 5),
    )
    weights = random.choice([0.0, 0.5, 1.0, 3.0], n)
    return batch(learner, carried, y, weights=weights, ids=ids, segments=segments), carried


PIPELINES = [
    Pipeline(name, kind)
    for name, algorithm in algorithms().items()
    for kind in FEATURES
    if (algorithm.TRAITS.sparse if kind in ("sparse", "named") else algorithm.TRAITS.dense)
]


_KINDS = {name: [pipeline.kind for pipeline in PIPELINES if pipeline.algorithm == name] for name in algorithms()}
# those of the plain tier: one kind of features for each algorithm, in turn
PLAIN = [Pipeline(name, kinds[i % len(kinds)]) for i, (name, kinds) in enumerate(_KINDS.items())]


def parametrize(pipelines: Sequence[Pipeline]) -> pytest.MarkDecorator:
    """Run a test with those of `PLAIN`; campaigns have every pipeline."""
    marked = [
        pytest.param(
            pipeline,
            id=f"{pipeline.algorithm}-{pipeline.kind}",
            marks=() if pipeline in PLAIN else (pytest.mark.campaign,),
        )
        for pipeline in pipelines
    ]
    return pytest.mark.parametrize("pipeline", marked)


def crossed(name: str, values: Sequence[Any], usual: Callable[[int], Any]) -> pytest.MarkDecorator:
    """Run a test with each pipeline and each value, of which `usual` gives one for the place of an algorithm.

    The plain tier has those of `PLAIN` with their usual value, and all of cbr-diag. Campaigns have the rest.
    """
    places = {algorithm: place for place, algorithm in enumerate(_KINDS)}
    cases = []
    for pipeline in PIPELINES:
        for value in values:
            plain = pipeline in PLAIN and value == usual(places[pipeline.algorithm])
            marks = () if plain or pipeline.algorithm == "cbr-diag" else (pytest.mark.campaign,)
            cases.append(pytest.param(pipeline, value, id=f"{pipeline.algorithm}-{pipeline.kind}-{value}", marks=marks))
    return pytest.mark.parametrize(("pipeline", name), cases)


ONLINE = parametrize([pipeline for pipeline in PIPELINES if not pipeline.batch])
EVERY = parametrize(PIPELINES)
