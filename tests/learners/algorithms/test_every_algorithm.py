"""What holds for every algorithm of the catalogue. A new one is tested by existing."""

from __future__ import annotations

import dataclasses
import itertools
import math
import typing
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba.core import config as numba_config

from learners import algorithms
from learners.algorithms.base import Linear, Size, initial
from learners.algorithms.scoring import model_scores
from learners.numerics.arrays import Matrix, Rows, Vector
from learners.numerics.float32 import Precision, stored
from tests.learners.streams import as_sparse, auc, columns, labels_for, piece, run, same_bits, stream, values

REPRODUCIBLY = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def _kinds(verb: str) -> Any:
    """Yield each algorithm with this function, and a converter for each kind of rows that it takes."""
    result = []
    for name, algorithm in algorithms().items():
        if hasattr(algorithm, verb) and algorithm.TRAITS.dense:
            result.append(pytest.param(algorithm, np.ascontiguousarray, id=f"{name}-dense"))
        if hasattr(algorithm, verb) and algorithm.TRAITS.sparse:
            result.append(pytest.param(algorithm, as_sparse, id=f"{name}-sparse"))
    return pytest.mark.parametrize(("algorithm", "convert"), result)


def _arrays(weights: Any) -> list[Any]:
    """Return the arrays of what scores events, however deep."""
    return [weights] if isinstance(weights, np.ndarray) else [array for part in weights for array in _arrays(part)]


def _fitted(algorithm: Any, params: Any, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> Any:
    """Return the state after a fit, and no other event."""
    result = algorithm.fit(params, rows, dim, y, weight, seed)
    if not algorithm.TRAITS.fitted:
        return result
    return algorithm.adopt(params, algorithm.init(params, dim, seed), result._asdict(), dim, seed)


def _named(condition: Any) -> Any:
    return pytest.mark.parametrize(
        "algorithm", [pytest.param(a, id=name) for name, a in algorithms().items() if condition(a)]
    )


ONLINE = _kinds("learn")
BATCH = _kinds("fit")
NAMED = _named(lambda _: True)
NAMED_ONLINE = _named(lambda algorithm: hasattr(algorithm, "learn"))
SPARSE = _named(lambda algorithm: algorithm.TRAITS.sparse)
PRECISIONS = pytest.mark.parametrize("precision", ["float64", pytest.param("float32", marks=pytest.mark.campaign)])


def _settings_of(algorithm: Any) -> Iterator[Any]:
    """Return the defaults, then each option of each choice."""
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
    result = []
    for combination in itertools.product(*choices.values()):
        fixed = dict(zip(choices, combination, strict=True))
        result.append(algorithm.Params(**fixed))
        result += [algorithm.Params(**fixed, **{name: ends[i] for name, ends in numbers.items()}) for i in (0, 1)]
    return result


@PRECISIONS
@ONLINE
@given(cuts=st.lists(st.integers(0, 60), max_size=12), seed=st.integers(0, 3))
@settings(REPRODUCIBLY, max_examples=12)
def test_replay_and_batching_change_no_bit(
    algorithm: Any, convert: Any, precision: Precision, cuts: list[int], seed: int
) -> None:
    X, y = stream(60, 8, seed, density=0.7)
    y = labels_for(algorithm, y)
    X[:, 3] *= 1e3
    weight = np.random.default_rng(seed).choice([0.0, 0.3, 1.0], len(y))
    for params in _settings_of(algorithm):
        options: dict[str, Any] = {"weight": weight, "dim": 8, "seed": seed, "precision": precision}
        full, scores = run(algorithm, params, convert(X), y, **options)
        again, _ = run(algorithm, params, convert(X), y, **options)
        parts, pieces = run(algorithm, params, convert(X), y, **options, cuts=cuts)
        assert same_bits(full, again)
        assert same_bits(full, parts)
        assert scores.tobytes() == pieces.tobytes()


@PRECISIONS
@ONLINE
def test_scores_equal_those_of_the_published_weights(algorithm: Any, convert: Any, precision: Precision) -> None:
    X, y = stream(40, 11, seed=5, density=0.7)
    y = labels_for(algorithm, y)
    for params in _settings_of(algorithm):
        state = initial(algorithm, params, 11, 0, precision)
        for i in range(len(y)):
            row, result = convert(X[i : i + 1]), values(algorithm, params, state, 1)
            published = model_scores(algorithm.weights(params, state), row)
            state = algorithm.learn(params, state, row, y[i : i + 1], np.ones(1), result)
            assert result.tolist() == published.tolist()


@ONLINE
def test_the_state_contains_only_arrays_and_survives_a_copy(algorithm: Any, convert: Any) -> None:
    X, y = stream(60, 6, seed=1)
    y = labels_for(algorithm, y)
    params = algorithm.Params()
    state, _ = run(algorithm, params, convert(X[:40]), y[:40], dim=6)
    assert isinstance(state, algorithm.State)
    assert all(isinstance(part, np.ndarray) and part.dtype.kind in "fiu" for part in state)
    copy = algorithm.State(*(np.array(part, order="C") for part in state))
    state, copy = (
        algorithm.learn(params, item, convert(X[40:]), y[40:], np.ones(20), values(algorithm, params, item, 20))
        for item in (state, copy)
    )
    assert same_bits(state, copy)
    weights = algorithm.weights(params, state)
    if isinstance(weights, Linear):
        _check_weights(algorithm, weights, 6)


def _check_weights(algorithm: Any, linear: Any, dim: int) -> None:
    planes = linear.bias.shape
    assert linear.w.shape == ((*planes, dim) if algorithm.TRAITS.ordinal else (dim,))
    assert len(planes) == 1
    assert planes == (1,) or algorithm.TRAITS.ordinal


@ONLINE
def test_inputs_are_not_modified(algorithm: Any, convert: Any) -> None:
    X, y = stream(30, 5, seed=2)
    y = labels_for(algorithm, y)
    rows, weight, params = convert(X), np.full(30, 0.5), algorithm.Params()
    before = _bytes(rows, y, weight)
    state = algorithm.init(params, 5, 0)
    algorithm.learn(params, state, rows, y, weight, values(algorithm, params, state, 30))
    assert _bytes(rows, y, weight) == before


def _bytes(rows: Rows, *others: Vector) -> list[bytes]:
    return [array.tobytes() for array in (*(rows if isinstance(rows, tuple) else (rows,)), *others)]


@pytest.mark.integration
@NAMED_ONLINE
def test_kernels_have_one_compiled_signature(algorithm: Any) -> None:
    X, y = stream(30, 8, seed=3)
    y = labels_for(algorithm, y)
    for params in _settings_of(algorithm):
        for convert in [np.ascontiguousarray] * algorithm.TRAITS.dense + [as_sparse] * algorithm.TRAITS.sparse:
            for precision in get_args(Precision):
                run(algorithm, params, convert(X), y, dim=8, cuts=[0, 1, 5], precision=precision)
    functions = [item for item in vars(algorithm).values() if getattr(item, "__module__", None) == algorithm.__name__]
    kernels = [item for item in functions if hasattr(item, "signatures")]
    compiled = {
        kernel.__name__: Counter("float32" in str(signature) for signature in kernel.signatures) for kernel in kernels
    }
    # one for each precision; none where it is only called from another kernel, which came from the cache
    assert all(count == 1 for counts in compiled.values() for count in counts.values()), compiled
    # a system made of another algorithm and a stage, or of several algorithms
    borrowed = algorithm.learn.__module__ != algorithm.__name__ or bool(algorithm.TRAITS.fitted)
    assert bool(compiled) != (bool(numba_config.DISABLE_JIT) or borrowed)


@PRECISIONS
@SPARSE
def test_new_columns_equal_those_of_init(algorithm: Any, precision: Precision) -> None:
    for params in _settings_of(algorithm):
        few, many = (initial(algorithm, params, dim, 7, precision) for dim in (8, 24))
        assert same_bits(algorithm.grow(params, few, 24), many)


@PRECISIONS
@_named(lambda algorithm: algorithm.TRAITS.sparse and hasattr(algorithm, "learn"))
def test_grow_equals_starting_with_all_columns(algorithm: Any, precision: Precision) -> None:
    X, y = stream(80, 16, seed=4, density=0.4)
    y = labels_for(algorithm, y)
    X[:40, 8:] = 0.0
    for params in _settings_of(algorithm):
        large, scores = run(algorithm, params, as_sparse(X), y, dim=16, seed=7, precision=precision)
        state, first = run(algorithm, params, as_sparse(X[:40]), y[:40], dim=8, seed=7, precision=precision)
        state = algorithm.grow(params, state, 16)
        then = values(algorithm, params, state, 40)
        state = algorithm.learn(params, state, piece(as_sparse(X), 40, 80), y[40:], np.ones(40), then)
        assert same_bits(state, large)
        assert np.concatenate([first, then]).tobytes() == scores.tobytes()


@pytest.mark.long
@ONLINE
def test_beats_chance(algorithm: Any, convert: Any) -> None:
    X, y = stream(1500, 8, seed=6, share=0.05, gap=1.5)
    labels = labels_for(algorithm, y)
    for params in _settings_of(algorithm):
        _, scores = run(algorithm, params, convert(X), labels)
        assert auc(_scores(algorithm, params, scores)[500:], y[500:]) > 0.9


def _scores(algorithm: Any, params: Any, planes: Matrix) -> Vector:
    """Return the scores that order the events."""
    if not algorithm.TRAITS.ordinal:
        return planes
    ranked = algorithm.decide(params, planes)
    assert ranked.ranks.dtype == np.int64
    assert ranked.ranks.min() >= 1
    assert ranked.ranks.max() <= params.ranks
    result: Vector = ranked.scores
    return result


@ONLINE
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_streams_of_one_class_only(algorithm: Any, convert: Any, label: float) -> None:
    X, _ = stream(50, 5, seed=7)
    for params in _settings_of(algorithm):
        y = labels_for(algorithm, np.full(50, label))
        y[:] = y[0]
        state, scores = run(algorithm, params, convert(X), y, dim=5)
        # auto starts from the prior that events of interest are rare
        assert (scores[0] == (-3.0 if algorithm.__name__.endswith("auto") else 0.0)).all()
        assert np.isfinite(scores).all()
        assert all(np.isfinite(part).all() for part in state)
        if algorithm.TRAITS.ordinal:
            ranks = algorithm.decide(params, scores).ranks
            assert np.abs(ranks[20:] - y[0]).max() <= 1
        elif algorithm.__name__.endswith("auto"):
            assert scores[-10:].mean() * label > 0
        elif algorithm.TRAITS.posterior:
            assert (scores[20:] * label > 0).all()
        elif (
            algorithm.init.__module__ == "learners.algorithms.baselines.solam"
        ):  # starts, by its golden vectors, from weights that are not 0
            np.testing.assert_allclose(algorithm.weights(params, state).w, params.R / np.sqrt(5), rtol=1e-12)
        elif algorithm.__name__.endswith("nsvmsgd2"):  # a classifier: it learns from each event alone
            assert scores[1:].any()
        else:
            assert not scores.any()


@ONLINE
def test_weight_zero_keeps_the_model(algorithm: Any, convert: Any) -> None:
    X, y = stream(90, 5, seed=8)
    y = labels_for(algorithm, y)
    for params in _settings_of(algorithm):
        state, _ = run(algorithm, params, convert(X[:60]), y[:60], dim=5)
        before = [part.copy() for part in _arrays(algorithm.weights(params, state))]
        state = algorithm.learn(
            params, state, convert(X[60:]), y[60:], np.zeros(30), values(algorithm, params, state, 30)
        )
        assert same_bits(before, _arrays(algorithm.weights(params, state)))
        state = algorithm.learn(
            params, state, convert(X[60:]), y[60:], np.full(30, 1e-3), values(algorithm, params, state, 30)
        )
        assert not same_bits(before, _arrays(algorithm.weights(params, state)))


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


def _finite(algorithm: Any, params: Any, rows: Rows, y: Vector, weight: Vector, precision: Precision) -> bool:
    state, scores = run(algorithm, params, rows, y, weight=weight, dim=columns(rows), precision=precision)
    arrays = [*state, *_arrays(algorithm.weights(params, state)), scores]
    return all(bool(np.isfinite(part).all()) for part in arrays)


@PRECISIONS
@ONLINE
@given(data=st.data())
@settings(REPRODUCIBLY, max_examples=30)
def test_finite_at_extreme_values(algorithm: Any, convert: Any, precision: Precision, data: Any) -> None:
    params = data.draw(st.sampled_from(_ends(algorithm)))
    events = data.draw(_EVENTS)
    X: Matrix = np.array([x for x, _, _ in events])
    y = labels_for(algorithm, np.array([label for _, label, _ in events]))
    weight = np.array([share for _, _, share in events])
    assert _finite(algorithm, params, convert(X), y, weight, precision)


@pytest.mark.long
@PRECISIONS
@ONLINE
@pytest.mark.parametrize(
    ("early", "late"), [(1e30, 1e30), (1e-30, 1.0), (1e-170, 1e30), (1e30, 1e-150), (5e-324, 1e10)], ids=str
)
def test_finite_on_a_contradictory_stream(
    algorithm: Any, convert: Any, precision: Precision, early: float, late: float
) -> None:
    """Labels that no ranker fits, rows that repeat, at one end of the range and then at another."""
    random = np.random.default_rng(9)
    X = random.choice([-1.0, 0.0, 1.0], (300, 4))
    X[:150] *= early
    X[150:] *= late
    y, weight = labels_for(algorithm, random.choice([-1.0, 1.0], 300)), random.choice([1.0, 1e6], 300)
    for params in _ends(algorithm):
        assert _finite(algorithm, params, convert(X), y, weight, precision)


@pytest.mark.long
@BATCH
def test_a_fit_beats_chance_reproducibly_and_keeps_its_arguments(algorithm: Any, convert: Any) -> None:
    X, y = stream(400, 8, seed=6, share=0.15, gap=1.5)
    labels = labels_for(algorithm, y)
    rows, weight = convert(X[:300]), np.random.default_rng(0).choice([0.0, 0.5, 2.0], 300)
    before = _bytes(rows, labels, weight)
    for params in _settings_of(algorithm):
        state = _fitted(algorithm, params, rows, 8, labels[:300], weight, 3)
        assert isinstance(state, algorithm.State)
        assert all(isinstance(part, np.ndarray) and part.dtype.kind in "fiu" for part in state)
        for array, like in zip(state, algorithm.init(params, 8, 3), strict=True):
            assert array.dtype == like.dtype
            assert all(size == axis or axis == 0 for size, axis in zip(array.shape, like.shape, strict=True))
        if hasattr(algorithm, "problems"):
            assert not list(algorithm.problems(params, state, convert is as_sparse))
        assert same_bits(state, _fitted(algorithm, params, rows, 8, labels[:300], weight, 3))
        weights = algorithm.weights(params, state)
        if isinstance(weights, Linear):
            _check_weights(algorithm, weights, 8)
        scores = _scores(algorithm, params, model_scores(weights, convert(X[300:])))
        assert algorithm.TRAITS.fitted or auc(scores, y[300:]) > 0.9  # a part counts once other members have learnt
    assert _bytes(rows, labels, weight) == before


@BATCH
def test_data_of_one_class_is_not_fitted(algorithm: Any, convert: Any) -> None:
    X, y = stream(30, 4, seed=1)
    y = labels_for(algorithm, y)
    same_label = np.full(30, y[0])
    for labels, weight in ((same_label, np.ones(30)), (y, (y == y[0]) * 1.0), (y, np.zeros(30))):
        with pytest.raises(ValueError, match=r"rank|class|positive|negative|event"):
            algorithm.fit(algorithm.Params(), convert(X), 4, labels, weight, 0)


@pytest.mark.long
@PRECISIONS
@BATCH
@pytest.mark.parametrize("size", [5e-324, 1e-160, 1e-30, 1e10, 1e30])
def test_a_fit_is_finite_or_refused(algorithm: Any, convert: Any, precision: Precision, size: float) -> None:
    X, y = stream(40, 3, seed=2)
    y = labels_for(algorithm, y)
    X = np.clip(X * size, -1e30, 1e30)
    X[:5] = np.clip(X[:5] * 1e20, -1e30, 1e30)
    weight = np.where(np.arange(40) % 4, 1.0, 1e6)
    try:
        state = _fitted(algorithm, algorithm.Params(), convert(X), 3, y, weight, 0)
    except ValueError:
        assert size > 1.0  # only too large rows may be
    else:
        assert all(np.isfinite(part).all() for part in stored(precision, state, algorithm.TRAITS.halved))


@NAMED
def test_every_algorithm_has_a_description(algorithm: Any) -> None:
    text = algorithm.__doc__ or ""
    assert "\nReferences\n----------\n" in text
    assert "O(" in text
    schema = algorithm.Params.schema()
    assert schema["properties"]
    for name, entry in schema["properties"].items():
        assert entry["description"], name
        assert entry["default"] == algorithm.Params().to_json()[name]
    assert algorithm.TRAITS.dense or algorithm.TRAITS.sparse
    assert algorithm.TRAITS.max_dim >= 1


@NAMED
def test_every_algorithm_states_its_cost(algorithm: Any) -> None:
    order, nanoseconds = algorithm.TRAITS.cost
    assert order.startswith("O(")
    for params in _settings_of(algorithm):
        for sparse in (False,) * algorithm.TRAITS.dense + (True,) * algorithm.TRAITS.sparse:
            dims = [1, 2, 8, 30, 100, 1000, algorithm.TRAITS.max_dim]
            costs = [nanoseconds(params, Size(dim, min(dim, 50) if sparse else dim, sparse)) for dim in dims]
            assert costs == sorted(costs)
            assert 10.0 < costs[2] < 1e5
            wide = [nanoseconds(params, Size(1000, values, sparse)) for values in (0.0, 1.0, 8.5, 100.0)]
            assert wide == sorted(wide)
            assert sparse or costs[0] < costs[-1]
