"""What the learners of a node share: the store as seen from here, the learning threads, how a state is recovered."""

from __future__ import annotations

import asyncio
import functools
import logging
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
from service.engine.webhooks import Webhook
from service.errors import BehindLog, Damaged, LostRecords, StoreUnavailable
from service.names import called
from service.settings import Settings
from service.storage import OPERATIONS, UNREADABLE, Entry, Pending, SnapshotInfo, Store, checked, damaged
from service.telemetry import NodeTimings
from service.wire.kernels import load_kernels

__all__ = ["BACKGROUND", "Node"]

BACKGROUND = "rarestream background"  # the name of threads that outlive their node

logger = logging.getLogger("rarestream.node")

Result = TypeVar("Result")


class Recovered(NamedTuple):
    """What a log has led to, as far as was read."""

    machine: Learner | GroupComparison
    position: int
    snapshot: SnapshotInfo | None  # that it began with; None: at its creation
    token: bytes  # of the record there
    behind: bool  # whether the log may go on from there
    pending: Pending | None  # what is remembered of it; None: not known


class Node:
    """This process over one store."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.id = uuid.uuid4().bytes  # of this process, until it ends
        self.notifier = Notifier(store, self.id)
        self.webhook = Webhook(settings.webhook)
        self.timings = NodeTimings(OPERATIONS)
        self.trusted_snapshots = TrustedSnapshots(settings.max_learners)
        self._reached = time.monotonic()
        self._unreachable: str | None = None
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="learn")
        self._urgent, self._patient = asyncio.Semaphore(1), asyncio.Semaphore(1)  # threads for long work

    async def close(self) -> None:
        """Release the store and the threads."""
        await self.webhook.close()
        await self.notifier.close()
        await self.store.close()
        self._threads.shutdown()

    async def reached(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Await a call of the store, and note whether it answered, and how long it took."""
        operation: str = getattr(call, "__name__", "")  # a coroutine has the name of its method
        began = time.perf_counter()
        try:
            result = await call
            checked(operation, result)
        except UNREADABLE as error:
            raise damaged(operation, error) from error
        except (BehindLog, LostRecords):
            self._reached, self._unreachable = time.monotonic(), None
            raise
        except StoreUnavailable as error:
            self._unreachable = error.detail
            self.timings.failed(operation)
            raise
        finally:
            self.timings.called(operation, began)
        self._reached, self._unreachable = time.monotonic(), None
        return result

    @property
    def stale_seconds(self) -> float:
        """How long the store has not been reached; 0 while it answers."""
        return 0.0 if self._unreachable is None else time.monotonic() - self._reached

    @property
    def unreachable(self) -> str | None:
        """Why the store does not answer, or None."""
        return self._unreachable

    async def in_thread(self, call: Callable[[], Result]) -> Result:
        """Run in one of the learning threads; kernels release the interpreter meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def by_size(self, size: int, call: Callable[[], Result]) -> Result:
        """Run what reads or writes about so many bytes: in a thread if they are many; few are done sooner here."""
        return call() if size < LARGE else await self.in_thread(call)

    async def in_background(self, call: Callable[[], Result], *, urgent: bool) -> Result:
        """Run long work in a thread of its own; one call at a time of those that are urgent, and one of the others.

        Whoever waits may go away, and a stop of the node does not wait. The interpreter does, at its end: numerical
        libraries do not survive the end of the memory that they work on.
        """
        slot = self._urgent if urgent else self._patient
        await slot.acquire()
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Result] = loop.create_future()

        def settle(result: Result | None, error: BaseException | None) -> None:
            slot.release()
            if outcome.done():  # nobody waits any more
                return
            if error is None:
                outcome.set_result(cast(Result, result))
            else:
                outcome.set_exception(error)

        def run() -> None:
            result, error = None, None
            try:
                result = call()
            except BaseException as raised:  # handed to whoever waits, whatever it is
                error = raised
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:  # the loop was closed meanwhile: the process ends
                logger.debug("a background call outlived its node")

        threading.Thread(target=run, name=BACKGROUND).start()
        return await outcome

    async def recover(self, name: str, birth: bytes) -> Recovered:
        """The learner, or a group's comparison, at its newest readable snapshot, or at its creation.

        Raises `Damaged` when there is neither.
        """
        try:
            kept = await self.reached(self.store.kept(name, birth))
            if kept.snapshot is None:
                position, token = 1, birth
                machine = await self._begun(name, birth)
            else:
                position, token = kept.snapshot.position, kept.token
                machine = await self._revived(name, birth, kept.data, position)
            return Recovered(machine, position, kept.snapshot, token, kept.head > position, kept.pending)
        except (
            BehindLog,
            Damaged,
            LostRecords,
        ) as error:  # it is told with all that is wrong, if there is nothing else
            logger.debug("%s is not recovered at once: %s", called(name), error.detail)
        return await self._recover_older(name, birth)

    async def _recover_older(self, name: str, birth: bytes) -> Recovered:
        """The same, step by step, through all that is kept."""
        while True:
            retained = await self.reached(self.store.snapshots(name, birth))
            reasons = []
            for info in retained:
                try:  # before the snapshot: should the log change in between, the token is that of the old one
                    token = await self.reached(self.store.token(name, birth, info.position))
                except LostRecords as error:
                    reasons.append(error.detail)
                    continue
                try:
                    found = await self.reached(self.store.load(name, birth, info.position))
                    if found is None:
                        continue
                    machine = await self._revived(name, birth, found[1], info.position)
                except Damaged as error:
                    reasons.append(error.detail)
                    continue
                self._passed_over(reasons)
                return Recovered(machine, info.position, info, token, behind=True, pending=None)
            try:
                machine = await self._begun(name, birth)
            except BehindLog:
                if await self.reached(self.store.snapshots(name, birth)) != retained:
                    continue  # another node took a snapshot and trimmed the log in between
                why = "; ".join(reasons) or "its log has no beginning"
                raise Damaged(f"{called(name)} cannot be recovered: {why}") from None
            self._passed_over(reasons)
            return Recovered(machine, 1, None, birth, behind=True, pending=None)

    async def _begun(self, name: str, birth: bytes) -> Learner | GroupComparison:
        """The machine at its creation. Raises `Damaged`, or `BehindLog` where the log has no beginning."""
        first = await self.reached(self.store.read(name, birth, 0, 1))
        return await self.in_thread(functools.partial(self._created, name, first))

    def _created(self, name: str, first: list[Entry]) -> Learner | GroupComparison:
        record = unpack_record(first[0].data, f"record 1 of {called(name)}") if first else None
        if not isinstance(record, Created):
            raise Damaged(f"the log of {called(name)} does not begin with its creation")
        try:
            config = config_of(record.config)
            if isinstance(config, GroupConfig):
                return GroupComparison(config)
            state = record.state
            if state is not None:  # a copy of another learner
                return _primed(name, lambda: _restored(config, state, sound=False))
            return _primed(name, lambda: Learner(config))
        except InvalidInput as error:
            raise Damaged(f"the creation of {called(name)} is not one this release knows: {error}") from error

    def _passed_over(self, reasons: list[str]) -> None:
        for reason in reasons:
            logger.error("%s; an older snapshot and the log are used instead", reason)

    async def _revived(self, name: str, birth: bytes, data: bytes, position: int) -> Learner | GroupComparison:
        """The machine of a snapshot. Raises `Damaged`."""
        size = (
            len(data) if self.trusted_snapshots.met(birth) else LARGE
        )  # of one that is new here, kernels may have to be compiled
        machine, digest = await self.by_size(size, functools.partial(self._revive, name, birth, data, position))
        self.trusted_snapshots.tell(birth, digest)
        return machine

    def _revive(self, name: str, birth: bytes, data: bytes, position: int) -> tuple[Learner | GroupComparison, bytes]:
        """The machine, and by what its snapshot is known to be sound from now on."""
        what = f"snapshot {position} of {called(name)}"
        digest = self.trusted_snapshots.digest(data)
        sound = self.trusted_snapshots.knows(birth, digest)
        snapshot: Snapshot = unpack_snapshot(data, what)
        try:
            config = snapshot.config
            if isinstance(config, GroupConfig):
                return GroupComparison.restored(config, snapshot.state), digest
            return _primed(name, lambda: _restored(config, snapshot.state, sound)), digest
        except InvalidInput as error:
            said = "; ".join(f"{problem.pointer} {problem.detail}" for problem in error.problems[:3])
            more = f"; and {len(error.problems) - 3} more" if len(error.problems) > 3 else ""
            raise Damaged(f"{what} is not one of this release, or damaged: {said}{more}") from error


def _restored(config: Config, state: dict[str, NDArray[generic]], sound: bool) -> Learner:
    """The learner of a state, which is looked at unless it is known to be `sound`. Raises `InvalidInput`."""
    learner = Learner.restored(config, state, trusted=sound)
    if not sound:
        check_scaling(config, state)
    return learner


_figured: set[type] = set()  # kinds of figures whose kernels this process has


def _primed(name: str, make: Callable[[], Learner]) -> Learner:
    """Make a learner and load the kernels that scoring and figures need: not on the event loop, at a first request."""
    try:
        learner = make()
        learner.score([])
        kind = type(learner.view().figures)
        if kind not in _figured:  # of an empty one: no state that was read back may end the start of a node
            Learner(learner.config).view().figures.as_json()
            _figured.add(kind)
        hashes_of([""])
        features = learner.config.features
        load_kernels(features.dim if isinstance(features, Dense) else None)
    except MemoryError as error:
        raise Damaged(f"{name} needs more memory than there is") from error
    return learner
