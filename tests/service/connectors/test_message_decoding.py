"""Messages are decoded to events, and malformed ones are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.connectors.feed import Message
from service.connectors.message_decoding import BadMessage, MessageEvent, MessageKind, Reading
from service.datasets.values import BinaryLabels

X = b'"x": [1.5, 2]'


def read(
    value: bytes | Mapping[str, str] | None, what: MessageKind = "auto", texts: frozenset[str] = frozenset()
) -> Any:
    return Reading(what, BinaryLabels(), texts).event(Message(7, value))


@pytest.mark.parametrize(
    ("body", "labelled", "id"),
    [
        (b'{"label": 1, %b}' % X, True, None),
        (b' {%b, "label": false, "id": "a"}\n' % X, True, "a"),
        (b'{"label": 3, "id": 17}', True, "17"),
        (b'{"label": 3, "id": 17.0}', True, "17"),
        (b'{"id": "a", "time": 5, %b}' % X, False, "a"),
    ],
)
def test_an_event_is_passed_on_unchanged(body: bytes, labelled: bool, id: str | None) -> None:
    assert read(body) == MessageEvent(7, body, labelled, id)


def test_the_header_of_a_schema_registry_is_skipped_counted_and_reported_once() -> None:
    reading = Reading("auto", BinaryLabels(stream=True))
    body = b'{"label": 1, %b}' % X
    for start in (b"", b"\0\0\0\0\x11", b"\0\0\0\0\x12\xef\xbb\xbf", b"\0{ []"):
        assert reading.event(Message(7, start + body)) == MessageEvent(7, body, True, None)
    assert reading.schema_headers == 3
    (warning,) = reading.warnings()
    assert "17" in warning
    assert reading.warnings() == []
    for avro in (b"\0\0\0\0\x11\x02\x06abc", b"\0\0\0\0\x11", b"\0\0"):
        with pytest.raises(BadMessage):
            reading.event(Message(8, avro))


@pytest.mark.parametrize("label", [b"null", b"1", b'{"deep": [1]}'])
def test_unlabelled_events_carry_neither_label_nor_weight(label: bytes) -> None:
    body = b'{"id": "a", "label": %b, %b, "weight": 2}' % (label, X)
    result = read(body, "predict")
    assert (result.labelled, json.loads(result.body)) == (False, {"id": "a", "x": [1.5, 2]})
    if label == b"null":
        assert read(body) == result


@pytest.mark.parametrize("label", ["NULL", "?", "-", "pending", "", " "])
def test_a_flat_label_for_missing_is_unlabelled(label: str) -> None:
    result = read({"a": "1", "label": label})
    assert (result.labelled, json.loads(result.body)) == (False, {"features": {"a": 1.0}})
    with pytest.raises(BadMessage, match="label"):
        read({"a": "1", "label": label}, "update")


def test_an_empty_message_is_not_an_event() -> None:
    assert read(None) is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "--entry flat$"),
        (b"{} {}", "JSON"),
        (b"[" * 100_000, "`array`$"),
        (b'{"id": {}, %b}' % X, r"`\$\.id`$"),
        (b'{"id": 0.5}', "^its id is 0.5; expected "),
        (b'"text"', "`str`$"),
        (b'{"features": {"a": "\xff"}, "label": 1}', "UTF-8"),
        ({"label": "maybe"}, "maybe"),
        ({"time": "yesterday"}, "yesterday"),
        ({"weight": "-1"}, "weight"),
        ({"amount": "1e999"}, None),
    ],
)
def test_malformed_messages_are_reported(value: bytes | Mapping[str, str], message: str | None) -> None:
    if message is None:  # not a number: text, then
        assert json.loads(read(value).body) == {"features": {"amount": "1e999"}}
        return
    with pytest.raises(BadMessage, match=message):
        read(value)


def test_update_requires_a_label() -> None:
    with pytest.raises(BadMessage, match="label"):
        read(b"{%b}" % X, "update")


def test_flat_fields_become_members_and_features() -> None:
    fields = {
        "id": "7",
        "label": "yes",
        "time": "2019-11-30T00:00:00",
        "weight": "2",
        "shop": "17",
        "to": "?",
        "a": "x",
    }
    result = read(fields, texts=frozenset({"shop"}))
    assert (result.labelled, result.id) == (True, "7")
    assert json.loads(result.body) == {
        "id": "7",
        "time": 1575072000.0,
        "weight": 2.0,
        "label": 1,
        "features": {"shop": "17", "to": "?", "a": "x"},
    }


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["id", "label", "weight", "x"]) | st.text(), inner),
)


@given(
    st.none()
    | st.binary()
    | json_like.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from(["id", "label", "time", "weight"]) | st.text(), st.text()),
    st.sampled_from(["auto", "update", "predict"]),
)
def test_any_message_is_decoded_or_malformed(value: Any, what: MessageKind) -> None:
    try:
        result = read(value, what)
    except BadMessage:
        return
    if value is not None:
        body = json.loads(result.body)
        assert isinstance(body, dict)
        assert result.labelled == (body.get("label") is not None)
        assert result.id == body.get("id")


@pytest.mark.parametrize(
    ("time", "options", "seconds"),
    [
        ("1575118861500", {}, 1575118861.5),
        ("438000", {"time_unit": "h"}, 438_000 * 3600.0),
        ("1575118861", {"time_unit": "s"}, 1575118861.0),
        ("30/11/2019 13:01", {"time_format": "%d/%m/%Y %H:%M"}, 1575118860.0),
    ],
)
def test_times_of_messages_are_read_as_those_of_files(time: str, options: dict[str, Any], seconds: float) -> None:
    reading = Reading("auto", BinaryLabels(stream=True), **options)
    flat = reading.event(Message(1, {"x": "1", "time": time}))
    assert flat is not None
    assert json.loads(flat.body)["time"] == seconds
    if options:
        value = json.dumps({"features": {"x": 2**63}, "time": int(time) if time.isdecimal() else time}).encode()
        event = reading.event(Message(1, value))
        assert event is not None
        assert json.loads(event.body) == {"features": {"x": 2**63}, "time": seconds}


@pytest.mark.parametrize("value", [{"x": "1", "time": "299"}, b'{"x": [1], "time": 2}'])
def test_the_message_names_the_options_of_a_time_that_is_refused(value: Any) -> None:
    reading = Reading("auto", BinaryLabels(stream=True), time_unit="h" if isinstance(value, bytes) else "")
    with pytest.raises(BadMessage, match="before 1980" if isinstance(value, bytes) else r"--time-unit s\|ms"):
        reading.event(Message(1, value))
