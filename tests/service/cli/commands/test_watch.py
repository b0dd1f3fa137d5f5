"""Server-sent events, curves in text, and a watch that survives a restart of its service."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from rich.console import Console

from rarestream import ClientError, RequestRefused, ServerEvent, ServiceUnreachable
from rarestream.client.documents import EventDecoder
from service.cli.commands import watch
from service.cli.commands.watch import WatchedLearner, follow
from service.cli.format import sparkline
from service.exits import CommandFailed, ExitStatus

WINDOW = {
    "size": 100,
    "auc": 0.9,
    "auc_interval": [0.8, 0.95],
    "f1": 0.5,
    "precision": 0.4,
    "recall": 0.6,
    "alert_rate": None,
}


def figures(count: int, **window: Any) -> dict[str, Any]:
    return {
        "events": count,
        "class_counts": {"negative": count - 1, "positive": 1},
        "served": {"events": 3 * count, "labelled": count},
        "threshold": 0.25,
        "window": {**WINDOW, **window},
    }


class Service:
    """A fake service whose streams give their lines, or fail."""

    def __init__(self, *streams: list[ServerEvent] | ClientError) -> None:
        self.streams = list(streams)
        self.positions: list[str | None] = []

    def learner(self, _: str) -> Service:
        return self

    def describe(self) -> Mapping[str, Any]:
        return {"name": "a", "ready": True, "not_ready": None, "config": {"algorithm": "cbr"}}

    def metrics(self) -> Mapping[str, Any]:
        return figures(10)

    def alarms(self) -> Mapping[str, Any]:
        return {"alarms": []}

    def history(self) -> Mapping[str, Any]:
        return {"points": [{"auc": 0.5}, {"auc": None}, {"auc": 0.75}]}

    @contextmanager
    def events(self, last: str | None = None) -> Iterator[Iterator[ServerEvent]]:
        self.positions.append(last)
        result = self.streams.pop(0)
        if isinstance(result, ClientError):
            raise result
        yield iter(result)


def test_stream_events_are_parsed() -> None:
    lines = [
        ": still here",
        "",
        "id: 1.2.3",
        "event: point",
        'data: {"auc":',
        "data: 0.5}",
        "",
        "event: cut",
        "data: {}",
    ]
    decoder = EventDecoder()
    values = [event for line in lines for event in decoder.feed(line)]
    assert [tuple(item) for item in values] == [("point", {"auc": 0.5}, "1.2.3")]


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ([], 5, ""),
        ([None, None], 5, ""),
        ([1.0], 5, "▅"),
        ([0.5, 0.5], 5, "▅▅"),
        ([0.0, 1.0, None, 0.5], 5, "▁█ ▅"),
        ([0.0, 0.0, 1.0, 1.0], 2, "▁█"),
    ],
)
def test_sparklines_are_drawn(values: list[float | None], width: int, line: str) -> None:
    assert sparkline(values, width) == line
    assert sparkline(values, width, plain=True).isascii()
    assert len(sparkline(values, width, plain=True)) == len(line)


@pytest.mark.parametrize(
    ("code", "status"), [("unknown-learner", ExitStatus.NOT_FOUND), ("damaged", ExitStatus.FAILED)]
)
def test_the_exit_status_says_why_the_stream_ended(code: str, status: ExitStatus) -> None:
    service = Service([ServerEvent("gone", {"code": code, "detail": "no more"}, None)])
    with pytest.raises(CommandFailed, match="no more") as error:
        follow(service, WatchedLearner(service, "a"), lambda *_: None)  # type: ignore[arg-type]
    assert error.value.exit_status == status


def test_a_broken_stream_resumes_at_its_last_event(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(watch.time, "sleep", pauses.append)
    first = [ServerEvent("point", {"auc": 0.8}, "0.1.0")]
    last = [ServerEvent("gone", {"code": "unknown-learner", "detail": "a was deleted"}, None)]
    away = ServiceUnreachable("cannot reach it")
    service = Service(first, away, away, last)
    lines: list[str] = []
    watched = WatchedLearner(service, "a")  # type: ignore[arg-type]
    with pytest.raises(CommandFailed, match="deleted") as error:
        follow(service, watched, lambda kind, _: lines.append(kind))  # type: ignore[arg-type]
    assert error.value.exit_status == ExitStatus.NOT_FOUND
    assert service.positions == [None, "0.1.0", "0.1.0", "0.1.0"]
    assert lines == ["point", "trouble", "trouble", "trouble"]
    assert pauses == [0.5, 1.0, 2.0]


def test_a_refused_request_ends_watch() -> None:
    service = Service(RequestRefused("no", status=401, code="unauthorized"))
    with pytest.raises(RequestRefused):
        follow(service, WatchedLearner(service, "a"), lambda *_: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_frame_fits_the_terminal(width: int) -> None:
    watched = WatchedLearner(Service(), "a", clock=iter(range(1000)).__next__)  # type: ignore[arg-type]
    watched.take("figures", figures(50, auc=0.875))
    watched.take("alarm", {"kind": "auc", "events": 40, "before": 0.9, "after": 0.7})
    console = Console(width=width, record=True, force_terminal=True, file=io.StringIO())
    console.print(watched.frame())
    text = console.export_text()
    assert max(map(len, text.splitlines())) == width
    assert "0.8750" in text
    rows = [line.strip("│ ").split("  ")[0] for line in text.splitlines()]
    assert "▁" in text.splitlines()[rows.index("trend")]
    if width > 40:
        assert text.index("0.8750") < text.index("95 %") < text.index("trend") < text.index("lowest")
        assert "100 scored" in text
        assert re.search(r"\b0\.5000\b.* 0\.8750\b", text)  # with the present
        assert re.search(r"\b0\.9000\b.* 0\.7000\b", text)


def test_frames_of_ranks_and_of_missing_metrics() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    watched = WatchedLearner(Service(), "a")  # type: ignore[arg-type]
    watched.take("reset", {})
    watched.take("figures", figures(1, auc=None, auc_interval=None))
    console.print(watched.frame())
    ranked = {**figures(50), "class_counts": {"1": 20, "2": 30}, "window": {"size": 100, "mae": 0.25, "accuracy": 0.75}}
    watched.take("figures", ranked)
    console.print(watched.frame())
    lines = [line.strip("│ ") for line in console.export_text().splitlines()]
    rows = [line for line in lines if line.startswith(("AUC", "MAE", "trend"))]
    assert [re.findall(r"^\w+|-|▅|0\.\d+", row) for row in rows] == [
        ["AUC", "-"],
        ["trend", "-"],
        ["MAE", "0.2500"],
        ["trend", "▅", "0.2500", "0.2500"],
    ]


def test_a_rollback_starts_a_new_curve() -> None:
    watched = WatchedLearner(Service(), "a")  # type: ignore[arg-type]
    watched.take("reset", {})
    watched.take("point", {"auc": 0.3})
    assert list(watched._curve) == [0.3]
