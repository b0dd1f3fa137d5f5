"""The ordinal baselines svc, svr, redsvm, svor: against their duals by SciPy, scikit-learn, and at their edges."""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from sklearn.svm import LinearSVC, LinearSVR

from learners.algorithms import _liblinear
from learners.algorithms.base import linear_scores
from learners.algorithms.baselines import redsvm, svc, svor, svr
from learners.numerics.arrays import Matrix, Rows, Vector
from learners.settings import InvalidInput
from tests.learners.streams import as_sparse, same_bits

ALL = pytest.mark.parametrize("algorithm", [svc, svr, redsvm], ids=lambda item: item.__name__[9:])
KINDS = pytest.mark.parametrize("convert", [np.ascontiguousarray, as_sparse], ids=["dense", "sparse"])
EXACT: dict[str, Any] = {"tolerance": 1e-10, "sweeps": 1_000_000}


def _events(n: int, dim: int, ranks: int, seed: int, density: float = 1.0) -> tuple[Matrix, Vector]:
    """Draw rows (n, dim) and ranks: a noisy direction, cut at quantiles so that all ranks occur."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, dim))
    X[random.random((n, dim)) >= density] = 0.0
    severity = X @ np.linspace(1.0, 2.0, dim) + random.normal(size=n)
    return X, 1.0 + np.searchsorted(np.quantile(severity, np.arange(1, ranks) / ranks), severity)


def _shares(n: int) -> Vector:
    return np.random.default_rng(1).choice([0.5, 1.0, 3.0], n)


def _box(Q: Matrix, p: Vector, low: Vector, high: Vector) -> Vector:
    """Minimise a.Q a / 2 + p.a within bounds."""
    result = optimize.minimize(
        lambda a: (0.5 * a @ Q @ a + p @ a, Q @ a + p),
        np.clip(np.zeros(len(p)), low, high),
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(low, high, strict=True)),
        options={"maxiter": 100_000, "maxfun": 100_000, "ftol": 1e-16, "gtol": 1e-10},
    )
    return np.asarray(result.x)


def _hinge(X: Matrix, z: Vector, cap: Vector) -> Vector:
    """w of the machine without intercept over the rows X with labels z of -1 and +1, by its dual."""
    signed = X * z[:, None]
    return signed.T @ _box(signed @ signed.T, -np.ones(len(z)), np.zeros(len(z)), cap)


def _insensitive(X: Matrix, y: Vector, cap: Vector, eps: float) -> Vector:
    """w of the regression without intercept, by its dual: up - down is the dual of each event."""
    K = X @ X.T
    Q = np.block([[K, -K], [-K, K]])
    duals = _box(Q, np.concatenate([eps - y, eps + y]), np.zeros(2 * len(y)), np.concatenate([cap, cap]))
    return X.T @ (duals[: len(y)] - duals[len(y) :])


def _values(algorithm: Any, params: Any, state: Any, rows: Rows) -> Matrix:
    return linear_scores(algorithm.weights(params, state), rows)


def _fit(algorithm: Any, params: Any, rows: Rows, dim: int, y: Vector, weight: Vector | None = None) -> Any:
    return algorithm.fit(params, rows, dim, y, np.ones(len(y)) if weight is None else weight, 0)


CASES = pytest.mark.parametrize(
    ("C", "scaling", "ranks"), [(1.0, 1.0, 5), (0.1, 2.0, 3), (4.0, 0.5, 4), (0.5, 1.0, 2)], ids=str
)


@functools.cache  # both kinds of rows share it
def _svc_dual(rank: int, C: float, scaling: float, ranks: int) -> Vector:
    X, y = _events(40, 3, ranks, seed=ranks, density=0.8)
    wide = np.column_stack([X, np.full(40, scaling)])
    return _hinge(wide, np.where(y == rank, 1.0, -1.0), C * _shares(40))


@functools.cache
def _svr_dual(eps: float, C: float, scaling: float, ranks: int) -> Vector:
    X, y = _events(40, 3, ranks, seed=ranks, density=0.8)
    return _insensitive(np.column_stack([X, np.full(40, scaling)]), y, C * _shares(40), eps)


@functools.cache
def _redsvm_dual(C: float, scaling: float, ranks: int) -> Vector:
    X, y = _events(40, 3, ranks, seed=ranks, density=0.8)
    extended = [
        (np.concatenate([x, [-scaling if level == k else 0.0 for level in range(1, ranks)]]), 1.0 if r > k else -1.0, c)
        for x, r, c in zip(X, y, C * _shares(40), strict=True)
        for k in range(1, ranks)
    ]
    rows, z, cap = (np.array(part) for part in zip(*extended, strict=True))
    return _hinge(rows, z, cap)


@CASES
@KINDS
def test_svc_equals_its_dual(convert: Any, C: float, scaling: float, ranks: int) -> None:
    X, y = _events(40, 3, ranks, seed=ranks, density=0.8)
    params = svc.Params(ranks=ranks, C=C, intercept_scaling=scaling, **EXACT)
    state = _fit(svc, params, convert(X), 3, y, _shares(40))
    for k in range(ranks):
        w = _svc_dual(k + 1, C, scaling, ranks)
        np.testing.assert_allclose(state.w[k], w[:-1], atol=2e-5)
        np.testing.assert_allclose(state.bias[k], scaling * w[-1], atol=2e-5)


@CASES
@pytest.mark.parametrize("eps", [0.0, 0.1, 0.7])
@KINDS
def test_svr_equals_its_dual(convert: Any, eps: float, C: float, scaling: float, ranks: int) -> None:
    X, y = _events(40, 3, ranks, seed=ranks, density=0.8)
    params = svr.Params(ranks=ranks, C=C, intercept_scaling=scaling, eps=eps, **EXACT)
    state = _fit(svr, params, convert(X), 3, y, _shares(40))
    w = _svr_dual(eps, C, scaling, ranks)
    np.testing.assert_allclose(state.w, w[:-1], atol=2e-5)
    np.testing.assert_allclose(state.bias, scaling * w[-1:], atol=2e-5)


@CASES
@KINDS
def test_redsvm_equals_the_dual_of_its_extended_examples(convert: Any, C: float, scaling: float, ranks: int) -> None:
    X, y = _events(40, 3, ranks, seed=ranks, density=0.8)
    params = redsvm.Params(ranks=ranks, C=C, intercept_scaling=scaling, **EXACT)
    state = _fit(redsvm, params, convert(X), 3, y, _shares(40))
    w = _redsvm_dual(C, scaling, ranks)
    np.testing.assert_allclose(state.w, w[:3], atol=2e-5)
    np.testing.assert_allclose(state.theta, scaling * w[3:], atol=2e-5)
    assert (np.diff(state.theta) > -1e-6).all()


@pytest.mark.parametrize(
    ("C", "ranks"),
    [pytest.param(1.0, 5, marks=pytest.mark.long), (0.1, 3), pytest.param(4.0, 4, marks=pytest.mark.long), (0.5, 2)],
)
@KINDS
def test_svor_equals_its_dual(convert: Any, C: float, ranks: int) -> None:
    X, y = _events(40, 3, ranks, seed=ranks, density=0.8)
    caps = C * _shares(40)
    above = np.where(y[:, None] > np.arange(1, ranks), 1.0, -1.0)  # (n, ranks - 1)
    state = _fit(svor, svor.Params(ranks=ranks, C=C, **EXACT), convert(X), 3, y, _shares(40))
    loss = np.maximum(0, 1 - above * ((X @ state.w)[:, None] - state.theta))
    value = state.w @ state.w / 2 + caps @ loss.sum(axis=1)
    z = above.ravel()
    signed = np.repeat(X, ranks - 1, axis=0) * z[:, None]
    sums = z * np.tile(np.eye(ranks - 1), 40)  # (ranks - 1, n (ranks - 1)): what must be 0 for each threshold
    dual = optimize.minimize(
        lambda a: ((a @ signed) @ (a @ signed) / 2 - a.sum(), signed @ (a @ signed) - 1),
        np.zeros(len(z)),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, cap) for cap in np.repeat(caps, ranks - 1)],
        constraints={"type": "eq", "fun": lambda a: sums @ a, "jac": lambda _: sums},
        options={"ftol": 1e-14, "maxiter": 3000},
    )
    assert value == pytest.approx(-dual.fun, rel=1e-6)
    np.testing.assert_allclose(state.w, dual.x @ signed, atol=1e-3)
    assert (np.diff(state.theta) > -1e-6).all()


@KINDS
def test_moving_all_events_moves_the_thresholds_of_svor_alone(convert: Any) -> None:
    X, y = _events(40, 3, 3, seed=3)
    params = svor.Params(ranks=3, C=0.1, **EXACT)
    state, moved = (_fit(svor, params, convert(rows), 3, y) for rows in (X, X + 1.0))
    np.testing.assert_allclose(moved.w, state.w, atol=1e-6)
    np.testing.assert_allclose(moved.theta, state.theta + state.w.sum(), atol=1e-6)
    few, again = (_fit(svor, svor.Params(ranks=3, sweeps=3), convert(X), 3, y) for _ in range(2))
    assert same_bits(few, again)
    assert few.sweeps.tolist() == [3]


@pytest.mark.parametrize("present", [(2, 4), (1, 5), (3, 4, 5)], ids=str)
def test_svor_handles_missing_ranks(present: tuple[int, ...]) -> None:
    X, index = _events(90, 4, len(present), seed=9)
    y = np.array(present, dtype=np.float64)[index.astype(int) - 1]
    params = svor.Params()
    state = _fit(svor, params, X, 4, y)
    assert (np.diff(state.theta) > -0.01).all()
    decided = svor.decide(params, _values(svor, params, state, X))
    assert np.abs(decided.ranks - y).mean() < 0.7 * np.abs(np.median(y) - y).mean()
    assert decided.scores == pytest.approx(X @ state.w - state.theta[2])
    for labels in (np.full(90, 3.0), np.append(y[1:], 6.0)):
        with pytest.raises(ValueError, match="rank"):
            _fit(svor, params, X, 4, labels)


def test_decisions_equal_scikit_learn() -> None:
    X, y = _events(150, 4, 5, seed=0)
    unseen, _ = _events(300, 4, 5, seed=1)
    machine = LinearSVC(loss="hinge", tol=1e-4, random_state=0, max_iter=100_000).fit(X, y)
    params = svc.Params(sweeps=100_000)
    decided = svc.decide(params, _values(svc, params, _fit(svc, params, X, 4, y), unseen))
    assert decided.ranks.tolist() == machine.predict(unseen).astype(int).tolist()
    regression = LinearSVR(epsilon=0.1, tol=1e-4, random_state=0, max_iter=100_000).fit(X, y)
    expected = regression.predict(unseen)
    assert expected.max() > 5.5  # so that clipping matters
    settings_of = svr.Params(sweeps=100_000)
    ranked = svr.decide(settings_of, _values(svr, settings_of, _fit(svr, settings_of, X, 4, y), unseen))
    np.testing.assert_allclose(ranked.scores, expected, rtol=1e-12, atol=1e-12)
    assert ranked.ranks.tolist() == np.clip(np.rint(expected), 1, 5).astype(int).tolist()


def test_svc_decides_by_the_largest_plane() -> None:
    params = svc.Params(ranks=3)
    values = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [-3.0, -1.0, -1.0], [0.0, -1e300, 800.0], [np.log(2), 0, 0]])
    decided = svc.decide(params, values)
    assert decided.ranks.tolist() == [1, 1, 2, 3, 1]
    assert decided.ranks.dtype == np.int64
    share = np.exp(-2.0)
    expected = [0.0, (1 - np.e) / (np.e + 2), (1 - share) / (2 + share), 1.0, (1 - 2) / 4]
    np.testing.assert_allclose(decided.scores, expected, rtol=1e-12, atol=1e-15)
    strided = np.column_stack([values, values])[:, :3]
    assert same_bits(svc.decide(params, strided), decided)
    assert svc.decide(params, values[:0]).ranks.shape == (0,)


def test_svr_decides_by_rounding() -> None:
    params = svr.Params(ranks=4)
    state = svr.State(np.array([2.0, 0.0]), np.array([0.5]), np.ones(1, dtype=np.int64))
    X = np.array([[-9.0, 1.0], [0.5, 0.0], [0.51, 0.0], [1.0, 0.0], [1.01, 0.0], [9.0, 0.0]])
    decided = svr.decide(params, _values(svr, params, state, X))
    np.testing.assert_allclose(decided.scores, [-17.5, 1.5, 1.52, 2.5, 2.52, 18.5], rtol=1e-14)
    assert decided.ranks.tolist() == [1, 1, 2, 2, 3, 4]
    assert decided.ranks.dtype == np.int64


def test_redsvm_decides_by_counting() -> None:
    params = redsvm.Params(ranks=4)
    state = redsvm.State(np.array([1.0]), np.array([-2.0, 0.5, 3.0]), np.ones(1, dtype=np.int64))
    X = np.array([[-2.0], [-1.0], [0.5], [1.0], [4.0]])
    decided = redsvm.decide(params, _values(redsvm, params, state, X))
    assert decided.scores.tolist() == [-2.5, -1.5, 0.0, 0.5, 3.5]
    assert decided.ranks.tolist() == [1, 2, 2, 3, 4]
    assert decided.ranks.dtype == np.int64


@ALL
@pytest.mark.parametrize("ranks", [2, 5])
def test_before_any_fit_the_score_is_0(algorithm: Any, ranks: int) -> None:
    params = algorithm.Params(ranks=ranks)
    state = algorithm.init(params, 8, 3)
    assert not any(part.any() for part in state)
    decided = algorithm.decide(params, _values(algorithm, params, state, np.ones((2, 8))))
    assert decided.scores.tolist() == [0, 0]
    assert decided.ranks.tolist() == [1, 1]
    assert same_bits(algorithm.grow(params, state, 16), algorithm.init(params, 16, 3))


@ALL
def test_a_grown_state_predicts_the_same(algorithm: Any) -> None:
    X, y = _events(60, 8, 5, seed=2)
    params = algorithm.Params()
    state = _fit(algorithm, params, X, 8, y)
    wider = algorithm.grow(params, state, 24)
    padded = np.column_stack([X, np.ones((60, 16))])
    assert same_bits([_values(algorithm, params, state, X)], [_values(algorithm, params, wider, padded)])


@ALL
def test_weights_are_views_of_the_state(algorithm: Any) -> None:
    X, y = _events(60, 8, 4, seed=2)
    params = algorithm.Params(ranks=4)
    state = _fit(algorithm, params, X, 8, y)
    linear = algorithm.weights(params, state)
    planes = 4 if algorithm is svc else 3
    assert linear.w.shape == (planes, 8)
    assert linear.bias.shape == (planes,)
    assert np.shares_memory(linear.w, state.w)
    assert all(part.dtype in (np.float64, np.int64) and part.flags.c_contiguous for part in state)


@ALL
@KINDS
@pytest.mark.parametrize("ranks", [3, 5])
def test_beats_the_best_constant(algorithm: Any, convert: Any, ranks: int) -> None:
    X, y = _events(1200, 6, ranks, seed=5, density=0.9)
    params = algorithm.Params(ranks=ranks)
    state = _fit(algorithm, params, convert(X[:800]), 6, y[:800])
    decided = algorithm.decide(params, _values(algorithm, params, state, convert(X[800:])))
    constant = np.abs(np.median(y[:800]) - y[800:]).mean()
    assert np.abs(decided.ranks - y[800:]).mean() < 0.6 * constant
    assert np.corrcoef(decided.scores, y[800:])[0, 1] > 0.75


@ALL
@pytest.mark.parametrize("density", [1.0, 0.3])
def test_sparse_equals_dense_and_replays(algorithm: Any, density: float) -> None:
    X, y = _events(80, 8, 5, seed=4, density=density)
    params = algorithm.Params(sweeps=50)  # not converged: the path has to be the same, not only the end
    dense = _fit(algorithm, params, X, 8, y, _shares(80))
    assert same_bits(dense, _fit(algorithm, params, as_sparse(X), 8, y, _shares(80)))
    other = algorithm.fit(params, X, 8, y, _shares(80), 2**40 + 1)
    assert not same_bits(dense, other)
    assert same_bits(other, algorithm.fit(params, X, 8, y, _shares(80), 2**40 + 1))


@ALL
@KINDS
def test_events_of_weight_0_are_ignored(algorithm: Any, convert: Any) -> None:
    X, y = _events(80, 4, 5, seed=6, density=0.7)
    weight = np.random.default_rng(2).choice([0.0, 1.0, 2.0], 80)
    mask = weight > 0
    result = _fit(algorithm, algorithm.Params(), convert(X), 4, y, weight)
    assert same_bits(result, _fit(algorithm, algorithm.Params(), convert(X[mask]), 4, y[mask], weight[mask]))


@ALL
@KINDS
def test_weight_2_equals_two_events(algorithm: Any, convert: Any) -> None:
    X, y = _events(50, 4, 4, seed=7, density=0.7)
    twice = np.arange(50) % 3 == 0
    params = algorithm.Params(ranks=4, C=0.3, **EXACT)
    heavy = _fit(algorithm, params, convert(X), 4, y, np.where(twice, 2.0, 1.0))
    doubled = _fit(algorithm, params, convert(np.concatenate([X, X[twice]])), 4, np.concatenate([y, y[twice]]))
    for a, b in zip(heavy[:2], doubled[:2], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert np.abs(heavy.w - _fit(algorithm, params, convert(X), 4, y).w).max() > 1e-3


@ALL
@KINDS
def test_inputs_are_not_modified(algorithm: Any, convert: Any) -> None:
    X, y = _events(40, 5, 5, seed=8, density=0.7)
    rows, weight = convert(X), _shares(40)
    arrays = [*([rows] if isinstance(rows, np.ndarray) else rows), y, weight]
    before = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    state = _fit(algorithm, algorithm.Params(), rows, 5, y, weight)
    assert same_bits(before, arrays)
    assert not any(np.shares_memory(part, array) for part in state for array in arrays)


@ALL
@pytest.mark.parametrize("present", [(2, 4), (1, 5), (1, 2, 4), (3, 4, 5)], ids=str)
def test_missing_ranks_are_handled(algorithm: Any, present: tuple[int, ...]) -> None:
    X, index = _events(90, 4, len(present), seed=9)
    y = np.array(present, dtype=np.float64)[index.astype(int) - 1]
    params = algorithm.Params(**EXACT)
    state = _fit(algorithm, params, X, 4, y)
    values = _values(algorithm, params, state, np.concatenate([X, 1e6 * X, -1e-300 * X]))
    decided = algorithm.decide(params, values)
    assert np.isfinite(decided.scores).all()
    if algorithm is svc:
        assert set(decided.ranks.tolist()) == set(present)
    if algorithm is redsvm:
        between = set(range(present[0], present[-1])) - set(present)
        for k in between:
            assert state.theta[k - 1] == pytest.approx(state.theta[k - 2], abs=1e-6)
    ranks = algorithm.decide(params, _values(algorithm, params, state, X))
    assert np.abs(ranks.ranks - y).mean() < 0.7 * np.abs(np.median(y) - y).mean()


def test_svc_with_missing_ranks_equals_svc_of_fewer_classes() -> None:
    X, y = _events(90, 4, 3, seed=9)
    few = _fit(svc, svc.Params(ranks=3), X, 4, y)
    many = _fit(svc, svc.Params(ranks=7), X, 4, 2 * y)
    assert same_bits([few.w, few.bias], [many.w[1:6:2], many.bias[1:6:2]])
    assert not many.w[::2].any()
    assert many.bias[::2].tolist() == [-1e300] * 4


@ALL
@KINDS
def test_unfittable_data_is_refused(algorithm: Any, convert: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = _events(30, 4, 5, seed=10)
    params = algorithm.Params()
    for labels, weight in ((np.full(30, 3.0), np.ones(30)), (y, np.zeros(30)), (y, (y == 2).astype(np.float64))):
        with pytest.raises(ValueError, match="rank"):
            _fit(algorithm, params, convert(X), 4, labels, weight)
    for wrong in (0.0, 6.0, 2.5, -1.0, 1e300, np.nan):
        with pytest.raises(ValueError, match="rank"):
            _fit(algorithm, params, convert(X), 4, np.append(y[1:], wrong))
    with pytest.raises(ValueError, match=r"infinity|NaN"):
        _fit(algorithm, params, convert(np.where(X > 2, np.inf, X)), 4, y)
    needed = 4 * (120 + 30) if algorithm is redsvm else 120
    monkeypatch.setattr(_liblinear, "_MOST_ENTRIES", needed)
    _fit(algorithm, params, convert(X), 4, y)
    monkeypatch.setattr(_liblinear, "_MOST_ENTRIES", needed - 1)
    with pytest.raises(ValueError, match=str(needed)):
        _fit(algorithm, params, convert(X), 4, y)


@ALL
def test_non_finite_planes_are_refused(algorithm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = _events(30, 4, 5, seed=10)
    for machine in (LinearSVC, LinearSVR):
        fit = machine.fit

        def broken(self: Any, *args: Any, fit: Any = fit, **options: Any) -> None:
            fit(self, *args, **options)
            self.coef_ = self.coef_ * np.inf

        monkeypatch.setattr(machine, "fit", broken)
    with pytest.raises(ValueError, match="finite"):
        _fit(algorithm, algorithm.Params(), X, 4, y)


@ALL
def test_reports_the_number_of_sweeps(algorithm: Any) -> None:
    X, y = _events(200, 4, 5, seed=11)
    assert _fit(algorithm, algorithm.Params(sweeps=7), X, 4, y).sweeps.tolist() == [7]  # and no warning
    assert 7 < _fit(algorithm, algorithm.Params(sweeps=1_000_000), X, 4, y).sweeps[0] < 1_000_000


@ALL
def test_concurrent_fits_do_not_interfere(algorithm: Any) -> None:
    X, y = _events(2000, 10, 5, seed=12)
    params = algorithm.Params(sweeps=100)
    alone = _fit(algorithm, params, X, 10, y)
    result: list[Any] = []
    threads = [threading.Thread(target=lambda: result.append(_fit(algorithm, params, X, 10, y))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(result) == 3
    assert all(same_bits(alone, item) for item in result)


_NUMBERS = [0.0, -0.0, 5e-324, -1e-310, 1e-160, 1e-30, 1.0, -1.0, 3.5, -1e15, 1e30, -1e30]
_EVENTS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(_NUMBERS), min_size=3, max_size=3),
        st.integers(1, 3),
        st.sampled_from([5e-324, 1e-9, 1.0, 1e6]),
    ),
    min_size=2,
    max_size=12,
).filter(lambda events: len({rank for _, rank, _ in events}) > 1)


@ALL
@given(
    events=_EVENTS,
    C=st.sampled_from([1e-300, 1.0, 2.0**20]),
    scaling=st.sampled_from([2.0**-10, 1.0, 2.0**10]),
    tolerance=st.sampled_from([1e-12, 1.0]),
)
@settings(max_examples=40)
def test_finite_at_extreme_values(algorithm: Any, events: Any, C: float, scaling: float, tolerance: float) -> None:
    X: Matrix = np.array([x for x, _, _ in events])
    y = np.array([rank for _, rank, _ in events], dtype=np.float64)
    params = algorithm.Params(ranks=3, C=C, intercept_scaling=scaling, tolerance=tolerance)
    for rows in (X, as_sparse(X)):
        state = _fit(algorithm, params, rows, 3, y, np.array([weight for _, _, weight in events]))
        decided = algorithm.decide(params, _values(algorithm, params, state, rows))
        assert all(np.isfinite(part).all() for part in (*state, *decided, *algorithm.weights(params, state)))
        assert set(decided.ranks.tolist()) <= {1, 2, 3}


@ALL
def test_parameters_are_checked(algorithm: Any) -> None:
    for wrong in ({"ranks": 1}, {"ranks": 65}, {"C": 0.0}, {"tolerance": 0.0}, {"sweeps": 0}, {"intercept_scaling": 0}):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            algorithm.Params(**wrong)
