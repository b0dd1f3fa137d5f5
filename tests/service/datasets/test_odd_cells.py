"""Cells as real files have them: other spellings of missing values, numbers among text, text among numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.datasets.readers import open_rows
from service.datasets.rows import ReadError
from service.datasets.values import RowColumns, identity, timestamp

ODD = ["-", "$12.50", '"1,234.50"', "12%", "<NA>", "\\N", "inf", "-Infinity", "#N/A", "1_000", "NULL", "?", "n/a"]


def read(path: Path, columns: RowColumns | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the events of a file, and what is said of cells that count as missing."""
    with open_rows(path, columns or RowColumns()) as rows:
        return list(rows.events()), rows.missing_cells()


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
        (["1", "$12.50", "$3"], None),
        (["Bob", "Ann"], None),
        (["1", "2"], None),
    ],
    ids=["leading zero", "beyond 2^53", "5,000 digits", "one text", "mostly text", "text", "numbers"],
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


@pytest.mark.parametrize("text", ["", "NULL", "null", "None", "nan", " ", "-", "\\N", "<NA>"])
def test_missing_ids_are_no_ids(text: str) -> None:
    assert identity(text) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20191130", 1575072000.0),
        ("30.11.2019 13:01", 1575118860.0),
        ("3.1.2019", 1546473600.0),
        ("2019-11-30 13:01:01 UTC", 1575118861.0),
        ("2019-11-30T13:01:01+01:00", 1575115261.0),
        ("1575118861", 1575118861.0),
        ("20191399", 20191399.0),  # no date, so seconds
    ],
)
def test_times_of_usual_forms(text: str, seconds: float) -> None:
    assert timestamp(text) == seconds


@pytest.mark.parametrize("text", ["4/10/2019 11:05", "31.02.2019", "20190231", "yesterday"])
def test_ambiguous_or_impossible_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ISO"):
        timestamp(text)
