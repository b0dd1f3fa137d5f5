"""Run every campaign for a short time: `python -m tests.campaigns`; exit status 1 if a promise did not hold.

Some have a program that goes on for longer: `python -m tests.campaigns.chaos --minutes 20`, and likewise `fuzz`,
`kill`, `many_nodes` and `rolling`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
FILES = {path.stem.removeprefix("test_"): str(path) for path in sorted(FOLDER.glob("test_*.py"))}
CAMPAIGNS = FILES | {"marked": str(FOLDER.parent)}  # `marked`: the tests of other folders with the mark `campaign`


def main() -> None:
    """Run the tests of this folder, and those marked `campaign`, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description="Run the campaigns.")
    parser.add_argument("--only", choices=CAMPAIGNS, action="append", help="run this campaign alone; repeatable")
    names = parser.parse_args().only or CAMPAIGNS
    raise SystemExit(pytest.main(["-n", "0", "-v", "-m", "campaign", *(CAMPAIGNS[name] for name in names)]))


if __name__ == "__main__":
    main()
