"""Served events are encoded and decoded to the bit, and malformed ones are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from learners.numerics.arrays import Sparse
from learners.records import slice_rows
from learners.scorer import Predictions
from service.engine.records.served_codec import pack_served, unpack_served
from service.errors import Damaged

NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=64)


def bits(array: Any) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@st.composite
def draw_predictions(draw: st.DrawFn, n: int) -> tuple[Predictions, np.ndarray | None]:
    column = arrays(np.float64, n, elements=NUMBERS)
    decisions = draw(arrays(np.int64, n, elements=st.integers(0, 127)))
    two = draw(st.booleans())
    scores = Predictions(draw(column), decisions, draw(column) if two else None, draw(column) if two else None)
    return scores, draw(st.none() | arrays(np.float64, n, elements=st.floats(0, 1e15)))


@st.composite
def sparse(draw: st.DrawFn, n: int) -> Sparse:
    sizes = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    total = int(indptr[-1])
    indices = draw(arrays(np.int64, total, elements=st.integers(0, 2**24 - 1)))
    return Sparse(draw(arrays(np.float64, total, elements=NUMBERS)), indices, indptr)


def check(rows: Any, scores: Predictions, costs: Any, like: Any) -> None:
    n = len(scores.scores)
    packed_event = pack_served(rows, scores, costs, 2**53)
    output = unpack_served(packed_event, like, "what was remembered of a")
    for item, other in zip(
        rows if isinstance(rows, Sparse) else [rows],
        output.rows if isinstance(output.rows, Sparse) else [output.rows],
        strict=True,
    ):
        assert (item.dtype, item.shape) == (other.dtype, other.shape)
        assert bits(item) == bits(other)
    assert bits(output.scores) == bits(scores.scores)
    assert output.decisions.tolist() == scores.decisions.tolist()
    for column, entry in ((scores.probabilities, output.probabilities), (scores.thresholds, output.thresholds)):
        assert np.isnan(entry).all() if column is None else bits(entry) == bits(column)
    assert output.costs.tolist() == ([1.0] * n if costs is None else costs.tolist())
    order = np.arange(n)[::-1]  # they come back one by one, in the order of their labels
    again = unpack_served([packed_event[i] for i in order], like, "what")
    assert bits(again.scores) == bits(scores.scores[order])


@settings(max_examples=40)
@given(st.data(), st.integers(0, 5))
def test_dense_rows_are_decoded_bit_for_bit(data: st.DataObject, n: int) -> None:
    rows = data.draw(arrays(np.float64, (n, 3), elements=NUMBERS))
    check(rows, *data.draw(draw_predictions(n)), like=np.empty((0, 3)))


@settings(max_examples=40)
@given(st.data(), st.integers(0, 5))
def test_sparse_rows_are_decoded_bit_for_bit(data: st.DataObject, n: int) -> None:
    like = Sparse(np.empty(0), np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64))
    check(data.draw(sparse(n)), *data.draw(draw_predictions(n)), like=like)


def test_row_slices_and_non_contiguous_columns_are_encoded() -> None:
    rows = Sparse(np.arange(6.0), np.arange(6) * 3, np.array([0, 2, 2, 6]))
    scores = Predictions(np.arange(6.0)[::2][:2], np.array([1, 0]), np.array([0.5, 0.25]), np.array([0.5, 0.5]))
    like = Sparse(np.empty(0), np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64))
    check(slice_rows(rows, 1, 3), scores, None, like)
    check(np.arange(12.0).reshape(2, 6)[:, ::2], scores, np.array([1.0, 5.0]), np.empty((0, 3)))


def packed_event() -> bytes:
    scores = Predictions(np.array([1.5]), np.array([1]), np.array([0.5]), np.array([0.25]))
    return pack_served(np.array([[1.0, 2.0, 3.0]]), scores, None, 7)[0]


def changed(place: int, value: Any) -> bytes:
    """Return the bytes with another member at `place`."""
    parts = msgspec.msgpack.decode(packed_event())
    parts[place] = value
    return msgspec.msgpack.encode(parts)


def test_the_format_matches_its_documentation() -> None:
    parts = msgspec.msgpack.decode(packed_event())
    assert parts == [1, 1.5, 0.5, 0.25, 1, 1.0, 7, np.array([1.0, 2.0, 3.0]).tobytes(), None, None]


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "readable"),
        (b"\xff rubbish", "readable"),
        (packed_event()[:-1], "readable"),
        (packed_event() + b"\x00", "readable"),
        (changed(4, "one"), "readable"),
        (changed(0, 2), "release"),
        (changed(7, np.array([1.0, 2.0]).tobytes()), "width"),
        (changed(7, b"12345"), "incomplete"),
        (changed(8, b"1234"), "incomplete"),
    ],
    ids=["empty", "rubbish", "cut", "longer", "type", "version", "width", "number", "columns"],
)
def test_incomplete_data_is_refused(data: bytes, word: str) -> None:
    with pytest.raises(Damaged, match=rf"^it\b.*\b{word}\b"):
        unpack_served([packed_event(), data], np.empty((0, 3)), "it")


@pytest.mark.parametrize("columns", [None, b"", b"123", np.arange(2, dtype="<u4").tobytes()])
def test_an_incomplete_sparse_row_is_refused(columns: bytes | None) -> None:
    like = Sparse(np.empty(0), np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64))
    with pytest.raises(Damaged, match=r"^it\b.*\bincomplete\b"):
        unpack_served([changed(8, columns)], like, "it")


@pytest.mark.parametrize(
    "data",
    [
        b"\x99\x01\xa1\xff",  # text that is not UTF-8
        b"\x91" * 5000,
        msgspec.msgpack.encode([1, 0.5, 0.5, 0.5, 2**63, 1.0, 3, b"", None]),
        msgspec.msgpack.encode([1, 0.5, 0.5, 0.5, -1, 1.0, 3, b"", None]),
    ],
)
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Damaged, match=r"^it\b.*\breadable\b"):
        unpack_served([data], np.empty((0, 0)), "it")
