"""Replays to a running service: every row exactly once, in order, even after kills."""

from __future__ import annotations

import io
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from rich.console import Console

from rarestream import Client, RequestRefused, RetryPause
from service.cli.replay_engine import ReplayPlan, prefetch, replay_file
from service.datasets.batches import batches, earlier_rows, source_name
from service.datasets.pacing import Interruption
from service.datasets.values import RowColumns
from tests.harness.process import Commands, Process
from tests.harness.waiting import eventually

ROWS = 3000
CONFIG = {"algorithm": "cbr-diag", "features": {"kind": "named", "bits": 10}, "params": {"buffer": "reservoir"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("server")
    with Process(f"sqlite:///{folder / 'store.db'}", folder / "log") as process:
        yield process


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write different rows with ids, one in seven positive."""
    path = tmp_path_factory.mktemp("data") / "rows.csv"
    lines = [f"r{i},{i * 37 % 101 / 10 + i % 7},{'abcde'[i * i % 5]},{int(i % 7 == 0)}\n" for i in range(ROWS)]
    path.write_text("id,amount,country,label\n" + "".join(lines))
    return path


@pytest.fixture(scope="module")
def uninterrupted_digest(server: Process, file: Path) -> str:
    """Return the digest after an uninterrupted replay."""
    create(server, "whole")
    replayed(server, file, "whole")
    return digest(server, "whole")


def get(server: Process, path: str) -> Any:
    reply = httpx.get(f"{server.url}/v1/learners/{path}", trust_env=False, timeout=300)
    return reply.raise_for_status().json()


def create(server: Process, name: str) -> None:
    with Client(server.url) as client:
        assert client.create_document(name, CONFIG)[1]


def figures(server: Process, name: str) -> dict[str, Any]:
    """Return a learner's metrics and some predictions, without its name, position and duplicates."""
    metrics = get(server, f"{name}/metrics")
    events = [{"features": {"amount": i / 3, "country": "abcdef"[i % 6]}} for i in range(50)]
    predict = f"{server.url}/v1/learners/{name}/predict"
    scores = (
        httpx.post(predict, json={"events": events}, trust_env=False, timeout=300).raise_for_status().json()["results"]
    )
    excluded = ("name", "position", "duplicates")
    return {"scores": scores, **{key: value for key, value in metrics.items() if key not in excluded}}


def digest(server: Process, name: str) -> str:
    return str(get(server, f"{name}/digest")["digest"])


def replay(start: Commands, server: Process, file: Path, name: str, *options: str) -> subprocess.Popen[str]:
    """Start a replay."""
    command = ("replay", file, "--learner", name, "--url", server.url, *options)
    return start(*command, stderr=subprocess.STDOUT)


def finish(process: subprocess.Popen[str], status: int = 0) -> str:
    """Wait for the end with this status; return the output."""
    text = process.communicate()[0]
    assert process.returncode == status, text
    return text


def replayed(server: Process, file: Path, name: str, *options: str, status: int = 0) -> str:
    """Run a replay; return its output."""
    with Commands() as start:
        return finish(replay(start, server, file, name, *options), status)


def some_are_learnt(server: Process, name: str, more_than: int = 0) -> int:
    """Wait until the learner has learnt events."""
    eventually(lambda: int(get(server, name)["events"]) > more_than)
    return int(get(server, name)["events"])


# What a replay is made of


def test_batches_contain_source_and_offset() -> None:
    events = ({"x": [i], "label": 0} for i in range(5))
    created = list(batches(events, "rows.csv#1", 10, 2, lambda: 0.5))
    assert [(batch.offset, batch.count, batch.fraction) for batch in created] == [
        (10, 2, 0.5),
        (12, 2, 0.5),
        (14, 1, 0.5),
    ]
    assert msgspec.json.decode(created[1].body) == {
        "source": {"name": "rows.csv#1", "offset": 12},
        "events": [{"x": [2], "label": 0}, {"x": [3], "label": 0}],
    }
    assert list(batches([], "s", 0, 2)) == []


def test_batches_are_limited_in_bytes() -> None:
    events = [{"features": {"text": "x" * 1_500_000}, "label": 0}] * 7
    assert [batch.count for batch in batches(events, "s", 0, 1000)] == [3, 3, 1]


def test_exactly_one_batch_is_prepared_ahead() -> None:
    calls: list[int] = []
    third = threading.Event()

    def items() -> Iterator[int]:
        for i in range(10):
            calls.append(i)
            if i == 2:
                third.set()
            yield i

    pipeline = prefetch(items())
    assert [next(pipeline), next(pipeline)] == [0, 1]
    assert third.wait(60)
    assert calls == [0, 1, 2]
    assert list(pipeline) == list(range(2, 10))


def test_an_error_in_prefetching_follows_the_earlier_batches() -> None:
    def items() -> Iterator[int]:
        yield 0
        raise RequestRefused("no more")

    pipeline = prefetch(items())
    assert next(pipeline) == 0
    with pytest.raises(RequestRefused, match="more"):
        next(pipeline)


def test_a_source_name_depends_on_the_file_and_row_options(file: Path, tmp_path: Path) -> None:
    name = source_name(file, RowColumns(drop=("a", "b")), "csv")
    assert name.startswith("rows.csv#")
    assert source_name(file, RowColumns(drop=("b", "a", "b")), "csv") == name
    copy = tmp_path / file.name
    copy.write_bytes(file.read_bytes())
    assert source_name(copy, RowColumns(drop=("a", "b")), "csv") == name
    others = {
        source_name(file, RowColumns(), "csv"),
        source_name(file, RowColumns(drop=("a", "b")), "tsv"),
        source_name(file, RowColumns(drop=("a", "b"), id="id"), "csv"),
        source_name(file, RowColumns(drop=("a", "b"), positive=("1",)), "csv"),
        source_name(file, RowColumns(drop=("a", "b"), ranks=("0", "1")), "csv"),
        source_name(file, RowColumns(drop=("a", "b"), ranks=("1", "0")), "csv"),
    }
    copy.write_bytes(file.read_bytes() + b"\n")
    others.add(source_name(copy, RowColumns(drop=("a", "b")), "csv"))
    copy.write_bytes(b"#" + file.read_bytes()[1:])
    others.add(source_name(copy, RowColumns(drop=("a", "b")), "csv"))
    assert len(others - {name}) == 8


def test_a_source_name_stays_stable_across_versions(tmp_path: Path) -> None:
    """Replays of an earlier version resume."""
    path = tmp_path / "a.csv"
    path.write_text("x,label\n1,0\n")
    assert source_name(path, RowColumns(positive=("1",), drop=("b",)), "csv") == "a.csv#8e2ba90d3ac37f71"


def test_a_source_name_leaves_space_for_its_hash(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 100 + ".csv")
    path.write_text("x,label\n1,0\n")
    name = source_name(path, RowColumns(), "csv")
    assert len(name.encode()) <= 200
    assert name.startswith("ä" * 75 + "#")


def test_earlier_replays_of_a_file_with_other_options_are_detected() -> None:
    learner = {"sources": {"a.csv#1": 5, "a.csv#2": 9, "b.csv#3": 100}}
    assert earlier_rows(learner, "a.csv#1") == 9
    assert earlier_rows(learner, "c.csv#1") == 0


# Against a service


def test_all_rows_are_learnt_in_order(server: Process, file: Path, uninterrupted_digest: str) -> None:
    document = get(server, "whole")
    assert document["events"] == ROWS
    assert document["class_counts"]["positive"] == (ROWS + 6) // 7
    assert list(document["sources"].values()) == [ROWS]
    create(server, "small-batches")
    replayed(server, file, "small-batches", "--batch", "17")
    assert digest(server, "small-batches") == uninterrupted_digest


def test_a_second_replay_has_nothing_left(server: Process, file: Path, uninterrupted_digest: str) -> None:
    text = replayed(server, file, "whole")
    assert f"row {ROWS:,}" in text
    assert "no rows" in text
    assert digest(server, "whole") == uninterrupted_digest


def test_ctrl_c_stops_after_the_batch_in_flight(
    start: Commands, server: Process, file: Path, uninterrupted_digest: str
) -> None:
    create(server, "interrupted")
    process = replay(start, server, file, "interrupted", "--rate", "100", "--batch", "10")
    some_are_learnt(server, "interrupted")
    process.send_signal(signal.SIGINT)
    text = finish(process, status=130)
    assert "stopped" in text
    learnt = get(server, "interrupted")["events"]
    assert 0 < learnt < ROWS
    assert f"rows 0 to {learnt:,}: {learnt:,} learnt" in text

    text = replayed(server, file, "interrupted")
    assert f"row {learnt:,}" in text
    assert f"{ROWS - learnt:,} learnt" in text
    assert digest(server, "interrupted") == uninterrupted_digest


def test_a_repeatedly_killed_replay_resumes(
    start: Commands, server: Process, file: Path, uninterrupted_digest: str
) -> None:
    create(server, "killed")
    learnt = 0
    for _ in range(3):
        process = replay(start, server, file, "killed", "--rate", "100", "--batch", "7")
        learnt = some_are_learnt(server, "killed", more_than=learnt)
        process.kill()
        finish(process, status=-signal.SIGKILL)
    replayed(server, file, "killed")
    assert digest(server, "killed") == uninterrupted_digest


@pytest.mark.usefixtures("uninterrupted_digest")
def test_the_service_may_be_killed_during_a_replay(
    start: Commands, server: Process, file: Path, tmp_path: Path
) -> None:
    expected = figures(server, "whole")
    with Process(f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "log") as other:
        create(other, "survivor")
        process = replay(start, other, file, "survivor", "--rate", "100", "--batch", "20", "--retry-seconds", "300")
        learnt = 0
        for _ in range(3):
            learnt = some_are_learnt(other, "survivor", more_than=learnt)
            other.kill()
            other.start()
            assert get(other, "survivor")["events"] >= learnt
        some_are_learnt(other, "survivor", more_than=learnt)
        process.send_signal(signal.SIGTERM)
        assert "trying again" in finish(process, status=143)
        replayed(other, file, "survivor")
        # no digest: a batch whose answer got lost was sent again, and the state counts such duplicates
        assert figures(other, "survivor") == expected


def test_an_invalid_row_stops_the_replay_after_the_previous_rows(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("x,label\n" + "1,0\n" * 250 + "1\n" + "1,0\n" * 250)
    create(server, "bad")
    text = replayed(server, path, "bad", "--batch", "100", status=6)
    assert "line 252:" in text
    assert get(server, "bad")["events"] == 200
    assert "0 to 200" in text


def test_ids_prevent_repeated_learning_from_a_repaired_file(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "ids.csv"
    rows = [f"k{i},1,{i % 2}\n" for i in range(300)]
    path.write_text("key,x,label\n" + "".join(rows[:250]) + "k250,1\n")
    create(server, "ids")
    text = replayed(server, path, "ids", "--id", "key", "--batch", "100", status=6)
    assert "rows 0 to 200 are learnt; " in text
    assert "id" in text
    path.write_text("key,x,label\n" + "".join(rows))
    text = replayed(server, path, "ids", "--id", "key", "--batch", "100")
    assert "rows 0 to 300: 100 learnt, 200 duplicates" in text


def test_the_first_row_may_be_invalid(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "first.csv"
    path.write_text("x,label\n1\n")
    create(server, "first")
    path.write_text("x,label\n1\n1,0\n")
    assert replayed(server, path, "first", status=2).endswith("none of the file's rows is learnt\n")


def test_an_unmatched_positive_label_is_refused_before_sending(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "spelling.csv"
    path.write_text("x,label\n" + "1,ok\n" * 2000 + "2,fraud\n")
    create(server, "spelling")
    text = replayed(server, path, "spelling", "--positive", "Fraud", "--batch", "100", status=2)
    assert "'fraud'" in text
    assert get(server, "spelling")["events"] == 0


def test_a_file_without_positives_is_refused_before_sending(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "negative.csv"
    rows = "x,label\n" + "1,ok\n2,suspect\n" * 5000
    path.write_text(rows)
    create(server, "negative")
    for options in ((), ("--limit", "150")):
        text = replayed(server, path, "negative", "--positive", "fraud", *options, status=2)
        assert "'suspect';" in text
    assert get(server, "negative")["events"] == 0
    path.write_text(f"{rows}3,fraud\n")  # the last one
    assert "warning" not in replayed(server, path, "negative", "--positive", "fraud", "--limit", "150")
    assert "warning" not in replayed(server, path, "negative", "--positive", "fraud")
    assert get(server, "negative")["class_counts"] == {"negative": 10_000, "positive": 1}


def test_an_earlier_replay_of_the_file_name_is_reported_before_sending(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x,label\n" + "1,0\n" * 20)
    document = {
        "name": "a",
        "config": {"features": {"kind": "named"}},
        "class_counts": {"negative": 3000, "positive": 0},
        "ready": False,
        "not_ready": "no labelled positive has been learnt yet",
        "sources": {"rows.csv#0123456789abcdef": 3000},
    }
    out = io.StringIO()
    lines: list[str] = []  # what had been printed when an update came

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            lines.append(out.getvalue())
            return httpx.Response(200, json={"applied": 10, "duplicate": 0, "position": 1})
        return httpx.Response(200, json={} if request.url.path.endswith("/metrics") else document)

    with Interruption() as interruption, Client("http://service", transport=httpx.MockTransport(answer)) as client:
        replay_file(
            ReplayPlan(path, "a", RowColumns(), batch=10), client, interruption, Console(file=out, soft_wrap=True)
        )
    assert len(lines) == 2
    assert lines[0].startswith("warning: the learner has learnt 3,000 rows of a file of this name, but with other ")


def test_a_source_gap_is_not_retried(server: Process) -> None:
    create(server, "gap")
    bodies = [next(batches([{"features": {"x": 1}, "label": 0}] * 5, "rows#1", at, 5)).body for at in (0, 6)]
    tries: list[RetryPause] = []
    with Client(server.url, on_retry=tries.append) as client:
        gap = client.learner("gap")
        assert gap.update_json(bodies[0], repeatable=True).applied == 5
        with pytest.raises(RequestRefused, match="'rows#1'") as caught:
            gap.update_json(bodies[1], repeatable=True)
    assert (caught.value.status, caught.value.code, tries) == (409, "source-gap", [])
    assert get(server, "gap")["sources"] == {"rows#1": 5}


def test_a_value_refused_by_the_service_is_located_by_its_row(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    path.write_text("x,label\n" + "1,0\n" * 250 + "1e300,0\n")
    create(server, "large")
    text = replayed(server, path, "large", "--batch", "100", status=6)
    assert "  row 250 /features/x: is 1e+300" in text
    assert "0 to 200" in text
