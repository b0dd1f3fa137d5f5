"""Defines what every store promises about logs, snapshots and served events.

A store knows nothing of learners: records, snapshots and events are bytes to it. It provides order and durability.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from service.errors import LearnerGone
from service.names import called_in_full
from service.storage.served_labels import ServedLabel

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
    "ServedPage",
    "SharedStore",
    "SnapshotInfo",
    "Store",
    "UnknownOption",
]

Step = TypeVar("Step")

MAX_POSITION = 2**53  # a whole number that every JSON parser and Lua read exactly
REPLY_BYTES = 8 * 2**20  # limit of the data that `append` and `read` return; they return at least one entry
RECORD_BYTES = 2**29 - 2**16  # largest record: Redis limits strings to 2**29 bytes, SQLite to twice as many
SNAPSHOT_PART = 16 * 2**20  # bytes; larger snapshots are stored in parts, and appends run between the parts
DROPS = 4096  # one `serve` drops at most this many events more than it adds: smaller limits are applied in steps
IDS = 1000  # ids looked up in one step; appends run between the steps
DELETIONS = 10_000  # births of deleted learners that a store remembers, those of the last deletions
NOTICES = 1000  # minimum number of recent publications that a store keeps for slow subscribers


# Messages that all stores share.
URL_FORMS = (
    "a store's URL is sqlite:///relative.db, sqlite:////absolute.db, redis://host:port/db, "
    "redis+sentinel://host:port,host:port/db?master=name, redis+cluster://host:port,host:port (each also as rediss, "
    "with TLS) or memory:"
)
CLOSED = "the store is closed"
LOG_DELETED = "{log} was deleted, or deleted and created anew"
BEHIND = "position {after} of {log} is behind its log, which was trimmed up to {trimmed}"
AHEAD = "position {after} of {log} is ahead of its log, which ends at {head}: the store lost records"
OTHER = "record {after} in the log of {log} was replaced by another one: the store lost records"


class UnknownOption(ValueError):
    """The URL of a store has an option that it does not take."""

    def __init__(self, name: str, accepted: Sequence[str] = ()) -> None:
        """`name`: '' if it is not to be shown. `accepted`: the options that such a URL takes."""
        takes = f"it takes {', '.join(accepted)}" if accepted else "it takes none"
        super().__init__(f"the store's URL has the unknown option {name or '(not shown)'}; {takes}. {URL_FORMS}")


class LogEntry(NamedTuple):
    """One record in a learner's log."""

    position: int  # 1, 2, 3, ... without gaps; the creation record has 1
    token: bytes  # 16 bytes, unique to this record
    data: bytes


class LogHead(NamedTuple):
    """The end of a learner's log."""

    birth: bytes  # token of the creation record; a learner created anew under the same name has another one
    position: int  # position of the newest record


class SnapshotInfo(NamedTuple):
    """A retained snapshot, without its bytes."""

    position: int
    size: int  # bytes
    time: float  # seconds since the epoch, on the clock of the node that saved it


class LogNotice(NamedTuple):
    """What a node announces about one learner's log."""

    position: int  # the log reaches at least this far; 0: it was deleted
    snapshot: SnapshotInfo | None = None  # a snapshot that was just saved

    def merge(self, before: LogNotice | None) -> LogNotice:
        """Combine this notice with an earlier one of any node. A deletion outlasts whatever follows."""
        if before is None:
            return self
        position = max(self.position, before.position) if self.position and before.position else 0
        return LogNotice(position, self.snapshot or before.snapshot)


class ServedEvent(NamedTuple):
    """A served event, stored until its label arrives."""

    id: str  # unique among the stored events
    time: float  # event time, seconds since the epoch; NaN: no time, the event never expires
    data: bytes


class ServedPage(NamedTuple):
    """Some of the served events that are stored, by the order in which they were served."""

    events: list[ServedEvent]
    numbers: list[int]  # of each; the next page begins behind the last one
    labels: list[list[ServedLabel] | None]  # see `Store.labels`
    more: bool  # whether there may be a next page


class ServedLimits(NamedTuple):
    """How many served events a store keeps of one learner."""

    events: int  # most events; also the number of tombstones of dropped events
    bytes: int  # most bytes of ids (in UTF-8) and data
    before: float  # events with an earlier time have expired; -inf: none


class ExpiredEvents(NamedTuple):
    """Served events whose time is over, in served order."""

    upto: int  # argument of `settle` after these are handled; numbers ascend in served order and are never reused
    events: list[ServedEvent]
    labelled: list[bool]  # whether each one has its label
    more: bool  # whether further events may have expired: the limit on number or size was reached


class ServedCounts(NamedTuple):
    """The number of served events stored of one learner, and of those dropped since it was created."""

    events: int
    bytes: int  # bytes of ids (in UTF-8) and data
    expired: int  # dropped because their time was before `ServedLimits.before`
    evicted: int  # dropped because a limit was exceeded


class ServeReceipt(NamedTuple):
    """Where `serve` logged its record, and the counts of served events afterwards."""

    position: int
    before: bytes  # token of the preceding record; empty if that was trimmed and forgotten
    pending: ServedCounts


class NewestSnapshot(NamedTuple):
    """What a node needs to load a learner: its newest snapshot and the data around it."""

    head: int  # position of the newest record
    snapshot: SnapshotInfo | None  # None: there is no snapshot
    data: bytes  # bytes of the snapshot
    token: bytes  # token of the record at the snapshot's position; empty if it was trimmed
    pending: ServedCounts


class Store(Protocol):
    """The log, the snapshots and the served events of every learner.

    Positions are totally ordered per learner. Any number of processes may use one store at once. Every method
    raises `StoreUnavailable` if the store cannot be reached or written. The outcome is then unknown until a later
    call shows it. `StoreFull` is one of these: the store has no room, but `delete`, `prune` and `lease` work on.
    Methods that take a `birth` raise `LearnerGone` if the learner was deleted, or deleted and created anew, since.

    A Redis that fails over, or that is restored from a copy, may lose acknowledged records. Therefore callers pass
    the token of the last record that they applied, `expected_token`. If the log ends earlier, or has another record
    there, `LostRecords` is raised and nothing is written. Nothing is compared if `expected_token` is empty, or if
    the record was trimmed and the store forgot its token.
    """

    caution: str | None  # warning for operators about the store's durability
    fault: str | None  # why the store may delete acknowledged data while it runs, and what to do
    certain: bool  # whether `poll` notices all writes of other nodes, even if they publish nothing

    @property
    def stall(self) -> str | None:
        """Why calls wait, and what to do, if the store answers none of them."""
        ...

    async def create(self, learner: str, token: bytes, data: bytes) -> LogHead:
        """Start a log with its creation record, durable on return; if the name exists, return its present head.

        The caller compares `birth` with its token to see which of the two happened.
        """
        ...

    async def append(
        self,
        learner: str,
        birth: bytes,
        records: Sequence[tuple[bytes, bytes]],
        after: int,
        expected_token: bytes = b"",
        reserve: bool = False,
    ) -> list[LogEntry]:
        """Append (token, data) records in order, durable on return; return every entry after `after`.

        The entries include the appended ones. Appending is idempotent: a token that is already in the log after
        `after` is not appended again. If the outcome of an append is unknown, repeat it with the same tokens
        and `after`. The records of one call are contiguous. If the entries exceed `REPLY_BYTES`, they start at
        `after + 1` but may end before the appended record; the caller then reads on. If the log was trimmed
        past `after`, nothing is appended and `BehindLog` is raised, because a late repetition could not be told
        from a new record.

        `expected_token`: the token of the record at `after`. `reserve`: the records are small, and may take the
        room that a full store keeps in reserve.
        """
        ...

    async def read(
        self, learner: str, birth: bytes, after: int, limit: int, expected_token: bytes = b""
    ) -> list[LogEntry]:
        """Return up to `limit` entries after `after`, in order; fewer if they are large, none at the end.

        Raises `BehindLog` if the log was trimmed past `after`. `expected_token`: the token of the record at
        `after`.
        """
        ...

    async def token(self, learner: str, birth: bytes, position: int) -> bytes:
        """Return the token of the record at a position; empty if it was trimmed and forgotten.

        Raises `LostRecords` if the log ends earlier.
        """
        ...

    async def head(self, learner: str) -> LogHead | None:
        """Return the end of a learner's log; None if no learner has this name."""
        ...

    async def heads(self) -> dict[str, LogHead]:
        """Return the end of every learner's log, by name."""
        ...

    async def losses(self) -> dict[str, bytes]:
        """Return the births, by name, of logs that the store lists but no longer has, though nobody deleted them."""
        ...

    async def delete(self, learner: str, birth: bytes) -> None:
        """Remove the log, the snapshots and the served events, durable on return. Works on a full store.

        If the store has no such log, records the deletion all the same, and raises `LearnerGone`.
        """
        ...

    async def deleted(self, births: Sequence[bytes]) -> list[bytes]:
        """Return which of these births were deleted by `delete`, among the last `DELETIONS`."""
        ...

    async def save(
        self,
        learner: str,
        birth: bytes,
        position: int,
        snapshot: bytes,
        keep: int,
        trim: bool,
        expected_token: bytes = b"",
    ) -> SnapshotInfo | None:
        """Store a snapshot of the state after `position`, durable on return, and delete all but the newest `keep`.

        Returns its entry in `snapshots`. Returns None if the snapshot is not retained, because `keep` newer
        ones exist or the log after it is trimmed.

        With `trim`, the log is trimmed up to the position of the oldest retained snapshot, inclusive, in the
        same atomic step. So the log and the snapshots never leave a gap between them. `expected_token`: the
        token of the record at `position`.
        """
        ...

    async def prune(self, learner: str, birth: bytes, position: int, trim: bool) -> None:
        """Delete the snapshots before the one at `position`, and with `trim` the log up to there; durable on return.

        Nothing is deleted if no snapshot at this position is retained. Works on a full store.
        """
        ...

    async def load(self, learner: str, birth: bytes, position: int | None = None) -> tuple[int, bytes] | None:
        """Load the snapshot at `position`, or the newest; None if there is none."""
        ...

    async def snapshots(self, learner: str, birth: bytes) -> list[SnapshotInfo]:
        """List the retained snapshots, newest first."""
        ...

    async def load_newest(self, learner: str, birth: bytes) -> NewestSnapshot:
        """Load the newest snapshot with what `head`, `token` and `pending` return, at one moment.

        A record appended before the call is in the snapshot or below `head`. Raises `LostRecords` if the log
        ends before the snapshot.
        """
        ...

    async def lease(self, learner: str, birth: bytes, node: bytes, seconds: float) -> bool:
        """Acquire or extend the lease on a learner's snapshots for some seconds; return whether it is held.

        0 seconds release it. At most one node holds a lease, until it expires or is released. The lease of another
        node is not changed before. A lease that its holder does not renew is free for a node that has asked for it for
        as long as it lasts, by that node's monotonic clock, however wall clocks step. It only saves repeated work: two
        nodes that save the same snapshot do no harm.
        """
        ...

    async def publish(self, node: bytes, moved: Mapping[str, LogNotice]) -> None:
        """Tell the other nodes which logs changed, by the learners' names. Best effort, not durable.

        A store that shows the writes of others by itself stores nothing.
        """
        ...

    async def poll(self, node: bytes, after: bytes, seconds: float) -> tuple[bytes, dict[str, LogNotice] | None]:
        """Wait until other nodes publish something after the cursor `after`; return a new cursor too.

        Returns an empty mapping after so many seconds, or earlier. Returns None instead of notices if any log
        may have changed: at first, when `after` is empty, and if the store does not know what was published.
        Never blocks other calls.
        """
        ...

    async def serve(
        self,
        learner: str,
        birth: bytes,
        record: tuple[bytes, bytes],
        after: int,
        remembered: Sequence[ServedEvent],
        limits: ServedLimits,
    ) -> ServeReceipt:
        """Append one (token, data) record and store served events, in one atomic step, durable on return.

        Idempotent: if the log has the token, nothing is appended, stored or dropped. If the outcome of a call
        is unknown, repeat it with the same token and `after`, the position up to which the caller has read. If
        the log was trimmed past `after`, `BehindLog` is raised as by `append`. Followers of the log read the
        record there; the caller may conclude from the receipt that it comes next.

        An id that is stored, or has a tombstone, is stored anew: with its latest data, in the latest place.
        Events are dropped in served order while the oldest has expired or `limits` are exceeded. So an event
        waits for those served before it, whatever its own time. One call drops at most `DROPS` more events than
        it adds; if the limits shrank, later calls drop the rest. Neither snapshots nor trimming affect served
        events.

        A dropped event leaves a tombstone: its id, which `recall` reports. The last `limits.events` dropped
        events have one. One call removes at most `DROPS` more tombstones than it adds events.

        Takes time linear in the events added and dropped.
        """
        ...

    async def recall(self, learner: str, birth: bytes, ids: Sequence[str]) -> list[ServedEvent | bool | None]:
        """Look up served events by id, in order: True for a tombstone, None for an unknown id.

        `IDS` at a time are looked up at the same moment. The answer contains all of them, whatever its size.
        """
        ...

    async def labels(self, learner: str, birth: bytes, ids: Sequence[str]) -> list[list[ServedLabel] | None]:
        """Return the labels of served events that are stored, oldest first; None if `labelled` reported none.

        A list is empty if an earlier release reported the label.
        """
        ...

    async def served(self, learner: str, birth: bytes, limit: int, below: int = 0) -> ServedPage:
        """List at most `limit` served events that are stored, newest served first, and fewer if they are large.

        Starts below number `below`; 0 starts with the newest. An event that is served again gets a new number, so
        a reader of several pages sees it at most once more, and misses none that stays stored.

        Takes time linear in the events returned (except in the memory store).
        """
        ...

    async def served_after(self, learner: str, birth: bytes, limit: int, after: int) -> ServedPage:
        """List at most `limit` served events that are stored, oldest served first, and fewer if they are large.

        Starts above number `after`. Takes time linear in the events returned (except in the memory store).
        """
        ...

    async def expired(self, learner: str, birth: bytes, before: float, limit: int, after: int = 0) -> ExpiredEvents:
        """List served events that expired, oldest served first, up to the first that has not expired.

        Starts after the learner's cursor and after number `after`. Returns at most `limit` events with a time
        earlier than `before`, and fewer if they are large. Labelled events are included, because later ones
        wait for them too. `upto` is the number of the last event, or the start of the search if there is none.

        Nothing is dropped and the cursor stays. The caller handles the events (assumes the missing labels),
        then calls `settle`. So the caller alone must detect events that are handled twice, after a crash or by
        two nodes. Dropped events are skipped.

        Takes time linear in the events returned, however many are settled (except in the memory store).
        """
        ...

    async def settle(self, learner: str, birth: bytes, upto: int) -> None:
        """Move the learner's cursor forward to `upto`, as returned by `expired`; durable on return. Idempotent.

        `expired` no longer returns events up to the cursor. They stay stored until the limits drop them. An id
        that is served again is stored anew, after the cursor.
        """
        ...

    async def reopen(self, learner: str, birth: bytes) -> None:
        """Move the learner's cursor back to the beginning; durable on return. Idempotent."""
        ...

    async def labelled(self, learner: str, birth: bytes, labels: Mapping[str, Sequence[ServedLabel]]) -> None:
        """Add the labels of these events that arrived, by id and in order; durable on return. Idempotent.

        A label is added if its position is behind those stored of the event, and it differs from the last one; the
        last `MAX_LABELS` are kept. The events stay stored. Unknown ids are ignored. `IDS` at a time are one atomic
        step.
        """
        ...

    async def erase(self, learner: str, birth: bytes, id: str) -> bool:
        """Remove a served event, or its tombstone; return whether there was one. Durable on return. Idempotent.

        It is counted neither as expired nor as evicted. The log and the snapshots stay. The bytes of the event are
        overwritten as far as the store can do that; see docs/explanation/privacy.md.
        """
        ...

    async def pending(self, learner: str, birth: bytes) -> ServedCounts:
        """Count the served events that are stored and dropped."""
        ...

    async def bookmark(self, learner: str, birth: bytes, reader: str) -> int | None:
        """Return the place of a reader of this learner, as `move_bookmark` noted it; None: it noted none."""
        ...

    async def move_bookmark(self, learner: str, birth: bytes, reader: str, place: int) -> None:
        """Note the place of a reader, forwards or backwards; durable on return. Idempotent. Works on a full store."""
        ...

    async def close(self) -> None:
        """Finish the calls in progress, then release files and sockets."""
        ...


@runtime_checkable
class SharedStore(Store, Protocol):
    """A store that several machines share: it knows which nodes are alive."""

    async def meet(self, node: str, address: str | None, seconds: float) -> dict[str, str]:
        """Report that this node is alive for so many seconds; return the addresses of all live nodes by id.

        If `address` is None, only list the other nodes.
        """
        ...

    async def leave(self, node: str) -> None:
        """Report that this node is no longer alive."""
        ...

    async def time(self) -> float:
        """Return the time of day by the store's own clock, in seconds since the epoch."""
        ...

    async def key(self, proposal: bytes) -> bytes:
        """Return the secret that all nodes over this store share; store `proposal` if there is none.

        A store that lost the secret gets it back from the first node that calls.
        """
        ...


async def load_newest_stepwise(store: Store, learner: str, birth: bytes) -> NewestSnapshot:
    """Implement `Store.load_newest` by one call after the other."""
    pending = await store.pending(learner, birth)
    while True:
        head = await store.head(learner)
        if head is None or head.birth != birth:
            raise LearnerGone(LOG_DELETED.format(log=called_in_full(learner)))
        retained = await store.snapshots(learner, birth)
        if not retained:
            return NewestSnapshot(head.position, None, b"", b"", pending)
        position = retained[0].position
        # read before the snapshot: if the log changes in between, the token belongs to the old log
        token = await store.token(learner, birth, position)
        loaded = await store.load(learner, birth, position)
        if loaded is not None:  # else newer snapshots replaced it
            return NewestSnapshot(head.position, retained[0], loaded[1], token, pending)


def merge_notices(batches: Iterable[Mapping[str, LogNotice]]) -> dict[str, LogNotice]:
    """Merge several batches of notices, in order."""
    merged: dict[str, LogNotice] = {}
    for batch in batches:
        for learner, notice in batch.items():
            merged[learner] = notice.merge(merged.get(learner))
    return merged


def latest(remembered: Sequence[ServedEvent]) -> list[ServedEvent]:
    """Keep the last event of each id, in its place."""
    if len({event.id for event in remembered}) == len(remembered):
        return list(remembered)
    by_id: dict[str, ServedEvent] = {}
    for event in remembered:
        by_id.pop(event.id, None)
        by_id[event.id] = event
    return list(by_id.values())


def in_steps(ids: Sequence[Step]) -> Iterator[Sequence[Step]]:
    """Split ids into steps of `IDS`; without ids yield one empty step, which still checks that the learner exists."""
    for start in range(0, max(len(ids), 1), IDS):
        yield ids[start : start + IDS]


OPERATIONS = tuple(
    name for name, member in vars(Store).items() if inspect.iscoroutinefunction(member) and name != "close"
)  # labels of the operations' timings
