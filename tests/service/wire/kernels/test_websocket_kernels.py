"""The scan of a read of the websocket: the frames of a client, and what JSON says of the heads of messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from service.api.websocket import messages
from service.api.websocket.messages import TEXT, join_body
from service.errors import BadBody
from service.wire.kernels.websocket import MAX_SEQ, heads, payloads

USUAL = '{"seq": 5, "op": "update", "events": [{"x": [1, 2], "label": 1}]}'

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
usual = st.fixed_dictionaries(
    {
        "seq": st.integers(0, MAX_SEQ),
        "op": st.sampled_from(["update", "predict", "labels"]),
        "events": st.lists(values, min_size=1, max_size=4),
    },
    optional={"learner": st.none() | st.text("abz09-_ ", max_size=8)},
)
written = st.builds(
    lambda message, order, separators, ascii_only: json.dumps(
        {name: message[name] for name in sorted(message, key=order.index)},
        separators=separators,
        ensure_ascii=ascii_only,
    ),
    usual,
    st.permutations(["seq", "op", "events", "learner"]),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r ")]),
    st.booleans(),
).filter(lambda text: max(text) < "\ud800" or max(text) > "\udfff")


def members(texts: list[str]) -> list[dict[str, Any] | None]:
    """Return the members of each message; None for an unusual one."""
    body, rows = heads(texts)
    output: list[dict[str, Any] | None] = []
    for count, seq, operation, start, stop, first, end in rows.tolist():
        if not count:
            output.append(None)
            continue
        events = json.loads(b"[%b]" % body[start:stop])
        assert len(events) == count
        learner = None if first < 0 else body[first:end].decode()
        output.append(
            {"seq": seq, "op": ("update", "predict", "labels")[operation], "learner": learner, "events": events}
        )
    return output


@settings(max_examples=100)
@given(st.lists(written, min_size=1, max_size=5))
def test_usual_messages_are_read_like_json(texts: list[str]) -> None:
    assert members(texts) == [{"learner": None, **json.loads(text)} for text in texts]


@settings(max_examples=100)
@given(written, st.data())
def test_a_truncated_message_is_refused_without_affecting_its_neighbours(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text) - 1))
    before, none, behind = members([USUAL, text[:cut], USUAL])
    assert (before, none, behind) == (members([USUAL])[0], None, members([USUAL])[0])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        USUAL + "}",
        USUAL[:-1] + ",}",
        USUAL.replace("5", "05"),
        USUAL.replace("5", "-5"),
        USUAL.replace("5", "5.0"),
        USUAL.replace("5", str(MAX_SEQ + 1)),
        USUAL.replace("5", "9" * 30),
        USUAL.replace("5", '5, "seq": 5'),
        USUAL.replace("5", '5, "explain": 1'),
        USUAL.replace("update", "updates"),
        USUAL.replace("update", "predictions"),
        USUAL.replace("update", "upd\\u0061te"),
        USUAL.replace('"seq"', '"seq\\u0020"'),
        USUAL.replace('"seq": 5, ', ""),
        USUAL.replace('"op": "update", ', ""),
        USUAL.replace("events", "eventss"),
        '{"seq": 5, "op": "update", "learner": "a\\n", "events": [{}]}',
        '{"seq": 5, "op": "update", "learner": "é", "events": [{}]}',
        '{"seq": 5, "op": "update", "learners": "a", "events": [{}]}',
        '{"seq": 5, "op": "update", "events": []}',
        '{"seq": 5, "op": "update", "events": [ ]}',
        '{"seq": 5, "op": "update", "events": {}}',
        '{"seq": 5, "op": "update", "events": [{]}]}',
        '{"seq": 5, "op": "update", "events": [[}]}',
        '{"seq": 5, "op": "update", "events": ["]}',
        '{"seq": 5, "op": "update", "events": ["\\"]}',
        USUAL.replace("1, 2", "[" * 100 + "]" * 100),
    ],
)
def test_an_unusual_head_is_left_to_the_decoder(text: str) -> None:
    assert members([text, USUAL]) == [None, *members([USUAL])]


def test_an_unencodable_message_does_not_affect_its_neighbours() -> None:
    odd = USUAL.replace("label", "\ud800")
    with pytest.raises(UnicodeEncodeError):
        heads([odd])
    requests = list(messages.read([USUAL, odd]))
    assert [request.seqs for request in requests] == [[5], [None]]
    assert isinstance(requests[1].error, BadBody)


def test_adjacent_messages_of_one_kind_become_one_request_within_the_limit() -> None:
    def text(seq: int, op: str = "update", learner: str = "null", size: int = 0) -> str:
        return f'{{"seq": {seq}, "op": "{op}", "learner": {learner}, "events": [{{}}, "{"é" * size}"]}}'

    texts = [text(0), text(1), text(2, "predict"), text(3), text(4, learner='"a"'), text(5, learner='"a"'), "nonsense"]
    texts += [text(6), text(7, size=100_000), text(8), text(9, size=100_000), text(10)]
    requests = list(messages.read(texts))
    assert [request.seqs for request in requests] == [[0, 1], [2], [3], [4, 5], [None], [6, 7, 8], [9, 10]]
    assert [request.learner for request in requests] == [None, None, None, "a", None, None, None]
    assert [request.counts for request in requests[:4]] == [[2, 2], [2], [2], [2, 2]]
    assert join_body(requests[0]) == b'{"events":[{}, "",{}, ""]}'
    assert [join_body(item) for item in requests[3].each()] == [b'{"events":[{}, ""]}'] * 2
    assert sum(item.size for item in requests[5].each()) == requests[5].size
    assert next(messages.read([text(i) for i in range(3000)])).form is TEXT  # too many for one: as many as have room
    assert sum(map(len, messages.read([text(i) for i in range(3000)]))) == 3000


# Frames

plain = st.tuples(st.sampled_from([Opcode.TEXT, Opcode.BINARY]), st.binary(max_size=200) | st.just(bytes(70_000)))


@settings(max_examples=100)
@given(st.lists(plain, max_size=6), st.integers(0, 300), st.integers(0, 5))
def test_payloads_are_those_of_complete_frames(value: list[tuple[Opcode, bytes]], cut: int, before: int) -> None:
    frames_ = [Frame(opcode, payload).serialize(mask=True) for opcode, payload in value]
    data = b"".join(frames_)
    data = bytes(before) + data[: max(0, len(data) - cut)]
    whole, end = [], before
    for (opcode, payload), frame in zip(value, frames_, strict=True):
        if end + len(frame) > len(data):
            break
        whole.append((0x80 | opcode, payload))
        end += len(frame)
    body, spans, stop = payloads(data, before, 70_000)
    assert [(first, body[start:behind]) for first, start, behind in spans] == whole
    assert stop == end


@pytest.mark.parametrize(
    ("odd", "largest"),
    [
        (Frame(Opcode.TEXT, b"abc").serialize(mask=False), 100),
        (Frame(Opcode.TEXT, b"abc", fin=False).serialize(mask=True), 100),
        (Frame(Opcode.PING, b"abc").serialize(mask=True), 100),
        (Frame(Opcode.CONT, b"abc").serialize(mask=True), 100),
        (b"\xc1" + Frame(Opcode.TEXT, b"abc").serialize(mask=True)[1:], 100),
        (Frame(Opcode.TEXT, b"abcd").serialize(mask=True), 3),
        (b"\x81\xff" + b"\xff" * 8 + bytes(40), 2**62),
        (b"\x81\xff" + b"\x7f" + b"\xff" * 7 + bytes(40), 2**62),
    ],
    ids=["unmasked", "a piece", "a ping", "a continuation", "reserved", "too large", "no length", "a far end"],
)
def test_other_frames_are_left_to_the_library(odd: bytes, largest: int) -> None:
    good = Frame(Opcode.TEXT, b"abc").serialize(mask=True)
    body, spans, stop = payloads(good + odd + good, 0, largest)
    assert (body, spans, stop) == (b"abc", [[0x81, 0, 3]], len(good))


def test_many_small_frames_are_returned_in_several_calls() -> None:
    frame = Frame(Opcode.TEXT, b"a").serialize(mask=True)
    body, spans, stop = payloads(frame * 2000, 0, 100)
    assert 0 < len(spans) < 2000
    assert stop == len(spans) * len(frame)
    assert body == b"a" * len(spans)
