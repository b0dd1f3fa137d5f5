"""Metrics for people: rates are in per cent everywhere."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from learners import InvalidInput, create
from learners.comparison import GroupConfig
from service.cli.commands.show import _figure_columns, describe_alarm
from service.cli.commands.watch import WatchedLearner
from service.cli.display import figures_table
from service.text import counted, figure, share
from tests.service.cli.commands.test_watch import Service, figures


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0106, "1.06 %"), (0.5, "50 %"), (1.0, "100 %"), (0.0, "0 %"), (0.99999, "100 %"), (1 / 3e5, "0.000333 %")],
)
def test_shares_are_formatted(value: float, text: str) -> None:
    assert share(value) == text


@pytest.mark.parametrize(("n", "text"), [(0, "0 events"), (1, "1 event"), (2, "2 events"), (1234, "1,234 events")])
def test_counts_are_formatted(n: int, text: str) -> None:
    assert counted(n, "event") == text


def test_one_event_is_singular_everywhere() -> None:
    alarm = {"kind": "auc", "events": 1, "before": 0.9, "after": 0.7}
    assert re.search(r"\b1 event\b", describe_alarm(alarm))
    learner = create("loam-ada", dim=1)
    learner.learn(np.ones((1, 1)), np.ones(1))
    assert figures_table({**learner.figures(), "name": "cards", "threshold": 0.0}).title == "cards: 1 event"
    with pytest.raises(InvalidInput, match="name"):
        GroupConfig(learners=("a",))


def test_unknown_values_are_shown_as_a_dash() -> None:
    assert (figure(None), share(None)) == ("-", "-")
    assert figure(0.93124) == "0.9312"


def test_the_alert_rate_is_equal_in_show_watch_and_list() -> None:
    learner = create("loam-ada", dim=1, threshold={"objective": "fixed", "value": 0.5})
    learner.learn(np.linspace(-1.0, 1.0, 300)[:, None], np.arange(300) % 3 == 0)
    metrics = learner.figures()
    rate = metrics["window"]["alert_rate"]
    assert 0.0 < rate < 1.0
    out = Console(file=StringIO(), width=120)
    out.print(figures_table({**metrics, "name": "cards", "threshold": 0.0}))
    assert isinstance(out.file, StringIO)
    row = next(line for line in out.file.getvalue().splitlines() if "alert rate" in line)
    assert [cell.strip() for cell in row.split("│")[2:4]] == [share(rate), share(rate)]
    watched = WatchedLearner(Service(), "a")  # type: ignore[arg-type]
    watched.take("figures", figures(50, alert_rate=rate))
    assert ("alert rate", share(rate)) in watched.words()
    assert _figure_columns([])["alerts"].text({"window": {"alert_rate": rate}}) == share(rate)


def test_alarms_are_described() -> None:
    def values(alarm: dict[str, Any]) -> list[str]:
        return re.findall(r"[\d.,]*\d(?: %)?|\bfee\b", describe_alarm({"events": 4000, **alarm}))

    assert values({"kind": "auc", "before": 0.9, "after": 0.7}) == ["4,000", "0.9000", "0.7000"]
    assert values({"kind": "scores", "before": 0.05, "after": 0.41}) == ["4,000", "41 %", "5 %"]
    assert values({"kind": "positives", "before": 0.05, "after": 0.0}) == ["4,000", "5 %"]
    for kind in ("missing", "new_categories", "contradictions", "out_of_range"):
        worse = {"kind": kind, "before": 0.0, "after": 0.5, "field": "fee", "fields": 1}
        assert values(worse) == ["4,000", "fee", "50 %", "0 %"]
        assert values({**worse, "fields": 3}) == ["4,000", "fee", "2", "50 %", "0 %"]
