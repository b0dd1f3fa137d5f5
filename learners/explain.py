"""Why an event has the score it has: what each of its features contributes, by name.

    score(x) = intercept + sum_j c_j(x),  intercept = score(0)

x is the event as the algorithm takes it, after scaling, and 0 is the row of zeros there, so a contribution tells how a
feature moves the score away from what it would be with that feature at zero:

    standard  dense numbers: away from the number's running mean; sparse ones: away from 0, as they are not centred
    maxabs    away from 0; unit: likewise, and the norm that divides is that of the whole event
    none      away from 0
    tables    a category: away from no category at all; a missing number: of its missing bit, the number being at zero

A feature is what one column of the *encoded* event holds (`Features.encode`): the columns that a table makes of one
field are taken together. Features of a hashed event that fell on the same column cannot be told apart, and are one.

Linear scores: c_j = w_j x_j, exact, and the Shapley value as well. O(columns), sparse: O(non-zeros).

Behind an embedding the score is no sum over features. There the features are switched from 0 to their values one after
the other, and each contributes what the score moves by: in the order of the columns and in the reverse one, c_j being
the mean of both. The c_j then add up as above, but what features do jointly is shared out by the orders taken: these
are Shapley values where they act alone or in pairs (always for two features), and else an estimate from two
permutations, which depends on the order of the columns. O(features * (dim + components) * components).

References
----------
Štrumbelj, Kononenko. An Efficient Explanation of Individual Classifications using Game Theory. JMLR 11, 2010: Shapley
values by sampling permutations.
Mitchell, Cooper, Frank, Holmes. Sampling Permutations for Shapley Value Estimation. JMLR 23, 2022: antithetic
sampling, a permutation together with its reverse.
Departures: two permutations, fixed, so that the same event always has the same explanation; absent features are zeros
instead of draws from the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from learners.algorithms import linear_scores
from learners.features import EmbeddingState, kernel_approximation
from learners.model import CHUNK_NUMBERS
from learners.numerics import Counts, Matrix, Rows, Sparse, Vector
from learners.scorer import Scorer
from learners.settings import InvalidInput, Problem, show

__all__ = ["MAX_FEATURES", "MAX_REPORTED", "MAX_WORK", "ScoreExplanation", "explain_scores", "work"]

MAX_FEATURES = 1000  # told of one event
MAX_REPORTED = 100_000  # features told in one call: bounds what comes back
MAX_WORK = 2**33  # of one call, see `work`: some seconds
_EVENT_WORK = 2**16  # multiplications that take as long as what is done once for an event, some 30 microseconds,
_NUMBER_WORK = 2**9  # and as long as to read and name one of its numbers


class ScoreExplanation(NamedTuple):
    """Of one event. intercept + the contributions + rest = score, within rounding."""

    intercept: float  # what the score would be without any feature's contribution
    features: list[tuple[str, float]]  # the k largest by absolute contribution, largest first: name, contribution
    rest: float  # the sum of all the others


class _Contributions(NamedTuple):
    """Of one event, by column of its encoded row."""

    intercept: float
    columns: Counts  # (f,) ascending
    values: Vector  # (f,)


def explain_scores(scorer: Scorer, values: Sequence[Any], k: int) -> list[ScoreExplanation]:
    """What the features of n events contribute to the scores that `scorer.score` gives them.

    `values` is what the events carry: lists, (indices, values) pairs or dicts. Each event's k largest contributions are
    told, ties in the order of the columns; fewer where it has fewer features, of which those that contribute 0 are told
    as well: all of them where a batch algorithm has not been fitted yet, or a column was never met. Names are as in
    `Features.names`. Changes nothing; an event's explanation does not depend on the others. Contributions that overflow
    are infinite or NaN, as the score then is.

    Raises `InvalidInput` for an ordinal learner and for events that `Config.encode` refuses. With pointer /explain: for
    k outside 1 to `MAX_FEATURES`, for more than `MAX_REPORTED` features, and for more `work` than `MAX_WORK`.
    """
    config = scorer.config
    if config.labels.ranks is not None:
        detail = f"explanations are for learners of two classes; {config.algorithm} tells ranks"
        raise InvalidInput([Problem("", detail)])
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= MAX_FEATURES:
        raise InvalidInput([Problem("/explain", f"is {show(k)}; expected a whole number from 1 to {MAX_FEATURES}")])
    if len(values) * k > MAX_REPORTED:
        detail = f"is {k} for each of {len(values)} events; expected at most {MAX_REPORTED} features in all"
        raise InvalidInput([Problem("/explain", detail)])
    rows = config.encode(values)
    _check_work(work(scorer, rows), len(values))
    with np.errstate(over="ignore", invalid="ignore"):  # see above
        return [
            _largest(scorer, value, contributions, k)
            for value, contributions in zip(values, _contributions(scorer, rows), strict=True)
        ]


def work(scorer: Scorer, rows: Rows) -> int:
    """How many multiplications would take about as long as to explain encoded events, encoding included."""
    if isinstance(rows, Sparse):
        return _NUMBER_WORK * len(rows.data) + _EVENT_WORK * (len(rows.indptr) - 1)
    events, features = rows.shape
    one = scorer.columns.dim
    if scorer.embedding is not None:
        one = 2 * (features + 1) * sum(array.size for array in scorer.embedding)
    return int(events * (one + _NUMBER_WORK * features + _EVENT_WORK))


def _check_work(needed: int, events: int) -> None:
    if needed > MAX_WORK:
        most = MAX_WORK * events // needed  # each event takes about as much as any other
        expected = f"expected at most {most} events at once" if most else "this model is too large to be explained"
        detail = f"takes about {needed:.2g} multiplications for {events} events, of {MAX_WORK:.2g} allowed; {expected}"
        raise InvalidInput([Problem("/explain", detail)])


def _largest(scorer: Scorer, value: Any, contributions: _Contributions, k: int) -> ScoreExplanation:
    """The k largest contributions by name. O(f + k log k) for f of them, and what naming takes."""
    intercept, columns, parts = contributions
    size = np.nan_to_num(np.abs(parts), nan=np.inf)
    told = np.arange(len(size))
    if k < len(size):
        told = np.flatnonzero(size >= np.partition(size, -k)[-k])  # with all that tie with the k-th
    told = told[np.argsort(-size[told], kind="stable")][:k]
    names = scorer.config.features.names(value, columns[told].tolist())
    features = list(zip(names, parts[told].tolist(), strict=True))
    return ScoreExplanation(intercept, features, float(np.delete(parts, told).sum()))


def _contributions(scorer: Scorer, rows: Rows) -> Iterator[_Contributions]:
    """Of each event, in order. Dense ones go in pieces: a table's own rows may be far longer than what it is given."""
    mapped = scorer.columns.sources()
    if isinstance(rows, Sparse):
        yield from _sparse(scorer, rows, mapped)
        return
    columns = np.arange(rows.shape[1])
    step = max(1, CHUNK_NUMBERS // scorer.columns.dim)
    for start in range(0, len(rows), step):
        ready = scorer.scaled_rows(rows[start : start + step])
        assert not isinstance(ready, Sparse)
        for row in ready:
            if scorer.embedding is None:
                intercept, parts = float(scorer.weights.bias[0]), np.zeros(len(columns))
                np.add.at(parts, mapped, row * scorer.weights.w)
            else:
                intercept, parts = _switched(scorer, scorer.embedding, row, mapped, len(columns))
            yield _Contributions(intercept, columns, parts)


def _sparse(scorer: Scorer, rows: Sparse, mapped: Counts) -> Iterator[_Contributions]:
    """w_j x_j by encoded column, of sparse events; a column that was never met contributes 0."""
    ready = scorer.scaled_rows(rows)
    assert isinstance(ready, Sparse)
    for start, stop in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        columns = rows.indices[start:stop]
        own = ready.indices[start:stop]  # in another order
        known = own >= 0
        parts = np.zeros(len(columns))
        parts[np.searchsorted(columns, mapped[own[known]])] += (
            ready.data[start:stop][known] * scorer.weights.w[own[known]]
        )
        yield _Contributions(float(scorer.weights.bias[0]), columns, parts)


def _switched(
    scorer: Scorer, space: EmbeddingState, row: Vector, mapped: Counts, features: int
) -> tuple[float, Vector]:
    """The score of zeros, and what it moves by as each feature takes its values: the mean of both orders, (features,).

    `row` (dim,) is scaled, and `mapped` (dim,) the feature of each of its columns.
    """

    def score(on: Any) -> Vector:
        """The scores with only those values that are `on` (n, dim)."""
        path: Matrix = np.where(on, row, 0.0)
        return linear_scores(scorer.weights, kernel_approximation.look(scorer.config.embedding, space, path))

    first, last = np.empty(features + 1), np.empty(features + 1)  # by j: of features 0 to j - 1, and of j to the end
    step = max(1, CHUNK_NUMBERS // max(len(row), kernel_approximation.columns(space)))
    for start in range(0, features + 1, step):
        cut = slice(start, min(start + step, features + 1))
        count = np.arange(cut.start, cut.stop)[:, None]
        first[cut] = score(mapped < count)
        last[cut] = score(mapped >= count)
    return float(first[0]), (np.diff(first) - np.diff(last)) / 2.0
