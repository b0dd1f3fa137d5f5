"""Replays of a file that changes, as a state machine: each row is learnt once, or the replay is refused.

A learner is its offsets, by the rule of `learners.deduplication.Sources`, and the rows that it learnt. A file is a list
of rows. Replays are made of the real parts: the decision, the journal, the batches.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event as note_event
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from rich.console import Console

from service.cli import replay_journal
from service.cli.replay_engine import ReplayPlan
from service.cli.replay_journal import Opening, ReplayJournal, begin
from service.datasets import BadRows, File, RowColumns, RowEvent, RowHash, RowOrigin, batches
from service.exits import WrongUsage

LISTED = 4
KILLS = st.sampled_from([None, None, None, 0, 1, 2, 3])
NOTES = Console(file=io.StringIO())
COLUMNS = RowColumns("label")


class FileRows:
    """The rows of a file: of a text the first letter says whether it is bad (b), has no label (u), or is good."""

    def __init__(self, rows: list[str], bad: BadRows) -> None:
        self.rows, self.bad = rows, bad
        self.unlabelled_count = 0

    def events(self) -> Iterator[RowEvent]:
        for place, row in enumerate(self.rows):
            origin = RowOrigin("file", "line", place, [row])
            if row[0] == "b":
                self.bad.add(origin, "bad")
            elif row[0] == "u":
                self.unlabelled_count += 1
            else:
                yield RowEvent({"label": 0}, origin)


def labelled(rows: list[str]) -> list[str]:
    return [row for row in rows if row[0] not in "bu"]


class Replays(RuleBasedStateMachine):
    """One family of files: what is learnt of it is compared with what a perfect replay would have learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(replay_journal, "LISTED_SOURCES", LISTED)
        self.name = "a.csv"
        self.rows: list[str] = []
        self.contents: list[list[str]] = []  # that were replayed
        self.sources: dict[str, int] = {}
        self.learnt: Counter[str] = Counter()
        self.expected: Counter[str] = Counter()  # the larger number of each row in what replays of the file have read
        self.states: list[tuple[dict[str, int], Counter[str], Counter[str]]] = []
        self.machine = "here"

    def teardown(self) -> None:
        self.patch.undo()
        shutil.rmtree(self.folder)

    @initialize(rows=st.lists(st.sampled_from("1234"), min_size=1, max_size=8), kill=KILLS, unsent=st.booleans())
    def write(self, rows: list[str], kill: int | None, unsent: bool) -> None:
        self.rows = rows
        self._replay(False, kill, unsent)

    @rule(row=st.sampled_from(["1", "2", "3", "4", "5", "6", "b1", "u1", "b5"]), place=st.integers(0, 8))
    def edit(self, row: str, place: int) -> None:
        self.rows[place % len(self.rows)] = row  # of the same size: it has the same source

    @rule(rows=st.lists(st.sampled_from("123456"), min_size=1, max_size=4), place=st.integers(0, 9))
    def insert(self, rows: list[str], place: int) -> None:
        if len(self.rows) < 16:
            self.rows[place:place] = rows

    @rule(rows=st.lists(st.sampled_from("123456"), min_size=1, max_size=4))
    def grow(self, rows: list[str]) -> None:
        if len(self.rows) < 16:
            self.rows.extend(rows)

    @rule(place=st.integers(0, 9))
    def remove(self, place: int) -> None:
        if len(self.rows) > 1:
            del self.rows[place % len(self.rows)]

    @rule(k=st.integers(0, 9))
    def revert(self, k: int) -> None:
        """Bring back a content that was replayed."""
        self.rows = list(self.contents[k % len(self.contents)])

    @rule()
    def sort(self) -> None:
        self.rows.sort()

    @rule(name=st.sampled_from(["a.csv", "b.csv"]))
    def rename(self, name: str) -> None:
        self.name = name

    @rule()
    def save(self) -> None:
        if len(self.states) < 5:
            self.states.append((dict(self.sources), Counter(self.learnt), Counter(self.expected)))

    @rule(k=st.integers(0, 4))
    def restore(self, k: int) -> None:
        """Restore an earlier state of the learner, or a later one again."""
        if self.states:
            sources, learnt, expected = self.states[k % len(self.states)]
            self.sources, self.learnt, self.expected = dict(sources), Counter(learnt), Counter(expected)

    @rule(count=st.integers(1, LISTED))
    def feed(self, count: int) -> None:
        """Learn from other sources, so that the learner forgets those of the file."""
        for k in range(count):
            self._use(f"topic{k}", 1)

    @rule(machine=st.sampled_from(["here", "elsewhere"]))
    def move(self, machine: str) -> None:
        self.machine = machine

    @rule(kill=KILLS, unsent=st.booleans())
    def replay_plain(self, kill: int | None, unsent: bool) -> None:
        self._replay(False, kill, unsent)

    @rule(kill=KILLS, unsent=st.booleans())
    def replay_again(self, kill: int | None, unsent: bool) -> None:
        self._replay(True, kill, unsent)

    def _replay(self, again: bool, kill: int | None, unsent: bool) -> None:
        """Replay the file by requests of two rows; kill the process before or after request `kill` was learnt."""
        self.patch.setenv("XDG_STATE_HOME", str(self.folder / self.machine))
        self.contents.append(list(self.rows))
        plan = ReplayPlan(File(Path("file"), self.name), "a", COLUMNS, again=again)
        source = f"{self.name}#size{len(self.rows)}-{self.rows[0]}.begins-{self.rows[0]}"
        outcome = "refused"
        with suppress(WrongUsage), ReplayJournal("birth", RowHash(COLUMNS, []), pytest.fail) as journal:
            journal.follow(self.sources)

            @contextmanager
            def rows(bad: BadRows) -> Iterator[Any]:
                yield FileRows(self.rows, bad)

            selection = begin(plan, Opening(source, rows), journal, NOTES)
            if not selection.checked or self._looks_new(source, journal):
                return  # as the note says; or the file is not a new one
            outcome = "killed"
            events = selection(FileRows(self.rows, BadRows("skip")).events())
            for k, batch in enumerate(batches(events, selection.source, selection.start, 2)):
                journal.note(batch)
                if k == kill and unsent:
                    break
                self._learn(
                    str(batch.source), batch.offset, [event.origin.row[0] for event in batch.events if event.origin]
                )
                if k == kill:
                    break
            else:
                outcome = "complete"
        note_event(f"{'again' if again else 'plain'} {outcome}")
        if outcome == "complete":
            assert not Counter(labelled(self.rows)) - self.learnt  # nothing is missing

    def _looks_new(self, source: str, journal: ReplayJournal) -> bool:
        """Tell whether nothing in the learner and in the journal says that rows of this file were learnt."""
        listed = [source, *journal.related(source)]
        return bool(self.learnt) and not any(name in journal.offsets or journal.rows(name) for name in listed)

    def _learn(self, source: str, offset: int, rows: list[str]) -> None:
        new = self.sources.get(source, offset)
        assert offset <= new
        fresh = rows[max(0, new - offset) :]
        self.learnt.update(fresh)
        self.expected |= Counter(labelled(self.rows)) & self.learnt
        self._use(source, max(new, offset + len(rows)))

    def _use(self, source: str, offset: int) -> None:
        self.sources.pop(source, None)
        self.sources[source] = offset
        if len(self.sources) > LISTED:
            self.sources.pop(next(iter(self.sources)))

    @invariant()
    def nothing_is_learnt_twice(self) -> None:
        assert not self.learnt - self.expected, (self.learnt, self.expected)


TestReplays = Replays.TestCase
TestReplays.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@pytest.mark.campaign
class TestManyReplays(Replays.TestCase):  # type: ignore[name-defined, misc]
    settings = settings(max_examples=3000, stateful_step_count=40, deadline=None)
