"""The experiments behind benchmarks/PAPERS.md run on made-up sets, and say which sets are not there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.misses import main
from tests.benchmarks.made import binary, ordinal, write_dense

pytestmark = pytest.mark.integration


def test_each_experiment_prints_an_auc_for_each_variant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_dense(tmp_path, "cod-rna", *binary(150, 8))
    for name in ("ijcnn1", "hill-valley", "hill-valley_test"):
        write_dense(tmp_path, name, *binary(150, 4))
    write_dense(tmp_path, "german", *binary(150, 4, labels=(1, 2)))
    for name, seed in (("usps", 0), ("usps_test", 1)):
        write_dense(tmp_path, name, *ordinal(150, 4, 10, seed))
    X, y = ordinal(150, 4, 7)
    write_dense(tmp_path, "covtype", X, y + 1)
    X, y = ordinal(150, 4, 4)
    write_dense(tmp_path, "vehicle", X, y + 1)
    main(["--datasets", str(tmp_path), "--rows", "120"])
    lines = capsys.readouterr().out.splitlines()
    absent = [line for line in lines if str(tmp_path) in line]
    assert [line.split(":")[0] for line in absent] == ["australian"]
    figures = [float(line.rpartition(" ")[2]) for line in lines if re.search(r": [01]\.\d{4}$", line)]
    assert len(figures) == len(lines) - 1 == 9 + 19 + 6 + 9 + 10 + 6 + 13
    assert np.isfinite(figures).all()
    assert min(figures[:9]) > 0.6


def test_a_single_experiment_runs_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_dense(tmp_path, "usps", *ordinal(150, 4, 10))  # without its test part
    main(["--datasets", str(tmp_path), "--only", "usps"])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("usps")
    assert line.endswith(str(tmp_path))
