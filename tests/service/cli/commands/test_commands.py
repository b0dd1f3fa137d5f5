"""Commands that call a service: their output, on a terminal and elsewhere, and their exit statuses."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, get_type_hints

import httpx
import pytest
import typer
from typer.testing import CliRunner, Result

from learners.decisions.threshold import Threshold
from rarestream import Client
from service.cli.commands.bench import measure_requests
from service.cli.format import format_bytes
from service.cli.main import app
from service.cli.options import objective_names
from service.exits import ExitStatus
from service.server.listen import listen
from service.settings import Settings
from service.text import figure
from tests.harness.apps import DENSE, events
from tests.harness.process import Process
from tests.harness.redis_server import RedisServer
from tests.harness.terminal import in_terminal
from tests.harness.threads import in_thread
from tests.harness.waiting import eventually
from tests.service.cli.conftest import run

pytestmark = pytest.mark.integration

NAMED: dict[str, Any] = {"algorithm": "cbr-diag", "features": {"kind": "named", "bits": 12, "log": ["amount"]}}


@pytest.fixture(scope="module")
def server(server: Process) -> Process:
    put(server, "fraud", DENSE)
    with api(server) as http:
        http.post("/fraud/update", json={"events": events(600)}).raise_for_status()
    return server


def api(server: Process) -> httpx.Client:
    return httpx.Client(base_url=f"{server.url}/v1/learners", trust_env=False, timeout=300)


def put(server: Process, name: str, config: dict[str, Any] = DENSE) -> None:
    with api(server) as http:
        http.put(f"/{name}", json=config).raise_for_status()


def digest(server: Process, name: str) -> str:
    with api(server) as http:
        content: str = http.get(f"/{name}/digest").raise_for_status().json()["digest"]
        return content


def document(result: Result) -> Any:
    assert result.stdout.count("\n") == 1  # one document, in one line
    return json.loads(result.stdout)


# list and show


def test_list_sorts_and_filters(server: Process) -> None:
    for name, count in [("list-a", 10), ("list-b", 30), ("list-c", 20)]:
        put(server, name)
        with api(server) as http:
            http.post(f"/{name}/update", json={"events": events(count)}).raise_for_status()
    names = [line.split()[0] for line in run(server, "list", "list-").stdout.splitlines()]
    assert names == ["learner", "list-a", "list-b", "list-c"]
    content = document(run(server, "list", "list-", "--sort", "events", "--json"))
    assert [learner["name"] for learner in content["learners"]] == ["list-b", "list-c", "list-a"]
    assert content["learners"][0]["window"]["events"] == 30
    content = document(run(server, "list", "list-", "--reverse", "--sizes", "--json"))
    assert [learner["name"] for learner in content["learners"]] == ["list-c", "list-b", "list-a"]
    assert content["learners"][0]["state_bytes"] > 0
    assert document(run(server, "list", "list-", "--sort", "size", "--json"))["learners"][0]["state_bytes"] > 0
    assert "remembered" in run(server, "list", "--sizes").stdout.splitlines()[0].split()
    assert run(server, "list", "x").stdout.endswith(" x\n")
    nothing = {"learners": [], "asleep": [], "creating": [], "unavailable": {}}
    assert document(run(server, "list", "x", "--json")) == nothing


def test_list_shows_evicted_learners(tmp_path: Path) -> None:
    with Process(f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "log", max_resident=1) as process:
        assert "rarestream create" in run(process, "list").stdout
        for name in "abc":
            put(process, name)
        process.stop()
        process.start()
        lines = run(process, "list").stdout.splitlines()
        assert sum(line.split()[1:] == ["asleep"] for line in lines) == 2
        run(process, "show", lines[-1].split()[0])


def test_show_lists_the_models_of_auto(server: Process) -> None:
    put(server, "several", {"features": DENSE["features"], "params": {"budget": "fast"}})
    with api(server) as http:
        http.post("/several/update", json={"events": events(300)}).raise_for_status()
        members = http.get("/several").json()["members"]
    lines = [re.split(r"\s{2,}", line.strip()) for line in run(server, "show", "several").stdout.splitlines()]
    heading = lines.index(["model", "kind", "weight", "AUC", "AP", "events"])
    for line, member in zip(lines[heading + 1 :], members, strict=False):
        weight = "-" if member["weight"] is None else f"{member['weight']:+.2f}"
        metrics = [figure(member["auc"]), figure(member["average_precision"])]
        assert line == [member["name"], member["kind"], weight, *metrics, "300"]
    assert members[-1]["name"] == "auto"


def test_custom_members_are_created_and_shown(server: Process) -> None:
    members = ["fofo", {"algorithm": "cbr", "params": {"capacity": 5}, "name": "mine"}]
    run(server, "create", "custom", "--features", "dense", "--dim", 3, "--param", f"members={json.dumps(members)}")
    with api(server) as http:
        http.post("/custom/update", json={"events": events(300)}).raise_for_status()
    text = run(server, "show", "custom").stdout
    assert "members=fofo,mine" in text
    assert re.search(r"^\s*mine\s{2,}custom cbr\s", text, re.MULTILINE)
    written = json.loads(run(server, "show", "custom", "--config").stdout)
    assert written["params"]["members"][1]["params"]["capacity"] == 5
    members = 'members=["fofo", {"algorithm": "svc"}]'
    settings = ("--features", "dense", "--dim", 3, "--param", members)
    refused = run(server, "create", "no", *settings, status=ExitStatus.REFUSED)
    assert "--param members/1/algorithm" in refused.stderr


def test_show_prints_every_section(server: Process) -> None:
    text = run(server, "show", "fraud", "--weights", 2).stdout
    for message in (
        "loam-ada",
        "dense dim=3",
        "f1-window",
        "600 ",
        "480 negative, 120 positive",
        "95 %",
    ):
        assert message in text
    assert re.search(r"\(2 of 3\).*\nx\[\d\]", text)
    content = document(run(server, "show", "fraud", "--weights", 2, "--json"))
    assert content["learner"]["events"] == content["metrics"]["events"] == 600
    assert (len(content["weights"]["weights"]), content["weights"]["total"]) == (2, 3)
    assert "alarms" in content


def test_weights_are_named_after_events_arrive(server: Process) -> None:
    put(server, "hashed", {"algorithm": "fofo", "features": {"kind": "named"}})
    event = json.dumps({"features": {"amount": 3.0, "country": "XX"}, "label": 1})
    run(server, "update", "hashed", event)
    text = run(server, "show", "hashed", "--weights", 5).stdout
    assert len(re.findall(r"^column \d+ ", text, re.MULTILINE)) == 2
    assert "2 without" in text
    run(server, "update", "hashed", event)
    text = run(server, "show", "hashed", "--weights", 5).stdout
    assert re.search(r"^country=XX ", text, re.MULTILINE)
    assert re.search(r"^amount ", text, re.MULTILINE)
    assert "without" not in text


def test_fields_and_what_contradicts_them_are_shown(server: Process) -> None:
    put(server, "mixed-up", {"algorithm": "fofo", "features": {"kind": "named", "categorical": ["shop"]}})
    run(server, "update", "mixed-up", json.dumps({"features": {"amount": 3.0, "shop": 7}, "label": 1}))
    assert "contradict" not in run(server, "show", "mixed-up").stdout
    run(server, "update", "mixed-up", json.dumps({"features": {"amount": "x"}, "label": 0}))
    text = run(server, "show", "mixed-up", "--fields").stdout
    assert "amount (1)" in text
    assert re.search(r"^shop +category \(declared\) +1 +1 +0 +1 ", text, re.MULTILINE)
    assert re.search(r"^amount +number +2 +0 +1 +0 +3 ", text, re.MULTILINE)
    content = document(run(server, "show", "mixed-up", "--fields", "--json"))
    assert [field["name"] for field in content["fields"]["fields"]] == ["shop", "amount"]


def test_the_printed_configuration_creates_a_learner(server: Process, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(run(server, "show", "fraud", "--config").stdout)
    content = document(run(server, "create", "again", "--config", tmp_path / "config.json", "--json"))
    assert content["created"] is True
    assert content["config"] == document(run(server, "show", "fraud", "--config", "--json"))
    assert (tmp_path / "config.json").read_text().startswith('{\n  "algorithm": ')  # for people, too


def test_show_an_ordinal_learner_and_one_with_an_embedding(server: Process) -> None:
    put(server, "grades", {**DENSE, "algorithm": "npsvor", "params": {"ranks": 3}})
    text = run(server, "show", "grades", "--weights", 5).stdout
    assert "0 of rank 1, 0 of rank 2" in text
    assert "weights" in text
    assert "grades" in run(server, "list").stdout
    assert "MAE" in run(server, "watch", "grades", "--once").stdout


# Errors


@pytest.mark.parametrize("command", [["show"], ["watch"], ["export", "-"], ["update", "[]"]], ids=" ".join)
def test_a_misspelled_learner_name_gets_a_suggestion(server: Process, command: list[str]) -> None:
    put(server, "misspelt", NAMED)
    for name in ("mispelt", "MISSPELT"):
        error = run(server, command[0], name, *command[1:], status=4).stderr
        first, second = error.splitlines()
        assert name in first
        assert "misspelt" in second


@pytest.mark.parametrize(
    "command",
    [
        ["show", "nobody"],
        ["watch", "nobody"],
        ["update", "nobody", "[]"],
        ["predict", "nobody", "[]"],
        ["labels", "nobody", "a=1"],
        ["snapshot", "nobody"],
        ["snapshots", "nobody"],
        ["restore", "nobody", "1", "--yes"],
        ["clone", "nobody", "b"],
        ["export", "nobody", "-"],
        ["delete", "nobody", "--yes"],
    ],
)
def test_a_missing_learner_and_a_missing_service(server: Process, command: list[str]) -> None:
    error = run(server, *command, status=4).stderr
    assert "nobody" in error
    listener = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    retries = ["--retry-seconds", "0"] if command[0] in ("update", "predict", "labels") else []
    error = run(url, *command, *retries, status=3).stderr
    assert url in error


def test_taken_and_invalid_names_are_refused(server: Process) -> None:
    run(server, "clone", "fraud", "fraud", status=5)
    assert re.search("^  TO: .*'no good'", run(server, "clone", "fraud", "no good", status=5).stderr, re.MULTILINE)
    assert "999" in run(server, "restore", "fraud", 999, "--yes", status=4).stderr
    run(server, "restore", "fraud", 0, "--yes", status=2)
    run(server, "show", status=2)


class _ForeignServer(http.server.BaseHTTPRequestHandler):
    """Answers every request with a status, and records the requests."""

    status = 401
    seen: list[Any] = []  # noqa: RUF012 (one server at a time)

    def do_GET(self) -> None:
        self.seen.append(self.headers)
        body = b'{"detail": "the key is not right", "code": "unauthorized"}' if self.status == 401 else b"hello"
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def foreign_url() -> Iterator[str]:
    _ForeignServer.seen.clear()
    with http.server.HTTPServer(("127.0.0.1", 0), _ForeignServer) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()
        thread.join()


def test_the_key_is_sent_and_never_printed(foreign_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _ForeignServer.status = 401
    result = run(foreign_url, "list", "--key", "s3cret", status=5)
    assert "--key" in result.stderr
    monkeypatch.setenv("RARESTREAM_KEY", "s3cret")
    more = run(foreign_url, "show", "a", status=5)
    output = run(foreign_url, "show", "--help")
    assert [item["authorization"] for item in _ForeignServer.seen] == ["Bearer s3cret"] * 2
    monkeypatch.setenv("RARESTREAM_KEY", "s3\ncret")
    wrong = run(foreign_url, "list", status=2)
    assert "--key" in wrong.stderr
    assert "cret" not in "".join(item.output for item in (result, more, output, wrong)).replace("secret", "")


def test_another_server_is_recognised(foreign_url: str) -> None:
    _ForeignServer.status = 404
    assert foreign_url in run(foreign_url, "list", status=3).stderr
    _ForeignServer.status = 200
    assert foreign_url in run(foreign_url, "list", status=3).stderr


# Events


def test_events_are_learnt_scored_and_labelled(server: Process, tmp_path: Path) -> None:
    put(server, "events", NAMED)
    event = '{"id": "tx-%d", "features": {"amount": %d, "country": "DE"}, "label": %d}'
    text = run(server, "update", "events", event % (1, 5, 0), event % (2, 900, 1)).stdout
    assert re.search(r"tx-1 +applied .*\ntx-2 +applied .*\n2 events: 2 learnt\n$", text)
    lines = "".join(event % (k, 5, 0) + "\n" for k in range(2, 32))
    content = document(run(server, "update", "events", "--json", "--batch", 7, stdin=lines))
    assert (content["events"], content["applied"], content["duplicate"], content["relabelled"]) == (30, 29, 0, 1)
    path = tmp_path / "new.csv"
    path.write_text("tx,amount,country\nn-1,700,XX\nn-2,1,DE\n")
    lines = run(server, "predict", "events", path, "--id", "tx").stdout.splitlines()
    assert lines[0].split() == ["event", "score", "probability", "threshold", "decision"]
    assert [line.split()[0] for line in lines[1:]] == ["n-1", "n-2"]
    answer = [
        json.loads(line) for line in run(server, "predict", "events", path, "--id", "tx", "--json").stdout.splitlines()
    ]
    assert [item["id"] for item in answer] == ["n-1", "n-2"]
    rows = run(server, "predict", "events", path, "--id", "tx", "--csv").stdout.splitlines()
    assert rows[0] == "id,score,probability,threshold,label"
    assert rows[1].startswith(f"n-1,{answer[0]['score']},")
    why = run(server, "predict", "events", path, "--id", "tx", "--explain", 2).stdout
    assert re.search(r"n-1 .* (amount|country=XX) [+-]", why)
    output_lines = run(
        server, "predict", "events", path, "--csv", "--at-least", content["position"]
    ).stdout.splitlines()
    assert len(output_lines) == 3
    beyond = run(server, "predict", "events", path, "--at-least", content["position"] + 1000, status=5)
    assert str(content["position"] + 1000) in beyond.stderr
    (tmp_path / "labels.csv").write_text("n-1,1\nn-2,0\nn-3,0\n")
    text = run(server, "labels", "events", tmp_path / "labels.csv").stdout
    assert text.endswith("3 labels: 2 learnt, 1 unknown\n")
    assert run(server, "labels", "events", "n-1=1").stdout.endswith("1 label: 1 duplicate\n")


@pytest.mark.parametrize("command", ["update", "predict", "labels"])
def test_an_empty_list_of_events_sends_nothing(server: Process, command: str) -> None:
    output = run(server, command, "fraud", "[]")
    assert output.stdout == ""
    assert output.stderr.count("\n") == 1


def test_events_scored_but_not_stored_are_reported(server: Process, tmp_path: Path) -> None:
    put(server, "forgetful", NAMED)
    run(server, "update", "forgetful", '{"time": 1767225600, "features": {"amount": 5}, "label": 0}')
    old = '{"id": "o", "time": 1600000000, "features": {"amount": 5}}'
    new = '{"id": "n", "time": 1767225601, "features": {"amount": 5}}'
    assert run(server, "predict", "forgetful", new, new, '{"features": {"amount": 5}}').stderr == ""
    assert run(server, "predict", "forgetful", old, new).stderr.startswith("warning: 1 event ")
    with RedisServer() as redis, Process(redis.url, tmp_path / "log") as process:
        put(process, "a", NAMED)
        redis.kill()
        output = run(process, "predict", "a", "--json", new)
        assert json.loads(output.stdout)["id"] == "n"
        assert output.stderr.startswith("warning: 1 event ")
        error = run(process, "update", "a", '{"features": {"amount": 5}, "label": 0}', "--retry-seconds", 0, status=1)
        assert error.stderr.startswith("error: ")


def test_many_scores_are_printed_in_order(server: Process) -> None:
    rows = [{"x": [k / 100, 0, 0]} for k in range(250)]
    text = run(server, "predict", "fraud", "--json", "--batch", 20, stdin=json.dumps(rows)).stdout
    scores = [json.loads(line)["score"] for line in text.splitlines()]
    assert len(scores) == 250
    assert len(set(scores)) == 250
    assert sorted(scores) in (scores, scores[::-1])
    lines = run(server, "predict", "fraud", "--batch", 20, stdin=json.dumps(rows)).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [str(k) for k in range(250)]  # those without ids have a number


def test_ranks_are_scored_and_learnt(server: Process) -> None:
    put(server, "ranks", {**DENSE, "algorithm": "npsvor", "params": {"ranks": 3}})
    rows = [{"x": [k, 0, 0], "label": k % 3 + 1} for k in range(6)]
    assert "rank" in run(server, "update", "ranks", json.dumps(rows)).stdout.splitlines()[0]
    assert run(server, "predict", "ranks", json.dumps(rows), "--csv").stdout.startswith("id,score,rank\n")
    assert "rank" in run(server, "predict", "ranks", json.dumps(rows)).stdout.splitlines()[0]


def test_refused_events_are_named_by_their_number(server: Process) -> None:
    good, bad = {"x": [1, 2, 3], "label": 1}, {"x": [1, 2], "label": 1}
    put(server, "refusing")
    error = run(server, "update", "refusing", json.dumps([good] * 3 + [bad]), status=5).stderr
    assert "event 3: /x:" in error
    before = digest(server, "refusing")
    error = run(server, "update", "refusing", json.dumps([good] * 3 + [bad]), "--batch", 2, status=6).stderr
    assert "event 3: /x:" in error
    assert "2 events" in error.splitlines()[-1]
    assert digest(server, "refusing") != before
    lines = json.dumps(good) + "\nnonsense\n"
    error = run(server, "update", "refusing", "--batch", 1, status=6, stdin=lines).stderr
    assert "line 2:" in error
    assert run(server, "update", "refusing", "nowhere.csv", status=2).stderr.startswith("error: nowhere.csv: ")
    assert "--csv" in run(server, "predict", "fraud", "[]", "--csv", "--json", status=2).stderr


# States


def test_a_snapshot_is_taken_and_restored(server: Process) -> None:
    put(server, "states")
    assert run(server, "snapshots", "states").stdout.count("\n") == 1
    assert document(run(server, "snapshots", "states", "--json")) == {"snapshots": []}
    with api(server) as http:
        http.post("/states/update", json={"events": events(10)}).raise_for_status()
    before = digest(server, "states")
    position = document(run(server, "snapshot", "states", "--json"))["position"]
    with api(server) as http:
        http.post("/states/update", json={"events": events(10, 10)}).raise_for_status()
    assert digest(server, "states") != before
    assert run(server, "snapshots", "states").stdout.splitlines()[1].split()[0] == str(position)
    assert str(position) in run(server, "restore", "states", position, "--yes").stdout
    assert digest(server, "states") == before
    assert "states" in run(server, "snapshot", "states").stdout
    run(server, "clone", "states", "states-2")
    assert digest(server, "states-2") == before


@pytest.mark.parametrize("file", ["a.rarestream", "-"])
def test_an_export_of_a_learner_whose_log_is_damaged_is_reported(file: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with in_thread(Settings(store="memory:")) as running, Client(running.url) as client:
        learner = client.create("a", features={"kind": "dense", "dim": 2})
        learner.update([[1.0, 2.0]], [1])
        engine = running.server._app.state.engine
        replica = engine.get("a")
        asyncio.run(engine.node.store.append("a", replica.birth, [(b"t" * 16, b"rubbish")], replica.position))
        result = CliRunner().invoke(app, ["export", "a", file], env={"RARESTREAM_URL": running.url})
        assert result.exit_code == 0, result.output
        data = Path(file).read_bytes() if file != "-" else result.stdout_bytes
        failed = learner.describe()["failed"]
        assert failed
        assert " ".join(failed.split()) in " ".join(result.stderr.split())
        client.import_learner("b", [data])
        assert client.learner("b").describe()["events"] == 1


def test_a_learner_is_exported_and_imported(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "fraud.state"
    content = document(run(server, "export", "fraud", path, "--json"))
    assert content == {"learner": "fraud", "file": str(path), "bytes": path.stat().st_size}
    assert list(tmp_path.iterdir()) == [path]  # nothing is left beside it
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    assert "600 events" in run(server, "import", path, "imported").stdout
    assert digest(server, "imported") == digest(server, "fraud")
    assert "--force" in run(server, "export", "fraud", path, status=2).stderr
    path.write_bytes(b"x")
    run(server, "export", "fraud", path, "--force")
    assert path.stat().st_size == content["bytes"]
    run(server, "export", "fraud", tmp_path)  # a folder
    assert (tmp_path / "fraud.rarestream").read_bytes() == path.read_bytes()
    piped = run(server, "export", "fraud", "-").stdout_bytes
    assert piped == path.read_bytes()
    run(server, "import", "-", "piped", stdin=piped)
    assert digest(server, "piped") == digest(server, "fraud")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_invalid_import_files_are_refused(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "bad"
    for data in (b"nothing of ours", b""):
        path.write_bytes(data)
        assert str(path) in run(server, "import", path, "bad", status=2).stderr
        assert "standard input" in run(server, "import", "-", "bad", status=2, stdin=data).stderr
    run(server, "export", "fraud", path, "--force")
    path.write_bytes(path.read_bytes()[:-1])  # one of ours, which was cut
    run(server, "import", path, "bad", status=5)
    assert str(tmp_path / "none") in run(server, "import", tmp_path / "none", "bad", status=2).stderr
    run(server, "export", "nobody", tmp_path / "nobody", status=4)
    run(server, "export", "fraud", tmp_path / "no" / "folder", status=2)
    assert list(tmp_path.iterdir()) == [path]


def test_an_aborted_export_leaves_no_file(tmp_path: Path) -> None:
    class Breaking(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"rare")

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Breaking) as listening:
        thread = threading.Thread(target=listening.handle_request)
        thread.start()
        run(f"http://127.0.0.1:{listening.server_address[1]}", "export", "a", tmp_path / "a", status=3)
        thread.join()
    assert list(tmp_path.iterdir()) == []


def test_delete_asks_for_confirmation(server: Process) -> None:
    put(server, "gone")
    assert "--yes" in run(server, "delete", "gone", status=2).stderr
    assert document(run(server, "delete", "gone", "--yes", "--json")) == {"deleted": "gone"}
    run(server, "delete", "gone", "--yes", status=4)
    put(server, "gone")
    environment = {"RARESTREAM_URL": server.url}
    output = in_terminal("delete", "gone", answer=("[y/N]", "n\n"), environment=environment)
    assert output.status == 1
    output = in_terminal("delete", "gone", answer=("[y/N]", "y\n"), environment=environment)
    assert output.status == 0


# Terminals


@pytest.mark.parametrize("columns", [60, 80, 160])
@pytest.mark.parametrize("command", [["list"], ["show", "fraud"], ["watch", "fraud", "--once"]])
@pytest.mark.campaign
def test_output_fits_the_terminal_width(server: Process, command: list[str], columns: int) -> None:
    put(server, "a-learner-with-a-name-that-is-longer-than-most-but-allowed")
    output = in_terminal(*command, columns=columns, environment={"RARESTREAM_URL": server.url})
    assert output.status == 0
    assert output.escapes
    assert max(map(len, output.text.splitlines())) <= columns
    assert "fraud" in output.text
    plain = in_terminal(*command, columns=columns, environment={"RARESTREAM_URL": server.url, "NO_COLOR": "1"})
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", plain.raw)


def test_an_ascii_encoding_is_supported(server: Process) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "RARESTREAM_URL": server.url}
    for command in (["show", "fraud"], ["watch", "fraud", "--once"], ["--help"]):
        process = subprocess.run(
            [sys.executable, "-m", "service", *command], capture_output=True, env=environment, check=True
        )
        assert process.stdout.isascii()


def test_watch_on_a_terminal_stops_cleanly(server: Process) -> None:
    output = in_terminal("watch", "fraud", answer=("events", "\x03"), environment={"RARESTREAM_URL": server.url})
    assert output.status == 0
    assert "600 learnt" in output.text
    assert output.raw.rindex("\x1b[?25h") > output.raw.rindex("\x1b[?25l")  # the cursor is there again
    assert "Traceback" not in output.text


def test_progress_is_shown_on_terminals_only(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"id": f"p{k}", "x": [k, 1, 2], "label": k % 2}) + "\n" for k in range(3000)))
    put(server, "progress")
    output = in_terminal("update", "progress", str(path), "--batch", "10", environment={"RARESTREAM_URL": server.url})
    assert output.status == 0
    assert output.text.splitlines()[-1].endswith("3,000 events: 3,000 learnt")
    assert run(server, "update", "progress", path).stderr == ""


# watch


@contextmanager
def running(server: Process, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command as a process that ends with its test."""
    command = [sys.executable, "-m", "service", *arguments, "--url", server.url]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_watch_prints_a_line_per_change(server: Process) -> None:
    put(server, "watched")
    with running(server, "watch", "watched") as process:
        assert process.stdout is not None
        assert " 0 events  AUC -" in process.stdout.readline()
        with api(server) as http:
            http.post("/watched/update", json={"events": events(500)}).raise_for_status()
        line = process.stdout.readline()
        assert re.match(r"\d\d:\d\d:\d\d  500 events  AUC 0\.\d{4}  F1 0\.\d{4}  precision ", line)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
        assert (process.returncode, err) == (0, "")


def test_watch_as_json_ends_when_the_learner_is_deleted(server: Process) -> None:
    put(server, "short")
    with running(server, "watch", "short", "--json") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert (first["event"], first["name"], first["events"]) == ("figures", "short", 0)
        run(server, "delete", "short", "--yes")
        _, err = process.communicate(timeout=300)
        assert process.returncode == 4
        assert err.startswith("error: short ")
    assert document(run(server, "watch", "fraud", "--once", "--json"))["events"] == 600
    assert "600 learnt, 120 positive" in run(server, "watch", "fraud", "--once").stdout


def test_watch_waits_for_an_unreachable_service(tmp_path: Path) -> None:
    with Process(f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "log") as service:
        put(service, "a")
        with running(service, "watch", "a", "--json") as watch:
            assert watch.stdout is not None
            assert json.loads(watch.stdout.readline())["event"] == "figures"
            service.kill()
            assert json.loads(watch.stdout.readline())["event"] == "trouble"
            service.start()
            with api(service) as http:
                http.post("/a/update", json={"events": events(50)}).raise_for_status()
            while (content := json.loads(watch.stdout.readline())).get("events") != 50:
                assert content["event"] in ("trouble", "figures")
            watch.send_signal(signal.SIGTERM)
            watch.communicate(timeout=300)
            assert watch.returncode == 143


# Interrupted


def test_an_interrupted_update_reports_its_progress(server: Process) -> None:
    put(server, "stopped")
    with running(server, "update", "stopped", "--batch", "1") as process:
        assert process.stdin is not None
        for event in events(3):
            process.stdin.write(json.dumps(event) + "\n")
        process.stdin.flush()
        with api(server) as http:
            eventually(lambda: http.get("/stopped").json()["events"] >= 2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
        assert process.returncode == 130
        assert re.match(r"[23] events ", err)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_bench_deletes_its_learner_even_when_interrupted(server: Process, number: signal.Signals) -> None:
    def learners() -> list[str]:
        with api(server) as http:
            names = [learner["name"] for learner in http.get(f"{server.url}/v1/learners").json()["learners"]]
            return [name for name in names if name.startswith("bench-")]

    with running(server, "bench", "--requests", "200000") as process:
        eventually(learners)
        process.send_signal(number)
        process.communicate(timeout=300)
        assert process.returncode == 128 + number
    assert learners() == []


# bench


def test_bench_reports_measurements(server: Process) -> None:
    content = document(run(server, "bench", "--updates", 3, "--batch", 20, "--requests", 30, "--dim", 4, "--json"))
    assert (content["update"]["events"], content["predict"]["events"]) == (60, 30)
    assert 0 < content["predict"]["p50_ms"] <= content["predict"]["p99_ms"]
    text = run(server, "bench", "--updates", 2, "--batch", 5, "--requests", 5).stdout
    assert re.search(r"update +2 +10 .* ms", text)
    assert re.search(r"\b20 updates \(100 .*\b20 predicts \(20 ", text)
    assert "bench-" not in run(server, "list").stdout
    assert "'none';" in run(server, "bench", "--algorithm", "none", status=5).stderr
    assert "bench-" not in run(server, "list").stdout


def test_bench_sends_ranks_to_an_ordinal_learner(server: Process) -> None:
    bench = ("bench", "--updates", 2, "--batch", 20, "--requests", 5, "--dim", 3, "--json", "--algorithm")
    for algorithm in ("npsvor", "svr"):
        content = document(run(server, *bench, algorithm))
        assert (content["update"]["events"], content["predict"]["events"]) == (40, 5)


def test_bench_uses_its_own_server() -> None:
    content = document(run("http://127.0.0.1:1", "bench", "--start", "--updates", 2, "--requests", 5, "--json"))
    assert not content["url"].endswith(":1")
    assert not httpx.codes.is_success(_status(content["url"]))


def _status(url: str) -> int:
    try:
        return httpx.get(f"{url}/v1/health/live", trust_env=False, timeout=300).status_code
    except httpx.TransportError:  # it is gone
        return 0


def test_measurements_exclude_the_warm_up_and_are_summarised() -> None:
    requests: list[bytes] = []
    result = measure_requests("update", [bytes([k]) for k in range(50)], 10, requests.append)
    assert len(requests) == 50  # the first 20 are not counted
    assert (result.requests, result.events) == (30, 300)
    output = result.to_json()
    assert (output["warm_up_requests"], output["warm_up_events"]) == (20, 200)


# Completion


def completed(words: str, **environment: str) -> list[str]:
    settings = {"_RARESTREAM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, "-m", "service"]
    process = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings, **environment})
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout.split()


def test_completed_objectives_equal_those_of_the_library() -> None:
    """The command line does not import the library, which takes a second."""
    assert tuple(objective_names("")) == get_args(get_type_hints(Threshold)["objective"])


@pytest.mark.campaign
def test_commands_and_names_are_completed(server: Process) -> None:
    assert completed("rarestream sn") == ["snapshot", "snapshots"]
    put(server, "complete-me")
    assert completed("rarestream show complete", RARESTREAM_URL=server.url) == ["complete-me"]
    assert completed("rarestream replay f.csv --learner comp", RARESTREAM_URL=server.url) == ["complete-me"]
    assert completed("rarestream create new --algorithm cbr", RARESTREAM_URL=server.url) == ["cbr", "cbr-diag"]
    put(server, "complete-me-too")
    group = {"learners": ["complete-me", "complete-me-too"]}
    httpx.put(f"{server.url}/v1/groups/completed", json=group, trust_env=False, timeout=300).raise_for_status()
    assert completed("rarestream compare comp", RARESTREAM_URL=server.url) == ["completed"]
    httpx.delete(f"{server.url}/v1/groups/completed", trust_env=False, timeout=300).raise_for_status()
    assert completed("rarestream threshold complete-me f1-") == ["f1-window", "f1-ofo"]
    assert completed("rarestream keys create --scope ") == ["read", "predict", "update", "admin"]
    assert completed("rarestream keys create --scope p") == ["predict"]
    assert run(server, "snapshot", "complete-me")
    assert completed("rarestream restore complete-me 1", RARESTREAM_URL=server.url) == ["1"]
    began = time.monotonic()
    assert completed("rarestream show f", RARESTREAM_URL="http://127.0.0.1:1") == []
    assert completed("rarestream show f", RARESTREAM_URL="nonsense") == []
    assert time.monotonic() - began < 120


def test_completion_is_installed_for_the_shell(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    command = [bash, "-c", f"{sys.executable} -m service --install-completion; true"]
    subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "HOME": str(tmp_path)})
    script = (tmp_path / ".bash_completions" / "rarestream.sh").read_text()
    assert "_RARESTREAM_COMPLETE=complete_bash" in script
    output = subprocess.run(
        [bash, "-c", f"{sys.executable} -m service --show-completion; true"], capture_output=True, text=True, check=True
    )
    assert "complete -o default -F _rarestream_completion rarestream" in output.stdout


# The help


def test_every_command_that_calls_the_service_has_the_same_options() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {
        "serve",
        "demo",
        "create",
        "list",
        "show",
        "replay",
        "update",
        "predict",
        "labels",
        "watch",
        "snapshot",
    } <= set(commands)
    assert {"restore", "clone", "delete", "export", "import", "bench", "threshold", "snapshots", "warm"} <= set(
        commands
    )
    for name, command in commands.items():
        options = {option for param in command.params for option in param.opts}
        if name not in ("context", "serve", "demo", "warm", "keys"):  # which call no service
            assert {"--url", "--key", "--json"} <= options, name


def helps(command: Any, *path: str) -> Iterator[tuple[str, str]]:
    """Yield the help that the shell shows for each command and option, by name."""
    for option in command.params:
        if option.param_type_name == "option":
            yield " ".join([*path, option.opts[0]]), option.help
    for name, item in getattr(command, "commands", {}).items():
        yield " ".join([*path, name]), item.get_short_help_str(1000)
        yield from helps(item, *path, name)


def test_help_texts_contain_no_quotes_that_break_zsh() -> None:
    """zsh writes the list in single quotes, and each help in double quotes."""
    result = dict(helps(typer.main.get_command(app)))
    assert {"snapshot", "keys create", "keys create --scope"} <= set(result)
    assert [name for name, message in result.items() if set(message) & {"'", '"'}] == []


def test_the_help_lists_the_exit_statuses() -> None:
    text = " ".join(CliRunner().invoke(app, ["-h"]).stdout.split())
    for status in (status for status in ExitStatus if 2 < status < 128):
        assert re.search(rf"\b{status:d} [a-z]", text), status
    assert "--install-completion" in text


@pytest.mark.parametrize(
    ("count", "message"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (20 * 2**20, "20 MiB"), (5 * 2**42, "20480 GiB")],
)
def test_sizes_are_formatted_for_people(count: int, message: str) -> None:
    assert format_bytes(count) == message
