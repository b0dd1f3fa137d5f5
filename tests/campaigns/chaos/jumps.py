"""How often nodes that ran on began again from a snapshot, as the log was trimmed past them: read from their metrics.

A node loads the newest snapshot of each learner when it starts. Nothing makes it load another while it runs but that
the log has none of what follows there (these are counted), or that the store lost records, which it counts itself.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

import httpx

from tests.campaigns.chaos.cluster import Node

__all__ = ["Jumps"]

_LOADS = r'rarestream_store_seconds_count\{operation="load"\}'
_REWOUND = "rarestream_log_rewound_total"
_LOOK_SECONDS = 0.5
_ANSWER_SECONDS = 5.0


@dataclass
class Jumps:
    """Counts jumps at every node now and then, without its proxy; what happens after the last look is not counted."""

    nodes: list[Node]
    count: int = 0
    stopping: bool = False

    async def run(self) -> None:
        """Until told to stop, and for one look more."""
        async with httpx.AsyncClient(timeout=_ANSWER_SECONDS, trust_env=False) as http:
            await asyncio.gather(*(self._watch(http, node) for node in self.nodes))

    async def _watch(self, http: httpx.AsyncClient, node: Node) -> None:
        process, expected = 0, 0  # which it was, and what it had loaded
        while True:
            last = self.stopping
            try:
                request = node.process.pid
                loaded = await self._loaded(http, node, started=request == process)
                same = node.process.pid == request
            except (httpx.TransportError, ProcessLookupError):
                loaded, same = None, False
            if loaded is not None and same:
                if request == process:
                    self.count += max(0, loaded - expected)
                process, expected = request, loaded
            if last:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _loaded(self, http: httpx.AsyncClient, node: Node, started: bool) -> int | None:
        """Snapshots that were loaded since the process began, but for lost records; None while it starts."""
        if not started and (await http.get(f"{node.process.url}/v1/health/ready")).status_code != 200:
            return None
        text = (await http.get(f"{node.process.url}/metrics")).text
        return _value(text, _LOADS) - _value(text, _REWOUND)


def _value(text: str, sample: str) -> int:
    actual = re.search(f"^{sample} (.+)$", text, re.MULTILINE)
    return int(float(actual[1])) if actual else 0
