"""`rarestream segments`: the values of a field as a table, with what it leaves out."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.harness.process import Process
from tests.service.cli.commands.test_commands import document
from tests.service.cli.commands.test_scored_events import event, learner
from tests.service.cli.conftest import run

pytestmark = pytest.mark.integration

CONFIG: dict[str, Any] = {
    "algorithm": "cbr-diag",
    "features": {"kind": "named", "bits": 12},
    "figures": {"segments": ["shop"]},
}
SHOPS = ["ab", "\x1b[31mred", "日本"]


@pytest.fixture(scope="module")
def server(server: Process) -> Process:
    with learner(server) as http:
        http.put("/cards", json=CONFIG).raise_for_status()
        events = [event(i, label=int(i % 4 == 0)) for i in range(90)]
        for i, item in enumerate(events):
            item["features"]["shop"] = SHOPS[i % 3] if i < 80 else None
        http.post("/cards/update", json={"events": events}).raise_for_status()
    return server


def test_values_are_rows_with_their_figures(server: Process) -> None:
    url = f"{server.url}/v1/learners/cards/segments"
    expected = httpx.get(url, params={"by": "shop", "limit": 2, "positives": 5}, trust_env=False).json()
    options = ("segments", "cards", "--by", "shop", "-n", 2, "--positives", 5)
    assert document(run(server, *options, "--json")) == expected
    printed = run(server, *options).stdout
    assert "\x1b" not in printed
    head, *lines = printed.splitlines()
    assert head.split()[:4] == ["value", "events", "positives", "alerts"]
    rows = {line.split()[0]: line.split() for line in lines[: lines.index("")]}
    assert set(rows) == {'"\\u001b[31mred"', "ab", "(other)", "(missing)", "(all)"}
    for value, row in [("ab", expected["segments"][1]), ("(all)", expected["all"])]:
        assert rows[value][1:4] == [str(row["events"]), str(row["class_counts"]["positive"]), str(row["alerts"])]
        assert rows[value][4] == f"{row['auc']:.4f}"
    assert rows["(missing)"][4] == "-"
    assert len(lines[lines.index("") + 1 :]) == 2  # few positives, and the pooled value


def test_a_field_that_is_not_declared_is_refused(server: Process) -> None:
    run(server, "segments", "cards", "--by", "amount", status=5)
