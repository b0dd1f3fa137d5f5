"""Columns that name rows: a repeated id is refused before the first row, a column that may be one is reported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from service.datasets.event_inputs import Inputs
from service.datasets.notes import UniqueColumn
from service.datasets.readers import open_rows
from service.datasets.rows import ReadError
from service.datasets.values import RowColumns

ROWS = [(f"TXN-{i:05}", f"c{i % 50}", 10_000 + i, i / 8, f"to c{i} at {i}", i % 2) for i in range(1000)]
NAMES = ("Txn ID", "customer", "number", "amount", "text", "label")


def write(folder: Path, form: str, rows: Sequence[Sequence[Any]] = ROWS) -> Path:
    path = folder / f"rows.{form}"
    if form == "csv":
        path.write_text("\n".join(",".join(map(str, row)) for row in (NAMES, *rows)))
    else:
        objects = [dict(zip(NAMES, row, strict=True)) for row in rows]
        path.write_text("\n".join(map(json.dumps, objects)))
    return path


def warnings(path: Path, columns: RowColumns, declared: dict[str, bool] | None = None) -> list[str]:
    with open_rows(path, columns, declared) as rows:
        return [note.column for note in rows.guesses if isinstance(note, UniqueColumn)]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_an_id_that_repeats_is_refused_before_the_first_row(tmp_path: Path, form: str) -> None:
    with pytest.raises(ReadError, match=r"95 %.*\b1,000 rows\b.*'customer'"):
        open_rows(write(tmp_path, form), RowColumns(id="customer"))
    few = [*ROWS[:950], *ROWS[:50]]  # such as corrections
    with open_rows(write(tmp_path, form, few), RowColumns(id="Txn ID")) as rows:
        assert len(list(rows.events())) == 1000


def test_updates_of_json_are_judged_as_replays_are(tmp_path: Path) -> None:
    path = write(tmp_path, "jsonl")
    inputs = Inputs([str(path)], "update", None, RowColumns(id="customer"))
    with pytest.raises(ReadError, match="'customer'"):
        next(inputs.events())
    inputs = Inputs([str(path)], "update", None, RowColumns())
    assert len(list(inputs.events())) == 1000
    assert [note.column for note in inputs.notes if isinstance(note, UniqueColumn)] == ["Txn ID", "number"]
    scored = Inputs([str(path)], "predict", None, RowColumns(id="customer"))
    assert (len(list(scored.events())), scored.notes) == (1000, [])


def test_events_to_score_may_repeat_an_id(tmp_path: Path) -> None:
    with open_rows(write(tmp_path, "csv"), RowColumns(id="customer"), labelled=False) as rows:
        assert len(list(rows.events())) == 1000


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_columns_that_may_name_rows_are_reported(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, form)
    assert warnings(path, RowColumns()) == ["Txn ID", "number"]
    assert warnings(path, RowColumns(id="Txn ID", drop=("number",))) == []


def test_a_column_that_the_learner_declares_is_not_reported(tmp_path: Path) -> None:
    path = write(tmp_path, "csv")
    assert warnings(path, RowColumns(), {"number": True, "Txn ID": False}) == []


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_few_rows_tell_nothing(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, form, ROWS[:99])
    assert warnings(path, RowColumns(id="customer")) == []
