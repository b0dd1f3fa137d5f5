"""Wait for a condition that other tasks, threads or processes bring about."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["PATIENCE", "eventually", "eventually_async"]

T = TypeVar("T")
PATIENCE = 300.0  # seconds: no limit on speed, only an end for what never happens, on a busy machine too
_PAUSE = 0.01


def eventually(condition: Callable[[], T], what: object = "", *, seconds: float = PATIENCE) -> T:
    """Return the condition's first value that is true; raise TimeoutError, which names `what`, if there is none."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what() if callable(what) else what or condition}")
        time.sleep(_PAUSE)
    return value


async def eventually_async(
    condition: Callable[[], Awaitable[T] | T], what: object = "", *, seconds: float = PATIENCE
) -> T:
    """Do the same on the event loop; the condition may be a coroutine function."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what() if callable(what) else what or condition}")
        await asyncio.sleep(_PAUSE)
