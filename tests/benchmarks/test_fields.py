"""The program that measures what the fields of named events cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.fields import main

pytestmark = pytest.mark.integration


def test_the_program_saves_the_cost_with_and_without_fields(tmp_path: Path) -> None:
    main(["--quick", "--json", str(tmp_path / "fields.json")])
    (cost,) = json.loads((tmp_path / "fields.json").read_text())
    assert (cost["algorithm"], cost["size"]) == ("cbr-diag", 200)
    assert cost["remembered"] > 0
    assert cost["without"] > 0
    assert cost["share"] < 1
