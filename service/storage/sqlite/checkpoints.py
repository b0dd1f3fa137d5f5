"""The SQLite store's checkpoints: a thread copies committed pages from the WAL into the file, beside the commits.

By default SQLite does this in the commit that finds a long WAL. Then this commit, and those behind it, wait for the
fsync of the whole file. Here a thread with its own connection copies a little at a time while the writer goes on. But
the WAL starts anew only when nothing is left in it, and under load something always is. So the writer copies the last
pages of a long WAL between two commits. If commits outrun the thread and the WAL keeps growing, the writer waits for
the thread.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing

from service.storage.sqlite.group_commit import Write
from service.storage.sqlite.schema import WAL_BYTES, WAL_PAGES

__all__ = ["Checkpoints"]

logger = logging.getLogger("rarestream.store")

_PAGE = 4096  # bytes
_STEP = WAL_PAGES // 4  # pages written between two checkpoints
_MOST = WAL_BYTES // _PAGE  # pages written before the writer waits for a checkpoint
_OF_A_WRITE = 4  # extra pages of a write: the ends of tables and indexes
_PASSIVE = "PRAGMA wal_checkpoint(PASSIVE)"  # as far as possible without waiting for other connections


class Checkpoints:
    """Runs the checkpoints of one file in a thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Start the thread. `connection`: to the file, for the exclusive use of the thread."""
        self._pages = 0  # pages written since the last request for a checkpoint, approximately
        self._since = 0  # pages written since the writer's last own checkpoint
        self._requested = threading.Event()
        self._near = False  # all but the end of a long WAL is copied
        self._under_way = threading.Lock()  # SQLite allows one checkpoint at a time
        self._closing = False
        self._thread = threading.Thread(target=self._run, args=(connection,), name="sqlite-checkpoints", daemon=True)
        self._thread.start()

    # In the writer's thread

    def wrote(self, group: Sequence[Write], connection: sqlite3.Connection) -> None:
        """Count the pages of a committed group; called by the writer between two commits."""
        pages = sum(_OF_A_WRITE + write.size // _PAGE for write in group if not write.outside)
        self._pages += pages
        self._since += pages
        too_long = self._since >= _MOST
        if (self._near or too_long) and self._under_way.acquire(blocking=too_long):
            try:
                self._near = _checkpoint(connection) < 0  # < 0: another process runs one; try after the next commit
            finally:
                self._under_way.release()
            if not self._near:
                self._since = 0
        elif self._pages >= _STEP:
            self._pages = 0
            self._requested.set()

    # In the checkpoint thread

    def _run(self, connection: sqlite3.Connection) -> None:
        with closing(connection):
            while True:
                self._requested.wait()
                self._requested.clear()
                if self._closing:
                    return
                with self._under_way:
                    if _checkpoint(connection) >= WAL_PAGES:
                        _checkpoint(connection)  # the pages written meanwhile, which takes less time
                        self._near = True

    def close(self) -> None:
        """Wait for a running checkpoint and release the file. Idempotent."""
        self._closing = True
        self._requested.set()
        self._thread.join()


def _checkpoint(db: sqlite3.Connection) -> int:
    """Copy the WAL into the file; return its number of pages, -1 if another checkpoint is running."""
    try:
        _, pages, _ = db.execute(_PASSIVE).fetchone()
    except sqlite3.Error as error:  # a full or failing disk: nothing is lost, and commits report it too
        logger.warning(
            "cannot copy the store's WAL into its file, so the WAL keeps growing; check the disk. SQLite: %s", error
        )
        return -1
    return int(pages)
