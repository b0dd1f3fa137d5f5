"""Replays with delayed labels: the order of requests, the result, resuming, and refusals."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarestream import Client, OutcomeUnknown, RetryPause
from service.cli.late_replay import Delay, late_source, schedule
from service.datasets.batches import RequestBody
from tests.harness.process import Commands, Process
from tests.harness.waiting import eventually
from tests.service.cli.conftest import run

pytestmark = pytest.mark.integration

ROWS = 600
START = 1.5e9
Step = tuple[str, int]  # "score" or "label", and the row


def rows() -> list[dict[str, Any]]:
    """Write different events, about one a minute, one in five positive."""
    rng = np.random.default_rng(0)
    labels = (rng.random(ROWS) < 0.2).astype(int).tolist()
    times = (START + np.cumsum(rng.exponential(60, ROWS))).round(3).tolist()
    x = rng.normal(size=ROWS).round(4).tolist()
    return [
        {"id": f"e{i}", "time": times[i], "a": x[i] + 2 * labels[i], "country": "abcd"[i % 4], "label": labels[i]}
        for i in range(ROWS)
    ]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    return path


FLAT = ["--id", "id", "--time", "time"]
LATE = [*FLAT, "--label-delay", "1h"]


def create(server: Process, name: str, *options: object) -> None:
    settings = ("--set", "features.bits=6")
    run(server, "create", name, "--algorithm", "loam-ada", "--features", "named", *settings, *options)


def create_steady(server: Process, name: str) -> None:
    """Create a learner whose decisions do not depend on how often an event was scored before."""
    create(server, name, "--set", "threshold.cautious=false")


def get(server: Process, path: str) -> Any:
    return httpx.get(f"{server.url}/v1/learners/{path}", trust_env=False, timeout=300).raise_for_status().json()


def figures(server: Process, name: str) -> dict[str, Any]:
    """Return the live metrics that do not depend on the size of requests."""
    excluded = ("name", "position", "duplicates")
    return {key: value for key, value in get(server, f"{name}/metrics").items() if key not in excluded}


@pytest.fixture(scope="module")
def replayed(server: Process, file: Path) -> str:
    """Replay the file without interruption, with labels one hour late; return the learner."""
    create_steady(server, "whole")
    run(server, "replay", file, "--learner", "whole", *LATE)
    return "whole"


# The order of requests


def steps(batches: list[RequestBody]) -> list[Step]:
    """List the events of all requests."""
    kinds = {"unlabelled": "score", "labels": "label"}
    return [(kinds[batch.kind], batch.offset + i) for batch in batches for i in range(batch.count)]


def make_requests(times: list[float], delay: Delay, **options: Any) -> list[RequestBody]:
    events = [{"id": str(i), "time": at, "label": i % 2, "x": [i]} for i, at in enumerate(times)]
    return list(schedule(iter(events), delay, "file#1", **{"learnt": 0, "size": 5, **options}))


def naive(times: list[float], delay: Delay, limit: int | None = None) -> list[Step]:
    """List rows and labels in order: before each event, the labels that have arrived by the largest time so far."""
    order: list[Step] = []
    arrivals: list[float] = []
    clock = -np.inf
    labelled = 0
    for row, at in enumerate(times):
        if row == limit:
            return order
        clock = max(clock, at)
        while labelled < row and max(arrivals[: labelled + 1]) <= clock:
            order.append(("label", labelled))
            labelled += 1
        order.append(("score", row))
        arrivals.append(delay.arrival_of(at))
    if limit != len(times):
        order += [("label", row) for row in range(labelled, len(times))]
    return order


TIMES = st.lists(st.integers(0, 12), max_size=30).flatmap(
    lambda steps: st.permutations(range(-2, 3)).map(
        lambda wobble: [float(at + wobble[i % 5]) for i, at in enumerate(np.cumsum(steps).tolist())]
    )
)
DELAYS = st.builds(Delay, st.integers(1, 40).map(float), st.sampled_from([0.0, 0.0, 7.0, 30.0]))


@given(TIMES, DELAYS, st.integers(1, 8), st.one_of(st.none(), st.integers(1, 35)))
def test_labels_and_events_are_ordered_by_time(times: list[float], delay: Delay, size: int, limit: int | None) -> None:
    batches = make_requests(times, delay, size=size, limit=limit)
    assert steps(batches) == naive(times, delay, limit)
    assert all(0 < batch.count <= size for batch in batches)


@given(TIMES, DELAYS, st.integers(1, 8), st.data())
def test_a_split_schedule_continues_where_it_ended(
    times: list[float], delay: Delay, size: int, data: st.DataObject
) -> None:
    batches = make_requests(times, delay, size=size)
    cut = data.draw(st.integers(0, len(batches)))
    before = steps(batches[:cut])
    learnt = sum(kind == "label" for kind, _ in before)
    after = steps(make_requests(times, delay, size=size, learnt=learnt))
    again = [step for step in after if step in before]
    assert [step for step in after if step not in before] == steps(batches[cut:])
    assert before[len(before) - len(again) :] == again  # only what was scored after the last label
    assert all(kind == "score" and row >= learnt for kind, row in again)


def test_contents_of_replay_requests() -> None:
    events = [
        {"id": "a", "time": 10.0, "label": 1, "weight": 2.5, "x": [1.0]},
        {"id": "b", "time": 25.0, "label": 0, "x": [2.0]},
    ]
    first, label, second, last = schedule(iter(events), Delay(12.0), "f#1", 0, 9)
    assert [msgspec.json.decode(item.body()) for item in (first, second)] == [
        {"events": [{"id": "a", "time": 10.0, "x": [1.0]}]},
        {"events": [{"id": "b", "time": 25.0, "x": [2.0]}]},
    ]
    assert [msgspec.json.decode(item.body()) for item in (label, last)] == [
        {
            "source": {"name": "f#1", "offset": 0},
            "events": [{"id": "a", "label": 1, "time": 22.0, "weight": 2.5}],
        },
        {"source": {"name": "f#1", "offset": 1}, "events": [{"id": "b", "label": 0, "time": 37.0}]},
    ]


def test_labels_not_yet_known_are_withheld() -> None:
    assert steps(make_requests([0.0, 10.0, 20.0], Delay(100.0), now=111.0)) == [
        *(("score", row) for row in range(3)),
        *(("label", row) for row in range(2)),
    ]


def test_requests_are_limited_in_bytes() -> None:
    events = [{"id": str(i), "time": 0.0, "label": 0, "features": {"text": "x" * 1_500_000}} for i in range(7)]
    counts = [batch.count for batch in schedule(iter(events), Delay(1.0), "s", 0, 1000) if batch.kind == "unlabelled"]
    assert counts == [3, 3, 1]


def test_labels_arrive_in_rounds() -> None:
    assert Delay(100.0, 60.0).arrival_of(25.0) == 180.0
    assert Delay(95.0, 60.0).arrival_of(25.0) == 120.0
    assert late_source("a#1", Delay(604_800.0)) == "a#1+604800"
    assert late_source("a#1", Delay(604_800.0, 3600.0)) == "a#1+604800/3600"


# What is learnt


def test_a_replay_equals_sending_each_event_at_its_time(server: Process, replayed: str) -> None:
    """Compare with single events and labels at `/labels`, sent in the order of time."""
    create_steady(server, "by-hand")
    events = rows()
    url = f"{server.url}/v1/learners/by-hand/"
    alerts = 0
    with httpx.Client(base_url=url, trust_env=False, timeout=300) as http:
        for kind, row in naive([event["time"] for event in events], Delay(3600.0)):
            event = events[row]
            if kind == "score":
                features = {"a": event["a"], "country": event["country"]}
                body = {"id": event["id"], "time": event["time"], "features": features}
            else:
                body = {"id": event["id"], "label": event["label"], "time": event["time"] + 3600.0}
            path = "predict" if kind == "score" else "labels"
            reply = http.post(path, json={"events": [body]}).raise_for_status().json()
            alerts += kind == "score" and reply["results"][0]["label"] == 1
    expected, metrics = figures(server, "by-hand"), figures(server, replayed)
    assert metrics == expected
    assert metrics["since_start"]["confusion"]["tp"] + metrics["since_start"]["confusion"]["fp"] == alerts > 0
    assert metrics["window"]["label_delay_median"] == metrics["window"]["label_delay_p90"] == pytest.approx(3600.0)
    assert metrics["since_start"]["label_coverage"] == 1.0
    assert metrics["window"]["auc"] > 0.7


@pytest.mark.campaign
def test_the_request_size_changes_nothing(server: Process, file: Path, replayed: str) -> None:
    create_steady(server, "small")
    run(server, "replay", file, "--learner", "small", *LATE, "--batch", 1)
    assert get(server, "small/digest")["digest"] == get(server, f"{replayed}/digest")["digest"]


def test_the_table_shows_label_statistics(server: Process, file: Path) -> None:
    create(server, "table")
    result = run(server, "replay", file, "--learner", "table", *LATE, "--label-every", "1h")
    assert re.search(r"^600 .*\n.*\b0 to 600: 600\b.*\b0\b", result.stderr, re.MULTILINE)
    lines = {line.split("│")[1].strip(): line.split("│")[2:4] for line in result.stdout.splitlines() if "│" in line}
    assert [cell.strip() for cell in lines["label coverage"]] == ["100 %", "100 %"]
    median = float(lines["label delay, median"][0].split()[0])
    assert 1.3 < median < 1.7  # hours: half a round more than the delay
    for name in ("alerts", "AUC, 95 % interval", "average precision", "alert rate", "log loss", "calibration error"):
        assert name in lines


def test_ranks_may_arrive_late(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "grades.jsonl"
    path.write_text(
        "".join(
            json.dumps({"id": i, "time": START + 60 * i, "a": i % 3 + i % 2 / 5, "label": i % 3 + 1}) + "\n"
            for i in range(90)
        )
    )
    options = ["--features", "named", "--set", "features.bits=4", "--param", "ranks=3"]
    run(server, "create", "grades", "--algorithm", "npsvor", *options)
    result = run(server, "replay", path, "--learner", "grades", *FLAT, "--label-delay", "10m", "--json")
    document = json.loads(result.stdout)
    assert (document["applied"], document["scored"]) == (90, 90)
    assert document["metrics"]["window"]["label_delay_median"] == 600.0
    assert "label coverage" in run(server, "replay", path, "--learner", "grades", *FLAT, "--label-delay", "10m").stdout


# Going on


def test_a_limit_leaves_some_labels_for_later(server: Process, file: Path, replayed: str) -> None:
    create_steady(server, "limited")
    result = run(server, "replay", file, "--learner", "limited", *LATE, "--limit", 200)
    learnt = get(server, "limited")["events"]
    assert 0 < learnt < 200
    assert f"{200 - learnt} rows" in result.stderr
    result = run(server, "replay", file, "--learner", "limited", *LATE, "--json")
    document = json.loads(result.stdout)
    assert f"row {learnt}" in result.stderr
    assert (document["start"], document["next"], document["applied"]) == (learnt, ROWS, ROWS - learnt)
    assert ROWS - 200 <= document["scored"] <= ROWS - 200 + 5  # those between two labels may come again
    assert figures(server, "limited") == figures(server, replayed)
    result = run(server, "replay", file, "--learner", "limited", *LATE)
    assert f"row {ROWS}\n" in result.stderr
    assert figures(server, "limited") == figures(server, replayed)


def test_an_interrupted_and_killed_replay_resumes(start: Commands, server: Process, file: Path, replayed: str) -> None:
    create_steady(server, "killed")
    learnt = 0
    for number, status in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        command = ("replay", file, "--learner", "killed", "--url", server.url, *LATE, "--rate", "200", "--batch", "20")
        process = start(*command)
        eventually(lambda learnt=learnt: get(server, "killed")["events"] > learnt)  # type: ignore[misc]
        process.send_signal(number)
        process.communicate()
        assert process.returncode == status
        learnt = get(server, "killed")["events"]
    assert get(server, "killed")["events"] < ROWS
    run(server, "replay", file, "--learner", "killed", *LATE)
    assert figures(server, "killed") == figures(server, replayed)


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--time", "time", "--label-delay", "1h"], "--label-delay: .*--id"),
        (["--id", "id", "--label-delay", "1h"], "--label-delay: .*--time"),
        ([*LATE, "--wait"], "--wait: .*--label-delay"),
        ([*FLAT, "--label-delay", "0d"], "--label-delay: .*0"),
        ([*FLAT, "--label-delay", "soon"], "--label-delay.*'soon'"),
        ([*FLAT, "--label-every", "1h"], "--label-every: .*--label-delay"),
    ],
)
def test_conflicting_options_are_refused(server: Process, file: Path, options: list[str], message: str) -> None:
    text = run(server, "replay", file, "--learner", "none", *options, status=2).stderr
    assert re.search(message, " ".join(text.replace("│", " ").split()))


def test_a_delay_beyond_the_label_ttl_is_refused(server: Process, file: Path) -> None:
    create(server, "forgetful", "--label-ttl", "30m")
    text = run(server, "replay", file, "--learner", "forgetful", *LATE, status=2).stderr
    assert "30 min" in text
    assert "1 h" in text


@pytest.mark.parametrize("before", [["--label-delay", "2h", "--label-every", "1h"], []])
def test_a_file_replayed_with_other_options_is_refused(server: Process, file: Path, before: list[str]) -> None:
    name = f"otherwise{len(before)}"
    create(server, name)
    run(server, "replay", file, "--learner", name, *FLAT, *before)
    metrics = figures(server, name)
    text = run(server, "replay", file, "--learner", name, *LATE, status=2).stderr
    assert "600 rows" in text
    assert figures(server, name) == metrics


@pytest.mark.parametrize("member", ["id", "time"])
def test_a_row_without_id_or_time_is_refused(server: Process, tmp_path: Path, member: str) -> None:
    path = tmp_path / "rows.jsonl"
    first, second = rows()[:2]
    path.write_text(json.dumps(first) + "\n" + json.dumps({**second, member: None}) + "\n")
    create(server, f"without-{member}")
    text = run(server, "replay", path, "--learner", f"without-{member}", *LATE, status=2).stderr
    assert re.search(rf"line 2: .*\b{member};", text)


def test_future_labels_are_left_for_later(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "recent.jsonl"
    now = time.time()
    path.write_text(
        "".join(json.dumps({**row, "time": now - 3600 * 24 + i}) + "\n" for i, row in enumerate(rows()[:20]))
    )
    create(server, "recent")
    result = run(server, "replay", path, "--learner", "recent", *FLAT, "--label-delay", "7d")
    assert "20 rows" in result.stderr


def test_labels_that_arrive_too_late_are_reported(server: Process, tmp_path: Path) -> None:
    """The service remembers only one event, so the others expire before their labels arrive."""
    path = tmp_path / "crowd.jsonl"
    path.write_text("".join(json.dumps({**row, "time": START + i}) + "\n" for i, row in enumerate(rows()[:4])))
    config = {"algorithm": "fofo", "features": {"kind": "named"}, "late": {"max_events": 1}}
    httpx.put(f"{server.url}/v1/learners/crowd", json=config, timeout=300).raise_for_status()
    result = run(server, "replay", path, "--learner", "crowd", "--batch", "1", *LATE)
    assert "3 labels" in result.stderr


def test_events_that_were_not_stored_are_scored_again() -> None:
    """The service answers without its store, but cannot remember events for their labels."""
    remembered = [0, 0, 2]

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path.endswith("/predict")
        return httpx.Response(200, json={"remembered": remembered.pop(0), "stale_seconds": 0.1, "results": []})

    lines: list[str] = []
    transport = httpx.MockTransport(answer)

    def note(pause: RetryPause) -> None:
        lines.append(pause.error.detail)

    with Client("http://service", on_retry=note, sleep=lambda _: None, transport=transport) as client:
        client.learner("a").predict_json(b"{}", remember=2)
    assert len(lines) == 2
    remembered = [1]
    with (
        Client("http://service", patience=0, transport=transport) as client,
        pytest.raises(OutcomeUnknown, match="store"),
    ):
        client.learner("a").predict_json(b"{}", remember=2)
