"""States of the right names, dtypes and shapes whose values no stream can have led to: refused before a kernel runs."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from learners import Config, InvalidInput, Learner, algorithms
from learners.deduplication import MAX_SOURCES, Sources
from learners.learner import State, check_state
from learners.metrics.binary import BinaryMetrics
from learners.metrics.ordinal import RankMetrics
from learners.numerics.arrays import Sparse
from learners.numerics.hash_table import hashes_of
from learners.records import LabelledBatch, ServedBatch
from learners.state_checks import check_values
from tests.learners.pipelines import EVERY, PIPELINES, Pipeline, batch, copied, crossed, events, stream

pytestmark = [pytest.mark.integration, pytest.mark.long]  # and only compiled code would go beyond an array's end

# unsigned: random state, hashes of ids (0 is refused), and bytes of names (only UTF-8 is accepted)
FREE = ("algorithm.rng", "ids.ring", "metrics.traffic_ids", "sources.names")
# floats that may be NaN, and floats that may be infinite; `UNUSED` also for slots without data
UNUSED = {"metrics.history_rows", "metrics.drift_alarms"}
CLOCKS = {"metrics.clocks", "metrics.window_clocks", "metrics.traffic_clock", "metrics.traffic_clocks"}
MAY_BE_NAN = {"ids.scores", "ids.probabilities", "metrics.traffic_delays", "threshold.clock", *CLOCKS, *UNUSED}
MAY_BE_INFINITE = {"ids.scores", "metrics.window_scores", "metrics.drift_scores", "metrics.drift_served", *UNUSED}


def refit(learner: Learner) -> None:
    """Fit if that is due."""
    if learner.fit_due:
        learner.apply(learner.fit_job().run())


def served(learner: Learner, n: int, time: float) -> ServedBatch:
    """Return a record of n events, scored by `learner`; some ids are those of `stream`."""
    scores = np.linspace(-2.0, 2.0, n)
    two = learner.config.labels.ranks is None
    return ServedBatch(
        hashes_of([f"id{i}" for i in range(n)]),
        np.linspace(time, time + 5.0, n),
        scores,
        (scores > 0).astype(np.int64) + (0 if two else 1),
        1.0 / (1.0 + np.exp(-scores)) if two else None,
        np.full(n, 0.5) if two else None,
    )


def learnt(pipeline: Pipeline, n: int = 60, *, timed: bool = False, **settings: Any) -> tuple[Config, State]:
    """Return the configuration of a learner, and its state after n events and their fits.

    `timed`: events have times from the 41st on, and some are served; else there is no clock.
    """
    config, state = _learnt(pipeline, n, timed, json.dumps(settings))
    return config, {name: array.copy() for name, array in state.items()}


@functools.lru_cache(32)  # tests of many wrong numbers begin with the same state
def _learnt(pipeline: Pipeline, n: int, timed: bool, settings: str) -> tuple[Config, State]:
    learner = pipeline.learner(**json.loads(settings))
    for start in range(0, n, 30):
        many = min(30, n - start)
        record, _ = stream(pipeline, learner, many, seed=start)
        assert record.ids is not None
        # a third of the ids may have come before; the sources are others
        ids = tuple(name if name is None or i % 3 == 0 else f"{name}-{start}" for i, name in enumerate(record.ids))
        record = replace(record, ids=ids, segments=tuple(s._replace(name=f"{s.name}{start}") for s in record.segments))
        if timed:
            times = np.where(np.arange(many) + start < 40, np.nan, 1e9 + 10.0 * (start + np.arange(many)))
            record = replace(record, times=times)
            if start:
                learner.apply(served(learner, start % 50, times[-1]))
        learner.apply(record)
        refit(learner)
    return learner.config, copied(learner)


def refused(config: Config, state: State) -> list[str]:
    """Return the pointers of the problems of a state."""
    try:
        check_state(config, state)
        check_values(config, state)
    except InvalidInput as error:
        return [problem.pointer for problem in error.problems]
    return []


def survives(pipeline: Pipeline, config: Config, state: State) -> None:
    """Restore, learn 30 more events with ids and sources, fit, score, and look at everything; the state stays sound."""
    learner = Learner.restored(config, state)
    record, carried = stream(pipeline, learner, 30, seed=1)
    assert learner.apply(served(learner, 20, 2e9)) is None
    outcome = learner.apply(replace(record, times=np.linspace(2e9, 2e9 + 100.0, 30)))
    assert outcome is not None
    # each id that is remembered has another label now, and those that are retained as well
    label = (lambda y: y % 5 + 1) if pipeline.traits.ordinal else (lambda y: -y)
    assert learner.apply(replace(record, labels=label(record.labels), segments=())) is not None
    refit(learner)
    assert len(learner.score(carried)) == 30
    view = learner.view().frozen()
    assert view.figures.as_json()["events"] >= 0
    assert "label_coverage" in view.figures.history()["columns"]
    view.figures.alarms()
    assert refused(config, copied(learner)) == []


def changed(state: State, name: str, place: int, value: float) -> State:
    """Return a state with another number in one place of one array."""
    other = state[name].copy()
    other.reshape(-1)[place] = value
    return {**state, name: other}


def extremes(dtype: np.dtype[Any]) -> Iterator[int]:
    """-7, 10^6 and the ends of an integer dtype, as far as it holds them."""
    ends = np.iinfo(dtype)
    for value in (-7, 10**6):
        if ends.min <= value <= ends.max:
            yield value
    yield ends.min
    yield ends.max


# one pipeline of each algorithm
EACH_ALGORITHM = pytest.mark.parametrize(
    "pipeline", {pipeline.algorithm: pipeline for pipeline in reversed(PIPELINES)}.values(), ids=str
)


@crossed("seconds", [None, 100.0, 1e-9], usual=lambda _: None)
def test_a_state_learnt_from_events_is_valid(pipeline: Pipeline, seconds: float | None) -> None:
    for n in (0, 1, 30, 150):
        config, state = learnt(pipeline, n, timed=n != 30, window_seconds=seconds)
        assert refused(config, state) == []
        survives(pipeline, config, state)


@EVERY
def test_a_state_of_extreme_events_is_valid(pipeline: Pipeline) -> None:
    learner = pipeline.learner(scaling={"kind": "none"})
    carried, y = events(pipeline, 60)
    rows = learner.encode(carried)
    if isinstance(rows, Sparse):
        rows.data[:] = np.sign(rows.data) * np.where(np.arange(len(rows.data)) % 3 == 0, 1e30, 1e-310)
    else:
        rows[:, 0] = np.sign(rows[:, 0]) * 1e30
        rows[:, 2] = np.sign(rows[:, 2]) * 1e-310  # between them a table has a category
    record = LabelledBatch(rows, y, weights=np.full(60, 1e6))
    for start in (0, 30):
        learner.apply(record.part(start, start + 30))
        if learner.fit_due:
            try:
                learner.apply(learner.fit_job().run())
            except ValueError:  # these events have no such model
                learner.postpone_fit()
    assert refused(learner.config, copied(learner)) == []


@pytest.mark.campaign
@EACH_ALGORITHM
def test_out_of_range_integers_are_refused_or_harmless(pipeline: Pipeline) -> None:
    config, state = learnt(pipeline, timed=True)
    tried = 0
    for name, array in state.items():
        if array.dtype.kind not in "iu" or not array.size:
            continue
        for place in (0, -1):
            for value in extremes(array.dtype):
                bad = changed(state, name, place, value)
                pointers = refused(config, bad)
                ends = np.iinfo(array.dtype)
                if array.dtype.kind == "i" and value in (-7, ends.min, ends.max):
                    assert pointers, f"{name}[{place}] = {value} is taken"
                elif not pointers:
                    survives(pipeline, config, bad)
                tried += 1
        assert (array.dtype.kind == "u") == (name in FREE)
    assert tried > 50


@pytest.mark.campaign
@EACH_ALGORITHM
def test_non_finite_floats_are_refused_or_harmless(pipeline: Pipeline) -> None:
    config, state = learnt(pipeline, timed=True)
    for name, array in state.items():
        if array.dtype.kind != "f" or not array.size:
            continue
        for place in (0, -1):
            for value in (np.nan, np.inf, -np.inf):
                bad = changed(state, name, place, value)
                pointers = refused(config, bad)
                free = name in (MAY_BE_NAN if np.isnan(value) else MAY_BE_INFINITE)
                missing = name == "retained.values" and pipeline.kind == "table" and np.isnan(value)
                if free or missing:
                    if not pointers:
                        survives(pipeline, config, bad)
                elif name.startswith("metrics."):  # whose parts have to agree
                    assert f"/{name}" in pointers
                else:
                    assert pointers == [f"/{name}"]


def test_algorithms_sharing_a_state_share_its_checks() -> None:
    for algorithm in algorithms().values():
        for other in algorithms().values():
            if algorithm.State is other.State:
                assert getattr(algorithm, "problems", None) is getattr(other, "problems", None)


def kinds(*pairs: tuple[str, str]) -> list[Pipeline]:
    """Return the pipelines of these algorithms and features."""
    return [pipeline for pipeline in PIPELINES if (pipeline.algorithm, pipeline.kind) in pairs]


WRONG: list[tuple[str, str, str, int, float]] = [
    ("cbr", "dense", "algorithm.seen", 0, -1),
    ("svc", "dense", "retained.labels", 0, 6),
    ("svc", "dense", "retained.labels", 0, 1.5),
    ("ranksvm", "dense", "retained.labels", 0, 0),
    ("ranksvm", "dense", "retained.weights", 0, -1),
    ("npsvor", "dense", "algorithm.lengths", 0, 10**6),
    ("npsvor", "sparse", "algorithm.lengths", 0, 17),
    ("npsvor", "sparse", "algorithm.columns", 0, 10**6),
    ("npsvor", "dense", "algorithm.clock", 0, -5),
    ("npsvor", "dense", "algorithm.labels", 0, 9),
    ("npsvor", "dense", "algorithm.labels", 0, 1.5),
    ("oam", "sparse", "algorithm.columns", 0, 300),
    ("cbr-diag", "sparse", "algorithm.lengths", 0, -1),
    ("omcsl", "dense", "algorithm.drawn", 0, 10**6),
    ("omcsl", "dense", "algorithm.called", 1, 10**6),
    ("opaucs", "dense", "algorithm.partners", 0, 4),
    ("opaucs", "dense", "algorithm.kept", 0, 51),
    ("fofo", "dense", "algorithm.clock", 1, 10**6),
    ("stamp", "dense", "algorithm.stage", 1, 2),
    ("stamp", "dense", "algorithm.stage", 2, 64),
    ("fofo", "dense", "threshold.block", 0, 0),
    ("fofo", "dense", "threshold.block", 0, 257),
    ("fofo", "dense", "threshold.block", 2, 0),
    ("fofo", "dense", "threshold.block", 3, 256),
    ("fofo", "dense", "threshold.stage", 0, 2),
    ("fofo", "dense", "threshold.stage", 1, 10**6),
    ("fofo", "dense", "threshold.live", 0, 1.5),
    ("fofo", "dense", "threshold.mean", 0, 0.6),
    ("cbr", "dense", "threshold.called", 1, 10**6),
    ("cbr", "dense", "threshold.bins", 600, -1.0),
    ("cbr", "dense", "threshold.decided", 0, -1),
    ("cbr", "dense", "threshold.spent", 1, 10**6),
    ("cbr", "dense", "threshold.spent", 2, 2),
    ("cbr", "dense", "threshold.opening", 0, 1.5),
    ("cbr", "dense", "threshold.traffic", 0, -1.0),
    ("cbr", "dense", "threshold.traffic", 30, -2.0),
    ("cbr", "dense", "threshold.credit", 0, 41.0),
    ("cbr", "dense", "calibration.coefficients", 0, 0.0),
    ("cbr", "dense", "calibration.coefficients", 1, 31.0),
    ("cbr", "table", "columns.taken", 1, 4),
    ("cbr", "table", "columns.taken", 0, 1),
    ("oam", "sparse", "columns.order", 0, 300),
    ("oam", "sparse", "columns.order", 0, -1),
    ("cbr", "dense", "scaling.seen", 0, -1),
    ("cbr", "dense", "sources.offsets", 0, -1),
    ("cbr", "dense", "sources.names", 0, 0xFF),
]


@pytest.mark.parametrize(("algorithm", "kind", "name", "place", "value"), WRONG)
def test_each_wrong_number_is_located(algorithm: str, kind: str, name: str, place: int, value: float) -> None:
    (pipeline,) = kinds((algorithm, kind))
    scaling = {"scaling": {"kind": "standard"}} if name.startswith("scaling") else {}
    config, state = learnt(pipeline, **scaling)
    assert refused(config, state) == []
    assert refused(config, changed(state, name, place, value)) == [f"/{name}"]


# impossible metrics and recent ids, after 150 events of which 110 had a time
WRONG_METRICS: list[tuple[str, str, int, float]] = [
    *(
        (algorithm, name, place, value)
        for algorithm in ("cbr", "svc")
        for name, place, value in (
            ("counters", 0, -1),
            ("counters", -1, 2**60),
            ("traffic_clock", 0, 1e8),
            ("traffic_clock", 0, np.nan),
            ("traffic_start", 0, np.nan),
            ("traffic_start", 0, 2e9),
            ("traffic_timed", 0, 10**6),
            ("traffic_timed", 0, -1),
            ("traffic_histogram", 5, 10**6),
            ("traffic_histogram", 5, -1),
            ("traffic_span", 0, 10**6),
            ("traffic_span", 0, 3),
            ("traffic_span", 1, 10**6),
            ("traffic_span", 1, -1),
            ("traffic_delays", 0, -1.0),
            ("traffic_delays", 0, 1e300),
            ("traffic_clocks", 0, 1.0),
            ("traffic_clocks", 5, 5e9),
            ("traffic_served", 0, 3),
            ("traffic_served", 0, -1),
            ("traffic_served", 1, 10**6),
            ("traffic_served", 2, 10**6),
            ("traffic_ids", 0, 0),
            ("traffic_flags", 0, 4),
            ("traffic_flags", 0, -1),
            ("traffic_flags", -1, 127),
            ("history_count", 0, 0),
            ("history_count", 0, 3),
            ("history_count", 0, -1),
            ("drift_recent", 0, 1.5),
            ("drift_reference", 0, -1.0),
            ("drift_sums", 0, -1.0),
            ("drift_sums", 1, 22.0),
            ("drift_placements", 0, -1),
            ("drift_placements", 1, 10**6),
            ("drift_negatives", 0, 10**4),
            ("drift_serves", 0, -1),
            ("drift_by_kind", 0, -1),
            ("ids.count", 0, 24),
            ("ids.count", 0, 10**6),
            ("ids.ring", 0, 0),
            ("ids.labels", 0, 0),
            ("ids.labels", -1, 99),
            ("ids.numbers", 0, -1),
            ("ids.numbers", 0, 150),
            ("ids.decisions", 0, -1),
            ("ids.decisions", 0, 99),
        )
    ),
    ("cbr", "window_labels", 0, 99),
    ("cbr", "window_labels", 5, -128),
    ("cbr", "window_decisions", 0, 2),
    ("cbr", "window_probabilities", 0, 1.5),
    ("cbr", "window_probabilities", 0, -0.1),
    ("cbr", "window_scores", 0, np.nan),
    ("cbr", "window_clocks", 0, np.inf),
    ("cbr", "window_clocks", 0, 1.0),
    ("cbr", "window_span", 0, 3),
    ("cbr", "window_span", 0, 10**6),
    ("cbr", "window_span", 1, 10**6),
    ("cbr", "sketch_counts", 0, 10**6),
    ("cbr", "sketch_confusion", 0, 10**6),
    ("cbr", "sketch_bins", 640, -1),
    ("cbr", "sketch_bins", 640, 300),
    ("cbr", "sketch_losses", 0, 10**6),
    ("cbr", "sketch_losses", 1, -1),
    ("cbr", "sketch_reliability", 0, 10**6),
    ("cbr", "sketch_mass", 0, 10**6),
    ("cbr", "ids.probabilities", 0, 1.5),
    ("svc", "counts", 0, 10**6),
    ("svc", "total", 0, 10**6),
    ("svc", "total", 0, -1),
    ("svc", "span", 0, 3),
    ("svc", "span", 1, 10**6),
    ("svc", "labels", 0, 0),
    ("svc", "labels", 0, 6),
    ("svc", "decisions", 0, 99),
    ("svc", "ids.probabilities", 0, 0.5),
]


@functools.cache
def valid_state(algorithm: str) -> tuple[Config, State]:
    """Return the configuration and the state of `WRONG_METRICS`, which no test may change."""
    (pipeline,) = kinds((algorithm, "dense"))
    config, state = learnt(pipeline, 150, timed=True)
    assert refused(config, state) == []
    for array in state.values():
        array.flags.writeable = False
    return config, state


@pytest.mark.parametrize(("algorithm", "name", "place", "value"), WRONG_METRICS)
def test_each_wrong_metric_is_located(algorithm: str, name: str, place: int, value: float) -> None:
    config, state = valid_state(algorithm)
    name = name if "." in name else f"metrics.{name}"
    part = name.partition("_")[0] if "_" in name else name.partition(".")[0]
    assert [item for item in refused(config, changed(state, name, place, value)) if item.startswith(f"/{part}")]


@pytest.mark.parametrize("algorithm", ["cbr", "svc"])
def test_parts_of_two_streams_are_refused_together(algorithm: str) -> None:
    (pipeline,) = kinds((algorithm, "dense"))
    config, state = learnt(pipeline, 240, timed=True)
    _, shorter = learnt(pipeline, 120, timed=True)
    _, untimed = learnt(pipeline, 240)
    parts = ["metrics.", "metrics.traffic_", "metrics.history_"]
    if algorithm == "cbr":
        parts += ["metrics.window_", "metrics.sketch_"]
    for part in parts:
        other = untimed if part in ("metrics.traffic_", "metrics.window_") else shorter
        mixed = {**state, **{name: array for name, array in other.items() if name.startswith(part)}}
        assert refused(config, mixed)


def test_ids_must_agree_with_the_metrics() -> None:
    """A correction takes it out of the figures again."""
    (pipeline,) = kinds(("cbr", "dense"))
    config, state = learnt(pipeline, 150, timed=True)
    inside = int(np.flatnonzero(state["ids.numbers"] >= state["metrics.window_span"][0])[0])
    for name, value in (
        ("labels", -state["ids.labels"][inside]),
        ("decisions", 1 - state["ids.decisions"][inside]),
        ("scores", state["ids.scores"][inside] + 1.0),
        ("probabilities", 0.5 * state["ids.probabilities"][inside]),
    ):
        assert f"/ids.{name}" in refused(config, changed(state, f"ids.{name}", inside, value))
    config, state = learnt(pipeline, 150, timed=True, remembered_ids=200)
    outdated = int(np.flatnonzero(state["ids.numbers"] < state["metrics.window_span"][0])[0])
    assert refused(config, changed(state, "ids.scores", outdated, 1e9)) == ["/ids.scores"]
    (pipeline,) = kinds(("svc", "dense"))
    config, state = learnt(pipeline, 150, timed=True, remembered_ids=200)
    outdated = np.flatnonzero(state["ids.numbers"] < state["metrics.span"][0])
    rare = np.unravel_index(np.argmin(state["metrics.total"]), (5, 5))
    assert state["metrics.total"][rare] < len(outdated)
    state["ids.labels"][outdated], state["ids.decisions"][outdated] = int(rare[0]) + 1, int(rare[1]) + 1
    assert refused(config, state) == ["/ids.decisions"]


@pytest.mark.parametrize("algorithm", ["cbr", "svc"])
def test_counts_that_determine_shapes_have_fixed_shapes(algorithm: str) -> None:
    (pipeline,) = kinds((algorithm, "dense"))
    config, state = learnt(pipeline, 150)
    names = ["ids.count", *(f"metrics.{name}" for name in pipeline.learner().metrics.counted)]
    assert len(names) == 6
    for name in names:
        for array in (np.zeros(0, dtype=np.int64), np.append(state[name], 7)):
            assert refused(config, {**state, name: array}) == [f"/{name}"]


def test_a_repeated_column_or_source_is_refused() -> None:
    (pipeline,) = kinds(("oam", "sparse"))
    config, state = learnt(pipeline)
    order = state["columns.order"]
    assert refused(config, changed(state, "columns.order", 0, order[1])) == ["/columns.order"]
    assert state["sources.lengths"].tolist() == [2, 2, 3, 3]
    names = state["sources.names"].copy()
    names[:2] = names[2:4]
    assert refused(config, {**state, "sources.names": names}) == ["/sources.names"]
    lengths = np.array([-1, 5, 3, 3])
    assert refused(config, {**state, "sources.lengths": lengths}) == ["/sources.lengths"]


def test_too_many_sources_are_refused() -> None:
    n = MAX_SOURCES + 1
    state: dict[str, NDArray[np.generic]] = {
        "names": np.arange(n, dtype=np.uint8),
        "lengths": np.ones(n, dtype=np.int64),
        "offsets": np.zeros(n, dtype=np.int64),
    }
    assert [name for name, _ in Sources().problems(state)] == ["lengths"]


@pytest.mark.parametrize("algorithm", ["cbr-diag", "oam"])
def test_buffers_of_the_wrong_row_kind_or_width_are_refused(algorithm: str) -> None:
    dense, sparse = kinds((algorithm, "dense"), (algorithm, "sparse"))
    config, state = learnt(sparse)
    values, columns = state["algorithm.values"], state["algorithm.columns"]
    assert refused(config, {**state, "algorithm.columns": columns[:, :, :0]}) == ["/algorithm.columns"]
    narrow = {"algorithm.values": values[:, :, :8], "algorithm.columns": columns[:, :, :8]}
    assert refused(config, {**state, **narrow}) == ["/algorithm.values"]
    config, state = learnt(dense)
    columns = np.zeros(state["algorithm.values"].shape, dtype=np.int64)
    assert refused(config, {**state, "algorithm.columns": columns}) == ["/algorithm.columns"]
    wide = np.zeros((*state["algorithm.values"].shape[:2], 5))
    assert refused(config, {**state, "algorithm.values": wide}) == ["/algorithm.values"]


def test_a_buffer_without_replays_is_refused() -> None:
    (pipeline,) = kinds(("npsvor", "dense"))
    config, state = learnt(pipeline, params={"replays": 0})
    assert refused(config, state) == []
    for name, array in (("labels", np.ones(3)), ("caps", np.ones(3)), ("lengths", np.ones((1, 3), dtype=np.int64))):
        assert refused(config, {**state, f"algorithm.{name}": array}) == [f"/algorithm.{name}"]


@pytest.mark.parametrize("kind", ["none", "histogram", "isotonic"])
@pytest.mark.parametrize(
    "objective", [{"objective": "budget", "alerts": 3}, {"objective": "fpr", "target": 0.1}], ids=str
)
def test_every_calibration_and_budget_has_valid_states(kind: str, objective: dict[str, Any]) -> None:
    (pipeline,) = kinds(("cbr", "dense"))
    for n in (0, 1, 90):
        config, state = learnt(pipeline, n, calibration={"kind": kind}, threshold=objective)
        assert refused(config, state) == []
        survives(pipeline, config, state)
    for name in (name for name in state if name.partition(".")[0] in ("calibration", "threshold") and state[name].size):
        for value in (np.nan, np.inf) if state[name].dtype.kind == "f" else (-7, 10**6):
            bad = changed(state, name, -1, value)
            if pointers := refused(config, bad):
                assert f"/{name}" in pointers
            else:
                survives(pipeline, config, bad)


def test_the_threshold_with_a_horizon_has_one_block() -> None:
    (pipeline,) = kinds(("fofo", "dense"))
    config, state = learnt(pipeline, threshold={"objective": "f1", "horizon": 40})
    assert refused(config, state) == []  # after more events than were foreseen
    doubled = changed(state, "threshold.block", 0, 80)
    assert refused(config, doubled) == ["/threshold.block"]


def test_a_threshold_after_many_block_doublings_is_valid() -> None:
    (pipeline,) = kinds(("fofo", "dense"))
    learner = pipeline.learner(threshold={"objective": "f1", "n1": 2})
    for seed in range(20):
        carried, y = events(pipeline, 37, seed)
        learner.apply(batch(learner, carried, y))
        assert refused(learner.config, copied(learner)) == []


def test_a_part_of_a_state_can_be_checked_alone() -> None:
    (pipeline,) = kinds(("svc", "dense"))
    config, state = learnt(pipeline)
    part = {name: array for name, array in state.items() if name.startswith("algorithm.")}
    check_values(config, part)
    part["algorithm.bias"] = np.full(5, np.inf)
    with pytest.raises(InvalidInput) as caught:
        check_values(config, part)
    assert [problem.pointer for problem in caught.value.problems] == ["/algorithm.bias"]


def test_every_invalid_part_is_reported() -> None:
    (pipeline,) = kinds(("cbr", "dense"))
    config, state = learnt(pipeline)
    wrong = {"metrics.window_labels": 99.0, "algorithm.seen": -1.0, "threshold.seen": -1.0, "calibration.events": -1.0}
    for name, value in wrong.items():
        state = changed(state, name, 0, value)
    assert sorted(refused(config, state)) == sorted(f"/{name}" for name in wrong)


def test_nan_scores_count_as_0() -> None:
    scores = np.array([1.0, np.nan, -1.0, np.nan, np.nan, 2.0, np.nan, 0.5])
    y = np.where(np.arange(8) % 3 == 0, 1.0, -1.0)
    decisions, hashes = np.zeros(8, dtype=np.int64), np.zeros(8, dtype=np.uint64)
    half, unknown, no = np.full(8, 0.5), np.full(8, np.nan), np.zeros(8, dtype=np.bool_)
    figures = []
    for values in (scores, np.nan_to_num(scores)):
        metrics = BinaryMetrics(3)
        for _ in range(20):
            metrics.serve(hashes_of([f"e{i}" for i in range(8)]), values, None, decisions, unknown)
            metrics.learn(values, half, half, y, decisions, unknown, unknown, hashes, no)
        figures.append(metrics.view().as_json())
        assert list(metrics.problems(metrics.state())) == []
        again = BinaryMetrics(3)
        again.restore(metrics.state())
        assert again.view().as_json() == figures[-1]
    assert figures[0] == figures[1]


def test_the_total_of_ranks_covers_the_window() -> None:
    metrics = RankMetrics(5, None, 3)
    unknown, hashes = np.full(4, np.nan), np.zeros(4, dtype=np.uint64)
    y, decisions = np.array([1.0, 2.0, 2.0, 3.0]), np.array([1, 2, 1, 3])
    metrics.learn(unknown, None, None, y, decisions, unknown, unknown, hashes, np.zeros(4, dtype=np.bool_))
    state = metrics.state()
    assert list(metrics.problems(state)) == []
    moved = np.array([[1, 0, 0], [2, 0, 0], [0, 0, 1]])
    assert [name for name, _ in metrics.problems({**state, "total": moved})] == ["total"]


def test_alarms_have_a_valid_kind_and_valid_numbers() -> None:
    (pipeline,) = kinds(("cbr", "dense"))
    config, state = learnt(pipeline, timed=True)
    state["metrics.drift_by_kind"][:3] = (1, 1, 1)
    state["metrics.drift_alarms"][:3, :5] = [[0, 5, np.nan, 0.9, 0.7], [1, 9, 1e9, 0.1, 0.9], [2, 9, 1e9, 0.2, 0.0]]
    assert refused(config, state) == []
    survives(pipeline, config, state)
    for column, value in ((0, 3.0), (0, 0.5), (0, np.nan), (1, -1.0), (1, np.nan), (2, np.inf), (3, 1.5), (4, np.nan)):
        bad = state["metrics.drift_alarms"].copy()
        bad[1, column] = value
        assert refused(config, {**state, "metrics.drift_alarms": bad}) == ["/metrics.drift_alarms"]
    # a CUSUM that compares with an empty reference would divide by 0
    empty = {**state, "metrics.drift_placements": np.array([500, 0])}
    assert refused(config, empty) == ["/metrics.drift_reference"]
