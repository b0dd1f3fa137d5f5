"""Parquet files: the rows of the same file as CSV, with the types that the file has."""

from __future__ import annotations

import datetime
import decimal
import gzip
import io
import math
import sys
import zipfile
from pathlib import Path
from typing import Any, Literal

import pyarrow as arrow
import pytest
from pyarrow import parquet

from service.datasets.bad_rows import BadRows
from service.datasets.event_inputs import Inputs
from service.datasets.file_options import FileOptions
from service.datasets.learnt_rows import RowHash
from service.datasets.packed_text import local_file
from service.datasets.readers import format_of, open_rows
from service.datasets.rows import ReadError
from service.datasets.values import BinaryLabels, RowColumns

pytestmark = pytest.mark.integration

UTC = datetime.UTC


def write(folder: Path, columns: dict[str, Any] | Any, **options: Any) -> Path:
    path = folder / "rows.parquet"
    parquet.write_table(arrow.table(columns) if isinstance(columns, dict) else columns, path, **options)
    return path


def read(path: Path, columns: RowColumns | None = None, **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the events, and what is reported."""
    with open_rows(path, columns or RowColumns(), **options) as rows:
        notes = list(rows.guesses)
        events = list(rows.events())
        assert rows.fraction() == 1.0
        assert rows.total == len(events)
        return events, notes + rows.notes()


def features(path: Path, columns: RowColumns | None = None, **options: Any) -> list[dict[str, Any]]:
    return [event["features"] for event in read(path, columns, **options)[0]]


def test_rows_are_those_of_the_same_file_as_csv(tmp_path: Path) -> None:
    count = 12_345
    columns = {
        "payment": [f"p-{i}" for i in range(count)],
        "amount": [None if i == 7 else i / 4 for i in range(count)],
        "items": [i // 2 for i in range(count)],
        "terminal": [None if i == 8 else f"t{i % 7}" for i in range(count)],
        "fraud": ["yes" if i % 9 == 0 else "no" for i in range(count)],
    }
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join([",".join(columns), *lines]) + "\n")
    options = RowColumns("fraud", id="payment")
    with open_rows(tmp_path / "rows.csv", options) as rows:
        expected = list(rows.events())
    assert read(write(tmp_path, columns, row_group_size=1000), options) == (expected, [])


def test_types_are_kept(tmp_path: Path) -> None:
    columns = {
        "zip": ["1234", "90210"],
        "price": arrow.array([decimal.Decimal("12.50"), None], arrow.decimal128(9, 2)),
        "half": arrow.array([0.5, 1.5], arrow.float32()),
        "new": [True, False],
        "words": [["a", "b"], []],
        "country": arrow.array(["DE", None]).dictionary_encode(),
        "code": arrow.array([b"x", b"y"], arrow.binary()),
        "day": [datetime.date(2019, 11, 30), None],
        "at": arrow.array([datetime.datetime(2019, 11, 30, 13, 1, 1), None], arrow.timestamp("ns")),
        "nothing": arrow.nulls(2),
        "label": arrow.array([0, 1], arrow.int8()),
    }
    assert features(write(tmp_path, columns)) == [
        {
            "zip": "1234",
            "price": 12.5,
            "half": 0.5,
            "new": True,
            "words": ["a", "b"],
            "country": "DE",
            "code": "x",
            "day": "2019-11-30",
            "at": "2019-11-30T13:01:01",
            "nothing": None,
        },
        {
            "zip": "90210",
            "price": None,
            "half": 1.5,
            "new": False,
            "words": [],
            "country": None,
            "code": "y",
            "day": None,
            "at": None,
            "nothing": None,
        },
    ]


def test_whole_decimals_are_exact(tmp_path: Path) -> None:
    ids = [2**60 + 1, 2**60 + 2, None]
    whole = arrow.decimal128(38, 0)
    columns = {
        "payment": arrow.array([decimal.Decimal(id or 17) for id in ids], whole),
        "merchant": arrow.array([None if id is None else decimal.Decimal(id) for id in ids], whole),
        "items": arrow.array([decimal.Decimal(2), None, decimal.Decimal(3)], arrow.decimal256(40, 0)),
        "label": arrow.array([decimal.Decimal(label) for label in (0, 1, 1)], whole),
    }
    events, notes = read(write(tmp_path, columns), RowColumns(id="payment"))
    assert [event["id"] for event in events] == [str(2**60 + 1), str(2**60 + 2), "17"]
    assert [event["features"]["merchant"] for event in events] == [str(2**60 + 1), str(2**60 + 2), None]
    assert [event["features"]["items"] for event in events] == [2, None, 3]
    assert [event["label"] for event in events] == [0, 1, 1]
    assert [line.split(":")[0] for line in notes] == ["merchant"]


def test_ids_that_floats_cannot_tell_apart_are_bad_rows(tmp_path: Path) -> None:
    path = write(tmp_path, {"id": [2.0**53, 2.0**60, float("nan"), float("inf")], "label": [0, 1, 1, 0]})
    with BadRows("skip") as bad, open_rows(path, RowColumns(id="id"), bad=bad) as rows:
        assert [event.get("id") for event in rows.events()] == [str(2**53), None]
        assert len(bad.examples) == 2


def test_text_of_whole_numbers_stays_text_and_this_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, {"code": ["12", "7"], "note": ["a", "b"], "label": [0, 1]})
    events, notes = read(path)
    assert events[0]["features"] == {"code": "12", "note": "a"}
    assert [line.split(":")[0] for line in notes] == ["code"]
    assert "--decimal" in notes[0]
    assert features(path, RowColumns(form=FileOptions(decimal=".")))[0] == {"code": 12, "note": "a"}
    assert features(path, declared={"code": True})[0]["code"] == 12
    assert read(path, declared={"code": False})[1] == []


def test_text_of_fractions_is_read_as_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, {"amount": ["7", "12.5"], "label": [0, 1]})
    assert [event["features"]["amount"] for event in read(path)[0]] == [7, 12.5]


def _zip(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rows.parquet", data)
    return out.getvalue()


@pytest.mark.parametrize("name", ["rows.parquet.gz", "rows.parquet.zip", "rows.zip", "rows.parquet"])
def test_a_compressed_file_has_the_same_rows(tmp_path: Path, name: str) -> None:
    plain = write(tmp_path, {"a": [0.5, 1.5, None] * 500, "b": ["x", "y", "z"] * 500, "label": [0, 1, 0] * 500})
    expected, data = read(plain), plain.read_bytes()
    path = tmp_path / name
    path.write_bytes(_zip(data) if name.endswith("zip") else gzip.compress(data))
    assert format_of(path) == "parquet"
    assert read(path) == expected
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ReadError, match="damaged"):
        read(path)


@pytest.mark.parametrize(
    "at",
    [
        arrow.array([datetime.datetime(2019, 11, 30, 13, 1, 1)], arrow.timestamp("ns")),
        arrow.array([datetime.datetime(2019, 11, 30, 13, 1, 1, tzinfo=UTC)], arrow.timestamp("us", "Europe/Berlin")),
        [1575118861],
        ["2019-11-30 13:01:01 UTC"],
    ],
    ids=["nanoseconds", "zone", "seconds", "text"],
)
def test_times_are_seconds(tmp_path: Path, at: Any) -> None:
    events, _ = read(write(tmp_path, {"at": at, "x": [1], "label": [1]}), RowColumns(time="at"))
    assert events == [{"features": {"x": 1}, "label": 1, "time": 1575118861.0}]


def test_infinite_numbers_are_missing_and_counted(tmp_path: Path) -> None:
    """They are texts, as in the client. Other numbers that no feature can have are refused by the service."""
    path = write(tmp_path, {"x": [1.0, float("nan"), float("inf"), None, -3.4e38], "label": [0, 1, 0, 1, 0]})
    events, notes = read(path)
    assert [event["features"]["x"] for event in events] == [1.0, None, "inf", None, -3.4e38]
    assert notes[0].startswith("x: 1 number beyond 1e+30 ")
    assert "row 2" in notes[0]


def test_large_integers_are_names(tmp_path: Path) -> None:
    events, notes = read(write(tmp_path, {"merchant": [2**53 + 1, 17, None], "label": [0, 1, 0]}))
    assert [event["features"]["merchant"] for event in events] == [str(2**53 + 1), "17", None]
    assert "2^53" in notes[0]


def test_options_are_those_of_csv(tmp_path: Path) -> None:
    columns = {"k": [1, 2], "secret": [{"a": 1}, None], " x ": [-999, 5], "c": ["unknown", "b"], "label": ["ok", "bad"]}
    options = RowColumns(positive=("bad",), drop=("secret",), id="k", form=FileOptions(missing=("unknown",)))
    events, notes = read(write(tmp_path, columns), options)
    assert events == [
        {"features": {"x": -999, "c": None}, "label": 0, "id": "1"},
        {"features": {"x": 5, "c": "b"}, "label": 1, "id": "2"},
    ]
    assert len(notes) == 1


def test_other_types_must_be_dropped(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"'secret'.*struct.*--drop"):
        read(write(tmp_path, {"secret": [{"a": 1}], "label": [0]}))


def test_repeated_names_become_unique(tmp_path: Path) -> None:
    table = arrow.Table.from_arrays([arrow.array([1]), arrow.array([2.5]), arrow.array([0])], ["x", "x", "label"])
    events, notes = read(write(tmp_path, table))
    assert events[0]["features"] == {"x": 1, "x_2": 2.5}
    assert len(notes) == 1


def test_what_is_no_parquet_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, {"x": list(range(50_000)), "label": [0] * 50_000})
    data = path.read_bytes()
    for damaged in (b"", b"x,label\n1,0\n", data[:-10], data[: len(data) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(ReadError, match="Parquet"):
            read(path)
    path.write_bytes(data[:1000] + bytes(2000) + data[3000:])
    with pytest.raises(ReadError, match="damaged"):
        read(path)
    with pytest.raises(ReadError, match=r"\brows$"):
        read(write(tmp_path, {"x": arrow.nulls(0), "label": arrow.nulls(0)}))


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, {"x": [1], "label": [0]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ReadError, match=r"\[parquet\]"):
        read(path)


@pytest.mark.parametrize("name", ["a.parquet", "a.PQ"])
def test_the_format_is_recognised(name: str) -> None:
    assert format_of(Path(name)) == "parquet"


LEARNER = {"name": "a", "config": {"features": {"kind": "named", "bits": 10}}}


@pytest.mark.parametrize("piped", [False, True])
@pytest.mark.parametrize(
    ("kind", "event"),
    [
        ("update", {"features": {"x": 1.5}, "label": 1, "id": "a"}),
        ("predict", {"features": {"x": 1.5}, "id": "a"}),
        ("labels", {"label": 1, "id": "a"}),
    ],
)
def test_every_command_reads_parquet(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    piped: bool,
    kind: Literal["update", "predict", "labels"],
    event: dict[str, Any],
) -> None:
    path = write(tmp_path, {"id": ["a"], "x": [1.5], "label": [True]})
    if piped:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    inputs = Inputs(("-" if piped else str(path),), kind, LEARNER, RowColumns(id="id"), "", BinaryLabels())
    assert list(inputs.events()) == [event]


def test_labels_need_ids(tmp_path: Path) -> None:
    path = write(tmp_path, {"id": ["a", None], "label": [1, 0], "time": [1.6e9, 1.7e9], "other": ["x", "y"]})
    inputs = Inputs((str(path),), "labels", LEARNER, RowColumns(form=FileOptions(on_bad="skip")))
    assert list(inputs.events()) == [{"id": "a", "label": 1, "time": 1.6e9}]
    assert "row 1: " in inputs.bad.notes()[-1]


def test_a_copy_of_a_pipe_is_recognised(tmp_path: Path) -> None:
    path = write(tmp_path, {"x": [1], "label": [0]})
    with path.open("rb") as stream, local_file(Path("-"), stream) as file:
        from service.datasets.readers import resolve_format

        assert resolve_format(file) == "parquet"


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_missing_number_has_any_spelling_and_one_without_a_cell_is_reported(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    amounts = ["-999.0", "-999", "-9.99e2", "3", " -999 "]
    if name.endswith("csv"):
        path.write_text("amount,code,label\n" + "".join(f"{amount},099,0\n" for amount in amounts))
    else:
        numbers = [float(amount) for amount in amounts]
        columns = {"amount": numbers, "code": ["099"] * 5, "items": [-999, 99, 2, 3, 4], "label": [0] * 5}
        parquet.write_table(arrow.table(columns), path)
    with open_rows(path, RowColumns(form=FileOptions(missing=("-999", "7", "99")))) as rows:
        features = [event["features"] for event in rows.events()]
        notes = [line for line in rows.notes() if "--missing" in line]
    assert [row["amount"] for row in features] == [None, None, None, 3, None]
    assert [row["code"] for row in features] == ["099"] * 5  # a name, not a number
    if name.endswith("parquet"):
        assert [row["items"] for row in features] == [None, None, 2, 3, 4]
    assert len(notes) == (2 if name.endswith("csv") else 1)


def test_a_missing_cell_that_makes_a_column_of_integers_one_of_floats_changes_no_other_row(tmp_path: Path) -> None:
    hashes = []
    for values in ([1, 2, 2**53], [1.0, 2.0, None]):
        path = write(tmp_path, {"a": values, "b": [0.5, math.inf, 2.5], "label": [0, 1, 0]})
        with open_rows(path, RowColumns()) as rows:
            hash = RowHash(RowColumns(), rows.header)
            hashes.append([hash(event.origin.row) for event in rows.events()])
    assert hashes[0][:2] == hashes[1][:2]
    assert len({*hashes[0], *hashes[1]}) == 4
