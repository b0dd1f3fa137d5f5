"""Opens a store by its URL. Imports only the database that the URL names."""

from __future__ import annotations

from service.storage.store_protocol import URL_FORMS, Store

__all__ = ["open_store"]

_ONE_WAY = "acks={acks} applies to Redis stores only: SQLite always waits for its disk; leave acks at memory"


async def open_store(url: str, acks: str = "memory") -> Store:
    """Open the store that `url` names, in one of the forms of `URL_FORMS`. `memory:` does not outlive the process.

    `acks`: what a Redis store waits for before it reports a write as durable (`service.storage.redis.durability`).
    Other stores accept the default only.

    A Redis store opens whether or not Redis answers. If Redis answers but cannot provide what `acks` requires, a
    `ValueError` says what to change. An SQLite file is opened or created here; `StoreUnavailable` says why that
    failed. Any other URL is a `ValueError` that lists the forms. It never shows the URL, which may contain a
    password.
    """
    scheme, _, rest = url.partition(":")
    if scheme in ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"):
        from service.storage.redis import RedisStore

        return await RedisStore.open(url, acks)
    sqlite = scheme == "sqlite" and rest.startswith("///") and rest.strip("/") not in ("", ":memory:")
    if not sqlite and url != "memory:":
        raise ValueError(URL_FORMS)
    if acks != "memory":
        raise ValueError(_ONE_WAY.format(acks=acks))
    if sqlite:
        from service.storage.sqlite import SqliteStore

        return await SqliteStore.open(rest.removeprefix("///"))
    from service.storage.memory import MemoryStore

    return MemoryStore()
