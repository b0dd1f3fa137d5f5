"""Holds every algorithm's scores, states and metrics against `streams.json`, to the bit.

Kernels give the same bits on every machine. Fits (k-means, eigenvectors, LIBLINEAR, NumPy's products) may not: their
cases are compared to the bit where these libraries give what they gave on the machine of the recording, and elsewhere
by counts and by the windowed AUC within 0.05.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import pytest

from tests.compatibility.recordings import brief, differences, read_json, without_reasons
from tests.compatibility.served import run_served, served_cases
from tests.compatibility.serving import Service, serve
from tests.compatibility.streams import cases, machine, run

pytestmark = pytest.mark.integration

RECORDED = read_json("streams.json")
STREAMS = {case["name"]: case for case in cases()}
SERVED = {case["name"]: case for case in served_cases()}


def sample(names: Iterable[str], every: int = 6) -> list[Any]:
    """Leave the plain tier one case in so many."""
    return [pytest.param(name, marks=() if i % every == 0 else pytest.mark.integration) for i, name in enumerate(names)]


def test_every_recorded_case_exists() -> None:
    assert list(STREAMS) == list(RECORDED["streams"])
    assert list(SERVED) == list(RECORDED["served"])


@cache
def _same_machine() -> bool:
    return bool(machine() == RECORDED["machine"]["libraries"])


def _check(expected: dict[str, Any], outcome: dict[str, Any]) -> None:
    whole = "window" in expected["metrics"]
    outcome = {**outcome, "metrics": (without_reasons if whole else brief)(outcome["metrics"])}
    actual = list(differences(expected, outcome))
    assert not actual, "\n".join(["", *actual])


@pytest.mark.parametrize("name", sample(RECORDED["streams"]))
def test_replayed_streams_match_the_recording(name: str) -> None:
    case, expected = STREAMS[name], RECORDED["streams"][name]
    outcome = run(case)
    if case["fits"] and not _same_machine():
        metrics, before = outcome["metrics"], expected["metrics"]
        assert metrics["events"] == before["events"]
        if before.get("auc") is not None:
            assert metrics["window"]["auc"] == pytest.approx(before["auc"], abs=0.05)
    else:
        _check(expected, outcome)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serve("memory:") as running:
        yield running


@pytest.mark.parametrize("name", sample(RECORDED["served"]))
def test_served_streams_match_the_recording(service: Service, name: str) -> None:
    _check(RECORDED["served"][name], run_served(service, SERVED[name]))
