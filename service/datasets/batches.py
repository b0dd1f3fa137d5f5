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
    "EarlierRows",
    "EncodedEvent",
    "EventPacker",
    "RequestBody",
    "batches",
    "chunks",
    "earlier_rows",
    "earlier_sources",
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


class EarlierRows(NamedTuple):
    """Rows that a learner learnt of another file with the same name, or with the same beginning."""

    rows: int
    name: str  # of that file
    same_name: bool


def earlier_rows(learner: Document, source: str) -> EarlierRows | None:
    """Return what the learner learnt of a file of this name with other options or content, or of one that begins so."""
    name, _ = _parts(source)
    earlier = [(learner["sources"][other], _parts(other)[0]) for other in earlier_sources(learner, source)]
    return max((EarlierRows(count, other, other == name) for count, other in earlier), default=None)


def earlier_sources(learner: Document, source: str) -> list[str]:
    """Return the other sources of files of this name, or of this beginning, of which rows were learnt; latest last."""
    name, fingerprints = _parts(source)
    sources = []
    for other, count in learner["sources"].items():
        other_name, others = _parts(other)
        if count and other != source and (other_name == name or fingerprints & others):
            sources.append(other)
    return sources


def _parts(source: str) -> tuple[str, set[str]]:
    """Return the file's name in the name of a source, and the hashes: with its options, and of its beginning."""
    name, _, hashes = source.rpartition("#")
    return name, set(hashes.partition("+")[0].split("."))


def batches(
    events: Iterable[Event],
    source: str,
    start: int,
    size: int,
    fraction: Callable[[], float] = lambda: 0.0,
    kind: Literal["labelled", "labels"] = "labelled",
    leave_out: Callable[[Event], bool] | None = None,
) -> Iterator[RequestBody]:
    """Yield the events in requests of up to `size` events or about 4 MB; the first is number `start` of the source.

    Events without a label have no number, and follow those with a label that came with them, to be scored. Labelled
    events that `leave_out` accepts have a number, too.
    """
    labelled, unlabelled = EventPacker(size), EventPacker(size)
    numbers: list[int] = []  # of the labelled events
    number = start  # of the next one
    count = 0

    def batch() -> Iterator[RequestBody]:
        nonlocal count, numbers
        count = 0
        if parts := labelled.take():
            last = numbers[-1]
            whole = last - numbers[0] == len(numbers) - 1
            yield RequestBody(range(numbers[0], last + 1) if whole else numbers, parts, fraction(), kind, source)
            numbers = []
        if parts := unlabelled.take():
            yield RequestBody(range(number, number + len(parts)), parts, fraction(), "unlabelled")

    for event in events:
        if "label" in event:
            number += 1
            if leave_out is not None and leave_out(event):
                continue
        count += 1
        if "label" in event:
            numbers.append(number - 1)
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
