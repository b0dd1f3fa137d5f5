"""Run every campaign for a short time: `python -m tests.campaigns`; exit status 1 if a promise did not hold.

Some have a program that goes on for longer: `python -m tests.campaigns.chaos --minutes 20`, and likewise `fuzz`,
`kill`, `many_nodes` and `rolling`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
CAMPAIGNS = {path.stem.removeprefix("test_"): str(path) for path in sorted(FOLDER.glob("test_*.py"))}


def main() -> None:
    """Run the tests of this folder one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description="Run the campaigns.")
    parser.add_argument("--only", choices=CAMPAIGNS, action="append", help="run this campaign alone; repeatable")
    chosen = parser.parse_args().only or CAMPAIGNS
    raise SystemExit(pytest.main(["-n", "0", "-v", *(CAMPAIGNS[name] for name in chosen)]))


if __name__ == "__main__":
    main()
