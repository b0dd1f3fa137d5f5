"""Notices that the SQLite file was moved away, deleted or replaced while it is open.

SQLite would go on writing to the file that it has open: what is acknowledged then would be in no file, or in one that
the next start does not find. The WAL beside it has the newest records, so it counts, too.
"""

from __future__ import annotations

from pathlib import Path

from service.errors import StoreUnavailable

__all__ = ["FileIdentity", "unreadable"]

_AWAY = (
    "the file {path} of the store was {what} while the service runs; nothing is written meanwhile. Put the same file "
    "back, with those that end with -wal and -shm; or stop the service, restore a backup, and start it"
)
_UNREADABLE = "cannot look at {path} of the store ({why}); nothing is written meanwhile. Check the disk and its mount"


class FileIdentity:
    """The files of one store, as they were when it was opened."""

    def __init__(self, path: Path) -> None:
        self._files = {file: _identity(file) for file in (path, path.with_name(f"{path.name}-wal"))}

    def check(self) -> None:
        """Check that each file is the one that was opened. Raises `StoreUnavailable`. Takes some microseconds."""
        for path, before in self._files.items():
            now = _identity(path)
            if now != before:
                raise StoreUnavailable(_AWAY.format(path=path, what="moved or deleted" if now is None else "replaced"))


def unreadable(path: Path, error: OSError) -> StoreUnavailable:
    """Return the error of a store whose disk the system cannot read."""
    return StoreUnavailable(_UNREADABLE.format(path=path, why=error.strerror))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(path, error) from None
    return status.st_dev, status.st_ino
