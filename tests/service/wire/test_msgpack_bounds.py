"""MessagePack that is not decoded: what its first bytes tell, what is quoted of it, and what is left alone."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.wire.msgpack_bounds import NIL, UndecodedValue, cells, glance, length, members, opened, scalars

pack = msgspec.msgpack.encode


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(pack(value))


@pytest.mark.parametrize("n", [0, 1, 15, 16, 31, 255, 256, 65_535, 65_536])
def test_lengths_are_read_from_the_first_bytes(n: int) -> None:
    assert length(raw([None] * n)) == ("list", n)
    assert length(raw(dict.fromkeys(range(n)))) == ("map", n)
    assert length(raw("a" * n)) == length(raw(bytes(n))) == length(raw(n)) == (None, 0)


@given(
    value=st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text())
)
@settings(max_examples=80)
def test_scalars_are_decoded(value: Any) -> None:
    assert length(raw(value)) == (None, 0)
    assert (glance(raw(value)), scalars(raw([value])), cells(raw([[value], value]))) == (
        value,
        [value],
        [[value], value],
    )
    assert (raw(value) == NIL) == (value is None)


@pytest.mark.parametrize(
    "value", ["a" * 40, "a" * 200, "a" * 5000, "a" * 70_000, bytes(600), bytes(5000), bytes(70_000)]
)
def test_text_and_bytes_of_any_length_are_decoded(value: Any) -> None:
    assert glance(raw(value)) == value


def size(value: Any) -> list[str]:
    """Return the kind and the size of a value that was not decoded, in the order of its summary."""
    assert isinstance(value, UndecodedValue)
    return re.findall(r"list|map|bytes|\d+", repr(value))


def test_small_values_are_decoded_and_large_ones_summarised() -> None:
    assert glance(raw({"a": [1, {}]})) == {"a": [1, {}]}
    assert size(glance(raw([[]] * 600))) == ["list", "600"]
    assert size(glance(raw({str(i): i for i in range(600)}))) == ["map", "600"]
    assert size(glance(raw(msgspec.msgpack.Ext(7, bytes(600))))) == ["604", "bytes"]
    assert isinstance(glance(msgspec.Raw(b"\xa1\xff")), UndecodedValue)
    assert isinstance(glance(msgspec.Raw(b"\x81\x80\x01")), UndecodedValue)


def test_maps_are_opened_within_limits() -> None:
    actual = opened(raw({"name": "a" * 600, "offset": [0] * 600}))
    assert (actual["name"], size(actual["offset"])) == ("a" * 600, ["list", "600"])
    assert size(opened(raw({str(i): "a" * 90 for i in range(17)}))) == ["map", "17"]
    assert isinstance(opened(msgspec.Raw(b"\x81\x90\x01")), UndecodedValue)
    assert members(raw({"a": 1, 2: None}), 2) == {"a": raw(1), 2: NIL}
    assert members(raw({"a": 1, 2: None}), 1) == members(raw([1]), 9) == members(b"", 9) is None


def test_entries_of_unexpected_type_are_not_decoded() -> None:
    first, *others = scalars(raw([1, [2], {}, b"abc"]))
    assert (first, [size(value) for value in others]) == (1, [["list", "1"], ["map", "0"], ["5", "bytes"]])
    first, *others = cells(raw([[2, "a"], [[]], {3: 4}]))
    assert (first, [size(value) for value in others]) == ([2, "a"], [["list", "1"], ["map", "1"]])
