"""Notices that Redis stalls: calls are in progress, and it answers nothing, not even PING.

A server that hangs refuses nothing, so each call would wait for its own time-out, one after the other. The watch counts
ticks of the event loop, not seconds: if this process had no processor meanwhile, that is one tick.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from redis.exceptions import RedisClusterException, RedisError, TimeoutError

__all__ = ["StallWatch"]

_TICK = 0.1  # seconds
_DOUBT = 3  # ticks without an answer after which Redis is asked; a call may be long and wait for others than Redis


class StallWatch:
    """The calls in progress, and how long Redis has answered nothing."""

    def __init__(self, patience: float, ask: Callable[[], Awaitable[object]]) -> None:
        """`patience`: seconds without any answer after which all calls are given up. After half of them, Redis stalls.

        While it stalls, further calls are given up after half as long. `ask` sends a PING and waits for the answer.
        """
        self._most = max(2, round(patience / _TICK))
        self._stalls = self._most // 2
        self._ask = ask
        self._asking: asyncio.Task[None] | None = None
        self._ticks = 0  # since the last answer, with calls in progress
        self._calls: set[asyncio.Timeout] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def stall_seconds(self) -> float | None:
        """Seconds without any answer; None: Redis does not stall."""
        return self._ticks * _TICK if self._ticks >= self._stalls else None

    @contextmanager
    def call(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Watch the call of this block; `limit`, which is around it, ends it if it is given up.

        Redis has answered when the block ends, by an error, too, unless that is a time-out or a cancellation.
        """
        self._calls.add(limit)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TICK, self._tick)
        answered = True
        try:
            yield
        except (asyncio.CancelledError, TimeoutError):
            answered = False
            raise
        finally:
            self._calls.discard(limit)
            if answered:
                self._ticks = 0

    def close(self) -> None:
        """Stop asking."""
        if self._asking is not None:
            self._asking.cancel()

    def _tick(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        if not self._calls:
            if self._ticks < self._stalls:
                self._ticks = 0
            return
        self._ticks += 1
        self._timer = loop.call_later(_TICK, self._tick)
        if self._ticks >= min(_DOUBT, self._stalls) and self._asking is None:
            self._asking = loop.create_task(self._await_answer(), name="ask Redis")
        if self._ticks >= self._most:
            self._ticks = self._stalls
            for limit in self._calls:
                if not limit.expired():
                    limit.reschedule(loop.time())

    async def _await_answer(self) -> None:
        try:
            await self._ask()
        except TimeoutError:
            return
        except (RedisError, RedisClusterException, RuntimeError):  # refused, or the connection was closed
            pass
        finally:
            self._asking = None
        self._ticks = 0
