"""What `rarestream consume` asks of where messages come from: numbered messages, a position that is kept, and outputs.

A feed has one or more partitions. The messages of a partition have ascending numbers, with holes perhaps, and are read
one after the other. Numbers are below 2^53, so that they can be those of a learner's source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

from service.exits import CommandFailed

__all__ = ["Document", "Feed", "FeedError", "Message", "OffsetRange", "Output", "Partition", "Removed"]

Document = dict[str, Any]


class FeedError(CommandFailed):
    """Messages cannot be had, or not be written; the text never has a password in it."""


class Removed(FeedError):
    """The next message of a partition was removed before it was read."""


class Message(NamedTuple):
    """One message."""

    offset: int
    value: bytes | Mapping[str, str] | None  # an event as JSON, or flat fields; None: empty, as a tombstone is


class Output(NamedTuple):
    """One message to be written."""

    key: str | None  # messages of one key keep their order
    value: bytes


class OffsetRange(NamedTuple):
    """Of the messages of a partition."""

    first: int  # the number of the first that is still there
    end: int  # one beyond the last
    ever: int  # one beyond the last that there ever was, whether or not it is there; 0: there is no such thing


class Partition(Protocol):
    """Messages in one order. One task reads them."""

    source: str  # its name in the learner's `sources`
    counted: bool  # numbers are given out one by one from 0: none lies beyond the end, and what is missing was removed

    async def bounds(self) -> OffsetRange:
        """Which numbers there are, and were."""

    async def committed(self) -> int | None:
        """The number that was committed last, by this process or one before it; None: none ever was."""

    def seek(self, offset: int) -> None:
        """Read on from the first message whose number is not less."""

    async def read(self, most: int, seconds: float) -> list[Message]:
        """Up to `most` messages; waits at most so long, where there is none.

        Raises `Removed` where the next one was removed before it was read, of what is `counted`.
        """

    async def position(self) -> int:
        """Every message below this number has been read."""

    async def commit(self, offset: int) -> None:
        """Keep the number to go on from, where operators can see it."""

    def place(self, offset: int) -> str:
        """Where that message is, for people."""

    def origin(self, offset: int) -> Document:
        """The same for programs."""


class Feed(Protocol):
    """An async context manager: its partitions are there inside."""

    @property
    def partitions(self) -> Sequence[Partition]: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    def added(self) -> list[str]:
        """Sources that came to what is read as a whole since it was opened, and are not read, as far as it knows."""

    async def produce(self, to: str, outputs: Sequence[Output]) -> None:
        """Write messages to a topic, or stream, in order; on return all of them are acknowledged."""
