"""The journal of a learner: what is entered, what is kept, and what a state may not hold."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from learners import InvalidInput, Note, SettingsChange, create, restore
from learners.learner import Learner
from learners.metrics.journal import MAX_NOTE, Journal, text_fault
from learners.records import Rollback
from tests.learners.features.test_field_quality import STEADY, stream


def fresh(events: int = 20) -> Learner:
    learner = create("cbr-diag", dim=2, seed=1)
    if events:
        y = (np.arange(events) % 3 == 0).astype(int)
        learner.learn(np.random.default_rng(0).normal(size=(events, 2)), y, times=1e9 + np.arange(events))
    return learner


def again(learner: Learner) -> Learner:
    return restore(learner.config.to_json(), {name: array.copy() for name, array in learner.state().items()})


def test_notes_and_changes_stand_where_the_learner_was() -> None:
    learner = fresh(0)
    learner.apply(Note("before any event", 50.0))
    digest = learner.digest()
    learner.learn(np.ones((4, 2)), [0, 1, 0, 1], times=[1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 4])
    learner.apply(Note("deployed\nüber 2 < 3", 60.0, "Ann", "desk"))
    learner.apply(SettingsChange({"threshold": {"objective": "fixed", "value": 0.25}}))
    for item in (learner, again(learner)):
        first, second, third = item.view().annotations()
        assert (first["kind"], first["events"], first["clock"], first["time"]) == ("note", 0, None, 50.0)
        assert (second["number"], second["events"], second["clock"]) == (1, 4, 1e9 + 4)
        assert (second["text"], second["by"], second["key"]) == ("deployed\nüber 2 < 3", "Ann", "desk")
        assert (third["kind"], third["data"]["threshold"]["value"], third["time"]) == ("settings", 0.25, None)
    assert fresh(0).digest() == digest  # notes are no part of what was learnt


def test_a_rollback_keeps_notes_and_undoes_acknowledgements_with_their_alarms() -> None:
    events = stream("missing", STEADY, 1500)
    learner = create("cbr-diag", features={"kind": "named", "bits": 16}, seed=3)
    labels = [int(i % 5 == 0) for i in range(len(events))]
    learner.learn(events[:STEADY], labels[:STEADY])
    learner.apply(Note("a campaign begins", 1.0))
    state = {name: array.copy() for name, array in learner.state().items()}
    before = learner.digest()
    learner.learn(events[STEADY:], labels[STEADY:])
    learner.apply(Note("known", 2.0, "Ann", alarm=0))
    assert [alarm["state"] for alarm in learner.view().alarms()] == ["acknowledged"]
    assert sum(learner.view().open_alarms.values()) == 0
    learner.apply(Rollback(7, state))
    assert learner.digest() == before
    assert learner.view().alarms() == []
    kinds = [(entry["kind"], entry["data"]) for entry in learner.view().annotations()]
    assert kinds == [("note", {}), ("restore", {"position": 7})]


def test_the_first_acknowledgement_counts_until_the_alarm_is_reopened() -> None:
    events = stream("missing", STEADY, 1500)
    events = [*events, *events[:1500], *events[STEADY:]]
    learner = create("cbr-diag", features={"kind": "named", "bits": 16}, seed=3)

    def learn(start: int, stop: int) -> str:
        learner.learn(events[start:stop], [int(i % 5 == 0) for i in range(start, stop)])
        (alarm,) = learner.view().alarms()
        return str(alarm["state"])

    assert learn(0, STEADY + 1500) == "open"
    for number, by in ((1, "nobody"), (0, "Ann"), (0, "Bob")):
        learner.apply(Note("", 5.0, by, alarm=number))
    (alarm,) = learner.view().alarms()
    assert (alarm["state"], alarm["acknowledged"]) == (
        "acknowledged",
        {"time": 5.0, "by": "Ann", "key": None, "note": ""},
    )
    assert len(learner.journal.entries) == 1
    assert learn(STEADY + 1500, STEADY + 3000) == "resolved"
    assert learner.view().alarms()[0]["acknowledged"]["by"] == "Ann"
    assert learn(STEADY + 3000, len(events)) == "reopened"
    assert learner.view().alarms()[0]["acknowledged"] is None
    learner.apply(Note("", 6.0, "Bob", alarm=0))
    assert again(learner).view().alarms()[0]["acknowledged"]["by"] == "Bob"


def test_the_last_64_entries_of_each_kind_are_kept() -> None:
    journal = Journal().add("note", 0, 1.0, {}, text="the first note")
    for number in range(200):
        journal = journal.add("fit", number, float("nan"), {"events": number})
    assert journal.count == 201
    assert [entry.number for entry in journal.entries] == [0, *range(137, 201)]
    assert Journal.of(journal.array) == journal
    assert journal.array.flags.writeable


def test_a_fit_is_an_entry() -> None:
    learner = create("ranksvm", dim=2, refit_every=50, refit_window=100)
    learner.learn(np.random.default_rng(0).normal(size=(120, 2)), (np.arange(120) % 3 == 0).astype(int))
    fits = [entry["data"]["events"] for entry in learner.view().annotations()]
    assert fits
    assert fits == sorted(fits)


@pytest.mark.parametrize("text", ["", "  ", "x" * (MAX_NOTE + 1), "bell \a", "\x1b[31m", "half \ud83d", 5, None])
def test_texts_that_cannot_be_shown(text: Any) -> None:
    assert text_fault(text, MAX_NOTE) is not None
    assert text_fault("two\nlines\twith 日本語 and <b>", MAX_NOTE) is None
    assert text_fault("", MAX_NOTE, empty=True) is None


ENTRY = [0, "note", 5, 1.0, 2.0, "Ann", None, "text", {}]


def entry(**members: Any) -> list[Any]:
    names = ("number", "kind", "events", "clock", "time", "by", "key", "text", "data")
    return [members.get(name, value) for name, value in zip(names, ENTRY, strict=True)]


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"count": 1},
        {"count": True, "entries": [ENTRY]},
        {"count": 0, "entries": [ENTRY]},
        {"count": 1, "entries": [ENTRY], "more": 1},
        {"count": 2, "entries": [ENTRY, ENTRY]},
        {"count": 1, "entries": [ENTRY[:-1]]},
        {"count": 1, "entries": [entry(kind="odd")]},
        {"count": 1, "entries": [entry(events=-1)]},
        {"count": 1, "entries": [entry(clock="now")]},
        {"count": 1, "entries": [entry(time=float("inf"))]},
        {"count": 1, "entries": [entry(by="")]},
        {"count": 1, "entries": [entry(text="\x07")]},
        {"count": 1, "entries": [entry(data=[])]},
        {"count": 1, "entries": [entry(data={"more": 1})]},
        {"count": 1, "entries": [entry(kind="acknowledgement", data={"alarm": 0})]},
        {"count": 1, "entries": [entry(kind="restore", data={"position": "x"})]},
        {"count": 65, "entries": [entry(number=number) for number in range(65)]},
    ],
)
def test_a_state_with_an_impossible_journal_is_refused(document: Any) -> None:
    learner = fresh()
    array = np.frombuffer(bytearray(json.dumps(document).encode()), dtype=np.uint8)
    with pytest.raises(InvalidInput) as refused:
        restore(learner.config.to_json(), {**learner.state(), "life.journal": array})
    assert [problem.pointer for problem in refused.value.problems] == ["/life.journal"]


@pytest.mark.parametrize("array", [np.full(9, 200, dtype=np.uint8), np.zeros((2, 2), dtype=np.uint8), np.zeros(3)])
def test_a_journal_of_other_bytes_is_refused(array: Any) -> None:
    learner = fresh()
    with pytest.raises(InvalidInput):
        restore(learner.config.to_json(), {**learner.state(), "life.journal": array})
