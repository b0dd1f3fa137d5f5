"""Run each test that has just failed once more, alone: `pytest || python -m tests.rerun $? FILE`.

A test that passes now is flaky: it is printed as `flaky: NAME`, and its name is added to FILE. The status is 1 if a
test fails again, if FILE then has more than three names, or if pytest ended by anything but failed tests.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["CACHE", "MOST", "failed_tests", "rerun"]

CACHE = Path(".pytest_cache")
MOST = 3  # flaky tests of all runs that share a file


def failed_tests(cache: Path) -> list[str]:
    """Return the ids of the tests that failed last, from pytest's cache folder."""
    file = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(file.read_text())) if file.exists() else []


def rerun(status: int, names: Path, cache: Path = CACHE) -> int:
    """Run the failed tests of a pytest that ended with `status`, one after the other; return the exit status."""
    failed = failed_tests(cache)
    if status != pytest.ExitCode.TESTS_FAILED or not failed:
        print(f"pytest ended with status {status}; no test is run again")
        return 1
    flaky = [test for test in failed if _passes(test, cache)]
    for test in flaky:
        print(f"flaky: {test}", flush=True)
    with names.open("a") as file:
        file.writelines(f"{test}\n" for test in flaky)
    count = len(names.read_text().splitlines())
    if count > MOST:
        print(f"{count} tests are flaky; at most {MOST} may be")
    for test in sorted({*failed} - {*flaky}):
        print(f"failed twice: {test}")
    return int(len(flaky) < len(failed) or count > MOST)


def _passes(test: str, cache: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-o", f"cache_dir={cache}", test]
    return subprocess.run(command, check=False).returncode == pytest.ExitCode.OK


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.rerun", description="Run failed tests once more, alone.")
    parser.add_argument("status", type=int, help="the status that pytest ended with")
    parser.add_argument("names", type=Path, help="file to which the names of flaky tests are added")
    options = parser.parse_args()
    raise SystemExit(rerun(options.status, options.names))


if __name__ == "__main__":
    main()
