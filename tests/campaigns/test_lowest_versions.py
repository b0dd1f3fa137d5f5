"""The lowest versions that pyproject.toml admits of the two packages whose insides the service builds on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.docs.documents import ROOT
from tests.docs.registry import skip_without_registry

BUILT_ON = ("uvicorn", "websockets")
TESTS = (
    "service/server/test_private_attributes.py",
    "service/server/test_http_protocol.py",
    "service/server/test_ws_protocol.py",
    "rarestream/test_tls_stream.py",
)


def lowest() -> list[str]:
    """Both as pip is asked for them."""
    request = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    actual = [re.fullmatch(r"([a-z]+)(?:\[\w+\])?>=([\d.]+),<[\d.]+", item) for item in request]
    return [f"{item[1]}=={item[2]}" for item in actual if item and item[1] in BUILT_ON]


def test_connections_work_with_the_lowest_versions(tmp_path: Path) -> None:
    versions = lowest()
    assert len(versions) == len(BUILT_ON)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), *versions]
    # the tests may run under constraints.txt, as `.ci/run` does: its pins would contradict what is asked for here
    free = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    installed = subprocess.run(pip, env=free, capture_output=True, text=True, check=False)
    if installed.returncode:
        skip_without_registry(installed.stderr, " and ".join(BUILT_ON))
    assert installed.returncode == 0, installed.stderr
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    names = "import uvicorn, websockets; print(uvicorn.__file__, websockets.__file__)"
    used = subprocess.run([sys.executable, "-c", names], env=environment, capture_output=True, text=True, check=True)
    assert [Path(item).parent.parent for item in used.stdout.split()] == [tmp_path, tmp_path]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-x", *(f"tests/{test}" for test in TESTS)]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout
