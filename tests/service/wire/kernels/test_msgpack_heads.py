"""The scan of messages in MessagePack: their heads, and where their columns stand."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.api.websocket import messages as frames
from service.api.websocket.messages import BINARY, join_body
from service.wire.kernels.msgpack_heads import (
    COLUMNS,
    COUNT,
    DTYPES,
    KINDS,
    LEARNER,
    LEARNER_END,
    LIST,
    OPERATION,
    PLACES,
    SEQ,
    WIDTH,
    columnar_heads,
)
from service.wire.kernels.websocket import MAX_SEQ, OPERATIONS

pytestmark = pytest.mark.integration

pack = msgspec.msgpack.encode


def array(dtype: str, shape: list[int]) -> dict[str, Any]:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return {"dtype": dtype, "shape": shape, "data": bytes(i % 251 for i in range(size))}


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
)


@st.composite
def usual(draw: st.DrawFn) -> dict[str, Any]:
    """Return a message, its members in any order."""
    n, width = draw(st.integers(1, 20)), draw(st.integers(1, 40))
    message: dict[str, Any] = {
        "seq": draw(st.integers(0, 300) | st.integers(0, MAX_SEQ)),
        "op": draw(st.sampled_from(OPERATIONS)),
    }
    if draw(st.booleans()):
        message["learner"] = draw(st.none() | st.text("abz09-_ ", max_size=40))
    if draw(st.booleans()):
        message["x"] = array(draw(st.sampled_from(DTYPES[1:3])), [n, width])
    column = (
        st.none()
        | st.sampled_from(DTYPES[1:]).map(lambda dtype: array(dtype, [n]))
        | st.lists(scalars, min_size=n, max_size=n)
    )
    for name in COLUMNS[1:]:
        if draw(st.booleans()):
            message[name] = draw(column)
    if message.get("x") is None and message.get("ids") is None:
        message["ids"] = list(map(str, range(n)))
    order = draw(st.permutations(list(message)))
    return {name: message[name] for name in order}


USUAL = {"seq": 5, "op": "update", "x": array("float32", [2, 3]), "labels": array("int8", [2]), "ids": ["a", "b"]}


def members(messages: list[bytes]) -> list[dict[str, Any] | None]:
    """Return the members of each message; None for an unusual one."""
    output: list[dict[str, Any] | None] = []
    for body, head in zip(messages, columnar_heads(messages).tolist(), strict=True):
        n = head[COUNT]
        if not n:
            output.append(None)
            continue
        message: dict[str, Any] = {"seq": head[SEQ], "op": OPERATIONS[head[OPERATION]]}
        if head[LEARNER] >= 0:
            message["learner"] = body[head[LEARNER] : head[LEARNER_END]].decode()
        for column, name in enumerate(COLUMNS):
            kind, data = head[KINDS + column], body[head[PLACES + 2 * column] : head[PLACES + 2 * column + 1]]
            if kind == LIST:
                message[name] = msgspec.msgpack.decode(b"\xdd" + n.to_bytes(4, "big") + data)
            elif kind:
                message[name] = {"dtype": DTYPES[kind], "shape": [n] if column else [n, head[WIDTH]], "data": data}
        output.append(message)
    return output


@settings(max_examples=100)
@given(st.lists(usual(), min_size=1, max_size=5))
def test_usual_messages_are_read_like_by_any_decoder(messages: list[dict[str, Any]]) -> None:
    present = [{name: value for name, value in message.items() if value is not None} for message in messages]
    assert members([pack(message) for message in messages]) == present


@settings(max_examples=100)
@given(usual(), st.data())
def test_a_truncated_message_is_refused_without_affecting_its_neighbours(
    message: dict[str, Any], data: st.DataObject
) -> None:
    whole = pack(message)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    before, none, behind = members([pack(USUAL), cut, pack(USUAL)])
    assert (before, none, behind) == (USUAL, None, USUAL)


@settings(max_examples=150)
@given(usual(), st.data())
def test_corrupted_messages_are_read_like_by_another_decoder_or_refused(
    message: dict[str, Any], data: st.DataObject
) -> None:
    changed = bytearray(pack(message))
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        (output,) = members([bytes(changed)])
    except (msgspec.DecodeError, UnicodeDecodeError):  # of the entries of a list, which are not looked at
        return
    if output is not None:
        read = msgspec.msgpack.decode(bytes(changed))
        assert pack({name: value for name, value in read.items() if value is not None}) == pack(
            {name: output[name] for name in read if name in output}
        )
        assert output.keys() <= read.keys()


X = USUAL["x"]
ODD: dict[str, Any] = {
    "nothing": b"",
    "no map": pack([1]),
    "no members": pack({}),
    "more behind it": pack(USUAL) + b"\x00",
    "a member twice": b"\x86" + pack(USUAL)[1:] + pack("seq") + pack(5),
    "an unknown member": pack({**USUAL, "explain": 1}),
    "a long name": pack({**USUAL, "operation": 1}),
    "a number for a name": pack({**USUAL, 1: 1}),
    "no seq": pack({name: value for name, value in USUAL.items() if name != "seq"}),
    "no op": pack({name: value for name, value in USUAL.items() if name != "op"}),
    "another op": pack({**USUAL, "op": "updates"}),
    "an op that is none": pack({**USUAL, "op": 1}),
    "a seq below 0": pack({**USUAL, "seq": -1}),
    "a seq above all": pack({**USUAL, "seq": MAX_SEQ + 1}),
    "a seq of 2^64 - 1": pack({**USUAL, "seq": 2**64 - 1}),
    "a seq that is not whole": pack({**USUAL, "seq": 5.0}),
    "a name that is no ASCII": pack({**USUAL, "learner": "é"}),
    "a name with a line's end": pack({**USUAL, "learner": "a\n"}),
    "a name that is a number": pack({**USUAL, "learner": 7}),
    "x of one axis": pack({**USUAL, "x": array("float32", [2])}),
    "x of three axes": pack({**USUAL, "x": array("float32", [2, 1, 3])}),
    "x of whole numbers": pack({**USUAL, "x": array("int8", [2, 3])}),
    "x of another type": pack({**USUAL, "x": {**X, "dtype": "float16"}}),
    "x without a type": pack({**USUAL, "x": {"shape": [2, 3], "data": bytes(24)}}),
    "x with a type twice": pack(USUAL).replace(pack("shape"), pack("dtype")),
    "x with a member more": pack({**USUAL, "x": {**X, "more": 1}}),
    "x that is a list": pack({**USUAL, "x": [[1.0, 2.0, 3.0]] * 2}),
    "x with fewer numbers": pack({**USUAL, "x": {**X, "shape": [2, 4]}}),
    "x of more rows than bytes": pack({**USUAL, "x": {"dtype": "float32", "shape": [2**53, 0], "data": b""}}),
    "x as text": pack({**USUAL, "x": {**X, "data": "a" * 24}}),
    "no rows": pack({**USUAL, "x": array("float32", [0, 3]), "labels": [], "ids": []}),
    "fewer labels": pack({**USUAL, "labels": array("int8", [1])}),
    "fewer ids": pack({**USUAL, "ids": ["a"]}),
    "labels of two axes": pack({**USUAL, "labels": array("int8", [2, 1])}),
    "labels of 32 bits": pack({**USUAL, "labels": {"dtype": "int32", "shape": [2], "data": bytes(8)}}),
    "a list in a list": pack({**USUAL, "ids": ["a", ["b"]]}),
    "a map in a list": pack({**USUAL, "ids": ["a", {}]}),
    "bytes in a list": pack({**USUAL, "ids": ["a", b"b"]}),
    "a moment in a list": pack({**USUAL, "ids": ["a", msgspec.msgpack.Ext(1, b"b")]}),
    "more ids than there could be": pack({"seq": 5, "op": "labels"})[:1].replace(b"\x82", b"\x83")
    + pack({"seq": 5, "op": "labels"})[1:]
    + pack("ids")
    + b"\xdd\xff\xff\xff\xff",
    "labels alone": pack({"seq": 5, "op": "labels", "labels": [1]}),
}


@pytest.mark.parametrize("what", ODD)
def test_an_unusual_message_is_left_to_the_decoder(what: str) -> None:
    assert members([ODD[what], pack(USUAL)]) == [None, USUAL]


def test_messages_of_one_kind_become_one_request_and_one_body() -> None:
    messages = [{**USUAL, "seq": seq, "ids": [f"{seq}a", f"{seq}b"]} for seq in range(9)]
    (request,) = frames.read([pack(message) for message in messages])
    assert request.form is BINARY
    assert (request.seqs, request.counts, request.operation) == (list(range(9)), [2] * 9, "update")
    body = msgspec.msgpack.decode(join_body(request))
    assert body["x"] == {"dtype": "float32", "shape": [18, 3], "data": X["data"] * 9}  # type: ignore[index]
    assert body["labels"]["shape"] == [18]
    assert body["ids"] == [id for message in messages for id in message["ids"]]  # type: ignore[attr-defined]
    request.arrivals = [(0.0, len(request))]
    assert [msgspec.msgpack.decode(join_body(item)) for item in request.separate()] == [
        {name: message[name] for name in ("x", "labels", "ids")} for message in messages
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"op": "predict"},
        {"learner": "b"},
        {"x": array("float64", [2, 3])},
        {"x": array("float32", [2, 4])},
        {"labels": [1, 0]},
        {"labels": array("float32", [2])},
        {"weights": [1.0, 1.0]},
        {"ids": None},
    ],
)
def test_messages_of_different_kinds_become_separate_requests(other: dict[str, Any]) -> None:
    requests = list(frames.read([pack(USUAL), pack({**USUAL, **other, "seq": 6}), pack({**USUAL, "seq": 7})]))
    assert [request.seqs for request in requests] == [[5], [6], [7]]


def test_a_request_uses_no_more_memory_than_its_size() -> None:
    """Whatever else came in the same read; a list's entries count more, as they are objects once they are read."""
    large = pack({**USUAL, "learner": "a", "x": array("float32", [100, 300]), "labels": None, "ids": None})
    small = pack({**USUAL, "learner": "b", "x": array("float32", [100, 5]), "labels": None, "ids": None})
    requests = list(frames.read([large, small]))
    assert [request.size for request in requests] == [len(large), len(small)]
    assert [sum(len(message) for message, _ in request.contents) for request in requests] == [len(large), len(small)]
    (listed,) = frames.read([pack({**USUAL, "ids": ["a", "b"]})])
    assert listed.size > len(pack(USUAL)) + 100
