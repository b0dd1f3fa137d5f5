"""Displays of replays and learners, on a terminal and elsewhere."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from service.cli.display import LearnersDisplay, ReplayDisplay, describe_fit, describe_metrics, fit_notes
from tests.service.cli.test_request_errors import Time


def test_a_replay_on_a_terminal() -> None:
    out = io.StringIO()
    with ReplayDisplay(Console(file=out, force_terminal=True, width=120)) as display:
        display.show(120_000, 0.25, 8412.3, "AUC so far 0.9312")
    for text in ("25%", "120,000 rows", "8,412 events/s", "AUC so far 0.9312"):
        assert text in out.getvalue()


def test_a_replay_without_a_terminal_prints_occasional_lines() -> None:
    out, time = io.StringIO(), Time()
    with ReplayDisplay(Console(file=out, width=120), time.clock) as display:
        for row in range(1, 23):
            time.now += 0.5
            display.show(row * 1000, row / 22, 2000.0, "AUC so far -")
    assert out.getvalue().splitlines() == [
        "10,000 rows (45%), 2,000 events/s, 6 s left, AUC so far -",
        "20,000 rows (91%), 2,000 events/s, 1 s left, AUC so far -",
    ]


def test_a_replay_without_a_known_speed() -> None:
    out, time = io.StringIO(), Time()
    with ReplayDisplay(Console(file=out, width=120), time.clock) as display:
        time.now += 40
        display.show(4, 1.0, None, "AUC so far -")
    assert out.getvalue().splitlines() == ["4 rows (100%), AUC so far -"]
    with ReplayDisplay(Console(file=out, force_terminal=True, width=120)) as display:
        display.show(4, 1.0, None, "AUC so far -")
    assert "events/s" not in out.getvalue()


BINARY = {"class_counts": {"negative": 9, "positive": 1}}
ORDINAL = {"class_counts": {"1": 4, "2": 6}}
FIT: dict[str, Any] = {"events": 0, "running": False, "waiting": False, "failed": None}
READY: dict[str, Any] = {"ready": True, "not_ready": None, "fit": None}


def test_metrics_so_far_are_summarised_briefly() -> None:
    assert describe_metrics({**BINARY, "since_start": {"auc": 0.93121}}, READY) == "AUC so far 0.9312"
    assert describe_metrics({**BINARY, "since_start": {"auc": None}}, READY) == "AUC so far -"
    ranked = {**ORDINAL, "since_start": {"mae": 0.25, "accuracy": 0.75}}
    assert describe_metrics(ranked, READY) == "MAE so far 0.2500, accuracy 0.7500"
    waiting = {**READY, "ready": False, "not_ready": "the first fit comes after 600 labelled events"}
    assert describe_metrics(ranked, waiting).startswith("not ready:")


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (None, None),
        ({}, "none yet"),
        ({"running": True}, "none yet; the next is running"),
        ({"events": 5000, "running": True}, "after 5,000 events; the next is running"),
        ({"running": True, "waiting": True}, "none yet; the next waits for fits of other learners"),
        ({"events": 5000, "failed": "too few"}, "after 5,000 events; the last one failed: too few"),
    ],
)
def test_the_progress_of_fits_is_described(fit: dict[str, Any] | None, message: str | None) -> None:
    assert describe_fit({**READY, "fit": None if fit is None else FIT | fit}) == message


SCORED_NONE = "no event was scored by a fitted model yet"
LAST_SCORED_NONE = "the model of the last fit has not scored an event yet"
UNDER_WAY = "a fit is running"


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        ({}, [SCORED_NONE]),
        ({"running": True}, [SCORED_NONE, UNDER_WAY]),
        ({"events": 800}, []),
        ({"events": 900}, [LAST_SCORED_NONE]),
        ({"events": 800, "running": True}, [UNDER_WAY]),
    ],
)
def test_notes_explain_missing_metrics_of_batch_learners(fit: dict[str, Any], message: list[str]) -> None:
    document = {**READY, "events": 900, "fit": FIT | fit, "config": {"refit_every": 100}}
    assert [line.split(":")[0] for line in fit_notes(document)] == message
    assert fit_notes({**document, "config": {"refit_every": None}}) == []  # an online learner's embedding
    assert fit_notes({**document, "fit": None}) == []


@pytest.mark.parametrize("terminal", [True, False])
def test_a_display_of_binary_and_ordinal_learners(terminal: bool) -> None:
    out = io.StringIO()
    binary = {**BINARY, "name": "two", "events": 10, "window": {"auc": 0.5, "f1": None}}
    ranked = {**ORDINAL, "name": "grades", "events": 10, "window": {"mae": 0.25, "accuracy": 0.75}}
    with LearnersDisplay(Console(file=out, force_terminal=terminal, width=120)) as display:
        display.show([binary, ranked], 1000.0)
    for text in ("AUC 0.5000", "F1 -", "positives 1", "MAE 0.2500", "accuracy 0.7500"):
        assert text in out.getvalue()
