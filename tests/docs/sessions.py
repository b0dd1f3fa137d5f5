"""A document as a session: its blocks run in order against one service, in a folder of its own.

    sh       run by bash, as printed
    python   executed, all blocks of a document in one namespace; one that begins with "# learners/.../NAME.py" is put
             there instead, and the session's services and tests find it as a module of the library
    http     sent: a method and a path, then, after an empty line, the body as JSON
    json     the last reply: its members are compared with those shown; they have to be equal, numbers to the digits
             that are shown, but for what is measured

In a `json` block a member "..." stands for further members, "..." at the end of a list for further entries. The
address that documents show, localhost:8000 or 127.0.0.1:8000, is that of the session's service; port 8001 is for a
second one. localhost:6379 is a Redis server that is there for the session, where a document names it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.docs.documents import ROOT, Block
from tests.harness.process import Process, free_port
from tests.harness.redis_server import RedisServer

__all__ = ["RUN", "Differs", "Session", "compare", "programs"]

RUN = ("sh", "python", "http", "json")  # languages of blocks that are run
_VARY = frozenset({"birth", "request_id", "digest", "time_iso", "redis:payments"})  # strings that are others each time
_MEASURED = frozenset(  # numbers that are others each time, or on another machine: by where they stand
    [
        "/clock",
        "/expires",
        "/history/0/time",
        "/history/1/time",
        "/kernels/all",
        "/kernels/compiled",
        "/kernels/waiting",
        "/seconds",
        "/since_start/label_delay_median",
        "/since_start/label_delay_p90",
        "/time",
        "/window/label_delay_median",
        "/window/label_delay_p90",
    ]
)
_FILE = re.compile(r"# (learners/[\w/]+\.py)\n")  # the first line of a python block that is a file, not a program
_SECONDS = 300.0  # that one block may take


class Differs(Exception):
    """A reply is not as its document shows it."""


def compare(expected: Any, actual: Any, at: str = "") -> None:
    """Raise `Differs` if a reply has other members than the one shown, other types, or other strings."""
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            raise Differs(f"{at or '/'} is {actual!r}; an object is shown")
        named = expected.keys() - {"..."}
        missing, more = named - actual.keys(), actual.keys() - named
        if missing or (more and "..." not in expected):
            raise Differs(f"{at or '/'}: {sorted(missing)} are shown and not there, {sorted(more)} there and not shown")
        for name in named:
            if name not in _VARY:
                compare(expected[name], actual[name], f"{at}/{name}")
    elif isinstance(expected, list):
        if not isinstance(actual, list):
            raise Differs(f"{at} is {actual!r}; a list is shown")
        listed = expected[:-1] if expected[-1:] == ["..."] else expected
        if len(actual) < len(listed) or (len(actual) > len(listed) and listed is expected):
            raise Differs(f"{at} has {len(actual)} entries; {len(listed)} are shown")
        for i, item in enumerate(listed):
            compare(item, actual[i], f"{at}/{i}")
    elif isinstance(expected, (int, float)) and not isinstance(expected, bool):
        if isinstance(actual, bool) or not isinstance(actual, (int, float)):
            raise Differs(f"{at} is {actual!r}; a number is shown")
        if at not in _MEASURED and not _same(expected, actual):
            raise Differs(f"{at} is {actual!r}; {expected!r} is shown")
    elif expected != actual:
        raise Differs(f"{at} is {actual!r}; {expected!r} is shown")


def _same(expected: float, actual: float) -> bool:
    """Whether a number is the one shown, to the digits that are."""
    exponent = Decimal(repr(expected)).as_tuple().exponent  # of the last digit
    return isinstance(exponent, int) and abs(actual - expected) <= 0.51 * 10.0**exponent


class Session:
    """One document's. `started`: a service of these settings is there at the start; else a block starts one."""

    def __init__(self, folder: Path, *, started: bool, **settings: object) -> None:
        self.folder = folder
        self.reply: Any = None  # the last JSON that came back
        self._refused: Block | None = None  # whose refusal is not shown yet
        self._service = Process(f"sqlite:///{folder / 'rarestream.db'}", folder / "service.log", **settings)
        self.url = self._service.url
        self._second = str(free_port())
        self._redis: RedisServer | None = None
        self._started = started
        self.names: dict[str, Any] = {"__name__": "__session__"}  # that its python has given
        self._shells: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(programs(folder)), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "RARESTREAM_PORT": str(self._service.port),
            "RARESTREAM_URL": self.url,
            "XDG_CONFIG_HOME": str(folder / "config"),
        }

    def run(self, block: Block) -> None:
        """Carry out a block of one of `RUN`. Raises what its code raises, `Differs`, or RuntimeError with the output.

        `Differs` as well where the request before was refused, and its refusal is not what is shown now.
        """
        if block.language != "json":
            self.finish()
        getattr(self, f"_{block.language}")(block)

    def finish(self) -> None:
        """After the last block. Raises `Differs` where the last request was refused, and that is not shown."""
        if self._refused is not None:
            raise Differs(f"{self._refused.place} is refused, and no refusal is shown: {self.reply}")

    def _localised(self, text: str) -> str:
        text = re.sub(r"(localhost|127\.0\.0\.1):8000", f"127.0.0.1:{self._service.port}", text)
        if "localhost:6379" in text:
            if self._redis is None:
                self._redis = RedisServer()
                self._redis.__enter__()
            text = text.replace("localhost:6379", f"127.0.0.1:{self._redis.port}")
        return re.sub(r"localhost:8001|--port 8001", lambda match: match[0].replace("8001", self._second), text)

    def _sh(self, block: Block) -> None:
        printed, errors = self.folder / "printed.txt", self.folder / "said.txt"
        with printed.open("wb") as out, errors.open("wb") as err:
            shell = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", self._localised(block.text)],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,  # files: a service in the background holds them open
                stderr=err,
                start_new_session=True,
            )
            self._shells.append(shell)
            status = shell.wait(_SECONDS)
        if status:
            raise RuntimeError(f"{block.place} ended with {status}: {printed.read_text()}\n{errors.read_text()}")
        self.reply = _last_document(printed.read_text())

    def _python(self, block: Block) -> None:
        file = _FILE.match(block.text)
        if file is not None:
            path = self.folder / file[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text[file.end() :])
            return
        with contextlib.chdir(self.folder):
            exec(compile(self._localised(block.text), block.place, "exec"), self.names)

    def _http(self, block: Block) -> None:
        head, _, body = block.text.partition("\n\n")
        method, _, path = head.strip().partition(" ")
        content: dict[str, Any] = {}
        if body:
            json.loads(body)  # what is shown is JSON, whatever the service would take
            content = {"content": body, "headers": {"content-type": "application/json"}}
        reply = httpx.request(method, self.url + path, **content, timeout=_SECONDS, trust_env=False)
        self.reply = reply.json()
        if reply.is_error:
            self._refused = block

    def _json(self, block: Block) -> None:
        expected = json.loads(block.text)
        try:
            compare(expected, self.reply)
        except Differs as error:
            raise Differs(f"{block.place}: {error}") from None
        if "code" in expected:
            self._refused = None

    def __enter__(self) -> Self:
        if self._started:
            self._service.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._service.kill()
        if self._redis is not None:
            self._redis.__exit__(kind, error, trace)
        for shell in self._shells:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()


def programs(folder: Path) -> Path:
    """Make a folder of programs that precede those of PATH.

    `rarestream` and `pytest` are of this very code, with the document's own learners where it has some; what a curl is
    refused ends its block.
    """
    auc_folder = folder / "learners" / "algorithms" / "auc"
    extended = f'exec "{sys.executable}" -c "import sys; from learners.algorithms import auc; '
    extended += f"auc.__path__.append({str(auc_folder)!r}); "
    scripts = {
        "rarestream": f'if [ -d "{auc_folder}" ]; then {extended}from service.cli.main import main; main()" "$@"; fi\n'
        f'exec "{sys.executable}" -m service "$@"',
        "pytest": f'cd "{ROOT}"; {extended}import pytest; '
        'sys.exit(pytest.main(sys.argv[1:]))" -n 0 -p no:cacheprovider "$@"',
        "curl": 'case "$1" in -sf) ;; *) set -- --fail-with-body -sS "$@" ;; esac\n'
        f'PATH="{os.environ["PATH"]}" exec curl --noproxy "*" "$@"',
    }
    programs = folder / "bin"
    programs.mkdir()
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    return programs


def _last_document(text: str) -> Any:
    """Return the last JSON object in printed text, or None."""
    last, at = None, text.find("{")
    while at >= 0:
        try:
            last, end = json.JSONDecoder().raw_decode(text, at)
        except ValueError:
            end = at + 1
        at = text.find("{", end)
    return last
