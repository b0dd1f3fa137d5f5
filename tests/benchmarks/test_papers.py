"""Tables end to end on tiny data: runs, stored results, and cells that the second run skips."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from rich.console import Console

from benchmarks.papers import cells, pool, running
from benchmarks.papers.__main__ import main
from benchmarks.papers.cells import Cell, cells_of, read
from benchmarks.papers.datasets import Task, make
from benchmarks.papers.figures import Printed, printed, printed_cells
from benchmarks.papers.plots import can_draw
from benchmarks.papers.protocol import Method, Protocol, Table, powers
from benchmarks.papers.report import as_json, print_head, print_rows, print_summary, rows_of
from benchmarks.papers.running import run
from benchmarks.papers.tables import TABLES
from learners import algorithms
from learners.features import kernel_approximation
from learners.numerics.arrays import Matrix
from tests.benchmarks.made import binary, ordinal, write_dense, write_sparse

pytestmark = pytest.mark.integration

TINY = Protocol("ranking", scaling="unit", sparse_scaling="unit", trials=2, folds=2, tuning_folds=2)
UNI_EXP = Method("Uni-Exp", "uni-exp", {"eta": powers(-4, 4, 4)})
FIGURE = {("toy [1]", "Uni-Exp"): Printed(0.5, 0.01, 0.005)}
SMALL = Table("small", "Tiny", "Table 1", "auc", TINY, (Task("toy", (1,)),), (UNI_EXP,), FIGURE, 7)
QUIET = Console(quiet=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a data set of each kind that some table needs."""
    data = tmp_path / "data"
    data.mkdir()
    write_dense(data, "heart", *binary(90, 13))
    write_dense(data, "toy", *binary(90, 4))
    X, y = binary(120, 8, seed=1)
    write_sparse(data, "farm-ads", np.where(np.abs(X) < 0.8, 0.0, X), y)
    write_dense(data, "ijcnn1", *binary(200, 3, seed=2))
    write_dense(data, "svmguide3", *binary(80, 3, seed=3))
    write_dense(data, "ord_lev", *ordinal(120, 3, 4))
    return data


@pytest.mark.parametrize(
    ("table", "only"),
    [
        ("cbr3", "heart"),
        ("cbr5", "farm-ads"),
        ("fofo", "ijcnn1"),
        ("loam2", "svmguide3"),
        ("loam4", "farm-ads"),
        ("nlauc2", "ijcnn1"),
        ("nlauc4", "ijcnn1"),
        ("npsvor4", "ord_lev"),
    ],
)
def test_a_table_runs_end_to_end(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str, only: str
) -> None:
    arguments = ["--datasets", str(folder), "--table", table, "--only", only, "--quick", "--workers", "1"]
    main([*arguments, "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert TABLES[table].heading.split(":")[0] in printed
    assert TABLES[table].protocol.quickly().words[:40] in printed
    figures = json.loads((tmp_path / f"{table}-quick.json").read_text())
    methods = [method.name for method in TABLES[table].methods if method.algorithm in algorithms()]
    tasks = [task.name for task in TABLES[table].tasks if task.file == only]
    assert [(row["task"], row["method"]) for row in figures["rows"]] == [(t, m) for t in tasks for m in methods]
    worst = 4.0 if table == "npsvor4" else 1.0
    for row in figures["rows"]:
        assert "why_not" not in row
        assert len(row["values"]) == 2
        assert 0.0 <= row["mean"] <= worst
        assert row["method"] in printed
        assert "verdict" not in row
    has_plot = TABLES[table].plot is not None and can_draw()
    assert (tmp_path / f"{table}-quick.png").exists() == has_plot


def test_only_skips_tables_without_the_selected_data_sets(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--datasets", str(folder), "--only", "ord_lev", "--quick", "--workers", "1", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert sum(table.heading.split(":")[0] in printed for table in TABLES.values()) == 4
    assert {path.stem for path in tmp_path.glob("*.json")} == {
        f"npsvor{table}-quick" for table in ("2", "2-mse", "4", "4-mse")
    }
    main(["--only", "ord_lev"])
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["ord_lev"]


def test_only_refuses_a_data_set_that_no_table_uses(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--table", "npsvor4", "--only", "ord_lev", "--only", "nosuch", "--only", "heart"]
    used = ("ord_era", "ord_esl", "ord_lev", "ord_swd", "treebank_npsvor")
    for place, absent in (
        ([], ()),
        (["--datasets", str(folder)], ("ord_era", "ord_esl", "ord_swd", "treebank_npsvor")),
    ):
        with pytest.raises(SystemExit) as ended:
            main([*arguments, *place, "--out", str(tmp_path / "out")])
        assert ended.value.code == 2
        output = capsys.readouterr().err
        assert output.startswith("usage: python -m benchmarks.papers ")
        line = output.splitlines()[-1]
        names = ["nosuch", "heart", *used, *absent]
        assert re.findall(r"nosuch|heart|ord_[a-z]+|treebank_npsvor", line.replace(str(folder), "")) == names
        assert (str(folder) in line) is bool(place)
    assert not (tmp_path / "out").exists()


def test_the_report_shows_which_figures_hold_and_how_to_read_the_table(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool.run_missing(cells_of(SMALL, folder), folder, tmp_path, 1, QUIET)
    rows = rows_of(SMALL, folder, tmp_path)
    console = Console(width=120)
    print_head(SMALL, folder, console)
    print_rows(SMALL, rows, console)
    printed = capsys.readouterr().out
    assert "toy [1]" in printed
    assert re.findall(r"\d+", printed.splitlines()[-1]) == ["1", "0", "1", "7"]  # hold, do not, judged, printed
    assert as_json(SMALL, rows, 4, [])["rows"][0]["verdict"] == "better"
    print_summary([(SMALL, rows), (replace(SMALL, name="again"), rows)], console)
    summary = capsys.readouterr().out
    assert re.search(r"Tiny +Uni-Exp +2 +2 +0 +2 +0\b", summary)
    assert re.findall(r"\d+", summary.splitlines()[-1]) == ["2", "0", "2", "14"]


def test_tables_of_one_protocol_share_their_runs(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--datasets", str(folder), "--only", "ord_lev", "--quick", "--workers", "1", "--out", str(tmp_path)]
    main([*arguments, "--table", "npsvor4", "--table", "npsvor4-mse"])
    assert "MSE" in capsys.readouterr().out
    first, second = (json.loads((tmp_path / f"{name}-quick.json").read_text()) for name in ("npsvor4", "npsvor4-mse"))
    assert first["runs_new"] == first["runs"] == second["runs"] > 0
    assert second["runs_new"] == 0


def test_finished_cells_are_not_run_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = cells_of(SMALL, folder)
    assert len(result) == 4
    assert pool.run_missing(result[:3], folder, tmp_path, 1, QUIET) == 3
    ran: list[Cell] = []
    finish = cells.finish

    def counted(cell: Cell, folder: Path, out: Path) -> None:
        ran.append(cell)
        finish(cell, folder, out)

    monkeypatch.setattr(pool, "finish", counted)
    assert pool.run_missing(result, folder, tmp_path, 1, QUIET) == 1
    assert ran == result[3:]
    assert pool.run_missing(result, folder, tmp_path, 1, QUIET) == 0
    assert not list(tmp_path.glob("cells/*[!n]")), "nothing but finished JSON"


def test_no_progress_bar_is_shown_if_nothing_is_left_to_run(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = cells_of(SMALL, folder)[:1]
    assert pool.run_missing(result, folder, tmp_path, 1, Console(width=120)) == 1
    assert "done" in capsys.readouterr().out
    assert pool.run_missing(result, folder, tmp_path, 1, Console(width=120)) == 0
    assert capsys.readouterr().out == ""


def test_cells_run_in_separate_processes_give_the_same_results(folder: Path, tmp_path: Path) -> None:
    result = cells_of(SMALL, folder)
    first, second = tmp_path / "here", tmp_path / "there"
    pool.run_missing(result, folder, first, 1, QUIET)
    pool.run_missing(result, folder, second, 2, QUIET)
    for cell in result:
        mine, other = read(cell, folder, first), read(cell, folder, second)
        assert mine is not None
        assert other is not None
        assert mine["auc"] == other["auc"]
        assert mine["chosen"] == other["chosen"]


def test_the_key_of_a_cell_depends_on_everything_its_figures_depend_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cells_of(SMALL, folder)[0]
    path = cell.path(folder, tmp_path)
    others = [
        replace(cell, trial=1),
        replace(cell, fold=1),
        replace(cell, task=Task("heart", (1,))),
        replace(cell, protocol=TINY.quickly()),
        replace(cell, protocol=replace(TINY, scaling="none")),
        replace(cell, method=replace(UNI_EXP, grid={"eta": (1.0, 2.0)})),
        replace(cell, method=replace(UNI_EXP, algorithm="oam", grid={"C": (1.0,)})),
    ]
    paths = {other.path(folder, tmp_path) for other in others}
    assert len(paths | {path}) == len(others) + 1
    assert replace(cell, protocol=replace(TINY, most_runs=1)).path(folder, tmp_path) == path
    monkeypatch.setattr(cells, "sources", lambda _: "edited")
    assert cell.path(folder, tmp_path) != path
    monkeypatch.undo()
    copy = tmp_path / "copy"
    copy.mkdir()
    write_dense(copy, "toy", *binary(90, 4, seed=5))
    assert cell.path(copy, tmp_path) != path


def test_sources_follow_the_imports_of_an_algorithm() -> None:
    baselines = cells._LIBRARY / "algorithms" / "baselines"
    imported = cells._imports(baselines / "noam.py")
    assert baselines / "oam.py" in imported
    assert cells._LIBRARY / "numerics" / "simd.py" in cells._imports(baselines / "oam.py")
    assert cells.sources(UNI_EXP) != cells.sources(Method("OAM", "oam"))
    assert cells.sources(UNI_EXP) != cells.sources(replace(UNI_EXP, embedding="nystroem"))


@pytest.mark.parametrize(("kind", "best"), [("ranking", 2.0), ("ordinal", 4.0)])
def test_tuning_selects_the_best_setting_or_none_without_a_model(
    kind: Literal["ranking", "ordinal"], best: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    quality = {1.0: float("nan"), 2.0: 0.9, 3.0: 0.9, 4.0: 0.1}  # by AUC or by MAE; the first of equals
    monkeypatch.setattr(running, "_quality", lambda _p, _m, choice, *_: quality[choice["C"]])
    X, y = binary(60, 3)
    choices = [{"C": value} for value in quality]
    part = running.Part(X, y.astype(np.float64))
    assert running._tuned(replace(TINY, kind=kind), UNI_EXP, choices, part, 3, 0) == {"C": best}


def test_online_tuning_selects_the_setting_with_the_best_f(folder: Path) -> None:
    online = replace(TINY, kind="online", scaling="zero-one")
    task = Task("ijcnn1", (1,))
    data = make(folder, task)
    grid = powers(-6, 6, 4)
    tuned = run(online, Method("OFO", "ofo", {"c": grid}), task, data, 0, 0)
    alone = {c: run(online, Method("OFO", "ofo", {"c": (c,)}), task, data, 0, 0)["f1"] for c in grid}
    assert tuned["f1"] == alone[tuned["chosen"]["c"]] == tuned["curve"][-1]
    assert tuned["f1"] > 1.1 * min(alone.values())


def test_a_run_is_reproducible(folder: Path) -> None:
    task = Task("toy", (1,))
    data = make(folder, task)
    first, again = (run(TINY, UNI_EXP, task, data, 0, 0) for _ in range(2))
    assert first["auc"] == again["auc"] > 0.7
    assert run(TINY, UNI_EXP, task, data, 0, 1)["auc"] != first["auc"]


def test_methods_behind_one_embedding_share_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    behind = Method("NSAUC", "nsauc", embedding="nystroem")
    methods = (behind, UNI_EXP, replace(behind, name="NBAUC", algorithm="nbauc"), replace(behind, name="no", most=50))
    protocol = replace(TINY, scaling="standard", trials=1, components=10)
    table = replace(SMALL, protocol=protocol, tasks=(Task("ijcnn1", (1,)),), methods=methods)
    rows: list[int] = []
    fit = kernel_approximation.fit

    def counted(settings: kernel_approximation.Embedding, X: Matrix, seed: int) -> kernel_approximation.EmbeddingState:
        rows.append(len(X))
        return fit(settings, X, seed)

    monkeypatch.setattr(kernel_approximation, "fit", counted)
    finished = cells_of(table, folder)
    assert pool.run_missing(finished, folder, tmp_path, 1, QUIET) == 8
    training = [count for count in rows if count > 2]  # two rows: to compile
    assert [abs(count - 100) < 5 for count in training] == [True, False, True, False]
    results = [read(cell, folder, tmp_path) or {} for cell in finished]
    embedding = [result["seconds"] - result["learning"] for result in results]
    for first, none, second, _ in (embedding[:4], embedding[4:]):
        assert first == pytest.approx(second, abs=1e-9)
        assert none == 0.0


def test_an_unusable_file_affects_only_its_own_rows(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dense(folder, "australian", *binary(60, 3, labels=(0, 2)))
    main(["--datasets", str(folder), "--table", "cbr3", "--quick", "--workers", "1", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert any("CBR_FIFO" in line and "[0, 2]" in line for line in printed.splitlines())
    figures = json.loads((tmp_path / "cbr3-quick.json").read_text())
    assert {row["task"] for row in figures["rows"] if row["mean"] is not None} >= {"heart [1]", "svmguide3 [1]"}


def test_a_data_set_unsuitable_for_an_algorithm_is_reported_and_skipped(tmp_path: Path) -> None:
    X = np.zeros((40, 2000))
    X[np.arange(40), np.arange(40) % 5] = 1.0
    write_sparse(tmp_path, "wide", X, np.where(np.arange(40) % 3, -1, 1))
    table = replace(SMALL, tasks=(Task("wide", (1,)),), methods=(Method("OPAUC", "opauc"), UNI_EXP))
    outcome = cells_of(table, tmp_path)
    pool.run_missing(outcome, tmp_path, tmp_path, 1, QUIET)
    results = [read(cell, tmp_path, tmp_path) for cell in outcome]
    assert [cell.method.name for cell in outcome] == 4 * ["OPAUC", "Uni-Exp"]
    assert all("2000 columns" in str(result) for result in results[::2])
    assert all(result is not None and "auc" in result for result in results[1::2])


def test_without_data_sets_the_program_names_their_source(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--table", "npsvor4"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("ord_lev: https://") for line in lines)
    assert not any(line.startswith("heart: ") for line in lines)


def test_every_figure_belongs_to_a_cell_and_every_grid_to_parameters() -> None:
    for table in TABLES.values():
        tasks, methods = {task.name for task in table.tasks}, {method.name for method in table.methods}
        assert {task for task, _ in table.figures} <= tasks
        assert len(table.figures) <= table.cells
        for method in table.methods:
            algorithm = algorithms()[method.algorithm]
            for protocol in (table.protocol, table.protocol.quickly()):
                for choice in protocol.choices(method):
                    algorithm.Params(**{**method.fixed, **choice})
        assert len(methods) == len(table.methods)


def test_printed_results_have_the_numbers_of_the_papers() -> None:
    result = printed("CBR 3 AUC", {"mine": "glass"})[("mine", "CBR_FIFO")]
    assert result == Printed(0.823, 0.046, 0.0005)
    percent = printed("NLAUC 2 AUC %", {"mine": "usps"})[("mine", "NBAUC")]
    assert percent == pytest.approx((0.9924, None, 0.00005))
    assert sum(printed_cells(table) for table in PRINTED) == 810


PRINTED = (
    *("CBR 3 AUC", "CBR 4 accuracy at OPTROC", "CBR 5 AUC", "CBR 6 accuracy at OPTROC", "LOAM 2 AUC", "LOAM 4 AUC"),
    *("NLAUC 2 AUC %", "NLAUC 3 training seconds", "NLAUC 4 AUC %", "NLAUC 4 training seconds"),
    *(f"NPSVOR {table} {measure}" for table in (2, 3, 4) for measure in ("MAE", "MSE")),
)


def test_runs_and_methods_can_be_limited(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limited = replace(TINY, most_runs=3)
    assert limited.runs(Task("toy", (1,))) == [(0, 0), (0, 1), (1, 0)]
    table = replace(SMALL, tasks=(*SMALL.tasks, Task("heart", (1,))), methods=(UNI_EXP, Method("OAM", "oam")))
    assert table.only_printed() == SMALL
    write_dense(folder, "german", *binary(60, 3, labels=(1, 2)))
    options = ["--table", "cbr3", "--only", "german", "--only", "ijcnn1", "--printed", "--quick", "--workers", "1"]
    main(["--datasets", str(folder), *options, "--runs", "1", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "cbr3-quick.json").read_text())["rows"]
    assert {row["task"] for row in rows} == {"german [2]"}
    assert {row["method"] for row in rows} == {"CBR_FIFO", "CBR_RS", "Uni-Exp", "OPAUC", "OAM_seq", "AdaOAM"}
    assert all(len(row["values"]) == 1 and row["paper_sd"] > 0 for row in rows)
    with pytest.raises(SystemExit):
        main(["--datasets", str(folder), "--runs", "0"])
    capsys.readouterr()
