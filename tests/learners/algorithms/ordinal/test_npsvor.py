"""Ordinal regression by nonparallel support vectors, online and by batch."""

from __future__ import annotations

import functools
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.algorithms.base import Linear, linear_scores
from learners.algorithms.ordinal import npsvor, npsvor_batch
from learners.numerics.arrays import Matrix, Rows, Vector
from learners.settings import InvalidInput
from tests.learners.algorithms import naive_npsvor
from tests.learners.streams import as_sparse, piece, same_bits

_DIRECTORY = Path(__file__).parents[1] / "golden"
KINDS = pytest.mark.parametrize("convert", [np.ascontiguousarray, as_sparse], ids=["dense", "sparse"])
ALGORITHMS = pytest.mark.parametrize("algorithm", [npsvor, npsvor_batch], ids=["online", "batch"])
BATCHES = [
    {},
    {"C": 0.1, "bias": False},
    {"C": 10.0, "eps": 0.0, "tolerance": 0.01},
    {"C": 0.5, "eps": 0.5, "tolerance": 1e-6},
    {"C": 3.0, "sweeps": 3},
    {"C": 0.5, "C1": 4.0},
    {"C": 2.0, "C1": 0.125, "tolerance": 0.01},
]


def _read(name: str) -> Any:
    return json.loads((_DIRECTORY / f"{name}.json").read_text())


def stream(n: int, dim: int, seed: int, *, ranks: int = 5, density: float = 1.0) -> tuple[Matrix, Vector, Vector]:
    """Rows (n, dim), the ranks that a noisy linear severity gives them, and that severity."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, dim))
    X[random.random((n, dim)) >= density] = 0.0
    severity = X @ random.normal(size=dim) / np.sqrt(dim) + 0.2 * random.normal(size=n)
    edges = np.quantile(severity, np.arange(1, ranks) / ranks)
    return X, 1.0 + np.searchsorted(edges, severity), severity


def weights_of(y: Vector) -> Vector:
    return np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], len(y))


def run(
    params: npsvor.Params,
    rows: Rows,
    y: Vector,
    weight: Vector | None = None,
    *,
    dim: int,
    cuts: Any = (),
    seed: int = 0,
) -> tuple[npsvor.State, Matrix]:
    """Return the online state after a stream, saved and restored at each cut, and the prequential values."""
    state, values = npsvor.init(params, dim, seed), np.empty((len(y), params.ranks))
    weight = np.ones(len(y)) if weight is None else weight
    for start, stop in pairwise([0, *sorted(cuts), len(y)]):
        state = npsvor.State(*(np.array(part, order="C") for part in state))
        cut = slice(start, stop)
        state = npsvor.learn(params, state, piece(rows, start, stop), y[cut], weight[cut], values[cut])
    return state, values


def fit(rows: Rows, y: Vector, weight: Vector | None = None, *, dim: int, seed: int = 0, **overrides: Any) -> Matrix:
    """Return the fitted planes (ranks, dim + 1), with the bias last."""
    params = npsvor_batch.Params(**overrides)
    return planes(npsvor_batch.fit(params, rows, dim, y, np.ones(len(y)) if weight is None else weight, seed))


def planes(linear: Any) -> Matrix:
    """Weights and bias side by side."""
    return np.column_stack([linear.w, linear.bias])


# golden vectors


@KINDS
@pytest.mark.parametrize("case", [0, 1], ids=["without replays", "with replays"])
def test_online_matches_the_golden_values(convert: Any, case: int) -> None:
    document = _read("npsvor")
    X, y, case_document = np.array(document["x"]), np.array(document["y"], dtype=np.float64), document["cases"][case]
    params = npsvor.Params.of(case_document["params"])
    for checkpoint in case_document["checkpoints"]:
        n = checkpoint["after"]
        state, values = run(params, convert(X[:n]), y[:n], dim=4, seed=case_document["seed"])
        np.testing.assert_allclose(values, case_document["scores"][:n], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(planes(state), checkpoint["iterate"], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(planes(npsvor.weights(params, state)), checkpoint["average"], rtol=1e-9, atol=1e-12)
    assert n == len(y)
    for rule in ("new", "old"):
        ranked = npsvor.decide(npsvor.Params.of(case_document["params"] | {"rule": rule}), values)
        assert ranked.ranks.tolist() == case_document[rule]


@KINDS
def test_batch_matches_the_golden_values(convert: Any) -> None:
    document = _read("npsvor_batch")
    X, y = np.array(document["x"]), np.array(document["y"], dtype=np.float64)
    params = npsvor_batch.Params.of(document["params"] | {"tolerance": 1e-14})
    state = npsvor_batch.fit(params, convert(X), 4, y, np.ones(len(y)), 3)
    result = planes(state)
    np.testing.assert_allclose(result, document["planes"], rtol=1e-9, atol=1e-9)
    caps = np.full(len(y), params.C)
    Z = naive_npsvor.with_bias(X)
    objectives = [naive_npsvor.primal(result[k], Z, y, k + 1, caps, params.eps) for k in range(params.ranks)]
    np.testing.assert_allclose(objectives, document["objectives"], rtol=1e-9)
    values = linear_scores(npsvor_batch.weights(params, state), convert(X))
    for rule in ("new", "old"):
        ranked = npsvor_batch.decide(npsvor_batch.Params.of(document["params"] | {"rule": rule}), values)
        assert ranked.ranks.tolist() == document[rule]


# online


@functools.cache
def naive_streams(dim: int, density: float, options: str) -> list[Any]:
    """Return events and weights with what the naive version makes of them; both kinds of rows share it."""
    overrides = json.loads(options)
    X, y, _ = stream(120, dim, seed=dim, density=density, ranks=overrides.get("ranks", 5))
    return [
        (X, y, weight, naive_npsvor.online(X, y, weight, **overrides, seed=5))
        for weight in (np.ones(120), weights_of(y))
    ]


@KINDS
@pytest.mark.parametrize(
    "options",
    [
        {"replays": 0},
        {},
        {"replays": 3, "capacity": 1},
        {"replays": 2, "capacity": 7, "C": 4.0, "eps": 0.0},
        {"replays": 9, "capacity": 40, "C": 0.01, "eps": 0.5, "ranks": 2},
        {"ranks": 9},
        {"C": 0.25, "C1": 1.0},
        {"C1": 0.03125, "replays": 2, "capacity": 7},
    ],
    ids=str,
)
@pytest.mark.parametrize(("dim", "density"), [(1, 1.0), (11, 0.4)])
def test_online_matches_the_naive_version(convert: Any, options: dict[str, Any], dim: int, density: float) -> None:
    params = npsvor.Params(**options)
    for X, y, weight, (expected, iterate, average) in naive_streams(dim, density, json.dumps(options)):
        state, values = run(params, convert(X), y, weight, dim=dim, seed=5)
        np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(planes(state), iterate, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(planes(npsvor.weights(params, state)), average, rtol=1e-9, atol=1e-11)


def test_the_average_stays_accurate_over_a_long_stream() -> None:
    X, y, _ = stream(10_000, 2, seed=8)
    state, values = run(npsvor.Params(replays=0), X, y, dim=2)
    expected, _, average = naive_npsvor.online(X, y, np.ones(len(y)), replays=0, capacity=1)
    np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(planes(npsvor.weights(npsvor.Params(), state)), average, rtol=1e-9, atol=1e-11)


@KINDS
@given(cuts=st.lists(st.integers(0, 80), max_size=8), replays=st.sampled_from([0, 2]))
@settings(max_examples=15)
def test_batching_and_restoring_change_no_bit(convert: Any, cuts: list[int], replays: int) -> None:
    X, y, _ = stream(80, 19, seed=2, density=0.6)
    X[50] = 1.0  # the longest row widens the buffer
    params, weight = npsvor.Params(replays=replays, capacity=16), weights_of(y)
    full, values = run(params, convert(X), y, weight, dim=19, seed=4)
    parts, pieces = run(params, convert(X), y, weight, dim=19, seed=4, cuts=cuts)
    assert same_bits(full, parts)
    assert values.tobytes() == pieces.tobytes()


@KINDS
@pytest.mark.parametrize("replays", [0, 3])
def test_values_equal_those_of_the_published_planes(convert: Any, replays: int) -> None:
    X, y, _ = stream(60, 11, seed=3, density=0.7)
    X[7] = 0.0
    params = npsvor.Params(replays=replays)
    state = npsvor.init(params, 11, 0)
    for i in range(len(y)):
        row, values = convert(X[i : i + 1]), np.empty((1, 5))
        published = linear_scores(npsvor.weights(params, state), row)
        state = npsvor.learn(params, state, row, y[i : i + 1], np.ones(1), values)
        assert values.tobytes() == published.tobytes()
    assert published.any()


@KINDS
def test_events_of_weight_zero_are_skipped(convert: Any) -> None:
    X, y, _ = stream(90, 5, seed=6)
    weight = weights_of(y)
    params, first_params = npsvor.Params(capacity=8), weight > 0
    state, values = run(params, convert(X), y, weight, dim=5)
    without, others = run(params, convert(X[first_params]), y[first_params], weight[first_params], dim=5)
    assert same_bits(state, without)
    assert values[first_params].tobytes() == others.tobytes()


def test_a_weight_multiplies_C() -> None:
    X, y, _ = stream(90, 5, seed=7)
    twice, values = run(npsvor.Params(C=0.125), X, y, np.full(90, 2.0), dim=5)
    once, others = run(npsvor.Params(C=0.25), X, y, dim=5)
    assert same_bits(twice, once)
    assert values.tobytes() == others.tobytes()


def test_grow_equals_starting_with_all_columns() -> None:
    X, y, _ = stream(80, 16, seed=4, density=0.4)
    X[:40, 8:] = 0.0
    params = npsvor.Params()
    large, _ = run(params, as_sparse(X), y, dim=16, seed=7)
    state, _ = run(params, as_sparse(X[:40]), y[:40], dim=8, seed=7)
    state = npsvor.grow(params, state, 16)
    state = npsvor.learn(params, state, piece(as_sparse(X), 40, 80), y[40:], np.ones(40), np.empty((40, 5)))
    assert same_bits(state, large)


def test_dense_and_sparse_rows_cannot_be_mixed() -> None:
    X, y, _ = stream(10, 5, seed=1)
    params, values = npsvor.Params(), np.empty((10, 5))
    for first, then in ((X, as_sparse(X)), (as_sparse(X), X)):
        state, _ = run(params, first, y, dim=5)
        with pytest.raises(ValueError, match="rows"):
            npsvor.learn(params, state, then, y, np.ones(10), values)


def test_replays_converge_to_the_optimum() -> None:
    X, y, _ = stream(100, 4, seed=9)
    caps, Z = np.full(100, 0.25), naive_npsvor.with_bias(X)
    best = fit(X, y, dim=4, C=0.25, tolerance=1e-10)

    def total(w: Matrix) -> float:
        return sum(naive_npsvor.primal(w[k], Z, y, k + 1, caps, 0.1) for k in range(5))

    result = [planes(run(npsvor.Params(replays=replays), X, y, dim=4)[0]) for replays in (0, 4, 64)]
    excess = [total(w) / total(best) - 1 for w in result]
    assert excess[0] > excess[1] > excess[2] > -1e-9
    assert excess[2] < 0.03 < 0.1 < excess[0]


# batch


@functools.cache
def naive_fits(case: int, dim: int, density: float) -> list[Any]:
    """Return events and weights with the naive fit of `BATCHES[case]` to them; both kinds of rows share it."""
    X, y, _ = stream(70, dim, seed=dim, density=density)
    X[5] = 0.0
    return [
        (X, y, weight, *naive_npsvor.batch(X, y, weight, **BATCHES[case], seed=3))
        for weight in (np.ones(len(y)), weights_of(y))
    ]


@KINDS
@pytest.mark.parametrize(
    ("case", "dim", "density"),
    [(0, 2, 1.0), *((case, 9, 0.3) for case in range(len(BATCHES)))],
    ids=["of two columns", *(str(options) for options in BATCHES)],
)
def test_batch_matches_the_naive_version(convert: Any, case: int, dim: int, density: float) -> None:
    shrunk = 0
    for X, y, weight, expected, times in naive_fits(case, dim, density):
        actual = fit(convert(X), y, weight, dim=dim, seed=3, **BATCHES[case])
        np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-9)
        shrunk += times
    assert shrunk > 20


GAPS: list[tuple[dict[str, Any], float | None]] = [
    ({"C": 0.1}, None),
    ({"C": 2.0}, 1.0),
    ({"bias": False}, 3.0),
    ({"eps": 0.0}, 5.0),
    ({"eps": 0.9}, None),
    ({"C": 0.5, "C1": 4.0}, None),
    ({"C": 2.0, "C1": 0.25, "solver": "dcd-1"}, 2.0),
    ({"eps": 0.3, "bias": False, "solver": "dcd-1"}, None),
]


@functools.cache
def dual_bounds(case: int) -> tuple[Matrix, Vector, list[float]]:
    """Return events, and the dual value of each rank's plane by SLSQP; both kinds of rows share it."""
    (options, missing), (X, y, _) = GAPS[case], stream(50, 4, seed=11, density=0.8)
    if missing is not None:  # an event of that rank becomes one of a neighbouring rank: no event has it
        y[y == missing] += 1.0 if missing < 5.0 else -1.0
    params = npsvor_batch.Params(**options)
    Z = naive_npsvor.with_bias(X, float(params.bias))
    caps = [naive_npsvor.caps_of(y, k + 1, weights_of(y), params.C, params.C1) for k in range(params.ranks)]
    return X, y, [naive_npsvor.dual(Z, y, k + 1, caps[k], params.eps) for k in range(params.ranks)]


@pytest.mark.long
@KINDS
@pytest.mark.parametrize("case", range(len(GAPS)), ids=[f"{options}-{missing}" for options, missing in GAPS])
def test_batch_closes_the_duality_gap(convert: Any, case: int) -> None:
    options, (X, y, bounds) = GAPS[case][0], dual_bounds(case)
    params, weight = npsvor_batch.Params(**options), weights_of(y)
    result = fit(convert(X), y, weight, dim=4, **options, tolerance=1e-12, sweeps=100_000)
    Z = naive_npsvor.with_bias(X, float(params.bias))
    for k, bound in enumerate(bounds):
        caps = naive_npsvor.caps_of(y, k + 1, weight, params.C, params.C1)
        value = naive_npsvor.primal(result[k], Z, y, k + 1, caps, params.eps)
        assert -1e-9 * value < value - bound < 1e-6 * max(value, 1.0)


@KINDS
@pytest.mark.parametrize(
    "options", [{}, {"C": 0.5, "C1": 4.0, "eps": 0.3}, {"C": 2.0, "C1": 0.25, "bias": False}], ids=str
)
def test_both_solvers_end_at_the_same_planes(convert: Any, options: dict[str, Any]) -> None:
    X, y, _ = stream(60, 4, seed=14, density=0.8)
    first, second = (
        fit(convert(X), y, weights_of(y), dim=4, solver=solver, tolerance=1e-12, sweeps=100_000, **options)
        for solver in ("dcd-1", "dcd-2")
    )
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)
    early = (
        fit(convert(X), y, weights_of(y), dim=4, solver=solver, sweeps=1, **options) for solver in ("dcd-1", "dcd-2")
    )
    assert np.abs(np.subtract(*early)).max() > 1e-3  # by other steps


@ALGORITHMS
def test_c1_of_null_is_c(algorithm: Any) -> None:
    X, y, _ = stream(60, 4, seed=15)
    results = []
    for C1 in (None, 0.5, 0.25):
        params = algorithm.Params(C=0.5, C1=C1)
        if algorithm is npsvor:
            results.append(planes(run(params, X, y, dim=4)[0]))
        else:
            results.append(planes(npsvor_batch.fit(params, X, 4, y, np.ones(60), 0)))
    assert same_bits([results[0]], [results[1]])
    assert np.abs(results[0] - results[2]).max() > 1e-3


def test_missing_ranks_are_interpolated_by_their_neighbours() -> None:
    X, y, _ = stream(300, 3, seed=12)
    params, first_params = npsvor_batch.Params(), y != 3.0
    ranked = []
    for value in (first_params, np.ones(300, dtype=np.bool_)):
        state = npsvor_batch.fit(params, X[value], 3, y[value], np.ones(int(value.sum())), 0)
        ranked.append(npsvor_batch.decide(params, linear_scores(npsvor_batch.weights(params, state), X)))
    error, usual = (np.abs(item.ranks - y)[first_params].mean() for item in ranked)
    assert error < usual + 0.05
    assert usual < 0.7
    assert np.corrcoef(ranked[0].scores, ranked[1].scores)[0, 1] > 0.98


@pytest.mark.long
def test_a_tighter_tolerance_is_closer_to_the_optimum() -> None:
    X, y, _ = stream(200, 6, seed=13)
    best, loose, tight = (fit(X, y, dim=6, tolerance=share, sweeps=100_000) for share in (1e-13, 0.5, 1e-8))
    loose, tight = np.abs(loose - best).max(), np.abs(tight - best).max()
    assert tight < 1e-6 < 1e-2 < loose


@KINDS
def test_batch_ignores_events_of_weight_zero_and_zero_rows(convert: Any) -> None:
    X, y, _ = stream(90, 5, seed=14)
    weight = weights_of(y)
    mask = weight > 0
    assert fit(convert(X), y, weight, dim=5).tobytes() == fit(convert(X[mask]), y[mask], weight[mask], dim=5).tobytes()
    X[40:] = 0.0
    value = fit(convert(X), y, dim=5, bias=False)
    assert value.tobytes() == fit(convert(X[:40]), y[:40], dim=5, bias=False).tobytes()
    assert not value[:, -1].any()


@pytest.mark.parametrize("only", [3.0, 0.0])
def test_batch_refuses_a_single_rank(only: float) -> None:
    X, y, _ = stream(90, 5, seed=14)
    with pytest.raises(ValueError, match="rank"):
        fit(X, y, (y == only) * 1.0, dim=5)


@KINDS
def test_batch_is_reproducible_and_does_not_modify_its_arguments(convert: Any) -> None:
    X, y, _ = stream(120, 5, seed=15, density=0.7)
    rows, weight = convert(X), weights_of(y)
    parts = [*([rows] if isinstance(rows, np.ndarray) else rows), y, weight]
    before = [part.copy() for part in parts]
    first = fit(rows, y, weight, dim=5, seed=1)
    assert first.tobytes() == fit(rows, y, weight, dim=5, seed=1).tobytes()
    assert first.tobytes() != fit(rows, y, weight, dim=5, seed=2).tobytes()
    assert all(part.tobytes() == copy.tobytes() for part, copy in zip(parts, before, strict=True))


@pytest.mark.parametrize("options", BATCHES, ids=str)
def test_batch_of_sparse_rows_equals_dense_rows(options: dict[str, Any]) -> None:
    X, y, _ = stream(150, 12, seed=16, density=0.5)
    dense = fit(X, y, weights_of(y), dim=12, **options)
    np.testing.assert_allclose(fit(as_sparse(X), y, weights_of(y), dim=12, **options), dense, rtol=1e-9, atol=1e-9)


def test_batch_grows_before_and_after_a_fit() -> None:
    params = npsvor_batch.Params(ranks=3)
    empty = npsvor_batch.init(params, 4, 0)
    assert planes(empty).tolist() == np.zeros((3, 5)).tolist()
    assert same_bits(npsvor_batch.grow(params, empty, 8), npsvor_batch.init(params, 8, 0))
    X, y, _ = stream(50, 4, seed=17, ranks=3)
    state = npsvor_batch.grow(params, npsvor_batch.fit(params, as_sparse(X), 4, y, np.ones(50), 0), 8)
    wide = npsvor_batch.fit(params, as_sparse(X), 8, y, np.ones(50), 0)
    assert same_bits(state, wide)


# both


@ALGORITHMS
def test_decision_rules(algorithm: Any) -> None:
    values = np.array([[0.0, 0.0, 0.0], [3.0, -1.0, -2.0], [3.0, 2.0, -2.5], [0.4, 3.0, 2.0], [-1.0, 1.0, 1.0]])
    new = algorithm.decide(algorithm.Params(ranks=3), values)
    old = algorithm.decide(algorithm.Params(ranks=3, rule="old"), values)
    assert new.ranks.tolist() == [1, 2, 2, 3, 2]
    assert old.ranks.tolist() == [1, 2, 2, 1, 1]
    assert new.ranks.dtype == old.ranks.dtype == np.int64
    assert new.scores.tolist() == old.scores.tolist() == pytest.approx([0.0, -1.0, 4.5, 8.4, 2.0])


@KINDS
@ALGORITHMS
@pytest.mark.parametrize("rule", ["new", "old"])
def test_ranks_and_severities_are_correct(algorithm: Any, convert: Any, rule: Any) -> None:
    X, y, severity = stream(1500, 6, seed=18)
    params = algorithm.Params(rule=rule)
    if algorithm is npsvor:
        values = run(params, convert(X), y, dim=6)[1]
    else:
        state = algorithm.fit(params, convert(X[:700]), 6, y[:700], np.ones(700), 0)
        assert isinstance(algorithm.weights(params, state), Linear)
        values = linear_scores(algorithm.weights(params, state), convert(X))
    ranked = algorithm.decide(params, values[700:])
    assert np.abs(ranked.ranks - y[700:]).mean() < 0.3  # always the middle rank: 1.2
    assert set(ranked.ranks.tolist()) == {1, 2, 3, 4, 5}
    assert np.corrcoef(ranked.scores, severity[700:])[0, 1] > 0.95
    for rank in range(1, 6):  # within a rank too
        inside = y[700:] == rank
        assert np.corrcoef(ranked.scores[inside], severity[700:][inside])[0, 1] > 0.5


_VALUES = [0.0, -0.0, 5e-324, -1e-310, 1e-160, -1e-30, 1.0, -1.0, 3.5, -1e15, 1e30, -1e30]
_EVENTS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(_VALUES), min_size=3, max_size=3),
        st.sampled_from([1.0, 2.0, 3.0]),
        st.sampled_from([0.0, 5e-324, 1e-9, 1.0, 1e6]),
    ),
    max_size=12,
)


@pytest.mark.long
@KINDS
@given(
    events=_EVENTS, C=st.sampled_from([1e-300, 1.0, 2.0**20]), eps=st.sampled_from([0.0, 0.1, 1.0]), flag=st.booleans()
)
@settings(max_examples=40)
def test_finite_and_bounded_at_extreme_values(convert: Any, events: Any, C: float, eps: float, flag: bool) -> None:
    events = [*events, ([1.0, 0.0, 0.0], 1.0, 1.0), ([0.0, 1.0, 0.0], 3.0, 1.0)]
    X, y = np.array([x for x, _, _ in events]), np.array([label for _, label, _ in events])
    weight = np.array([share for _, _, share in events])
    batch = fit(convert(X), y, weight, dim=3, ranks=3, C=C, eps=eps, bias=flag)
    params = npsvor.Params(ranks=3, C=C, eps=eps, replays=4 * flag, capacity=3)
    state, values = run(params, convert(X), y, weight, dim=3)
    average = planes(npsvor.weights(params, state))
    assert all(np.isfinite(part).all() for part in (*state, values, batch, average))
    for result in (batch, planes(state), average):
        assert (np.square(result).sum(axis=1) <= 2 * C * weight.sum() * (1 + 1e-6)).all()


@pytest.mark.parametrize("A", [0.0, np.inf])
def test_a_zero_row_makes_no_step(A: float) -> None:
    assert npsvor.new_dual(0.25, 0.5, A, False, 0.1, 1.0) == 0.25
    assert npsvor.new_dual(-0.25, 0.5, A, True, 0.1, 1.0) == -0.25


@pytest.mark.parametrize(("B", "expected"), [(1e-3, 0.0), (0.5, -2.0), (-0.5, 2.0)])
def test_a_step_along_a_nearly_zero_row_ends_at_a_bound(B: float, expected: float) -> None:
    assert npsvor.new_dual(0.0, B, 5e-324, True, 0.1, 2.0) == expected
    assert npsvor.new_dual(0.0, B, 5e-324, False, 0.1, 2.0) == 2.0


@ALGORITHMS
@pytest.mark.parametrize("bad", [{"ranks": 1}, {"ranks": 65}, {"C": 0.0}, {"eps": -0.1}, {"rule": "best"}], ids=str)
def test_invalid_settings_are_refused(algorithm: Any, bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(bad))):
        algorithm.Params.of(bad)
