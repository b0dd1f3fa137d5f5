"""The words of the benchmarks: titles of tables, verdicts, and why a run ends. Other tests look at figures and names.

A changed sentence changes one row here.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from benchmarks import alarms, thresholds
from benchmarks.papers.report import Row, print_head, print_rows
from benchmarks.service import http_load, peers, socket_load
from benchmarks.service.__main__ import main as service
from benchmarks.service.http_load import LoadFailed
from benchmarks.service.rounds import Verdict
from tests.benchmarks.test_alarms import TINY
from tests.benchmarks.test_papers import FIGURE, SMALL
from tests.benchmarks.test_service_load import http, messages, posted, socket

pytestmark = pytest.mark.integration

# ---- The service -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reached", "target", "bound", "text"),
    [
        (0.6, 0.6, "at least", "reached"),
        (0.45, 0.6, "at least", "short by 25%"),
        (1.5, 1.5, "at most", "reached"),
        (3.0, 1.5, "at most", "over by 100%"),
        (None, 1.5, "at most", "not measured"),
    ],
)
def test_verdicts(reached: float | None, target: float, bound: Any, text: str) -> None:
    assert Verdict("what", reached, target, bound).text == text


@pytest.mark.parametrize(
    ("theirs", "text"),
    [
        ({"events/s": 50.0, "AUC": 0.8}, "2.0 x as fast; AUC +0.100"),
        ({"events/s": 200.0, "AUC": 0.95}, "SLOWER, 0.50 x; AUC -0.050 BEHIND"),
    ],
)
def test_comparisons_with_peers(theirs: dict[str, float], text: str) -> None:
    assert peers._compared({"events/s": 100.0, "AUC": 0.9}, theirs) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--datasets", "nowhere"], "nowhere has no covtype.npz and no covtype.svm"),
        (["--rounds", "0"], "--rounds and --seconds have to be more than 0"),
    ],
)
def test_usage_errors(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        service(arguments)
    assert capsys.readouterr().err.rstrip().endswith(f": error: {text}")


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (
            [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"],
            "a reply without content-length: HTTP/1.1 200 OK\r\ntransfer-encoding: chunked",
        ),
        ([], "the server closed a connection: no reason given"),
    ],
)
def test_failures_of_http_load(pieces: list[bytes], text: str) -> None:
    with http(lambda _: pieces) as port, pytest.raises(LoadFailed) as failed:
        http_load.drive(port, iter(posted([b"1", b"2"])), 1)
    assert str(failed.value) == text


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ('{"seq":1,"status":422,"code":"invalid"}', 'a message was refused: {"seq":1,"status":422,"code":"invalid"}'),
        (None, "the server closed: 03f0 beyond the credit"),
    ],
)
def test_failures_of_websocket_load(answer: str | None, text: str) -> None:
    async def handler(connection: Any) -> None:
        await connection.recv()
        if answer is None:
            await connection.close(1008, "beyond the credit")
        else:
            await connection.send(answer)
            await connection.wait_closed()

    with socket(handler) as port, pytest.raises(LoadFailed) as failed:
        socket_load.drive(port, "/", messages(5), 1, seconds=60, greeting=False)
    assert str(failed.value) == text


# ---- The papers ------------------------------------------------------------------------------------------------------


def printed(function: Any, *arguments: Any) -> list[str]:
    """Return the lines that a function prints."""
    out = io.StringIO()
    function(*arguments, Console(file=out, width=200))
    return out.getvalue().splitlines()


SECONDS = "The seconds are those of the final training of one run, without its tuning: the median of the runs."
BRACKETS = "In brackets, as of toy [1]: the labels that count as positive; all others are negative."
QUICK = "This quick run is a sample of the protocol: its figures are not comparable with the paper's."
EQUAL = (
    "The paper's figure is - if it prints none. Ours is equal within the paper's standard deviation, or ours if the "
    "paper prints none; a figure holds if ours is equal or better."
)


def test_how_to_read_a_table(tmp_path: Path) -> None:
    quick = replace(SMALL, protocol=SMALL.protocol.quickly())
    for table, legend in ((SMALL, EQUAL), (quick, QUICK)):
        lines = printed(print_head, table, tmp_path)
        assert lines[1].startswith(f"Protocol: {table.protocol.words[:20]}")
        assert " ".join(lines[lines.index(BRACKETS) :]) == f"{BRACKETS} {SECONDS} {legend} Not in {tmp_path}: toy [1]"


def test_which_figures_hold() -> None:
    ((key, figure),) = FIGURE.items()
    rows = [Row(*key, figure, (0.9, 0.9), 1.0, "", False), Row("toy [1]", "Other", figure, (0.1,), 1.0, "", False)]
    lines = printed(print_rows, SMALL, rows)
    assert lines[-1] == "1 hold and 1 do not, of 2 judged of 7 figures of the paper's table."
    assert lines[-3:-1] == ["toy [1]  ours: Uni-Exp > Other", "         the paper's: Uni-Exp = Other"]
    quick = replace(SMALL, protocol=SMALL.protocol.quickly())
    assert printed(print_rows, quick, rows)[-1] == "         the paper's: Uni-Exp = Other"


# ---- Thresholds and alarms -------------------------------------------------------------------------------------------


def test_titles_of_thresholds() -> None:
    cost = "cost per event, 1 of a false alarm, 10 of a missed positive: positive where p >= 1/11"
    assert [title for title, _ in thresholds._tables()] == [
        "online F of the whole stream",
        "online F of what came after the share of positives fell fourfold",
        "online F by f1-window, fofo's scores calibrated",
        "online F by f1-window, cbr-diag's scores calibrated",
        "each by its own measure",
        "fpr: share of negatives called positive, and recall",
        "precision of .8, and recall",
        "recall of .8, and precision",
        "budget of 1% of all events",
        "budget of 10 alerts a day of about 1,000 events",
        f"{cost}; fofo",
        f"{cost}; cbr-diag",
    ]


class Titles(Console):
    """A console that keeps the texts and leaves tables out."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.texts: list[str] = []

    def print(self, *objects: Any, **_: Any) -> None:
        """Keep a text."""
        self.texts += [text for text in objects if isinstance(text, str)]


def test_titles_of_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    results: Sequence[tuple[str, Any]] = [
        ("verdicts", np.ones(2)),
        ("false_alarms", (0, 100)),
        ("falls", (np.ones(1), 0)),
        ("served", {"change": "none", "alarms": 0, "events": 100}),
        ("learning", (0, 100)),
        ("silences", {"share": 0.5, "burst": 1, "alarms": 0, "found": 1.0, "median": 1.0}),
        ("steady_fields", (0, 100)),
        ("steady_numbers", (0, 0.0, 100)),
        ("worse_fields", {"change": "goes missing", "found": 1.0, "median": 9, "most": 9}),
        ("worse_numbers", {"change": "in cents", "found": 1.0, "median": 9, "most": 9}),
        ("costs", []),
    ]
    for name, result in results:
        monkeypatch.setattr(alarms, name, lambda *_, result=result: result)
    console = Titles()
    alarms.measured(TINY, console)
    assert [text.strip() for text in console.texts] == [
        "1. two different scorers of equal AUC: streams with a verdict, looked at after every event (at most 5 % may)",
        "AUC .8 against .82, .85, .9: median number of positives until a verdict (2 streams each)",
        "2. false alarms of a fall of AUC per 100,000 stationary events, and limit (2 streams each)",
        "a fall by ten points after 500 positives: found within 150 positives; median and mean delay in positives of "
        "those found within 600, and how many these are",
        "scores of served events: alarms",
        "scores of learners that learn, from their first event on, on stationary streams: alarms per 100,000 events",
        "positive labels that stop after 500 positives: false alarms per 100,000 stationary events; found, and median "
        "delay in mean gaps between bursts",
        "20 fields whose missing values, new categories, values of the wrong kind and numbers out of range all come "
        "like this: alarms per 100,000 events",
        "20 fields of numbers like this: share out of range, and alarms per 100,000 events",
        "a field that gets worse: found, and delay in events",
        "3. costs",
    ]
