"""Encode named events by the rule of values: the half that needs no state, and runs where an event arrives."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from learners.features.feature_kinds import MAX_NONZERO, Problems, number_fault
from learners.features.field_summary import FieldKind
from learners.features.fields import FIELD, entry, field_hashes, fraction_hash
from learners.features.value_rule import (
    EXACT,
    LOST_DIGITS,
    ValueKind,
    declared_fault,
    loses_digits,
    normalised,
    read_declared,
    read_text,
    signed_log,
    spelt_boolean,
    spelt_number,
)
from learners.features.words import WordRule, words_of
from learners.numerics import Counts, Sparse, Words, hash_strings, kernel, sum_pairs
from learners.settings import pointer, show
from rarestream.values import EXPECTED_ITEM, plain_value

__all__ = ["MAX_NAME", "FieldEncoder"]

MAX_NAME = 256  # characters of a feature's name, which each of its tokens repeats
_TOKENS = 2**16  # tokens that are collected before they are hashed
_MAX_PLANS = 4096  # names whose plans are cached
_MAX_ENTRIES = 8192  # texts whose entries are cached,
_SHORT = 64  # of at most so many characters
_SIGN = 24  # bit of an entry's index that has the sign of its category
_DECODED = frozenset({str, bool, int})  # types of values that are plain already
_WORDS, _CONTRADICTING_WORDS = 1.0, 2.0  # numbers of the entry of a text field; that of a list is 0
_TOO_MANY = f"brings the event to more than {MAX_NONZERO} features; expected at most so many"
_OTHERS = 1536  # entries that are left for other fields where texts are cut, at most a quarter of all


@kernel
def _canonical(data, indices, indptr):  # type: ignore[no-untyped-def]
    """Sort each row by column and sum values of the same column, in place; return the number of entries."""
    start = out = 0
    for i in range(indptr.shape[0] - 1):
        stop = indptr[i + 1]
        out = sum_pairs(indices, data, start, stop, out)
        start = stop
        indptr[i + 1] = out
    return out


class _Plan(NamedTuple):
    """How the values of a field are encoded."""

    name: str
    prefix: str  # of its categories
    field: int
    kind: FieldKind  # if declared
    log: bool
    unusual: bool  # the name was trimmed or brought to NFC, or is too long
    entries: tuple[int, ...]  # index by `ValueKind`


class _Columns:
    """The entries of a batch as they are collected: the categories of texts are hashed together."""

    def __init__(self) -> None:
        self.indices: list[int] = []
        self.data: list[float] = []
        self.texts: list[str] = []
        self.places: list[int] = []  # of the texts among the entries
        self.read: list[tuple[tuple[Any, str], int]] = []  # names and texts to cache, each with its place
        self.cut: list[str] = []  # names of fields of which only the first words were added

    def add(self, index: int, number: float) -> None:
        self.indices.append(index)
        self.data.append(number)

    def add_text(self, index: int, number: float, text: str) -> None:
        self.places.append(len(self.indices))
        self.texts.append(text)
        self.indices.append(index)
        self.data.append(number)

    def remove(self, start: int) -> None:
        """Remove the entries from a place on."""
        del self.indices[start:], self.data[start:]
        while self.places and self.places[-1] >= start:
            self.places.pop()
            self.texts.pop()
        while self.read and self.read[-1][1] >= start:
            self.read.pop()
        self.cut.clear()


class FieldEncoder:
    """Encodes the events of one kind of named features. Caches how each name is encoded; thread-safe."""

    def __init__(self, columns: int, declared: Mapping[str, FieldKind], words: WordRule) -> None:
        self._columns = columns
        self._words_rule = words
        self._declared = declared
        self._texts = sum(kind == FieldKind.TEXT for kind in declared.values())
        self._share = self._share_of(MAX_NONZERO)
        self._plans: dict[Any, _Plan] = {}
        self._entries: dict[tuple[Any, str], tuple[int, float]] = {}  # by name and text: few make most of a stream

    def encode(self, values: Sequence[Any], most: int = MAX_NONZERO) -> Sparse:
        """Encode n events as rows of entries and columns. Raises `InvalidInput`. O(values).

        If a row has more than `most`, each text of its event is cut to a share of them.
        """
        rows = self._encode(values, {})
        share = self._share_of(most)
        if len(rows.data) > most and share:
            long = np.flatnonzero(np.diff(rows.indptr) > most).tolist()
            return self._encode(values, dict.fromkeys(long, share)) if long else rows
        return rows

    def _share_of(self, most: int) -> int:
        """Return the words that each text of a long event has of `most` entries; 0 without texts."""
        return (most - min(_OTHERS, most // 4)) // (2 * self._texts) if self._texts else 0

    def _encode(self, values: Sequence[Any], words: Mapping[int, int]) -> Sparse:
        """Encode events, and of some, by their place, only so many words of each text."""
        problems, columns = Problems(), _Columns()
        hashed: list[Words] = []
        ends = [0]
        for i, event in enumerate(values):
            if not isinstance(event, Mapping):
                problems.add(i, "", f"is {show(event)}; expected an object of names and values")
            else:
                self._event(problems, i, event, columns, self._entries, words.get(i, MAX_NONZERO))
                if len(columns.data) - ends[-1] > MAX_NONZERO and not problems.has(i):
                    problems.add(i, "", f"has more than {MAX_NONZERO} features; expected at most so many")
            if problems.full:
                break
            ends.append(len(columns.data))
            if len(columns.texts) >= _TOKENS:
                hashed.append(hash_strings(columns.texts))
                columns.texts.clear()
        problems.check()
        hashes = np.concatenate([*hashed, hash_strings(columns.texts)])
        indices = np.array(columns.indices, dtype=np.int64)
        data = np.array(columns.data, dtype=np.float64)
        indptr = np.array(ends, dtype=np.int64)
        if len(hashes):
            places = np.array(columns.places, dtype=np.int64)
            negative = (hashes >> np.uint64(63)).astype(np.int64)
            plain = indices[places] == 0
            indices[places] |= (hashes & np.uint64(self._columns - 1)).astype(np.int64)
            indices[places] |= np.where(plain, 0, negative << _SIGN)
            data[places] *= np.where(plain, 1.0 - 2.0 * negative, 1.0)
        self._cache(columns, indices)
        size = _canonical(data, indices, indptr)
        return Sparse(data[:size].copy(), indices[:size].copy(), indptr)

    def _cache(self, columns: _Columns, indices: Counts) -> None:
        """Cache the entries of texts that were read, under the indices that they got."""
        if len(self._entries) + len(columns.read) > _MAX_ENTRIES:
            self._entries.clear()
        for key, place in columns.read[:_MAX_ENTRIES]:
            self._entries[key] = int(indices[place]), columns.data[place]

    def tokens(self, event: Mapping[Any, Any]) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """Spell the features of a valid event, each with its column; apart from them, its numbers as categories."""
        columns = _Columns()
        self._event(Problems(), 0, event, columns, {}, MAX_NONZERO)
        mask = self._columns - 1
        texts = zip(columns.texts, (hash_strings(columns.texts) & np.uint64(mask)).tolist(), strict=True)
        by_place = dict(zip(columns.places, texts, strict=True))
        names = {plan.field: plan.name for plan in map(self._plan, event)}
        spelt: list[tuple[str, int]] = []
        categories: list[tuple[str, int]] = []
        for place, (index, number) in enumerate(zip(columns.indices, columns.data, strict=True)):
            field, value = index >> FIELD, index >> (_SIGN + 1) & 7
            if value and value <= ValueKind.BOOLEAN:
                spelt.append((names[field], field & mask))
            if place in by_place:
                spelt.append(by_place[place])
            elif value and value <= ValueKind.NUMBER_TEXT:
                spelling = f"{names[field]}={spelt_number(number)}"
                whole = number == int(number) and abs(number) <= EXACT
                hashed = hash_strings([spelling])[0] if whole else fraction_hash(field, number)
                categories.append((spelling, int(hashed) & mask))
        return spelt, categories

    def cut_texts(self, event: Mapping[Any, Any], most: int) -> list[str]:
        """Return the names of the texts of a valid event of which `encode` takes only the first words. O(values)."""
        columns = _Columns()
        words = self._share_of(most) if len(self._encode([event], {}).data) > most else MAX_NONZERO
        self._event(Problems(), 0, event, columns, {}, words)
        return columns.cut

    def _plan(self, name: Any) -> _Plan:
        plan = self._plans.get(name)
        if plan is None:
            text = normalised(str(name))
            field = int(field_hashes([text])[0])
            kind = self._declared.get(text, FieldKind.UNKNOWN)
            entries = (0, *(entry(field, value_kind) for value_kind in ValueKind))
            plan = _Plan(
                text, f"{text}=", field, kind, kind == FieldKind.NUMBER, text != name or len(text) > MAX_NAME, entries
            )
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            if isinstance(name, str):  # others may be equal, but not spelt the same: 1 and True
                self._plans[name] = plan
        return plan

    def _event(
        self,
        problems: Problems,
        i: int,
        event: Mapping[Any, Any],
        columns: _Columns,
        entries: Mapping[tuple[Any, str], tuple[int, float]],
        words: int,
    ) -> None:
        """Append the entries of an event, some from a cache, and of each text the first `words`.

        If the entries are too many, each text is cut to its share of them. Stop if the event is invalid or too long.
        """
        start = len(columns.data)
        plans, indices, data = self._plans, columns.indices, columns.data
        unusual = False
        for name, value in event.items():
            plan = plans.get(name)
            if plan is None:
                plan = self._plan(name)
            unusual = unusual or plan.unusual
            if value is None:
                continue
            if type(value) is float and plan.kind == FieldKind.UNKNOWN and -1e30 <= value <= 1e30:
                indices.append(plan.entries[1])  # the most frequent cases of what follows
                data.append(value)
                continue
            if type(value) is str and (cached := entries.get((name, value))) is not None:
                indices.append(cached[0])
                data.append(cached[1])
                continue
            kind = type(value)
            if kind not in _DECODED and (kind is not float or value - value):  # a float that is not finite
                try:
                    value = plain_value(value)
                except ValueError as error:
                    problems.add(i, pointer(name), str(error))
                    return
                if value is None:
                    continue
            if isinstance(value, str):
                self._text(problems, i, name, plan, value, columns, words)
            elif isinstance(value, bool):
                self._boolean(plan, value, columns)
            elif isinstance(value, (int, float)):
                self._number(problems, i, name, plan, value, columns)
            elif plan.log:
                problems.add(i, pointer(name), _expected_number(value))
            else:
                self._list(problems, i, name, plan, value, columns)
            if len(data) - start > MAX_NONZERO and 0 < self._share < words:
                break  # the texts are cut, see below
            if len(data) - start > MAX_NONZERO and not problems.has(i):
                problems.add(i, pointer(name), _TOO_MANY)
            if problems.has(i):
                return
        if len(data) - start > MAX_NONZERO:
            if 0 < self._share < words:
                columns.remove(start)
                self._event(problems, i, event, columns, entries, self._share)
            return
        if unusual:
            self._check_names(problems, i, event)

    def _check_names(self, problems: Problems, i: int, event: Mapping[Any, Any]) -> None:
        seen: set[str] = set()
        for name, value in event.items():
            normal = self._plan(name).name
            if len(normal) > MAX_NAME:
                problems.add(i, pointer(name), f"is a name of {len(normal)} characters; expected at most {MAX_NAME}")
            elif normal in seen and value is not None:
                problems.add(i, pointer(name), "is the name of another field, too, once trimmed and in form NFC")
            if value is not None:
                seen.add(normal)

    def _text(
        self, problems: Problems, i: int, name: Any, plan: _Plan, value: str, columns: _Columns, words: int
    ) -> None:
        if plan.kind == FieldKind.TEXT:
            if value.strip():
                self._words(plan, value, _WORDS, columns, words)
            return
        kind, number, text = read_declared(value) if plan.log else read_text(value)
        spelt_as_number = kind in (ValueKind.WHOLE_TEXT, ValueKind.NUMBER_TEXT)
        if not text:
            return
        if plan.log and kind == ValueKind.TEXT:
            problems.add(i, pointer(name), _expected_number(value))
        elif plan.kind == FieldKind.CATEGORY and loses_digits(kind, number):
            problems.add(i, pointer(name), f"is {show(value)}, {LOST_DIGITS}")
        elif plan.log:
            columns.add(plan.entries[kind], signed_log(number))
        elif kind == ValueKind.NUMBER_TEXT and plan.kind != FieldKind.CATEGORY:
            columns.add(plan.entries[kind], number)
        else:
            if len(value) <= _SHORT and isinstance(name, str):
                columns.read.append(((name, value), len(columns.data)))
            if kind == ValueKind.BOOLEAN:
                text = spelt_boolean(number)
            elif spelt_as_number:
                text = spelt_number(number)
            columns.add_text(plan.entries[kind], number, plan.prefix + text)

    def _boolean(self, plan: _Plan, value: bool, columns: _Columns) -> None:
        spelling = spelt_boolean(value)
        if plan.log:
            columns.add(plan.entries[ValueKind.BOOLEAN], signed_log(value))
        elif plan.kind == FieldKind.TEXT:
            self._words(plan, spelling, _CONTRADICTING_WORDS, columns, MAX_NONZERO)
        else:
            columns.add_text(plan.entries[ValueKind.BOOLEAN], float(value), plan.prefix + spelling)

    def _number(self, problems: Problems, i: int, name: Any, plan: _Plan, value: float, columns: _Columns) -> None:
        if fault := number_fault(value):
            problems.add(i, pointer(name), fault)
        elif plan.log:
            columns.add(plan.entries[ValueKind.NUMBER], signed_log(value))
        elif plan.kind == FieldKind.TEXT:
            self._words(plan, spelt_number(value), _CONTRADICTING_WORDS, columns, MAX_NONZERO)
        elif isinstance(value, int) and abs(value) > EXACT:
            columns.add_text(plan.entries[ValueKind.TEXT], 0.0, plan.prefix + str(value))
        elif plan.kind == FieldKind.CATEGORY and loses_digits(ValueKind.NUMBER, value):
            problems.add(i, pointer(name), f"is {show(value)}, {LOST_DIGITS}")
        elif plan.kind == FieldKind.CATEGORY:
            columns.add_text(plan.entries[ValueKind.NUMBER], float(value), plan.prefix + spelt_number(value))
        else:
            columns.add(plan.entries[ValueKind.NUMBER], float(value))

    def _list(
        self, problems: Problems, i: int, name: Any, plan: _Plan, value: Sequence[Any], columns: _Columns
    ) -> None:
        for k, item in enumerate(value[: MAX_NONZERO + 1]):
            if not isinstance(item, (str, bool)) and number_fault(item):
                problems.add(i, f"{pointer(name)}/{k}", f"is {show(item)}; {EXPECTED_ITEM}")
                return
            if isinstance(item, str):
                kind, number, text = read_text(item)
            else:
                kind, number, text = ValueKind.BOOLEAN if isinstance(item, bool) else ValueKind.NUMBER, item, "number"
            if loses_digits(kind, number):
                problems.add(i, f"{pointer(name)}/{k}", f"is {show(item)}, {LOST_DIGITS}")
                return
            if kind == ValueKind.BOOLEAN:
                text = spelt_boolean(number)
            elif kind <= ValueKind.NUMBER_TEXT:
                text = spelt_number(number)
            if text:
                columns.add_text(0, 1.0, plan.prefix + text)
        columns.add(plan.entries[ValueKind.LIST], 0.0)

    def _words(self, plan: _Plan, text: str, value: float, columns: _Columns, most: int) -> None:
        """Append the first words of a text, and pairs of neighbours; a text that is cut contradicts its kind."""
        words = words_of(text, self._words_rule, most + 1)
        if len(words) > most:
            words.pop()
            columns.cut.append(plan.name)
            value = _CONTRADICTING_WORDS
        for word in words:
            columns.add_text(0, 1.0, f"{plan.name}~{word}")
        for first, second in itertools.pairwise(words):
            columns.add_text(0, 1.0, f"{plan.name}~{first} {second}")
        columns.add(plan.entries[ValueKind.LIST], value)


def _expected_number(value: Any) -> str:
    return f"{declared_fault(value)} or null, as its log is taken"
