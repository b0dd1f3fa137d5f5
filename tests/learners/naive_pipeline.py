"""Slow, plain versions of the stages around an algorithm, for comparison: hashing, encoding, scaling and the others.

Nothing is imported from the package.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression

_MASK = 2**64 - 1


def mix(z: int) -> int:
    """splitmix64's finaliser."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def hash_text(text: str) -> int:
    """Hash a string to 64 bits: its length, then its UTF-8 bytes in little-endian words of eight."""
    data = text.encode("utf-8", "surrogatepass")
    h = mix(len(data) + 0x9E3779B97F4A7C15)
    for start in range(0, len(data) // 8 * 8, 8):
        h = mix(h ^ int.from_bytes(data[start : start + 8], "little"))
    return mix(h ^ int.from_bytes(data[len(data) // 8 * 8 :], "little"))


def spelling(value: Any) -> str:
    """Spell a category as text: booleans as in JSON, whole numbers the same as int and as float."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)


def signed_log(value: float) -> float:
    return math.copysign(math.log(1 + abs(value)), value)


IGNORABLE = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0"
IGNORABLE += "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))  # variants of a glyph


def clean(text: str) -> str:
    """Trim a name, without invisible characters, in form NFC."""
    visible = [c for c in text if unicodedata.category(c) != "Cf" and c not in IGNORABLE]
    return unicodedata.normalize("NFC", "".join(visible).strip())


def value_read(value: Any) -> tuple[str, Any]:
    """Read a value by the rule: "number", "whole" (a text that spells one), "name", "missing" or "" for no value."""
    if isinstance(value, bool):
        return "name", "true" if value else "false"
    if isinstance(value, (int, float)):
        return ("number", value) if isinstance(value, float) or abs(value) <= 2**53 else ("name", str(value))
    text = clean(value)
    if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text) and abs(float(text)) <= 1e30:
        if re.match(r"[+-]?0[0-9]", text):
            return "name", text
        if re.fullmatch(r"[+-]?[0-9]+", text):
            return ("whole", int(text)) if abs(int(text)) <= 2**53 else ("name", text)
        return "number", float(text)
    if text.lower() in ("true", "false") and (text.islower() or text.isupper() or text.istitle()):
        return "name", text.lower()
    words = "nan na n/a n.a. <na> #n/a #na nat null (null) none nil undefined unknown missing ? - -- . \\n"
    errors = "#null! #ref! #value! #num! #name? #div/0!"
    missing = text.lower() in [*words.split(), "#n/a n/a", *errors.split()]
    return ("missing" if missing else "name" if text else ""), text


def named_tokens(
    event: Mapping[str, Any], text: Sequence[str] = (), categorical: Sequence[str] = (), log: Sequence[str] = ()
) -> list[tuple[str, float]]:
    """Spell the features of an event whose fields are new to the learner, with the number of each."""
    out: list[tuple[str, float]] = []
    for key, value in event.items():
        name = clean(str(key))
        if isinstance(value, (list, tuple)):
            read = [value_read(item) for item in value]
            out += [(f"{name}={spelling(item)}", 1.0) for kind, item in read if kind]
        elif value is None or (kind_and_value := value_read(value))[0] == "":
            continue
        elif name in text:
            body = unicodedata.normalize("NFC", value.strip()) if isinstance(value, str) else spelling(value)
            words = re.findall(r"\w+", body.lower())
            out += [(f"{name}~{word}", 1.0) for word in words]
            out += [(f"{name}~{words[i]} {words[i + 1]}", 1.0) for i in range(len(words) - 1)]
        elif name in log and name not in categorical:
            if kind_and_value[0] in ("number", "whole") and kind_and_value[1]:
                out.append((name, signed_log(kind_and_value[1])))
        elif kind_and_value[0] == "number" and name not in categorical:
            if kind_and_value[1]:
                out.append((name, float(kind_and_value[1])))
        else:
            out.append((f"{name}={spelling(kind_and_value[1])}", 1.0))
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


def limited(X: Any, kind: str) -> Any:
    """Each value, or its limit if it is ten times beyond what those before it, as limited, can be."""
    out = np.array(X, dtype=np.float64)
    for i, j in np.argwhere(~np.isnan(X)):
        before = out[:i, j][~np.isnan(out[:i, j])]
        values, x = np.count_nonzero(before), out[i, j]
        centre = before.mean() if kind == "standard" and len(before) else 0.0
        squares = ((before - centre) ** 2).sum()
        farthest = math.sqrt(squares) if kind == "standard" else np.abs(before).max(initial=0.0)
        if values >= 16 and farthest > 0 and abs(x - centre) > 10 * farthest:
            most = 4 * math.sqrt(squares / values) if kind == "standard" else farthest * (1 + 8 / values)
            out[i, j] = centre + math.copysign(most, x - centre)
    return out


def by_norm(X: Any) -> Any:
    """Each row by its Euclidean norm."""
    finite = np.nan_to_num(X)
    norms = np.array([math.hypot(*row) for row in finite])[:, None]
    return np.divide(finite, norms, out=np.zeros_like(finite), where=norms > 0)


def platt(scores: Any, y: Any, memory: int, prior: Any = (1.0, 1.0), scales: bool = True) -> list[float]:
    """Return the probability of each event before learning it: online Newton steps on the log loss, with forgetting.

    If it `scales`, scores are divided by their running root mean square.
    """
    beta, H = np.array([1.0, 0.0]), np.zeros((2, 2))
    power = count = 0.0
    out = []

    def features(score: float, most: float) -> Any:
        rms = 1.0 if not scales else math.sqrt(power / count) if power else math.inf
        return np.array([np.clip(score / rms, -most, most), 1.0])

    for t, (score, label) in enumerate(zip(scores, y, strict=True)):
        out.append(1 / (1 + math.exp(-beta @ features(score, 100))))
        keep = 1 - 1 / min(memory, max(50, t / 10))
        power, count = keep * power + score**2, keep * count + 1
        u = features(score, 10)
        p = 1 / (1 + math.exp(-beta @ u))
        H = keep * H + p * (1 - p) * np.outer(u, u)
        beta = beta - np.linalg.solve(H + np.diag(prior), (p - (label > 0)) * u)
        beta = np.clip(beta, [1e-3, -30], [100, 30])
    return out


def plain(scores: Any, memory: int) -> list[float]:
    """Return the probability of each event before learning it, by its score in running root mean squares."""
    power = count = 0.0
    out = []
    for t, score in enumerate(scores):
        out.append(1 / (1 + math.exp(-min(max(score / math.sqrt(power / count), -100), 100))) if power else 0.5)
        keep = 1 - 1 / min(memory, max(50, t / 10))
        power, count = keep * power + score**2, keep * count + 1
    return out


def score_bin(score: float) -> int:
    """Return the bin of a score: 16 of equal width per octave from 2^-24 to 2^16; 641 is 0."""
    size = abs(score)
    if size < 2.0**-24:
        return 641
    if size >= 2.0**16:
        return 1282 if score > 0 else 0
    octave = math.floor(math.log2(size))
    octave -= size < 2.0**octave
    j = (octave + 24) * 16 + int((size / 2.0**octave - 1) * 16)
    if score > 0:
        return 642 + j
    return 640 - j if size > (1 + j % 16 / 16) * 2.0**octave else 641 - j


def bin_edge(b: int) -> float:
    """Return the lower edge of a bin as a score."""
    j = b - 642 if b >= 642 else 641 - b
    return math.copysign(2.0 ** (j // 16 - 24) * (1 + j % 16 / 16), b - 641.5)


def binned(scores: Any, y: Any, memory: int, rising: bool) -> list[float]:
    """Return the probability of each event before learning it, by groups of a fading histogram of scores."""
    places = np.array([score_bin(score) for score in scores])
    positive = np.asarray(y) > 0
    weight = np.zeros(0)
    fit = np.zeros(1284)  # log-odds at the edges of the bins
    out = []
    for t, score in enumerate(scores, start=1):
        b = places[t - 1]
        if rising and 0 < b < 1282:
            low, high = bin_edge(b), bin_edge(b + 1)
            odds = fit[b] + (fit[b + 1] - fit[b]) * (score - low) / (high - low)
        else:
            odds = fit[b]
        out.append(1 / (1 + math.exp(-odds)))
        weight = np.append(weight, 1.0)
        if t <= 64 or t % 64 == 0:
            fit = fitted(places[:t], positive[:t], weight, rising)
        if t % 64 == 0:
            rarer = min(weight[positive[:t]].sum(), weight[~positive[:t]].sum()) / weight.sum()
            longer = min(memory / max(50 * rarer, 1e-9), 10 * memory, t / 8)
            weight = weight * max(0.0, 1 - 64 / max(min(memory, max(5000, t / 2)), longer))
    return out


_SIZES = np.array([abs(bin_edge(b)) for b in range(1284)])


def fitted(places: Any, positive: Any, weight: Any, rising: bool) -> Any:
    """Log-odds at the lower edge of each bin (and at the end), from past events."""
    counts = np.array([np.bincount(places, weight * (positive == label), minlength=1283) for label in (False, True)])
    negatives, positives = counts.sum(axis=1)
    rate = (positives + 0.5) / (negatives + positives + 1)
    most = max(1, min(64 if rising else 16, math.floor(min(negatives, positives) / 4)))
    mass = sum(row / (2 * row.sum()) for row in counts if row.sum())
    groups, start, before = [], 0, 0.0
    after = np.append(np.cumsum(mass[::-1])[::-1], 0.0).tolist()  # the mass of each bin and all above it
    for b, share in enumerate(mass.tolist()):
        before += share
        if b == 1282 or min(before, after[b + 1]) >= (1 - 1e-9) / most:
            groups.append(slice(start, b + 1))
            start, before = b + 1, 0.0
    sizes = np.array([counts[:, group].sum() + 2 for group in groups])
    shares = np.array([counts[1, group].sum() + 2 * rate for group in groups]) / sizes
    if not rising:
        odds = np.concatenate(
            [np.full(g.stop - g.start, math.log(p / (1 - p))) for g, p in zip(groups, shares, strict=True)]
        )
        return np.append(odds, odds[-1])
    folded = counts.sum(axis=0)
    folded = np.array([folded[641 - j - 1] + folded[642 + j] for j in range(641)])
    outside = np.cumsum(folded[::-1])[::-1]
    step = max((j for j in range(1, 641) if 2 * outside[j] >= counts.sum()), default=0)
    typical = bin_edge(642 + step)
    edges = np.arange(1284)
    j = np.where(edges >= 642, edges - 642, 641 - edges)
    spread = np.where(j <= step, _SIZES / typical, 1 + (j - step) * math.log(2) / 16)
    spread = np.where(edges >= 642, spread, -spread)
    middles = (spread[1:] + spread[:-1]) / 2
    risen = (
        IsotonicRegression().fit(np.arange(len(groups)), shares, sample_weight=sizes).predict(np.arange(len(groups)))
    )
    x, v = [spread[0]], [0.0]
    for p in np.unique(risen):
        pool = [g for g, value in zip(groups, risen, strict=True) if value == p]
        full = slice(pool[0].start, pool[-1].stop)
        n, hits = counts[:, full].sum(), counts[1, full].sum()
        mean = (counts[:, full].sum(axis=0) @ middles[full]) / n
        x.append((mean + (counts[1, full] @ middles[full] + mean) / (hits + 1)) / 2)
        v.append(math.log(p / (1 - p)))
    return np.interp(spread, [*x, spread[-1]], [v[1] - 1, *v[1:], v[-1] + 1])


class Recent:
    """The last `capacity` distinct ids, oldest first, with the label and the number of each."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.ids: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self.events = 0

    def admit(self, name: str | None, label: float, bare: bool = False, assumed: bool = False) -> str:
        """Return the outcome of one event: applied, duplicate, relabelled or unknown."""
        if name is not None and name in self.ids:
            was, number = self.ids[name]
            if assumed or was == label:
                return "duplicate"
            self.ids[name] = (label, number)
            return "relabelled"
        if bare:
            return "unknown"
        if name is not None:
            if len(self.ids) == self.capacity:
                self.ids.popitem(last=False)
            self.ids[name] = (label, self.events)
        self.events += 1
        return "applied"
