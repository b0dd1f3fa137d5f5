"""Where logs, snapshots and served events live: the promises every store keeps, and `open_store(url)`.

A store knows nothing of learners: a record, a snapshot and an event are bytes to it. What it gives is order and
durability.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from service.errors import LearnerGone
from service.names import called_in_full

__all__ = [
    "OPERATIONS",
    "ExpiredEvents",
    "LogEntry",
    "LogHead",
    "LogNotice",
    "NewestSnapshot",
    "ServeReceipt",
    "ServedCounts",
    "ServedEvent",
    "ServedLimits",
    "SharedStore",
    "SnapshotInfo",
    "Store",
    "open_store",
]

MAX_POSITION = 2**53  # a whole number that every JSON parser and Lua read exactly
REPLY_BYTES = 8 * 2**20  # `append` and `read` return no further entry when their data would exceed this; one always
RECORD_BYTES = 2**29 - 2**16  # of one record: Redis takes no longer string, nor SQLite one twice as long
SNAPSHOT_PART = 16 * 2**20  # bytes: larger snapshots are stored in parts, so that appends pass between them
DROPS = (
    4096  # so many served events, beyond as many as came, does one `serve` drop: bounds that shrank are met in steps
)
IDS = 1000  # looked up or forgotten in one step, so that appends pass between them
NOTICES = 1000  # the last so many times that somebody rang are kept, at least, for those who have not heard yet


# What every store says in the same words.
URL_FORMS = (
    "a store's URL is sqlite:///relative.db, sqlite:////absolute.db, redis://host:port/db, "
    "redis+sentinel://host:port,host:port/db?master=name, redis+cluster://host:port,host:port (each also as rediss, "
    "with TLS) or memory:"
)
ONE_WAY = "acks is {acks}, which is a setting of Redis stores: SQLite always waits for its disk; leave it at memory"
CLOSED = "the store is closed"
GONE = "{log} was deleted, or deleted and created anew"
BEHIND = "position {after} of {log} is behind its log, which was trimmed up to {trimmed}"
AHEAD = "position {after} of {log} is ahead of its log, which ends at {head}: the store lost records"
OTHER = "record {after} in the log of {log} is another one by now: the store lost records"


class LogEntry(NamedTuple):
    """One record in a learner's log."""

    position: int  # 1, 2, 3, ... without gaps; the creation record has 1
    token: bytes  # 16 bytes, unique to this record
    data: bytes


class LogHead(NamedTuple):
    """How far a learner's log reaches."""

    birth: bytes  # the token of the creation record: a name that was deleted and created again has another
    position: int  # of the newest record


class SnapshotInfo(NamedTuple):
    """A retained snapshot, without its bytes."""

    position: int
    size: int  # bytes
    time: float  # seconds since the epoch, by the clock of the node that saved it


class LogNotice(NamedTuple):
    """What a node tells the others of one learner."""

    position: int  # how far its log reaches by now, at least; 0: it was deleted
    snapshot: SnapshotInfo | None = None  # one that was saved a moment ago

    def after(self, before: LogNotice | None) -> LogNotice:
        """Both that was told before, by this node or another, and this. A deletion stands whatever comes after it."""
        if before is None:
            return self
        position = max(self.position, before.position) if self.position and before.position else 0
        return LogNotice(position, self.snapshot or before.snapshot)


class ServedEvent(NamedTuple):
    """One served event as it is kept for its label."""

    id: str  # the event's own; no other event that is remembered has it
    time: float  # its event time, seconds since the epoch; NaN: none, and it does not expire
    data: bytes


class ServedLimits(NamedTuple):
    """How much is remembered of one learner."""

    events: int  # at most; and so many of the last that were dropped leave a tombstone
    bytes: int  # of ids (in UTF-8) and data, at most
    before: float  # an event with an earlier time has expired; -inf: none has


class ExpiredEvents(NamedTuple):
    """Served events whose time is over, in served order."""

    upto: int  # where to settle once they are dealt with; numbers ascend in served order, and none is used twice
    events: list[ServedEvent]
    labelled: list[bool]  # which of them have their label
    more: bool  # whether the next ones may have expired, too: these are as many as were asked for, or large


class ServedCounts(NamedTuple):
    """What is remembered of one learner's served events, and what has been dropped since it was created."""

    events: int
    bytes: int  # of ids (in UTF-8) and data
    expired: int  # dropped because their time was over
    evicted: int  # dropped because there was no room


class ServeReceipt(NamedTuple):
    """Where `serve` has logged its record, and what is remembered now."""

    position: int
    before: bytes  # the token of the record before it; empty if that was trimmed and is not known any more
    pending: ServedCounts


class NewestSnapshot(NamedTuple):
    """What a node needs to host a learner: its newest snapshot, and what goes with it."""

    head: int  # position of the newest record
    snapshot: SnapshotInfo | None  # None where there is none
    data: bytes  # the snapshot,
    token: bytes  # and that of the record at its position, empty where it was trimmed
    pending: ServedCounts


class Store(Protocol):
    """The log, the snapshots and the served events of every learner.

    Positions are totally ordered per learner. Any number of processes may use one store at once. Every method raises
    `StoreUnavailable` when the store cannot be reached or written; then nothing is known of the outcome but what a
    later call shows. Methods that name a `birth` raise `LearnerGone` when the learner was deleted, or deleted and
    created anew, since.

    A Redis that fails over, or is put back, may lose what it had acknowledged. So whoever has applied a log up to a
    record names that record's token, `known`: where the log is not the one that led there any more, because it ends
    before or has another record there, `LostRecords` is raised, and nothing is written. Where `known` is empty, or the
    store does not know any more what it trimmed, nothing is compared.
    """

    caution: str | None  # what is amiss with the store's durability, for operators
    certain: bool  # whether `rung` tells of all that other nodes write, though they do not ring

    async def create(self, learner: str, token: bytes, data: bytes) -> LogHead:
        """Start a log with its creation record, durable on return; where the name exists, its present head instead.

        The caller compares `birth` with its token to see which of the two happened.
        """
        ...

    async def append(
        self, learner: str, birth: bytes, records: Sequence[tuple[bytes, bytes]], after: int, known: bytes = b""
    ) -> list[LogEntry]:
        """Append (token, data) records in order, durable on return: every entry after `after`, theirs included.

        Appending is idempotent: a token that already stands after `after` is not appended a second time, so an append
        whose outcome is unknown is repeated with the same token and `after`. The records of one call stand together.
        Where more than a store's reply should carry has gathered, the entries start at `after + 1` but may end
        before the appended record; the caller then reads on. Where the log was trimmed past `after`, nothing is
        appended and `BehindLog` is raised: a late repeat could no longer be told from a new record.

        `known`: the token of the record at `after`.
        """
        ...

    async def read(self, learner: str, birth: bytes, after: int, limit: int, known: bytes = b"") -> list[LogEntry]:
        """Up to `limit` entries after `after`, in order, and fewer where they are large; empty at the end of the log.

        Raises `BehindLog` where the log was trimmed past `after`. `known`: the token of the record at `after`.
        """
        ...

    async def token(self, learner: str, birth: bytes, position: int) -> bytes:
        """The token of the record at a position, to be `known`; empty where that was trimmed and is not known any more.

        Raises `LostRecords` where the log ends before.
        """
        ...

    async def head(self, learner: str) -> LogHead | None:
        """How far a learner's log reaches; None where there is no learner of this name."""
        ...

    async def heads(self) -> dict[str, LogHead]:
        """Every learner by name and how far its log reaches."""
        ...

    async def delete(self, learner: str, birth: bytes) -> None:
        """Remove the log, the snapshots and the served events, durable on return."""
        ...

    async def save(
        self, learner: str, birth: bytes, position: int, snapshot: bytes, keep: int, trim: bool, known: bytes = b""
    ) -> SnapshotInfo | None:
        """Keep a snapshot of the state after `position`, durable on return, and forget all but the newest `keep`.

        As `snapshots` gives it; None where it is not kept, as so many newer ones are, or the log that would lead on
        from it is trimmed.

        With `trim`, the log up to and including the oldest retained snapshot's position goes too, in the same
        atomic step: the log and the snapshots never leave a hole between them. `known`: the token of the record at
        `position`.
        """
        ...

    async def load(self, learner: str, birth: bytes, position: int | None = None) -> tuple[int, bytes] | None:
        """The snapshot at `position`, or the newest; None where there is none."""
        ...

    async def snapshots(self, learner: str, birth: bytes) -> list[SnapshotInfo]:
        """The retained snapshots, newest first."""
        ...

    async def load_newest(self, learner: str, birth: bytes) -> NewestSnapshot:
        """What `head`, `snapshots`, `load`, `token` and `pending` give of the newest snapshot, and at once.

        Of what was appended before the call the snapshot has all, or the head tells. Raises `LostRecords` where the log
        ends before the snapshot.
        """
        ...

    async def lease(self, learner: str, birth: bytes, node: bytes, seconds: float) -> bool:
        """Whether this node may take the learner's snapshots for so many seconds from now; 0 seconds let go of it.

        At most one node holds a claim. It holds it until that runs out, extends it or lets go of it; another's is
        never touched. Nothing depends on it but work that is done once instead of by every node: two nodes that
        save a snapshot harm nothing.
        """
        ...

    async def publish(self, node: bytes, moved: Mapping[str, LogNotice]) -> None:
        """Tell the other nodes what has moved, by the learners' names. Not durable, and nobody may rely on it.

        A store that shows by itself that others have written keeps nothing of it.
        """
        ...

    async def poll(self, node: bytes, after: bytes, seconds: float) -> tuple[bytes, dict[str, LogNotice] | None]:
        """What other nodes have told since `after`, as soon as there is anything, or nothing in so many seconds.

        With it comes where to listen on from; it may be there early, without anything. None: anything may have
        moved, as at first, when `after` is empty, and where the store does not know, or not any more, what was told.
        It keeps no other call waiting.
        """
        ...

    async def serve(
        self,
        learner: str,
        birth: bytes,
        record: tuple[bytes, bytes],
        after: int,
        remembered: Sequence[ServedEvent],
        bounds: ServedLimits,
    ) -> ServeReceipt:
        """Append one (token, data) record and remember served events, in one atomic step, durable on return.

        Idempotent: where the token stands in the log, nothing is appended, remembered or dropped, so a call whose
        outcome is unknown is repeated with the same token and `after`, which is how far the caller has read. Where the
        log was trimmed past that, `BehindLog` is raised as by `append`. Whoever follows the log reads the record there,
        or knows by the receipt that it comes next.

        An id that is remembered, or has a tombstone, is remembered anew: its latest data, in the latest place. Events
        are dropped in the order in which they were served, as long as the oldest one has expired or there are more
        than `bounds` allows: so an event waits for those that were served before it, whatever its time says. One
        call drops `DROPS` more than came, at most; where `bounds` shrank, the next calls go on. Neither snapshots nor
        what they trim from the log touch what is remembered.

        What is dropped leaves a tombstone: its id, by which `recall` knows it. The last `bounds.events` that were
        dropped have one; of the older ones, too, one call removes `DROPS` more than came, at most.

        Time is linear in the events that came and those that were dropped.
        """
        ...

    async def recall(self, learner: str, birth: bytes, ids: Sequence[str]) -> list[ServedEvent | bool | None]:
        """For each id, in order, what was served: True where only a tombstone is left, None where nothing is known.

        `IDS` at a time are looked up at the same moment. The answer carries all of them, however large.
        """
        ...

    async def expired(self, learner: str, birth: bytes, before: float, limit: int, after: int = 0) -> ExpiredEvents:
        """Up to `limit` remembered events after the learner's cursor, and after number `after`, whose time is earlier
        than `before`, oldest served first, up to the first that has not expired, and fewer where they are large.

        Those that have their label are among them: also for these the ones behind wait. `upto` is the number of the
        last one, or where the search began if there is none. Nothing is dropped and the cursor stays: the caller deals
        with them (assumes the labels that lack), then lets the store `settle`. So what is dealt with twice, after a
        crash or by two nodes, is known to the caller alone. What was dropped is passed over.

        Time is linear in the events given, however many are settled (but in the store in memory).
        """
        ...

    async def settle(self, learner: str, birth: bytes, upto: int) -> None:
        """Move the learner's cursor to `upto`, as `expired` gave it, and never back; durable on return.

        What was served up to there is not given by `expired` any more. It stays remembered until `bounds` drop it; an
        id that is served again comes after the cursor, being remembered anew. Idempotent.
        """
        ...

    async def reopen(self, learner: str, birth: bytes) -> None:
        """Move the learner's cursor back to the beginning; durable on return. Idempotent."""
        ...

    async def labelled(self, learner: str, birth: bytes, ids: Sequence[str]) -> None:
        """The labels of these have come: `expired` says so from now on; durable on return.

        They stay remembered. An id that is not is passed over. `IDS` at a time are one atomic step. Idempotent.
        """
        ...

    async def pending(self, learner: str, birth: bytes) -> ServedCounts:
        """How much is remembered."""
        ...

    async def close(self) -> None:
        """Finish what was begun, release files and sockets."""
        ...


@runtime_checkable
class SharedStore(Store, Protocol):
    """A store that machines share: it knows which nodes are alive."""

    async def meet(self, node: str, address: str | None, seconds: float) -> dict[str, str]:
        """This node is alive for so many seconds more: the address of every node that is, by id, its own among them.

        `address` None: it is not; the others.
        """
        ...

    async def leave(self, node: str) -> None:
        """This node is not alive any more."""
        ...

    async def key(self, known: bytes) -> bytes:
        """What all nodes over this store know and nobody else: what stands there, or else from now on what is `known`.

        So a store that lost it has it back from whoever asks first.
        """
        ...


async def gathered(store: Store, learner: str, birth: bytes) -> NewestSnapshot:
    """`Store.kept` of a store that has no quicker way: one call after the other."""
    pending = await store.pending(learner, birth)
    while True:
        head = await store.head(learner)
        if head is None or head.birth != birth:
            raise LearnerGone(GONE.format(log=called_in_full(learner)))
        retained = await store.snapshots(learner, birth)
        if not retained:
            return NewestSnapshot(head.position, None, b"", b"", pending)
        position = retained[0].position
        # before the snapshot: should the log change in between, the token is that of the old one
        token = await store.token(learner, birth, position)
        found = await store.load(learner, birth, position)
        if found is not None:  # else newer ones have pushed it out
            return NewestSnapshot(head.position, retained[0], found[1], token, pending)


def together(told: Iterable[Mapping[str, LogNotice]]) -> dict[str, LogNotice]:
    """What was told one after the other, as one."""
    found: dict[str, LogNotice] = {}
    for moved in told:
        for learner, one in moved.items():
            found[learner] = one.after(found.get(learner))
    return found


def latest(remembered: Sequence[ServedEvent]) -> list[ServedEvent]:
    """Each id once: what came of it last, in its place."""
    if len({event.id for event in remembered}) == len(remembered):
        return list(remembered)
    by_id: dict[str, ServedEvent] = {}
    for event in remembered:
        by_id.pop(event.id, None)
        by_id[event.id] = event
    return list(by_id.values())


def in_steps(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """`IDS` ids at a time; one empty step where there are none, which finds whether the learner is there."""
    for start in range(0, max(len(ids), 1), IDS):
        yield ids[start : start + IDS]


OPERATIONS = tuple(
    name for name, member in vars(Store).items() if inspect.iscoroutinefunction(member) and name != "close"
)  # names of the store's operations, for their timings


async def open_store(url: str, acks: str = "memory") -> Store:
    """The store that `url` names, in one of the forms of `URL_FORMS`; nothing in `memory:` survives the process.

    `acks`: what a Redis store waits for before it says that something is durable (`service.storage.redis.durability`);
    the others have one way, and take the default only.

    A Redis store opens whether or not Redis answers; where it answers and cannot give what `acks` asks for, that is a
    `ValueError` that says what to change. An SQLite file is opened or made here, else `StoreUnavailable` says what
    stands in the way. Another URL is a `ValueError` that lists the forms and shows nothing of the URL, which may hold a
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
        raise ValueError(ONE_WAY.format(acks=acks))
    if sqlite:
        from service.storage.sqlite import SqliteStore

        return await SqliteStore.open(rest.removeprefix("///"))
    from service.storage.memory import MemoryStore

    return MemoryStore()
