"""Bins and crosses, held against their definition with dictionaries."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from learners.algorithms import _crosses
from learners.numerics.arrays import Matrix, Rows, Sparse, Vector
from tests.learners.streams import as_sparse, auc


class Naive:
    """The model of the module's docstring, for events of at most 22 columns; every pair gets its cell at once."""

    def __init__(self, dim: int) -> None:
        self.w, self.h, self.b, self.g = np.zeros(dim), np.zeros(dim), 0.0, 0.0
        self.values: list[list[float]] = [[] for _ in range(dim)]
        self.edges: list[list[float]] = [[] for _ in range(dim)]
        self.cells: dict[Any, list[float]] = {}
        self.seen: set[Any] = set()

    def keys(self, x: Vector) -> tuple[list[Any], list[Any]]:
        bins = [(j, sum(x[j] > edge for edge in self.edges[j])) for j in range(len(x))]
        return [cell for cell in bins if self.edges[cell[0]]], list(combinations(bins, 2))

    def learn(self, x: Vector, positive: bool) -> tuple[float, float]:
        bins, pairs = self.keys(x)
        main = float(self.w @ x) + self.b + sum(self.cells.get(key, [0.0])[0] for key in bins)
        total = main + sum(self.cells.get(key, [0.0])[0] for key in pairs)
        error = 1 / (1 + math.exp(-main)) - positive
        self.g += error**2
        self.b -= 0.1 * error / np.sqrt(0.01 + self.g)
        self.h += (error * x) ** 2
        self.w -= 0.1 * error * x / np.sqrt(0.01 + self.h)
        for key in bins:
            self._step(key, error, 0.05)
        error = 1 / (1 + math.exp(-total)) - positive
        for key in pairs:
            if key in self.seen:
                self._step(key, error, 0.1)
            self.seen.add(key)
        for j, value in enumerate(x):
            if len(self.values[j]) < 256:
                self.values[j].append(value)
                if len(self.values[j]) == 256:
                    self._set_edges(j)
        return main, total

    def _step(self, key: Any, error: float, size: float) -> None:
        cell = self.cells.setdefault(key, [0.0, 0.0])
        cell[1] += error**2
        cell[0] -= size * error / np.sqrt(0.01 + cell[1])

    def _set_edges(self, j: int) -> None:
        ordered = sorted(self.values[j][128:])
        edges = sorted({ordered[k * 8] for k in range(1, 16)})
        self.edges[j] = [edge for edge in edges if edge < ordered[-1]]


def stream(n: int, seed: int = 0) -> tuple[Matrix, Vector]:
    """Return events whose label depends on the sign of a product: no sum of curves tells it."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 4))
    X[:, 3] = random.integers(0, 3, n)
    y = np.where(X[:, 0] * X[:, 1] > 0.3, 1.0, -1.0)
    return X, y


def learnt(X: Matrix, y: Vector, sparse: bool = False) -> tuple[Any, Vector, Vector]:
    main, total = np.empty(len(y)), np.empty(len(y))
    state = _crosses.learn(_crosses.init(X.shape[1]), as_sparse(X) if sparse else X, y, np.ones(len(y)), main, total)
    return state, main, total


def test_scores_are_those_of_the_definition() -> None:
    X, y = stream(900)
    state, main, total = learnt(X, y)
    model = Naive(4)
    expected = np.array([model.learn(x, label > 0) for x, label in zip(X, y, strict=True)])
    np.testing.assert_allclose(main, expected[:, 0], atol=1e-9)
    np.testing.assert_allclose(total, expected[:, 1], atol=1e-9)
    assert state.events[1] == len(model.cells)
    assert not list(_crosses.problems(state))


def scores_of(model: _crosses.Crosses, rows: Rows) -> tuple[Vector, Vector]:
    sparse = rows if isinstance(rows, Sparse) else Sparse(rows.ravel(), *_crosses.layout(*rows.shape))
    main, sums = np.empty(len(sparse.indptr) - 1), np.empty(len(sparse.indptr) - 1)
    _crosses.score_cells(model, *sparse, main, sums)
    return main, sums


def test_pairs_tell_what_curves_cannot() -> None:
    X, y = stream(6000)
    _, main, total = learnt(X, y)
    assert auc(main[3000:], y[3000:]) < 0.8
    assert auc(total[3000:], y[3000:]) > 0.92


@pytest.mark.parametrize("sparse", [False, True])
def test_parts_add_up_and_a_pair_counts_half_for_each_column(sparse: bool) -> None:
    X, y = stream(1500)
    state, _, _ = learnt(X, y, sparse)
    rows = as_sparse(X[:40]) if sparse else X[:40]
    model = _crosses.crosses(state)
    main, total = scores_of(model, rows)
    parts = _crosses.attribute(model, rows, np.full(40, 2.0), np.full(40, -1.0))
    ends = np.cumsum((X[:40] != 0).sum(axis=1)) if sparse else np.arange(4, 164, 4)
    sums = np.diff(np.concatenate([[0.0], np.cumsum(parts)])[np.concatenate([[0], ends])])
    np.testing.assert_allclose(sums + (2.0 - 1.0) * state.bias[0], 2 * main - total, atol=1e-9)


def test_without_pairs_both_scores_are_those_of_the_bins() -> None:
    X, y = stream(1500)
    _, main, _ = learnt(X, y)
    bare, alone, same = _crosses.init(4, paired=False), np.empty(1500), np.empty(1500)
    bare = _crosses.learn(bare, X, y, np.ones(1500), alone, same)
    assert alone.tobytes() == same.tobytes() == main.tobytes()
    assert bare.events[1] == len(bare.keys[bare.keys > 0]) <= 4 * 16
    scores = scores_of(_crosses.crosses(bare), X[:50])
    assert scores[0].tobytes() == scores[1].tobytes()
    assert not list(_crosses.problems(bare))


def test_long_events_cross_the_columns_of_the_largest_influence() -> None:
    random = np.random.default_rng(3)
    X = random.normal(size=(3000, 40))
    y = np.where(X[:, 30] + X[:, 35] > 1.0, 1.0, -1.0)
    state, _, _ = learnt(X, y)
    assert state.chosen.sum() == _crosses.CROSSED
    assert state.chosen[30] == state.chosen[35] == 1


def test_cells_are_bounded() -> None:
    random = np.random.default_rng(4)
    X = random.normal(size=(6000, 20))
    state, _, total = learnt(X, np.where(random.random(6000) < 0.5, 1.0, -1.0))
    assert state.events[1] <= _crosses.MOST_CELLS
    assert np.isfinite(total).all()
    assert not list(_crosses.problems(state))


def test_problems_of_a_state_are_found() -> None:
    X, y = stream(700)
    state, _, _ = learnt(X, y)
    keys = state.keys.copy()
    keys[np.flatnonzero(keys)[0]] = 0
    reversed_keys = state.keys[::-1].copy()
    wrong = {
        "keys": [{"keys": keys}, {"keys": reversed_keys}, {"cells": state.cells[:-1]}],
        "chosen": [{"chosen": state.chosen + np.uint8(2)}],
        "h": [{"h": -state.h - 1}],
        "edges": [{"edges": state.edges[:, ::-1].copy()}],
    }
    for name, changes in wrong.items():
        for change in changes:
            assert [edges for edges, _ in _crosses.problems(state._replace(**change))] == [name]
