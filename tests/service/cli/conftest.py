"""One service for each module of tests of the command line, and `run`, which calls a command against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from typer.testing import CliRunner, Result

from service.cli.main import app
from tests.harness.process import Process


@pytest.fixture(scope="module")
def server_settings() -> Mapping[str, object]:
    """Return the settings of `server`; a module that needs others has a fixture of this name."""
    return {}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, server_settings: Mapping[str, object]) -> Iterator[Process]:
    """Start a service over an empty SQLite file. A module's own fixture `server` adds learners to this one."""
    folder = tmp_path_factory.mktemp("server")
    with Process(f"sqlite:///{folder / 'store.db'}", folder / "log", **server_settings) as process:
        yield process


def run(server: Process | str, *arguments: object, status: int = 0, stdin: str | bytes | None = None) -> Result:
    """Run a command against the service, or its URL, and check its exit status."""
    url = server if isinstance(server, str) else server.url
    result = CliRunner().invoke(app, list(map(str, arguments)), input=stdin, env={"RARESTREAM_URL": url})
    assert result.exit_code == status, result.output
    if arguments[-1] != "-":  # which writes bytes
        assert "\x1b" not in result.output  # no terminal, no escape codes
    return result
