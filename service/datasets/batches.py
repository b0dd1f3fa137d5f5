"""Encodes rows as requests, some of which name the source and the offset of their events."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from rarestream import ClientError
from service.datasets.bad_rows import BadRows, RowOrigin
from service.datasets.packed_text import DAMAGED, File, unpacked
from service.datasets.rows import Event, RowEvent
from service.datasets.values import RowColumns
from service.refusals import blamed_events

__all__ = [
    "EncodedEvent",
    "EventPacker",
    "RequestBody",
    "again_source",
    "batches",
    "chunks",
    "file_name",
    "related_sources",
    "send_accepted",
    "shaping_options",
    "source_name",
]

Document = dict[str, Any]  # a reply of the API

_PROBE = 64 * 1024  # bytes of the file's beginning in the hash of its source's name
_BEGINNING = 16 * 1024  # bytes of its unpacked beginning in another one
_NAME = 150  # bytes of the file's name in its source's name, which the service bounds
_MAX_BODY = 4 * 2**20  # bytes of a batch
_encode = msgspec.json.Encoder().encode


class EncodedEvent(NamedTuple):
    """An event in JSON."""

    body: bytes
    origin: RowOrigin | None  # where it was read
    identified: bool  # it has an id


@dataclass(frozen=True)
class RequestBody:
    """Events of a request. Those of a `source` have ascending `numbers` there; others are numbered for the caller."""

    numbers: Sequence[int]
    events: Sequence[EncodedEvent]
    fraction: float = 0.0  # of the file that was read for the batch
    kind: Literal["labelled", "unlabelled", "labels"] = "labelled"  # labels: by the ids of scored events
    source: str | None = None

    @property
    def count(self) -> int:
        """Number of events."""
        return len(self.events)

    @property
    def offset(self) -> int:
        """Number of the first event."""
        return self.numbers[0]

    @property
    def next(self) -> int:
        """Number after the last event."""
        return self.numbers[-1] + 1

    @property
    def identified(self) -> int:
        """How many events have an id."""
        return sum(event.identified for event in self.events)

    def body(self, after: int | None = None) -> bytes:
        """Return the body in JSON; `after` is the next number of the source, if that is not the first event's."""
        events = b",".join([event.body for event in self.events])
        if self.source is None:
            return b'{"events":[%b]}' % events
        numbers = {"offset": self.offset} if isinstance(self.numbers, range) else {"offsets": self.numbers}
        gap = {} if after in (None, self.offset) else {"after": after}
        return b'{"source":%b,"events":[%b]}' % (_encode({"name": self.source, **numbers, **gap}), events)

    def halves(self) -> tuple[RequestBody, RequestBody]:
        """Split at the middle."""
        middle = self.count // 2
        first = replace(self, numbers=self.numbers[:middle], events=self.events[:middle])
        return first, replace(self, numbers=self.numbers[middle:], events=self.events[middle:])

    def without(self, indices: Collection[int]) -> RequestBody | None:
        """Return the request without these events; None if none is left."""
        if not indices:
            return self
        left = [i for i in range(self.count) if i not in indices]
        numbers, events = [self.numbers[i] for i in left], [self.events[i] for i in left]
        return replace(self, numbers=numbers, events=events) if left else None


class EventPacker:
    """Collects events up to `size`, or about 4 MB."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._events: list[EncodedEvent] = []
        self._room = _MAX_BODY

    def add(self, event: Event) -> None:
        """Add an event."""
        origin = event.origin if isinstance(event, RowEvent) else None
        self._events.append(EncodedEvent(_encode(event), origin, event.get("id") is not None))
        self._room -= len(self._events[-1].body)

    @property
    def full(self) -> bool:
        """Whether the events are as many as one request should have."""
        return len(self._events) >= self._size or self._room <= 0

    def take(self) -> list[EncodedEvent]:
        """Return the events, and begin anew."""
        events, self._events, self._room = self._events, [], _MAX_BODY
        return events


def send_accepted(batch: RequestBody, send: Callable[[RequestBody], None], bad: BadRows) -> list[RowOrigin | None]:
    """Send a batch without the events that the service refuses, which go to `bad`; return their origins.

    Raises `ClientError` for other failures, and for any refusal if bad rows end the command.
    """
    waiting = deque([batch])
    refused: list[RowOrigin | None] = []
    while waiting:
        part = waiting.popleft()
        try:
            send(part)
            continue
        except ClientError as error:
            blamed = None if bad.stop else blamed_events(error, part.count)
            if blamed is None:
                raise
        if not blamed:
            waiting.extendleft(reversed(part.halves()))
            continue
        for i in sorted(blamed):
            origin = part.events[i].origin
            bad.add(origin or RowOrigin("the events", "event", part.numbers[i]), blamed[i])
            refused.append(origin)
        if rest := part.without(blamed):
            waiting.appendleft(rest)
    return refused


def shaping_options(columns: RowColumns) -> Document:
    """Return the options that make an event of a row."""
    shaping = dataclasses.asdict(columns)
    if not columns.negative:  # keeps the names from before there was such an option
        del shaping["negative"]
    for unordered in ("positive", "negative", "drop"):
        if unordered not in shaping:
            continue
        shaping[unordered] = sorted(set(shaping[unordered]))
    shaping["form"] = columns.form.shaping()
    if not shaping["form"]:  # keeps the names from before there were such options
        del shaping["form"]
    if not columns.ranks:  # keeps the names from before there were ranks, so that old replays resume
        del shaping["ranks"]
    return shaping


def source_name(file: File, columns: RowColumns, format: str, sources: Iterable[str] = ()) -> str:
    """Return the file's name with a hash of its size, its first 64 KB and the options of its rows. Raises OSError.

    A hash of the beginning of its unpacked content follows, unless `sources`, the learner's, have the name without it,
    as earlier versions gave it. What happens to rows that are bad or have no label makes no other source: the others
    have the same numbers anyway.
    """
    shaping = shaping_options(columns)
    digest = hashlib.blake2b(msgspec.json.encode([format, file.path.stat().st_size, shaping]), digest_size=8)
    with file.path.open("rb") as opened:
        digest.update(opened.read(_PROBE))
    name = Path(file.name).name.encode("utf-8", "replace")[:_NAME].decode("utf-8", "ignore")
    source = f"{name}#{digest.hexdigest()}"
    if any(other == source or other.startswith(f"{source}+") for other in sources):
        return source
    with file.path.open("rb") as opened:
        content = unpacked(opened, file)
        try:
            beginning = content.read(_BEGINNING)
        except DAMAGED:  # the reader says so
            beginning = b""
    return f"{source}.{hashlib.blake2b(beginning, digest_size=4).hexdigest()}"


def again_source(source: str, generation: int) -> str:
    """Return a source of the rows that are new in files of this name. Its numbers are no places in a file."""
    return f"{file_name(source)}#+again{generation if generation > 1 else ''}"


def file_name(source: str) -> str:
    """Return the name of the file of a source."""
    return source.rpartition("#")[0]


def related_sources(source: str, sources: Iterable[str], links: Iterable[Collection[str]] = ()) -> list[str]:
    """Return which other sources are of files of this name or beginning, or of those of a related one.

    All sources of a collection of `links` are related, too.
    """
    family, others = {source}, [other for other in sources if file_name(other) and other != source]
    size = 0
    while size < len(family):
        size = len(family)
        names, hashes = {file_name(member) for member in family}, set().union(*map(_hashes, family))
        family |= {other for other in others if file_name(other) in names or hashes & _hashes(other)}
        for linked in links:
            family |= set(linked) if family & set(linked) else set()
    return [other for other in others if other in family]


def _hashes(source: str) -> set[str]:
    """Return the hashes in the name of a source: with the options, and of the beginning."""
    return set(source.rpartition("#")[2].partition("+")[0].split(".")) - {""}


def batches(
    events: Iterable[Event],
    source: str,
    start: int,
    size: int,
    fraction: Callable[[], float] = lambda: 0.0,
    kind: Literal["labelled", "labels"] = "labelled",
) -> Iterator[RequestBody]:
    """Yield the events in requests of up to `size` events or about 4 MB; the first is number `start` of the source.

    Events without a label have no number, and follow those with a label that came with them, to be scored.
    """
    labelled, unlabelled = EventPacker(size), EventPacker(size)
    number = start  # of the next batch's first event
    count = 0

    def batch() -> Iterator[RequestBody]:
        nonlocal count, number
        count = 0
        if parts := labelled.take():
            number += len(parts)
            yield RequestBody(range(number - len(parts), number), parts, fraction(), kind, source)
        if parts := unlabelled.take():
            yield RequestBody(range(number, number + len(parts)), parts, fraction(), "unlabelled")

    for event in events:
        count += 1
        if "label" in event:
            labelled.add(event)
        else:
            event.pop("weight", None)
            unlabelled.add(event)
        if count == size or labelled.full or unlabelled.full:
            yield from batch()
    yield from batch()


def chunks(events: Iterable[Event], size: int) -> Iterator[RequestBody]:
    """Yield the events in requests of up to `size` events or about 4 MB, numbered from 0."""
    packer, start = EventPacker(size), 0

    def chunk() -> Iterator[RequestBody]:
        nonlocal start
        if parts := packer.take():
            yield RequestBody(range(start, start + len(parts)), parts)
            start += len(parts)

    for event in events:
        packer.add(event)
        if packer.full:
            yield from chunk()
    yield from chunk()
