"""Events from arguments, files and standard input, in every form."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from service.datasets.batches import chunks
from service.datasets.event_inputs import Inputs
from service.datasets.file_options import FileOptions
from service.datasets.readers import open_rows
from service.datasets.rows import ReadError
from service.datasets.values import BinaryLabels, Ranks, RowColumns
from service.exits import CommandFailed

NAMED: dict[str, Any] = {"name": "a", "config": {"features": {"kind": "named", "bits": 10}}}
EVENT = {"id": "a", "features": {"amount": 1.5}, "label": 1}
FLAT = {"amount": 1.5, "label": "1"}


def read(
    *value: str,
    kind: Literal["update", "predict", "labels"] = "update",
    columns: RowColumns | None = None,
    format: str = "",
    labels: BinaryLabels | Ranks | None = None,
) -> list[dict[str, Any]]:
    return list(Inputs(value, kind, NAMED, columns or RowColumns(), format, labels or BinaryLabels()).events())


def stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))  # type: ignore[arg-type]


JSON = {
    "an event": '{"id": "a", "features": {"amount": 1.5}, "label": 1}',
    "a list": '[{"id": "a", "features": {"amount": 1.5}, "label": 1}]',
    "a body": '{"events": [{"id": "a", "features": {"amount": 1.5}, "label": 1}]}',
    "many lines": '[\n  {"id": "a", "features": {"amount": 1.5},\n  "label": 1}\n]\n',
    "an event of many lines": '{\n  "id": "a", "features": {"amount": 1.5},\n  "label": 1\n}\n',
    "blank lines": '\n\n{"id": "a", "features": {"amount": 1.5}, "label": 1}\n\n',
}


@pytest.mark.parametrize("form", JSON)
def test_json_of_every_form_is_read(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = JSON[form]
    assert read(text) == [EVENT]
    for name, data in [
        ("a.json", text.encode()),
        ("b.jsonl", text.encode()),
        ("c.json.gz", gzip.compress(text.encode())),
    ]:
        (tmp_path / name).write_bytes(data)
        assert read(str(tmp_path / name)) == [EVENT]
    stdin(monkeypatch, text.encode())
    assert read("-") == [EVENT]
    stdin(monkeypatch, text.encode())
    assert read() == [EVENT]


ODD = {"id": 2.0, "time": 20191130, "label": "1", "weight": "2"}
READ = {"id": "2", "time": 1575072000.0, "label": 1, "weight": 2.0}


@pytest.mark.parametrize("command", ["update", "predict", "labels", "replay"])
@pytest.mark.parametrize("form", ["features", "x", "indices", "flat"])
def test_every_command_reads_members_of_json_alike(command: Any, form: str, tmp_path: Path) -> None:
    named = {"features": {"amount": 1.5}}
    features: dict[str, Any] = {"features": named, "x": {"x": [1.5]}, "indices": {"indices": [0], "values": [2]}}
    row = {**ODD, **features.get(form, named["features"])}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    columns = RowColumns(id="id", time="time", weight="weight") if form == "flat" else RowColumns()
    if command == "replay":
        with open_rows(path, columns) as rows:
            (event,) = rows.events()
    else:
        (event,) = read(str(path), kind=command, columns=columns)
        assert read(json.dumps(row), kind=command, columns=columns) == [event]
    members = {"id": READ["id"], "time": READ["time"]} if command == "predict" else READ
    expected = {} if command == "labels" else features.get(form, named)
    assert event == {**expected, **members}


@pytest.mark.parametrize("command", ["update", "predict", "labels"])
@pytest.mark.parametrize("member", [{"id": 2.0**60}, {"time": "soon"}, {"weight": -1}, {"label": "maybe"}])
def test_a_member_that_cannot_be_read_makes_a_bad_row(command: Any, member: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    good = {"id": "a", "features": {"amount": 1.5}, "label": 0}
    path.write_text(json.dumps({**good, **member}) + "\n" + json.dumps(good) + "\n")
    events = read(str(path), kind=command, columns=RowColumns(form=FileOptions(on_bad="skip")))
    assert len(events) == 1 + (command == "predict" and not member.keys() & {"id", "time"})


def test_members_of_flat_objects_become_features() -> None:
    assert read('{"amount": 1.5, "label": "1"}') == [{"features": {"amount": 1.5}, "label": 1}]
    columns = RowColumns("fraud", ("yes",), (), ("note",), "tx", "at", "w")
    row = '{"amount": 1, "fraud": "yes", "note": "x", "tx": 7, "at": 1600000000, "w": 2}'
    settings = {"features": {"amount": 1}, "label": 1, "id": "7", "time": 1.6e9, "weight": 2.0}
    assert read(row, columns=columns, labels=BinaryLabels(("yes",))) == [settings]
    settings = {"features": {"amount": 1}, "id": "7", "time": 1.6e9}
    assert read(row, kind="predict", columns=columns) == [settings]


def test_unlabelled_events_carry_no_label() -> None:
    assert read(JSON["an event"], kind="predict") == [{"id": "a", "features": {"amount": 1.5}}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "amount,label\n1,0\n2,NULL\n3,\n4,1\n"),
        ("a.jsonl", '{"amount":1,"label":0}\n{"amount":2,"label":"NULL"}\n{"amount":3}\n{"amount":4,"label":1}\n'),
        ("a.json", '[{"amount":1,"label":0},{"features":{"amount":2},"label":null},{"amount":3,"label":null},'
         '{"amount":4,"label":1}]'),
    ],
)  # fmt: skip
def test_rows_without_a_label_can_be_left_out_of_an_update(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    inputs = Inputs([str(path)], "update", NAMED, RowColumns(form=FileOptions(unlabelled="skip", on_bad="skip")))
    assert [(event["features"]["amount"], event["label"]) for event in inputs.events()] == [(1, 0), (4, 1)]
    (note,) = inputs.notes
    assert note.startswith("2 rows ")
    assert re.search(r"\b(line [23]|event 1): ", note)


def test_a_label_by_id_is_accepted_among_updates() -> None:
    assert read('{"id": "a", "label": 1}') == [{"id": "a", "label": 1}]


CSV = "tx,amount,country,label\nr-1,3,DE,0\nr-2,4.5,,1\n"


@pytest.mark.parametrize("packed", [False, True])
def test_csv_is_read_like_in_replay(packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = gzip.compress(CSV.encode()) if packed else CSV.encode()
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(data)
    columns = RowColumns(id="tx")
    values = [
        {"features": {"amount": 3.0, "country": "DE"}, "label": 0, "id": "r-1"},
        {"features": {"amount": 4.5, "country": None}, "label": 1, "id": "r-2"},
    ]
    assert read(str(path), columns=columns) == values
    stdin(monkeypatch, data)
    assert read("-", columns=columns, format="csv") == values
    bare = [{name: value for name, value in item.items() if name != "label"} for item in values]
    assert read(str(path), kind="predict", columns=columns) == bare
    without = "".join(line.rpartition(",")[0] + "\n" for line in CSV.splitlines())  # predict needs no label
    stdin(monkeypatch, without.encode())
    assert read(kind="predict", columns=columns) == bare


def test_the_label_column_may_have_another_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("amount,fraud\n1,no\n2,yes\n")
    with pytest.raises(ReadError, match="'label'"):
        read(str(tmp_path / "a.csv"))
    assert [item["label"] for item in read(str(tmp_path / "a.csv"), columns=RowColumns("fraud"))] == [0, 1]


def test_files_of_numbers_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "a.npz", X=np.array([[1.0, 2.0]]), y=np.array([1]))
    monkeypatch.setitem(NAMED, "config", {"features": {"kind": "dense", "dim": 2}})
    assert read(str(tmp_path / "a.npz")) == [{"x": [1.0, 2.0], "label": 1}]
    assert read(str(tmp_path / "a.npz"), kind="predict") == [{"x": [1.0, 2.0]}]
    stdin(monkeypatch, (tmp_path / "a.npz").read_bytes())
    assert read(format="npz") == [{"x": [1.0, 2.0], "label": 1}]
    (tmp_path / "a.libsvm").write_text("1 2:5\n")
    monkeypatch.setitem(NAMED, "config", {"features": {"kind": "sparse", "dim": 3}})
    assert read(str(tmp_path / "a.libsvm")) == [{"indices": [1], "values": [5.0], "label": 1}]
    stdin(monkeypatch, (tmp_path / "a.libsvm").read_bytes())
    assert read(kind="predict", format="libsvm") == [{"indices": [1], "values": [5.0]}]
    with pytest.raises(ReadError, match="libsvm"):
        read(str(tmp_path / "a.libsvm"), kind="labels")


LABELS = [{"id": "a", "label": 1}, {"id": "b", "label": 0}]


@pytest.mark.parametrize(
    "text",
    ["id,label\na,1\nb,0\n", "a,1\nb,0\n", "label,id\n1,a\n0,b\n", "a,true\n\nb,false\n", "ID, Label\na,1\nb,0\n"],
)
def test_labels_are_read_from_csv(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert read(str(tmp_path / "a.csv"), kind="labels") == LABELS
    stdin(monkeypatch, text.encode())
    assert read(kind="labels") == LABELS


def test_labels_are_read_from_arguments() -> None:
    assert read("a=1", "x=y=0", kind="labels") == [{"id": "a", "label": 1}, {"id": "x=y", "label": 0}]
    assert read("2.0=1", kind="labels") == [{"id": "2", "label": 1}]
    assert read('{"id": "a", "label": 1}', kind="labels") == [{"id": "a", "label": 1}]


def test_labels_may_have_times_and_ranks(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\thigh\t2020-09-13T12:26:40\nb\tlow\t\n")
    values = [{"id": "a", "label": 2, "time": 1.6e9}, {"id": "b", "label": 1}]
    assert read(str(tmp_path / "a.tsv"), kind="labels", labels=Ranks(("low", "high"))) == values


BAD = {
    "[1]": "event 0:.* 1$",
    "{": "argument:.*JSON",
    '{"amount": 1}': "line 1:.*'label'.* amount$",
    '{"amount": 1, "label": "maybe"}': "line 1:.*'maybe'",
    "nowhere.csv": f"^nowhere.csv: {os.strerror(errno.ENOENT)}",
    "nowhere": f"^nowhere: {os.strerror(errno.ENOENT)}",
}


@pytest.mark.parametrize("value", BAD)
def test_unreadable_events_state_the_reason(value: str) -> None:
    with pytest.raises(ReadError, match=BAD[value]):
        read(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,1\nb\n", "line 2: .*id,label"),
        ("a,1\nb,perhaps\n", "line 2: .*'perhaps'"),
        ("a,1\n,0\n", "line 2: .*id"),
        ("a,1,yesterday\n", "line 1: 'yesterday'"),
        ('a,1\n"b,0\n', "line 2"),
    ],
)
def test_unreadable_labels_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ReadError, match=message):
        read(str(tmp_path / "a.csv"), kind="labels")


def test_unreadable_lines_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(JSON["an event"] + "\n{\n")
    with pytest.raises(ReadError, match=r"\b2:.*JSON"):
        read(str(path))
    path.write_text("\n\n" + JSON["an event"] + "\n\n{\n")
    with pytest.raises(ReadError, match=r"\b5:.*JSON"):
        read(str(path))
    path.write_bytes(JSON["an event"].encode() + b"\n\xff\xfe\n")
    with pytest.raises(ReadError, match=r"\b2:.*UTF-8"):
        read(str(path))
    path.write_bytes(b"\xff\xfe\0\0")
    with pytest.raises(ReadError, match="line 1"):
        read(str(path), kind="labels", format="csv")
    packed = gzip.compress(JSON["an event"].encode())
    path.write_bytes(packed[:15] + bytes(9) + packed[24:])
    with pytest.raises(ReadError, match="gzip"):
        read(str(path))
    path.write_bytes(gzip.compress(JSON["an event"].encode())[:-4])
    with pytest.raises(ReadError, match=r"a\.jsonl.*gzip"):
        read(str(path))
    path.write_text("")
    with pytest.raises(ReadError, match="events"):
        read(str(path))


def test_empty_files_and_arguments_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for text in ("", "\n"):
        path.write_text(text)
        with pytest.raises(ReadError, match=r"\brows$"):
            read(str(path), kind="labels")
    with pytest.raises(CommandFailed, match="empty"):
        read("")


def test_standard_input_is_read_once_and_not_from_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandFailed, match="once"):
        read("-", "-")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    with pytest.raises(CommandFailed, match="events"):
        read()
    stdin(monkeypatch, gzip.compress(b"x"))
    with pytest.raises(ReadError, match=r"\brows$"):
        read()


def test_chunks_are_limited_and_flag_repeatability() -> None:
    events = [{"id": str(k)} for k in range(5)] + [{"x": [1]}]
    result = list(chunks(iter(events), 2))
    assert [(item.offset, item.count, item.identified) for item in result] == [(0, 2, 2), (2, 2, 2), (4, 2, 1)]
    assert result[0].body() == b'{"events":[{"id":"0"},{"id":"1"}]}'
    large = list(chunks(({"id": "x" * 2_000_000} for _ in range(5)), 1000))
    assert [item.count for item in large] == [3, 2]
