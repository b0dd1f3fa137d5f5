"""Opens a store by its URL. Imports only the database that the URL names."""

from __future__ import annotations

from service.storage.store_protocol import URL_FORMS, Store, UnknownOption

__all__ = ["open_store"]

_ONE_WAY = "acks={acks} applies to Redis stores only: SQLite always waits for its disk; leave acks at memory"
_NO_KEYS = "RARESTREAM_STORE_PREFIX applies to Redis stores only: give each service an SQLite file of its own"


async def open_store(url: str, acks: str = "memory", prefix: str | None = None) -> Store:
    """Open the store that `url` names, in one of the forms of `URL_FORMS`. `memory:` does not outlive the process.

    `acks`: what a Redis store waits for before it reports a write as durable (`service.storage.redis.durability`).
    `prefix`: the first part of a Redis store's keys, if its URL does not name one (`service.storage.redis.key_names`).
    Other stores accept the defaults only.

    A Redis store opens whether or not Redis answers. If Redis answers but cannot provide what `acks` requires, a
    `ValueError` says what to change. An SQLite file is opened or created here; `StoreUnavailable` says why that
    failed. Any other URL is a `ValueError` that lists the forms, and names an unknown option. It never shows the URL,
    which may contain a password.
    """
    scheme, _, rest = url.partition(":")
    if scheme in ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"):
        from service.storage.redis import RedisStore

        return await RedisStore.open(url, acks, prefix)
    rest, mark, options = rest.partition("?")
    if scheme in ("sqlite", "memory") and mark:
        raise UnknownOption(options.partition("=")[0])
    sqlite = scheme == "sqlite" and rest.startswith("///") and rest.strip("/") not in ("", ":memory:")
    if not sqlite and url != "memory:":
        raise ValueError(URL_FORMS)
    if acks != "memory":
        raise ValueError(_ONE_WAY.format(acks=acks))
    if prefix is not None:
        raise ValueError(_NO_KEYS)
    if sqlite:
        from service.storage.sqlite import SqliteStore

        return await SqliteStore.open(rest.removeprefix("///"))
    from service.storage.memory import MemoryStore

    return MemoryStore()
