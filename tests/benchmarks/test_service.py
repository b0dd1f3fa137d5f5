"""The benchmark of the service runs one case in tiny turns on real servers; a campaign runs the other cases."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.service import peers
from benchmarks.service.__main__ import CASES, main
from benchmarks.service.rounds import Case, Run
from tests.benchmarks.made import binary, write_dense

pytestmark = pytest.mark.integration


def run(case: str, folder: Path) -> dict[str, Any]:
    """Return the document of a quick run of one case."""
    written = folder / "out" / "figures.json"
    main(["--quick", "--rounds", "1", "--case", case, "--json", str(written)])
    document = json.loads(written.read_text())
    assert document["rounds"] == 1
    (case_document,) = document["cases"]
    return dict(case_document)


def names(document: dict[str, Any]) -> list[str]:
    """Return the names of all contestants, the absent ones included."""
    return sorted(row["what"] for row in document["rows"])


EXPECTED = {
    "predict": {
        *(
            f"{server}, {coding}, {n}"
            for server in ("rarestream", "echo")
            for coding in ("JSON", "MessagePack")
            for n in (1, 64)
        ),
        "FastAPI + pydantic, JSON, 1",
        "FastAPI + pydantic, JSON, 64",
        "auto, JSON, 64",
        "cbr-diag, JSON, 64",
    },
    "update": {f"{store}, {n} in flight" for store in ("no log", "sqlite", "redis") for n in (1, 16, 64, 256)},
    "ingest": {
        *(f"{store}, {coding}" for store in ("no log", "sqlite", "redis") for coding in ("JSON", "MessagePack")),
        "ceiling of sqlite",
        "ceiling of redis",
    },
    "socket": {
        f"{server}, {coding}"
        for server in ("rarestream predict", "echo", "rarestream update, sqlite", "rarestream update, no log")
        for coding in ("JSON", "MessagePack")
    },
    "fair": {
        "alone",
        "1 pipelines predicts, and reads",
        "2 pipeline predicts, and read",
        "2 pipeline predicts, and never read",
        "1 pipelines GETs of 130 kB, and reads",
        "1 floods a websocket with predicts",
        "1 floods a websocket with pings",
        "1 streams NDJSON to another learner",
        "1 streams NDJSON in chunks of one byte",
        "10 upload gzip bodies of 16 MiB",
        "light learner, alone",
        "light learner, 3 heavy ones learn",
    },
    "reading": {"nothing learns", "cbr learns flat out"},
    "workers": {
        f"{job}, {processes}"
        for job in ("update of one learner", "update of many learners", "predict")
        for processes in ("1 process", "2 processes", "4 processes")
    },
}
VERDICTS = {"fair": 12, "workers": 0, "predict": 9, "update": 4, "ingest": 4, "socket": 4, "reading": 1}


def check_contest(case: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a case, and check its rows, verdicts and printed table."""
    document = run(case, folder)
    assert names(document) == sorted(EXPECTED[case])
    assert len(document["verdicts"]) == VERDICTS[case]
    measured = [row for row in document["rows"] if "absent" not in row]
    assert measured
    for row in measured:
        assert row["events/s"] >= row["per second"] > 0
        assert 0 < row["p50 ms"] <= row["p99 ms"] <= row["p99.9 ms"]
        assert row["sender busy"] >= 0
    reached = [verdict for verdict in document["verdicts"] if verdict["reached"] is not None]
    assert all(verdict["reached"] > 0 for verdict in reached)
    printed = capsys.readouterr().out
    assert document["title"].split(",")[0] in printed
    assert "1 rounds" in printed


@pytest.mark.campaign
def test_a_comparison_measures_every_contestant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_contest("predict", tmp_path, capsys)


@pytest.mark.parametrize(
    ("theirs", "values"),
    [
        ({"events/s": 50.0, "AUC": 0.8}, ["2.0", "AUC", "+0.100"]),
        ({"events/s": 200.0, "AUC": 0.95}, ["SLOWER", "0.50", "AUC", "-0.050", "BEHIND"]),
    ],
)
def test_the_report_shows_where_a_peer_is_faster(theirs: dict[str, float], values: list[str]) -> None:
    assert re.findall(r"[-+]?\d\.\d+|[A-Z]+", peers._compared({"events/s": 100.0, "AUC": 0.9}, theirs)) == values


def test_peers_are_skipped_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs: list[tuple[str, Run]] = []

    def recorded(name: str) -> Any:
        def measure(options: Run) -> Case:
            runs.append((name, options))
            return Case(name, [{"what": name, "figure": np.pi}])

        return measure

    everything = list(CASES)
    for name in everything:
        monkeypatch.setitem(CASES, name, recorded(name))
    main([])
    assert [name for name, _ in runs] == [name for name in everything if name != "peers"]
    assert runs[0][1].rounds == 5
    assert not runs[0][1].quick
    runs.clear()
    write_dense(tmp_path, "covtype", *binary(20, 54, labels=(1, 7)))
    main(["--peers", "--quick", "--datasets", str(tmp_path)])
    assert [name for name, _ in runs] == everything
    assert runs[-1][1].datasets == tmp_path
    assert runs[-1][1].quick
    runs.clear()
    main(["--case", "socket", "--case", "update", "--case", "socket", "--peers", "--rounds", "3", "--seconds", "0.5"])
    assert [name for name, _ in runs] == ["socket", "update", "peers"]
    assert (runs[0][1].rounds, runs[0][1].seconds) == (3, 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--datasets", "nowhere"], "covtype.npz"),
        (["--rounds", "0"], "--rounds"),
        (["--seconds", "-1"], "--seconds"),
        (["--case", "other"], "invalid choice: 'other'"),
    ],
)
def test_unusable_options_are_reported_immediately(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err
