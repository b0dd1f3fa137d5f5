"""Server-sent events as they come in, and a curve in a line of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

__all__ = ["Event", "events", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"
_PLAIN = "_.-=^"  # where the terminal's encoding has no such bars


class Event(NamedTuple):
    """One event of a stream."""

    kind: str
    data: dict[str, Any]
    id: str | None


def events(lines: Iterable[str]) -> Iterator[Event]:
    """The events in the lines of a stream; comments, and what is not complete at its end, are passed over."""
    kind, id, data = "", None, list[str]()
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                kind = value
            elif name == "id":
                id = value
            elif name == "data":
                data.append(value)
        else:
            if data:
                yield Event(kind, msgspec.json.decode("\n".join(data)), id)
            kind, id, data = "", None, []


def sparkline(values: Sequence[float | None], width: int, *, plain: bool = False) -> str:
    """A curve from its lowest to its highest value, `width` characters at most; a blank where there is no value.

    Of more values than characters each character is the mean of several.
    """
    bars = _PLAIN if plain else _BARS
    count = min(width, len(values))
    means: list[float | None] = []
    for k in range(count):
        part = [one for one in values[k * len(values) // count : (k + 1) * len(values) // count] if one is not None]
        means.append(sum(part) / len(part) if part else None)
    known = [one for one in means if one is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    scale = (len(bars) - 1) / (high - low) if high > low else 0.0
    middle = len(bars) // 2 if not scale else 0
    return "".join(" " if one is None else bars[middle + round((one - low) * scale)] for one in means)
