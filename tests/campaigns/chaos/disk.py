"""A small file system of its own for the store's file, which can be filled; where this process may mount one."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Disk", "small_disk"]

_BYTES = 256 * 2**20  # more than a course of an hour logs
_PIECE = 4096


@dataclass(frozen=True)
class Disk:
    """A folder; `refused` says why nothing could be mounted there, and it cannot be filled, or is empty."""

    folder: Path
    refused: str = ""

    @property
    def file(self) -> Path:
        """The store's."""
        return self.folder / "log.db"

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def fill(self) -> None:
        """Leave no room at all, nor in the write-ahead log, which would take some seconds of writes else."""
        assert not self.refused
        with closing(sqlite3.connect(self.file, timeout=1)) as db, suppress(sqlite3.OperationalError):
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with self._ballast.open("wb", buffering=0) as ballast:
            try:
                os.posix_fallocate(ballast.fileno(), 0, self.free)
                while True:  # what others have freed meanwhile
                    ballast.seek(0, os.SEEK_END)
                    ballast.write(bytes(_PIECE))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def empty(self) -> None:
        """There is room again."""
        self._ballast.unlink()

    @property
    def free(self) -> int:
        """Bytes."""
        actual = os.statvfs(self.folder)
        return actual.f_bavail * actual.f_frsize


@contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    """Return a tmpfs at this folder until the end of the block; the folder itself where mounting is refused."""
    folder.mkdir(exist_ok=True)
    refused = _run("mount", "-t", "tmpfs", "-o", f"size={_BYTES}", "tmpfs", str(folder))
    try:
        yield Disk(folder, refused)
    finally:
        if not refused:
            failed = _run("umount", "--lazy", str(folder))
            if failed:
                raise RuntimeError(f"{folder} is still mounted: {failed}")


def _run(*command: str) -> str:
    """Why a command failed; empty where it did not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return str(error)
    return (done.stderr.partition("\n")[0] or f"exit status {done.returncode}") if done.returncode else ""
