"""Where logs and snapshots live: the promises every store keeps, and `open_store(url)`.

A store knows nothing of learners: a record and a snapshot are bytes to it. What it gives is order and durability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

__all__ = ["Entry", "Head", "SnapshotInfo", "Store", "open_store"]

REPLY_BYTES = 8 * 2**20  # `append` and `read` return no further entry when their data would exceed this; one always
SNAPSHOT_PART = 16 * 2**20  # bytes: larger snapshots are stored in parts, so that appends pass between them

# What every store says in the same words.
URL_FORMS = (
    "a store's URL is sqlite:///relative.db, sqlite:////absolute.db, redis://host:port/db, rediss://host:port/db "
    "or memory:"
)
CLOSED = "the store is closed"
GONE = "the learner {learner} was deleted, or deleted and created anew"
BEHIND = "position {after} of the learner {learner} is behind its log, which was trimmed up to {trimmed}"
AHEAD = "position {after} of the learner {learner} is ahead of its log, which ends at {head}: the store lost records"


class Entry(NamedTuple):
    """One record in a learner's log."""

    position: int  # 1, 2, 3, ... without gaps; the creation record has 1
    token: bytes  # 16 bytes, unique to this record
    data: bytes


class Head(NamedTuple):
    """How far a learner's log reaches."""

    birth: bytes  # the token of the creation record: a name that was deleted and created again has another
    position: int  # of the newest record


class SnapshotInfo(NamedTuple):
    """A retained snapshot, without its bytes."""

    position: int
    size: int  # bytes
    time: float  # seconds since the epoch, by the clock of the node that saved it


class Store(Protocol):
    """The log and the snapshots of every learner.

    Positions are totally ordered per learner. Any number of processes may use one store at once. Every method raises
    `StoreUnavailable` when the store cannot be reached or written; then nothing is known of the outcome but what a
    later call shows. Methods that name a `birth` raise `LearnerGone` when the learner was deleted, or deleted and
    created anew, since.
    """

    async def create(self, learner: str, token: bytes, data: bytes) -> Head:
        """Start a log with its creation record, durable on return; where the name exists, its present head instead.

        The caller compares `birth` with its token to see which of the two happened.
        """
        ...

    async def append(
        self, learner: str, birth: bytes, records: Sequence[tuple[bytes, bytes]], after: int
    ) -> list[Entry]:
        """Append (token, data) records in order, durable on return: every entry after `after`, theirs included.

        Appending is idempotent: a token that already stands after `after` is not appended a second time, so an append
        whose outcome is unknown is repeated with the same token and `after`. The records of one call stand together.
        Where more than a store's reply should carry has gathered, the entries start at `after + 1` but may end
        before the appended record; the caller then reads on. Where the log was trimmed past `after`, nothing is
        appended and `BehindLog` is raised: a late repeat could no longer be told from a new record.
        """
        ...

    async def read(self, learner: str, birth: bytes, after: int, limit: int) -> list[Entry]:
        """Up to `limit` entries after `after`, in order, and fewer where they are large; empty at the end of the log.

        Raises `BehindLog` where the log was trimmed past `after`.
        """
        ...

    async def heads(self) -> dict[str, Head]:
        """Every learner by name and how far its log reaches."""
        ...

    async def delete(self, learner: str, birth: bytes) -> None:
        """Remove the log and the snapshots, durable on return."""
        ...

    async def save(self, learner: str, birth: bytes, position: int, snapshot: bytes, keep: int, trim: bool) -> None:
        """Keep a snapshot of the state after `position`, durable on return, and forget all but the newest `keep`.

        With `trim`, the log up to and including the oldest retained snapshot's position goes too, in the same
        atomic step: the log and the snapshots never leave a hole between them.
        """
        ...

    async def load(self, learner: str, birth: bytes, position: int | None = None) -> tuple[int, bytes] | None:
        """The snapshot at `position`, or the newest; None where there is none."""
        ...

    async def snapshots(self, learner: str, birth: bytes) -> list[SnapshotInfo]:
        """The retained snapshots, newest first."""
        ...

    async def close(self) -> None:
        """Finish what was begun, release files and sockets."""
        ...


async def open_store(url: str) -> Store:
    """The store that `url` names: `sqlite:///relative.db`, `sqlite:////absolute.db`, `redis://host:port/db`,
    `rediss://...`, or `memory:` (tests; nothing survives the process).

    A Redis store opens whether or not Redis answers; an SQLite file is opened or made here, else `StoreUnavailable`
    says what stands in the way. Another URL is a `ValueError` that lists the forms and shows nothing of the URL,
    which may hold a password.
    """
    scheme, _, rest = url.partition(":")
    if url == "memory:":
        from service.store.memory import MemoryStore

        return MemoryStore()
    if scheme == "sqlite" and rest.startswith("///") and rest.strip("/") not in ("", ":memory:"):
        from service.store.sqlite import SqliteStore

        return await SqliteStore.open(rest.removeprefix("///"))
    if scheme in ("redis", "rediss"):
        from service.store.redis import RedisStore

        return RedisStore(url)
    raise ValueError(URL_FORMS)
