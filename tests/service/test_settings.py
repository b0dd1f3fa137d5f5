"""Settings as files and shells deliver them."""

from __future__ import annotations

import pytest

from service.settings import Settings

VALUES = {
    "store": "memory:",
    "acks": "aof",
    "host": "::1",
    "port": 8001,
    "trim_log": False,
    "log_format": "json",
    "advertise": "http://10.0.0.7:8000",
    "webhook": "https://example.com/hook",
    "store_prefix": "staging",
    "body_seconds": 2.5,
}


@pytest.mark.parametrize("around", [("", "\n"), (" ", "\r\n"), ("\t", " ")])
def test_blanks_and_line_ends_around_a_variable_are_no_part_of_it(
    monkeypatch: pytest.MonkeyPatch, around: tuple[str, str]
) -> None:
    for name, value in VALUES.items():
        monkeypatch.setenv(f"RARESTREAM_{name.upper()}", f"{around[0]}{value}{around[1]}")
    settings = Settings()
    assert {name: getattr(settings, name) for name in VALUES} == VALUES
