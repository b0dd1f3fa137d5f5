"""Labelled rows as production sends them: each event to be scored when it comes, its label a delay later, by its id.

The stream's time is the largest time of a row so far. Before a row is scored, every label goes out that is known by
then: labels and events alternate as their times say, whatever the size of a request. That makes requests small where
many labels come one by one between events. With `Delay.every` labels become known in rounds, as a file of them that
arrives each hour would: requests are larger then, and a label comes that much later at most.

Labels go out in the order of rows, as updates without features: so label k is event k of the replay's source, and the
learner's state keeps how many it has learnt (`/labels` knows no sources, and is the same otherwise). How many rows were
scored is kept nowhere. But labels and rows alternate in one fixed order, so every row that comes before the last label
learnt was scored, and of the others only those that come before the next label may have been. Whoever goes on scores
these again. That is harmless: nothing was learnt since, so what is remembered of them is replaced by the same, and none
of their labels is known yet. (A budget, and the detector of drifting scores, take note of them twice.) A row whose
label was learnt is never scored again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from service.cli.format import format_duration
from service.datasets import MAX_BODY, Event, RequestBody, batches
from service.exits import WrongUsage
from service.text import counted

__all__ = ["Delay", "check", "late_source", "needed", "schedule"]


@dataclass(frozen=True)
class Delay:
    """How long after an event its label is known."""

    seconds: float
    every: float = 0.0  # seconds between rounds of labels, counted from the epoch; 0: each label by itself

    def known(self, time: float) -> float:
        """When the label of an event of that time is known, in seconds since the epoch."""
        known = time + self.seconds
        return math.ceil(known / self.every) * self.every if self.every else known

    def __str__(self) -> str:
        rounds = f" and rounds of {format_duration(self.every)}" if self.every else ""
        return f"a label delay of {format_duration(self.seconds)}{rounds}"


def late_source(source: str, delay: Delay) -> str:
    """The source of a file's labels, where `source` is that of its rows; each delay has one of its own."""
    rounds = f"/{delay.every:.10g}" if delay.every else ""
    return f"{source}+{delay.seconds:.10g}{rounds}"


def check(learner: dict[str, Any], source: str, delay: Delay) -> None:
    """Raise `WrongUsage` where labels after this delay make no sense to a learner, of which this is the document."""
    own = late_source(source, delay)
    ttl = learner["config"]["late"]["label_ttl"]
    if ttl < delay.seconds + delay.every:
        raise WrongUsage(
            f"{learner['name']} forgets an event after its label_ttl of {format_duration(ttl)}: "
            f"with {delay}, no label would be learnt"
        )
    for name, learnt in learner["sources"].items():
        if learnt and name != own and (name == source or name.startswith(f"{source}+")):
            raise WrongUsage(
                f"{learner['name']} has learnt {counted(learnt, 'row')} of this file by a replay with another label "
                "delay, or none: to score them again would count them twice; go on with that delay, or take another "
                "learner"
            )


def needed(adapt: Callable[[Event], Event] | None) -> Callable[[Event], Event]:
    """`adapt`, which may be None, with a ValueError for a row without id or time."""

    def adapted(event: Event) -> Event:
        for member in ("id", "time"):
            if event.get(member) is None:
                raise ValueError(f"has no {member}; with --label-delay each row needs one")
        return event if adapt is None else adapt(event)

    return adapted


def schedule(
    events: Iterable[Event],
    delay: Delay,
    source: str,
    learnt: int,
    size: int,
    limit: int | None = None,
    now: float = math.inf,
    fraction: Callable[[], float] = lambda: 0.0,
) -> Iterator[RequestBody]:
    """Requests of up to `size` events or about 4 MB for all the events of a file, of which `learnt` labels are learnt.

    Where the events end before `limit`, the labels that are left follow, but for those that are not known `now`
    (seconds since the epoch): a service takes no label from the future. Keeps the labels of one delay in memory.
    """
    waiting: deque[tuple[float, Event]] = deque()  # when known, and the label
    scoring = _Scoring(size, fraction)
    clock = known = before = -math.inf  # of the rows so far, of their labels, of the last label that was learnt
    sent = learnt
    rows = 0

    def labels() -> Iterator[RequestBody]:
        nonlocal sent
        ready: list[Event] = []
        while waiting and waiting[0][0] <= clock:
            ready.append(waiting.popleft()[1])
        yield from batches(ready, source, sent, size, fraction, "labels")
        sent += len(ready)

    for event in events:
        if rows == limit:
            break
        clock = max(clock, event["time"])
        known = max(known, delay.known(event["time"]))
        label = event.pop("label")
        if rows < learnt:
            before = known
        else:
            if waiting and waiting[0][0] <= clock:
                yield from scoring.taken()
                yield from labels()
            waiting.append((known, _label(event, label, delay)))
            if clock >= before:  # else it was scored before a label that was learnt
                yield from scoring.add(rows, event)
        rows += 1
    yield from scoring.taken()
    if rows != limit:
        clock = max(clock, now)
        yield from labels()


def _label(event: Event, label: int, delay: Delay) -> dict[str, Any]:
    """The label as a request has it. The weight goes with it, as it weighs what is learnt."""
    told = {"id": event["id"], "label": label, "time": delay.known(event["time"])}
    weight = event.pop("weight", None)
    return told if weight is None else {**told, "weight": weight}


class _Scoring:
    """The request that is being made of events to score."""

    def __init__(self, size: int, fraction: Callable[[], float]) -> None:
        self._size = size
        self._fraction = fraction
        self._encode = msgspec.json.Encoder().encode
        self._first = 0
        self._parts: list[bytes] = []
        self._room = MAX_BODY

    def add(self, row: int, event: Event) -> Iterator[RequestBody]:
        """Take one more, which follows the one before; give the request if it is full then."""
        if not self._parts:
            self._first = row
        self._parts.append(self._encode(event))
        self._room -= len(self._parts[-1])
        if len(self._parts) == self._size or self._room <= 0:
            yield from self.taken()

    def taken(self) -> Iterator[RequestBody]:
        """Give the request, if there is anything in it, and begin another."""
        if self._parts:
            body = b'{"events":[%b]}' % b",".join(self._parts)
            yield RequestBody(self._first, len(self._parts), body, self._fraction(), "unlabelled")
            self._parts, self._room = [], MAX_BODY
