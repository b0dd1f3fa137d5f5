"""`rarestream inspect`, `replay --dry-run`, and the table before a replay: the commands that are printed work."""

from __future__ import annotations

import csv
import errno
import gzip
import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from service.cli.inspection import inspect_file
from service.datasets import File, RowColumns
from tests.harness.process import Process
from tests.service.cli.conftest import run

pytestmark = pytest.mark.integration


def learner(server: Process, name: str) -> dict[str, Any]:
    response = httpx.get(f"{server.url}/v1/learners/{name}", trust_env=False, timeout=300)
    document: dict[str, Any] = response.raise_for_status().json()
    return document


def messages(path: Path) -> None:
    """Write tab-separated text without a header, with bare quotes."""
    words = ["call now", "see you", "free", "lunch", 'he said "hi']
    rows = [
        f"{'spam' if i % 5 == 0 else 'ham'}\tthis is message {i}: {words[i % 5]} {'and so on ' * (i == 0) * 6}\n"
        for i in range(60)
    ]
    path.write_text("".join(rows))


def flows(path: Path) -> None:
    """Write columns with blanks, repeated names, infinite numbers and several classes of attacks."""
    header = "Flow ID, Source IP, Duration, Header Length,Rate, Header Length, Label\n"
    kinds = ["BENIGN", "BENIGN", "DoS", "PortScan"]
    rows = [
        f"f-{i % 9},10.0.0.{i % 3},{i},{i % 5},{'Infinity' if i < 3 else i / 7},1,{kinds[i % 4]}\n" for i in range(80)
    ]
    path.write_text(header + "".join(rows))


def payments(path: Path) -> None:
    """Write a gzipped CSV with an id, a time of another form, ids of entities, and a column that tells the label."""
    rows = [
        f"{i};{i // 24 % 28 + 1}/11/2019 {i % 24}:05;{i % 13};{i % 50 + (i % 50 == 0) * 9000},5;{int(i % 20 == 0)};"
        f"{'yes' if i % 20 == 0 else 'no'}\n"
        for i in range(700)
    ]
    header = "TX_ID;WHEN;TERMINAL_ID;AMOUNT;SCENARIO;is_fraud\n"
    path.write_bytes(gzip.compress((header + "".join(rows) + "short\n").encode()))


def events(path: Path) -> None:
    rows = [{"kind": "spam" if i % 5 == 0 else "ham", "text": f"message {i} has some words"} for i in range(60)]
    rows.append({"kind": None, "text": "no label yet for this one"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def sparse(path: Path) -> None:
    path.write_text("# a comment\n" + "".join(f"{i % 4}.0 qid:1 {i % 7 + 1}:2.5 \t 11:-5\n" for i in range(40)))


def arrays(path: Path) -> None:
    np.savez(path, X=np.arange(60.0).reshape(20, 3), y=[0, 1] * 10)


@pytest.mark.parametrize(
    ("write", "name", "options", "counts"),
    [
        (messages, "messages.tsv", ["--columns column_1,column_2", "--label column_1", "--positive spam"], (48, 12)),
        (flows, "flows.csv", ["--label Label", "--negative BENIGN"], (40, 40)),
        (
            payments,
            "payments.csv.gz",
            ["--id TX_ID", "--time WHEN", "--label is_fraud", "--drop SCENARIO", "--on-bad skip"],
            (665, 35),
        ),
        (events, "events.jsonl", ["--label kind", "--positive spam", "--unlabelled skip"], (48, 12)),
        (sparse, "sparse.libsvm", ["--positive 3"], (30, 10)),
        (arrays, "arrays.npz", [], (10, 10)),
    ],
)
def test_the_printed_commands_work(
    server: Process,
    tmp_path: Path,
    write: Callable[[Path], None],
    name: str,
    options: list[str],
    counts: tuple[int, int],
) -> None:
    path = tmp_path / name
    write(path)
    printed = run(server, "inspect", path).stdout
    commands = [line for line in printed.splitlines() if line.startswith("rarestream ")]
    assert [shlex.split(command)[1] for command in commands] == ["create", "replay"]
    for option in options:
        assert f" {option}" in commands[1]
    for command in commands:
        run(server, *shlex.split(command)[1:])
    assert tuple(learner(server, name.split(".")[0])["class_counts"].values()) == counts


def test_the_commands_declare_columns(server: Process, tmp_path: Path) -> None:
    payments(tmp_path / "declared.csv.gz")
    create = run(server, "inspect", tmp_path / "declared.csv.gz").stdout.splitlines()[-2]
    assert create.endswith("--features named --categorical TERMINAL_ID --log AMOUNT")


@pytest.mark.parametrize(
    ("name", "value", "proposed"),
    [
        ("Txn ID", lambda i: f"t-{i}", "--id"),
        ("uuid", lambda i: f"{i:032x}", "--id"),
        ("row", lambda i: i, "--drop"),  # each file counts so
        ("phone", lambda i: f"555-{i:04}", "--drop"),
        ("first_name", lambda i: "".join("abcdefghij"[int(digit)] for digit in str(i)), None),
    ],
)
def test_only_a_column_that_is_called_like_an_id_is_proposed_as_the_id(
    server: Process, tmp_path: Path, name: str, value: Callable[[int], object], proposed: str | None
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"{name},amount,label\n" + "".join(f"{value(i)},{i % 7},{i % 2}\n" for i in range(200)))
    replay = shlex.split(run(server, "inspect", path).stdout.splitlines()[-1])
    assert (replay[replay.index(name) - 1] if name in replay else None) == proposed


def test_everything_is_reported(server: Process, tmp_path: Path) -> None:
    payments(tmp_path / "said.csv.gz")
    lines = run(server, "inspect", tmp_path / "said.csv.gz").stdout.splitlines()
    assert "700 rows" in lines[0]
    cells = {line.split()[0]: line for line in lines if line}
    for column, part in {
        "TX_ID": " id ",
        "WHEN": "%d/%m/%Y %H:%M",
        "TERMINAL_ID": "--categorical",
        "AMOUNT": "','",
        "SCENARIO": "--drop",
        "is_fraud": "no 665, yes 35",
    }.items():
        assert part in cells[column]
    assert any(re.search(r"line 702: .*\b1 cell\b", line) for line in lines)


@pytest.mark.parametrize(
    ("name", "row", "features"),
    [
        ("shown.csv", "{i}.5,{label}\n", "named"),
        ("shown.jsonl", '{{"amount": {i}.5, "label": "{label}"}}\n', "named"),
        ("shown.libsvm", "{label} 1:{i}.5\n", "sparse"),
    ],
)
def test_the_values_of_the_label_are_shown_for_every_format(
    server: Process, tmp_path: Path, name: str, row: str, features: str
) -> None:
    path = tmp_path / name
    labels = ["ham", "spam", "ham", "later"] * 20
    rows = "".join(row.format(i=i, label=label) for i, label in enumerate(labels))
    path.write_text("amount,label\n" * name.endswith("csv") + rows)
    learner = name.replace(".", "-")
    dim = ("--dim", "9") if features == "sparse" else ()
    run(server, "create", learner, "--algorithm", "fofo", "--features", features, *dim)
    output = run(server, "inspect", path).stdout
    replayed = run(server, "replay", path, "--learner", learner, "--positive", "spam", "--negative", "*").stderr
    for text in (output, replayed):
        labels = [line for line in text.splitlines() if line.startswith("label")]
        assert sum("ham 40, spam 20, later 20" in line for line in labels) == 1


def test_inspect_for_programs(server: Process, tmp_path: Path) -> None:
    payments(tmp_path / "json.csv.gz")
    document = json.loads(run(server, "inspect", tmp_path / "json.csv.gz", "--rows", "500", "--json").stdout)
    assert (document["rows"], document["complete"], document["format"]) == (500, False, "csv")
    columns = {column["name"]: column for column in document["columns"]}
    assert columns["AMOUNT"] | {"why": ""} == {
        "name": "AMOUNT",
        "kind": "number",
        "role": None,
        "why": "",
        "missing": 0,
        "values": 50,
    }
    assert columns["is_fraud"]["role"] == "label"
    assert document["labels"] == {"no": 475, "yes": 25}
    assert len(document["commands"]) == 2


def test_the_learner_declares_columns(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "terminals.csv"
    path.write_text("terminal,amount,label\n" + "".join(f"{i % 7},{i},{i % 2}\n" for i in range(60)))
    run(server, "create", "terminals", "--algorithm", "cbr-diag", "--features", "named", "--categorical", "terminal")
    lines = run(server, "inspect", path, "--learner", "terminals").stdout.splitlines()
    assert next(line for line in lines if line.startswith("terminal")).split()[1] == "names"
    commands = [line for line in lines if line.startswith("rarestream ")]
    assert len(commands) == 1
    assert "--learner terminals" in commands[0]
    assert run(server, "inspect", path, "--learner", "nobody", status=4)


ODD_COLUMNS: dict[str, list[Any]] = {
    "amount": [*["#BAD"] * 5, *[k + 0.5 for k in range(195)]],
    "whole": [*[k % 9 for k in range(190)], *["#BAD"] * 10],
    "first": ["17", *["1.5", "#BAD"] * 99, "x"],
    "level": ["#BAD", *[k % 7 + 0.5 for k in range(99)], *["low"] * 100],
    "rare": ["v1", *["1.5", *["v2"] * 98], *["v3"] * 100],
    "spelt": ["12.50", *[str(k) for k in range(199)]],
    "whole_spelt": [str(k % 9) for k in range(200)],
    "zip": ["01234", *[k % 7 for k in range(199)]],
    "large": [9007199254740993, *range(199)],
    "flag": [k % 2 == 0 for k in range(200)],
    "flags": [1.5, *[k % 2 == 0 for k in range(199)]],
    "note": [f"a few words of row {k}" for k in range(200)],
    "country": ["DE", "FR"] * 100,
    "missing": ["NA", "-"] * 100,
    "late": [*["-"] * 150, *["x", "y"] * 25],
    "empty": [None] * 200,
    "lists": [["a", "b"]] * 200,
    "some_lists": [*[1.5, 2.5] * 99, ["a"], 3.5],
}
FIELD_KINDS = {"number": "number", "mixed": "mixed", "list": "list", "empty": "unknown"}  # others: category


def write_columns(path: Path, columns: dict[str, list[Any]]) -> None:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([list(columns), *([*row.values()] for row in rows)])
    else:
        import pyarrow
        from pyarrow import parquet

        arrays = {}
        for name, values in columns.items():
            mixed = len({type(value) for value in values} - {type(None)}) > 1
            arrays[name] = pyarrow.array(
                [None if value is None else str(value) for value in values] if mixed else values
            )
        parquet.write_table(pyarrow.table(arrays), path)


@pytest.mark.parametrize("turn", [0, 7])
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_the_table_says_the_kinds_that_the_learner_then_has(
    server: Process, tmp_path: Path, form: str, turn: int
) -> None:
    """Whatever the first row is: the rows are also turned, so that others begin."""
    path = tmp_path / f"kinds.{form}"
    columns = {name: values[turn:] + values[:turn] for name, values in ODD_COLUMNS.items()}
    write_columns(path, {**columns, "label": [k % 2 for k in range(200)]})
    name = f"kinds-{form}-{turn}"
    run(server, "create", name, "--algorithm", "cbr-diag", "--features", "named")
    before = run(server, "inspect", path, "--learner", name, "--json")
    printed = {column["name"]: column["kind"] for column in json.loads(before.stdout)["columns"]}
    run(server, "replay", path, "--learner", name, "--json")
    learnt = {field["name"]: field["kind"] for field in learner(server, f"{name}/fields")["fields"]}
    printed.pop("label", None)  # JSON has it beside the features
    assert {name: FIELD_KINDS.get(kind, "category") for name, kind in printed.items()} == {
        name: learnt.get(name, "unknown") for name in printed
    }


def test_what_the_learner_remembers_of_a_field_counts(server: Process, tmp_path: Path) -> None:
    run(server, "create", "past", "--algorithm", "cbr-diag", "--features", "named", "--text", "note")
    write_columns(tmp_path / "past.jsonl", {"terminal": ["a"] * 900, "note": ["x"] * 900, "label": [0, 1] * 450})
    run(server, "replay", tmp_path / "past.jsonl", "--learner", "past", "--json")
    path = tmp_path / "next.jsonl"
    write_columns(path, {"terminal": list(range(9)) * 2, "note": ["x"] * 18, "label": [0, 1] * 9})
    kinds = [
        {column["name"]: column["kind"] for column in json.loads(run(server, *command, "--json").stdout)["columns"]}
        for command in (("inspect", path, "--learner", "past"), ("inspect", path))
    ]
    assert [(kind["terminal"], kind["note"]) for kind in kinds] == [("names", "text"), ("number", "names")]


def test_many_columns_take_twenty_lines(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    header = ",".join(f"x{i}" for i in range(200))
    path.write_text(f"{header},key,label\n" + "".join("1.5," * 200 + f"k{i},{i % 2}\n" for i in range(60)))
    run(server, "create", "wide", "--algorithm", "cbr-diag", "--features", "named")
    table = run(server, "replay", path, "--learner", "wide", "--json").stderr.splitlines()
    assert len(table) == 20
    assert re.findall(r"\d+", table[-1])[0] == "184"
    assert {"key", "label"} <= {line.split()[0] for line in table}


@pytest.mark.parametrize("columns", [17, 18, 19, 30])
def test_the_label_beside_the_features_of_json_is_one_of_the_twenty_lines(tmp_path: Path, columns: int) -> None:
    path = tmp_path / "wide.jsonl"
    path.write_text(
        "".join(json.dumps({f"x{k}": i * k % 7 for k in range(columns)} | {"label": i % 2}) + "\n" for i in range(30))
    )
    table = inspect_file(File.of(path), RowColumns(), "jsonl", 100, find=False).table()
    assert len(table) == min(20, columns + 2)
    assert table[-1].split()[0] == "label"


def test_a_replay_shows_the_columns_once_and_a_dry_run_sends_nothing(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "ids.csv"
    path.write_text("Txn,amount,label\n" + "".join(f"t-{i},{i % 9},{i % 2}\n" for i in range(60)) + "t-60,-,1\n")
    run(server, "create", "ids", "--algorithm", "cbr-diag", "--features", "named")
    dry = run(server, "replay", path, "--learner", "ids", "--dry-run")
    assert learner(server, "ids")["events"] == 0
    assert dry.stdout.splitlines()[-1].startswith(f"rarestream replay {path} --learner ids")
    assert json.loads(run(server, "replay", path, "--learner", "ids", "--dry-run", "--json").stdout)["rows"] == 61
    first = run(server, "replay", path, "--learner", "ids", "--json")
    assert json.loads(first.stdout)["applied"] == 61
    table = first.stderr.splitlines()
    assert any(line.startswith("Txn") and "--drop" in line for line in table)
    assert any(line.startswith("amount") and "'-'" in line for line in table)
    assert "Txn" not in run(server, "replay", path, "--learner", "ids", "--json").stderr


def test_a_dry_run_refuses_what_a_replay_refuses(server: Process, tmp_path: Path) -> None:
    path = tmp_path / "refused.csv"
    path.write_text("amount,label\n1,ok\n2,fraud\n")
    run(server, "create", "refused", "--algorithm", "cbr-diag", "--features", "named")
    assert "--positive" in run(server, "replay", path, "--learner", "refused", "--dry-run", status=2).stderr


@pytest.mark.parametrize(
    ("labels", "option"),
    [("01", None), ("ab", "--positive b"), ("aaab", "--positive b"), ("a", "--negative a"), ("abc", "--positive c")],
)
def test_a_guess_of_what_is_positive_is_called_one(
    server: Process, tmp_path: Path, labels: str, option: str | None
) -> None:
    path = tmp_path / "labelled.csv"
    path.write_text("amount,label\n" + "".join(f"{i}.5,{labels[i % len(labels)]}\n" for i in range(60)))
    guesses = [line for line in run(server, "inspect", path).stdout.splitlines() if line.startswith("guesses")]
    assert [option in line for line in guesses] == ([] if option is None else [True])
    name, negative = f"of-{labels}", ("--negative", "*") if len(set(labels)) > 2 else ()
    run(server, "create", name, "--algorithm", "cbr-diag", "--features", "named")
    assert (
        "guesses to"
        not in run(server, "replay", path, "--learner", name, "--positive", labels[0], *negative, "--dry-run").stdout
    )


def test_what_is_found_is_called_a_guess(server: Process, tmp_path: Path) -> None:
    payments(tmp_path / "found.csv.gz")
    (line,) = [
        line for line in run(server, "inspect", tmp_path / "found.csv.gz").stdout.splitlines() if "guesses" in line
    ]
    for option in ("--label is_fraud", "--id TX_ID", "--time WHEN"):
        assert option in line
    messages(tmp_path / "found.tsv")
    assert "header" in run(server, "inspect", tmp_path / "found.tsv").stdout
    documents = [
        json.loads(run(server, "inspect", tmp_path / name, "--json").stdout) for name in ("found.csv.gz", "found.tsv")
    ]
    assert [document["header_is_row"] for document in documents] == [False, True]
    assert documents[0]["guesses"] == {"label": ["is_fraud"], "id": ["TX_ID"], "time": ["WHEN"]}
    assert documents[1]["guesses"].keys() == {"label", "positive"}


def test_nothing_to_inspect(server: Process, tmp_path: Path) -> None:
    assert os.strerror(errno.ENOENT) in run(server, "inspect", tmp_path / "none.csv", status=2).stderr
    (tmp_path / "empty.csv").write_text("a,label\n")
    assert f"{tmp_path / 'empty.csv'}: " in run(server, "inspect", tmp_path / "empty.csv", status=2).stderr
    (tmp_path / "unlabelled.csv").write_text("a,b\n" + "".join(f"{i},{i / 7}\n" for i in range(60)))
    assert "--label" in run(server, "inspect", tmp_path / "unlabelled.csv").stdout


def test_each_label_is_counted_once(server: Process, tmp_path: Path) -> None:
    for write, name, counts in (
        (events, "counted.jsonl", {"ham": 48, "spam": 12}),
        (messages, "counted.tsv", {"ham": 48, "spam": 12}),
        (arrays, "counted.npz", {"0": 10, "1": 10}),
    ):
        write(tmp_path / name)
        assert json.loads(run(server, "inspect", tmp_path / name, "--json").stdout)["labels"] == counts


@pytest.mark.parametrize("kind", ["stdin", "pipe"])
def test_commands_for_rows_that_came_by_a_pipe_have_a_place_for_a_file(kind: str) -> None:
    rows = b"a,label\n" + b"1,0\n2,1\n" * 30
    if kind == "stdin":
        result = run("http://127.0.0.1:1", "inspect", "-", stdin=rows)
    else:
        read, write = os.pipe()
        with os.fdopen(write, "wb") as out:
            out.write(rows)
        result = run("http://127.0.0.1:1", "inspect", f"/dev/fd/{read}")
        os.close(read)
    replay = shlex.split(result.output.strip().splitlines()[-1])
    assert replay[:3] == ["rarestream", "replay", "-" if kind == "stdin" else "FILE"]


@pytest.mark.parametrize("name", ["rows.csv", "rows.libsvm"])
def test_a_table_of_the_first_rows_only_says_so(tmp_path: Path, name: str) -> None:
    rows = "1,0\n2,1\n" if name == "rows.csv" else "1 1:2\n0 2:1\n"
    (tmp_path / name).write_text("a,label\n" * (name == "rows.csv") + rows * 10)
    first, whole = (
        inspect_file(File.of(tmp_path / name), RowColumns(), name[5:], limit, find=False).table()[0]
        for limit in (8, 50)
    )
    assert "8 rows" in first
    assert "rows" not in whole
