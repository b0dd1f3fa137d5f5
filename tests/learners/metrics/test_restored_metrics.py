"""Metrics of a restored state: impossible values are refused, and accepted values can be written as JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from learners import Config, Learner
from learners.learner import State
from learners.metrics.binary import HISTORY_COLUMNS
from learners.metrics.ordinal import ORDINAL_HISTORY
from tests.learners.test_state_checks import changed, kinds, learnt, refused

pytestmark = pytest.mark.integration

FLOATS = (np.nan, np.inf, -np.inf, -1.0, 0.5, 2.0, 1e300)
COUNTS = (-1, 1, 1000, 2**53, 2**62)
SHARES = ("auc", "average_precision", "f1", "precision", "recall", "alert_rate", "accuracy", "label_coverage")


def check_json(config: Config, state: State) -> None:
    """Restore a state and write all metrics as JSON, which has neither NaN nor infinity."""
    figures = Learner.restored(config, state).view().figures
    history = figures.history()
    for item in (figures.as_json(), history, figures.points_since(0), figures.alarms(), figures.curves()):
        json.dumps(item, allow_nan=False)
    for point in history["points"]:
        for name in {"events", "served", "positives", "alerts"} & point.keys():
            assert isinstance(point[name], int)
            assert point[name] >= 0


@pytest.mark.parametrize("algorithm", ["cbr", "svc"])
def test_a_history_may_lack_metrics_but_not_counts(algorithm: str) -> None:
    (pipeline,) = kinds((algorithm, "dense"))
    config, state = learnt(pipeline, 240, timed=True)
    assert state["metrics.history_count"][0] == 3
    rows = state["metrics.history_rows"]
    for column, value, right in (
        (3, np.nan, True),
        (0, np.nan, False),
        (0, 65.0, False),
        (2, np.nan, False),
        (2, 65.0, False),
        (1, np.nan, True),
        (1, 1.0, True),
        (1, 1.5e9, False),
        (3, np.inf, False),
    ):
        bad = rows.copy()
        bad[0, 1, column] = value
        expected = [] if right else ["/metrics.history_rows"]
        assert refused(config, {**state, "metrics.history_rows": bad}) == expected
    columns = HISTORY_COLUMNS if algorithm == "cbr" else ORDINAL_HISTORY
    for name in (name for name in columns if name.startswith("since_start_")):
        for value, right in ((np.nan, True), (0.0, True), (1.0, True), (-0.01, False), (10.0, False), (np.inf, False)):
            bad = rows.copy()
            bad[0, 2, columns.index(name)] = value
            expected = [] if right else ["/metrics.history_rows"]
            assert refused(config, {**state, "metrics.history_rows": bad}) == expected, (name, value)
    bad = rows.copy()
    bad[0, 3, 1] = 1.5e9  # the latest: after all that came
    assert refused(config, {**state, "metrics.history_rows": bad}) == ["/metrics.history_rows"]


@pytest.mark.parametrize("algorithm", ["cbr", "svc"])
def test_any_history_value_is_refused_or_reported(algorithm: str) -> None:
    (pipeline,) = kinds((algorithm, "dense"))
    config, state = learnt(pipeline, 240, timed=True)
    check_json(config, state)
    name, columns = "metrics.history_rows", HISTORY_COLUMNS if algorithm == "cbr" else ORDINAL_HISTORY
    values = {
        (column, value)
        for place, column in enumerate(columns)
        for value in FLOATS
        if not refused(config, bad := changed(state, name, 2 * len(columns) + place, value))
        and check_json(config, bad) is None
    }
    names = [column for column in columns if column not in ("events", "clock", "served")]
    for column in names:
        full = column in ("positives", "alerts")
        assert full == all((column, value) not in values for value in (np.nan, 0.5)), column
        free = column == "threshold"
        assert ((column, -1.0) in values) == (free or column == "mcc"), column
        assert ((column, 1e300) in values) == (free or column == "events_per_second"), column
        if column.removeprefix("since_start_") in SHARES:
            assert (column, 2.0) not in values, column
    assert not [value for _, value in values if np.isinf(value)]


def test_history_counts_are_integers_within_the_window() -> None:
    (pipeline,) = kinds(("cbr", "dense"))
    config, state = learnt(pipeline, 240, timed=True)
    name = "metrics.history_rows"
    for column in ("positives", "alerts"):
        place = 2 * len(HISTORY_COLUMNS) + HISTORY_COLUMNS.index(column)
        for value in (np.nan, np.inf, -1.0, 2.5, config.window + 1.0):
            assert refused(config, changed(state, name, place, value)) == [f"/{name}"], (column, value)
        for value in (0.0, float(config.window)):
            assert refused(config, changed(state, name, place, value)) == []


@pytest.mark.parametrize("algorithm", ["cbr", "svc"])
def test_any_value_of_a_metrics_array_is_refused_or_reported(algorithm: str) -> None:
    (pipeline,) = kinds((algorithm, "dense"))
    config, state = learnt(pipeline, 150, timed=True)
    tried = 0
    for name, array in state.items():
        if not name.startswith("metrics.") or name == "metrics.history_rows" or array.dtype.kind not in "if":
            continue
        for place in {0, array.size // 3, array.size - 1}:
            for value in FLOATS if array.dtype.kind == "f" else COUNTS:
                if array.dtype.kind == "f" or np.iinfo(array.dtype).min <= value <= np.iinfo(array.dtype).max:
                    bad = changed(state, name, place, value)
                    if not refused(config, bad):
                        check_json(config, bad)
                    tried += 1
    assert tried > 200
