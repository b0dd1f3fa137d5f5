"""Run every campaign for a short time: `python -m tests.campaigns [pytest options]`.

Each has a program of its own that goes on for longer: `python -m tests.campaigns.chaos --minutes 20`, and likewise
`fuzz`, `kill`, `many_nodes` and `rolling`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    raise SystemExit(pytest.main(["-n", "0", str(Path(__file__).parent), *sys.argv[1:]]))
