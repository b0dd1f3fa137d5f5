"""The options of files: how rows and cells are written, and what happens to bad rows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

__all__ = ["FileOptions"]


@dataclass(frozen=True)
class FileOptions:
    """How a file is written; a default means that the reader finds out."""

    columns: tuple[str, ...] = ()  # names of the columns of a CSV or TSV file without a header
    delimiter: str = ""  # between cells
    quote: str = ""  # around cells; "none": quotes are text
    decimal: str = ""  # mark of numbers in CSV and TSV
    thousands: str = ""  # separator of digits in numbers in CSV and TSV
    time_format: str = ""  # of Python's strptime
    time_unit: str = ""  # of times that are numbers, as in `TIME_UNITS`
    missing: tuple[str, ...] = ()  # further cells that are missing
    encoding: str = ""  # of text; by default UTF-8, or UTF-16 with a byte order mark
    zero_based: str = "auto"  # LIBSVM: "yes": the first index is 0, "no": 1, "auto": 0 if the file has such an index
    unlabelled: str = "stop"  # at a row without a label: it is malformed ("stop"), "skip" it, or "score" it
    on_bad: str = "stop"  # at a malformed row: stop, skip it, or the name of a file for it

    def shaping(self) -> dict[str, Any]:
        """Return the options that shape the rows and are not the default."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _NO_SHAPING}
        return {name: value for name, value in values.items() if value != getattr(_DEFAULT, name)}

    def check(self, format: str) -> None:
        """Refuse options that the format does not have. Raises ValueError."""
        unfit = [name for name in self.shaping() if format not in _FORMATS.get(name, (format,))]
        if unfit:
            option = unfit[0].replace("_", "-")
            raise ValueError(f"--{option} is for {' and '.join(_FORMATS[unfit[0]])} files, this is {format}")


_DEFAULT = FileOptions()
_NO_SHAPING = ("unlabelled", "on_bad")  # good rows with a label have the same numbers anyway
_FORMATS = {
    "columns": ("csv", "tsv"),
    "delimiter": ("csv", "tsv"),
    "quote": ("csv", "tsv"),
    "decimal": ("csv", "tsv", "parquet"),
    "thousands": ("csv", "tsv", "parquet"),
    "missing": ("csv", "tsv", "parquet"),
    "encoding": ("csv", "tsv", "jsonl", "json", "libsvm"),
    "zero_based": ("libsvm",),
}
