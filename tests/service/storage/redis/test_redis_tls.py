"""The Redis store over TLS, with certificates of both sides, and as a user: one server, Sentinels, a Cluster."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from urllib.parse import urlencode

import pytest
import trustme

from service.errors import StoreUnavailable
from service.storage.open_store import open_store
from tests.harness.redis_fleet import cluster, of_user, watched
from tests.harness.redis_server import DEBIAN, Certificate, RedisServer
from tests.harness.store_records import BIRTH, filled, record, whole_log
from tests.service.storage.redis.test_redis_failover import append, in_time

with_tls = pytest.mark.skipif(not os.access(DEBIAN, os.X_OK), reason="no redis-server that has TLS (Debian's has)")
pytestmark = [pytest.mark.integration, with_tls]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("tls"))


def certificate(folder: Path) -> Certificate:
    """One of an authority of its own."""
    authority = trustme.CA()
    local = authority.issue_cert("127.0.0.1", "localhost")
    actual = Certificate(*(str(folder / name) for name in ("ca.pem", "chain.pem", "key.pem")))
    authority.cert_pem.write_to_path(actual.ca)
    local.private_key_pem.write_to_path(actual.key)
    Path(actual.chain).write_bytes(b"".join(pem.bytes() for pem in local.cert_chain_pems))
    return actual


async def refused(url: str) -> str:
    """Why a store cannot be written."""
    store = await open_store(url)
    try:
        with pytest.raises(StoreUnavailable) as caught:
            await store.create("b", BIRTH, b"")
        assert "hunter" not in caught.value.detail
        return caught.value.detail
    finally:
        await store.close()


async def test_tls_to_one_server(tls: Certificate, tmp_path: Path) -> None:
    with RedisServer(DEBIAN, tls=tls, **of_user("ann", "hunter2")) as server:
        place = f"127.0.0.1:{server.port}/0?"
        store = await open_store(f"rediss://ann:hunter2@{place}{urlencode(tls.options)}")
        log = await filled(store, 3)
        assert await whole_log(store) == log
        await store.close()
        assert "invalid username-password" in await refused(f"rediss://bob:hunter2@{place}{urlencode(tls.options)}")
        another = certificate(tmp_path)
        assert "certificate" in await refused(f"rediss://ann:hunter2@{place}{urlencode(another.options)}")
        await refused(f"rediss://ann:hunter2@{place}ssl_ca_certs={tls.ca}")  # the server asks for one
        await refused(f"redis://ann:hunter2@{place}")


@pytest.mark.campaign
async def test_tls_to_sentinels_and_their_master(tls: Certificate) -> None:
    """The store goes by its own user to the master, by the Sentinels' to them, and over a fail-over."""
    users = {"user": "ann", "password": "hunter2", "sentinel_user": "sue", "sentinel_password": "hunter3"}
    with watched(DEBIAN, tls=tls, **users) as servers:
        store = await open_store(servers.url, "replicas:1")
        try:
            await filled(store, 3)
            old = servers.master
            old.kill()
            await asyncio.to_thread(servers.failed_over, old)
            old.start()  # as the replica that is waited for
            entries = await append(store, 4, 3)
            assert entries[-1].token == record(4)[0]
            assert len(await in_time(lambda: whole_log(store))) == 4
        finally:
            await store.close()
        assert "Sentinel" in await refused(servers.url.replace("hunter3", "hunter4"))
        assert "Sentinel" in await refused(servers.url.replace("sue", "ann"))
        assert "invalid username-password" in await refused(servers.url.replace("hunter2", "hunter4"))
        assert "Sentinel" in await refused(servers.url.replace("rediss", "redis").partition("&ssl")[0])


@pytest.mark.campaign
async def test_tls_to_a_cluster(tls: Certificate) -> None:
    with cluster(DEBIAN, "ann", "hunter2", tls) as servers:
        store = await open_store(servers.url, "aof")
        try:
            for name in "abcdef":
                await filled(store, 3, name)
            assert sorted(await store.heads()) == list("abcdef")
            await store.publish(b"n" * 16, {})
            place, report = await store.poll(b"m" * 16, b"", 1.0)
            assert (bool(place), report) == (True, None)
            servers.masters[0].kill()  # what was in its slots is at its replica
            for name in "abcdef":
                assert len(await in_time(lambda name=name: whole_log(store, name))) == 3  # type: ignore[misc]
        finally:
            await store.close()
        await refused(servers.url.replace("hunter2", "hunter4"))
