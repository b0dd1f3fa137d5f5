"""Processes end by SIGKILL, Redis goes away: acknowledged updates stay, repeated ones are learnt once."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import httpx
import pytest

from learners import create
from tests.campaigns.kill import campaign
from tests.harness.apps import DENSE, events
from tests.harness.process import Process
from tests.harness.redis_server import RedisServer

KILLS = 2  # for each store; `tests.campaigns` has many


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_kill_loses_no_acknowledged_data(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}" if kind == "sqlite" else request.getfixturevalue("redis_server").url
    result = campaign(url, tmp_path / "server.log", KILLS)
    assert result.kills == KILLS
    assert result.acknowledged == result.events > 0
    assert result.good, str(result)


@pytest.mark.integration
def test_without_redis_updates_wait_and_predictions_continue(tmp_path: Path, redis_server: RedisServer) -> None:
    with Process(redis_server.url, tmp_path / "server.log", follow_seconds=0.1) as service:
        url = f"{service.url}/v1/learners/fraud"
        with httpx.Client(timeout=300, trust_env=False) as http:
            http.put(url, json=DENSE).raise_for_status()
            http.post(f"{url}/update", json={"events": events(20)}).raise_for_status()
            reply = http.post(f"{url}/predict", json={"events": [{"x": [1, 2, 3]}]}).json()
            for round_ in range(1, 4):
                redis_server.kill()
                refused = http.post(f"{url}/update", json={"events": events(5, 20 * round_)})
                assert refused.status_code == 503
                assert refused.json()["code"] == "store-unavailable"
                assert int(refused.headers["retry-after"]) >= 1
                alone = http.post(f"{url}/predict", json={"events": [{"x": [1, 2, 3]}]})
                assert alone.status_code == 200
                assert alone.json()["stale_seconds"] > 0
                assert http.get(f"{service.url}/v1/health/ready").status_code == 503
                assert http.get(f"{service.url}/v1/health/live").status_code == 200
                if round_ == 1:
                    assert alone.json()["results"] == reply["results"]
                redis_server.start()
                service.wait("ready")
                again = http.post(f"{url}/update", json={"events": events(20, 20 * round_)})
                assert again.status_code == 200
            document = http.get(url).json()
            assert document["events"] == 80
            assert document["stale_seconds"] == 0
            digest = http.get(f"{url}/digest").json()["digest"]
    learner, stream = create("loam-ada", dim=3, window=100), events(80)
    learner.learn(
        [event["x"] for event in stream], [event["label"] for event in stream], ids=[event["id"] for event in stream]
    )
    assert digest == learner.digest()


@pytest.mark.integration
def test_a_node_started_without_redis_becomes_ready_when_it_appears(tmp_path: Path, redis_server: RedisServer) -> None:
    service = Process(redis_server.url, tmp_path / "server.log", follow_seconds=0.1)
    with service:
        httpx.put(f"{service.url}/v1/learners/fraud", json=DENSE, trust_env=False, timeout=300).raise_for_status()
        service.stop()
        redis_server.kill()
        service.start(ready=False)
        early = httpx.get(f"{service.url}/v1/learners/fraud", timeout=300, trust_env=False)
        assert early.status_code == 503  # not 404: nobody knows yet which learners there are
        redis_server.start()
        service.wait("ready")
        assert httpx.get(f"{service.url}/v1/learners/fraud", trust_env=False, timeout=300).json()["name"] == "fraud"


@pytest.mark.integration
def test_a_clean_shutdown_is_in_time_and_loses_nothing(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'log.db'}"
    with Process(store, tmp_path / "server.log") as service:
        url = f"{service.url}/v1/learners/fraud"
        httpx.put(url, json=DENSE, trust_env=False, timeout=300).raise_for_status()
        httpx.post(f"{url}/update", json={"events": events(20)}, timeout=300, trust_env=False).raise_for_status()
        before = httpx.get(f"{url}/digest", trust_env=False, timeout=300).json()
        began = time.monotonic()
        assert service.stop() in (0, -signal.SIGTERM)  # uvicorn passes the signal on once it has stopped cleanly
        assert time.monotonic() - began < 120
        service.start()
        assert httpx.get(f"{url}/digest", trust_env=False, timeout=300).json() == before
        assert httpx.get(url, trust_env=False, timeout=300).json()["snapshot"]["position"] == before["position"]
