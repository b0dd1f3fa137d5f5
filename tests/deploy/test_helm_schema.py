"""The chart's schema is written from the settings of the service."""

from __future__ import annotations

from tests.deploy.helm_schema import PATH, written


def test_the_schema_matches_the_settings() -> None:
    assert PATH.read_text() == written(), "`python -m tests.deploy.helm_schema` writes it anew"
