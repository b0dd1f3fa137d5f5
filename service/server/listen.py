"""The socket that a node listens on, and what is said of it: what a process needs that serves nothing itself, too.

Nothing here is slow to import, or large.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote_plus, urlsplit

from service.exits import CommandFailed, ExitStatus
from service.settings import Settings

__all__ = [
    "CannotListen",
    "CannotServe",
    "WrongSettings",
    "announce",
    "listen",
    "process_age",
    "shown",
    "url_of",
    "warn",
]

logger = logging.getLogger("rarestream.server")

_IMPORTED = time.monotonic()


class CannotListen(CommandFailed):
    """The address cannot be listened on."""


class CannotServe(CommandFailed):
    """The service did not start."""


class WrongSettings(CannotServe):
    """The service did not start, by settings that cannot be: nothing was tried."""

    exit_status = ExitStatus.USAGE


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one. Raises `CannotListen`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            reason = "another program is listening there; choose a free port with --port"
        raise CannotListen(f"cannot listen on {host}:{port}: {reason}") from None


def url_of(listener: socket.socket, *, tls: bool = False) -> str:
    """Where the service is reached, from this machine."""
    host, port = listener.getsockname()[:2]
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    scheme = "https" if tls else "http"
    return f"{scheme}://[{reached}]:{port}" if ":" in reached else f"{scheme}://{reached}:{port}"


def process_age() -> float:
    """Seconds since this process was started; where the system does not tell, since this module was imported."""
    try:
        stat = Path("/proc/self/stat").read_text()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        started = int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")  # 22nd field; the 2nd has spaces
    except (OSError, ValueError, IndexError):
        return time.monotonic() - _IMPORTED
    return uptime - started


def warn(settings: Settings, warnings: Sequence[str]) -> None:
    """Tell of what may be a mistake; in the log where that is JSON, as both streams may go to one place."""
    for text in warnings:
        if settings.log_format == "json":
            logger.warning(text)
        else:
            print(f"warning: {text}", file=sys.stderr, flush=True)


def announce(settings: Settings, url: str, *, as_json: bool = False) -> None:
    """Say that it is ready: on standard output, or in the log where that is JSON.

    `as_json`: to a program, which gets a document on standard output, in one line, besides.
    """
    if as_json:
        document = {"url": url, "pid": os.getpid(), "store": shown(settings.store), "workers": settings.workers}
        print(json.dumps(document), flush=True)
    message = (
        f"rarestream is ready in {process_age():.1f} s: {url} (dashboard), {url}/docs, store {shown(settings.store)}"
        f"{f', {settings.workers} workers' if settings.workers > 1 else ''}"
    )
    if settings.log_format == "json":
        logger.info(message)
    elif not as_json:
        print(message, flush=True)


def shown(store: str) -> str:
    """A store's URL as it may be printed: without its passwords, before the host or in the query."""

    def masked(option: re.Match[str]) -> str:
        return f"{option[1]}=***" if unquote_plus(option[1]).endswith("password") else option[0]

    password = urlsplit(store).password
    if password:
        store = store.replace(f":{password}@", ":***@")
    return re.sub(r"(?<=[?&])([^=&#]*)=[^&#]*", masked, store)
