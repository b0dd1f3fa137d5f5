"""Leases of work that one node does for all."""

from __future__ import annotations

import pytest

from service.storage.store_protocol import Store
from tests.harness.nodes import serving

pytestmark = pytest.mark.integration

CONFIG = {"algorithm": "cbr", "features": {"kind": "dense", "dim": 2}}


async def test_a_lease_is_never_shorter_than_the_store_resolution(store: Store) -> None:
    for seconds, expected in ((1e-7, 0.01), (0.5, 0.5), (1e9, 10.0)):
        async with serving(store, snapshot_seconds=seconds) as (http, engine):
            assert (await http.put("/learners/a", json=CONFIG)).status_code in (200, 201)
            claim = engine.get("a").lease
            assert claim.seconds == expected
            assert await claim.take()
            await claim.release()
