"""Takes the paths of learners apart: which learner a request is for, and which operation."""

from __future__ import annotations

from functools import lru_cache
from typing import get_args

from service.wire import Operation

__all__ = ["learner_name", "match_operation"]

_PREFIX = "/v1/learners/"
_OPERATIONS: dict[str, Operation] = {name: name for name in get_args(Operation)}


def learner_name(path: str) -> str | None:
    """Return the first segment below `/v1/learners/`, or None for any other path."""
    return path[len(_PREFIX) :].partition("/")[0] if path.startswith(_PREFIX) else None


@lru_cache(maxsize=1024)  # clients repeat the same few paths
def match_operation(path: str) -> tuple[str, Operation] | None:
    """Return the learner's name and the operation if the path is that of an update, a predict or labels."""
    name = learner_name(path)
    operation = _OPERATIONS.get(path[len(_PREFIX) + len(name) + 1 :]) if name else None
    return (name, operation) if name and operation is not None else None
