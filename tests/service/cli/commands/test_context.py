"""Contexts: which URL and key a command uses, and that the key of a context goes to its own service only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from service.cli import contexts, options_service
from service.cli.main import app
from service.exits import CommandFailed, ExitStatus

PROD, TRIAL = "https://fraud.example", "trial.example:8000"


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the contexts of this test apart from those of the user."""
    monkeypatch.setattr(typer, "get_app_dir", lambda name: str(tmp_path / "config" / name))
    return contexts.contexts_path()


def run(*arguments: str, **environment: str) -> Any:
    variables = {"RARESTREAM_URL": None, "RARESTREAM_KEY": None, **environment}
    return CliRunner().invoke(app, arguments, env=variables)


def made() -> None:
    assert run("context", "set", "prod", "--url", PROD, RARESTREAM_KEY="rs_prod").exit_code == 0
    assert run("context", "set", "trial", "--url", TRIAL).exit_code == 0


def test_only_the_owner_may_read_the_file_and_no_list_shows_a_key(path: Path) -> None:
    made()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    assert run("context", "use", "trial").exit_code == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert [item.name for item in path.parent.iterdir()] == [path.name]
    rows = json.loads(run("context", "list", "--json").stdout)["contexts"]
    assert rows == [
        {"name": "prod", "url": PROD, "key": True, "current": False},
        {"name": "trial", "url": TRIAL, "key": False, "current": True},
    ]
    assert "rs_prod" not in run("context", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ((), {}, (PROD, "rs_prod")),
        (("--key", "rs_mine"), {}, (PROD, "rs_mine")),
        ((), {"RARESTREAM_KEY": "rs_mine"}, (PROD, "rs_mine")),
        (("--url", TRIAL), {}, (TRIAL, None)),
        ((), {"RARESTREAM_URL": TRIAL}, (TRIAL, None)),
        (("--url", TRIAL, "--key", "rs_mine"), {}, (TRIAL, "rs_mine")),
    ],
)
def test_options_and_variables_win_and_a_key_stays_with_its_url(
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    expected: tuple[str, str | None],
) -> None:
    made()
    clients = []

    def refuse(url: str, key: str | None, **_: Any) -> Any:
        clients.append((url, key))
        raise CommandFailed("no client")

    monkeypatch.setattr(options_service, "open_client", refuse)
    for command in (("list",), ("show", "a"), ("groups",), ("groups", "create", "g", "a", "b"), ("algorithms",)):
        assert run(*command, *arguments, **environment).exit_code == ExitStatus.FAILED
        assert clients.pop() == expected, command
    assert clients == []


def test_without_a_context_commands_call_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    made()
    assert run("context", "remove", "prod").exit_code == 0
    clients = []
    monkeypatch.setattr(options_service, "open_client", lambda url, key, **_: clients.append((url, key)))
    run("list")
    assert clients == [(options_service.DEFAULT_URL, None)]


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("context use nothing", ExitStatus.NOT_FOUND),
        ("context remove nothing", ExitStatus.NOT_FOUND),
        ("context set a", ExitStatus.USAGE),
        ("context set a --url ftp://x", ExitStatus.USAGE),
        ("groups --json create g a b", ExitStatus.USAGE),
    ],
)
def test_what_is_wrong_changes_nothing(path: Path, command: str, status: ExitStatus) -> None:
    made()
    before = path.read_bytes()
    assert run(*command.split()).exit_code == status
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["{", "[]", '{"current": 1}', '{"current": "a", "contexts": {"a": {}}}'])
def test_a_damaged_file_is_reported_by_commands_that_need_it(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(content)
    for command in ("list", "context list", "context use a", "context set a --url x"):
        assert run(*command.split()).exit_code == ExitStatus.USAGE, command
    assert path.read_text() == content
    assert run("keys", "--help").exit_code == run("--help").exit_code == 0
