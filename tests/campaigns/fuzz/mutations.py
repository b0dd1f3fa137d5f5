"""Valid input made invalid: bytes that are flipped, cut, doubled and swapped, and values of another type or size."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

__all__ = ["mutated_bytes", "mutated_value", "packed"]

_NUMBERS = [
    *(0, 1, 2, -1, 127, 128, 255, -128, 2**16, 2**31 - 1, 2**31, 2**32, 2**53, 2**53 + 1, 2**62, 2**63 - 1),
    *(2**63, 2**64 - 1, -(2**31), -(2**63)),
    *(0.5, -0.0, 1e-320, 1e30, 1.1e30, 1e308, -1e308, math.nan, math.inf, -math.inf),
]
_TEXTS = [
    "",
    "a",
    "\x00",
    "é",
    "\U0001f980",
    "x" * 300,
    "features",
    "<f8",
    "float64",
    "NaN",
    "1e999",
    "../..",
    "\ufeff",
]

_DEEP = [
    b"[" * 50_000,
    b'{"events": ' * 50_000,
    b'{"events": [{"x": ' + b"[" * 50_000,
    b"\x91" * 50_000,
    b"\x81\xa1x" * 50_000,
]


def _nested(depth: int, of: Any) -> Any:
    for _ in range(depth):
        of = [of]
    return of


def _odd(random: Random) -> Any:
    """Return a value that is nowhere expected, or of another type than most are."""
    kind = random.randrange(10)
    if kind < 4:
        return random.choice(_NUMBERS)
    if kind < 6:
        return random.choice(_TEXTS)
    if kind == 6:
        return random.choice([None, True, False, [], {}, b"", [None], {"": None}])
    if kind == 7:
        return random.randbytes(random.choice([1, 7, 8, 16, 100]))
    if kind == 8:
        return _nested(random.choice([2, 30, 120]), random.choice([1, None, {}]))
    return [random.choice(_NUMBERS) for _ in range(random.choice([1, 3, 50]))]


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all values within one; of long lists some."""
    actual = [path]
    if isinstance(value, dict):
        for key, item in value.items():
            actual += _places(item, (*path, key))
    elif isinstance(value, (list, tuple)):
        for i in range(min(len(value), 8)):
            actual += _places(value[i], (*path, i))
    return actual


def mutated_value(random: Random, value: Any) -> Any:
    """Return a copy with one to three places changed: type, size, removed, doubled, swapped or mutated bytes."""
    value = copy.deepcopy(value)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        path = random.choice(_places(value))
        if not path:
            if random.random() < 0.1:
                return _odd(random)
            continue
        parent = value
        for key in path[:-1]:
            parent = parent[key]
        if isinstance(parent, tuple):
            continue
        _change(random, parent, path[-1])
    return value


def _change(random: Random, parent: Any, key: Any) -> None:
    """Change one entry of a list or a map in place."""
    item = parent[key]
    kind = random.randrange(8)
    if isinstance(item, (bytes, bytearray)) and kind < 5:
        parent[key] = mutated_bytes(random, bytes(item))
    elif isinstance(item, bool):
        parent[key] = _odd(random)
    elif isinstance(item, int) and kind < 3:
        parent[key] = random.choice([item + 1, item - 1, -item, 2 * item + 1, float(item)])
    elif isinstance(item, float) and kind < 3:
        parent[key] = random.choice([-item, item * 1e6, math.nan, math.inf, int(item) if math.isfinite(item) else 0])
    elif kind == 3 and isinstance(item, list) and item:
        parent[key] = random.choice([item + item, item[::-1], item[:-1], item[1:], item * 20])
    elif kind == 4:
        del parent[key]
    elif kind == 5 and len(parent) > 1:
        other = random.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
        parent[key], parent[other] = parent[other], parent[key]
    elif kind == 6 and isinstance(parent, dict):
        parent[random.choice([*_TEXTS, *parent])] = item
    elif kind == 6:
        parent.insert(random.randrange(len(parent) + 1), item)
    else:
        parent[key] = _odd(random)


def mutated_bytes(random: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Return bytes with some flipped, cut, doubled, swapped, overwritten or added, or with another end, or noise."""
    changed = bytearray(data)
    size = len(changed)
    kind = random.randrange(9)
    if kind == 0 and random.random() < 0.2:
        return random.choice(_DEEP)
    if kind == 0 or not size:
        return random.randbytes(random.choice([0, 1, 2, 5, 20, 300]))
    if kind == 1:
        for _ in range(random.choice([1, 1, 2, 8])):
            changed[random.randrange(size)] ^= 1 << random.randrange(8)
    elif kind == 2:
        del changed[random.randrange(size) :]
    elif kind == 3:
        start = random.randrange(size)
        stop = min(size, start + random.choice([1, 4, 16, 200]))
        changed[start:start] = changed[start:stop]
    elif kind == 4:
        a, b = sorted(random.choices(range(size), k=2))
        width = random.choice([1, 4, 8])
        changed[a : a + width], changed[b : b + width] = changed[b : b + width], changed[a : a + width]
    elif kind == 5:
        changed[random.randrange(size)] = random.choice([0x00, 0x7F, 0x80, 0xC0, 0xC1, 0xFF, 0xDD, 0xDF, 0xC6])
    elif kind == 6:
        at = random.randrange(size)
        changed[at:at] = random.randbytes(random.choice([1, 2, 9]))
    elif kind == 7:
        del changed[(at := random.randrange(size)) : at + random.choice([1, 2, 9])]
    else:
        other = random.choice(others) if others else data
        changed = changed[: random.randrange(size)] + other[random.randrange(len(other) + 1) :]
    return bytes(changed)


def packed(value: Any) -> bytes | None:
    """As MessagePack; None where that cannot hold it."""
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, msgspec.EncodeError, RecursionError, UnicodeError):
        return None
