"""The listening socket, its URL and the line that announces it. Quick to import: the supervisor needs it, too."""

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
    "NOBODY",
    "CannotListen",
    "CannotServe",
    "WrongSettings",
    "announce",
    "listen",
    "mask_passwords",
    "process_age",
    "url_of",
    "warn",
]

logger = logging.getLogger("rarestream.server")

NOBODY = 2**62  # connections of a process that accepts none, as the other processes of the port see it
_IMPORTED = time.monotonic()


class CannotListen(CommandFailed):
    """The address cannot be listened on."""


class CannotServe(CommandFailed):
    """The service did not start."""


class WrongSettings(CannotServe):
    """The service did not start because of its settings; nothing was tried."""

    exit_status = ExitStatus.USAGE


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 takes a free port. `::` takes IPv4 connections, too. Raises `CannotListen`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    dual_stack = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((host, port), family=family, backlog=2048, dualstack_ipv6=dual_stack)
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            reason = "another program is listening there; choose a free port with --port"
        raise CannotListen(f"cannot listen on {host}:{port}: {reason}") from None


def url_of(listener: socket.socket, *, tls: bool = False) -> str:
    """Return the URL of the service for this machine."""
    host, port = listener.getsockname()[:2]
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    scheme = "https" if tls else "http"
    return f"{scheme}://[{reached}]:{port}" if ":" in reached else f"{scheme}://{reached}:{port}"


def process_age() -> float:
    """Return the seconds since this process started, or since this import if the system does not tell."""
    try:
        stat = Path("/proc/self/stat").read_text()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        started = int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")  # 22nd field; the 2nd has spaces
    except (OSError, ValueError, IndexError):
        return time.monotonic() - _IMPORTED
    return uptime - started


def warn(settings: Settings, warnings: Sequence[str]) -> None:
    """Print warnings, or log them if the log is JSON, because both streams may go to one place."""
    for text in warnings:
        if settings.log_format == "json":
            logger.warning(text)
        else:
            print(f"warning: {text}", file=sys.stderr, flush=True)


def announce(settings: Settings, url: str, *, as_json: bool = False) -> None:
    """Announce that the service is ready: on standard output, or in the log if that is JSON.

    `as_json`: print a document in one line for programs, too.
    """
    store = mask_passwords(settings.store)
    if as_json:
        document = {"url": url, "pid": os.getpid(), "store": store, "workers": settings.workers}
        print(json.dumps(document), flush=True)
    message = (
        f"rarestream is ready in {process_age():.1f} s: {url} (dashboard), {url}/docs, store {store}"
        f"{f', {settings.workers} workers' if settings.workers > 1 else ''}"
    )
    if settings.log_format == "json":
        logger.info(message)
    elif not as_json:
        print(message, flush=True)


def mask_passwords(store: str) -> str:
    """Mask the passwords of a store's URL, before the host and in the query."""

    def masked(option: re.Match[str]) -> str:
        return f"{option[1]}=***" if unquote_plus(option[1]).endswith("password") else option[0]

    password = urlsplit(store).password
    if password:
        store = store.replace(f":{password}@", ":***@")
    return re.sub(r"(?<=[?&])([^=&#]*)=[^&#]*", masked, store)
