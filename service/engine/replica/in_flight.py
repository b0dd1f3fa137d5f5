"""Records of served events that are on their way: appended past the mailbox, and not applied here yet.

Each operation is a block, so no call can be left out or come too early:

    appending(token)   appends a record, which is in flight from then on; if the block fails, it leaves
    applying(token)    applies a record, which is no longer in flight then
    reading()          reads the log to its end; records logged before and not applied by then are lost

A decision that spends from an account (a budget of alerts) has to count the records in flight: `DecisionAccount`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners import Decision, LearnerView, Predictions, ServedBatch
from learners.numerics import Vector
from service.text import counted

__all__ = ["DecisionAccount", "InFlight", "InFlightRecords"]

logger = logging.getLogger("rarestream.serving")


class _Decided(NamedTuple):
    """The decisions of a record, as its account notes them."""

    scores: Predictions
    clocks: Vector
    ready: bool


@dataclass(slots=True)
class InFlight:
    """One record in flight."""

    token: bytes
    record: ServedBatch | None = None  # once it is packed
    position: int = 0  # in the log; 0 = not known yet
    before: bytes = b""  # the token of the record before it; empty = not known
    ordinal: int = 0  # among all logged records of served events; 0 = not logged yet
    decided: _Decided | None = None


class InFlightRecords:
    """Which records of served events this node has appended and not applied yet, in order."""

    def __init__(self, name: str) -> None:
        """`name`: of the log."""
        self.losses = 0  # how often records left without being applied
        self._name = name
        self._logged = 0  # records so far
        self._records: dict[bytes, InFlight] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[InFlight]:
        return iter(self._records.values())

    @contextmanager
    def appending(self, token: bytes) -> Iterator[InFlight]:
        """Hold a record in flight while the block appends it.

        If the block fails or its caller hangs up, nobody knows whether the record is in the log, so it leaves.
        """
        record = self._records[token] = InFlight(token)
        try:
            yield record
        except BaseException:
            self._lose([token])
            raise
        self._logged += 1
        record.ordinal = self._logged

    @contextmanager
    def applying(self, token: bytes) -> Iterator[InFlight | None]:
        """Take the record of a token out, if there is one, once the block has applied it."""
        yield self._records.get(token)
        self._records.pop(token, None)

    @contextmanager
    def reading(self) -> Iterator[Callable[[], None]]:
        """Take out lost records: those logged before the block and not applied after it.

        The block reads the log to its end. It calls what it gets where it continues from a snapshot, which is perhaps
        behind all of them.
        """
        logged = self._logged
        yield lambda: self._lose(list(self._records))
        losses = [record.token for record in self if 0 < record.ordinal <= logged]
        if losses:
            self._lose(losses)
            logger.error("the store has lost %s of events that %s served", counted(len(losses), "record"), self._name)

    def _lose(self, tokens: list[bytes]) -> None:
        for token in tokens:
            self._records.pop(token, None)
        self.losses += 1


class DecisionAccount:
    """Decides for served events on a copy of the account that also counts the records in flight."""

    def __init__(self, in_flight: InFlightRecords) -> None:
        self._in_flight = in_flight
        self._account: Decision | None = None
        self._basis: tuple[LearnerView, int] | None = None  # the view and the losses that the account is for

    def decide(
        self,
        record: InFlight,
        present: LearnerView,
        ready: bool,
        scores: Predictions,
        costs: Vector | None,
        times: Vector,
    ) -> Predictions:
        """Decide for the events of a record in flight, and note it in the account.

        `present` is the view of this moment, `ready` whether the view that scored the events decides at all.
        """
        decided_before = [record.decided for record in self._in_flight if record.decided is not None]
        account = self._current(present, decided_before)
        newest = decided_before[-1].clocks[-1] if decided_before else math.nan
        clock = np.fmax(present.figures.clock, newest)
        clocks = np.fmax.accumulate(np.concatenate([[clock], times]))[1:]
        if ready:
            scores = account.serve(scores.scores, costs, clocks)
        else:  # the decisions are all 0, so nothing is spent
            scores = scores._replace(decisions=np.zeros_like(scores.decisions))
        record.decided = _Decided(scores, clocks, ready)
        return scores

    def _current(self, present: LearnerView, decided_before: list[_Decided]) -> Decision:
        basis = self._basis
        if self._account is None or basis is None or basis[0] is not present or basis[1] != self._in_flight.losses:
            self._account = present.scorer.decision.frozen()
            for decided in decided_before:
                self._account.note(*decided)
            self._basis = present, self._in_flight.losses
        return self._account
