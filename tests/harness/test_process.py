"""Processes end with the test that started them, even if it fails or they are still starting."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.docs.consoles import Console
from tests.harness import process
from tests.harness.process import Commands, Process


class Failing(Exception):
    """The failure of a test."""


class ObservableProcess(Process):
    """A process whose end can be inspected."""

    started: subprocess.Popen[bytes]

    def launch(self) -> None:
        super().launch()
        assert self._process is not None
        self.started = self._process


def test_commands_still_starting_are_ended() -> None:
    started = []

    def test() -> None:
        with Commands() as start:
            started.extend(start(command, "--store", "memory:", "--port", 0) for command in ("demo", "serve"))
            raise Failing

    with pytest.raises(Failing):
        test()
    assert [item.returncode for item in started] == [-signal.SIGKILL] * 2
    assert all(item.stdout is not None and item.stdout.closed for item in started)


def test_a_console_command_and_its_children_are_ended(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    console = Console(tmp_path / "folder")
    ends = []

    def test() -> None:
        with console.start(f"sleep 600 > {fifo} & sleep 600") as started:
            ends.extend([started, fifo.open("rb")])  # which waits until it is open for writing
            raise Failing

    with pytest.raises(Failing):
        test()
    started, reading = ends
    assert started.returncode == -signal.SIGKILL
    with reading:
        assert reading.read() == b""  # nobody can write there any more


def test_a_service_that_does_not_become_ready_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = ObservableProcess("redis://127.0.0.1:1/0", tmp_path / "log")
    monkeypatch.setattr(process, "_START", 0.0)
    with pytest.raises(TimeoutError, match="ready"):
        service.start()
    assert service.started.returncode == -signal.SIGKILL


def test_waiting_for_a_service_to_end_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = ObservableProcess("memory:", tmp_path / "log")
    service.launch()
    monkeypatch.setattr(process, "_PATIENCE", 0.0)
    with pytest.raises(subprocess.TimeoutExpired):
        service.ended()
    assert service.started.returncode == -signal.SIGKILL
