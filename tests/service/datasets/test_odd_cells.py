"""Cells as real files have them: other spellings of missing values, numbers among text, text among numbers."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from learners.features import MISSING
from service.datasets.bad_rows import BadRows
from service.datasets.event_inputs import Inputs
from service.datasets.file_options import FileOptions
from service.datasets.readers import open_rows
from service.datasets.rows import ReadError
from service.datasets.times import timestamp
from service.datasets.values import RowColumns, identity, label_text

ODD = ["-", "$12.50", '"1,234.50"', "12%", "<NA>", "\\N", "inf", "-Infinity", "#N/A", "1_000", "NULL", "?", "n/a"]

START = 315_532_800.0  # 1980-01-01, from which numbers of a unit count that are no moments


def read(path: Path, columns: RowColumns | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the events of a file, and what is said of cells that count as missing."""
    with open_rows(path, columns or RowColumns()) as rows:
        return list(rows.events()), rows.notes()


def write(folder: Path, cells: list[str], name: str = "amount") -> Path:
    """Write a file with one column of features."""
    path = folder / "rows.csv"
    path.write_text(f"{name},label\n" + "".join(f"{cell},{i % 2}\n" for i, cell in enumerate(cells)))
    return path


@pytest.mark.parametrize(("cell", "row"), [*((cell, 150) for cell in ODD), ("inf", 10_001), ("A7", 10_001)])
def test_an_odd_cell_of_a_numeric_column_is_missing_and_reported(tmp_path: Path, cell: str, row: int) -> None:
    cells = [f"{i}.5" for i in range(row + 10)]
    cells[row] = cell
    events, notes = read(write(tmp_path, cells))
    values = [event["features"]["amount"] for event in events]
    assert values[row] is None
    assert all(isinstance(value, float) for i, value in enumerate(values) if i != row)
    (note,) = notes
    assert note.startswith("amount: 1 ")
    assert repr(cell.strip('"')) in note
    assert f"line {row + 2:,}" in note


def test_empty_cells_are_not_reported(tmp_path: Path) -> None:
    events, notes = read(write(tmp_path, ["1", "", "2.5"]))
    assert [event["features"]["amount"] for event in events] == [1.0, None, 2.5]
    assert notes == []


@pytest.mark.parametrize(
    "cells",
    [
        ["01234", "90210", "10001"],
        ["9007199254740993", "9007199254740995", "17"],
        ["1", "2", "A7"],
        ["000", "1", "2"],
    ],
    ids=["leading zeros", "beyond 2^53", "text", "zeros"],
)
def test_names_that_look_like_numbers_stay_names(tmp_path: Path, cells: list[str]) -> None:
    events, notes = read(write(tmp_path, cells))
    assert [event["features"]["amount"] for event in events] == cells
    assert notes == []


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (["01234", "90210"], "'01234'"),
        (["9007199254740993", "17"], "'9007199254740993'"),
        (["1" * 5000, "17"], "2^53"),
        (["1", "2", "A7"], "'A7'"),
        (["1", "$12.50", "$3"], "'$12.50'"),
        (["12 %", "3.5%"], "'12 %'"),
        (["\u20ac 12.50", "7 \u20ac"], "'\u20ac 12.50'"),
        (["'0950", "'17"], "0950"),
        (["(83.20)", "(17)"], "'(83.20)'"),
        (["#12", "#13"], None),
        (["$12", "VISA"], None),
        (["20+", "0-10"], None),
        (["Bob", "Ann"], None),
        (["1", "2"], None),
    ],
    ids=[
        *("leading zero", "beyond 2^53", "5,000 digits", "one text", "mostly text", "percents", "euros", "apostrophes"),
        *("brackets", "tickets", "one amount", "ranges", "text", "numbers"),
    ],
)
def test_a_column_that_looks_numeric_and_is_not_is_reported(
    tmp_path: Path, cells: list[str], reason: str | None
) -> None:
    with open_rows(write(tmp_path, cells), RowColumns()) as rows:
        assert [line.split(":")[0] for line in rows.guesses] == ([] if reason is None else ["amount"])
        assert reason is None or reason in rows.guesses[0]


@pytest.mark.parametrize(
    "cell", ["\N{SUPERSCRIPT TWO}", "+-5", "\N{ARABIC-INDIC DIGIT THREE}", "1" * 5000, "-", "+", "--1"]
)
def test_any_cell_can_be_read(tmp_path: Path, cell: str) -> None:
    events, _ = read(write(tmp_path, [cell, "1", "2"]))
    assert len(events) == 3


@pytest.mark.parametrize("cell", ["0", "-0", "0.5", "007.5", "1e3", "+7", " 8 "])
def test_usual_numbers_stay_numbers(tmp_path: Path, cell: str) -> None:
    events, _ = read(write(tmp_path, [cell, "1.5"]))
    assert events[0]["features"]["amount"] == float(cell)


@pytest.mark.parametrize("row", [5, 10_001])
def test_another_case_of_the_positive_label_is_refused_anywhere(tmp_path: Path, row: int) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("amount,label\n" + "".join(f"1,{'FRAUD' if i == row else 'ok'}\n" for i in range(10_010)))
    with pytest.raises(ReadError, match="'FRAUD'"):
        read(path, RowColumns(positive=("fraud",)))


@pytest.mark.parametrize("label", [">50k", ">50K.", ">50K .", ">\uff15\uff10K", ">50K\u200b", "\ufeff>50K"])
def test_a_spelling_that_looks_like_the_positive_label_is_refused(tmp_path: Path, label: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("age,label\n1,>50K\n2,<=50K\n" + f"3,{label}\n4,<=50K.\n")
    with pytest.raises(ReadError, match=re.escape(repr(label))):
        read(path, RowColumns(positive=(">50K",)))
    events, _ = read(path, RowColumns(positive=(">50K", label), negative=("<=50K", "<=50K.")))
    assert [event["label"] for event in events] == [1, 0, 1, 0]


ROWS_OF_PYTHON = [
    '{"amount": 1.5, "note": "NaN: Infinity, \\"x\\": NaN", "label": 0}',
    '{"amount": NaN, "note": "b", "label": 1}',
    '{"amount":-Infinity, "note" : NaN, "label": 0}',
    '{"amount": Infinity, "note": "", "label": 1}',
]


@pytest.mark.parametrize("form", ["{}", "[{}]", '{{"events": [\n{}]}}'], ids=["lines", "list", "events"])
def test_numbers_that_json_does_not_have_are_missing_and_counted(tmp_path: Path, form: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(form.format(("\n" if form == "{}" else ",\n").join(ROWS_OF_PYTHON)))
    events, notes = read(path)
    features = [event["features"] for event in events]
    assert [row["amount"] for row in features] == [1.5, None, None, None]
    assert [row["note"] for row in features] == ['NaN: Infinity, "x": NaN', "b", None, ""]
    (note,) = notes
    assert note.startswith("4 values ")
    assert "amount" in note
    inputs = Inputs([str(path)], "update", None, RowColumns())
    assert [event["features"] for event in inputs.events()] == features
    assert inputs.notes == notes


@pytest.mark.parametrize("line", ['{"a": nan}', '{"a": NaNs}', "{NaN: 1}", '{"a": NaN', '{"a" NaN}', "NaN"])
def test_other_text_is_not_json(tmp_path: Path, line: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1, "label": 0}\n' + line + "\n")
    with pytest.raises(ReadError, match="line 2: not"):
        read(path)


@pytest.mark.parametrize(
    "text", ["", "NULL", "null", "None", "nan", " ", "-", "\\N", "<NA>", "(null)", "N.A.", "#N/A N/A", "nil", "--", "."]
)
def test_missing_ids_are_no_ids(text: str) -> None:
    assert identity(text) is None


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("column", "value"), [("when", "9999-12-31"), ("when", 4e9), ("key", "x" * 257), ("key", "a\u200bb")]
)
def test_a_row_whose_id_or_time_the_service_refuses_is_a_bad_row(
    tmp_path: Path, form: str, column: str, value: Any
) -> None:
    path = tmp_path / f"rows.{form}"
    rows = [{"key": f"k{i}", "when": "2026-01-05", "label": i % 2} for i in range(4)]
    rows[2][column] = value
    lines = [",".join(map(str, row.values())) if form == "csv" else json.dumps(row) for row in rows]
    path.write_text("\n".join([*["key,when,label"] * (form == "csv"), *lines]))
    columns = RowColumns(id="key", time="when")
    with pytest.raises(ReadError, match=f"line {3 + (form == 'csv')}: the (id|time) "):
        read(path, columns)
    with BadRows("skip") as bad, open_rows(path, columns, bad=bad) as rows_:
        assert [event["id"] for event in rows_.events()] == ["k0", "k1", "k3"]


@pytest.mark.parametrize("text", ["#DIV/0!", ".", "(null)", "nil", "Undefined", "unknown", "NaT", "N.A.", "#N/A N/A"])
def test_a_missing_text_is_missing_as_a_feature_a_label_and_an_id(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.csv"
    rows = [f"{text if i % 4 == 0 else i + 0.5},{text if i == 1 else i},{text if i == 2 else i % 2}" for i in range(40)]
    path.write_text("\n".join(["amount,key,label", *rows]))
    with open_rows(path, RowColumns(id="key", form=FileOptions(unlabelled="score"))) as rows_:
        events = list(rows_.events())
        notes = rows_.notes()
    assert [event["features"]["amount"] for event in events] == [None if i % 4 == 0 else i + 0.5 for i in range(40)]
    assert [i for i, event in enumerate(events) if "id" not in event] == [1]
    assert [i for i, event in enumerate(events) if "label" not in event] == [2]
    assert "amount: 10 " in " ".join(notes)


def test_each_missing_text_of_the_rule_is_no_id_and_no_label() -> None:
    assert {text for text in MISSING if identity(text) is not None or label_text(text) is not None} == set()


@pytest.mark.parametrize("value", [2, 2.0, "2", "2.0", " 2 ", "2.00"])
def test_spellings_of_a_whole_number_are_one_id(value: Any) -> None:
    assert identity(value) == "2"


@pytest.mark.parametrize("value", [2.0**53 + 2, -1.5e16, 1e300, math.inf])
def test_an_id_that_a_float_cannot_tell_from_the_next_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"2\^53"):
        identity(value)
    assert identity(math.nan) is None  # as data frames write null
    assert identity(10**300) == str(10**300)


def test_refused_rows_are_not_in_the_notes(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    good = "".join(f"{i}.5,2026-01-05,{i % 2}\n" for i in range(300))
    path.write_text("amount,when,label\n" + "-,yesterday,\n" + good + "-,yesterday,\n" * 2 + "-,2026-01-05,1\n")
    columns = RowColumns(time="when", form=FileOptions(unlabelled="score"))
    with BadRows("skip") as bad, open_rows(path, columns, bad=bad) as rows:
        assert len(list(rows.events())) == 301
        (note,) = rows.notes()
    assert note.startswith("amount: 1 ")
    assert "line 305" in note


@pytest.mark.parametrize("number", [4111111111111111, 2**53, -(2**53), -5, 0])
def test_a_whole_number_up_to_2_53_is_one_id_as_text_and_as_a_number(number: int) -> None:
    assert {identity(value) for value in (number, float(number), str(number), f"{number}.0")} == {str(number)}


@pytest.mark.parametrize(
    "text", ["02.0", "1.10", "2.5", "v2.0", "tx-1", "2.0.0", "9" * 16 + ".0", "1" * 17 + ".0", "Nan-1", "name", "Ref"]
)
def test_other_ids_stay(text: str) -> None:
    assert identity(f" {text} ") == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20191130", 1575072000.0),
        ("30.11.2019 13:01", 1575118860.0),
        ("3.1.2019", 1546473600.0),
        ("2019-11-30 13:01:01 UTC", 1575118861.0),
        ("2019-11-30T13:01:01+01:00", 1575115261.0),
        ("1575118861", 1575118861.0),
        ("20191130130101", 1575118861.0),
        (20191130, 1575072000.0),
        (20191130130101, 1575118861.0),
        ("2019/11/30 13:01:01", 1575118861.0),
        ("1575118861500", 1575118861.5),
        (1575118861500, 1575118861.5),
        (1575118861500.0, 1575118861.5),
        ("1575118861500000", 1575118861.5),
        (1575118861500000000, 1575118861.5),
    ],
)
def test_times_of_usual_forms(text: Any, seconds: float) -> None:
    assert timestamp(text) == seconds


@pytest.mark.parametrize("text", ["4/10/2019 11:05", "31.02.2019", "20190231", "2019/02/31", "yesterday"])
def test_ambiguous_or_impossible_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"'{text}'.*ISO"):
        timestamp(text)


@pytest.mark.parametrize(
    "value",
    [0, 31, "43799.5", -1, "20191399", 299.5, -1575118861500, "1e30", 10**10, "4102444801", 5e9, 172792, "1.5e8"],
)
def test_a_number_that_is_no_moment_in_any_unit_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="is no moment since 1980 in seconds, milliseconds"):
        timestamp(value)


@pytest.mark.parametrize("text", ["3.5e+18", "3.5E18", "1.23457E+11", "4e+15", "-3.5e+18"])
def test_an_id_that_has_lost_digits_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="whose last digits are lost"):
        identity(text)


@pytest.mark.parametrize("text", ["12e5", "1.5e3", "3500000000000000001", "1e10", "2.5"])
def test_an_id_that_resembles_a_number_stays(text: str) -> None:
    assert identity(text) == text


@pytest.mark.parametrize("form", ["csv", "jsonl", "update"])
@pytest.mark.parametrize(
    ("cells", "unit", "times"),
    [
        ([0, 1, 2.5], "h", [START, START + 3600, START + 9000]),
        ([1575118861, 1575118862], "s", [1575118861.0, 1575118862.0]),
        ([1575118861500], "ms", [1575118861.5]),
        ([18000], "d", [1555200000.0]),
        ([43799], "min", [START + 2627940]),
    ],
)
def test_a_unit_says_what_numbers_of_times_count(
    tmp_path: Path, form: str, cells: list[Any], unit: str, times: list[float]
) -> None:
    def read(options: FileOptions) -> list[float | None]:
        path = tmp_path / f"rows.{form.replace('update', 'jsonl')}"
        if form == "csv":
            path.write_text("when,x,label\n" + "".join(f"{cell},1,0\n" for cell in cells))
        else:
            path.write_text("".join(json.dumps({"when": cell, "x": 1, "label": 0}) + "\n" for cell in cells))
        columns = RowColumns(time="when", form=options)
        if form == "update":
            return [event.get("time") for event in Inputs([str(path)], "update", None, columns).events()]
        with open_rows(path, columns) as rows:
            return [event.get("time") for event in rows.events()]

    assert read(FileOptions(time_unit=unit)) == times
    if unit not in ("s", "ms"):
        with pytest.raises(ReadError, match=r"--time-unit s\|ms\|us\|ns\|min\|h\|d"):
            read(FileOptions())


def times_of(path: Path, unit: str, cells: list[Any]) -> tuple[list[float | None], list[str]]:
    """Return the times of a file's rows, and what is reported."""
    path.write_text("".join(json.dumps({"when": cell, "x": 1, "label": 0}) + "\n" for cell in cells))
    if path.suffix == ".csv":
        path.write_text("when,x,label\n" + "".join(f"{cell},1,0\n" for cell in cells))
    with open_rows(path, RowColumns(time="when", form=FileOptions(time_unit=unit))) as rows:
        return [event.get("time") for event in rows.events()], [*rows.guesses, *rows.notes()]


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_the_first_time_decides_whether_a_unit_counts_from_the_beginning_of_the_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    times, notes = times_of(path, "h", [0, 87_000, 88_000])  # over ten years
    assert times == [START, START + 87_000 * 3600, START + 88_000 * 3600]
    assert any("h from 0, which is taken as 1980-01-01; the first, 0, is 1980-01-01" in note for note in notes)
    _, notes = times_of(path, "h", [20_454])
    assert any("the first, 20454, is 1982-05-02" in note for note in notes)
    times, notes = times_of(path, "d", [18_000, 18_001])
    assert times == [18_000 * 86_400, 18_001 * 86_400]
    assert not any("1980" in note for note in notes)
    with pytest.raises(ReadError, match=r"the time is 2, which counts d, before 1980"):
        times_of(path, "d", [18_000, 2])


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
@pytest.mark.parametrize(
    ("cell", "unit", "other"), [(1575118861, "ms", "s"), (1575118861000, "us", "ms"), (1575118861, "ns", "s")]
)
def test_a_unit_that_makes_times_of_today_those_of_1970_is_refused(
    tmp_path: Path, name: str, cell: int, unit: str, other: str
) -> None:
    with pytest.raises(
        ReadError, match=f"before 1980 in {unit}, and a moment since 1980 in {other}: leave --time-unit"
    ):
        times_of(tmp_path / name, unit, [cell, cell + 1])


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_times_of_two_units_in_one_column_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    times, _ = times_of(path, "", [1575118861, 1575118862])
    assert times == [1575118861.0, 1575118862.0]
    text = r"line 3: the time 1575118861000, which counts ms, is 2019-11-30, but the first one, 1575118860, counts s"
    with pytest.raises(ReadError, match=text if path.suffix == ".csv" else text.replace("line 3", "line 2")):
        times_of(path, "", [1575118860, 1575118861000])


def test_a_time_ahead_of_now_is_told_with_its_date(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"the time 4102358400, which counts s, is 2099-12-31; expected at most a day"):
        times_of(tmp_path / "rows.csv", "", [4102358400])
    with pytest.raises(ReadError, match=r"the time 9999-12-31 is 9999-12-31; expected"):
        times_of(tmp_path / "rows.csv", "", ["9999-12-31"])


@pytest.mark.parametrize("cell", ["1970-01-01", "1970-01-01 00:00:59", "1900-01-01", "01.01.1970"])
def test_a_date_before_1980_needs_a_word(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"when,x,label\n2019-11-30,1,0\n{cell},1,1\n")
    with pytest.raises(
        ReadError, match=r"line 3: the time is .* before 1980: if it means that there is none, give --missing"
    ):
        read(path, RowColumns(time="when"))
    events, _ = read(path, RowColumns(time="when", form=FileOptions(missing=(cell,))))
    assert [event.get("time") for event in events] == [1575072000.0, None]


@pytest.mark.parametrize("form", ["csv", "jsonl", "update"])
@pytest.mark.parametrize(
    ("cells", "refused"),
    [
        (["2019", "", "2020"], True),
        (["201911", "201912", "NULL"], True),
        ([2019, None, 201912], True),
        (["1899", "2019"], False),  # numbers without a unit, as those of creditcard.csv
        (["2019.0"], False),
        (["201913"], False),
        ([""], False),
    ],
)
def test_times_that_are_all_years_or_months_are_refused(
    tmp_path: Path, form: str, cells: list[Any], refused: bool
) -> None:
    path = tmp_path / f"rows.{form.replace('update', 'jsonl')}"
    rows = [{"when": cell, "x": 1, "label": 0} for cell in cells]
    if form == "csv":
        path.write_text("when,x,label\n" + "".join(f"{'' if cell is None else cell},1,0\n" for cell in cells))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def times(format: str = "", unit: str = "") -> list[float | None]:
        columns = RowColumns(time="when", form=FileOptions(time_format=format, time_unit=unit))
        if form == "update":
            return [event.get("time") for event in Inputs([str(path)], "update", None, columns).events()]
        with open_rows(path, columns) as read:
            return [event.get("time") for event in read.events()]

    if not refused:
        assert times(unit="s") == [START + float(cell) if cell else None for cell in cells]
        return
    with pytest.raises(ReadError, match=r"line [12]: the time 2019(11)? looks like a year.*--time-format %Y"):
        times()
    if all(isinstance(cell, str) and len(cell) in (0, 4) for cell in cells):
        assert times("%Y") == [1546300800.0, None, 1577836800.0]
