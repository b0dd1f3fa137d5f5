"""One run: scale, embed, tune, train, measure. The algorithms' own modules, one kernel call per pass."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.papers import measures, splits
from benchmarks.papers.datasets import WIDEST_DENSE, Data, Task, dense, pick
from benchmarks.papers.protocol import Method, Protocol, settings
from benchmarks.papers.scaling import scaled
from learners import algorithms
from learners.algorithms.base import linear_scores
from learners.decisions import threshold
from learners.features import kernel_approximation
from learners.numerics.arrays import Matrix, Rows, Sparse, Vector

__all__ = ["Model", "Unfit", "run", "split_of"]

_EMBEDDED_FROM = 20_000  # rows that landmarks and kernel width are taken from, at most
_WARM_ROWS = 40


class Unfit(Exception):
    """The algorithm cannot take this set; says why."""


class Model(NamedTuple):
    """What training made."""

    params: Any
    state: Any
    scores: Matrix  # prequential, of the last pass; empty for a batch algorithm
    seconds: float


class Part(NamedTuple):
    """Rows with their labels."""

    rows: Rows
    y: Vector


def seed_of(task: Task, trial: int) -> int:
    """Return the seed of a trial: all methods get the same splits and orders."""
    return zlib.crc32(f"{task.name} {trial}".encode())


def split_of(protocol: Protocol, data: Data, seed: int, fold: int) -> splits.Split:
    """Return the training rows in learning order, and the test rows; online: the stream, and the rows for tuning."""
    if protocol.kind == "online":
        return splits.holdout(data.y, 0.1, seed)
    if data.train is not None:
        return splits.as_divided(len(data.y), data.train, seed)
    if protocol.folds > 1:
        return splits.folds(data.y, protocol.folds, seed)[fold]
    return splits.holdout(data.y, 0.2, seed)


def run(protocol: Protocol, method: Method, task: Task, data: Data, trial: int, fold: int) -> dict[str, Any]:
    """Return the metrics of one run, the chosen settings, and the seconds of a processor for the final training.

    "learning" is without the time for an embedding.

    Raises `Unfit`, and ValueError where the algorithm finds no model.
    """
    seed = seed_of(task, trial)
    train, test, dim, seconds = _prepared(protocol, method, data, seed, fold)
    ranks = {"ranks": int(data.y.max())} if protocol.kind == "ordinal" else {}
    choices = [{**ranks, **choice} for choice in protocol.choices(method)]
    tuned_on = test if protocol.kind == "online" else train
    setting = _tuned(protocol, method, choices, tuned_on, dim, seed) if len(choices) > 1 else choices[0]
    if len(choices) == 1:  # nothing has run yet: let compiling not count
        warm = splits.holdout(train.y, min(0.5, _WARM_ROWS / len(train.y)), seed).test
        _train(method, setting, Part(pick(train.rows, warm), train.y[warm]), dim, seed)
    model = _train(method, setting, train, dim, seed)
    result: dict[str, Any] = {"chosen": {k: v for k, v in setting.items() if k != "ranks"}}
    if protocol.kind == "online":
        began = time.process_time()
        called = _called(method, model, train.y)
        seconds += time.process_time() - began
        at, curve = measures.f1_curve(train.y, called)
        result |= {"f1": measures.f1(train.y, called), "at": at, "curve": curve}
    else:
        result |= _measured(protocol, method, model, test)
    return result | {"seconds": seconds + model.seconds, "learning": model.seconds}


def _prepared(protocol: Protocol, method: Method, data: Data, seed: int, fold: int) -> tuple[Part, Part, int, float]:
    """Training and test part as the algorithm takes them, their width, and the seconds that embedding took."""
    if method.embedding:
        embedding = kernel_approximation.Embedding(
            kind=method.embedding, components=method.components or protocol.components
        )
        return _embedded(protocol, data, seed, fold, method.most, embedding)
    traits = algorithms()[method.algorithm].TRAITS
    train, test = _scaled(protocol, data, seed, fold, method.most, sparse=traits.sparse)
    if data.dim > traits.max_dim:
        raise Unfit(f"takes at most {traits.max_dim} columns")
    return train, test, data.dim, 0.0


def _scaled(
    protocol: Protocol, data: Data, seed: int, fold: int, most: int | None, *, sparse: bool
) -> tuple[Part, Part]:
    """Training part of at most `most` rows, and test part; sparse rows are written out unless `sparse`."""
    split = split_of(protocol, data, seed, fold)
    if most is not None and len(split.train) > most:  # with the classes in their shares
        subset = splits.holdout(data.y[split.train], most / len(split.train), seed).test
        split = split._replace(train=split.train[subset])
    kind, rows = protocol.scaling, data.rows
    if isinstance(rows, Sparse):
        if not sparse or protocol.sparse_scaling is None:
            if data.dim > WIDEST_DENSE:
                raise Unfit(f"takes dense rows only, and {data.dim} columns are too many to write out")
            rows = dense(rows, data.dim)
        kind = protocol.sparse_scaling or kind
    train, test = scaled(kind, pick(rows, split.train), pick(rows, split.test), data.dim)
    return Part(train, data.y[split.train]), Part(test, data.y[split.test])


_last: dict[tuple[Any, ...], tuple[Part, Part, int, float]] = {}  # the embedded rows that methods share


def _embedded(
    protocol: Protocol,
    data: Data,
    seed: int,
    fold: int,
    most: int | None,
    embedding: kernel_approximation.Embedding,
) -> tuple[Part, Part, int, float]:
    """Return what `_prepared` does; the same call in a row costs nothing."""
    key = (protocol, data, seed, fold, most, embedding)
    if key in _last:
        return _last[key]
    _last.clear()  # first, because embedded rows may fill gigabytes
    train, test = _scaled(protocol, data, seed, fold, most, sparse=False)
    rows, others = train.rows, test.rows
    assert not isinstance(rows, Sparse)
    assert not isinstance(others, Sparse)
    compiled = kernel_approximation.fit(embedding, rows[:2], seed)  # before the clock starts
    kernel_approximation.transform(embedding, compiled, rows[:2])
    began = time.process_time()
    space = kernel_approximation.fit(embedding, rows[:_EMBEDDED_FROM], seed)
    rows = kernel_approximation.transform(embedding, space, rows)
    seconds = time.process_time() - began
    others = kernel_approximation.transform(embedding, space, others)
    columns = kernel_approximation.columns(space)
    _last[key] = train._replace(rows=rows), test._replace(rows=others), columns, seconds
    return _last[key]


def _tuned(
    protocol: Protocol, method: Method, choices: list[dict[str, float]], part: Part, dim: int, seed: int
) -> dict[str, float]:
    """Return the first of the best settings by cross-validation on `part` (online: by F of one pass over it)."""
    y = part.y
    if len(y) > protocol.tuning_rows:
        sample = splits.holdout(y, protocol.tuning_rows / len(y), seed).test
        part, y = Part(pick(part.rows, sample), y[sample]), y[sample]
    if protocol.kind == "online":
        order = np.random.default_rng(seed).permutation(len(y))
        pairs = [(Part(pick(part.rows, order), y[order]), part)]
    else:
        pairs = [
            (Part(pick(part.rows, fold.train), y[fold.train]), Part(pick(part.rows, fold.test), y[fold.test]))
            for fold in splits.folds(y, protocol.tuning_folds, seed)
        ]
    sign = -1.0 if protocol.criterion in measures.LOWER_IS_BETTER else 1.0
    best, best_choice = -np.inf, choices[0]
    for choice in choices:
        value = float(np.mean([sign * _quality(protocol, method, choice, *pair, dim, seed) for pair in pairs]))
        if value > best:  # never of NaN
            best, best_choice = value, choice
    return best_choice


def _quality(
    protocol: Protocol, method: Method, choice: Mapping[str, float], train: Part, test: Part, dim: int, seed: int
) -> float:
    """Return the criterion of one setting on one fold; NaN if there is no model."""
    try:
        model = _train(method, choice, train, dim, seed)
    except ValueError:
        return float("nan")
    if protocol.kind == "online":
        return measures.f1(train.y, _called(method, model, train.y))
    return _measured(protocol, method, model, test)[protocol.criterion]


def _train(method: Method, setting: Mapping[str, float], part: Part, dim: int, seed: int) -> Model:
    """Learn in order, or fit. Raises ValueError where there is no model."""
    algorithm: Any = algorithms()[method.algorithm]
    params = algorithm.Params(**settings(method, setting))
    weight = np.ones(len(part.y))
    if hasattr(algorithm, "fit"):
        began = time.process_time()
        state = algorithm.fit(params, part.rows, dim, part.y, weight, seed)
        return Model(params, state, np.empty(0), time.process_time() - began)
    scores = np.empty((len(part.y), params.ranks) if algorithm.TRAITS.ordinal else len(part.y))
    began = time.process_time()
    state = algorithm.init(params, dim, seed)
    for _ in range(method.passes):
        state = algorithm.learn(params, state, part.rows, part.y, weight, scores)
    return Model(params, state, scores, time.process_time() - began)


def _measured(protocol: Protocol, method: Method, model: Model, test: Part) -> dict[str, float]:
    """Compute the metrics of a model on unseen rows. Raises ValueError if a score is not finite."""
    algorithm: Any = algorithms()[method.algorithm]
    values = linear_scores(algorithm.weights(model.params, model.state), test.rows)
    if not np.isfinite(values).all():
        raise ValueError(f"{method.name} gives scores that are not finite")
    if protocol.kind == "ordinal":
        return measures.ordinal(algorithm.decide(model.params, values).ranks, test.y)
    return measures.ranking(values, test.y)


def _called(method: Method, model: Model, y: Vector) -> NDArray[np.bool_]:
    """Which events were called positive, each before it was learnt, (n,)."""
    traits = algorithms()[method.algorithm].TRAITS
    if not traits.posterior:
        raise ValueError(f"the scores of {method.algorithm} are no log-odds; expected an algorithm with a posterior")
    values = dict(method.threshold or traits.defaults.get("threshold", {}))
    if values.get("horizon") == 0:
        values["horizon"] = len(y)
    setting = threshold.Threshold(**values, cautious=values["objective"] not in threshold.CAUTIOUS)
    probabilities = expit(model.scores)
    n = len(y)
    thresholds, decisions = np.empty(n), np.empty(n, dtype=np.int64)
    decided, costs, clocks = np.ones(n, dtype=np.bool_), np.ones(n), np.full(n, np.nan)
    threshold.learn(setting, threshold.init(setting), probabilities, y, decided, costs, clocks, thresholds, decisions)
    called: NDArray[np.bool_] = decisions > 0
    return called
