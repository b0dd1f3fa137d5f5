"""Encodes the rows of a file as requests, which name the source and the offset of their events."""

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

Document = dict[str, Any]  # a reply of the API

_PROBE = 64 * 1024  # bytes of the file's beginning in the hash of its source's name
_NAME = 150  # bytes of the file's name in its source's name, which the service bounds
MAX_BODY = 4 * 2**20  # bytes of a batch


@dataclass(frozen=True)
class RequestBody:
    """Rows `offset` to `offset + count` of a source, as the body of a request."""

    offset: int
    count: int
    body: bytes
    fraction: float  # of the file that was read for the batch
    kind: Literal["labelled", "unlabelled", "labels"] = "labelled"  # labels: by the ids of scored events


def source_name(path: Path, columns: RowColumns, format: str) -> str:
    """Return the file's name with a hash of its size, its first 64 KB and the options of its rows. Raises OSError."""
    shaping = dataclasses.asdict(columns)
    for unordered in ("positive", "drop"):
        shaping[unordered] = sorted(set(shaping[unordered]))
    if not columns.ranks:  # keeps the names from before there were ranks, so that old replays resume
        del shaping["ranks"]
    digest = hashlib.blake2b(msgspec.json.encode([format, path.stat().st_size, shaping]), digest_size=8)
    with path.open("rb") as file:
        digest.update(file.read(_PROBE))
    name = path.name.encode("utf-8", "replace")[:_NAME].decode("utf-8", "ignore")
    return f"{name}#{digest.hexdigest()}"


def earlier_rows(learner: Document, source: str) -> int:
    """Return how many rows the learner learnt of a file of this name with other options or content."""
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
    """Yield the events in bodies of up to `size` events or about 4 MB; the first is number `start` of the source."""
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
