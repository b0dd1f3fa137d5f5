"""Remember the fields of named events, and turn their values into features: the stateful half of the rule of values.

The first half (`value_rule.py`, `Named.encode`) says how each value was sent. An encoded row of a named event has
entries for the fields beside plain columns. The number of an entry is the value. Its index has, from the highest bit:

    field    32 bits   hash of the field's name: the sign of its column, and 31 bits whose lowest give the column
    kind      3 bits   a `ValueKind`; 0 with field 0: a plain column
    sign      1 bit    of the category's column
    column   24 bits   of the category, if it was hashed where the event arrived; else 0

Here, in the order of the log, each entry becomes a column by the kind of its field, and is counted. A field's kind is
declared, or set by its first value. It becomes `mixed` once many values contradict it, and then stays so. Rows of
earlier versions have plain columns only: they are learnt as they were, and leave no trace here.

After every 512 counted events, `field_range.py` moves the robust ranges of numbers, and `field_quality.py` looks for
fields that got worse.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.features import field_quality, field_range
from learners.features.field_quality import BLOCK, QUALITY_KINDS, FieldBlock, Quality
from learners.features.field_range import (
    CHANGES,
    GATE_HIGH,
    GATE_LOW,
    HIGH,
    LAST_CHANGE,
    LOW,
    NEW_MARK,
    NEW_RUN,
    PREVIOUS,
    SAMPLES,
    VALUES_MARK,
)
from learners.features.field_summary import COUNTS, VALUES, FieldKind, FieldSummary
from learners.features.value_rule import EXACT, ValueKind
from learners.numerics import (
    MAX_COUNT,
    Counts,
    Issues,
    Matrix,
    Sparse,
    find_place,
    hash_bytes,
    hash_strings,
    insert_all,
    kernel,
    mix,
    outside,
    sum_pairs,
)

__all__ = [
    "FIELD",
    "MAX_FIELDS",
    "FieldRegistry",
    "completed_fields",
    "entry",
    "field_hashes",
    "fraction_hash",
    "is_entry",
    "kind_after",
]

MAX_FIELDS = 1024  # remembered beside the declared ones; of later ones each value is learnt as it was sent
FIELD = 28  # lowest bit of the field in an entry's index
_KIND, _SIGN, _COLUMN = 25, 24, 2**24 - 1
_MOST_CONTRADICTIONS = 20  # and one in twenty values: then a field is mixed
_NEARLY = 0.9  # of the values of a block are new
_LEAST_FREE = 0.1  # of the columns, to tell whether values are new

_NUMBERS, _AS_TEXT, _BOOLEANS, _TEXTS, _LISTS, _MISSING, _CONTRADICTIONS, _NEW, _OUT = range(len(COUNTS))

_NUMBER, _WHOLE_TEXT, _NUMBER_TEXT, _BOOLEAN, _TEXT, _MISSING_TEXT, _LIST = map(int, ValueKind)
_OF_NUMBERS, _OF_CATEGORIES, _OF_LISTS, _OF_MIXED = (
    int(FieldKind.NUMBER),
    int(FieldKind.CATEGORY),
    int(FieldKind.LIST),
    int(FieldKind.MIXED),
)
_UNKNOWN = int(FieldKind.UNKNOWN)
_COUNT_OF = (0, _NUMBERS, _AS_TEXT, _AS_TEXT, _BOOLEANS, _TEXTS)  # by `ValueKind`


def kind_after(form: Sequence[ValueKind], kind: FieldKind, contradictions: int, values: int) -> FieldKind:
    """Return the kind of an undeclared field after further values, which are sent so. O(values).

    `kind`, `contradictions` and `values` are those before.
    """
    return FieldKind(_kind_after(int(kind), contradictions, values, np.array(form, dtype=np.int64)))


class _Registry(NamedTuple):
    """The arrays that the kernel moves, one entry per field."""

    keys: Counts  # open-addressing table of the fields' hashes,
    places: Counts  # and the place of each
    names: NDArray[np.uint8]  # UTF-8, all names joined
    ends: Counts  # (f + 1,) of the names
    declared: NDArray[np.bool_]
    kinds: NDArray[np.uint8]
    counts: NDArray[np.int64]  # (f, COUNTS)
    bounds: Matrix  # (f, 2)
    ranges: Matrix  # (f, field_range.COLUMNS)
    last: Counts
    events: Counts  # (1,) counted so far: those since the first that had a field


_MOVED = ("kinds", "counts", "bounds", "ranges", "last", "events")  # by learning; the rest only grows with the names


def _initial(count: int) -> dict[str, NDArray[Any]]:
    """Return what learning moves of `count` fields, before their first value."""
    return {
        "kinds": np.zeros(count, dtype=np.uint8),
        "counts": np.zeros((count, len(COUNTS)), dtype=np.int64),
        "bounds": np.tile([np.inf, -np.inf], (count, 1)),
        "ranges": field_range.initial_ranges(count),
        "last": np.zeros(count, dtype=np.int64),
    }


def field_hashes(names: Iterable[str]) -> Counts:
    """Hash each name to a field, (n,). O(characters)."""
    hashes = hash_strings(list(names))
    return ((hashes & np.uint64(2**31 - 1)) | (hashes >> np.uint64(63) << np.uint64(31))).astype(np.int64)


def entry(field: int, kind: ValueKind) -> int:
    """Return the index of an entry whose category has no column yet."""
    return field << FIELD | kind << _KIND


def is_entry(indices: Counts, columns: int) -> NDArray[np.bool_]:
    """Mark the indices, (n,), that are entries of fields as `Named.encode` makes them."""
    kinds = (indices >> _KIND) & 7
    fields = indices >> FIELD
    good: NDArray[np.bool_] = (kinds > 0) & (fields >= 0) & (fields < 2**32) & ((indices & _COLUMN) < columns)
    return good


@kernel
def fraction_hash(field, value):  # type: ignore[no-untyped-def]
    """Hash the category of a number that is no whole number: its field and its float64 bits."""
    bits = np.array([value]).view(np.uint64)[0]
    return mix(mix(np.uint64(field) + np.uint64(0x9E3779B97F4A7C15)) ^ bits)


@kernel
def _number_category(registry, place, field, value):  # type: ignore[no-untyped-def]
    """Hash the category of a number; of a whole one as the encoder hashes its text, such as `id=17`."""
    if value != np.floor(value) or abs(value) > EXACT:
        return fraction_hash(field, value)
    start, stop = registry.ends[place], registry.ends[place + 1]
    text = np.empty(stop - start + 18, dtype=np.uint8)  # "=-" and up to 16 digits
    size = stop - start
    for k in range(size):
        text[k] = registry.names[start + k]
    text[size] = ord("=")
    size += 1
    if value < 0:
        text[size] = ord("-")
        size += 1
    left, digits = np.int64(abs(value)), 1
    while left >= 10**digits:
        digits += 1
    for k in range(digits):
        text[size + digits - 1 - k] = ord("0") + left % 10
        left //= 10
    return hash_bytes(text, 0, size + digits)


@kernel
def _by_number(kind, form):  # type: ignore[no-untyped-def]
    """Tell whether a value of a field of this kind is learnt as a number."""
    if kind == _OF_NUMBERS:
        return form <= _BOOLEAN
    return kind != _OF_CATEGORIES and form in (_NUMBER, _NUMBER_TEXT)


@kernel
def _first_kind(form):  # type: ignore[no-untyped-def]
    """Return the kind of a field by its first value."""
    if form in (_NUMBER, _NUMBER_TEXT):
        return _OF_NUMBERS
    if form == _LIST:
        return _OF_LISTS
    return _UNKNOWN if form == _MISSING_TEXT else _OF_CATEGORIES


@kernel
def _contradicts(kind, form, value, declared):  # type: ignore[no-untyped-def]
    """Tell whether a value contradicts the kind of its field."""
    if form == _MISSING_TEXT:
        return False
    if form == _LIST:
        names = kind == _OF_LISTS or (kind == _OF_CATEGORIES and declared)
        return value == 2.0 or (value == 0.0 and not names)
    if kind == _OF_NUMBERS:
        return form in (_BOOLEAN, _TEXT)
    if kind == _OF_CATEGORIES:
        return form in (_NUMBER, _NUMBER_TEXT) and not declared
    return kind == _OF_LISTS


@kernel
def _is_mixed(contradictions, values):  # type: ignore[no-untyped-def]
    """Tell whether so many of the values of an undeclared field contradict its kind that it is mixed."""
    return contradictions >= _MOST_CONTRADICTIONS and contradictions * _MOST_CONTRADICTIONS >= values


@kernel
def _widen(registry, place, value):  # type: ignore[no-untyped-def]
    """Take a number into the smallest and the largest of its field."""
    registry.bounds[place, 0] = min(registry.bounds[place, 0], value)
    registry.bounds[place, 1] = max(registry.bounds[place, 1], value)


@kernel
def _take(registry, place, value):  # type: ignore[no-untyped-def]
    """Take a number beyond the gates of its field; a number declared is a logarithm."""
    _widen(registry, place, value)
    registry.counts[place, _OUT] += field_range.take(registry.ranges[place], value, registry.declared[place])


@kernel
def _change(registry, place, value):  # type: ignore[no-untyped-def]
    """Take a value unlike the one before."""
    registry.ranges[place, PREVIOUS] = value
    registry.ranges[place, CHANGES] += 1.0
    registry.ranges[place, LAST_CHANGE] = registry.events[0]


@kernel
def _count(registry, place, form, value, new):  # type: ignore[no-untyped-def]
    """Count a value of a field, and decide the field's kind."""
    kind = registry.kinds[place]
    if kind == _UNKNOWN:
        kind = _first_kind(form)
        registry.kinds[place] = kind
    counts = registry.counts[place]
    if form == _MISSING_TEXT:
        counts[_MISSING if kind == _OF_NUMBERS else _TEXTS] += 1
    elif form == _LIST:
        counts[_TEXTS if value > 0.0 else _LISTS] += 1  # value 1: words of a text; 2: of something else
    else:
        counts[_COUNT_OF[form]] += 1
    if form <= _NUMBER_TEXT:
        _widen(registry, place, value)
    counts[_NEW] += new
    registry.last[place] = registry.events[0]
    if kind != _OF_MIXED and _contradicts(kind, form, value, registry.declared[place]):
        counts[_CONTRADICTIONS] += 1
        if not registry.declared[place] and _is_mixed(counts[_CONTRADICTIONS], counts[:VALUES].sum()):
            registry.kinds[place] = _OF_MIXED


@kernel
def _kind_after(kind, contradictions, values, form):  # type: ignore[no-untyped-def]
    """Return the kind of an undeclared field after further values, as `_count` decides it."""
    for k in range(form.shape[0]):
        if kind == _UNKNOWN:
            kind = _first_kind(form[k])
        values += form[k] != _MISSING_TEXT or kind != _OF_NUMBERS
        if kind != _OF_MIXED and _contradicts(kind, form[k], 0.0, False):
            contradictions += 1
            if _is_mixed(contradictions, values):
                kind = _OF_MIXED
    return kind


@kernel
def _follow_new(row, values, new, free):  # type: ignore[no-untyped-def]
    """Follow for how many values nearly all of each block were new; `free` is the share of columns without a value.

    A new value whose column another one has does not look new, so the columns that are free say how many do.
    """
    if free >= _LEAST_FREE:
        nearly = new - row[NEW_MARK] >= _NEARLY * free * (values - row[VALUES_MARK])
        row[NEW_RUN] = row[NEW_RUN] + values - row[VALUES_MARK] if nearly else 0.0
    row[VALUES_MARK] = values
    row[NEW_MARK] = new


@kernel
def _end_block(registry, free, quality, reports):  # type: ignore[no-untyped-def]
    """Move ranges and judge the fields after a block of events; return the number of `reports`."""
    totals = np.empty((registry.last.shape[0], len(QUALITY_KINDS)), dtype=np.int64)
    for place in range(totals.shape[0]):
        counts = registry.counts[place]
        values = counts[:VALUES].sum()
        _follow_new(registry.ranges[place], values, counts[_NEW], free)
        totals[place, 0] = registry.events[0] - values
        totals[place, 1] = counts[_NEW]
        totals[place, 2] = counts[_CONTRADICTIONS]
        totals[place, 3] = counts[_OUT]
    field_range.end_block(registry.ranges, registry.declared)
    return field_quality.end_block(quality, totals, registry.last > 0, registry.events[0], reports)


@kernel
def _has_entry(rows, i):  # type: ignore[no-untyped-def]
    return ((rows.indices[rows.indptr[i] : rows.indptr[i + 1]] >> _KIND) & 7).any()


@kernel
def _resolve(rows, registry, columns, keys, places, order, count, moving, counted, first, data, indices, indptr):  # type: ignore[no-untyped-def]
    """Turn entries into columns, (data, indices, indptr), sorted in each row, up to the end of a block.

    Begins with the row `first`. With `moving`, columns that are not among `keys` are added; with `counted`, the values
    are. Returns the number of columns, the row that follows, and whether a block ended.
    """
    n, out = rows.indptr.shape[0] - 1, indptr[first]
    counts, ranges, last = registry.counts, registry.ranges, registry.last
    for i in range(first, n):
        start = out
        counting = counted and (registry.events[0] > 0 or _has_entry(rows, i))
        if counting:
            registry.events[0] += 1
        event = registry.events[0]
        for k in range(rows.indptr[i], rows.indptr[i + 1]):
            index, value = rows.indices[k], rows.data[k]
            form = (index >> _KIND) & 7
            if form == 0:
                data[out] = value
                indices[out] = index
                out += 1
                continue
            field = index >> FIELD
            at = find_place(registry.keys, field)
            place = registry.places[at] if registry.keys[at] != -1 else -1
            kind = registry.kinds[place] if place >= 0 else np.uint8(_UNKNOWN)
            new, counts_value = 0, counted and place >= 0
            if _by_number(kind, form):
                if value != 0.0:
                    data[out] = -value if (field >> 31) & 1 else value
                    indices[out] = field & (columns - 1)
                    out += 1
                    if counts_value and form != _BOOLEAN:
                        ranges[place, SAMPLES] += 1.0
                        if value < ranges[place, GATE_LOW] or value > ranges[place, GATE_HIGH]:
                            _take(registry, place, value)
                elif counts_value and form != _BOOLEAN:
                    _widen(registry, place, value)
                if counts_value and value != ranges[place, PREVIOUS]:
                    _change(registry, place, value)
            elif form != _LIST and kind != _OF_NUMBERS:
                if form in (_NUMBER, _NUMBER_TEXT) and not registry.declared[place]:
                    hashed = _number_category(registry, place, field, value)
                    column = np.int64(hashed & np.uint64(columns - 1))
                    negative = hashed >> np.uint64(63) != 0
                else:
                    column = index & _COLUMN
                    negative = (index >> _SIGN) & 1 != 0
                data[out] = -1.0 if negative else 1.0
                indices[out] = column
                out += 1
                new = 1 if keys[find_place(keys, column)] == -1 else 0
                if counts_value and column != ranges[place, PREVIOUS]:
                    _change(registry, place, float(column))
            if not counts_value:
                continue
            if kind == _OF_NUMBERS and form == _NUMBER:  # the most frequent cases of `_count`
                counts[place, _NUMBERS] += 1
                last[place] = event
            elif kind == _OF_CATEGORIES and _BOOLEAN <= form <= _TEXT:
                counts[place, _COUNT_OF[form]] += 1
                counts[place, _NEW] += new
                last[place] = event
            else:
                _count(registry, place, form, value, new)
        out = sum_pairs(indices, data, start, out, start)
        indptr[i + 1] = out
        if moving:
            for k in range(start, out):
                at = find_place(keys, indices[k])
                if keys[at] == -1:
                    keys[at] = indices[k]
                    places[at] = count
                    order[count] = indices[k]
                    count += 1
        if counting and registry.events[0] % BLOCK == 0:
            return count, i + 1, True
    return count, n, False


class FieldRegistry:
    """The fields of one learner: declared ones, then others by first appearance. O(fields) memory."""

    def __init__(self, declared: Mapping[str, FieldKind]) -> None:
        """Start with the declared fields: `declared` has their kinds by name."""
        self._declared = declared
        self._blocks: list[FieldBlock] = []
        kinds = np.array(list(declared.values()), dtype=np.uint8)
        self._index(list(declared), {**_initial(len(declared)), "kinds": kinds, "events": np.zeros(1, dtype=np.int64)})
        self._quality = field_quality.initial_quality(len(declared))

    @property
    def events(self) -> int:
        """Events counted so far: those since the first that had a field."""
        return int(self._arrays.events[0])

    def unknown(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names that `note` would add, once each and in order. O(names)."""
        room = MAX_FIELDS + len(self._declared) - len(self._places)
        if room <= 0 or all(map(self._places.__contains__, names)):
            return ()
        return tuple(dict.fromkeys(name for name in names if name not in self._places))[:room]

    def note(self, names: Sequence[str]) -> None:
        """Add fields, up to `MAX_FIELDS`. O(fields) if one is new."""
        if new := self.unknown(names):
            arrays = self._arrays
            more = {name: np.concatenate([getattr(arrays, name), rows]) for name, rows in _initial(len(new)).items()}
            self._index([*self._places, *new], {**more, "events": arrays.events})
            fresh = field_quality.initial_quality(len(new))
            self._quality = Quality._make(map(np.concatenate, zip(self._quality, fresh, strict=True)))

    def _index(self, names: list[str], moved: Mapping[str, NDArray[Any]]) -> None:
        """Take the names, and the arrays of `_MOVED`."""
        self._places = {name: place for place, name in enumerate(names)}
        hashes = field_hashes(names)
        size = 1 << max(6, (4 * len(hashes) - 1).bit_length())
        keys, places = np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=np.int64)
        insert_all(keys, places, hashes)
        encoded = [name.encode("utf-8", "surrogatepass") for name in names]
        joined = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        ends = np.cumsum([0, *map(len, encoded)])
        declared = np.arange(len(names)) < len(self._declared)
        self._arrays = _Registry(keys, places, joined, ends, declared, **moved)

    def frozen(self) -> FieldRegistry:
        """Copy what learning moves, and share the rest. O(fields)."""
        copy = FieldRegistry.__new__(FieldRegistry)
        copy._declared, copy._places, copy._blocks = self._declared, self._places, []
        copy._quality = Quality._make(array.copy() for array in self._quality)
        moved = {name: getattr(self._arrays, name).copy() for name in _MOVED}
        copy._arrays = self._arrays._replace(**moved)
        return copy

    def resolve(
        self, rows: Sparse, columns: int, index: tuple[Counts, Counts, Counts], count: int, moving: bool, counted: bool
    ) -> tuple[Sparse, int]:
        """Turn the entries of encoded rows into plain columns; return the rows, and the number of columns.

        `index` has the columns that the learner has, `count` of them: table, places and order, with room for all
        entries of the rows if `moving` adds their columns. `counted` counts the values. O(k log k) per event of k
        entries.
        """
        data, indices = np.empty(len(rows.data)), np.empty(len(rows.data), dtype=np.int64)
        indptr = np.zeros(len(rows.indptr), dtype=np.int64)
        n, first = len(indptr) - 1, 0
        while first < n:
            count, first, ended = _resolve(
                rows, self._arrays, columns, *index, count, moving, counted, first, data, indices, indptr
            )
            if ended:
                reports, marks = field_quality.report_buffer(), self._quality.marks.copy()
                reported = _end_block(self._arrays, 1.0 - count / columns, self._quality, reports)
                shares, alarms = (self._quality.marks - marks) / BLOCK, field_quality.alarms_of(reports[:reported])
                self._blocks.append(FieldBlock(self.events, shares, alarms))
        return Sparse(data[: indptr[-1]], indices[: indptr[-1]], indptr), int(count)

    def take_blocks(self) -> list[FieldBlock]:
        """Return the ends of blocks among the events counted since the last call, in order."""
        blocks, self._blocks = self._blocks, []
        return blocks

    def label(self, place: int) -> str:
        """Return the name of a field, with escapes for what UTF-8 cannot encode. O(fields)."""
        name = next(itertools.islice(self._places, place, None))
        return name.encode("utf-8", "backslashreplace").decode()

    def summaries(self) -> list[FieldSummary]:
        """Return what is remembered of each field, by first appearance. O(fields)."""
        arrays = self._arrays
        ranges, runs = arrays.ranges[:, [LOW, HIGH]], arrays.ranges[:, [CHANGES, LAST_CHANGE, NEW_RUN]].astype(np.int64)
        columns = (arrays.kinds, arrays.declared, arrays.counts, arrays.bounds, ranges, arrays.last, runs)
        rows = zip(self._places, *(column.tolist() for column in columns), strict=True)
        return [
            FieldSummary(
                name,
                FieldKind(kind),
                declared,
                dict(zip(COUNTS, counts, strict=True)),
                smallest if smallest <= largest else None,
                largest if smallest <= largest else None,
                low if low <= high else None,
                high if low <= high else None,
                last or None,
                *run,
            )
            for name, kind, declared, counts, (smallest, largest), (low, high), last, run in rows
        ]

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of the state: none before the first field, as in earlier versions."""
        if not self.events and len(self._places) == len(self._declared):
            return {}
        return self.arrays()

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays that a state has from the first field on."""
        arrays = self._arrays
        return {
            "field_names": arrays.names,
            "field_lengths": np.diff(arrays.ends),
            **{f"field_{name}": getattr(arrays, name) for name in _MOVED},
            **{f"field_{name}": array for name, array in self._quality._asdict().items()},
        }

    def problems(self, state: Mapping[str, NDArray[Any]]) -> Issues:
        """Find values that no stream can produce in a restored state, for any length."""
        count = len(state["field_lengths"])
        yield from outside("field_lengths", state["field_lengths"], 0, len(state["field_names"]))
        if count > MAX_FIELDS + len(self._declared) or int(state["field_lengths"].sum()) != len(state["field_names"]):
            yield "field_lengths", "does not match the names of the fields"
            return
        try:
            names = _split(state)
        except UnicodeDecodeError:
            yield "field_names", "is not UTF-8"
            return
        if len(set(names)) < count or names[: len(self._declared)] != list(self._declared):
            yield "field_names", "has a field twice, or not the declared fields first"
        arrays = _initial(count) | field_quality.initial_quality(count)._asdict()
        shapes = {name: array.shape for name, array in arrays.items()}
        for name, shape in {**shapes, "events": (1,)}.items():
            if state[f"field_{name}"].shape != shape:
                yield f"field_{name}", f"has shape {state[f'field_{name}'].shape}; expected {shape}"
                return
        yield from outside("field_kinds", state["field_kinds"], 0, max(FieldKind))
        yield from outside("field_events", state["field_events"], 0, MAX_COUNT)
        yield from outside("field_last", state["field_last"], 0, max(0, int(state["field_events"][0])))
        yield from outside("field_counts", state["field_counts"], 0, MAX_COUNT)
        if np.isnan(state["field_bounds"]).any():
            yield "field_bounds", "has numbers that are NaN"
        yield from outside(
            "field_ranges", state["field_ranges"][:, LAST_CHANGE], 0, max(0, int(state["field_events"][0]))
        )
        declared = np.arange(count) < len(self._declared)
        for name, detail in field_range.problems(state["field_ranges"], declared):
            yield f"field_{name}", detail
        for name, detail in field_quality.problems(Quality(*(state[f"field_{name}"] for name in Quality._fields))):
            yield f"field_{name}", detail

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take copies of the arrays of a state, which may have none."""
        if "field_names" in state:
            self._index(_split(state), {name: np.array(state[f"field_{name}"], order="C") for name in _MOVED})
            self._quality = Quality(*(np.array(state[f"field_{name}"], order="C") for name in Quality._fields))


def completed_fields(state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of fields that the state of an earlier release lacks, or has fewer columns of. O(fields)."""
    if "field_ranges" in state or "field_lengths" not in state:
        return {}
    count = len(state["field_lengths"])
    more: dict[str, NDArray[Any]] = {}
    for name, start in (_initial(count) | field_quality.initial_quality(count)._asdict()).items():
        array = state.get(f"field_{name}", start[:, :0] if start.ndim > 1 else start)
        if array.ndim == start.ndim > 1 and array.shape[:1] + array.shape[2:] == start.shape[:1] + start.shape[2:]:
            more[f"field_{name}"] = np.concatenate([array, start[:, array.shape[1] :]], axis=1)
    return more


def _split(state: Mapping[str, NDArray[Any]]) -> list[str]:
    """Return the names of the fields of a state."""
    data = state["field_names"].astype(np.uint8).tobytes()
    ends = [0, *np.cumsum(state["field_lengths"]).tolist()]
    return [data[start:stop].decode("utf-8", "surrogatepass") for start, stop in itertools.pairwise(ends)]
