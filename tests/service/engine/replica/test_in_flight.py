"""Records of served events between append and application, and the account that counts them."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

import numpy as np
import pytest

from learners import Config, Learner, ServedBatch
from learners.numerics import hashes_of
from service.engine.replica.in_flight import DecisionAccount, InFlightRecords
from service.errors import StoreUnavailable
from tests.harness.log_records import logged_data

pytestmark = pytest.mark.integration

T0 = 1_700_000_000.0
DAY = 86_400.0
LATE = (T0 // DAY + 3) * DAY - 1.0  # the last second of a day: little is to come, so alerts are given freely
BUDGET = {
    "algorithm": "cbr",
    "features": {"kind": "dense", "dim": 2},
    "threshold": {"objective": "budget", "alerts": 7},
}


def append(records: InFlightRecords, *tokens: bytes) -> None:
    for token in tokens:
        with records.appending(token):
            pass


def applied(records: InFlightRecords, token: bytes) -> bool:
    """Apply a record, and tell whether it was in flight."""
    with records.applying(token) as record:
        pass
    return record is not None


def test_a_record_is_in_flight_from_its_append_until_its_application() -> None:
    records = InFlightRecords("a")
    with records.appending(b"1"):
        assert len(records) == 1
    assert len(records) == 1
    assert applied(records, b"1")
    assert len(records) == 0
    assert not applied(records, b"1")
    assert records.losses == 0


def test_a_record_may_be_applied_before_its_append_returns() -> None:
    records = InFlightRecords("a")
    with records.appending(b"1"):
        assert applied(records, b"1")
    assert len(records) == 0
    with records.reading():
        append(records, b"2")
    assert len(records) == 1


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
def test_an_append_of_unknown_outcome_leaves_nothing_in_flight(error: type[BaseException]) -> None:
    records = InFlightRecords("a")
    append(records, b"1")
    with pytest.raises(error), records.appending(b"2"):
        raise error
    assert applied(records, b"1")
    assert not applied(records, b"2")  # should it be in the log after all, it counts as another node's
    assert records.losses == 1


def test_records_logged_before_a_read_but_not_applied_are_lost(caplog: pytest.LogCaptureFixture) -> None:
    records = InFlightRecords("a")
    append(records, b"1", b"2", b"3")
    with records.appending(b"slow"):
        with records.reading():
            applied(records, b"2")
            append(records, b"4")
        assert [applied(records, token) for token in (b"1", b"3", b"4")] == [False, False, True]
    assert applied(records, b"slow")  # it was not logged yet
    assert logged_data(caplog, "rarestream.serving", "ERROR") == [("2 records", "a")]


def test_a_failed_read_changes_nothing() -> None:
    records = InFlightRecords("a")
    append(records, b"1")
    with pytest.raises(ValueError, match="unanswered"), records.reading():
        raise ValueError("unanswered")
    assert applied(records, b"1")


def test_a_record_that_cannot_be_applied_stays_in_flight() -> None:
    records = InFlightRecords("a")
    append(records, b"1")
    with pytest.raises(ValueError, match="damaged"), records.applying(b"1"):
        raise ValueError("damaged")
    assert applied(records, b"1")


def test_a_snapshot_clears_the_records_in_flight() -> None:
    records = InFlightRecords("a")
    append(records, b"1")
    with records.appending(b"2"), records.reading() as clear:
        clear()
        assert len(records) == 0
    append(records, b"3")
    with records.reading():
        applied(records, b"3")
    assert records.losses == 1


class Budget:
    """A learner with a budget of alerts that has learnt enough to spend it."""

    def __init__(self) -> None:
        self.learner = Learner(Config.of(BUDGET))
        rng = np.random.default_rng(3)
        rows, labels = rng.normal(size=(400, 2)), np.where(np.arange(400) % 4 == 0, 1.0, -1.0)
        rows[labels == 1] += 3
        self.learner.learn(rows.tolist(), labels.tolist(), times=(T0 + np.arange(400.0)).tolist())
        self.records = InFlightRecords("a")
        self.account = DecisionAccount(self.records)
        self.view = self.learner.view()
        self.token = 0

    def decide(self, at: float, append_it: bool = True) -> tuple[int, ServedBatch]:
        self.token += 1
        token = str(self.token).encode()
        scores = self.view.scorer.score(np.array([[5.0, 5.0]]))
        times = np.array([at])
        with suppress(StoreUnavailable), self.records.appending(token) as in_flight:
            scores = self.account.decide(in_flight, self.view, self.view.not_ready is None, scores, None, times)
            if not append_it:
                raise StoreUnavailable("away")
        record = ServedBatch(hashes_of([str(self.token)]), times, *scores, ready=True)
        return int(scores.decisions[0]), record

    def apply(self, token: int, record: ServedBatch) -> None:
        self.learner.apply(record)
        self.view = self.learner.view()
        assert applied(self.records, str(token).encode())


def test_an_account_counts_records_in_flight_as_applied() -> None:
    """Decisions do not depend on when the records before them are applied."""
    at_once, later = Budget(), Budget()
    expected, decided, waiting = [], [], []
    for i in range(30):
        decision, record = at_once.decide(LATE + i / 1000)
        expected.append(decision)
        at_once.apply(at_once.token, record)
        decision, record = later.decide(LATE + i / 1000)
        decided.append(decision)
        waiting.append((later.token, record))
        if i % 7 == 6:
            for token, late in waiting:
                later.apply(token, late)
            waiting.clear()
    assert decided == expected
    assert sum(expected) == 7


def test_an_account_forgets_records_missing_from_the_log() -> None:
    lossy, clean = Budget(), Budget()
    for _ in range(5):
        lossy.decide(LATE, append_it=False)
    assert math.isclose(lossy.view.figures.clock, clean.view.figures.clock)
    assert [lossy.decide(LATE + i / 1000)[0] for i in range(20)] == [
        clean.decide(LATE + i / 1000)[0] for i in range(20)
    ]
