"""Embeddings: against a slow version and the exact kernel, for any cut, and at the ends of the number range."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from learners.features import kernel_approximation
from learners.features.kernel_approximation import Embedding, EmbeddingState
from learners.numerics.arrays import Matrix
from learners.settings import InvalidInput

KINDS = ["nystroem", "fourier"]


def rows_of(n: int, dim: int, seed: int) -> Matrix:
    """Three clusters, in columns of different scales."""
    random = np.random.default_rng(seed)
    centres = random.normal(0, 2, (3, dim))
    return (centres[random.integers(3, size=n)] + random.normal(size=(n, dim))) * random.uniform(0.5, 2, dim)


def fitted(kind: Any, rows: Matrix, components: int, *, width: float | None = None, seed: int = 1) -> Any:
    """Return the settings, and the state fitted to the rows."""
    settings = Embedding(kind=kind, components=components, width=width)
    return settings, kernel_approximation.fit(settings, rows, seed)


def exact(X: Matrix, U: Matrix, width: float) -> Matrix:
    """k(x, u) of each pair."""
    return np.exp(-((X[:, None] - U[None]) ** 2).sum(axis=2) / width)


def slow(kind: str, state: EmbeddingState, X: Matrix) -> Matrix:
    """phi in plain NumPy; Nystroem's from the landmarks alone, its columns up to sign."""
    if kind == "fourier":
        return math.sqrt(2 / len(state.phases)) * np.cos(X @ state.frequencies + state.phases)
    U = state.landmarks.T
    e, V = np.linalg.eigh(exact(U, U, state.width[0]))
    mask = e >= 1e-8 * e.max()
    return ((exact(X, U, state.width[0]) @ V[:, mask]) / np.sqrt(e[mask]))[:, ::-1]


def test_nystroem_matches_the_golden_values() -> None:
    document = json.loads((Path(__file__).parents[1] / "algorithms" / "golden" / "nystroem.json").read_text())
    X, U = np.array(document["x"]), np.array(document["landmarks"])
    settings, state = fitted("nystroem", U, len(U), width=document["width"])  # so few rows are the landmarks
    phi = kernel_approximation.transform(settings, state, X)
    np.testing.assert_allclose(phi @ phi.T, document["inner_products"], rtol=1e-9, atol=1e-12)
    _, natural = fitted("nystroem", X, len(U))
    np.testing.assert_allclose(natural.width, [document["width"]], rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [1, 2, 7, 20])
@pytest.mark.parametrize("components", [1, 3, 10, 21])
def test_matches_the_naive_version(kind: str, dim: int, components: int) -> None:
    settings, state = fitted(kind, rows_of(60, dim, seed=dim), components)
    X = rows_of(40, dim, seed=100 + dim)
    phi = kernel_approximation.transform(settings, state, X)
    expected = slow(kind, state, X)
    assert phi.shape == expected.shape == (40, kernel_approximation.columns(state))
    signs = np.sign((phi * expected).sum(axis=0))
    # a rounding of the kernel, 1e-16, is divided by the root of an eigenvalue, 1e-4 or more, and directions of close
    # eigenvalues may mix: so the columns are compared loosely and their inner products strictly
    np.testing.assert_allclose(phi @ phi.T, expected @ expected.T, rtol=0, atol=1e-9)
    np.testing.assert_allclose(phi, expected * signs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("width", [None, 0.3, 50.0])
def test_nystroem_is_exact_if_every_row_is_a_landmark(width: float | None) -> None:
    X = rows_of(30, 4, seed=3)
    settings, state = fitted("nystroem", np.concatenate([X, X[::-1]]), 30, width=width)
    phi = kernel_approximation.transform(settings, state, X)
    np.testing.assert_allclose(phi @ phi.T, exact(X, X, state.width[0]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_more_components_approximate_the_kernel_better(kind: str) -> None:
    X = rows_of(300, 3, seed=4)
    errors = []
    for components in (4, 32, 256):
        settings, state = fitted(kind, X, components)
        phi = kernel_approximation.transform(settings, state, X)
        errors.append(float(np.sqrt(np.mean((phi @ phi.T - exact(X, X, state.width[0])) ** 2))))
    # Fourier is Monte Carlo: eight times the features, sqrt(8) = 2.8 times less; k-means on clusters does better
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < (0.06 if kind == "fourier" else 1e-3)


def test_fourier_is_unbiased() -> None:
    X = rows_of(12, 5, seed=5)
    settings = Embedding(kind="fourier", components=200, width=20.0)
    products = []
    for seed in range(60):
        phi = kernel_approximation.transform(settings, kernel_approximation.fit(settings, X, seed), X)
        products.append(phi @ phi.T)
    error = np.mean(products, axis=0) - exact(X, X, 20.0)
    assert np.abs(error).max() < 5 / math.sqrt(60 * 200)  # standard deviations of a mean of terms of variance <= 1


def test_the_width_is_the_mean_squared_distance_from_the_mean() -> None:
    X = rows_of(50, 6, seed=6) + 1e3
    for kind in KINDS:
        assert fitted(kind, X, 10)[1].width[0] == pytest.approx(X.var(axis=0).sum(), rel=1e-9)
        assert fitted(kind, X, 10, width=0.25)[1].width.tolist() == [0.25]


def test_landmarks_are_the_centres_of_well_separated_clusters() -> None:
    random = np.random.default_rng(7)
    labels = random.integers(4, size=400)
    X = np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0], [100.0, 100.0]])[labels] + random.normal(size=(400, 2))
    _, state = fitted("nystroem", X, 4)
    expected = np.array([X[labels == label].mean(axis=0) for label in range(4)])
    actual = state.landmarks.T
    nearest = ((expected[:, None] - actual[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert sorted(nearest) == [0, 1, 2, 3]
    np.testing.assert_allclose(actual[nearest], expected, atol=0.01)


def test_repeated_rows_weigh_by_their_count() -> None:
    X = np.array([[0.0]] * 30 + [[1.0]] * 10 + [[50.0]] * 5 + [[51.0]] * 15)
    _, state = fitted("nystroem", X, 2)
    np.testing.assert_allclose(np.sort(state.landmarks[0]), [0.25, 50.75], atol=0.01)


def test_nystroem_components_are_sorted_by_size_with_fixed_signs() -> None:
    settings, state = fitted("nystroem", rows_of(80, 3, seed=8), 12)
    sizes = 1 / (state.projection**2).sum(axis=0)  # |V_r e_r^(-1/2)|^2 = 1 / e_r
    assert (np.diff(sizes) < 0).all()
    largest = np.abs(state.projection).argmax(axis=0)
    assert (state.projection[largest, np.arange(kernel_approximation.columns(state))] > 0).all()
    assert settings.components == state.landmarks.shape[1] == 12


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_is_reproducible_and_depends_on_the_seed(kind: str) -> None:
    X = rows_of(200, 4, seed=9)
    _, state = fitted(kind, X, 20)
    with ThreadPoolExecutor(1) as thread:
        _, same = thread.submit(fitted, kind, X, 20).result()
    _, other = fitted(kind, X, 20, seed=2)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(state, same, strict=True))
    assert any(a.tobytes() != b.tobytes() for a, b in zip(state, other, strict=True))
    fitted(kind, X, 20, seed=2**53)


@pytest.mark.parametrize("kind", KINDS)
@given(cuts=st.lists(st.integers(0, 50), max_size=6))
@examples(max_examples=15)
def test_batching_changes_no_bit(kind: str, cuts: list[int]) -> None:
    X = rows_of(50, 5, seed=10)
    settings, state = fitted(kind, X, 11)
    full = kernel_approximation.transform(settings, state, X)
    parts = [kernel_approximation.transform(settings, state, X[a:b]) for a, b in pairwise([0, *sorted(cuts), 50])]
    single = [kernel_approximation.transform(settings, state, X[i : i + 1]) for i in range(50)]
    assert full.tobytes() == np.concatenate(parts).tobytes() == np.concatenate(single).tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_not_modified(kind: str) -> None:
    X = rows_of(40, 5, seed=11)
    before = X.copy()
    settings, state = fitted(kind, X, 7)
    copies = [array.copy() for array in state]
    kernel_approximation.transform(settings, state, X)
    assert X.tobytes() == before.tobytes()
    assert all(a.tobytes() == b.tobytes() for a, b in zip(state, copies, strict=True))


@pytest.mark.parametrize(
    ("kind", "bits"),
    [
        (
            "nystroem",
            ["0x1.ba13e8a5d0aa7p-3", "0x1.ca198276191aep-1", "-0x1.80d37938c8e5ep-4", "0x1.680b76aa0f177p-4"],
        ),
        (
            "fourier",
            ["0x1.01c920841c2cdp-1", "0x1.e06f66d6debeep-2", "-0x1.3381c6c98cb3cp-3", "-0x1.3bbb4be08520fp-1"],
        ),
    ],
)
def test_the_bits_of_a_stored_fit_never_change(kind: Any, bits: list[str]) -> None:
    """Nodes with different C libraries, or tomorrow's release, have to agree on what a stored embedding gives."""
    empty = np.zeros((0, 0))
    U = np.array([[0.5, -1.25, 2.0, 0.0, 3.0], [1.0, 0.1, -0.7, 0.3, -2.0]])
    P = np.array([[1.1, 0.2], [0.3, -1.7], [-0.6, 0.9], [0.4, 2.3], [-1.3, 0.8]])
    state = EmbeddingState(np.array([1.7]), U, P, empty, np.zeros(0))
    if kind == "fourier":
        state = EmbeddingState(np.array([1.7]), empty, empty, U, np.array([0.1, 1.2, 2.3, 3.4, 4.5]))
    X = np.array([[0.3, -0.9], [4.1, -1.0], [4.1, -1e7 if kind == "fourier" else 0.0]])
    phi = kernel_approximation.transform(Embedding(kind=kind), state, X)
    assert [float(value).hex() for value in phi.ravel()[[0, 1, -2, -1]]] == bits


EXTREMES = [0.0, -0.0, 5e-324, -1e-310, 1e-200, 1e-160, 1.0, 1.0 + 2**-52, 1e16, -1e16, 1e30, -1e30]


@pytest.mark.parametrize("kind", KINDS)
@given(
    values=st.lists(st.sampled_from(EXTREMES) | st.floats(-1e30, 1e30), min_size=1, max_size=25),
    components=st.sampled_from([1, 2, 5, 30]),
    width=st.sampled_from([None, 5e-324, 1e-300, 1.0, 1e100]),
)
@examples(max_examples=40)
def test_extreme_values_stay_finite(kind: str, values: list[float], components: int, width: float | None) -> None:
    X = np.column_stack([values, np.full(len(values), values[0]), values[::-1]])
    settings, state = fitted(kind, X, components, width=width)
    assert all(np.isfinite(array).all() for array in state)
    assert (state.width > 0).all()
    unseen = np.array([[a, b, a] for a in EXTREMES for b in EXTREMES])
    for rows in (X, unseen):
        phi = kernel_approximation.transform(settings, state, rows)
        assert phi.shape == (len(rows), kernel_approximation.columns(state))
        assert phi.shape[1] >= 1
        assert np.isfinite(phi).all()
        # |phi(x)|^2 is 2 at most, for Nystroem k(x, x) = 1 up to rounding
        assert (np.square(phi).sum(axis=1) <= (2.0 + 1e-9 if kind == "fourier" else 1.0 + 1e-6)).all()


def test_nystroem_is_0_far_from_every_landmark() -> None:
    settings, state = fitted("nystroem", rows_of(30, 2, seed=12), 5)
    far = np.array([[1e30, 0.0], [-1e30, 1e30], [1e8, 1e8], [1e5, 0.0]])
    assert not kernel_approximation.transform(settings, state, far).any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 50])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e30])
def test_equal_rows_have_zero_width_and_are_harmless(kind: str, n: int, value: float) -> None:
    settings, state = fitted(kind, np.full((n, 3), value), 8)
    assert state.width.tolist() == [1.0]
    phi = kernel_approximation.transform(settings, state, np.full((2, 3), value))
    if kind == "nystroem":
        assert phi.tolist() == [[1.0], [1.0]]  # one landmark, equal to the rows
    assert np.isfinite(phi).all()


def test_fewer_distinct_rows_than_components_and_constant_columns() -> None:
    X = np.array([[0.0, 5.0], [1.0, 5.0], [1.0, 5.0], [4.0, 5.0], [0.0, 5.0]])
    settings, state = fitted("nystroem", X, 4000)
    assert state.landmarks.T.tolist() == [[0.0, 5.0], [1.0, 5.0], [4.0, 5.0]]
    phi = kernel_approximation.transform(settings, state, X)
    np.testing.assert_allclose(phi @ phi.T, exact(X, X, state.width[0]), rtol=0, atol=1e-12)


def test_nearly_equal_rows_share_one_landmark() -> None:
    """Next to an outlier the others are one point to k-means, which would look in vain for more clusters."""
    X = np.concatenate([rows_of(50, 2, seed=13), [[1e30, 0.0]]])
    settings, state = fitted("nystroem", X, 10)
    assert state.landmarks.shape == (2, 2)
    phi = kernel_approximation.transform(settings, state, X)
    np.testing.assert_allclose(phi @ phi.T, exact(X, X, state.width[0]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["none", *KINDS])
def test_before_the_fit_there_are_no_columns(kind: Any) -> None:
    settings = Embedding(kind=kind)
    state = kernel_approximation.init(settings)
    assert kernel_approximation.columns(state) == 0
    assert all(array.size == 0 for array in state)
    X = rows_of(3, 2, seed=14)
    assert kernel_approximation.transform(settings, state, X).shape == ((3, 2) if kind == "none" else (3, 0))


def test_kind_none_keeps_the_rows() -> None:
    X = rows_of(10, 3, seed=15)
    settings, state = fitted("none", X, 5)
    assert kernel_approximation.columns(state) == 0
    assert kernel_approximation.transform(settings, state, X).tobytes() == X.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_shapes_are_refused(kind: Any) -> None:
    settings, state = fitted(kind, rows_of(10, 3, seed=16), 4)
    with pytest.raises(ValueError, match="columns"):
        kernel_approximation.transform(settings, state, np.zeros((5, 2)))
    with pytest.raises(ValueError, match="rows"):
        kernel_approximation.fit(settings, np.zeros((0, 3)), 1)
    assert kernel_approximation.transform(settings, state, np.zeros((0, 3))).shape == (0, 4)


@pytest.mark.parametrize(
    "values",
    [
        {"kind": "rbf"},
        {"components": 0},
        {"components": 4001},
        {"warmup": 1},
        {"warmup": 100_001},
        {"width": 0},
        {"width": -1.0},
        {"width": 1e101},
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(values))):
        Embedding.of(values)


def test_cos_is_accurate_to_the_last_bits() -> None:
    random = np.random.default_rng(17)
    turns = np.arange(-200, 201) * (math.pi / 4)
    angles = [turns, np.nextafter(turns, 1e9), np.linspace(-40, 40, 4001), random.uniform(-3e6, 3e6, 4000)]
    for x in np.concatenate(angles).tolist():
        assert abs(kernel_approximation._cos(x) - math.cos(x)) < 4e-16


def test_cos_of_large_arguments_is_within_their_rounding_error() -> None:
    random = np.random.default_rng(18)
    for x in (random.choice([-1, 1], 2000) * 10 ** random.uniform(6.4, 14, 2000)).tolist():
        assert abs(kernel_approximation._cos(x) - math.cos(x)) < 5e-16 + 2.0**-54 * abs(x)
    for x in [*(10 ** random.uniform(14, 308, 500)).tolist(), 1e30, -1e30, math.inf, -math.inf, math.nan]:
        assert -1.0 <= kernel_approximation._cos(x) <= 1.0
