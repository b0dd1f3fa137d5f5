"""Files as people have them: other separators, quotes, names of columns, encodings, ragged rows and indices."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from service.datasets.bad_rows import BadRows
from service.datasets.delimited import DelimitedText
from service.datasets.file_options import FileOptions
from service.datasets.notes import ColumnNote
from service.datasets.readers import open_rows
from service.datasets.rows import ReadError
from service.datasets.times import timestamp
from service.datasets.values import RowColumns

pytestmark = pytest.mark.integration


class Reading:
    """What a file gives: events, their labels, and what is said before and after the first row."""

    def __init__(self, path: Path, columns: RowColumns | None = None, on_bad: str = "stop", **options: Any) -> None:
        with BadRows(on_bad) as bad, open_rows(path, columns or RowColumns(), bad=bad, **options) as rows:
            self.guesses = list(rows.guesses)
            self.events = list(rows.events())
            self.notes = [*rows.notes(), *bad.notes()]
        self.labels = [event["label"] for event in self.events]
        self.features = [event.get("features") for event in self.events]

    def column(self, name: str) -> list[Any]:
        """Return the values of a feature."""
        return [features[name] for features in self.features if features is not None]


def column_notes(lines: Sequence[str]) -> list[ColumnNote]:
    return [line for line in lines if isinstance(line, ColumnNote)]


def form(**options: Any) -> FileOptions:
    return FileOptions(**options)


def refusal(path: Path, columns: RowColumns | None = None, **options: Any) -> str:
    with pytest.raises(ReadError) as caught:
        Reading(path, columns, **options)
    return str(caught.value).replace(str(path), "FILE")


def write(folder: Path, name: str, text: str, encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_text(text, encoding=encoding, newline="")
    return path


# Separators, quotes and encodings


SMS = 'ham\tGo until "jurong point\nham\tOk lar\nspam\t"Free" entry\nham\tI said "hi\nspam\tWIN" now\nham\tbye\n'


def test_quotes_in_tab_separated_text_swallow_no_row(tmp_path: Path) -> None:
    columns = RowColumns("class", ("spam",), form=form(columns=("class", "text")))
    read = Reading(write(tmp_path, "sms.tsv", SMS), columns)
    assert read.labels == [0, 0, 1, 0, 1, 0]
    assert read.column("text")[:3] == ['Go until "jurong point', "Ok lar", '"Free" entry']
    with_header = Reading(write(tmp_path, "header.tsv", "class\ttext\n" + SMS), RowColumns("class", ("spam",)))
    assert with_header.features == read.features


def test_the_first_row_is_no_header_by_mistake(tmp_path: Path) -> None:
    assert "--columns" in refusal(write(tmp_path, "sms.tsv", SMS), RowColumns("class", ("spam",)))


def test_a_quoted_header_of_tab_separated_text_means_quotes(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", '"text"\t"label"\n"two\nlines"\t1\n"a ""b"""\t0\n')
    assert Reading(path).column("text") == ["two\nlines", 'a "b"']


@pytest.mark.parametrize(("mark", "word"), [(";", "semicolons"), ("|", "bars"), ("\t", "tabs")])
@pytest.mark.parametrize("quote", ['"', ""])
def test_other_separators_are_found_and_said(tmp_path: Path, mark: str, word: str, quote: str) -> None:
    rows = [["age", "job, if any", "y"], ["30", "blue, collar", "no"], ["31", "services", "yes"]]
    text = "".join(mark.join(f"{quote}{cell}{quote}" for cell in row) + "\r\n" for row in rows)
    read = Reading(write(tmp_path, "bank.csv", text), RowColumns("y"))
    assert read.features == [{"age": 30.0, "job, if any": "blue, collar"}, {"age": 31.0, "job, if any": "services"}]
    assert read.labels == [0, 1]
    assert len(read.guesses) == 1
    assert word in read.guesses[0]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_blanks_separate_cells_if_nothing_else_does(tmp_path: Path, name: str) -> None:
    rows = "'OBS'  'GPA' 'shop' 'label'\n  1  2.66 DE 0\n 2 2.89  'New York' 1 \n10 3.5 FR 0\n"
    read = Reading(write(tmp_path, name, rows))
    assert read.features[1:] == [
        {"OBS": 2.0, "GPA": 2.89, "shop": "New York"},
        {"OBS": 10.0, "GPA": 3.5, "shop": "FR"},
    ]
    assert len(read.guesses) == 2
    columns = RowColumns("d", form=form(columns=("a", "b", "c", "d")))
    assert Reading(write(tmp_path, name, "59 2 32.1 1\n48 1 21.6 0\n"), columns).column("c") == [32.1, 21.6]


@pytest.mark.parametrize("rows", ["the text\nhello you\nyou two\n", "a text of it\nhello you two all\nyou two\n"])
def test_text_of_one_column_is_not_separated_by_its_blanks(tmp_path: Path, rows: str) -> None:
    with open_rows(write(tmp_path, "a.csv", rows), RowColumns(), labelled=False) as read:
        assert len(read.shape.columns) == 1


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_single_quotes_around_all_names_are_quotes(tmp_path: Path, mark: str) -> None:
    rows = [["'a'", "'my label'", "'c'"], ["1", "0", f"'x{mark}y'"], ["2", "1", "'it''s'"]]
    path = write(tmp_path, "a.csv", "".join(f"{mark.join(row)}\n" for row in rows))
    read = Reading(path, RowColumns("my label"))
    assert (read.column("a"), read.column("c"), read.labels) == ([1.0, 2.0], [f"x{mark}y", "it's"], [0, 1])
    assert any("--quote none" in guess for guess in read.guesses)
    assert "'my label'" in refusal(path, RowColumns("my label", form=form(quote="none")))


def test_a_header_that_fits_no_row_is_refused_with_a_way_on(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "2,3,ok,spam\n1.5,2,3,4,0\n1.5,2,3,4,1\n")
    text = refusal(path, RowColumns("e"))
    assert all(part in text for part in ("4 columns", "5 cells", "--columns", "--on-bad skip"))
    named = RowColumns("e", form=form(columns=tuple("abcde")))
    assert Reading(path, named, "skip").labels == [0, 1]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_a_file_may_be_one_json_document(tmp_path: Path, name: str, wrapped: bool, indent: int | None) -> None:
    rows: list[Any] = [{"a": 1, "label": 0}, 7, {"a": None, "label": 1}, {"a": "x", "label": 0}]
    path = write(tmp_path, name, "\n" + json.dumps({"events": rows} if wrapped else rows, indent=indent))
    assert refusal(path).startswith("FILE, event 1: ")
    read = Reading(path, on_bad="skip")
    assert (read.column("a"), read.labels) == ([1, None, "x"], [0, 1, 0])
    assert "JSON" in refusal(write(tmp_path, name, "[{},\n"))


@pytest.mark.parametrize(
    "titles", ["sep=;\n", "# made by hand\n# in 2026\n", "|1x3 Cross validator\n", "Report of 2026\n\n"]
)
@pytest.mark.parametrize("options", [RowColumns(), RowColumns(form=form(columns=("a", "b", "label")), positive=("1",))])
def test_lines_before_the_table_are_left_out_and_said(tmp_path: Path, titles: str, options: RowColumns) -> None:
    header = "" if options.form.columns else "a;b;label\n"
    path = write(tmp_path, "a.csv", titles + header + "1,5;x;0\n2;y;1\n3\n" + "4;z;0\n" * 30)
    read = Reading(path, options, "skip")
    assert read.features[:3] == [{"a": 1.5, "b": "x"}, {"a": 2.0, "b": "y"}, {"a": 4.0, "b": "z"}]
    assert repr(titles.splitlines()[0]) in read.guesses[0]
    bad = titles.count("\n") + header.count("\n") + 3
    assert f"line {bad}: " in read.notes[-1]


@pytest.mark.parametrize(
    "text",
    ["note\nDoe, Jo\nRoe, Al\nPoe, Ed\nCoe, Mo\n", "# a,b\n1,2\n3,4\n5,6\n7,8\n", "a note\nb c\nd, e\nf, g, h\n"],
)
def test_a_header_is_no_title(text: str) -> None:
    names = DelimitedText(iter(text.splitlines(keepends=True)), "csv", form()).names
    assert names == text.splitlines()[0].split(",")


@pytest.mark.parametrize(("mark", "header"), [("", "a;label"), ("\ufeff", "a;label"), ("", '"a";"label"')])
def test_headers_of_joined_files_are_left_out_and_counted(tmp_path: Path, mark: str, header: str) -> None:
    rows = "1,5;0\n2;1\n" * 6000
    read = Reading(write(tmp_path, "a.csv", f"{header}\n{rows}{mark}{header}\n3;1\n{mark}{header}\n4;0\n"))
    assert read.column("a")[-3:] == [2.0, 3.0, 4.0]
    assert len(read.labels) == 12_002
    (note,) = read.notes
    assert re.findall(r"[\d,]+\d|\d", note) == ["2", "12,002"]
    assert list(DelimitedText(iter(["text\n", "text\n", "b\n"]), "csv", form()).rows()) == [(2, ["text"]), (3, ["b"])]


def test_separator_and_quotes_can_be_given(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "x~label\n'1~5'~0\n")
    assert Reading(path, RowColumns(form=form(delimiter="~", quote="'"))).column("x") == ["1~5"]
    path = write(tmp_path, "b.csv", 'size,label\n5" pipe,0\n"6,1\n')
    assert Reading(path, RowColumns(form=form(quote="none"))).column("size") == ['5" pipe', '"6']


def test_a_cell_of_several_lines_is_one_cell(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'text,label\n"one\ntwo, three\n\nfour",0\nfive,1\n')
    assert Reading(path).column("text") == ["one\ntwo, three\n\nfour", "five"]


def test_no_part_of_a_cell_of_several_lines_becomes_a_row(tmp_path: Path) -> None:
    """Each line has as many cells as a row: perhaps they are one cell, perhaps quotes that belong to no cell."""
    path = write(tmp_path, "a.csv", 'text,label\nx,0\n"a,b\nc",1\ny,1\n')
    assert "--quote '\"'" in refusal(path)
    read = Reading(path, on_bad="skip")
    assert (read.column("text"), read.labels) == (["x", "y"], [0, 1])
    assert "2 bad rows" in read.notes[-1]
    assert Reading(path, RowColumns(form=form(quote='"'))).column("text") == ["x", "a,b\nc", "y"]


@pytest.mark.parametrize("rows", [3, 500])
def test_a_quote_that_never_closes_costs_one_row(tmp_path: Path, rows: int) -> None:
    path = write(tmp_path, "a.csv", "text,label\nx,0\n" + '"y,0\n' + "z,1\n" * rows)
    assert refusal(path).startswith("FILE, line 3: ")
    read = Reading(path, on_bad="skip")
    assert read.column("text") == ["x", *["z"] * rows]
    assert "1 bad row" in read.notes[-1]
    assert "line 3" in read.notes[-1]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_marked_encodings_are_recognised(tmp_path: Path, encoding: str) -> None:
    text = "name,label\nKöln,0\nŁódź,1\n"
    assert Reading(write(tmp_path, "a.csv", text, encoding)).column("name") == ["Köln", "Łódź"]


def test_other_encodings_can_be_given(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "name,label\nKöln 5 €,0\n", "cp1252")
    assert "--encoding cp1252" in refusal(path)
    assert Reading(path, RowColumns(form=form(encoding="cp1252"))).column("name") == ["Köln 5 €"]
    assert "klingon" in refusal(path, RowColumns(form=form(encoding="klingon")))


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    text = "x" * 140_000
    assert Reading(write(tmp_path, "a.csv", f"text,label\n{text},0\n")).column("text") == [text]


# Names of columns


HEADER = "a, a,,a,b ,label\n"


def test_column_names_become_unique_and_this_is_reported(tmp_path: Path) -> None:
    read = Reading(write(tmp_path, "a.csv", HEADER + "1,2,3,4,5,0\n"))
    assert read.features == [{"a": 1.0, "a_2": 2.0, "column_3": 3.0, "a_3": 4.0, "b": 5.0}]
    assert len(read.guesses) == 4
    assert [re.findall(r"\d+|'.*?'", line) for line in read.guesses] == [
        ["2", "'a'", "'a_2'"],
        ["3", "'column_3'"],
        ["4", "'a'", "'a_3'"],
        ["2", "' a'"],
    ]


def test_a_new_name_is_not_that_of_another_column(tmp_path: Path) -> None:
    read = Reading(write(tmp_path, "a.csv", "a,a,a_2,column_5,,label\n1,2,3,4,5,0\n"))
    assert read.features == [{"a": 1.0, "a_3": 2.0, "a_2": 3.0, "column_5": 4.0, "column_5_2": 5.0}]


@pytest.mark.parametrize(
    ("drop", "features"),
    [
        (("a",), {"column_3": 3.0, "b": 5.0}),
        ((" a",), {"column_3": 3.0, "b": 5.0}),
        (("2", "3"), {"a": 1.0, "a_2": 4.0, "b": 5.0}),
        (("a_2", "column_3"), {"a": 1.0, "a_3": 4.0, "b": 5.0}),
        (("b", "1"), {"a": 2.0, "column_3": 3.0, "a_2": 4.0}),
    ],
)
def test_columns_are_dropped_by_name_or_position_first(
    tmp_path: Path, drop: tuple[str, ...], features: dict[str, float]
) -> None:
    assert Reading(write(tmp_path, "a.csv", HEADER + "1,2,3,4,5,0\n"), RowColumns(drop=drop)).features == [features]


def test_a_name_comes_before_a_position(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "2,x,label\n1,5,0\n")
    assert Reading(path, RowColumns(drop=("2",))).features == [{"x": 5.0}]


@pytest.mark.parametrize("drop", ["c", "0", "7", "-1"])
def test_a_dropped_column_must_exist(tmp_path: Path, drop: str) -> None:
    assert repr(drop) in refusal(write(tmp_path, "a.csv", HEADER + "1,2,3,4,5,0\n"), RowColumns(drop=(drop,)))


def test_a_needed_column_may_not_be_ambiguous(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "label,x,label\n1,5,0\n")
    assert "--drop 3" in refusal(path)
    assert Reading(path, RowColumns(drop=("3",))).labels == [1]
    assert Reading(path, RowColumns(drop=("1",))).labels == [0]


# Bad rows


RAGGED = "a,label\n" + "1,0\n" * 15_000 + "1\n2,1,extra\n" + "3,1\n"


def test_a_ragged_row_stops_or_is_left_out_or_written_to_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", RAGGED)
    assert re.match("FILE, line 15,002: .*1 cell.*2 columns", refusal(path))
    read = Reading(path, on_bad="skip")
    assert len(read.events) == 15_001
    assert read.column("a")[-1] == 3.0
    assert len(read.notes) == 1
    assert "2 bad rows" in read.notes[0]
    assert "line 15,002" in read.notes[0]
    bad = tmp_path / "bad.jsonl"
    for _ in range(2):  # another run replaces the file
        assert len(Reading(path, on_bad=str(bad)).events) == 15_001
        lines = [json.loads(line) for line in bad.read_text().splitlines()]
        assert [(line["file"], line["line"], line["row"]) for line in lines] == [
            (str(path), 15_002, ["1"]),
            (str(path), 15_003, ["2", "1", "extra"]),
        ]
        assert "1 cell" in lines[0]["reason"]


def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", RAGGED)
    assert refusal(path, on_bad=str(path)).startswith("--on-bad FILE: ")
    assert path.read_text() == RAGGED


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("a.jsonl", '{"x": 1, "label": 0}', '{"x": 1, "label": 0'),
        ("a.svm", "0 1:1", "0 1:one"),
        ("a.csv", "1,0", "1,perhaps"),
        ("a.csv", "1,0", "1,"),
    ],
)
def test_bad_rows_of_every_format_are_left_out(tmp_path: Path, name: str, good: str, bad: str) -> None:
    header = "x,label\n" if name == "a.csv" else ""
    path = write(tmp_path, name, header + f"{good}\n" * 10_001 + f"{bad}\n{good}\n")
    assert "line 10,00" in refusal(path)
    read = Reading(path, on_bad="skip")
    assert len(read.events) == 10_002
    assert "1 bad row" in read.notes[-1]


def test_a_file_of_bad_rows_only_is_refused(tmp_path: Path) -> None:
    assert "line 2: " in refusal(write(tmp_path, "a.csv", "a,label\n1\n2,3,4\n"), on_bad="skip")


# Cells


def test_a_column_that_is_empty_first_becomes_what_its_first_value_is(tmp_path: Path) -> None:
    rows = "1,,,,0\n" * 10_000 + "1,fax,7.5,,0\n1,8,-,-,1\n1,web,9,,0\n"
    read = Reading(write(tmp_path, "a.csv", "n,channel,fee,never,label\n" + rows))
    assert read.column("channel")[9_999:] == [None, "fax", "8", "web"]
    assert read.column("fee")[9_999:] == [None, 7.5, None, 9.0]
    assert set(read.column("never")) == {None}
    for name, value in (("channel", "'fax'"), ("fee", "'7.5'")):
        assert any(note.column == name and value in note.text for note in column_notes(read.notes))


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["12,5", "3", "-7,25"], [12.5, 3.0, -7.25]),
        (["1.234,50", "12,5", "1.000.000,00"], [1234.5, 12.5, 1e6]),
        (["1,234.50", "12.5", "-"], [1234.5, 12.5, None]),
        (["1 234,50", "7,2", "1\u00a0234\u202f567,5", "12"], [1234.5, 7.2, 1234567.5, 12.0]),
        (["1 234.50", "7.2"], [1234.5, 7.2]),
        (["1'234.50", "7.2", "1\u2019234\u2019567"], [1234.5, 7.2, 1234567.0]),
    ],
)
def test_other_marks_in_numbers_are_found_and_said(tmp_path: Path, cells: list[str], values: list[float]) -> None:
    read = Reading(write(tmp_path, "a.tsv", "x\tlabel\n" + "".join(f"{cell}\t0\n" for cell in cells)))
    assert read.column("x") == values
    assert [note.column for note in column_notes(read.guesses)] == ["x"]
    assert repr(cells[0]) in read.guesses[0]


def test_a_note_names_a_column_with_a_colon(tmp_path: Path) -> None:
    read = Reading(write(tmp_path, "a.csv", "share: of all,label\n" + "1,0\n" * 9 + "many,1\n"))
    assert [note.column for note in column_notes(read.notes + read.guesses)] == ["share: of all"]


def test_marks_are_found_in_declared_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "x;label\n1.234,50;0\n12,5;1\n")
    assert Reading(path, declared={"x": True}).column("x") == [1234.5, 12.5]
    assert Reading(path, declared={"x": False}).column("x") == ["1.234,50", "12,5"]
    path = write(tmp_path, "b.csv", "x;label\n1,234;0\n")
    assert "column x is '1,234'" in refusal(path, declared={"x": True})


def test_a_mark_of_two_meanings_must_be_given(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "x\tlabel\n1,234\t0\n5,678\t1\n")
    read = Reading(path)
    assert read.column("x") == ["1,234", "5,678"]
    assert "--decimal" in read.guesses[0]
    assert Reading(path, RowColumns(form=form(decimal=","))).column("x") == [1.234, 5.678]
    assert Reading(path, RowColumns(form=form(thousands=","))).column("x") == [1234.0, 5678.0]


@pytest.mark.parametrize(("cell", "mark"), [("555 123", " "), ("555'123", "'")])
def test_digits_in_groups_may_be_names(tmp_path: Path, cell: str, mark: str) -> None:
    path = write(tmp_path, "a.tsv", f"x\tlabel\n{cell}\t0\n5\t1\n")
    read = Reading(path)
    assert read.column("x") == [cell, "5"]
    assert f"--thousands {mark!r}" in read.guesses[0]
    assert Reading(path, RowColumns(form=form(thousands=mark))).column("x") == [555123.0, 5.0]


def test_further_missing_cells_can_be_given(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "x,c,label\n-999,DE,0\n1,unknown,1\n2,FR,0\n")
    columns = RowColumns(form=form(missing=("-999", "unknown")))
    assert Reading(path, columns).features == [{"x": None, "c": "DE"}, {"x": 1.0, "c": None}, {"x": 2.0, "c": "FR"}]


@pytest.mark.parametrize(
    ("text", "format", "seconds"),
    [
        ("4/10/2019 11:05", "%m/%d/%Y %H:%M", 1554894300.0),
        ("4/10/2019 11:05", "%d/%m/%Y %H:%M", 1570187100.0),
        ("2019-11-30 13:01:01 +0100", "%Y-%m-%d %H:%M:%S %z", 1575115261.0),
        ("20191130", "%Y%m%d", 1575072000.0),
        ("", "%Y%m%d", None),
        ("NULL", "%Y%m%d", None),
    ],
)
def test_the_form_of_times_can_be_given(tmp_path: Path, text: str, format: str, seconds: float | None) -> None:
    assert timestamp(text, format) == seconds
    path = write(tmp_path, "a.csv", f"when,x,label\n{text},1,0\n")
    read = Reading(path, RowColumns(time="when", form=form(time_format=format)))
    assert read.events[0].get("time") == seconds


def test_a_time_of_another_form_names_the_option(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "when,x,label\n4/10/2019 11:05,1,0\n")
    assert "--time-format" in refusal(path, RowColumns(time="when"))
    wrong = RowColumns(time="when", form=form(time_format="%Y-%m-%d"))
    assert refusal(path, wrong).startswith("FILE, line 2: ")


# LIBSVM


@pytest.mark.parametrize(
    ("zero_based", "first", "last"),
    [("auto", [1, 3], [0]), ("yes", [1, 3], [0])],
)
def test_an_index_zero_anywhere_decides_before_the_first_row(
    tmp_path: Path, zero_based: str, first: list[int], last: list[int]
) -> None:
    path = write(tmp_path, "a.libsvm", "1 1:2 3:1\n" * 20_000 + "0 0:5\n")
    read = Reading(path, RowColumns(form=form(zero_based=zero_based)))
    assert [event["indices"] for event in read.events[::20_000]] == [first, last]


def test_indices_count_from_one_otherwise(tmp_path: Path) -> None:
    path = write(tmp_path, "a.libsvm", "1 1:2 3:1\n0 10:5 20:0 # 0:7\n")
    read = Reading(path)
    assert [event["indices"] for event in read.events] == [[0, 2], [9, 19]]
    assert "--zero-based yes" in read.guesses[0]
    path = write(tmp_path, "b.libsvm", "1 0:2 3:1\n")
    assert refusal(path, RowColumns(form=form(zero_based="no"))).startswith("FILE, line 1: '0:2'")
    assert "--zero-based no" in Reading(path).guesses[0]


# Options


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.libsvm", {"columns": ("a", "b")}),
        ("a.jsonl", {"delimiter": ";"}),
        ("a.csv", {"zero_based": "yes"}),
        ("a.npz", {"encoding": "cp1252"}),
    ],
)
def test_options_of_other_formats_are_refused(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    (option,) = options
    path = write(tmp_path, name, "0 1:1\n")
    assert refusal(path, RowColumns(form=form(**options))).startswith(f"FILE: --{option.replace('_', '-')} ")
