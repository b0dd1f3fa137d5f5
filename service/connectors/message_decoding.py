"""Decodes messages to events of the API: their bytes, whether they are labelled, and their ids. No I/O."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from service.connectors.feed import Message
from service.datasets import BinaryLabels, Ranks, identity, is_number, number, timestamp, weight

__all__ = ["BadMessage", "MessageEvent", "Reading", "What"]

What = Literal["auto", "update", "predict"]
_ABOUT: Mapping[str, Callable[[Any], Any]] = {"id": identity, "time": timestamp, "weight": weight}


class BadMessage(Exception):
    """A malformed message; the text says what is wrong."""


class MessageEvent(NamedTuple):
    """The event of a message."""

    offset: int
    body: bytes  # as JSON
    labelled: bool
    id: str | int | None


class _EventHead(msgspec.Struct):
    id: str | int | None = None
    label: msgspec.Raw = msgspec.Raw()
    weight: msgspec.Raw = msgspec.Raw()


class Reading:
    """Decodes messages. For flat fields, `labels` gives the meaning of labels, and `texts` names the text features."""

    def __init__(self, what: What, labels: BinaryLabels | Ranks, texts: frozenset[str] = frozenset()) -> None:
        self._what = what
        self._labels = labels
        self._texts = texts
        self._decoder = msgspec.json.Decoder(_EventHead)

    def event(self, message: Message) -> MessageEvent | None:
        """Return the event of a message; None if it is empty. Raises `BadMessage`; the service checks the rest."""
        value = message.value
        if value is None:
            return None
        body = value.removeprefix(BOM_UTF8) if isinstance(value, bytes) else self._flat(value)
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
            raise BadMessage(f"it is not JSON: {error}") from None
        labelled = bytes(head.label) not in (b"", b"null")
        if self._what == "update" and not labelled:
            raise BadMessage("it has no label")
        if self._what == "predict" or not labelled:
            if head.label or head.weight:
                body = _unlabelled(body)
            labelled = False
        return MessageEvent(message.offset, body, labelled, head.id)

    def _flat(self, fields: Mapping[str, str]) -> bytes:
        """Encode flat fields as JSON: `id`, `label`, `time` and `weight` as such, all others as features."""
        try:
            event: dict[str, Any] = {}
            for member, read in _ABOUT.items():
                if (value := read(fields.get(member))) is not None:
                    event[member] = value
            if fields.get("label"):
                event["label"] = self._labels(fields["label"])
            aside = {*_ABOUT, "label"}
            event["features"] = {name: self._cell(name, text) for name, text in fields.items() if name not in aside}
        except ValueError as error:
            raise BadMessage(str(error)) from None
        return msgspec.json.encode(event)

    def _cell(self, name: str, text: str) -> Any:
        return number(text) if name not in self._texts and is_number(text) else text


def _unlabelled(body: bytes) -> bytes:
    """Remove label and weight from an event to score."""
    members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({name: value for name, value in members.items() if name not in ("label", "weight")})
