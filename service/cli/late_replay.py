"""Replays labelled rows as in production: each event is scored first, and its label follows by its id after a delay.

The time of the stream is the largest time of a row so far. Before a row is scored, every label that has arrived by then
is sent. So labels and events alternate by their times, whatever the size of a request. If many labels arrive one by one
between events, requests are small. With `Delay.every`, labels arrive in rounds, like an hourly file of labels. Requests
are larger then, and labels are delayed by one round at most.

Labels are sent in the order of rows, as updates without features. So label k is event k of the replay's source, and the
learner's state keeps the number of learnt labels. (`/labels` has no sources, but is the same otherwise.) Nothing keeps
the number of scored rows. But labels and rows alternate in a fixed order. Every row before the last learnt label was
scored, and of the others only those before the next label may have been. A resumed replay scores these again. That is
harmless: nothing was learnt since, so the service remembers the same predictions, and none of their labels has arrived.
(An alert budget and the detector of drifting scores count them twice.) A row whose label was learnt is never scored
again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from service.cli.format import format_duration
from service.datasets import Event, EventPacker, RequestBody, RowEvent, batches
from service.exits import WrongUsage
from service.text import counted

__all__ = ["Delay", "check_delay", "late_source", "require_id_and_time", "schedule"]


@dataclass(frozen=True)
class Delay:
    """The delay from an event to the arrival of its label."""

    seconds: float
    every: float = 0.0  # seconds between rounds of labels, counted from the epoch; 0: no rounds

    def arrival_of(self, time: float) -> float:
        """Return the arrival of the label of an event of that time, in seconds since the epoch."""
        arrival = time + self.seconds
        return math.ceil(arrival / self.every) * self.every if self.every else arrival

    def __str__(self) -> str:
        rounds = f" and rounds of {format_duration(self.every)}" if self.every else ""
        return f"a label delay of {format_duration(self.seconds)}{rounds}"


def late_source(source: str, delay: Delay) -> str:
    """Return the source of a file's labels with this delay; `source` is that of its rows."""
    rounds = f"/{delay.every:.10g}" if delay.every else ""
    return f"{source}+{delay.seconds:.10g}{rounds}"


def check_delay(learner: dict[str, Any], source: str, delay: Delay) -> None:
    """Raise `WrongUsage` if labels with this delay make no sense for the learner of this document."""
    late = late_source(source, delay)
    ttl = learner["config"]["late"]["label_ttl"]
    if ttl < delay.seconds + delay.every:
        raise WrongUsage(
            f"{learner['name']} forgets an event after its label_ttl of {format_duration(ttl)}: "
            f"with {delay}, no label would be learnt"
        )
    for name, learnt in learner["sources"].items():
        if learnt and name != late and (name == source or name.startswith(f"{source}+")):
            raise WrongUsage(
                f"{learner['name']} has learnt {counted(learnt, 'row')} of this file by a replay with another label "
                "delay, or none: scoring them again would count them twice; resume with that delay, or use another "
                "learner"
            )


def require_id_and_time(adapt: Callable[[Event], Event] | None) -> Callable[[Event], Event]:
    """Wrap `adapt`, which may be None, to raise ValueError for a row without id or time."""

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
    first: int = 0,
    scored: float = math.inf,
) -> Iterator[RequestBody]:
    """Yield requests of up to `size` events or about 4 MB for the events of a file, after `learnt` labels.

    The events are those from row `first` on; it is at most `learnt`, and earlier rows have no label to come. Rows from
    `scored` on, if that is known, were not scored, whatever their time: the stream ended before them, and goes on.
    If the events end before `limit`, the remaining labels follow. Labels after `now` (seconds since the epoch) do not,
    because a service refuses labels from the future. The labels of one delay are in memory.
    """
    waiting: deque[tuple[float, Event]] = deque()  # arrival, label
    scoring = _Scoring(size, fraction)
    clock = arrival = before = -math.inf  # times of: the rows so far, the last arrival, the last learnt label
    labels_sent = learnt
    rows = first

    def labels() -> Iterator[RequestBody]:
        nonlocal labels_sent
        ready: list[Event] = []
        while waiting and waiting[0][0] <= clock:
            ready.append(waiting.popleft()[1])
        yield from batches(ready, source, labels_sent, size, fraction, "labels")
        labels_sent += len(ready)

    for event in events:
        if rows == limit:
            break
        clock = max(clock, event["time"])
        arrival = max(arrival, delay.arrival_of(event["time"]))
        label = event.pop("label", None)  # without one it is only scored
        if rows < learnt:
            before = arrival
        else:
            if waiting and waiting[0][0] <= clock:
                yield from scoring.flush()
                yield from labels()
            if label is not None:
                waiting.append((arrival, _label(event, label, delay)))
            if clock >= before or rows >= scored:  # else it was scored before a learnt label
                yield from scoring.add(rows, event)
        rows += label is not None
    yield from scoring.flush()
    if rows != limit:
        clock = max(clock, now)
        yield from labels()


def _label(event: Event, label: int, delay: Delay) -> Event:
    """Return the label's member of a request, with the weight, which applies to learning."""
    update: Event = {"id": event["id"], "label": label, "time": delay.arrival_of(event["time"])}
    weight = event.pop("weight", None)
    if weight is not None:
        update["weight"] = weight
    return RowEvent(update, event.origin._replace(row=None)) if isinstance(event, RowEvent) else update


class _Scoring:
    """Collects events to score into requests."""

    def __init__(self, size: int, fraction: Callable[[], float]) -> None:
        self._packer = EventPacker(size)
        self._fraction = fraction
        self._first: int | None = None

    def add(self, row: int, event: Event) -> Iterator[RequestBody]:
        """Add the next event; yield the request if it is full."""
        self._first = row if self._first is None else self._first
        self._packer.add(event)
        if self._packer.full:
            yield from self.flush()

    def flush(self) -> Iterator[RequestBody]:
        """Yield the request unless it is empty, and begin another."""
        if self._first is not None:
            events = self._packer.take()
            yield RequestBody(range(self._first, self._first + len(events)), events, self._fraction(), "unlabelled")
            self._first = None
