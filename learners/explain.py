"""Explanations of a score: the contribution of each feature, by name.

    score(x) = intercept + sum_j c_j(x),  intercept = score(0)

x is the scaled event, as the algorithm takes it, and 0 is the row of zeros. So a contribution says how a feature moves
the score from what it would be with the feature at zero:

    standard  dense numbers: from the running mean; sparse numbers: from 0, because they are not centred
    maxabs    from 0
    unit      from 0; the divisor is the norm of the whole event
    none      from 0
    tables    a category: from no category; a missing number: of its missing bit, with the number at zero

A feature is one column of the encoded event (`Features.encode`); the columns of one field of a table count together.
Hashed features with the same column cannot be distinguished, and count as one.

Linear scores: c_j = w_j x_j is exact, and also the Shapley value. O(columns), or O(non-zeros) if sparse.

Trees: c_j is the exact Shapley value of feature j, and the intercept is the mean score of the fitted events, not
score(0). For a set of features, the value is the expected score if only they are known: at a split on another feature,
both sides count by their share of the fitted events (`learners.algorithms._trees`). A feature that a sparse event lacks
counts, too, as a 0; these contributions are in the rest. O(leaves * depth^2) per event.

Ensembles (`auto`): each member as above or, behind an embedding for itself, as below, by its factor in the combination;
a pair of columns counts half for each.

Behind an embedding the score is no sum over features. There the features are switched from 0 to their values one after
the other, in the order of the columns and in reverse. c_j is the mean of the two changes of the score. The c_j add up
as above. They are Shapley values if features act alone or in pairs, which always holds for two features. Otherwise they
are an estimate from two permutations, and depend on the order of the columns.
O(features * (dim + components) * components).

References
----------
Štrumbelj, Kononenko. An Efficient Explanation of Individual Classifications using Game Theory. JMLR 11, 2010: Shapley
values by sampling permutations.
Mitchell, Cooper, Frank, Holmes. Sampling Permutations for Shapley Value Estimation. JMLR 23, 2022: antithetic
sampling, a permutation together with its reverse.
Departures: two fixed permutations, so that the same event always has the same explanation; absent features are zeros
instead of samples of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from learners.algorithms import (
    Ensemble,
    Trees,
    attributions,
    custom_scores,
    embeddings_of,
    ensemble_parts,
    trees_of,
)
from learners.model import CHUNK_NUMBERS
from learners.numerics import Counts, Matrix, Rows, Sparse, Vector
from learners.scorer import Scorer
from learners.settings import InvalidInput, Problem, show

__all__ = ["MAX_FEATURES", "MAX_REPORTED", "MAX_WORK", "ScoreExplanation", "explain_scores", "work"]

MAX_FEATURES = 1000  # reported per event
MAX_REPORTED = 100_000  # features reported per call: bounds the reply
MAX_WORK = 2**33  # per call, see `work`: some seconds
_EVENT_WORK = 2**16  # fixed work per event, in multiplications: some 30 microseconds
_NODE_WORK = 2**7  # per node of a tree, in multiplications
_NUMBER_WORK = 2**9  # work to read and name one number of an event, in multiplications


class ScoreExplanation(NamedTuple):
    """Explanation of one event's score: intercept + contributions + rest = score, within rounding."""

    intercept: float  # what the score would be without any feature's contribution
    features: list[tuple[str, float]]  # the k largest by absolute contribution, largest first: name, contribution
    rest: float  # the sum of all other contributions


class _Contributions(NamedTuple):
    """The contributions to one event's score, by column of its encoded row."""

    intercept: float
    columns: Counts  # (f,) ascending
    values: Vector  # (f,)
    absent: float = 0.0  # the sum of the contributions of columns that the event lacks


def explain_scores(scorer: Scorer, values: Sequence[Any], k: int) -> list[ScoreExplanation]:
    """Explain the scores that `scorer.score` gives n events by the contributions of their features.

    `values` are the events' features: lists, (indices, values) pairs or dicts. Returns each event's k largest
    contributions, or fewer if it has fewer features; ties are in the order of the columns. Contributions of 0 are
    included; before the first fit of a batch algorithm, and for unseen columns, all are 0. Names are from
    `Features.names`. Changes nothing; an explanation does not depend on the other events. Contributions that overflow
    are infinite or NaN, like the score.

    Raises `InvalidInput` for an ordinal learner and for events that `Config.encode` refuses. With pointer /explain: for
    k outside 1 to `MAX_FEATURES`, for more than `MAX_REPORTED` features, and for more `work` than `MAX_WORK`.
    """
    config = scorer.config
    if config.labels.ranks is not None:
        detail = f"explanations are for learners of two classes; {config.algorithm} predicts ranks"
        raise InvalidInput([Problem("", detail)])
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= MAX_FEATURES:
        raise InvalidInput([Problem("/explain", f"is {show(k)}; expected a whole number from 1 to {MAX_FEATURES}")])
    if len(values) * k > MAX_REPORTED:
        detail = f"is {k} for each of {len(values)} events; expected at most {MAX_REPORTED} features in all"
        raise InvalidInput([Problem("/explain", detail)])
    rows = scorer.columns.encoded(config.encode(values))
    _check_work(work(scorer, rows), len(values))
    with np.errstate(over="ignore", invalid="ignore"):  # see above
        return [
            _largest(scorer, value, contributions, k)
            for value, contributions in zip(values, _contributions(scorer, rows), strict=True)
        ]


def work(scorer: Scorer, rows: Rows) -> int:
    """Estimate the work of explaining encoded events, encoding included, in multiplications."""
    nodes = sum(len(trees.right) for trees in trees_of(scorer.weights))
    if isinstance(rows, Sparse):
        return _NUMBER_WORK * len(rows.data) + (_NODE_WORK * nodes + _EVENT_WORK) * (len(rows.indptr) - 1)
    events, features = rows.shape
    scoring = scorer.columns.dim + _NODE_WORK * nodes
    if scorer.embedding is not None:
        scoring = 0
    spaces = embeddings_of(scorer.weights) if scorer.embedding is None else [scorer.embedding]
    scoring += 2 * (features + 1) * sum(array.size for space in spaces for array in space)
    return int(events * (scoring + _NUMBER_WORK * features + _EVENT_WORK))


def _check_work(needed: int, events: int) -> None:
    if needed > MAX_WORK:
        most = MAX_WORK * events // needed  # all events take about the same
        expected = f"expected at most {most} events at once" if most else "this model is too large to be explained"
        detail = f"takes about {needed:.2g} multiplications for {events} events, of {MAX_WORK:.2g} allowed; {expected}"
        raise InvalidInput([Problem("/explain", detail)])


def _largest(scorer: Scorer, value: Any, contributions: _Contributions, k: int) -> ScoreExplanation:
    """Select the k largest contributions by name. O(f + k log k) for f contributions, plus the naming."""
    intercept, columns, parts, absent = contributions
    size = np.nan_to_num(np.abs(parts), nan=np.inf)
    largest = np.arange(len(size))
    if k < len(size):
        largest = np.flatnonzero(size >= np.partition(size, -k)[-k])  # with all that tie with the k-th
    largest = largest[np.argsort(-size[largest], kind="stable")][:k]
    names = scorer.config.features.names(value, columns[largest].tolist())
    features = list(zip(names, parts[largest].tolist(), strict=True))
    return ScoreExplanation(intercept, features, float(np.delete(parts, largest).sum()) + absent)


def _contributions(scorer: Scorer, rows: Rows) -> Iterator[_Contributions]:
    """Compute the contributions of each event in order; dense rows in pieces, because a table's rows may be long."""
    mapped = scorer.columns.sources()
    if isinstance(rows, Sparse):
        yield from _sparse(scorer, rows, mapped)
        return
    columns = np.arange(rows.shape[1])
    step = max(1, CHUNK_NUMBERS // scorer.columns.dim)
    for start in range(0, len(rows), step):
        ready = scorer.scaled_rows(rows[start : start + step])
        assert not isinstance(ready, Sparse)
        weights = scorer.weights
        if scorer.embedding is not None:
            for row in ready:
                intercept, changes = _switched(scorer.scaled_values, row, mapped, columns)
                yield _Contributions(intercept, columns, changes)
        elif isinstance(weights, Trees):
            intercept, values = attributions(weights, ready, mapped[weights.columns], len(columns))
            yield from (_Contributions(intercept, columns, parts) for parts in values)
        elif isinstance(weights, Ensemble):
            parts_of_models = ensemble_parts(weights, ready)
            for i, (intercept, numbers) in enumerate(
                zip(parts_of_models.intercepts.tolist(), parts_of_models.numbers.reshape(ready.shape), strict=True)
            ):
                parts = np.zeros(len(columns))
                np.add.at(parts, mapped, numbers)
                for member, slopes in parts_of_models.embedded:
                    zero, changes = _switched(partial(custom_scores, member), ready[i], mapped, columns)
                    intercept += float(slopes[i]) * zero
                    parts += slopes[i] * changes
                yield _Contributions(intercept, columns, parts)
        else:
            for row in ready:
                parts = np.zeros(len(columns))
                np.add.at(parts, mapped, row * weights.w)
                yield _Contributions(float(weights.bias[0]), columns, parts)


def _sparse(scorer: Scorer, rows: Sparse, mapped: Counts) -> Iterator[_Contributions]:
    """Compute contributions by encoded column for sparse events; an unseen column contributes 0."""
    ready = scorer.scaled_rows(rows)
    assert isinstance(ready, Sparse)
    weights = scorer.weights
    if isinstance(weights, Trees):
        slots = np.arange(len(weights.columns))
        intercept, values = attributions(weights, ready, slots, len(slots))
        read = mapped[weights.columns]  # the encoded column of each slot
        for start, stop, by_slot in zip(rows.indptr[:-1], rows.indptr[1:], values, strict=True):
            columns = rows.indices[start:stop]
            has = np.isin(read, columns)
            parts = np.zeros(len(columns))
            parts[np.searchsorted(columns, read[has])] = by_slot[has]
            yield _Contributions(intercept, columns, parts, float(by_slot[~has].sum()))
        return
    if isinstance(weights, Ensemble):
        parts_of_models = ensemble_parts(weights, ready)
        intercepts, numbers, absent = (
            parts_of_models.intercepts.tolist(),
            parts_of_models.numbers,
            parts_of_models.absent.tolist(),
        )
    else:
        count = len(rows.indptr) - 1
        intercepts, numbers, absent = (
            [float(weights.bias[0])] * count,
            ready.data * weights.w[ready.indices],
            [0.0] * count,
        )
    for start, stop, intercept, rest in zip(rows.indptr[:-1], rows.indptr[1:], intercepts, absent, strict=True):
        columns = rows.indices[start:stop]
        inner = ready.indices[start:stop]  # in another order
        seen = inner >= 0
        parts = np.zeros(len(columns))
        parts[np.searchsorted(columns, mapped[inner[seen]])] += numbers[start:stop][seen]
        yield _Contributions(intercept, columns, parts, rest)


def _switched(scores: Callable[[Matrix], Vector], row: Vector, mapped: Counts, columns: Counts) -> tuple[float, Vector]:
    """Compute the score of zeros, and the mean change over both orders as each of the `columns` is switched on.

    `scores` scores rows before their embedding. `row` (dim,) is scaled; `mapped` (dim,) has the feature of each of its
    columns.
    """
    features = len(columns)
    first, last = np.empty(features + 1), np.empty(features + 1)  # by j: of features 0 to j - 1, and of j to the end
    step = max(1, CHUNK_NUMBERS // len(row))
    for start in range(0, features + 1, step):
        cut = slice(start, min(start + step, features + 1))
        count = np.arange(cut.start, cut.stop)[:, None]
        first[cut] = scores(np.where(mapped < count, row, 0.0))
        last[cut] = scores(np.where(mapped >= count, row, 0.0))
    return float(first[0]), (np.diff(first) - np.diff(last)) / 2.0
