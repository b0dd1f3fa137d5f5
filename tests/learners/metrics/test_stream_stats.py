"""Clock, delays, coverage and rates against lists that keep everything."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from learners.metrics.label_delays import DELAY_BINS, DELAY_ERROR, MAX_DELAY
from learners.metrics.stream_stats import StreamStats
from learners.numerics.hash_table import hashes_of

pytestmark = pytest.mark.integration

State = dict[str, NDArray[Any]]


class Step(NamedTuple):
    """What happens to one event, in this order: its time moves the clock; it is served; it is labelled."""

    time: float = math.nan
    served: str | None = None
    decision: int = 0
    labelled: bool = False
    delay: float = math.nan
    late: str | None = None  # id of the served event


class Slow:
    """The definitions, on lists that keep everything."""

    def __init__(self, size: int, seconds: float | None) -> None:
        self.size, self.seconds = size, seconds
        self.clock = math.nan
        self.all: list[tuple[float, float]] = []  # clock, delay
        self.window: list[tuple[float, float]] = []
        self.ever: list[dict[str, Any]] = []
        self.labelled = 0  # served events whose label came, also after they had left the ring

    def expire(self, clock: float) -> None:
        if self.seconds is not None and not math.isnan(clock):
            while self.window and not self.window[0][0] > clock - self.seconds:
                self.window.pop(0)

    def step(self, step: Step) -> None:
        if math.isfinite(step.time):
            self.clock = step.time if math.isnan(self.clock) else max(self.clock, step.time)
        recent = {item["id"]: item for item in self.ever[-self.size :]}
        if step.served is not None:
            if step.served not in recent:
                self.ever.append({"id": step.served, "labelled": False})
                recent[step.served] = self.ever[-1]
            recent[step.served]["decision"] = step.decision
        if step.labelled:
            event = (self.clock, step.delay if math.isnan(step.delay) else min(max(step.delay, 0.0), MAX_DELAY))
            self.all.append(event)
            self.window = self.window[-self.size + 1 :] if self.size > 1 else []
            self.expire(self.clock)
            self.window.append(event)
            if step.late is not None:
                late = {item["id"]: item for item in self.ever[-self.size :]}.get(step.late)
                may_be_absent = (
                    late is None and len(self.ever) > self.size
                )  # it may have left the ring after it was served
                if may_be_absent or (late is not None and not late["labelled"]):
                    self.labelled = min(self.labelled + 1, len(self.ever))
                if late is not None:
                    late["labelled"] = True

    def figures(self, scope: str) -> dict[str, Any]:
        within = scope == "window"
        events = self.window if within else self.all
        served = self.ever[-self.size :] if within else self.ever
        delays = [delay for _, delay in events if not math.isnan(delay)]
        clocks = [clock for clock, _ in events if not math.isnan(clock)]
        elapsed = self.clock - clocks[0] if clocks else 0.0
        labelled = sum(item["labelled"] for item in served) if within else self.labelled
        return {
            "label_delay_median": np.quantile(delays, 0.5).item() if delays else None,
            "label_delay_p90": np.quantile(delays, 0.9).item() if delays else None,
            **({} if within else {"label_delay_error": DELAY_ERROR if delays else None}),
            "label_coverage": labelled / len(served) if served else None,
            "events_per_second": (len(clocks) - 1) / elapsed if len(clocks) > 1 and elapsed > 0 else None,
            "served": len(served),
            "served_alert_rate": sum(item["decision"] for item in served) / len(served) if served else None,
        }


def feed(traffic: StreamStats, steps: list[Step]) -> None:
    """Apply times, then served events, then labels, all at once if the steps allow it."""
    clocks = traffic.tick(np.array([step.time for step in steps]))
    served = [step for step in steps if step.served is not None]
    traffic.serve(hashes_of([step.served for step in served]), np.array([step.decision for step in served], dtype=int))
    learnt = [i for i, step in enumerate(steps) if step.labelled]
    traffic.learn(
        clocks[learnt],
        np.array([steps[i].delay for i in learnt]),
        hashes_of([steps[i].late for i in learnt]),
        np.array([steps[i].late is not None for i in learnt], dtype=np.bool_),
    )


def restored(traffic: StreamStats, state: State | None = None) -> StreamStats:
    other = StreamStats(traffic.size, None if math.isinf(traffic.seconds) else traffic.seconds)
    other.restore({name: array.copy() for name, array in (state or traffic.state()).items()})
    return other


def same(a: StreamStats, b: StreamStats) -> bool:
    return all(
        x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
        for x, y in zip(a.state().values(), b.state().values(), strict=True)
    )


def check(traffic: StreamStats, slow: Slow) -> None:
    view = traffic.view()
    for scope in ("window", "since_start"):
        figures, undefined = view.figures(scope)  # type: ignore[arg-type]
        expected = slow.figures(scope)
        assert list(figures) == list(expected)
        for name, value in expected.items():
            if value is None:
                assert figures[name] is None, (scope, name)
            elif scope == "since_start" and name in ("label_delay_median", "label_delay_p90"):
                assert abs(figures[name] - value) <= DELAY_ERROR * value + 2.0**-22
            else:
                assert figures[name] == pytest.approx(value, rel=1e-12), (scope, name)
        assert set(undefined) == {f"/{scope}/{name}" for name, value in figures.items() if value is None}
        json.dumps(figures, allow_nan=False)
    assert list(traffic.problems(traffic.state())) == []
    assert traffic.shapes(traffic.state()) == {name: array.shape for name, array in traffic.state().items()}


names = st.sampled_from([f"id-{n}" for n in range(12)])
times = st.sampled_from([math.nan, math.inf, -math.inf]) | st.floats(0, 60).map(lambda x: round(x, 1))
odd_delays = st.sampled_from([math.nan, math.inf, -5.0, 0.0, -0.0, 5e-324, 2.0**-22, 1e-3, 1e12, 1e300])
steps = st.builds(Step, times, st.none() | names, st.integers(0, 1), st.booleans(), odd_delays | st.floats(0, 1e6))
late = st.builds(
    lambda step, name: step._replace(labelled=True, late=name, served=None), steps, names | st.just("never")
)


@pytest.mark.parametrize(("size", "seconds"), [(1, None), (3, None), (7, 10.0), (1000, 5.0), (1000, 0.1)])
@given(st.lists(steps | late, max_size=40))
@settings(max_examples=40)
def test_every_metric_matches_the_definition(size: int, seconds: float | None, events: list[Step]) -> None:
    traffic, slow = StreamStats(size, seconds), Slow(size, seconds)
    check(traffic, slow)
    for step in events:
        feed(traffic, [step])
        slow.step(step)
        assert (traffic.clock == slow.clock) or (math.isnan(traffic.clock) and math.isnan(slow.clock))
    check(traffic, slow)
    if not math.isnan(slow.clock):
        later = slow.clock + 3.0
        traffic.tick(np.array([later]))
        traffic.advance(later)
        slow.clock = later
        slow.expire(later)
        check(traffic, slow)


def stream(n: int, seed: int, ids: int) -> list[Step]:
    """Events of which most are served, and later labelled, out of order, some twice, some never."""
    random = np.random.default_rng(seed)
    out: list[Step] = []
    clock = 1.7e9
    for i in range(n):
        clock += random.exponential()
        time = math.nan if random.random() < 0.1 or i < 5 else clock - random.exponential()
        if random.random() < 0.5:
            out.append(Step(time, f"{random.integers(ids)}", int(random.random() < 0.3)))
        else:
            name = f"{random.integers(ids)}" if random.random() < 0.8 else None
            delay = random.exponential(1000.0) if random.random() < 0.9 else math.nan
            out.append(Step(time, None, 0, True, delay, name))
    return out


@pytest.mark.parametrize(("size", "seconds"), [(1, None), (64, None), (65, 30.0), (150, 1e4), (1000, 20.0)])
def test_long_streams_match_the_definition(size: int, seconds: float | None) -> None:
    traffic, slow = StreamStats(size, seconds), Slow(size, seconds)
    for i, step in enumerate(stream(1500, seed=size, ids=200)):
        feed(traffic, [step])
        slow.step(step)
        if i % 211 == 0:
            check(traffic, slow)
            traffic = restored(traffic)
    check(traffic, slow)


@given(st.lists(st.integers(0, 600), max_size=8), st.sampled_from([(5, None), (100, 40.0), (500, None)]))
@settings(max_examples=25)
def test_batching_is_invisible_and_a_restored_state_continues(cuts: list[int], kind: tuple[int, float | None]) -> None:
    events = sorted(stream(600, seed=3, ids=90), key=lambda step: step.labelled)  # first all that is served
    full, cut = StreamStats(*kind), StreamStats(*kind)
    feed(full, events)
    for start, stop in pairwise([0, *sorted(cuts), 600]):
        feed(cut, events[start:stop])
        cut = restored(cut)
    assert same(full, cut)
    for scope in ("window", "since_start"):
        assert full.view().figures(scope) == cut.view().figures(scope)  # type: ignore[arg-type]


def test_the_clock_never_runs_backwards() -> None:
    traffic = StreamStats(10, None)
    assert math.isnan(traffic.clock)
    got = traffic.tick(np.array([np.nan, np.inf, 5.0, np.nan, 3.0, -np.inf, 7.0, 6.0]))
    assert np.array_equal(got, [np.nan, np.nan, 5, 5, 5, 5, 7, 7], equal_nan=True)
    assert traffic.tick(np.array([1.0])).tolist() == [7.0]
    assert traffic.tick(np.array([])).tolist() == []
    assert traffic.clock == 7.0
    before = StreamStats(10, None)
    assert before.tick(np.array([-1e9, -2e9])).tolist() == [-1e9, -1e9]


@pytest.mark.parametrize("seconds", [10.0, None])
def test_events_before_the_first_known_clock(seconds: float | None) -> None:
    """With a maximal age they leave as soon as there is a clock; they never count for the rate."""
    traffic = StreamStats(100, seconds)
    feed(traffic, [Step(labelled=True, delay=5.0)] * 4)
    assert traffic.view().figures("window")[0]["label_delay_median"] == 5.0
    feed(traffic, [Step(100.0, labelled=True, delay=7.0), Step(104.0, labelled=True, delay=9.0)])
    figures = traffic.view().figures("window")[0]
    assert figures["label_delay_median"] == (5.0 if seconds is None else 8.0)
    assert figures["events_per_second"] == 0.25
    assert traffic.view().figures("since_start")[0]["events_per_second"] == 0.25


def test_a_served_id_keeps_its_position_and_counts_once() -> None:
    traffic = StreamStats(3, None)
    for name, decision in (("a", 1), ("b", 0), ("a", 0), ("c", 1), ("b", 1)):
        feed(traffic, [Step(served=name, decision=decision)])
    figures = traffic.view().figures("window")[0]
    assert (figures["served"], figures["served_alert_rate"]) == (3, 2 / 3)
    feed(traffic, [Step(labelled=True, late="a"), Step(labelled=True, late="a"), Step(labelled=True, late="b")])
    assert traffic.view().figures("window")[0]["label_coverage"] == 2 / 3
    feed(traffic, [Step(served="d")])  # "a" came first and leaves first, though it was served again
    assert traffic.view().figures("window")[0]["label_coverage"] == 1 / 3
    assert traffic.view().figures("since_start")[0]["label_coverage"] == 2 / 4


def test_a_label_with_its_event_does_not_mark_served_events() -> None:
    traffic = StreamStats(10, None)
    feed(traffic, [Step(served="a"), Step(served="b")])
    stats = np.array([1.0])
    traffic.learn(stats, stats, hashes_of(["a"]), np.array([False]))
    assert traffic.view().figures("window")[0]["label_coverage"] == 0.0
    traffic.learn(stats, stats, hashes_of(["b"]), np.array([True]))
    assert traffic.view().figures("window")[0]["label_coverage"] == 0.5


def test_events_served_without_an_id_are_not_counted() -> None:
    traffic = StreamStats(10, None)
    traffic.serve(hashes_of([None, "a", None]), np.array([1, 0, 1]))
    assert traffic.view().figures("since_start")[0]["served"] == 1
    assert traffic.view().figures("since_start")[0]["served_alert_rate"] == 0.0


def test_serving_stops_at_the_requested_count() -> None:
    """Stop after the event that completes the number; events that do not count are taken until then."""
    traffic = StreamStats(100, None)
    names = ["a", None, "a", "b", "b", "c", "a", "d"]
    hashes, decisions = hashes_of(names), np.array([0, 1, 1, 0, 1, 0, 0, 0])
    for most, counted, served, rate in ((1, 1, 1, 0.0), (1, 3, 2, 0.5), (1, 2, 3, 2 / 3), (5, 2, 4, 1 / 4)):
        assert traffic.serve(hashes, decisions, most) == counted
        figures = traffic.view().figures("since_start")[0]
        assert (traffic.served, figures["served"], figures["served_alert_rate"]) == (served, served, rate)
        hashes, decisions = hashes[counted:], decisions[counted:]
    many = hashes_of([f"m{i}" for i in range(1000)])  # the ring grows meanwhile
    called = np.zeros(1000, dtype=np.int64)
    assert traffic.serve(many, called, 700) == 700
    assert traffic.serve(many[700:], called[700:], 300) == 300
    assert traffic.serve(many[:0], called[:0], 1) == 0
    assert traffic.served == 1004


def test_late_labels_beyond_the_ring_count_up_to_the_served_events() -> None:
    traffic = StreamStats(2, None)
    feed(traffic, [Step(served=name) for name in "abcd"])
    feed(traffic, [Step(labelled=True, late="a")])
    assert [traffic.view().figures(scope)[0]["label_coverage"] for scope in ("window", "since_start")] == [0.0, 0.25]  # type: ignore[arg-type]
    feed(traffic, [Step(labelled=True, late="z")] * 9)
    assert traffic.view().figures("since_start")[0]["label_coverage"] == 1.0


def test_cumulative_quantiles_are_within_their_error_at_every_scale() -> None:
    for scale in 10.0 ** np.arange(-6, 12):
        random = np.random.default_rng(0)
        delays = scale * random.uniform(1, 9, 401)
        traffic = StreamStats(5, None)
        feed(traffic, [Step(labelled=True, delay=delay) for delay in delays])
        figures = traffic.view().figures("since_start")[0]
        for name, q in (("label_delay_median", 0.5), ("label_delay_p90", 0.9)):
            assert abs(figures[name] / np.quantile(delays, q) - 1.0) <= figures["label_delay_error"] == 0.01


def test_every_delay_is_within_half_a_bin_of_its_midpoint() -> None:
    """Edges of the bins are where a place off by one would show."""
    edges = np.ldexp(1.0 + np.arange(64) / 64, np.arange(-22, 40)[:, None]).ravel()
    for delay in np.concatenate([edges, np.nextafter(edges, 0.0)[1:], [1e12, MAX_DELAY, 0.0]])[::7]:
        traffic = StreamStats(1, None)
        feed(traffic, [Step(labelled=True, delay=delay)])
        got = traffic.view().figures("since_start")[0]["label_delay_median"]
        assert abs(got - delay) <= delay / 128
        assert traffic.view().figures("window")[0]["label_delay_median"] == delay


@pytest.mark.parametrize("times", [[-1.7e308, 1.7e308], [0.0, 5e-324], [1e300, 1e300]])
def test_rates_at_extreme_values_are_finite_or_undefined(times: list[float]) -> None:
    traffic = StreamStats(5, 1.0)
    feed(traffic, [Step(time, labelled=True, delay=1.0) for time in times])
    for scope in ("window", "since_start"):
        figures, undefined = traffic.view().figures(scope)  # type: ignore[arg-type]
        rate = figures["events_per_second"]
        assert (rate is None) == (f"/{scope}/events_per_second" in undefined)
        assert rate is None or math.isfinite(rate)


def test_rings_use_no_more_memory_than_their_events() -> None:
    traffic = StreamStats(10**6, None)
    assert {len(array) for array in traffic.arrays[5:7] + traffic.arrays[8:]} == {64}
    feed(traffic, [Step(labelled=True)] * 65)
    feed(traffic, [Step(served=f"{n}") for n in range(300)])
    assert [len(array) for array in (traffic.arrays.delays, traffic.arrays.clocks)] == [128, 128]
    assert [len(array) for array in (traffic.arrays.ids, traffic.arrays.flags)] == [512, 512]
    assert len(StreamStats(5, None).arrays.ids) == 5


def test_frozen_metrics_stay_and_live_metrics_follow() -> None:
    traffic = StreamStats(50, None)
    feed(traffic, stream(100, seed=0, ids=30))
    frozen = traffic.view().frozen()
    before = [frozen.figures(scope) for scope in ("window", "since_start")]  # type: ignore[arg-type]
    feed(traffic, stream(100, seed=1, ids=30))
    assert [frozen.figures(scope) for scope in ("window", "since_start")] == before  # type: ignore[arg-type]
    after = traffic.view()
    assert all(after.figures(scope) != was for scope, was in zip(("window", "since_start"), before, strict=True))  # type: ignore[arg-type]


def put(name: str, place: int, value: float) -> Callable[[State], None]:
    def change(state: State) -> None:
        state[name][place] = value

    return change


def cut(name: str) -> Callable[[State], None]:
    def change(state: State) -> None:
        state[name] = state[name][:-1]

    return change


WRONG: list[tuple[str, Callable[[State], None]]] = [
    ("clock", put("clock", 0, math.inf)),
    ("start", put("clock", 0, math.nan)),
    ("start", put("start", 0, math.nan)),
    ("start", put("start", 0, 1e300)),
    ("start", put("start", 0, -math.inf)),
    ("start", put("timed", 0, 0)),
    ("timed", put("timed", 0, 10**9)),
    ("timed", put("timed", 0, -1)),
    ("histogram", put("histogram", 0, -1)),
    ("histogram", put("histogram", 0, 2**53)),
    ("histogram", lambda state: state["histogram"].fill(0)),
    ("span", put("span", 0, -1)),
    ("span", put("span", 0, 10**9)),
    ("span", put("span", 1, 10**6)),
    ("span", put("span", 0, 3)),
    ("span", cut("delays")),
    ("span", cut("clocks")),
    ("delays", put("delays", 0, -1.0)),
    ("delays", put("delays", 0, math.inf)),
    ("clocks", put("clocks", 70, math.nan)),
    ("clocks", put("clocks", 70, 0.0)),
    ("clocks", put("clocks", 70, math.inf)),
    ("served", put("served", 1, 10**6)),
    ("served", put("served", 2, 10**6)),
    ("served", put("served", 0, 2**60)),
    ("served", put("served", 0, 10**6)),
    ("served", cut("ids")),
    ("served", cut("flags")),
    ("ids", put("ids", 0, 0)),
    ("ids", put("ids", -1, 7)),
    ("ids", lambda state: state["ids"].__setitem__(1, state["ids"][0])),
    ("flags", put("flags", 0, 4)),
    ("flags", put("flags", 0, -1)),
    ("flags", put("flags", -1, 1)),
    ("flags", lambda state: state["flags"][:60].fill(3)),
]


@pytest.mark.parametrize(("wrong", "change"), WRONG, ids=[f"{i}-{name}" for i, (name, _) in enumerate(WRONG)])
def test_impossible_states_are_detected(wrong: str, change: Callable[[State], None]) -> None:
    traffic = StreamStats(1000, None)
    feed(traffic, stream(300, seed=2, ids=90))
    state = {name: array.copy() for name, array in traffic.state().items()}
    assert list(traffic.problems(state)) == []
    change(state)
    assert wrong in [name for name, _ in StreamStats(1000, None).problems(state)]


def test_shapes_of_impossible_counts_are_bounded() -> None:
    """Missing arrays are found before any values are read."""
    traffic = StreamStats(1000, None)
    for count in (-(2**62), -1, 2**62):
        state = {**traffic.state(), "span": np.array([0, count]), "served": np.array([count, 0, 0])}
        shapes = traffic.shapes(state)
        assert all(64 <= shapes[name][0] <= 1000 for name in ("delays", "clocks", "ids", "flags"))
    assert shapes["histogram"] == (DELAY_BINS,)


@given(st.data())
@settings(max_examples=100)
def test_an_accepted_state_remains_usable(data: st.DataObject) -> None:
    """Change one number anywhere: either it is refused, or the learner works with it."""
    traffic = StreamStats(100, 60.0)
    feed(traffic, stream(250, seed=2, ids=90))
    state = {name: array.copy() for name, array in traffic.state().items()}
    name = data.draw(st.sampled_from(sorted(state)))
    place = data.draw(st.integers(0, len(state[name]) - 1))
    if state[name].dtype.kind == "f":
        value: float = data.draw(st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0, 1e300, 5e-324, 1.7e9]))
    else:
        limits = np.iinfo(state[name].dtype)
        value = data.draw(st.sampled_from([limits.min, limits.max, 0, 1, 2, 3, 100]))
    state[name][place] = value
    if list(traffic.problems(state)):
        return
    traffic = restored(traffic, state)
    feed(traffic, stream(250, seed=3, ids=90))
    traffic.advance(traffic.clock)
    for scope in ("window", "since_start"):
        json.dumps(traffic.view().figures(scope), allow_nan=False)  # type: ignore[arg-type]
    assert list(traffic.problems(traffic.state())) == []


@pytest.mark.parametrize(("size", "seconds"), [(5, None), (300, None), (300, 100.0), (2000, 700.0)])
@pytest.mark.parametrize("id_share", [0.0, 0.1, 1.0])
def test_pending_delays_give_the_same_metrics(size: int, seconds: float | None, id_share: float) -> None:
    random = np.random.default_rng(size)
    n = 3000
    clocks = np.cumsum(random.exponential(size=n)) + np.repeat([0.0, 1e6], [1800, n - 1800])  # then all before has left
    delays = np.where(random.random(n) < id_share, np.round(random.exponential(9.0, n), 1), math.nan)
    late, hashes = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.uint64)
    single, together = StreamStats(size, seconds), StreamStats(size, seconds)
    single.tick(clocks)
    together.tick(clocks)
    for start, stop in pairwise([0, 26, 1200, 1224, 1700, 2100, n]):
        for traffic, step in ((together, stop - start), (single, 1)):
            for i in range(start, stop, step):
                cut = slice(i, i + step)
                traffic.learn(clocks[cut], delays[cut], hashes[cut], late[cut])
        assert same(single, together)
        assert single.view().figures("window") == together.view().figures("window")
        first, last = single.arrays.span.tolist()
        inside = delays[first:last][~np.isnan(delays[first:last])]
        median = together.view().figures("window")[0]["label_delay_median"]
        assert median == (pytest.approx(np.median(inside), rel=1e-12) if len(inside) else None)
