"""The kernels as plain Python: results must not depend on the compiler. Takes some ten minutes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.docs.documents import ROOT


@pytest.mark.parametrize("folder", ["numerics", "algorithms"])
def test_kernels_pass_their_tests_as_plain_python(folder: str) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not long and not integration"]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([*command, f"tests/learners/{folder}"], cwd=ROOT, env=environment, check=True)
