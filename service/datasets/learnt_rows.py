"""Remembers on this machine which rows were sent to a learner, so that a replay of a changed file leaves them out.

A row is a 63-bit hash of what the file has, before the kind of any cell is guessed, and of the options and columns that
make an event of it. A learner has a folder, by its birth, and each of its sources a file there: a line of JSON, then 16
bytes for each row, its hash and a check of this hash and of the row's number in the source. Numbers have no gaps. Rows
are written before they are sent, and never changed. The learner's offset in the source tells which of them are learnt.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.datasets.batches import shaping_options
from service.datasets.values import RowColumns
from service.exits import WrongUsage

__all__ = ["Hashes", "RowHash", "RowWriter", "SentRows", "SourceHead", "find_learnt", "learnt_folder", "remove_unused"]

_ENTRY = np.dtype([("hash", "<u8"), ("check", "<u8")])
_MULTIPLIER, _OFFSET = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)  # of checks
_REFUSED = 1  # bit of a hash: the service has refused the row
_UNUSED = 90 * 86400  # seconds until the rows of a learner without a replay are removed
_BLOCK = 65_536  # rows
_PARTS = 16  # of the hashes that are compared at a time, which bounds memory
_encode = msgspec.json.Encoder().encode
Hashes = NDArray[np.uint64]


class RowHash:
    """Hashes rows as the file has them; other columns or options make other hashes. About 1 us for a row of cells."""

    def __init__(self, columns: RowColumns, header: Sequence[str]) -> None:
        parts = _encode([shaping_options(columns), list(header)])
        self._context = hashlib.blake2b(parts, digest_size=16).digest()

    def __call__(self, row: Any) -> int:
        """Return the hash of a row: its cells, its JSON in any order of keys, or its text without the line's end."""
        text = _spell(row).encode("utf-8", "surrogatepass") if type(row) is str else _encode(row)
        digest = hashlib.blake2b(text, digest_size=8, person=self._context).digest()
        return int.from_bytes(digest, "little") & ~_REFUSED


def _spell(row: str) -> str:
    try:
        return json.dumps(json.loads(row), sort_keys=True)
    except (ValueError, RecursionError):  # LIBSVM, or JSON that only the reader knows how to read
        return row.strip()


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


class SourceHead(msgspec.Struct, frozen=True):
    """What is known of a source beside its rows."""

    source: str
    first: int = 0  # number of the first row
    id: str | None = None  # column of the ids
    links: tuple[str, ...] = ()  # sources of other files whose rows it leaves out


class SentRows:
    """The rows of a source that were sent from this machine. Raises OSError, and `WrongUsage` for a damaged file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            line = file.readline()
            try:
                self.head = msgspec.json.decode(line, type=SourceHead)
            except msgspec.DecodeError:
                raise self._damaged() from None
            self._size = len(line)
            self._count = (os.fstat(file.fileno()).st_size - self._size) // _ENTRY.itemsize  # a kill may leave half one
        self.end = self.head.first + self._count  # number after the last row
        self.whole = self._size + self._count * _ENTRY.itemsize  # bytes of whole entries

    @staticmethod
    def of_folder(folder: Path) -> dict[str, SentRows]:
        """Return the rows of a learner, by source."""
        files = [SentRows(path) for path in folder.iterdir() if not path.suffix] if folder.exists() else []
        return {file.head.source: file for file in files}

    @cached_property
    def _hashes(self) -> Hashes:
        entries = np.fromfile(self._path, _ENTRY, self._count, offset=self._size)
        for k in range(0, self._count, _BLOCK):
            block = entries[k : k + _BLOCK]
            numbers = np.arange(self.head.first + k, self.head.first + k + len(block), dtype=np.uint64)
            if (block["check"] != _checks(block["hash"], numbers)).any():
                raise self._damaged()
        return np.ascontiguousarray(entries["hash"])

    def hashes(self, start: int = 0) -> Hashes:
        """Return the hashes of the rows from a number on, refused ones included."""
        return self._hashes[max(0, start - self.head.first) :] & np.uint64(~_REFUSED & (2**64 - 1))

    def learnt(self, offset: int) -> Hashes:
        """Return the hashes of the rows before the offset without those that the service has refused."""
        hashes = self._hashes[: max(0, offset - self.head.first)]
        learnt: Hashes = hashes[hashes & np.uint64(_REFUSED) == 0]
        return learnt

    def _damaged(self) -> WrongUsage:
        return WrongUsage(
            f"{self._path} is damaged. Nothing was sent. Remove it: then this machine does not know the rows that it "
            "had, and replay says what that means"
        )


def _checks(hashes: Hashes, numbers: Hashes) -> Hashes:
    return (hashes | np.uint64(_REFUSED)) * _MULTIPLIER + numbers * _OFFSET + _OFFSET


class RowWriter:
    """Writes the rows of a source that are about to be sent; a file that only its owner may read. Raises OSError."""

    def __init__(self, folder: Path, head: SourceHead, before: SentRows | None) -> None:
        """Begin the file, or continue it."""
        path = folder / _name(head.source)
        if before is None:
            beside = path.with_suffix(".new")
            beside.unlink(missing_ok=True)
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(_encode(head) + b"\n")
            beside.replace(path)
            before = SentRows(path)
        self._floor = before.end  # number after the rows that earlier replays have sent
        self.end = before.end
        self._zero = before.whole - before.end * _ENTRY.itemsize  # place of row 0, if the file had it
        self._file = path.open("r+b", buffering=0)
        self.take_back(self.end)  # half a row that a kill has left

    def add(self, hashes: Sequence[int]) -> None:
        """Append rows."""
        entries = np.empty(len(hashes), _ENTRY)
        entries["hash"] = hashes
        entries["check"] = _checks(entries["hash"], np.arange(self.end, self.end + len(hashes), dtype=np.uint64))
        self._file.seek(self._zero + self.end * _ENTRY.itemsize)
        self._file.write(entries.tobytes())
        self.end += len(hashes)

    def refuse(self, number: int) -> None:
        """Note that the service has refused a row: set the lowest bit of its hash."""
        place = self._zero + number * _ENTRY.itemsize
        self._file.seek(place)
        low = self._file.read(1)[0]
        self._file.seek(place)
        self._file.write(bytes([low | _REFUSED]))

    def take_back(self, number: int) -> None:
        """Remove the rows from this number on that this replay has added."""
        self.end = max(self._floor, min(self.end, number))
        self._file.truncate(self._zero + self.end * _ENTRY.itemsize)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def find_learnt(rows: Hashes, learnt: Iterable[Hashes]) -> tuple[NDArray[np.bool_], int]:
    """Return which rows are among the learnt ones, each of which counts once; and how many of them differ.

    Of equal rows the first are, as many as were learnt. About 30 bytes of memory for each row.
    """
    counted = np.concatenate([np.empty(0, np.uint64), *learnt])
    learnt_before = np.zeros(len(rows), np.bool_)
    distinct = 0
    part_of_rows, part_of_counted = [((hashes >> 1) % _PARTS).astype(np.uint8) for hashes in (rows, counted)]
    for part in range(_PARTS):
        places = np.flatnonzero(part_of_rows == part)
        hashes = rows[places]
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        counts = np.sort(counted[part_of_counted == part])
        rank = np.arange(len(hashes)) - np.searchsorted(hashes, hashes, "left")  # among equal rows
        times = np.searchsorted(counts, hashes, "right") - np.searchsorted(counts, hashes, "left")
        learnt_before[places[order]] = rank < times
        distinct += int(((rank == 0) & (times > 0)).sum())
    return learnt_before, distinct
