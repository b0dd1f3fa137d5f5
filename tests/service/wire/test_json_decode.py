"""Bodies to columns: the fast way and the precise way agree on every body, and records survive their coding."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.config import Config
from learners.learner import Learner
from learners.numerics.arrays import Sparse
from learners.records import LabelledBatch, Rollback, Segment
from service.engine.records.codec import Created, pack_record, pack_snapshot, unpack_record, unpack_snapshot
from service.errors import BadBody, Damaged, Invalid, TooLarge
from service.wire import json_decode
from service.wire.json_errors import ErrorReport
from tests.harness.apps import DENSE


def config_of(**features: Any) -> Config:
    return Config.of({"algorithm": "fofo", "features": features})


KINDS: dict[str, Config] = {
    "dense": config_of(kind="dense", dim=2),
    "sparse": config_of(kind="sparse", dim=10),
    "named": config_of(kind="named", bits=6, text=["t"], categorical=["c"], log=["v"]),
    "table": config_of(kind="table", fields=[{"name": "v", "kind": "numeric"}, {"name": "c", "kind": "categorical"}]),
}

numbers = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.integers(-5, 12),
    st.sampled_from([1e30, 1e31, 10**400, 2**63, True, None, "1", ""]),
)
features = st.dictionaries(
    st.sampled_from(["v", "c", "t", "z"]),
    st.one_of(numbers, st.text(max_size=5), st.lists(st.one_of(numbers, st.text(max_size=3)), max_size=3)),
    max_size=3,
)
event = st.fixed_dictionaries(
    {},
    optional={
        "x": st.one_of(st.lists(numbers, max_size=3), numbers),
        "indices": st.lists(st.integers(-1, 11), max_size=3),
        "values": st.lists(numbers, max_size=3),
        "features": features,
        "label": st.sampled_from([0, 1, -1, 1.0, True, False, 2, 0.5, None, "1", math.nan, 10**400]),
        "weight": st.sampled_from([None, 0, 1, 2.5, -1, 1e7, "1", True]),
        "time": st.sampled_from([None, 0, 1.7e9, 1e13, "now", math.inf]),
        "id": st.sampled_from([None, "a", 7, "", "x" * 257, 1.5, "\x00", "\ud800", True, 2**70]),
        "odd": st.just(1),
        "\ud800": st.just(1),
    },
)
good_dense = st.fixed_dictionaries(
    {"x": st.lists(st.floats(-1e30, 1e30), min_size=2, max_size=2), "label": st.sampled_from([0, 1, -1, True])},
    optional={"id": st.sampled_from([None, "a", 7]), "weight": st.sampled_from([None, 2]), "time": st.just(5)},
)
bodies = st.fixed_dictionaries(
    {"events": st.one_of(st.lists(event, max_size=3), st.lists(good_dense, min_size=1, max_size=3))},
    optional={
        "source": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {"name": st.sampled_from(["f", "", "x" * 201, 3]), "offset": st.sampled_from([0, 7, -1, 2.0, 2**60])}
            ),
        ),
        "odd": st.just(1),
        "events/\u00b2": st.just(1),
        "\ud800": st.just(1),
    },
)


def outcome_of(read: Any) -> Any:
    try:
        return read()
    except Invalid as error:
        return "refused" if error.problems else "unexplained"
    except BadBody:
        return "malformed"


def plain(batch: Any) -> Any:
    if isinstance(batch, str):
        return batch
    rows = batch.rows
    parts = [array.tolist() for array in rows] if isinstance(rows, Sparse) else rows.tolist()
    columns = (batch.labels, batch.weights, batch.times, batch.costs, getattr(batch, "carried", None))
    others = [None if column is None else column.tolist() for column in columns]
    return repr((parts, others, batch.ids, batch.segments))  # repr: NaN equals itself


@pytest.mark.parametrize("kind", KINDS)
@given(body=bodies)
@settings(max_examples=60)
def test_the_fast_and_the_precise_decoder_agree(kind, body):
    text = json.dumps(body).encode()
    fast = outcome_of(lambda: json_decode.decode_update(text, KINDS[kind])[0])
    slow = outcome_of(
        lambda: json_decode.labelled_by_report(ErrorReport(KINDS[kind], "update"), json_decode.decode_json(text))[0]
    )
    assert plain(fast) == plain(slow) != "unexplained"


def test_a_valid_batch_is_decoded_to_columns():
    body = {
        "events": [
            {"features": {"c": "DE", "v": 2.0}, "label": True, "id": 7, "weight": 2, "time": 1.7e9},
            {"features": {"v": None}, "label": -1},
        ],
        "source": {"name": "f", "offset": 3},
    }
    batch, carried = json_decode.decode_update(json.dumps(body).encode(), KINDS["table"])
    assert carried == [event["features"] for event in body["events"]]
    assert batch.labels.tolist() == [1.0, -1.0]
    assert batch.ids == ("7", None)
    assert batch.weights is not None
    assert batch.weights.tolist() == [2.0, 1.0]
    assert batch.times is not None
    assert math.isnan(batch.times[1])
    assert batch.segments == (Segment(0, 2, "f", 3, 3),)
    assert isinstance(batch.rows, np.ndarray)
    assert np.isnan(batch.rows).tolist() == [[False, False], [True, True]]


RECORDS = [
    Created({"algorithm": "cbr", "x": [1, None]}),
    LabelledBatch(np.array([[1.0, -0.0], [1e-300, 2.0]]), np.array([1.0, -1.0])),
    LabelledBatch(
        Sparse(np.array([1.0, 2.0]), np.array([3, 2**24 - 1]), np.array([0, 0, 2])),
        np.array([1.0, -1.0]),
        weights=np.array([1.0, 0.5]),
        times=np.array([np.nan, 3.0]),
        ids=("a", None),
        segments=(Segment(0, 2, "src", 5, 5),),
    ),
    Rollback(3, {"a.b": np.arange(6, dtype=np.int64).reshape(2, 3), "c": np.zeros(0, dtype=np.uint64)}),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_records_are_decoded_unchanged_and_writable(record):
    data = pack_record(record)
    back = unpack_record(data, "it")
    assert pack_record(back) == data
    assert type(back) is type(record)
    if isinstance(back, LabelledBatch):
        assert plain(back) == plain(record)
        arrays = [*back.rows] if isinstance(back.rows, Sparse) else [back.rows]
        assert all(array.flags.writeable for array in arrays)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_every_damaged_byte_is_detected(record):
    data = pack_record(record)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x41
        with pytest.raises(Damaged):
            unpack_record(bytes(changed), "it")
    for size in range(len(data)):
        with pytest.raises(Damaged):
            unpack_record(data[:size], "it")


def test_a_snapshot_is_decoded_and_a_foreign_one_is_refused():
    learner = Learner(Config.of(DENSE))
    learner.learn([[1, 2, 3], [4, 5, 6]], [0, 1], ids=["a", None])
    data = pack_snapshot(5, learner.config, learner.state())
    back = unpack_snapshot(data, "it")
    assert back.position == 5
    assert Learner.restored(back.config, back.state).digest() == learner.digest()
    with pytest.raises(Damaged, match=r"^it\b.*\bsnapshot\b"):
        unpack_snapshot(pack_record(RECORDS[0]), "it")
    with pytest.raises(Damaged, match=r"^it\b.*\bkind\b"):
        unpack_record(data, "it")
    newer = bytearray(data)
    newer[4] = 9
    with pytest.raises(Damaged, match=r"\b9\b"):
        unpack_snapshot(bytes(newer), "it")


def test_duplicate_members_are_refused_in_settings_but_not_in_events() -> None:
    assert json_decode.decode_settings(b'{"a": {"b": 1}, "c": [{"b": 2}]}') == {"a": {"b": 1}, "c": [{"b": 2}]}
    for body in (b'{"a": 1, "b": 2, "a": 1}', b'{"c": [{"a": null, "a": 2}]}', b'{"a": 1, "\\u0061": 2}'):
        with pytest.raises(BadBody, match="'a'"):
            json_decode.decode_settings(body)
    for body in (
        b'{"events": [{"x": [1, 2], "x": [3, 4], "label": 0, "label": 1}]}',
        b'{"events": [], "events": [{"label": 1, "x": [3, 4]}]}',
    ):
        labelled, _ = json_decode.decode_update(body, KINDS["dense"])
        slow, _ = json_decode.labelled_by_report(ErrorReport(KINDS["dense"], "update"), json_decode.decode_json(body))
        assert plain(labelled) == plain(slow)
        assert (labelled.rows.tolist(), labelled.labels.tolist()) == ([[3.0, 4.0]], [1.0])


def test_settings_of_a_megabyte_are_refused() -> None:
    body = b'{"a": "%b"}' % (b"a" * (json_decode.MAX_SETTINGS_BYTES - 9))
    assert len(body) == json_decode.MAX_SETTINGS_BYTES
    assert json_decode.decode_settings(body)
    with pytest.raises(TooLarge, match="the settings have 1048577 bytes; at most 1048576 are taken"):
        json_decode.decode_settings(body + b" ")
