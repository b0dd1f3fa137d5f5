"""Names of hashed columns, noted on demand: of the columns that somebody asked for, from the events that come after.

    asked (by `weights.py`) -> these columns are looked for -> look (by `hot.py`, at events that were encoded) -> names

A name is hashed where an event arrives, and neither the log nor the state has it. So a learner's largest weights are of
columns without names, until events pass that have them. Each request for the weights has the next few events looked at
that have a column of its answer: the first one tells the name, the others whether another feature shares the column.
Where nobody has asked, or all that was asked for has been looked at, nothing is looked for: that is one test of a flag
for each body. Else the columns of its events are looked up in a table, and only of an event that has one of those asked
for are the features spelt.

Nothing of this is state: names are in this node's memory, of the columns asked for last, for as long as the learner is.
A column is known by what was hashed (the number of a hashed feature, the field and hash of a table's category), which
neither a roll-back nor a restart changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners import length, slice_rows
from learners.features import Features, Named, Table
from learners.numerics import Counts, Rows, Sparse, hash_strings

__all__ = ["MAX_COLUMNS", "Asked", "FeatureNames", "Key"]

MAX_COLUMNS = 1024  # that names are kept of: those asked for last
_NAMES = 3  # told of one column
_LOOKS = 4  # events that are looked at for a column each time that it is asked for
_TABLE = 2**16  # flags by the last bits of a column: one that is set says that it may be looked for
_PIECE = 512  # events whose columns are looked up at once: what has been found in these is not looked for in the next

Key = int | tuple[int, float]  # of a hashed feature its column; of a category its field and hash


class Asked(NamedTuple):
    """What a column is called."""

    name: str  # `amount`; where features share it, `amount + country=DE`, or `amount - country=DE`: see `_told`
    sign: float  # of the hash of the (first) feature: 1 or -1


@dataclass(slots=True)
class _Column:
    names: dict[str, float] = field(default_factory=dict)  # each with the sign of its hash
    looks: int = 0  # events that are still looked at for it


class FeatureNames:
    """Those of one learner. Safe to use from several threads."""

    def __init__(self, features: Features) -> None:
        self.looking = False  # whether `look` has anything to do
        self._features = features
        self._columns: OrderedDict[Key, _Column] = OrderedDict()  # asked for last: last
        self._table: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._lock = Lock()
        self._declared: dict[Key, dict[str, float]] = {}
        self._categorical: Counts = np.empty(0, dtype=np.int64)  # fields of a table
        if isinstance(features, Named):
            for name in features.log:
                if name not in features.categorical:
                    column, sign = _hashed(name, features)
                    self._declared.setdefault(column, {})[name] = sign
        elif isinstance(features, Table):
            found = [i for i, one in enumerate(features.fields) if one.kind == "categorical"]
            self._categorical = np.array(found, dtype=np.int64)

    def asked(self, keys: Iterable[Key]) -> list[Asked | None]:
        """What these columns are called, (k,), None where that is not known yet; and have them looked for.

        Those asked for longest ago are forgotten for them. O(k).
        """
        with self._lock:
            told = []
            for key in keys:
                column = self._columns.setdefault(key, _Column(dict(self._declared.get(key, {}))))
                self._columns.move_to_end(key)
                column.looks = _LOOKS
                told.append(_told(column.names))
            while len(self._columns) > MAX_COLUMNS:
                self._columns.popitem(last=False)
            self._look_for()
        return told

    def look(self, rows: Rows, carried: Sequence[Any]) -> None:
        """Note names from n events, (n, ...) encoded, and what each carries for its features.

        O(columns of the events), and what naming takes of a few events for each column that is looked for.
        """
        n = length(rows)
        for start in range(0, n, _PIECE):
            if not self.looking:
                return
            part = rows if n <= _PIECE else slice_rows(rows, start, start + _PIECE)
            for i, signs in self._chosen(part).items():
                named = self._named(carried[start + i], signs)
                with self._lock:
                    self._note(named)

    def _chosen(self, rows: Rows) -> dict[int, dict[Key, float]]:
        """The events that are to be looked at, for which columns, with the sign of what they have there."""
        events, keys, signs = self._met(rows)
        chosen: dict[int, dict[Key, float]] = {}
        done = False
        if not keys:
            return chosen
        with self._lock:
            for event, key, sign in zip(events, keys, signs, strict=True):
                column = self._columns.get(key)
                if column is not None and column.looks:
                    column.looks -= 1
                    done = done or not column.looks
                    chosen.setdefault(event, {})[key] = sign
            if done:
                self._look_for()
        return chosen

    def _met(self, rows: Rows) -> tuple[list[int], Sequence[Key], list[float]]:
        """What may be looked for, by a glance: the events, their columns, the signs of what stands there, (k,)."""
        if isinstance(rows, Sparse):
            places = np.flatnonzero(self._table[rows.indices & (_TABLE - 1)])
            if not len(places):
                return [], (), []
            events = np.searchsorted(rows.indptr, places, side="right") - 1
            return events.tolist(), rows.indices[places].tolist(), np.sign(rows.data[places]).tolist()
        hashes = rows[:, self._categorical]
        at, which = np.nonzero(self._table[np.nan_to_num(hashes).astype(np.int64) & (_TABLE - 1)])
        fields = self._categorical[which].tolist()
        return at.tolist(), list(zip(fields, hashes[at, which].tolist(), strict=True)), [1.0] * len(at)

    def _named(self, value: Any, signs: dict[Key, float]) -> dict[Key, dict[str, float]]:
        """What an event calls some of its columns."""
        columns = [key if isinstance(key, int) else key[0] for key in signs]
        spelt = self._features.names(value, columns)
        if not isinstance(self._features, Named):
            return {key: {name: 1.0} for key, name in zip(signs, spelt, strict=True)}
        pairs = zip(signs.items(), columns, spelt, strict=True)
        return {key: _apart(name, column, sign, self._features) for (key, sign), column, name in pairs}

    def _note(self, named: dict[Key, dict[str, float]]) -> None:
        for key, names in named.items():
            column = self._columns.get(key)  # forgotten meanwhile, perhaps
            if column is not None:
                column.names = dict(islice({**column.names, **names}.items(), _NAMES + 1))

    def _look_for(self) -> None:
        """Whatever has looks left, from now on."""
        codes = [int(key if isinstance(key, int) else key[1]) for key, column in self._columns.items() if column.looks]
        table = np.zeros(_TABLE if codes else 0, dtype=np.bool_)
        table[np.array(codes, dtype=np.int64) & (_TABLE - 1)] = True
        if codes:
            self._table, self.looking = table, True  # in this order: a thread may look meanwhile
        else:
            self.looking = False  # and the table stays, for one that looks already


def _hashed(name: str, features: Named) -> tuple[int, float]:
    """The column of a feature, and the sign of its hash."""
    (hashed,) = hash_strings([name]).tolist()
    return hashed & (features.columns - 1), -1.0 if hashed >> 63 else 1.0


def _apart(spelt: str, column: int, sign: float, features: Named) -> dict[str, float]:
    """The features of an event that share a column, whose names are joined there, each with the sign of its hash.

    Where one was cut, or has what UTF-8 cannot hold, they are told as one, with the sign of what stands there.
    """
    for names in ([spelt], spelt.split(" + ")):
        found = {name: _hashed(name, features) for name in names}
        if all(at == column for at, _ in found.values()):
            return {name: own for name, (_, own) in found.items()}
    return {spelt: sign}


def _told(names: dict[str, float]) -> Asked | None:
    """Up to three names as one: `a + b - c + more`.

    The column is a + b - c, or its negative, where that is the sign of the first: so weight times sign is that of each
    feature, with the sign that stands before its name.
    """
    if not names:
        return None
    (first, sign), *others = islice(names.items(), _NAMES)
    name = first + "".join(f" {'+' if own == sign else '-'} {other}" for other, own in others)
    return Asked(f"{name} + more" if len(names) > _NAMES else name, sign)
