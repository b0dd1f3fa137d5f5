"""The store on Redis (6.2 or newer) or Valkey, shared by any number of nodes on any number of machines.

A learner is a stream with explicit ids `<position>-0`, a sorted set of its tokens, a hash with its birth, head and
trimmed positions, its snapshots, and its served events (see `served_scripts`). Every atomic step is one Lua script on
those keys. They share a hash tag, so they are in one slot of a Cluster. `topology` finds the servers; `durability`
waits for acknowledgements.

Redis needs `maxmemory-policy noeviction`, memory for the retained snapshots and the served events, and an append-only
file or replicas, as `acks` requires.

A loss of data is detected. After a flush, calls raise `LearnerGone`. After a fail-over to a replica without the last
writes, or a restore from an older copy, they raise `LostRecords` for callers that have read further. Tokens show this
even if others have appended past the lost positions.

If a connection breaks, the call is repeated once, if repeating is harmless. Tokens identify an append, so neither a
repeated nor a delayed one is applied twice. Once the log is trimmed past `after` this cannot be decided, and nothing is
appended (`BehindLog`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from redis.exceptions import NoScriptError

from service.errors import BehindLog, Damaged, LearnerGone, LostRecords, StoreUnavailable
from service.names import called, called_in_full
from service.storage.redis import membership
from service.storage.redis.key_names import KEYS, LEASE_KEY, META, PART, WAITED
from service.storage.redis.leases import LEASE, lease_tail
from service.storage.redis.notifications import poll, publish
from service.storage.redis.redis_calls import RedisCalls
from service.storage.redis.scripts import (
    APPEND,
    APPEND_IN_RESERVE,
    BOOKMARK,
    CREATE,
    DELETE,
    DELETION,
    LISTING,
    MOVE_BOOKMARK,
    PRUNE,
    READ,
    RETAIN,
    RETAINED,
    TOKEN,
    Script,
)
from service.storage.redis.served_scripts import (
    ERASE,
    EXPIRED,
    LABELLED,
    LABELS,
    PENDING,
    RECALL,
    REOPEN,
    SERVE,
    SERVED,
    SETTLE,
    expired_in,
    labels_of,
    pack_events,
    pack_ids,
    pack_labelled,
    pack_time,
    recalled_in,
    served_in,
)
from service.storage.served_labels import ServedLabel
from service.storage.store_protocol import (
    AHEAD,
    BEHIND,
    DELETIONS,
    LOG_DELETED,
    MAX_POSITION,
    OTHER,
    REPLY_BYTES,
    SNAPSHOT_PART,
    ExpiredEvents,
    LogEntry,
    LogHead,
    LogNotice,
    NewestSnapshot,
    ServedCounts,
    ServedEvent,
    ServedLimits,
    ServedPage,
    ServeReceipt,
    SnapshotInfo,
    in_steps,
    load_newest_stepwise,
)

__all__ = ["RedisStore"]

STAGED_SECONDS = 3600  # lifetime of the parts of an incomplete snapshot
LISTED = 1000  # learners looked up in one round trip


class _SnapshotRow(NamedTuple):
    """An entry of the hash of snapshots."""

    position: int
    id: str
    parts: int
    size: int
    time: float


class RedisStore(RedisCalls):
    """The store on Redis. Create it with `open`."""

    async def _run(self, script: Script, learner: str, *args: bytes | str | int, named: Sequence[str] = KEYS) -> Any:
        """Run a script on the learner's keys; return None if the birth is not the present one."""
        keys = [self._keys.of(learner, key) for key in named]
        try:
            return await self._redis.evalsha(script.sha, len(keys), *keys, *args)
        except NoScriptError:  # Redis was restarted
            return await self._redis.eval(script.text, len(keys), *keys, *args)

    async def _durably(self, script: Script, learner: str, *args: bytes | str | int) -> Any:
        """Run a script as `_run` does; its writes, or the writes that it found, are durable on return."""
        if not self._acks.waits:
            return await self._run(script, learner, *args)
        keys = [self._keys.of(learner, key) for key in KEYS]
        waited = self._keys.of(learner, WAITED)
        try:
            return await self._acked(keys[0], waited, "EVALSHA", script.sha, len(keys), *keys, *args)
        except NoScriptError:
            return await self._acked(keys[0], waited, "EVAL", script.text, len(keys), *keys, *args)

    async def _repeated(self, script: Script, learner: str, *args: bytes | str | int) -> tuple[Any, bool]:
        """Run a script as `_durably` does, again if the connection breaks; also return whether it was repeated."""
        attempts = 0

        async def attempt() -> Any:
            nonlocal attempts
            attempts += 1
            return await self._durably(script, learner, *args)

        reply = await self._twice(attempt)
        return reply, attempts > 1

    async def _list(self, *command: bytes | str | float) -> None:
        """Run a command on the list of learners, or on that of deleted ones, in the same slot."""
        if self._acks.waits:
            await self._acked(self._keys.learners, self._keys.listed_waited, *command)
        else:
            await self._redis.execute_command(*command)

    async def create(self, learner: str, token: bytes, data: bytes) -> LogHead:
        listed = _listed(learner, token)
        async with self._call():
            # List it first, as a member that only this birth has. `heads` skips the member that a crash before the
            # script leaves behind, and no create or delete of another birth removes it. Nor does `losses` report it.
            await self._twice(lambda: self._list("EVAL", LISTING, 2, self._keys.creating, self._keys.learners, listed))
            birth, head = await self._twice(lambda: self._durably(CREATE, learner, token, data))
            if birth != token:
                await self._twice(lambda: self._redis.srem(self._keys.learners, listed))
            await self._twice(lambda: self._redis.srem(self._keys.creating, listed))
        return LogHead(birth, head)

    async def append(
        self,
        learner: str,
        birth: bytes,
        records: Sequence[tuple[bytes, bytes]],
        after: int,
        expected_token: bytes = b"",
        reserve: bool = False,
    ) -> list[LogEntry]:
        script = APPEND_IN_RESERVE if reserve else APPEND
        flat = [part for record in records for part in record]
        async with self._call():
            reply, repeated = await self._repeated(script, learner, birth, after, expected_token, REPLY_BYTES, *flat)
        with _sure(repeated):
            head, entries = _entries(reply, learner, after)
        if after > head:
            raise LostRecords(AHEAD.format(log=called_in_full(learner), after=after, head=head))
        sent_data = dict(records)
        return [entry._replace(data=sent_data[entry.token]) if entry.token in sent_data else entry for entry in entries]

    async def read(
        self, learner: str, birth: bytes, after: int, limit: int, expected_token: bytes = b""
    ) -> list[LogEntry]:
        async with self._call():
            reply = await self._twice(
                lambda: self._run(READ, learner, birth, after, expected_token, REPLY_BYTES, limit)
            )
        _, entries = _entries(reply, learner, after)
        return entries

    async def token(self, learner: str, birth: bytes, position: int) -> bytes:
        async with self._call():
            reply = await self._twice(lambda: self._run(TOKEN, learner, birth, position))
        head, token = _present(reply, learner)
        if position > head:
            raise LostRecords(AHEAD.format(log=called_in_full(learner), after=position, head=head))
        result: bytes = token
        return result

    async def head(self, learner: str) -> LogHead | None:
        async with self._call():
            birth, head = await self._twice(lambda: self._redis.hmget(self._keys.of(learner, META), ["birth", "head"]))
        return None if birth is None else LogHead(birth, int(head))

    async def heads(self) -> dict[str, LogHead]:
        heads: dict[str, LogHead] = {}
        async with self._call():
            await self._twice(self._look)
            members = await self._twice(lambda: self._redis.smembers(self._keys.learners))
            listed = [_unlisted(member.decode()) for member in members if isinstance(member, bytes)]
            for start in range(0, len(listed), LISTED):
                heads |= await self._twice(partial(self._heads, listed[start : start + LISTED]))
        return heads

    async def _heads(self, listed: list[tuple[str, bytes]]) -> dict[str, LogHead]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for learner, _ in listed:
                pipe.hmget(self._keys.of(learner, META), ["birth", "head"])
            rows = await pipe.execute()
        return {
            learner: LogHead(birth, int(head))
            for (learner, born), (birth, head) in zip(listed, rows, strict=True)
            if birth == born  # else an unfinished create or delete
        }

    async def losses(self) -> dict[str, bytes]:
        async with self._call():
            members = await self._twice(lambda: self._redis.smembers(self._keys.learners))
            creating = await self._twice(lambda: self._redis.smembers(self._keys.creating))
        heads = await self.heads()  # after the list: what was in creation has its log, or is in `creating`
        listed = [_unlisted(member.decode()) for member in members - creating if isinstance(member, bytes)]
        births = {learner: birth for learner, birth in listed if learner not in heads}
        deleted = await self.deleted(list(births.values())) if births else []
        return {learner: birth for learner, birth in births.items() if birth not in deleted}

    async def delete(self, learner: str, birth: bytes) -> None:
        async with self._call():
            # First: a deletion without its record would look like a loss; a record without a deletion harms nothing.
            await self._twice(
                lambda: self._list("EVAL", DELETION, 1, self._keys.deleted, birth, time.time(), DELETIONS)
            )
            # Not twice: a repetition would find no learner.
            reply = await self._durably(DELETE, learner, birth, self._keys.of(learner, PART))
            # This birth is deleted now. If a crash here leaves it listed, the next delete removes it.
            await self._twice(lambda: self._redis.srem(self._keys.learners, _listed(learner, birth)))
        _present(reply, learner)

    async def deleted(self, births: Sequence[bytes]) -> list[bytes]:
        async with self._call():
            scores = await self._twice(lambda: self._redis.execute_command("ZMSCORE", self._keys.deleted, *births))
        return [birth for birth, score in zip(births, scores, strict=True) if score is not None]

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
        id = secrets.token_hex(8)
        prefix = self._keys.of(learner, PART)
        parts = {
            f"{prefix}{id}:{number}": memoryview(snapshot)[start : start + SNAPSHOT_PART]
            for number, start in enumerate(range(0, len(snapshot), SNAPSHOT_PART))
        }
        info = SnapshotInfo(position, len(snapshot), round(time.time(), 6))
        retained = f"{id} {len(parts)} {info.size} {info.time:.6f}"
        async with self._call():
            for key, part in parts.items():
                await self._twice(partial(self._redis.set, key, part, ex=STAGED_SECONDS))
            # Not twice: the first call may have retained the snapshot and deleted it as old.
            arguments = position, keep, int(trim), prefix, retained, id, len(parts), expected_token
            reply = await self._durably(RETAIN, learner, birth, *arguments)
            if parts and (reply is None or reply[0] != b"retained"):
                await self._redis.unlink(*parts)
        outcome, head = _present(reply, learner)
        if outcome == b"lost":
            raise LostRecords(_lost_records(learner, position, head))
        if outcome == b"late":
            raise StoreUnavailable(
                f"sending a snapshot of {called(learner)} to Redis took more than {STAGED_SECONDS} s"
            )
        return info if outcome == b"retained" else None

    async def prune(self, learner: str, birth: bytes, position: int, trim: bool) -> None:
        async with self._call():
            prune = partial(self._durably, PRUNE, learner, birth, position, int(trim), self._keys.of(learner, PART))
            reply = await self._twice(prune)
        _present(reply, learner)

    async def load(self, learner: str, birth: bytes, position: int | None = None) -> tuple[int, bytes] | None:
        missing = None
        async with self._call():
            while True:
                retained = await self._retained(learner, birth)
                if position is not None:
                    retained = [snapshot for snapshot in retained if snapshot.position == position]
                if not retained:
                    return None
                newest = retained[0]
                first = f"{self._keys.of(learner, PART)}{newest.id}:"
                parts = [
                    await self._twice(partial(self._redis.get, f"{first}{number}")) for number in range(newest.parts)
                ]
                present = [part for part in parts if isinstance(part, bytes)]
                if len(present) == newest.parts:
                    return newest.position, b"".join(present)
                if newest.id == missing:
                    raise Damaged(
                        f"the snapshot of {called(learner)} at {newest.position} lacks a part; does Redis evict keys?"
                    )
                missing = newest.id  # if it was deleted since it was listed, the next list differs

    async def snapshots(self, learner: str, birth: bytes) -> list[SnapshotInfo]:
        async with self._call():
            retained = await self._retained(learner, birth)
        return [SnapshotInfo(snapshot.position, snapshot.size, snapshot.time) for snapshot in retained]

    async def load_newest(self, learner: str, birth: bytes) -> NewestSnapshot:
        return await load_newest_stepwise(self, learner, birth)

    async def lease(self, learner: str, birth: bytes, node: bytes, seconds: float) -> bool:
        overdue, tail = self.leases.overdue(learner), lease_tail(seconds)
        arguments = birth, node, round(1000 * seconds), tail, overdue
        async with self._call():
            reply = await self._twice(lambda: self._run(LEASE, learner, *arguments, named=(META, LEASE_KEY)))
        value: bytes = _present(reply, learner)
        self.leases.note(learner, value, overdue, len(birth) + len(node) + len(tail), seconds)
        return not value

    async def publish(self, node: bytes, moved: Mapping[str, LogNotice]) -> None:
        async with self._call():
            await self._twice(lambda: publish(self._redis, self._keys, node, moved))

    async def poll(self, node: bytes, after: bytes, seconds: float) -> tuple[bytes, dict[str, LogNotice] | None]:
        async with self._call(listening=True):
            return await poll(self._listening, self._keys, node, after, seconds)

    async def serve(
        self,
        learner: str,
        birth: bytes,
        record: tuple[bytes, bytes],
        after: int,
        remembered: Sequence[ServedEvent],
        limits: ServedLimits,
    ) -> ServeReceipt:
        packed = pack_events(remembered, limits)
        async with self._call():
            reply, repeated = await self._repeated(SERVE, learner, birth, *record, after, *packed)
        receipt = _present(reply, learner)
        if len(receipt) == 1:
            with _sure(repeated):
                raise BehindLog(BEHIND.format(log=called_in_full(learner), after=after, trimmed=receipt[0]))
        position, before, *counts = receipt
        return ServeReceipt(position, before, ServedCounts(*counts))

    async def recall(self, learner: str, birth: bytes, ids: Sequence[str]) -> list[ServedEvent | bool | None]:
        events: list[ServedEvent | bool | None] = []
        async with self._call():
            for step in in_steps(ids):
                reply = await self._twice(partial(self._run, RECALL, learner, birth, pack_ids(step)))
                events += recalled_in(_present(reply, learner), step)
        return events

    async def labels(self, learner: str, birth: bytes, ids: Sequence[str]) -> list[list[ServedLabel] | None]:
        labels: list[list[ServedLabel] | None] = []
        async with self._call():
            for step in in_steps(ids):
                reply = await self._twice(partial(self._run, LABELS, learner, birth, pack_ids(step)))
                labels += [labels_of(item) for item in _present(reply, learner)]
        return labels

    async def served(self, learner: str, birth: bytes, limit: int, below: int = 0) -> ServedPage:
        return await self._served(learner, birth, limit, 1, below or MAX_POSITION)

    async def served_after(self, learner: str, birth: bytes, limit: int, after: int) -> ServedPage:
        return await self._served(learner, birth, limit, 0, after)

    async def _served(self, learner: str, birth: bytes, limit: int, back: int, bound: int) -> ServedPage:
        async with self._call():
            reply = await self._twice(lambda: self._run(SERVED, learner, birth, REPLY_BYTES, limit, back, bound))
        return served_in(_present(reply, learner))

    async def expired(self, learner: str, birth: bytes, before: float, limit: int, after: int = 0) -> ExpiredEvents:
        async with self._call():
            arguments = pack_time(before), REPLY_BYTES, limit, after
            reply = await self._twice(lambda: self._run(EXPIRED, learner, birth, *arguments))
        return expired_in(_present(reply, learner), limit)

    async def settle(self, learner: str, birth: bytes, upto: int) -> None:
        async with self._call():
            reply = await self._twice(lambda: self._durably(SETTLE, learner, birth, upto))
        _present(reply, learner)

    async def reopen(self, learner: str, birth: bytes) -> None:
        async with self._call():
            reply = await self._twice(lambda: self._durably(REOPEN, learner, birth))
        _present(reply, learner)

    async def labelled(self, learner: str, birth: bytes, labels: Mapping[str, Sequence[ServedLabel]]) -> None:
        async with self._call():
            for step in in_steps(list(labels.items())):
                call = partial(self._durably, LABELLED, learner, birth, *pack_labelled(step))
                _present(await self._twice(call), learner)

    async def erase(self, learner: str, birth: bytes, id: str) -> bool:
        async with self._call():
            reply, repeated = await self._repeated(ERASE, learner, birth, id)
        return bool(_present(reply, learner)) or repeated  # the first attempt may have erased it

    async def pending(self, learner: str, birth: bytes) -> ServedCounts:
        async with self._call():
            reply = await self._twice(lambda: self._run(PENDING, learner, birth))
        return ServedCounts(*_present(reply, learner))

    async def bookmark(self, learner: str, birth: bytes, reader: str) -> int | None:
        async with self._call():
            reply = await self._twice(lambda: self._run(BOOKMARK, learner, birth, reader))
        place = _present(reply, learner)
        return int(place) if place else None

    async def move_bookmark(self, learner: str, birth: bytes, reader: str, place: int) -> None:
        async with self._call():
            reply = await self._twice(lambda: self._durably(MOVE_BOOKMARK, learner, birth, reader, place))
        _present(reply, learner)

    async def meet(self, node: str, address: str | None, seconds: float) -> dict[str, str]:
        async with self._call():
            return await self._twice(lambda: membership.meet(self._redis, self._keys, node, address, seconds))

    async def leave(self, node: str) -> None:
        async with self._call():
            await self._twice(lambda: membership.leave(self._redis, self._keys, node))

    async def time(self) -> float:
        async with self._call():
            return await self._twice(lambda: membership.time(self._redis, self._keys))

    async def key(self, proposal: bytes) -> bytes:
        async with self._call():
            return await self._twice(lambda: membership.key(self._redis, self._keys, proposal))

    async def _retained(self, learner: str, birth: bytes) -> list[_SnapshotRow]:
        """Read the hash of snapshots, newest first."""
        flat = _present(await self._twice(lambda: self._run(RETAINED, learner, birth)), learner)
        rows = []
        for position, snapshot in zip(flat[::2], flat[1::2], strict=True):
            id, parts, size, saved = snapshot.decode().split()
            rows.append(_SnapshotRow(int(position), id, int(parts), int(size), float(saved)))
        return sorted(rows, reverse=True)


@contextmanager
def _sure(repeated: bool) -> Iterator[None]:
    """Convert `BehindLog` of a repeated call: its first attempt may have been written before the log was trimmed."""
    try:
        yield
    except BehindLog as behind:
        if repeated:
            raise StoreUnavailable(behind.detail) from None
        raise


def _listed(learner: str, birth: bytes) -> str:
    return f"{birth.hex()}:{quote(learner, safe='')}"


def _unlisted(member: str) -> tuple[str, bytes]:
    birth, _, learner = member.partition(":")
    return unquote(learner), bytes.fromhex(birth)


def _present(reply: Any, learner: str) -> Any:
    """Return the script's reply. Raises `LearnerGone` if the birth is not the present one."""
    if reply is None:
        raise LearnerGone(LOG_DELETED.format(log=called_in_full(learner)))
    return reply


def _lost_records(learner: str, position: int, head: int) -> str:
    """Describe that the record at a position is not the expected one."""
    return (AHEAD if position > head else OTHER).format(log=called_in_full(learner), after=position, head=head)


def _entries(reply: Any, learner: str, after: int) -> tuple[int, list[LogEntry]]:
    """Decode the head and entries in a reply of APPEND or READ; raise if the log begins behind `after`."""
    head, trimmed, same, *flat = _present(reply, learner)
    if not same:
        raise LostRecords(_lost_records(learner, after, head))
    if after < trimmed:
        raise BehindLog(BEHIND.format(log=called_in_full(learner), after=after, trimmed=trimmed))
    return head, [LogEntry(*entry) for entry in zip(flat[::3], flat[1::3], flat[2::3], strict=True)]
