"""An alert budget with late labels: the order of requests, the counts, and a run on a small invented file."""

from __future__ import annotations

import gzip
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks import late_labels
from benchmarks.late_labels import DAY, Stream

pytestmark = pytest.mark.integration

FIRST = datetime(2018, 4, 1, tzinfo=UTC).timestamp()
NAMES = (
    "TRANSACTION_ID,TX_DATETIME,CUSTOMER_ID,TERMINAL_ID,TX_AMOUNT,TX_TIME_SECONDS,TX_TIME_DAYS,label,TX_FRAUD_SCENARIO"
)


def write(folder: Path, days: int, a_day: int) -> list[list[int]]:
    """card_sim.csv.gz with frauds at one terminal in five; the labels of each day."""
    rng = np.random.default_rng(0)
    lines, labels = [NAMES], list[list[int]]()
    for day in range(days):
        labels.append([])
        for i in range(a_day):
            second = day * 86_400 + i * 86_400 // a_day
            terminal = int(rng.integers(0, 10))
            label = int(terminal < 2 and rng.random() < 0.8)
            amount = round(float(rng.exponential(40)), 2)
            moment = datetime.fromtimestamp(FIRST + second, UTC).strftime("%Y-%m-%d %H:%M:%S")
            lines.append(
                f"{len(lines)},{moment},{rng.integers(0, 20)},{terminal},{amount},{second},{day},{label},{label}"
            )
            labels[-1].append(label)
    with gzip.open(folder / "card_sim.csv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    return labels


class Service:
    """A service whose learner makes every third event an alert; it records the requests."""

    def __init__(self, learns: bool = True) -> None:
        self.requests: list[tuple[str, list[dict[str, Any]]]] = []
        self._learns = learns
        self._scored = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        what, events = request.url.path.rpartition("/")[2], json.loads(request.content)["events"]
        self.requests.append((what, events))
        if what == "labels":
            return httpx.Response(200, json={"applied": len(events) if self._learns else 0})
        first = self._scored
        self._scored += len(events)
        return httpx.Response(200, json={"results": [{"label": int(i % 3 == 0)} for i in range(first, self._scored)]})


def events(count: int, apart: float) -> list[dict[str, Any]]:
    return [
        {"id": str(i), "time": FIRST + i * apart, "label": int(i % 6 == 0), "features": {"TX_AMOUNT": i}}
        for i in range(count)
    ]


def test_scores_use_only_labels_available_at_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_labels, "BATCH", 4)
    service, apart, delay = Service(), 3600.0, 10 * 3600.0
    with httpx.Client(base_url="http://service/", transport=httpx.MockTransport(service)) as http:
        days = list(Stream(http, delay).run(iter(events(60, apart)), days=2))
    assert [(day.day, day.events, day.frauds, day.alerts, day.hits) for day in days] == [
        ("2018-04-01", 24, 4, 8, 4),
        ("2018-04-02", 24, 4, 8, 4),
    ]
    assert days[0].precision == 0.5
    assert all(len(body_events) <= 4 for _, body_events in service.requests)
    labelled: list[str] = []
    for what, body_events in service.requests:
        if what == "labels":
            labelled += [item["id"] for item in body_events]
            assert [item["time"] for item in body_events] == [
                FIRST + int(item["id"]) * apart + delay for item in body_events
            ]
            assert [item["label"] for item in body_events] == [int(int(item["id"]) % 6 == 0) for item in body_events]
        else:
            ready = [str(i) for i in range(48) if FIRST + i * apart + delay <= body_events[0]["time"]]
            assert labelled == ready
            assert all("label" not in item for item in body_events)
    assert labelled == [str(i) for i in range(48)]


def test_the_run_aborts_if_labels_are_not_learnt() -> None:
    with (
        httpx.Client(base_url="http://service/", transport=httpx.MockTransport(Service(learns=False))) as http,
        pytest.raises(SystemExit, match=r"^3\b.*\b3\b"),
    ):
        list(Stream(http, DAY).run(iter(events(3, 1.0)), days=None))


def test_a_run_on_a_small_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = write(tmp_path, days=8, a_day=150)
    out = tmp_path / "figures.json"
    options = ["--datasets", tmp_path, "--days", 7, "--alerts", 9, "--delay-days", 2, "--json", out]
    monkeypatch.setattr("sys.argv", ["late_labels", *map(str, options)])
    late_labels.main()
    printed = capsys.readouterr().out.splitlines()
    result = json.loads(out.read_text())
    assert [day["day"] for day in result["days"]] == [f"2018-04-0{day}" for day in range(1, 8)]
    assert [day["events"] for day in result["days"]] == [150] * 7
    assert [day["frauds"] for day in result["days"]] == [sum(day) for day in labels[:7]]
    alerts = [day["alerts"] for day in result["days"]]
    assert alerts[:2] == [0, 0]  # no label is known yet
    assert max(alerts) <= 9
    assert sum(alerts) > 9
    assert sum(day["hits"] for day in result["days"]) > 0.5 * sum(alerts)
    assert (result["label_coverage"], result["label_delay_median"]) == (1.0, 2 * DAY)
    assert result["window"]["auc"] > 0.7
    assert printed[0] == late_labels.HEADER
    assert printed[1].split() == ["2018-04-01", "150", str(sum(labels[0])), "0", "-"]
    assert any("1.0000" in line and line.count("2 d") == 2 for line in printed)
    assert re.findall(r"\d+", printed[-1]) == [str(max(alerts)), "9"]
    assert "ABOVE" not in printed[-1]


@pytest.mark.campaign
def test_a_day_with_alerts_beyond_the_budget_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, days=4, a_day=150)
    original = late_labels.config
    monkeypatch.setattr(late_labels, "config", lambda algorithm, alerts: original(algorithm, 20 * alerts))
    options = ["--datasets", tmp_path, "--alerts", 1, "--delay-days", 1, "--algorithm", "loam-ada"]
    monkeypatch.setattr("sys.argv", ["late_labels", *map(str, options)])
    with pytest.raises(SystemExit) as ended:
        late_labels.main()
    assert ended.value.code == 1
    assert "ABOVE" in capsys.readouterr().out.splitlines()[-1]
