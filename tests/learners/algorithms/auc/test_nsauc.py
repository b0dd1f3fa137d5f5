"""NSAUC: golden vectors and a naive version; and the systems that are another algorithm behind an embedding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learners.algorithms.auc import nsauc
from learners.algorithms.baselines import noam, nsolam, oam, solam
from learners.numerics.arrays import Vector
from tests.learners.algorithms.naive import Buffers, SplitMix
from tests.learners.streams import auc, run, same_bits, stream

_GOLDEN = Path(__file__).parents[1] / "golden" / "nsauc.json"


def naive(X, y, weight, *, lam=1e-6, pairs=4, capacity=200, buffer="fifo", seed=0):  # type: ignore[no-untyped-def]
    """Return scores, w and its average, slowly and from the maths, with a list of all iterates."""
    buffers, t0, scores = Buffers(capacity, buffer, seed), lam ** (-3 / 4), []
    w, average, iterates = np.zeros(X.shape[1]), np.zeros(X.shape[1]), []
    for x, label, k in zip(X, y, weight, strict=True):
        scores.append(average @ x)
        buffers.add(int(label), x)
        others = buffers.rows[-int(label)]
        for _ in range(pairs if others and k > 0 else 0):
            b = others[buffers.random.next() % len(others)]
            z, t = (x - b if label > 0 else b - x), len(iterates) + 1
            if w @ z < 1:
                w = w + k * z / (lam * (t + t0))
            if t % 16 == 0:
                w = w * (1 - 16 / (t + t0))
            iterates.append(w)
            average = np.mean(iterates[15::16], axis=0) if t >= 16 else w
    return np.array(scores), w, average


def _weights(y: Vector) -> Vector:
    return np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], len(y))


def test_matches_the_golden_values() -> None:
    """The paper's form: pairs drawn from the data at hand, with another t0 and other skips."""
    document = json.loads(_GOLDEN.read_text())
    X, y = np.array(document["x"]), np.array(document["y"])
    positives, negatives, random = X[y > 0], X[y < 0], SplitMix(document["seed"])
    schedule = [document[name] for name in ("lam", "t0", "rskip", "askip")]
    w, average, steps = np.zeros(X.shape[1]), np.zeros(X.shape[1]), np.zeros(1, dtype=np.int64)
    for _ in range(document["pairs"]):
        p, q = positives[random.next() % len(positives)], negatives[random.next() % len(negatives)]
        nsauc.step(p - q, 1.0, *schedule, w, average, steps)
    np.testing.assert_allclose(w, document["w"], rtol=1e-9)
    np.testing.assert_allclose(average, document["average"], rtol=1e-9)
    assert steps.tolist() == [document["pairs"]]


def test_the_step_has_one_compiled_signature() -> None:
    X, y = stream(30, 4, seed=0)
    run(nsauc, nsauc.Params(), X, y)
    nsauc.step(X[0], 1.0, 0.1, 2.0, 16, 8, np.zeros(4), np.zeros(4), np.zeros(1, dtype=np.int64))
    result = getattr(nsauc.step, "signatures", [()])
    assert sum("float32" not in str(item) for item in result) == 1  # another test's precision


@pytest.mark.parametrize(
    "options",
    [{}, {"lam": 1.0, "pairs": 1, "capacity": 1}, {"lam": 0.01, "capacity": 7, "buffer": "reservoir"}, {"pairs": 21}],
    ids=str,
)
@pytest.mark.parametrize("dim", [1, 4, 11])
def test_matches_the_naive_version(options: dict[str, Any], dim: int) -> None:
    X, y = stream(150, dim, seed=dim)
    weight = _weights(y)
    state, scores = run(nsauc, nsauc.Params(**options), X, y, weight=weight, seed=5)
    expected, w, average = naive(X, y, weight, **options, seed=5)
    for actual, right in ((scores, expected), (state.w, w), (state.average, average)):
        np.testing.assert_allclose(actual, right, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("after", [6, 60], ids=["before the first mean", "after it"])
def test_events_of_weight_zero_update_counts_and_buffers_only(after: int) -> None:
    X, y = stream(after + 30, 3, seed=2)
    y[:after:2] = 1.0
    y[1:after:2] = -1.0
    y[after:] = 1.0
    params = nsauc.Params(pairs=2)
    before, _ = run(nsauc, params, X[:after], y[:after])
    weight = np.concatenate([np.ones(after), np.zeros(30)])
    state, _ = run(nsauc, params, X, y, weight=weight)
    for part in ("w", "average", "steps", "rng"):
        assert same_bits([getattr(state, part)], [getattr(before, part)])
    assert state.seen.tolist() == [after // 2, after // 2 + 30]
    assert state.buffer[1, after // 2 : after // 2 + 30].tolist() == X[after:].tolist()


def test_a_larger_weight_makes_a_larger_step() -> None:
    X, y = np.array([[0.0, 0.0], [1.0, 2.0]]), np.array([-1.0, 1.0])
    params = nsauc.Params(lam=1.0, pairs=1)
    for share in (0.25, 1.0, 4.0):
        state, _ = run(nsauc, params, X, y, weight=np.array([1.0, share]))
        np.testing.assert_allclose(state.w, share * X[1] / 2)  # lam (t + t0) = 2
        assert state.average.tolist() == state.w.tolist()


def test_pairs_are_drawn_uniformly() -> None:
    """Each stored negative is a unit row, so it lowers a separate weight as often as it is drawn."""
    stored, draws = 5, 40_000
    X = np.vstack([np.eye(stored), np.zeros((1, stored))])
    y = np.array([-1.0] * stored + [1.0])
    state = nsauc.init(nsauc.Params(), stored, 3)
    weight = np.full(1, 1e-9)  # so small that no pair comes near its margin: every one makes its step
    params = nsauc.Params(lam=2.0**-40, pairs=1000)
    nsauc.learn(params, state, X[:stored], y[:stored], np.ones(stored), np.empty(stored))
    for _ in range(draws // params.pairs):
        nsauc.learn(params, state, X[stored:], y[stored:], weight, np.empty(1))
    assert state.steps[0] == draws
    shares = state.w / state.w.sum()
    np.testing.assert_allclose(shares, 1 / stored, atol=4 * np.sqrt(0.16 / draws))


# Another algorithm behind an embedding


def _embedded(n: int, seed: int) -> tuple[Any, Vector]:
    """Rows that no linear ranker ranks (the positives lie around the negatives) by 60 Gaussian bumps, unit length."""
    random = np.random.default_rng(seed)
    y = np.where(random.random(n) < 0.3, 1.0, -1.0)
    X = random.normal(size=(n, 2))
    X *= ((1.5 + 0.5 * (y > 0)) / np.linalg.norm(X, axis=1) + 0.25 * random.normal(size=n))[:, None]
    bumps = np.exp(-((X[:, None] - random.normal(scale=2, size=(60, 2))) ** 2).sum(axis=2))
    return bumps / np.linalg.norm(bumps, axis=1)[:, None], y


@pytest.mark.long
@pytest.mark.parametrize(("system", "plain"), [(noam, oam), (nsolam, solam)], ids=["noam", "nsolam"])
def test_a_system_equals_its_algorithm_with_other_defaults(system: Any, plain: Any) -> None:
    params = system.Params()
    assert params != plain.Params()
    assert params.to_json().keys() == plain.Params().to_json().keys()
    X, y = _embedded(1500, seed=0)
    state, scores = run(system, params, X, y, cuts=[700])
    expected, same = run(plain, plain.Params.of(params.to_json()), X, y)
    assert same_bits(state, expected)
    assert scores.tobytes() == same.tobytes()
    _, usual = run(plain, plain.Params(), X, y)
    assert auc(scores[300:], y[300:]) > auc(usual[300:], y[300:]) + 0.002


@pytest.mark.parametrize("system", [noam, nsauc, nsolam], ids=lambda item: item.__name__[9:])
def test_a_system_ranks_data_beyond_linear_rankers(system: Any) -> None:
    assert system.TRAITS.defaults == {"embedding": {"kind": "nystroem"}}
    assert not system.TRAITS.sparse
    X, y = _embedded(3000, seed=1)
    _, scores = run(system, system.Params(), X, y)
    assert auc(scores[500:], y[500:]) > 0.85
