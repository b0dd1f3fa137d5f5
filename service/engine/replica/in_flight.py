"""Records of served events that are on their way: appended past the mailbox, and not applied here yet.

    appending(token) -> in flight -> next(): it follows directly, so it is applied without reading the log
                                  -> applied(token)
                                  -> reading(): the log was read to its end without it, so the store lost it

A decision that spends from an account (a budget of alerts) has to count the records in flight: `DecisionAccount`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
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

    @contextmanager
    def appending(self, token: bytes) -> Iterator[InFlight]:
        """Hold a record in flight while the block appends it.

        If the block fails or its caller hangs up, nobody knows whether the record is in the log, so it leaves.
        """
        self._records[token] = InFlight(token)
        logged = False
        try:
            yield self._records[token]
            logged = True
        finally:
            if not logged:
                self._lose([token])
        self._logged += 1
        if token in self._records:  # not applied meanwhile
            self._records[token].ordinal = self._logged

    def next(self, position: int, token: bytes) -> InFlight | None:
        """Return the record that follows directly on the record of this token at a position."""
        for record in self._records.values():
            if record.position == position + 1 and record.before == token and record.record is not None:
                return record
        return None

    def find(self, token: bytes) -> ServedBatch | None:
        """Return the record of a token, if it is in flight and packed."""
        record = self._records.get(token)
        return None if record is None else record.record

    def applied(self, token: bytes) -> bool:
        """Take out a record that was applied; tell whether it was in flight."""
        return self._records.pop(token, None) is not None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Take out lost records: those logged before the block and not applied after it.

        The block reads the log to its end.
        """
        logged = self._logged
        yield
        lost = [token for token, record in self._records.items() if 0 < record.ordinal <= logged]
        if lost:
            self._lose(lost)
            logger.error("the store has lost %s of events that %s served", counted(len(lost), "record"), self._name)

    def clear(self) -> None:
        """Take out all records: the learner has continued from a snapshot, perhaps from behind them."""
        self._lose(list(self._records))

    def note(self, token: bytes, decided: _Decided) -> None:
        """Note the decisions of a record."""
        self._records[token].decided = decided

    def decisions(self) -> list[_Decided]:
        """Return the decisions of the records in flight, in order."""
        return [record.decided for record in self._records.values() if record.decided is not None]

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
        self, token: bytes, present: LearnerView, ready: bool, scores: Predictions, costs: Vector | None, times: Vector
    ) -> Predictions:
        """Decide for the events of a record in flight, and note it in the account.

        `present` is the view of this moment, `ready` whether the view that scored the events decides at all.
        """
        decided_before = self._in_flight.decisions()
        account = self._current(present, decided_before)
        newest = decided_before[-1].clocks[-1] if decided_before else math.nan
        clock = np.fmax(present.figures.clock, newest)
        clocks = np.fmax.accumulate(np.concatenate([[clock], times]))[1:]
        if ready:
            scores = account.serve(scores.scores, costs, clocks)
        else:  # the decisions are all 0, so nothing is spent
            scores = scores._replace(decisions=np.zeros_like(scores.decisions))
        self._in_flight.note(token, _Decided(scores, clocks, ready))
        return scores

    def _current(self, present: LearnerView, decided_before: list[_Decided]) -> Decision:
        basis = self._basis
        if self._account is None or basis is None or basis[0] is not present or basis[1] != self._in_flight.losses:
            self._account = present.scorer.decision.frozen()
            for decided in decided_before:
                self._account.note(*decided)
            self._basis = present, self._in_flight.losses
        return self._account
