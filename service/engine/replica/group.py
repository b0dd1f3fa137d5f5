"""A group on this node: learners that receive the same stream, and what the comparison of them says.

    update -> every learner, in the group's order -> what each had said before -> one record of the group's own log

A group is a machine with a log, as a learner is one, so it is restored, followed and replicated in the same way. Its
record is appended after the learners' and before the reply. A request that is repeated after a failure half-way finds
what the learners said the first time, by the events' ids, so nothing is compared twice and nothing is missed. Of events
that have a place in a source only, what one learner had learnt by then is learnt by the others, and not compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
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
from service.engine.node import Node
from service.engine.records import check_compared
from service.engine.replica.learner import LearnerReplica
from service.engine.replica.replica import Logged
from service.engine.replica.served_events import Predicted
from service.errors import Damaged, SourceGap
from service.names import called
from service.storage import SnapshotInfo
from service.wire import Events, Labelled, Learnt

__all__ = ["GroupLearnt", "GroupReplica"]

_INLINE = 2**12  # events of a record, of which more are compared by a thread
_SMALL = 2**10  # events of a record, of which more are packed by a thread


class GroupLearnt(NamedTuple):
    """The answer to one update of a group."""

    learnt: dict[str, Learnt]  # by learner
    compared: int  # events that the comparison is told of
    position: int  # of the group's log


class GroupReplica(Logged[GroupComparison, GroupComparisonView]):
    """One group on this node."""

    def __init__(
        self,
        name: str,
        birth: bytes,
        machine: GroupComparison,
        position: int,
        node: Node,
        gone: Callable[[GroupReplica], None],
        snapshot: SnapshotInfo | None = None,
    ) -> None:
        """See `Logged`."""
        super().__init__(name, birth, machine, position, node, gone, snapshot)
        self._told: tuple[int, dict[str, Any]] | None = None  # the comparison as it was at a position
        self._tests: tuple[int, list[dict[str, Any]]] | None = None  # those of it that need no window
        self._telling = asyncio.Lock()
        self._turns = asyncio.Lock()  # every learner of the group sees the requests in one order

    @property
    def config(self) -> GroupConfig:
        """Which learners, and how they are compared."""
        return self.machine.config

    async def learn(self, members: Mapping[str, LearnerReplica], events: Mapping[str, Labelled]) -> GroupLearnt:
        """Let every learner learn the same labelled events, encoded for each, and compare what they had said.

        Where one of them fails, the others may have learnt already: the error is raised once all have answered, and
        the request can be repeated, as any can, by the events' ids or their source: to these it is a duplicate then.
        """
        self._check()
        async with self._turns:
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
            scores = [await _scores(members[name], one.outcome, first.ids) for name, one in learnt.items()]
            record = _compared(first, [one.outcome for one in learnt.values()], scores)
            if len(record):

                async def run() -> None:
                    await self.append(record, small=len(record) <= _SMALL)

                await self.at_rest(run)
        return GroupLearnt(learnt, len(record), self.position)

    async def compared(self) -> tuple[int, dict[str, Any]]:
        """The position and the comparison there: worked out once for each position, by a thread."""
        async with self._telling:
            if self._told is None or self._told[0] != self.position:
                position, view = self.position, self.view.frozen()
                self._told = position, await asyncio.to_thread(view.as_json)
            return self._told

    def tests(self) -> list[dict[str, Any]]:
        """Of each pair the evidence for either and the verdict, as `compared` tells them, without the window's AUCs.

        O(pairs): cheap enough for a list of all groups.
        """
        if self._tests is None or self._tests[0] != self.position:
            view = self.view
            bare = replace(view, labels=view.labels[:0], scores=view.scores[:0])  # nothing to sort
            self._tests = self.position, bare.as_json()["tests"]
        return self._tests[1]

    async def predict(
        self, members: Mapping[str, LearnerReplica], events: Mapping[str, Events]
    ) -> dict[str, Predicted]:
        """What every learner says of the same events, which each remembers."""
        self._check()
        said = await asyncio.gather(*(member.served_events.predict(events[name]) for name, member in members.items()))
        return dict(zip(members, said, strict=True))

    def _jumped(self, back: bool) -> None:  # noqa: ARG002 (what was told at a position is of another comparison)
        self._told = self._tests = None

    def _check_read(self, record: Any, what: str) -> None:
        if not isinstance(record, ComparedBatch):
            raise Damaged(f"{what} is of a learner, not of a group")
        check_compared(record, what)

    async def _move(self, record: ComparedBatch) -> None:
        try:
            if len(record) <= _INLINE:
                self.machine.apply(record)
            else:
                self.view = await self.node.in_thread(self.view.frozen)
                await self.node.in_thread(lambda: self.machine.apply(record))
        except InvalidInput as error:
            raise Damaged(f"a record of {called(self.name)} does not fit it: {error}") from error

    def _weight(self, record: Any) -> int:
        return len(record)


def _agree(members: Mapping[str, LearnerReplica], events: Mapping[str, Labelled]) -> None:
    """Refuse what one of the learners would refuse, before any of them learns it."""
    for name, member in members.items():
        refusal = member.refusal(events[name])
        if refusal is not None:
            raise type(refusal)(f"{name}: {refusal.detail}")
    spans: dict[str, tuple[int, int]] = {}
    for segment in next(iter(events.values())).segments:
        after, _ = spans.get(segment.name, (segment.after, 0))
        spans[segment.name] = after, segment.offset + segment.stop - segment.start
    for source, (after, end) in spans.items():
        stand = {name: member.view.sources.get(source) for name, member in members.items()}
        known = [at for at in stand.values() if at is not None]
        through = all(at == end for at in known)  # as where it failed half-way
        if after > 0 and known and len(known) < len(stand) and not through:
            said = ", ".join(f"{name} {'knows none of it' if at is None else f'at {at}'}" for name, at in stand.items())
            raise SourceGap(f"not every learner knows the source {source!r}, which would begin at {after}: {said}")


async def _scores(member: LearnerReplica, outcome: BatchOutcome, ids: tuple[str | None, ...] | None) -> Vector:
    """What a learner said of each event, now or, of a duplicate, when it met it first; NaN where that is not known."""
    again = np.flatnonzero(outcome.status == Status.DUPLICATE)
    if ids is None or not len(again):
        return outcome.scores
    scores = outcome.scores.copy()
    known = [i for i in again.tolist() if ids[i] is not None]
    scores[known] = await member.learnt_scores([ids[i] or "" for i in known])
    return scores


def _compared(events: Labelled, outcomes: list[BatchOutcome], scores: list[Vector]) -> ComparedBatch:
    """Those events that every learner has said something of."""
    said = np.ones(len(events.labels), dtype=np.bool_)
    for outcome, own in zip(outcomes, scores, strict=True):
        before = (outcome.status == Status.DUPLICATE) & ~np.isnan(own)
        said &= np.isin(outcome.status, (Status.APPLIED, Status.RELABELLED)) | before
    hashes = np.zeros(len(said), dtype=np.uint64) if events.ids is None else hashes_of(events.ids)
    times = np.full(len(said), np.nan) if events.times is None else events.times
    return ComparedBatch(
        hashes[said], events.labels[said], np.stack([own[said] for own in scores], axis=1), times[said]
    )
