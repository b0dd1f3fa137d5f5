"""The words of the command line. Other tests look at exit statuses, values, and the names of options and learners.

A changed sentence changes one row here. A row: the command, its exit status, and what it prints (errors to stderr).
"""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from learners import algorithms
from service.cli.main import app
from service.datasets.event_inputs import Inputs
from service.datasets.readers import open_rows
from service.datasets.rows import ReadError
from service.datasets.values import BinaryLabels, Ranks, RowColumns
from service.exits import WrongUsage
from tests.harness.process import Process

DENSE_FEATURES = ("--features", "dense", "--dim", "3")
ROWS = "a,b,label\n" + "1,2,0\n3,4,1\n" * 10
GOOD, BAD = {"x": [1, 2, 3], "label": 1}, {"x": [1, 2], "label": 1}
NEW = ("create", "new", "--algorithm")

Row = tuple[Sequence[str], int, str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("server")
    with Process(f"sqlite:///{folder / 'store.db'}", folder / "log") as process:
        for name, options in {
            "fraud": ("loam-ada", *DENSE_FEATURES),
            "classes": ("cbr-diag", "--features", "named"),
            "wide": ("loam-ada", "--features", "dense", "--dim", "8"),
            "ranks": ("npsvor", *DENSE_FEATURES, "--param", "ranks=3"),
        }.items():
            created = call(process, "create", name, "--algorithm", *options)
            assert created[0] == 0, created
        taught = call(process, "update", "fraud", json.dumps([{**GOOD, "id": "a"}, {"x": [0, 0, 1], "label": 0}]))
        assert taught[0] == 0, taught
        yield process


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "rows.csv").write_text(ROWS)
    (folder / "text.csv").write_text(ROWS.replace("0\n", "ok\n").replace("1\n", "fraud\n"))
    (folder / "ragged.csv").write_text(ROWS + "1\n")
    (folder / "odd.csv").write_text("amount,label\n" + "1.5,0\n" * 200 + "-,0\n$3,1\n")
    (folder / "names.csv").write_text("zip,amount,label\n01234,1.5,0\n90210,$3,1\n")
    (folder / "list.json").write_text("[]")
    (folder / "misspelt.json").write_text('{"algoritm": "cbr-diag", "features": {"kind": "named"}}')
    (folder / "state").write_bytes(b"nothing of ours")
    np.savez(folder / "rows.npz", X=np.ones((4, 3)), y=[0, 1, 0, 1])
    os.mkfifo(folder / "pipe")
    return folder


def call(server: Process, *arguments: str) -> tuple[int, str, str]:
    """Run a command; return its exit status and what it printed."""
    result = CliRunner().invoke(app, list(arguments), env={"RARESTREAM_URL": server.url})
    return result.exit_code, result.stdout, result.stderr


TABLE: list[Row] = [
    (("list", "x"), 0, "there is no learner whose name begins with x"),
    (("show", "nobody"), 4, "error: there is no learner named nobody\n`rarestream list` shows the learners."),
    (("show", "fruad"), 4, "error: there is no learner named fruad\nDid you mean fraud? `rarestream list` shows all."),
    (("clone", "fraud", "fraud"), 5, "error: there is a learner named fraud; delete it first, or choose another name"),
    (
        ("clone", "fraud", "no good"),
        5,
        (
            "error: the name is invalid\n"
            "  TO: is 'no good'; expected 1 to 100 of letters, digits, '.', '_', '-', a letter or digit "
            "first"
        ),
    ),
    (
        ("restore", "fraud", "999", "--yes"),
        4,
        "error: fraud has no snapshot at position 999\n`rarestream snapshots NAME` shows the stored snapshots.",
    ),
    (("snapshots", "fraud"), 0, "fraud has no snapshot yet; `rarestream snapshot fraud` takes one"),
    (
        ("delete", "fraud"),
        2,
        (
            "Invalid value for --yes: is required without a terminal: it deletes the learner, its log and "
            "its snapshots for good"
        ),
    ),
    (("import", "FILES/state", "bad"), 2, "error: FILES/state is no file of `rarestream export`; nothing was sent"),
    (("export", "fraud", "FILES/rows.csv"), 2, "error: FILES/rows.csv exists already; --force replaces it"),
    (("update", "fraud", "[]"), 0, "no events: nothing was sent"),
    (
        ("update", "fraud", json.dumps([GOOD, BAD])),
        5,
        "error: refused 1 of 2 events\n  event 1 /x: has 2 numbers; expected 3",
    ),
    (
        ("update", "fraud", "nowhere.csv"),
        2,
        "error: nowhere.csv: No such file or directory; expected JSON, a file, or -",
    ),
    (
        ("labels", "fraud", "a=1"),
        0,
        (
            "event  result     score before  decision before\n"
            "a      duplicate             -                -\n"
            "1 label: 1 duplicate"
        ),
    ),
    (
        ("predict", "fraud", json.dumps([GOOD]), "--at-least", "1000"),
        5,
        "error: in 5 s fraud has come to position 3 on this node, not to 1000, which is not in its log",
    ),
    (("predict", "fraud", "[]", "--csv", "--json"), 2, "Invalid value for --csv: does not go with --json"),
    (
        ("list", "--url", "http://127.0.0.1:1"),
        3,
        (
            "error: cannot reach http://127.0.0.1:1: [Errno 111] Connection refused (ConnectError)\n"
            "Is it running? `rarestream serve` starts one; --url or RARESTREAM_URL says where it is."
        ),
    ),
    (
        ("list", "--url", "URL/path"),
        3,
        (
            "error: no rarestream service answers: URL/path/v1/learners?figures=true answered 404 Not Found\n"
            "Is it running? `rarestream serve` starts one; --url or RARESTREAM_URL says where it is."
        ),
    ),
    (
        ("list", "--key", "s3cret\n"),
        2,
        (
            "error: --key or RARESTREAM_KEY: the key contains characters that no key has: spaces, line ends "
            "or others beyond ASCII"
        ),
    ),
    (
        (*NEW, "cbr-dig", "--features", "named"),
        5,
        (
            "error: the configuration is refused; nothing was created\n"
            "  --algorithm: is 'cbr-dig'; expected one of ALGORITHMS\n"
            "Did you mean --algorithm cbr-diag?"
        ),
    ),
    (
        (*NEW, "cbr-diag", "--features", "named", "--param", "capcity=3"),
        5,
        (
            "error: the configuration is refused; nothing was created\n"
            "  --param capcity: unknown setting; expected one of C, buffer, capacity, eta, mode\n"
            "Did you mean --param capacity?"
        ),
    ),
    (
        (*NEW, "cbr-diag", "--features", "named", "--threshold", "budjet"),
        5,
        (
            "error: the configuration is refused; nothing was created\n"
            "  --threshold: is 'budjet'; expected one of f1, f1-window, f1-ofo, fixed, fbeta, jaccard, "
            "cost, fpr, precision, recall, budget, optroc\n"
            "Did you mean --threshold budget?"
        ),
    ),
    (
        (*NEW, "nsauc", *DENSE_FEATURES, "--param", "warmup=30"),
        5,
        (
            "error: the configuration is refused; nothing was created\n"
            "  --param warmup: unknown setting; expected one of buffer, capacity, lam, pairs\n"
            "warmup is a setting of the embedding: use --set embedding.warmup=30"
        ),
    ),
    (
        (*NEW, "cbr", "--field", "a:numeric"),
        2,
        "Invalid value for --features: missing beside --field; expected one of dense, sparse, named, table",
    ),
    (("create", "new", "--config", "FILES/list.json"), 2, "error: FILES/list.json: not a JSON object"),
    (
        ("create", "new", "--config", "FILES/misspelt.json"),
        5,
        (
            "error: the configuration is refused; nothing was created\n"
            "  /algoritm: unknown setting; expected one of algorithm, params, features, scaling, embedding, "
            "calibration, threshold, figures, late, window, window_seconds, remembered_ids, refit_every, "
            "refit_window, seed, precision\n"
            "  /algorithm: is missing; expected one of ALGORITHMS\n"
            "Did you mean /algorithm?"
        ),
    ),
    (
        ("threshold", "fraud", "fixed", "--set", "threshold.value=0.25"),
        0,
        "fraud has the threshold of fixed value=0.25\nit was 0.5 and is 0.25 now",
    ),
    (
        ("threshold", "ranks", "f1"),
        5,
        (
            "error: the change is refused; nothing was changed\n"
            "  --threshold: is for learners of two classes; npsvor predicts ranks"
        ),
    ),
    (
        ("bench", "--algorithm", "none"),
        5,
        (
            "error: the configuration is refused; nothing was created\n"
            "  --algorithm: is 'none'; expected one of ALGORITHMS"
        ),
    ),
    (
        ("replay", "FILES/rows.csv", "--learner", "nobody"),
        4,
        (
            "error: there is no learner named nobody\n"
            "create it first, for example: rarestream create nobody --algorithm ALGORITHM --features named"
        ),
    ),
    (
        ("replay", "FILES/rows.npz", "--learner", "wide"),
        2,
        "error: the file has dense rows of 3 columns; the learner takes dense features of 8 columns",
    ),
    (("replay", "FILES/none.csv", "--learner", "classes"), 2, "error: FILES/none.csv: No such file or directory"),
    (
        ("replay", "FILES/pipe", "--learner", "classes"),
        2,
        (
            "error: FILES/pipe is a pipe or a device, not a file; a resumed replay reads its file again: "
            "write the rows to a file first"
        ),
    ),
    (
        ("replay", "-", "--learner", "classes", "--format", "csv"),
        2,
        "error: standard input is not read; a resumed replay reads its file again: write the rows to a file first",
    ),
    (
        ("replay", "FILES/rows.csv", "--learner", "classes", "--label", "c"),
        2,
        "error: FILES/rows.csv: there is no column 'c'; the columns are a, b, label",
    ),
    (
        ("replay", "FILES/text.csv", "--learner", "classes"),
        2,
        (
            "error: FILES/text.csv: the labels seen are 'ok', 'fraud'; expected 0/1, -1/1, false/true, "
            "no/yes, or the positive one named with --positive"
        ),
    ),
    (
        ("replay", "FILES/text.csv", "--learner", "classes", "--positive", "Fraud"),
        2,
        (
            "error: FILES/text.csv: the file has the label 'fraud', --positive says 'Fraud': give it as in "
            "the file, once for each spelling; the labels seen are 'ok', 'fraud'"
        ),
    ),
    (
        ("replay", "FILES/text.csv", "--learner", "classes", "--positive", "theft"),
        2,
        "error: no row had the label 'theft'; labels seen: 'ok', 'fraud'; nothing was sent",
    ),
    (
        ("replay", "FILES/rows.csv", "--learner", "classes", "--ranks", "0,1"),
        2,
        "error: --ranks is for ordinal learners; classes has two classes: use --positive",
    ),
    (
        ("replay", "FILES/rows.csv", "--learner", "ranks", "--ranks", "0"),
        2,
        "Invalid value for --ranks: '0'; expected two or more labels, LOW,MEDIUM,HIGH",
    ),
    (
        ("replay", "FILES/ragged.csv", "--learner", "classes"),
        2,
        (
            "features: a, b; --drop COLUMN omits one\n"
            "error: FILES/ragged.csv, line 22: has 1 cell; the header names 3 columns\n"
            "none of the file's rows is learnt"
        ),
    ),
    (
        ("update", "classes", "FILES/odd.csv", "--batch", "300"),
        0,
        "amount: 2 non-numeric cells taken as missing, the first in line 202: '-'",
    ),
    (
        ("update", "classes", "FILES/names.csv"),
        0,
        "zip: taken as names because '01234' has a leading zero\n"
        "amount: taken as names because 1 cell is not a number, such as '$3'",
    ),
    (("compare", "nobody"), 4, "error: there is no group named nobody\n`rarestream groups` shows the groups."),
]


@pytest.mark.parametrize(("arguments", "status", "text"), TABLE, ids=[" ".join(row[0])[:60] for row in TABLE])
def test_messages(server: Process, files: Path, arguments: Sequence[str], status: int, text: str) -> None:
    names = {"FILES": str(files), "URL": server.url, "ALGORITHMS": ", ".join(algorithms())}
    for short, name in names.items():
        arguments = [argument.replace(short, name) for argument in arguments]
    code, output, errors = call(server, *arguments)
    printed = (errors or output).strip()
    if printed.startswith("Usage: "):
        printed = " ".join(line.strip("│ ") for line in printed.splitlines() if line.startswith("│"))
    for short, name in names.items():
        printed = printed.replace(name, short)
    assert (code, printed) == (status, text)


# Errors of reading: a file's name and content, how it is read, and the message

PACKED = gzip.compress(b"a,label\n1,0\n")
LABELS = "expected 0/1, -1/1, false/true, no/yes, or the positive one named with --positive"
READING: list[tuple[str, bytes, dict[str, Any], str]] = [
    ("a.csv", b"", {}, "FILE: the file has no rows"),
    ("a.csv", b"a,a,label\n1,1,0\n", {}, "FILE: the header names a twice"),
    ("a.csv", b"a,b\n1,2\n", {}, "FILE: there is no column 'label'; the columns are a, b"),
    (
        "a.csv",
        b"a;label\n1;2\n",
        {},
        "FILE: there is no column 'label'; its only column is 'a;label', which contains semicolons: "
        "columns must be separated by commas",
    ),
    (
        "a.csv",
        b"n,label\n1,0\n1e999,1\n",
        {"declared": {"n": True}},
        "FILE, line 3: column n: '1e999' is not a finite decimal number; the learner declares it numeric",
    ),
    ("a.csv", b"a,label\n1,1\n1,2\n1,3\n", {}, f"FILE: the labels seen are '1', '2', '3'; {LABELS}"),
    (
        "a.csv",
        b"n,label\n" + b"1,1\n1,2\n" * 5_000 + b"1,7\n",
        {"labels": Ranks(["1", "2"])},
        "FILE, line 10,002: the label is '7'; expected the learner's 2 ranks as '1', '2'",
    ),
    (
        "a.csv",
        b"a,label\n1,0\n\xff,1\n",
        {},
        "FILE, line 3: not UTF-8 text: it contains the byte 0xff; save the file as UTF-8",
    ),
    (
        "a.csv",
        b"\xff\xfea\0",
        {},
        "FILE is UTF-16 text; expected CSV, TSV, JSON lines or LIBSVM text in UTF-8, gzipped or not, "
        "or an .npz archive",
    ),
    (
        "a.csv.gz",
        PACKED[:-4],
        {},
        "FILE, line 3: the gzip data is damaged or cut short "
        "(Compressed file ended before the end-of-stream marker was reached)",
    ),
    ("a.jsonl", b'{"a":1,"label":1}\n{"a":1,"label":""}\n', {}, "FILE, line 2: the label is missing"),
    (
        "a.jsonl",
        b'{"a":1,"label":1}\n{"label":[1]}\n',
        {},
        "FILE, line 2: the label is [1]; expected a string, number or boolean",
    ),
    ("a.svm", b"1 1:1\n", {"columns": RowColumns(drop=("x",))}, "FILE: libsvm files have no column names such as x"),
    ("a.svm", b"0 1:1\n1 0:1\n", {}, "FILE, line 2: '0:1': indices begin at 1"),
    ("a.npz", b"a,label\n1,0\n", {}, "FILE: not an .npz archive; the other formats are csv, tsv, jsonl, libsvm"),
    ("a.parquet", b"PAR1", {}, "FILE: unknown format; use --format with one of csv, tsv, jsonl, npz, libsvm"),
    ("a.xml", b"<a/>", {"format": "xml"}, "'xml' is not a format; expected one of csv, tsv, jsonl, npz, libsvm"),
]


@pytest.mark.parametrize(("name", "content", "options", "text"), READING, ids=[row[3][:60] for row in READING])
def test_reading_errors(tmp_path: Path, name: str, content: bytes, options: dict[str, Any], text: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ReadError) as caught, open_rows(path, **{"columns": RowColumns(), **options}) as rows:
        list(rows.events(0))
    assert str(caught.value).replace(str(path), "FILE") == text


# Errors of arguments and standard input: the arguments, what is on standard input, how it is read, and the message

EVENT = b'{"id": "a", "features": {"amount": 1.5}, "label": 1}\n'
INPUTS: list[tuple[Sequence[str], bytes, Any, str]] = [
    ([""], b"", "update", "an argument is empty; expected JSON, a file, or -"),
    (["-", "-"], b"", "update", "standard input can only be read once"),
    (["-"], b"", "update", "standard input: no events"),
    (["-"], PACKED, "update", "standard input is gzipped: give its --format"),
    (["FILE.jsonl"], EVENT + b"{\n", "update", "FILE.jsonl, line 2: not JSON: Input data was truncated"),
    (["FILE.jsonl"], b"", "update", "FILE.jsonl: no events"),
    (["FILE.svm"], b"1 1:1\n", "labels", "FILE.svm: labels are read from JSON, CSV and TSV, not from libsvm"),
]


@pytest.mark.parametrize(("arguments", "content", "kind", "text"), INPUTS, ids=[row[3][:60] for row in INPUTS])
def test_input_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], content: bytes, kind: Any, text: str
) -> None:
    stem = str(tmp_path / "a")
    arguments = [argument.replace("FILE", stem) for argument in arguments]
    for argument in arguments:
        if argument.startswith(stem):
            Path(argument).write_bytes(content)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    learner = {"name": "a", "config": {"features": {"kind": "named", "bits": 10}}}
    with pytest.raises((ReadError, WrongUsage)) as caught:
        list(Inputs(tuple(arguments), kind, learner, RowColumns(), "", BinaryLabels()).events())
    assert str(caught.value).replace(stem, "FILE") == text


def test_help() -> None:
    assert "Online learning for imbalanced streams" in CliRunner().invoke(app, ["--help"]).stdout
    assert "A replay resumes if the file is unchanged" in CliRunner().invoke(app, ["replay", "--help"]).stdout
