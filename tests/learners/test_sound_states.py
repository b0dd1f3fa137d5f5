"""States of the right names, dtypes and shapes whose values no stream can have led to: refused before a kernel runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from learners import Config, Learner, Refused, algorithms
from learners.arrays import Sparse
from learners.batch import Batch, Outcome
from learners.learner import State, check_state
from learners.metrics import Metrics
from learners.ordinal_metrics import OrdinalMetrics
from learners.recent import MAX_SOURCES, RecentIds, Sources
from learners.soundness import check_values
from tests.learners.pipelines import EVERY, PIPELINES, Pipeline, batch, copied, events, stream

# unsigned: random state, hashes of ids (0 is refused), and bytes of names (what is not UTF-8 is refused)
FREE = ("algorithm.rng", "ids.ring", "sources.names")
# of floats: what may be NaN, and what may be infinite
MAY_BE_NAN = {"metrics.history", "threshold.clock"}
MAY_BE_INFINITE = {"metrics.scores"}


def refit(learner: Learner) -> None:
    """Fit if that is due."""
    if learner.due:
        learner.apply(learner.fitting().run())


def learnt(pipeline: Pipeline, n: int = 60, **settings: Any) -> tuple[Config, State]:
    """A learner's configuration, and its state after n events and the fits that were due."""
    learner = pipeline.learner(**settings)
    for start in range(0, n, 30):
        one, _ = stream(pipeline, learner, min(30, n - start), seed=start)
        learner.apply(one)
        refit(learner)
    return learner.config, copied(learner)


def refused(config: Config, state: State) -> list[str]:
    """The pointers of what is wrong with a state."""
    try:
        check_state(config, state)
        check_values(config, state)
    except Refused as error:
        return [problem.pointer for problem in error.problems]
    return []


def survives(pipeline: Pipeline, config: Config, state: State) -> None:
    """Restore, learn 30 more events with ids and sources, fit, score, and look at everything; the state stays sound."""
    learner = Learner.restored(config, state)
    one, carried = stream(pipeline, learner, 30, seed=1)
    outcome = learner.apply(one)
    assert outcome is not None
    refit(learner)
    assert len(learner.score(carried)) == 30
    view = learner.view().frozen()
    assert view.figures.as_json()["events"] >= 0
    assert view.figures.history()["stride"] >= 64
    assert refused(config, copied(learner)) == []


def changed(state: State, name: str, place: int, value: float) -> State:
    """A state with another number in one place of one array."""
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


@EVERY
def test_a_state_that_came_of_events_is_sound(pipeline: Pipeline) -> None:
    for n in (0, 1, 30, 60):
        config, state = learnt(pipeline, n)
        assert refused(config, state) == []
    survives(pipeline, config, state)


@EVERY
def test_a_state_of_events_at_the_limits_is_sound(pipeline: Pipeline) -> None:
    learner = pipeline.learner(scaling={"kind": "none"})
    carried, y = events(pipeline, 60)
    rows = learner.encode(carried)
    if isinstance(rows, Sparse):
        rows.data[:] = np.sign(rows.data) * np.where(np.arange(len(rows.data)) % 3 == 0, 1e30, 1e-310)
    else:
        rows[:, 0] = np.sign(rows[:, 0]) * 1e30
        rows[:, 2] = np.sign(rows[:, 2]) * 1e-310  # between them a table has a category
    whole = Batch(rows, y, weights=np.full(60, 1e6))
    for start in (0, 30):
        learner.apply(whole.part(start, start + 30))
        if learner.due:
            try:
                learner.apply(learner.fitting().run())
            except ValueError:  # these events have no such model
                learner.unfit()
    assert refused(learner.config, copied(learner)) == []


@EVERY
def test_whole_numbers_out_of_range_are_refused_or_do_no_harm(pipeline: Pipeline) -> None:
    config, state = learnt(pipeline)
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


@EVERY
def test_floats_that_are_not_finite_are_refused_or_do_no_harm(pipeline: Pipeline) -> None:
    config, state = learnt(pipeline)
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
                else:
                    assert pointers == [f"/{name}"]


def test_an_algorithm_with_the_state_of_another_tells_of_it_likewise() -> None:
    for one in algorithms().values():
        for other in algorithms().values():
            if one.State is other.State:
                assert getattr(one, "problems", None) is getattr(other, "problems", None)


def kinds(*pairs: tuple[str, str]) -> list[Pipeline]:
    """The pipelines of these algorithms behind these features."""
    return [one for one in PIPELINES if (one.algorithm, one.kind) in pairs]


WRONG: list[tuple[str, str, str, int, float]] = [
    ("cbr", "dense", "metrics.labels", 0, 99),
    ("cbr", "dense", "metrics.labels", 5, -128),
    ("cbr", "dense", "metrics.decisions", 0, 99),
    ("cbr", "dense", "metrics.points", 0, 513),
    ("cbr", "dense", "metrics.points", 1, 0),
    ("cbr", "dense", "metrics.points", 1, 96),
    ("cbr", "dense", "metrics.sketch", 640, -1),
    ("cbr", "dense", "metrics.sketch", 640, 3),
    ("cbr", "dense", "metrics.confusion", 0, 10**6),
    ("cbr", "dense", "metrics.history", 0, -1),
    ("cbr", "dense", "algorithm.seen", 0, -1),
    ("svc", "dense", "metrics.labels", 0, 0),
    ("svc", "dense", "metrics.labels", 0, 6),
    ("svc", "dense", "metrics.decisions", 0, 99),
    ("svc", "dense", "metrics.total", 0, 10**6),
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
    ("cbr", "dense", "ids.ring", 0, 0),
    ("cbr", "dense", "sources.offsets", 0, -1),
    ("cbr", "dense", "sources.names", 0, 0xFF),
]


@pytest.mark.parametrize(("algorithm", "kind", "name", "place", "value"), WRONG)
def test_each_wrong_number_is_pointed_at(algorithm: str, kind: str, name: str, place: int, value: float) -> None:
    (pipeline,) = kinds((algorithm, kind))
    scaling = {"scaling": {"kind": "standard"}} if name.startswith("scaling") else {}
    config, state = learnt(pipeline, **scaling)
    assert refused(config, state) == []
    assert refused(config, changed(state, name, place, value)) == [f"/{name}"]


def test_a_column_or_a_source_that_comes_twice() -> None:
    (pipeline,) = kinds(("oam", "sparse"))
    config, state = learnt(pipeline)
    order = state["columns.order"]
    assert refused(config, changed(state, "columns.order", 0, order[1])) == ["/columns.order"]
    names = np.frombuffer(b"ss", dtype=np.uint8)
    assert refused(config, {**state, "sources.names": names}) == ["/sources.names"]
    lengths = np.array([-1, 3])
    assert refused(config, {**state, "sources.lengths": lengths}) == ["/sources.lengths"]


@pytest.mark.parametrize("count", [-1, 2**60])
def test_a_count_of_ids_that_cannot_be(count: int) -> None:
    ring = np.arange(1, 26, dtype=np.uint64)
    assert [name for name, _ in RecentIds(25).problems({"count": np.array([count]), "ring": ring})] == ["count"]


def test_more_sources_than_are_kept() -> None:
    n = MAX_SOURCES + 1
    state: dict[str, NDArray[np.generic]] = {
        "names": np.arange(n, dtype=np.uint8),
        "lengths": np.ones(n, dtype=np.int64),
        "offsets": np.zeros(n, dtype=np.int64),
    }
    assert [name for name, _ in Sources().problems(state)] == ["lengths"]


@pytest.mark.parametrize("algorithm", ["cbr-diag", "oam"])
def test_buffers_of_the_other_kind_of_rows_or_of_another_width(algorithm: str) -> None:
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


def test_a_buffer_where_there_are_no_replays() -> None:
    (pipeline,) = kinds(("npsvor", "dense"))
    config, state = learnt(pipeline, params={"replays": 0})
    assert refused(config, state) == []
    for name, array in (("labels", np.ones(3)), ("caps", np.ones(3)), ("lengths", np.ones((1, 3), dtype=np.int64))):
        assert refused(config, {**state, f"algorithm.{name}": array}) == [f"/algorithm.{name}"]


@pytest.mark.parametrize("kind", ["none", "histogram", "isotonic"])
@pytest.mark.parametrize(
    "objective", [{"objective": "budget", "alerts": 3}, {"objective": "fpr", "target": 0.1}], ids=str
)
def test_every_calibration_and_budget_has_sound_states(kind: str, objective: dict[str, Any]) -> None:
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


def test_a_threshold_far_into_the_doubled_blocks_is_sound() -> None:
    (pipeline,) = kinds(("fofo", "dense"))
    learner = pipeline.learner(threshold={"objective": "f1", "n1": 2})
    for seed in range(20):
        carried, y = events(pipeline, 37, seed)
        learner.apply(batch(learner, carried, y))
        assert refused(learner.config, copied(learner)) == []


def test_a_part_of_a_state_is_checked_alone() -> None:
    (pipeline,) = kinds(("svc", "dense"))
    config, state = learnt(pipeline)
    part = {name: array for name, array in state.items() if name.startswith("algorithm.")}
    check_values(config, part)
    part["algorithm.bias"] = np.full(5, np.inf)
    with pytest.raises(Refused) as caught:
        check_values(config, part)
    assert [problem.pointer for problem in caught.value.problems] == ["/algorithm.bias"]


def test_every_part_that_is_wrong_is_told() -> None:
    (pipeline,) = kinds(("cbr", "dense"))
    config, state = learnt(pipeline)
    wrong = {"metrics.labels": 99.0, "algorithm.seen": -1.0, "threshold.seen": -1.0, "calibration.events": -1.0}
    for name, value in wrong.items():
        state = changed(state, name, 0, value)
    assert sorted(refused(config, state)) == sorted(f"/{name}" for name in wrong)


def test_scores_that_are_nan_count_as_0() -> None:
    scores = np.array([1.0, np.nan, -1.0, np.nan, np.nan, 2.0, np.nan, 0.5])
    y = np.where(np.arange(8) % 3 == 0, 1.0, -1.0)
    decisions = np.zeros(8, dtype=np.int64)
    yes, no = np.ones(8, dtype=np.bool_), np.zeros(8, dtype=np.bool_)
    figures = []
    for said in (scores, np.nan_to_num(scores)):
        metrics = Metrics(3)
        for _ in range(20):
            metrics.learn(Outcome(yes, no, said, decisions, np.full(8, 0.5), np.full(8, 0.5)), y)
        figures.append(metrics.view().as_json())
        assert list(metrics.problems(metrics.state())) == []
        again = Metrics(3)
        again.restore(metrics.state())
        assert again.view().as_json() == figures[-1]
    assert figures[0] == figures[1]


def test_the_ring_of_ranks_holds_nothing_beyond_its_events() -> None:
    metrics = OrdinalMetrics(5, 3)
    state = metrics.state()
    assert list(metrics.problems(state)) == []
    assert [name for name, _ in metrics.problems({**state, "labels": np.full(5, 2, dtype=np.int8)})] == ["labels"]


def test_a_history_may_lack_figures_but_not_counts() -> None:
    (pipeline,) = kinds(("cbr", "dense"))
    config, state = learnt(pipeline)
    assert refused(config, changed(state, "metrics.history", 1, np.nan)) == []
    assert refused(config, changed(state, "metrics.history", 0, np.nan)) == ["/metrics.history"]
    assert refused(config, changed(state, "metrics.history", 1, np.inf)) == ["/metrics.history"]
