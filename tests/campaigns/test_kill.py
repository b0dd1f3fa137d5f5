"""Kill -9, many times: no acknowledged update is lost, no repeated update is learnt twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.kill import campaign

KILLS = 20  # for each store; `python -m tests.campaigns.kill --kills 300` goes on for longer


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_acknowledged_data_is_never_lost_or_learnt_twice(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}" if kind == "sqlite" else request.getfixturevalue("redis_server").url
    result = campaign(url, tmp_path / "server.log", KILLS)
    assert result.kills == KILLS
    assert result.acknowledged == result.events > 0
    assert result.retries > 0, "no request was interrupted: the kills came at the wrong moments"
    assert result.good, str(result)
