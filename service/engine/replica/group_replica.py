"""A group on this node: learners that receive the same stream, and their comparison.

    update -> every learner, in the group's order -> the scores of each before learning -> one record of the group's log

A group is a machine with a log like a learner, so it is restored, followed and replicated in the same way. Its record
is appended after those of the learners and before the reply. If a request is repeated after a failure, the first scores
are found by the ids of the events, so each event is compared exactly once. Events without ids, which only have offsets
in a source, are learnt by the remaining learners and not compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from learners import (
    BatchOutcome,
    ComparedBatch,
    GroupComparison,
    GroupComparisonView,
    GroupConfig,
    InvalidInput,
    Status,
)
from learners.numerics import Vector, hashes_of
from service.engine.node_resources import Node, RecoveredState
from service.engine.records import check_compared
from service.engine.replica.label_join import ScoredEvents
from service.engine.replica.learner_replica import LearnerReplica
from service.engine.replica.learner_store import LearnerStore
from service.engine.replica.lease import Lease
from service.engine.replica.log_follower import LogFollower, RecordApplied, SnapshotJump
from service.engine.replica.mailbox import Job, Mailbox
from service.engine.replica.snapshots import Snapshots
from service.errors import Damaged, ServiceError, SourceGap
from service.names import called
from service.wire import Events, Labelled, Learnt

__all__ = ["GroupLearnt", "GroupReplica"]

_INLINE = 2**12  # events of a record; a thread compares larger ones
_SMALL = 2**10  # events of a record; a thread packs larger ones


class GroupLearnt(NamedTuple):
    """The answer to one update of a group."""

    learnt: dict[str, Learnt]  # by learner
    compared: int  # events in the comparison
    position: int  # of the group's log


class ComparisonMachine:
    """A group's comparison as the function of its log."""

    def __init__(self, name: str, comparison: GroupComparison, node: Node) -> None:
        self.core = comparison
        self._name = name
        self._node = node
        self._view: GroupComparisonView | None = None

    @property
    def view(self) -> GroupComparisonView:
        """The view for readers: live, or a copy of an earlier moment while a thread compares."""
        if self._view is None:
            self._view = self.core.view()
        return self._view

    def replace(self, core: Any) -> None:
        """Continue with a comparison of the same log that was recovered from the store."""
        self.core, self._view = core, None

    def check(self, record: Any, what: str) -> None:
        """Check the values of a record that was read from the log. Raises `Damaged`, which names it as `what`."""
        if not isinstance(record, ComparedBatch):
            raise Damaged(f"{what} is of a learner, not of a group")
        check_compared(record, what)

    async def apply(self, record: ComparedBatch) -> None:
        """Add the events of a record to the comparison."""
        try:
            if len(record) <= _INLINE:
                self.core.apply(record)
            else:
                self._view = await self._node.in_thread(self.view.frozen)
                await self._node.in_thread(lambda: self.core.apply(record))
        except InvalidInput as error:
            raise Damaged(f"a record of {called(self._name)} does not fit it: {error}") from error
        self._view = None


class GroupReplica:
    """One group on this node."""

    def __init__(
        self, name: str, birth: bytes, recovered: RecoveredState, node: Node, forget: Callable[[GroupReplica], None]
    ) -> None:
        """Host the group that was `recovered`; `forget` is called if the store lost it."""
        assert isinstance(recovered.machine, GroupComparison)
        self.name = name
        self.birth = birth
        self.node = node
        self._forget = forget
        self._comparison: tuple[int, dict[str, Any]] | None = None  # as JSON, at a position
        self._tests: tuple[int, list[dict[str, Any]]] | None = None  # those that need no window, at a position
        self._comparing = asyncio.Lock()
        self._updating = asyncio.Lock()  # every learner of the group gets the requests in one order
        self.mailbox = Mailbox(name, self._plan, self._report_deletion)
        stored = LearnerStore(node, name, birth)
        machine = ComparisonMachine(name, recovered.machine, node)
        self.log = LogFollower(stored, recovered, machine, node, self.mailbox, self._observe)
        self.snapshots = Snapshots(self.log, stored, Lease(stored, node.settings), recovered.snapshot)

    @property
    def position(self) -> int:
        """How far the log is applied."""
        return self.log.position

    @property
    def view(self) -> GroupComparisonView:
        """The view for readers."""
        return self.log.machine.view

    @property
    def failure(self) -> ServiceError | None:
        """The reason why the group cannot continue."""
        return self.mailbox.failure

    @property
    def config(self) -> GroupConfig:
        """The configuration: learners, and how they are compared."""
        return self.log.machine.core.config

    async def learn(self, members: Mapping[str, LearnerReplica], events: Mapping[str, Labelled]) -> GroupLearnt:
        """Let every learner learn the same labelled events, encoded for each, and compare their scores before that.

        If a learner fails, the others may have learnt already. The error is raised once all have answered. The request
        can be repeated with ids or a source: learners that have learnt it report duplicates.
        """
        self.mailbox.check()
        async with self._updating:
            _agree(members, events)
            answers = await asyncio.gather(
                *(member.label(events[name]) for name, member in members.items()), return_exceptions=True
            )
            learnt: dict[str, Learnt] = {}
            for name, answer in zip(members, answers, strict=True):
                if isinstance(answer, BaseException):
                    raise answer
                learnt[name] = answer
            first = next(iter(events.values()))
            scores = [await _scores(members[name], result.outcome, first.ids) for name, result in learnt.items()]
            record = _compared(first, [result.outcome for result in learnt.values()], scores)
            if len(record):

                async def run() -> None:
                    await self.log.append(record, small=len(record) <= _SMALL)

                await self.mailbox.run(run)
        return GroupLearnt(learnt, len(record), self.position)

    async def compared(self) -> tuple[int, dict[str, Any]]:
        """Return the position and the comparison there, which a thread computes once per position."""
        async with self._comparing:
            if self._comparison is None or self._comparison[0] != self.position:
                position, view = self.position, self.view.frozen()
                self._comparison = position, await asyncio.to_thread(view.as_json)
            return self._comparison

    def tests(self) -> list[dict[str, Any]]:
        """Return the evidence and the verdict of each pair, as in `compared`, without the AUCs of the window.

        O(pairs): cheap enough for a list of all groups.
        """
        if self._tests is None or self._tests[0] != self.position:
            view = self.view
            bare = replace(view, labels=view.labels[:0], scores=view.scores[:0])  # nothing to sort
            self._tests = self.position, bare.as_json()["tests"]
        return self._tests[1]

    async def predict(
        self, members: Mapping[str, LearnerReplica], events: Mapping[str, Events]
    ) -> dict[str, ScoredEvents]:
        """Score the same events with every learner; each remembers them."""
        self.mailbox.check()
        results = await asyncio.gather(
            *(member.served_events.predict(events[name]) for name, member in members.items())
        )
        return dict(zip(members, results, strict=True))

    def tick(self) -> None:
        """Look now and then for work that is due by time: a quiet group gets its snapshot too."""
        if self.snapshots.overdue:
            self.mailbox.wake()

    async def close(self, save: bool) -> None:
        """Answer everyone who waits and stop, after a last snapshot if asked to `save`."""
        if save:
            await self.snapshots.save_last()
        await self.mailbox.close()
        await self.snapshots.close()

    def _plan(self) -> Iterator[Job]:
        return self.snapshots.jobs()

    def _report_deletion(self) -> None:
        self._forget(self)

    def _observe(self, step: RecordApplied | SnapshotJump) -> None:
        self.snapshots.observe(step)
        if isinstance(step, SnapshotJump):  # the cached results belong to another comparison
            self._comparison = self._tests = None


def _agree(members: Mapping[str, LearnerReplica], events: Mapping[str, Labelled]) -> None:
    """Refuse a request that a learner would refuse, before any of them learns it."""
    for name, member in members.items():
        refusal = member.refusal(events[name])
        if refusal is not None:
            raise type(refusal)(f"{name}: {refusal.detail}")
    spans: dict[str, tuple[int, int]] = {}
    for segment in next(iter(events.values())).segments:
        after, _ = spans.get(segment.name, (segment.after, 0))
        spans[segment.name] = after, segment.offset + segment.stop - segment.start
    for source, (after, end) in spans.items():
        offsets = {name: member.view.sources.get(source) for name, member in members.items()}
        present = [at for at in offsets.values() if at is not None]
        through = all(at == end for at in present)  # as after a failure
        if after > 0 and present and len(present) < len(offsets) and not through:
            places = ", ".join(
                f"{name} {'has no offset' if at is None else f'at {at}'}" for name, at in offsets.items()
            )
            raise SourceGap(f"not every learner knows the source {source!r}, which would begin at {after}: {places}")


async def _scores(member: LearnerReplica, outcome: BatchOutcome, ids: tuple[str | None, ...] | None) -> Vector:
    """Return a learner's score of each event, for a duplicate the first one; NaN if unknown."""
    again = np.flatnonzero(outcome.status == Status.DUPLICATE)
    if ids is None or not len(again):
        return outcome.scores
    scores = outcome.scores.copy()
    identified = [i for i in again.tolist() if ids[i] is not None]
    repeated = [ids[i] or "" for i in identified]
    scores[identified] = await member.read(lambda learner: learner.learnt_scores(repeated))
    return scores


def _compared(events: Labelled, outcomes: list[BatchOutcome], scores: list[Vector]) -> ComparedBatch:
    """Return the record of the events that every learner has scored."""
    scored = np.ones(len(events.labels), dtype=np.bool_)
    for outcome, learner_scores in zip(outcomes, scores, strict=True):
        before = (outcome.status == Status.DUPLICATE) & ~np.isnan(learner_scores)
        scored &= np.isin(outcome.status, (Status.APPLIED, Status.RELABELLED)) | before
    hashes = np.zeros(len(scored), dtype=np.uint64) if events.ids is None else hashes_of(events.ids)
    times = np.full(len(scored), np.nan) if events.times is None else events.times
    return ComparedBatch(
        hashes[scored],
        events.labels[scored],
        np.stack([learner_scores[scored] for learner_scores in scores], axis=1),
        times[scored],
    )
