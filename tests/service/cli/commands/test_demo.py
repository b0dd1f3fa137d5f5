"""The demo streams, shows progress, stops cleanly and resumes."""

from __future__ import annotations

import io
import re
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console
from typer.testing import CliRunner

from service.cli.commands.demo import GROUP, LEARNERS, SOURCE, StallNotice
from service.cli.display import LearnersDisplay
from service.cli.main import app
from service.datasets.card_fraud import CardFraud
from tests.harness.process import Commands
from tests.service.cli.test_request_errors import Time

pytestmark = pytest.mark.integration

Demo = Callable[..., subprocess.Popen[str]]
FEATURES = CardFraud(change=1).events(0, 1)[0]["features"].keys()


@pytest.fixture
def demo(start: Commands) -> Demo:
    """Start the demo on a store with options."""

    def started(store: str, *options: object) -> subprocess.Popen[str]:
        return start("demo", "--store", store, "--port", 0, *options, PYTHONUNBUFFERED="1")

    return started


def until(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """Read the output up to a line with the pattern."""
    assert process.stdout is not None
    for line in process.stdout:
        if match := re.search(pattern, line):
            return match
    raise AssertionError(f"it ended without {pattern}: {process.communicate()}")


def complaints(out: str) -> list[str]:
    """Return the lines on failures of the store at the stop."""
    return re.findall(r"^  .*\bSQLite: .+$", out, re.MULTILINE)


def learners(url: str) -> dict[str, dict[str, Any]]:
    listing = httpx.get(f"{url}/v1/learners", trust_env=False, timeout=300).raise_for_status().json()["learners"]
    return {item["name"]: item for item in listing}


def compared(url: str) -> dict[str, Any]:
    """Return the group's comparison of the four learners."""
    document = httpx.get(f"{url}/v1/groups/{GROUP}/compare", trust_env=False, timeout=300).raise_for_status().json()
    assert document["learners"] == list(LEARNERS)
    return dict(document)


def test_the_demo_streams_stops_and_resumes(demo: Demo, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'demo.db'}"
    process = demo(store, "--events", 3000, "--rate", 100)
    url = until(process, r"dashboard +(http://\S+)/$")[1]
    until(process, r"API docs +http://\S+/docs$")
    until(process, r"\b1,500\.$")
    for name in LEARNERS:
        until(process, rf"{name} +[\d,]+ events +AUC \S+ +F1 \S+ +positives [\d,]+$")
    assert learners(url).keys() == LEARNERS.keys()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert complaints(out) == []

    process = demo(store, "--events", 3000, "--rate", 0)
    url = until(process, r"dashboard +(http://\S+)/$")[1]
    at = int(until(process, r"\b([\d,]+) of 3,000\b")[1].replace(",", ""))
    assert 0 < at < 3000
    until(process, r"\b3,000\b.*\.$")
    until(process, "Ctrl-C")
    listing = learners(url)
    assert {item["events"] for item in listing.values()} == {3000}
    assert {item["sources"][SOURCE] for item in listing.values()} == {3000}
    assert compared(url)["events"] == 3000  # over the stop
    queue = httpx.get(f"{url}/v1/learners/demo-auto/events?limit=1", trust_env=False, timeout=300).json()["events"][0]
    assert (queue["id"], queue["status"], queue["features"].keys()) == ("transaction-2999", "labelled", FEATURES)
    figures = httpx.get(f"{url}/v1/learners/demo-auto/metrics", trust_env=False, timeout=300).json()
    assert figures["window"]["label_coverage"] == 1.0
    assert 0 < figures["window"]["label_delay_median"] < 2 * 3600
    assert {item["class_counts"]["positive"] for item in listing.values()} == {
        next(iter(listing.values()))["class_counts"]["positive"]
    }
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 0

    for count in (3000, 1000):
        process = demo(store, "--events", count)
        url = until(process, r"dashboard +(http://\S+)/$")[1]
        until(process, r"\b3,000\b.*--events\b")
        rest = ""
        assert process.stdout is not None
        while "Ctrl-C" not in rest:
            rest += process.stdout.readline()
        assert not re.search(r"\b3,000\b.*\.$", rest, re.MULTILINE)  # nothing was streamed
        process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode == 0


def test_a_longer_demo_goes_on_and_takes_labels_but_not_other_learners_of_its_names(demo: Demo, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'demo.db'}"
    process = demo(store, "--events", 200, "--rate", 0)
    until(process, "Ctrl-C")
    process.send_signal(signal.SIGINT)
    process.communicate()
    process = demo(store, "--events", 400, "--rate", 0)
    url = until(process, r"dashboard +(http://\S+)/$")[1]
    until(process, "Ctrl-C")
    assert {learner["events"] for learner in learners(url).values()} == {400}
    labelled = CliRunner().invoke(app, ["label", "demo-auto", "transaction-399", "fraud", "--url", url])
    assert (labelled.exit_code, "transaction-399" in labelled.stdout) == (0, True)
    change = {"late": {"max_events": 5}}
    httpx.patch(f"{url}/v1/learners/demo-auto", json=change, trust_env=False, timeout=300).raise_for_status()
    process.send_signal(signal.SIGINT)
    process.communicate()
    process = demo(store)
    _, err = process.communicate()
    assert process.returncode == 2
    assert "--store: demo-auto exists with another configuration" in err
    assert "delete" in err


@pytest.mark.campaign
def test_the_demo_on_a_full_disk(demo: Demo, tmp_path: Path) -> None:
    """The store's files cannot grow, so every append fails, as on a full disk."""
    process = demo(f"sqlite:///{tmp_path / 'demo.db'}", "--events", 100_000, "--rate", 1000)
    until(process, r"demo-fofo +[\d,]+ events")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    until(process, r"^SQLite: .+; ")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate()
    assert process.returncode == 0
    names = [re.findall(r"\bdemo(?:-\w+)*\b", complaint) for complaint in complaints(out)]
    assert sorted(names) == sorted([[GROUP], *([name] for name in LEARNERS)])


def test_the_cause_of_a_standstill_is_reported_late_and_once() -> None:
    time, messages = Time(), list[str]()
    lines = ["full; trying again in 0 s", "gone; trying again in 1 s"]
    standstill = StallNotice(messages.append, time.clock)
    standstill.note("full", "trying again in 1 s")
    time.now += 2
    standstill.note("full", "trying again in 1 s")
    assert messages == []
    time.now += 2
    for reason in ("full", "full", "gone", "full", "gone"):
        standstill.note(reason, f"trying again in {len(messages)} s")
    assert messages == lines
    standstill.over()
    standstill.note("full", "trying again in 1 s")
    assert messages == lines
    time.now += 4
    standstill.note("full", "trying again in 1 s")
    assert messages == [*lines, "full; trying again in 1 s"]


@pytest.mark.campaign
def test_a_learner_ahead_of_the_others_learns_nothing_twice(demo: Demo, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'demo.db'}"
    process = demo(store, "--events", 1000, "--rate", 0)
    url = until(process, r"dashboard +(http://\S+)/$")[1]
    until(process, "Ctrl-C")
    body = {"events": CardFraud(change=1000).events(1000, 1010), "source": {"name": SOURCE, "offset": 1000}}
    path = f"{url}/v1/learners/demo-auto"
    assert (
        httpx.post(f"{path}/update", json=body, trust_env=False, timeout=300).raise_for_status().json()["applied"] == 10
    )
    process.send_signal(signal.SIGINT)
    process.communicate()

    process = demo(store, "--events", 2000, "--rate", 0)
    url = until(process, r"dashboard +(http://\S+)/$")[1]
    until(process, "Ctrl-C")
    figures = httpx.get(f"{url}/v1/learners/demo-auto/metrics", trust_env=False, timeout=300).raise_for_status().json()
    assert (figures["events"], figures["duplicates"]) == (2000, 10)
    assert {learner["events"] for learner in learners(url).values()} == {2000}
    process.send_signal(signal.SIGINT)
    process.communicate()


@pytest.mark.campaign
def test_the_demo_never_generates_future_events(demo: Demo, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'demo.db'}"
    process = demo(store, "--events", 20_000_000, "--rate", 40)  # 5,000 days
    url = until(process, r"dashboard +(http://\S+)/$")[1]
    until(process, r"demo-fofo +[\d,]+ events")
    began = httpx.get(f"{url}/v1/learners/demo-fofo/metrics", trust_env=False, timeout=300).json()["clock"]
    assert time.time() // 86_400 - began // 86_400 in (5000, 5001)  # it may be past midnight meanwhile
    process.send_signal(signal.SIGINT)
    process.communicate()

    process = demo(store, "--events", 40_000_000)
    _, err = process.communicate()
    assert process.returncode == 2
    assert "--events: 20,00" in err


@pytest.mark.campaign
def test_updates_from_elsewhere_do_not_stop_the_stream(demo: Demo, tmp_path: Path) -> None:
    """It reports duplicates, whose first scores are known, so all learners catch up and are compared."""
    process = demo(f"sqlite:///{tmp_path / 'demo.db'}", "--events", 400, "--rate", 40)
    url = until(process, r"dashboard +(http://\S+)/$")[1]
    until(process, r"demo-fofo +[\d,]+ events")
    at = learners(url)["demo-fofo"]["sources"][SOURCE]
    assert at < 300
    body = {"events": CardFraud(change=200).events(at, at + 50), "source": {"name": SOURCE, "offset": at}}
    httpx.post(f"{url}/v1/learners/demo-fofo/update", json=body, trust_env=False, timeout=300).raise_for_status()
    until(process, "Ctrl-C")
    assert {learner["events"] for learner in learners(url).values()} == {400}
    assert compared(url)["events"] == 400
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 0


def test_the_demo_reports_why_it_cannot_start(start: Commands, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        process = start("demo", "--port", port, "--store", f"sqlite:///{tmp_path / 'a.db'}")
        assert f" 127.0.0.1:{port}: " in process.communicate()[1]
    assert process.returncode == 1
    process = start("demo", "--port", 0, "--store", f"sqlite:///{tmp_path}/no/a.db")
    assert f"{tmp_path}/no " in process.communicate()[1]
    assert process.returncode == 2


def test_the_demo_on_a_terminal() -> None:
    out = io.StringIO()
    metrics = {
        "name": "demo-cbr",
        "events": 12_000,
        "class_counts": {"negative": 11_880, "positive": 120},
        "window": {"auc": 0.91, "f1": None},
    }
    with LearnersDisplay(Console(file=out, force_terminal=True, width=120)) as display:
        display.show([metrics], None)  # nothing is known of the speed: the kernels were compiled
        assert "events/s" not in out.getvalue()
        display.show([metrics], 1000.0)
    for text in ("demo-cbr", "12,000", "0.9100", "120", "1,000 events/s"):
        assert text in out.getvalue()
