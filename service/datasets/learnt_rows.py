"""Remembers on this machine which rows were sent to a learner, so that a replay of a changed file leaves them out.

A row is a 64-bit hash of what the file has, before the kind of any cell is guessed, and of the options and columns that
make an event of it. A learner has a folder, by its birth, and each of its sources a file there: the source's name in a
line of JSON, then 16 bytes for each row, its number in the source and its hash. Numbers ascend. Rows are written before
they are sent. The learner's offset in the source tells which of them are learnt.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.datasets.batches import shaping_options
from service.datasets.rows import Event, RowEvent
from service.datasets.values import RowColumns

__all__ = ["LearntRows", "LeftOutRows", "RowHash", "RowWriter", "learnt_folder", "remove_unused"]

_ENTRY = np.dtype([("number", "<u8"), ("hash", "<u8")])
_UNUSED = 90 * 86400  # seconds until the rows of a learner without a replay are removed
_BLOCK = 65_536  # rows
_PARTS = 16  # of the hashes that are compared at a time, which bounds memory
_encode = msgspec.json.Encoder().encode
_Hashes = NDArray[np.uint64]


class RowHash:
    """Hashes rows as the file has them; other columns or options make other hashes. About 1 us for a row."""

    def __init__(self, columns: RowColumns, header: Sequence[str]) -> None:
        parts = _encode([shaping_options(columns), list(header)])
        self._context = hashlib.blake2b(parts, digest_size=16).digest()

    def __call__(self, row: Any) -> int:
        """Return the hash of a row: its cells, or its text without the line's end."""
        text = row.strip().encode("utf-8", "surrogatepass") if type(row) is str else _encode(row)
        return int.from_bytes(hashlib.blake2b(text, digest_size=8, person=self._context).digest(), "little")


def learnt_folder(birth: str) -> Path:
    """Return the folder of a learner's rows, in the user's folder for states. Raises RuntimeError without a home."""
    home = os.environ.get("XDG_STATE_HOME")
    base = Path(home) if home else Path.home() / ".local" / "state"
    return base / "rarestream" / "replays" / _name(birth)


def remove_unused(folder: Path) -> None:
    """Remove the folders of learners beside this one that had no replay for 90 days. Raises OSError."""
    os.utime(folder)
    for other in folder.parent.iterdir():
        if other.stat().st_mtime < time.time() - _UNUSED:
            shutil.rmtree(other)


def _name(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class LearntRows:
    """The rows of a source that were sent from this machine. Raises OSError."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            head = file.readline()
            self.source: str = msgspec.json.decode(head, type=str)
            self._size = len(head)
            count = (os.fstat(file.fileno()).st_size - self._size) // _ENTRY.itemsize  # a kill may have left half a row
        shape = (count,)
        self._entries: NDArray[Any] = (
            np.memmap(path, _ENTRY, "r", self._size, shape) if count else np.empty(shape, _ENTRY)
        )

    @staticmethod
    def of_folder(folder: Path) -> dict[str, LearntRows]:
        """Return the rows of a learner, by source. Raises `msgspec.DecodeError` for a damaged file."""
        files = [LearntRows(path) for path in folder.iterdir() if not path.suffix] if folder.exists() else []
        return {file.source: file for file in files}

    def hashes(self, offset: int | None) -> _Hashes:
        """Return the hashes of the rows before the offset; None: of all."""
        hashes: _Hashes = self._entries["hash"][: self._count(offset)]
        return hashes

    def are_in(self, raw: Iterable[tuple[int, Any]], hash: RowHash, offset: int) -> bool:
        """Tell whether a file has the rows before the offset in their order."""
        hashes = self.hashes(offset)
        left = chain.from_iterable(hashes[k : k + _BLOCK].tolist() for k in range(0, len(hashes), _BLOCK))
        expected = next(left, None)
        for _, row in raw:
            if expected is None:
                break
            if hash(row) == expected:
                expected = next(left, None)
        return expected is None

    def reach(self, offset: int) -> bool:
        """Tell whether the last row before the offset was sent from here, too."""
        count = self._count(offset)
        return count > 0 and int(self._entries["number"][count - 1]) == offset - 1

    def end(self, offset: int) -> int:
        """Return the size of the file up to the offset."""
        return self._size + self._count(offset) * _ENTRY.itemsize

    def _count(self, offset: int | None) -> int:
        return len(self._entries) if offset is None else bisect_left(self._entries["number"], offset)


class RowWriter:
    """Appends the rows of a source that are about to be sent; a file that only its owner may read. Raises OSError."""

    def __init__(self, folder: Path, source: str, before: LearntRows | None, offset: int) -> None:
        """Begin the file, or continue it behind the rows before the offset."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = folder / _name(source)
        if before is None:
            beside = self.path.with_suffix(".new")
            beside.unlink(missing_ok=True)
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(_encode(source) + b"\n")
            beside.replace(self.path)
        else:
            os.truncate(self.path, before.end(offset))
        self._file = self.path.open("ab", buffering=0)

    def add(self, numbers: Sequence[int], hashes: Iterable[int]) -> None:
        """Append rows."""
        entries = np.empty(len(numbers), _ENTRY)
        entries["number"], entries["hash"] = numbers, np.fromiter(hashes, np.uint64, len(numbers))
        self._file.write(entries.tobytes())

    def take_back(self, count: int) -> None:
        """Remove the last rows, which the service has refused."""
        self._file.truncate(self._file.seek(0, os.SEEK_END) - count * _ENTRY.itemsize)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class LeftOutRows:
    """The rows of a file that were learnt before. Of equal rows the first are, as many as were learnt."""

    def __init__(self, raw: Iterator[tuple[int, Any]], hash: RowHash, learnt: Sequence[_Hashes]) -> None:
        """Compare all rows, by their places, with the learnt ones. About 30 bytes of memory for each."""
        self.rows = 0  # in the file, bad ones included
        buffer = np.zeros(1024, np.uint64)  # by place
        for place, row in raw:
            if place >= len(buffer):
                buffer = np.concatenate([buffer, np.zeros(max(place + 1 - len(buffer), len(buffer) // 4), np.uint64)])
            buffer[place] = hash(row)
            self.rows += 1
        learnt_before, distinct = _find_learnt(buffer, np.concatenate(learnt) if learnt else np.empty(0, np.uint64))
        self.total = int(learnt_before.sum())
        self.distinct = distinct  # among the known ones
        self._learnt = learnt_before.tobytes()
        self.compared = 0  # events that were compared
        self.count = 0  # of them left out

    def __call__(self, event: Event) -> bool:
        """Tell whether to leave an event out."""
        self.compared += 1
        place = event.origin.place if isinstance(event, RowEvent) else len(self._learnt)
        is_learnt = place < len(self._learnt) and bool(self._learnt[place])
        self.count += is_learnt
        return is_learnt


def _find_learnt(rows: _Hashes, learnt: _Hashes) -> tuple[NDArray[np.bool_], int]:
    """Return which rows are among the learnt ones, each of which counts once; and how many of them differ."""
    learnt_before = np.zeros(len(rows), np.bool_)
    distinct = 0
    part_of_rows, part_of_learnt = (rows % _PARTS).astype(np.uint8), (learnt % _PARTS).astype(np.uint8)
    for part in range(_PARTS):
        places = np.flatnonzero((part_of_rows == part) & (rows != 0))
        hashes = rows[places]
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        counts = np.sort(learnt[part_of_learnt == part])
        rank = np.arange(len(hashes)) - np.searchsorted(hashes, hashes, "left")  # among equal rows
        times = np.searchsorted(counts, hashes, "right") - np.searchsorted(counts, hashes, "left")
        learnt_before[places[order]] = rank < times
        distinct += int(((rank == 0) & (times > 0)).sum())
    return learnt_before, distinct
