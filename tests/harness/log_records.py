"""Read what a logger has logged, as level and data instead of as a sentence."""

from __future__ import annotations

import pytest

__all__ = ["logged_data"]


def logged_data(caplog: pytest.LogCaptureFixture, logger: str, level: str) -> list[tuple[object, ...]]:
    """Return the arguments of each message of a logger at a level, oldest first."""
    records = [record for record in caplog.records if (record.name, record.levelname) == (logger, level)]
    return [record.args if isinstance(record.args, tuple) else (record.args,) for record in records]
