"""/metrics as Prometheus reads it."""

from __future__ import annotations

from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from service.store.memory import MemoryStore
from tests.service.nodes import posted, serving
from tests.service.test_figures_http import drifted
from tests.service.test_late_labels import SETUPS, labelled


async def scraped(http: httpx.AsyncClient) -> dict[tuple[str, ...], float]:
    """Every sample by its name, its learner, and its class or kind."""
    reply = await http.get("http://rarestream/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(reply.text):
        assert family.documentation
        for sample in family.samples:
            labels = dict(sample.labels)
            key = (sample.name, labels.pop("learner", ""), *labels.values())
            assert key not in found
            found[key] = sample.value
    return found


async def test_each_learner_is_told_by_what_it_has_counted() -> None:
    async with serving(MemoryStore()) as (http, engine):
        nothing = {("rarestream_learners", "", "resident"): 0, ("rarestream_learners", "", "asleep"): 0}
        assert await scraped(http) == {**nothing, ("rarestream_websockets", ""): 0}
        for setup in ("dense", "ordinal"):
            await http.put(f"/learners/{setup}", json=SETUPS[setup])
        assert (await scraped(http))["rarestream_events_total", "dense", "negative"] == 0
        await drifted(http, "dense")
        await posted(http, "/learners/ordinal/update", labelled("ordinal", 0, 20))
        await engine.get("dense").catch_up()
        expected: dict[Any, float] = {
            ("rarestream_learners", "", "resident"): 2,
            ("rarestream_learners", "", "asleep"): 0,
            ("rarestream_events_total", "dense", "negative"): 40,
            ("rarestream_events_total", "dense", "positive"): 10,
            ("rarestream_events_total", "ordinal", "1"): 16,
            ("rarestream_events_total", "ordinal", "2"): 0,
            ("rarestream_events_total", "ordinal", "3"): 4,
            ("rarestream_drift_alarms_total", "dense", "auc"): 0,
            ("rarestream_drift_alarms_total", "dense", "scores"): 1,
            ("rarestream_drift_alarms_total", "ordinal", "auc"): 0,
            ("rarestream_drift_alarms_total", "ordinal", "scores"): 0,
            ("rarestream_position", "dense"): engine.get("dense").position,
            ("rarestream_position", "ordinal"): 2,
            ("rarestream_queued_events", "dense"): 0,
            ("rarestream_queued_events", "ordinal"): 0,
            ("rarestream_websockets", ""): 0,
        }
        assert await scraped(http) == expected
        await http.delete("/learners/ordinal")
        assert {key[1] for key in await scraped(http)} == {"", "dense"}


async def test_it_is_not_part_of_the_documented_interface() -> None:
    async with serving(MemoryStore()) as (http, _):
        document = (await http.get("http://rarestream/openapi.json")).json()
        assert "/metrics" not in document["paths"]
        assert (await http.post("http://rarestream/metrics")).status_code == 405
