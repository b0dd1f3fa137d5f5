"""What a learner's host says of events whose label may come later, and what it does when that comes.

    predict with ids -> score by the present view -> record and remembered events, one durable step -> reply
    labels by id     -> recall what was served -> a batch like any other

Scoring waits for no learning: the record of what was served is appended past the learner's task, which then follows
the log. A decision that has an account to keep (a budget of alerts) is made on a copy of it, which knows of what was
served here and is not applied yet. What becomes of events whose label never comes is in `assuming.py`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from learners import (
    Decision,
    LabelledBatch,
    LateColumns,
    Learner,
    LearnerView,
    Predictions,
    ServedBatch,
    length,
    scatter_rows,
    select_rows,
)
from learners.numerics import Rows, Vector, hashes_of
from service.engine.node import Node
from service.engine.records import check_record, pack_record, pack_served, unpack_served
from service.errors import QueueFull, ServiceError, StoreUnavailable
from service.storage import Bounds, Pending, Remembered
from service.wire import Events, Labelled

__all__ = ["Owner", "Predicted", "ServedEvents"]

logger = logging.getLogger("rarestream.serving")

_INLINE_WORK = 2**23  # multiplications of a request to score, some milliseconds, above which a thread makes them
_SERVED = 10_000  # events of one record of what was served: a store does all of them in one step
_LARGE = 2**10  # events of a request from which on a thread packs what is to be remembered
_JOINED = 5_000  # late labels of one record at most,
_JOINED_BYTES = 2**25  # and of dense rows so many bytes
_UNDER_WAY = 10_000  # requests that are served and not applied yet


class Predicted(NamedTuple):
    """The answer to one predict."""

    view: LearnerView
    scores: Predictions
    position: int
    remembered: int  # events whose labels may come by id


class Owner(Protocol):
    """What serving needs of the learner's host."""

    name: str
    birth: bytes
    position: int
    node: Node
    view: LearnerView
    failed: ServiceError | None

    @property
    def learner(self) -> Learner:
        """What serves."""
        ...

    def follow(self) -> None:
        """Start catching up with the log."""
        ...


class ServedEvents:
    """Serves the events of one learner."""

    def __init__(self, owner: Owner) -> None:
        self._owner: Owner = weakref.proxy(owner)
        self.pending: Pending | None = None  # what the store remembers, as it last said
        self._under_way: dict[bytes, tuple[Predictions, Vector, bool]] = {}  # not applied yet, in order
        # tokens of what was served here and is not applied yet: the how manieth of all that stood in the log, 0 before
        self._own: dict[bytes, int] = {}
        self.mark = 0  # so many records of what was served here have stood in the log
        self._account: Decision | None = None  # the decision stage after those
        self._account_of: LearnerView | None = None
        self.named = False  # there were ids among the events that were scored last

    # Scoring

    @property
    def busy(self) -> bool:
        """Whether something was served here that the learner has not caught up with, or is being settled."""
        return bool(self._own or self._under_way)

    def at_once(self, events: Events, at: tuple[LearnerView, int] | None = None) -> Predicted | None:
        """As `predict`, where nothing is waited for: it is short work, and nothing is remembered; else None."""
        self.named = any(events.ids)
        if self.named and self._remembers(events):
            return None
        view, position = at or (self._owner.view, self._owner.position)
        if view.scorer.work(events.rows) > _INLINE_WORK:
            return None
        return Predicted(view, view.scorer.score(events.rows, events.costs), position, 0)

    def _remembers(self, events: Events) -> bool:
        """Whether some of the events will be known by their ids when their labels come: not while the store is away."""
        owner = self._owner
        return any(events.ids) and owner.node.unreachable is None and owner.failed is None

    async def predict(self, events: Events, at: tuple[LearnerView, int] | None = None) -> Predicted:
        """Score events by the present view, and remember those with an id where the store answers.

        Or by the view of an earlier moment and the position then, `at`.
        """
        said = self.at_once(events, at)
        if said is not None:
            return said
        owner = self._owner
        view, position = at or (owner.view, owner.position)
        if view.scorer.work(events.rows) > _INLINE_WORK:
            view = replace(view, scorer=view.scorer.frozen())
            scores = await asyncio.to_thread(view.scorer.score, events.rows, events.costs)
        else:
            scores = view.scorer.score(events.rows, events.costs)
        if not self._remembers(events):
            return Predicted(view, scores, position, 0)
        if len(self._own) >= _UNDER_WAY:
            raise QueueFull(f"{len(self._own)} requests were served that {owner.name} has not caught up with")
        places = np.array([i for i, one in enumerate(events.ids) if one is not None])
        times = np.full(len(events.ids), math.nan) if events.times is None else events.times
        times = np.where(np.isnan(times), time.time(), times)[places]
        ids = [one for one in events.ids if one is not None]
        _ = view.not_ready  # known by now, for the parts that come when the view may have moved on
        done = 0
        try:
            while done < len(ids):
                part = slice(done, done + _SERVED)
                await self._served(view, events, scores, places[part], ids[part], times[part], position)
                done += len(ids[part])
        except StoreUnavailable as error:  # scoring goes on without a store; the reply says how much is remembered
            logger.warning("%s does not remember what it served: %s", owner.name, error.detail)
        if done:
            owner.follow()
        return Predicted(view, scores, position, self.standing(ids[:done], times[:done]) if done else 0)

    async def _served(
        self,
        view: LearnerView,
        events: Events,
        scores: Predictions,
        places: NDArray[np.int64],
        ids: Sequence[str],
        times: Vector,
        position: int,
    ) -> None:
        """Log and remember the events at these places, (k,), with these ids and times; `scores` get what is decided."""
        told = Predictions._make(None if column is None else column[places] for column in scores)
        costs = None if events.costs is None else events.costs[places]
        token = uuid.uuid4().bytes
        self._own[token] = 0
        if view.scorer.decision.depends_on_order:
            told = self._decide(view, told, costs, times, token)
            for column, decided in zip(scores, told, strict=True):
                if column is not None and decided is not None:
                    column[places] = decided
        elif view.not_ready is not None and self._owner.learner.config.labels.ranks is None:
            told = told._replace(decisions=np.zeros_like(told.decisions))  # nothing was called anything
        standing = False
        try:
            await self._remember(events.rows, places, ids, times, told, costs, position, token, view.not_ready is None)
            standing = True
            self.mark += 1
            if token in self._own:  # not applied by now
                self._own[token] = self.mark
        finally:  # also where the caller has hung up: what never comes into the log must not stay on the account
            if not standing:
                self._given_up(token)

    def standing(self, ids: Sequence[str], times: Vector) -> int:
        """How many of the events just served are remembered: the last of each id, no older and no more than may be."""
        late = self._owner.learner.config.late
        oldest = float(np.fmax(self._owner.view.figures.clock, times.max())) - late.label_ttl
        last = dict(zip(ids, times.tolist(), strict=True))
        young = sum(time >= oldest for time in last.values()) if late.unlabelled == "nothing" else len(last)
        return min(young, late.max_events)

    def _given_up(self, token: bytes) -> None:
        """It is not known to be in the log: the account is made anew, without it."""
        self.applied(token)
        self._account_of = None

    def _decide(
        self, view: LearnerView, told: Predictions, costs: Vector | None, times: Vector, token: bytes
    ) -> Predictions:
        """Decide on the account, which then knows of it."""
        if self._account is None or self._account_of is not self._owner.view:
            self._account = self._owner.view.scorer.decision.frozen()
            for told_before in self._under_way.values():
                self._account.note(*told_before)
            self._account_of = self._owner.view
        newest = next(reversed(self._under_way.values()))[1][-1] if self._under_way else math.nan
        clock = np.fmax(self._owner.view.figures.clock, newest)
        clocks = np.fmax.accumulate(np.concatenate([[clock], times]))[1:]
        ready = view.not_ready is None
        if ready:
            told = self._account.serve(told.scores, costs, clocks)
        else:  # nothing is called anything, so nothing of the budget is spent
            told = told._replace(decisions=np.zeros_like(told.decisions))
        self._under_way[token] = (told, clocks, ready)
        return told

    async def _remember(
        self,
        rows: Rows,
        places: NDArray[np.int64],
        ids: Sequence[str],
        times: Vector,
        told: Predictions,
        costs: Vector | None,
        position: int,
        token: bytes,
        ready: bool,
    ) -> None:
        owner = self._owner
        late = owner.learner.config.late
        after = owner.position
        clock = np.fmax(owner.view.figures.clock, times.max())
        before = clock - late.label_ttl if late.unlabelled == "nothing" else -math.inf

        def pack() -> tuple[bytes, list[Remembered]]:
            chosen = _rows_at(rows, places)
            kept = pack_served(chosen, told, costs, position)
            record = ServedBatch(hashes_of(ids), times, *told, ready=ready)
            remembered = [Remembered(*one) for one in zip(ids, times.tolist(), kept, strict=True)]
            return pack_record(record), remembered

        data, remembered = await asyncio.to_thread(pack) if len(ids) > _LARGE else pack()
        bounds = Bounds(late.max_events, late.max_bytes, before)
        serving = owner.node.store.serve(owner.name, owner.birth, (token, data), after, remembered, bounds)
        self.pending = await owner.node.reached(serving)

    def applied(self, token: bytes) -> bool:
        """A record of the log has been applied; whether it is of what was served here."""
        self._under_way.pop(token, None)
        return self._own.pop(token, None) is not None

    def read_up_to(self, mark: int) -> None:
        """The log has been read to its end since `mark` was what it was: what stood by then and is not applied is lost.

        A store that failed over has lost it, before the learner had come so far that it would notice.
        """
        lost = [token for token, number in self._own.items() if 0 < number <= mark]
        for token in lost:
            self._given_up(token)
        if lost:
            logger.error("the store has lost %d records of what %s has served", len(lost), self._owner.name)

    def jumped(self) -> None:
        """The learner has come to where it is by a snapshot: what was under way may lie before it."""
        self._under_way.clear()
        self._own.clear()
        self._account_of = None

    # Labels

    @property
    def step(self) -> int:
        """Events of one record that has late labels: what was served of them is held in memory together."""
        features = self._owner.learner.config.features
        return max(1, min(_JOINED, _JOINED_BYTES // (8 * (1 if features.sparse else features.columns))))

    async def joined(self, events: Labelled) -> tuple[LabelledBatch, NDArray[np.bool_]]:
        """The batch of labelled events, those without features joined with what was served; which have expired, (n,).

        An event that was served too long ago, or never, goes in by its id alone: its label may correct one that was
        learnt.
        """
        owner = self._owner
        n = len(events.labels)
        expired = np.zeros(n, dtype=np.bool_)
        if events.plain:
            return events.batch(), expired
        places = np.flatnonzero(~events.carried)
        ids = [one for one, carried in zip(events.ids or (), events.carried, strict=True) if not carried]
        assert None not in ids
        store = owner.node.store
        found = await owner.node.reached(store.recall(owner.name, owner.birth, [one or "" for one in ids]))
        rows, times, late, costs = self._join(events, places, found, expired)
        batch = LabelledBatch(rows, events.labels, events.weights, times, events.ids, events.segments, costs, late)
        check_record(batch, owner.learner.config, f"what was remembered of {owner.name}")
        return batch, expired

    def _join(
        self,
        events: Labelled,
        places: NDArray[np.int64],
        found: Sequence[Remembered | bool | None],
        expired: NDArray[np.bool_],
    ) -> tuple[Rows, Vector, LateColumns, Vector | None]:
        n = len(events.labels)
        given = np.full(n, math.nan) if events.times is None else events.times
        now = time.time()
        labelled = np.where(events.carried, math.nan, np.where(np.isnan(given), now, given))
        policy = self._owner.learner.config.late
        assumed = policy.unlabelled == "negative"  # then a label that is late corrects
        known: list[tuple[int, Remembered]] = []
        for place, one in zip(places.tolist(), found, strict=True):
            if isinstance(one, Remembered) and (assumed or labelled[place] - one.time <= policy.label_ttl):
                known.append((place, one))
            else:
                expired[place] = one is not None
        at = np.array([place for place, _ in known], dtype=np.int64)
        config = self._owner.learner.config
        like = config.encode([])
        what = f"what was remembered of {self._owner.name}"
        told = unpack_served([one.data for _, one in known], like, what)
        late = LateColumns.none(n)._replace(labelled=labelled)
        late.served[at] = True
        late.bare[places] = True
        late.bare[at] = False
        for column, values in (
            (late.scores, told.scores),
            (late.probabilities, told.probabilities),
            (late.thresholds, told.thresholds),
            (late.decisions, told.decisions),
        ):
            column[at] = values
        times = np.where(events.carried, given, math.nan)
        times[at] = [one.time for _, one in known]
        own = np.flatnonzero(events.carried)
        row = np.cumsum(~late.bare) - 1  # of each event that has one
        rows = scatter_rows([(events.rows, row[own]), (told.rows, row[at])], len(own) + len(at), like)
        costs = np.ones(n)
        costs[at] = told.costs
        if events.costs is not None:
            costs[own] = events.costs
        return rows, times, late, costs if (costs != 1.0).any() else None


def _rows_at(rows: Rows, places: NDArray[np.int64]) -> Rows:
    """Some of the rows, in ascending order."""
    n = length(rows)
    if len(places) == n:
        return rows
    mask = np.zeros(n, dtype=np.bool_)
    mask[places] = True
    return select_rows(rows, mask)
