"""Ensembles of trees as arrays: scores and attributions against their definitions, and what no fit makes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from learners.algorithms._trees import (
    MAX_DEPTH,
    Trees,
    attributions,
    chosen_columns,
    columns_of_rows,
    empty,
    examples,
    grow_columns,
    tree_problems,
    tree_scores,
)
from learners.numerics.arrays import Matrix, Vector
from tests.learners.streams import as_sparse, same_bits


def random_trees(seed: int, *, trees: int = 3, depth: int = 4, slots: int = 4, dim: int = 6) -> Trees:
    """Draw an ensemble; its trees split on a column several times."""
    random = np.random.default_rng(seed)
    right: list[int] = []
    slot, missing, threshold, value, cover = [], [], [], [], []

    def node(level: int, weight: float) -> None:
        place = len(right)
        leaf = level == depth or (level > 0 and random.random() < 0.25)
        right.append(0)
        slot.append(0 if leaf else int(random.integers(slots)))
        missing.append(0 if leaf else int(random.integers(2)))
        threshold.append(0.0 if leaf else float(random.normal()))
        value.append(float(random.normal()) if leaf else 0.0)
        cover.append(weight)
        if not leaf:
            share = random.uniform(0.1, 0.9)
            node(level + 1, share * weight)
            right[place] = len(right)
            node(level + 1, (1.0 - share) * weight)

    starts = []
    for _ in range(trees):
        starts.append(len(right))
        node(0, 100.0)
    columns = np.sort(random.choice(dim, slots, replace=False)).astype(np.int64)
    return Trees(
        np.ones(dim),
        columns,
        np.array(starts),
        np.array(right, dtype=np.int32),
        np.array(slot, dtype=np.int32),
        np.array(missing, dtype=np.int8),
        np.array(threshold),
        np.array(value),
        np.array(cover),
        np.array([0.5]),
    )


def expected(trees: Trees, i: int, x: Vector, coalition: frozenset[int], players: Any) -> float:
    """Return the expected value below node i if only the columns of the players in `coalition` count, by definition."""
    if not trees.right[i]:
        return float(trees.value[i])
    left, right = i + 1, int(trees.right[i])
    if players[trees.slot[i]] in coalition:
        number = x[trees.columns[trees.slot[i]]]
        goes_left = number <= trees.threshold[i] or (math.isnan(number) and trees.missing[i] == 1)
        return expected(trees, left if goes_left else right, x, coalition, players)
    share = trees.cover[left] / trees.cover[i]
    return float(
        share * expected(trees, left, x, coalition, players)
        + trees.cover[right] / trees.cover[i] * expected(trees, right, x, coalition, players)
    )


def rows(seed: int, n: int = 5, dim: int = 6) -> Matrix:
    """Draw rows with zeros and NaN."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, dim))
    X[random.random((n, dim)) < 0.2] = 0.0
    X[random.random((n, dim)) < 0.2] = np.nan
    return X


@pytest.mark.parametrize("seed", range(8))
def test_scores_are_the_sums_of_the_leaves(seed: int) -> None:
    trees, X = random_trees(seed), rows(seed)
    everyone = frozenset(range(4))
    scores = [
        0.5 + math.fsum(expected(trees, start, x, everyone, range(4)) for start in trees.starts.tolist()) for x in X
    ]
    np.testing.assert_allclose(tree_scores(trees, X), scores, rtol=1e-12)
    assert tree_scores(trees, as_sparse(X)).tobytes() == tree_scores(trees, X).tobytes()


@pytest.mark.parametrize("players", [(0, 1, 2, 3), (0, 1, 0, 2), (1, 0, 0, 1), (0, 0, 0, 0)], ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_attributions_are_shapley_values(seed: int, players: tuple[int, ...]) -> None:
    trees, X = random_trees(seed, depth=6), rows(seed)
    count = 1 + max(players)

    def worth(x: Vector, coalition: tuple[int, ...]) -> float:
        values = [expected(trees, start, x, frozenset(coalition), players) for start in trees.starts.tolist()]
        return 0.5 + math.fsum(values)

    for convert in (np.ascontiguousarray, as_sparse):
        intercept, parts = attributions(trees, convert(X), np.array(players), count)
        assert intercept == pytest.approx(worth(X[0], ()), abs=1e-12)
        np.testing.assert_allclose(intercept + parts.sum(axis=1), tree_scores(trees, X), atol=1e-12)
        for x, row in zip(X, parts, strict=True):
            for player in range(count):
                others = [other for other in range(count) if other != player]
                shapley = math.fsum(
                    (worth(x, (*coalition, player)) - worth(x, coalition)) / (count * math.comb(count - 1, size))
                    for size in range(count)
                    for coalition in itertools.combinations(others, size)
                )
                assert row[player] == pytest.approx(shapley, abs=1e-12)


def test_an_ensemble_without_trees_scores_everything_0() -> None:
    trees = empty(6)
    assert not tree_scores(trees, rows(0)).any()
    assert not list(tree_problems(trees))
    intercept, parts = attributions(trees, rows(0), np.zeros(0, dtype=np.int64), 2)
    assert (intercept, parts.any()) == (0.0, False)


def test_more_columns_change_no_score() -> None:
    trees, X = random_trees(0), rows(0)
    grown = grow_columns(trees, 9)
    assert grown.gain.shape == (9,)
    assert not list(tree_problems(grown))
    assert tree_scores(grown, np.hstack([X, X[:, :3]])).tobytes() == tree_scores(trees, X).tobytes()


def chain(depth: int) -> Trees:
    """Return one tree whose right children split `depth` times."""
    m = 2 * depth + 1
    inner = np.arange(m) % 2 == 0
    inner[-1] = False
    right = np.where(inner, np.arange(m) + 2, 0).astype(np.int32)
    zeros = np.zeros(m)
    first = np.zeros(1, dtype=np.int64)
    slot, missing = np.zeros(m, dtype=np.int32), np.zeros(m, dtype=np.int8)
    value = np.where(inner, 0.0, np.arange(m))
    return Trees(np.ones(2), first, first, right, slot, missing, zeros, value, np.ones(m), np.zeros(1))


def test_the_deepest_trees_are_valid_and_explained() -> None:
    trees, X = chain(MAX_DEPTH), np.array([[1.0, 0.0], [-1.0, 0.0]])
    assert not list(tree_problems(trees))
    intercept, parts = attributions(trees, X, np.array([0]), 2)
    np.testing.assert_allclose(intercept + parts.sum(axis=1), tree_scores(trees, X), rtol=1e-12)
    assert [name for name, _ in tree_problems(chain(MAX_DEPTH + 1))] == ["right"]


# A tree of five nodes: 0 splits into 1 and 4, 1 into 2 and 3
SMALL = Trees(
    np.ones(3),
    np.array([0, 2]),
    np.array([0]),
    np.array([4, 3, 0, 0, 0], dtype=np.int32),
    np.array([0, 1, 0, 0, 0], dtype=np.int32),
    np.array([0, 1, 0, 0, 0], dtype=np.int8),
    np.zeros(5),
    np.zeros(5),
    np.array([4.0, 2.0, 1.0, 1.0, 2.0]),
    np.zeros(1),
)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("right", [4, 4, 0, 0, 0]),  # a child of two nodes
        ("right", [4, 0, 0, 0, 0]),  # nodes without a parent
        ("right", [1, 3, 0, 0, 0]),  # the left child twice
        ("right", [4, 1, 0, 0, 0]),  # a cycle
        ("right", [5, 3, 0, 0, 0]),  # beyond the end
        ("right", [4, 3, 0, 0, 2**31 - 1]),
        ("slot", [0, 2, 0, 0, 0]),
        ("slot", [0, 1, 0, 0]),
        ("missing", [0, 2, 0, 0, 0]),
        ("cover", [4.0, 2.0, 0.0, 1.0, 2.0]),
        ("cover", [4.0, 2.0, -1.0, 1.0, 2.0]),
        ("gain", [1.0, -1.0, 1.0]),
        ("columns", [2, 0]),
        ("columns", [0, 0]),
        ("columns", [0, 3]),
        ("starts", [1]),
        ("starts", []),
        ("starts", [0, 0]),
        ("starts", [0, 5]),
        ("starts", [0, 4]),  # the first tree would end before its right child
        ("bias", [0.0, 0.0]),
        ("bias", []),
    ],
    ids=str,
)
def test_what_no_fit_makes_is_found(name: str, values: list[Any]) -> None:
    assert not list(tree_problems(SMALL))
    array = np.array(values, dtype=getattr(SMALL, name).dtype)
    assert list(tree_problems(SMALL._replace(**{name: array})))


def test_two_trees_do_not_share_nodes() -> None:
    right = np.array([2, 0, 0, 2, 0])  # the second tree goes back into the first
    assert list(tree_problems(SMALL._replace(starts=np.array([0, 3]), right=right)))
    right = np.array([2, 0, 0, 5, 0, 0])
    fields = {name: np.resize(getattr(SMALL, name), 6) for name in ("slot", "missing", "threshold", "value")}
    assert not list(tree_problems(SMALL._replace(starts=np.array([0, 3]), right=right, cover=np.ones(6), **fields)))


def test_trees_read_the_columns_that_most_rows_have() -> None:
    X = np.array([[1.0, 0.0, 2.0, 0.0], [1.0, 3.0, 0.0, 0.0], [1.0, 0.0, 4.0, 5.0]])
    assert chosen_columns(X, 4, 2).tolist() == [0, 1, 2, 3]
    sparse = as_sparse(X)
    assert chosen_columns(sparse, 4, 2).tolist() == [0, 2]
    assert chosen_columns(sparse, 4, 3).tolist() == [0, 1, 2]  # of two that tie, the smaller
    assert columns_of_rows(sparse, np.array([0, 2])).tolist() == X[:, [0, 2]].tolist()
    unseen = sparse._replace(indices=np.where(sparse.indices == 2, -1, sparse.indices))
    assert chosen_columns(unseen, 4, 9).tolist() == [0, 1, 3]
    with pytest.raises(ValueError, match="feature"):
        chosen_columns(as_sparse(np.zeros((3, 4))), 4, 2)


@pytest.mark.parametrize("convert", [np.ascontiguousarray, as_sparse])
def test_examples_are_the_events_of_positive_weight(convert: Any) -> None:
    X = np.arange(12.0).reshape(4, 3)
    selection = examples(convert(X), np.array([1.0, -1.0, 1.0, -1.0]), np.array([2.0, 0.0, 1e-320, 4.0]))
    selected = convert(X[[0, 2, 3]])
    assert (
        same_bits(selection.rows, selected)
        if isinstance(selected, tuple)
        else selection.rows.tolist() == selected.tolist()
    )
    assert selection.positive.tolist() == [True, True, False]
    assert selection.weight[[0, 2]].tolist() == [0.5, 1.0]
    assert 0.0 < selection.weight[1] < 1e-30
