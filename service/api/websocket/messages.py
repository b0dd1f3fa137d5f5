"""Messages of the websocket: an operation with its `seq`, answered by a result or a problem with that `seq`.

    {"seq": 7, "op": "update", "events": [...]}  ->  head: seq, op, learner, explain, at_least; the rest: the body

Adjacent messages of the same kind form a batch with one body (`batching.py`). Each gets the reply that its body would
get alone. Nothing here depends on the content of events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import groupby
from typing import Any, cast

import msgspec

from learners import ABSENT, MAX_FEATURES, Problem, show
from service.api.websocket.batching import join_columns, join_events
from service.errors import BadBody, Invalid, ServiceError
from service.storage import MAX_POSITION
from service.wire import (
    JSON,
    JSON_PARTS,
    MAX_EVENTS,
    MSGPACK,
    MSGPACK_PARTS,
    Coding,
    Operation,
    SplitReplies,
    decode_json,
    length,
)
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

__all__ = [
    "BINARY",
    "MAX_PART",
    "MAX_SEQ",
    "TEXT",
    "MessageBatch",
    "MessageForm",
    "count_new_seqs",
    "join_body",
    "read",
]

MAX_PART = 2**19  # bytes of a message to the client; many close the connection at one of over 1 MiB

_HEAD = ("seq", "op", "learner", "explain", "at_least")
_OF_PREDICT = {"explain": (MAX_FEATURES, str(MAX_FEATURES)), "at_least": (MAX_POSITION, "2^53")}  # largest values
_SEQ_SCHEMA = {"type": "integer", "minimum": 0, "maximum": MAX_SEQ}
_MAX_VALUE = 512  # bytes of a head value; larger ones are not decoded
_MAX_MEMBERS = 100  # of a binary message: members take much more memory than their bytes
_MAX_BATCH = 2**17  # bytes
_ENTRY = 64  # bytes of memory per event in text, or per list entry in binary, beside those of the message
_OPERATIONS = cast(tuple[Operation, ...], OPERATIONS)


class MessageForm:
    """Text or binary: the form of messages, with the coding of their bodies."""

    def __init__(
        self,
        coding: Coding,
        replies: SplitReplies,
        join: Callable[[Sequence[Any]], bytes],
        what: str,
        protocol: Any,
        merge: Callable[[bytes, bytes], bytes],
    ) -> None:
        """Set what differs.

        `replies` to messages that were joined by `join`; `protocol`: a module of msgspec; `merge` puts the members of
        one map in front of those of another.
        """
        self.coding = coding
        self.replies = replies
        self.join = join
        self.what = what
        self.encode: Callable[[Any], bytes] = protocol.Encoder().encode
        self._members: Callable[[Any], dict[str, msgspec.Raw]] = protocol.Decoder(dict[str, msgspec.Raw]).decode
        self._value: Callable[[Any], Any] = protocol.Decoder().decode
        self._merge = merge

    def split(self, message: str | bytes) -> tuple[dict[str, Any], bytes]:
        """Split a message into the values of its head and its body, which is not decoded. Raises `BadBody`.

        Text that is not strict JSON, for example with NaN, is decoded as for error reports, so that they can point at
        the value.
        """
        try:
            if isinstance(message, bytes) and length(message)[1] > _MAX_MEMBERS:
                raise BadBody(f"the message has over {_MAX_MEMBERS} members")
            members = self._members(message)
            head = {name: self._head_value(members.pop(name)) for name in _HEAD if name in members}
        except _UNUSUAL as error:
            if isinstance(message, bytes):
                raise BadBody(f"the message is not a map of {self.what}: {error}") from None
            return _split_lenient(message)
        return head, self.encode(members)

    def _head_value(self, raw: msgspec.Raw) -> Any:
        """Decode a value of the head; a value that is too large becomes `_OversizedValue`."""
        size = len(memoryview(raw))
        return self._value(raw) if size <= _MAX_VALUE else _OversizedValue(size)

    def encode_reply(self, seq: int | None, reply: bytes) -> bytes:
        """Encode a reply of the coding as a message. In binary `status` is a column of the reply itself."""
        return self._merge(self.encode({"seq": seq} if self is BINARY else {"seq": seq, "status": 200}), reply)

    def split_replies(self, seqs: Sequence[int | None], replies: Sequence[bytes]) -> list[bytes]:
        """Split replies of over `MAX_PART` into parts, behind a message with their number."""
        messages: list[bytes] = []
        for seq, reply in zip(seqs, replies, strict=True):
            if len(reply) > MAX_PART:
                parts = self._parts(reply)
                messages += [self.encode({"seq": seq, "parts": len(parts)}), *parts]
            else:
                messages.append(reply)
        return messages

    def _parts(self, reply: bytes) -> list[bytes]:
        """Split a reply; text is not split within a character, because each message must be UTF-8."""
        parts, start = [], 0
        while start < len(reply):
            stop = start + MAX_PART
            while self is TEXT and stop < len(reply) and reply[stop] & 0xC0 == 0x80:
                stop -= 1
            parts.append(reply[start:stop])
            start = stop
        return parts

    def encode_problem(self, seq: int | None, error: ServiceError) -> bytes:
        """Encode an error with the members of problem+json; its `code` distinguishes it from a result."""
        document: dict[str, Any] = {
            "seq": seq,
            "status": error.status,
            "code": error.code,
            "title": error.title,
            "detail": error.detail,
            "errors": [problem.to_json() for problem in error.problems],
        }
        if error.retry_after is not None:
            document["retry_after"] = error.retry_after
        return self.encode(document)


class _OversizedValue:
    """Stands for a value that is too large for a head."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __repr__(self) -> str:
        return f"a value of {self._size} bytes"


def _split_lenient(message: str) -> tuple[dict[str, Any], bytes]:
    """Split text that only Python's decoder accepts as JSON."""
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


def _merge_text(head: bytes, body: bytes) -> bytes:
    return b"%b,%b" % (head[:-1], body[1:])


def _merge_binary(head: bytes, body: bytes) -> bytes:
    """Merge a head of fewer than 16 members with a body of fewer than 2^16 - 16."""
    count, start = (body[0] & 0x0F, 1) if body[0] != _MAP16 else (int.from_bytes(body[1:3], "big"), 3)
    count += head[0] & 0x0F
    size = bytes([_FIXMAP | count]) if count < 16 else bytes([_MAP16, *count.to_bytes(2, "big")])
    return b"".join((size, memoryview(head)[1:], memoryview(body)[start:]))


_FIXMAP, _MAP16 = 0x80, 0xDE  # first byte of a map in MessagePack


TEXT = MessageForm(JSON, JSON_PARTS, join_events, "JSON", msgspec.json, _merge_text)
BINARY = MessageForm(MSGPACK, MSGPACK_PARTS, join_columns, "MessagePack", msgspec.msgpack, _merge_binary)


class MessageBatch(msgspec.Struct):
    """One message, or several adjacent ones of the same kind that run as one batch.

    A refused message has its `error` and no content.
    """

    form: MessageForm
    size: int  # bytes of memory, about, with the decoded parts
    seqs: list[int | None]  # of each message
    learner: str | None = None
    operation: Operation | None = None
    kind: Any = None  # equal kinds can be joined; None: one message that runs alone
    counts: list[int] = []  # events of each message, unless it runs alone
    contents: list[Any] = []  # the same events, as received
    body: bytes = b""  # of a message that runs alone
    explain: int | None = None
    at_least: int | None = None  # position that the learner must have reached
    error: ServiceError | None = None
    arrivals: list[tuple[float, int]] = []  # times by `perf_counter()`, and the number of messages

    def __len__(self) -> int:
        return len(self.seqs)

    def refuse(self, error: ServiceError) -> None:
        """Set the error, unless there is one already."""
        self.error = self.error or error
        self.kind, self.counts, self.contents = None, [], []

    def add(self, other: MessageBatch) -> bool:
        """Append the next batch if it is of the same kind and the sum is not too large."""
        if self.kind is None or other.kind != self.kind or self.size + other.size > _MAX_BATCH:
            return False
        self.size += other.size
        self.seqs += other.seqs
        self.counts += other.counts
        self.contents += other.contents
        self.arrivals += other.arrivals
        return True

    def part(self, start: int, stop: int) -> MessageBatch:
        """Return some of the messages, all of which arrived in one read."""
        size = self.size * stop // len(self) - self.size * start // len(self)
        seqs, counts, contents = self.seqs[start:stop], self.counts[start:stop], self.contents[start:stop]
        arrivals = [(when, stop - start) for when, _ in self.arrivals[:1]]
        return msgspec.structs.replace(self, size=size, seqs=seqs, counts=counts, contents=contents, arrivals=arrivals)

    def each(self) -> list[MessageBatch]:
        """Return each of the messages, all of which arrived in one read."""
        return [self.part(i, i + 1) for i in range(len(self))]

    def separate(self) -> list[MessageBatch]:
        """Return each of the messages, to run alone."""
        times = [when for when, count in self.arrivals for _ in range(count)]
        batches = self.each()
        for batch, when in zip(batches, times, strict=True):
            batch.body, batch.arrivals = join_body(batch), [(when, 1)]
            batch.kind, batch.counts, batch.contents = None, [], []
        return batches


def count_new_seqs(seqs: Sequence[int | None], unanswered: Set[int | None], most: int) -> int:
    """Count the numbers, at most `most`, before the first one that an unanswered message has already."""
    if len(seqs) <= most and len(set(seqs)) == len(seqs) and unanswered.isdisjoint(seqs):
        return len(seqs)
    used = set(unanswered)
    for i, seq in enumerate(seqs[:most]):
        if seq is not None and seq in used:
            return i
        used.add(seq)
    return min(most, len(seqs))


def join_body(batch: MessageBatch) -> bytes:
    """Return one body for all messages of a batch."""
    return batch.body if batch.kind is None else batch.form.join(batch.contents)


_UNUSUAL = (msgspec.DecodeError, UnicodeError, RecursionError)


def read(messages: Sequence[str | bytes]) -> Iterator[MessageBatch]:
    """Parse the heads of messages into batches, in order. Bodies are not decoded; a bad head sets the `error`.

    Messages of unusual form are parsed when their batch is taken, because each takes long.
    """
    for kind, group in groupby(messages, type):
        messages_of_kind: list[Any] = list(group)
        yield from _texts(messages_of_kind) if kind is str else _binaries(messages_of_kind)


def _form_batches(heads: Iterable[_Head | str | bytes]) -> Iterator[MessageBatch]:
    """Form batches of messages, of which those of the usual form come as parsed heads."""
    last: MessageBatch | None = None
    for head in heads:
        if isinstance(head, (str, bytes)):
            if last is not None:
                yield last
                last = None
            yield _members(head)
            continue
        form, size, seq, learner, operation, kind, count, content = head
        if last is not None and kind == last.kind and learner == last.learner and last.size + size <= _MAX_BATCH:
            last.size += size
            last.seqs.append(seq)
            last.counts.append(count)
            last.contents.append(content)
        else:
            if last is not None:
                yield last
            last = MessageBatch(form, size, [seq], learner, operation, kind, [count], [content])
    if last is not None:
        yield last


_Head = tuple[
    MessageForm, int, int, str | None, Operation, Any, int, Any
]  # the first members of a batch of one message


def _texts(messages: Sequence[str]) -> Iterable[MessageBatch]:
    try:
        body, rows = heads(messages)
    except UnicodeEncodeError:  # in one of them
        return _form_batches(messages)
    counts, seqs, operations, starts, stops, learners, _ = rows.T.tolist()
    size = len(body) + _ENTRY * sum(counts)
    alike = min(counts) > 0 and max(learners) < 0 and min(operations) == max(operations)
    if alike and size <= _MAX_BATCH:  # the usual case costs next to nothing per message
        operation = _OPERATIONS[operations[0]]
        contents = [body[start:stop] for start, stop in zip(starts, stops, strict=True)]
        return [MessageBatch(TEXT, size, seqs, None, operation, operation, counts, contents)]
    return _form_batches(_text_head(message, body, row) for message, row in zip(messages, rows.tolist(), strict=True))


def _text_head(message: str, body: bytes, row: Sequence[int]) -> _Head | str:
    count, seq, number, start, stop, first, end = row
    if not 0 < count <= MAX_EVENTS:
        return message
    learner = None if first < 0 else body[first:end].decode()
    operation = _OPERATIONS[number]
    size = len(message) + _ENTRY * count
    return TEXT, size, seq, learner, operation, operation, count, body[start:stop]


def _binaries(messages: Sequence[bytes]) -> Iterable[MessageBatch]:
    rows = columnar_heads(messages)
    parsed = rows.tolist()
    counts = rows[:, COUNT].tolist()
    first = parsed[0]
    size = sum(map(len, messages)) + _ENTRY * sum(counts) * first[KINDS:PLACES].count(LIST)
    few = min(counts) > 0 and max(counts) <= MAX_EVENTS and size <= _MAX_BATCH
    if few and rows[:, LEARNER].max() < 0 and (rows[:, MAKE] == rows[0, MAKE]).all():  # the usual case
        contents = list(zip(messages, parsed, strict=True))
        kind, operation = tuple(first[MAKE]), _OPERATIONS[first[OPERATION]]
        return [MessageBatch(BINARY, size, rows[:, SEQ].tolist(), None, operation, kind, counts, contents)]
    return _form_batches(map(_binary_head, messages, parsed))


def _binary_head(message: bytes, head: list[int]) -> _Head | bytes:
    count = head[COUNT]
    if not 0 < count <= MAX_EVENTS:
        return message
    learner = None if head[LEARNER] < 0 else message[head[LEARNER] : head[LEARNER_END]].decode()
    operation = _OPERATIONS[head[OPERATION]]
    size = len(message) + _ENTRY * count * head[KINDS:PLACES].count(LIST)
    return BINARY, size, head[SEQ], learner, operation, tuple(head[MAKE]), count, (message, head)


def _members(message: str | bytes) -> MessageBatch:
    """Parse a message member by member; the members that are not of the head form the body."""
    form = TEXT if isinstance(message, str) else BINARY
    batch = MessageBatch(form, len(message), [None])
    try:
        head, body = form.split(message)
    except BadBody as error:
        batch.error = error
        return batch
    problems = []
    seq, operation, learner, *_ = (head.get(name) for name in _HEAD)
    if type(seq) is int and 0 <= seq <= MAX_SEQ:
        batch.seqs = [seq]
    else:
        problems.append(Problem.mismatch("/seq", head.get("seq", ABSENT), "a whole number from 0 to 2^53", _SEQ_SCHEMA))
    if isinstance(operation, str) and operation in _OPERATIONS:
        batch.operation = operation
    else:
        problems.append(Problem.choice("/op", head.get("op", ABSENT), _OPERATIONS))
    if learner is None or (isinstance(learner, str) and learner.isprintable()):  # a lone surrogate is not
        batch.learner = learner
    else:
        problems.append(Problem.mismatch("/learner", learner, "a name", {"type": "string"}))
    for name, (most, limit) in _OF_PREDICT.items():
        value = head.get(name)
        if type(value) is int and 1 <= value <= most and operation == "predict":
            setattr(batch, name, value)
        elif value is not None:
            if operation in ("update", "labels"):
                problems.append(Problem(f"/{name}", f"is a member of predict, not of {operation}", "unknown"))
            else:
                expected = {"type": "integer", "minimum": 1, "maximum": most}
                problems.append(Problem.mismatch(f"/{name}", value, f"a whole number from 1 to {limit}", expected))
    if problems:
        batch.refuse(Invalid("the message is refused", problems))
    batch.body = body
    return batch
