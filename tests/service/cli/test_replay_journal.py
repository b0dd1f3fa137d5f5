"""Replays of a file that changes: with --again each row is learnt once, by the journal of what was sent from here."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from learners.deduplication import MAX_SOURCES
from service.cli import replay_journal
from service.cli.replay_engine import ReplayPlan
from service.cli.replay_journal import Opening, ReplayJournal, begin
from service.datasets import BadRows, File, RowColumns, RowHash, Rows, batches, open_rows, source_name
from service.datasets.file_options import FileOptions
from service.exits import CommandFailed, WrongUsage

CHANGED = "this row has changed since it was sent"
NOT_KNOWN = "this machine does not know which"
SKIP = RowColumns("label", form=FileOptions(on_bad="skip", unlabelled="skip"))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def _one_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash only the header, as if all rows were behind the part of a file that names its source."""
    for bytes_read in ("_PROBE", "_BEGINNING"):
        monkeypatch.setattr(sys.modules["service.datasets.batches"], bytes_read, len("x,label\n"))


class Machine:
    """A machine that replays a file to a learner, which counts the rows that it learns."""

    def __init__(self, folder: Path, birth: str = "birth", name: str = "rows.csv") -> None:
        self.path = folder / name
        self.birth = birth
        self.sources: dict[str, int] = {}
        self.learnt: Counter[str] = Counter()
        self.notes = Console(record=True, width=1000, file=io.StringIO())
        self.warnings: list[str] = []
        self.refused: set[str] = set()  # cells of rows that the service refuses

    def replay(self, rows: Iterable[Any], kill: int | None = None, columns: RowColumns = SKIP, **options: Any) -> int:
        """Write the file, replay it in requests of two rows, and stop before request `kill`; return the rows learnt."""
        self.path.write_text("x,label\n" + "".join(f"{row},{row % 2}\n" for row in rows))
        return self.resume(kill, columns, **options)

    def resume(self, kill: int | None = None, columns: RowColumns = SKIP, **options: Any) -> int:
        """Replay the file as it is."""
        file = File.of(self.path)
        plan = ReplayPlan(file, "a", columns, **options)
        source = source_name(file, columns, "csv", self.sources)
        before = self.learnt.total()

        @contextmanager
        def opened(bad: BadRows) -> Iterator[Rows[Any]]:
            with open_rows(file, columns, bad=bad) as rows:
                yield rows

        with opened(BadRows("skip")) as rows:
            hash = RowHash(columns, rows.header)
            with ReplayJournal(self.birth, hash, self.warnings.append) as journal:
                journal.follow(self.sources)
                selection = begin(plan, Opening(source, opened), journal, self.notes)
                for batch in batches(selection(rows.events()), selection.source, selection.start, 2):
                    journal.note(batch)
                    if kill == 0:  # after the rows were written, before they were sent
                        break
                    kill = None if kill is None else kill - 1
                    cells = [event.origin.row[0] for event in batch.events if event.origin]
                    journal.refuse(
                        batch, [event.origin for event in batch.events if event.origin.row[0] in self.refused]
                    )  # type: ignore[union-attr]
                    self.learnt.update(cell for cell in cells if cell not in self.refused)
                    if cells[-1] not in self.refused:
                        self.sources.pop(selection.source, None)
                        self.sources[selection.source] = batch.next
        return self.learnt.total() - before

    def printed(self) -> str:
        """Return what was printed since the last call."""
        return self.notes.export_text()


def test_a_row_that_is_in_the_file_more_often_is_learnt_as_often_more(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 1, 2, 3])
    assert machine.replay([1, 4, 1, 1, 2, 3], again=True) == 2
    assert machine.learnt == Counter("111234")
    assert "left out: 4; new rows: 2" in machine.printed()


@pytest.mark.usefixtures("_one_beginning")
def test_a_changed_file_is_refused_without_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3, 4], limit=2)
    with pytest.raises(WrongUsage, match="Nothing was sent:\n  --again learns the rows that are new\n  --from 2 "):
        machine.replay([1, 2, 3, 4, 5])
    machine.replay([1, 2, 3, 4])
    with pytest.raises(WrongUsage, match=f"line 3: {CHANGED}"):
        machine.replay([1, 9, 3, 4])
    assert machine.learnt == Counter("1234")


@pytest.mark.usefixtures("_one_beginning")
@pytest.mark.parametrize("before", ["", "oops"])  # without a label, or bad
def test_a_row_that_gets_good_without_a_change_of_the_size_is_learnt(tmp_path: Path, before: str) -> None:
    machine = Machine(tmp_path)
    machine.path.write_text("x,label\n1,0\n" + {"": "2, \n", "oops": "2 0\n"}[before] + "3,0\n4,0\n5,0\n")
    assert machine.resume(kill=1) == 2
    machine.path.write_text("x,label\n1,0\n2,0\n3,0\n4,0\n5,0\n")
    with pytest.raises(WrongUsage, match=CHANGED):
        machine.resume()
    assert machine.resume(again=True) == 3
    assert machine.learnt == Counter("12345")


@pytest.mark.usefixtures("_one_beginning")
def test_rows_that_the_service_refused_are_new_once_they_are_repaired(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.refused = {"2"}
    machine.replay([1, 2, 3, 4])
    assert machine.resume() == 0  # unchanged
    assert machine.replay([1, 9, 3, 4], again=True) == 1
    machine.refused = set()
    assert machine.replay([1, 2, 3, 4], again=True) == 1
    assert machine.learnt == Counter("12349")


def test_each_repair_that_keeps_the_size_is_learnt(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    rows = list(range(100_000, 108_000))  # the repaired row is behind the hashed beginning
    machine.replay(rows)
    assert machine.resume() == 0
    for value in (200_001, 200_002, 200_003):
        rows[7900] = value
        with pytest.raises(WrongUsage):
            machine.replay(rows)
        assert machine.replay(rows, again=True) == 1
        assert machine.resume(again=True) == 0
    assert [name.rpartition("#")[2] for name in machine.sources][1:] == ["+again"]
    with pytest.raises(WrongUsage):
        machine.resume()


def test_a_replay_that_was_killed_before_it_sent_loses_nothing_if_the_file_changes(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2])
    for rows in ([1, 2, 3, 4, 5], [1, 2, 4, 5, 6], [7, 1, 2, 3]):
        machine.replay(rows, again=True, kill=0)
    assert machine.replay([1, 2, 5, 6, 7, 8], again=True) == 4
    assert machine.replay([1, 2, 3, 4, 5, 6, 7, 8], again=True) == 2
    assert machine.learnt == Counter("12345678")


def test_an_earlier_content_that_comes_back_learns_nothing_twice(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3, 4, 5], kill=1)
    machine.replay([1, 2, 3, 4, 5, 6], again=True)
    with pytest.raises(WrongUsage, match="line 4: a later replay has learnt rows"):
        machine.replay([1, 2, 3, 4, 5])
    assert machine.resume(again=True) == 0


def test_a_file_with_another_name_and_beginning_leaves_out_what_was_learnt(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with pytest.raises(WrongUsage, match="leave --again out"):
        machine.replay([1, 2], again=True)
    machine.replay([1, 2, 3])
    machine.path = tmp_path / "other.csv"
    assert machine.replay([7, 1, 2, 3], again=True) == 1
    assert machine.replay([7, 8, 1, 2, 3], again=True) == 1
    machine.path = tmp_path / "third.csv"
    with pytest.raises(WrongUsage, match="Nothing was sent"):  # its beginning is known
        machine.replay([7, 8, 1, 2, 3])


def test_another_file_of_which_rows_look_alike_is_none_of_the_learnt_ones(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3])
    machine.path = tmp_path / "other.csv"
    machine.replay([2, 3, 4])
    assert machine.replay([2, 3, 4, 1], again=True) == 1


def test_the_refusals_of_a_file_without_known_rows_say_why(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3])
    with pytest.raises(WrongUsage, match=r"none of the 2 rows of this file is among them.*\n  --all"):
        machine.replay([7, 8], again=True)
    with pytest.raises(WrongUsage, match=r"other columns or options"):  # they make other events
        machine.replay([1, 2, 3], again=True, columns=RowColumns("label", positive=("0",)))
    assert machine.replay([7, 8], first=0) == 2
    assert machine.replay([7, 8, 1], again=True) == 0


def test_all_and_from_do_what_they_say(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3, 4])
    assert machine.resume(first=0) == 4
    assert machine.replay([1, 9, 3, 4], first=0, kill=1) == 2  # of the same size
    assert machine.resume(first=0) == 2
    assert machine.resume(first=0) == 0
    assert machine.resume(first=3) == 1
    assert machine.resume(first=2) == 2
    assert machine.resume(again=True) == 0


@pytest.mark.usefixtures("_one_beginning")
def test_rows_that_were_sent_from_elsewhere_are_not_taken_for_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3, 4, 5], kill=1)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    assert "cannot be checked" not in machine.printed()
    machine.resume()
    assert "cannot be checked" in machine.printed()
    with pytest.raises(WrongUsage, match=NOT_KNOWN):
        machine.replay([1, 2, 3, 4, 5, 6], again=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(WrongUsage, match=CHANGED):  # what is known is compared
        machine.replay([1, 9, 3, 4, 5])
    machine.replay([1, 2, 3, 4, 5], kill=None)  # nothing is left
    assert machine.learnt == Counter("12345")
    for rows in ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7]):  # the latest source is known, another one is not
        with pytest.raises(WrongUsage, match=NOT_KNOWN):
            machine.replay(rows, again=True)
        machine.replay(rows, first=len(rows) - 1)


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


def test_a_source_that_the_learner_does_not_list_any_more_is_not_learnt_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_journal, "LISTED_SOURCES", 2)
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3])
    machine.sources = {"a": 1, "b": 1}
    for options in ({}, {"again": True}):
        with pytest.raises(WrongUsage, match=r"it lists the 2 sources.*\n  --from ROW .*\n  --all"):
            machine.resume(**options)
    machine.sources = {"a": 1}  # it was rolled back
    machine.learnt.clear()
    assert machine.resume() == 3


@pytest.mark.parametrize("id", ["x", None])
def test_ids_lift_the_refusal_if_earlier_replays_had_them(tmp_path: Path, id: str | None) -> None:
    machine = Machine(tmp_path)
    ids = RowColumns("label", id="x")
    machine.replay([1, 2, 3], columns=RowColumns("label", id=id))
    if id is None:
        with pytest.raises(WrongUsage, match="--all"):
            machine.replay([1, 2, 3, 4], columns=ids)
    else:
        assert machine.replay([1, 2, 3, 4], columns=ids) == 4  # the service knows the others by their ids


def test_a_second_replay_to_the_learner_is_refused(tmp_path: Path) -> None:
    hash = RowHash(SKIP, [])
    with ReplayJournal("birth", hash, pytest.fail), ReplayJournal("other", hash, pytest.fail):
        with pytest.raises(CommandFailed, match="wait until it has ended"), ReplayJournal("birth", hash, pytest.fail):
            pass
        with ReplayJournal("birth", hash, pytest.fail, read_only=True):
            pass
    assert Machine(tmp_path).replay([1, 2]) == 2


def test_another_learner_of_the_name_has_a_journal_of_its_own(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3])
    machine.birth, machine.sources = "another", {}
    assert machine.replay([1, 2, 3, 4]) == 4


def test_rows_that_look_alike_are_left_out_with_a_warning(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2] * 10)
    machine.printed()
    machine.replay([1, 2, 2, 1] * 10, again=True)  # perhaps another day
    assert "only 2 of the rows that are left out differ" in machine.printed()
    machine.replay([1, 3, 4, 5], again=True)
    assert "this file has only 1 of 40 learnt rows" in machine.printed()


def test_only_the_user_reads_the_journal_and_it_is_removed_when_it_was_not_used_for_long(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3])
    (folder,) = (tmp_path / "state/rarestream/replays").iterdir()
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    os.utime(folder, (0, 0))
    assert machine.replay([1, 2, 3, 4], again=True) == 1  # its own folder stays
    os.utime(folder, (0, 0))
    Machine(tmp_path, "another").replay([1, 2])
    assert not folder.exists()


def test_half_a_row_that_a_kill_has_left_is_removed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3, 4, 5], kill=2)
    file = sent_file(tmp_path)
    file.write_bytes(file.read_bytes()[:-5])
    machine.resume()
    assert machine.replay([1, 2, 3, 4, 5, 6], again=True) == 1


@pytest.mark.parametrize("place", [3, -17, -3])  # in the head, in a hash, in a check
def test_a_damaged_journal_is_named_with_its_cure(tmp_path: Path, place: int) -> None:
    machine = Machine(tmp_path)
    machine.replay([1, 2, 3])
    file = sent_file(tmp_path)
    content = bytearray(file.read_bytes())
    content[place] ^= 64 if place < 0 else 255
    file.write_bytes(content)
    with pytest.raises(WrongUsage, match=f"{file.name} is damaged.*Remove it"):
        machine.replay([1, 2, 3, 4], again=True)
    file.unlink()
    with pytest.raises(WrongUsage, match=NOT_KNOWN):
        machine.resume(again=True)


def test_a_journal_that_cannot_be_kept_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    machine.replay([1, 2])
    assert len(machine.warnings) == 1
    assert machine.warnings[0].startswith("warning: replay --again will not know the rows of this replay")
    with pytest.raises(WrongUsage, match=NOT_KNOWN):
        machine.replay([1, 2, 3], again=True)


def test_the_journal_knows_how_many_sources_a_learner_lists() -> None:
    assert replay_journal.LISTED_SOURCES == MAX_SOURCES


def sent_file(folder: Path) -> Path:
    (file,) = (path for path in (folder / "state/rarestream/replays").glob("*/*") if not path.suffix)
    return file
