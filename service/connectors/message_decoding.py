"""Decodes messages to events of the API: their bytes, whether they are labelled, and their ids. No I/O."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec

from learners.features import cell_value, normalised
from rarestream.values import id_text
from service.connectors.feed import Message
from service.datasets import BinaryLabels, EventTimes, Ranks, Unlabelled, identity, weight

__all__ = ["BadMessage", "MessageEvent", "MessageKind", "Reading"]

MessageKind = Literal["auto", "update", "predict"]
_HEADER = 5  # bytes that Confluent's serializers put before JSON: 0, and the schema's id in big-endian order


class BadMessage(Exception):
    """A malformed message; the text says what is wrong."""


class MessageEvent(NamedTuple):
    """The event of a message."""

    offset: int
    body: bytes  # as JSON
    labelled: bool
    id: str | None


class _EventHead(msgspec.Struct):
    id: str | int | float | None = None
    label: msgspec.Raw = msgspec.Raw()
    weight: msgspec.Raw = msgspec.Raw()
    time: msgspec.Raw = msgspec.Raw()


class Reading:
    """Decodes messages.

    For flat fields, `labels` gives the meaning of labels. `texts` names the features declared as names or text.
    `time_format` and `time_unit` are those of files, except that a number of a unit is a moment since 1980. Without
    them the service reads the times of events in JSON.
    """

    def __init__(
        self,
        what: MessageKind,
        labels: BinaryLabels | Ranks,
        texts: frozenset[str] = frozenset(),
        time_format: str = "",
        time_unit: str = "",
    ) -> None:
        self._what = what
        self._labels = labels
        self._texts = texts
        read_time = EventTimes(time_format, time_unit, counters=False)
        self._about: Mapping[str, Callable[[Any], Any]] = {"id": identity, "time": read_time, "weight": weight}
        self._reads_times = bool(time_format or time_unit)
        self._decoder = msgspec.json.Decoder(_EventHead)
        self.schema_headers = 0  # messages with the header of a schema registry
        self._schema: int | None = None  # the id in the first of them
        self._warned: set[str] = set()

    def event(self, message: Message) -> MessageEvent | None:
        """Return the event of a message; None if it is empty. Raises `BadMessage`; the service checks the rest."""
        value = message.value
        if value is None:
            return None
        body = self._json(value) if isinstance(value, bytes) else self._flat(value)
        if not body:
            raise BadMessage("it has no event: put it into the field event of the Redis entry, or use --entry flat")
        try:
            head = self._decoder.decode(body)
            body.decode()
        except UnicodeDecodeError:
            raise BadMessage("it is not UTF-8") from None
        except msgspec.ValidationError as error:
            raise BadMessage(f"it is not an event: {error}") from None
        except (msgspec.DecodeError, RecursionError) as error:
            header = isinstance(value, bytes) and value[:1] == b"\0"
            where = " behind the header of a schema registry (Avro and Protobuf are not read)" if header else ""
            raise BadMessage(f"it is not JSON{where}: {error}") from None
        labelled = bytes(head.label) not in (b"", b"null")
        if self._what == "update" and not labelled:
            raise BadMessage("it has no label")
        if self._what == "predict" or not labelled:
            if head.label or head.weight:
                body = _unlabelled(body)
            labelled = False
        if self._reads_times and isinstance(value, bytes) and head.time:
            body = self._with_time(body, head.time)
        try:
            return MessageEvent(message.offset, body, labelled, id_text(head.id))
        except ValueError as error:
            raise BadMessage(f"its id {error}") from None

    def warnings(self) -> list[str]:
        """Return the warnings about the messages so far, each once."""
        texts = {
            "labels": self._labels.mixture() if isinstance(self._labels, BinaryLabels) else None,
            "schema": None
            if self._schema is None
            else f"messages have the header of a schema registry (schema {self._schema}), which is skipped",
        }
        new = {kind: text for kind, text in texts.items() if text is not None and kind not in self._warned}
        self._warned |= new.keys()
        return list(new.values())

    def _json(self, value: bytes) -> bytes:
        """Return the JSON of a message, without a byte order mark and without the header of a schema registry."""
        if len(value) >= _HEADER and value[0] == 0:  # JSON cannot begin with 0
            self.schema_headers += 1
            self._schema = int.from_bytes(value[1:_HEADER], "big") if self._schema is None else self._schema
            value = value[_HEADER:]
        return value.removeprefix(BOM_UTF8)

    def _flat(self, fields: Mapping[str, str]) -> bytes:
        """Encode flat fields as JSON: `id`, `label`, `time` and `weight` as such, all others as features."""
        try:
            event: dict[str, Any] = {}
            for member, read in self._about.items():
                if (value := read(fields.get(member))) is not None:
                    event[member] = value
            with suppress(Unlabelled):
                event["label"] = self._labels(fields.get("label"))
            aside = {*self._about, "label"}
            event["features"] = {name: self._cell(name, text) for name, text in fields.items() if name not in aside}
        except ValueError as error:
            raise BadMessage(str(error)) from None
        return msgspec.json.encode(event)

    def _with_time(self, body: bytes, time: msgspec.Raw) -> bytes:
        """Replace the time of an event by its seconds. Raises `BadMessage`."""
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        try:
            members["time"] = msgspec.Raw(msgspec.json.encode(self._about["time"](msgspec.json.decode(time))))
        except ValueError as error:
            raise BadMessage(str(error)) from None
        return msgspec.json.encode(members)

    def _cell(self, name: str, text: str) -> float | str:
        return text if normalised(name) in self._texts else cell_value(text)


def _unlabelled(body: bytes) -> bytes:
    """Remove label and weight from an event to score."""
    members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({name: value for name, value in members.items() if name not in ("label", "weight")})
