"""Scrape an application as Prometheus does, and read it with the client library's parser."""

from __future__ import annotations

from typing import Any

import httpx
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Key", "families", "samples", "scrape"]

Key = tuple[str, tuple[tuple[str, str], ...]]  # a sample's name and its labels, sorted


async def scrape(http: httpx.AsyncClient) -> str:
    """Scrape the metrics and return the text."""
    reply = await http.get("http://rarestream/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return reply.text


def families(text: str) -> list[Metric]:
    """Parse the families of a scrape."""
    return list(text_string_to_metric_families(text))


def samples(text: str, *names: str) -> dict[Any, float]:
    """Return samples by name and labels, each exactly once; only of `names`, if there are any."""
    values: dict[Key, float] = {}
    for family in families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in values, key
            if not names or sample.name in names:
                values[key] = sample.value
    return values
