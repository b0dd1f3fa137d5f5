"""The SQLite store's file: its schema, and the checks and settings with which it is opened."""

from __future__ import annotations

import sqlite3
import time
from contextlib import ExitStack, closing
from pathlib import Path

from service.errors import StoreUnavailable, WrongStore

__all__ = ["BUSY_SECONDS", "connect"]

BUSY_SECONDS = 5.0  # time-out for another process's transaction
WAL_PAGES = 4096  # of 4 KiB: a longer WAL is copied to its very end, so that it starts anew
WAL_BYTES = 64 * 2**20  # beyond this SQLite's own checkpoints step in and cut the WAL back to it

APPLICATION = 0x72617265  # "rare", in the file's header: marks the files of rarestream
SCHEMA = 6
FIRST = (  # schema version 1
    """
    CREATE TABLE learner (
        id INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again
        name TEXT NOT NULL UNIQUE,
        birth BLOB NOT NULL,
        head INTEGER NOT NULL,                -- position of the newest record; kept so that no number is used twice
        trimmed INTEGER NOT NULL              -- the log holds trimmed + 1 ... head
    )""",
    """
    CREATE TABLE entry (
        learner INTEGER NOT NULL REFERENCES learner ON DELETE CASCADE,
        position INTEGER NOT NULL,
        token BLOB NOT NULL,                  -- before the data: found without reading them
        data BLOB NOT NULL,
        PRIMARY KEY (learner, position)
    )""",
    """
    CREATE TABLE snapshot (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        learner INTEGER NOT NULL REFERENCES learner ON DELETE CASCADE,
        position INTEGER NOT NULL,
        size INTEGER NOT NULL,
        time REAL NOT NULL,
        whole INTEGER NOT NULL                -- 0 while its parts are being written
    )""",
    "CREATE UNIQUE INDEX retained ON snapshot (learner, position) WHERE whole",
    "CREATE INDEX unfinished ON snapshot (time) WHERE NOT whole",
    "CREATE INDEX snapshot_learner ON snapshot (learner)",  # for the cascade
    """
    CREATE TABLE part (
        snapshot INTEGER NOT NULL REFERENCES snapshot ON DELETE CASCADE,
        number INTEGER NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (snapshot, number)
    )""",
)
SERVED = (  # added by schema version 2; no cascade: millions of rows are deleted in steps, after their learner
    "CREATE INDEX entry_token ON entry (learner, token)",
    "ALTER TABLE learner ADD COLUMN settled INTEGER NOT NULL DEFAULT 0",  # the cursor: a number of the table `served`
    """
    CREATE TABLE served (
        number INTEGER PRIMARY KEY AUTOINCREMENT, -- in served order; never used again: a cursor may stand on it
        learner INTEGER NOT NULL,
        id TEXT NOT NULL,
        time REAL,                            -- NULL: NaN
        dropped INTEGER,                      -- of a tombstone, the how manieth of its learner's drops it was
        data BLOB                             -- NULL: a tombstone
    )""",
    "CREATE UNIQUE INDEX served_id ON served (learner, id)",
    "CREATE INDEX served_order ON served (learner) WHERE dropped IS NULL",  # and by number, as in every index
    "CREATE INDEX served_dropped ON served (learner, dropped) WHERE dropped IS NOT NULL",
    """
    CREATE TABLE pending (
        learner INTEGER PRIMARY KEY,
        events INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        expired INTEGER NOT NULL,
        evicted INTEGER NOT NULL,
        removed INTEGER NOT NULL              -- drops whose tombstones have gone
    )""",
)
LABELLED = (  # added by schema version 3: the labels that arrived, see `served_labels`; 0: none; 1: of earlier releases
    "ALTER TABLE served ADD COLUMN labelled INTEGER NOT NULL DEFAULT 0",
)
LEASE = (  # added by schema version 4: which node saves a learner's snapshots
    """
    CREATE TABLE claim (
        learner INTEGER PRIMARY KEY REFERENCES learner ON DELETE CASCADE,
        node BLOB NOT NULL,
        since REAL NOT NULL,                  -- by the machine's monotonic clock, which starts anew with it
        seconds REAL NOT NULL
    )""",
)
DELETION = (  # added by schema version 5: the last learners that were deleted
    """
    CREATE TABLE deletion (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        birth BLOB NOT NULL UNIQUE
    )""",
)
BOOKMARK = (  # added by schema version 6: the places of readers
    """
    CREATE TABLE bookmark (
        learner INTEGER NOT NULL REFERENCES learner ON DELETE CASCADE,
        reader TEXT NOT NULL,
        place INTEGER NOT NULL,
        PRIMARY KEY (learner, reader)
    ) WITHOUT ROWID""",
)


def connect(path: Path, busy_seconds: float) -> tuple[sqlite3.Connection, sqlite3.Connection, sqlite3.Connection]:
    """Open the connections of the writer, the reader and the checkpoints, and create or migrate the schema.

    Raises `WrongStore` if the file is not a rarestream store.
    """
    if not path.parent.is_dir():
        raise WrongStore(f"the directory {path.parent} of the store does not exist; create it first")
    try:
        with ExitStack() as stack:
            # Each connection is used by one thread, but opened by another one.
            write, read, checkpoint = (
                stack.enter_context(
                    closing(sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False))
                )
                for _ in range(3)
            )
            _prepare(write, path, busy_seconds)
            read.execute("PRAGMA query_only = ON")
            stack.pop_all()
            return write, read, checkpoint
    except sqlite3.Error as error:
        wrong = (
            getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB
        )  # an error code of the library, not of the module
        raise (WrongStore if wrong else StoreUnavailable)(f"cannot open the store {path}: {error}") from error


def _prepare(db: sqlite3.Connection, path: Path, busy_seconds: float) -> None:
    """Check that the file belongs to rarestream before changing it, then set up the connection for writing."""
    schema = _schema(db, path)
    _use_wal(db, path, busy_seconds)
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA secure_delete = FAST")  # some builds overwrite deleted data with zeros and write more pages
    db.execute(f"PRAGMA wal_autocheckpoint = {WAL_BYTES // 2**12}")
    db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    if schema < SCHEMA:
        db.execute("BEGIN IMMEDIATE")
        with db:  # COMMIT, or ROLLBACK on an error
            schema = _schema(db, path)  # another process may have migrated it first
            for statements in (FIRST, SERVED, LABELLED, LEASE, DELETION, BOOKMARK)[schema:]:
                for statement in statements:
                    db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {SCHEMA}")


def _schema(db: sqlite3.Connection, path: Path) -> int:
    """Read the version of the file's schema, 0 for an empty file; raise `WrongStore` for a foreign one."""
    application, schema, tables = db.execute(  # one statement: another process may be creating the tables
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
        " FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if (application, schema, tables) == (0, 0, 0):
        return 0
    if application != APPLICATION:
        raise WrongStore(f"the file {path} is an SQLite database of another program")
    if not 1 <= schema <= SCHEMA:
        raise WrongStore(f"the store {path} has schema version {schema}; this rarestream reads versions 1 to {SCHEMA}")
    return int(schema)


def _use_wal(db: sqlite3.Connection, path: Path, busy_seconds: float) -> None:
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            # SQLite does not wait by itself for another process that is opening the file.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    if mode != "wal":
        raise StoreUnavailable(f"the store {path} is on a file system without shared memory, which SQLite's WAL needs")
