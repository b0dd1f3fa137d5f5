"""Make a keys file for tests, and an application that requires its keys."""

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

__all__ = ["Clock", "Keyring", "authorization", "bearer", "create_learners", "keyed"]


def bearer(key: str) -> dict[str, str]:
    """Return the header that carries a key."""
    return {"Authorization": f"Bearer {key}"}


class Keyring:
    """A keys file, and the secret keys of their owners."""

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
        """Add a key to the file and return the header that carries it."""
        with changing(self.path) as entries:
            key, self._keys[name] = new_key(name, scopes, pattern, Limits(**limits), expires)  # type: ignore[arg-type]
            entries.append(key)
        return self[name]

    def __getitem__(self, name: str) -> dict[str, str]:
        return bearer(self._keys[name])

    def secret(self, name: str) -> str:
        """Return the secret key, which only its owner may see."""
        return self._keys[name]

    def id_of(self, name: str) -> str:
        """Return the public part of a key."""
        return self._keys[name].split("_")[1]

    def drop(self, name: str) -> None:
        """Remove a key from the file."""
        with changing(self.path) as entries:
            entries[:] = [item for item in entries if item.name != name]


@asynccontextmanager
async def keyed(ring: Keyring, **settings: Any) -> AsyncIterator[tuple[Any, httpx.AsyncClient]]:
    """Start an application that requires the keys of the file; the client sends none by default."""
    async with application(Settings(store="memory:", keys=str(ring.path), **settings), "/v1") as running:
        yield running


class Clock:
    """A clock that only the test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def create_learners(http: httpx.AsyncClient, key: dict[str, str], *names: str) -> None:
    """Create learners of three dense features and teach each ten events."""
    for name in names:
        assert (await http.put(f"/learners/{name}", json=DENSE, headers=key)).status_code == 201
        reply = await http.post(f"/learners/{name}/update", json={"events": events(10)}, headers=key)
        assert reply.status_code == 200


def authorization(key: dict[str, str]) -> list[tuple[bytes, bytes]]:
    """Return the header that carries a key, as ASGI has it."""
    return [(b"authorization", key["Authorization"].encode())]
