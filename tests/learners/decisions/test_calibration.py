"""Score to probability: monotone to the last bit, calibrated on a stationary stream, and finite on any other."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from learners.decisions import calibration, calibration_histogram
from learners.decisions.calibration import Calibration, CalibrationState
from learners.numerics import log_bins
from learners.numerics.arrays import Vector
from learners.settings import InvalidInput
from tests.learners import naive_pipeline as slow

PLATT, POSTERIOR = Calibration("platt"), Calibration("posterior")
RISING: tuple[Literal["platt", "none", "isotonic"], ...] = ("platt", "none", "isotonic")
LOGISTIC = Calibration("logistic")
NONE, HISTOGRAM, ISOTONIC = Calibration("none"), Calibration("histogram"), Calibration("isotonic")


def logistic_stream(n: int, slope: float, intercept: float, scale: float, seed: int = 0) -> tuple[Vector, Vector]:
    """Scores of some scale, and labels whose log-odds are linear in them."""
    random = np.random.default_rng(seed)
    x = random.normal(size=n)
    y = np.where(random.random(n) < 1 / (1 + np.exp(-(slope * x + intercept))), 1.0, -1.0)
    return scale * x, y


def after(scores: Any, y: Any, options: Calibration = PLATT) -> tuple[Vector, CalibrationState]:
    """Return the predicted probabilities of a stream, and the state after it."""
    state = calibration.init(options)
    probabilities = calibration.learn(options, state, np.asarray(scores, np.float64), np.asarray(y, np.float64))
    assert list(calibration.problems(options, state)) == []
    assert all(np.isfinite(array).all() for array in state)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    return probabilities, state


@pytest.mark.parametrize(("memory", "seed"), [(10, 0), (100, 1), (20_000, 2), (10**9, 3)])
def test_matches_the_formulas(memory: int, seed: int) -> None:
    scores, y = logistic_stream(400, 2.0, -1.0, 0.3, seed)
    scores[:3] = 0.0
    probabilities, _ = after(scores, y, Calibration("platt", memory))
    np.testing.assert_allclose(probabilities, slow.platt(scores, y, memory), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("memory", [10, 100, 10**9])
def test_logistic_matches_the_formulas_and_begins_with_the_sigmoid(memory: int) -> None:
    scores, y = logistic_stream(400, 2.0, -1.0, 4.0)
    scores[9] = 1e9
    probabilities, _ = after(scores, y, Calibration("logistic", memory))
    expected = slow.platt(scores, y, memory, prior=(100.0, 10.0), scales=False)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-6, atol=1e-9)
    assert probabilities[0] == calibration.apply(POSTERIOR, calibration.init(POSTERIOR), scores[:1])[0]


def test_logistic_mends_a_posterior_that_is_too_sure_and_follows_the_base_rate() -> None:
    n = 12_000
    log_odds, y = logistic_stream(n, 1.0, -2.0, 1.0)
    later, more = logistic_stream(n, 1.0, 0.0, 1.0, seed=1)
    scores = np.concatenate([2.0 * (log_odds - 2.0), 2.0 * (later - 2.0)])  # twice as far from 0 as it should be
    p, _ = after(scores, np.concatenate([y, more]), Calibration("logistic", memory=1000))
    truth = 1 / (1 + np.exp(-np.concatenate([log_odds - 2.0, later])))
    for part in (slice(3000, n), slice(n + 3000, 2 * n)):
        assert np.abs(p[part] - truth[part]).mean() < 0.02


@pytest.mark.parametrize("memory", [10, 100, 10**9])
def test_kind_none_is_the_score_divided_by_its_scale(memory: int) -> None:
    scores, y = logistic_stream(400, 2.0, -1.0, 0.3)
    probabilities, _ = after(scores, y, Calibration("none", memory))
    np.testing.assert_allclose(probabilities, slow.plain(scores, memory), rtol=1e-9)


@pytest.mark.parametrize("kind", ["histogram", "isotonic"])
@pytest.mark.parametrize(("memory", "scale", "intercept"), [(10, 1.0, 0.0), (300, 1e-6, -2.0), (10**9, 300.0, -3.0)])
def test_histograms_match_the_definitions(
    kind: Literal["histogram", "isotonic"], memory: int, scale: float, intercept: float
) -> None:
    scores, y = logistic_stream(700, 2.0, intercept, scale)
    scores[::9] = scores[0]
    scores[5:300:50] = [0.0, 1e-9, -1e9, 1e9, 0.5, -0.5]
    probabilities, _ = after(scores, y, Calibration(kind, memory))
    np.testing.assert_allclose(probabilities, slow.binned(scores, y, memory, kind == "isotonic"), rtol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("options", [HISTOGRAM, ISOTONIC])
@pytest.mark.parametrize("shape", ["linear", "cubed", "saturated", "two lumps"])
def test_histograms_are_calibrated_for_any_score_distribution(options: Calibration, shape: str) -> None:
    random = np.random.default_rng(0)
    y = np.where(random.random(40_000) < 0.01, 1.0, -1.0)
    z = random.normal(size=40_000) + (y > 0) * (2.0 if shape != "two lumps" else 6.0 * (random.random(40_000) < 0.5))
    scores = {"linear": 3 * z, "cubed": z**3, "saturated": np.tanh(z), "two lumps": z}[shape]
    p, positive = after(scores, y, options)[0][4000:], y[4000:] > 0
    assert p.mean() == pytest.approx(positive.mean(), rel=0.15)
    for part in np.array_split(np.argsort(p, kind="stable"), 12):
        noise = math.sqrt(max(p[part].mean(), 1e-4) / len(part))
        assert abs(p[part].mean() - positive[part].mean()) < 4 * noise + 0.2 * p[part].mean() + 1e-3

    def loss(predictions: Vector) -> float:
        return float(-np.log(np.where(positive, predictions, 1 - predictions)).mean())

    platt = after(scores, y)[0][4000:]
    assert loss(p) < loss(platt) * (1.07 if shape in ("linear", "two lumps") else 1.0)


@pytest.mark.parametrize("options", [Calibration("histogram", memory=100), Calibration("isotonic", memory=100)])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_fully_decayed_class_is_handled(options: Calibration, sign: float) -> None:
    """Its counts fade to the smallest floats, and then to 0."""
    state = calibration.init(options)
    state.bins[int(sign < 0), 600:700:3] = [5e-324, 1e-310, 1e-300, 1e-12] * 8 + [5e-324, 0.0]
    scores = np.random.default_rng(0).normal(size=640)
    p = calibration.learn(options, state, scores, np.full(640, sign))
    assert list(calibration.problems(options, state)) == []
    assert np.abs(p[300:] - (sign > 0)).max() < 0.1


def test_maximum_counts_are_handled() -> None:
    for options in (HISTOGRAM, ISOTONIC):
        for row in (0, 1):
            state = calibration.init(options)
            state.bins[row] = 2.0**53
            state.events[0] = 63
            calibration.learn(options, state, np.zeros(1), np.ones(1))
            assert list(calibration.problems(options, state)) == []


def test_histograms_follow_a_drift() -> None:
    scores, y = logistic_stream(8000, 1.0, -3.0, 1.0)
    later, more = logistic_stream(12_000, 1.0, 1.0, 1.0, seed=1)
    for kind in ("histogram", "isotonic"):
        p, _ = after([*scores, *later], [*y, *more], Calibration(kind, memory=1000))  # type: ignore[arg-type]
        assert p[4000:8000].mean() == pytest.approx((y[4000:] > 0).mean(), abs=0.02)
        assert p[14_000:].mean() == pytest.approx((more[6000:] > 0).mean(), abs=0.03)


@pytest.mark.parametrize("kind", ["histogram", "isotonic"])
def test_very_rare_positives_are_remembered_longer(kind: Literal["histogram", "isotonic"]) -> None:
    """Of the last 1,000 events five are positive: too few to tell which scores are."""
    random = np.random.default_rng(0)
    y = np.where(random.random(60_000) < 0.005, 1.0, -1.0)
    scores = random.normal(size=60_000) + 3.0 * (y > 0)
    positive = y[30_000:] > 0

    def best_f(predictions: Vector) -> float:
        """Over the highest probabilities, however many."""
        hits = np.cumsum(positive[np.argsort(-predictions[30_000:], kind="stable")])
        return float(np.max(2 * hits / (positive.sum() + np.arange(1, len(hits) + 1))))

    attainable = best_f(scores)
    result = best_f(after(scores, y, Calibration(kind, memory=1000))[0])
    assert result > 0.45 * attainable  # with those five it is .07 of that, and less


@pytest.mark.parametrize(
    ("memory", "events", "positives", "expected"),
    [
        (1000, 64, 30.0, 1000),
        (10_000, 640, 5.0, 5000),
        (10_000, 64_000, 500.0, 10_000),  # 5 %
        (10_000, 640_000, 50.0, 40_000),  # 0.5 %
        (10_000, 256_000, 50.0, 32_000),  # fewer than eight times as many so far
        (10_000, 6_400_000, 1.0, 100_000),
        (10_000, 6_400_000, 0.0, 100_000),
        (10_000, 6_400_000, 10_000.0, 100_000),
    ],
)
def test_histogram_decay_rate(memory: int, events: int, positives: float, expected: float) -> None:
    bins = np.zeros((2, log_bins.BINS))
    bins[0, 600], bins[1, 700] = 10_000.0 - positives, positives
    calibration_histogram.fade(bins, float(memory), events)
    np.testing.assert_allclose(bins.sum(), 10_000 * (1 - 64 / expected), rtol=1e-12)


def test_isotonic_is_strictly_increasing_within_the_bins() -> None:
    scores, y = logistic_stream(5000, 2.0, -2.0, 1.0)
    _, state = after(scores, y, ISOTONIC)
    assert (np.diff(calibration.apply(ISOTONIC, state, np.linspace(-60, 60, 4001))) > 0).all()
    _, state = after(scores, y, HISTOGRAM)
    assert len(np.unique(calibration.apply(HISTOGRAM, state, np.linspace(-60, 60, 4001)))) <= 16


def test_unused_arrays_of_a_kind_are_empty() -> None:
    sizes = {
        kind: [array.size for array in calibration.init(Calibration(kind))]  # type: ignore[arg-type]
        for kind in ("posterior", "platt", "none", "histogram", "isotonic", "logistic")
    }
    assert sizes == {
        "posterior": [0, 0, 0, 0, 0, 0],
        "platt": [2, 4, 2, 1, 0, 0],
        "none": [0, 0, 2, 1, 0, 0],
        "histogram": [0, 0, 0, 1, 2 * log_bins.BINS, log_bins.BINS + 1],
        "isotonic": [0, 0, 0, 1, 2 * log_bins.BINS, log_bins.BINS + 1],
        "logistic": [2, 4, 0, 1, 0, 0],
    }


@pytest.mark.parametrize("options", [PLATT, POSTERIOR, LOGISTIC, NONE, HISTOGRAM, ISOTONIC])
def test_a_nan_score_counts_as_0(options: Calibration) -> None:
    scores, y = logistic_stream(300, 2.0, -1.0, 5.0)
    scores[::7] = np.nan
    p, state = after(scores, y, options)
    expected, other = after(np.nan_to_num(scores), y, options)
    assert p.tobytes() == expected.tobytes()
    assert all(a.tobytes() == b.tobytes() for a, b in zip(state, other, strict=True))


def test_position_of_a_score_among_the_bins() -> None:
    random = np.random.default_rng(0)
    scores = np.concatenate([random.normal(size=300) * 10.0 ** random.uniform(-9, 6, 300), [0.0, -0.0, 5e-324, np.inf]])
    scores = np.sort(np.concatenate([scores, -scores, 2.0 ** np.arange(-25, 18), -(2.0 ** np.arange(-25, 18))]))
    at = np.array([log_bins.position(score) for score in scores])
    assert (np.diff(at) >= 0).all()
    assert [int(item) for item in at] == [slow.score_bin(score) for score in scores]
    assert log_bins.position(np.nan) == log_bins.position(0.0)
    edges = [log_bins.evened(b, 300) for b in range(log_bins.BINS + 1)]
    assert (np.diff(edges) > 0).all()


def test_problems_in_a_state_are_detected() -> None:
    def wrong(options: Calibration, **arrays: Any) -> list[str]:
        return [name for name, _ in calibration.problems(options, calibration.init(options)._replace(**arrays))]

    falling = np.zeros(log_bins.BINS + 1)
    falling[5] = 1.0
    assert wrong(HISTOGRAM, odds=falling) == []
    assert wrong(ISOTONIC, odds=falling) == ["odds"]
    assert wrong(ISOTONIC, odds=falling * 200) == ["odds", "odds"]
    assert wrong(HISTOGRAM, bins=np.full((2, log_bins.BINS), -1.0)) == ["bins"]
    assert wrong(NONE, power=np.array([np.inf, 1.0])) == ["power"]
    assert wrong(PLATT, coefficients=np.array([0.0, 0.0])) == ["coefficients"]
    assert wrong(LOGISTIC, coefficients=np.array([1.0, 31.0])) == ["coefficients"]


@pytest.mark.parametrize(
    ("slope", "intercept", "scale"), [(1.5, -1.0, 1.0), (3.0, -4.0, 1e-6), (0.7, 2.0, 1e9), (2.0, -5.0, 40.0)]
)
def test_calibrated_on_a_stationary_stream(slope: float, intercept: float, scale: float) -> None:
    scores, y = logistic_stream(20_000, slope, intercept, scale)
    probabilities, state = after(scores, y)
    p, label = probabilities[4000:], y[4000:] > 0
    assert p.mean() == pytest.approx(label.mean(), abs=0.01)
    for part in np.array_split(np.argsort(p), 8):  # by rising probability, 2,000 events each
        noise = math.sqrt(max(p[part].mean() * (1 - p[part].mean()), 1e-3) / len(part))
        assert abs(p[part].mean() - label[part].mean()) < 4 * noise + 0.005
    assert state.coefficients == pytest.approx([slope, intercept], rel=0.15)
    truth = 1 / (1 + np.exp(-(slope * scores[4000:] / scale + intercept)))
    assert np.abs(p - truth).mean() < 0.015


def test_calibration_follows_a_drift_of_the_base_rate() -> None:
    scores, y = logistic_stream(6000, 1.0, -3.0, 1.0)
    later, more = logistic_stream(6000, 1.0, 1.0, 1.0, seed=1)
    probabilities, _ = after([*scores, *later], [*y, *more], Calibration("platt", memory=500))
    assert probabilities[3000:6000].mean() == pytest.approx((y[3000:] > 0).mean(), abs=0.02)
    assert probabilities[9000:].mean() == pytest.approx((more[3000:] > 0).mean(), abs=0.02)


def test_a_millionfold_growth_of_scores_is_followed() -> None:
    scores, y = logistic_stream(8000, 2.0, -1.0, 1.0)
    scores[4000:] *= 1e6
    probabilities, _ = after(scores, y, Calibration("platt", memory=200))
    p, label = probabilities[6000:], y[6000:] > 0
    assert p.mean() == pytest.approx(label.mean(), abs=0.03)
    assert p[label].mean() > p[~label].mean() + 0.2


@pytest.mark.parametrize("memory", [10, 20_000])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_long_run_of_one_class_and_then_the_other(memory: int, sign: float) -> None:
    n = 100_000
    scores = np.random.default_rng(0).normal(size=n)
    options = Calibration("platt", memory)
    probabilities, state = after(scores, np.full(n, sign), options)
    assert np.abs(probabilities[1000:] - (sign > 0)).max() < 0.05
    assert abs(state.coefficients[1]) <= 30.0
    y = np.where(np.arange(3000) % 2, 1.0, -1.0)
    later = calibration.learn(options, state, scores[:3000], y)
    assert later[1000:].mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("memory", [200, 2000, 10_000])
def test_rare_positives_and_heavy_tails_keep_the_calibration(memory: int) -> None:
    rng = np.random.default_rng(0)
    y = np.where(rng.random(50_000) < 0.004, 1.0, -1.0)
    scores = rng.standard_t(2, 50_000) + 2 * (y > 0)
    p = np.clip(after(scores, y, Calibration("platt", memory))[0], 1e-12, 1 - 1e-12)
    loss = -np.log(np.where(y > 0, p, 1 - p))[1000:].mean()
    base = (y > 0).mean()
    assert loss < 1.15 * -(base * math.log(base) + (1 - base) * math.log(1 - base))


@pytest.mark.parametrize("score", [0.0, 1.0, -3.5, 1e-200, 1e140])
def test_a_constant_score_gets_the_base_rate(score: float) -> None:
    y = np.where(np.random.default_rng(0).random(5000) < 0.2, 1.0, -1.0)
    probabilities, _ = after(np.full(5000, score), y)
    assert probabilities[2000:].mean() == pytest.approx(0.2, abs=0.03)


def test_the_first_event_gets_probability_one_half() -> None:
    for score in (0.0, 5.0, -1e30):
        assert after([score], [1.0])[0].tolist() == [0.5]


wild = st.floats(-1e300, 1e300) | st.sampled_from(
    [0.0, -0.0, 5e-324, -5e-324, 2.3e-162, 1e-160, 1e6, -1e6, 1e154, 1e200, -1e200]
)


@given(
    st.lists(st.tuples(wild, st.booleans()), min_size=1, max_size=60),
    st.lists(wild, min_size=2, max_size=20),
    st.sampled_from([10, 20_000, 10**9]),
)
@settings(max_examples=30)
def test_never_nan_and_always_monotone_in_the_score(
    past: list[tuple[float, bool]], new: list[float], memory: int
) -> None:
    for options in (
        Calibration("platt", memory),
        Calibration("logistic", memory),
        POSTERIOR,
        Calibration("none", memory),
        Calibration("isotonic", memory),
    ):
        _, state = after([score for score, _ in past], [1.0 if label else -1.0 for _, label in past], options)
        scores = np.sort(new)
        p = calibration.apply(options, state, scores)
        assert ((p >= 0) & (p <= 1)).all()
        assert (np.diff(p) >= 0).all()


@given(st.floats(-40, 40), st.integers(0, 2**32))
@example(0.0, 0)
@example(-0.3465735902799726, 0)
@settings(max_examples=40)
def test_monotone_for_adjacent_floats(middle: float, seed: int) -> None:
    """Where rounding alone decides: plain 1 / (1 + e^-x) goes down by an ulp here and there."""
    scores, y = logistic_stream(50, 1.0, 0.0, 1.0, seed)
    steps = np.cumsum(np.random.default_rng(seed).integers(0, 3, 400))
    neighbours = middle + steps * np.spacing(abs(middle))
    for options in (PLATT, POSTERIOR, LOGISTIC, NONE, ISOTONIC):
        _, state = after(scores, y, options)
        assert (np.diff(calibration.apply(options, state, neighbours)) >= 0).all()
        assert (np.diff(calibration.apply(options, state, np.linspace(-800, 800, 1001))) >= 0).all()


def test_posterior_equals_the_sigmoid() -> None:
    scores = np.array([-1e30, -800.0, -20.0, -1.0, 0.0, 1e-9, 3.0, 30.0, 800.0, 1e30])
    p, state = after(scores, np.ones(10), POSTERIOR)
    np.testing.assert_allclose(p, 1 / (1 + np.exp(-np.clip(scores, -700, 700))), rtol=2e-12, atol=1e-300)
    assert all(np.array_equal(a, b) for a, b in zip(state, calibration.init(POSTERIOR), strict=True))


@pytest.mark.parametrize("options", [PLATT, POSTERIOR, LOGISTIC, Calibration("platt", 30), NONE, HISTOGRAM, ISOTONIC])
def test_preview_equals_learning_and_changes_nothing(options: Calibration) -> None:
    scores, y = logistic_stream(200, 2.0, -1.0, 5.0)
    state = calibration.init(options)
    for i in range(200):
        before = [array.copy() for array in state]
        looked = calibration.apply(options, state, scores[i:])
        assert all(a.tobytes() == b.tobytes() for a, b in zip(state, before, strict=True))
        assert calibration.learn(options, state, scores[i : i + 1], y[i : i + 1]).tobytes() == looked[:1].tobytes()


@pytest.mark.parametrize("options", [PLATT, LOGISTIC, NONE, HISTOGRAM, ISOTONIC])
@given(st.lists(st.integers(0, 150), max_size=6))
@settings(max_examples=12)
def test_batching_changes_no_bit(options: Calibration, cuts: list[int]) -> None:
    scores, y = logistic_stream(150, 2.0, -1.0, 5.0)
    full, state = after(scores, y, options)
    other = calibration.init(options)
    parts = [
        calibration.learn(options, other, item, label)
        for item, label in zip(np.split(scores, sorted(cuts)), np.split(y, sorted(cuts)), strict=True)
    ]
    assert np.concatenate(parts).tobytes() == full.tobytes()
    assert all(a.tobytes() == b.tobytes() for a, b in zip(state, other, strict=True))


@pytest.mark.parametrize("options", [{"kind": "sigmoid"}, {"memory": 9}, {"memory": 10**9 + 1}, {"memory": 1.5}])
def test_invalid_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Calibration.of(options)
