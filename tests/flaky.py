"""Repeat a tier of tests beside busy processes: `python -m tests.flaky [--runs 5] [--busy 6] [TIER]`.

It prints each test that failed at least once, and how often; the exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.rerun import failed_tests

__all__ = ["TIERS", "repeat"]

TIERS = {
    "plain": [],
    "smoke": ["tests/smoke"],
    "integration": ["-m", "integration"],
    "all": ["-m", "integration or not integration"],
}


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep so many processes computing until the block ends."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def repeat(arguments: list[str], runs: int, busy: int) -> Counter[str]:
    """Run pytest so often; return how often each test failed.

    A run that ended by anything but failed tests counts as a failure of `pytest ended with status N`.
    """
    failures: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, busy_processes(busy):
        for run in range(1, runs + 1):
            cache = Path(folder, f"cache-{run}")
            began = time.monotonic()
            status = subprocess.run(
                [sys.executable, "-m", "pytest", "--quiet", "-o", f"cache_dir={cache}", *arguments], check=False
            ).returncode
            failed = failed_tests(cache)
            failures.update(failed)
            if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                failures[f"pytest ended with status {status}"] += 1
            print(f"run {run} of {runs}: {len(failed)} failed, {time.monotonic() - began:.0f} s", flush=True)
    return failures


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.flaky", description="Repeat tests on a busy machine.")
    parser.add_argument("tier", nargs="?", choices=TIERS, default="all", help="which tests (default: all)")
    parser.add_argument("--runs", type=int, default=5, help="how often (default: 5)")
    parser.add_argument("--busy", type=int, default=6, help="busy processes beside them (default: 6)")
    options = parser.parse_args()
    failures = repeat(TIERS[options.tier], options.runs, options.busy)
    for name, count in failures.most_common():
        print(f"{count} of {options.runs}: {name}")
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
