"""Decode MessagePack bodies of update, predict and labels: columns of numbers in their form in memory.

    ARRAY    {"dtype": "float32", "shape": [n, d], "data": bin}, little-endian, C order; dtypes of x and of csr's values
             are float32 and float64, of its places int32 and int64, of ids these and uint64; in all else any number's
    update   {features, "labels", "weights"?, "times"?, "ids"?, "source"?}
    labels   {"ids", "labels", "weights"?, "times"?}
    predict  {features, "times"?, "ids"?}
    features one of "x": ARRAY (n, d) | "csr": {"indptr", "indices", "values"} | "features": {name: ARRAY (n,) or list}

A column is an ARRAY or a list. In a list nil stands for a missing value, and in times NaN does, too. The resulting
columns equal those of the same events in JSON to the bit: a float32 becomes the float64 of the same value.

Dense rows and CSR take a few passes over their numbers, and no work in Python for each event. Named features become
an object for each event, as in JSON, at the same cost except for the parsing.

`msgpack_encode.py` has the replies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from learners import ABSENT, MAX_WEIGHT, Config, InvalidInput, Problem, Segment, pointer, show
from learners.features import MAX_NONZERO, MAX_PROBLEMS
from learners.numerics import Rows, Sparse, Vector
from learners.segments import SegmentColumns
from rarestream.values import EARLIEST_TIME, EXPECTED_ID, id_text, parse_time
from service.errors import BadBody
from service.wire.coding import Coding
from service.wire.iso_times import ISO_SCHEMA
from service.wire.json_decode import latest_time, with_clock
from service.wire.json_errors import ID_SCHEMA, segments_of, source_problems, time_words
from service.wire.kernels import FLOATS
from service.wire.msgpack_bounds import glance, length, members, opened
from service.wire.msgpack_decode_dense import are_ids, dense_events
from service.wire.msgpack_encode import encode_learnt, encode_scores
from service.wire.msgpack_members import DTYPES, Members
from service.wire.requests import Events, Labelled

__all__ = ["MSGPACK", "decode_events", "decode_labels", "decode_update"]

_IDS = ("uint64", "int64", "int32")
_PLACES = ("int32", "int64")
_MEMBERS = {"x": "x", "indices": "csr", "features": "features"}  # by what an event in JSON carries
_MOST_NAMED = 2**22  # values of named features: a nil is one byte here, and a hundred in an event's object
_MOST_NAMES = MAX_NONZERO  # of one event: a name makes a column
_CSR = ("indptr", "indices", "values")


def decode_update(body: bytes, config: Config) -> tuple[Labelled, Sequence[Any]]:
    """Decode labelled events to columns, and the features as they were sent.

    Raises `BadBody` or `Invalid`, which points to every problem.
    """
    dense = dense_events(body, config)
    if dense is not None and dense.labels is not None:
        n = len(dense.labels)
        carried, times = np.ones(n, dtype=np.bool_), with_clock(None, n, config)
        rows: Any = dense.rows
        values = config.segment_values(rows)
        return Labelled(rows, carried, dense.labels, None, times, dense.ids, (), dense.costs, (), values), rows
    read = _Body(body, config, "labels", "weights", "times", "ids", "source")
    features = read.features()
    return read.labelled(features, features.n), features.carried


def decode_labels(body: bytes, config: Config) -> tuple[Labelled, Sequence[Any]]:
    """Decode labels of served events, by id, to columns without features. Raises as `decode_update`."""
    read = _Body(body, config, "labels", "weights", "times", "ids", features=False)
    return read.labelled(None, read.size("ids")), ()


def decode_events(body: bytes, config: Config) -> tuple[Events, Sequence[Any]]:
    """Decode unlabelled events to columns, and the features as they were sent. Raises as `decode_update`."""
    dense = dense_events(body, config)
    if dense is not None and dense.labels is None:
        rows: Any = dense.rows
        values = config.segment_values(rows)
        return Events(rows, dense.ids or (None,) * len(rows), None, dense.costs, segment_values=values), rows
    read = _Body(body, config, "times", "ids")
    features = read.features()
    ids, times = read.ids(features.n), read.times(features.n)
    read.check()
    ids = ids or (None,) * features.n
    values = features.segment_values
    return Events(features.rows, ids, times, features.costs, features.fields, None, values), features.carried


class _BodyFeatures(NamedTuple):
    """The features of n events; no rows if they are refused, which is noted."""

    n: int
    rows: Rows
    carried: Sequence[Any]  # what each event carries, as `Features.encode` takes it
    costs: Vector | None
    fields: tuple[str, ...]
    segment_values: SegmentColumns | None


class _Pairs(Sequence[Any]):
    """Sparse rows as (indices, values) of each event, made on demand."""

    def __init__(self, rows: Sparse) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows.indptr) - 1

    def __getitem__(self, i: Any) -> Any:
        if not 0 <= i < len(self):
            raise IndexError(i)
        cut = slice(int(self._rows.indptr[i]), int(self._rows.indptr[i + 1]))
        return self._rows.indices[cut].tolist(), self._rows.data[cut].tolist()


class _Body(Members):
    """The members of one body, read column by column; it notes every problem."""

    def __init__(self, body: bytes, config: Config, *others: str, features: bool = True) -> None:
        self.config = config
        self.member = _MEMBERS[config.features.MEMBER]
        super().__init__(body, (self.member, *others) if features else others)

    def labelled(self, features: _BodyFeatures | None, n: int) -> Labelled:
        """Return labelled events, with their features or by their ids alone."""
        ids = self.ids(n, needed=features is None)
        labels, weights, times = self.labels(n), self.weights(n), self.times(n)
        segments = self.segments(n)
        self.check()
        return Labelled(
            rows=self.config.encode([]) if features is None else features.rows,
            carried=np.full(n, features is not None),
            labels=labels,
            weights=weights,
            times=with_clock(times, n, self.config),
            ids=ids,
            segments=segments,
            costs=self.config.costs([]) if features is None else features.costs,
            fields=() if features is None else features.fields,
            segment_values=None if features is None else features.segment_values,
        )

    # Columns

    def size(self, name: str) -> int:
        """Return the number of events by a required column; refuse the body if that has none."""
        value = self.members.get(name)
        kind, n = (None, 0) if value is None else length(value)
        if kind == "map":
            array = self.array(value, f"/{name}", DTYPES, 1)
            n = 0 if array is None else len(array)
        if not self.problems:
            self.bounded(n, f"/{name}", None if value is None else glance(value))
        self.check()
        return n

    def labels(self, n: int) -> Vector:
        """Return the labels, (n,), as a log has them."""
        value = self.members.get("labels")
        if value is None:
            words = f"{n} of {self.config.labels.expected}"
            self.note(Problem.mismatch("/labels", ABSENT, words, {"items": self.config.labels.schema}))
            return np.empty(0)
        column = self.column(value, "/labels", n, DTYPES)
        if column is None:
            return np.empty(0)
        if self.config.labels.ranks is not None and isinstance(column, list) and bool in map(type, column):
            column = np.array(column, dtype=object)  # true is 1 to NumPy, and no rank
        try:
            return self.config.labels.read(column)
        except InvalidInput as error:
            for problem in error.problems:
                self.note(problem)
            return np.empty(0)

    def weights(self, n: int) -> Vector | None:
        """Return the weights, (n,); 1 for a missing one."""
        w = self.numbers("weights", n, 1.0)
        if w is not None:
            expected = {"type": "number", "minimum": 0, "maximum": MAX_WEIGHT}
            good = (w >= 0) & (w <= MAX_WEIGHT)
            self.within("/weights", w, good, f"a number from 0 to {MAX_WEIGHT:g}", expected)
        return w

    def times(self, n: int) -> Vector | None:
        """Return the times, (n,); NaN for a missing one."""
        latest = latest_time()
        seconds = {"type": "number", "minimum": EARLIEST_TIME, "maximum": latest}
        words, expected = time_words(latest), {"anyOf": [seconds, ISO_SCHEMA]}
        times = self.numbers("times", n, math.nan, parse_time, words, expected)
        if times is None or np.isnan(times).all():
            return None
        self.within("/times", times, ~((times < EARLIEST_TIME) | (times > latest)), words, expected)
        return times

    def ids(self, n: int, needed: bool = False) -> tuple[str | None, ...] | None:
        """Return the ids, (n,), as text; None if no event has one."""
        value = self.members.get("ids")
        column = None if value is None else self.column(value, "/ids", n, _IDS)
        if column is None:
            return None
        if not isinstance(column, list):
            return tuple(map(str, column.tolist()))
        kinds = set(map(type, column))
        if kinds == {str} and are_ids(column):
            return tuple(column)
        texts: list[str | None] = []
        for i, entry in enumerate(column):
            try:
                texts.append(id_text(entry))
            except ValueError:
                self.note(Problem.mismatch(f"/ids/{i}", entry, EXPECTED_ID, ID_SCHEMA))
            else:
                if needed and texts[-1] is None:
                    self.note(Problem.mismatch(f"/ids/{i}", entry, EXPECTED_ID, ID_SCHEMA))
        return tuple(texts) if kinds != {type(None)} else None

    def segments(self, n: int) -> tuple[Segment, ...]:
        """Return the segments of sources that the events come from."""
        value = self.members.get("source")
        if value is None:
            return ()
        source = opened(value)
        if problems := source_problems(source, n):
            for problem in problems:
                self.note(problem)
            return ()
        return segments_of(source, n)

    # Features

    def features(self) -> _BodyFeatures:
        """Return the features; refuse the body if their sizes differ."""
        value = self.members.get(self.member)
        where = f"/{self.member}"
        if value is None:
            kind = self.config.features.KIND
            detail = f"is missing; this learner takes {kind} features. Labels of served events go to labels"
            self.note(Problem(where, detail, "missing"))
        carried: Any = None
        if value is not None:
            read = {"x": self._dense, "csr": self._sparse, "features": self._named}[self.member]
            carried = read(value)
        if carried is None:
            self.check()
        return self._encoded(carried)

    def _encoded(self, carried: Any) -> _BodyFeatures:
        n = len(carried.indptr) - 1 if isinstance(carried, Sparse) else len(carried)
        report = _Pairs(carried) if isinstance(carried, Sparse) else carried
        rows: Rows = np.empty((0, 0))
        costs = values = None
        fields: tuple[str, ...] = ()
        try:
            rows = self.config.encode(carried)
            costs = self.config.costs(report)
            fields = self.config.features.field_names(report)
            values = self.config.segment_values(report)
        except InvalidInput as error:
            for problem in error.problems:
                self._note_feature(problem, carried)
        return _BodyFeatures(n, rows, report, costs, fields, values)

    def _dense(self, raw: msgspec.Raw) -> NDArray[Any] | None:
        x = self.array(raw, "/x", FLOATS, 2)
        if x is None or not self.bounded(len(x), "/x/shape", list(x.shape)):
            return None
        if x.shape[1] != self.config.features.columns:
            words = f"{self.config.features.columns} numbers of each event"
            self.note(Problem.mismatch("/x/shape", list(x.shape), words))
            return None
        return x

    def _sparse(self, raw: msgspec.Raw) -> Sparse | None:
        parts = self._map(raw, len(_CSR) + MAX_PROBLEMS)
        if parts is None:
            self.note(Problem.mismatch("/csr", glance(raw), f"a map of {', '.join(_CSR)}", {"type": "object"}))
            return None
        self.only(parts, _CSR, "/csr")
        actual = [
            self.array(parts.get(name), f"/csr/{name}", FLOATS if name == "values" else _PLACES, 1) for name in _CSR
        ]
        if any(item is None for item in actual):
            return None
        # copies: what kernels take is aligned and writable
        indptr, indices = (np.array(item, dtype=np.int64) for item in actual[:2])
        with np.errstate(invalid="ignore"):  # a NaN that signals is refused as every NaN is
            data = np.array(actual[2], dtype=np.float64)
        if len(indices) != len(data):
            self.note(Problem("/csr/values", f"has {len(data)} numbers for {len(indices)} indices", "conflict"))
        elif not len(indptr) or indptr[0] != 0:
            start = int(indptr[0]) if len(indptr) else ABSENT
            self.note(Problem.mismatch("/csr/indptr/0", start, "0", {"const": 0}))
        elif (falls := np.flatnonzero(indptr[1:] < indptr[:-1])).size:
            k = int(falls[0]) + 1
            detail = f"is {indptr[k]} after {indptr[k - 1]}; expected ascending ends of rows"
            self.note(Problem(f"/csr/indptr/{k}", detail, expected={"type": "integer", "minimum": int(indptr[k - 1])}))
        elif indptr[-1] != len(data):
            where, words = f"/csr/indptr/{len(indptr) - 1}", f"{len(data)}, the number of values"
            self.note(Problem.mismatch(where, int(indptr[-1]), words, {"const": len(data)}))
        elif self.bounded(len(indptr) - 1, "/csr/indptr", indptr.tolist()[:2]):
            return Sparse(data, indices, indptr)
        return None

    def _named(self, raw: msgspec.Raw) -> list[dict[str, Any]] | None:
        parts = self._map(raw, _MOST_NAMES)
        if parts == {} and (count := self._event_count()):
            return [{} for _ in range(count)]  # as in JSON, events may have no features
        if not parts:
            words = f"a map of 1 to {_MOST_NAMES} names, each to a column; of none only beside labels, ids or times"
            expected = {"type": "object", "minProperties": 1, "maxProperties": _MOST_NAMES}
            self.note(Problem.mismatch("/features", glance(raw), words, expected))
            return None
        if odd := [name for name in parts if not isinstance(name, str)]:
            self.note(Problem("/features", f"has a column named {show(odd[0])}; expected text"))
            return None
        columns: list[list[Any]] = []
        n = None
        for name, item in parts.items():
            where = f"/features{pointer(name)}"
            column = self.column(item, where, n, tuple(DTYPES), named=True)
            if column is None or not self.bounded(len(column), where, column):
                return None
            n = len(column)
            if n * len(parts) > _MOST_NAMED:  # known after the first column: no other has been decoded
                detail = f"has {n * len(parts)} values; expected at most {_MOST_NAMED} at once"
                self.note(Problem("/features", detail))
                return None
            columns.append(column if isinstance(column, list) else column.tolist())
        return [dict(zip(parts, values, strict=True)) for values in zip(*columns, strict=True)]

    def _event_count(self) -> int:
        """Return the number of events by a member with a value per event; 0 if there is none."""
        name = next((name for name in ("labels", "ids", "times") if self.members.get(name) is not None), None)
        return 0 if name is None else self.size(name)

    @staticmethod
    def _map(raw: msgspec.Raw, most: int) -> dict[Any, msgspec.Raw] | None:
        """Return at most so many members of a map. Raises `BadBody` for names that are neither text nor numbers."""
        try:
            return members(raw, most)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise BadBody(f"the body is not MessagePack: {error}") from None

    def _note_feature(self, problem: Problem, carried: Any) -> None:
        """Point into the columns at an error in an event's features."""
        number, _, rest = problem.pointer[1:].partition("/")
        if self.member == "x":
            self.note(problem.under("/x"))
        elif self.member == "features":
            name, _, item = rest.partition("/")
            where = "/".join(part for part in ("/features", name, number, item) if part)
            if name:
                self.note(problem._replace(pointer=where))
            else:
                self.note(problem._replace(pointer="/features", detail=f"event {number} {problem.detail}"))
        else:
            self._note_sparse(int(number), rest, problem, carried)

    def _note_sparse(self, i: int, rest: str, problem: Problem, rows: Sparse) -> None:
        """Point at an error in row i; the library names only the row, so read the row as a list to find the place."""
        if not rest:
            try:
                self.config.features.encode([_Pairs(rows)[i]])
            except InvalidInput as error:
                problem = error.problems[0]
                rest = problem.pointer.removeprefix("/0/")
        member, _, k = rest.partition("/")
        where = f"/csr/{member}/{int(rows.indptr[i]) + int(k)}" if k else f"/csr/indptr/{i + 1}"
        self.note(problem._replace(pointer=where))


MSGPACK = Coding(
    "application/msgpack",
    (b"content-type", b"application/msgpack"),
    decode_update,
    decode_labels,
    decode_events,
    encode_learnt,
    encode_scores,
)
