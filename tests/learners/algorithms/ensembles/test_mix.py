"""The combination of models, held against its definition in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from learners.algorithms import _mix
from learners.numerics.arrays import Matrix, Vector

ALL = np.ones(3, dtype=np.bool_)  # models score


def naive(scores: Matrix, y: Vector, weight: Vector, memory: int) -> Vector:
    """Combine and learn as the docstring of the module says, with matrices and one inverse per event."""
    n, k = scores.shape
    mean, variance = np.zeros(k), np.zeros(k)
    a, H = np.append(np.full(k, 2.0 / k), -3.0), np.zeros((k + 1, k + 1))
    out, events = np.empty(n), 0
    for t in range(n):
        z = np.where(variance > 0, (scores[t] - mean) / np.sqrt(np.where(variance > 0, variance, 1.0)), 0.0)
        u = np.append(np.clip(z, -8.0, 8.0), 1.0)
        out[t] = a @ u
        if not weight[t]:
            continue
        events += 1
        p = 1 / (1 + np.exp(-out[t]))
        keep = 1 - 1 / min(memory, max(50, events / 10))
        H = keep * H + weight[t] * p * (1 - p) * np.outer(u, u)
        a = a - weight[t] * (p - (y[t] > 0)) * np.linalg.solve(H + 10 * np.eye(k + 1), u)
        share = max(1 / memory, 1 / events)
        away = scores[t] - mean
        mean = mean + share * away
        variance = (1 - share) * (variance + share * away**2)
    return out


def stream(n: int, seed: int = 0) -> tuple[Matrix, Vector]:
    """Return the scores of a good, a noisy and a reversed model, and labels, a tenth of them positive."""
    random = np.random.default_rng(seed)
    y = np.where(random.random(n) < 0.1, 1.0, -1.0)
    good = 3 * y + random.normal(size=n)
    return np.ascontiguousarray(np.stack([good, random.normal(size=n) * 50, -good + random.normal(size=n)], axis=1)), y


@pytest.mark.parametrize("memory", [100, 100_000])
def test_the_combination_is_that_of_the_definition(memory: int) -> None:
    scores, y = stream(800)
    weight = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], len(y))
    state, out = _mix.init(3, 3), np.empty(len(y))
    _mix.learn(state, scores, y, weight, out, ALL, memory)
    np.testing.assert_allclose(out, naive(scores, y, weight, memory), rtol=1e-9, atol=1e-9)
    assert not list(_mix.problems(state))


def test_a_model_that_comes_later_counts_nothing_before_its_first_score() -> None:
    scores, y = stream(600)
    late = scores.copy()
    late[:300, 2] = 0.0
    state, out, two = _mix.init(3, 3), np.empty(600), np.empty(300)
    first = np.array([True, True, False])
    _mix.learn(state, late[:300], y[:300], np.ones(300), out[:300], first, 1e5)
    assert state.factors[2] == 2.0 / 3
    assert state.mean[2] == state.variance[2] == 0.0
    _mix.learn(state, late[300:], y[300:], np.ones(300), out[300:], ALL, 1e5)
    assert state.factors[2] < 0.1  # it is reversed
    without = _mix.init(3, 3)
    _mix.learn(without, late[:300], y[:300], np.ones(300), two, first, 1e5)
    assert out[:300].tobytes() == two.tobytes()


def test_a_model_that_never_scores_changes_nothing() -> None:
    scores, y = stream(500)
    three, two = _mix.init(3, 2), _mix.init(2, 2)
    outs = np.empty(500), np.empty(500)
    absent = np.array([True, False, True])
    _mix.learn(three, scores * absent, y, np.ones(500), outs[0], absent, 1e5)
    _mix.learn(two, np.ascontiguousarray(scores[:, [0, 2]]), y, np.ones(500), outs[1], ALL[:2], 1e5)
    np.testing.assert_allclose(outs[0], outs[1], rtol=1e-12)
    assert three.events.tolist() == [500, 0, 500, 500]


def test_shares_add_up_to_the_score_within_and_beyond_the_limits() -> None:
    scores, y = stream(400)
    state = _mix.init(3, 3)
    _mix.learn(state, scores, y, np.ones(400), np.empty(400), ALL, 1e5)
    scores[0] *= 1e6
    slopes, rest = _mix.shares(state, scores)
    np.testing.assert_allclose((slopes * scores).sum(axis=1) + rest, _mix.mix(state, scores), rtol=1e-9, atol=1e-9)


def test_problems_of_a_state_are_found() -> None:
    state = _mix.init(3, 3)
    assert [name for name, _ in _mix.problems(state._replace(variance=-np.ones(3)))] == ["variance"]
    assert [name for name, _ in _mix.problems(state._replace(factors=np.full(4, 1e9)))] == ["factors"]
    assert [name for name, _ in _mix.problems(state._replace(hessian=-np.eye(4)))] == ["hessian"]
