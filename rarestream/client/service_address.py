"""Connection settings for httpx and websockets, and what httpx's errors mean."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from rarestream import __version__
from rarestream.client.errors import InvalidSetting
from rarestream.client.exchange import ApiRequest, ApiResponse, Failure

__all__ = ["SILENCE", "ServiceAddress", "open_timeout", "response_of"]

SILENCE = 45.0  # seconds without a byte after which a live stream counts as broken: the service sends one each 15
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_CONNECT = 5.0  # seconds
_IDLE = 3.0  # seconds a connection is kept; the service closes it after 5, and a request might cross that
_MAX_ANSWER = 2**26  # bytes of one answer of a stream: explanations of many events are long
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_CUT_OFF = (httpx.RemoteProtocolError, httpx.ReadError)  # how a TLS server answers plain HTTP
_NAME_MISMATCH = (62, 64)  # OpenSSL: X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_HANDSHAKE = 2.0  # seconds allowed for the TLS handshake that tests a port


class ServiceAddress:
    """URL, key and connection settings of a service. Raises `InvalidSetting` for an unusable URL or key."""

    def __init__(
        self,
        url: str,
        timeout: float,
        headers: Mapping[str, str] | None,
        verify: ssl.SSLContext | None,
        trust_env: bool,
        key: str | None = None,
    ) -> None:
        url = url.strip()  # files and shells add line ends
        try:
            parsed = httpx.URL(url if "://" in url else f"http://{url}")
        except httpx.InvalidURL as error:
            raise InvalidSetting("url", f"{url!r} is not a URL: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise InvalidSetting("url", f"{url!r} is not the URL of a service; expected http://host:port")
        self.url = _without_password(parsed).rstrip("/")  # for messages
        if parsed.port is not None and not 0 < parsed.port < 2**16:  # the system would take its last 16 bits
            raise InvalidSetting("url", f"{self.url} has the port {parsed.port}; expected 1 to 65535")
        self.timeout = timeout
        self._url = str(parsed).rstrip("/")
        self._headers = {"User-Agent": f"rarestream-python/{__version__}", **(headers or {})}
        if key is not None:
            key = key.strip()
            if not key.isascii() or not key.isprintable() or not key or " " in key:
                detail = "the key contains characters that no key has: spaces, line ends or others beyond ASCII"
                raise InvalidSetting("key", detail)
            self._headers["Authorization"] = f"Bearer {key}"
        self._verify = verify
        self._trust_env = trust_env and parsed.host not in _LOOPBACK

    @property
    def http(self) -> dict[str, Any]:
        """The arguments of httpx's clients."""
        return {
            "base_url": f"{self._url}/v1/",
            "headers": self._headers,
            "timeout": httpx.Timeout(self.timeout, connect=min(self.timeout, _CONNECT)),
            "limits": httpx.Limits(keepalive_expiry=_IDLE),
            "verify": True if self._verify is None else self._verify,
            "trust_env": self._trust_env,
        }

    def arguments(self, request: ApiRequest) -> dict[str, Any]:
        """Return the arguments of httpx's `request`."""
        headers = {"Accept": request.media_type}
        if request.body is not None:
            headers["Content-Type"] = request.media_type
        return {"method": request.method, "url": request.path, "content": request.body, "headers": headers}

    def stream(self, name: str) -> tuple[str, dict[str, Any]]:
        """Return the URL of a learner's websocket, and the other arguments of websockets' `connect`."""
        options: dict[str, Any] = {
            "additional_headers": {key: value for key, value in self._headers.items() if key != "User-Agent"},
            "user_agent_header": self._headers["User-Agent"],
            "compression": None,  # columns of floats do not compress
            "max_size": _MAX_ANSWER,
            "max_queue": None,  # the window bounds it; a bound here could make both sides wait for each other's reading
            "open_timeout": 2 * _CONNECT,
            "proxy": True if self._trust_env else None,
        }
        if self._verify is not None:
            options["ssl"] = self._verify
        return f"ws{self._url.removeprefix('http')}/v1/learners/{quote(name, safe='')}/ws", options

    def failure(self, error: httpx.RequestError) -> Failure:
        """Return why there is no answer, and whether anything was sent. May open a connection to test for TLS."""
        may_have_arrived = not isinstance(error, _NOT_SENT)
        kind = type(error).__name__
        text = f"{'no answer from' if may_have_arrived else 'cannot reach'} {self.url}: {error or kind} ({kind})"
        cause = _ssl_error(error)
        if isinstance(error, _CUT_OFF) and self.url.startswith("http://") and _speaks_tls(self.url):
            hint = f"That port speaks TLS: use https{self.url.removeprefix('http')}"
            return Failure(False, f"{text}\n{hint}", "tls-needed")
        if cause is not None and cause.reason == "WRONG_VERSION_NUMBER":  # OpenSSL's code for an answer without TLS
            hint = f"That port does not speak TLS: use http{self.url.removeprefix('https')}"
            return Failure(False, f"{text}\n{hint}", "tls-missing")
        if isinstance(cause, ssl.SSLCertVerificationError):
            named = cause.verify_code in _NAME_MISMATCH
            return Failure(False, text, "certificate-name" if named else "certificate-untrusted")
        return Failure(may_have_arrived, text)


def open_timeout(read: float) -> httpx.Timeout:
    """Return the time-outs of a stream that may be silent for `read` seconds."""
    return httpx.Timeout(read, connect=_CONNECT)


def response_of(response: httpx.Response) -> ApiResponse:
    """Return httpx's complete response as ours."""
    url = _without_password(response.request.url)
    return ApiResponse(response.status_code, response.headers, response.content, url)


def _without_password(url: httpx.URL) -> str:
    return str(url.copy_with(userinfo=b""))


def _ssl_error(error: BaseException) -> ssl.SSLError | None:
    """Return the error of TLS that caused this one."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return cause


def _speaks_tls(url: str) -> bool:
    """Return whether a TLS handshake with that address succeeds, with any certificate."""
    parts = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=_HANDSHAKE) as connection:
            context.wrap_socket(connection, server_hostname=parts.hostname).close()
    except OSError:  # also ssl.SSLError
        return False
    return True
