"""What happens to malformed rows: they end the command, are left out, or go to a file with line and reason."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

import msgspec

from service.exits import WrongUsage
from service.text import counted

__all__ = ["REMEDY", "BadRows", "ReadError", "RowOrigin"]

REMEDY = "--on-bad skip leaves such rows out, --on-bad FILE writes them to a file"
STOP, SKIP = "stop", "skip"
_EXAMPLES = 5
_BEGIN = b'{"file":'  # of the lines of a file of bad rows


class ReadError(WrongUsage):
    """A file cannot be read as labelled rows. The text names the file, and the line if possible."""

    remedy: str | None = None


class RowOrigin(NamedTuple):
    """Where a row was read."""

    file: object  # its text names the file
    unit: str  # of the place, such as line
    place: int
    row: Any = None  # as the file has it

    def __str__(self) -> str:
        return f"{self.file}, {self.unit} {self.place:,}"


class BadRows:
    """Receives the malformed rows of one or more files; a context manager that closes its own file. Thread-safe.

    `on_bad`: "stop", "skip", or the name of a file. The file is written anew at the first bad row: a JSON object in
    each line with the file, the line, the reason and the row.
    """

    def __init__(self, on_bad: str = STOP) -> None:
        self.stop = on_bad == STOP  # a bad row ends the command
        self._on_bad = on_bad
        self._out: BinaryIO | None = None
        self.count = 0  # of rows so far
        self._lock = Lock()  # one thread reads rows, another sends them
        self.examples: list[str] = []  # the first few: place and reason

    def add(self, origin: RowOrigin, reason: object) -> None:
        """Take a bad row. Raises `ReadError` if it ends the command, or if the file of bad rows cannot be written."""
        text = f"{origin}: {reason}"
        if self.stop:
            error = ReadError(text)
            error.remedy = REMEDY
            raise error
        with self._lock:
            self.count += 1
            if len(self.examples) < _EXAMPLES:
                self.examples.append(text)
            if self._on_bad != SKIP:
                file, unit, place, row = origin
                self._write({"file": str(file), unit: place, "reason": str(reason), "row": row})

    def notes(self) -> list[str]:
        """Return a line about the bad rows, if there are any."""
        if not self.count:
            return []
        where = "" if self._on_bad == SKIP else f", see {self._on_bad}"
        were = "was" if self.count == 1 else "were"
        return [f"{counted(self.count, 'bad row')} {were} left out{where}; the first: {self.examples[0]}"]

    def close(self) -> None:
        """Close the file of bad rows; the context manager does it."""
        if self._out is not None:
            self._out.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, row: dict[str, Any]) -> None:
        try:
            if self._out is None:
                path = Path(self._on_bad)
                if path.is_file():  # that of an earlier run is replaced, no other file is
                    with path.open("rb") as before:
                        if before.read(len(_BEGIN)) not in (b"", _BEGIN):
                            raise ReadError(f"--on-bad {path}: the file exists and holds something else than bad rows")
                self._out = path.open("wb")
            self._out.write(msgspec.json.encode(row) + b"\n")
            self._out.flush()
        except OSError as error:
            raise ReadError(f"--on-bad {self._on_bad}: {error.strerror or error}") from None
