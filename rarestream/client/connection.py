"""How a client connects: what httpx and websockets are given, and what their errors mean."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from rarestream import __version__
from rarestream.client.errors import Refused, Unreachable, error_of
from rarestream.client.requests import Failure, Request

__all__ = ["Connection", "ended", "failed", "opening"]

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_CONNECT = 5.0  # seconds
_IDLE = 3.0  # seconds that a connection is kept; the service closes it after 5, and a request may cross that on its way
_LARGEST = 2**26  # bytes of one answer of a stream: explanations of many events are long
_GONE = 4404  # close code: there is no such learner
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Connection:
    """Where the service is, and how it is spoken to. Raises ValueError for what is no URL of a service."""

    def __init__(
        self,
        url: str,
        timeout: float,
        headers: Mapping[str, str] | None,
        verify: ssl.SSLContext | None,
        trust_env: bool,
        key: str | None = None,
    ) -> None:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise ValueError(f"{url!r} is not a URL: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError(f"{url!r} is not the URL of a service; expected http://host:port")
        if parsed.port is not None and not 0 < parsed.port < 2**16:  # the system would take its last 16 bits
            raise ValueError(f"the port of a URL is {parsed.port}; expected 1 to 65535")
        self.timeout = timeout
        self._url = str(parsed).rstrip("/")
        self._headers = {"User-Agent": f"rarestream-python/{__version__}", **(headers or {})}
        if key is not None:
            if not key.isascii() or not key.isprintable() or not key or " " in key:
                raise ValueError("the key has characters that no key has: spaces, line ends, or others beyond ASCII")
            self._headers["Authorization"] = f"Bearer {key}"
        self._verify = verify
        self._trust_env = trust_env and parsed.host not in _LOOPBACK

    @property
    def http(self) -> dict[str, Any]:
        """What httpx's clients take."""
        return {
            "base_url": f"{self._url}/v1/",
            "headers": self._headers,
            "timeout": httpx.Timeout(self.timeout, connect=_CONNECT),
            "limits": httpx.Limits(keepalive_expiry=_IDLE),
            "verify": True if self._verify is None else self._verify,
            "trust_env": self._trust_env,
        }

    def arguments(self, request: Request) -> dict[str, Any]:
        """What httpx's `request` takes."""
        headers = {"Accept": request.media_type}
        if request.body is not None:
            headers["Content-Type"] = request.media_type
        return {"method": request.method, "url": request.path, "content": request.body, "headers": headers}

    def stream(self, name: str) -> tuple[str, dict[str, Any]]:
        """The URL of a learner's websocket, and what websockets' `connect` takes besides."""
        options: dict[str, Any] = {
            "additional_headers": {key: value for key, value in self._headers.items() if key != "User-Agent"},
            "user_agent_header": self._headers["User-Agent"],
            "compression": None,  # columns of floats do not compress
            "max_size": _LARGEST,
            "max_queue": None,  # the window bounds it; a bound here could make both sides wait for each other's reading
            "open_timeout": 2 * _CONNECT,
            "proxy": True if self._trust_env else None,
        }
        if self._verify is not None:
            options["ssl"] = self._verify
        return f"ws{self._url.removeprefix('http')}/v1/learners/{quote(name, safe='')}/ws", options


def failed(error: httpx.RequestError) -> Failure:
    """There is no answer, or none that can be read: whether anything was sent."""
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, _NOT_SENT):
        return Failure(False, f"the service cannot be reached ({what})")
    return Failure(True, f"the request was not answered ({what})")


def ended(error: ConnectionClosed) -> str:
    """Why a stream is over: what the service said, if it said anything."""
    if error.rcvd is None:
        return "the connection broke"
    return f"the service closed the stream: {error.rcvd.reason or 'without a reason'} ({int(error.rcvd.code)})"


@contextmanager
def opening() -> Iterator[None]:
    """Raise what the opening of a websocket fails with as errors of this package."""
    try:
        yield
    except InvalidStatus as error:
        response = error.response
        told = error_of(response.status_code, response.headers, bytes(response.body))
        if isinstance(told, Refused):
            raise told from None
        raise Unreachable(told.detail, status=told.status, code=told.code, retry_after=told.retry_after) from None
    except ConnectionClosed as error:
        if error.rcvd is not None and error.rcvd.code == _GONE:
            raise Refused(error.rcvd.reason, status=404, code="unknown-learner") from None
        raise Unreachable(f"the stream was not opened: {ended(error)}") from None
    except (OSError, WebSocketException) as error:  # TimeoutError is an OSError
        raise Unreachable(f"the stream cannot be opened ({type(error).__name__}: {error})") from None
