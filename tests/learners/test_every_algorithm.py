"""What holds for every algorithm of the catalogue. A new one is tested by existing."""

from __future__ import annotations

import dataclasses
import itertools
import math
import typing
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba.core import config as numba_config

from learners import algorithms
from learners.algorithm import Linear, linear_scores
from learners.arrays import Matrix, Rows, Vector
from tests.learners.streams import as_sparse, auc, columns, piece, run, same_bits, stream

REPRODUCIBLY = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _kinds() -> list[Any]:
    """(algorithm, how its rows are made) for each kind of rows that each algorithm takes."""
    found = []
    for name, algorithm in algorithms().items():
        if algorithm.TRAITS.dense:
            found.append(pytest.param(algorithm, np.ascontiguousarray, id=f"{name}-dense"))
        if algorithm.TRAITS.sparse:
            found.append(pytest.param(algorithm, as_sparse, id=f"{name}-sparse"))
    return found


KINDS = pytest.mark.parametrize(("algorithm", "made"), _kinds())
NAMED = pytest.mark.parametrize("algorithm", [pytest.param(a, id=name) for name, a in algorithms().items()])
SPARSE = pytest.mark.parametrize(
    "algorithm", [pytest.param(a, id=n) for n, a in algorithms().items() if a.TRAITS.sparse]
)


def _settings_of(algorithm: Any) -> Iterator[Any]:
    """The defaults, then each option of each choice."""
    yield algorithm.Params()
    hints = typing.get_type_hints(algorithm.Params)
    for field in dataclasses.fields(algorithm.Params):
        for option in typing.get_args(hints[field.name]) if typing.get_origin(hints[field.name]) is Literal else ():
            if option != field.default:
                yield algorithm.Params(**{field.name: option})


def _ends(algorithm: Any) -> list[Any]:
    """All choices, each with the numbers at their defaults, all at the low and all at the high end of their ranges."""
    hints = typing.get_type_hints(algorithm.Params)
    choices: dict[str, list[Any]] = {}
    numbers: dict[str, tuple[Any, Any]] = {}
    for field in dataclasses.fields(algorithm.Params):
        hint, limits = hints[field.name], field.metadata
        if typing.get_origin(hint) is Literal:
            choices[field.name] = list(typing.get_args(hint))
        elif hint is bool:
            choices[field.name] = [False, True]
        elif hint is float:
            low = limits.get("least", field.default)
            if "above" in limits:  # the next number, or where that would be next to nothing, 1e-300
                low = max(math.nextafter(limits["above"], math.inf), limits["above"] + 1e-300)
            high = limits.get("most", limits["below"] * (1 - 1e-9) if "below" in limits else 1e300)
            numbers[field.name] = (low, high)
        elif "least" in limits:
            numbers[field.name] = (limits["least"], field.default)  # a high one may mean much memory
    found = []
    for chosen in itertools.product(*choices.values()):
        fixed = dict(zip(choices, chosen, strict=True))
        found.append(algorithm.Params(**fixed))
        found += [algorithm.Params(**fixed, **{name: ends[i] for name, ends in numbers.items()}) for i in (0, 1)]
    return found


@KINDS
@given(cuts=st.lists(st.integers(0, 60), max_size=12), seed=st.integers(0, 3))
@settings(REPRODUCIBLY, max_examples=12)
def test_same_bits_on_replay_and_for_any_batching(algorithm: Any, made: Any, cuts: list[int], seed: int) -> None:
    X, y = stream(60, 8, seed, density=0.7)
    X[:, 3] *= 1e3
    weight = np.random.default_rng(seed).choice([0.0, 0.3, 1.0], len(y))
    for params in _settings_of(algorithm):
        whole, scores = run(algorithm, params, made(X), y, weight=weight, dim=8, seed=seed)
        again, _ = run(algorithm, params, made(X), y, weight=weight, dim=8, seed=seed)
        parts, pieces = run(algorithm, params, made(X), y, weight=weight, dim=8, seed=seed, cuts=cuts)
        assert same_bits(whole, again)
        assert same_bits(whole, parts)
        assert scores.tobytes() == pieces.tobytes()


@KINDS
def test_scores_are_those_of_the_published_weights(algorithm: Any, made: Any) -> None:
    X, y = stream(40, 11, seed=5, density=0.7)
    for params in _settings_of(algorithm):
        state = algorithm.init(params, 11, 0)
        for i in range(len(y)):
            row, score = made(X[i : i + 1]), np.empty(1)
            published = linear_scores(algorithm.weights(params, state), row)
            state = algorithm.learn(params, state, row, y[i : i + 1], np.ones(1), score)
            assert score[0] == published[0]


@KINDS
def test_state_is_arrays_only_and_serves_a_copy(algorithm: Any, made: Any) -> None:
    X, y = stream(60, 6, seed=1)
    params = algorithm.Params()
    state, _ = run(algorithm, params, made(X[:40]), y[:40], dim=6)
    assert isinstance(state, algorithm.State)
    assert all(isinstance(part, np.ndarray) and part.dtype.kind in "fiu" for part in state)
    copy = algorithm.State(*(np.array(part, order="C") for part in state))
    for one in (state, copy):
        algorithm.learn(params, one, made(X[40:]), y[40:], np.ones(20), np.empty(20))
    assert same_bits(state, copy)
    linear = algorithm.weights(params, state)
    assert isinstance(linear, Linear)
    assert linear.w.shape == (6,)
    assert linear.bias.shape == (1,)


@KINDS
def test_inputs_stay(algorithm: Any, made: Any) -> None:
    X, y = stream(30, 5, seed=2)
    rows, weight = made(X), np.full(30, 0.5)
    arrays = [rows] if isinstance(rows, np.ndarray) else list(rows)
    before = [array.copy() for array in (*arrays, y, weight)]
    algorithm.learn(algorithm.Params(), algorithm.init(algorithm.Params(), 5, 0), rows, y, weight, np.empty(30))
    assert all((a == b).all() for a, b in zip(before, (*arrays, y, weight), strict=True))


@NAMED
def test_one_compiled_signature(algorithm: Any) -> None:
    X, y = stream(30, 8, seed=3)
    for params in _settings_of(algorithm):
        for made in [np.ascontiguousarray] * algorithm.TRAITS.dense + [as_sparse] * algorithm.TRAITS.sparse:
            run(algorithm, params, made(X), y, dim=8, cuts=[0, 1, 5])
    own = [item for item in vars(algorithm).values() if getattr(item, "__module__", None) == algorithm.__name__]
    compiled = {item.__name__: len(item.signatures) for item in own if hasattr(item, "signatures")}
    assert set(compiled.values()) <= {0, 1}, compiled  # 0: only called from another kernel, which came from the cache
    assert bool(compiled) != bool(numba_config.DISABLE_JIT)


@SPARSE
def test_grow(algorithm: Any) -> None:
    X, y = stream(80, 16, seed=4, density=0.4)
    X[:40, 8:] = 0.0
    for params in _settings_of(algorithm):
        assert same_bits(algorithm.grow(params, algorithm.init(params, 8, 7), 24), algorithm.init(params, 24, 7))
        large, scores = run(algorithm, params, as_sparse(X), y, dim=16, seed=7)
        state, first = run(algorithm, params, as_sparse(X[:40]), y[:40], dim=8, seed=7)
        state = algorithm.grow(params, state, 16)
        then = np.empty(40)
        state = algorithm.learn(params, state, piece(as_sparse(X), 40, 80), y[40:], np.ones(40), then)
        assert same_bits(state, large)
        assert np.concatenate([first, then]).tobytes() == scores.tobytes()


@KINDS
def test_beats_chance(algorithm: Any, made: Any) -> None:
    X, y = stream(1500, 8, seed=6, share=0.05, gap=1.5)
    for params in _settings_of(algorithm):
        _, scores = run(algorithm, params, made(X), y)
        assert auc(scores[500:], y[500:]) > 0.9


@KINDS
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_one_class_only(algorithm: Any, made: Any, label: float) -> None:
    X, _ = stream(50, 5, seed=7)
    for params in _settings_of(algorithm):
        state, scores = run(algorithm, params, made(X), np.full(50, label), dim=5)
        assert scores[0] == 0
        assert np.isfinite(scores).all()
        assert all(np.isfinite(part).all() for part in state)
        if algorithm.TRAITS.posterior:
            assert (scores[20:] * label > 0).all()
        elif algorithm is algorithms()["solam"]:  # starts, by its golden vectors, from weights that are not 0
            np.testing.assert_allclose(algorithm.weights(params, state).w, params.R / np.sqrt(5), rtol=1e-12)
        else:
            assert not scores.any()


@KINDS
def test_weight_zero_leaves_the_model(algorithm: Any, made: Any) -> None:
    X, y = stream(90, 5, seed=8)
    for params in _settings_of(algorithm):
        state, _ = run(algorithm, params, made(X[:60]), y[:60], dim=5)
        before = [part.copy() for part in algorithm.weights(params, state)]
        state = algorithm.learn(params, state, made(X[60:]), y[60:], np.zeros(30), np.empty(30))
        assert same_bits(before, algorithm.weights(params, state))
        state = algorithm.learn(params, state, made(X[60:]), y[60:], np.full(30, 1e-3), np.empty(30))
        assert not same_bits(before, algorithm.weights(params, state))


_VALUES = [0.0, -0.0, 5e-324, -1e-310, 1e-160, -1e-30, 1.0, -1.0, 1.0 + 2**-52, 3.5, -1e15, 1e30, -1e30]
_EVENTS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(_VALUES), min_size=3, max_size=3),
        st.sampled_from([-1.0, 1.0]),
        st.sampled_from([0.0, 5e-324, 1e-9, 1.0, 1e6]),
    ),
    min_size=2,
    max_size=12,
)


def _finite(algorithm: Any, params: Any, rows: Rows, y: Vector, weight: Vector) -> bool:
    state, scores = run(algorithm, params, rows, y, weight=weight, dim=columns(rows))
    arrays = [*state, *algorithm.weights(params, state), scores]
    return all(bool(np.isfinite(part).all()) for part in arrays)


@KINDS
@given(data=st.data())
@settings(REPRODUCIBLY, max_examples=60)
def test_finite_at_the_extremes(algorithm: Any, made: Any, data: Any) -> None:
    params = data.draw(st.sampled_from(_ends(algorithm)))
    events = data.draw(_EVENTS)
    X: Matrix = np.array([x for x, _, _ in events])
    y = np.array([label for _, label, _ in events])
    weight = np.array([share for _, _, share in events])
    assert _finite(algorithm, params, made(X), y, weight)


@KINDS
@pytest.mark.parametrize(
    ("early", "late"), [(1e30, 1e30), (1e-30, 1.0), (1e-170, 1e30), (1e30, 1e-150), (5e-324, 1e10)], ids=str
)
def test_finite_on_a_contradictory_stream(algorithm: Any, made: Any, early: float, late: float) -> None:
    """Labels that no ranker fits, rows that repeat, at one end of the range and then at another."""
    random = np.random.default_rng(9)
    X = random.choice([-1.0, 0.0, 1.0], (300, 4))
    X[:150] *= early
    X[150:] *= late
    y, weight = random.choice([-1.0, 1.0], 300), random.choice([1.0, 1e6], 300)
    for params in _ends(algorithm):
        assert _finite(algorithm, params, made(X), y, weight)


@NAMED
def test_is_described(algorithm: Any) -> None:
    text = algorithm.__doc__ or ""
    assert "\nReferences\n----------\n" in text
    assert "O(" in text
    schema = algorithm.Params.schema()
    assert schema["properties"]
    for name, entry in schema["properties"].items():
        assert entry["description"], name
        assert entry["default"] == getattr(algorithm.Params(), name)
    assert algorithm.TRAITS.dense or algorithm.TRAITS.sparse
    assert algorithm.TRAITS.max_dim >= 1
