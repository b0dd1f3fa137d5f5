"""Admit or refuse requests: `Guard.admit` returns the `Permissions` of a request's key.

    update, predict, labels -> fast_path/asgi.py       admit(headers, scope, learner)
    other request           -> routes/dependencies.py  a dependency of each route, which declares the required scope
    websocket               -> websocket/handshake.py  admit(headers) of the handshake, Permissions.message

Without keys everybody has the same permissions, `UNRESTRICTED`. Then the main risk is a web page in a local browser.
So pages of other sites may change nothing (CSRF), and a node on loopback accepts no foreign host name (DNS rebinding).

A key is found by its public id, and the hash of its secret is compared in constant time. An unknown id takes as long.
No secret is stored. Each process counts rates alone. About 2 us per request.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from fnmatch import translate
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from service.auth.addresses import network_of, parse_address
from service.auth.keys import BadKeys, Key, Scope, load
from service.auth.permissions import UNRESTRICTED, Bucket, Permissions
from service.errors import ForeignHost, ForeignOrigin, TooManyFailures, Unauthorized
from service.exits import WrongUsage
from service.settings import Settings

__all__ = ["ExposedWithoutKeys", "Guard"]

logger = logging.getLogger("rarestream.guard")

Headers = Iterable[tuple[bytes, bytes]]  # names in lower case, as of ASGI

_LOOK_EVERY = 0.5  # seconds between two looks at the keys file
_LONGEST = 128  # characters of a secret that are hashed: ours has 64
_BURST = 10  # wrong keys of one address that are answered as such,
_FORGIVEN = 1.0  # and how many more each second
_ADDRESSES = 4096  # of which wrong keys are counted; those seen last
_KNOWN_HOSTS = 64  # Host headers that were found to be good
_HOW = "send it as `Authorization: Bearer KEY`, never in the URL"


class ExposedWithoutKeys(WrongUsage):
    """The service would listen on a network address without requiring keys."""


class Guard:
    """Checks keys, hosts and origins of the requests of one application."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the keys file. Raises `BadKeys`. `clock` gives the seconds that limits and failures are counted by."""
        self._clock = clock
        self._path = None if settings.keys is None else Path(settings.keys)
        self._insecure = settings.insecure
        self._nobody = Permissions(None, clock)
        self._nobody.digest = secrets.token_bytes(32)
        self._permissions: dict[str, Permissions] = {}
        self._failures: OrderedDict[str, Bucket] = OrderedDict()
        self._hosts = None if settings.hosts is None else _listed(settings.hosts.lower())
        local = urlsplit(settings.advertise or "//localhost").hostname or "localhost"  # by which other nodes ask
        self._own_hosts = ("localhost", local.rstrip("."))
        self._good_hosts: set[bytes] = set()
        self.origins = _listed(settings.cors_origins or "")
        self._seen: tuple[int, int, int] | None = None  # of the file
        if self._path is not None:
            self._seen = _stamp(self._path)
            self._take(load(self._path))
        self.on = self._path is not None or self._hosts is not None  # whether `admit` has anything to ask

    @property
    def keyed(self) -> bool:
        """Return whether requests need a key."""
        return self._path is not None

    # Where it listens

    def listens(self, address: str) -> str | None:
        """Return a warning about listening on an IP address, if there is one.

        Raises `ExposedWithoutKeys` if other machines could connect without a key.
        """
        self.on = True
        if self.keyed:
            return None
        if _loopback(address):
            if self._hosts is None:
                self._hosts = ()
            return None
        if not self._insecure:
            raise ExposedWithoutKeys(
                f"the service would listen on {address}, where other machines can reach it, "
                "without requiring API keys. "
                "Create a key, `rarestream keys create --keys FILE --name NAME --scope admin`, and serve with "
                "--keys FILE; or use --insecure if a proxy or a firewall restricts access"
            )
        return f"insecure: no API keys are required, so anyone who can reach {address} has full access"

    # Requests

    def admit(
        self,
        headers: Headers,
        scope: Scope | None = None,
        learner: str | None = None,
        client: Sequence[object] | None = None,
        *,
        changes: bool = True,
        counts: bool = True,
        state: MutableMapping[str, Any] | None = None,
    ) -> Permissions:
        """Return the permissions of a request with these headers that needs this scope and accesses this learner.

        `client`: its address and port, as of ASGI. `changes`: whether it may change anything. `counts`: False if
        another node answers the request, and counts it. `state`: of the request; it gets the id of the key for the log,
        even if the request is refused, and what tells its rate limits. If `on` is False, every request has the
        permissions `UNRESTRICTED` without a call. Raises `Unauthorized`, `TooManyFailures`, `RateLimited`, `Forbidden`,
        `UnknownLearner`, `ForeignHost` or `ForeignOrigin`.
        """
        authorization = host = origin = site = b""
        for name, value in headers:
            if name == b"authorization":
                authorization = value if not authorization else b"twice"
            elif name == b"host":
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
        if self._hosts is not None and host not in self._good_hosts:
            self._check_host(host)
        if self._path is None:
            if origin and changes:
                self._check_origin(host, origin, site)
            return UNRESTRICTED
        permissions = self._lookup_permissions(authorization, client)
        if state is not None:
            state["key"] = permissions.id
            if counts and permissions.has_rates:
                state["rate_headers"] = permissions.rate_headers
        if counts:
            permissions.count()
        if scope is not None and scope not in permissions.scopes:
            permissions.need(scope)
        if learner is not None:
            permissions.find(learner)
        return permissions

    def glance(self, headers: Headers, scope: Scope, learner: str) -> Permissions | None:
        """Return the permissions of a request that is allowed, if nothing must be counted and no web page sent it.

        None: call `admit`. So refusals, and requests of keys with limits, are counted once.
        """
        authorization = host = b""
        for name, value in headers:
            if name == b"authorization" and not authorization:
                authorization = value
            elif name == b"host":
                host = value
            elif name in (b"authorization", b"origin", b"sec-fetch-site"):
                return None
        if self._hosts is not None and host not in self._good_hosts:
            try:
                self._check_host(host)
            except ForeignHost:
                return None
        if self._path is None:
            return UNRESTRICTED
        permissions = self._same(authorization)
        if (
            permissions is None
            or not permissions.free
            or scope not in permissions.scopes
            or not permissions.sees(learner)
        ):
            return None
        return permissions

    def _lookup_permissions(self, authorization: bytes, client: Sequence[object] | None) -> Permissions:
        """Return the permissions of the key in an Authorization header."""
        if authorization[:7].lower() != b"bearer ":
            if not authorization:
                raise Unauthorized(f"an API key is required: {_HOW}")
            raise Unauthorized(f"the Authorization header is not a single bearer key: {_HOW}")
        permissions = self._same(authorization)
        if permissions is None:
            self._failed(client)
            raise Unauthorized("the API key is unknown, revoked or expired")
        return permissions

    def _same(self, authorization: bytes) -> Permissions | None:
        """Return the permissions of the key after "Bearer ", if the keys file has it."""
        form, own_id, secret = authorization[7:10] + authorization[22:23], authorization[10:22], authorization[23:]
        # the same work for an id that is not known: a comparison with what no secret has as its hash
        permissions = self._permissions.get(own_id.decode("latin-1"), self._nobody)
        same = hmac.compare_digest(hashlib.sha256(secret[:_LONGEST]).digest(), permissions.digest)
        bearer = authorization[:7].lower() == b"bearer "
        if (
            not same
            or not bearer
            or permissions is self._nobody
            or form != b"rs__"
            or len(secret) > _LONGEST
            or permissions.over
        ):
            return None
        return permissions

    def _failed(self, client: Sequence[object] | None) -> None:
        """Count a wrong key of an address. Raises `TooManyFailures` if there were too many in a short time."""
        address = network_of(str(client[0])) if client else ""
        bucket = self._failures.get(address)
        if bucket is None:
            bucket = self._failures[address] = Bucket(_FORGIVEN, self._clock, _BURST)
            if len(self._failures) > _ADDRESSES:
                self._failures.popitem(last=False)
        self._failures.move_to_end(address)
        wait = bucket.take(1)
        if wait:
            raise TooManyFailures("too many wrong keys from this address", wait)

    def _check_host(self, header: bytes) -> None:
        """Raise `ForeignHost` if the host name is not one of this node. IP addresses are accepted."""
        host = _host_of(header)
        local = host in self._own_hosts or host.endswith(".localhost")
        expected = not header or local or parse_address(host) is not None
        if not expected and not any(re.fullmatch(translate(item), host) for item in self._hosts or ()):
            report = host[:100] or "none that can be read"
            raise ForeignHost(f"the Host is {report!r}; the setting hosts (RARESTREAM_HOSTS) lists the accepted names")
        if len(self._good_hosts) < _KNOWN_HOSTS:
            self._good_hosts.add(header)

    def _check_origin(self, host: bytes, origin: bytes, site: bytes) -> None:
        """Raise `ForeignOrigin` if a page of another site sends the request."""
        if site in (b"same-origin", b"none") or self.same_origin(host, origin):
            return
        raise ForeignOrigin("pages of other sites may not change anything; the setting cors_origins lists exceptions")

    def same_origin(self, host: bytes, origin: bytes) -> bool:
        """Return whether an origin is this host, or listed in the settings."""
        return _same_origin(host, origin) or origin.decode("latin-1").rstrip("/") in self.origins

    # The keys file

    async def watch(self) -> None:
        """Reload the keys file whenever it changes, until cancelled. An unreadable file changes nothing.

        It is read again, because the fault may pass, and logged once.
        """
        report = self._seen
        while self._path is not None:
            await asyncio.sleep(_LOOK_EVERY)
            stamp = _stamp(self._path)  # before it is read: what is written meanwhile shows next time
            if stamp == self._seen:
                continue
            try:
                self._take(await asyncio.to_thread(load, self._path))
            except BadKeys as error:
                if stamp != report:
                    logger.error("cannot reload the keys file, keeping the previous keys: %s", error)
                report = stamp
            else:
                self._seen = stamp
                logger.info("reloaded the keys file: %d keys", len(self._permissions))

    def _take(self, keys: list[Key]) -> None:
        """Replace the keys. A key whose entry is unchanged keeps its counters."""
        before = self._permissions
        self._permissions = {}
        for key in keys:
            expected = before.get(key.id)
            self._permissions[key.id] = (
                expected if expected is not None and expected.key == key else Permissions(key, self._clock)
            )
        for own_id, permissions in before.items():
            permissions.revoked = self._permissions.get(own_id) is not permissions


def _same_origin(host: bytes, origin: bytes) -> bool:
    """Return whether an origin is this host."""
    try:
        return bool(host) and urlsplit(origin.decode("latin-1")).netloc.encode("latin-1") == host
    except ValueError:  # it is no URL
        return False


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a fingerprint that changes with the file; None if there is no file."""
    try:
        actual = os.stat(path)
    except OSError:
        return None
    return actual.st_mtime_ns, actual.st_size, actual.st_ino


def _listed(text: str) -> tuple[str, ...]:
    return tuple(item.strip().rstrip("/") for item in text.split(",") if item.strip())


def _host_of(header: bytes) -> str:
    """Return the name or address in a Host header, without its port."""
    text = header.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".")


def _loopback(address: str) -> bool:
    """Return whether only this machine can reach an IP address."""
    actual = ipaddress.ip_address(address.partition("%")[0])
    mapped = actual.ipv4_mapped if isinstance(actual, ipaddress.IPv6Address) else None
    return (mapped or actual).is_loopback
