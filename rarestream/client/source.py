"""Where events come from: a source's name, and their numbers in it, by which the service tells a repeat and a gap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Numbers", "Source", "checked_source"]

# Name, and the number of the first event in it, or the ascending numbers of all; perhaps `after`: nothing stands
# between there and the first event
Source = tuple[str, int | Sequence[int] | NDArray[Any]] | tuple[str, int | Sequence[int] | NDArray[Any], int]


class Numbers(NamedTuple):
    """A checked source."""

    name: str
    first: int | list[int]
    after: int | None

    def member(self, start: int, stop: int) -> dict[str, Any]:
        """Of a body with events `start` to `stop` of the call: those before them have been sent."""
        if isinstance(self.first, int):
            found: dict[str, Any] = {"name": self.name, "offset": self.first + start}
            after = self.after if start == 0 else None
        else:
            found = {"name": self.name, "offsets": self.first[start:stop]}
            after = self.after if start == 0 else self.first[start - 1] + 1
        return found if after is None else {**found, "after": after}


def checked_source(source: Any) -> Numbers | None:
    """The source, if there is one. Raises ValueError where it is none; whether its numbers ascend, the service says."""
    match source:
        case None:
            return None
        case (str(name), first):
            after = None
        case (str(name), first, after) if _is_number(after):
            after = int(after)
        case _:
            raise _no_source(source)
    if _is_number(first):
        return Numbers(name, int(first), after)
    if isinstance(first, np.ndarray):
        first = first.tolist()
    if isinstance(first, Sequence) and not isinstance(first, str) and all(map(_is_number, first)):
        return Numbers(name, [int(one) for one in first], after)
    raise _no_source(source)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _no_source(source: Any) -> ValueError:
    expected = "expected a name and the number of the first event, as ('file', 0), or the numbers of all"
    return ValueError(f"source is {source!r}; {expected}")
