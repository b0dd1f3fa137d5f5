"""A stream of requests over one websocket without any input or output: what to send, and whose answer has come.

Requests go out without waiting for the answers to those before, as many at once as the service's credit and the
caller's window allow. Nothing is sent again: when the connection breaks, `StreamBroken` names what was not answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from rarestream.client.decode import Ids, Predicted, Updated, predicted, updated
from rarestream.client.encode import Batch, Columns, labelled, served
from rarestream.client.errors import ClientError, Lost, StreamBroken, Unanswered, error_of
from rarestream.client.source import Source

__all__ = ["Pending", "Session"]

Result = TypeVar("Result")


class Pending(Generic[Result]):
    """A request of a stream, and its answer when that has come."""

    def __init__(self, seq: int, operation: str, ids: Ids | None, read: Callable[[bytes], Result]) -> None:
        self.seq = seq
        self.operation = operation
        self.ids = ids
        self.on_answer: Callable[[], None] | None = None
        self._read = read
        self._told: Result | ClientError | None = None
        self._asked = False  # whether the caller has seen it

    @property
    def answered(self) -> bool:
        """Whether the answer has come, or never will."""
        return self._told is not None

    def settle(self, told: bytes | ClientError) -> None:
        """The answer has come, as it was sent, or the reason why there is none."""
        try:
            self._told = told if isinstance(told, ClientError) else self._read(told)
        except ClientError as error:
            self._told = error
        if self.on_answer is not None:
            self.on_answer()

    def take(self) -> Result:
        """The answer, which has come. Raises what the service refused, or that the stream broke."""
        assert self._told is not None
        self._asked = True
        if isinstance(self._told, StreamBroken):
            self._told.raised = True
        if isinstance(self._told, ClientError):
            raise self._told
        return self._told

    @property
    def unseen(self) -> ClientError | None:
        """The error that it was answered with, if the caller has not seen that."""
        return self._told if isinstance(self._told, ClientError) and not self._asked else None


class _Hello(msgspec.Struct, tag_field="type", tag="hello"):
    credit: int
    max_bytes: int


class _Head(msgspec.Struct):
    seq: int
    code: str | None = None  # of an error
    status: Any = None


class Session:
    """The requests of one stream. `window`: how many may be unanswered at most, if the service's credit is not less."""

    def __init__(self, window: int) -> None:
        if window < 1:
            raise ValueError(f"window is {window}; expected at least 1")
        self._window = window
        self._max_bytes = 0
        self._next = 0
        self._unanswered: dict[int, Pending[Any]] = {}
        self._failed: list[Pending[Any]] = []  # refused, and not asked for yet
        self.error: StreamBroken | None = None

    def hello(self, message: str | bytes) -> None:
        """The service's first message."""
        try:
            said = msgspec.json.decode(message, type=_Hello)
        except msgspec.MsgspecError as error:
            raise Unanswered(f"the stream does not begin like rarestream's: {error}") from None
        self._window = max(1, min(self._window, said.credit))
        self._max_bytes = said.max_bytes

    @property
    def free(self) -> bool:
        """Whether one more request may go out."""
        return len(self._unanswered) < self._window

    @property
    def idle(self) -> bool:
        """Whether every request has been answered."""
        return not self._unanswered

    def update(self, batch: Batch, source: Source | None) -> tuple[bytes, Pending[Updated]]:
        """The message that has labelled events learnt, or takes labels by id."""
        columns = labelled(batch, source)
        operation = "update" if columns.features is not None else "labels"
        return self._ask(operation, columns, lambda reply: updated(reply, columns.size, columns.ids, 0))

    def predict(
        self, X: Any, ids: Any, times: Any, explain: int | None, at_least: int | None = None
    ) -> tuple[bytes, Pending[Predicted]]:
        """The message that has events scored."""
        asked = {"explain": explain, "at_least": at_least}
        more = {name: value for name, value in asked.items() if value is not None}
        columns = served(X, ids, times)
        return self._ask("predict", columns, lambda reply: predicted(reply, columns.size), **more)

    def _ask(
        self, operation: str, columns: Columns, read: Callable[[bytes], Result], **more: Any
    ) -> tuple[bytes, Pending[Result]]:
        self.ensure()
        message = columns.body(0, columns.size, seq=self._next, op=operation, **more)
        if len(message) > self._max_bytes:
            size = f"{columns.size} events take {len(message)} bytes"
            raise ValueError(f"{size}; a message of this stream has at most {self._max_bytes}: send fewer at a time")
        pending = Pending(self._next, operation, columns.ids, read)
        self._unanswered[self._next] = pending
        self._next += 1
        return message, pending

    def receive(self, message: str | bytes) -> None:
        """Settle the request that a message answers. Raises `Unanswered` where it is no answer."""
        try:
            if not isinstance(message, bytes):
                raise ValueError("a text, where requests went out as MessagePack")
            head = msgspec.msgpack.decode(message, type=_Head)
            if head.code is not None and not isinstance(head.status, int):
                raise ValueError("an error without its status")
            pending = self._unanswered.pop(head.seq)
        except (msgspec.MsgspecError, ValueError, KeyError) as error:
            raise Unanswered(f"a message of the stream is not like rarestream's: {error}") from None
        if head.code is None:
            pending.settle(message)
        else:
            pending.settle(error_of(head.status, {}, message, "msgpack"))
        if pending.unseen is not None:
            self._failed = [*(one for one in self._failed if one.unseen is not None), pending]

    def broken(self, why: str) -> None:
        """The connection is gone: what is unanswered stays so."""
        if self.error is None:
            lost = list(self._unanswered.values())
            self._unanswered.clear()
            self.error = StreamBroken(why, [Lost(one.seq, one.operation, one.ids) for one in lost])
            for one in lost:
                one.settle(self.error)

    def ensure(self) -> None:
        """Raise `StreamBroken` where nothing can be sent any more."""
        if self.error is not None:
            self.error.raised = True
            raise self.error

    def check(self) -> None:
        """At the end of a stream: raise the first error that the caller has not seen, so that none is passed over."""
        if self.error is not None and self.error.unanswered and not self.error.raised:
            raise self.error
        for pending in self._failed:
            if pending.unseen is not None:
                raise pending.unseen
