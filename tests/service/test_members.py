"""Ids, times and labels are read, or refused, alike at the doors of the API, and alike at the doors of files.

The doors of the API are JSON, NDJSON, MessagePack, a message in JSON, the client and the library. Files, `update` and
flat messages have their own, wider rule, because their cells are written by other programs: `7.0` is the id 7. Bad rows
leave no trace: the events of a sequence equal those of its good members.
"""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pyarrow
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from learners import Config, InvalidInput
from learners.inputs import read_batch
from rarestream import EventBatch
from rarestream.client.encode import encode_labelled
from rarestream.values import LATEST_TIME
from service.connectors.feed import Message
from service.connectors.message_decoding import BadMessage, Reading
from service.datasets import BadRows, BinaryLabels, FileOptions, Inputs, ReadError, RowColumns, open_rows
from service.errors import BadBody, Invalid
from service.wire.json_decode import decode_update as decode_json
from service.wire.msgpack_decode import decode_update as decode_msgpack
from service.wire.ndjson import NDJSON

pytestmark = pytest.mark.integration  # pandas and pyarrow are extras

CONFIG = Config.of({"algorithm": "cbr-diag", "features": {"kind": "named", "bits": 8}})
Event = dict[str, Any]
START = 1.75e9  # of the time that a clock may be at
REFUSED = "refused"

IDS = [0, 7, -1, 2**63, 2**70, "a", "2.0", " a ", "\u00e9", "x" * 256, "x" * 257, "", "a\nb", 2.0, 1.5, True, None]
TIMES = [
    1575118861,
    1575118861.5,
    "2019-11-30",
    "2019-11-30T13:01:01.5+01:00",
    "20191130",
    20191130,
    299,
    0,
    -1.0,
    1e12,
]
LABELS = [0, 1, -1, True, False, 2, 0.0, 1.0, 0.5]
MEMBERS: dict[str, list[Any]] = {"id": IDS, "time": [*TIMES, "yesterday", None], "label": LABELS}
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
)


def members_of(batch: Any) -> Any:
    """Return the members of one event that was decoded."""
    time = None if batch.times is None or math.isnan(batch.times[0]) else batch.times[0]
    return (None if batch.ids is None else batch.ids[0]), time, batch.labels.tolist()[0]


def of_json(event: Event) -> Any:
    return members_of(decode_json(json.dumps({"events": [event]}).encode(), CONFIG)[0])


def of_ndjson(event: Event) -> Any:
    return members_of(NDJSON.decode_update(json.dumps(event).encode(), CONFIG)[0])


def of_msgpack(event: Event) -> Any:
    columns = {f"{name}s": [event[name]] for name in MEMBERS if name in event}
    columns["ids"] = [str(id) if type(id) is int and id >= 2**64 else id for id in columns.get("ids", [None])]
    features = {name: [value] for name, value in event["features"].items()}
    return members_of(decode_msgpack(msgpack.packb({"features": features, **columns}), CONFIG)[0])


def of_message(event: Event) -> Any:
    read = Reading("update", BinaryLabels(stream=True)).event(Message(1, json.dumps(event).encode()))
    assert read is not None
    return members_of(decode_json(b'{"events":[%b]}' % read.body, CONFIG)[0])


def of_client(event: Event) -> Any:
    columns = {f"{name}s": [event[name]] for name in ("id", "time") if name in event}
    body = encode_labelled(EventBatch([event["features"]], [event["label"]], **columns)).body(0, 1)
    return members_of(decode_msgpack(body, CONFIG)[0])


def of_library(event: Event) -> Any:
    columns = {f"{name}s": [event[name]] for name in ("id", "time") if name in event}
    return members_of(read_batch(CONFIG, [event["features"]], [event["label"]], **columns))


API: list[Callable[[Event], Any]] = [of_ndjson, of_msgpack, of_message, of_client, of_library]


def read(door: Callable[[Event], Any], event: Event) -> Any:
    try:
        return door(event)
    except (Invalid, InvalidInput, BadBody, BadMessage, ReadError, ValueError, OverflowError):
        return REFUSED


@pytest.mark.parametrize("door", API, ids=lambda door: str(door.__name__))
@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_is_read_or_refused_as_in_json_at_each_door_of_the_api(
    member: str, door: Callable[[Event], Any]
) -> None:
    @settings(max_examples=30)
    @given(SCALARS)
    def check(value: Any) -> None:
        assume(
            isinstance(value, str) or not START < (value or 0) < LATEST_TIME
        )  # ahead of now: the library has no clock
        event: Event = {"features": {"f": 1.5}, "label": 1, member: value}
        assert read(door, event) == read(of_json, event)

    for value in MEMBERS[member]:
        check = example(value)(check)
    check()


# Doors of files


def csv_of(rows: list[Event]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([list(rows[0]), *(row.values() for row in rows)])
    return text.getvalue().encode()


def rows_of(form: str, rows: list[Event], monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Yield the good events of rows at a door of files."""
    columns = RowColumns(id="id", time="time", positive=("1",), negative=("0",), form=FileOptions(on_bad="skip"))
    with tempfile.TemporaryDirectory() as folder, BadRows("skip") as bad:
        path = Path(folder) / f"rows.{form}"
        match form:
            case "csv":
                path.write_bytes(csv_of(rows))
            case "parquet":
                parquet.write_table(pyarrow.Table.from_pylist(rows), path)
            case "jsonl":
                path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
            case "stdin" | "csv on stdin":
                lines = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
                content = lines if form == "stdin" else csv_of(rows)
                monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
                labels = BinaryLabels(columns.positive, columns.negative)
                yield from Inputs(["-"], "update", {"config": CONFIG.to_json()}, columns, labels=labels).events()
                return
            case "flat":
                reading = Reading("update", BinaryLabels(columns.positive, columns.negative, stream=True))
                for row in rows:
                    try:
                        event = reading.event(Message(1, row))
                    except BadMessage:
                        continue
                    assert event is not None
                    yield json.loads(event.body)
                return
        with open_rows(path, columns, bad=bad) as opened:
            yield from opened.events()


CELLS: dict[str, list[str]] = {
    "id": ["7", "7.0", " 7 ", "a", "007", "3.5e+18", "NULL", "", "x" * 257, "2.50"],
    "time": [
        "1575118861",
        "1575118861500",
        "2019-11-30",
        "30.11.2019 13:01",
        "20191130",
        "299",
        "0",
        "1970-01-01",
        "x",
        "",
    ],
    "label": ["0", "1", "1.0", " 1", "true", "NULL", "pending", "2", "-1", ""],
}
GOOD: Event = {"id": "a1", "time": "2019-11-30", "label": "1", "f": "1.5"}
OTHER: Event = {**GOOD, "id": "a2", "label": "0"}
FILES = ("csv", "jsonl", "parquet", "stdin", "csv on stdin", "flat")


def events_of(form: str, rows: list[Event], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    return [tuple(event.get(name) for name in MEMBERS) for event in rows_of(form, rows, monkeypatch)]


@pytest.mark.parametrize("form", FILES)
@pytest.mark.parametrize("member", CELLS)
def test_a_cell_is_read_or_refused_alike_at_each_door_of_files(
    member: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cell in CELLS[member]:
        rows = [GOOD, OTHER, {**GOOD, "id": "a3", member: cell}]
        assert events_of(form, rows, monkeypatch) == events_of("csv", rows, monkeypatch), cell


BAD = [{**GOOD, "label": label} for label in ("NULL", "2", "")] + [
    {**GOOD, "id": "3.5e+18"},
    {**GOOD, "time": "299"},
    {**GOOD, "time": "9999-12-31"},
]


@pytest.mark.parametrize("form", FILES)
def test_bad_rows_leave_no_trace(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @settings(max_examples=25)
    @given(st.lists(st.sampled_from([GOOD, OTHER]) | st.sampled_from(BAD), max_size=12))
    @example([*BAD, GOOD, *BAD, OTHER])
    def check(rows: list[Event]) -> None:
        good = [GOOD, OTHER, *(row for row in rows if row not in BAD)]
        assert events_of(form, [GOOD, OTHER, *rows], monkeypatch) == events_of(form, good, monkeypatch)

    check()
