"""The words of what commands print besides errors: progress, notes, alarms, hints, and the demo.

Other tests look at numbers, names and options. A changed sentence changes one row here.
"""

from __future__ import annotations

import io
import signal
from collections.abc import Sequence
from typing import Any, Self

import pytest
from rich.console import Console
from typer.testing import CliRunner

from learners.numerics import KernelCounts, cache_directory
from rarestream import RequestRefused, RetryPause, ServiceUnreachable
from service.cli import options_service
from service.cli.commands import demo
from service.cli.commands.show import describe_alarm, describe_budget
from service.cli.commands.watch import WatchedLearner
from service.cli.display import ReplayDisplay, describe_metrics, fit_notes
from service.cli.main import app
from service.cli.options_service import open_client
from service.cli.request_errors import RequestFailed
from service.connectors.connection_errors import reason_of
from service.exits import WrongUsage
from service.pacing import Interruption
from service.settings import Settings
from tests.service.cli.commands.test_watch import Service, figures
from tests.service.cli.test_display import BINARY, FIT, ORDINAL, READY
from tests.service.cli.test_request_errors import Time

# ---- Replays ---------------------------------------------------------------------------------------------------------


def test_progress_without_a_terminal() -> None:
    out, time = io.StringIO(), Time()
    with ReplayDisplay(Console(file=out, width=120), time.clock) as display:
        for row in range(1, 23):
            time.now += 0.5
            display.show(row * 1000, row / 22, 2000.0, "AUC so far -")
    assert out.getvalue().splitlines() == [
        "10,000 rows (45%), 2,000 events/s, 6 s left, AUC so far -",
        "20,000 rows (91%), 2,000 events/s, 1 s left, AUC so far -",
    ]


def test_metrics_so_far() -> None:
    assert describe_metrics({**BINARY, "since_start": {"auc": 0.93121}}, READY) == "AUC so far 0.9312"
    assert describe_metrics({**BINARY, "since_start": {"auc": None}}, READY) == "AUC so far -"
    ranked = {**ORDINAL, "since_start": {"mae": 0.25, "accuracy": 0.75}}
    assert describe_metrics(ranked, READY) == "MAE so far 0.2500, accuracy 0.7500"
    waiting = {**READY, "ready": False, "not_ready": "the first fit comes after 600 labelled events"}
    assert describe_metrics(ranked, waiting) == "not ready: the first fit comes after 600 labelled events"


def test_the_use_of_a_budget() -> None:
    use = {"alerts": 3, "limit": 1000.0, "resets": None, "resets_iso": None}
    assert describe_budget(use) == "3 of 1,000 alerts"
    assert describe_budget({**use, "limit": 1.0, "resets_iso": "2026-12-01T00:00:00.000Z"}) == (
        "3 of 1 alert; resets 2026-12-01T00:00:00.000Z"
    )


SCORED_NONE = "no event was scored by a fitted model yet: the metrics do not describe the algorithm"
LAST_SCORED_NONE = "the model of the last fit has not scored an event yet: the metrics do not include it"
RUNNING = (
    "a fit is running: the metrics do not include it; it is used when it ends; a replay with --wait waits for each fit"
)


@pytest.mark.parametrize(
    ("fit", "ready", "notes"),
    [
        ({"running": True}, False, [SCORED_NONE, RUNNING]),
        ({"events": 900}, True, [LAST_SCORED_NONE]),
        ({"events": 800, "running": True}, True, [RUNNING]),
    ],
)
def test_notes_on_fits(fit: dict[str, Any], ready: bool, notes: list[str]) -> None:
    assert fit_notes({**READY, "ready": ready, "events": 900, "fit": FIT | fit, "config": {"refit_every": 9}}) == notes


# ---- Learners --------------------------------------------------------------------------------------------------------

OF_FIELDS = {"events": 4000, "before": 0.0, "after": 0.5, "field": "fee"}
SERVED = "the served scores changed: 41 % exceed a score that 5 % exceeded before"


@pytest.mark.parametrize(
    ("alarm", "text"),
    [
        (
            {"kind": "auc", "events": 1, "before": 0.9, "after": 0.7},
            "after 1 event: the AUC fell from 0.9000 to 0.7000",
        ),
        ({"kind": "scores", "events": 4000, "before": 0.05, "after": 0.41}, f"after 4,000 events: {SERVED}"),
        (
            {"kind": "positives", "events": 4000, "before": 0.05, "after": 0.0},
            "after 4,000 events: positive labels stopped arriving; before, they were 5 % of the events",
        ),
        (
            {"kind": "missing", "fields": 1, **OF_FIELDS},
            "after 4,000 events: more missing values of fee: 50 % of the events, 0 % before",
        ),
        (
            {"kind": "new_categories", "fields": 1, **OF_FIELDS},
            "after 4,000 events: more new categories of fee: 50 % of the events, 0 % before",
        ),
        (
            {"kind": "contradictions", "fields": 3, **OF_FIELDS},
            "after 4,000 events: more values of the wrong kind of fee and 2 other fields: 50 % of the events, 0 % "
            "before",
        ),
        (
            {"kind": "out_of_range", "fields": 1, **OF_FIELDS},
            "after 4,000 events: more numbers out of range of fee: 50 % of the events, 0 % before",
        ),
    ],
)
def test_alarms(alarm: dict[str, Any], text: str) -> None:
    assert describe_alarm(alarm) == text


def test_a_frame_of_watch() -> None:
    watched = WatchedLearner(Service(), "a", clock=iter(range(1000)).__next__)  # type: ignore[arg-type]
    watched.take("figures", figures(50, auc=0.875))
    watched.take("alarm", {"kind": "auc", "events": 40, "before": 0.9, "after": 0.7})
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(watched.frame())
    lines = [" ".join(line.strip("│ ").split()) for line in console.export_text().splitlines()]
    assert lines[1:-1] == [
        "AUC 0.8750 95 % interval 0.8000 to 0.9500",
        "trend ▁ ▆█ lowest 0.5000, highest 0.8750",
        "F1 0.5000 precision 0.4000 recall 0.6000 alert rate - threshold 0.2500",
        "events 50 learnt, 1 positive, 100 scored without a label 0 learnt/s",
        "alarm after 40 events: the AUC fell from 0.9000 to 0.7000",
    ]


# ---- Hints -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("unknown-learner", "`rarestream list` shows the learners."),
        ("unknown-group", "`rarestream groups` shows the groups."),
        ("unknown-snapshot", "`rarestream snapshots NAME` shows the stored snapshots."),
        ("store-full", "The store has no room. Delete learners or give it room, then repeat the command."),
        ("store-unavailable", "The service cannot reach its store. Check the store, then repeat the command."),
        ("unauthorized", "Give a key of the service with RARESTREAM_KEY or --key."),
        ("forbidden", "Use a key with that permission; `rarestream keys create --keys FILE` makes one."),
        ("certificate-name", "The certificate is for another name: use that name in --url or RARESTREAM_URL."),
        (
            "certificate-untrusted",
            "RARESTREAM_CA names a file of certificates to trust besides those of the system.",
        ),
    ],
)
def test_remedies(code: str, remedy: str) -> None:
    assert RequestFailed(RequestRefused("no", status=404, code=code)).remedy == remedy


def test_retries() -> None:
    messages: list[str] = []
    note = options_service._limit_repeats(messages.append)
    with open_client("http://h", None, notice=note) as client:
        client._on_retry(RetryPause(1.234, ServiceUnreachable("cannot reach http://h"), 299.6))
    assert messages == ["cannot reach http://h; trying again in 1.2 s, for 300 s more (--retry-seconds)"]
    assert options_service._WAITING == "waiting for the service, which has not answered for some seconds"


def test_reasons_of_failed_connections() -> None:
    assert reason_of(ConnectionRefusedError(111, "refused")) == "nothing listens there (connection refused)"
    assert reason_of(TimeoutError()) == "it does not answer in time"


# ---- The demo --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "lines"),
    [
        (0, ["The fraud pattern changes at event 1,500."]),
        (100, ["Resuming at event 100 of 3,000.", "The fraud pattern changes at event 1,500."]),
        (1500, ["Resuming at event 1,500 of 3,000."]),
        (3000, ["The learners have already learnt 3,000 events of the stream. Use --events N for a longer one."]),
    ],
)
def test_the_demo_announces_its_stream(at: int, lines: list[str]) -> None:
    out = io.StringIO()
    with Interruption() as interruption, demo._DemoStream("http://h", 3000, interruption, print) as stream:
        stream._announce(at, Console(file=out, width=120))
    assert out.getvalue().splitlines() == lines


def test_the_demo_refuses_events_of_the_future() -> None:
    with (
        Interruption() as interruption,
        demo._DemoStream("http://h", 10**9, interruption, print) as stream,
        pytest.raises(WrongUsage) as caught,
    ):
        stream._first_day(0, None)
    most, rest = str(caught.value).removeprefix("--events: ").split(maxsplit=1)
    assert int(most.replace(",", "")) > 10**6
    assert rest == "at most; later events would be in the future"


@pytest.mark.parametrize(
    ("complaints", "last"),
    [
        ([], "Stopped cleanly. The same command resumes from here."),
        (
            ["no snapshot of a"],
            "Stopped, but not cleanly:\n"
            "  no snapshot of a\n"
            "All learnt events are in the log. The same command resumes from here.",
        ),
    ],
)
def test_the_demo_streams_and_stops(complaints: Sequence[str], last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Serving:
        """A server that does nothing, and is interrupted once it is checked."""

        url, warning = "http://h", None

        def __init__(self, *_: object) -> None:
            self.complaints = complaints

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def check(self) -> None:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(demo, "_Serving", Serving)
    monkeypatch.setattr(demo, "listen", lambda *_: None)
    monkeypatch.setattr(demo, "_REFRESH", 0.01)
    for name, result in {
        "_create": {"a": 0},
        "_newest": None,
        "_first_day": 0,
        "_announce": None,
        "_send": True,
        "_figures": [],
    }.items():
        monkeypatch.setattr(demo._DemoStream, name, lambda *_, result=result: result)
    out = io.StringIO()
    demo.demo(Settings(store="memory:"), rate=None, events=3000, console=Console(file=out, width=120))
    assert out.getvalue() == (
        "dashboard  http://h/\n"
        "API docs   http://h/docs\n"
        "store      memory:\n"
        "All 3,000 events have been streamed.\n"
        "Still serving; Ctrl-C stops.\n"
        f"{last}\n"
    )


# ---- Help ------------------------------------------------------------------------------------------------------------


def test_where_the_kernels_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learners.warm", lambda **_: [])
    monkeypatch.setattr("learners.numerics.rehearse_here", lambda _: None)
    monkeypatch.setattr("learners.numerics.kernel_counts", lambda: KernelCounts(120, 11, 0, 131))
    assert CliRunner().invoke(app, ["warm"]).stdout == f"kernels: 120 of 131 are compiled, in {cache_directory()}\n"


def test_exit_statuses_in_the_help() -> None:
    text = " ".join(CliRunner().invoke(app, ["-h"]).stdout.split())
    for words in ("3 no service answers", "4 no such learner", "5 refused", "6 partly done"):
        assert words in text
