"""Map the columns of encoded events to the learner's own columns: the stateful half of encoding.

`Dense` rows pass unchanged. `Table` rows become one-hot: each category gets the next free column of its field on first
appearance. Sparse and hashed rows are renumbered by first appearance, so that every array of the learner is as long as
the columns seen, not 2^bits.

A stage has `learn(rows)`, which moves the state, and `transform(rows)`, which returns what `learn` would and does
not move it.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.features.feature_kinds import Features
from learners.features.field_quality import FieldBlock
from learners.features.field_summary import FieldSummary
from learners.features.fields import FieldRegistry
from learners.features.named import Named, Table
from learners.numerics import (
    Counts,
    Issues,
    Matrix,
    Precision,
    Rows,
    Sparse,
    Vector,
    find_place,
    insert_all,
    kernel,
    nearest,
    not_finite,
    outside,
    sort_pairs,
)

__all__ = ["ColumnMap", "NamedColumns", "OneHot", "RenumberedColumns", "capacity_for", "columns_of"]


class ColumnMap:
    """The stage for `Dense` rows, and the base of the others: rows pass unchanged."""

    def __init__(self, features: Features, precision: Precision = "float64") -> None:
        """`precision`: what numbers are rounded to when they are read; see `learners.numerics.float32`."""
        self.features = features
        self.precision = precision

    @property
    def dim(self) -> int:
        """Length of the arrays of the following stages."""
        return self.features.columns

    @property
    def used(self) -> int:
        """Number of columns that have a meaning so far."""
        return self.dim

    def scaled(self) -> NDArray[np.bool_]:
        """Mark the columns that the scaling stage should scale, (dim,): all except indicators."""
        return np.ones(self.dim, dtype=np.bool_)

    def sources(self) -> Counts:
        """Return the encoded column of each own column, (used,): a view that learning changes."""
        return np.arange(self.dim)

    def learn(self, rows: Rows, again: bool = False) -> Rows:  # noqa: ARG002 - only fields are counted
        """Map the rows to the learner's own columns and assign new ones. Events learnt `again` are counted once."""
        return nearest(self.precision, rows)

    def transform(self, rows: Rows) -> Rows:
        """Map each row as if it came next, without moving the state."""
        return nearest(self.precision, rows)

    def encoded(self, rows: Rows) -> Rows:
        """Return the rows by encoded column, as they were learnt if they came next."""
        return rows

    def note_fields(self, names: Sequence[str]) -> None:
        """Remember fields by their names, where fields are remembered."""

    def new_fields(self, names: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002
        """Return the names that `note_fields` would add. O(names)."""
        return ()

    def field_summaries(self) -> list[FieldSummary] | None:
        """Return what is remembered of each field; None if fields are not remembered."""
        return None

    @property
    def field_events(self) -> int:
        """Number of events that the fields' counts are of."""
        return 0

    def field_label(self, place: int) -> str:
        """Return the name of the field at a place of an alarm. Raises `IndexError` if no fields are remembered."""
        raise IndexError(f"there is no field {place}")

    def take_blocks(self) -> list[FieldBlock]:
        """Return the ends of blocks of fields among the events learnt since the last call, in order."""
        return []

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of the state."""
        return {}

    def optional_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return arrays of the names, dtypes and axes that a state has either all or none of."""
        return {}

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:  # noqa: ARG002
        """Find values that no stream can produce in a restored state."""
        yield from ()

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take the arrays of a state."""

    def frozen(self) -> ColumnMap:
        """Return a copy whose `transform` does not change."""
        return self


class _Fields(NamedTuple):
    """A table's layout, one entry per field."""

    numeric: NDArray[np.bool_]
    start: Counts  # first column of its own
    categories: Counts
    slot: Counts  # first entry in `values`


@kernel
def _one_hot(X, fields, values, used, out, moving):  # type: ignore[no-untyped-def]
    for i in range(X.shape[0]):
        for f in range(X.shape[1]):
            value = X[i, f]
            start = fields.start[f]
            if fields.numeric[f]:
                out[i, start] = value  # NaN if missing: the scaling stage replaces it by the mean
                out[i, start + 1] = 1.0 if np.isnan(value) else 0.0
                continue
            if np.isnan(value):
                continue
            slot = fields.slot[f]
            place = -1
            for k in range(used[f]):
                if values[slot + k] == value:
                    place = k
                    break
            if place < 0:
                place = used[f]  # the next free one, or "other" behind the last
                if moving and place < fields.categories[f]:
                    values[slot + place] = value
                    used[f] += 1
            out[i, start + place] = 1.0


class OneHot(ColumnMap):
    """The stage for `Table` rows. O(fields + categories compared) per event."""

    def __init__(self, features: Table, precision: Precision = "float64") -> None:
        super().__init__(features, precision)
        self.table = features
        widths = np.array([field.width for field in features.fields], dtype=np.int64)
        numeric = np.array([field.kind == "numeric" for field in features.fields])
        categories = np.where(numeric, 0, widths - 1)
        self._fields = _Fields(numeric, np.cumsum(widths) - widths, categories, np.cumsum(categories) - categories)
        self.values: Vector = np.zeros(int(categories.sum()))  # category hashes by slot
        self.category_counts: Counts = np.zeros(len(widths), dtype=np.int64)  # per field

    def scaled(self) -> NDArray[np.bool_]:
        """Mark numeric values only: a 0/1 indicator needs no scale."""
        mask = np.zeros(self.dim, dtype=np.bool_)
        mask[self._fields.start[self._fields.numeric]] = True
        return mask

    def sources(self) -> Counts:
        """Return the field of each column, ascending; see `ColumnMap.sources`."""
        return np.repeat(np.arange(len(self.table.fields)), [field.width for field in self.table.fields])

    def _map(self, rows: Rows, moving: bool) -> Matrix:
        assert not isinstance(rows, Sparse)
        out = np.zeros((len(rows), self.dim))
        _one_hot(nearest(self.precision, rows), self._fields, self.values, self.category_counts, out, moving)
        return out

    def learn(self, rows: Rows, again: bool = False) -> Rows:  # noqa: ARG002
        """Map and learn, as `ColumnMap.learn`."""
        return self._map(rows, True)

    def transform(self, rows: Rows) -> Rows:
        """Map without learning, as `ColumnMap.transform`."""
        return self._map(rows, False)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return category hashes and how many each field has."""
        return {"values": self.values, "taken": self.category_counts}

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """Find impossible values, as `ColumnMap.problems`; the shapes are already checked."""
        yield from not_finite("values", state["values"])
        category_counts = state["taken"].astype(np.int64)
        yield from outside("taken", category_counts, 0, int(self._fields.categories.max(initial=0)))
        if (category_counts > self._fields.categories).any():
            yield "taken", "has more categories than a field has columns"

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take the arrays of a state."""
        self.values = np.array(state["values"], dtype=np.float64)
        self.category_counts = np.array(state["taken"], dtype=np.int64)

    def frozen(self) -> OneHot:
        """Copy, as `ColumnMap.frozen`."""
        copy = OneHot(self.table, self.precision)
        copy.restore(self.state())
        return copy


def capacity_for(count: int) -> int:
    """Return the array length for `count` columns: a function of the count alone, in steps of about an eighth.

    The bytes of the state therefore do not depend on how events were batched.
    """
    capacity = 64
    while capacity < count:
        capacity += (capacity // 8 + 7) // 8 * 8
    return capacity


@kernel
def _renumber(data, indices, indptr, keys, places, order, count, moving, new_data, new_indices):  # type: ignore[no-untyped-def]
    """Map columns to places and sort each row by place; return the number of columns.

    Without `moving`, unknown columns become -1 at the end of their row, where `moving` would put them. So the order of
    sums over a row is the same.
    """
    for i in range(indptr.shape[0] - 1):
        start, stop = indptr[i], indptr[i + 1]
        unknown = 0
        for k in range(start, stop):
            at = find_place(keys, indices[k])
            if keys[at] != -1:
                place = places[at]
            elif moving:
                place = count
                keys[at] = indices[k]
                places[at] = place
                order[count] = indices[k]
                count += 1
            else:
                place = count + unknown
                unknown += 1
            new_indices[k] = place
            new_data[k] = data[k]
        sort_pairs(new_indices[start:stop], new_data[start:stop])
        new_indices[stop - unknown : stop] = -1
    return count


class RenumberedColumns(ColumnMap):
    """The stage for sparse and hashed rows. O(k log k) per event of k non-zeros; O(columns seen) memory."""

    def __init__(self, features: Features, precision: Precision = "float64") -> None:
        super().__init__(features, precision)
        self._order: Counts = np.empty(64, dtype=np.int64)  # encoded column by place
        self._count = 0
        self._index(256)

    @property
    def dim(self) -> int:
        """Capacity for the columns seen so far."""
        return capacity_for(self._count)

    @property
    def used(self) -> int:
        """Number of columns seen so far."""
        return self._count

    def sources(self) -> Counts:
        """Return encoded columns in order of first appearance; see `ColumnMap.sources`."""
        return self._order[: self._count]

    def _index(self, size: int) -> None:
        self._keys: Counts = np.full(size, -1, dtype=np.int64)
        self._places: Counts = np.zeros(size, dtype=np.int64)
        insert_all(self._keys, self._places, self._order[: self._count])

    def _reserve(self, more: int) -> None:
        most = min(self._count + more, self.features.columns)
        if len(self._order) < most:
            longer = np.empty(max(most, 2 * len(self._order)), dtype=np.int64)
            longer[: self._count] = self._order[: self._count]
            self._order = longer
        if len(self._keys) < 2 * most:
            self._index(1 << (4 * most - 1).bit_length())

    def _map(self, rows: Rows, moving: bool) -> Sparse:
        rows = nearest(self.precision, rows)
        assert isinstance(rows, Sparse)
        data, indices = np.empty_like(rows.data), np.empty_like(rows.indices)
        if moving:
            self._reserve(len(rows.indices))
        index = (self._keys, self._places, self._order)
        count = _renumber(rows.data, rows.indices, rows.indptr, *index, self._count, moving, data, indices)
        if moving:
            self._count = count
        return Sparse(data, indices, rows.indptr)

    def learn(self, rows: Rows, again: bool = False) -> Rows:  # noqa: ARG002
        """Map and learn, as `ColumnMap.learn`."""
        return self._map(rows, True)

    def transform(self, rows: Rows) -> Rows:
        """Map without learning; an unknown column is -1."""
        return self._map(rows, False)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the encoded column of each place."""
        return {"order": self._order[: self._count]}

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """Find impossible values, for any length; see `ColumnMap.problems`."""
        yield from outside("order", state["order"], 0, self.features.columns - 1)
        if len(np.unique(state["order"])) < len(state["order"]):
            yield "order", "has a column twice"

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take the arrays of a state."""
        self._order = np.array(state["order"], dtype=np.int64)
        self._count = len(self._order)
        self._index(1 << max(8, (4 * self._count - 1).bit_length()))

    def frozen(self) -> RenumberedColumns:
        """Copy, as `ColumnMap.frozen`."""
        frozen = copy(self)
        frozen._order = self._order[: self._count].copy()
        frozen._keys, frozen._places = self._keys.copy(), self._places.copy()
        return frozen


class NamedColumns(RenumberedColumns):
    """The stage for hashed rows and their fields; see `fields.py`. O(k log k) per event of k entries."""

    def __init__(self, features: Features, precision: Precision = "float64") -> None:
        super().__init__(features, precision)
        assert isinstance(features, Named)
        self.registry = FieldRegistry(features.declared_kinds)

    def learn(self, rows: Rows, again: bool = False) -> Rows:
        """Map and learn, and count the values of each field; see `ColumnMap.learn`."""
        assert isinstance(rows, Sparse)
        self._reserve(len(rows.indices))
        index = (self._keys, self._places, self._order)
        plain, self._count = self.registry.resolve(rows, self.features.columns, index, self._count, True, not again)
        return self._map(plain, True)

    def encoded(self, rows: Rows) -> Rows:
        """Return the rows by encoded column, as the kinds of the fields are; see `ColumnMap.encoded`."""
        assert isinstance(rows, Sparse)
        index = (self._keys, self._places, self._order)
        return self.registry.resolve(rows, self.features.columns, index, self._count, False, False)[0]

    def transform(self, rows: Rows) -> Rows:
        """Map without learning, as `ColumnMap.transform`."""
        return self._map(self.encoded(rows), False)

    def note_fields(self, names: Sequence[str]) -> None:
        """Remember fields, as `ColumnMap.note_fields`."""
        self.registry.note(names)

    def new_fields(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return unknown fields, as `ColumnMap.new_fields`."""
        return self.registry.unknown(names)

    def field_summaries(self) -> list[FieldSummary]:
        """Return what is remembered of each field, by first appearance."""
        return self.registry.summaries()

    @property
    def field_events(self) -> int:
        """As `ColumnMap.field_events`: those since the first that had a field."""
        return self.registry.events

    def field_label(self, place: int) -> str:
        """Return the name of a field, as `ColumnMap.field_label`."""
        return self.registry.label(place)

    def take_blocks(self) -> list[FieldBlock]:
        """Return new blocks, as `ColumnMap.take_blocks`."""
        return self.registry.take_blocks()

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of columns and fields."""
        return super().state() | self.registry.state()

    def optional_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of fields, as `ColumnMap.optional_arrays`."""
        return self.registry.arrays()

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """Find impossible values, for any length; see `ColumnMap.problems`."""
        yield from super().problems(state)
        if "field_names" in state:
            yield from self.registry.problems(state)

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take the arrays of a state."""
        super().restore(state)
        self.registry.restore(state)

    def frozen(self) -> NamedColumns:
        """Copy, as `ColumnMap.frozen`."""
        frozen = super().frozen()
        assert isinstance(frozen, NamedColumns)
        frozen.registry = self.registry.frozen()
        return frozen


def columns_of(features: Features, precision: Precision = "float64") -> ColumnMap:
    """Create the stage for this kind of features; `precision` is what numbers are rounded to when they are read."""
    if isinstance(features, Table):
        return OneHot(features, precision)
    if isinstance(features, Named):
        return NamedColumns(features, precision)
    return RenumberedColumns(features, precision) if features.sparse else ColumnMap(features, precision)
