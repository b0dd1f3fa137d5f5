"""Run each part of the fuzzing campaign for a short time.

The 10,000 mutations and as many idle websockets are the command's: here they are 2,000 and 300.
"""

from __future__ import annotations

import json
import time
from random import Random

import pytest
from websockets.sync.client import connect

from tests.campaigns.fuzz.mutations import mutated_bytes, mutated_value
from tests.campaigns.fuzz.parts import PARTS
from tests.campaigns.fuzz.serving import served
from tests.campaigns.fuzz.stored import mutations

MUTATIONS = 2000
SECONDS = 120.0  # at most; the counts end them
COUNTS = {
    "openapi": 3,
    "bodies": 1500,
    "bombs": 6,
    "messages": 1500,
    "frames": 1500,
    "records": 3000,
    "snapshots": 2000,
    "remembered": 1000,
    "rows": 40,
    "slow": 2,
    "floods": 1,
    "idle": 300,
}


@pytest.mark.parametrize("part", COUNTS)
def test_hostile_input_is_refused_and_changes_nothing(part: str) -> None:
    report = PARTS[part](SECONDS, seed=1, count=COUNTS[part])
    output = "\n".join(report.lines())
    assert report.good, output
    assert not any(became in ("FAULT", "STILL OPEN") for _, became in report.counts), output


def test_every_part_runs_here_except_the_one_recompiling_all_kernels() -> None:
    assert PARTS.keys() - COUNTS.keys() == {"bounds"}


@pytest.mark.parametrize("part", ["records", "snapshots", "remembered", "bodies"])
def test_most_mutations_are_refused_and_some_accepted(part: str) -> None:
    """Else it would be noise, of which nothing comes as far as the inner checks, or too close to what is right."""
    report = PARTS[part](SECONDS, seed=2, count=400)
    harmless = sum(n for (_, became), n in report.counts.items() if became in ("taken", "200", "201"))
    assert 0.02 < harmless / report.tried < 0.5, report.lines()


def test_mutated_snapshots_and_records_are_refused_or_harmless() -> None:
    """`python -m tests.campaigns.fuzz --mutations 10000` tries more of them."""
    tally, reports = mutations(MUTATIONS, seed=3)
    output = "\n".join(line for report in reports for line in report.lines())
    assert tally.tried == MUTATIONS, output
    assert tally.refused > 0.5 * MUTATIONS, output
    assert tally.refused + tally.harmless == MUTATIONS, output
    assert tally.wrong == [], output
    assert tally.good


def test_mutations_are_reproducible_by_seed() -> None:
    value = {"a": [1, 2.5, b"abc", None], "b": {"c": "text"}}

    def made(seed: int) -> list[str]:
        random = Random(seed)
        return [repr((mutated_value(random, value), mutated_bytes(random, b"0123456789"))) for _ in range(50)]

    assert made(3) == made(3)
    assert made(3) != made(4)


def test_a_websocket_may_idle_longer_than_the_head_timeout() -> None:
    with served(body_seconds=0.2) as service:
        with connect(f"ws://127.0.0.1:{service.port}/v1/learners/dense/ws", proxy=None) as client:
            client.recv(60)
            time.sleep(0.6)
            client.send(json.dumps({"seq": 1, "op": "predict", "events": [{"x": [1.0, 2.0, 3.0]}]}))
            assert json.loads(client.recv(60))["seq"] == 1
        assert service.faults() == []
