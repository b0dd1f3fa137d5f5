"""All that ever stood in a learner's log, read from the append-only file of its Redis, which nobody trims.

The file has every write as the command that made it, in order, as long as the server does not write it anew
(`auto-aof-rewrite-percentage 0`) and is nobody's replica, whose file begins with a copy of the present data.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from service.storage.store_protocol import LogEntry

__all__ = ["entries"]


def entries(file: Path, log: str) -> Iterator[LogEntry]:
    """Return the entries that were appended to the stream of this key, in order, the trimmed ones too.

    Raises `ValueError` where the file has something else than commands. A command at its end that is being written
    just now is left out.
    """
    key = log.encode()
    with file.open("rb") as commands:
        while (command := _command(commands)) is not None:
            if command[0].upper() == b"XADD" and command[1] == key:  # key, id, t, token, d, data
                yield LogEntry(int(command[2].partition(b"-")[0]), command[4], command[6])


def _command(file: BinaryIO) -> list[bytes] | None:
    """Return the next command and its arguments; None where no whole one follows."""
    count = _number(file, b"*")
    parts: list[bytes] = []
    for _ in range(count or 0):
        size = _number(file, b"$")
        part = b"" if size is None else file.read(size + 2)
        if size is None or len(part) < size + 2:
            return None
        parts.append(part[:-2])
    return parts or None


def _number(file: BinaryIO, kind: bytes) -> int | None:
    line = file.readline()
    if not line.endswith(b"\r\n"):
        return None
    if line[:1] != kind:
        raise ValueError(f"{file.name} has {line[:40]!r} where a line with {kind.decode()} was expected")
    return int(line[1:])
