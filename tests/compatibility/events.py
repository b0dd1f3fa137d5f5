"""Makes the synthetic events: a generator of integers, so that every machine has the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

__all__ = ["START", "events", "labels", "ranks"]

START = 1_700_000_000  # seconds since the epoch: the time of the first event
KINDS = ("dense", "sparse", "named", "table")
_MASK = 2**64 - 1
_WORDS = ("free", "money", "now", "hello", "meeting", "gift", "card", "gone")
_COUNTRIES = ("DE", "FR", "US", "IN", "BR", None)


def _draws(seed: int) -> Iterator[int]:
    """Draw 32-bit integers by splitmix64."""
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        yield (mixed ^ (mixed >> 31)) >> 32


@cache
def labels(n: int, seed: int = 1) -> tuple[int, ...]:
    """Draw n labels, 0 or 1; three in ten are positive."""
    draws = _draws(seed)
    return tuple(int(next(draws) % 10 < 3) for _ in range(n))


def ranks(n: int, seed: int = 1) -> tuple[int, ...]:
    """Turn the labels into ranks: positives have 3 to 5, negatives 1 or 2."""
    return tuple(3 + i % 3 if label else 1 + i % 2 for i, label in enumerate(labels(n, seed)))


@cache
def events(kind: str, n: int, seed: int = 1) -> tuple[Any, ...]:
    """Draw the features of n events of this kind, as HTTP bodies carry them; their classes overlap."""
    draws = _draws(seed + 1000)
    return tuple(_event(kind, draws, label) for label in labels(n, seed))


def _number(draws: Iterator[int], shift: int) -> float:
    """Draw a multiple of 1/64, bell-shaped about `shift` / 2."""
    return (sum(next(draws) % 64 for _ in range(4)) - 126 + 32 * shift) / 64


def _event(kind: str, draws: Iterator[int], label: int) -> dict[str, Any]:
    numbers = [_number(draws, label) for _ in range(4)]
    if kind == "dense":
        return {"x": [numbers[0], 16 * numbers[1], numbers[2] / 8, float(next(draws) % 3)]}
    if kind == "sparse":
        columns = sorted({next(draws) % 60 for _ in range(next(draws) % 7)} | {60 + label if next(draws) % 3 else 62})
        return {"indices": columns, "values": [_number(draws, label) or 1.0 for _ in columns]}
    features: dict[str, Any] = {
        "amount": 20 * abs(numbers[0]),
        "country": _COUNTRIES[(next(draws) + label) % 6],
        "age": numbers[1] if next(draws) % 5 else None,
    }
    if kind == "named":
        features["merchant"] = next(draws) % 17 + label
        features["new"] = next(draws) % 2 == 0
        features["body"] = " ".join(_WORDS[(next(draws) % 6) + 2 * label] for _ in range(3))
    return {"features": features}
