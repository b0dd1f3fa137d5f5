"""Hold the connections of a client: one httpx client per process, and per event loop.

A connection that two processes share mixes up their requests and replies, so a forked process opens its own. One of
another event loop cannot be awaited. The connections of the other processes and loops stay open until these end.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any
from weakref import WeakKeyDictionary

import httpx

from rarestream.client.errors import InvalidSetting

__all__ = ["AsyncConnections", "Connections", "check_process"]

_UNUSABLE = (
    "the network settings in the environment cannot be used ({error}): correct NO_PROXY, HTTP_PROXY, HTTPS_PROXY, "
    "ALL_PROXY, SSL_CERT_FILE or SSL_CERT_DIR; IPv6 addresses in NO_PROXY have no brackets"
)


class Connections:
    """The connections of a blocking client. `options` are httpx's. Raises `InvalidSetting` if they are unusable."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._clients: dict[int, httpx.Client] = {os.getpid(): _opened(httpx.Client, options)}  # by process

    @property
    def http(self) -> httpx.Client:
        """The client of this process."""
        if os.getpid() not in self._clients:
            self._clients.setdefault(os.getpid(), _opened(httpx.Client, self._options))
        return self._clients[os.getpid()]

    def close(self) -> None:
        """Close the connections of this process."""
        self.http.close()


class AsyncConnections:
    """The connections of an asynchronous client. `options` are httpx's. Raises `InvalidSetting` as `Connections`."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._first: httpx.AsyncClient | None = _opened(httpx.AsyncClient, options)  # of the first loop, not yet known
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[int, httpx.AsyncClient]] = WeakKeyDictionary()

    @property
    def http(self) -> httpx.AsyncClient:
        """The client of the running event loop, in this process."""
        loop = asyncio.get_running_loop()
        process, client = self._clients.get(loop, (0, None))
        if client is None or process != os.getpid():
            client, self._first = self._first or _opened(httpx.AsyncClient, self._options), None
            self._clients[loop] = os.getpid(), client
        return client

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        await self.http.aclose()


def check_process(process: int) -> None:
    """Raise RuntimeError if this process is not the one that opened a stream."""
    if process != os.getpid():
        raise RuntimeError("the stream was opened by another process, and both would read it; open another one")


def _opened(kind: Any, options: dict[str, Any]) -> Any:
    try:
        return kind(**options)
    except (httpx.InvalidURL, ValueError, ImportError, OSError) as error:
        raise InvalidSetting("network", _UNUSABLE.format(error=f"{type(error).__name__}: {error}")) from None
