"""Opens files and streams: decompresses them, decodes text, copies pipes. Formats are recognised by first bytes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import sys
import tempfile
import zipfile
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from service.datasets.bad_rows import ReadError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = [
    "DAMAGED",
    "PACKED_SUFFIXES",
    "READ",
    "STDIN",
    "File",
    "damage",
    "head_of",
    "lines_of",
    "local_file",
    "standard_input",
    "temporary_copy",
    "unpacked",
    "zipped_name",
]

READ = "CSV, TSV, JSON lines or LIBSVM text, .npz or Parquet, also within gzip, bz2, xz, zstd or zip"
STDIN: Final = "standard input"  # its name in messages,
_PIPE: Final = "the pipe"  # and that of a pipe
PACKED_SUFFIXES = frozenset({".gz", ".bz2", ".xz", ".zst", ".zstd", ".zip"})
_ZIP = b"PK\x03\x04"
_PACKED: dict[bytes, tuple[str, Callable[[Any], Any]]] = {  # by the first bytes
    b"\x1f\x8b": ("gzip", lambda stream: gzip.GzipFile(fileobj=stream)),
    b"BZh": ("bz2", bz2.BZ2File),
    b"\xfd7zXZ\0": ("xz", lzma.LZMAFile),
    b"\x28\xb5\x2f\xfd": ("zstd", zstd.ZstdFile),
}
_NO_ROWS = ("__MACOSX/", ".DS_Store")  # beginnings of what macOS adds to archives
_NO_TEXT = {  # beginnings of files that are often taken for text
    _ZIP: "a zip archive, as spreadsheets and .npz files are",
    b"PAR1": "a Parquet file",
}
_UTF16 = (BOM_UTF16_LE, BOM_UTF16_BE)
_MARK = "\ufeff"  # byte order mark
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError, zipfile.BadZipFile, OSError)


@dataclass(frozen=True)
class File:
    """A file to read: where it is, and what messages call it."""

    path: Path
    name: str

    @classmethod
    def of(cls, path: Path) -> File:
        """Return the file at a path, under its own name."""
        return cls(path, str(path))

    def __str__(self) -> str:
        return self.name

    @property
    def argument(self) -> str:
        """Return what stands for the file in a command: `-` for standard input, and FILE for a pipe."""
        return {STDIN: "-", _PIPE: "FILE"}.get(self.name, self.name)


class _Counting(io.RawIOBase):
    """Wraps an unseekable stream, such as a pipe, to count the bytes read."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read1(len(buffer))
        buffer[: len(data)] = data
        self._read += len(data)
        return len(data)

    def tell(self) -> int:
        return self._read


def standard_input() -> io.BufferedReader:
    """Return standard input for the readers of files."""
    return io.BufferedReader(_Counting(sys.stdin.buffer))  # type: ignore[arg-type]


@contextmanager
def local_file(path: Path, stream: io.BufferedReader | None = None) -> Iterator[File]:
    """Yield a file that can be read twice: a pipe, standard input (`-`) or the `stream` is copied to a temporary one.

    Raises `ReadError` for other devices. A missing file is reported when it is opened.
    """
    if stream is None and str(path) == "-" and not path.exists():
        stream = standard_input()
    if stream is None and not path.is_fifo():
        if path.is_char_device() or path.is_socket() or path.is_block_device():
            raise ReadError(f"{path} is a device, not a file")
        yield File.of(path)
        return
    name = STDIN if str(path) == "-" else _PIPE if str(path).startswith(("/dev/fd/", "/proc/")) else str(path)
    with tempfile.TemporaryDirectory(prefix="rarestream-") as folder:
        copy = Path(folder) / ("rows" if stream is None or path.name in ("", "-") else path.name)
        with copy.open("wb") as out:
            if stream is not None:
                shutil.copyfileobj(stream, out)
            else:
                with path.open("rb") as pipe:
                    shutil.copyfileobj(pipe, out)
        yield File(copy, name)


class _Decompressed(io.BufferedReader):
    def __init__(self, content: Any, packing: str) -> None:
        super().__init__(content)
        self.packing = packing  # name of the compression


def unpacked(stream: io.BufferedReader, file: object) -> io.BufferedReader:
    """Return a stream without its compression; of a zip archive its only file. `file` names it in errors.

    Raises `ReadError` for an archive of several files, or one that cannot be opened.
    """
    head = stream.peek(6)
    if isinstance(stream, _Decompressed):
        return stream
    if head.startswith(_ZIP):
        return _unzipped(stream, file)
    for begin, (name, opener) in _PACKED.items():
        if head.startswith(begin):
            return _Decompressed(opener(stream), name)
    return stream


def zipped_name(path: Path) -> str:
    """Return the name of the only file in a zip archive; empty for any other file. Raises as `unpacked`."""
    with path.open("rb") as stream:
        member = _zipped(stream, path)[1] if stream.peek(4).startswith(_ZIP) else None
    return "" if member is None else member.filename


def _unzipped(stream: io.BufferedReader, file: object) -> io.BufferedReader:
    """Open the only file of a zip archive; return a file of arrays or a spreadsheet as it is."""
    if not stream.seekable():  # standard input: the names are at the archive's end
        stream = io.BufferedReader(io.BytesIO(stream.read()))
    archive, member = _zipped(stream, file)
    stream.seek(0)
    if member is None:
        return stream
    try:
        return _Decompressed(archive.open(member), "zip")
    except (RuntimeError, NotImplementedError) as error:  # it is encrypted, or compressed by an unknown method
        raise ReadError(f"{file}: {error}") from None


def _zipped(stream: io.BufferedReader, file: object) -> tuple[zipfile.ZipFile, zipfile.ZipInfo | None]:
    """Return a zip archive, and its only file; None if it has those of .npz or of a spreadsheet. Raises `ReadError`."""
    try:
        archive = zipfile.ZipFile(stream)
    except zipfile.BadZipFile as error:
        raise ReadError(f"{file}: the zip data is damaged or cut short ({error})") from None
    members = [item for item in archive.infolist() if not item.is_dir() and not item.filename.startswith(_NO_ROWS)]
    names = [item.filename for item in members]
    if "[Content_Types].xml" in names or (names and all(name.endswith(".npy") for name in names)):
        return archive, None
    if len(members) != 1:
        listed = ", ".join(names[:5]) or "no file"
        raise ReadError(f"{file}: the archive has {listed}; expected one file. Unpack it, and name that with the rows")
    return archive, members[0]


def damage(error: BaseException, stream: io.BufferedReader) -> str | None:
    """Describe damaged compressed data of a stream; None for other errors, such as those of the disk."""
    if not isinstance(stream, _Decompressed) or (isinstance(error, OSError) and error.errno is not None):
        return None
    return f"the {stream.packing} data is damaged or cut short ({error})"


def temporary_copy(stream: io.BufferedReader) -> IO[bytes]:
    """Copy a decompressed stream to a file without a name, for formats that are not read from front to back.

    Raises ValueError if the data is damaged.
    """
    copy = tempfile.TemporaryFile(prefix="rarestream-")  # noqa: SIM115 - the caller closes it
    try:
        shutil.copyfileobj(stream, copy)
    except DAMAGED as error:
        copy.close()
        if (reason := damage(error, stream)) is None:
            raise
        raise ValueError(reason) from None
    copy.seek(0)
    return copy


def head_of(stream: io.BufferedReader, file: object) -> bytes:
    """Return the first bytes of an unpacked stream, without a byte order mark. Raises `ReadError` for damaged data."""
    try:
        return stream.peek(1).removeprefix(BOM_UTF8)
    except DAMAGED as error:
        if (reason := damage(error, stream)) is None:
            raise
        raise ReadError(f"{file}: {reason}") from None


def lines_of(stream: io.BufferedReader, file: object, expected: str = READ, encoding: str = "") -> Iterator[str]:
    """Yield the lines of a stream, compressed or not, and close it; `file` names it in messages.

    Raises `ReadError` at the first line that is damaged or not text in its encoding, and at once for binary data, with
    the `expected` formats.
    """
    count, raw = 0, stream
    try:
        stream = unpacked(stream, file)
        head = stream.peek(1)
        if not encoding:
            encoding = "utf-16" if head.startswith(_UTF16) else "utf-8-sig"
        kind = next((what for begin, what in _NO_TEXT.items() if head.startswith(begin)), None)
        if kind is not None or (b"\0" in head and not encoding.lower().startswith(("utf-16", "utf-32"))):
            raise ReadError(f"{file} is {kind or 'binary data'}; expected {expected}")
        with io.TextIOWrapper(stream, encoding=encoding, newline="") as text:
            for line in text:
                count += 1
                yield line.lstrip(_MARK) if line.startswith(_MARK) else line  # files that were joined have several
        raw.close()
    except UnicodeDecodeError as error:
        place = count + 1 + error.object.count(b"\n", 0, error.start)
        coded = "UTF-8" if encoding == "utf-8-sig" else encoding
        reason = f"not {coded} text: it contains the byte 0x{error.object[error.start]:02x}"
        remedy = "save the file as UTF-8, or name its encoding, such as --encoding cp1252"
        raise ReadError(f"{file}, line {place:,}: {reason}; {remedy}") from None
    except LookupError:
        raise ReadError(f"--encoding {encoding}: unknown encoding") from None
    except UnicodeError as error:  # of UTF-16 without a byte order mark
        raise ReadError(f"{file}, line {count + 1:,}: not {encoding} text: {error}") from None
    except DAMAGED as error:
        if (reason_ := damage(error, stream)) is None:
            raise
        raise ReadError(f"{file}, line {count + 1:,} or later: {reason_}") from None
