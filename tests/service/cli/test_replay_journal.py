"""Replays of a file that changes: with --again each row is learnt once, by the journal of what was sent from here."""

from __future__ import annotations

import io
import os
import stat
from collections import Counter
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from learners.deduplication import MAX_SOURCES
from service.cli import replay_journal
from service.cli.replay_engine import ReplayPlan, ReplayResult
from service.cli.replay_journal import Opening, ReplayJournal, begin
from service.datasets import File, RowColumns, RowHash, batches, open_rows, source_name
from service.exits import WrongUsage

CHANGED = "which has changed since"
NOT_KNOWN = "this machine does not know which"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Machine:
    """A machine that replays a file to a learner, which counts the rows that it learns."""

    def __init__(self, folder: Path, birth: str = "birth") -> None:
        self.path = folder / "rows.csv"
        self.birth = birth
        self.sources: dict[str, int] = {}
        self.learnt: Counter[str] = Counter()
        self.notes = Console(record=True, width=1000, file=io.StringIO())
        self.warnings: list[str] = []

    def replay(
        self, rows: Iterable[Any], kill: int | None = None, columns: RowColumns | None = None, **options: Any
    ) -> ReplayResult:
        """Write the file, replay it in requests of two rows, and stop before request `kill`."""
        self.path.write_text("x,label\n" + "".join(f"{row},{row % 2}\n" for row in rows))
        return self.resume(kill, columns, **options)

    def resume(self, kill: int | None = None, columns: RowColumns | None = None, **options: Any) -> ReplayResult:
        """Replay the file as it is."""
        columns = columns or RowColumns("label")
        file = File.of(self.path)
        plan = ReplayPlan(file, "a", columns, **options)
        learner = {"name": "a", "birth": self.birth, "sources": dict(self.sources)}
        source = source_name(file, columns, "csv", learner["sources"])
        with open_rows(file, columns) as rows:
            hash = RowHash(columns, rows.header)

            @contextmanager
            def raw() -> Any:
                with open_rows(file, columns) as opened:
                    yield opened.raw()

            with ReplayJournal(learner, hash, self.warnings.append) as journal:
                source, start, left_out = begin(plan, Opening(learner, source, raw), journal, self.notes)
                result = ReplayResult(start, start)
                for batch in batches(rows.events(start), source, start, 2, leave_out=left_out):
                    journal.note(batch)
                    if kill == 0:  # after the rows were written, before they were sent
                        return result
                    kill = None if kill is None else kill - 1
                    assert batch.offset >= self.sources.get(source, 0)
                    self.learnt.update(f"{event.origin.row[0]}" for event in batch.events if event.origin)
                    self.sources.pop(source, None)
                    self.sources[source] = batch.next
                    result.applied += batch.count
                result.left_out = 0 if left_out is None else left_out.count
                return result

    def printed(self) -> str:
        """Return what was printed since the last call."""
        return self.notes.export_text()


def expected(*files: Iterable[int]) -> Counter[str]:
    """Return the larger number of each row."""
    rows: Counter[str] = Counter()
    for file in files:
        rows |= Counter(map(str, file))
    return rows


ROWS = st.lists(st.integers(10, 15), min_size=1, max_size=12)


@settings(max_examples=150)
@given(st.data(), ROWS, ROWS, st.integers(0, 5), st.integers(0, 5))
def test_each_row_of_a_changed_file_is_learnt_once(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    first: list[int],
    more: list[int],
    killed_first: int,
    killed_second: int,
) -> None:
    machine = Machine(tmp_path_factory.mktemp("files"), birth=str(tmp_path_factory.mktemp("birth")))
    first = [10, *first]  # so that each file has a row that was learnt
    machine.replay(first, kill=1 + killed_first)
    before = first[: 2 * (1 + killed_first)]
    assert machine.learnt == expected(before)
    place = data.draw(st.integers(0, len(first)))
    second = [*first[:place], *more, *first[place + 1 :], 10]
    machine.replay(second, kill=killed_second, again=True)
    machine.resume(again=data.draw(st.booleans()))
    assert machine.learnt == expected(before, second)
    assert machine.resume(again=data.draw(st.booleans())).applied == 0
    third = [*second, *first, 16]
    machine.replay(third, again=True)
    assert machine.learnt == expected(before, second, third)
    assert machine.resume().applied == 0
    assert not machine.warnings


def test_a_row_that_is_in_the_file_more_often_is_learnt_as_often_more(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 1, 2, 3])
    result = machine.replay([1, 4, 1, 1, 2, 3], again=True)
    assert (result.applied, result.left_out) == (2, 4)
    assert machine.learnt == Counter("111234")
    assert "left out: 4; new rows: 2" in machine.printed()


def test_a_changed_file_is_refused_without_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3, 4])
    for rows in ([1, 2, 3, 4, 5], [1, 9, 3, 4]):  # grown; repaired at the same size, in the first 64 KB
        with pytest.raises(WrongUsage, match="--again learns the rows that are new"):
            machine.replay(rows)
    assert machine.learnt == Counter("1234")


def test_a_repair_behind_the_hashed_beginning_that_keeps_the_size_is_seen(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    rows = list(range(100_000, 108_000))
    machine.replay(rows)
    assert machine.resume().applied == 0
    rows[7900] = 200_001
    (source,) = machine.sources
    for options in ({}, {"all": True}):
        with pytest.raises(WrongUsage, match=CHANGED):
            machine.replay(rows, **options)
    assert machine.replay(rows, again=True).applied == 1
    assert list(machine.sources) == [source, f"{source}+again"]
    assert machine.resume().applied == 0


def test_the_refusals_of_a_file_without_known_rows_say_why(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3])
    with pytest.raises(WrongUsage, match=r"none of the 2 rows of this file is among them.*--all"):
        machine.replay([7, 8], again=True)
    with pytest.raises(WrongUsage, match=r"other columns or options.*--all"):  # they make other events
        machine.replay([1, 2, 3], again=True, columns=RowColumns("label", positive=("0",)))
    assert machine.replay([7, 8], all=True).applied == 2
    assert machine.replay([7, 8, 1], again=True).applied == 0


def test_rows_that_were_sent_from_elsewhere_are_not_taken_for_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3, 4, 5], kill=1)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    machine.resume()
    with pytest.raises(WrongUsage, match=NOT_KNOWN):
        machine.replay([1, 2, 3, 4, 5, 6], again=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    machine.replay([1, 2, 3, 4, 5])  # nothing is left, and the last row is missing in the journal
    assert machine.learnt == Counter("12345")
    with pytest.raises(WrongUsage, match=NOT_KNOWN):
        machine.replay([1, 2, 3, 4, 5, 6], again=True)
    machine.replay([1, 2, 3, 4, 5, 6], first=5)
    with pytest.raises(WrongUsage, match=NOT_KNOWN):  # whose first rows are unknown, too
        machine.replay([1, 2, 3, 4, 5, 6, 7], again=True)
    machine.replay([1, 2, 3, 4, 5, 6, 7], all=True)
    assert machine.replay([1, 2, 3, 4, 5, 6, 7, 8], again=True).applied == 1


def test_another_machine_does_not_resume_a_replay_that_leaves_out_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3])
    machine.replay([1, 9, 2, 3], again=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(WrongUsage, match="Nothing was sent"):
        machine.resume()
    with pytest.raises(WrongUsage, match=NOT_KNOWN):
        machine.resume(again=True)


def test_another_learner_of_the_name_has_a_journal_of_its_own(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3])
    machine.birth, machine.sources = "another", {}
    assert machine.replay([1, 2, 3, 4], again=True).applied == 4


def test_rows_of_a_learner_that_was_rolled_back_are_learnt_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3, 4])
    machine.replay([1, 2, 3, 4, 5, 6], again=True)
    machine.sources = {next(iter(machine.sources)): 2}
    assert machine.resume(again=True).applied == 4


def test_rows_of_a_source_that_the_learner_does_not_list_any_more_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_journal, "LISTED_SOURCES", 1)
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3])
    machine.replay([1, 2, 3, 4], again=True)
    machine.sources.pop(next(iter(machine.sources)))
    assert machine.replay([1, 2, 3, 4, 5], again=True).applied == 1


def test_rows_that_look_alike_are_left_out_with_a_warning(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2] * 10)
    machine.printed()
    machine.replay([1, 2, 2, 1] * 10, again=True)  # perhaps another day
    assert "only 2 of the rows that are left out differ" in machine.printed()


def test_only_the_user_reads_the_journal_and_it_is_removed_when_it_was_not_used_for_long(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3])
    (folder,) = (tmp_path / "state/rarestream/replays").iterdir()
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    os.utime(folder, (0, 0))
    assert machine.replay([1, 2, 3, 4], again=True).applied == 1  # read before anything is removed
    os.utime(folder, (0, 0))
    Machine(tmp_path, "another").replay([1, 2])
    assert not folder.exists()


def test_half_a_row_that_a_kill_has_left_is_removed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3, 4, 5], kill=2)
    (file,) = (tmp_path / "state/rarestream/replays").glob("*/*")
    file.write_bytes(file.read_bytes()[:-5])
    machine.resume()
    assert machine.replay([1, 2, 3, 4, 5, 6], again=True).applied == 1


@pytest.mark.parametrize("damage", ["folder", "file"])
def test_a_journal_that_cannot_be_kept_is_a_warning(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    if damage == "folder":
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    else:
        machine.replay([1])
        (file,) = (tmp_path / "state/rarestream/replays").glob("*/*")
        file.write_bytes(b"\x00\n")
    machine.replay([1, 2], all=True)
    assert len(machine.warnings) == 1
    assert machine.warnings[0].startswith("warning: replay --again will not know the rows of this replay")
    with pytest.raises(WrongUsage, match=NOT_KNOWN):
        machine.replay([1, 2, 3], again=True)


def test_the_journal_knows_how_many_sources_a_learner_lists() -> None:
    assert replay_journal.LISTED_SOURCES == MAX_SOURCES
