"""A replay of a repaired file leaves out the rows that were learnt, by the journal of what was sent from here."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.cli.learnt_rows import LearntRows
from service.cli.replay_journal import ReplayJournal
from service.datasets import RequestBody, batches

URL = "http://service"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


class Replays:
    """A learner that counts rows, and replays of files to it that a kill may end."""

    def __init__(self) -> None:
        self.sources: dict[str, int] = {}
        self.learnt: Counter[int] = Counter()
        self.notes: list[str] = []

    def journal(self, source: str) -> ReplayJournal:
        document = {"name": "a", "sources": dict(self.sources)}
        return ReplayJournal(URL, document, source, self.notes.append)

    def send(self, source: str, rows: list[int], *, again: bool = True, requests: int = 99, size: int = 3) -> int:
        """Replay rows in so many requests; return how many were learnt before."""
        journal = self.journal(source)
        earlier = journal.begin(again)
        start = self.sources.get(source, 0)
        events: Any = ({"features": {"x": row}, "label": row % 2} for row in rows)
        if earlier is None:
            events = list(events)[start:]
        for batch in batches(events, source, start, size, earlier=None if earlier is None else earlier.take):
            journal.note(batch)
            if requests == 0:  # killed after the rows were written, before they were sent
                break
            requests -= 1
            self.take(batch, rows)
        return 0 if earlier is None else earlier.repeated

    def take(self, batch: RequestBody, rows: list[int]) -> None:
        for number in batch.numbers:
            assert number >= self.sources.get(str(batch.source), 0)
            self.learnt[rows[number]] += 1
        self.sources[str(batch.source)] = batch.next


ROWS = st.lists(st.integers(0, 5), max_size=12)


@settings(max_examples=60)
@given(st.data(), ROWS, ROWS, st.integers(0, 4), st.integers(0, 4))
def test_each_row_of_a_repaired_file_is_learnt_once(
    data: Any, first: list[int], second: list[int], killed_first: int, killed_second: int
) -> None:
    name = data.draw(st.uuids()).hex  # a folder of its own for each example
    replays = Replays()
    replays.send(f"{name}#1", first, requests=killed_first)
    counts = Counter(first[: replays.sources.get(f"{name}#1", 0)])
    assert replays.learnt == counts
    replays.send(f"{name}#2", second, requests=killed_second)
    replays.send(f"{name}#2", second)
    assert replays.learnt == counts | Counter(second)  # the larger number of each
    third = [*first, *second, 6]
    replays.send(f"{name}#3", third)
    assert replays.learnt == counts | Counter(second) | Counter(third)


def test_a_repaired_row_and_further_equal_rows_are_new() -> None:
    replays = Replays()
    replays.send("a.csv#1", [1, 1, 2, 3])
    assert replays.send("a.csv#2", [1, 4, 1, 1, 2, 3]) == 4
    assert replays.learnt == {1: 3, 2: 1, 3: 1, 4: 1}
    assert not replays.notes


def test_without_again_nothing_is_left_out() -> None:
    replays = Replays()
    replays.send("a.csv#1", [1, 2])
    replays.send("a.csv#2", [1, 2], again=False)
    assert replays.learnt == {1: 2, 2: 2}


def test_rows_that_were_sent_from_elsewhere_are_not_taken_for_known() -> None:
    replays = Replays()
    replays.send("a.csv#1", [1, 2, 3])
    assert replays.journal("a.csv#2").covers_earlier
    replays.sources["a.csv#1"] = 5  # two rows from another machine
    assert not replays.journal("a.csv#2").covers_earlier
    replays.send("a.csv#1", [1, 2, 3, 4, 5, 6])  # resumed here: rows are missing between
    assert not replays.journal("a.csv#2").covers_earlier
    assert replays.send("a.csv#2", [1, 2]) == 0


def test_a_torn_entry_is_removed(tmp_path: Path) -> None:
    rows = LearntRows(tmp_path / "rows", "a#1")
    rows.begin(["b#1"])
    rows.note(range(2), [b"x", b"y"])
    (path,) = (tmp_path / "rows").iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    assert rows.resume() == ["b#1"]
    assert len(rows.hashes(2)) == 1
    rows.note([1], [b"y"])
    assert len(set(rows.hashes(2).tolist())) == 2


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    replays = Replays()
    replays.send("a.csv#1", [1, 2])
    assert replays.learnt == {1: 1, 2: 1}
    assert len(replays.notes) == 1
    assert replays.notes[0].startswith("warning: this machine does not remember the rows")
