"""The events of a request that its refusal blames, so that the others can be sent without them."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rarestream import ClientError

__all__ = ["blamed_events"]

_FAULTY = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY})


def blamed_events(error: ClientError, count: int) -> dict[int, str] | None:
    """Return the blamed events of a request of `count` JSON events, by index, with reasons.

    The only event of a request is blamed for any fault of its body. Of several events, none is if the refusal points to
    none: then one half of them is at fault. Returns None if the refusal is not about events, as 404 is, and a fault of
    `source` or of a parameter.
    """
    if error.status not in _FAULTY:
        return None
    reasons: dict[int, str] = {}
    for problem in error.problems:
        _, *path = problem.pointer.split("/")
        if path and path[0] != "events":
            return None
        if len(path) > 1 and path[1].isdecimal() and int(path[1]) < count:
            member = "/".join(path[2:])
            reason = f"{member}: {problem.detail}" if member else problem.detail
            i = int(path[1])
            reasons[i] = f"{reasons[i]}; {reason}" if i in reasons else reason
    return {0: str(error)} if not reasons and count == 1 else reasons
