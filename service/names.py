"""Checks the names of learners, groups and query parameters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from learners import Problem, pointer
from service.errors import Invalid

__all__ = [
    "GROUP",
    "PATTERN",
    "called",
    "called_in_full",
    "check_name",
    "check_no_key",
    "check_parameters",
    "problems_of",
]

PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
GROUP = "@"  # before a group's name, as the name of its log
_KEYS = frozenset({"key", "api_key", "apikey", "api-key", "access_token", "token", "authorization", "bearer"})
_NO_KEY = "API keys are not accepted in the URL, where logs would record them; send `Authorization: Bearer KEY`"


def called(log: str) -> str:
    """Return the name of a log's learner for people, or "the group NAME"."""
    return f"the group {log.removeprefix(GROUP)}" if log.startswith(GROUP) else log


def called_in_full(log: str) -> str:
    """Return "the learner NAME" or "the group NAME" for a log."""
    return called(log) if log.startswith(GROUP) else f"the learner {log}"


def problems_of(name: str, at: str = "/name") -> list[Problem]:
    """List what is wrong with the name of a learner."""
    if re.fullmatch(PATTERN, name):
        return []
    words = "1 to 100 of letters, digits, '.', '_', '-', a letter or digit first"
    return [Problem.mismatch(at, name, words, {"type": "string", "pattern": f"^{PATTERN}$"})]


def check_name(name: str, at: str = "/name") -> str:
    """Return the name if a learner may have it. Raises `Invalid`, which points `at` it."""
    problems = problems_of(name, at)
    if problems:
        raise Invalid("the name is invalid", problems)
    return name


def check_parameters(names: Iterable[str], allowed: Sequence[str]) -> None:
    """Refuse unknown and repeated query parameters, which would otherwise be ignored silently.

    Raises `Invalid` with a pointer to each.
    """
    accepted = f"expected {' or '.join(allowed)}" if allowed else "this endpoint accepts none"
    problems = []
    for name, count in Counter(names).items():
        if name.lower() in _KEYS:
            problems.append(Problem(pointer(name), _NO_KEY, "unknown"))
        elif name not in allowed:
            problems.append(
                Problem(
                    pointer(name), f"unknown query parameter; {accepted}", "unknown", expected={"enum": list(allowed)}
                )
            )
        elif count > 1:
            problems.append(Problem(pointer(name), f"is given {count} times; expected once", "conflict"))
    if problems:
        raise Invalid("the query is refused", problems)


def check_no_key(names: Iterable[str]) -> None:
    """Refuse a query that contains an API key, for paths that accept any other parameter. Raises `Invalid`."""
    problems = [Problem(pointer(name), _NO_KEY, "unknown") for name in names if name.lower() in _KEYS]
    if problems:
        raise Invalid("the query is refused", problems)
