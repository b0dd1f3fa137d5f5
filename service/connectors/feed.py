"""The protocol of message sources for `rarestream consume`: numbered messages, a committed position, and outputs.

A feed has one or more partitions. The messages of a partition have ascending offsets, possibly with gaps, and are read
in order. Offsets may be large. The learner's log has numbers below 2^53, which a partition derives from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

from service.exits import CommandFailed

__all__ = ["Document", "Feed", "FeedError", "Message", "MessageRemoved", "OffsetRange", "Output", "Partition"]

Document = dict[str, Any]


class FeedError(CommandFailed):
    """Messages cannot be read or written. The text never contains a password."""


class MessageRemoved(FeedError):
    """The next message of a partition was removed before it could be read."""


class Message(NamedTuple):
    """A message that was read."""

    offset: int
    value: bytes | Mapping[str, str] | None  # an event as JSON, or flat fields; None: empty, as a tombstone is


class Output(NamedTuple):
    """A message to write."""

    key: str | None  # messages with the same key keep their order
    value: bytes


class OffsetRange(NamedTuple):
    """The range of a partition's messages."""

    first: int  # the number of the first existing message
    end: int  # one beyond the last existing message
    ever: int  # one beyond the last message ever, even if it was removed; 0: none


class Partition(Protocol):
    """Ordered messages, read by one task."""

    source: str  # its name in the learner's `sources`
    counted: bool  # numbers are consecutive from 0: missing ones were removed, and none lies beyond the end

    async def bounds(self) -> OffsetRange:
        """Return the range of messages."""

    async def committed(self) -> int | None:
        """Return the last committed number, of this process or an earlier one; None if there is none."""

    def seek(self, offset: int) -> None:
        """Continue at the first message with this number or a larger one."""

    async def read(self, most: int, seconds: float) -> list[Message]:
        """Return up to `most` messages; wait at most so many seconds for the first.

        Raises `MessageRemoved` if a partition is `counted` and its next message was removed.
        """

    async def position(self) -> int:
        """Return the number below which every message has been read."""

    async def commit(self, offset: int) -> None:
        """Commit the number to resume from, where operators can see it."""

    def number(self, offset: int) -> int:
        """Return the number in the learner's source of a message; below an offset without a message all are smaller."""

    def numbered(self, offset: int) -> bool:
        """Tell whether the message has a number that no other has; else the learner knows it by its event's id."""

    def resume(self, number: int) -> int:
        """Return the offset at which to go on if the learner's source goes on at a number."""

    def show(self, offset: int) -> int | str:
        """Return the position of a reader that goes on at an offset, for programs."""

    def place(self, offset: int) -> str:
        """Describe the place of a message for people."""

    def origin(self, offset: int) -> Document:
        """Return the place of a message for programs."""


class Feed(Protocol):
    """An async context manager, which has its partitions inside the context."""

    @property
    def partitions(self) -> Sequence[Partition]: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    def added(self) -> list[str]:
        """Return the sources that appeared after a feed of all partitions was opened, and are not read."""

    async def produce(self, to: str, outputs: Sequence[Output]) -> None:
        """Write messages to a topic or stream in order; on return all of them are acknowledged."""
