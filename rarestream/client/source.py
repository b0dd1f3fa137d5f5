"""The source of events: its name and the numbers of its events, by which the service detects repeats and gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Source", "SourceNumbers", "checked_source"]

# Name, and the number of the first event, or the ascending numbers of all; optionally `after`: there are no events
# between that number and the first event
Source = tuple[str, int | Sequence[int] | NDArray[Any]] | tuple[str, int | Sequence[int] | NDArray[Any], int]


class SourceNumbers(NamedTuple):
    """A checked source."""

    name: str
    first: int | list[int]
    after: int | None

    def member(self, start: int, stop: int) -> dict[str, Any]:
        """Return the `source` of a body with events `start` to `stop` of the call, those before them being sent."""
        if isinstance(self.first, int):
            member: dict[str, Any] = {"name": self.name, "offset": self.first + start}
            after = self.after if start == 0 else None
        else:
            member = {"name": self.name, "offsets": self.first[start:stop]}
            after = self.after if start == 0 else self.first[start - 1] + 1
        return member if after is None else {**member, "after": after}

    def after_events(self, events: int) -> Source:
        """Return the source of what follows so many events of an upload."""
        assert isinstance(self.first, int)
        first = self.first + events
        return (self.name, first) if events or self.after is None else (self.name, first, self.after)


def checked_source(source: Any) -> SourceNumbers | None:
    """Return the parsed source. Raises ValueError if it is malformed; the service checks that its numbers ascend."""
    match source:
        case None:
            return None
        case (str(name), first):
            after = None
        case (str(name), first, after) if _is_number(after):
            after = int(after)
        case _:
            raise _malformed(source)
    if _is_number(first):
        return SourceNumbers(name, int(first), after)
    if isinstance(first, np.ndarray):
        first = first.tolist()
    if isinstance(first, Sequence) and not isinstance(first, str) and all(map(_is_number, first)):
        return SourceNumbers(name, [int(offset) for offset in first], after)
    raise _malformed(source)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _malformed(source: Any) -> ValueError:
    expected = "expected a name and the number of the first event, as ('file', 0), or the numbers of all"
    return ValueError(f"source is {source!r}; {expected}")
