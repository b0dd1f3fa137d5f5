"""The stages around an algorithm again, slow and plain: what hashing, encoding, scaling and the rest are compared with.

Nothing is imported from the package.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

_MASK = 2**64 - 1


def mix(z: int) -> int:
    """splitmix64's finaliser."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def hash_text(text: str) -> int:
    """The 64-bit hash of a string: its length, then its UTF-8 bytes in little-endian words of eight."""
    data = text.encode("utf-8", "surrogatepass")
    h = mix(len(data) + 0x9E3779B97F4A7C15)
    for start in range(0, len(data) // 8 * 8, 8):
        h = mix(h ^ int.from_bytes(data[start : start + 8], "little"))
    return mix(h ^ int.from_bytes(data[len(data) // 8 * 8 :], "little"))


def spelling(value: Any) -> str:
    """A category as text: booleans as in JSON, and whole numbers alike as int and as float."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)


def signed_log(value: float) -> float:
    return math.copysign(math.log(1 + abs(value)), value)


def named_tokens(
    event: Mapping[str, Any], text: Sequence[str] = (), categorical: Sequence[str] = (), log: Sequence[str] = ()
) -> list[tuple[str, float]]:
    """What an event's features are spelt as, with the number of each."""
    out: list[tuple[str, float]] = []
    for name, value in event.items():
        if isinstance(value, list):
            out += [(f"{name}={spelling(item)}", 1.0) for item in value]
        elif isinstance(value, str) and name in text:
            words = re.findall(r"\w+", value.lower())
            out += [(f"{name}~{word}", 1.0) for word in words]
            out += [(f"{name}~{words[i]} {words[i + 1]}", 1.0) for i in range(len(words) - 1)]
        elif isinstance(value, (str, bool)) or (value is not None and name in categorical):
            out.append((f"{name}={spelling(value)}", 1.0))
        elif value:
            out.append((name, signed_log(value) if name in log else float(value)))
    return out


def named_row(tokens: Iterable[tuple[str, float]], bits: int) -> dict[int, float]:
    """Column -> number: the top bit of the hash is the sign, the low ones the column; what collides is added up."""
    row: dict[int, float] = {}
    for token, number in tokens:
        h = hash_text(token)
        column = h % 2**bits
        row[column] = row.get(column, 0.0) + (-number if h >> 63 else number)
    return row


def prefixes(X: Any) -> Iterable[Any]:
    """For each row the rows up to and including it."""
    return (X[: i + 1] for i in range(len(X)))


def standardised(X: Any, centre: bool) -> Any:
    """Each row by the mean and sd of the rows so far, itself included; NaN is left out of them and becomes 0."""
    out = np.zeros_like(X)
    for i, rows in enumerate(prefixes(X)):
        for j in np.flatnonzero(~np.isnan(X[i])):
            column = rows[:, j][~np.isnan(rows[:, j])]
            if column.min() < column.max():
                out[i, j] = (X[i, j] - (column.mean() if centre else 0.0)) / column.std()
    return out


def by_largest(X: Any) -> Any:
    """Each row by the largest magnitude in each column so far."""
    out = np.zeros_like(X)
    for i, rows in enumerate(prefixes(X)):
        most = np.nanmax(np.abs(np.nan_to_num(rows)), axis=0)
        out[i] = np.divide(np.nan_to_num(X[i]), most, out=np.zeros_like(most), where=most > 0)
    return out


def by_norm(X: Any) -> Any:
    """Each row by its Euclidean norm."""
    known = np.nan_to_num(X)
    norms = np.array([math.hypot(*row) for row in known])[:, None]
    return np.divide(known, norms, out=np.zeros_like(known), where=norms > 0)


def platt(scores: Any, y: Any, memory: int) -> list[float]:
    """The probability of each event before it was learnt: online Newton steps on the log loss, with forgetting."""
    beta, H = np.array([1.0, 0.0]), np.zeros((2, 2))
    power = count = 0.0
    out = []

    def features(score: float, most: float) -> Any:
        rms = math.sqrt(power / count) if power else math.inf
        return np.array([np.clip(score / rms, -most, most), 1.0])

    for t, (score, label) in enumerate(zip(scores, y, strict=True)):
        out.append(1 / (1 + math.exp(-beta @ features(score, 100))))
        keep = 1 - 1 / min(memory, max(50, t / 10))
        power, count = keep * power + score**2, keep * count + 1
        u = features(score, 10)
        p = 1 / (1 + math.exp(-beta @ u))
        H = keep * H + p * (1 - p) * np.outer(u, u)
        beta = beta - np.linalg.solve(H + np.eye(2), (p - (label > 0)) * u)
        beta = np.clip(beta, [1e-3, -30], [100, 30])
    return out


class Recent:
    """The last `capacity` distinct ids, oldest first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.ids: OrderedDict[str, None] = OrderedDict()

    def admit(self, ids: Sequence[str | None], fresh: Sequence[bool]) -> list[bool]:
        """Which of the fresh events are still fresh."""
        out = []
        for one, is_fresh in zip(ids, fresh, strict=True):
            new = is_fresh and (one is None or one not in self.ids)
            out.append(new)
            if new and one is not None:
                if len(self.ids) == self.capacity:
                    self.ids.popitem(last=False)
                self.ids[one] = None
        return out
