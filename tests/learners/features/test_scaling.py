"""Running scaling: against prefix statistics, at the ends of the number range, and looking against learning."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.features import scaling
from learners.features.scaling import Scaling, ScalingState
from learners.numerics.arrays import Matrix, Rows, Sparse
from learners.settings import InvalidInput
from tests.learners import naive_pipeline as slow
from tests.learners.streams import as_sparse, piece

KINDS = ["none", "unit", "standard", "maxabs"]
SLOW: dict[str, Callable[[Matrix], Matrix]] = {
    "none": np.nan_to_num,
    "unit": slow.by_norm,
    "standard": lambda X: slow.standardised(X, centre=True),
    "maxabs": slow.by_largest,
}


def run(kind: str, rows: Rows, dim: int, *, cuts: Sequence[int] = (), clip: float | None = None) -> tuple[Any, Any]:
    """Learn in pieces with ends at `cuts`; return the scaled rows, concatenated, and the final state."""
    options = Scaling(kind, clip=clip)  # type: ignore[arg-type]
    state = scaling.init(options, dim)
    n = len(rows.indptr) - 1 if isinstance(rows, Sparse) else len(rows)
    parts: list[Any] = []
    for start, stop in pairwise([0, *sorted(cuts), n]):
        given_rows = piece(rows, start, stop)
        before = [part.copy() for part in parts_of(given_rows)]
        out = scaling.learn(options, state, given_rows, np.ones(dim, dtype=np.bool_))
        assert all((a == b).all() or np.isnan(a).any() for a, b in zip(before, parts_of(given_rows), strict=True))
        parts.append(parts_of(out)[0])
    return np.concatenate(parts), state


def parts_of(rows: Rows) -> tuple[Any, ...]:
    return tuple(rows) if isinstance(rows, Sparse) else (rows,)


def stream(n: int, dim: int, seed: int) -> Matrix:
    """Columns of very different scales, offsets and densities; the first is constant."""
    random = np.random.default_rng(seed)
    X = random.normal(random.normal(size=dim) * 5, 10.0 ** random.integers(-6, 7, dim), (n, dim))
    X *= random.random((n, dim)) < random.choice([0.1, 0.5, 1.0], dim)
    X[:, 0] = 0.1
    return X


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("holes", [0.0, 0.4])
def test_dense_matches_the_naive_version(kind: str, holes: float) -> None:
    X = stream(60, 7, seed=1)
    X[np.random.default_rng(2).random(X.shape) < holes] = np.nan
    out, _ = run(kind, X, 7)
    np.testing.assert_allclose(out, SLOW[kind](X), rtol=1e-7, atol=1e-8)  # some means are a million sd away


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_with_implicit_zeros_equals_dense_without_centring(kind: str) -> None:
    X = stream(80, 9, seed=3)
    rows = as_sparse(X)
    out, _ = run(kind, rows, 9)
    expected = slow.standardised(X, centre=False) if kind == "standard" else SLOW[kind](X)
    np.testing.assert_allclose(out, as_sparse_like(expected, X), rtol=1e-9, atol=1e-9)


def as_sparse_like(values: Matrix, X: Matrix) -> Any:
    """Return the entries of `values` where X is not zero, row by row."""
    return values[X != 0]


def test_sparse_statistics_equal_those_of_the_dense_column() -> None:
    X = stream(50, 5, seed=4)
    _, state = run("standard", as_sparse(X), 5)
    last = [int(np.flatnonzero(X[:, j])[-1]) + 1 for j in range(5)]
    assert state.rows.tolist() == [50]
    assert state.seen.tolist() == last
    for j, n in enumerate(last):
        assert state.mean[j] == pytest.approx(X[:n, j].mean(), rel=1e-9)
        assert state.m2[j] == pytest.approx(X[:n, j].var() * n, rel=1e-9, abs=1e-20)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("as_rows", [np.asarray, as_sparse], ids=["dense", "sparse"])
@given(cuts=st.lists(st.integers(0, 40), max_size=6), clip=st.sampled_from([None, 0.5]))
@settings(max_examples=15)
def test_batching_changes_no_bit(kind: str, as_rows: Any, cuts: list[int], clip: float | None) -> None:
    rows = as_rows(stream(40, 6, seed=5))
    full, state = run(kind, rows, 6, clip=clip)
    parts, other = run(kind, rows, 6, cuts=cuts, clip=clip)
    assert full.tobytes() == parts.tobytes()
    assert all(a.tobytes() == b.tobytes() for a, b in zip(state, other, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("as_rows", [np.asarray, as_sparse], ids=["dense", "sparse"])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_preview_equals_learning_and_changes_nothing(kind: Any, as_rows: Any, clip: float | None) -> None:
    options, every = Scaling(kind, clip=clip), np.ones(6, dtype=np.bool_)
    rows = as_rows(stream(30, 6, seed=6))
    state = scaling.init(options, 6)
    for i in range(30):
        event = piece(rows, i, i + 1)
        before = [array.copy() for array in state]
        looked = scaling.transform(options, state, event, every)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(state, before, strict=True))
        together = scaling.transform(options, state, piece(rows, i, 30), every)  # none knows of the one before it
        learnt = scaling.learn(options, state, event, every)
        assert parts_of(looked)[0].tobytes() == parts_of(learnt)[0].tobytes()
        assert parts_of(together)[0].ravel()[: parts_of(learnt)[0].size].tobytes() == parts_of(learnt)[0].tobytes()


def with_outliers(seed: int) -> Matrix:
    """Columns of ordinary values, of many zeros and of one constant, with absurd values here and there."""
    X = stream(300, 6, seed)
    random = np.random.default_rng(seed)
    X[:, 1] = random.lognormal(4, 1.5, 300)
    places = random.random(X.shape) < 0.02
    return np.where(places, random.choice([9999999999.0, -1e30, 1e12], X.shape), X)


@pytest.mark.parametrize("kind", ["standard", "maxabs"])
@pytest.mark.parametrize("as_rows", [np.asarray, as_sparse], ids=["dense", "sparse"])
def test_outliers_are_limited_as_by_the_naive_version(kind: str, as_rows: Any) -> None:
    X = with_outliers(seed=8)
    limited = slow.limited(X, kind)
    assert (limited != X).sum() > 10
    out, state = run(kind, as_rows(X), 6)
    if kind == "maxabs":
        expected = slow.by_largest(limited)
    else:
        expected = slow.standardised(limited, centre=as_rows is np.asarray)
    np.testing.assert_allclose(out, expected if as_rows is np.asarray else expected[X != 0], rtol=1e-6, atol=1e-7)
    assert state.values.tolist() == np.count_nonzero(limited, axis=0).tolist()


@pytest.mark.parametrize("kind", ["standard", "maxabs"])
@pytest.mark.parametrize("as_rows", [np.asarray, as_sparse], ids=["dense", "sparse"])
@given(cuts=st.lists(st.integers(0, 300), max_size=6))
@settings(max_examples=10)
def test_batching_changes_no_bit_of_outliers(kind: Any, as_rows: Any, cuts: list[int]) -> None:
    rows = as_rows(with_outliers(seed=9))
    full, state = run(kind, rows, 6)
    parts, other = run(kind, rows, 6, cuts=cuts)
    assert full.tobytes() == parts.tobytes()
    assert all(a.tobytes() == b.tobytes() for a, b in zip(state, other, strict=True))
    options, every = Scaling(kind), np.ones(6, dtype=np.bool_)
    looked = scaling.transform(options, state, rows, every)
    learnt = scaling.learn(options, scaling.ScalingState._make(a.copy() for a in state), piece(rows, 0, 1), every)
    assert parts_of(looked)[0].ravel()[: parts_of(learnt)[0].size].tobytes() == parts_of(learnt)[0].tobytes()


@pytest.mark.parametrize("kind", ["standard", "maxabs"])
@pytest.mark.parametrize("as_rows", [np.asarray, as_sparse], ids=["dense", "sparse"])
@pytest.mark.parametrize("absurd", [1, 50])
def test_absurd_values_do_not_ruin_a_column(kind: Any, as_rows: Any, absurd: int) -> None:
    values = np.random.default_rng(3).lognormal(4, 1, 5000)
    places = np.linspace(100, 4900, absurd).astype(int)
    ruined = values.copy()
    ruined[places] = 9999999999
    out, _ = run(kind, as_rows(ruined[:, None]), 1)
    clean, _ = run(kind, as_rows(values[:, None]), 1)
    spread, usual = (np.delete(scaled.ravel(), places)[200:].std() for scaled in (out, clean))
    assert spread > (0.9 if absurd == 1 else 0.4) * usual
    assert np.abs(out.ravel()[places]).max() < (1.1 if kind == "maxabs" else 10)
    whole = Scaling(kind, outliers="counted")
    earlier = scaling.learn(whole, scaling.init(whole, 1), as_rows(ruined[:, None]), np.ones(1, dtype=np.bool_))
    assert np.delete(parts_of(earlier)[0].ravel(), places)[200:].std() < 0.1 * usual  # as earlier versions


def test_a_column_whose_unit_changes_has_its_new_scale_after_some_values() -> None:
    values = np.random.default_rng(3).lognormal(4, 1, 3000)
    values[1000:] *= 1e4
    for kind in ("standard", "maxabs"):
        out, state = run(kind, values[:, None], 1)
        scale = state.largest if kind == "maxabs" else np.sqrt(state.m2 / state.seen)
        assert scale[0] > 0.3 * (values.max() if kind == "maxabs" else values.std())
        assert np.isfinite(out).all()


def test_learners_of_earlier_versions_count_outliers_whole() -> None:
    assert (Scaling("maxabs").outliers, Scaling("maxabs").as_stored({"kind": "maxabs"}).outliers) == (
        "limited",
        "counted",
    )
    assert Scaling("maxabs").as_stored({"kind": "maxabs", "outliers": "limited"}).outliers == "limited"
    assert len(scaling.init(Scaling("maxabs", outliers="counted"), 3).values) == 0


EXTREMES = [
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    1e-310,
    1e-200,
    1e-160,
    1.0,
    1.0 + 2**-52,
    1e16,
    1e30,
    -1e30,
    math.nextafter(1e30, 0),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("as_rows", [np.asarray, as_sparse], ids=["dense", "sparse"])
@given(values=st.lists(st.sampled_from(EXTREMES) | st.floats(-1e30, 1e30), min_size=1, max_size=40))
@settings(max_examples=40)
def test_extreme_values_stay_finite_and_within_bounds(kind: str, as_rows: Any, values: list[float]) -> None:
    X = np.column_stack([values, np.full(len(values), values[0]), values[::-1]])
    out, state = run(kind, as_rows(X), 3)
    for array in (out, *state):
        assert np.isfinite(array).all()
    if kind in ("unit", "maxabs"):
        assert (np.abs(out) <= 1.0 + 1e-15).all()
    if kind == "standard" and as_rows is np.asarray:
        assert (np.abs(out) <= 1.001 * math.sqrt(len(values))).all()
        assert (out[:, 1] == 0.0).all()


def test_a_constant_column_is_zero_until_it_varies() -> None:
    for value in (0.1, 1e30, 5e-324, 0.0):
        out, _ = run("standard", np.array([[value]] * 5 + [[value + 1.0]]), 1)
        assert out[:5].tolist() == [[0.0]] * 5
    out, _ = run("standard", np.array([[7.0]] * 9 + [[8.0]]), 1)
    assert out[9, 0] == pytest.approx(0.9 / 0.3)


def test_missing_table_values_become_zero_and_are_not_counted() -> None:
    X = np.array([[np.nan, 1.0], [3.0, 1.0], [np.nan, 0.0], [5.0, np.nan]])
    out, state = run("standard", X, 2)
    assert out[:, 0].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert state.seen.tolist() == [2, 3]
    assert state.mean.tolist() == pytest.approx([4.0, 2 / 3])


@pytest.mark.parametrize("kind", ["standard", "maxabs"])
def test_indicators_are_not_scaled(kind: Any) -> None:
    options, scaled = Scaling(kind), np.array([True, False, False])
    state = scaling.init(options, 3)
    X = np.array([[10.0, 1.0, 0.0], [20.0, 0.0, 1.0], [30.0, 1.0, np.nan]])
    out = scaling.learn(options, state, X, scaled)
    assert isinstance(out, np.ndarray)
    assert out[:, 1:].tolist() == [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    assert all((array[1:] == 0).all() for array in state[1:])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("as_rows", [np.asarray, as_sparse], ids=["dense", "sparse"])
def test_clip_limits_the_output_and_not_the_state(kind: str, as_rows: Any) -> None:
    rows = as_rows(stream(50, 4, seed=8))
    free, state = run(kind, rows, 4)
    clipped, other = run(kind, rows, 4, clip=0.25)
    assert clipped.tobytes() == np.clip(free, -0.25, 0.25).tobytes()
    assert (np.abs(free) > 0.25).any()
    assert all(a.tobytes() == b.tobytes() for a, b in zip(state, other, strict=True))


@pytest.mark.parametrize("kind", ["none", "unit", "standard", "maxabs"])
def test_new_columns_equal_columns_present_from_the_start(kind: Any) -> None:
    options, every = Scaling(kind), np.ones(8, dtype=np.bool_)
    X = stream(40, 8, seed=9)
    X[:20, 4:] = 0.0
    rows = as_sparse(X)
    full, expected = run(kind, rows, 8)
    state: ScalingState = scaling.init(options, 4)
    first = scaling.learn(options, state, piece(rows, 0, 20), every)
    state = scaling.extend(options, state, 8)
    second = scaling.learn(options, state, piece(rows, 20, 40), every)
    assert np.concatenate([parts_of(first)[0], parts_of(second)[0]]).tobytes() == full.tobytes()
    assert all(a.tobytes() == b.tobytes() for a, b in zip(state, expected, strict=True))


def test_unknown_columns_have_no_weight_but_count_in_a_norm() -> None:
    rows = Sparse(np.array([3.0, 4.0]), np.array([0, -1]), np.array([0, 2]))
    every = np.ones(1, dtype=np.bool_)
    for kind, expected in (
        ("none", [3.0, 4.0]),
        ("unit", [0.6, 0.8]),
        ("maxabs", [1.0, 0.0]),
        ("standard", [0.0, 0.0]),
    ):
        options = Scaling(kind)  # type: ignore[arg-type]
        state = scaling.init(options, 1)
        assert parts_of(scaling.transform(options, state, rows, every))[0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("settings_", [{"kind": "minmax"}, {"clip": 0}, {"clip": -1.0}, {"clip": math.inf}, {"odd": 1}])
def test_invalid_settings_are_refused(settings_: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Scaling.of(settings_)
