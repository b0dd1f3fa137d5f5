"""Replays to a running service: every row exactly once, in order, even after kills."""

from __future__ import annotations

import gzip
import io
import os
import re
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
from service.datasets.batches import batches, related_sources, source_name
from service.datasets.packed_text import File
from service.datasets.values import RowColumns
from service.pacing import Interruption
from tests.harness.process import Commands, Process
from tests.harness.waiting import eventually

pytestmark = pytest.mark.integration

ROWS = 3000
CONFIG = {"algorithm": "cbr-diag", "features": {"kind": "named", "bits": 10}, "params": {"buffer": "reservoir"}}


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
    assert msgspec.json.decode(created[1].body()) == {
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
    name = source_name(File.of(file), RowColumns(drop=("a", "b")), "csv")
    assert name.startswith("rows.csv#")
    assert source_name(File.of(file), RowColumns(drop=("b", "a", "b")), "csv") == name
    copy = tmp_path / file.name
    copy.write_bytes(file.read_bytes())
    assert source_name(File.of(copy), RowColumns(drop=("a", "b")), "csv") == name
    others = {
        source_name(File.of(file), RowColumns(), "csv"),
        source_name(File.of(file), RowColumns(drop=("a", "b")), "tsv"),
        source_name(File.of(file), RowColumns(drop=("a", "b"), id="id"), "csv"),
        source_name(File.of(file), RowColumns(drop=("a", "b"), positive=("1",)), "csv"),
        source_name(File.of(file), RowColumns(drop=("a", "b"), ranks=("0", "1")), "csv"),
        source_name(File.of(file), RowColumns(drop=("a", "b"), ranks=("1", "0")), "csv"),
    }
    copy.write_bytes(file.read_bytes() + b"\n")
    others.add(source_name(File.of(copy), RowColumns(drop=("a", "b")), "csv"))
    copy.write_bytes(b"#" + file.read_bytes()[1:])
    others.add(source_name(File.of(copy), RowColumns(drop=("a", "b")), "csv"))
    assert len(others - {name}) == 8


def test_a_source_name_stays_stable_across_versions(tmp_path: Path) -> None:
    """Replays of an earlier version resume."""
    path = tmp_path / "a.csv"
    path.write_text("x,label\n1,0\n")
    columns, earlier = RowColumns(positive=("1",), drop=("b",)), "a.csv#8e2ba90d3ac37f71"
    for source in (earlier, f"{earlier}+604800"):
        assert source_name(File.of(path), columns, "csv", [source]) == earlier
    assert source_name(File.of(path), columns, "csv", ["a.csv#8e2ba90d3ac37f72"]) == f"{earlier}.911c6213"


def test_a_source_name_leaves_space_for_its_hash(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 100 + ".csv")
    path.write_text("x,label\n1,0\n")
    name = source_name(File.of(path), RowColumns(), "csv")
    assert len(name.encode()) <= 200
    assert name.startswith("ä" * 75 + "#")


def test_sources_of_a_file_with_other_options_content_or_name_are_related() -> None:
    sources = ["a.csv#1", "a.csv#2.7", "b.csv#3.7", "topic"]
    assert related_sources("a.csv#1", sources) == ["a.csv#2.7", "b.csv#3.7"]
    assert related_sources("c.csv#3", sources) == ["a.csv#1", "a.csv#2.7", "b.csv#3.7"]
    assert related_sources("b.csv#+again2", ["b.csv#3.7+60", "c.csv#+again"]) == ["b.csv#3.7+60"]
    assert related_sources("c.csv#4.8", sources) == []
    assert related_sources("c.csv#4.8", ["a.csv#1", "c.csv#+again"], [("c.csv#+again", "a.csv#1")])[0] == "a.csv#1"


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
    assert f"row {ROWS:,}\n" in text
    assert f"to {ROWS:,}" not in text  # none was sent
    assert digest(server, "whole") == uninterrupted_digest


def test_a_replay_in_pieces_of_any_size_leads_to_the_same_state(
    server: Process, file: Path, uninterrupted_digest: str
) -> None:
    create(server, "pieces")
    with Interruption() as interruption, Client(server.url) as client:
        for limit, batch in ((1, 1), (702, 13), (1900, 1000), (None, 257)):
            plan = ReplayPlan(File.of(file), "pieces", RowColumns(), limit=limit, batch=batch)
            outcome = replay_file(plan, client, interruption, Console(file=io.StringIO()))
            assert outcome.rows.next == (limit or ROWS)
    assert digest(server, "pieces") == uninterrupted_digest


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
    assert re.search(rf"\b0 to {learnt:,}: {learnt:,}\b", text)

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
@pytest.mark.campaign
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
        assert "(--retry-seconds)" in finish(process, status=143)
        replayed(other, file, "survivor")
        # no digest: a batch whose answer got lost was sent again, and the state counts such duplicates
        assert figures(other, "survivor") == expected


def test_an_invalid_row_stops_the_replay_after_the_previous_rows(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("x,label\n" + "1,0\n" * 250 + "1,\n" + "1,0\n" * 250)
    create(server, "bad")
    text = replayed(server, path, "bad", "--batch", "100", status=6)
    assert "line 252:" in text
    assert get(server, "bad")["events"] == 200
    assert "0 to 200" in text


def test_bad_rows_are_left_out_when_a_replay_goes_on(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "ragged.csv"
    path.write_text("x,label\n" + "1,0\n" * 10_050 + "1\n" + "1,1\n" * 250)
    create(server, "ragged")
    assert "--on-bad" in replayed(server, path, "ragged", status=6)
    assert get(server, "ragged")["events"] == 10_000
    text = replayed(server, path, "ragged", "--on-bad", "skip")
    assert "row 10,000\n" in text
    assert "1 bad row" in text
    assert get(server, "ragged")["class_counts"] == {"negative": 10_050, "positive": 250}
    replayed(server, path, "ragged", "--on-bad", str(tmp_path / "bad.jsonl"))
    assert get(server, "ragged")["events"] == 10_300
    assert "10,052" in text
    assert '"line":10052' in (tmp_path / "bad.jsonl").read_text()


def test_a_ragged_row_among_the_first_is_refused_before_sending(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "early.csv"
    path.write_text("x,label\n" + "1,0\n" * 250 + "1\n")
    create(server, "early")
    text = replayed(server, path, "early", "--batch", "100", status=2)
    assert "line 252:" in text
    assert "--on-bad skip" in text
    assert get(server, "early")["events"] == 0


@pytest.mark.parametrize("unlabelled", ["skip", "score"])
def test_rows_without_a_label_are_never_learnt(server: Process, tmp_path: Path, unlabelled: str) -> None:
    path = tmp_path / "unlabelled.csv"
    labels = ["ok", "fraud", "NULL", "ok"] * 500
    path.write_text("key,x,label\n" + "".join(f"k{i},1,{label}\n" for i, label in enumerate(labels)))
    name = f"unlabelled-{unlabelled}"
    create(server, name)
    options = ("--positive", "fraud", "--id", "key", "--batch", "300")
    assert "line 4" in replayed(server, path, name, *options, status=2)
    for limit in ("700", "1500"):  # resumes
        text = replayed(server, path, name, *options, "--unlabelled", unlabelled, "--limit", limit)
    assert "row 700\n" in text
    learner = get(server, name)
    assert learner["class_counts"] == {"negative": 1000, "positive": 500}
    assert "500 rows" in text
    served = get(server, f"{name}/metrics")["served"]["events"]
    assert served == (500 if unlabelled == "score" else 0)


def test_a_pipe_is_replayed_and_resumes(server: Process, tmp_path: Path) -> None:
    rows = gzip.compress(b"x,label\n" + b"".join(b"%d,%d\n" % (i, i % 2) for i in range(3000)))
    create(server, "pipe")
    os.mkfifo(tmp_path / "rows")
    for limit, start in ((1000, 0), (None, 1000)):
        writer = threading.Thread(target=(tmp_path / "rows").write_bytes, args=(rows,))
        writer.start()
        options = [] if limit is None else ["--limit", str(limit)]
        text = replayed(server, tmp_path / "rows", "pipe", "--batch", "500", *options)
        writer.join()
        assert re.search(rf"\b{start:,} to {limit or 3000:,}\b", text)
    assert get(server, "pipe")["events"] == 3000


def test_ctrl_c_ends_the_wait_for_a_silent_pipe(server: Process, tmp_path: Path, start: Commands) -> None:
    os.mkfifo(tmp_path / "silent")
    process = replay(start, server, tmp_path / "silent", "nobody")
    with (tmp_path / "silent").open("wb"):  # the other end is opened
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in finish(process, 130)


def test_ids_prevent_repeated_learning_from_a_repaired_file(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "ids.csv"
    rows = [f"k{i},1,{i % 2}\n" for i in range(300)]
    path.write_text("key,x,label\n" + "".join(rows[:250]) + "k250,1,\n")
    create(server, "ids")
    text = replayed(server, path, "ids", "--id", "key", "--batch", "100", status=6)
    assert re.search(r"\b0 to 200\b", text)
    assert "id" in text
    path.write_text("key,x,label\n" + "".join(rows))
    text = replayed(server, path, "ids", "--id", "key", "--batch", "100")
    assert re.search(r"\b0 to 300: 100\b.*\b200\b", text)


def test_a_changed_file_is_refused_unless_it_is_to_be_learnt_again(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "changed.csv"
    path.write_text("key,x,label\n" + "k,1,0\n" * 20)
    create(server, "changed")
    replayed(server, path, "changed", "--drop", "key")
    path.write_text("key,x,label\n" + "k,1,0\n" * 30)
    assert "--again" in replayed(server, path, "changed", "--drop", "key", status=2)
    assert get(server, "changed")["events"] == 20
    assert "10 learnt" in replayed(server, path, "changed", "--drop", "key", "--again")
    assert get(server, "changed")["events"] == 30
    assert "no rows left" in replayed(server, path, "changed", "--drop", "key", "--again")
    path.write_text("key,x,label\n" + "".join(f"k{i},1,0\n" for i in range(5)))
    replayed(server, path, "changed", "--id", "key", status=2)  # the others were learnt without ids
    replayed(server, path, "changed", "--id", "key", "--all")
    assert get(server, "changed")["events"] == 35


@pytest.mark.parametrize("change", ["name", "compression", "options", "end"])
def test_a_file_under_another_name_is_refused_unless_it_is_to_be_learnt_again(
    server: Process, tmp_path: Path, change: str
) -> None:
    path, copy = tmp_path / "first.csv", tmp_path / "second.csv"
    text = "x,y,label\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(3000))
    path.write_text(text)
    copy.write_text(text + "1,2,0\n" * (change == "end"))
    if change == "compression":
        copy = tmp_path / "second.csv.gz"
        copy.write_bytes(gzip.compress(text.encode()))
    options = ("--drop", "y") if change == "options" else ()
    name = f"twice-{change}"
    create(server, name)
    replayed(server, path, name)
    refused = replayed(server, copy, name, *options, status=2)
    assert "first.csv" in refused
    assert "--again" in refused
    assert get(server, name)["events"] == 3000
    again = replayed(server, copy, name, "--again", *options, status=2 if options else 0)
    assert ("other columns or options" in again) == bool(options)
    assert get(server, name)["events"] == 3000 + (change == "end")
    replayed(server, copy, name, "--all", *options)
    assert get(server, name)["events"] == 6000 + 2 * (change == "end")


def test_killed_replays_with_again_learn_each_row_of_a_repaired_file_once(
    start: Commands, server: Process, tmp_path: Path
) -> None:
    """The processes are killed between what the journal has and what the service has learnt."""
    path = tmp_path / "repaired.csv"
    rows = [f"{i},{i % 7},{i % 2}\n" for i in range(2000)]
    path.write_text("n,x,label\n" + "".join(rows[:1000]) + "1000,6,\n" + "".join(rows[1001:]))
    create(server, "again")
    replayed(server, path, "again", "--batch", "10", "--limit", "400")
    learnt = 400
    for changed in (rows, rows, ["-1,0,0\n", *rows]):
        path.write_text("n,x,label\n" + "".join(changed))
        process = replay(start, server, path, "again", "--again", "--rate", "100", "--batch", "7")
        learnt = some_are_learnt(server, "again", more_than=learnt)
        process.kill()
        finish(process, status=-signal.SIGKILL)
    url = server.url.replace("127.0.0.1", "LOCALHOST") + "/"
    replayed(server, path, "again", "--again", "--url", url)
    assert get(server, "again")["events"] == 2001
    assert "no rows left" in replayed(server, path, "again", "--again")


def test_a_repaired_file_goes_on_behind_the_learnt_rows(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "repaired.csv"
    rows = [f"{i},{i % 2}\n" for i in range(10_300)]
    path.write_text("x,label\n" + "".join(rows[:10_100]) + "oops\n" + "".join(rows[10_101:]))
    create(server, "repaired")
    text = replayed(server, path, "repaired", "--batch", "1000", status=6)
    assert "--again" in text
    path.write_text("x,label\n" + "".join(rows))
    assert "--from 10000" in replayed(server, path, "repaired", status=2)
    assert "row 10,000\n" in replayed(server, path, "repaired", "--from", "10000", "--limit", "10200")
    replayed(server, path, "repaired", "--from", "10000")  # it resumes
    create(server, "complete")
    replayed(server, path, "complete")
    assert digest(server, "repaired") != digest(server, "complete")  # the sources differ
    assert figures(server, "repaired") == figures(server, "complete")


def test_the_first_row_may_be_invalid(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "first.csv"
    path.write_text("x,label\n1\n")
    create(server, "first")
    path.write_text("x,label\n1\n1,0\n")
    assert re.search(r"line 2: .*\b1 cell\b", replayed(server, path, "first", status=2))
    assert get(server, "first")["events"] == 0


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
    options = ("--positive", "fraud", "--negative", "*")
    assert "warning" not in replayed(server, path, "negative", *options, "--limit", "150")
    assert "warning" not in replayed(server, path, "negative", *options)
    assert get(server, "negative")["class_counts"] == {"negative": 10_000, "positive": 1}


def test_a_file_whose_rows_are_all_bad_is_reported_by_their_reason(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "days.csv"
    path.write_text("day,x,label\n" + "4/10/2019,1,ok\n4/11/2019,2,fraud\n" * 5)
    create(server, "days")
    text = replayed(server, path, "days", "--positive", "fraud", "--time", "day", status=2)
    assert "days.csv, line 2: '4/10/2019'" in text


def test_an_earlier_replay_of_the_file_name_is_reported_before_sending(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x,label\n" + "1,0\n" * 20)
    document = {
        "name": "a",
        "birth": "0123456789abcdef",
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
        if request.url.path.endswith("/fields"):
            return httpx.Response(200, json={"fields": [], "absent": [], "omitted": False, "reason": None})
        return httpx.Response(200, json={} if request.url.path.endswith("/metrics") else document)

    with Interruption() as interruption, Client("http://service", transport=httpx.MockTransport(answer)) as client:
        replay_file(
            ReplayPlan(File.of(path), "a", RowColumns(), batch=10, first=0),
            client,
            interruption,
            Console(file=out, soft_wrap=True),
        )
    assert len(lines) == 2
    assert re.match(r"warning: .*\b3,000 rows\b", lines[0])


def test_a_source_gap_is_not_retried(server: Process) -> None:
    create(server, "gap")
    bodies = [next(batches([{"features": {"x": 1}, "label": 0}] * 5, "rows#1", at, 5)).body() for at in (0, 6)]
    tries: list[RetryPause] = []
    with Client(server.url, on_retry=tries.append) as client:
        gap = client.learner("gap")
        assert gap.update_json(bodies[0], repeatable=True).applied == 5
        with pytest.raises(RequestRefused, match="'rows#1'") as caught:
            gap.update_json(bodies[1], repeatable=True)
    assert (caught.value.status, caught.value.code, tries) == (409, "source-gap", [])
    assert get(server, "gap")["sources"] == {"rows#1": 5}


def test_a_value_refused_by_the_service_is_located_by_its_row(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    path.write_text('{"x": 1, "label": 0}\n' * 250 + '{"x": 1e300, "label": 0}\n')
    create(server, "large")
    text = replayed(server, path, "large", "--batch", "100", status=6)
    assert re.search(r"^  .*large.jsonl, line 251: /features/x: .*\b1e\+300\b", text, re.MULTILINE)
    assert "0 to 200" in text
