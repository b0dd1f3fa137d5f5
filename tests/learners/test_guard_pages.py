"""No kernel reads or writes past its arrays: what every algorithm is tested by, once more in fenced memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.learners.guard_pages import fenced

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PLACES = [
    # 11 columns: one whole load and a rest
    "algorithms/test_every_algorithm.py::test_scores_equal_those_of_the_published_weights",
    "algorithms/test_every_algorithm.py::test_the_state_contains_only_arrays_and_survives_a_copy",
    "numerics/test_simd.py",
]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=900)


@pytest.mark.long
@pytest.mark.campaign
def test_every_algorithm_stays_within_its_arrays() -> None:
    places = [f"tests/learners/{place}" for place in PLACES]
    ended = _run("-m", "pytest", "-n", "0", "-q", "-p", "tests.learners.guard_pages", "-p", "no:cacheprovider", *places)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-5000:]


def test_reading_past_an_array_crashes() -> None:
    """So the test above can fail."""
    past = "import numpy as n, ctypes as c; x = n.ones(7); print(c.c_double.from_address(x.ctypes.data + 56).value)"
    for fence, died in (("", False), ("with fenced(): ", True)):
        ended = _run("-c", f"from tests.learners.guard_pages import fenced\n{fence}{past}")
        assert (ended.returncode < 0) == died, ended.stderr


def test_fenced_arrays_behave_normally() -> None:
    with fenced():
        arrays = [np.arange(n, dtype=kind) for n in (0, 1, 7, 5000) for kind in (np.float64, np.int8)]
        grown = np.arange(3.0)
        grown.resize(600, refcheck=False)
        assert np.isnan(np.empty(3)).all()
        assert not np.zeros(3).any()
    assert grown.tolist() == [0.0, 1.0, 2.0, *[0.0] * 597]
    for array in arrays:  # after the fence is gone, too
        assert (array == np.arange(len(array)).astype(array.dtype)).all()
        assert array.flags.aligned
