"""The type of a problem is a path that tells what its code means."""

from __future__ import annotations

from service.api.problem_pages import SECTIONS
from service.settings import Settings
from tests.harness.apps import application


async def test_the_type_of_a_problem_resolves_to_its_section() -> None:
    async with application(Settings(store="memory:")) as (_, http):
        refused = [await http.get("/v1/nothing"), await http.post("/v1/key"), await http.get("/v1/key?a=1")]
        assert [reply.status_code for reply in refused] == [404, 405, 422]
        for reply in refused:
            problem = reply.json()
            page = await http.get(problem["type"])
            assert page.status_code == 200
            assert page.headers["content-type"] == "text/plain; charset=utf-8"
            assert page.text == SECTIONS[problem["code"]]
            assert page.text.startswith(f"## {problem['code']}\n\nStatus {reply.status_code}.\n")
        whole = (await http.get("/problems")).text
        assert all(section in whole for section in SECTIONS.values())
        assert "](" not in whole
        assert (await http.get("/problems/nothing")).json()["code"] == "not-found"
