"""The SQLite store's reserve: a file beside the store that takes room, which is given back if the disk is full.

SQLite needs room for any change, even to delete: the changed pages go into the WAL first. If a deletion finds the disk
full, the file is deleted and the deletion tried again. From then on the same room is held back by refusing other
writes, until the disk has room for the file again.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

from service.errors import StoreFull
from service.storage.sqlite.file_identity import unreadable
from service.storage.sqlite.group_commit import Write

__all__ = ["Reserve"]

RESERVE_BYTES = 4 * 2**20
_PAGE = 4096  # bytes


class Reserve:
    """The reserve of one store, for the writer's thread."""

    def __init__(self, store: Path) -> None:
        self._path = store.with_name(f"{store.name}-reserve")
        self._reserved = False
        self.fill()

    def fill(self) -> None:
        """Take the room, if the disk has twice as much. Raises `StoreUnavailable`."""
        if self._reserved or self._free() < 2 * RESERVE_BYTES:
            return
        with suppress(OSError):  # the disk filled up meanwhile; the next call tries again
            with self._path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
            self._reserved = True

    def release(self) -> None:
        """Give the room back to the disk."""
        with suppress(OSError):  # then the disk stays full
            self._path.unlink(missing_ok=True)
        self._reserved = False

    def admit(self, group: list[Write], db: sqlite3.Connection) -> list[Write]:
        """Return the writes that may run; without the file, refuse those that would take the last room.

        Raises `StoreUnavailable`, or an error of SQLite.
        """
        if self._reserved or all(write.reserve or write.outside for write in group):
            return group
        self.fill()
        if self._reserved:
            return group
        (unused,) = db.execute("PRAGMA freelist_count").fetchone()
        room = self._free() + _PAGE * unused - RESERVE_BYTES
        admitted = []
        for write in group:
            if write.reserve or write.outside or write.size <= room:
                admitted.append(write)
                room -= write.size
            else:
                write.error = StoreFull("the disk of the store has no room; delete learners, or free some")
        return admitted

    def _free(self) -> int:
        try:
            return shutil.disk_usage(self._path.parent).free
        except OSError as error:
            raise unreadable(self._path.parent, error) from None
