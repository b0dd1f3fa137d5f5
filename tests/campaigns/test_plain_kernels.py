"""The kernels as plain Python: results must not depend on the compiler. Takes some twenty minutes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.docs.documents import ROOT


@pytest.mark.parametrize(
    "folder",
    [
        "learners/numerics",
        "learners/algorithms",
        "learners/decisions",
        "learners/features",
        "learners/metrics",
        "service/wire/kernels",
    ],
)
def test_kernels_pass_their_tests_as_plain_python(folder: str) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not long and not integration"]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([*command, f"tests/{folder}"], cwd=ROOT, env=environment, check=True)


def test_learners_have_the_same_bits_as_plain_python() -> None:
    def hashes(disable: str) -> dict[str, Any]:
        command = [sys.executable, "-W", "error", "-m", "tests.learners.numerics.learner_bits"]
        environment = {**os.environ, "NUMBA_DISABLE_JIT": disable}
        output = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True).stdout
        result: dict[str, Any] = json.loads(output)
        return result

    plain, compiled = hashes("1"), hashes("0")
    assert len(plain) > 500
    assert [name for name in plain if plain[name] != compiled[name]] == []
