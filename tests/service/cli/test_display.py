"""Displays of replays and learners, on a terminal and elsewhere."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from service.cli.display import LearnersDisplay, ReplayDisplay, describe_metrics, fit_notes
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
    assert [re.findall(r"[\d,]*\d|AUC so far -", line) for line in out.getvalue().splitlines()] == [
        ["10,000", "45", "2,000", "6", "AUC so far -"],
        ["20,000", "91", "2,000", "1", "AUC so far -"],
    ]


def test_a_replay_without_a_known_speed() -> None:
    out, time = io.StringIO(), Time()
    with ReplayDisplay(Console(file=out, width=120), time.clock) as display:
        time.now += 40
        display.show(4, 1.0, None, "AUC so far -")
    assert re.findall(r"\d+|AUC so far -", out.getvalue()) == ["4", "100", "AUC so far -"]
    with ReplayDisplay(Console(file=out, force_terminal=True, width=120)) as display:
        display.show(4, 1.0, None, "AUC so far -")
    assert "events/s" not in out.getvalue()


BINARY = {"class_counts": {"negative": 9, "positive": 1}}
ORDINAL = {"class_counts": {"1": 4, "2": 6}}
FIT: dict[str, Any] = {"events": 0, "running": False, "waiting": False, "failed": None}
READY: dict[str, Any] = {"ready": True, "not_ready": None, "fit": None}


def test_metrics_so_far_are_summarised_briefly() -> None:
    values = re.compile(r"AUC|MAE|accuracy|0\.\d+|-|why not")
    assert values.findall(describe_metrics({**BINARY, "since_start": {"auc": 0.93121}}, READY)) == ["AUC", "0.9312"]
    assert values.findall(describe_metrics({**BINARY, "since_start": {"auc": None}}, READY)) == ["AUC", "-"]
    ranked = {**ORDINAL, "since_start": {"mae": 0.25, "accuracy": 0.75}}
    assert values.findall(describe_metrics(ranked, READY)) == ["MAE", "0.2500", "accuracy", "0.7500"]
    assert values.findall(describe_metrics(ranked, {**READY, "ready": False, "not_ready": "why not"})) == ["why not"]


@pytest.mark.parametrize(
    ("fit", "notes"),
    [
        ({}, 1),
        ({"running": True}, 2),
        ({"events": 800}, 0),
        ({"events": 900}, 1),
        ({"events": 800, "running": True}, 1),
    ],
)
def test_notes_explain_missing_metrics_of_batch_learners(fit: dict[str, Any], notes: int) -> None:
    document = {**READY, "events": 900, "fit": FIT | fit, "config": {"refit_every": 100}}
    document["ready"] = "events" in fit  # a batch learner waits for its first fit
    lines = fit_notes(document)
    assert len(lines) == notes
    assert sum("--wait" in line for line in lines) == fit.get("running", False)
    assert fit_notes({**document, "config": {"refit_every": None}}) == []  # an online learner's embedding
    assert fit_notes({**document, "fit": None}) == []


def test_a_learner_that_learns_between_fits_is_described_before_the_first() -> None:
    assert fit_notes({**READY, "events": 900, "fit": FIT, "config": {"refit_every": 100}}) == []


@pytest.mark.parametrize("terminal", [True, False])
def test_a_display_of_binary_and_ordinal_learners(terminal: bool) -> None:
    out = io.StringIO()
    binary = {**BINARY, "name": "two", "events": 10, "window": {"auc": 0.5, "f1": None}}
    ranked = {**ORDINAL, "name": "grades", "events": 10, "window": {"mae": 0.25, "accuracy": 0.75}}
    with LearnersDisplay(Console(file=out, force_terminal=terminal, width=120)) as display:
        display.show([binary, ranked], 1000.0)
    for text in ("AUC 0.5000", "F1 -", "positives 1", "MAE 0.2500", "accuracy 0.7500"):
        assert text in out.getvalue()
