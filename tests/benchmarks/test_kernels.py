"""Costs of the kernels: the measurements, not their speed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import kernels, native, targets
from learners.numerics.arrays import Sparse

pytestmark = pytest.mark.integration


def test_the_program_measures_and_writes_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "deep" / "kernels.json"
    monkeypatch.setattr(kernels, "DIMS", (2, 3))
    monkeypatch.setattr(kernels, "SPARSE_DIMS", (8, 64))
    monkeypatch.setitem(targets.TARGETS, ("fofo", None), {3: 10**9})
    monkeypatch.setattr(
        "sys.argv", ["kernels", "--quick", "--algorithm", "fofo", "--algorithm", "npsvor", "--json", str(path)]
    )
    kernels.main()
    figures = json.loads(path.read_text())
    costs = figures["costs"]
    assert [(cost["algorithm"], cost["dim"]) for cost in costs] == [
        ("fofo", 2),
        ("fofo", 3),
        ("npsvor", 2),
        ("npsvor", 3),
    ]
    assert all(0 < cost["low"] <= cost["ns"] <= cost["high"] and cost["events"] >= 16 for cost in costs)
    sparse = {(item["algorithm"], item["dim"]): item for item in figures["sparse"]}
    assert sparse.keys() == {(name, dim) for name in ("fofo", "npsvor") for dim in (8, 64)}
    assert sparse["fofo", 8]["columns"] == 8
    assert sparse["fofo", 64]["memory"] == 2 * 64 * 8 + 4 * 8  # w and lag, and two numbers and two counts
    assert all(item["ns"] > 0 for item in sparse.values())
    assert [(target["algorithm"], target["dim"], target["target"]) for target in figures["targets"]] == [
        ("fofo", 2, None),
        ("fofo", 3, 10**9),
    ]
    assert all(target["ns"] > 0 for target in figures["targets"])
    printed = capsys.readouterr().out
    assert "1,000,000,000" in printed
    assert "npsvor" in printed
    assert "fofo" in printed


def test_an_event_of_auto_is_compared_with_its_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernels, "DIMS", (2,))
    monkeypatch.setattr(kernels, "SPARSE_DIMS", (64,))
    monkeypatch.setattr("sys.argv", ["kernels", "--quick", "--algorithm", "auto", "--json", str(tmp_path / "out.json")])
    kernels.main()
    dense, sparse = json.loads((tmp_path / "out.json").read_text())["members"]
    assert list(dense["members"]) == ["cbr-diag", "loam-ada", "fofo", "bins, pairs", "gbdt"]
    assert list(sparse["members"]) == ["cbr-diag", "fofo", "bins, pairs", "gbdt"]  # rows of words have no loam-ada
    assert dense["members"]["gbdt"] > 0
    assert dense["algorithm"] > 0
    assert "at most 2.5 times" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "capacity"), list(targets.TARGETS))
@pytest.mark.campaign
def test_c_and_numba_kernels_agree(
    name: str, capacity: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`against` raises an error unless both do the same work."""
    monkeypatch.setattr(targets, "WARM", 120)
    library = native.compiled(tmp_path)
    for dim in (3, 8, 21):
        result = targets.against(name, capacity, dim, library, 2, 1e-4)
        assert (result.algorithm, result.capacity, result.dim, result.target) == (name, capacity, dim, None)
        assert result.ns > 0
        compared = library is not None
        assert [math.isnan(figure) for figure in (result.c, result.ratio, result.steps)] == [not compared] * 3
        assert not compared or result.steps > 0


def test_c_kernels_are_skipped_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native.compiled(tmp_path) is None
    result = targets.against("fofo", None, 3, None, 1, 1e-4)
    assert result.ns > 0
    assert math.isnan(result.ratio)


def test_c_kernels_are_skipped_if_the_source_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "wrong.c"
    wrong.write_text("this is not C")
    monkeypatch.setattr(native, "SOURCE", wrong)
    assert native.compiled(tmp_path) is None


def test_kernels_with_different_results_are_not_compared() -> None:
    state = targets.copied(kernels.algorithms()["fofo"].init(None, 3, 0))
    other = targets.copied(state)
    other.w[1] = 1e-6
    targets.compare("fofo", (0.0, state, np.ones(2), 0), (0.0, targets.copied(state), np.ones(2), 0))
    with pytest.raises(ValueError, match=r"fofo.*\bw$"):
        targets.compare("fofo", (0.0, state, np.ones(2), 0), (0.0, other, np.ones(2), 0))
    with pytest.raises(ValueError, match="scores"):
        targets.compare("fofo", (0.0, state, np.ones(2), 0), (0.0, state, np.zeros(2), 0))


def test_hashed_rows_are_sparse() -> None:
    rows, y = kernels.hashed(50, 2**20, None, 0)
    assert isinstance(rows, Sparse)
    assert len(rows.indptr) == 51
    assert set(y) == {-1.0, 1.0}
    for start, stop in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        assert 10 < stop - start <= 30
        assert (np.diff(rows.indices[start:stop]) > 0).all()
    assert 0 <= rows.indices.min() <= rows.indices.max() < 2**20


def test_a_batch_algorithm_has_no_cost_per_event(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kernels", "--algorithm", "ranksvm"])
    with pytest.raises(SystemExit, match="2"):
        kernels.main()
    output = capsys.readouterr().err
    assert output.startswith("usage: python -m benchmarks.kernels ")
    assert "'ranksvm'" in output
