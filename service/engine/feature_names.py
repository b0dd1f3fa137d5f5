"""Finds the names of hashed columns in later events, for the columns of a request.

    request (by `weights.py`) -> search for these columns -> look (by the API, at encoded events) -> names

Names are hashed on arrival, so neither the log nor the state has them. A request for the weights starts a search: the
next few events that have a requested column are examined. The first one gives the name, the others show whether another
feature shares the column. Without a search, each body costs one test of a flag. During a search, a table tells which
events have a requested column, and only their features are spelt.

Names are not state. They are in the memory of this node, for the columns of the latest requests, as long as the learner
is in memory. A column's key is its hash (of the feature's name, or of a table's field and category), which neither a
roll-back nor a restart changes.
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

__all__ = ["MAX_COLUMNS", "ColumnName", "FeatureNames", "Key"]

MAX_COLUMNS = 1024  # columns with names: those requested last
_NAMES = 3  # names shown of one column
_LOOKS = 4  # events that are examined per request of a column
_TABLE = 2**16  # flags by the last bits of a column: a set flag says that a search may be for it
_PIECE = 512  # events per lookup: a name of one piece ends the search in the next

Key = int | tuple[int, float]  # column of a hashed feature; field and hash of a category


class ColumnName(NamedTuple):
    """The name of a column."""

    name: str  # `amount`; of a shared column `amount + country=DE` or `amount - country=DE`: see `_joined_name`
    sign: float  # of the hash of the (first) feature: 1 or -1


@dataclass(slots=True)
class _Search:
    names: dict[str, float] = field(default_factory=dict)  # name -> sign of its hash
    looks: int = 0  # events that are still to be examined


class FeatureNames:
    """The names of one learner's columns. Thread-safe."""

    def __init__(self, features: Features) -> None:
        self.looking = False  # whether a search is on
        self._features = features
        self._columns: OrderedDict[Key, _Search] = OrderedDict()  # the last request is last
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
            categorical = [i for i, field in enumerate(features.fields) if field.kind == "categorical"]
            self._categorical = np.array(categorical, dtype=np.int64)

    def request(self, keys: Iterable[Key]) -> list[ColumnName | None]:
        """Return the names of k columns, None for unknown ones, and start a search for them. O(k).

        The columns of the oldest requests are forgotten.
        """
        with self._lock:
            names = []
            for key in keys:
                column = self._columns.setdefault(key, _Search(dict(self._declared.get(key, {}))))
                self._columns.move_to_end(key)
                column.looks = _LOOKS
                names.append(_joined_name(column.names))
            while len(self._columns) > MAX_COLUMNS:
                self._columns.popitem(last=False)
            self._update_search()
        return names

    def look(self, rows: Rows, carried: Sequence[Any]) -> None:
        """Note the names in n events: `rows` (n, ...) are encoded, `carried` has the features that each event carries.

        O(columns of the events), plus the spelling of a few events per searched column.
        """
        n = length(rows)
        for start in range(0, n, _PIECE):
            if not self.looking:
                return
            part = rows if n <= _PIECE else slice_rows(rows, start, start + _PIECE)
            for i, signs in self._largest(part).items():
                named = self._named(carried[start + i], signs)
                with self._lock:
                    self._note(named)

    def _largest(self, rows: Rows) -> dict[int, dict[Key, float]]:
        """Return the events to examine, each with its searched columns and the signs of their values."""
        events, keys, signs = self._candidates(rows)
        columns: dict[int, dict[Key, float]] = {}
        exhausted = False
        if not keys:
            return columns
        with self._lock:
            for event, key, sign in zip(events, keys, signs, strict=True):
                column = self._columns.get(key)
                if column is not None and column.looks:
                    column.looks -= 1
                    exhausted = exhausted or not column.looks
                    columns.setdefault(event, {})[key] = sign
            if exhausted:
                self._update_search()
        return columns

    def _candidates(self, rows: Rows) -> tuple[list[int], Sequence[Key], list[float]]:
        """Return k candidates by the table of flags: events, their columns, and the signs of the values."""
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
        """Return the names that an event gives some of its columns."""
        columns = [key if isinstance(key, int) else key[0] for key in signs]
        spelt = self._features.names(value, columns)
        if not isinstance(self._features, Named):
            return {key: {name: 1.0} for key, name in zip(signs, spelt, strict=True)}
        pairs = zip(signs.items(), columns, spelt, strict=True)
        return {key: _split_names(name, column, sign, self._features) for (key, sign), column, name in pairs}

    def _note(self, named: dict[Key, dict[str, float]]) -> None:
        for key, names in named.items():
            column = self._columns.get(key)  # None if it was forgotten meanwhile
            if column is not None:
                column.names = dict(islice({**column.names, **names}.items(), _NAMES + 1))

    def _update_search(self) -> None:
        """Search for every column that has looks left."""
        codes = [int(key if isinstance(key, int) else key[1]) for key, column in self._columns.items() if column.looks]
        table = np.zeros(_TABLE if codes else 0, dtype=np.bool_)
        table[np.array(codes, dtype=np.int64) & (_TABLE - 1)] = True
        if codes:
            self._table, self.looking = table, True  # in this order, because another thread may look now
        else:
            self.looking = False  # the table stays for a thread that is already looking


def _hashed(name: str, features: Named) -> tuple[int, float]:
    """Return the column of a feature and the sign of its hash."""
    (hashed,) = hash_strings([name]).tolist()
    return hashed & (features.columns - 1), -1.0 if hashed >> 63 else 1.0


def _split_names(spelt: str, column: int, sign: float, features: Named) -> dict[str, float]:
    """Split the joined names of an event's features that share a column; return each with the sign of its hash.

    If a name was cut or is not valid UTF-8, the joined name stays, with the sign of the value.
    """
    for names in ([spelt], spelt.split(" + ")):
        hashes = {name: _hashed(name, features) for name in names}
        if all(at == column for at, _ in hashes.values()):
            return {name: sign_ for name, (_, sign_) in hashes.items()}
    return {spelt: sign}


def _joined_name(names: dict[str, float]) -> ColumnName | None:
    """Join up to three names: `a + b - c + more`.

    The column is a + b - c times the sign of the first name. So the weight times that sign is the weight of each
    feature, up to the sign before its name.
    """
    if not names:
        return None
    (first, sign), *others = islice(names.items(), _NAMES)
    name = first + "".join(f" {'+' if other_sign == sign else '-'} {other}" for other, other_sign in others)
    return ColumnName(f"{name} + more" if len(names) > _NAMES else name, sign)
