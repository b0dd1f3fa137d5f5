"""Without compilation (NUMBA_DISABLE_JIT=1) the kernels are plain Python on NumPy scalars."""

from __future__ import annotations

import pytest
from numba.core import config as numba_config


def pytest_configure(config: pytest.Config) -> None:
    """splitmix64 and hashes wrap around 2^64, which NumPy's scalars warn about and machine code does not."""
    if numba_config.DISABLE_JIT:
        for operation in ("add", "multiply"):
            config.addinivalue_line(
                "filterwarnings", f"ignore:overflow encountered in scalar {operation}:RuntimeWarning"
            )
