"""The SQLite store's transactions: one commit and one fsync for all waiting writes, and consistent reads."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from service.errors import StoreFull, StoreUnavailable

__all__ = ["Work", "Write", "commit", "consistent", "deliver", "unavailable"]

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


@dataclass(slots=True)
class Write:
    """A piece of work for the writer, and the future of its result."""

    work: Work[Any]
    future: asyncio.Future[Any]
    outside: bool = False  # run outside of any transaction: it reads, and takes no lock that others wait for
    size: int = 0  # bytes that it adds
    reserve: bool = False  # it may take the room that a full disk keeps in reserve
    result: Any = None
    error: Exception | None = None

    def deliver(self) -> None:
        """Resolve the future, in the event loop."""
        if self.future.done():
            return  # the caller was cancelled; the work is committed
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


def unavailable(error: sqlite3.Error) -> StoreUnavailable:
    """Convert an error of SQLite, such as a full disk or a locked file; SQLite's own words say which."""
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return StoreFull(f"the disk of the store has no room; delete learners, or free some. SQLite: {error}")
    return StoreUnavailable(f"SQLite: {error}")


def consistent(db: sqlite3.Connection, work: Work[T]) -> T:
    """Run a read in one transaction, so that it sees one moment."""
    try:
        db.execute("BEGIN")
        try:
            return work(db)
        finally:
            db.rollback()
    except sqlite3.Error as error:
        raise unavailable(error) from error


def commit(db: sqlite3.Connection, group: list[Write]) -> None:
    """Run a group in one transaction and leave each outcome in its `Write`.

    If the transaction fails as a whole, each write runs in its own. So a record that does not fit on the disk does
    not fail those that fit.
    """
    for write in group:
        if write.outside:
            _look(db, write)
    group = [write for write in group if not write.outside]
    if not group:
        return
    try:
        db.rollback()  # has an effect only if the rollback below failed
        db.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:  # locked for too long; each write alone would fail, too
        for write in group:
            write.error = unavailable(error)
        return
    try:
        for write in group:
            _attempt(db, write, alone=len(group) == 1)
        if db.in_transaction:
            db.execute("COMMIT")
    except sqlite3.Error as error:
        with suppress(sqlite3.Error):
            db.rollback()  # without effect if SQLite rolled back by itself
        if len(group) == 1:
            group[0].error = unavailable(error)
        else:
            for write in group:
                commit(db, [write])


def _look(db: sqlite3.Connection, write: Write) -> None:
    try:
        write.result = write.work(db)
    except sqlite3.Error as error:
        write.error = unavailable(error)


def _attempt(db: sqlite3.Connection, write: Write, alone: bool) -> None:
    """Run one piece of work; if it fails, undo it alone. Raises where the whole transaction is lost.

    Work that is `alone` in its transaction needs no savepoint: to undo it ends the transaction.
    """
    write.error = None
    if not alone:
        db.execute("SAVEPOINT work")
    try:
        write.result = write.work(db)
    except Exception as error:  # passed to the caller through the future
        if isinstance(error, sqlite3.Error) and not db.in_transaction:
            raise
        db.execute("ROLLBACK" if alone else "ROLLBACK TO work")
        write.error = unavailable(error) if isinstance(error, sqlite3.Error) else error
    if not alone:
        db.execute("RELEASE work")


def deliver(group: list[Write]) -> None:
    """Resolve every future, in the event loop."""
    for write in group:
        write.deliver()
