"""The words of the command line. Other tests look at exit statuses, values, and the names of options and learners.

A changed sentence changes one row here. A row: the command, its exit status, and what it prints (errors to stderr).
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from learners import algorithms
from service.cli.commands.compare import verdict_of
from service.cli.contexts import contexts_path
from service.cli.display import describe_fit
from service.cli.main import app
from service.datasets.event_inputs import Inputs
from service.datasets.file_options import FileOptions
from service.datasets.readers import open_rows
from service.datasets.rows import ReadError, Shape
from service.datasets.schema_match import SchemaMismatch, adapter, labels_for
from service.datasets.values import BinaryLabels, Ranks, RowColumns
from service.exits import WrongUsage
from tests.harness.process import Process
from tests.service.cli.test_display import FIT, READY
from tests.service.datasets.test_schema_match import BINARY, NUMBERS, ORDINAL
from tests.service.datasets.test_schema_match import COLUMNS as NAMES
from tests.service.datasets.test_schema_match import TABLE as DECLARED

pytestmark = pytest.mark.integration

DENSE_FEATURES = ("--features", "dense", "--dim", "3")
ROWS = "a,b,label\n" + "1,2,0\n3,4,1\n" * 10
GOOD, BAD = {"x": [1, 2, 3], "label": 1}, {"x": [1, 2], "label": 1}
NEW = ("create", "new", "--algorithm")

Row = tuple[Sequence[str], int, str]


@pytest.fixture(scope="module")
def server_settings() -> dict[str, object]:
    return {"snapshot_seconds": 1e6, "at_least_seconds": 0.5}


@pytest.fixture(scope="module")
def server(server: Process) -> Process:
    for name, options in {
        "fraud": ("loam-ada", *DENSE_FEATURES),
        "classes": ("cbr-diag", "--features", "named"),
        "priced": ("cbr-diag", "--features", "named"),
        "wide": ("loam-ada", "--features", "dense", "--dim", "8"),
        "ranks": ("npsvor", *DENSE_FEATURES, "--param", "ranks=3"),
    }.items():
        created = call(server, "create", name, "--algorithm", *options)
        assert created[0] == 0, created
    taught = call(server, "update", "fraud", json.dumps([{**GOOD, "id": "a"}, {"x": [0, 0, 1], "label": 0}]))
    assert taught[0] == 0, taught
    # the kernels of named features are compiled before a row could print that it waits for them
    for name in ("classes", "priced"):
        taught = call(server, "update", name, json.dumps([{"features": {"n": i}, "label": i} for i in (0, 1)]))
        assert taught[0] == 0, taught
    return server


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "rows.csv").write_text(ROWS)
    (folder / "old.csv").write_text("a,at,label\n1,1969-12-31,1\n2,2019-11-30,0\n")
    (folder / "text.csv").write_text(ROWS.replace("0\n", "ok\n").replace("1\n", "fraud\n"))
    (folder / "ragged.csv").write_text(ROWS + "1\n")
    (folder / "odd.csv").write_text("amount,label\n" + "1.5,0\n" * 200 + "-,0\n$3,1\n")
    (folder / "names.csv").write_text("zip,amount,label\n01234,1.5,0\n90210,$3,1\n")
    (folder / "marks.csv").write_text("amount; amount;label;\n1,5;1;0;x\n1,7;2;1;y\n1;2\n")
    (folder / "missing.csv").write_text("n,label\n1,0\n2,1\n")
    (folder / "list.json").write_text("[]")
    (folder / "misspelt.json").write_text('{"algoritm": "cbr-diag", "features": {"kind": "named"}}')
    (folder / "state").write_bytes(b"nothing of ours")
    np.savez(folder / "rows.npz", X=np.ones((4, 3)), y=[0, 1, 0, 1])
    return folder


def call(server: Process, *arguments: str) -> tuple[int, str, str]:
    """Run a command; return its exit status and what it printed."""
    result = CliRunner().invoke(app, list(arguments), env={"RARESTREAM_URL": server.url})
    return result.exit_code, result.stdout, result.stderr


def sentences(printed: str) -> str:
    """Return what was printed, without the frame around a usage error."""
    if not printed.startswith("Usage: "):
        return printed.strip()
    return " ".join(line.strip("│ ") for line in printed.splitlines() if line.startswith("│"))


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
    (("events", "fraud", "--find", "nobody"), 0, "no event"),
    (
        ("update", "fraud", json.dumps([GOOD, BAD])),
        5,
        (
            "error: refused 1 of 2 events\n  the argument, event 1: /x: has 2 numbers; expected 3\n"
            "--on-bad skip leaves such rows out, --on-bad FILE writes them to a file"
        ),
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
        "error: this node has applied fraud up to position 3, not 1000, within 0.5 s: the log has no such position",
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
        ("list", "--key", "s3\ncret"),
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
        ("create", "steady", "--algorithm", "cbr", *DENSE_FEATURES),
        0,
        (
            "warning: algorithm is cbr, whose score has no intercept: if the share of positives moves, scores of "
            "different times do not compare, and it may rank worse than chance; choose auto, unless the share is steady"
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
    *(
        (
            (*NEW, "nsauc", *DENSE_FEATURES, "--param", f"{setting}={value}"),
            5,
            "error: the configuration is refused; nothing was created\n"
            f"  --param {setting}: unknown setting; expected one of buffer, capacity, lam, pairs\n"
            f"{setting} is a setting of {where}",
        )
        for setting, value, where in (
            ("seed", 9, "the learner itself: use --seed 9"),
            ("label_ttl", 3600, "late labels: use --label-ttl 3600"),
            ("beta", 2, "the threshold and the figures: use --set threshold.beta=2 or --set figures.beta=2"),
        )
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
            "Did you mean /algorithm?"
        ),
    ),
    (
        ("threshold", "fraud", "fixed", "--set", "threshold.value=0.25"),
        0,
        "fraud has the threshold of fixed value=0.25\nthreshold: 0.6109 -> 0.25",
    ),
    (
        ("threshold", "wide", "recall", "--target", "0.9"),
        0,
        "wide has the threshold of recall target=0.9\nno threshold yet: no labelled event has been learnt yet",
    ),
    (("thresholds", "wide"), 0, "no labelled events in the window"),
    (
        ("segments", "fraud", "--by", "country"),
        5,
        "error: these segments are not counted\n  /by: is 'country'; the learner declares no segment fields",
    ),
    (
        ("thresholds", "ranks"),
        5,
        "error: thresholds are for learners of two classes; npsvor predicts ranks",
    ),
    (
        ("thresholds", "fraud", "--preview", "precision"),
        5,
        ("error: the preview is refused\n  --target: is missing; precision needs a share, above 0 and at most 1"),
    ),
    (
        ("thresholds", "fraud", "--set", "late.label_ttl=5"),
        2,
        "Invalid value for --set: late is no part of a threshold; only threshold.* is",
    ),
    (
        ("threshold", "priced", "cost", "--set", "threshold.field=n"),
        0,
        "priced has the threshold of cost false_positive=1 false_negative=1 field=n\n"
        "threshold: 0.5188 -> 0.5 (where n is 1)",
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
        ("replay", "/dev/null", "--learner", "classes"),
        2,
        "error: /dev/null is a device, not a file",
    ),
    (
        ("replay", "FILES/rows.csv", "--learner", "classes", "--label", "c"),
        2,
        "error: FILES/rows.csv: there is no column 'c'; the columns are a, b, label; if that is a row, name the "
        "columns with --columns",
    ),
    (
        ("replay", "FILES/rows.csv", "--learner", "classes", "--zero-based", "yes"),
        2,
        "error: FILES/rows.csv: --zero-based is for libsvm files, this is csv",
    ),
    (
        ("replay", "FILES/rows.csv", "--learner", "classes", "--delimiter", "::"),
        2,
        "Invalid value for --delimiter: '::'; expected one character",
    ),
    (
        ("replay", "FILES/rows.csv", "--learner", "classes", "--decimal", ";"),
        2,
        "Invalid value for --decimal: ';'; expected . or ,",
    ),
    (
        ("replay", "FILES/rows.csv", "--learner", "classes", "--thousands", "."),
        2,
        "Invalid value for --thousands: '.' is the decimal mark, too; use --decimal",
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
        ("replay", "FILES/old.csv", "--learner", "classes", "--positive", "1", "--time", "at"),
        2,
        (
            "error: no row that is not bad had the label '1'; labels seen: '0', '1'; nothing was sent\n"
            "1 bad row was left out; the first: FILES/old.csv, line 2: the time is 1969-12-31 "
            "before 1980: if it means that there is none, give --missing, or null in a message"
        ),
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
            "error: FILES/ragged.csv, line 22: has 1 cell; the header names 3 columns\n"
            "--on-bad skip leaves such rows out, --on-bad FILE writes them to a file"
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
        "amount: taken as names because 1 cell is not a number, such as '$3'\n"
        "fields: 1 number sent as text; values contradict the kind of 1 field: amount (1) (rarestream fields classes)",
    ),
    (
        ("update", "classes", "FILES/ragged.csv", "--on-bad", "skip"),
        0,
        "1 bad row was left out; the first: FILES/ragged.csv, line 22: has 1 cell; the header names 3 columns",
    ),
    (
        ("update", "classes", "FILES/marks.csv", "--on-bad", "FILES/bad.jsonl"),
        0,
        "the cells are separated by semicolons, not by commas\n"
        "column 2 has the name of another one, 'amount', and is called 'amount_2'\n"
        "column 4 has no name and is called 'column_4'\n"
        "blanks around 1 column name are left out, such as ' amount'\n"
        "amount: numbers with the decimal mark ',', as in '1,5'\n"
        "1 bad row was left out, see FILES/bad.jsonl; the first: FILES/marks.csv, line 4: has 2 cells; the header "
        "names 4 columns",
    ),
    (("compare", "nobody"), 4, "error: there is no group named nobody\n`rarestream groups` shows the groups."),
    (
        ("erase", "fraud", "a"),
        2,
        "Invalid value for --yes: is required without a terminal: it erases the event for good",
    ),
    (
        ("erase", "fraud", "nobody", "--yes"),
        4,
        "error: an event of this id was not scored, or is no longer remembered",
    ),
    (("alarms", "classes"), 0, "no alarm, and no annotation"),
    (
        ("alarms", "fraud", "ack"),
        2,
        "Invalid value for ACTION NUMBER: `ack` and the number of an alarm go together",
    ),
    (("alarms", "fraud", "--note", "holiday"), 2, "Invalid value for --note: goes with `ack NUMBER`"),
    (
        ("alarms", "fraud", "ack", "7"),
        4,
        "error: fraud has no alarm 7 among its last ones\n`rarestream alarms NAME` shows the alarms.",
    ),
    (("annotate", "wide", "version 2", "--by", "ann"), 0, "noted at 0 events of wide"),
    (
        ("update", "classes", "FILES/missing.csv", "--missing", "n/k"),
        0,
        "--missing 'n/k': no cell has it",
    ),
]


@pytest.mark.parametrize(("arguments", "status", "text"), TABLE, ids=[" ".join(row[0])[:60] for row in TABLE])
def test_messages(server: Process, files: Path, arguments: Sequence[str], status: int, text: str) -> None:
    names = {"FILES": str(files), "URL": server.url, "ALGORITHMS": ", ".join(algorithms())}
    for short, name in names.items():
        arguments = [argument.replace(short, name) for argument in arguments]
    code, output, errors = call(server, *arguments)
    printed = sentences(errors or output)
    for short, name in names.items():
        printed = printed.replace(name, short)
    assert (code, printed) == (status, text)


# Contexts, one after the other in one file

CONTEXTS: list[Row] = [
    (("list",), 0, "there is no context yet; `rarestream context set NAME --url URL` makes one"),
    (
        ("use", "prod"),
        4,
        "error: there is no context named prod; there are: none yet; `rarestream context set NAME --url URL` makes one",
    ),
    (("set", " ", "--url", "http://a"), 2, "error: the name of a context is printable text"),
    (("set", "prod", "--url", "http://a"), 0, "context prod is set in FILE; the current one is prod"),
    (("set", "trial", "--url", "http://b"), 0, "context trial is set in FILE; the current one is prod"),
    (("use", "trial"), 0, "context trial is used in FILE; the current one is trial"),
    (("use", "tril"), 4, "error: there is no context named tril; there are: prod, trial"),
    (("remove", "trial"), 0, "context trial is removed in FILE; no context is current"),
]


def test_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typer, "get_app_dir", lambda _: str(tmp_path / "rarestream"))

    def report(arguments: Sequence[str]) -> Row:
        variables = {"RARESTREAM_URL": None, "RARESTREAM_KEY": None}
        result = CliRunner().invoke(app, ["context", *arguments], env=variables)
        printed = sentences(result.stderr or result.stdout)
        return arguments, result.exit_code, printed.replace(str(contexts_path()), "FILE")

    assert [report(arguments) for arguments, _, _ in CONTEXTS] == CONTEXTS
    contexts_path().write_text("[]")
    assert report(("list",))[1:] == (2, "error: FILE is no file of contexts; repair it, or delete it")


# Replays, one after the other: the file, the learner, options, the exit status, and the last lines on standard error

START = 1_767_225_600.0  # 1 January 2026
TIMES = ("--id", "id", "--time", "time")
LATE = (*TIMES, "--label-delay", "1h")
RANKS = ("--ranks", "poor,fair,good")
NO_ROWS = "none of the file's rows is learnt; the same command with --on-bad skip or --on-bad FILE leaves bad rows out"
OTHERWISE = "but with other content or other options"
WAITING = "a resumed replay sends them"


def timed(rows: Iterable[int], **changes: Any) -> str:
    """Return events a minute apart as JSON lines."""
    events = ({"id": f"e{i}", "time": START + 60 * i, "a": i % 7, "label": int(i % 7 == 3)} for i in rows)
    return "".join(json.dumps(event | changes) + "\n" for event in events)


REPLAYED = {
    "rows.csv": ROWS,
    "other/rows.csv": ROWS.replace("2", "3"),
    "grown/rows.csv": ROWS + "5,6,1\n",
    "new/rows.csv": "a,b,label\n7,8,1\n7,9,0\n",
    "copy.csv": ROWS,
    "unlabelled.csv": "k,a,label\nk1,1,0\nk2,2,1\nk3,1,\n",
    "stops.csv": "x,label\n" + "1,0\n" * 25 + "1,\n" + "1,0\n" * 25,
    "late.jsonl": timed(range(60)),
    "nameless.jsonl": timed([0]) + timed([1], id=None),
    "timeless.jsonl": timed([0]) + timed([1], time=None),
    "crowd.jsonl": timed(range(4)),
    "grades.csv": "a,b,label\n" + "1,2,poor\n2,3,fair\n3,4,good\n" * 5,
}
WAYS = (
    "  --again learns the rows that are new\n"
    "  --from 20 continues after them if this file begins with the same rows\n"
    "  --all learns all rows, those that were learnt, too\n"
    "  if all replays use the same --id, no row is learnt twice"
)
REPLAYING: dict[str, Sequence[str]] = {  # learners
    "plain": (), "skips": (), "scores": (), "stops": (), "late": (), "without": (),
    "forgets": ("--label-ttl", "30m"),
    "crowded": ("--set", "late.max_events=1"),
    "grades": ("--algorithm", "svc", "--param", "ranks=3", "--set", "refit_every=600"),
    "warming": ("--algorithm", "nsauc", "--features", "dense", "--dim", "2"),
}  # fmt: skip
REPLAYS: list[tuple[str, str, Sequence[str], int, str]] = [
    ("rows.csv", "plain", ("--limit", "12"), 0, "rows 0 to 12: 12 learnt, 0 duplicates"),
    ("rows.csv", "plain", (), 0, "resuming at row 12\nrows 12 to 20: 8 learnt, 0 duplicates"),
    ("rows.csv", "plain", (), 0, "resuming at row 20\nno rows left: all were learnt before"),
    (
        "other/rows.csv", "plain", (), 2,
        f"error: the learner has learnt 20 rows of a file of this name, {OTHERWISE}. Nothing was sent:\n{WAYS}",
    ),
    (
        "copy.csv", "plain", (), 2,
        "error: the learner has learnt 20 rows of rows.csv, which begins as this file does. Nothing was sent:\n"
        f"{WAYS}",
    ),
    (
        "new/rows.csv", "plain", ("--again",), 2,
        f"error: the learner has learnt 20 rows of a file of this name, {OTHERWISE}, and none of the 2 rows of this "
        "file is among them: it is another file, or other columns or options make its events. Nothing was sent:\n"
        "  --all learns all rows, those that were learnt, too",
    ),
    (
        "nameless.jsonl", "plain", ("--again", "--time", "t"), 2,
        "error: this machine has sent no row of this file to the learner: leave --again out. Nothing was sent",
    ),
    (
        "grown/rows.csv", "plain", ("--again",), 0,
        "new rows: 1 learnt, 0 duplicates, 20 left out",
    ),
    (
        "grown/rows.csv", "plain", ("--again",), 0,
        "rows that were learnt before, and are left out: 21; new rows: 0\n"
        "warning: only 3 of the rows that are left out differ: if events of this file are new and look like earlier "
        "ones, --all learns them, too\n"
        "no rows left: all were learnt before",
    ),
    (
        "grown/rows.csv", "plain", ("--again", "--all"), 2,
        "error: --again leaves out the rows that were learnt; --all learns them, too, and --from those from a row on: "
        "choose one",
    ),
    (
        "grown/rows.csv", "plain", ("--again", "--unlabelled", "score"), 2,
        "error: --again does not know which rows without a label were scored: choose --unlabelled skip, and score them "
        "with rarestream predict",
    ),
    ("unlabelled.csv", "skips", (), 2, f"error: FILES/unlabelled.csv, line 4: the label is missing\n{NO_ROWS}"),
    (
        "unlabelled.csv", "skips", ("--unlabelled", "skip"), 0,
        "1 row without a label: left out, the first in line 4: the label is missing\n"
        "rows 0 to 2: 2 learnt, 0 duplicates",
    ),
    (
        "unlabelled.csv", "scores", ("--unlabelled", "score", "--id", "k"), 0,
        "1 row without a label: scored and not learnt, the first in line 4: the label is missing\n"
        "1 row scored\n"
        "rows 0 to 2: 2 learnt, 0 duplicates",
    ),
    (
        "stops.csv", "stops", ("--batch", "10"), 6,
        "error: FILES/stops.csv, line 27: the label is missing\n"
        "rows 0 to 20 are learnt; the same command with --on-bad skip or --on-bad FILE resumes from there; "
        "of a repaired file --again learns the others",
    ),
    (
        "late.jsonl", "late", (*LATE, "--limit", "40"), 0,
        "40 rows scored\n"
        "rows 0 to 0: 0 learnt, 0 duplicates\n"
        f"the labels of 40 rows have not arrived yet: {WAITING}\n"
        "late is not ready: no labelled event has been learnt yet",
    ),
    ("late.jsonl", "late", LATE, 0, "60 rows scored\nrows 0 to 60: 60 learnt, 0 duplicates"),
    ("late.jsonl", "late", LATE, 0, "resuming at row 60\nno rows left: all were learnt before"),
    (
        "late.jsonl", "late", (*TIMES, "--label-delay", "2h", "--label-every", "1h"), 2,
        "error: late has learnt 60 rows of this file by a replay with another label delay, or none: scoring them again "
        "would count them twice; resume with that delay, or use another learner",
    ),
    (
        "late.jsonl", "forgets", LATE, 2,
        "error: forgets forgets an event after its label_ttl of 30 min: with a label delay of 1 h, no label would be "
        "learnt",
    ),
    (
        "late.jsonl", "without", ("--time", "time", "--label-delay", "1h"), 2,
        "Invalid value for --label-delay: needs --id: a label is sent by its event's id, so long after its time",
    ),
    (
        "late.jsonl", "without", ("--id", "id", "--label-delay", "1h"), 2,
        "Invalid value for --label-delay: needs --time: a label is sent by its event's id, so long after its time",
    ),
    (
        "late.jsonl", "without", (*LATE, "--wait"), 2,
        "Invalid value for --wait: does not go with --label-delay: each row is scored by the model of its time",
    ),
    (
        "late.jsonl", "without", (*TIMES, "--label-delay", "0d"), 2,
        "Invalid value for --label-delay: is 0; leave it out to send each label at once",
    ),
    (
        "late.jsonl", "without", (*TIMES, "--label-delay", "soon"), 2,
        "Invalid value for '--label-delay': 'soon'; expected a number with s, m, h or d: 45s, 30m, 12h, 7d",
    ),
    (
        "late.jsonl", "without", (*TIMES, "--label-every", "1h"), 2,
        "Invalid value for --label-every: needs --label-delay",
    ),
    (
        "nameless.jsonl", "without", LATE, 2,
        f"error: FILES/nameless.jsonl, line 2: has no id; with --label-delay each row needs one\n{NO_ROWS}",
    ),
    (
        "timeless.jsonl", "without", LATE, 2,
        f"error: FILES/timeless.jsonl, line 2: has no time; with --label-delay each row needs one\n{NO_ROWS}",
    ),
    (
        "crowd.jsonl", "crowded", (*LATE, "--batch", "1"), 0,
        "rows 0 to 4: 1 learnt, 0 duplicates\n"
        "warning: 3 labels arrived too late: their events are not remembered any more\n"
        "crowded is not ready: no labelled negative has been learnt yet",
    ),
    (
        "grades.csv", "grades", (), 2,
        "error: FILES/grades.csv: the labels seen are 'poor', 'fair', 'good'; expected the learner's 3 ranks as '1', "
        "'2', '3': name the file's with --ranks LOWEST,...,HIGHEST",
    ),
    (
        "grades.csv", "grades", RANKS, 0,
        "rows 0 to 15: 15 learnt, 0 duplicates\n"
        "last fit: none yet\n"
        "no event was scored by a fitted model yet: the metrics do not describe the algorithm\n"
        "grades is not ready: the first fit comes after 600 labelled events",
    ),
    (
        "grades.csv", "nobody", RANKS, 4,
        "error: there is no learner named nobody\n"
        "create it first, for example: rarestream create nobody --algorithm ALGORITHM --features named --param ranks=3",
    ),
    (
        "rows.csv", "warming", (), 0,
        "rows 0 to 20: 20 learnt, 0 duplicates\n"
        "last fit: none yet\n"
        "warming is not ready: the embedding is fitted after 1,000 labelled events; linear until then",
    ),
]  # fmt: skip


def test_replays(server: Process, tmp_path: Path) -> None:
    for folder in ("other", "grown", "new"):
        (tmp_path / folder).mkdir()
    for name, content in REPLAYED.items():
        (tmp_path / name).write_text(content)
    for name, options in REPLAYING.items():
        created = call(server, "create", name, "--algorithm", "cbr-diag", "--features", "named", *options)
        assert created[0] == 0, created
    for file, learner, options, status, text in REPLAYS:
        code, _, errors = call(server, "replay", str(tmp_path / file), "--learner", learner, *options)
        lines = sentences(errors).replace(str(tmp_path), "FILES").splitlines()
        assert (code, lines[-len(text.splitlines()) :]) == (status, text.splitlines())


# Usage errors: the command and what it prints. The settings of `serve`: a variable, its value and what is wrong with it

USAGE: list[tuple[str, str]] = [
    ("list --sizes --sort auc", "Invalid value for --sort: does not go with --sizes: auc is a metric"),
    ("create a --param C", "Invalid value for --param: 'C' is not NAME=VALUE"),
    (
        "create a --label-ttl soon",
        "Invalid value for '--label-ttl': 'soon'; expected a number with s, m, h or d: 45s, 30m, 12h, 7d",
    ),
    ("create a --config none.json", "error: none.json: No such file or directory"),
    ("create a --config rows.csv", "error: rows.csv is not JSON in UTF-8: Expecting value: line 1 column 1 (char 0)"),
    (
        "restore a 1",
        "Invalid value for --yes: is required without a terminal: it undoes everything learnt after the snapshot",
    ),
    ("update a none.csv", "error: none.csv: No such file or directory; expected JSON, a file, or -"),
    ("update a folder", "error: folder: Is a directory; expected JSON, a file, or -"),
    (
        "update a rows.csv --label fraud",
        "error: rows.csv: there is no column 'fraud'; the columns are p, q, r, label; if that is a row, name the "
        "columns with --columns",
    ),
    (
        "update a rows.csv --format xml",
        "error: 'xml' is not a format; expected one of csv, tsv, jsonl, parquet, npz, libsvm",
    ),
    (
        "update a rows.csv --label p",
        "error: rows.csv: the labels seen are '1', '4'; expected 0/1, -1/1, false/true, no/yes, or the positive "
        "one named with --positive",
    ),
    ("update a nonsense", "error: nonsense: No such file or directory; expected JSON, a file, or -"),
    ("predict a none.json", "error: none.json: No such file or directory; expected JSON, a file, or -"),
    (
        "labels a x=maybe",
        "error: the argument 'x=maybe': the labels seen are 'maybe'; expected 0/1, -1/1, false/true, no/yes, or "
        "the positive one named with --positive",
    ),
    ("labels a none.csv", "error: none.csv: No such file or directory; expected JSON, ID=LABEL, a file, or -"),
    ("labels a x=1 --ranks low,high", "error: --ranks is for ordinal learners; a has two classes: use --positive"),
    ("replay none.csv --learner a", "error: none.csv: No such file or directory"),
    (
        "replay rows.csv --learner a --id key",
        "error: rows.csv: there is no column 'key'; the columns are p, q, r, label; if that is a row, name the "
        "columns with --columns",
    ),
    ("replay rows.csv --learner a --drop r", "error: the learner takes 3 numbers; the file has 2: p, q"),
    ("import none b", "error: none: No such file or directory"),
    ("import rows.csv b", "error: rows.csv is no file of `rarestream export`; nothing was sent"),
    ("export a rows.csv", "error: rows.csv exists already; --force replaces it"),
    ("export a no/folder/state", "error: no/folder/state: No such file or directory"),
    (
        "export a - --json",
        "Invalid value for --json: does not go with -, which writes the state to standard output: name a file",
    ),
    (
        "serve --acks foo",
        "error: some settings are wrong:\n  --acks: is 'foo'; expected memory, aof or replicas:n, n from 1 to 99",
    ),
    (
        "serve --workers 2 --store memory:",
        "error: several workers need a Redis store, for example redis://localhost:6379/0: processes do not share "
        "memory",
    ),
    (
        "serve --host 0.0.0.0 --port 0 --store memory:",
        "error: the service would listen on 0.0.0.0, where other machines can reach it, without requiring API "
        "keys. Create a key, `rarestream keys create --keys FILE --name NAME --scope admin`, and serve with "
        "--keys FILE; or use --insecure if a proxy or a firewall restricts access",
    ),
    (
        "serve --keys none.json --port 0 --store memory:",
        "error: cannot read the keys file none.json: No such file or directory",
    ),
    (
        "serve --store postgres://x --port 0",
        "error: the service cannot start: a store's URL is sqlite:///relative.db, sqlite:////absolute.db, "
        "redis://host:port/db, redis+sentinel://host:port,host:port/db?master=name, "
        "redis+cluster://host:port,host:port (each also as rediss, with TLS) or memory:",
    ),
    (
        "demo --store postgres://x --port 0",
        "error: the service cannot start: a store's URL is sqlite:///relative.db, sqlite:////absolute.db, "
        "redis://host:port/db, redis+sentinel://host:port,host:port/db?master=name, "
        "redis+cluster://host:port,host:port (each also as rediss, with TLS) or memory:",
    ),
    (
        "serve --store sqlite:///none/a.db --port 0",
        "error: the service cannot start: the directory none of the store does not exist; create it first",
    ),
    (
        "serve --store sqlite:///rows.csv --port 0",
        "error: the service cannot start: cannot open the store rows.csv: file is not a database",
    ),
    (
        "create a --features table --field :numeric",
        "Invalid value for --field: ':numeric'; expected NAME:numeric, NAME:numeric:log or "
        "NAME:categorical[:CATEGORIES]",
    ),
    (
        "consume redis://h:1/0 --stream s --learner a --from soon",
        "Invalid value for --from: 'soon'; expected earliest, latest, an offset or MILLISECONDS-SEQUENCE",
    ),
]
VARIABLES: list[tuple[str, str, str]] = [
    ("LOG_FORMAT", "yaml", "is 'yaml'; expected text or json"),
    ("ELSEWHERE", "prox", "is 'prox'; expected proxy or redirect"),
    ("WORKERS", "two", "is 'two'; expected a whole number"),
    ("MAX_LEARNERS", "0", "is '0'; expected at least 1"),
    ("BODY_SECONDS", "soon", "is 'soon'; expected a number"),
    ("TRIM_LOG", "maybe", "is 'maybe'; expected true or false"),
    ("ACKS", "all", "is 'all'; expected memory, aof or replicas:n, n from 1 to 99"),
    (
        "ADVERTISE",
        "node-1",
        "is 'node-1'; expected an address such as http://10.0.0.7:8000 or http://[fd00::7]:8000, without a path",
    ),
    (
        "CORS_ORIGINS",
        "https://a.example/b",
        "has 'https://a.example/b'; expected origins such as https://example.com, without a path",
    ),
    (
        "WEBHOOK",
        "hooks.example/secret",
        "is not a URL to post to; expected http://... or https://..., with blanks between them also NAME=URL and "
        "slack+URL",
    ),
]


def test_usage_errors(server: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("p,q,r,label\n" + "1,2,3,0\n4,5,6,1\n" * 3)
    Path("folder").mkdir()
    assert call(server, "create", "a", "--algorithm", "loam-ada", *DENSE_FEATURES)[0] == 0
    for command, text in USAGE:
        code, _, errors = call(server, *command.split())
        assert (code, sentences(errors)) == (2, text)


def test_an_occupied_port(server: Process) -> None:
    code, _, errors = call(server, "serve", "--port", str(server.port), "--store", "memory:")
    reason = "another program is listening there; choose a free port with --port"
    assert (code, errors) == (1, f"error: cannot listen on 127.0.0.1:{server.port}: {reason}\n")


@pytest.mark.parametrize(
    ("command", "variables", "text"),
    [
        (
            "demo --port 0 --store memory:",
            {"RARESTREAM_KEYS": "keys.json"},
            "error: the demo does not use API keys; unset RARESTREAM_KEYS, or use `serve`\n",
        ),
        (
            "list --url https://127.0.0.1:1",
            {"RARESTREAM_CA": "none.pem"},
            "error: RARESTREAM_CA is none.pem: No such file or directory\n",
        ),
    ],
)
def test_variables_that_do_not_suit(command: str, variables: dict[str, str], text: str) -> None:
    result = CliRunner().invoke(app, command.split(), env=variables)
    assert (result.exit_code, result.stderr) == (2, text)


@pytest.mark.parametrize(("name", "value", "text"), VARIABLES)
def test_invalid_variables(name: str, value: str, text: str) -> None:
    result = CliRunner().invoke(app, ["serve"], env={f"RARESTREAM_{name}": value})
    wrong = f"error: some settings are wrong:\n  RARESTREAM_{name}: {text}"
    assert (result.exit_code, result.stderr.strip()) == (2, wrong)


# Errors of reading: a file's name and content, how it is read, and the message

PACKED = gzip.compress(b"a,label\n1,0\n")


def zipped(files: dict[str, bytes]) -> bytes:
    """Return the bytes of a zip archive."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive_:
            for name, data in files.items():
                archive_.writestr(name, data)
        return file.getvalue()


def archive(**arrays: Any) -> bytes:
    """Return the bytes of an archive of arrays."""
    with io.BytesIO() as file:
        np.savez(file, **arrays)
        return file.getvalue()


ARCHIVE = archive(X=np.ones((4, 3)), y=[0, 1, 0, 1])
LABELS = "expected 0/1, -1/1, false/true, no/yes, or the positive one named with --positive"
READING: list[tuple[str, bytes, dict[str, Any], str]] = [
    ("a.csv", b"", {}, "FILE: the file has no rows"),
    (
        "a.csv",
        b"a,label,label\n1,1,0\n",
        {},
        "FILE: the header names 'label' twice: leave one out by its position, --drop 3; the columns are a, label, "
        "label; if that is a row, name the columns with --columns",
    ),
    (
        "a.csv",
        b"a,b\n1,2\n",
        {},
        "FILE: there is no column 'label'; the columns are a, b; if that is a row, name the columns with --columns",
    ),
    (
        "a.csv",
        b"a,Label\n1,2\n",
        {},
        "FILE: there is no column 'label', but 'Label': names differ by case; the columns are a, Label; if that is a "
        "row, name the columns with --columns",
    ),
    (
        "a.csv",
        b"c1,c2,c3,c4,c5,c6,c7,c8,c9,c10,c11,c12,c13,c14\n" + b",".join([b"1"] * 14),
        {},
        "FILE: there is no column 'label'; the columns are c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12 and 2 "
        "more; if that is a row, name the columns with --columns",
    ),
    (
        "a.csv",
        b"a/label\n1/2\n",
        {},
        "FILE: there is no column 'label'; its only column is 'a/label', as commas separate the cells (--delimiter); "
        "if that is a row, name the columns with --columns",
    ),
    (
        "a.csv",
        b"n,label\n1,0\n1_000,1\n",
        {"declared": {"n": True}},
        "FILE, line 3: column n is '1_000'; expected a number or null, because the learner declares it numeric; "
        "--missing '1_000' takes such cells as missing",
    ),
    (
        "a.csv",
        b"a,label\n1,fraud\n1,NULL\n",
        {"columns": RowColumns(positive=("fraud",))},
        "FILE, line 3: 'NULL' is no label; if it is one, name it with --negative or --positive",
    ),
    (
        "a.csv",
        b"a,label\n1,fraud\n1,other\n",
        {"columns": RowColumns(positive=("fraud",), negative=("ok",))},
        "FILE, line 3: the label 'other' is neither --positive nor --negative",
    ),
    (
        "a.jsonl",
        b'{"k": 1e17, "a": 1, "label": 0}\n',
        {"columns": RowColumns(id="k")},
        "FILE, line 1: the id is 1e+17, a float beyond 2^53, which several ids share; send text or an integer",
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
        "FILE, line 3: not UTF-8 text: it contains the byte 0xff; save the file as UTF-8, or name its encoding, such "
        "as --encoding cp1252",
    ),
    (
        "a.csv",
        b"\x89PNG\0",
        {},
        "FILE is binary data; expected CSV, TSV, JSON lines or LIBSVM text, .npz or Parquet, also within gzip, bz2, "
        "xz, zstd or zip",
    ),
    (
        "a.csv.gz",
        PACKED[:-4],
        {},
        "FILE, line 1 or later: the gzip data is damaged or cut short "
        "(Compressed file ended before the end-of-stream marker was reached)",
    ),
    ("a.jsonl", b'{"a":1,"label":1}\n{"a":1,"label":""}\n', {}, "FILE, line 2: the label is missing"),
    (
        "a.jsonl",
        b'{"a":1,"label":1}\n{"label":[1]}\n',
        {},
        "FILE, line 2: the label is [1]; expected a string, number or boolean",
    ),
    ("a.jsonl", b'{"a":1,"label":1}\n{\n', {}, "FILE, line 2: not JSON: Input data was truncated"),
    ("a.jsonl", b'{"a":1,"label":1}\n[1]\n', {}, "FILE, line 2: not a JSON object"),
    ("a.jsonl", b'{"a":1,"label":1}\n{"a":1}\n', {}, "FILE, line 2: there is no 'label'; the row has a"),
    (
        "a.jsonl",
        b'{"a":1,"label":1}\n{"x":[1],"label":1}\n',
        {},
        "FILE, line 2: the features are in the form x; those of the first row in the form flat",
    ),
    (
        "a.jsonl",
        b'{"a":1,"label":1}\n{"a":1,"label":1,"k":true}\n',
        {"columns": RowColumns(id="k")},
        "FILE, line 2: the id is True; expected a string or a number",
    ),
    (
        "a.jsonl",
        b'{"a":1,"label":1}\n{"a":1,"label":1,"t":[]}\n',
        {"columns": RowColumns(time="t")},
        "FILE, line 2: the time is '[]'; expected a number",
    ),
    (
        "a.csv",
        b"t,a,label\n1.6e9,1,0\nyesterday,1,0\n",
        {"columns": RowColumns(time="t")},
        "FILE, line 3: 'yesterday' is neither seconds since the epoch nor an ISO 8601 time; give its form with "
        "--time-format, which inspect looks for",
    ),
    (
        "a.csv",
        b"w,a,label\n1,1,0\n-1,1,0\n",
        {"columns": RowColumns(weight="w")},
        "FILE, line 3: the weight is -1; expected at least 0",
    ),
    (
        "a.csv",
        b"w,a,label\n1,1,0\nheavy,1,0\n",
        {"columns": RowColumns(weight="w")},
        "FILE, line 3: 'heavy' is not a number",
    ),
    ("a.csv", b"a,label\n1,0\n1,0,9\n", {}, "FILE, line 3: has 3 cells; the header names 2 columns"),
    (
        "a.jsonl",
        b'{"a": 1, "label": 0} {"a": 2, "label": 1}\n',
        {},
        "FILE, line 1: not JSON: JSON is malformed: trailing characters (byte 22); expected one object a line, as "
        "jq -c . FILE writes them",
    ),
    (
        "a.jsonl",
        b'{\n"a": 1, "label": 0\n}\n{\n"a": 2, "label": 0\n}\n',
        {},
        "FILE: not JSON: JSON is malformed: trailing characters (byte 24); expected one object a line, as jq -c . FILE "
        "writes them",
    ),
    ("a.csv", b'a,label\n1,0\n"1"x,0\n', {}, "FILE, line 3: ',' expected after '\"'"),
    (
        "a.csv",
        b'a,label\n"1\\"x, y",0\n',
        {},
        "FILE, line 2: ',' expected after '\"': quotes within a cell are doubled, not after a backslash: sed "
        """'s/\\\\"/""/g' FILE""",
    ),
    ("a.svm", b"0 1:1\n1 5:x\n", {}, "FILE, line 2: '5:x' is not index:value"),
    ("a.svm", b"0 1:1\n1 5:nan\n", {}, "FILE, line 2: '5:nan' has no finite value"),
    ("a.svm", b"0 1:1\n1 2:1 2:3\n", {}, "FILE, line 2: names an index twice"),
    ("a.svm", b"1 1:1\n", {"columns": RowColumns(drop=("x",))}, "FILE: libsvm files have no column names such as x"),
    (
        "a.svm",
        b"0 1:1\n1 0:1\n",
        {"columns": RowColumns(form=FileOptions(zero_based="no"))},
        "FILE, line 2: '0:1': indices begin at 1",
    ),
    (
        "a.npz",
        b"a,label\n1,0\n",
        {},
        "FILE: not an .npz archive; the other formats are csv, tsv, jsonl, parquet, libsvm",
    ),
    ("a.npz", ARCHIVE[:-1], {}, "FILE: the .npz archive is damaged or cut short"),
    (
        "a.npz",
        b"PK\0" + ARCHIVE[3:],
        {},
        "FILE: not an .npz archive; the other formats are csv, tsv, jsonl, parquet, libsvm",
    ),
    (
        "a.npz",
        ARCHIVE.replace(b"(4, 3)", b"(4, 4)"),
        {},
        "FILE: the array X is damaged, or holds objects instead of numbers",
    ),
    ("a.csv", b"a,label\n", {}, "FILE: the file has no rows"),
    ("a.json", b"[{},\n", {}, "FILE: not JSON: Input data was truncated"),
    ("a.json", b'[{"a": 1, "label": 0}, 7]', {}, "FILE, event 1: not a JSON object"),
    (
        "a.csv",
        b"PAR1\x15\x04\x15",
        {},
        "FILE is a Parquet file; expected CSV, TSV, JSON lines or LIBSVM text, .npz or Parquet, also within gzip, "
        "bz2, xz, zstd or zip",
    ),
    (
        "a.csv",
        zipped({"[Content_Types].xml": b"", "xl/workbook.xml": b""}),
        {},
        "FILE is a zip archive, as spreadsheets and .npz files are; expected CSV, TSV, JSON lines or LIBSVM text, .npz "
        "or Parquet, also within gzip, bz2, xz, zstd or zip",
    ),
    ("a.csv", b"PK\x03\x04\x14", {}, "FILE: the zip data is damaged or cut short (File is not a zip file)"),
    (
        "a.zip",
        zipped({"a.csv": b"", "b.csv": b""}),
        {},
        "FILE: the archive has a.csv, b.csv; expected one file. Unpack it, and name that with the rows",
    ),
    (
        "a.arff",
        b"",
        {},
        "FILE: ARFF is not read, but its rows are CSV: write them to a file with sed '1,/^ *@data/Id' FILE.arff > "
        "FILE.csv, and name the columns with --columns; --missing '?' and --quote \"'\" may be needed, too",
    ),
    ("a.npz", archive(X=np.ones((3, 2))), {}, "FILE: has X; expected X or CSR parts, and y: no y"),
    (
        "a.npz",
        archive(X=np.ones((3, 2)), y=np.ones(2)),
        {},
        "FILE: the features are (3, 2) and y is (2,); expected (n, dim) and (n,)",
    ),
    ("a.npz", archive(X=np.array([["a"]]), y=np.ones(1)), {}, "FILE: has features that are not numbers"),
    ("a.npz", archive(X=np.array([[np.nan]]), y=np.ones(1)), {}, "FILE, row 0: has a number that is not finite"),
    (
        "a.libsvm",
        b"0 1:1\n",
        {"columns": RowColumns(form=FileOptions(columns=("a", "b")))},
        "FILE: --columns is for csv and tsv files, this is libsvm",
    ),
    (
        "a.csv",
        b"a,label\n1,0\n",
        {"columns": RowColumns(form=FileOptions(zero_based="yes"))},
        "FILE: --zero-based is for libsvm files, this is csv",
    ),
    (
        "a.csv",
        b"2,3,label\n1.5,2,3,0\n1.5,2,3,1\n",
        {},
        "FILE: the header names 3 columns, and every row has 4 cells; if the first line is no header, name the columns "
        "with --columns, and leave the line out by --on-bad skip",
    ),
    ("a.orc", b"ORC", {}, "FILE: unknown format; use --format with one of csv, tsv, jsonl, parquet, npz, libsvm"),
    (
        "a.xml",
        b"<a/>",
        {"format": "xml"},
        "'xml' is not a format; expected one of csv, tsv, jsonl, parquet, npz, libsvm",
    ),
]


@pytest.mark.parametrize(("name", "content", "options", "text"), READING, ids=[row[3][:60] for row in READING])
def test_reading_errors(tmp_path: Path, name: str, content: bytes, options: dict[str, Any], text: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ReadError) as caught, open_rows(path, **{"columns": RowColumns(), **options}) as rows:
        list(rows.events(0))
    assert str(caught.value).replace(str(path), "FILE") == text


# Rows that do not suit a learner: their shape, or how labels are read; the learner's features; and the message

SHAPES: list[tuple[Shape, dict[str, Any], str]] = [
    (
        Shape("dense", width=3),
        {"kind": "dense", "dim": 8},
        "the file has dense rows of 3 columns; the learner takes dense features of 8 columns",
    ),
    (Shape("sparse"), DECLARED, "the file has sparse rows; the learner takes table features"),
    (
        NAMES,
        {"kind": "sparse", "dim": 8},
        "the file has 2 named features; the learner takes sparse features of 8 columns",
    ),
    (NAMES, {"kind": "dense", "dim": 2}, "the learner takes 2 numbers; country of the file are not numeric"),
    (NUMBERS, {"kind": "dense", "dim": 3}, "the learner takes 3 numbers; the file has 2: a, b"),
    (
        Shape("named", columns=("amount", "p", "q")),
        DECLARED,
        "the learner does not declare p, q; omit them with --drop p --drop q",
    ),
]
OPTIONS: list[tuple[RowColumns, dict[str, Any], str]] = [
    (RowColumns(ranks=("1", "2")), BINARY, "--ranks is for ordinal learners; two has two classes: use --positive"),
    (RowColumns(positive=("1",)), ORDINAL, "--positive is for learners of two classes; grades is ordinal: use --ranks"),
    (RowColumns(ranks=("a", "b")), ORDINAL, "--ranks names 2 labels; grades has 3 ranks"),
    (RowColumns(ranks=("1", "2", "1.0")), ORDINAL, "--ranks: two of the ranks '1', '2', '1.0' are the same label"),
]
DENSE_ROWS: list[tuple[dict[str, Any], str]] = [
    ({"a": 1.0}, "has no b, as the first row has"),
    ({"a": 1.0, "b": 2.0, "c": 3.0}, "has 3 columns; the first row has 2"),
    ({"a": 1.0, "b": None}, "column b has no value; a dense learner takes numbers only"),
]


def test_rows_that_do_not_suit() -> None:
    for shape, features, text in SHAPES:
        with pytest.raises(SchemaMismatch) as caught:
            adapter(shape, features)
        assert str(caught.value) == text
    for columns, learner, text in OPTIONS:
        with pytest.raises(SchemaMismatch) as caught:
            labels_for(columns, learner)
        assert str(caught.value) == text
    adapt = adapter(NUMBERS, {"kind": "dense", "dim": 2})
    assert adapt is not None
    for features, text in DENSE_ROWS:
        with pytest.raises(ValueError) as refused:  # noqa: PT011 (the sentence is compared)
            adapt({"features": features, "label": 1})
        assert str(refused.value) == text


def test_labels_that_never_occur(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,label\n1,no\n1,0\n")
    with open_rows(path, RowColumns(positive=("yes", "1"))) as rows:
        assert rows.labels.unmet() == "had the label 'yes' or '1'; labels seen: 'no', '0'"


# Verdicts on two learners, and fits


def outcome(verdict: str | None, a: float, b: float) -> dict[str, Any]:
    evidence = {"a_better": a, "b_better": b}
    return {"a": "x", "b": "y", "verdict": verdict, "evidence": evidence, "since_events": 1234, "since_clock": None}


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (outcome(None, 0.0, 0.0), "x or y: not decided. Keep watching: evidence 1 to 1; 40 to 1 decides."),
        (
            outcome(None, 0.0, 1.0),
            "x or y: not decided. Keep watching: it leans to y, evidence 10 to 1; 40 to 1 decides.",
        ),
        (
            outcome("b", -5.0, 3.0),
            "y is better than x: evidence 1,000 to 1; 40 to 1 decides. Decided at event 1,234; keep watching.",
        ),
        (
            outcome("a", 12.3, 0.0),
            "x is better than y: evidence over 10¹⁰ to 1; 40 to 1 decides. Decided at event 1,234; keep watching.",
        ),
        (
            outcome("a", 1.0, 0.0),
            "x was better than y: decided at event 1,234, but the evidence is 10 to 1 by now; keep watching.",
        ),
        (
            outcome("a", -4.0, 0.0),
            "x was better than y: decided at event 1,234, but the evidence is 0 to 1 by now; keep watching.",
        ),
    ],
)
def test_the_verdict_is_expressed_in_words(test: dict[str, Any], message: str) -> None:
    assert verdict_of(test, 0.05) == message


def test_a_verdict_contradicted_by_the_window_is_flagged() -> None:
    """The verdict is about all events, and the text says that the other learner has been ahead lately."""
    behind = "\n  In the window its AUC is behind by 0.0123."
    for test, difference in ((outcome("a", 3.0, 0.0), -0.0123), (outcome("b", 0.0, 3.0), 0.0123)):
        plain = verdict_of(test, 0.05)
        assert verdict_of(test, 0.05, difference) == plain + behind
        for no_news in (-difference, 0.0, difference / 1e6, None):
            assert verdict_of(test, 0.05, no_news) == plain
    was = outcome("a", 1.0, 0.0)
    assert verdict_of(was, 0.05, -0.5).endswith(
        "the evidence is 10 to 1 by now; keep watching.\n  In the window its AUC is behind by 0.5000."
    )
    assert "behind" not in verdict_of(outcome(None, 1.0, 0.0), 0.05, -0.5)


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (None, None),
        ({}, "none yet"),
        ({"running": True}, "none yet; the next is running"),
        ({"events": 5000, "running": True}, "after 5,000 events; the next is running"),
        ({"running": True, "waiting": True}, "none yet; the next waits for fits of other learners"),
        ({"events": 5000, "failed": "too few"}, "after 5,000 events; the last one failed: too few"),
    ],
)
def test_the_progress_of_fits_is_described(fit: dict[str, Any] | None, message: str | None) -> None:
    assert describe_fit({**READY, "fit": None if fit is None else FIT | fit}) == message


# Errors of arguments and standard input: the arguments, what is on standard input, how it is read, and the message

EVENT = b'{"id": "a", "features": {"amount": 1.5}, "label": 1}\n'
INPUTS: list[tuple[Sequence[str], bytes, Any, str]] = [
    ([""], b"", "update", "an argument is empty; expected JSON, a file, or -"),
    (["-", "-"], b"", "update", "standard input can only be read once"),
    (["-"], b"", "update", "standard input: no events"),
    (["-"], gzip.compress(b"x"), "update", "standard input: the file has no rows"),
    (["[1]"], b"", "update", "the argument, event 0: expected an event, a JSON object, not 1"),
    (
        ["{"],
        b"",
        "update",
        "the argument: not JSON: Input data was truncated; expected one object a line, as jq -c . FILE writes them",
    ),
    (['{"amount": 1}'], b"", "update", "the argument, line 1: there is no 'label'; the row has amount"),
    (
        ['{"amount": 1, "label": "maybe"}'],
        b"",
        "update",
        f"the argument, line 1: the labels seen are 'maybe'; {LABELS}",
    ),
    (["nowhere.csv"], b"", "update", "nowhere.csv: No such file or directory; expected JSON, a file, or -"),
    (
        ["FILE.csv"],
        b"a,1\nb\n",
        "labels",
        "FILE.csv, line 2: has 1 cell; expected id,label[,time[,weight]], as in the first",
    ),
    (["FILE.jsonl"], EVENT + b"{\n", "update", "FILE.jsonl, line 2: not JSON: Input data was truncated"),
    (["FILE.jsonl"], b"", "update", "FILE.jsonl: no events"),
    (["FILE.svm"], b"1 1:1\n", "labels", "FILE.svm: labels are read from JSON, CSV, TSV and Parquet, not from libsvm"),
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


def test_a_key_that_cannot_read_the_learner(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("amount,label\n1,0\n")
    with pytest.raises(ReadError) as caught:
        list(Inputs((str(path),), "update", None, RowColumns(), "", BinaryLabels()).events())
    text = "reading csv needs the learner's document, and that a key with the scope read; JSON does not"
    assert str(caught.value) == f"{path}: {text}"


def test_help() -> None:
    assert "Online learning for imbalanced streams" in CliRunner().invoke(app, ["--help"]).stdout
    assert "A replay resumes if the file is unchanged" in CliRunner().invoke(app, ["replay", "--help"]).stdout
