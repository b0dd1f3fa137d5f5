"""Opens stores that an earlier version wrote, and holds its continuation against what that version replied."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.compatibility.recordings import differences, read_json
from tests.compatibility.serving import serve
from tests.compatibility.stores import SETTINGS, load, proceed
from tests.harness.redis_server import RedisServer

pytestmark = pytest.mark.integration

RECORDED = read_json("stores.json.xz")


def continue_store(url: str) -> dict[str, Any]:
    """Open a store and send it the requests of the recording."""
    with serve(url, settings=SETTINGS) as service:
        return proceed(service, b64decode(RECORDED["export"]))


@pytest.fixture(scope="module", params=["sqlite", "redis"])
def replies(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Return what the present version replies over a copy of the store."""
    if request.param == "sqlite":
        file: Path = tmp_path_factory.mktemp("store") / "store.db"
        file.write_bytes(b64decode(RECORDED["sqlite"]))
        yield continue_store(f"sqlite:///{file}")
        return
    with RedisServer() as redis:
        with Redis.from_url(redis.url) as client:
            load(client, RECORDED["redis"])
        yield continue_store(redis.url)


@pytest.mark.parametrize("name", RECORDED["replies"])
def test_an_old_store_can_be_resumed(replies: dict[str, Any], name: str) -> None:
    actual = list(differences(RECORDED["replies"][name], replies[name]))
    assert not actual, "\n".join(["", *actual])


def test_no_additional_replies_are_recorded(replies: dict[str, Any]) -> None:
    assert list(replies) == list(RECORDED["replies"])
