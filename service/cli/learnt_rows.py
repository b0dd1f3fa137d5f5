"""Remembers on this machine which rows were sent to a learner, so that a replay of a repaired file leaves them out.

A row is the hash of its event: what the options make of it, with its label. Equal rows are told apart by their number.
Each source of a learner has a file: a line of JSON, then 16 bytes for each row, its number in the source and its hash.
Rows are written before they are sent. Which of them are learnt says the learner's offset in the source.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["EarlierEvents", "LearntRows", "state_folder"]

_ENTRY = np.dtype([("number", "<u8"), ("hash", "<u8")])


class _Head(NamedTuple):
    source: str
    after: list[str]  # earlier sources whose rows this one leaves out


def state_folder(url: str, learner: str) -> Path:
    """Return the folder of a learner's rows, in the user's folder for states. Raises RuntimeError without a home."""
    home = os.environ.get("XDG_STATE_HOME")
    base = Path(home) if home else Path.home() / ".local" / "state"
    return base / "rarestream" / "replays" / hashlib.blake2b(f"{url} {learner}".encode(), digest_size=16).hexdigest()


class LearntRows:
    """The rows of one source. Methods raise OSError."""

    def __init__(self, folder: Path, source: str) -> None:
        self.source = source
        self._path = folder / hashlib.blake2b(source.encode(), digest_size=16).hexdigest()

    def begin(self, after: Sequence[str] = ()) -> None:
        """Forget all rows of the source, and begin anew."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_bytes(msgspec.json.encode(_Head(self.source, list(after))) + b"\n")

    def resume(self) -> list[str]:
        """Return the earlier sources that `begin` got. Half an entry at the end, which a kill has left, is removed."""
        head = self._head()
        if head is None:
            return []
        size = self._path.stat().st_size - head[1]
        os.truncate(self._path, head[1] + size - size % _ENTRY.itemsize)
        return head[0].after

    def remove(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)

    def note(self, numbers: Sequence[int], bodies: Iterable[bytes]) -> None:
        """Append rows that are about to be sent, by the encoded events."""
        entries = np.array(list(zip(numbers, map(_hash, bodies), strict=True)), dtype=_ENTRY)
        with self._path.open("ab") as file:
            file.write(entries.tobytes())

    def reaches(self, learnt: int) -> bool:
        """Tell whether the rows are known up to the offset, and so were not sent from elsewhere. O(rows)."""
        numbers = self._entries()["number"]
        return len(numbers) > 0 and int(numbers.max()) >= learnt - 1

    def hashes(self, learnt: int) -> NDArray[np.uint64]:
        """Return the hashes of the rows with a number below `learnt`. O(rows) memory, 16 bytes each."""
        entries = self._entries()
        entries = entries[entries["number"] < learnt][::-1]
        _, newest = np.unique(entries["number"], return_index=True)  # a row that was sent again counts once
        return entries["hash"][newest].astype(np.uint64)

    def _entries(self) -> NDArray[Any]:
        head = self._head()
        return np.empty(0, _ENTRY) if head is None else np.fromfile(self._path, _ENTRY, offset=head[1])

    def _head(self) -> tuple[_Head, int] | None:
        """Return the first line and its length; None without a file of this source."""
        with suppress(FileNotFoundError, msgspec.DecodeError), self._path.open("rb") as file:
            line = file.readline()
            head = msgspec.json.decode(line, type=_Head)
            return (head, len(line)) if head.source == self.source else None
        return None


class EarlierEvents:
    """Rows that were learnt of earlier files, each of which one row of a later file may repeat."""

    def __init__(self, hashes: NDArray[np.uint64]) -> None:
        self._hashes, self._left = np.unique(hashes, return_counts=True)
        self.repeated = 0

    def take(self, body: bytes) -> bool:
        """Tell whether an encoded event was learnt before; each earlier row counts once."""
        value = np.uint64(_hash(body))
        place = int(np.searchsorted(self._hashes, value))
        if place == len(self._hashes) or self._hashes[place] != value or not self._left[place]:
            return False
        self._left[place] -= 1
        self.repeated += 1
        return True


def _hash(body: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(body, digest_size=8).digest(), "little")
