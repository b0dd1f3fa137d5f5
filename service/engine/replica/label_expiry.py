"""Labels that never come: where a learner is to take that for a negative, its host learns so.

    the clock goes past an event's time + label_ttl -> was its label given? -> a batch of labels, before the event that
                                                                              moved the clock, in the same record

What is due is a matter of the log alone: an event waits for those that were served before it, whatever their labels;
where the store does not know yet that a label has come, the learner does. So it makes no difference to what is learnt
how a stream is cut into requests.

Whoever appends sees to what that makes due: before the events of a batch, or behind another record. Of the nodes that
follow, the one with the claim (`claims.py`) looks now and then whether all is seen to, as a node may end between the
two; what another has learnt meanwhile is not learnt again. The same node tells the store, now and then and before each
snapshot, whose labels have come and up to where labels have been assumed. The others keep what it is to be told until
they hear of a snapshot: after a crash, what the log has beyond that is met again.
"""

from __future__ import annotations

import asyncio
import math
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from learners import BatchOutcome, LabelledBatch, LateColumns, Learner, join_outcomes, merge_batches
from service.engine.node import Node
from service.engine.records import check_record, unpack_served
from service.engine.replica.lease import Lease
from service.storage import Remembered

__all__ = ["LabelExpiry", "Owner"]

_ASSUMED = 5000  # labels of one record at most
_UNTOLD = 100_000  # ids of labels that are kept for the store, beyond which it is told whoever has the claim


class _Due(NamedTuple):
    """Events of which no label has come in time."""

    labels: LabelledBatch  # that they are negative
    places: NDArray[np.int64]  # (n,) before which event of the batch each is due
    stop: int  # up to which event of the batch no others are due
    upto: int  # where the store settles once they are learnt
    more: bool  # whether others may be due besides


class Owner(Protocol):
    """What it needs of the learner's host."""

    name: str
    birth: bytes
    position: int
    node: Node
    lease: Lease

    @property
    def learner(self) -> Learner:
        """What learns."""
        ...

    def put(self, run: Callable[[], Awaitable[None]], first: bool = False) -> asyncio.Future[None]:
        """Have something done while the learner is at rest."""
        ...

    async def read_on(self) -> None:
        """Apply what other nodes have appended. Only in what was `put`."""
        ...

    async def log_batch(self, batch: LabelledBatch) -> BatchOutcome:
        """Append a batch and learn it. Only in what was `put`, or in turn."""
        ...


class LabelExpiry:
    """What becomes of the events that one learner has served, where no label comes."""

    def __init__(self, owner: Owner, step: Callable[[], int]) -> None:
        """`step`: events of one record whose rows are held in memory together."""
        self._owner: Owner = weakref.proxy(owner)
        self._step = step
        self._assuming: asyncio.Future[None] | None = None
        self._upto = 0  # what was served up to this number has been seen to: assumed, or labelled before
        self._settled = 0  # as far as the store knows
        self._since = -math.inf  # what was due by this time has been seen to before
        self._reopened = 0  # where the learner has been rolled back and the store does not know yet; 0: nowhere
        # positions, and the ids whose labels have come there, and the store does not know yet
        self._labelled: deque[tuple[int, list[str]]] = deque()
        self._untold = 0  # ids
        self._told = 0  # up to this position another node has told the store all
        self._unseen = True  # something has happened since all was seen to
        self._not_before = 0.0  # is the claim asked for again

    @property
    def _assumes(self) -> bool:
        return self._owner.learner.config.late.unlabelled == "negative"

    @property
    def _busy(self) -> bool:
        return self._assuming is not None and not self._assuming.done()

    def tick(self) -> None:
        """Called now and then: if this node has the claim, it sees to what nobody has seen to."""
        if self._assumes and self._unseen and not self._busy and time.monotonic() >= self._not_before:
            self._assuming = self._owner.put(self._see_to)

    def moved(self, *, own: bool) -> None:
        """A record of the log has been applied; with `own` what it makes due is this node's to see to at once.

        What has waited too long for its label is taken for negative, if it is to be.
        """
        self._unseen = True
        if own and self._assumes and not self._busy:
            self._assuming = self._owner.put(self._look)

    def learnt(self, batch: LabelledBatch) -> None:
        """A batch of the log has been applied: the store is to know whose labels have come."""
        position = self._owner.position
        if not self._assumes or batch.ids is None or position <= self._told:
            return
        given = [id for id in batch.ids if id is not None]
        if batch.late is not None:
            given = [id for id, guess in zip(batch.ids, batch.late.assumed.tolist(), strict=True) if id and not guess]
        known = self._owner.learner.find_learnt(given)  # neither those of nobody nor those beyond a gap
        ids = [id for id, learnt in zip(given, known.tolist(), strict=True) if learnt]
        self._labelled.append((position, ids))
        self._untold += len(ids)
        if self._untold > _UNTOLD and not self._busy:
            self._assuming = self._owner.put(self._tell)

    def told(self, position: int) -> None:
        """Another node has told the store all up to this position: it has saved a snapshot there."""
        self._told = max(self._told, position)
        while self._labelled and self._labelled[0][0] <= self._told:
            self._untold -= len(self._labelled.popleft()[1])
        if self._reopened <= self._told:
            self._reopened = 0

    def jumped(self, back: bool) -> None:
        """The learner has come to where it is by another node's snapshot: the store knows how far that had come.

        Or `back` to what the store kept: labels that were learnt since have not come.
        """
        self._upto = self._settled = 0
        if back:
            self._labelled.clear()
            self._untold = self._told = 0
            self._since = -math.inf

    def rolled_back(self) -> None:
        """What has been assumed since is not any more: it is looked for from the beginning.

        What was due by the clock of the snapshot had been assumed before that was taken, see `settle_up`.
        """
        learner = self._owner.learner
        self._upto = self._settled = 0
        if self._owner.position > self._told:
            self._reopened = self._owner.position
        self._since = float(np.fmax(learner.metrics.clock - learner.config.late.label_ttl, -math.inf))

    async def settle_up(self) -> None:
        """Assume all that is due, and tell the store: before a snapshot, for what is behind that is not met again."""
        if self._assumes:
            while await self._assumed_some():
                pass
            await self._tell()

    async def _tell(self) -> None:
        """Tell the store whose labels have come, and how far labels have been assumed."""
        owner, store = self._owner, self._owner.node.store
        if self._labelled:
            last = self._labelled[-1][0]
            ids = [id for _, some in self._labelled for id in some]
            await owner.node.reached(store.labelled(owner.name, owner.birth, ids))
            while self._labelled and self._labelled[0][0] <= last:
                self._untold -= len(self._labelled.popleft()[1])
        await self._reopen()
        if self._upto > self._settled:
            await owner.node.reached(store.settle(owner.name, owner.birth, self._upto))
            self._settled = self._upto

    async def _see_to(self) -> None:
        """Assume what is due, and then tell the store, unless that is another node's."""
        if await self._claims():
            await self._look()

    async def _look(self) -> None:
        """Assume what is due, and then tell the store, if that is this node's."""
        if await self._assumed_some():
            self._assuming = self._owner.put(self._look)  # after whatever else waits
        elif await self._claims():
            await self._tell()
            self._unseen = False

    async def _claims(self) -> bool:
        """Whether this node has the claim."""
        if time.monotonic() < self._not_before:
            return False
        claim = self._owner.lease
        if not await claim.take():
            self._not_before = time.monotonic() + claim.seconds / 4
            return False
        return True

    async def _assumed_some(self) -> bool:
        """Learn what is due although no event comes that it could be learnt before; whether there was any."""
        due = await self._due(None)
        if due is None:
            return False
        if len(due.labels):
            await self._owner.log_batch(due.labels)
        self._upto = due.upto
        return True

    async def learn(self, batch: LabelledBatch) -> BatchOutcome:
        """Append a batch and learn it, and before each of its events what is due by its time. Only in turn.

        So how events are cut into batches changes nothing. The outcome is that of the batch alone.
        """
        outcomes: list[BatchOutcome] = []
        while len(batch) and (due := await self._due(batch)) is not None:
            stop = due.stop if due.more else len(batch)  # what comes behind may find others due
            part, at = batch.part(0, stop), np.arange(stop)
            if len(due.labels):
                part, at = merge_batches(part, due.labels, due.places)
            if len(part):
                outcomes.append((await self._owner.log_batch(part)).of(at))
            self._upto = due.upto
            batch = batch.part(stop, len(batch))
        if len(batch) or not outcomes:
            outcomes.append(await self._owner.log_batch(batch))
        return join_outcomes(outcomes)

    async def _reopen(self) -> None:
        owner = self._owner
        if self._reopened:
            await owner.node.reached(owner.node.store.reopen(owner.name, owner.birth))
            self._reopened, self._settled = 0, 0

    async def _due(self, batch: LabelledBatch | None) -> _Due | None:
        """What has waited for its label too long by the end of a batch, or by now, if anything has."""
        owner = self._owner
        while self._assumes:
            learner, ttl = owner.learner, owner.learner.config.late.label_ttl
            clocks = np.array([learner.metrics.clock]) if batch is None else learner.clocks(batch)
            if math.isnan(clocks[-1]):
                return None
            await self._reopen()
            limit, position = min(_ASSUMED, self._step()), owner.position
            store = owner.node.store
            asked = store.expired(owner.name, owner.birth, float(clocks[-1]) - ttl, limit, self._upto)
            found = await owner.node.reached(asked)
            if not found.events:
                return None
            await owner.read_on()
            if owner.position != position:  # another node has moved the clock, changed the policy, or learnt these
                continue
            # an event waits for those served before it, whether they have their labels or not
            latest = np.maximum.accumulate([one.time for one in found.events])
            before = np.fmax(clocks - ttl, -math.inf)
            places = np.searchsorted(before, latest, side="right")
            missing = ~np.array(found.labelled) & ~learner.find_learnt([one.id for one in found.events])
            missing &= latest >= self._since
            events = [found.events[i] for i in np.flatnonzero(missing).tolist()]
            return _Due(self._labels(events, ttl), places[missing], int(places[-1]), found.upto, found.more)
        return None

    def _labels(self, events: Sequence[Remembered], ttl: float) -> LabelledBatch:
        n = len(events)
        like = self._owner.learner.config.encode([])
        what = f"what was remembered of {self._owner.name}"
        told = unpack_served([one.data for one in events], like, what)
        times = np.array([one.time for one in events])
        late = LateColumns(
            np.ones(n, dtype=np.bool_),
            np.zeros(n, dtype=np.bool_),
            np.ones(n, dtype=np.bool_),
            told.scores,
            told.probabilities,
            told.thresholds,
            told.decisions,
            times + ttl,
        )
        ids = tuple(one.id for one in events)
        batch = LabelledBatch(told.rows, np.full(n, -1.0), None, times, ids, costs=told.costs, late=late)
        check_record(batch, self._owner.learner.config, what)
        return batch
