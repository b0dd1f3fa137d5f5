"""Rows are known by what the file has, whatever the kinds of its columns."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.datasets import Hashes, RowColumns, RowHash, find_learnt, open_rows

COLUMNS = RowColumns("label")


def hashes(path: Path, columns: RowColumns = COLUMNS) -> list[int]:
    """Return the hashes of a file's rows."""
    with open_rows(path, columns) as rows:
        hash = RowHash(columns, rows.header)
        return [hash(event.origin.row) for event in rows.events()]


def test_a_repaired_cell_that_changes_the_kind_of_its_column_changes_no_other_row(tmp_path: Path) -> None:
    names, numbers = tmp_path / "names.csv", tmp_path / "numbers.csv"
    rows = [f"{i},{i}.50,{i % 2}" for i in range(100)]
    names.write_text("\n".join(["a,b,label", *rows[:50], "oops,oops,1", *["x,y,1"] * 60]))
    numbers.write_text("\n".join(["a,b,label", *rows]) + "\n")
    with open_rows(names, COLUMNS) as before, open_rows(numbers, COLUMNS) as after:
        assert before.shape != after.shape
    assert hashes(names)[:50] == hashes(numbers)[:50]
    packed = tmp_path / "numbers.csv.gz"
    packed.write_bytes(gzip.compress(numbers.read_bytes()))
    assert hashes(packed) == hashes(numbers)


def test_the_last_line_has_the_same_hash_when_the_file_grows(tmp_path: Path) -> None:
    for name, lines in (
        ("a.csv", ["x,label", "1,0", '"a\nb",1']),
        ("a.jsonl", ['{"x": 1, "label": 0}', '{"x": 2, "label": 1}']),
        ("a.libsvm", ["0 1:2", "1 1:3"]),
    ):
        path = tmp_path / name
        path.write_text("\n".join(lines))
        before = hashes(path)
        path.write_text("\n".join([*lines, lines[-1]]) + "\n")
        assert hashes(path) == [*before, before[-1]]


def test_other_columns_and_options_make_other_hashes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    values = set()
    for header in ("a,b,label", "a,c,label"):
        path.write_text(f"{header}\n1,2,0\n3,4,1\n")
        for columns in (COLUMNS, RowColumns("label", positive=("0",)), RowColumns("label", drop=("a",))):
            values |= set(hashes(path, columns))
    assert len(values) == 12


def test_equal_rows_of_arrays_have_one_hash(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]), y=[0, 1, 0])
    first, second, third = hashes(tmp_path / "a.npz")
    assert first == third != second


@given(st.lists(st.integers(0, 40)), st.lists(st.lists(st.integers(0, 40)), max_size=3))
def test_as_many_equal_rows_are_left_out_as_were_learnt(rows: list[int], learnt: list[list[int]]) -> None:
    def hashes_of(values: list[int]) -> Hashes:
        return np.array([(value + 1) * 0x9E3779B97F4A7C15 % 2**64 & ~1 for value in values], np.uint64)

    left = Counter(row for part in learnt for row in part)
    expected = []
    for row in rows:
        expected.append(left[row] > 0)
        left[row] -= 1
    learnt_before, distinct = find_learnt(hashes_of(rows), map(hashes_of, learnt))
    assert learnt_before.tolist() == expected
    assert distinct == len({row for row, out in zip(rows, expected, strict=True) if out})


def test_the_order_of_keys_in_json_is_of_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1, "y": {"b": 2, "a": 3}, "label": 0}\n{"y": {"a": 3, "b": 2}, "label": 0, "x": 1}\n')
    first, second = hashes(path, RowColumns("label", drop=("y",)))
    assert first == second
