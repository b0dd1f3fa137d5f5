"""What Prometheus sees of an application: a scrape, read with the client library's own parser."""

from __future__ import annotations

from typing import Any

import httpx
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Key", "families", "samples", "scrape"]

Key = tuple[str, tuple[tuple[str, str], ...]]  # a sample's name and its labels, sorted


async def scrape(http: httpx.AsyncClient) -> str:
    """The text of a scrape."""
    reply = await http.get("http://rarestream/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return reply.text


def families(text: str) -> list[Metric]:
    """Every family of a scrape."""
    return list(text_string_to_metric_families(text))


def samples(text: str, *names: str) -> dict[Any, float]:
    """Samples by name and labels, each but once; of these names only, where some are given."""
    found: dict[Key, float] = {}
    for family in families(text):
        for one in family.samples:
            key = (one.name, tuple(sorted(one.labels.items())))
            assert key not in found, key
            if not names or one.name in names:
                found[key] = one.value
    return found
