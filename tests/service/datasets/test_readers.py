"""Files are read as events, in every format, gzipped or not; malformed rows are reported."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import math
import os
import re
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from service.datasets.readers import check_regular, format_of, open_rows
from service.datasets.rows import ReadError
from service.datasets.values import RowColumns

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Write = Callable[[str, str], Path]


@pytest.fixture(params=["plain", "gzipped"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Write:
    """Write text files: once plain, and once gzipped with the suffix .gz."""

    def write(name: str, text: str) -> Path:
        if request.param == "plain":
            path = tmp_path / name
            path.write_text(text, encoding="utf-8")
        else:
            path = tmp_path / f"{name}.gz"
            path.write_bytes(gzip.compress(text.encode()))
        return path

    return write


def read(path: Path, columns: RowColumns | None = None, *, skip: int = 0, **options: Any) -> list[dict[str, Any]]:
    with open_rows(path, columns or RowColumns(), **options) as rows:
        return list(rows.events(skip))


def refusal(path: Path, columns: RowColumns | None = None, **options: Any) -> str:
    with pytest.raises(ReadError) as caught:
        read(path, columns, **options)
    assert str(path) in str(caught.value)
    return str(caught.value).replace(str(path), "FILE")


# CSV


def test_csv_cells_become_numbers_strings_or_null(write: Write) -> None:
    path = write("a.csv", 'amount,country,label\n12.5,DE,1\n-3e2,"New ""York"", NY",0\n,,0\n')
    assert read(path) == [
        {"features": {"amount": 12.5, "country": "DE"}, "label": 1},
        {"features": {"amount": -300.0, "country": 'New "York", NY'}, "label": 0},
        {"features": {"amount": None, "country": None}, "label": 0},
    ]


def test_tsv_and_byte_order_marks_are_read(write: Write) -> None:
    assert read(write("a.tsv", "\ufeffx\tlabel\n1,5\t0\n")) == [{"features": {"x": "1,5"}, "label": 0}]


def test_a_column_keeps_its_type(write: Write) -> None:
    path = write("a.csv", "code,n,label\n12,1,0\nA7,2,0\n7,nan,1\n,NA,0\n")
    assert [event["features"] for event in read(path)] == [
        {"code": "12", "n": 1.0},
        {"code": "A7", "n": 2.0},
        {"code": "7", "n": None},
        {"code": None, "n": None},
    ]


def test_text_in_a_declared_numeric_column_is_an_error(write: Write) -> None:
    path = write("a.csv", "n,label\n" + "1,0\n" * 10_000 + "A7,0\n")
    assert refusal(path, declared={"n": True}).startswith("FILE, line 10,002: column n: 'A7' ")


def test_declarations_of_the_learner_override_the_cells(write: Write) -> None:
    path = write("a.csv", "customer,amount,label\n0596,7,0\n")
    assert read(path, declared={"customer": False})[0]["features"] == {"customer": "0596", "amount": 7.0}
    path = write("b.csv", "amount,label\nmany,0\n")
    message = "FILE, line 2: column amount: 'many' is not a number; the learner declares it numeric"
    assert refusal(path, declared={"amount": True}) == message


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e999", "1_000"])
def test_numbers_without_a_json_form_are_refused(write: Write, cell: str) -> None:
    path = write("a.csv", f"n,label\n1,0\n{cell},0\n")
    assert f"'{cell}'" in refusal(path, declared={"n": True})


def test_id_time_weight_and_dropped_columns_are_not_features(write: Write) -> None:
    text = "key,when,w,secret,x,label\na,1970-01-01 00:00:10,2.5,1,7,1\n,,,1,8,0\n"
    columns = RowColumns(id="key", time="when", weight="w", drop=("secret",))
    assert read(write("a.csv", text), columns) == [
        {"features": {"x": 7.0}, "label": 1, "id": "a", "time": 10.0, "weight": 2.5},
        {"features": {"x": 8.0}, "label": 0},
    ]


@pytest.mark.parametrize(
    ("when", "seconds"),
    [
        ("1700000000.5", 1_700_000_000.5),
        ("2023-11-14T22:13:20Z", 1_700_000_000.0),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000.0),
        ("2023-11-14 22:13:20", 1_700_000_000.0),
        ("2023-11-14", 1_699_920_000.0),
    ],
)
def test_times_are_parsed(write: Write, when: str, seconds: float) -> None:
    assert read(write("a.csv", f"t,x,label\n{when},1,0\n"), RowColumns(time="t"))[0]["time"] == seconds


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("yesterday,1,1,0", "'yesterday' is neither seconds since the epoch nor an ISO 8601 time"),
        ("1,-1,1,0", "the weight is -1; expected at least 0"),
        ("1,heavy,1,0", "'heavy' is not a number"),
        ("1,1,1", "has 3 cells; the header names 4 columns"),
        ("1,1,1,0,9", "has 5 cells; the header names 4 columns"),
        ('1,1,"1"x,0', "',' expected after '\"'"),
        ("1,1,1,", "the label is missing"),
    ],
)
def test_a_malformed_row_is_located(write: Write, row: str, message: str) -> None:
    path = write("a.csv", f"t,w,x,label\n1,1,1,0\n\n{row}\n")
    assert refusal(path, RowColumns(time="t", weight="w")) == f"FILE, line 4: {message}"


def test_line_numbers_match_those_of_an_editor(write: Write) -> None:
    path = write("a.csv", 'x,label\n"two\nlines",0\nthree\n')
    assert "line 4: has 1 cell;" in refusal(path)


def test_missing_and_repeated_columns_are_refused(write: Write) -> None:
    path = write("a.csv", "a,b,a\n1,2,3\n")
    assert "twice" in refusal(path)
    path = write("b.csv", "a,b\n1,2\n")
    assert "'label';" in refusal(path)
    assert "'c'" in refusal(path, RowColumns(label="a", drop=("c",)))
    for mark, text in ((";", "semicolons"), ("|", "bars")):
        path = write("c.csv", f"a{mark}label\n1{mark}2\n")
        message = f"there is no column 'label'; its only column is 'a{mark}label', which contains {text}"
        assert message in refusal(path)
    assert refusal(write("d.csv", "a\tlabel\n1\t2\n")).endswith("which contains tabs: use --format tsv")
    assert refusal(write("d.tsv", "a,label\n1,2\n")).endswith("contains commas: columns must be separated by tabs")
    assert "'label';" in refusal(write("e.csv", "only\n1\n"))


@pytest.mark.parametrize("text", ["", "a,label\n", "a,label\n\n\n"])
def test_a_file_without_rows_is_refused(write: Write, text: str) -> None:
    assert "no rows" in refusal(write("a.csv", text))


def test_skipped_rows_are_not_parsed(write: Write) -> None:
    path = write("a.csv", "x,label\nshort\n1,0\n2,1\n")
    assert [event["features"]["x"] for event in read(path, skip=1)] == [1.0, 2.0]
    assert read(path, skip=3) == []


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Of 30 MB, reading keeps only the surveyed rows, about 4 MB."""
    path = tmp_path / "a.csv"
    with path.open("w") as file:
        file.write("x,label\n")
        for i in range(30_000):
            file.write(f"{i:01000d}x,0\n")
    tracemalloc.start()
    with open_rows(path, RowColumns()) as rows:
        count = sum(1 for _ in rows.events())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 30_000
    assert peak < 12e6


def test_the_fraction_of_the_file_is_tracked(write: Write) -> None:
    with open_rows(write("a.csv", "x,label\n" + "".join(f"{i * i},0\n" for i in range(100_000))), RowColumns()) as rows:
        seen = [rows.fraction() for _ in rows.events()]
    assert seen[0] < 0.9
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_surveyed_rows_do_not_count_as_read(tmp_path: Path) -> None:
    """Of 20,000 equal rows, 10,000 are surveyed; the fraction counts only yielded rows."""
    path = tmp_path / "a.csv"
    path.write_text("x,label\n" + "12345678,0\n" * 20_000)
    with open_rows(path, RowColumns()) as rows:
        assert rows.fraction() == 0.0
        seen = [rows.fraction() for _ in rows.events()]
    for row in (1_000, 6_000, 10_000, 15_000, 20_000):
        assert seen[row - 1] == pytest.approx(row / 20_000, abs=0.06)  # the text is read in blocks of 8 KB


# JSON lines


def test_flat_json_lines_are_read(write: Write) -> None:
    path = write(
        "a.jsonl", '{"label": true, "a": 1, "b": ["x"], "c": null, "k": 7}\n\n{"a": "x", "label": false, "k": 8.5}\n'
    )
    assert read(path, RowColumns(id="k")) == [
        {"features": {"a": 1, "b": ["x"], "c": None}, "label": 1, "id": "7"},
        {"features": {"a": "x"}, "label": 0, "id": "8.5"},
    ]


def test_event_json_lines_are_read(write: Write) -> None:
    path = write("a.ndjson", '{"features": {"a": 1, "b": 2}, "label": 1, "id": "e", "time": 5, "weight": 2}\n')
    event = {"features": {"a": 1}, "label": 1, "id": "e", "time": 5.0, "weight": 2.0}
    assert read(path, RowColumns(drop=("b",))) == [event]
    path = write("b.jsonl", '{"x": [1, 2], "label": 0}\n')
    assert read(path) == [{"x": [1, 2], "label": 0}]
    path = write("c.jsonl", '{"indices": [0, 4], "values": [1, 2], "label": 0}\n')
    assert read(path) == [{"indices": [0, 4], "values": [1, 2], "label": 0}]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON: "),
        ("[1]", "not a JSON object"),
        ('{"a": 1}', "there is no 'label'; the row has a"),
        ('{"label": [1]}', "the label is [1]; expected a string, number or boolean"),
        ('{"x": [1], "label": 1}', "the features are in the form x; those of the first row in the form flat"),
        ('{"a": 1, "label": 1, "k": true}', "the id is True; expected a string or a number"),
        ('{"a": 1, "label": 1, "t": []}', "the time is '[]'; expected a number"),
    ],
)
def test_malformed_json_lines_are_refused(write: Write, line: str, message: str) -> None:
    path = write("a.jsonl", '{"a": 1, "label": 1}\n' + line + "\n")
    assert refusal(path, RowColumns(id="k", time="t")).startswith(f"FILE, line 2: {message}")


# LIBSVM


def test_libsvm_columns_count_from_one(write: Write) -> None:
    path = write("a.libsvm", "+1 3:0.5 1:2  # a comment\n\n# nothing\n-1\n-1 2:-1e-3\n")
    assert read(path) == [
        {"label": 1, "indices": [0, 2], "values": [2.0, 0.5]},
        {"label": 0, "indices": [], "values": []},
        {"label": 0, "indices": [1], "values": [-0.001]},
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 0:1", "'0:1': indices begin at 1"),
        ("1 1:1 qid:1", "'qid:1' is not index:value"),
        ("1 5", "'5' is not index:value"),
        ("1 5:x", "'5:x' is not index:value"),
        ("1 5:inf", "'5:inf' is not index:value"),
        ("1 5:nan", "'5:nan' has no finite value"),
        ("1 2:1 2:3", "names an index twice"),
    ],
)
def test_malformed_libsvm_is_refused(write: Write, line: str, message: str) -> None:
    assert refusal(write("a.svm", f"0 1:1\n{line}\n")) == f"FILE, line 2: {message}"


def test_query_ids_are_ignored_and_counted(write: Write) -> None:
    with open_rows(write("a.libsvm", "1 qid:7 2:0.5\n0 qid:7 1:1\n0 1:2\n"), RowColumns()) as rows:
        assert [event["indices"] for event in rows.events()] == [[1], [0], [0]]
        (note,) = rows.missing_cells()
    assert note.endswith("2 rows")


# NumPy archives


def archive(path: Path, **arrays: Any) -> Path:
    if path.suffix == ".gz":
        packed = io.BytesIO()
        np.savez(packed, **arrays)
        path.write_bytes(gzip.compress(packed.getvalue()))
    else:
        np.savez_compressed(path, **arrays)
    return path


@pytest.mark.parametrize("name", ["a.npz", "a.npz.gz"])
def test_dense_arrays_are_read(tmp_path: Path, name: str) -> None:
    X = np.arange(4500, dtype=np.float32).reshape(2250, 2)
    y = np.arange(2250) % 3
    path = archive(tmp_path / name, X=X, y=y)
    with open_rows(path, RowColumns(positive=("2",))) as rows:
        assert (rows.total, rows.shape.kind, rows.shape.width) == (2250, "dense", 2)
        events = list(rows.events(skip=999))
        assert rows.fraction() == 1.0
    assert [event["x"] for event in events] == X[999:].tolist()
    assert [event["label"] for event in events] == [int(label == 2) for label in y[999:]]


def test_csr_arrays_are_sorted_and_summed(tmp_path: Path) -> None:
    X = csr_array((np.array([1.0, 2.0, 3.0, 4.0]), np.array([4, 0, 2, 2]), np.array([0, 2, 2, 4])), shape=(3, 5))
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    path = archive(tmp_path / "a.npz", **parts, y=np.array([-1, 1, 1]))
    assert read(path) == [
        {"indices": [0, 4], "values": [2.0, 1.0], "label": 0},
        {"indices": [], "values": [], "label": 1},
        {"indices": [2], "values": [7.0], "label": 1},
    ]


def test_booleans_are_numbers(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", X=np.array([[True, False]]), y=np.array([True]))
    assert read(path) == [{"x": [1.0, 0.0], "label": 1}]


def test_incomplete_and_mismatched_arrays_are_refused(tmp_path: Path) -> None:
    good = np.ones((3, 2))
    path = tmp_path / "a.npz"
    archive(path, X=good)
    assert "no y" in refusal(path)
    archive(path, X=good, y=np.ones(2))
    assert refusal(path) == "FILE: the features are (3, 2) and y is (2,); expected (n, dim) and (n,)"
    archive(path, X=good.astype(str), y=np.ones(3))
    assert "numbers" in refusal(path)
    archive(path, X=np.array([[1.0], [math.nan]]), y=np.ones(2))
    assert re.match("FILE, row 1:.*finite", refusal(path))
    archive(path, X=good, y=np.array([1, 2, 3]))
    assert "the labels seen are '1', '2', '3'" in refusal(path)
    archive(path, X=good[:0], y=np.ones(0))
    assert "no rows" in refusal(path)
    path.write_bytes(b"PK\x03\x04 not really")
    assert refusal(path)


def test_pickles_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, X=np.array([{"a": 1}], dtype=object), y=np.ones(1))
    assert "allow_pickle=False" in refusal(path)


# Files


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.csv", "csv"),
        ("a.b.CSV.gz", "csv"),
        ("a.tsv", "tsv"),
        ("a.jsonl", "jsonl"),
        ("a.ndjson.gz", "jsonl"),
        ("a.npz", "npz"),
        ("a.svm", "libsvm"),
        ("a.txt", "libsvm"),
    ],
)
def test_formats_are_recognised_by_file_name(name: str, format: str) -> None:
    assert format_of(Path(name)) == format


@pytest.mark.parametrize("name", ["a", "a.gz", "a.parquet", ".gz"])
def test_unknown_file_names_require_a_format(name: str) -> None:
    with pytest.raises(ReadError, match="--format"):
        format_of(Path(name))


def test_the_format_can_be_given(write: Write) -> None:
    assert read(write("rows.data", "x,label\n1,1\n"), format="csv") == [{"features": {"x": 1.0}, "label": 1}]
    with pytest.raises(ReadError, match="'xml'"):
        open_rows(Path("a.xml"), RowColumns(), format="xml")


def test_drop_is_refused_for_formats_without_column_names(write: Write) -> None:
    assert "libsvm" in refusal(write("a.svm", "1 1:1\n"), RowColumns(drop=("x",)))


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    assert os.strerror(errno.ENOENT) in refusal(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    assert os.strerror(errno.EISDIR) in refusal(tmp_path / "folder.csv")


def test_files_that_cannot_be_reread_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.csv", Path(os.devnull)):
        with pytest.raises(ReadError, match="pipe"):
            check_regular(path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReadError, match="input"):
        check_regular(Path("-"))
    for name in ("-", "rows.csv"):
        Path(name).write_text("x,label\n1,0\n")
        check_regular(Path(name))
    check_regular(tmp_path / "none.csv")  # left to `open_rows`


def test_damaged_files_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    packed = gzip.compress(b"x,label\n" + "".join(f"{i * i},0\n" for i in range(50_000)).encode())
    path.write_bytes(packed[: len(packed) // 2])
    assert "gzip" in refusal(path)
    path.write_bytes(packed[:5000] + bytes(100) + packed[5100:])
    assert "gzip" in refusal(path)
    path = tmp_path / "latin.csv"
    path.write_bytes("x,label\nKöln,0\n".encode("latin-1"))
    message = "not UTF-8 text: it contains the byte 0xf6; save the file as UTF-8"
    assert refusal(path) == f"FILE, line 2: {message}"
    for newline in ("\n", "\r\n"):  # 50,000 bytes, which are decoded a part at a time
        path.write_bytes((newline.join(["x,label", *["1,0"] * 9999, "Köln,0"]) + newline).encode("latin-1"))
        assert refusal(path) == f"FILE, line 10,001: {message}"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (bytes(100), "binary data"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary data"),
        (b"PAR1\x15\x04\x15", "a Parquet file"),
        (b"PK\x03\x04\x14", "a zip archive, as spreadsheets and .npz files are"),
        ("x,label\n1,0\n".encode("utf-16"), "UTF-16 text"),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.libsvm"])
@pytest.mark.parametrize("packed", [False, True])
def test_binary_files_are_refused_immediately(data: bytes, what: str, name: str, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(data) if packed else data)
    assert refusal(path).startswith(f"FILE is {what};")


def test_text_may_be_compressed_in_other_ways(tmp_path: Path) -> None:
    text = b"x,label\n" + b"".join(b"%d,0\n" % (i * i) for i in range(20_000))
    for suffix, packed in ((".bz2", bz2.compress(text)), (".xz", lzma.compress(text)), (".zst", zstd.compress(text))):
        path = tmp_path / f"a.csv{suffix}"
        path.write_bytes(packed)
        assert [event["features"]["x"] for event in read(path)] == [float(i * i) for i in range(20_000)]
        path.write_bytes(packed[: len(packed) // 2])
        assert "damaged" in refusal(path)
        path.write_bytes(packed[:1000] + bytes(100) + packed[1100:])
        assert "damaged" in refusal(path)


def test_invalid_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(b"x,label\n1,0\n")
    assert ".npz" in refusal(path)
