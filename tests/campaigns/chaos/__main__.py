"""The command line: `python -m tests.campaigns.chaos --minutes 20`; exit status 1 where anything did not hold."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.campaigns.chaos.courses import COURSES, run

_SHARES = {"replicas": 0.28, "memory": 0.22, "aof": 0.21, "trimmed": 0.16, "sqlite": 0.13}  # of the time


def main() -> None:
    """Run the courses and print what came of them."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.chaos",
        description="Break nodes, their store and the network while events come in.",
    )
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="of faults, over all courses; 20 are enough for each kind in each"
    )
    parser.add_argument("--only", choices=sorted(COURSES), action="append", help="this course alone; repeatable")
    parser.add_argument("--seed", type=int, default=0, help="of the events and the order of the faults")
    parser.add_argument("--writers", type=int, default=6)
    parser.add_argument("--keep", type=Path, help="folder for the logs of the nodes")
    options = parser.parse_args()
    names = options.only or list(COURSES)
    whole = sum(_SHARES[name] for name in names)
    good = True
    for name in names:
        seconds = 60 * options.minutes * _SHARES[name] / whole
        report = run(
            name, seconds, options.seed, options.writers, None if options.keep is None else options.keep / name
        )
        print(*report.lines(), sep="\n", flush=True)
        good &= report.good
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
