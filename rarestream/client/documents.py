"""JSON replies: documents, the counts of an update, and server-sent events. No NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from rarestream.client.errors import OutcomeUnknown

__all__ = ["Document", "EventDecoder", "ServerEvent", "UpdateCounts", "UpdateDocument", "decode_json", "no_reply_of"]

Document = dict[str, Any]  # a reply as the API describes it
Reply = TypeVar("Reply")


class UpdateCounts(msgspec.Struct):
    """Counts of the JSON reply to an update."""

    applied: int
    duplicate: int
    position: int
    relabelled: int = 0
    unknown: int = 0
    expired: int = 0


class UpdateDocument(UpdateCounts):
    """The same, with a result per event."""

    results: list[Document] = []


class ServerEvent(NamedTuple):
    """One server-sent event."""

    kind: str
    data: Document
    id: str | None


class EventDecoder:
    """Server-sent events from the lines of a stream. Skips comments and an incomplete event at the end.

    An id without data, from which a client may go on, is an event of no kind.
    """

    def __init__(self) -> None:
        self._kind = ""
        self._id: str | None = None
        self._data: list[str] = []

    def feed(self, line: str) -> Iterator[ServerEvent]:
        """Take one line; yield the event that it completes."""
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                self._kind = value
            elif name == "id":
                self._id = value
            elif name == "data":
                self._data.append(value)
            return
        if self._data:
            yield ServerEvent(self._kind, decode_json("\n".join(self._data).encode(), Document), self._id)
        elif self._id is not None:
            yield ServerEvent("", {}, self._id)
        self._kind, self._id, self._data = "", None, []


def decode_json(body: bytes, kind: type[Reply], url: str = "") -> Reply:
    """Decode a body. Raises `OutcomeUnknown` if it is not such a reply."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise no_reply_of(error, url) from None


def no_reply_of(error: Exception, url: str = "") -> OutcomeUnknown:
    """Return the error for a successful answer that is not a reply of rarestream."""
    return OutcomeUnknown(f"{url or 'the server'} does not answer like rarestream: {error}", status=200)
