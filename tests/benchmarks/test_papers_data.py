"""Data sets as tasks, their scaling, their splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from benchmarks.papers import datasets, splits
from benchmarks.papers.datasets import Task, dense, make, pick
from benchmarks.papers.scaling import Kind, scaled
from benchmarks.papers.tables import TABLES
from learners.numerics.arrays import Matrix, Sparse
from tests.benchmarks.made import binary, ordinal, write_dense, write_sparse
from tests.learners.streams import as_sparse

pytestmark = pytest.mark.integration

Y = np.where(np.random.default_rng(3).random(203) < 0.1, 1.0, -1.0)


def test_folds_are_disjoint_stratified_and_seeded() -> None:
    parts = splits.folds(Y, 5, seed=7)
    assert sorted(np.concatenate([part.test for part in parts]).tolist()) == list(range(len(Y)))
    share = (Y > 0).mean()
    for part in parts:
        assert sorted([*part.train.tolist(), *part.test.tolist()]) == list(range(len(Y)))
        assert abs((Y[part.test] > 0).sum() - share * len(part.test)) <= 1
        assert part.train.tolist() != sorted(part.train.tolist()), "the order of learning is random"
    assert all((a.train == b.train).all() for a, b in zip(parts, splits.folds(Y, 5, seed=7), strict=True))
    assert any((a.test.tolist() != b.test.tolist()) for a, b in zip(parts, splits.folds(Y, 5, seed=8), strict=True))


def test_holdout_is_disjoint_stratified_and_seeded() -> None:
    part = splits.holdout(Y, 0.2, seed=1)
    assert sorted([*part.train.tolist(), *part.test.tolist()]) == list(range(len(Y)))
    assert (Y[part.test] > 0).sum() == round(0.2 * (Y > 0).sum())
    assert (part.train == splits.holdout(Y, 0.2, seed=1).train).all()
    assert part.test.tolist() != splits.holdout(Y, 0.2, seed=2).test.tolist()


def test_a_predefined_split_is_kept_and_only_training_rows_are_shuffled() -> None:
    part = splits.as_divided(10, 7, seed=0)
    assert sorted(part.train.tolist()) == list(range(7))
    assert part.test.tolist() == [7, 8, 9]


@pytest.mark.parametrize("kind", ["unit", "range", "zero-one"])
def test_sparse_rows_are_scaled_like_dense_ones(kind: Kind) -> None:
    X = np.abs(binary(40, 6)[0])
    X[np.random.default_rng(0).random(X.shape) < 0.4] = 0.0
    X[:, 2] = 0.0
    train, test = scaled(kind, as_sparse(X[:30]), as_sparse(X[30:]), 6)
    assert isinstance(train, Sparse)
    assert isinstance(test, Sparse)
    expected = X / np.where(X[:30].max(axis=0) > 0, X[:30].max(axis=0), 1.0)
    if kind == "unit":
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        expected = X / np.where(lengths > 0, lengths, 1.0)
    np.testing.assert_allclose(np.vstack([dense(train, 6), dense(test, 6)]), expected)


def _dense(kind: Kind, X: Matrix) -> tuple[Matrix, Matrix]:
    train, test = scaled(kind, X[:40], X[40:], X.shape[1])
    assert not isinstance(train, Sparse)
    assert not isinstance(test, Sparse)
    return train, test


def test_dense_scaling_uses_the_training_rows_only() -> None:
    X = binary(50, 4)[0] * [1.0, 10.0, 0.1, 0.0] + 3.0
    bounds: list[tuple[Kind, float]] = [("range", -1.0), ("zero-one", 0.0)]
    for kind, low in bounds:
        train, _ = _dense(kind, X)
        np.testing.assert_allclose(train[:, :3].min(axis=0), low, atol=1e-12)
        np.testing.assert_allclose(train[:, :3].max(axis=0), 1.0)
        assert not train[:, 3].any(), "a constant column says nothing"
    train, test = _dense("standard", X)
    np.testing.assert_allclose(train[:, :3].mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(train[:, :3].std(axis=0), 1.0)
    np.testing.assert_allclose(test[:, 1], (X[40:, 1] - X[:40, 1].mean()) / X[:40, 1].std())


def test_pick_returns_rows_in_the_requested_order() -> None:
    X = binary(12, 5)[0] * (np.random.default_rng(1).random((12, 5)) < 0.5)
    index = np.array([7, 0, 0, 11])
    assert (pick(X, index) == X[index]).all()
    rows = pick(as_sparse(X), index)
    assert isinstance(rows, Sparse)
    assert (dense(rows, 5) == X[index]).all()


def test_a_task_groups_classes_and_subsamples_positives(tmp_path: Path) -> None:
    X, y = ordinal(400, 3, 4)
    write_dense(tmp_path, "many", X, y)
    data = make(tmp_path, Task("many", (1, 3)))
    assert (data.y == np.where((y == 1) | (y == 3), 1.0, -1.0)).all()
    rare = make(tmp_path, Task("many", (1, 3), share=0.05))
    assert abs((rare.y > 0).mean() - 0.05) < 0.005
    assert (rare.y < 0).sum() == (data.y < 0).sum()
    assert Task("many", (0, 1, 2)).name == "many [0-2]"
    assert Task("many", (1, 3), share=0.05).name == "many [1,3] 5%"


def test_a_task_takes_the_first_rows_or_a_sample_and_scales_columns_back(tmp_path: Path) -> None:
    X, y = binary(400, 2)
    write_dense(tmp_path, "set", X, y)
    assert (make(tmp_path, Task("set", (1,), first=30)).y == y[:30]).all()
    for rows, most in ((100, 300), (300, 100)):
        sample = make(tmp_path, Task("set", (1,), rows=rows), most=most)
        assert 95 < len(sample.y) < 110  # at least 30 of a class
    raw = make(tmp_path, Task("set", (1,), ranges=((0, 10), (-1, 3)))).rows
    assert not isinstance(raw, Sparse)
    np.testing.assert_allclose([raw.min(axis=0), raw.max(axis=0)], [[0, -1], [10, 3]])
    np.testing.assert_allclose(np.corrcoef(raw[:, 0], X[:, 0])[0, 1], 1)
    with pytest.raises(ValueError, match="2 columns"):
        make(tmp_path, Task("set", (1,), ranges=((0, 10),)))


def test_ranks_start_at_one(tmp_path: Path) -> None:
    X, y = ordinal(60, 3, 4)
    write_dense(tmp_path, "ranked", X, 2 * y)
    assert (make(tmp_path, Task("ranked")).y == y + 1.0).all()


def test_a_sample_keeps_both_parts_and_rare_classes(tmp_path: Path) -> None:
    X, y = binary(3000, 2, share=0.02)
    write_dense(tmp_path, "train", X[:2000], y[:2000])
    write_dense(tmp_path, "test", X[2000:], y[2000:])
    dataset = make(tmp_path, Task("train", (1,), test="test"))
    assert dataset.train == 2000
    assert len(dataset.y) == 3000
    part = make(tmp_path, Task("train", (1,), test="test"), most=300)
    assert part.train is not None
    assert len(part.y) < 400
    assert (part.y[: part.train] > 0).sum() >= 30
    assert abs(part.train / len(part.y) - 2 / 3) < 0.05


def test_every_file_format_is_read(tmp_path: Path) -> None:
    X, y = binary(30, 4)
    X[np.abs(X) < 0.7] = 0.0
    write_sparse(tmp_path, "csr", X, y)
    dump_svmlight_file(X, y, str(tmp_path / "text.svm"), zero_based=False)
    for name in ("csr", "text"):
        rows, dim, labels = datasets.load(tmp_path, name)
        assert dim == 4
        assert (labels == y).all()
        np.testing.assert_allclose(dense(rows, 4) if isinstance(rows, Sparse) else rows, X)


def test_unusable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.npz"):
        datasets.load(tmp_path, "absent")
    np.savez(tmp_path / "odd.npz", Z=np.ones(3))
    with pytest.raises(ValueError, match=r"\bZ\b.*\by\b"):
        datasets.load(tmp_path, "odd")
    write_dense(tmp_path, "other", *binary(20, 2))
    with pytest.raises(ValueError, match=r"\[-1,\s1\].*\(5,\)"):
        make(tmp_path, Task("other", (5,)))


def test_every_data_set_of_the_tables_has_a_page() -> None:
    named = {name for table in TABLES.values() for task in table.tasks for name in task.files}
    assert named == datasets.PAGES.keys()
    assert all(page.startswith("https://") for page in datasets.PAGES.values())
