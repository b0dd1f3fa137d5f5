"""The searches of the sketch: against what the definitions say of every edge."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.decisions import threshold_search
from learners.decisions.threshold_search import ACCURACY, BINS, F_BETA, FPR, PRECISION, REACH, RECALL
from learners.numerics.arrays import Vector
from tests.learners.algorithms import naive_fmeasure as naive_f

SEARCHES = [
    ("fbeta", F_BETA, 1.0),
    ("fbeta", F_BETA, 0.5),
    ("fbeta", F_BETA, 3.0),
    ("jaccard", F_BETA, 1.0),
    ("fpr", FPR, 0.05),
    ("fpr", FPR, 0.5),
    ("precision", PRECISION, 0.3),
    ("precision", PRECISION, 0.9),
    ("recall", RECALL, 0.5),
    ("recall", RECALL, 1.0),
    ("optroc", ACCURACY, 1.0),
]


def sketched(p: Vector, y: Vector, weight: Vector) -> Vector:
    """Return the sketch of weighted events."""
    bins = np.zeros((3, BINS))
    for probability, label, item in zip(p, y, weight, strict=True):
        bins[int(label > 0), threshold_search.bin_of(threshold_search.edges(), probability)] += item
    return bins


@pytest.mark.parametrize(("name", "sought", "aim"), SEARCHES)
@given(
    events=st.lists(
        st.tuples(st.sampled_from([0.0, 1e-9, 0.02, 0.3, 0.31, 0.5, 0.9, 1.0]), st.booleans(), st.integers(1, 4)),
        max_size=30,
    )
)
@settings(max_examples=40)
def test_search_matches_the_definitions(
    name: str, sought: int, aim: float, events: list[tuple[float, bool, int]]
) -> None:
    p = np.array([event for event, _, _ in events])
    y = np.array([1.0 if label else -1.0 for _, label, _ in events])
    weight = np.array([float(event) for _, _, event in events])
    expected = naive_f.best_edge(name, p, y, weight, aim)
    beta2 = aim**2 if sought == F_BETA else aim
    actual = threshold_search.search(sought, beta2, sketched(p, y, weight), threshold_search.edges())
    assert actual == pytest.approx(expected, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize(("name", "sought", "aim"), SEARCHES)
def test_the_threshold_meets_its_target_on_its_own_events(name: str, sought: int, aim: float) -> None:
    random = np.random.default_rng(0)
    p = random.beta(0.4, 0.8, 5000)
    y = np.where(random.random(5000) < p, 1.0, -1.0)
    live = threshold_search.search(
        sought, aim**2 if sought == F_BETA else aim, sketched(p, y, np.ones(5000)), threshold_search.edges()
    )
    called, positive = p >= live, y > 0
    if name == "fpr":
        assert aim - 0.03 < np.mean(called[~positive]) <= aim
    if name == "precision":
        assert np.mean(positive[called]) >= aim
    if name == "recall":
        assert aim <= np.mean(called[positive]) < aim + 0.03
    if name == "optroc":
        assert live == pytest.approx(0.5, abs=0.05)
        assert np.mean(called == positive) >= np.mean((p >= 0.5) == positive) - 0.002


def test_an_empty_sketch_gives_the_default_threshold() -> None:
    empty = np.zeros((3, BINS))
    for sought, expected in ((F_BETA, 0.0), (FPR, 1.0), (PRECISION, 1.0), (RECALL, 0.0), (ACCURACY, 1.0)):
        assert threshold_search.search(sought, 0.5, empty, threshold_search.edges()) == expected


def test_the_bin_of_a_probability_is_the_last_edge_not_above_it() -> None:
    edges = threshold_search.edges()
    assert edges[0] == 0.0
    assert (np.diff(edges) > 0).all()
    np.testing.assert_allclose(np.log(edges[1:] / (1 - edges[1:])), -REACH + np.arange(1, BINS) * 2 * REACH / BINS)
    for p in [0.0, 5e-324, 1e-7, 0.5, 1 - 1e-9, 1.0, *edges.tolist(), *np.nextafter(edges[1:], 0.0).tolist()]:
        assert threshold_search.bin_of(edges, p) == np.searchsorted(edges, p, side="right") - 1
    assert threshold_search.bin_of(edges, np.nan) == 0
