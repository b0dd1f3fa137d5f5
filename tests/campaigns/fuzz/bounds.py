"""Mutated records and states with kernels that check their bounds: in a process of its own, compiled for that.

numba's kernels do not check: an index out of bounds that a mutated record or state leads to would read, or write, where
nothing is theirs, and nobody would see it. Here it is an `IndexError`. What such kernels compile to is kept apart.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from tests.campaigns.fuzz.report import Report
from tests.campaigns.fuzz.stored import records, remembered, snapshots

__all__ = ["bounds"]

_FIRST = 200  # tries, in which most kernels are compiled
_COMPILING = 600.0  # seconds that kernels may take to compile on a busy machine


def bounds(seconds: float, seed: int = 0, count: int | None = None) -> Report:
    """As `records`, `snapshots` and `remembered`, a third of the time each; compiling comes on top."""
    with tempfile.TemporaryDirectory() as folder:
        cache = os.environ.get("FUZZ_BOUNDS_CACHE", folder)  # to be kept from run to run
        environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": cache}
        report = Path(folder) / "told"
        arguments = [str(seconds / 3), str(seed), str(count or 0), str(report)]
        subprocess.run(
            [sys.executable, "-m", "tests.campaigns.fuzz.bounds", *arguments],
            env=environment,
            check=True,
            timeout=_COMPILING + 4 * seconds,
        )
        actual = json.loads(report.read_text())
    counts = Counter({(what, became): n for what, became, n in actual["counts"]})
    return Report("bounds of kernels", counts, actual["figures"], actual["wrong"])


def _main() -> None:
    seconds, seed, count, output = sys.argv[1:]
    whole = Report("bounds of kernels")
    for part in (records, snapshots, remembered):
        part(_COMPILING, int(seed) + 1, _FIRST)  # compiles; that is not to come off the time
        report = part(float(seconds), int(seed), int(count) or None)
        whole.counts.update(report.counts)
        whole.wrong += report.wrong
    actual = asdict(whole)
    actual["counts"] = [(what, became, n) for (what, became), n in whole.counts.items()]
    Path(output).write_text(json.dumps(actual))


if __name__ == "__main__":
    _main()
