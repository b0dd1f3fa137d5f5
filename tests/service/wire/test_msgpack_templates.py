"""Replies in MessagePack that are cut for many messages at once: each is what encoding it alone gives."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.wire.msgpack_templates import in_parts

seqs = st.integers(0, 2**53) | st.integers(0, 300)


@settings(max_examples=100)
@given(
    st.lists(st.tuples(seqs, st.sampled_from([1, 1, 1, 2, 3, 200]), st.integers(0, 300)), min_size=1, max_size=20),
    st.integers(0, 2**32),
)
def test_each_reply_equals_a_separately_encoded_reply(parts: list[tuple[int, int, int]], seed: int) -> None:
    numbers, counts, expected = (list(part) for part in zip(*parts, strict=True))
    random = np.random.default_rng(seed)
    columns: dict[str, np.ndarray[Any, Any]] = {
        "scores": random.normal(size=sum(counts)),
        "labels": random.integers(-128, 128, sum(counts)).astype(np.int8),
    }
    alike = {"position": 70_000, "class_counts": {"100 %b": 1}}
    report = [msgspec.msgpack.encode({"remembered": item, "b": n}) for item, n in zip(expected, counts, strict=True)]
    actual = in_parts(numbers, counts, report, alike, columns)
    start = 0
    for seq, n, remembered, reply in zip(numbers, counts, expected, actual, strict=True):
        arrays = {
            name: {"dtype": str(column.dtype), "shape": [n], "data": column[start : start + n].tobytes()}
            for name, column in columns.items()
        }
        assert reply == msgspec.msgpack.encode({"seq": seq, "remembered": remembered, "b": n, **alike, **arrays})
        start += n
