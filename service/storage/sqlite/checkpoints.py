"""The SQLite store's checkpoints: what is committed goes from the WAL into the file, beside the commits.

SQLite's own way is to do it in the commit that finds the WAL long, and whoever waits for that one, and for those behind
it, waits for the whole file's fsync, too. Here a thread does it with a connection of its own, a little at a time; the
writer goes on meanwhile. But the WAL begins anew only once nothing is left in it, and under load something always is.
So of a long one the writer does the last little between two commits; and where commits are faster than the thread, so
that it grows longer and longer, the writer waits for it.
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
_STEP = WAL_PAGES // 4  # pages that are written between two checkpoints
_MOST = WAL_BYTES // _PAGE  # pages that are written before the writer waits for a checkpoint
_OF_A_WRITE = 4  # pages besides its bytes: of the tables' and indexes' ends
_PASSIVE = "PRAGMA wal_checkpoint(PASSIVE)"  # as far as it gets without waiting for anybody


class Checkpoints:
    """One file's, by a thread of its own."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """`connection`: to the file, used by nothing else from here on."""
        self._pages = 0  # about so many were written since the last one was asked for,
        self._since = 0  # and since the last one of the writer's own
        self._due = threading.Event()
        self._near = False  # a long WAL is done but for its end
        self._under_way = threading.Lock()  # for as long as one of this process is: SQLite lets no two at a time
        self._closing = False
        self._thread = threading.Thread(target=self._run, args=(connection,), name="sqlite-checkpoints", daemon=True)
        self._thread.start()

    # Of the writer's thread

    def wrote(self, group: Sequence[Write], connection: sqlite3.Connection) -> None:
        """The writer has committed these by its own connection, and does nothing else just now."""
        pages = sum(_OF_A_WRITE + write.size // _PAGE for write in group if not write.outside)
        self._pages += pages
        self._since += pages
        too_long = self._since >= _MOST
        if (self._near or too_long) and self._under_way.acquire(blocking=too_long):
            try:
                self._near = _checkpoint(connection) < 0  # another process's is under way: after the next commit, then
            finally:
                self._under_way.release()
            if not self._near:
                self._since = 0
        elif self._pages >= _STEP:
            self._pages = 0
            self._due.set()

    # The thread

    def _run(self, connection: sqlite3.Connection) -> None:
        with closing(connection):
            while True:
                self._due.wait()
                self._due.clear()
                if self._closing:
                    return
                with self._under_way:
                    if _checkpoint(connection) >= WAL_PAGES:
                        _checkpoint(connection)  # what came meanwhile, which takes less time
                        self._near = True

    def close(self) -> None:
        """Wait for the one that is under way, and let go of the file. May be called again."""
        self._closing = True
        self._due.set()
        self._thread.join()


def _checkpoint(db: sqlite3.Connection) -> int:
    """Bring into the file what is in the WAL; how many pages that has, -1 where another one is under way."""
    try:
        _, pages, _ = db.execute(_PASSIVE).fetchone()
    except sqlite3.Error as error:  # a full or failing disk: nothing is lost, and commits say so themselves
        logger.warning("the WAL of the store grows until it can be brought into its file. SQLite: %s", error)
        return -1
    return int(pages)
