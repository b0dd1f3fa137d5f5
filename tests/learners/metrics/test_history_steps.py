"""When the rows of a learner's history come, and what is in them: after every so many events served or learnt.

Against a naive reference that meets one event at a time, counts by itself, and asks for the whole document whenever a
row is due.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from learners.metrics.binary import HISTORY_COLUMNS, BinaryMetrics
from learners.metrics.ordinal import ORDINAL_HISTORY, RankMetrics
from learners.numerics.hash_table import hashes_of

pytestmark = pytest.mark.integration

SINCE = "since_start_"
STRIDE = 64  # of any window up to 4096
N = 330
SHARES = {"served only": 1.0, "labelled only": 0.0, "mixed": 0.5, "mostly served": 0.95}  # of served events
Any_ = BinaryMetrics | RankMetrics


class Events(NamedTuple):
    """n things that happen: an event is served under an id, some of which come again, or a labelled one is learnt."""

    served: NDArray[np.bool_]
    ids: list[str]
    scores: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    y: NDArray[np.float64]
    decisions: NDArray[np.int64]
    times: NDArray[np.float64]  # some are unknown, some go back
    late: NDArray[np.bool_]  # a label is that of an event served under the id, if there was one

    def part(self, start: int, stop: int) -> Events:
        return Events._make(column[start:stop] for column in self)


def stream(share: float, ranks: bool, seed: int) -> Events:
    random = np.random.default_rng(seed)
    runs = random.random(N) < share
    served = np.repeat(runs, random.integers(1, 12, N))[:N]  # runs of one kind, some longer than others
    times = 1e9 + np.cumsum(random.exponential(1.0, N)) + random.normal(size=N)
    times[random.random(N) < 0.2] = np.nan
    times[:20] = np.nan
    return Events(
        served=served,
        ids=[f"e{i}" for i in random.integers(0, 2 * N, N)],
        scores=np.round(random.normal(size=N), 1),
        thresholds=0.4 + 0.2 * random.random(N),
        y=random.integers(1, 4, N).astype(np.float64) if ranks else np.where(random.random(N) < 0.4, 1.0, -1.0),
        decisions=random.integers(1, 4, N) if ranks else random.integers(0, 2, N),
        times=times,
        late=random.random(N) < 0.5,
    )


def fresh(ranks: bool, size: int, seconds: float | None) -> Any_:
    return RankMetrics(size, seconds, 3) if ranks else BinaryMetrics(size, seconds)


def feed(metrics: Any_, events: Events) -> None:
    """Let it happen: runs of one kind at once."""
    start = 0
    for served, run in groupby(events.served.tolist()):
        stop = start + len(list(run))
        few = events.part(start, stop)
        start = stop
        clocks = metrics.tick(few.times)
        hashes = hashes_of(few.ids)
        if served:
            metrics.serve(hashes, few.scores, few.thresholds, few.decisions, clocks)
            continue
        p, delays = 1 / (1 + np.exp(-few.scores)), np.full(len(few.y), 7.0)
        metrics.learn(few.scores, p, few.thresholds, few.y, few.decisions, clocks, delays, hashes, few.late)


class Reference:
    """One event at a time."""

    def __init__(self, ranks: bool, size: int, seconds: float | None) -> None:
        self.metrics = fresh(ranks, size, seconds)
        self.columns = ORDINAL_HISTORY if ranks else HISTORY_COLUMNS
        self.size = size
        self.recent: OrderedDict[str, int] = OrderedDict()  # the last served ids, with their decisions
        self.events = self.served = 0
        self.clock = math.nan
        self.rows: list[dict[str, Any]] = []

    def feed(self, metrics: Events) -> None:
        feed(self.metrics, metrics)
        if not math.isnan(metrics.times[0]) and not metrics.times[0] <= self.clock:
            self.clock = metrics.times[0]
        before = self.events + self.served
        if not metrics.served[0]:
            self.events += 1
        else:
            if metrics.ids[0] not in self.recent:
                self.served += 1
                if len(self.recent) == self.size:
                    self.recent.popitem(last=False)
            self.recent[metrics.ids[0]] = int(metrics.decisions[0])
        steps = self.events + self.served
        if steps > before and steps % STRIDE == 0:
            self.rows.append(self._row(float(metrics.thresholds[0])))

    def _row(self, threshold: float) -> dict[str, Any]:
        document = self.metrics.view().as_json()
        window = document["window"]
        row = {name: window[name] for name in self.columns if name in window}
        since = document["since_start"]
        row |= {name: since[name.removeprefix(SINCE)] for name in self.columns if name.startswith(SINCE)}
        row |= {"events": self.events, "served": self.served, "clock": None if math.isnan(self.clock) else self.clock}
        if "auc" in row:
            row |= dict(zip(("auc_low", "auc_high"), window["auc_interval"] or [None, None], strict=True))
            row["served_alert_rate"] = sum(self.recent.values()) / len(self.recent) if self.recent else None
            row["threshold"] = threshold
            row["positives"] = window["class_counts"]["positive"]
            row["alerts"] = window["confusion"]["tp"] + window["confusion"]["fp"]
        assert row.keys() == set(self.columns)
        return row


@pytest.mark.parametrize("ranks", [False, True])
@pytest.mark.parametrize("share", SHARES.values(), ids=SHARES.keys())
@given(
    cuts=st.lists(st.integers(0, N), max_size=6),
    size=st.sampled_from([1, 5, 64, 100, 1000]),
    seconds=st.sampled_from([None, 60.0]),
    seed=st.integers(0, 5),
)
@settings(max_examples=15)
def test_rows_are_recorded_on_time_with_the_metrics_of_that_moment(
    ranks: bool, share: float, cuts: list[int], size: int, seconds: float | None, seed: int
) -> None:
    events = stream(share, ranks, seed)
    reference, pieces = Reference(ranks, size, seconds), fresh(ranks, size, seconds)
    for i in range(N):
        reference.feed(events.part(i, i + 1))
    for start, stop in pairwise([0, *sorted(cuts), N]):
        feed(pieces, events.part(start, stop))
        state = {name: array.copy() for name, array in pieces.state().items()}
        assert list(pieces.problems(state)) == []
        assert {name: array.shape for name, array in state.items()} == pieces.shapes(state)
        pieces = fresh(ranks, size, seconds)
        pieces.restore(state)
    assert pieces.steps == reference.events + reference.served
    assert pieces.view().history()["points"] == reference.rows
    assert len(reference.rows) == pieces.steps // STRIDE == pieces.view().point_count
    one_by_one = reference.metrics.state()
    assert all(array.tobytes() == one_by_one[name].tobytes() for name, array in pieces.state().items())


@pytest.mark.parametrize("ranks", [False, True])
def test_a_learner_without_labels_has_a_history(ranks: bool) -> None:
    metrics = fresh(ranks, 100, None)
    n = 1000
    ids = [f"s{i}" for i in range(n)]
    called = (np.arange(n) % 4 == 0).astype(np.int64) + ranks
    metrics.serve(hashes_of(ids), np.zeros(n), None, called, metrics.tick(1e9 + np.arange(n)))
    points = metrics.view().history()["points"]
    assert [(point["events"], point["served"]) for point in points] == [(0, 64 * i) for i in range(1, 16)]
    assert [point["clock"] for point in points] == [1e9 + 64 * i - 1 for i in range(1, 16)]
    assert all(point["label_coverage"] == 0.0 for point in points)
    if not ranks:
        assert all(point["served_alert_rate"] == 0.25 and point["threshold"] is None for point in points)


def test_serving_an_id_again_adds_no_step_and_no_row() -> None:
    metrics = BinaryMetrics(1000)
    ids = [f"s{i}" for i in range(STRIDE)]
    zeros, nan = np.zeros(STRIDE), np.full(STRIDE, np.nan)
    for called in (0, 1):
        for _ in range(3):
            metrics.serve(hashes_of(ids), zeros, None, np.full(STRIDE, called), nan)
    (point,) = metrics.view().history()["points"]
    assert (point["served"], point["served_alert_rate"]) == (STRIDE, 0.0)  # as it was then
    metrics.serve(hashes_of([*ids, *(f"t{i}" for i in range(STRIDE - 1))]), *_columns(2 * STRIDE - 1))
    assert (metrics.steps, metrics.view().point_count) == (2 * STRIDE - 1, 1)
    metrics.serve(hashes_of(["last", *ids]), *_columns(STRIDE + 1))
    assert (metrics.steps, metrics.view().point_count) == (2 * STRIDE, 2)


def _columns(n: int) -> tuple[Any, ...]:
    return np.zeros(n), None, np.zeros(n, dtype=np.int64), np.full(n, np.nan)


@pytest.mark.parametrize("ranks", [False, True])
@pytest.mark.parametrize(("name", "moved"), [("served", 1.0), ("events", 1.0), ("served", 64.0), ("served", -1.0)])
def test_a_row_counting_future_events_is_refused(ranks: bool, name: str, moved: float) -> None:
    """The latest row has the right sum, but of other numbers than the window and the served events allow."""
    events = stream(0.0, ranks, 1)
    metrics = fresh(ranks, 1000, None)
    feed(metrics, events.part(0, STRIDE - 20)._replace(served=np.zeros(STRIDE - 20, dtype=np.bool_)))
    feed(metrics, events.part(100, 120)._replace(served=np.ones(20, dtype=np.bool_), ids=[f"s{i}" for i in range(20)]))
    state = {key: array.copy() for key, array in metrics.state().items()}
    assert list(metrics.problems(state)) == []
    columns = metrics.view().rows.columns
    other = "events" if name == "served" else "served"
    state["history_rows"][0, 1, [columns.index(name), columns.index(other)]] += [moved, -moved]
    assert [where for where, _ in metrics.problems(state)] == ["history_rows"]
    del state["history_rows"]
    assert list(metrics.problems({**metrics.state(), "history_count": np.array([0])})) != []
