"""The permissions of a key: scopes, learners and limits. `guard.py` finds those of a request.

Limits are checked before anything is done, so a refusal changes nothing. Each process counts rates alone. A temporary
refusal is a 429, which clients retry. A refusal that a retry cannot help, such as one learner too many, reads as if the
node itself had that limit.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from typing import Any

from learners import Config, Problem
from service.auth.keys import LIMITS, SCOPES, Key, Scope
from service.errors import (
    Forbidden,
    Invalid,
    LimitReached,
    RateLimited,
    TooLarge,
    Unauthorized,
    UnknownGroup,
    UnknownLearner,
)

__all__ = ["NEEDED", "UNRESTRICTED", "Bucket", "Permissions"]

NEEDED: dict[str, Scope] = {"update": "update", "labels": "update", "predict": "predict"}  # by the hot operations


class Bucket:
    """A token bucket: a rate per second, and as much in a burst; a larger amount leaves a debt."""

    __slots__ = ("_at", "_burst", "_clock", "_level", "_rate")

    def __init__(self, rate: float, clock: Callable[[], float], burst: float = 1.0) -> None:
        self._clock = clock
        self._rate = rate
        self._level = self._burst = max(rate, burst)
        self._at = clock()

    def take(self, count: int) -> int:
        """Take an amount and return 0; or take nothing and return the seconds to wait."""
        now = self._clock()
        level = min(self._level + (now - self._at) * self._rate, self._burst)
        self._at, self._level = now, level
        if level < min(count, 1):
            return max(1, math.ceil((1 - level) / self._rate))
        self._level = level - count
        return 0

    @property
    def quota(self) -> tuple[int, int]:
        """Return how much may be taken in how many seconds: whole numbers, for a rate below 1 too."""
        return int(self._burst), max(1, math.ceil(self._burst / self._rate))

    def remainder(self) -> tuple[int, int]:
        """Return how much may be taken now, and the seconds until it is as much as possible."""
        level = min(self._level + (self._clock() - self._at) * self._rate, self._burst)
        return max(0, int(level)), math.ceil((self._burst - level) / self._rate)


class Permissions:
    """The permissions of a key and its counters; replaced when the entry of the key changes."""

    def __init__(self, key: Key | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Create the permissions of a key; None permits everything without a key."""
        self.key = key
        self.id = None if key is None else key.id
        self.digest = b"" if key is None else bytes.fromhex(key.sha256)
        self.revoked = False
        self.scopes: frozenset[Scope] = frozenset(
            SCOPES if key is None or "admin" in key.scopes else key.scopes,
        )
        self._until = math.inf if key is None or key.expires is None else key.expires.timestamp()
        self._pattern = None if key is None or key.learners is None else re.compile(translate(key.learners))
        limits = None if key is None else key.limits
        requests = None if limits is None else limits.requests_per_second
        events = None if limits is None else limits.events_per_second
        self._limits = limits
        self._requests = None if requests is None else Bucket(requests, clock)
        self._events = None if events is None else Bucket(events, clock)
        self.has_rates = requests is not None or events is not None
        self.body_bytes = None if limits is None else limits.body_bytes  # of a body, at most
        # what is to be called with the number of a request's events before anything is done with them
        self.spend: Callable[[int], None] | None = None if key is None else self._spend

    # What it may do

    @property
    def all_learners(self) -> bool:
        """Return whether it permits every learner."""
        return self._pattern is None

    @property
    def free(self) -> bool:
        """Return whether the key has no rate limits and no limit of bodies."""
        return not self.has_rates and self.body_bytes is None

    @property
    def counts_learners(self) -> bool:
        """Return whether the number of learners and groups is limited: see `check_room`."""
        return self._limits is not None and self._limits.learners is not None

    @property
    def over(self) -> bool:
        """Return whether the key was revoked, changed or has expired: streams that use it must end."""
        return self.revoked or (self._until < math.inf and time.time() >= self._until)

    def check_lasts(self) -> None:
        """Raise `Unauthorized` if the key is no longer valid."""
        if self.over:
            raise Unauthorized("the API key was revoked, changed or has expired")

    def need(self, scope: Scope) -> None:
        """Raise `Forbidden` if the key lacks a scope."""
        if scope not in self.scopes:
            raise Forbidden(f"the {scope} scope is required; the key has {', '.join(sorted(self.scopes))}")

    def sees(self, learner: str) -> bool:
        """Return whether the key may access a learner."""
        return self._pattern is None or self._pattern.match(learner) is not None

    def find(self, learner: str) -> None:
        """Raise `UnknownLearner` if the key may not access a learner, as if it did not exist."""
        if not self.sees(learner):
            raise UnknownLearner(f"there is no learner named {learner}")

    def sees_group(self, group: str, members: Iterable[str]) -> bool:
        """Return whether the key may access a group: its name, and each of its learners."""
        return self._pattern is None or (self.sees(group) and all(map(self.sees, members)))

    def find_group(self, group: str, members: Iterable[str] = ()) -> None:
        """Raise `UnknownGroup` if the key may not access a group."""
        if not self.sees_group(group, members):
            raise UnknownGroup(f"there is no group named {group}")

    # What it may make

    def may_make(self, name: str) -> None:
        """Raise `Forbidden` if the key may not access learners or groups of this name, existing or not."""
        if not self.sees(name):
            assert self.key is not None
            raise Forbidden(f"the key only permits names like {self.key.learners}; nothing was created")

    def check_config(self, config: Config, new: bool = True) -> None:
        """Raise `Invalid` if a learner of this configuration would exceed the limits of the key.

        Unless it is `new`, only the settings that may change are checked.
        """
        if self._limits is None:
            return
        problems = []
        columns = config.features.columns
        if config.embedding.kind != "none":
            columns = max(columns, config.embedding.components)
        for name, at, value in (
            ("dimensions", "/features", columns if new else 0),
            ("remembered_events", "/late/max_events", 0 if config.late is None else config.late.max_events),
        ):
            most: int | None = getattr(self._limits, name)
            if most is not None and value > most:
                detail = f"results in {value}; the key's limit {name} is {most}"
                problems.append(Problem(at, detail, expected={"maximum": most}))
        if problems:
            raise Invalid("the configuration exceeds the limits of the key", problems)

    def check_room(self, learners: Iterable[str], groups: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Raise `LimitReached` if the key already has its maximum of learners and groups."""
        most = None if self._limits is None else self._limits.learners
        if most is None:
            return
        visible = sum(map(self.sees, learners)) + sum(self.sees_group(name, members) for name, members in groups)
        if visible >= most:
            raise LimitReached(f"the key has {visible} learners and groups; its limit learners is {most}")

    # What it may use

    def count(self) -> None:
        """Count a request or message. Raises `RateLimited`, and then does not count it."""
        wait = 0 if self._requests is None else self._requests.take(1)
        if wait:
            raise _limited(self, "requests_per_second", wait)

    def rate_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that tell the rate limits and what is left (draft-ietf-httpapi-ratelimit-headers-10)."""
        policies, rests = [], []
        for name, bucket in (("requests", self._requests), ("events", self._events)):
            if bucket is not None:
                most, seconds = bucket.quota
                rest, until = bucket.remainder()
                policies.append(f'"{name}";q={most};w={seconds}')
                rests.append(f'"{name}";r={rest};t={until}')
        return [(b"ratelimit-policy", ", ".join(policies).encode()), (b"ratelimit", ", ".join(rests).encode())]

    def _spend(self, events: int) -> None:
        """Count events before they are processed. Raises `RateLimited` or `Unauthorized`."""
        self.check_lasts()
        wait = 0 if self._events is None else self._events.take(events)
        if wait:
            raise _limited(self, "events_per_second", wait)

    def message(self, scope: Scope | None, size: int) -> None:
        """Check a websocket message of so many bytes. A message without a scope is refused for another reason.

        Raises what refuses it.
        """
        self.count()
        if scope is not None:
            self.need(scope)
        if self.body_bytes is not None and size > self.body_bytes:
            raise TooLarge(f"the message has {size} bytes; the key's limit body_bytes is {self.body_bytes}")

    def document(self) -> dict[str, Any]:
        """Return the document of `GET /v1/key`."""
        key = self.key
        return {
            "name": None if key is None else key.name,
            "id": self.id,
            "scopes": [scope for scope in SCOPES if scope in self.scopes],
            "learners": None if key is None else key.learners,
            "limits": {name: None if key is None else getattr(key.limits, name) for name in LIMITS},
            "expires": None if math.isinf(self._until) else self._until,
        }


def _limited(permissions: Permissions, name: str, wait: int) -> RateLimited:
    return RateLimited(f"the key's limit {name} is {getattr(permissions._limits, name):g}; nothing was changed", wait)


UNRESTRICTED = Permissions(None)
