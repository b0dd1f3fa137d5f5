"""Names that learners and groups may have, and that a query's parameters may."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from learners.parameters import Problem, pointer
from service.errors import Invalid

__all__ = ["PATTERN", "check_name", "check_parameters"]

PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_LISTED = 100  # problems of one query


def check_name(name: str, at: str = "/name") -> str:
    """The name, where it is one that a learner may have. Raises `Invalid`, which points `at` it."""
    if not re.fullmatch(PATTERN, name):
        detail = f"is {name[:120]!r}; expected 1 to 100 of letters, digits, '.', '_', '-', a letter or digit first"
        raise Invalid("the name is not one a learner may have", [Problem(at, detail)])
    return name


def check_parameters(names: Iterable[str], known: Sequence[str]) -> None:
    """Refuse parameters of a query that the request does not have: one that is misspelt would be ignored in silence.

    Raises `Invalid` with a pointer to each of the first 100.
    """
    found = [name for name in names if name not in known][:_LISTED]
    if found:
        expected = f"expected {' or '.join(known)}" if known else "this request takes none"
        problems = [Problem(pointer(name), f"is no parameter here; {expected}") for name in found]
        raise Invalid("the query is refused; nothing was changed", problems)
