"""`--json`: every command supports it, and running commands report their address and progress."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer

from learners import algorithms
from learners.algorithms import is_baseline
from learners.numerics.jit import cache_directory
from service.cli.commands.demo import LEARNERS
from service.cli.main import app
from tests.harness.process import Commands
from tests.harness.redis_server import RedisServer

pytestmark = pytest.mark.integration


def leaves(command: Any, *path: str) -> Iterator[tuple[str, Any]]:
    """Yield every leaf command by its full name."""
    if not hasattr(command, "commands"):
        yield " ".join(path), command
        return
    for name, subcommand in command.commands.items():
        yield from leaves(subcommand, *path, name)


COMMANDS = dict(leaves(typer.main.get_command(app)))


def line(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Read the next document of the output."""
    assert process.stdout is not None
    document: dict[str, Any] = json.loads(process.stdout.readline())
    return document


def ended(process: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> tuple[list[Any], list[str]]:
    """Stop a process by a signal; return its remaining documents and the lines of its standard error."""
    process.send_signal(number)
    out, err = process.communicate(timeout=300)
    return [json.loads(text) for text in out.splitlines()], err.splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_json_option(command: str) -> None:
    (option,) = [param for param in COMMANDS[command].params if "--json" in param.opts]
    assert option.is_flag
    assert "JSON" in option.help


def test_commands_within_groups_are_included() -> None:
    assert {"serve", "demo", "warm", "watch", "keys create", "keys list", "keys revoke"} <= set(COMMANDS)


@pytest.mark.campaign
def test_warm_prints_its_results_as_one_document(start: Commands) -> None:
    process = start("warm", "--json")
    out, err = process.communicate()
    assert process.returncode == 0, err
    names = [name for name in algorithms() if not is_baseline(name)]
    document = json.loads(out)
    seconds = document.pop("seconds")
    assert document.pop("compiled") == document.pop("all") > 100
    assert document == {"kernels": names, "cache": str(cache_directory())}
    assert seconds > 0
    assert err.splitlines() == [f"compiled {name}" for name in names]


def test_serve_prints_its_address_when_it_listens(start: Commands, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'a.db'}"
    process = start("serve", "--json", "--port", 0, "--store", store)
    output = line(process)
    assert httpx.get(f"{output['url']}/v1/health/ready", trust_env=False, timeout=300).status_code == 200
    assert output == {"url": output["url"], "pid": process.pid, "store": store, "workers": 1}
    more, err = ended(process)
    assert (process.returncode, more) == (0, [])
    log = [json.loads(item) for item in err]
    assert [item["level"] for item in log] == ["info"] * len(log)
    assert f"{output['url']} " in log[0]["message"]
    assert log[-1]["message"] == "stopped"


@pytest.mark.parametrize("by", ["option", "variable"])
def test_the_log_format_is_independent(start: Commands, by: str) -> None:
    options, environment = (("--log-format", "text"), {}) if by == "option" else ((), {"RARESTREAM_LOG_FORMAT": "text"})
    process = start("serve", "--json", "--port", 0, "--store", "memory:", *options, **environment)
    assert set(line(process)) == {"url", "pid", "store", "workers"}
    more, err = ended(process)
    assert more == []
    assert err[-1].endswith("rarestream.server: stopped")


@pytest.mark.campaign
def test_several_workers_are_announced_once(start: Commands) -> None:
    with RedisServer() as redis:
        process = start("serve", "--json", "--port", 0, "--store", redis.url, "--workers", 2)
        output = line(process)
        assert output == {"url": output["url"], "pid": process.pid, "store": redis.url, "workers": 2}
        assert httpx.get(f"{output['url']}/v1/health/ready", trust_env=False, timeout=300).status_code == 200
        more, err = ended(process)
    assert more == []
    assert {1, 2} <= {json.loads(item).get("worker") for item in err}


def test_a_failed_start_prints_no_document(start: Commands, tmp_path: Path) -> None:
    process = start("serve", "--json", "--port", 0, "--store", f"sqlite:///{tmp_path}/no/a.db")
    out, err = process.communicate()
    assert (process.returncode, out) == (2, "")
    assert f" {tmp_path}/no " in err


@pytest.mark.campaign
def test_the_demo_prints_its_address_and_then_metrics_lines(start: Commands, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'demo.db'}"
    process = start("demo", "--json", "--store", store, "--port", 0, "--events", 2000, "--rate", 0)
    output = line(process)
    assert output == {
        "event": "ready",
        "url": output["url"],
        "pid": process.pid,
        "store": store,
        "learners": list(LEARNERS),
    }
    figures: dict[str, dict[str, Any]] = {}
    while figures.keys() != LEARNERS.keys() or any(item["events"] < 2000 for item in figures.values()):
        item = line(process)
        assert item.pop("event") == "figures"
        figures[item["name"]] = item
    expected_metrics = (
        httpx.get(f"{output['url']}/v1/learners/demo-cbr/metrics", trust_env=False, timeout=300)
        .raise_for_status()
        .json()
    )
    assert figures["demo-cbr"] == expected_metrics
    _, err = ended(process)
    assert process.returncode == 0
    assert not any(text.startswith(" ") for text in err)  # no complaint about the store
