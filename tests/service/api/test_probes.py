"""Names of the health routes that orchestrators know, and the version."""

from __future__ import annotations

import pytest

from rarestream import __version__
from service.api.paths import PROBES
from service.settings import Settings
from tests.harness.apps import application


@pytest.mark.parametrize("path", PROBES)
async def test_a_probe_is_answered_and_counted_as_its_route(path: str) -> None:
    async with application(Settings(store="memory:")) as (app, http):
        reply, route = await http.get(path), await http.get(PROBES[path])
        assert reply.status_code == route.status_code == 200
        assert reply.json() == route.json()
        assert {key[1] for key in app.access.requests} >= {PROBES[path]}
        assert not any(key[1] == path for key in app.access.requests)
        assert (await http.get(f"{path}?key=x")).status_code == 422
        assert (await http.post(path)).headers["allow"] == "GET, HEAD"


async def test_the_version_is_that_of_the_package() -> None:
    async with application(Settings(store="memory:")) as (_, http):
        assert (await http.get("/v1/version")).json() == {"version": __version__, "api": "v1"}
