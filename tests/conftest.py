"""What holds for all tests."""

from __future__ import annotations

import os
import signal

import pytest

pytest_plugins = ["tests.harness.fixtures"]

# A shell starts background jobs with Ctrl-C ignored. Processes that tests start would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Allow splitmix64 and hashes to wrap around 2^64: as plain Python they run on NumPy scalars, which warn."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        for operation in ("add", "multiply"):
            config.addinivalue_line(
                "filterwarnings", f"ignore:overflow encountered in scalar {operation}:RuntimeWarning"
            )
