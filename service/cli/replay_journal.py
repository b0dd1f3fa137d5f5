"""Decides where a replay begins, and leaves out the rows that were learnt of an earlier content of its file.

The journal of the rows that were sent from this machine is in `service.datasets.learnt_rows`. A replay that leaves out
rows is a source of its own, `again_source`. So another machine, which lacks the journal, never resumes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec
from rich.console import Console

from service.datasets import (
    EarlierRows,
    LearntRows,
    LeftOutRows,
    RequestBody,
    RowHash,
    RowWriter,
    earlier_rows,
    earlier_sources,
    learnt_folder,
    remove_unused,
)
from service.exits import WrongUsage
from service.text import counted

if TYPE_CHECKING:
    from service.cli.replay_engine import ReplayPlan

__all__ = ["Beginning", "Opening", "ReplayJournal", "begin"]

LISTED_SOURCES = 64  # that a learner lists; it forgets the one that was not used for longest


class Beginning(NamedTuple):
    """Where a replay begins."""

    source: str
    start: int  # the first row to send
    left_out: LeftOutRows | None = None  # the rows to leave out


class ReplayJournal:
    """The rows that were sent to a learner from this machine; a context manager.

    If they cannot be read or written, a warning says so, and none is known.
    """

    def __init__(self, learner: dict[str, Any], hash: RowHash, warn: Callable[[str], None]) -> None:
        self._sources: dict[str, int] = learner["sources"]
        self._hash = hash
        self._warn = warn
        self._rows: dict[str, LearntRows] = {}
        self._writer: RowWriter | None = None
        self._writable = True
        try:
            self._folder = learnt_folder(learner["birth"])
            self._rows = LearntRows.of_folder(self._folder)
        except (OSError, RuntimeError, msgspec.DecodeError) as error:
            self._give_up(error)

    def has(self, source: str) -> bool:
        """Tell whether the source was begun from here."""
        return source in self._rows

    def covers(self, source: str) -> bool:
        """Tell whether all learnt rows of a source were sent from here."""
        return self.has(source) and self._rows[source].reach(self._sources[source])

    def remains(self, source: str, raw: Iterator[tuple[int, Any]]) -> bool:
        """Tell whether a file has all learnt rows of a source, in their order."""
        return self._rows[source].are_in(raw, self._hash, self._sources[source])

    def left_out(self, raw: Iterator[tuple[int, Any]]) -> LeftOutRows:
        """Compare a file with all rows that were learnt, of whatever source."""
        return LeftOutRows(raw, self._hash, [rows.hashes(self._learnt(name)) for name, rows in self._rows.items()])

    def _learnt(self, source: str) -> int | None:
        """Return the learner's offset; None, for all rows, if it has more sources than it lists."""
        return self._sources.get(source, None if len(self._sources) >= LISTED_SOURCES else 0)

    def open(self, source: str) -> None:
        """Begin to note rows of a source."""
        if not self._writable:
            return
        offset = self._sources.get(source, 0)
        if offset and not self.covers(source):  # others sent rows of it
            return
        try:
            before = self._rows.get(source) if offset else None
            self._writer = RowWriter(self._folder, source, before, offset)
            remove_unused(self._folder)
        except OSError as error:
            self._give_up(error)

    def note(self, batch: RequestBody) -> None:
        """Note labelled rows that are about to be sent."""
        if self._writer is None or batch.kind != "labelled":
            return
        hashes = [self._hash(event.origin.row if event.origin else None) for event in batch.events]
        try:
            self._writer.add(batch.numbers, hashes)
        except OSError as error:
            self._give_up(error)

    def take_back(self, batch: RequestBody) -> None:
        """Forget rows that the service has refused."""
        if self._writer is None or batch.kind != "labelled":
            return
        try:
            self._writer.take_back(batch.count)
        except OSError as error:
            self._give_up(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def _give_up(self, error: Exception) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self._writable = False
        self._warn(f"warning: replay --again will not know the rows of this replay: cannot keep them here: {error}")


class Opening(NamedTuple):
    """What `begin` needs of a replay."""

    learner: dict[str, Any]  # its document
    source: str
    raw: Callable[[], AbstractContextManager[Iterator[tuple[int, Any]]]]  # opens the rows of the file as they are


def begin(plan: ReplayPlan, opening: Opening, journal: ReplayJournal | None, notes: Console) -> Beginning:
    """Decide and print where a replay begins, and begin its journal; it is None for late labels.

    Raises `WrongUsage` if rows of an earlier file would be learnt again, or new ones left out.
    """
    learner, source, raw = opening
    learnt: int = learner["sources"].get(source, 0)
    earlier = earlier_rows(learner, source)
    if journal is None:
        return _begin_whole(plan, opening, notes)
    changed = False
    if learnt and journal.covers(source):
        with raw() as rows:
            changed = not journal.remains(source, rows)
    resumed = not plan.all and journal.has(again_source(source))
    if resumed or (plan.again and (changed or (earlier is not None and not learnt))):
        beginning = _begin_again(plan, opening, journal, notes)
    elif changed:
        raise WrongUsage(
            f"the learner has learnt {counted(learnt, 'row')} of this file, which has changed since. Nothing was sent: "
            "--again learns the rows that are new"
        )
    else:
        beginning = _begin_whole(plan, opening, notes)
    latest = earlier_sources(learner, beginning.source)[-1:]
    if beginning.left_out or not plan.first or all(map(journal.covers, latest)):  # else earlier rows are unknown
        journal.open(beginning.source)
    return beginning


def again_source(source: str) -> str:
    """Return the source of a file of which learnt rows are left out."""
    return f"{source}+again"


def _begin_whole(plan: ReplayPlan, opening: Opening, notes: Console) -> Beginning:
    """Begin or resume a replay that leaves out no rows."""
    learner, source, _ = opening
    learnt: int = learner["sources"].get(source, 0)
    earlier = earlier_rows(learner, source)
    if learnt:
        notes.print(f"resuming at row {learnt:,}")
    elif plan.first:
        notes.print(f"beginning at row {plan.first:,}")
    elif earlier is not None:
        if not plan.all and plan.columns.id is None:
            raise WrongUsage(
                f"{_describe(earlier)}. Nothing was sent: --again learns the rows that are new, --from {earlier.rows} "
                "continues after them if this file begins with the same rows, and --all learns all. If all replays use "
                "--id, no row is learnt twice"
            )
        notes.print(f"warning: {_describe(earlier)}: this file is learnt from its first row", soft_wrap=True)
    return Beginning(source, max(learnt, plan.first))


def _begin_again(plan: ReplayPlan, opening: Opening, journal: ReplayJournal, notes: Console) -> Beginning:
    """Begin or resume a replay that leaves out learnt rows. Raises `WrongUsage` if they cannot be known."""
    learner, source = opening.learner, again_source(opening.source)
    learnt: int = learner["sources"].get(source, 0)
    earlier = earlier_rows(learner, source)
    what = _describe(earlier) if earlier is not None else "the learner has learnt rows of this file"
    if not all(map(journal.covers, [*earlier_sources(learner, source)[-1:], *[source] * bool(learnt)])):
        raise WrongUsage(
            f"{what}, and this machine does not know which: they were sent from elsewhere, or by an earlier version. "
            "Nothing was sent: --all learns all rows of this file, and --from ROW those from there on"
        )
    with opening.raw() as rows:
        left_out = journal.left_out(rows)
    if not left_out.total:
        raise WrongUsage(
            f"{what}, and none of the {counted(left_out.rows, 'row')} of this file is among them: it is another file, "
            "or other columns or options make its events. Nothing was sent: --all learns all its rows"
        )
    new = left_out.rows - left_out.total
    notes.print(f"rows that were learnt before, and are left out: {left_out.total:,}; new rows: {new:,}")
    if 2 * left_out.distinct < left_out.total:
        notes.print(
            f"warning: only {left_out.distinct:,} of the rows that are left out differ from each other: if this file "
            "has new events that look like earlier ones, --all learns them, too",
            soft_wrap=True,
        )
    if learnt:
        notes.print(f"resuming at row {learnt:,}")
    return Beginning(source, max(learnt, plan.first), left_out)


def _describe(earlier: EarlierRows) -> str:
    what = (
        "a file of this name, but with other content or other options"
        if earlier.same_name
        else f"{earlier.name}, which begins as this file does"
    )
    return f"the learner has learnt {counted(earlier.rows, 'row')} of {what}"
