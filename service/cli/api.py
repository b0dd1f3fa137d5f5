"""The calls of the HTTP API that the command line makes, over one connection, with patience.

Nearly every call may be repeated safely: creating is by name, updates carry their source's offset or ids, and an event
with an id that is scored again is remembered once. So a call that was refused for the moment (429, 503, a gateway's 502
or 504) or whose outcome is unknown (the connection failed) is made again, after the `Retry-After` that the answer names
or after a pause that doubles, until the patience is over. What may not be repeated is made again only where it is
certain that nothing was done.

It speaks JSON, and imports neither NumPy nor the service: commands start quickly. (`rarestream.client` is for programs,
which have arrays.)
"""

from __future__ import annotations

import re
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, unquote, urlencode

import httpx
import msgspec

from rarestream import __version__
from rarestream.client import HOPS, elsewhere
from service.cli.api_errors import ApiError, Document, decode, refused, unknown, unreachable
from service.cli.suggestions import nearly
from service.exits import WrongUsage

__all__ = ["Api", "ApiError", "Document", "Stopped", "Updated", "UpdatedEach"]

_TRANSIENT = frozenset({429, 502, 503, 504})
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 8.0  # seconds
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})  # never through the proxy that the environment names
_TIMEOUT = 120.0  # seconds: an update waits for its learning, the first ever for the compiler too
_CONNECT = 5.0  # seconds
_SLOW = 3.0  # seconds without the first answer before it is told
_SILENCE = 45.0  # seconds without a word after which a stream is broken: the service sends one each 15
_LISTS = {("learners", "unknown-learner"): "list", ("groups", "unknown-group"): "groups"}  # the commands that list all
_GIVEN_BY = "--url or RARESTREAM_URL: "
_JSON, _FILE = "application/json", "application/octet-stream"


class Stopped(Exception):
    """The wait for another attempt was ended from outside; whether the call was carried out is not known."""


class Updated(msgspec.Struct):
    """What the command line reads of the reply to an update."""

    applied: int
    duplicate: int
    position: int
    relabelled: int = 0
    unknown: int = 0
    expired: int = 0


class UpdatedEach(Updated):
    """The same with what became of each event."""

    results: list[Document] = []


class _Predicted(msgspec.Struct):
    remembered: int
    stale_seconds: float


def _trusting(ca: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(ca)
    except OSError as error:  # of ssl, too
        raise WrongUsage(f"RARESTREAM_CA is {ca}: {error.strerror or error}") from None
    return context


class Api:
    """A service at `url`. A context manager; one call at a time.

    `patience` is how long (seconds) a call goes on failing for the moment before it fails for good. `wait` pauses for
    some seconds and returns True to give up at once (a `threading.Event`'s wait), `notice` is told of each new attempt:
    why, and when. `slow` is called, by another thread, where the first change (PUT), or the first request with events
    (POST), has no answer yet after some seconds: kernels may have to be compiled. `key` goes out as a bearer token, and
    into no message. `timeout` (seconds) is that of one answer. `ca` is a file of certificates that are trusted besides
    those of the system.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        ca: str | None = None,
        timeout: float = _TIMEOUT,
        patience: float = 0.0,
        wait: Callable[[float], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
        notice: Callable[[str, str], None] | None = None,
        slow: Callable[[], None] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._patience = patience
        self._wait = wait or _sleep
        self._clock = clock
        self._notice = notice
        self._slow = slow
        self._answered: set[str] = {"GET", "DELETE"}  # methods that need not be waited for any more
        try:
            parsed = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise WrongUsage(f"{_GIVEN_BY}{url} is not a URL: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise WrongUsage(f"{_GIVEN_BY}{url} is not the URL of a service; expected http://host:port")
        self.url = str(parsed.copy_with(userinfo=b"")).rstrip("/")  # as messages show it, without a password
        if parsed.port is not None and not 0 < parsed.port < 2**16:  # the system would take its last 16 bits
            raise WrongUsage(f"{_GIVEN_BY}{self.url} has the port {parsed.port}; expected 1 to 65535")
        headers = {"User-Agent": f"rarestream-cli/{__version__}"}
        if key:
            if not key.isascii() or not key.isprintable() or " " in key:
                raise WrongUsage(
                    "--key or RARESTREAM_KEY has characters that no key has: spaces, line ends, or others beyond ASCII"
                )
            headers["Authorization"] = f"Bearer {key}"
        self._client = httpx.Client(
            base_url=f"{str(parsed).rstrip('/')}/v1/",
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=min(timeout, _CONNECT)),
            transport=transport,
            verify=True if ca is None else _trusting(ca),
            trust_env=parsed.host not in _LOOPBACK,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    # Learners

    def create(self, name: str, config: Document) -> tuple[Document, bool]:
        """The learner's document, and whether it is new: False where it was there with this configuration."""
        response = self._call("PUT", _path(name), msgspec.json.encode(config))
        return decode(response, Document), response.status_code == httpx.codes.CREATED

    def learners(self, *, figures: bool = False) -> Document:
        """The documents of all that are in memory; the names of those asleep; those that cannot be hosted, and why.

        `figures`: the small figures of each in the place of its settings.
        """
        return self._get("learners?figures=true" if figures else "learners")

    def algorithms(self) -> list[Document]:
        """The catalogue."""
        found: list[Document] = self._get("algorithms")["algorithms"]
        return found

    def learner(self, name: str) -> Document:
        """The learner's document."""
        return self._get(_path(name))

    def change(self, name: str, change: Document) -> Document:
        """The learner's document after a change of its settings."""
        return decode(self._call("PATCH", _path(name), msgspec.json.encode(change)), Document)

    def delete(self, name: str) -> None:
        """Delete the learner."""
        self._call("DELETE", _path(name))

    # Figures

    def metrics(self, name: str) -> Document:
        """The learner's live figures."""
        return self._get(_path(name, "metrics"))

    def history(self, name: str) -> Document:
        """The figures over time."""
        return self._get(_path(name, "metrics/history"))

    def alarms(self, name: str) -> Document:
        """The drift alarms."""
        return self._get(_path(name, "alarms"))

    def weights(self, name: str, top: int) -> Document:
        """The largest weights."""
        return self._get(_path(name, f"weights?top={top}"))

    @contextmanager
    def stream(self, name: str, last: str | None = None) -> Iterator[Iterator[str]]:
        """The lines of the learner's server-sent events, from after the event of the id `last`, or from now.

        Raises `ApiError` where they cannot be had, or break off.
        """
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        timeout = httpx.Timeout(_SILENCE, connect=_CONNECT)
        with self._transported():
            path = _path(name, "metrics/stream")
            with self._streamed(path, headers=headers, timeout=timeout) as response:
                yield response.iter_lines()

    # Groups

    def groups(self) -> Document:
        """The documents of the groups; those that cannot be hosted, and why."""
        return self._get("groups")

    def create_group(self, group: str, learners: list[str]) -> None:
        """Compare these learners on what is sent to the group; no error where it is there with the same learners."""
        self._call("PUT", f"groups/{quote(group, safe='')}", msgspec.json.encode({"learners": learners}))

    def update_group(self, group: str, body: bytes) -> None:
        """Send labelled events, already encoded, to each learner of a group; `body` has a source, or an id for each."""
        self._call("POST", f"groups/{quote(group, safe='')}/update", body)

    def compare(self, group: str) -> Document:
        """The comparison of a group's learners."""
        return self._get(f"groups/{quote(group, safe='')}/compare")

    # Events

    def update(self, name: str, body: bytes, *, repeatable: bool = True) -> Updated:
        """Send labelled events, already encoded. Repeated as needed where `body` has a source, or an id for each."""
        return decode(self._call("POST", _path(name, "update"), body, repeatable=repeatable), Updated)

    def update_each(self, name: str, body: bytes, *, repeatable: bool) -> UpdatedEach:
        """As `update`, with what became of each event."""
        return decode(self._call("POST", _path(name, "update"), body, repeatable=repeatable), UpdatedEach)

    def predict(self, name: str, body: bytes, count: int) -> None:
        """Have `count` events with ids, already encoded, scored and remembered, so that labels may come by id.

        While the store is away the service scores without remembering: then the call is made again, too.
        """
        self._call("POST", _path(name, "predict"), body, lambda said: _remembered(said, count))

    def predict_each(self, name: str, body: bytes, identified: int) -> Document:
        """As `predict`, of events of which so many have an id: the reply."""
        reply = self._call("POST", _path(name, "predict"), body, lambda said: _remembered(said, identified))
        return decode(reply, Document)

    def scored(self, name: str, body: bytes, explain: int | None = None, at_least: int | None = None) -> Document:
        """The reply to events that are to be scored, already encoded."""
        asked = {"explain": explain, "at_least": at_least}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        return decode(self._call("POST", _path(name, "predict") + (query and f"?{query}"), body), Document)

    # States

    def snapshots(self, name: str) -> list[Document]:
        """The retained snapshots, newest first."""
        found: list[Document] = self._get(_path(name, "snapshots"))["snapshots"]
        return found

    def snapshot(self, name: str) -> Document:
        """Take a snapshot."""
        return decode(self._call("POST", _path(name, "snapshots")), Document)

    def restore(self, name: str, position: int) -> Document:
        """Roll back to the snapshot at this position."""
        return decode(self._call("POST", _path(name, f"snapshots/{position}/restore"), repeatable=False), Document)

    def clone(self, name: str, to: str) -> Document:
        """The document of a new learner of the same state."""
        body = msgspec.json.encode({"to": to})
        return decode(self._call("POST", _path(name, "clone"), body, repeatable=False), Document)

    def export(self, name: str, take: Callable[[bytes], object]) -> int:
        """Hand the learner's state to `take` piece by piece; its bytes. Raises `ApiError` where it breaks off."""
        size = 0
        path = _path(name, "export")
        with self._transported(), self._streamed(path) as response:
            for piece in response.iter_bytes():
                take(piece)
                size += len(piece)
        return size

    def import_state(self, name: str, parts: Iterable[bytes]) -> Document:
        """The document of a new learner of the exported state that comes in these parts."""
        with self._transported():
            response = self._client.post(_path(name, "import"), content=parts, headers={"Content-Type": _FILE})
        if not response.is_success:
            raise refused(response, self.url)
        return decode(response, Document)

    # Requests

    def _get(self, path: str) -> Document:
        return decode(self._call("GET", path), Document)

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        check: Callable[[httpx.Response], None] | None = None,
        *,
        repeatable: bool = True,
    ) -> httpx.Response:
        failing_since: float | None = None
        pause = _FIRST_PAUSE
        while True:
            try:
                response = self._once(method, path, body)
                if check is not None:
                    check(response)
                return response
            except ApiError as error:
                if error.lasting or (error.status is not None and error.status not in _TRANSIENT):
                    raise
                if not repeatable and not error.nothing_done:
                    raise unknown(error) from None
                now = self._clock()
                failing_since = now if failing_since is None else failing_since
                delay = pause if error.retry_after is None else error.retry_after
                if now + delay > failing_since + self._patience:
                    if now > failing_since:  # it was tried more than once
                        error.args = (f"{error}\nGiven up after {now - failing_since:.0f} s of trying",)
                    raise
                if self._notice is not None:
                    left = failing_since + self._patience - now
                    self._notice(str(error), f"trying again in {delay:g} s, for {left:.0f} s more")
            if self._wait(delay):
                raise Stopped
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _refused(self, response: httpx.Response, path: str) -> ApiError:
        """What a refusal says; of a learner or group that is not there, those of nearly its name."""
        error = refused(response, self.url)
        kind, _, rest = path.partition("/")
        lists = _LISTS.get((kind, str(error.code)))
        if lists is not None and rest:
            name = unquote(re.split("[/?]", rest)[0])
            with suppress(ApiError):  # the refusal says enough
                found = decode(self._once("GET", kind, None), Document)
                names = {one["name"] for one in found[kind]}.union(found.get("asleep", ())) - {name}
                if near := nearly(name, names):
                    error.args = (f"{error}\nDid you mean {' or '.join(near)}? `rarestream {lists}` shows all.",)
        return error

    def _once(self, method: str, path: str, body: bytes | None) -> httpx.Response:
        headers = {"Content-Type": _JSON} if body is not None else None
        with self._transported(), self._watched(method):
            response = self._client.request(method, path, content=body, headers=headers)
            for _ in range(HOPS):
                if (there := elsewhere(response)) is None:
                    break
                response = self._client.request(method, there, content=body, headers=headers)
        if not response.is_success:
            raise self._refused(response, path)
        return response

    @contextmanager
    def _streamed(self, path: str, **options: Any) -> Iterator[httpx.Response]:
        """The reply to a GET, which has begun and is no refusal."""
        where = path
        for left in range(HOPS, -1, -1):
            with self._client.stream("GET", where, **options) as response:
                there = elsewhere(response) if left else None
                if there is not None:
                    where = there
                    continue
                if not response.is_success:
                    response.read()
                    raise self._refused(response, path)
                yield response
                return

    @contextmanager
    def _watched(self, method: str) -> Iterator[None]:
        """Tell where the first answer to such a request takes long."""
        if self._slow is None or method in self._answered:
            yield
            return
        timer = threading.Timer(_SLOW, self._slow)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
        self._answered.add(method)

    @contextmanager
    def _transported(self) -> Iterator[None]:
        """Raise what httpx does as `ApiError`."""
        try:
            yield
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from None


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _remembered(response: httpx.Response, count: int) -> None:
    """Raise a 503 where fewer than `count` events are remembered for want of the store."""
    said = decode(response, _Predicted)  # fewer are remembered, too, where some are too old for a label
    if said.remembered < count and said.stale_seconds > 0:
        reason = "the service cannot remember what it scores: its store is away"
        raise ApiError(reason, httpx.codes.SERVICE_UNAVAILABLE)


def _path(name: str, what: str = "") -> str:
    return f"learners/{quote(name, safe='')}" + (f"/{what}" if what else "")
