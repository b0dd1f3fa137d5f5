"""Decides which rows a replay sends, so that none is learnt twice and none is lost when its file changes.

The journal of the rows that were sent from this machine is in `service.datasets.learnt_rows`. A plain replay holds each
row against the journal's and ends at the first that differs. With --again the rows that the journal does not have among
the learnt ones are sent, wherever they stand. They are numbered on in a source of their own, so it never matters how
the file changes between two such replays. With --all or --from the source is that of the file's whole content.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from service.datasets import (
    BadRows,
    Event,
    Hashes,
    ReadError,
    RequestBody,
    RowHash,
    RowOrigin,
    Rows,
    RowWriter,
    SentRows,
    SourceHead,
    again_source,
    file_name,
    find_learnt,
    learnt_folder,
    related_sources,
    remove_unused,
)
from service.exits import CommandFailed, WrongUsage
from service.pacing import WaitInterrupted
from service.text import counted

if TYPE_CHECKING:
    from service.cli.replay_engine import ReplayPlan

__all__ = ["Opening", "ReplayJournal", "Selection", "begin"]

LISTED_SOURCES = 64  # that a learner lists; it forgets the one that was not used for longest
_AGAIN = "--again learns the rows that are new"
_FROM = "--from ROW learns the rows from that one on, those that were learnt, too"
_ALL = "--all learns all rows, those that were learnt, too"
_IDS = "if all replays use the same --id, no row is learnt twice"
_PERHAPS_NEW = ": if events of this file are new and look like earlier ones, --all learns them, too"


class ReplayJournal:
    """The rows that were sent to a learner from this machine, and its offsets; a context manager.

    No other replay to the learner runs on this machine meanwhile, unless it is only to be read. If rows cannot be read
    or written, a warning says so, and none is known.
    """

    def __init__(self, birth: str, hash: RowHash, warn: Callable[[str], None], read_only: bool = False) -> None:
        self.files: dict[str, SentRows] = {}
        self.offsets: dict[str, int] = {}
        self._full = False  # the learner may have forgotten sources
        self.hash = hash
        self._birth = birth
        self._warn = warn
        self._folder = Path()
        self._writable = not read_only
        self._lock: BinaryIO | None = None
        self._writer: RowWriter | None = None

    def __enter__(self) -> Self:
        try:
            self._folder = learnt_folder(self._birth)
            if self._writable:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock = os.fdopen(os.open(self._folder / "replay.lock", os.O_RDWR | os.O_CREAT, 0o600), "r+b")
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_unused(self._folder)
            self.files = SentRows.of_folder(self._folder)
        except BlockingIOError:
            self.__exit__()
            raise CommandFailed(
                "another replay to this learner runs on this machine: wait until it has ended"
            ) from None
        except (OSError, RuntimeError) as error:
            self._give_up(error)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._writer, self._lock):
            if file is not None:
                file.close()
        self._writer = self._lock = None

    def follow(self, sources: dict[str, int]) -> None:
        """Take the learner's offsets by source; the one that was used last is last."""
        self.offsets = {source: offset for source, offset in sources.items() if offset}
        self._full = len(sources) >= LISTED_SOURCES

    def related(self, source: str) -> list[str]:
        """Return the other sources, of the learner or the journal, of this file with any content."""
        links = [(rows.head.source, *rows.head.links) for rows in self.files.values() if rows.head.links]
        return related_sources(source, {**self.files, **self.offsets}, links)

    def covers(self, source: str) -> bool:
        """Tell whether all learnt rows of a source were sent from here."""
        offset = self.offsets.get(source, 0)
        return not offset or (source in self.files and self.files[source].end >= offset)

    def rows(self, source: str) -> int:
        """Return how many rows of a source were sent from here."""
        return self.files[source].end - self.files[source].head.first if source in self.files else 0

    def has_ids(self, source: str, column: str) -> bool:
        """Tell whether the ids of a source are known to be those of this column."""
        return source in self.files and self.files[source].head.id == column

    def check_listed(self, sources: Iterable[str]) -> None:
        """Raise `WrongUsage` if the learner may have forgotten rows that were sent from here."""
        for source in sources:
            if self._full and self.rows(source) and source not in self.offsets:
                raise _refusal(
                    f"{counted(self.rows(source), 'row')} of {file_name(source)} were sent from here, and the learner "
                    f"does not tell how many it has learnt: it lists the {LISTED_SOURCES} sources that were used last",
                    _FROM,
                    _ALL,
                )

    def open(self, head: SourceHead, *others: SourceHead) -> None:
        """Begin to note rows of a source; note also that there are other sources."""
        if not self._writable or not self.covers(head.source):
            return
        try:
            for other in others:
                if other.source not in self.files:
                    RowWriter(self._folder, other, None).close()
            self._writer = RowWriter(self._folder, head, self.files.get(head.source))
        except OSError as error:
            self._give_up(error)

    def note(self, batch: RequestBody) -> None:
        """Note labelled rows that are about to be sent."""
        if self._writer is None or batch.kind != "labelled":
            return
        new = batch.events[max(0, self._writer.end - batch.offset) :]
        self._try(self._writer.add, [self.hash(event.origin.row if event.origin else None) for event in new])

    def refuse(self, batch: RequestBody, origins: list[RowOrigin | None]) -> None:
        """Note which rows of a batch the service has refused."""
        refused = set(map(id, origins))
        for number, event in zip(batch.numbers, batch.events, strict=True):
            if self._writer is not None and id(event.origin) in refused and batch.kind == "labelled":
                self._try(self._writer.refuse, number)

    def take_back(self, number: int) -> None:
        """Forget rows from this number on, which the service has refused."""
        if self._writer is not None:
            self._try(self._writer.take_back, number)

    def _try(self, write: Callable[[Any], None], what: Any) -> None:
        try:
            write(what)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        with suppress(OSError):
            self.__exit__()
        self._writable = False
        self._warn(f"warning: replay --again will not know the rows of this replay: cannot keep them here: {error}")


class Opening(NamedTuple):
    """What `begin` needs of a replay."""

    source: str  # of the file's rows
    rows: Callable[[BadRows], AbstractContextManager[Rows[Any]]]  # opens the file once more
    interruption: object = None  # true after a signal


class Selection:
    """Chooses the rows to send by their places among the labelled rows, and holds each against what is known of it.

    A row that differs, or is missing, is a `ReadError`.
    """

    def __init__(self, source: str, start: int, hash: RowHash, limit: int | None) -> None:
        self.source = source
        self.start = start  # number of the first row to send
        self.place = 0  # of the next row
        self.left_out = 0  # rows that --again has left out
        self.checked = True  # whether all learnt rows are known
        self.expected: Hashes = np.empty(0, np.uint64)  # of the first rows
        self.new: NDArray[np.bool_] | None = None  # which rows to send; None: those from the start on
        self.differs = "this row has changed since it was sent"
        self.superseded = ""  # why no row may be sent
        self._hash = hash
        self._limit = limit

    def __call__(self, events: Iterator[Event]) -> Iterator[Event]:
        """Yield the events to send. Events without a label are sent if the next row is."""
        place: Any = "the file"
        while self.place != self._limit and (event := next(events, None)) is not None:
            origin: RowOrigin | None = getattr(event, "origin", None)
            place = origin or place
            sends = self._sends(self.place)
            if "label" in event:
                compares = self.place < len(self.expected)
                if compares and self._hash(origin and origin.row) != self.expected[self.place]:
                    raise ReadError(f"{place}: {self.differs}")
                if sends and self.superseded:
                    raise ReadError(f"{place}: {self.superseded}")
                self.place += 1
                self.left_out += not sends and self.new is not None
            if sends:
                yield event
        least = max(len(self.expected), 0 if self.new is not None else self.start)
        if self.place < least and self.place != self._limit:
            raise ReadError(f"{place}: the file ends after {counted(self.place, 'row')}, and has had {least:,}")

    def _sends(self, place: int) -> bool:
        return place >= self.start if self.new is None else place < len(self.new) and bool(self.new[place])


def begin(plan: ReplayPlan, opening: Opening, journal: ReplayJournal, notes: Console) -> Selection:
    """Decide and print which rows a replay sends, and begin its journal.

    Raises `WrongUsage` if rows would be learnt again or new ones left out, or if that cannot be known.
    """
    if plan.again:
        return _begin_again(plan, opening, journal, notes)
    source, id = opening.source, plan.columns.id
    if plan.first is not None and plan.delay is None:
        source = f"{source}+from.{_digest(plan.file.path, plan.first)}"
    related = journal.related(source)
    earlier = {name: journal.offsets[name] for name in related if name in journal.offsets}
    free = plan.first is not None or (id is not None and all(journal.has_ids(name, id) for name in related))
    offset, first = journal.offsets.get(source, 0), plan.first or 0
    if not offset and not free:
        journal.check_listed([source, *related])
        if earlier:
            after = f"--from {max(earlier.values())} continues after them if this file begins with the same rows"
            after = after if len(earlier) == 1 else _FROM
            raise _refusal(_describe(source, earlier), _AGAIN, after, _ALL, _IDS)
    if offset or first:
        notes.print(f"resuming at row {offset:,}" if offset else f"beginning at row {first:,}")
    if earlier and not offset:
        notes.print(f"warning: {_describe(source, earlier)}: this file is learnt from row {first:,}", soft_wrap=True)
    selection = Selection(source, max(offset, first), journal.hash, plan.limit)
    if plan.delay is not None:
        selection.place = selection.start  # labels are not compared
    elif plan.first is None:
        if source in journal.files:
            selection.expected = journal.files[source].hashes()
        used = list(journal.offsets)
        if offset and not free and (later := [name for name in used[used.index(source) :] if name in earlier]):
            selection.superseded = f"a later replay has learnt {file_name(later[-1])}, perhaps this row, too"
        if not journal.covers(source):
            selection.checked = False
            notes.print("note: learnt rows were sent from elsewhere: whether they have changed cannot be checked here")
    journal.open(SourceHead(source, first, id))
    return selection


def _begin_again(plan: ReplayPlan, opening: Opening, journal: ReplayJournal, notes: Console) -> Selection:
    """Begin or resume a replay of the rows that are new."""
    source, id = opening.source, plan.columns.id
    family, links = [source, *journal.related(source)], []
    hashes, apart = _hash_rows(opening, journal.hash)
    if not any(name in journal.offsets or journal.rows(name) for name in family):  # perhaps it has another name now
        links = [name for name, file in journal.files.items() if np.isin(file.hashes(), hashes).any()]
        family = list({name: None for link in links for name in [link, *journal.related(link)]})
        if not links:
            raise _refusal("this machine has sent no row of this file to the learner: leave --again out")
    learnt = {name: journal.offsets[name] for name in family if name in journal.offsets}
    if unknown := {name: learnt[name] for name in learnt if not journal.covers(name)}:
        where = "this machine does not know which: they were sent from elsewhere, or by an earlier version"
        raise _refusal(f"{_describe(source, unknown)}, and {where}", _FROM, _ALL)
    journal.check_listed(family)
    parts = [journal.files[name].learnt(offset) for name, offset in learnt.items()]
    learnt_before, distinct = find_learnt(hashes, parts)
    total, left_out = sum(map(len, parts)), int(learnt_before.sum())
    if total and not left_out:
        raise _refusal(
            f"{_describe(source, learnt)}, and none of the {counted(len(hashes), 'row')} of this file is among them: "
            "it is another file, or other columns or options make its events",
            _ALL,
        )
    new = len(hashes) - left_out
    notes.print(f"rows that were learnt before, and are left out: {left_out:,}; new rows: {new:,}{apart}")
    if 2 * distinct < left_out:
        notes.print(f"warning: only {distinct:,} of the rows that are left out differ{_PERHAPS_NEW}", soft_wrap=True)
    if 2 * left_out < total:
        notes.print(f"warning: this file has only {left_out:,} of {total:,} learnt rows{_PERHAPS_NEW}", soft_wrap=True)
    # A row keeps its number: its request may be on its way, or learnt in a state of the learner that may return
    for target in map(partial(again_source, source), count(1)):
        offset = journal.offsets.get(target, 0)
        before = journal.files.get(target)
        waiting = hashes[:0] if before is None else before.hashes(offset)
        if (before is None or before.head.id == id) and np.array_equal(waiting, hashes[~learnt_before][: len(waiting)]):
            break
    journal.open(SourceHead(target, 0, id, tuple(links)), SourceHead(source, 0, id))
    selection = Selection(target, offset, journal.hash, plan.limit)
    selection.expected, selection.new, selection.differs = (
        hashes,
        ~learnt_before,
        "the file has changed while it was read",
    )
    return selection


def _hash_rows(opening: Opening, hash: RowHash) -> tuple[Hashes, str]:
    """Return the hashes of the labelled rows, and a text that counts the others."""
    bad = BadRows("skip")

    def labelled() -> Iterator[int]:
        for event in rows.events():
            if opening.interruption:
                raise WaitInterrupted
            if "label" in event:
                yield hash(event.origin.row)

    with opening.rows(bad) as rows:
        hashes = np.fromiter(labelled(), np.uint64)
        others = {"bad row": bad.count, "row without a label": rows.unlabelled_count}
    return hashes, "".join(f"; {counted(n, what)}" for what, n in others.items() if n)


def _digest(path: Path, first: int) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8, person=first.to_bytes(8, "little")))
    return digest.hexdigest()


def _refusal(what: str, *ways: str) -> WrongUsage:
    return WrongUsage("\n".join([f"{what}. Nothing was sent{':' * bool(ways)}", *(f"  {way}" for way in ways)]))


def _describe(source: str, earlier: dict[str, int]) -> str:
    rows, name = max((rows, file_name(name)) for name, rows in earlier.items())
    what = "a file of this name, but with other content or other options"
    if name != file_name(source):
        what = f"{name}, which begins as this file does"
    return f"the learner has learnt {counted(rows, 'row')} of {what}"
