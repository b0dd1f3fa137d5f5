"""Decodes JSON of files: flat objects of features, events of the API, and labels. One rule for all commands. No I/O.

NaN and infinite numbers may stand in it, as Python and its libraries write them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import msgspec

from service.datasets.bad_rows import ReadError
from service.datasets.rows import Event
from service.datasets.times import EventTimes
from service.datasets.values import RowColumns
from service.text import counted

__all__ = ["LABEL", "LABEL_MEMBERS", "ONE_EACH", "JsonEvents", "LenientJson", "form_of", "json_texts"]

ONE_EACH = "; expected one object a line, as jq -c . FILE writes them"
LABEL = "label"  # the form of an object without features
LABEL_MEMBERS = ("id", "label", "time", "weight")
# A string, so that what stands in it is left alone, with the number behind its colon; or such a number elsewhere
_NOT_JSON = re.compile(r'(?P<text>"(?:[^"\\]|\\.)*+"(?P<colon>\s*+:\s*+)?)(?P<value>NaN|-?Infinity)?|NaN|-?Infinity')


class LenientJson:
    """Decodes JSON, and counts the values that it has not; they are null."""

    def __init__(self) -> None:
        self._count = 0
        self._first = ""  # value and place of the first

    def decode(self, text: str, place: str = "", type: Any = Any, undo: list[Callable[[], None]] | None = None) -> Any:
        """Decode a text. Values that are not JSON count if there is a `place`; `undo` gets what takes that back.

        Raises `msgspec.DecodeError`.
        """
        try:
            return msgspec.json.decode(text, type=type)
        except msgspec.DecodeError:
            extras: list[str] = []
            plain = _NOT_JSON.sub(lambda match: _null(match, extras), text)
            if not extras:
                raise
        decoded = msgspec.json.decode(plain, type=type)
        if place:
            if undo is not None:
                undo.append(partial(self._restore, self._count, self._first))
            self._first = self._first or f"the first in {place}: {extras[0]}"
            self._count += len(extras)
        return decoded

    def _restore(self, count: int, first: str) -> None:
        self._count, self._first = count, first

    def notes(self) -> list[str]:
        """Describe the values that were read as null; nothing if there are none."""
        values = counted(self._count, "value")
        return [f"{values} that JSON does not have, taken as missing, {self._first}"] if self._count else []


def _null(match: re.Match[str], extras: list[str]) -> str:
    text, value = match["text"], match["value"]
    if text is None:
        extras.append(match[0])
        return "null"
    if value is None or match["colon"] is None:
        return match[0]
    extras.append(match[0])
    return f"{text}null"


def form_of(row: Event) -> str:
    """Return the member of an event of the API with the features; "flat" if the object has them itself."""
    if isinstance(row.get("features"), dict):
        return "features"
    if isinstance(row.get("x"), list):
        return "x"
    return "indices" if isinstance(row.get("indices"), list) and isinstance(row.get("values"), list) else "flat"


def json_texts(lines: Iterator[str], file: object, json: LenientJson) -> Iterator[tuple[str, int, str]]:
    """Yield each text of an event with its unit and place: lines, or the members of a document. Raises `ReadError`."""
    numbered = ((place, line) for place, line in enumerate(lines, 1) if not line.isspace())
    first = next(numbered, None)
    if first is None:
        raise ReadError(f"{file}: no events")
    if not _begins_document(first[1]):
        yield from (("line", place, line) for place, line in chain([first], numbered))
        return
    try:
        members = _members_of(first[1] + "".join(line for _, line in numbered), json)
    except (msgspec.DecodeError, RecursionError) as error:
        begins_object = first[1].lstrip().startswith("{")
        raise ReadError(f"{file}: not JSON: {error}{ONE_EACH if begins_object else ''}") from None
    yield from (("event", place, text) for place, text in enumerate(members))


def _begins_document(line: str) -> bool:
    """Tell whether the first line is not an event by itself: a list, or the beginning of a longer document."""
    text = line.strip()
    try:
        row = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text[:1] == "[" or (text[:1] == "{" and text[-1:] in "{[,:")
    return isinstance(row, list) or (isinstance(row, dict) and isinstance(row.get("events"), list))


def _members_of(text: str, json: LenientJson) -> list[str]:
    """Return the events of a list, of {"events": [...]}, or of one event. Raises `msgspec.DecodeError`."""
    document = json.decode(text, "the document", dict[str, msgspec.Raw] | list[msgspec.Raw])
    if isinstance(document, dict):
        events = bytes(document.get("events", b""))
        if not events.startswith(b"["):
            return [text]
        document = msgspec.json.decode(events, type=list[msgspec.Raw])
    return [bytes(event).decode() for event in document]


class JsonEvents:
    """Turns objects into events. Ids, times, weights and labels are read as cells of other files are.

    `label_of` decodes a label, to None if there is none; its second argument says that the object has no such member.
    Without it, the event is to be scored, and has neither label nor weight.
    """

    def __init__(self, columns: RowColumns, label_of: Callable[[Any, str | None], int | None] | None) -> None:
        self._columns = columns
        self._label_of = label_of
        self._about = columns.about

    def event(self, row: Event, form: str) -> Event:
        """Decode an object of this form. Raises ValueError if it is malformed."""
        event: Event = {}
        if self._label_of is not None:
            label = self._columns.label
            absent = None if label in row else f"there is no {label!r}; the row has {', '.join(row)[:500]}"
            if (value := self._label_of(row.get(label), absent)) is not None:
                event["label"] = value
        if form in ("flat", "features"):
            event["features"] = features = self.features(row, form)
            for name, value in features.items():
                if type(value) is dict:
                    raise ValueError(
                        f"{name} is an object; expected one object per event, as to_json(orient='records') of pandas "
                        "writes them"
                    )
        elif form != LABEL:
            event |= {name: row[name] for name in ("x", "indices", "values") if name in row}
        for member, value in self.members(row, form):
            event[member] = value
        if form == LABEL and "id" not in event:
            raise ValueError("has no id")
        return event

    def features(self, row: Event, form: str) -> Event:
        """Return the features of an object, without what the options name."""
        columns = self._columns
        if form == "flat":
            aside = {columns.label, *columns.named}
            return {name: value for name, value in row.items() if name not in aside}
        return {name: value for name, value in row["features"].items() if name not in columns.drop}

    def names(self, form: str) -> dict[str, str]:
        """Return the names that id, time and weight have in objects of this form."""
        about = self._about if self._label_of else self._about[:2]
        return {member: name or member for member, name, _ in about if name or form != "flat"}

    def time_notes(self) -> list[str]:
        """Say what the times of the events so far count, if that is taken of them."""
        return [read.note for _, _, read in self._about if isinstance(read, EventTimes) and read.note]

    def members(self, row: Event, form: str) -> list[tuple[str, Any]]:
        """Return the id, time and weight of an object, if it has them. Raises ValueError if one is malformed."""
        read = {member: parse for member, _, parse in self._about}
        values = ((member, read[member](row.get(name))) for member, name in self.names(form).items())
        return [(member, value) for member, value in values if value is not None]
