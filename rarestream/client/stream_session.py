"""The state of a websocket stream without I/O: messages to send, and answers received.

Requests go out without waiting for earlier answers, up to the service's credit and the caller's window. Nothing is sent
again: if the connection breaks, `StreamBroken` names the unanswered requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from rarestream.client.batch import EventBatch
from rarestream.client.decode import Ids, PredictResult, UpdateResult, decode_predict, decode_update
from rarestream.client.encode import EncodedEvents, encode_labelled, encode_unlabelled
from rarestream.client.errors import ClientError, OutcomeUnknown, StreamBroken, UnansweredRequest, error_of
from rarestream.client.source import Source

__all__ = ["PendingReply", "StreamSession"]

Result = TypeVar("Result")


class PendingReply(Generic[Result]):
    """A request of a stream, and its answer once it has arrived."""

    def __init__(self, seq: int, operation: str, ids: Ids | None, read: Callable[[bytes], Result]) -> None:
        self.seq = seq
        self.operation = operation
        self.ids = ids
        self.on_answer: Callable[[], None] | None = None
        self._read = read
        self._answer: Result | ClientError | None = None
        self._was_read = False  # whether the caller has seen the answer

    @property
    def answered(self) -> bool:
        """Whether the answer has arrived, or never will."""
        return self._answer is not None

    def settle(self, answer: bytes | ClientError) -> None:
        """Set the answer, as it was sent, or the reason why there is none."""
        try:
            self._answer = answer if isinstance(answer, ClientError) else self._read(answer)
        except ClientError as error:
            self._answer = error
        if self.on_answer is not None:
            self.on_answer()

    def take(self) -> Result:
        """Return the answer, which has arrived. Raises `RequestRefused` or `StreamBroken`."""
        assert self._answer is not None
        self._was_read = True
        if isinstance(self._answer, StreamBroken):
            self._answer.raised = True
        if isinstance(self._answer, ClientError):
            raise self._answer
        return self._answer

    @property
    def unseen(self) -> ClientError | None:
        """The error in the answer, unless the caller has seen it."""
        return self._answer if isinstance(self._answer, ClientError) and not self._was_read else None


class _Hello(msgspec.Struct, tag_field="type", tag="hello"):
    credit: int
    max_bytes: int


class _AnswerHead(msgspec.Struct):
    seq: int
    parts: int = 0  # of the reply, in as many messages that follow; 0: this is the reply
    code: str | None = None  # of an error
    status: Any = None


class StreamSession:
    """The requests of one stream. `window`: unanswered requests at most; the service's credit may be lower."""

    def __init__(self, window: int) -> None:
        if window < 1:
            raise ValueError(f"window is {window}; expected at least 1")
        self._window = window
        self._max_bytes = 0
        self._next = 0
        self._unanswered: dict[int, PendingReply[Any]] = {}
        self._parts: list[bytes] = []  # of a reply that is not complete
        self._missing_parts = 0  # of it
        self._failed: list[PendingReply[Any]] = []  # refused; the caller has not seen it
        self.error: StreamBroken | None = None

    def greet(self, message: str | bytes) -> None:
        """Take the service's first message."""
        try:
            hello = msgspec.json.decode(message, type=_Hello)
        except msgspec.MsgspecError as error:
            raise OutcomeUnknown(f"the stream does not begin like one of rarestream: {error}") from None
        self._window = max(1, min(self._window, hello.credit))
        self._max_bytes = hello.max_bytes

    @property
    def free(self) -> bool:
        """Whether another request may be sent."""
        return len(self._unanswered) < self._window

    @property
    def idle(self) -> bool:
        """Whether every request has been answered."""
        return not self._unanswered

    def update(self, batch: EventBatch, source: Source | None) -> tuple[bytes, PendingReply[UpdateResult]]:
        """Return the message for labelled events, or labels by id."""
        events = encode_labelled(batch, source)
        operation = "update" if events.features is not None else "labels"
        return self._request(operation, events, lambda reply: decode_update(reply, events.size, events.ids, 0))

    def predict(
        self, X: Any, ids: Any, times: Any, explain: int | None, at_least: int | None = None
    ) -> tuple[bytes, PendingReply[PredictResult]]:
        """Return the message for events to score."""
        options = {"explain": explain, "at_least": at_least}
        more = {name: value for name, value in options.items() if value is not None}
        events = encode_unlabelled(X, ids, times)
        return self._request("predict", events, lambda reply: decode_predict(reply, events.size), **more)

    def _request(
        self, operation: str, events: EncodedEvents, read: Callable[[bytes], Result], **more: Any
    ) -> tuple[bytes, PendingReply[Result]]:
        self.check_open()
        message = events.body(0, events.size, seq=self._next, op=operation, **more)
        if len(message) > self._max_bytes:
            size = f"{events.size} events take {len(message)} bytes"
            raise ValueError(f"{size}; a message of this stream has at most {self._max_bytes}: send fewer at a time")
        pending = PendingReply(self._next, operation, events.ids, read)
        self._unanswered[self._next] = pending
        self._next += 1
        return message, pending

    def receive(self, message: str | bytes) -> None:
        """Settle the request that a message answers, or take a part of a large answer.

        Raises `OutcomeUnknown` if it is no answer.
        """
        try:
            if not isinstance(message, bytes):
                raise ValueError("text instead of MessagePack")
            if self._missing_parts:
                self._parts.append(message)
                self._missing_parts -= 1
                if self._missing_parts:
                    return
                message, self._parts = b"".join(self._parts), []
            head = msgspec.msgpack.decode(message, type=_AnswerHead)
            if head.parts:
                self._missing_parts = head.parts
                return
            if head.code is not None and not isinstance(head.status, int):
                raise ValueError("an error without its status")
            pending = self._unanswered.pop(head.seq)
        except (msgspec.MsgspecError, ValueError, KeyError) as error:
            raise OutcomeUnknown(f"a message of the stream is not like one of rarestream: {error}") from None
        if head.code is None:
            pending.settle(message)
        else:
            pending.settle(error_of(head.status, {}, message, "msgpack"))
        if pending.unseen is not None:
            self._failed = [*(failure for failure in self._failed if failure.unseen is not None), pending]

    def end(self, why: str) -> None:
        """End the stream: no more answers will arrive."""
        if self.error is None:
            unanswered = list(self._unanswered.values())
            self._unanswered.clear()
            self.error = StreamBroken(
                why, [UnansweredRequest(pending.seq, pending.operation, pending.ids) for pending in unanswered]
            )
            for pending in unanswered:
                pending.settle(self.error)

    def check_open(self) -> None:
        """Raise `StreamBroken` if the stream has ended."""
        if self.error is not None:
            self.error.raised = True
            raise self.error

    def raise_unseen(self) -> None:
        """Raise the first error that the caller has not seen."""
        if self.error is not None and self.error.unanswered and not self.error.raised:
            raise self.error
        for pending in self._failed:
            if pending.unseen is not None:
                raise pending.unseen
