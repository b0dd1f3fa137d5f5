"""Reads the rows of Parquet files, by the extra `parquet` (pyarrow), in batches of a thousand.

    text, dictionaries of text     cells of text, as in CSV; so is binary data that is UTF-8
    integers, floats, decimals     numbers; a column with an integer beyond 2^53 holds names; decimals without a
                                   fraction are integers, which keeps ids of databases exact
    booleans, lists                as they are
    dates and times                text in ISO 8601; without a zone they are UTC

Other columns, such as structures, must be dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import repeat
from typing import IO, Any

from service.datasets.packed_text import File, temporary_copy, unpacked
from service.datasets.rows import ReadError

__all__ = ["ParquetFile"]

_ROWS = 1000  # in a batch
_ABSENT = "Parquet needs a package that is not installed: pip install '.[parquet]' in the clone"


class ParquetFile:
    """An open Parquet file: its column names, its number of rows, and its rows; a context manager.

    Raises `ReadError` if pyarrow is not installed or the file is not Parquet.
    """

    def __init__(self, file: File) -> None:
        try:
            import pyarrow as arrow
            from pyarrow import parquet
        except ImportError:
            raise ReadError(_ABSENT) from None
        self._file = file
        self._arrow = arrow
        self._stream = _open(file)
        try:
            self._parquet = parquet.ParquetFile(self._stream)
        except (arrow.ArrowInvalid, OSError) as error:
            self._stream.close()
            raise ReadError(f"{file}: not a Parquet file: {error}") from None
        self._schema = self._parquet.schema_arrow
        self.names: list[str] = list(self._schema.names)
        self.total: int = self._parquet.metadata.num_rows

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def typed(self, place: int) -> bool:
        """Tell whether a column has values, not text. Raises ValueError if its type cannot be read."""
        return self._target(place)[1]

    def rows(self, places: list[int]) -> Iterator[list[Any]]:
        """Yield each row, with null for columns that are not in `places`. Raises `ReadError` for damaged data."""
        targets = {place: self._target(place) for place in places}
        names = [self.names[place] for place in places]
        width = len(self.names)
        unique = len(set(self.names)) == width  # else columns cannot be chosen by name
        try:
            for batch in self._parquet.iter_batches(_ROWS, columns=names if unique else None):
                columns: list[Any] = [repeat(None)] * width
                for k, place in enumerate(places):
                    columns[place] = self._cells(batch.column(k if unique else place), *targets[place])
                yield from map(list, zip(*columns, strict=False))
        except (self._arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ReadError(f"{self._file}: the Parquet data is damaged or cannot be read: {error}") from None

    def _cells(self, column: Any, target: Any, typed: bool) -> list[Any]:
        cells: list[Any] = column.cast(target, safe=False).to_pylist()
        if self._arrow.types.is_decimal(target):
            return [None if cell is None else int(cell) for cell in cells]
        if typed:
            return cells
        return ["" if cell is None else cell if type(cell) is str else cell.isoformat() for cell in cells]

    def _target(self, place: int) -> tuple[Any, bool]:
        """Return the type that a column is converted to, and whether its cells are values, not text."""
        types = self._arrow.types
        kind = self._schema.field(place).type
        if types.is_dictionary(kind):
            kind = kind.value_type
        if types.is_integer(kind) or types.is_boolean(kind) or types.is_float32(kind) or types.is_float64(kind):
            return kind, True
        if types.is_decimal(kind) and kind.scale <= 0:
            return kind, True
        if types.is_decimal(kind) or types.is_float16(kind):
            return self._arrow.float64(), True
        if types.is_timestamp(kind):
            return self._arrow.timestamp("us", kind.tz), False
        if types.is_date(kind):
            return self._arrow.date32(), False
        if types.is_time(kind):
            return self._arrow.time64("us"), False
        texts = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary)
        if types.is_null(kind) or any(test(kind) for test in texts):
            return self._arrow.string(), False
        if types.is_list(kind) or types.is_large_list(kind):
            inner = kind.value_type
            tokens = (types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean)
            if types.is_null(inner) or any(test(inner) for test in tokens):
                return kind, True
        raise ValueError(
            f"column {self.names[place]!r} has the type {kind}, which is no feature: leave it out with --drop"
        )


def _open(file: File) -> IO[bytes]:
    """Open a file, or a temporary copy of it without its compression. Raises `ReadError` for damaged data."""
    with ExitStack() as stack:
        raw = stack.enter_context(file.path.open("rb"))
        stream = unpacked(raw, file)
        if stream is raw:
            stack.pop_all()
            return raw
        stack.enter_context(stream)
        try:
            return temporary_copy(stream)
        except ValueError as error:
            raise ReadError(f"{file}: {error}") from None
