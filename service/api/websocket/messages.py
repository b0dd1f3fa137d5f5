"""Messages of the websocket: an operation with its `seq` going in, its reply or its problem with that `seq` coming out.

    {"seq": 7, "op": "update", "events": [...]}  ->  head: seq, op, learner, explain, at_least; the rest: the body

Neighbouring messages of one make are carried out as one (`joining.py`). What each is answered is what its body alone
would be, by the same coding; nothing here knows what an event is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence, Set
from itertools import groupby
from typing import Any, cast

import msgspec

from learners import ABSENT, MAX_FEATURES, Problem, show
from service.api.websocket.batching import COLUMNWISE, EVENTS, Joining
from service.errors import BadBody, Invalid, ServiceError
from service.storage import MAX_POSITION
from service.wire import JSON, MAX_EVENTS, MSGPACK, Coding, Operation, decode_json, length
from service.wire.kernels import (
    COUNT,
    KINDS,
    LEARNER,
    LEARNER_END,
    LIST,
    MAKE,
    MAX_SEQ,
    OPERATION,
    OPERATIONS,
    PLACES,
    SEQ,
    columnar_heads,
    heads,
)

__all__ = ["BINARY", "MAX_SEQ", "TEXT", "Form", "MessageBatch", "joint", "new_seqs", "read"]

_HEAD = ("seq", "op", "learner", "explain", "at_least")
_OF_PREDICT = {"explain": (MAX_FEATURES, str(MAX_FEATURES)), "at_least": (MAX_POSITION, "2^53")}  # and their bounds
_SEQ_SCHEMA = {"type": "integer", "minimum": 0, "maximum": MAX_SEQ}
_GLANCE = 512  # bytes of a value of the head that is decoded whatever it is
_MEMBERS = 100  # of a message in binary: a byte of them takes much memory
_JOINED = 2**17  # bytes of messages that are made one body
_ENTRY = 64  # bytes that an event in text, or an entry of a list in binary, takes beside what the message itself does
_OPERATIONS = cast(tuple[Operation, ...], OPERATIONS)


class Form:
    """Text or binary: how messages are written, with the coding of their bodies."""

    def __init__(
        self, coding: Coding, joining: Joining, what: str, protocol: Any, headed: Callable[[bytes, bytes], bytes]
    ) -> None:
        """`protocol`: of msgspec; `headed` puts a map's members in front of those of another."""
        self.coding = coding
        self.joining = joining
        self.what = what
        self.encode: Callable[[Any], bytes] = protocol.Encoder().encode
        self._members: Callable[[Any], dict[str, msgspec.Raw]] = protocol.Decoder(dict[str, msgspec.Raw]).decode
        self._value: Callable[[Any], Any] = protocol.Decoder().decode
        self._headed = headed

    def opened(self, message: str | bytes) -> tuple[dict[str, Any], bytes]:
        """The members of a message's head, as values, and the rest, which is the body.

        Raises `BadBody`. What the body holds is not looked at. Text with what no JSON may hold, such as NaN, is read by
        the decoder that the precise way uses, so that what is wrong can be pointed at.
        """
        try:
            if isinstance(message, bytes) and length(message)[1] > _MEMBERS:
                raise BadBody(f"the message has over {_MEMBERS} members")
            members = self._members(message)
            head = {name: self._glance(members.pop(name)) for name in _HEAD if name in members}
        except _UNUSUAL as error:
            if isinstance(message, bytes):
                raise BadBody(f"the message is not a map of {self.what}: {error}") from None
            return _loosely(message)
        return head, self.encode(members)

    def _glance(self, raw: msgspec.Raw) -> Any:
        """A value of the head; where no good one is as large, something that shows its size."""
        size = len(memoryview(raw))
        return self._value(raw) if size <= _GLANCE else _Large(size)

    def answered(self, seq: int | None, reply: bytes) -> bytes:
        """A reply of the coding as a message. In binary `status` is a column of the reply's own."""
        return self._headed(self.encode({"seq": seq} if self is BINARY else {"seq": seq, "status": 200}), reply)

    def refused(self, seq: int | None, error: ServiceError) -> bytes:
        """What went wrong, with the members of problem+json; that there is a `code` tells it from an answer."""
        said: dict[str, Any] = {
            "seq": seq,
            "status": error.status,
            "code": error.code,
            "title": error.title,
            "detail": error.detail,
            "errors": [problem.to_json() for problem in error.problems],
        }
        if error.retry_after is not None:
            said["retry_after"] = error.retry_after
        return self.encode(said)


class _Large:
    """Stands for a value of so many bytes, and is none that a head may hold."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __repr__(self) -> str:
        return f"a value of {self._size} bytes"


def _loosely(message: str) -> tuple[dict[str, Any], bytes]:
    """As `Form.opened`, of text that only Python takes for JSON."""
    try:
        members = decode_json(message.encode("utf-8", "surrogatepass"))
        if not isinstance(members, dict):
            raise BadBody(f"it is {show(members)}")
        head = {name: members.pop(name) for name in _HEAD if name in members}
        return head, json.dumps(members).encode()
    except BadBody as error:
        raise BadBody(f"the message is not a map of JSON: {error.detail}") from None
    except RecursionError:
        raise BadBody("the message is nested too deeply") from None


def _headed_text(head: bytes, body: bytes) -> bytes:
    return b"%b,%b" % (head[:-1], body[1:])


def _headed_binary(head: bytes, body: bytes) -> bytes:
    """The head has fewer than 16 members, the body fewer than 2^16 - 16."""
    count, start = (body[0] & 0x0F, 1) if body[0] != _MAP16 else (int.from_bytes(body[1:3], "big"), 3)
    count += head[0] & 0x0F
    size = bytes([_FIXMAP | count]) if count < 16 else bytes([_MAP16, *count.to_bytes(2, "big")])
    return b"".join((size, memoryview(head)[1:], memoryview(body)[start:]))


_FIXMAP, _MAP16 = 0x80, 0xDE  # how MessagePack begins a map


TEXT = Form(JSON, EVENTS, "JSON", msgspec.json, _headed_text)
BINARY = Form(MSGPACK, COLUMNWISE, "MessagePack", msgspec.msgpack, _headed_binary)


class MessageBatch(msgspec.Struct):
    """What messages ask for: one of them, or neighbours of one make that came in one read.

    Those that are refused already have the error instead.
    """

    form: Form
    size: int  # bytes that it holds, about, with what was made of them
    seqs: list[int | None]  # of each message
    learner: str | None = None
    operation: Operation | None = None
    make: Any = None  # those of the same make can be put together; None: it is of one message, carried out alone
    counts: list[int] = []  # the events of each message, where it is not alone,
    contents: list[Any] = []  # and these
    body: bytes = b""  # where it is
    explain: int | None = None
    at_least: int | None = None  # a position that the learner has to have come to
    error: ServiceError | None = None
    came: list[tuple[float, int]] = []  # when, by `perf_counter()`, so many of the messages did

    def __len__(self) -> int:
        return len(self.seqs)

    def refused(self, error: ServiceError) -> None:
        """It is to be answered by an error, if not by another already."""
        self.error = self.error or error
        self.make, self.counts, self.contents = None, [], []

    def add(self, other: MessageBatch) -> bool:
        """Have what came behind it carried out with it, where that is of the same make, and both are not too much."""
        if self.make is None or other.make != self.make or self.size + other.size > _JOINED:
            return False
        self.size += other.size
        self.seqs += other.seqs
        self.counts += other.counts
        self.contents += other.contents
        self.came += other.came
        return True

    def part(self, start: int, stop: int) -> MessageBatch:
        """The same for some of the messages, which came together."""
        size = self.size * stop // len(self) - self.size * start // len(self)
        seqs, counts, contents = self.seqs[start:stop], self.counts[start:stop], self.contents[start:stop]
        came = [(when, stop - start) for when, _ in self.came[:1]]
        return msgspec.structs.replace(self, size=size, seqs=seqs, counts=counts, contents=contents, came=came)

    def each(self) -> list[MessageBatch]:
        """The same for each of the messages, which came together."""
        return [self.part(i, i + 1) for i in range(len(self))]

    def apart(self) -> list[MessageBatch]:
        """The same for each of the messages, to be carried out alone."""
        times = [when for when, count in self.came for _ in range(count)]
        alone = self.each()
        for one, when in zip(alone, times, strict=True):
            one.body, one.came = joint(one), [(when, 1)]
            one.make, one.counts, one.contents = None, [], []
        return alone


def new_seqs(seqs: Sequence[int | None], unanswered: Set[int | None], most: int) -> int:
    """How many numbers there are, at most `most`, before one that is another message's which is not answered yet."""
    if len(seqs) <= most and len(set(seqs)) == len(seqs) and unanswered.isdisjoint(seqs):
        return len(seqs)
    met = set(unanswered)
    for i, seq in enumerate(seqs[:most]):
        if seq is not None and seq in met:
            return i
        met.add(seq)
    return min(most, len(seqs))


def joint(request: MessageBatch) -> bytes:
    """One body of all messages; of one that is alone its own."""
    return request.body if request.make is None else request.form.joining.body(request.contents)


_UNUSUAL = (msgspec.DecodeError, UnicodeError, RecursionError)


def read(messages: Sequence[str | bytes]) -> list[MessageBatch]:
    """What messages ask for, by their heads, in order; neighbours of one make are one request.

    Their bodies are not looked at yet; what is wrong with a head is told as the `error`.
    """
    requests: list[MessageBatch] = []
    for kind, some in groupby(messages, type):
        these: list[Any] = list(some)
        requests += _texts(these) if kind is str else _binaries(these)
    return requests


def _together(heads: Iterable[_Head | str | bytes]) -> list[MessageBatch]:
    """The requests of messages, or of their heads where they are of the usual make."""
    requests: list[MessageBatch] = []
    last: MessageBatch | None = None
    for head in heads:
        if isinstance(head, (str, bytes)):
            requests.append(_members(head))
            last = None
            continue
        form, size, seq, learner, operation, make, count, content = head
        if last is not None and make == last.make and learner == last.learner and last.size + size <= _JOINED:
            last.size += size
            last.seqs.append(seq)
            last.counts.append(count)
            last.contents.append(content)
        else:
            last = MessageBatch(form, size, [seq], learner, operation, make, [count], [content])
            requests.append(last)
    return requests


_Head = tuple[Form, int, int, str | None, Operation, Any, int, Any]  # the first members of a request of one message


def _texts(messages: Sequence[str]) -> list[MessageBatch]:
    try:
        body, rows = heads(messages)
    except UnicodeEncodeError:  # in one of them
        return _together(messages)
    counts, seqs, operations, starts, stops, learners, _ = rows.T.tolist()
    size = len(body) + _ENTRY * sum(counts)
    alike = min(counts) > 0 and max(learners) < 0 and min(operations) == max(operations)
    if alike and size <= _JOINED:  # as nearly always: next to nothing is done for each of them
        operation = _OPERATIONS[operations[0]]
        contents = [body[start:stop] for start, stop in zip(starts, stops, strict=True)]
        return [MessageBatch(TEXT, size, seqs, None, operation, operation, counts, contents)]
    return _together(_text_head(message, body, row) for message, row in zip(messages, rows.tolist(), strict=True))


def _text_head(message: str, body: bytes, row: Sequence[int]) -> _Head | str:
    count, seq, number, start, stop, first, end = row
    if not 0 < count <= MAX_EVENTS:
        return message
    learner = None if first < 0 else body[first:end].decode()
    operation = _OPERATIONS[number]
    size = len(message) + _ENTRY * count
    return TEXT, size, seq, learner, operation, operation, count, body[start:stop]


def _binaries(messages: Sequence[bytes]) -> list[MessageBatch]:
    rows = columnar_heads(messages)
    found = rows.tolist()
    counts = rows[:, COUNT].tolist()
    first = found[0]
    size = sum(map(len, messages)) + _ENTRY * sum(counts) * first[KINDS:PLACES].count(LIST)
    few = min(counts) > 0 and max(counts) <= MAX_EVENTS and size <= _JOINED
    if few and rows[:, LEARNER].max() < 0 and (rows[:, MAKE] == rows[0, MAKE]).all():  # as nearly always
        contents = list(zip(messages, found, strict=True))
        make, operation = tuple(first[MAKE]), _OPERATIONS[first[OPERATION]]
        return [MessageBatch(BINARY, size, rows[:, SEQ].tolist(), None, operation, make, counts, contents)]
    return _together(map(_binary_head, messages, found))


def _binary_head(message: bytes, head: list[int]) -> _Head | bytes:
    count = head[COUNT]
    if not 0 < count <= MAX_EVENTS:
        return message
    learner = None if head[LEARNER] < 0 else message[head[LEARNER] : head[LEARNER_END]].decode()
    operation = _OPERATIONS[head[OPERATION]]
    size = len(message) + _ENTRY * count * head[KINDS:PLACES].count(LIST)
    return BINARY, size, head[SEQ], learner, operation, tuple(head[MAKE]), count, (message, head)


def _members(message: str | bytes) -> MessageBatch:
    """A message member by member; all but the head's make the body."""
    form = TEXT if isinstance(message, str) else BINARY
    request = MessageBatch(form, len(message), [None])
    try:
        head, body = form.opened(message)
    except BadBody as error:
        request.error = error
        return request
    problems = []
    seq, operation, learner, *_ = (head.get(name) for name in _HEAD)
    if type(seq) is int and 0 <= seq <= MAX_SEQ:
        request.seqs = [seq]
    else:
        problems.append(Problem.mismatch("/seq", head.get("seq", ABSENT), "a whole number from 0 to 2^53", _SEQ_SCHEMA))
    if isinstance(operation, str) and operation in _OPERATIONS:
        request.operation = operation
    else:
        problems.append(Problem.choice("/op", head.get("op", ABSENT), _OPERATIONS))
    if learner is None or (isinstance(learner, str) and learner.isprintable()):  # a lone surrogate is not
        request.learner = learner
    else:
        problems.append(Problem.mismatch("/learner", learner, "a name", {"type": "string"}))
    for name, (most, shown) in _OF_PREDICT.items():
        value = head.get(name)
        if type(value) is int and 1 <= value <= most and operation == "predict":
            setattr(request, name, value)
        elif value is not None:
            if operation in ("update", "labels"):
                problems.append(Problem(f"/{name}", f"is a member of predict, not of {operation}", "unknown"))
            else:
                expected = {"type": "integer", "minimum": 1, "maximum": most}
                problems.append(Problem.mismatch(f"/{name}", value, f"a whole number from 1 to {shown}", expected))
    if problems:
        request.refused(Invalid("the message is refused", problems))
    request.body = body
    return request
