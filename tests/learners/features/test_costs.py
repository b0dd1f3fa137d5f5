"""What a miss costs, by a field of the events: arrays and lists say the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.features.costs import costs_of
from learners.features.feature_kinds import Dense
from learners.features.named import Named
from learners.settings import InvalidInput


def outcome(values: Any) -> Any:
    try:
        return costs_of(Dense(dim=2), "1", values).tolist()
    except InvalidInput as error:
        return [problem.pointer for problem in error.problems]


@given(st.lists(st.sampled_from([0.0, -0.0, 1.5, 1e15, 2e15, -1.0, 1e-300, 7.0]), max_size=5), st.booleans())
@settings(max_examples=40)
def test_costs_of_an_array_equal_those_of_event_lists(column: list[float], single: bool) -> None:
    X = np.zeros((len(column), 2), dtype=np.float32 if single else np.float64)
    X[:, 1] = column
    assert outcome(X) == outcome(X.tolist())


def test_an_object_array_is_read_event_by_event() -> None:
    values = np.empty(2, dtype=object)
    values[:] = [{"amount": 3}, {"amount": 0.5}]
    assert costs_of(Named(), "amount", values).tolist() == [3.0, 0.5]
    assert costs_of(Dense(dim=2), "1", np.array([[1, 2], [3, 4.5]], dtype=object)).tolist() == [2.0, 4.5]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 1e16])
def test_an_invalid_cost_in_an_array_is_located(bad: float) -> None:
    with pytest.raises(InvalidInput) as refused:
        costs_of(Dense(dim=2), "1", np.array([[0, 1.0], [0, bad], [bad, 2.0]]))
    assert [problem.pointer for problem in refused.value.problems] == ["/1/1"]
