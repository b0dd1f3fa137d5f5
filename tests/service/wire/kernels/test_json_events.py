"""The scan of dense bodies: every number to the bit as `float` reads it, and the same columns as the other two ways."""

from __future__ import annotations

import json
import math
import struct
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import BadBody, Invalid
from service.wire import json_decode
from service.wire.json_errors import ErrorReport
from service.wire.kernels.decimals import decimals
from service.wire.kernels.json_events import RefusedEvents, scan
from tests.service.wire.test_json_decode import config_of, plain

TWO = config_of(kind="dense", dim=2)


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def read(texts: list[str]) -> list[float | None]:
    """Return what is made of JSON numbers; None: left to `float`, as a hard one."""
    body = ",".join(texts).encode()
    out, hard = np.empty((1, len(texts))), np.empty((len(texts), 6), dtype=np.int64)
    end, actual = decimals(body, 0, len(body), out, 0, 0, len(texts) - 1, hard, 0, 7)
    assert end == len(body)
    values: list[float | None] = out[0].tolist()
    for table, row, column, start, stop, _ in hard[:actual].tolist():
        assert (table, row, body[start:stop].decode()) == (7, 0, texts[column])
        values[column] = None
    return values


def same(texts: list[str]) -> list[bool]:
    """Which of the numbers were read here; those are to the bit what `float` makes of them, a whole -0 being 0."""
    values = read(texts)
    for text, value in zip(texts, values, strict=True):
        expected = 0.0 if text == "-0" else float(text)
        assert value is None or bits(value) == bits(expected), text
    return [value is not None for value in values]


floats = st.floats(allow_nan=False, allow_infinity=False)
digits = st.text("0123456789", min_size=1, max_size=25)
whole = digits.map(lambda text: text.lstrip("0") or "0")
exponents = st.one_of(st.just(""), st.integers(-400, 400).map(lambda e: f"e{e}"), st.integers(0, 40).map("E+{}".format))
written = st.builds(
    lambda minus, whole, point, exponent: minus + whole + point + exponent,
    st.sampled_from(["", "-"]),
    whole,
    st.one_of(st.just(""), digits.map(".{}".format)),
    exponents,
)


@given(st.lists(floats, min_size=1, max_size=20))
@settings(max_examples=100)
def test_floats_written_by_python_are_read_back_bit_for_bit(values):
    same([repr(value) for value in values])


@given(st.lists(written, min_size=1, max_size=20))
@settings(max_examples=150)
def test_any_decimal_is_read_like_float_reads_it(texts):
    same(texts)


@given(floats, st.integers(-3, 3))
@settings(max_examples=100)
def test_decimals_between_two_floats_are_rounded_like_float(value, away):
    """The digits of the middle between neighbours, in full and cut to as many as are read here."""
    above = math.nextafter(value, math.inf)
    if math.isinf(above):
        return
    middle = (int(abs(value)) + int(abs(above))) // 2 + away
    texts = [str(abs(middle)), f"{abs(value):.18e}", f"{abs(value):.17e}", f"{abs(value) / 2 + abs(above) / 2:.18e}"]
    same(texts)


def test_most_numbers_are_read_by_the_kernel():
    rng = np.random.default_rng(1)
    for values in (
        rng.normal(size=2000),
        rng.random(2000),
        rng.normal(size=2000) * 10.0 ** rng.integers(-300, 300, 2000),
    ):
        assert np.mean(same([repr(value) for value in values.tolist()])) > 0.99
    assert all(same([repr(value) for value in rng.normal(size=2000).round(4).tolist()]))


EDGES = [
    "0", "-0", "0.0", "-0.0", "0e9", "-0e9", "1", "-1", "9007199254740992", "9007199254740993", "9007199254740995",
    "18446744073709551615", "9999999999999999999", "123456789012345678901234567890", "0.1", "1e22", "1e23", "8.5e22",
    "1e-22", "1e-23", "4.9e-324", "5e-324", "2.4703282292062327e-324", "2.4703282292062328e-324", "1e-400",
    "2.2250738585072014e-308", "2.2250738585072011e-308", "2.225073858507201e-308", "1.7976931348623157e308",
    "1.7976931348623157e+308", "0.500000000000000166533453693773481063544750213623046875", "1.00000000000000011102",
    "3.08984926168550152811e-32", "6.631236846766476e-316", "9.007199254740993e15",
    "0.00000000000000000000012345678901", "1000000000000000000000000",
    "7.3177701707893310e+15", "0.000", "1E5", "1e00000000000000000005", "1e-00",
]  # fmt: skip


def test_edge_cases_are_read_like_float():
    same(EDGES)
    for text in EDGES:
        same([text])


@pytest.mark.parametrize(
    "text",
    ["", "-", "+1", ".5", "1.", "1.e5", "01", "-01", "00", "1e", "1e+", "--1", "e5", "NaN", "Infinity", "0x1", "1_0"],
)
def test_invalid_numbers_are_refused(text):
    out, hard = np.empty((1, 1)), np.empty((1, 6), dtype=np.int64)
    body = text.encode() + b"]"
    end, _ = decimals(body, 0, len(body), out, 0, 0, 0, hard, 0, 0)
    assert end == -1 or body[end : end + 1] != b"]"


def test_hard_numbers_are_read_up_to_a_limit():
    hard = "0.500000000000000166533453693773481063544750213623046875"
    for count, fit in ((4, True), (400, False)):
        body = ('{"events":[' + ",".join([f'{{"x":[{hard},1]}}'] * count) + "]}").encode()
        actual = scan(body, 2, False, 1000)
        assert (actual is not None) == fit
        columns, _ = json_decode.decode_events(body, TWO)
        assert columns.rows.tolist() == [[float(hard), 1.0]] * count


# Bodies


UNUSUAL_BODIES = [
    "", "{}", "[]", "null", '{"events":[]}', '{"events":{}}', '{"events":[{}]}', '{"events":[{"x":[1,2]}]',
    '{"events":[{"x":[1,2]}]}}', '{"events":[{"x":[1,2]},]}', '{"events":[{"x":[1,2],}]}',
    '{"events":[{"x":[1,2],"x":[1,2]}]}', '{"events":[{"x":[1,2]}],"events":[{"x":[1,2]}]}', '{"events":[{"x":null}]}',
    '{"events":[{"x":[1,2],"id":""}]}', '{"events":[{"x":[1,2],"id":1.5}]}', '{"events":[{"x":[1,2],"id":1e3}]}',
    '{"events":[{"x":[1,2],"id":01}]}', '{"events":[{"x":[1,2],"id":-0}]}', '{"events":[{"x":[1,2],"id":true}]}',
    '{"events":[{"x":[1,2],"id":"a\\u0041"}]}', '{"events":[{"x":[1,2],"id":"\u00e9"}]}',
    '{"events":[{"x":[1,2],"id":"' + "a" * 257 + '"}]}', '{"events":[{"x":[1,2],"id":"a\u007f"}]}',
    '{"events":[{"x":[1,2],"id":123456789012345678901}]}', '{"events":[{"x":[1,2],"time":true}]}',
    '{"e\\u0076ents":[{"x":[1,2]}]}', '{"events":[{"\\u0078":[1,2]}]}', '{"events" [{"x":[1,2]}]}',
    '{"events":[{"x"[1,2]}]}',
]  # fmt: skip

REFUSED_BODIES = [
    '{"events":[{"x":[1 2]}]}', '{"events":[{"x":[1,2,3]}]}', '{"events":[{"x":[1]}]}', '{"events":[{"x":[]}]}',
    '{"events":[{"x":[1,2],"odd":1}]}', '{"events":[{"x":[1e31,2]}]}', '{"events":[{"x":[1e999,2]}]}',
    '{"events":[{"x":[1,NaN]}]}', '{"events":[{"x":[tru,2]}]}', '{"events":[{"x":[1,"2"]}]}',
    '{"events":[{"x":[1,2],"label":1}]}', '{"events":[{"x":[1,2],"weight":1}]}',
    '{"events":[{"x":[1,2]}],"source":null}', '{"odd":1,"events":[{"x":[1,2]}]}',
    '{"events":[{"x":[1,2]},{"x":[1]}]}',
]  # fmt: skip


@pytest.mark.parametrize("text", UNUSUAL_BODIES)
def test_an_unusual_body_is_left_to_the_decoder(text):
    assert scan(text.encode(), 2, False, 1000) is None


@pytest.mark.parametrize("text", REFUSED_BODIES)
def test_what_no_learner_takes_is_refused(text):
    with pytest.raises(RefusedEvents):
        scan(text.encode(), 2, False, 1000)
    with pytest.raises((Invalid, BadBody)):
        json_decode.decode_events(text.encode(), TWO)


def test_truncated_bodies_have_no_columns():
    body = (
        b'{"events": [{"x": [1.5, -2e3], "label": false, "id": "a", "time": 5}], "source": {"name": "", "offset": 3}}'
    )
    for stop in range(len(body)):
        with suppress(RefusedEvents):
            assert scan(body[:stop], 2, True, 1000) is None
    assert scan(body, 2, True, 1000) is not None


def test_columns_of_a_body_are_read():
    body = b"""  { "source" : {"name": "s}", "offset": 3 } ,
      "events" : [ { "label" : true , "x" : [ 1 , -0.5e1 ] , "weight" : 2 , "id" : -7 } ,
                   {"x":[0.1,1E2],"label":null,"time":1700000000.25,"id":"a,[{"},{"time":null,"x":[3,4],"id":null}]} """
    actual = scan(body, 2, True, 1000)
    assert actual is not None
    assert actual.rows.tolist() == [[1.0, -5.0], [0.1, 100.0], [3.0, 4.0]]
    assert actual.labels is not None
    assert actual.weights is not None
    assert actual.times is not None
    np.testing.assert_array_equal(actual.labels, [1.0, np.nan, np.nan])
    np.testing.assert_array_equal(actual.weights, [2.0, 1.0, 1.0])
    np.testing.assert_array_equal(actual.times, [np.nan, 1700000000.25, np.nan])
    assert actual.ids == ("-7", "a,[{", None)
    assert actual.flags
    assert actual.source == b'{"name": "s}", "offset": 3 }'


def test_the_number_of_events_is_limited():
    body = ('{"events":[' + ",".join(['{"x":[1,2]}'] * 5) + "]}").encode()
    with pytest.raises(RefusedEvents):
        scan(body, 2, False, 4)
    assert scan(body, 2, False, 5) is not None


number = st.one_of(st.floats(-1e30, 1e30), st.integers(-(2**70), 2**70))
event = st.fixed_dictionaries(
    {"x": st.lists(number, min_size=2, max_size=2), "label": st.sampled_from([0, 1, -1, True, False, 1.0])},
    optional={
        "id": st.one_of(st.none(), st.text('ab \\"{[,\u00e9', min_size=1, max_size=5), st.integers(-99, 2**62)),
        "weight": st.sampled_from([None, 0, 2.5, 1e6, 1e7]),
        "time": st.one_of(st.none(), st.floats(-1e12, 1.7e9)),
    },
)
sources = st.sampled_from([None, {"name": "f", "offset": 7}, {"offset": 0, "name": 'q"}'}, {"name": "", "offset": 1}])
spaces = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: ")])


@given(st.lists(event, min_size=1, max_size=4), sources, spaces, st.booleans())
@settings(max_examples=100)
def test_the_scanner_and_the_precise_decoder_give_the_same_columns(events, source, separators, ascii_only):
    body: dict[str, Any] = {"events": events} if source is None else {"source": source, "events": events}
    text = json.dumps(body, separators=separators, ensure_ascii=ascii_only).encode()
    scanned = json_decode._scanned_update
    try:
        fast = scanned(text, TWO)
    except json_decode._NOT_FAST:
        fast = None
    if fast is not None:
        slow = json_decode.labelled_by_report(ErrorReport(TWO, "update"), json_decode.decode_json(text))
        assert plain(fast[0]) == plain(slow[0])
        assert fast[0].rows.tobytes() == slow[0].rows.tobytes()  # type: ignore[union-attr]
