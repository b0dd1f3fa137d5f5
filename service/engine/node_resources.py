"""What the learners of a node share: calls of the store, learning threads, and recovery from snapshot and log."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar, cast

from numpy import generic
from numpy.typing import NDArray

from learners import Config, GroupComparison, GroupConfig, InvalidInput, Learner
from learners.features import Dense
from learners.numerics import hashes_of
from service.engine.batch_cost import LARGE
from service.engine.clock_check import ClockCheck
from service.engine.cluster.notifier import Notifier
from service.engine.records import (
    Created,
    Snapshot,
    TrustedSnapshots,
    check_scaling,
    config_of,
    unpack_record,
    unpack_snapshot,
)
from service.engine.webhooks import Webhooks
from service.errors import BehindLog, Damaged, LearnerGone, LearnerMissing, LostRecords, StoreFull, StoreUnavailable
from service.names import called, called_in_full
from service.settings import Settings
from service.storage import (
    OPERATIONS,
    UNREADABLE,
    LogEntry,
    ServedCounts,
    SharedStore,
    SnapshotInfo,
    Store,
    checked,
    damaged,
)
from service.telemetry import BackgroundTasks, NodeTimings
from service.wire.kernels import load_kernels

__all__ = ["BACKGROUND", "Node", "loss_of"]

BACKGROUND = "rarestream background"  # name of the threads that outlive their node

_RECENT_SECONDS = 600.0  # how long health reports lost records, damaged snapshots and a full store

_REMEDY = (
    "Restore a backup of the store; or delete the learner, create it anew and replay its events"  # for a lost learner
)

logger = logging.getLogger("rarestream.node")

_LOWEST_PRIORITY = 19  # of Linux
_THREADS = 2  # for calls that pack, read or copy

Result = TypeVar("Result")


class RecoveredState(NamedTuple):
    """The state that a log has led to, as far as it was read."""

    machine: Learner | GroupComparison
    position: int
    snapshot: SnapshotInfo | None  # where the state began; None: at its creation
    token: bytes  # of the record at `position`
    behind: bool  # whether the log may have later records
    pending: ServedCounts | None  # its predictions awaiting a label; None: unknown


def _count_recent(moments: dict[str, float]) -> int:
    since = time.monotonic() - _RECENT_SECONDS
    return sum(moment > since for moment in moments.values())


def loss_of(log: str, birth: bytes) -> LearnerMissing:
    """Return the error of a log that the store no longer has though nobody deleted it."""
    return LearnerMissing(f"{called_in_full(log)} vanished from the store, and nobody deleted it. {_REMEDY}", birth)


class Node:
    """One process over one store."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.id = uuid.uuid4().bytes  # of this process, until it ends
        self.background = BackgroundTasks()
        self.notifier = Notifier(store, self.id, self.background)
        self.webhooks = Webhooks(settings.webhook_entries, settings.webhook_secret, self.background)
        self.timings = NodeTimings(OPERATIONS)
        self.clock_check = ClockCheck()
        self.trusted_snapshots = TrustedSnapshots(settings.max_learners)
        self._reached = time.monotonic()
        self._unreachable: str | None = None
        self._rewinds: dict[str, float] = {}  # logs whose records the store lost -> monotonic time of the last loss
        self._damages: dict[str, float] = {}  # logs of which a snapshot is damaged -> monotonic time of the last report
        self._full: str | None = None  # why the store had no room for a call, and has taken none as large since
        self._full_at = 0.0  # monotonic time of the last such call
        self._refused_size = 0  # bytes of the smallest one
        self._learning = ThreadPoolExecutor(settings.threads, thread_name_prefix="learn")
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="pack")
        self._urgent, self._patient = asyncio.Semaphore(1), asyncio.Semaphore(1)  # threads for long work

    async def close(self) -> None:
        """Release the store and the threads."""
        await self.webhooks.close()
        await self.notifier.close()
        await self.store.close()
        self._learning.shutdown()
        self._threads.shutdown()

    async def call(self, request: Coroutine[Any, Any, Result], size: int = 0) -> Result:
        """Await a call of the store; record whether it answered, and how long it took.

        `size`: the bytes that it adds; 0 if it may take the room that a full store keeps in reserve. A store that
        refused a call is full until it takes one as large, or has refused none for ten minutes.
        """
        operation: str = getattr(request, "__name__", "")  # a coroutine has the name of its method
        began = time.perf_counter()
        try:
            result = await request
            checked(operation, result)
        except UNREADABLE as error:
            raise damaged(operation, error) from error
        except (BehindLog, LostRecords):
            self._reached, self._unreachable = time.monotonic(), None
            raise
        except StoreFull as error:
            if self.full is None:
                logger.error("%s", error.detail)
                self._refused_size = size
            self._reached, self._unreachable = time.monotonic(), None
            self._full, self._full_at = error.detail, self._reached
            self._refused_size = min(self._refused_size, size)
            self.timings.failed(operation)
            raise
        except StoreUnavailable as error:
            self._unreachable = error.detail
            self.timings.failed(operation)
            raise
        finally:
            self.timings.called(operation, began)
        self._reached, self._unreachable = time.monotonic(), None
        if self.full is not None and size > 0 and size >= self._refused_size:
            logger.info("the store has room again")
            self._full = None
        return result

    @property
    def full(self) -> str | None:
        """Why the store has no room; None: it has, or nobody has asked for any lately."""
        return self._full if time.monotonic() - self._full_at < _RECENT_SECONDS else None

    async def check_clock(self) -> None:
        """Compare this node's clock with the store's, if the store has its own. Raises `StoreUnavailable`."""
        if isinstance(self.store, SharedStore):
            began = time.monotonic()
            self.clock_check.compare(await self.call(self.store.time()), time.monotonic() - began)

    @property
    def stale_seconds(self) -> float:
        """Seconds since the last answer of the store; 0 while it answers."""
        return 0.0 if self.unreachable is None else time.monotonic() - self._reached

    @property
    def unreachable(self) -> str | None:
        """Why the store does not answer, or None."""
        return self._unreachable or self.store.stall

    def note_rewind(self, log: str) -> None:
        """Count that the store lost records of a log that this node had applied."""
        self.timings.rewound += 1
        self._rewinds[log] = time.monotonic()

    def note_damage(self, log: str, reason: str) -> None:
        """Report a damaged snapshot of a log that goes on without it."""
        logger.error("%s; an older snapshot and the log are used instead. Check the disk of the store", reason)
        self._damages[log] = time.monotonic()

    @property
    def rewinds(self) -> int:
        """The number of logs of which the store lost records lately."""
        return _count_recent(self._rewinds)

    @property
    def damaged_logs(self) -> int:
        """The number of logs of which a damaged snapshot was read lately."""
        return _count_recent(self._damages)

    async def explain_loss(self, log: str, birth: bytes, error: LearnerGone) -> LearnerGone | LearnerMissing:
        """Return the error of a log that the store no longer has: deleted as `error` says, or lost by the store.

        Raises `StoreUnavailable` if the store cannot tell.
        """
        if await self.call(self.store.deleted([birth])):
            return error
        return loss_of(log, birth)

    async def in_thread(self, call: Callable[[], Result]) -> Result:
        """Run a call that packs, reads or copies in a thread, which learning does not keep busy."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def in_learning_thread(self, call: Callable[[], Result]) -> Result:
        """Run a piece of learning in one of the learning threads; kernels release the interpreter lock.

        Pieces wait in line. A learner has one at a time, so a light one waits for at most one piece of each other.
        """
        return await asyncio.get_running_loop().run_in_executor(self._learning, call)

    async def by_size(self, size: int, call: Callable[[], Result]) -> Result:
        """Run a call that reads or writes about `size` bytes: in a thread if they are many, else at once."""
        return call() if size < LARGE else await self.in_thread(call)

    async def in_background(self, call: Callable[[], Result], *, urgent: bool) -> Result:
        """Run long work in its own thread: at most one urgent call and one other call at a time.

        On Linux, the thread of a call that is not urgent has the lowest priority, so requests go first.

        The caller may be cancelled, and a stop of the node does not wait. The interpreter waits at its exit, because
        numerical libraries crash if their memory goes away.
        """
        slot = self._urgent if urgent else self._patient
        await slot.acquire()
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Result] = loop.create_future()

        def settle(result: Result | None, error: BaseException | None) -> None:
            slot.release()
            if outcome.done():  # the caller was cancelled
                return
            if error is None:
                outcome.set_result(cast(Result, result))
            else:
                outcome.set_exception(error)

        def run() -> None:
            result, error = None, None
            if sys.platform == "linux" and not urgent:  # elsewhere, a priority is of the whole process
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)
            try:
                result = call()
            except BaseException as raised:  # passed on to the caller, whatever it is
                error = raised
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:  # the loop is closed: the process ends
                logger.debug("a background store call was still running at shutdown")

        threading.Thread(target=run, name=BACKGROUND).start()
        return await outcome

    async def recover(self, name: str, birth: bytes) -> RecoveredState:
        """Return a learner, or a group's comparison, at its newest readable snapshot or at its creation.

        Raises `Damaged` if neither is readable.
        """
        try:
            stored = await self.call(self.store.load_newest(name, birth))
            if stored.snapshot is None:
                position, token = 1, birth
                machine = await self._read_creation(name, birth)
            else:
                position, token = stored.snapshot.position, stored.token
                machine = await self._read_snapshot(name, birth, stored.data, position)
            return RecoveredState(machine, position, stored.snapshot, token, stored.head > position, stored.pending)
        except (BehindLog, Damaged, LostRecords) as error:  # if nothing is readable, `_recover_older` says why
            logger.debug("cannot recover %s from the newest snapshot: %s", called(name), error.detail)
        return await self._recover_older(name, birth)

    async def _recover_older(self, name: str, birth: bytes) -> RecoveredState:
        """Recover from any retained snapshot, newest first, or from the beginning of the log."""
        while True:
            retained = await self.call(self.store.snapshots(name, birth))
            reasons = []
            for info in retained:
                try:  # before the snapshot: if the log changes in between, the token is the old one
                    token = await self.call(self.store.token(name, birth, info.position))
                except LostRecords as error:
                    reasons.append(error.detail)
                    continue
                try:
                    snapshot = await self.call(self.store.load(name, birth, info.position))
                    if snapshot is None:
                        continue
                    machine = await self._read_snapshot(name, birth, snapshot[1], info.position)
                except Damaged as error:
                    reasons.append(error.detail)
                    continue
                self._note_damages(name, reasons)
                return RecoveredState(machine, info.position, info, token, behind=True, pending=None)
            try:
                machine = await self._read_creation(name, birth)
            except BehindLog:
                if await self.call(self.store.snapshots(name, birth)) != retained:
                    continue  # another node took a snapshot and trimmed the log in between
                why = "; ".join(reasons) or "its log has no beginning"
                raise Damaged(f"cannot recover {called(name)}: {why}. {_REMEDY}") from None
            self._note_damages(name, reasons)
            return RecoveredState(machine, 1, None, birth, behind=True, pending=None)

    async def _read_creation(self, name: str, birth: bytes) -> Learner | GroupComparison:
        """Return the machine at its creation. Raises `Damaged`, or `BehindLog` if the log has no beginning."""
        first = await self.call(self.store.read(name, birth, 0, 1))
        return await self.in_thread(functools.partial(self._build_created, name, first))

    def _build_created(self, name: str, first: list[LogEntry]) -> Learner | GroupComparison:
        record = unpack_record(first[0].data, f"record 1 of {called(name)}") if first else None
        if not isinstance(record, Created):
            raise Damaged(f"the log of {called(name)} does not begin with its creation")
        try:
            config = config_of(record.config)
            if isinstance(config, GroupConfig):
                return GroupComparison(config)
            state = record.state
            if state is not None:  # a copy of another learner
                return _load_kernels(name, lambda: _restore_learner(config, state, trusted=False))
            return _load_kernels(name, lambda: Learner(config))
        except InvalidInput as error:
            raise Damaged(f"this release does not know the configuration of {called(name)}: {error}") from error

    def _note_damages(self, name: str, reasons: list[str]) -> None:
        for reason in reasons:
            self.note_damage(name, reason)

    async def _read_snapshot(self, name: str, birth: bytes, data: bytes, position: int) -> Learner | GroupComparison:
        """Return the machine of a snapshot. Raises `Damaged`."""
        restore = functools.partial(self._restore_snapshot, name, birth, data, position)
        # a learner that is new on this node may compile kernels
        machine, digest = await self.by_size(len(data) if self.trusted_snapshots.has_log(birth) else LARGE, restore)
        self.trusted_snapshots.add(birth, digest)
        return machine

    def _restore_snapshot(
        self, name: str, birth: bytes, data: bytes, position: int
    ) -> tuple[Learner | GroupComparison, bytes]:
        """Return the machine, and the digest of its snapshot, which is trusted from now on."""
        what = f"snapshot {position} of {called(name)}"
        digest = self.trusted_snapshots.digest(data)
        trusted = self.trusted_snapshots.trusts(birth, digest)
        snapshot: Snapshot = unpack_snapshot(data, what)
        try:
            config = snapshot.config
            if isinstance(config, GroupConfig):
                return GroupComparison.restored(config, snapshot.state), digest
            return _load_kernels(name, lambda: _restore_learner(config, snapshot.state, trusted)), digest
        except InvalidInput as error:
            problems = "; ".join(f"{problem.pointer} {problem.detail}" for problem in error.problems[:3])
            more = f"; and {len(error.problems) - 3} more" if len(error.problems) > 3 else ""
            raise Damaged(f"{what} is damaged, or of another release: {problems}{more}") from error


def _restore_learner(config: Config, state: dict[str, NDArray[generic]], trusted: bool) -> Learner:
    """Return the learner of a state, which is validated unless it is trusted. Raises `InvalidInput`."""
    learner = Learner.restored(config, state, trusted=trusted)
    if not trusted:
        check_scaling(config, state)
    return learner


_loaded_metrics: set[type] = set()  # kinds of metrics whose kernels this process has loaded


def _load_kernels(name: str, make: Callable[[], Learner]) -> Learner:
    """Make a learner and load the kernels of scoring and metrics, so that no request does it on the event loop."""
    try:
        learner = make()
        learner.score([])
        kind = type(learner.view().figures)
        if kind not in _loaded_metrics:  # of an empty learner: no restored state may end the start of a node
            Learner(learner.config).view().figures.as_json()
            _loaded_metrics.add(kind)
        hashes_of([""])
        features = learner.config.features
        load_kernels(features.dim if isinstance(features, Dense) else None)
    except MemoryError as error:
        raise Damaged(f"{name} needs more memory than there is") from error
    except InvalidInput:
        raise
    except (ArithmeticError, ValueError) as error:  # a mistake in an algorithm must not take the other learners down
        raise Damaged(f"this release cannot make {called(name)}: {error}") from error
    return learner
