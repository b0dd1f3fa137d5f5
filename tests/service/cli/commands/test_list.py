"""`rarestream list` with hundreds of learners, and the confirmation of `restore`."""

from __future__ import annotations

import json
import re
from io import StringIO

import httpx
import pytest
from rich.console import Console
from typer.testing import CliRunner

from service.cli.commands.show import _figure_columns, _list_table
from service.cli.main import app
from tests.harness.apps import DENSE, events
from tests.harness.process import Process
from tests.harness.terminal import in_terminal
from tests.service.cli.conftest import run

pytestmark = pytest.mark.integration

LEARNERS = 300


@pytest.fixture(scope="module")
def server(server: Process) -> Process:
    with httpx.Client(base_url=f"{server.url}/v1/learners", trust_env=False, timeout=300) as http:
        for number in range(LEARNERS):
            http.put(f"/of-many-{number:03}", json=DENSE).raise_for_status()
            body = {"events": events(20 + number % 7)}
            http.post(f"/of-many-{number:03}/update", json=body).raise_for_status()
    return server


def list_of(server: Process, *options: str) -> str:
    result = run(server, "list", *options)
    assert result.stderr == ""
    return result.stdout


def requests(server: Process) -> int:
    """Count the requests below /v1 so far."""
    text = httpx.get(f"{server.url}/metrics", trust_env=False, timeout=300).text
    counts = re.findall(r'^rarestream_request_seconds_count\{.*route="/v1/.*\} (\S+)$', text, re.MULTILINE)
    return round(sum(map(float, counts)))


def test_metrics_of_all_learners_need_one_request(server: Process) -> None:
    before = requests(server)
    lines = list_of(server).splitlines()
    assert requests(server) == before + 1
    assert lines[0].split()[:6] == ["learner", "algorithm", "events", "positives", "AUC", "95"]
    assert len(lines) == 1 + LEARNERS
    assert all(re.search(r"^of-many-\d{3}  loam-ada +2\d +\d+  [01]\.\d{4}  ", line) for line in lines[1:])
    rows = json.loads(list_of(server, "--json", "--sort", "auc"))["learners"]
    figures = [row["window"]["auc"] for row in rows]
    assert len(figures) == LEARNERS
    assert figures == sorted(figures, reverse=True)
    assert list_of(server, "--sort", "auc").splitlines()[1].split()[0] == rows[0]["name"]


def test_sizes_of_all_learners_need_one_request(server: Process) -> None:
    before = requests(server)
    rows = json.loads(list_of(server, "--json", "--sizes"))["learners"]
    assert requests(server) == before + 1
    assert all(row["state_bytes"] > 0 for row in rows)


def test_learners_being_created_are_listed() -> None:
    out = Console(width=80, file=StringIO())
    out.print(_list_table([], ["tired"], ["cards"], {}, {}, out.width))
    assert isinstance(out.file, StringIO)
    assert [line.split() for line in out.file.getvalue().splitlines()[1:]] == [
        ["tired", "asleep"],
        ["cards", "being", "created"],
    ]


def test_columns_beyond_the_width_are_reported() -> None:
    values = {}
    for width in (80, 100, 200):
        out = Console(width=width, file=StringIO())
        out.print(_list_table([], ["tired"], [], {}, _figure_columns([]), out.width))
        assert isinstance(out.file, StringIO)
        values[width] = " ".join(out.file.getvalue().partition("asleep")[2].split())
    assert values[80].count(",") == 4
    assert "alarms" not in values[80]
    assert values[100].count(",") == 2
    assert values[200] == ""


def test_restore_asks_for_confirmation(server: Process) -> None:
    environment = {"RARESTREAM_URL": server.url}
    url = f"{server.url}/v1/learners/of-many-000"
    with httpx.Client(trust_env=False, timeout=300) as http:
        position = http.post(f"{url}/snapshots").raise_for_status().json()["position"]
        http.post(f"{url}/update", json={"events": events(5, 500)}).raise_for_status()

        def learnt() -> int:
            count: int = http.get(url).json()["events"]
            return count

        assert learnt() == 25
        request = CliRunner().invoke(app, ["restore", "of-many-000", str(position)], env=environment)
        assert (request.exit_code, "--yes" in request.stderr) == (2, True)
        output = in_terminal(
            "restore", "of-many-000", str(position), answer=("[y/N]", "n\n"), environment=environment, columns=200
        )
        assert output.status == 1
        assert f"{position + 1} to {position}?" in output.text
        assert learnt() == 25
        output = in_terminal("restore", "of-many-000", str(position), answer=("[y/N]", "y\n"), environment=environment)
        assert output.status == 0
        assert learnt() == 20
