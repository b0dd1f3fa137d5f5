"""Run the command line in a terminal of a given width, as its user sees it."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import sys
import termios
import time
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["TerminalOutput", "in_terminal"]

_PATIENCE = 300.0  # seconds


class TerminalOutput(NamedTuple):
    """What the terminal showed, and the exit status."""

    raw: str
    status: int

    @property
    def text(self) -> str:
        """Return the output without escape codes."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw).replace("\r", "")

    @property
    def escapes(self) -> bool:
        """Say whether the output has escape codes."""
        return "\x1b[" in self.raw


def in_terminal(
    *arguments: str,
    columns: int = 80,
    answer: tuple[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> TerminalOutput:
    """Run the command line to its end. `answer`: the text to wait for, and the keys to type then."""
    ours, theirs = os.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    code = (
        "import os, fcntl, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "os.execv(sys.executable, [sys.executable, '-m', 'service', *sys.argv[1:]])"
    )
    command = [sys.executable, "-c", code, *arguments]
    actions = [(os.POSIX_SPAWN_DUP2, theirs, number) for number in range(3)]
    variables = {**inherited, "TERM": "xterm-256color", **(environment or {})}
    child = os.posix_spawn(sys.executable, command, variables, file_actions=actions)
    os.close(theirs)
    raw, until = b"", time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        if not select.select([ours], [], [], 0.1)[0]:
            continue
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other end is closed: Linux says so by an error
            break
        raw += data
        if answer is not None and answer[0] in raw.decode(errors="replace"):
            os.write(ours, answer[1].encode())
            answer = None
        if not data:
            break
    else:
        os.kill(child, 9)
    os.close(ours)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return TerminalOutput(raw.decode(), status)
