"""Time of a page of scored events while a learner remembers many of them.

    python -m benchmarks.event_pages [--store sqlite:///path|redis://host:port/db] [--events 1000000] [--json FILE]

A service is started, and a client scores the events with an id. Then each request is sent again and again, one after
the other. The times are those of the client, over a socket. Without `--store` it uses a new SQLite file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.serving import serving
from rarestream import Client

__all__ = ["main", "measure"]

LEARNER = "event-pages"
REQUESTS: dict[str, dict[str, Any]] = {
    "newest 50": {},
    "50 alerts": {"status": "alert"},
    "50 highest scores of 10,000": {"sort": "score"},
    "no match in 10,000": {"q": "none"},
}
_BATCH = 20_000  # events per call
_BYTES = 2**34  # remembered at most


def measure(url: str, events: int, repeats: int) -> dict[str, float]:
    """Score the events and return the median seconds of each request."""
    random = np.random.default_rng(5)
    features = {"kind": "dense", "dim": 10}
    late = {"max_events": events, "max_bytes": _BYTES}
    with Client(url) as client:
        learner = client.create(LEARNER, algorithm="cbr-diag", features=features, late=late)
        X = random.normal(size=(_BATCH, 10))
        learner.update(X[:2000], X[:2000, 0] > 1.5)
        for start in range(0, events, _BATCH):
            count = min(_BATCH, events - start)
            learner.predict(X[:count], ids=[f"e{number}" for number in range(start, start + count)])
        seconds: dict[str, float] = {}
        for name, query in REQUESTS.items():
            times = []
            for _ in range(repeats):
                began = time.perf_counter()
                learner.scored_events(limit=50, **query)
                times.append(time.perf_counter() - began)
            seconds[name] = median(times)
        client.delete(LEARNER)
    return seconds


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", help="URL of the store")
    parser.add_argument("--events", type=int, default=1_000_000, help="events to remember")
    parser.add_argument("--repeats", type=int, default=30, help="of each request")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(serving(options.store or f"sqlite:///{folder}/store.db", folder))
        seconds = measure(url, options.events, options.repeats)
    for name, median_seconds in seconds.items():
        print(f"{name}: {median_seconds * 1000:.2f} ms, {options.events:,} remembered")
    if options.json:
        options.json.write_text(json.dumps({"events": options.events, "seconds": seconds}))


if __name__ == "__main__":
    main()
