"""Decoders of bytes from elsewhere, driven by hypothesis: what comes out is whole, or it is refused, by name.

`python -m tests.campaigns.fuzz` mutates valid input. Here values are generated from the members that exist.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from learners.config import Config
from learners.numerics.arrays import Sparse
from learners.records import FitResult, LabelledBatch, Rollback, ServedBatch, SettingsChange
from service.api.websocket import messages
from service.engine.records.codec import pack_record, unpack_record, unpack_snapshot
from service.engine.records.served_codec import unpack_served
from service.engine.records.validation import check_record
from service.errors import BadBody, Damaged, Invalid, ServiceError
from service.wire import json_decode, msgpack_decode

pytestmark = pytest.mark.integration

CONFIGS = {
    kind: Config.of({"algorithm": "loam-ada", "features": features})
    for kind, features in {
        "dense": {"kind": "dense", "dim": 2},
        "sparse": {"kind": "sparse", "dim": 4},
        "named": {"kind": "named", "bits": 4},
    }.items()
}
DTYPES = ("<f8", "<f4", "<i8", "<u8", "<u4", "|i1", "|b1", "float32", "float64", "int8", "int32", "int64", "uint64")
TEXTS = ("x", "labels", "csr", "features", "a", "late", "dense", "loam-ada", "\udcff", "", *DTYPES)
ONCE = settings(max_examples=20, suppress_health_check=list(HealthCheck))

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.integers(-2, 4)
    | st.floats()
    | st.sampled_from([text for text in TEXTS if text != "\udcff"])
    | st.binary(max_size=40)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(scalars, inner, max_size=4), max_leaves=8
)
shapes = st.lists(st.integers(0, 3) | st.integers(-1, 2**63), max_size=3)
numbers = st.lists(st.floats() | st.sampled_from([0.0, 1.0, -1.0]), max_size=6).map(
    lambda column: np.array(column, dtype="<f8").tobytes()
)
blobs = numbers | st.binary(max_size=48) | st.binary(min_size=2, max_size=2)
stored = st.tuples(st.sampled_from(DTYPES), shapes, blobs).map(list) | st.builds(
    lambda data: ["<f8", [len(data) // 8], data], numbers
)
columns = st.fixed_dictionaries({"dtype": st.sampled_from(DTYPES), "shape": shapes, "data": blobs}) | st.builds(
    lambda data: {"dtype": "float64", "shape": [len(data) // 16, 2], "data": data[: len(data) // 16 * 16]}, numbers
)


def maps(members: tuple[str, ...], map_members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[Any, Any]]:
    """Return a strategy of maps with some known members, and others."""
    return st.dictionaries(st.sampled_from(members) | scalars, map_members | values, max_size=len(members))


PARTS = (
    "labels", "x", "data", "indices", "indptr", "weights", "times", "ids", "segments", "afters", "costs", "late",
    "hashes", "scores", "decisions", "probabilities", "thresholds", "ready", "position", "state", "parts", "events",
    "restores", "dim", "arrays", "config", "algorithm", "features", "kind",
)  # fmt: skip
BODY = (
    "x", "csr", "features", "labels", "weights", "times", "ids", "source", "events", "seq", "op", "learner", "explain",
    "at_least", "label", "id", "time", "indices", "values",
)  # fmt: skip


def packed(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def tried(call: Callable[..., Any], *arguments: Any) -> tuple[Any, ServiceError | None]:
    """Return what a call gives, or how it refuses; nothing else may be raised."""
    try:
        return call(*arguments), None
    except ServiceError as error:
        return None, error


def checked(refusal: ServiceError) -> None:
    """Check that a refusal says what is wrong, and where."""
    assert refusal.detail
    assert refusal.problems or not isinstance(refusal, Invalid)
    assert all(problem.pointer == "" or problem.pointer.startswith("/") for problem in refusal.problems)


@ONCE
@given(kind=st.integers(0, 9), body=(maps(PARTS, stored) | values).map(packed) | st.binary(max_size=60))
def test_arbitrary_records_are_decoded_or_refused(kind: int, body: bytes) -> None:
    data = struct.pack("<4sBBI", b"rare", 1, kind, zlib.crc32(body)) + body
    for read in (unpack_record, unpack_snapshot):
        actual, refusal = tried(read, data, "record 7")
        assert refusal is None or refusal.detail.startswith("record 7 ")
        if isinstance(actual, (LabelledBatch, SettingsChange, FitResult, Rollback, ServedBatch)):
            for config in CONFIGS.values():
                try:
                    check_record(actual, config, "record 7")
                except Damaged:
                    continue
                assert unpack_record(pack_record(actual), "again").__class__ is actual.__class__


@ONCE
@given(st.binary(max_size=80))
def test_bytes_without_a_record_header_are_refused(data: bytes) -> None:
    for read in (unpack_record, unpack_snapshot):
        with pytest.raises(Damaged, match=r"^it\b"):
            read(data, "it")


@ONCE
@given(
    st.lists(st.lists(scalars | numbers, max_size=10).map(packed) | values.map(packed), max_size=3),
    st.sampled_from([np.zeros((1, 2)), Sparse(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64))]),
)
def test_arbitrary_served_events_are_decoded_or_refused(sent_body: list[bytes], like: Any) -> None:
    report, refusal = tried(unpack_served, sent_body, like, "event 'a'")
    if refusal is not None:
        assert refusal.detail.startswith("event 'a' ")
    else:
        assert len(report.scores) == len(report.decisions) == len(sent_body)


READERS: dict[str, Callable[[bytes, Config], tuple[Any, Any]]] = {
    f"{module.__name__.rpartition('.')[2]}.{name}": getattr(module, name)
    for module in (msgpack_decode, json_decode)
    for name in ("decode_update", "decode_labels", "decode_events")
}


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("reader", READERS)
@ONCE
@given(data=st.data())
def test_arbitrary_bodies_are_decoded_or_refused(reader: str, kind: str, data: st.DataObject) -> None:
    binary = reader.startswith("columnar")
    if binary:
        body = data.draw((maps(BODY, columns) | values).map(packed) | st.binary(max_size=60))
    else:
        rows = st.lists(maps(BODY, st.lists(st.floats(allow_nan=False), max_size=3)), max_size=3)
        bodies = st.fixed_dictionaries({"events": rows | values}) | maps(BODY, rows) | values
        body = data.draw(bodies.map(as_json) | st.binary(max_size=60))
    read, refusal = tried(READERS[reader], body, CONFIGS[kind])
    if refusal is not None:
        assert isinstance(refusal, (BadBody, Invalid))
        checked(refusal)
        return
    actual, _ = read
    n = len(actual.ids) if actual.ids is not None else len(actual.labels)
    assert n > 0
    for column in (actual.times, getattr(actual, "labels", None), getattr(actual, "weights", None)):
        assert column is None or len(column) == n


@ONCE
@given(
    maps(BODY, columns).map(packed)
    | st.binary(max_size=60)
    | maps(BODY, values).map(lambda value: as_json(value).decode("utf-8", "replace"))
    | st.text(max_size=60)
)
def test_arbitrary_websocket_messages_are_decoded_or_refused(message: str | bytes) -> None:
    (request,) = messages.read([message])
    if request.error is None:
        assert request.operation in ("update", "predict", "labels")
        assert request.seqs != [None]
    else:
        assert isinstance(request.error, (BadBody, Invalid))
        checked(request.error)


def as_json(value: Any) -> bytes:
    """JSON, whatever the names of members are; what it cannot hold is text."""
    return msgspec.json.encode(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value
