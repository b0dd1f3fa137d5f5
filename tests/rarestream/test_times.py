"""One rule reads times of Python: the client sends, and the library learns, the same moments or refuses them."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import Config, InvalidInput
from learners.inputs import read_batch
from rarestream import EventBatch
from rarestream.client.encode import encode_labelled
from service.errors import Invalid
from service.wire.json_decode import decode_update as decode_json
from service.wire.msgpack_decode import decode_update
from service.wire.ndjson import NDJSON

pytestmark = pytest.mark.integration  # pandas and pyarrow are extras

UTC = datetime.UTC
CONFIG = Config.of({"algorithm": "cbr-diag", "features": {"kind": "dense", "dim": 1}})
MOMENT = datetime.datetime(2019, 11, 30, 13, 1, 1, 250_000)
SECONDS = 1575118861.25
SPELLINGS: list[Any] = [
    *(MOMENT, MOMENT.replace(tzinfo=UTC), pd.Timestamp(MOMENT), pd.Timestamp(MOMENT, tz="UTC")),
    *(np.datetime64(MOMENT), SECONDS, Decimal("1575118861.25"), np.float64(SECONDS), "2019-11-30T13:01:01.25Z"),
]
MISSING: list[Any] = [None, math.nan, pd.NA, pd.NaT, np.datetime64("NaT"), Decimal("NaN")]
REFUSED: list[Any] = [
    *(299, 0, -1, 2019, 20191130, 172_792.0, "299", "yesterday", "20191130", "1970-01-01", math.inf, True, b"2019", 1j),
    *(datetime.date(1970, 1, 1), np.datetime64("1979-12-31"), datetime.timedelta(1), 1575118861250, "2200-01-01"),
]


def library(times: Any) -> Any:
    try:
        read = read_batch(CONFIG, [[1.0]] * len(times), [1] * len(times), times=times).times
    except InvalidInput:
        return "refused"
    return None if read is None or np.isnan(read).all() else read.tolist()


def client(times: Any) -> Any:
    batch = EventBatch([[1.0]] * len(times), [1] * len(times), times=times)
    try:
        read = decode_update(encode_labelled(batch).body(0, len(times)), CONFIG)[0].times
    except (Invalid, ValueError):
        return "refused"
    return None if read is None else read.tolist()


@pytest.mark.parametrize("time", SPELLINGS)
def test_spellings_of_a_moment_are_one(time: Any) -> None:
    assert library([time]) == client([time]) == [SECONDS]
    if hasattr(time, "tzinfo"):
        column = pd.Series([time, None])
        assert np.array_equal(library(column), [SECONDS, math.nan], equal_nan=True)
        assert np.array_equal(client(column), [SECONDS, math.nan], equal_nan=True)


@pytest.mark.parametrize("time", MISSING)
def test_a_time_that_is_none_is_missing(time: Any) -> None:
    assert library([time]) is client([time]) is None


@settings(max_examples=80, deadline=None)
@given(
    st.datetimes(timezones=st.none() | st.just(UTC))
    | st.dates()
    | st.floats()
    | st.integers(-(2**63), 2**64 - 1)
    | st.decimals(allow_nan=False)
    | st.text(max_size=4)
)
def test_the_client_and_the_library_read_or_refuse_a_time_alike(time: Any) -> None:
    assert library([time]) == client([time])


@pytest.mark.parametrize("time", REFUSED)
def test_what_is_no_moment_from_1980_on_is_refused(time: Any) -> None:
    assert library([SECONDS, time]) == client([SECONDS, time]) == "refused"


@pytest.mark.parametrize("decode", [decode_json, NDJSON.decode_update])
@pytest.mark.parametrize("time", ["299", "0", "-5e3", '"1970-01-01"', "1e12", '"9999-12-31"'])
def test_the_service_names_the_time_that_it_refuses(decode: Any, time: str) -> None:
    event = f'{{"x": [1], "label": 1, "time": {time}}}'
    body = event if decode == NDJSON.decode_update else f'{{"events": [{event}]}}'
    with pytest.raises(Invalid) as caught:
        decode(body.encode(), CONFIG)
    (problem,) = caught.value.problems
    assert problem.pointer in ("/events/0/time", "/lines/1/time")
    assert "from 1980 on (no counter of hours or rows) and at most a day ahead" in problem.detail


def test_the_library_names_the_time_that_it_refuses() -> None:
    with pytest.raises(InvalidInput, match=r"/times/1: is 299\.0; expected .* from 1980 to 2100"):
        read_batch(CONFIG, [[1.0]] * 2, [1, 0], times=[SECONDS, 299])
