"""Replies of a websocket in parts: their bytes stay the same, and text is cut between characters."""

from __future__ import annotations

import json

import msgspec
import pytest

from service.api.websocket.messages import BINARY, MAX_PART, TEXT, MessageForm


@pytest.mark.parametrize("form", [TEXT, BINARY])
@pytest.mark.parametrize("size", [0, 1, MAX_PART])
def test_a_reply_that_is_not_large_is_one_message(form: MessageForm, size: int) -> None:
    replies = [b"a" * size, b"b"]
    assert form.split_replies([1, 2], replies) == replies


@pytest.mark.parametrize("size", [MAX_PART + 1, 2 * MAX_PART, 2 * MAX_PART + 1])
def test_a_large_reply_is_joined_from_its_parts(size: int) -> None:
    reply = (bytes(range(256)) * (size // 256 + 1))[:size]
    before, head, *parts, after = BINARY.split_replies([1, 2, None], [b"a", reply, b"b"])
    assert (before, after) == (b"a", b"b")
    assert msgspec.msgpack.decode(head) == {"seq": 2, "parts": len(parts)}
    assert max(map(len, parts)) <= MAX_PART
    assert b"".join(parts) == reply


@pytest.mark.parametrize("character", ["\u00e4", "\u20ac", "\U0001f600"])
@pytest.mark.parametrize("shift", range(4))
def test_text_is_cut_between_characters(character: str, shift: int) -> None:
    reply = "a" * shift + character * MAX_PART
    head, *parts = TEXT.split_replies([5], [reply.encode()])
    assert json.loads(head) == {"seq": 5, "parts": len(parts)}
    assert max(map(len, parts)) <= MAX_PART
    assert "".join(part.decode() for part in parts) == reply
