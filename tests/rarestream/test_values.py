"""One rule turns a value of Python into a feature: the client, a data frame and the library learn or refuse alike."""

from __future__ import annotations

import datetime
import enum
import fractions
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from learners import Config, InvalidInput, create
from rarestream import EventBatch
from rarestream.client.encode import encode_labelled
from rarestream.values import plain_value
from service.errors import Invalid
from service.wire.msgpack_decode import decode_update

pytestmark = pytest.mark.integration  # pandas and pyarrow are extras

UTC = datetime.UTC
MOMENT = datetime.datetime(2019, 11, 30, 13, 1, 1, 250_000)
TEXT = "2019-11-30T13:01:01.250000"
NS = np.datetime64("2019-11-30T13:01:01.250000001", "ns")


class Colour(enum.Enum):
    RED = "red"


PLAIN: list[tuple[Any, Any]] = [
    (Decimal("12.50"), 12.5),
    (Decimal("17.00"), 17),
    (Decimal(2**53 + 1), 2**53 + 1),
    (Decimal("3.5E+18"), 3_500_000_000_000_000_000),
    (Decimal("NaN"), None),
    (Decimal("sNaN"), None),
    (Decimal("-Infinity"), "-inf"),
    (Decimal("1E+400"), "inf"),
    (float("nan"), None),
    (float("inf"), "inf"),
    (pd.NA, None),
    (pd.NaT, None),
    (np.datetime64("NaT"), None),
    (np.timedelta64("NaT"), None),
    (np.float32(1.5), 1.5),
    (np.float16("nan"), None),
    (np.longdouble(1.5), 1.5),
    (np.uint64(2**64 - 1), 2**64 - 1),
    (np.bool_(True), True),
    (np.str_("a"), "a"),
    (MOMENT, TEXT),
    (MOMENT.replace(tzinfo=UTC), f"{TEXT}+00:00"),
    (pd.Timestamp(NS), TEXT),
    (pd.Timestamp(MOMENT, tz="Europe/Berlin"), f"{TEXT}+01:00"),
    (NS, TEXT),
    (np.datetime64("2019-11-30"), "2019-11-30"),
    (MOMENT.date(), "2019-11-30"),
    (MOMENT.time(), "13:01:01.250000"),
    (datetime.timedelta(minutes=1), 60.0),
    (pd.Timedelta("1min"), 60.0),
    (np.timedelta64(1500, "ms"), 1.5),
    (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    (Colour.RED, "red"),
    ({"b", "a"}, ["a", "b"]),
    (np.array(["a", 1.5], object), ["a", 1.5]),
    (np.array(3.5), 3.5),
    (pd.Series(["a", "b"]), ["a", "b"]),
    (pyarrow.scalar(Decimal("1.5")), 1.5),
    (pyarrow.array(["a", None]), ["a", None]),
    (("a", Decimal("1.5")), ["a", 1.5]),
    (2**53 + 1, 2**53 + 1),
]
REFUSED: list[Any] = [
    *(b"abc", fractions.Fraction(1, 2), 1j, np.complex64(1j), object(), pd.Interval(0, 1), [b"abc"], 10**31, 10**400),
    *(np.datetime64(2**62, "s"), np.timedelta64(1, "M"), Decimal("1E+31"), float("1e31"), {"a": 1}, [["a"]], [None]),
]
DECLARED: dict[str, dict[str, Any]] = {
    "new": {"kind": "named", "bits": 8},
    "log": {"kind": "named", "bits": 8, "log": ["f"]},
    "categorical": {"kind": "named", "bits": 8, "categorical": ["f"]},
    "text": {"kind": "named", "bits": 8, "text": ["f"]},
    "table number": {"kind": "table", "fields": [{"name": "f", "kind": "numeric"}]},
    "table category": {"kind": "table", "fields": [{"name": "f", "kind": "categorical"}]},
}
CONFIGS = {name: Config.of({"algorithm": "cbr-diag", "features": features}) for name, features in DECLARED.items()}


@pytest.mark.parametrize(("value", "plain"), PLAIN)
def test_a_value_of_python_is_what_json_has_for_it(value: Any, plain: Any) -> None:
    result = plain_value(value)
    assert (type(result), result) == (type(plain), plain)


def outcome(config: Config, X: Any, frame: bool = False) -> Any:
    """Return the columns that a value becomes at the client's door, or the words that refuse it."""
    X = pd.DataFrame({"f": pd.Series([X], dtype=object)}) if frame else [{"f": X}]
    try:
        rows = decode_update(encode_labelled(EventBatch(X, [1])).body(0, 1), config)[0].rows
    except Invalid as error:
        return error.problems[0].detail
    except ValueError as error:
        return str(error).removeprefix("X[0]['f'] ")
    return columns(rows)


def columns(rows: Any) -> Any:
    return rows.tobytes() if isinstance(rows, np.ndarray) else [part.tobytes() for part in rows]


def in_library(config: Config, value: Any) -> Any:
    try:
        return columns(config.encode([{"f": value}]))
    except InvalidInput as error:
        return error.problems[0].detail


@pytest.mark.parametrize("declared", DECLARED)
def test_the_client_a_frame_and_the_library_learn_or_refuse_a_value_alike(declared: str) -> None:
    config = CONFIGS[declared]

    @settings(max_examples=60, deadline=None)
    @given(
        st.decimals()
        | st.datetimes(timezones=st.none() | st.just(UTC))
        | st.dates()
        | st.timedeltas()
        | st.floats()
        | st.floats(width=32).map(np.float32)
        | st.integers(-(2**63), 2**64 - 1)
        | st.lists(st.decimals() | st.text(max_size=3), max_size=3)
    )
    def check(value: Any) -> None:
        expected = in_library(config, value)
        assert outcome(config, value) == expected
        assert outcome(config, value, frame=True) == expected

    for value in [*(value for value, _ in PLAIN), *REFUSED]:
        check = example(value)(check)
    check()


def test_the_library_learns_values_of_python_with_costs_and_segments() -> None:
    document = {
        "algorithm": "cbr-diag",
        "features": {"kind": "named", "bits": 8},
        "threshold": {"objective": "cost", "false_positive": 1, "field": "amount"},
        "figures": {"segments": ["country"]},
    }
    python, plain = create(**document), create(**document)
    python.learn(
        [{"amount": Decimal("12.50"), "country": Colour.RED}, {"amount": np.float32(3), "country": pd.NA}], [1, 0]
    )
    plain.learn([{"amount": 12.5, "country": "red"}, {"amount": 3.0, "country": None}], [1, 0])
    assert python.digest() == plain.digest()
    assert python.score([{"amount": Decimal(2)}]).tolist() == plain.score([{"amount": 2}]).tolist()
