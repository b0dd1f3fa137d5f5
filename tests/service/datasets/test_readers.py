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
import threading
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from service.datasets.bad_rows import BadRows
from service.datasets.event_inputs import Inputs
from service.datasets.file_options import FileOptions
from service.datasets.packed_text import File, local_file
from service.datasets.readers import format_of, open_rows, resolve_format
from service.datasets.rows import ReadError
from service.datasets.values import BinaryLabels, RowColumns

pytestmark = pytest.mark.integration

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


def read(
    path: Path | File, columns: RowColumns | None = None, *, skip: int = 0, **options: Any
) -> list[dict[str, Any]]:
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
    assert read(write("a.tsv", "\ufeffx\tlabel\n1,5\t0\n")) == [{"features": {"x": 1.5}, "label": 0}]


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
    assert refusal(path, declared={"n": True}).startswith("FILE, line 10,002: column n is 'A7'; ")


def test_declarations_of_the_learner_override_the_cells(write: Write) -> None:
    path = write("a.csv", "customer,amount,label\n0596,7,0\n")
    assert read(path, declared={"customer": False})[0]["features"] == {"customer": "0596", "amount": 7.0}
    path = write("b.csv", "amount,label\nmany,0\n")
    assert refusal(path, declared={"amount": True}).startswith("FILE, line 2: column amount is 'many'; ")


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e999"])
def test_infinite_numbers_of_declared_columns_are_missing(write: Write, cell: str) -> None:
    path = write("a.csv", f"n,label\n1,0\n{cell},0\n")
    with open_rows(path, RowColumns(), {"n": True}) as rows:
        assert [event["features"]["n"] for event in rows.events()] == [1.0, None]
        (note,) = rows.notes()
    assert "line 3" in note
    assert repr(cell) in note


@pytest.mark.parametrize("cell", ["$12.50", "1_000"])
def test_text_of_declared_columns_can_be_missing(write: Write, cell: str) -> None:
    path = write("a.csv", f"n,label\n1,0\n{cell},0\n")
    assert f"'{cell}'" in refusal(path, declared={"n": True})
    columns = RowColumns(form=FileOptions(missing=(cell,)))
    assert [event["features"]["n"] for event in read(path, columns, declared={"n": True})] == [1.0, None]


def test_id_time_weight_and_dropped_columns_are_not_features(write: Write) -> None:
    text = "key,when,w,secret,x,label\na,2020-09-13 12:26:40,2.5,1,7,1\n,,,1,8,0\n"
    columns = RowColumns(id="key", time="when", weight="w", drop=("secret",))
    assert read(write("a.csv", text), columns) == [
        {"features": {"x": 7.0}, "label": 1, "id": "a", "time": 1.6e9, "weight": 2.5},
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
        ("yesterday,1,1,0", "'yesterday'"),
        ("1.6e9,-1,1,0", "weight.*-1"),
        ("1.6e9,heavy,1,0", "'heavy'"),
        ("1,1,1", "3 cells.*4 columns"),
        ("1,1,1,0,9", "5 cells.*4 columns"),
        ('1,1,"1"x,0', "','"),
        ("1.6e9,1,1,", "label"),
    ],
)
def test_a_malformed_row_is_located(write: Write, row: str, message: str) -> None:
    path = write("a.csv", f"t,w,x,label\n1.6e9,1,1,0\n\n{row}\n")
    assert re.match(rf"FILE, line 4: .*{message}", refusal(path, RowColumns(time="t", weight="w")))


def test_line_numbers_match_those_of_an_editor(write: Write) -> None:
    path = write("a.csv", 'x,label\n"two\nlines",0\nthree\n')
    assert re.match(r"FILE, line 4: .*\b1 cell\b", refusal(path))


def test_missing_and_repeated_columns_are_refused(write: Write) -> None:
    path = write("a.csv", "label,b,label\n1,2,3\n")
    assert re.search("'label' .*--drop 3", refusal(path))
    path = write("b.csv", "a,b\n1,2\n")
    assert "'label';" in refusal(path)
    assert "'c'" in refusal(path, RowColumns(label="a", drop=("c",)))
    assert "'label';" in refusal(write("e.csv", "only\n1\n"))


@pytest.mark.parametrize("text", ["", "a,label\n", "a,label\n\n\n"])
def test_a_file_without_rows_is_refused(write: Write, text: str) -> None:
    assert refusal(write("a.csv", text)).endswith(" rows")


def test_bad_rows_have_no_number(write: Write) -> None:
    path = write("a.csv", "x,label\nshort\n1,0\n2,1\n")
    assert re.match(r"FILE, line 2: .*\b1 cell\b", refusal(path, skip=1))
    with BadRows("skip") as bad:
        assert [event["features"]["x"] for event in read(path, skip=1, bad=bad)] == [2.0]
    with BadRows("skip") as bad:
        assert read(path, skip=2, bad=bad) == []


@pytest.mark.integration
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
    path = write("a.ndjson", '{"features": {"a": 1, "b": 2}, "label": 1, "id": "e", "time": 1600000000, "weight": 2}\n')
    event = {"features": {"a": 1}, "label": 1, "id": "e", "time": 1.6e9, "weight": 2.0}
    assert read(path, RowColumns(drop=("b",))) == [event]
    path = write("b.jsonl", '{"x": [1, 2], "label": 0}\n')
    assert read(path) == [{"x": [1, 2], "label": 0}]
    path = write("c.jsonl", '{"indices": [0, 4], "values": [1, 2], "label": 0}\n')
    assert read(path) == [{"indices": [0, 4], "values": [1, 2], "label": 0}]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "JSON"),
        ("[1]", "object"),
        ('{"a": {"0": 1, "1": 2}, "label": 1}', "a is an object"),
        ('{"a": 1}', "'label'"),
        ('{"label": [1]}', r"\blabel\b.*\[1\]"),
        ('{"x": [1], "label": 1}', r"\bx\b.*\bflat\b"),
        ('{"a": 1, "label": 1, "k": true}', r"\bid\b.*\bTrue\b"),
        ('{"a": 1, "label": 1, "t": []}', r"\btime\b.*'\[\]'"),
    ],
)
def test_malformed_json_lines_are_refused(write: Write, line: str, message: str) -> None:
    path = write("a.jsonl", '{"a": 1, "label": 1}\n' + line + "\n")
    assert re.match(f"FILE, line 2: .*{message}", refusal(path, RowColumns(id="k", time="t")))


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
        ("1 1:1 qid:1", "'qid:1'"),
        ("1 5", "'5'"),
        ("1 5:x", "'5:x'"),
        ("1 5:inf", "'5:inf'"),
        ("1 5:nan", "'5:nan'"),
        ("1 2:1 2:3", "twice"),
    ],
)
def test_malformed_libsvm_is_refused(write: Write, line: str, message: str) -> None:
    assert re.match(f"FILE, line 2: .*{message}", refusal(write("a.svm", f"0 1:1\n{line}\n")))


def test_query_ids_are_ignored_and_counted(write: Write) -> None:
    with open_rows(write("a.libsvm", "1 qid:7 2:0.5\n0 qid:7 1:1\n0 1:2\n"), RowColumns()) as rows:
        assert [event["indices"] for event in rows.events()] == [[1], [0], [0]]
        (note,) = rows.notes()
    assert note.endswith("2 rows")


@pytest.mark.parametrize(
    ("name", "good", "refused"),
    [
        ("a.libsvm", "1 qid:7 2:0.5\n0 1:2\n", "0 qid:8 1:x\n"),
        ("a.jsonl", '{"a": NaN, "label": 1}\n{"a": 2, "label": 0}\n', '{"a": NaN, "label": [1]}\n'),
    ],
)
def test_notes_count_no_refused_rows(write: Write, name: str, good: str, refused: str) -> None:
    notes = []
    for text in (good, good + refused, refused + good):
        with BadRows("skip") as bad, open_rows(write(name, text), RowColumns(), bad=bad) as rows:
            assert len(list(rows.events())) == 2
            notes.append([re.sub("line [0-9]", "line N", note) for note in rows.notes()])
    assert len(notes[0]) == 1
    assert notes == notes[:1] * 3


def test_a_row_that_begins_with_an_entry_has_no_label(write: Write) -> None:
    path = write("a.libsvm", "1,2 2:0.5\n0 1:1\n 3:2 5:1\nqid:4 1:3\n")
    columns = RowColumns(positive=("1,2",))
    assert re.match("FILE, line 3: .*label.* '3:2'", refusal(path, columns))
    with open_rows(path, replace(columns, form=FileOptions(unlabelled="score"))) as rows:
        assert list(rows.events())[2:] == [{"indices": [2, 4], "values": [2.0, 1.0]}, {"indices": [0], "values": [3.0]}]


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
    with open_rows(path, RowColumns(positive=("2",), negative=("*",))) as rows:
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
    assert refusal(path).endswith(" y")
    archive(path, X=good, y=np.ones(2))
    assert "(3, 2) and y is (2,)" in refusal(path)
    archive(path, X=good.astype(str), y=np.ones(3))
    assert "numbers" in refusal(path)
    archive(path, X=np.array([[1.0], [math.nan]]), y=np.ones(2))
    assert re.match("FILE, row 1:.*finite", refusal(path))
    archive(path, X=good, y=np.array([1, 2, 3]))
    assert "'1', '2', '3'" in refusal(path)
    archive(path, X=good[:0], y=np.ones(0))
    assert refusal(path).endswith(" rows")
    path.write_bytes(b"PK\x03\x04 not really")
    assert refusal(path)


def test_pickles_and_damaged_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, X=np.array([{"a": 1}], dtype=object), y=np.ones(1))
    assert re.match(r"FILE: .*\bX\b", refusal(path))
    with io.BytesIO() as file:
        np.save(file, np.ones((3, 2)))
        good = file.getvalue()
    for bad in (
        good[:-1],
        b"\x93" + good[2:],
        good.replace(b"(3, 2)", b"(3333333333333, 2)"),
        b"\x93NUMPY\x02\x00" + (70_000).to_bytes(4, "little") + b" " * 70_000,
    ):
        with zipfile.ZipFile(path, "w") as archive_:
            archive_.writestr("X.npy", bad)
            archive_.writestr("y.npy", good)
        assert re.match(r"FILE: .*\bX\b", refusal(path))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_flipped_bit_of_an_archive_is_no_other_error(tmp_path: Path, save: Callable[..., None]) -> None:
    path = tmp_path / "a.npz"
    save(path, X=np.ones((4, 3)), y=np.array([0, 1, 0, 1]))
    good = path.read_bytes()
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1 << place % 8]) + good[place + 1 :])
        with suppress(ReadError):
            assert len(read(path)) == 4  # a bit that nothing reads
    for end in range(0, len(good), 7):
        path.write_bytes(good[:end])
        assert "pickle" not in refusal(path)  # as NumPy's advice


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


@pytest.mark.parametrize("name", ["a", "a.gz", "a.orc", ".gz"])
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


def test_what_cannot_be_read_twice_is_copied_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = b"x,label\n" + b"".join(b"%d,0\n" % (i * i) for i in range(30_000))
    for data in (rows, gzip.compress(rows)):
        pipe = tmp_path / "pipe.csv"
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_bytes, args=(data,))
        writer.start()
        with local_file(pipe) as file:
            assert file.path != pipe
            assert file.path.read_bytes() == data
            assert resolve_format(file) == "csv"
            assert len(read(file, format="csv")) == 30_000
        writer.join()
        assert not file.path.exists()
        pipe.unlink()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(rows)))
    with local_file(Path("-")) as file:
        assert file.path.read_bytes() == rows
    for name in ("-", "rows.csv"):
        Path(name).write_text("x,label\n1,0\n")
        with local_file(Path(name)) as file:
            assert file.path == Path(name)


def test_devices_are_refused() -> None:
    with pytest.raises(ReadError, match="device"), local_file(Path(os.devnull)):
        pass


def test_damaged_files_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    packed = gzip.compress(b"x,label\n" + "".join(f"{i * i},0\n" for i in range(50_000)).encode())
    path.write_bytes(packed[: len(packed) // 2])
    assert "gzip" in refusal(path)
    path.write_bytes(packed[:5000] + bytes(100) + packed[5100:])
    assert "gzip" in refusal(path)
    path = tmp_path / "latin.csv"
    path.write_bytes("x,label\nKöln,0\n".encode("latin-1"))
    message = r"UTF-8\b.*\b0xf6\b.*--encoding cp1252$"
    assert re.match(f"FILE, line 2: .*{message}", refusal(path))
    for newline in ("\n", "\r\n"):  # 50,000 bytes, which are decoded a part at a time
        path.write_bytes((newline.join(["x,label", *["1,0"] * 9999, "Köln,0"]) + newline).encode("latin-1"))
        assert re.match(f"FILE, line 10,001: .*{message}", refusal(path))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (bytes(100), "binary"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary"),
        (b"PAR1\x15\x04\x15", "Parquet"),
        (b"PK\x03\x04\x14", "zip"),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.libsvm"])
@pytest.mark.parametrize("packed", [False, True])
def test_binary_files_are_refused_immediately(data: bytes, what: str, name: str, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(data) if packed else data)
    assert what in refusal(path)


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


def test_the_only_file_of_a_zip_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"x,label\n" + b"".join(b"%d,0\n" % (i * i) for i in range(20_000))
    expected = [float(i * i) for i in range(20_000)]
    for name, files in {
        "a.csv.zip": {"rows": text},
        "a.zip": {"folder/": b"", "folder/rows.csv": text, "__MACOSX/folder/._rows.csv": b"1"},
        "rows.zip": {"rows.tsv": text.replace(b",", b"\t")},
    }.items():
        path = tmp_path / name
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, data in files.items():
                archive.writestr(member, data)
        with open_rows(path, RowColumns()) as rows:
            assert [event["features"]["x"] for event in rows.events()] == expected
            assert rows.fraction() == 1.0
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert "damaged" in refusal(path)
    path.write_bytes(data[:1000] + bytes(100) + data[1100:])
    assert "damaged" in refusal(path)
    piped = io.BufferedReader(_Pipe(data))
    monkeypatch.setattr("service.datasets.event_inputs.standard_input", lambda: piped)
    inputs = Inputs(["-"], "update", {"config": {"features": {"kind": "named"}}}, RowColumns(), labels=BinaryLabels())
    assert [event["features"]["x"] for event in inputs.events()] == expected


class _Pipe(io.RawIOBase):
    """A stream that cannot be read twice."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._data.readinto(buffer)


@pytest.mark.parametrize(
    "files", [{}, {"a.csv": b"x", "b.csv": b"x"}, {"[Content_Types].xml": b"x", "xl/workbook.xml": b"x"}]
)
def test_other_archives_are_refused(tmp_path: Path, files: dict[str, bytes]) -> None:
    path = tmp_path / "a.csv"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in files.items():
            archive.writestr(member, data)
    refusal(path)


def test_arff_is_refused_with_a_way_on(tmp_path: Path) -> None:
    path = tmp_path / "a.arff"
    path.write_text("% a comment\n\n@RELATION a\n@attribute x numeric\n@attribute c {DE, FR}\n@Data\n1,DE\n2,FR\n")
    assert "sed " in refusal(path)
    with pytest.raises(ReadError, match="@data"):
        resolve_format(File(path, "the pipe"))
    (tmp_path / "a.csv").write_text(path.read_text().partition("@Data\n")[2])
    columns = RowColumns(label="c", positive=("DE",), form=FileOptions(columns=("x", "c")))
    assert [event["label"] for event in read(tmp_path / "a.csv", columns)] == [1, 0]


def test_invalid_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(b"x,label\n1,0\n")
    assert ".npz" in refusal(path)
