"""The baselines of the AUC papers: golden vectors, the naive ones, and what each is known to equal or to bound.

Those that keep class means and covariances have a file of their own, `test_opauc.py`; their golden vectors are here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.algorithms.auc import loam_ilsc
from learners.algorithms.baselines import adaoam, oam, opauc, opaucr, opaucs, solam, uni_exp
from learners.numerics.arrays import Matrix, Vector
from tests.learners.algorithms import naive_auc
from tests.learners.streams import as_sparse, auc, piece, run, same_bits, stream

_DIRECTORY = Path(__file__).parents[1] / "golden"
_GOLDEN = {"adaoam": adaoam, "loam_ilsc": loam_ilsc, "oam": oam, "opauc": opauc, "solam": solam}


def _read(name: str) -> Any:
    return json.loads((_DIRECTORY / f"{name}.json").read_text())


def _means(state: Any) -> Matrix:
    return state.sums / np.maximum(state.seen, 1)[:, None]


@pytest.mark.parametrize(
    ("name", "case", "sparse"),
    [
        pytest.param(name, i, sparse, id=f"{name}-{i}-{'sparse' if sparse else 'dense'}")
        for name, algorithm in _GOLDEN.items()
        for i in range(len(_read(name)["cases"]))
        for sparse in ([False, True] if algorithm.TRAITS.sparse else [False])
    ],
)
def test_matches_the_golden_values(name: str, case: int, sparse: bool) -> None:
    algorithm, document = _GOLDEN[name], _read(name)
    case_document = document["cases"][case]
    X, y, params = np.array(document["x"]), np.array(document["y"]), algorithm.Params.of(case_document["params"])
    for checkpoint in case_document["checkpoints"]:
        n = checkpoint.pop("after")
        rows = as_sparse(X[:n]) if sparse else X[:n]
        state, scores = run(algorithm, params, rows, y[:n], dim=X.shape[1], seed=case_document["seed"])
        np.testing.assert_allclose(scores, case_document["scores"][:n], rtol=1e-9, atol=1e-12)
        for part, expected in checkpoint.items():
            actual = _means(state) if part == "means" and not hasattr(state, part) else getattr(state, part)
            np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


def _weights(y: Vector) -> Vector:
    return np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], len(y))


# loam-ilsc


@pytest.mark.parametrize("lam", [1.0, 0.01, 100.0])
@pytest.mark.parametrize("dim", [1, 4, 19])
def test_loam_ilsc_equals_the_closed_form_over_its_samples(lam: float, dim: int) -> None:
    X, y = stream(150, dim, seed=dim)
    for weight in (np.ones(len(y)), _weights(y)):
        state, scores = run(loam_ilsc, loam_ilsc.Params(lam=lam), X, y, weight=weight)
        expected, w, S = naive_auc.loam_ilsc(X, y, weight, lam=lam)
        np.testing.assert_allclose(scores, expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(state.w, w, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(state.S, S, rtol=1e-8, atol=1e-10)


def test_loam_ilsc_keeps_a_valid_inverse_on_badly_scaled_rows() -> None:
    X, y = stream(600, 6, seed=3, gap=1.5)
    X = X * 10.0 ** np.arange(-4, 8, 2) @ (np.eye(6) + 0.1)
    state, scores = run(loam_ilsc, loam_ilsc.Params(), X, y)
    assert (state.S == state.S.T).all()
    assert (np.diag(state.S) > 0).all()
    assert (np.diag(state.S) <= 1).all()
    assert auc(scores[300:], y[300:]) > 0.9


def test_loam_ilsc_learns_from_rows_with_capped_information() -> None:
    X, y = stream(400, 5, seed=3, gap=1.5)
    _, scores = run(loam_ilsc, loam_ilsc.Params(), 1e12 * X, y)
    state, expected = run(loam_ilsc, loam_ilsc.Params(lam=1e-9), X, y)
    assert abs(auc(scores[100:], y[100:]) - auc(expected[100:], y[100:])) < 1e-3
    huge, _ = run(loam_ilsc, loam_ilsc.Params(), 1e12 * X, y, weight=np.full(len(y), 1e6))
    assert huge.w @ state.w > 0.999 * np.linalg.norm(huge.w) * np.linalg.norm(state.w)


@pytest.mark.parametrize(
    ("entry", "second"), [(-1.25, 1.0), (1.25, -0.5 + 1e-6)], ids=["v below 0", "v small for its u"]
)
def test_loam_ilsc_skips_updates_that_break_positive_definiteness(entry: float, second: float) -> None:
    params = loam_ilsc.Params()
    state = loam_ilsc.init(params, 2, 0)
    state.packed[:2, :2] = [[1.0, entry], [entry, 1.0]]  # as if rounding had made it indefinite
    before = state.S.copy()
    X, y = np.array([[0.0, 0.0], [1.0, second]]), np.array([-1.0, 1.0])
    loam_ilsc.learn(params, state, X, y, np.full(2, 1e6), np.empty(2))
    assert state.S.tolist() == before.tolist()
    assert state.w.tolist() == [0, 0]
    assert state.energy.tolist() == [0]
    assert state.seen.tolist() == [1, 1]


def test_loam_ilsc_stays_within_the_bounds_of_a_minimiser() -> None:
    params = loam_ilsc.Params(lam=0.25)
    state = loam_ilsc.init(params, 2, 0)
    state.w[:] = [0.0, 1e20]  # as if rounding had blown it up
    X, y = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([-1.0, 1.0])
    loam_ilsc.learn(params, state, X, y, np.ones(2), np.empty(2))
    assert state.energy[0] == pytest.approx(1.0)
    assert 0.25 * state.w @ state.w == pytest.approx(state.energy[0])


@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.1, 0.9), lam=st.floats(1e-6, 1e3))
@settings(max_examples=30)
def test_theorem_1_of_loam_holds(seed: int, share: float, lam: float) -> None:
    X, y = stream(24, 4, seed, share=share)
    y[:2] = -1.0, 1.0
    pairwise, univariate = naive_auc.pairwise_minimiser(X, y, lam), naive_auc.univariate_minimiser(X, y, lam / 2)
    ratio = (pairwise @ univariate) / (univariate @ univariate)
    assert ratio > 0
    np.testing.assert_allclose(pairwise, ratio * univariate, rtol=1e-9, atol=1e-9 * np.abs(pairwise).max())


def test_minimisers_of_loam_match_the_golden_values() -> None:
    document = _read("loam_batch")
    X, y, lam = np.array(document["x"]), np.array(document["y"]), document["lam"]
    np.testing.assert_allclose(naive_auc.pairwise_minimiser(X, y, lam), document["w1"], rtol=1e-9)
    np.testing.assert_allclose(naive_auc.univariate_minimiser(X, y, lam / 2), document["w3"], rtol=1e-9)


# oam


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"C": 1.0, "capacity": 3}, {"C": 0.1, "capacity": 4, "buffer": "fifo"}], ids=str
)
@pytest.mark.parametrize(("dim", "density"), [(1, 1.0), (11, 0.4)])
def test_oam_matches_the_naive_version(weighted: bool, options: dict[str, Any], dim: int, density: float) -> None:
    X, y = stream(100, dim, seed=dim, density=density)
    weight = _weights(y)
    expected, w = naive_auc.oam(X, y, weight, **options, weighted=weighted, seed=5)
    for rows in (X, as_sparse(X)):
        params = oam.Params(**options, weighted=weighted)
        state, scores = run(oam, params, rows, y, weight=weight, dim=dim, seed=5)
        np.testing.assert_allclose(scores, expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(state.w, w, rtol=1e-8, atol=1e-10)


def test_oam_refuses_mixing_dense_and_sparse_rows() -> None:
    X, y = stream(4, 40, seed=0)
    params = oam.Params()
    for first, second in ((X, as_sparse(X)), (as_sparse(X), X)):
        state, _ = run(oam, params, first, y, dim=40)
        with pytest.raises(ValueError, match="sparse"):
            oam.learn(params, state, second, y, np.ones(4), np.empty(4))
        assert oam.learn(params, state, piece(second, 0, 0), y[:0], np.ones(0), np.empty(0)) is state


def test_the_time_of_oam_buffer_growth_does_not_matter() -> None:
    X, y = stream(60, 100, seed=4, density=0.1)
    X[40] = 1.0  # only then the buffers have to widen
    X[50:] = 0.0
    params = oam.Params(C=1.0, capacity=3)
    at_once, _ = run(oam, params, as_sparse(X), y)
    one_by_one, _ = run(oam, params, as_sparse(X), y, cuts=range(1, 60))
    assert same_bits(at_once, one_by_one)
    assert at_once.values.shape == at_once.columns.shape == (2, 3, 128)
    assert all(not at_once.values[c, k, at_once.lengths[c, k] :].any() for c in (0, 1) for k in range(3))


# uni-exp


@pytest.mark.parametrize("eta", [2.0**-10, 0.02])
@pytest.mark.parametrize(("dim", "density"), [(1, 1.0), (11, 0.4)])
def test_uni_exp_matches_the_naive_version(eta: float, dim: int, density: float) -> None:
    X, y = stream(200, dim, seed=dim, density=density)
    weight = _weights(y)
    expected, w = naive_auc.uni_exp(X, y, weight, eta=eta)
    for rows in (X, as_sparse(X)):
        state, scores = run(uni_exp, uni_exp.Params(eta=eta), rows, y, weight=weight, dim=dim)
        np.testing.assert_allclose(scores, expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(state.w, w, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("start", "end"), [(0.0, 1.0), (0.5, 1.5), (-7.0, 1.0), (-1e6, 1.0)])
def test_uni_exp_raises_a_margin_to_at_most_one(start: float, end: float) -> None:
    state = uni_exp.init(uni_exp.Params(), 2, 0)
    state.seen[:] = 1
    state.w[:] = [start, 0.0]
    uni_exp.learn(uni_exp.Params(eta=64.0), state, np.array([[1.0, 1.0]]), np.ones(1), np.ones(1), np.empty(1))
    assert state.w.sum() == pytest.approx(end)


def test_uni_exp_steps_never_overflow() -> None:
    state = uni_exp.init(uni_exp.Params(), 1, 0)
    state.seen[:] = 1
    state.w[:] = -1e200  # so far off that e^-margin overflows, on a row whose square underflows
    uni_exp.learn(uni_exp.Params(eta=64.0), state, np.array([[1e-170]]), np.ones(1), np.ones(1), np.empty(1))
    assert np.isfinite(state.w[0])


def test_uni_exp_does_not_diverge_on_raw_rows() -> None:
    X, y = stream(600, 6, seed=3, gap=1.5)
    _, scores = run(uni_exp, uni_exp.Params(), 1e6 * X, y)
    assert np.abs(scores).max() < 100
    assert auc(scores[300:], y[300:]) > 0.9


# solam


@pytest.mark.parametrize("options", [{}, {"R": 3.0, "c": 0.1}, {"R": 0.01, "c": 1.0}], ids=str)
@pytest.mark.parametrize("dim", [1, 4, 11])
def test_solam_matches_the_naive_version(options: dict[str, Any], dim: int) -> None:
    X, y = stream(150, dim, seed=dim)
    weight = _weights(y) / 3
    state, scores = run(solam, solam.Params(**options), X, y, weight=weight)
    expected, w, average, levels = naive_auc.solam(X, y, weight, **options)
    for actual, right in ((scores, expected), (state.w, w), (state.average, average), (state.levels, levels)):
        np.testing.assert_allclose(actual, right, rtol=1e-8, atol=1e-10)


def test_solam_keeps_its_levels_within_the_range_of_mean_scores() -> None:
    X, y = stream(300, 5, seed=1)
    params = solam.Params(R=2.0, c=1024.0)
    state, _ = run(solam, params, 10 * X, y)
    assert state.kappa[0] == pytest.approx(np.linalg.norm(10 * X, axis=1).max())
    assert np.linalg.norm(state.w) <= 2.0 * (1 + 1e-12)
    assert (state.levels[:2] <= 2.0).all()
    assert (state.levels[:2] >= -2.0 * state.kappa[0]).all()
    assert abs(state.levels[2]) <= 4.0


# every baseline


_EXTREMES = st.lists(
    st.tuples(
        st.lists(st.floats(-1e30, 1e30), min_size=8, max_size=8),
        st.sampled_from([-1.0, 1.0]),
        st.sampled_from([0.0, 1e-9, 1.0, 1e6]),
    ),
    min_size=2,
    max_size=8,
)


@pytest.mark.long
@pytest.mark.parametrize(
    "algorithm", [adaoam, loam_ilsc, oam, opauc, opaucr, opaucs, solam, uni_exp], ids=lambda item: item.__name__[9:]
)
@given(events=_EXTREMES, order=st.integers(0, 2**16))
@settings(max_examples=40)
def test_finite_for_any_rows(algorithm: Any, events: Any, order: int) -> None:
    """Rows up to 1e30, repeated with changing labels, cause no overflow and no divergence."""
    picked = np.random.default_rng(order).integers(len(events), size=60)
    X = np.array([events[i][0] for i in picked])
    y = np.random.default_rng(order + 1).choice([-1.0, 1.0], 60) * [events[i][1] for i in picked]
    weight = np.array([events[i][2] for i in picked])
    for rows in [X, as_sparse(X)] if algorithm.TRAITS.sparse else [X]:
        state, scores = run(algorithm, algorithm.Params(), rows, y, weight=weight, dim=8)
        assert all(np.isfinite(part).all() for part in (*state, scores))
