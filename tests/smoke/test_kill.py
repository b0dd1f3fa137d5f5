"""SIGKILL of a server under load: what was acknowledged is there, once, on each durable store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.kill import campaign

pytestmark = pytest.mark.integration

KILLS = 2  # for each store; `python -m tests.campaigns.kill --kills 300` goes on for longer


@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_acknowledged_events_survive_a_kill(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}" if store == "sqlite" else request.getfixturevalue("redis_server").url
    result = campaign(url, tmp_path / "server.log", KILLS)
    assert result.acknowledged == result.events > 0
    assert result.good, str(result)
