"""The rows of a file as requests: a source's name, and its events in bodies that name it and their place in it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from service.datasets.rows import Event
from service.datasets.values import RowColumns

__all__ = ["MAX_BODY", "RequestBody", "batches", "earlier_rows", "source_name"]

Document = dict[str, Any]  # a reply as the API describes it

_PROBE = 64 * 1024  # bytes of the file that its source's name depends on, besides its size
_NAME = 150  # bytes of the file's name that its source's keeps: the service bounds the whole
MAX_BODY = 4 * 2**20  # bytes after which a batch ends, however few its rows


@dataclass(frozen=True)
class RequestBody:
    """Rows `offset` to `offset + count` of a source, as the body of a request."""

    offset: int
    count: int
    body: bytes
    fraction: float  # of the file that had been read when the batch was complete
    kind: Literal["labelled", "unlabelled", "labels"] = "labelled"  # the last: by id, of events that were scored before


def source_name(path: Path, columns: RowColumns, format: str) -> str:
    """The file's name and a hash of its size, its first 64 KB and all that shapes its rows. Raises OSError."""
    shaping = dataclasses.asdict(columns)
    for unordered in ("positive", "drop"):
        shaping[unordered] = sorted(set(shaping[unordered]))
    if not columns.ranks:  # as files were named before there were ranks: their replays go on
        del shaping["ranks"]
    digest = hashlib.blake2b(msgspec.json.encode([format, path.stat().st_size, shaping]), digest_size=8)
    with path.open("rb") as file:
        digest.update(file.read(_PROBE))
    name = path.name.encode("utf-8", "replace")[:_NAME].decode("utf-8", "ignore")
    return f"{name}#{digest.hexdigest()}"


def earlier_rows(learner: Document, source: str) -> int:
    """Rows that the learner has learnt of a file of this name read otherwise, or with other content."""
    prefix = source.rpartition("#")[0] + "#"
    rows = [offset for name, offset in learner["sources"].items() if name.startswith(prefix) and name != source]
    return max(rows, default=0)


def batches(
    events: Iterable[Event],
    source: str,
    start: int,
    size: int,
    fraction: Callable[[], float] = lambda: 0.0,
    kind: Literal["labelled", "labels"] = "labelled",
) -> Iterator[RequestBody]:
    """The events, the first of them number `start` of the source, in bodies of up to `size` events or about 4 MB."""
    encode = msgspec.json.Encoder().encode
    parts: list[bytes] = []
    room = MAX_BODY

    def batch() -> RequestBody:
        head = encode({"name": source, "offset": start})
        return RequestBody(
            start, len(parts), b'{"source":%b,"events":[%b]}' % (head, b",".join(parts)), fraction(), kind
        )

    for event in events:
        parts.append(encode(event))
        room -= len(parts[-1])
        if len(parts) == size or room <= 0:
            yield batch()
            start, parts, room = start + len(parts), [], MAX_BODY
    if parts:
        yield batch()
