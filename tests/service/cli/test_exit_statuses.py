"""The exit status of each command; usage errors are 2 and change nothing."""

from __future__ import annotations

import errno
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import typer
from typer.testing import CliRunner

from service.cli.main import app
from service.exits import ExitStatus
from tests.harness.apps import DENSE
from tests.harness.process import Process

pytestmark = pytest.mark.integration

EVENT = '{"x": [1, 2, 3], "label": 1}'

# every command that calls a service, with arguments that are right
CALLS = {
    "algorithms": [],
    "bench": [],
    "create": ["a", "--algorithm", "cbr", "--features", "dense", "--dim", "3"],
    "list": [],
    "show": ["a"],
    "watch": ["a"],
    "threshold": ["a", "f1"],
    "thresholds": ["a"],
    "segments": ["a", "--by", "x"],
    "delete": ["a", "--yes"],
    "update": ["a", EVENT],
    "predict": ["a", EVENT],
    "labels": ["a", "x=1"],
    "events": ["a"],
    "event": ["a", "x"],
    "fields": ["a"],
    "erase": ["a", "x", "--yes"],
    "label": ["fraud", "tx-1", "1"],
    "alerts": ["a"],
    "alarms": ["a"],
    "annotate": ["a", "deployed"],
    "replay": ["rows.csv", "--learner", "a"],
    "snapshot": ["a"],
    "snapshots": ["a"],
    "restore": ["a", "1", "--yes"],
    "clone": ["a", "b"],
    "export": ["a", "state"],
    "import": ["exported", "b"],
    "groups": [],
    "compare": ["g"],
    "consume": ["redis://localhost:1/0", "--stream", "s", "--learner", "a"],
}
LOCAL = ("serve", "demo", "warm", "keys", "inspect", "context")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with the files of the commands."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("p,q,r,label\n" + "1,2,3,0\n4,5,6,1\n" * 3)
    (tmp_path / "exported").write_bytes(b"rare, and cut off")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.fixture(scope="module")
def server(server: Process) -> Process:
    put(server, "a")
    return server


def put(server: Process, name: str) -> None:
    httpx.put(f"{server.url}/v1/learners/{name}", json=DENSE, timeout=300, trust_env=False).raise_for_status()


def run(*arguments: str, url: str | None = None, key: str | None = None) -> tuple[int, str]:
    """Run a command; return its status and its standard error."""
    result = CliRunner().invoke(app, arguments, env={"RARESTREAM_URL": url, "RARESTREAM_KEY": key})
    return result.exit_code, re.sub(r"[\s│]+", " ", result.stderr)  # without typer's frame and its line ends


def test_every_command_is_tested() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(commands) == {*CALLS, *LOCAL}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", CALLS)
@pytest.mark.parametrize("url", ["ftp://x", "localhost:port", "http://x:port", "http://x:83637"])
def test_an_invalid_url_is_a_usage_error(command: str, url: str) -> None:
    status, output = run(command, *CALLS[command], "--url", url)
    assert (status, "--url" in output, url in output) == (
        ExitStatus.USAGE,
        True,
        True,
    )
    assert run(command, *CALLS[command], url=url)[0] == ExitStatus.USAGE


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", CALLS)
def test_an_invalid_key_is_a_usage_error(command: str, server: Process) -> None:
    status, output = run(command, *CALLS[command], url=server.url, key="two words")
    assert (status, "--key" in output) == (ExitStatus.USAGE, True), output


@pytest.mark.parametrize("command", [*CALLS, *LOCAL])
def test_unknown_options_are_usage_errors(command: str) -> None:
    assert run(command, "--nonsense")[0] == ExitStatus.USAGE


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("list --sort size --sizes extra more", "more"),
        ("list --sort nonsense", "'nonsense'"),
        ("list --sizes --sort auc", "--sizes"),
        ("show a --weights 0", "--weights"),
        ("create a --param C", "NAME=VALUE"),
        ("create a --label-ttl soon", "'soon'"),
        ("create a --config none.json", "none.json"),
        ("create a --config rows.csv", "rows.csv"),
        ("threshold a", "'objective'"),
        ("delete a", "--yes"),
        ("restore a 1", "--yes"),
        ("erase a x", "--yes"),
        ("restore a first --yes", "position"),
        ("update a none.csv", "none.csv: "),
        ("update a folder", "folder: "),
        ("update a rows.csv --label fraud", "'fraud'"),
        ("update a rows.csv --format xml", "'xml'"),
        ("update a rows.csv --label p", "'1', '4'"),
        ("update a rows.csv --batch 0", "--batch"),
        ("update a - -", "input"),
        ("update a nonsense", "nonsense: "),
        ("predict a none.json", "none.json: "),
        ("predict a [] --json --csv", "--json"),
        ("labels a x=maybe", "'x=maybe': "),
        ("labels a none.csv", "ID=LABEL"),
        ("labels a x=1 --ranks low,high", "--ranks"),
        ("replay none.csv --learner a", "none.csv: "),
        ("replay rows.csv", "--learner"),
        ("replay rows.csv --learner a --id key", "'key'"),
        ("replay rows.csv --learner a --drop r", "p, q"),
        ("replay rows.csv --learner a --label-delay 1d", "--id"),
        ("import none b", "none: "),
        ("import rows.csv b", "rows.csv"),
        ("export a rows.csv", "--force"),
        ("export a no/folder/state", "no/folder/state"),
        ("export a - --json", "--json"),
        ("bench --requests 0", "--requests"),
        ("serve --port high", "--port"),
        ("serve --acks foo", "--acks: "),
        ("serve --workers 2 --store memory:", "Redis"),
        ("serve --host 0.0.0.0 --port 0 --store memory:", "--insecure"),
        ("serve --keys none.json --port 0 --store memory:", "none.json: "),
        ("serve --store postgres://x --port 0", "sqlite:///relative.db"),
        ("demo --store postgres://x --port 0", "sqlite:///relative.db"),
        ("serve --store sqlite:///none/a.db --port 0", "none"),
        ("serve --store sqlite:///rows.csv --port 0", "rows.csv"),
        ("create a --features table --field :numeric", "':numeric'"),
        ("consume kafk://h/t --learner a", "SOURCE"),
        ("consume redis://h:1/payments --stream s --learner a", "'payments'"),
        ("consume redis://h:1/0 --stream s --learner a --from soon", "--from"),
        ("consume redis://h:1/0 --stream s --learner a --what learn", "'learn'"),
        ("serve --log-level loud", "'loud'"),
        ("demo --events 1", "--events"),
        ("nonsense", "'nonsense'"),
    ],
)
def test_wrong_usage_is_a_usage_error(server: Process, command: str, message: str) -> None:
    status, error = run(*command.split(), url=server.url)
    assert status == ExitStatus.USAGE, error
    assert message in error
    assert "Value error" not in error  # pydantic's words
    learner = httpx.get(f"{server.url}/v1/learners/a", timeout=300, trust_env=False).raise_for_status().json()
    assert learner["events"] == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOG_FORMAT", "yaml"),
        ("ELSEWHERE", "prox"),
        ("WORKERS", "two"),
        ("MAX_LEARNERS", "0"),
        ("BODY_SECONDS", "soon"),
        ("TRIM_LOG", "maybe"),
        ("ACKS", "all"),
        ("ADVERTISE", "node-1"),
        ("CORS_ORIGINS", "https://a.example/b"),
        ("WEBHOOK", "hooks.example/secret"),
    ],
)
def test_an_invalid_variable_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"RARESTREAM_{name}", value)
    for command in ("serve", "demo"):
        status, error = run(command)
        assert status == ExitStatus.USAGE
        assert f" RARESTREAM_{name}: " in error
        assert "secret" not in error


@pytest.mark.usefixtures("folder")
def test_other_exit_statuses(server: Process) -> None:
    """Other exit statuses: refused, partly done, not found, no service."""
    assert run("create", "a", "--algorithm", "cbr", "--features", "dense", url=server.url)[0] == ExitStatus.REFUSED
    assert run("import", "exported", "b", url=server.url)[0] == ExitStatus.REFUSED
    put(server, "partly")
    lines = Path("lines.jsonl")
    lines.write_text(f"{EVENT}\n" * 2 + "nonsense\n")  # among the rows that are looked at before any is sent
    assert run("update", "partly", "lines.jsonl", "--batch", "1", url=server.url)[0] == ExitStatus.USAGE
    lines.write_text(f"{EVENT}\n" * 1200 + "nonsense\n")
    assert run("update", "partly", "lines.jsonl", "--batch", "500", url=server.url)[0] == ExitStatus.PARTLY
    assert run("show", "nobody", url=server.url)[0] == ExitStatus.NOT_FOUND
    assert run("restore", "a", "999", "--yes", url=server.url)[0] == ExitStatus.NOT_FOUND
    assert run("list", url=f"{server.url}/elsewhere")[0] == ExitStatus.UNREACHABLE


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.campaign
def test_an_unwritable_output_is_reported(tmp_path: Path, buffered: str) -> None:
    keys = tmp_path / "keys.json"
    command = [sys.executable, "-m", "service", "keys"]
    subprocess.run([*command, "create", "--keys", keys, "--name", "a", "--scope", "read"], check=True)
    command += ["list", "--keys", str(keys)]
    environment = {**os.environ, "PYTHONUNBUFFERED": buffered}
    with open("/dev/full", "w") as full:
        completed = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert completed.returncode == ExitStatus.FAILED
    assert os.strerror(errno.ENOSPC) in completed.stderr
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as pipe:
        completed = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, env=environment)
    assert (completed.returncode, completed.stderr) == (ExitStatus.FAILED, "")
    for closed in (shlex.join(command), shlex.join([*command, "--json"])):  # by whoever wants none
        completed = subprocess.run(["sh", "-c", f"{closed} >&-"], capture_output=True, text=True, env=environment)
        assert (completed.returncode, completed.stderr) == (ExitStatus.DONE, "")


def test_every_status_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "command-line.md").read_text()
    lines = [int(number) for row in re.findall(r"^\| ([\d, ]+) \|", text, re.MULTILINE) for number in row.split(",")]
    assert lines == [*ExitStatus, 130, 143]
    epilog = re.sub(r"\s+", " ", CliRunner().invoke(app, ["--help"]).stdout)
    assert all(f" {number:d} " in epilog for number in ExitStatus)
