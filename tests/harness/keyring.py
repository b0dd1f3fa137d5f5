"""A keys file for tests, and an application that asks for its keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from service.auth.keys import Limits, Scope, changing, new_key
from service.settings import Settings
from tests.harness.apps import DENSE, application, events

__all__ = ["Clock", "Keyring", "authorization", "bearer", "keyed", "made"]


def bearer(key: str) -> dict[str, str]:
    """The header that a key goes out in."""
    return {"Authorization": f"Bearer {key}"}


class Keyring:
    """A keys file, and the keys that only their owners have."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self._keys: dict[str, str] = {}

    def make(
        self,
        name: str,
        *scopes: Scope,
        pattern: str | None = None,
        expires: datetime | None = None,
        **limits: float,
    ) -> dict[str, str]:
        """A new key in the file; the header that it goes out in."""
        with changing(self.path) as there:
            made, self._keys[name] = new_key(name, scopes, pattern, Limits(**limits), expires)  # type: ignore[arg-type]
            there.append(made)
        return self[name]

    def __getitem__(self, name: str) -> dict[str, str]:
        return bearer(self._keys[name])

    def secret(self, name: str) -> str:
        """What nobody but its owner may ever see."""
        return self._keys[name]

    def id_of(self, name: str) -> str:
        """The public part."""
        return self._keys[name].split("_")[1]

    def drop(self, name: str) -> None:
        """Take a key out of the file."""
        with changing(self.path) as there:
            there[:] = [one for one in there if one.name != name]


@asynccontextmanager
async def keyed(ring: Keyring, **settings: Any) -> AsyncIterator[tuple[Any, httpx.AsyncClient]]:
    """An application that asks for the keys of the file, and a client of it that sends none by itself."""
    async with application(Settings(store="memory:", keys=str(ring.path), **settings), "/v1") as found:
        yield found


class Clock:
    """Seconds that go on only when a test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def made(http: httpx.AsyncClient, key: dict[str, str], *names: str) -> None:
    """Make learners of three dense features that have learnt ten events."""
    for name in names:
        assert (await http.put(f"/learners/{name}", json=DENSE, headers=key)).status_code == 201
        reply = await http.post(f"/learners/{name}/update", json={"events": events(10)}, headers=key)
        assert reply.status_code == 200


def authorization(key: dict[str, str]) -> list[tuple[bytes, bytes]]:
    """The header that a key goes out in, as of ASGI."""
    return [(b"authorization", key["Authorization"].encode())]
