"""Learners on the same events: figures from the definitions, bets as in the paper, corrections, states."""

from __future__ import annotations

import json
import math
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from learners import comparison
from learners.comparison import ComparedBatch, GroupComparison, GroupConfig
from learners.metrics.delong import estimate_aucs
from learners.numerics.hash_table import hashes_of
from learners.settings import InvalidInput

Vector = NDArray[np.float64]


def record(n: int, seed: int, m: int = 3, share: float = 0.3, ids: int | None = None) -> ComparedBatch:
    """Scorers that are ever better, with ties; ids out of `ids` many, a few events without one."""
    random = np.random.default_rng(seed)
    labels = np.where(random.random(n) < share, 1.0, -1.0)
    scores = random.normal(size=(n, 1)) + random.normal(size=(n, m)) + labels[:, None] * (0.2 + 0.3 * np.arange(m))
    names = [f"e{k}" if k % 5 else None for k in random.integers(0, ids or 10**9, n)]
    clocks = np.where(random.random(n) < 0.2, np.nan, random.integers(0, 1000, n) + np.arange(n))
    return ComparedBatch(hashes_of(names), labels, np.round(2 * scores) / 2, clocks)


def cut(batch: ComparedBatch, start: int, stop: int) -> ComparedBatch:
    part = slice(start, stop)
    return ComparedBatch(batch.hashes[part], batch.labels[part], batch.scores[part], batch.clocks[part])


def config(m: int = 3, **settings: Any) -> GroupConfig:
    return GroupConfig(tuple("abcdefgh"[:m]), **settings)


def compared(batch: ComparedBatch, **settings: Any) -> GroupComparison:
    out = GroupComparison(config(batch.scores.shape[1], **settings))
    out.apply(batch)
    return out


def naive_delong(labels: Vector, scores: NDArray[np.float64]) -> tuple[Vector, NDArray[np.float64]]:
    """AUCs (m,) and their covariance (m, m) by all pairs."""
    P, N = scores[labels > 0], scores[labels < 0]
    with np.errstate(invalid="ignore"):
        psi = (P[:, None] > N[None]) + 0.5 * (P[:, None] == N[None])  # (n1, n0, m)
    S10, S01 = np.cov(psi.mean(axis=1), rowvar=False), np.cov(psi.mean(axis=0), rowvar=False)
    return psi.mean(axis=(0, 1)), S10 / len(P) + S01 / len(N)


class Naive:
    """A comparison as lists and dicts."""

    def __init__(self, m: int, window: int, alpha: float, ids: int = 2**17) -> None:
        self.m, self.window, self.alpha, self.ids = m, window, alpha, max(ids, window)
        self.window_events: list[list[Any]] = []  # number, label, scores
        self.events_by_id: dict[int, list[Any]] = {}  # by hash: the event's number, its label
        self.events = self.duplicates = self.corrections = self.blocks = 0
        self.clock: float | None = None
        self.gathered: list[tuple[float, Any]] = []
        self.d: dict[tuple[int, int], list[float]] = {pair: [] for pair in combinations(range(m), 2)}
        self.wealth = {pair: [0.0, 0.0] for pair in self.d}
        self.verdict: dict[tuple[int, int], tuple[str, int, float | None]] = {}

    def apply(self, batch: ComparedBatch) -> None:
        for h, y, row, clock in zip(batch.hashes, batch.labels, batch.scores, batch.clocks, strict=True):
            if not np.isnan(clock):
                self.clock = float(clock) if self.clock is None else max(self.clock, float(clock))
            if (seen := self.events_by_id.get(int(h))) is not None:
                self.duplicates += seen[1] == y
                self.corrections += seen[1] != y
                seen[1] = y
                for event in self.window_events:
                    if event[0] == seen[0]:
                        event[1] = y
                continue
            if h:
                self.events_by_id[int(h)] = [self.events, y]
                if len(self.events_by_id) > self.ids:
                    self.events_by_id.pop(next(iter(self.events_by_id)))
            row = np.nan_to_num(row, nan=0.0, posinf=np.inf, neginf=-np.inf)
            self.window_events = [*self.window_events, [self.events, y, row]][-self.window :]
            self.events += 1
            self.meet(y, row)

    def meet(self, y: float, row: Vector) -> None:
        if not self.gathered or self.gathered[0][0] == y:
            self.gathered.append((y, row))
            return
        others = np.array([scores for _, scores in self.gathered[-1024:]])
        right = ((others < row) if y > 0 else (others > row)).mean(axis=0) + 0.5 * (others == row).mean(axis=0)
        for pair, past in self.d.items():
            d = right[pair[0]] - right[pair[1]]
            for side, sign in enumerate((1, -1)):
                stake = np.clip(sign * sum(past) / (1 + sum(x * x for x in past)), 0, 0.5)
                self.wealth[pair][side] += math.log(1 + sign * stake * d)
                if self.wealth[pair][side] >= math.log(2 / self.alpha) and pair not in self.verdict:
                    self.verdict[pair] = ("ab"[side], self.events, self.clock)
            past.append(d)
        self.blocks += 1
        self.gathered = []

    def check(self, reported: dict[str, Any]) -> None:
        """Check that a comparison reports the same."""
        assert (reported["events"], reported["duplicates"], reported["corrections"], reported["clock"]) == (
            self.events,
            self.duplicates,
            self.corrections,
            self.clock,
        )
        window = reported["window"]
        labels = np.array([event[1] for event in self.window_events])
        assert window["class_counts"] == {"negative": sum(labels < 0), "positive": sum(labels > 0)}
        if min(window["class_counts"].values()) >= 2:
            auc, covariance = naive_delong(labels, np.array([event[2] for event in self.window_events]))
            z = norm.ppf(0.975)
            for j, figures in enumerate(window["auc"].values()):
                assert figures["auc"] == pytest.approx(auc[j], abs=1e-12)
                reach = z * math.sqrt(max(covariance[j, j], 0))
                if reach < 1e-9:  # no two placements differ
                    assert figures["interval"] is None
                    continue
                assert figures["interval"] == pytest.approx([max(0, auc[j] - reach), min(1, auc[j] + reach)], abs=1e-9)
            for (a, b), figures in zip(self.d, window["differences"], strict=True):
                assert figures["difference"] == pytest.approx(auc[a] - auc[b], abs=1e-12)
                reach = z * math.sqrt(max(covariance[a, a] + covariance[b, b] - 2 * covariance[a, b], 0))
                expected = np.clip([auc[a] - auc[b] - reach, auc[a] - auc[b] + reach], -1, 1)
                assert figures["interval"] == pytest.approx(expected, abs=1e-7)
        for pair, test in zip(self.d, reported["tests"], strict=True):
            evidence = [test["evidence"]["a_better"], test["evidence"]["b_better"]]
            assert evidence == pytest.approx([w / math.log(10) for w in self.wealth[pair]], rel=1e-9, abs=1e-12)
            assert (test["verdict"], test["since_events"], test["since_clock"]) == self.verdict.get(
                pair, (None, None, None)
            )
            assert test["blocks"] == self.blocks
        json.dumps(reported, allow_nan=False)


@pytest.mark.parametrize(
    ("m", "window", "remembered", "ids"),
    [(2, 300, 1, None), (3, 50, 90, 150), (5, 1, 2, 4), (2, 7, 1, 10), (2, 100, 2**17, 500), (2, 7, 64, 80)],
)
def test_everything_matches_the_definitions_for_any_batching(
    m: int, window: int, remembered: int, ids: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "_FEWEST_IDS", remembered)
    full = record(700, seed=m, m=m, ids=ids)
    full.scores[3, 0] = np.nan
    full.scores[5, 1], full.scores[6, 1] = np.inf, -np.inf
    naive, parts = Naive(m, window, 0.3, remembered), GroupComparison(config(m, window=window, alpha=0.3))
    for start, stop in pairwise([0, 0, 1, 2, 40, 41, 300, 700]):
        part = cut(full, start, stop)
        naive.apply(part)
        parts.apply(part)
        naive.check(parts.view().as_json())
        parts = GroupComparison.restored(parts.config, {name: array.copy() for name, array in parts.state().items()})
    assert parts.digest() == compared(full, window=window, alpha=0.3).digest()
    assert sorted(parts.state()["ids.hashes"].tolist()) == sorted(naive.events_by_id)
    assert naive.verdict or window < 50
    assert (naive.corrections > 0 and naive.duplicates > 0) or ids is None


@given(
    cuts=st.lists(st.integers(0, 400), max_size=6),
    window=st.sampled_from([1, 63, 64, 65, 128, 1000]),
    remembered=st.sampled_from([1, 64, 100, 2**17]),
)
@settings(max_examples=20)
def test_the_state_is_independent_of_batching(cuts: list[int], window: int, remembered: int) -> None:
    full = record(400, seed=9, ids=300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "_FEWEST_IDS", remembered)
        parts = GroupComparison(config(window=window))
        for start, stop in pairwise([0, *sorted(cuts), 400]):
            parts.apply(cut(full, start, stop))
        assert parts.digest() == compared(full, window=window).digest()


def test_a_correction_counts_as_if_the_label_was_original() -> None:
    full = record(200, seed=3)
    names = [f"e{i}" for i in range(200)]
    full = ComparedBatch(hashes_of(names), full.labels, full.scores, full.clocks)
    other = compared(full, window=150)
    before = other.view().as_json()
    places = [60, 100, 199]
    again = ComparedBatch(full.hashes[places], -full.labels[places], full.scores[places] + 1, np.full(3, np.nan))
    other.apply(again)
    labels = full.labels.copy()
    labels[places] *= -1
    right = compared(ComparedBatch(full.hashes, labels, full.scores, full.clocks), window=150)
    reported = other.view().as_json()
    assert reported["window"] == right.view().as_json()["window"] != before["window"]
    assert reported["tests"] == before["tests"]
    assert (reported["events"], reported["duplicates"], reported["corrections"]) == (200, 0, 3)
    other.apply(again)
    assert (other.view().as_json()["duplicates"], other.events) == (3, 200)
    reported = other.view().as_json()
    absent = ComparedBatch(full.hashes[:2], full.labels[:2] * [1, -1], full.scores[:2], np.full(2, np.nan))
    for counted in ((4, 4), (6, 4)):  # no longer in the window, but known
        other.apply(absent)
        after = other.view().as_json()
        assert (after["duplicates"], after["corrections"]) == counted
        assert {**after, "duplicates": 3, "corrections": 3} == reported


def test_ids_are_remembered_longer_than_their_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_FEWEST_IDS", 128)
    full = record(200, seed=3)
    full = ComparedBatch(hashes_of([f"e{i}" for i in range(200)]), full.labels, full.scores, full.clocks)
    result = compared(full, window=20)
    result.apply(cut(full, 72, 200))
    assert (result.events, result.view().as_json()["duplicates"]) == (200, 128)
    assert len(result.state()["ids.hashes"]) == 128
    result.apply(cut(full, 71, 72))  # forgotten: an event like any other, which pushes out the next
    result.apply(cut(full, 72, 73))
    assert result.events == 202
    wide = compared(full, window=150)  # no id is forgotten while its event is in the window
    wide.apply(cut(full, 50, 200))
    assert (wide.events, wide.view().as_json()["duplicates"]) == (200, 150)


def test_memory_grows_with_the_events() -> None:
    result = compared(record(10, seed=0))
    assert len(result._ids.hashes) == len(result._window.labels) == 64
    result.apply(record(90, seed=1))
    assert len(result._window.labels) == 128
    assert {name: len(array) for name, array in result.state().items() if name[:3] in ("ids", "win")} == {
        "ids.hashes": (ids := int(result.state()["window.counts"][3])),
        "ids.labels": ids,
        "ids.numbers": ids,
        "window.labels": 100,
        "window.scores": 100,
        "window.counts": 4,
        "window.clock": 1,
    }
    assert sum(array.itemsize for array in result._ids) == 17


tied = st.sampled_from([-np.inf, -1.0, 0.0, 1e-300, 2.5, np.inf])


@given(st.lists(st.tuples(st.booleans(), st.lists(tied, min_size=3, max_size=3)), min_size=4, max_size=40))
@settings(max_examples=40)
def test_delong_equals_all_pairs_including_ties(events: list[tuple[bool, list[float]]]) -> None:
    labels = np.where([label for label, _ in events], 1.0, -1.0)
    labels[:2], labels[-2:] = 1.0, -1.0
    scores = np.array([row for _, row in events])
    auc, covariance = naive_delong(labels, scores)
    result = estimate_aucs(scores[labels < 0], scores[labels > 0])
    np.testing.assert_allclose(result.auc, auc, atol=1e-12)
    np.testing.assert_allclose(result.covariance, covariance, atol=1e-12)  # type: ignore[arg-type]


def test_delong_on_many_events_equals_scikit_learn() -> None:
    full = record(1500, seed=4, m=2, share=0.1)
    result = estimate_aucs(full.scores[full.labels < 0], full.scores[full.labels > 0])
    auc, covariance = naive_delong(full.labels, full.scores)
    np.testing.assert_allclose(result.auc, auc, atol=1e-12)
    np.testing.assert_allclose(result.covariance, covariance, atol=1e-12)  # type: ignore[arg-type]
    for j in range(2):
        assert result.auc[j] == pytest.approx(roc_auc_score(full.labels, full.scores[:, j]), abs=1e-12)


def test_a_learner_and_its_copy_do_not_differ() -> None:
    full = record(300, seed=5, m=2)
    full.scores[:, 1] = full.scores[:, 0]
    reported = compared(full).view().as_json()
    assert reported["window"]["differences"][0]["difference"] == 0
    assert reported["window"]["differences"][0]["interval"] == pytest.approx([0, 0], abs=1e-7)
    assert reported["tests"][0]["evidence"] == {"a_better": 0.0, "b_better": 0.0}
    assert reported["tests"][0]["verdict"] is None


def test_the_better_learner_is_identified() -> None:
    random = np.random.default_rng(6)
    labels = np.where(random.random(4000) < 0.2, 1.0, -1.0)
    scores = random.normal(size=(4000, 2)) + labels[:, None] * np.array([0.1, 0.8])
    batch = ComparedBatch(np.zeros(4000, np.uint64), labels, scores, np.arange(4000.0))
    (test,) = compared(batch).view().as_json()["tests"]
    assert test["verdict"] == "b"
    assert test["evidence"]["b_better"] > 9
    assert test["since_clock"] == test["since_events"] - 1 < 2000
    early = compared(cut(batch, 0, test["since_events"])).view().as_json()["tests"][0]
    assert math.log10(40) <= early["evidence"]["b_better"] < math.log10(50)  # just past 40 to 1
    (before,) = compared(cut(batch, 0, 10)).view().as_json()["tests"]
    assert before["verdict"] is None
    turned = compared(batch)
    turned.apply(ComparedBatch(batch.hashes, -labels, scores, batch.clocks))
    (after,) = turned.view().as_json()["tests"]
    assert (after["verdict"], after["since_events"]) == ("b", test["since_events"])
    assert after["evidence"]["b_better"] < math.log10(40)  # the verdict stays


def test_equal_learners_rarely_get_a_verdict_under_continuous_monitoring() -> None:
    """At most 5 of 100 expected; far fewer come, and more than 12 would by chance in less than one of 700 tries."""
    random = np.random.default_rng(7)
    decided = 0
    for _ in range(100):
        labels = np.where(random.random(1500) < 0.3, 1.0, -1.0)
        scores = random.normal(size=(1500, 2)) + labels[:, None]
        batch = ComparedBatch(np.zeros(1500, np.uint64), labels, scores, np.full(1500, np.nan))
        decided += compared(batch, window=1).view().as_json()["tests"][0]["verdict"] is not None
    assert decided <= 12


def test_more_events_of_a_class_than_the_buffer() -> None:
    m, n = 2, 2500
    scores = np.random.default_rng(8).normal(size=(n + 1, m))
    labels = np.full(n + 1, -1.0)
    labels[-1] = 1.0
    batch = ComparedBatch(np.zeros(n + 1, np.uint64), labels, scores, np.full(n + 1, np.nan))
    naive = Naive(m, 100, 0.05)
    naive.apply(batch)
    naive.check(compared(batch, window=100).view().as_json())


def test_a_view_persists_after_updates() -> None:
    full = record(300, seed=10)
    result = compared(cut(full, 0, 200))
    frozen, live = result.view().frozen(), result.view().as_json()
    result.apply(cut(full, 200, 300))
    assert frozen.as_json() == live
    assert frozen.aucs is frozen.aucs
    assert result.view().as_json() != live


@pytest.mark.parametrize(
    ("values", "pointers"),
    [
        ({}, ["/learners"]),
        ({"learners": ["a"]}, ["/learners"]),
        ({"learners": list("abcdefghi")}, ["/learners"]),
        ({"learners": ["a", "b", "a"]}, ["/learners/2"]),
        ({"learners": ["", "-x", "a b", "a" * 101, "b\n"]}, [f"/learners/{i}" for i in range(5)]),
        ({"learners": "ab"}, ["/learners"]),
        ({"learners": ["a", 1]}, ["/learners/1"]),
        ({"learners": ["a", "b"], "window": 0, "alpha": 0, "beta": 1}, ["/beta", "/window", "/alpha"]),
        ({"learners": ["a", "b"], "window": 1_000_001, "alpha": 0.6}, ["/window", "/alpha"]),
    ],
)
def test_invalid_configurations_are_refused(values: dict[str, Any], pointers: list[str]) -> None:
    with pytest.raises(InvalidInput) as error:
        GroupConfig.of(values)
    assert [problem.pointer for problem in error.value.problems] == pointers


def test_a_configuration_survives_json() -> None:
    group = GroupConfig.of({"learners": ["a.b-c_9", "B"]})
    assert group.to_json() == {"learners": ["a.b-c_9", "B"], "window": 10_000, "alpha": 0.05}
    assert GroupConfig.of(json.loads(json.dumps(group.to_json()))) == group


def test_mismatched_columns_change_nothing() -> None:
    result, full = compared(record(20, seed=0)), record(20, seed=1, m=2)
    before = result.digest()
    with pytest.raises(InvalidInput, match="/scores"):
        result.apply(full)
    with pytest.raises(InvalidInput, match="/clocks"):
        result.apply(ComparedBatch(full.hashes, full.labels, np.ones((20, 3)), np.zeros(3)))
    assert result.digest() == before


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("ids.hashes", slice(1, 3), 7),
        ("ids.hashes", 0, 0),
        ("ids.labels", 0, 2),
        ("ids.labels", -1, -1),
        ("ids.numbers", 0, -1),
        ("ids.numbers", -1, 100),
        ("ids.numbers", 1, 99),
        ("ids.numbers", slice(0, 2), 0),
        ("window.labels", 0, 2),
        ("window.labels", 0, -1),
        ("window.scores", (0, 0), np.nan),
        ("window.counts", 0, -1),
        ("window.counts", 2, 2**60),
        ("window.clock", 0, np.inf),
        ("tests.gathered", (0, 0), np.nan),
        ("tests.waiting", slice(0, 2), 1),
        ("tests.waiting", 0, -1),
        ("tests.blocks", 0, 10**6),
        ("tests.sums", (0, 0), np.inf),
        ("tests.sums", (0, 1), -1.0),
        ("tests.wealth", (0, 0), np.nan),
        ("tests.verdicts", 0, 3),
        ("tests.verdict_events", 0, 10**6),
        ("tests.verdict_clocks", 0, np.inf),
    ],
)
def test_an_impossible_state_is_refused(name: str, place: Any, value: float) -> None:
    result = compared(record(100, seed=2), window=50)
    state = {key: array.copy() for key, array in result.state().items()}
    GroupComparison.restored(result.config, state)
    state[name][place] = value
    with pytest.raises(InvalidInput) as error:
        GroupComparison.restored(result.config, state)
    assert f"/{name}" in [problem.pointer for problem in error.value.problems]


def test_labels_of_ids_must_equal_those_of_the_window() -> None:
    result = compared(record(100, seed=2), window=50)
    for name, pointers in (("ids.labels", ["/ids.labels"]), ("window.labels", ["/ids.labels"])):
        state = {key: array.copy() for key, array in result.state().items()}
        place = state["ids.numbers"][-1] % 50 if name == "window.labels" else -1
        state[name][place] = 1 - state[name][place]
        with pytest.raises(InvalidInput) as error:
            GroupComparison.restored(result.config, state)
        assert [problem.pointer for problem in error.value.problems] == pointers


def test_more_ids_than_events_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_FEWEST_IDS", 64)
    result = compared(record(200, seed=2), window=50)
    state = {key: array.copy() for key, array in result.state().items()}
    state["window.counts"][3] = 201
    with pytest.raises(InvalidInput, match="201"):
        GroupComparison.restored(result.config, state)


def test_a_state_with_wrong_arrays_is_refused() -> None:
    result = compared(record(100, seed=2), window=50)
    state = result.state()
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("/tests.wealth", {name: array for name, array in state.items() if name != "tests.wealth"}),
        ("/more", state | {"more": np.zeros(1)}),
        ("/window.labels", state | {"window.labels": state["window.labels"].astype(np.int64)}),
        ("/window.labels", state | {"window.labels": state["window.labels"][:-1]}),
        ("/ids.numbers", state | {"ids.numbers": state["ids.numbers"][:-1]}),
        ("/window.counts", state | {"window.counts": np.zeros(0, np.int64)}),
        ("/tests.sums", state | {"tests.sums": np.zeros((4, 2))}),
    ]
    for pointer, arrays in wrong:
        with pytest.raises(InvalidInput) as error:
            GroupComparison.restored(result.config, arrays)
        assert pointer in [problem.pointer for problem in error.value.problems]
    with pytest.raises(InvalidInput):
        GroupComparison.restored(config(2, window=50), state)
    with pytest.raises(InvalidInput):
        GroupComparison.restored(config(3, window=60), state)


def test_apply_has_one_compiled_signature() -> None:
    full = record(30, seed=0)
    result = compared(full)
    result.apply(ComparedBatch(full.hashes[::2], full.labels[::2], full.scores[::2], full.clocks[::2]))
    restored = GroupComparison.restored(result.config, result.state())
    restored.apply(full)
    assert len(getattr(comparison._apply, "signatures", [1])) == 1
