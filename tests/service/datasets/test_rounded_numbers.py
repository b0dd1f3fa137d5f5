"""Ids that a spreadsheet or a data frame wrote as 3.5e+18: files are warned of with the place of the first.

At every door, the field is remarked as `rounded`: see tests/learners/features/test_fields.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from service.datasets import RowColumns, open_rows
from service.datasets.notes import ColumnNote

pytestmark = pytest.mark.integration  # pandas and pyarrow are extras

ROWS: list[dict[str, Any]] = [
    {"account": 12.0, "amount": 1.5, "label": 0},
    {"account": 3.5e18, "amount": 2.5, "label": 1},
    {"account": -4.5e18, "amount": 2.0**53, "label": 1},
]
WORDS = "warning: 2 numbers beyond 2^53 in exponent form, the first in {}: 3.5e+18. If they are ids"


def written(folder: Path, form: str) -> Path:
    path = folder / f"rows.{form}"
    if form == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    elif form == "jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    else:
        mark = "\t" if form == "tsv" else ","
        path.write_text("\n".join(mark.join(map(str, row)) for row in [list(ROWS[0]), *(r.values() for r in ROWS)]))
    return path


@pytest.mark.parametrize(
    ("form", "place"), [("csv", "line 3"), ("tsv", "line 3"), ("jsonl", "line 2"), ("parquet", "row 1")]
)
def test_a_file_of_rounded_ids_is_warned_of_once_unless_the_field_is_declared(
    tmp_path: Path, form: str, place: str
) -> None:
    path = written(tmp_path, form)
    with open_rows(path, RowColumns()) as rows:
        list(rows.events())
        (note,) = rows.notes()
    assert isinstance(note, ColumnNote)
    assert note.column == "account"
    assert note.text.startswith(WORDS.format(place))
    with open_rows(path, RowColumns(), {"account": True}) as rows:
        list(rows.events())
        assert rows.notes() == []
