"""The benchmark of pages of scored events runs from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.event_pages import REQUESTS, main

pytestmark = pytest.mark.integration


def test_each_request_is_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "figures.json"
    main(["--events", "3000", "--repeats", "2", "--json", str(written)])
    figures = json.loads(written.read_text())
    assert figures["events"] == 3000
    assert figures["seconds"].keys() == REQUESTS.keys()
    assert all(seconds > 0 for seconds in figures["seconds"].values())
    assert capsys.readouterr().out.count("3,000 remembered") == len(REQUESTS)
