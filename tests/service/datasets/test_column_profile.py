"""Columns are described by their values: kinds, roles, and what may be wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from service.datasets.column_profile import LabelValues, likely_label, profile_column, reveals_label

ROWS = 100
WORDS = ["".join(letters) for letters in product("abcdefghij", repeat=3)]


@pytest.mark.parametrize(
    ("name", "values", "kind", "distinct"),
    [
        ("amount", [i % 7 + 0.5 for i in range(ROWS)], "number", 7),
        ("amount", [None, *[i % 7 for i in range(ROWS)]], "number", 7),
        ("txn_id", [i * 7919 % 10007 for i in range(ROWS)], "identifier", 100),
        ("row", list(range(ROWS)), "identifier", 100),
        ("age", list(range(20, 80)), "number", 60),  # of a sorted table
        ("duration", [i * 7919 % 10007 for i in range(ROWS)], "number", 100),
        ("terminal_id", [i % 7 for i in range(ROWS)], "number", 7),
        ("TERMINAL_ID", [i % 7 for i in range(ROWS)], "number", 7),
        ("Destination Port", [i % 7 for i in range(ROWS)], "number", 7),
        ("report", [i % 7 for i in range(ROWS)], "number", 7),
        ("terminalId", [i % 7 for i in range(ROWS)], "number", 7),
        ("paid", [i % 7 for i in range(ROWS)], "number", 7),
        ("seconds", [i // 2 for i in range(ROWS)], "number", 50),
        ("when", [1575118861 + i * 3600 for i in range(ROWS)], "time", 100),
        ("country", ["DE" if i % 4 else "FR" for i in range(ROWS)], "names", 2),
        ("country", ["DE"] * ROWS, "constant", 1),
        ("note", [f"this is row {i} of them" for i in range(ROWS)], "text", 100),
        ("hash", [f"{i:x}" for i in range(ROWS)], "identifier", 100),
        ("hash", [f"{i:x}" for i in range(ROWS - 1)] + ["0"], "identifier", 99),
        ("hash", [WORDS[i] for i in range(1000)], "identifier", 1000),
        ("hash", [WORDS[i] for i in range(63)], "names", 63),
        ("user_key", [WORDS[i] for i in range(63)], "identifier", 63),
        ("fee", [*map(str, range(93)), *WORDS[:7]], "names", 100),
        ("first_name", [WORDS[i] for i in range(63)], "names", 63),
        ("LastName", [WORDS[i] for i in range(1000)], "names", 1000),
        ("who", [f"Mr {WORDS[i]}" for i in range(1000)], "names", 1000),
        ("at", [f"2019-11-30T13:{i % 60:02}:01Z" for i in range(ROWS)], "time", 60),
        ("day", [f"2019-11-{i % 30 + 1:02}" for i in range(ROWS)], "time", 30),
        ("day", [f"{i % 28 + 1}/11/2019 5:07" for i in range(ROWS)], "time", 28),
        ("day", ["3/4/2019", "5/4/2019"], "time", 2),
        ("sent", [f"Sat, {i % 28 + 1:02} Nov 2019 13:01:01 GMT" for i in range(ROWS)], "time", 28),  # a mail
        ("sent", [f"Sat, {i % 28 + 1:02} Nov 2019 13:01:01 +0100" for i in range(ROWS)], "time", 28),
        ("asked", [f"{i % 28 + 1:02}/Nov/2019:13:01:01 +0000" for i in range(ROWS)], "time", 28),  # Apache
        ("day", [f"{i % 28 + 1} Nov 2019" for i in range(ROWS)], "time", 28),
        ("day", [f"November {i % 28 + 1}, 2019 13:01" for i in range(ROWS)], "time", 28),
        ("sent_at", [1575118861500.0 + 1000 * (i % 60) for i in range(ROWS)], "time", 60),
        ("timestamp", [1575118861500000000 - i for i in range(ROWS)], "time", 100),
        ("tweet", [1575118861500000000 + i for i in range(ROWS)], "identifier", 100),
        ("merchant", [5738391131361491441 - i % 7 for i in range(ROWS)], "names", 7),
        ("day", [20191101.0 + i % 30 for i in range(ROWS)], "time", 30),
        ("barcode", [20191130.0 - i % 30 for i in range(ROWS)], "number", 30),
        ("tags", [["a"], []], "list", 2),
        ("new", [True, False, None], "names", 2),
        ("later", [None] * ROWS, "empty", 0),
        ("version", ["1.2.3", "2.0.1"] * 20, "names", 2),
        ("amount", [0.5, "950", *[i % 198 + 1.5 for i in range(198)]], "number", 200),
        ("amount", ["950", *[i % 199 + 0.5 for i in range(199)]], "mixed", 200),
        ("amount", [*[i % 50 + 0.5 for i in range(199)], *["DE"] * 3], "number", 51),
        ("grade", [*[i % 50 for i in range(199)], "007"], "number", 51),
        ("grade", ["007", *[i % 50 for i in range(18)]], "names", 19),
        ("note", ["NA", "-", "NA"], "empty", 2),
        ("amount", [1.5, [2], "x"], "number", 3),
        ("code", [str(i % 7) for i in range(ROWS)], "names", 7),
    ],
)
def test_kinds(name: str, values: list[Any], kind: str, distinct: int) -> None:
    profile = profile_column(name, values)
    missing = sum(value is None for value in values)
    assert (profile.kind, profile.missing, profile.values) == (kind, missing, distinct)
    assert profile.named_as_id == (
        name in ("terminal_id", "TERMINAL_ID", "terminalId", "txn_id", "user_key", "Destination Port")
    )
    assert bool(profile.time_format) == (kind == "time" and any(part in str(values[0]) for part in ("/11/", "Nov")))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([43799.5, 43800.5], ("no moments since 1980", "--time-unit", "from 1980-01-01")),
        ([-86400.0, 0.0], ("no moments since 1980",)),
        ([1575118861.25, 1575118862.0], ("seconds", "2019-11-30", "2019-11-30")),
        ([1575118861000000, 1575118862000000], ("microseconds", "2019-11-30", "2019-11-30")),
        ([20191130.0, 20191201.0], ("dates", "20191130")),
        ([1e300, 1e301], ("no moments since 1980",)),
    ],
)
def test_a_time_of_numbers_says_what_they_mean(values: list[float], words: Sequence[str]) -> None:
    profile = profile_column("t", values, timed=True)
    assert profile.kind == "time"
    assert all(word in profile.why for word in words)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.12, 49170000123.0], "0.12 to 49,170,000,123"),
        ([1e20, 2e20], "1e+20 to 2e+20"),
        (["10.0.0.1-10.0.0.2-17500"] * 2 + ["10.0.0.1-10.0.0.2-1750"], "10.0.0.1-10.0.0.2-17500 67 %"),
        (["10.0.0.1-10.0.0.2-17500-17"] * 2 + ["b"], "10.0.0.1-10.0.0.2-17... 67 %"),
        ([[2], 1.5, "x"], "in 1 row of 3, such as '[2]'"),
    ],
)
def test_large_numbers_are_whole_and_long_values_are_marked(values: list[Any], words: str) -> None:
    assert words in profile_column("a", values).why


def test_amounts_with_a_long_tail_are_skewed() -> None:
    assert profile_column("amount", [1.5] * 50 + [2.5] * 49 + [5000.0]).skewed
    assert not profile_column("balance", [-1.0] * 50 + [2.5] * 49 + [5000.0]).skewed


@pytest.mark.parametrize(
    ("columns", "label"),
    [
        ({"label": [0, 1], "x": [0, 1]}, "label"),
        ({"x": [0, 1], "isFraud": [0, 1]}, "isFraud"),
        ({"is_fraud": [0, 0], "x": ["a", "b"]}, "is_fraud"),
        ({"x": [1, 2, 3], "Class": ["a", "b", "c"]}, "Class"),
        ({"x": [1, 2, 3], "outcome_flag": [0, 1, 0]}, "outcome_flag"),
        ({"kind": ["ham", "spam"] * 20, "text": [str(i) for i in range(40)]}, "kind"),
        ({"x": [1, 2, 3], "y2": [1, 2, 3]}, None),
        ({"class": list(range(100))}, None),
    ],
)
def test_the_label_is_found(columns: dict[str, list[Any]], label: str | None) -> None:
    assert likely_label(columns) == label


def test_a_column_that_tells_the_label_is_found() -> None:
    labels = [i % 10 == 0 for i in range(ROWS * 3)]
    assert reveals_label([i % 20 * label + 1 * label for i, label in enumerate(labels)], labels)
    assert not reveals_label([i % 3 for i in range(ROWS * 3)], labels)
    assert not reveals_label([1] * ROWS * 3, labels)
    assert not reveals_label([1, 2], [0, 1])


def test_the_rarest_label_is_probably_positive() -> None:
    assert LabelValues({"a": 5, "b": 2, "c": 2}).rarest() == "c"
    assert LabelValues({"0": 5, "1": 2}).binary
