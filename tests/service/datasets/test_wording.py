"""The words about a file: what a column seems to be, how rows are read, and which rows are left out.

Other tests look at kinds, counts, values, lines, and the names of columns and options. A changed sentence changes one
row here. The errors of reading are in tests/service/cli/test_wording.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.datasets.column_profile import LabelValues, profile_column
from service.datasets.event_inputs import Inputs
from service.datasets.file_options import FileOptions
from service.datasets.rows import ReadError
from service.datasets.values import RowColumns
from tests.service.datasets.test_column_profile import ROWS, WORDS
from tests.service.datasets.test_files_as_written import Reading
from tests.service.datasets.test_identifiers import ROWS as NAMED_ROWS
from tests.service.datasets.test_identifiers import write as write_rows

UNIQUE = "another value in each row"
PROFILES: list[tuple[str, list[Any], str]] = [
    ("amount", [i % 7 + 0.5 for i in range(ROWS)], "0.5 to 6.5, median 3.5"),
    ("amount", [None, *[i % 7 for i in range(ROWS)]], "0 to 6, median 3; 1 missing"),
    ("terminal_id", [i % 7 for i in range(ROWS)], "0 to 6, median 3; 7 whole numbers named like an id (--categorical)"),
    ("seconds", [i // 2 for i in range(ROWS)], "0 to 49, median 24.5; never falls, like a clock or a counter"),
    (
        "when",
        [1575118861 + i * 3600 for i in range(ROWS)],
        "seconds since the epoch, 2019-11-30 to 2019-12-04",
    ),
    (
        "sent_at",
        [1575118861000 + i * 3600000 for i in range(ROWS)],
        "milliseconds since the epoch, 2019-11-30 to 2019-12-04",
    ),
    ("day", [20191101 + i % 30 for i in range(ROWS)], "dates such as 20191101"),
    ("merchant", [2**60 - i % 7 for i in range(ROWS)], "7 values; 1152921504606846976 is beyond 2^53"),
    ("txn_id", [i * 7919 % 10007 for i in range(ROWS)], f"{UNIQUE}, and named like an id"),
    ("hash", [f"{i:x}" for i in range(ROWS)], UNIQUE),
    ("hash", [f"{i:x}" for i in range(ROWS - 1)] + ["0"], "99 % of the values are unique"),
    ("country", ["DE" if i % 4 else "FR" for i in range(ROWS)], "2 values: DE 75 %, FR 25 %"),
    ("country", ["DE"] * ROWS, "'DE' in all these rows"),
    ("LastName", [WORDS[i] for i in range(1000)], "1,000 values: aaa 0.1 %, aab 0.1 %, aac 0.1 %"),
    ("new", [True, False, None], "2 values: True 50 %, False 50 %; 1 missing"),
    ("note", [f"this is row {i} of them" for i in range(ROWS)], "6 words a row, such as 'this is row 0 of them'"),
    (
        "at",
        [f"2019-11-30T13:{i % 60:02}:01Z" for i in range(ROWS)],
        "date and time, first 2019-11-30T13:00:01Z",
    ),
    ("day", [f"2019-11-{i % 30 + 1:02}" for i in range(ROWS)], "date, first 2019-11-01"),
    (
        "day",
        [f"{i % 28 + 1}/11/2019 5:07" for i in range(ROWS)],
        "in the form %d/%m/%Y %H:%M, first 1/11/2019 5:07",
    ),
    (
        "day",
        ["3/4/2019", "5/4/2019"],
        "is the day or the month first? --time-format '%d/%m/%Y' or '%m/%d/%Y', first 3/4/2019",
    ),
    ("tags", [["a"], []], "such as \"['a']\""),
    ("later", [None] * ROWS, "no value yet"),
    (
        "amount",
        [0.5, "950", *[i % 7 + 0.5 for i in range(198)], "-"],
        "0.5 to 950, median 3.5; 1 missing; 2 texts, such as '950'",
    ),
]
# a file's name and content, how it is read, and what is printed before the first row
QUOTED = "the cells are in single quotes; else use --quote none"
GUESSES: list[tuple[str, str, RowColumns, list[str]]] = [
    ("a.csv", "x;label\n1;0\n2;1\n", RowColumns(), ["the cells are separated by semicolons, not by commas"]),
    (
        "a.csv",
        "sep=;\nx;label\n1;0\n2;1\n",
        RowColumns(),
        [
            "1 line before the table left out, such as 'sep=;'",
            "the cells are separated by semicolons, not by commas",
        ],
    ),
    ("a.csv", "x|label\n1|0\n2|1\n", RowColumns(), ["the cells are separated by bars, not by commas"]),
    ("a.csv", "x\tlabel\n1\t0\n2\t1\n", RowColumns(), ["the cells are separated by tabs, not by commas"]),
    (
        "a.csv",
        "'x' 'label'\n  1  0\n 10 1\n",
        RowColumns(),
        ["the cells are separated by blanks, not by commas", QUOTED],
    ),
    ("a.csv", "'x','label'\n'a,b',0\n", RowColumns(), [QUOTED]),
    (
        "a.csv",
        "a, a,,b ,label\n1,2,3,4,0\n",
        RowColumns(),
        [
            "column 2 has the name of another one, 'a', and is called 'a_2'",
            "column 3 has no name and is called 'column_3'",
            "blanks around 2 column names are left out, such as ' a'",
        ],
    ),
    ("a.tsv", "x\tlabel\n12,5\t0\n", RowColumns(), ["x: numbers with the decimal mark ',', as in '12,5'"]),
    (
        "a.tsv",
        "x\tlabel\n1.234,50\t0\n",
        RowColumns(),
        ["x: numbers with the decimal mark ',' and '.' between thousands, as in '1.234,50'"],
    ),
    (
        "a.tsv",
        "x\tlabel\n1,234\t0\n",
        RowColumns(),
        ["x: taken as names because '1,234' has two meanings: give --decimal , or --thousands ,"],
    ),
    (
        "a.tsv",
        "x\tlabel\n555 123\t0\n",
        RowColumns(),
        ["x: taken as names because '555 123' may be a name; if it is a number, give --thousands ' '"],
    ),
    ("a.csv", "x,label\n01234,0\n", RowColumns(), ["x: taken as names because '01234' has a leading zero"]),
    (
        "a.csv",
        "x,label\n9007199254740993,0\n",
        RowColumns(),
        ["x: taken as names because '9007199254740993' is beyond 2^53"],
    ),
    (
        "a.csv",
        "x,label\n1,0\n2,0\nA7,0\n",
        RowColumns(),
        ["x: taken as names because 1 cell is not a number, such as 'A7'"],
    ),
    (
        "a.csv",
        "x,label\n1,0\n*,0\n2,0\n*,0\n",
        RowColumns(),
        ["x: taken as names because 2 cells are '*': if that is no value, use --missing '*'"],
    ),
    (
        "a.svm",
        "1 1:2\n0 3:1\n",
        RowColumns(),
        ["the file has no index 0: indices count from 1; else use --zero-based yes"],
    ),
    (
        "a.svm",
        "1 0:2\n0 3:1\n",
        RowColumns(),
        ["the file has an index 0: indices count from 0; else use --zero-based no"],
    ),
]
# a file's name and content, how it is read, and what is printed after the last row
UNLABELLED = "2 rows without a label: left out, the first in"
NOTES: list[tuple[str, str, RowColumns, str, list[str]]] = [
    ("a.json", '[{"a": 1, "label": 0}, 7]', RowColumns(), "skip", [
        "1 bad row was left out; the first: FILE, event 1: not a JSON object"
    ]),
    ("a.csv", "a,label\n1,0\n1\n2,1,3\n", RowColumns(), "skip", [
        "2 bad rows were left out; the first: FILE, line 3: has 1 cell; the header names 2 columns"
    ]),
    ("a.csv", "a,label\n" + "1.5,0\n" * 150 + "A7,0\n", RowColumns(), "stop", [
        "a: 1 non-numeric cell taken as missing, the first in line 152: 'A7'"
    ]),
    ("a.csv", "a,label\n" + "1.5,0\n" * 150 + "2e35,0\n-,1\n-1e31,0\n", RowColumns(), "stop", [
        "a: 2 numbers beyond 1e+30 taken as missing, the first in line 152: '2e35'",
        "a: 1 non-numeric cell taken as missing, the first in line 153: '-'",
    ]),
    ("a.csv", "n,a,b,label\n" + "1,,,0\n" * 10_000 + "1,fax,7.5,0\n", RowColumns(), "stop", [
        "a: empty in the first 10,000 rows; its first value is text, 'fax'",
        "b: empty in the first 10,000 rows; its first value is a number, '7.5'",
    ]),
    ("a.csv", "a,label\n1,0\n2,NULL\n3,\n", RowColumns(form=FileOptions(unlabelled="skip")), "stop", [
        f"{UNLABELLED} line 3: 'NULL' is no label; if it is one, name it with --negative or --positive"
    ]),
    ("a.jsonl", '{"a":1,"label":0}\n{"a":2}\n{"a":3}\n', RowColumns(form=FileOptions(unlabelled="skip")), "stop", [
        f"{UNLABELLED} line 2: there is no 'label'; the row has a"
    ]),
    ("a.jsonl", '{"a":1,"label":0}\n{"a":NaN,"label":1}\n{"a":-Infinity,"label":1}\n', RowColumns(), "stop", [
        '2 values that JSON does not have, taken as missing, the first in line 2: "a":NaN'
    ]),
    ("a.svm", "0 1:1\n3:2\n", RowColumns(form=FileOptions(unlabelled="skip")), "stop", [
        "1 row without a label: left out, the first in line 2: there is no label before '3:2'"
    ]),
    ("a.svm", "1 qid:7 2:0.5\n0 qid:7 1:1\n0 1:2\n", RowColumns(), "stop", ["qid is ignored in 2 rows"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "values", "why"), PROFILES, ids=[row[2][:60] for row in PROFILES])
def test_column_profiles(name: str, values: list[Any], why: str) -> None:
    assert profile_column(name, values).why == why


def test_values_of_a_label() -> None:
    assert str(LabelValues({"ham": 4827, "spam": 747})) == "ham 4,827, spam 747"
    assert str(LabelValues({str(i): 9 for i in range(8)})) == "0 9, 1 9, 2 9, 3 9, 4 9, 5 9 and 2 more"


@pytest.mark.parametrize(("name", "text", "columns", "guesses"), GUESSES, ids=[row[3][0][:60] for row in GUESSES])
def test_guesses(tmp_path: Path, name: str, text: str, columns: RowColumns, guesses: list[str]) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert Reading(path, columns).guesses == guesses


@pytest.mark.parametrize(("name", "text", "columns", "on_bad", "notes"), NOTES, ids=[row[4][0][:60] for row in NOTES])
def test_notes(tmp_path: Path, name: str, text: str, columns: RowColumns, on_bad: str, notes: list[str]) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert [note.replace(str(path), "FILE") for note in Reading(path, columns, on_bad).notes] == notes


def test_columns_that_may_name_rows(tmp_path: Path) -> None:
    path = write_rows(tmp_path, "csv", [(*row[:2], "x", *row[3:]) for row in NAMED_ROWS])
    assert Reading(path).guesses == [
        "warning: Txn ID has another value in each of the first 1,000 rows: if it names the rows, use --id 'Txn ID'; "
        "else --drop 'Txn ID' unless it is a quantity"
    ]
    with pytest.raises(ReadError) as caught:
        Reading(path, RowColumns(id="customer"))
    assert str(caught.value) == (
        f"{path}: 95 % of the first 1,000 rows repeat an id, so 'customer' does not name rows: only the first row of "
        "each id would be learnt. Use another column as --id, or none"
    )


@pytest.mark.integration  # for pyarrow
def test_parquet_files(tmp_path: Path) -> None:
    from tests.service.datasets.test_parquet import write as write_parquet

    path = write_parquet(tmp_path, {"x": [1.0, float("inf")], "n": [2**53 + 1, 17], "label": [0, 1]})
    read = Reading(path)
    assert read.guesses == ["n: taken as names because 9007199254740993 is beyond 2^53"]
    assert read.notes == ["x: 1 number beyond 1e+30 taken as missing, the first in row 1: 'inf'"]


def test_labels_without_an_id(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,label\na,1\n,0\n")
    learner = {"name": "a", "config": {"features": {"kind": "named", "bits": 10}}}
    inputs = Inputs((str(path),), "labels", learner, RowColumns(form=FileOptions(on_bad="skip")))
    assert len(list(inputs.events())) == 1
    assert inputs.bad.notes() == [f"1 bad row was left out; the first: {path}, line 3: has no id"]


def test_a_file_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,label\n1,0\n1\n")
    with pytest.raises(ReadError) as caught:
        Reading(path, on_bad=str(path))
    assert str(caught.value) == f"--on-bad {path}: the file exists and holds something else than bad rows"
    path.write_text("a,label\n1\n2,3,4\n")
    with pytest.raises(ReadError) as caught:
        Reading(path, on_bad="skip")
    text = f"{path}: the first rows are all bad; line 2: has 1 cell; the header names 2 columns"
    assert str(caught.value) == text
