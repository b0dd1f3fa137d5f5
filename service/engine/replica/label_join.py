"""Serve events that carry an id, and join late labels with the events they belong to.

    predict with ids -> score by the present view -> one durable step: record and served events -> reply
    labels by id     -> recall the served events  -> a batch like any other

Scoring does not wait for learning: the record is appended past the mailbox, and the replica then follows the log
(`in_flight.py`). `label_expiry.py` treats the events whose label does not arrive.
"""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners import (
    Config,
    LabelledBatch,
    LateColumns,
    LearnerView,
    Predictions,
    ServedBatch,
    length,
    scatter_rows,
    select_rows,
)
from learners.numerics import Rows, Sparse, Vector, hashes_of, waiting_kernels
from learners.segments import SegmentColumns, join_segment_columns
from service import clock
from service.engine.records import check_record, pack_features, pack_record, pack_served, unpack_served
from service.engine.replica.in_flight import DecisionAccount, InFlight
from service.engine.replica.learner_machine import LearnerMachine
from service.engine.replica.learner_store import LearnerStore
from service.engine.replica.log_follower import LogFollower
from service.errors import QueueFull, StoreUnavailable
from service.storage import ServedCounts, ServedEvent, ServedLimits
from service.wire import Events, Labelled

__all__ = ["ScoredEvents", "ServedEvents", "join_step"]

logger = logging.getLogger("rarestream.serving")

_INLINE_WORK = 2**23  # multiplications of a request, some milliseconds; a thread scores larger ones
_PLAIN_WORK = 2**13  # the same while kernels run as plain Python
_SERVED = 10_000  # events per record: a store handles all of them in one step
_LARGE = 2**10  # events of a request; a thread packs larger ones
_LARGE_KEPT = 2**14  # numbers of a request whose features are kept; a thread packs larger ones
_JOINED = 5_000  # late labels per record, at most,
_JOINED_BYTES = 2**25  # and bytes of their dense rows, at most
_MAX_IN_FLIGHT = 10_000  # records that are served and not applied yet


class ScoredEvents(NamedTuple):
    """The result of one predict."""

    view: LearnerView
    scores: Predictions
    position: int
    remembered: int  # events that can be labelled by id


class _Part(NamedTuple):
    """The events of a request that go into one record."""

    places: NDArray[np.int64]  # (k,) in the request
    ids: Sequence[str]
    times: Vector


def join_step(config: Config) -> int:
    """Return how many served events one record may have: all of them are in memory together."""
    features = config.features
    return max(1, min(_JOINED, _JOINED_BYTES // (8 * (1 if features.sparse else features.columns))))


def _is_long(view: LearnerView, events: Events) -> bool:
    """Tell whether a thread should score the events, to keep the event loop free."""
    work = view.scorer.work(events.rows)
    return work > _INLINE_WORK or (work > _PLAIN_WORK and waiting_kernels() > 0)


class ServedEvents:
    """The served events of one learner."""

    def __init__(self, log: LogFollower[LearnerMachine], stored: LearnerStore, pending: ServedCounts | None) -> None:
        """`pending`: what the store remembers."""
        self._log = log
        self._stored = stored
        self._account = DecisionAccount(log.in_flight)
        self.pending = pending  # by the last reply of the store
        self.features_left_out = 0  # events whose features were too large to keep, of this process
        self.named = False  # some of the events that were scored last have ids

    @property
    def busy(self) -> bool:
        """Tell whether records are in flight."""
        return bool(len(self._log.in_flight))

    # Scoring

    def at_once(self, events: Events, at: tuple[LearnerView, int] | None = None) -> ScoredEvents | None:
        """Score as `predict` if that is short work and remembers nothing, so that nothing is awaited; else None."""
        self.named = any(events.ids)
        if self.named and self._remembers(events):
            return None
        view, position = at or (self._log.machine.view, self._log.position)
        if _is_long(view, events):
            return None
        return ScoredEvents(view, view.scorer.score(events.rows, events.costs), position, 0)

    async def predict(self, events: Events, at: tuple[LearnerView, int] | None = None) -> ScoredEvents:
        """Score events by the present view, or by the view and position `at`, and remember those that have an id.

        If the store does not answer, nothing is remembered.
        """
        result = self.at_once(events, at)
        if result is not None:
            return result
        log = self._log
        view, position = at or (log.machine.view, log.position)
        if _is_long(view, events):
            view = replace(view, scorer=view.scorer.frozen())
            scores = await asyncio.to_thread(view.scorer.score, events.rows, events.costs)
        else:
            scores = view.scorer.score(events.rows, events.costs)
        if not self._remembers(events):
            return ScoredEvents(view, scores, position, 0)
        if len(log.in_flight) >= _MAX_IN_FLIGHT:
            raise QueueFull(f"{len(log.in_flight)} requests were served that {log.name} has not applied yet")
        places = np.array([i for i, id in enumerate(events.ids) if id is not None])
        times = np.full(len(events.ids), math.nan) if events.times is None else events.times
        times = np.where(np.isnan(times), self.present_time(), times)[places]
        ids = [id for id in events.ids if id is not None]
        _ = view.not_ready  # computed now, because the view may be outdated when later parts need it
        served = last = 0
        try:
            while served < len(ids):
                part = slice(served, served + _SERVED)
                last = await self._serve(view, events, scores, _Part(places[part], ids[part], times[part]), position)
                served += len(ids[part])
        except StoreUnavailable as error:  # scoring continues without a store; the reply says how much is remembered
            logger.warning("%s cannot remember the events that it serves: %s", log.name, error.detail)
        if served:
            log.follow(last)
        return ScoredEvents(
            view, scores, position, self.count_remembered(ids[:served], times[:served]) if served else 0
        )

    def present_time(self) -> float:
        """Return the time of an event that arrives now: this node's clock, or the learner's if the node is behind."""
        return float(np.fmax(clock.now(), self._log.machine.view.figures.clock))

    def count_remembered(self, ids: Sequence[str], times: Vector) -> int:
        """Count the events just served that are remembered: the last of each id, within the bounds."""
        late = self._log.machine.core.config.late
        oldest = float(np.fmax(self._log.machine.view.figures.clock, times.max())) - late.label_ttl
        last = dict(zip(ids, times.tolist(), strict=True))
        young = sum(time >= oldest for time in last.values()) if late.unlabelled == "nothing" else len(last)
        return min(young, late.max_events)

    def _remembers(self, events: Events) -> bool:
        """Tell whether some of the events can be labelled by id: not while the store is away."""
        log = self._log
        return any(events.ids) and log.node.unreachable is None and log.mailbox.failure is None

    async def _serve(self, view: LearnerView, events: Events, scores: Predictions, part: _Part, position: int) -> int:
        """Log and remember one part of a request and return its position; `scores` get its decisions."""
        log = self._log
        places = part.places
        predictions = Predictions._make(None if column is None else column[places] for column in scores)
        costs = None if events.costs is None else events.costs[places]
        ready = view.not_ready is None
        token = uuid.uuid4().bytes
        with log.in_flight.appending(token) as in_flight:
            if view.scorer.decision.depends_on_order:
                predictions = self._account.decide(in_flight, log.machine.view, ready, predictions, costs, part.times)
                for column, decided in zip(scores, predictions, strict=True):
                    if column is not None and decided is not None:
                        column[places] = decided
            elif not ready and log.machine.core.config.labels.ranks is None:
                predictions = predictions._replace(
                    decisions=np.zeros_like(predictions.decisions)
                )  # no event is called positive
            await self._remember(events, part, predictions, costs, position, in_flight, ready)
        return in_flight.position

    async def _remember(
        self,
        events: Events,
        part: _Part,
        scores: Predictions,
        costs: Vector | None,
        position: int,
        in_flight: InFlight,
        ready: bool,
    ) -> None:
        log = self._log
        late = log.machine.core.config.late
        after = log.position
        clock = np.fmax(log.machine.view.figures.clock, part.times.max())
        before = clock - late.label_ttl if late.unlabelled == "nothing" else -math.inf

        def pack() -> tuple[ServedBatch, bytes, list[ServedEvent], int]:
            fields = log.machine.core.new_fields(events.fields)
            record = ServedBatch(hashes_of(part.ids), part.times, *scores, ready=ready, fields=fields)
            carried = (
                None if events.features is None else [pack_features(events.features[i]) for i in part.places.tolist()]
            )
            values = None if events.segment_values is None else events.segment_values.of(part.places)
            packed = pack_served(_rows_at(events.rows, part.places), scores, costs, position, carried, values)
            remembered = [ServedEvent(*event) for event in zip(part.ids, part.times.tolist(), packed, strict=True)]
            return record, pack_record(record), remembered, 0 if carried is None else carried.count(None)

        entries = events.rows.data.size if isinstance(events.rows, Sparse) else events.rows.size
        large = len(part.ids) > _LARGE or (events.features is not None and entries > _LARGE_KEPT)
        record, data, remembered, left_out = await asyncio.to_thread(pack) if large else pack()
        bounds = ServedLimits(late.max_events, late.max_bytes, before)
        receipt = await self._stored.serve((in_flight.token, data), after, remembered, bounds)
        self.pending = receipt.pending
        if left_out and not self.features_left_out:
            logger.warning(
                "%s keeps no features of events that have over 64 KiB of them; it counts these events", log.name
            )
        self.features_left_out += left_out
        in_flight.record, in_flight.position, in_flight.before = record, receipt.position, receipt.before

    # Labels

    async def join(self, events: Labelled) -> tuple[LabelledBatch, NDArray[np.bool_]]:
        """Join labelled events without features with served events; return the batch and which labels expired, (n,).

        An event that was served too long ago, or never, goes in by its id alone: its label may correct one that was
        learnt.
        """
        log = self._log
        expired = np.zeros(len(events.labels), dtype=np.bool_)
        if events.plain:
            return events.batch(), expired
        places = np.flatnonzero(~events.carried)
        ids = [id for id, carried in zip(events.ids or (), events.carried, strict=True) if not carried]
        assert None not in ids
        recalled = await self._stored.recall([id or "" for id in ids])
        rows, times, late, costs, values = self._join(events, places, recalled, expired)
        batch = LabelledBatch(
            rows, events.labels, events.weights, times, events.ids, events.segments, costs, late, events.fields, values
        )
        check_record(batch, log.machine.core.config, f"a served event of {log.name}")
        return batch, expired

    def _join(
        self,
        events: Labelled,
        places: NDArray[np.int64],
        recalled: Sequence[ServedEvent | bool | None],
        expired: NDArray[np.bool_],
    ) -> tuple[Rows, Vector, LateColumns, Vector | None, SegmentColumns | None]:
        n = len(events.labels)
        event_times = np.full(n, math.nan) if events.times is None else events.times
        now = clock.now()
        labelled = np.where(events.carried, math.nan, np.where(np.isnan(event_times), now, event_times))
        config = self._log.machine.core.config
        assumed = config.late.unlabelled == "negative"  # then a label that is late corrects
        served: list[tuple[int, ServedEvent]] = []
        for place, event in zip(places.tolist(), recalled, strict=True):
            if isinstance(event, ServedEvent) and (assumed or labelled[place] - event.time <= config.late.label_ttl):
                served.append((place, event))
            else:
                expired[place] = event is not None
        at = np.array([place for place, _ in served], dtype=np.int64)
        like = config.encode([])
        columns = unpack_served([event.data for _, event in served], like, f"a served event of {self._log.name}")
        late = LateColumns.none(n)._replace(labelled=labelled)
        late.served[at] = True
        late.bare[places] = True
        late.bare[at] = False
        for column, values in (
            (late.scores, columns.scores),
            (late.probabilities, columns.probabilities),
            (late.thresholds, columns.thresholds),
            (late.decisions, columns.decisions),
        ):
            column[at] = values
        times = np.where(events.carried, event_times, math.nan)
        times[at] = [event.time for _, event in served]
        carried = np.flatnonzero(events.carried)
        row = np.cumsum(~late.bare) - 1  # of each event that has one
        rows = scatter_rows([(events.rows, row[carried]), (columns.rows, row[at])], len(carried) + len(at), like)
        costs = np.ones(n)
        costs[at] = columns.costs
        if events.costs is not None:
            costs[carried] = events.costs
        sizes = len(carried), len(at), 1  # the last has no values, as events of which only the id is known
        segment_values = join_segment_columns([events.segment_values, columns.segment_values, None], sizes)
        if segment_values is not None:
            places_of = np.full(n, len(carried) + len(at))
            places_of[carried], places_of[at] = np.arange(len(carried)), len(carried) + np.arange(len(at))
            segment_values = segment_values.of(places_of)
        return rows, times, late, costs if (costs != 1.0).any() else None, segment_values


def _rows_at(rows: Rows, places: NDArray[np.int64]) -> Rows:
    """Take some of the rows, in ascending order."""
    n = length(rows)
    if len(places) == n:
        return rows
    mask = np.zeros(n, dtype=np.bool_)
    mask[places] = True
    return select_rows(rows, mask)
