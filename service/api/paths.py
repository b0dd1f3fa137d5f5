"""Takes paths below the application's root apart: which learner a request is for, and which operation.

FastAPI matches the routes that it has. Updates, predicts, labels and websockets do not come to it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import get_args

from service.wire import Operation

__all__ = ["PROBES", "learner_name", "match_operation", "match_websocket", "name_and_rest"]

# Probes as orchestrators usually name them, each with the route that answers. Logs and metrics name that route.
PROBES = {"/healthz": "/v1/health/live", "/livez": "/v1/health/live", "/readyz": "/v1/health/ready"}

_PREFIX = "/v1/learners/"
_WEBSOCKET = re.compile(r"/v1/(?:learners/([^/]+)/)?ws")
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


def match_websocket(path: str) -> re.Match[str] | None:
    """Match the path of a websocket. Its group is the learner's name, or None for the websocket of all learners."""
    return _WEBSOCKET.fullmatch(path)


def name_and_rest(path: str) -> str:
    """Return what follows `/v1/learners/` or `/v1/groups/`; empty for any other path."""
    kind, _, rest = path.removeprefix("/v1/").partition("/")
    return rest if kind in ("learners", "groups") else ""
