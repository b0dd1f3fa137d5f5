"""Holds every route's replies against those of an earlier version: status, headers, body, problem codes and pointers.

Sentences may be reworded, and errors may have more members. A change on purpose is recorded anew.
"""

from __future__ import annotations

from pathlib import Path

from service.api import create_app
from tests.compatibility.exchanges import all_courses
from tests.compatibility.recordings import differences, read_json

RECORDED = read_json("exchanges.json.xz")


async def test_the_exchanges_match_the_recording(tmp_path: Path) -> None:
    actual = await all_courses(create_app, tmp_path)
    different = list(differences(RECORDED, actual))
    assert not different, "\n".join(["", *different])


def test_every_operation_is_in_the_recording() -> None:
    requested = {name.split(" ", 1)[1].partition("?")[0] for name in RECORDED["http"] if name[0].isdigit()}
    names = ("a", "b", "r", "a2", "g", "h", "c", "x", "new", "nobody")
    parts = {"name": names, "position": ("1", "x"), "id": ("e-71", "e-130"), "number": ("0",)}
    for path, operations in create_app().openapi()["paths"].items():
        for method in operations:
            written = {f"{method.upper()} {path}"}
            for part, values in parts.items():
                written = {route.replace(f"{{{part}}}", value) for route in written for value in values}
            assert written & requested, f"{method} {path} is not exchanged"
