"""Does reading wait for learning? Latency of `/predict` while a full-covariance CBR of 300 columns learns flat out.

    python -m benchmarks.latency [--seconds 20] [--json FILE]

One service process on an SQLite store; one client posts batches of 500 events to the learner without a pause, another
asks the same learner for one prediction after the other and takes the time of each. Beside it, in the same run, the
same predictions while nothing learns. The target is a p99 under 10 ms.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.serving import serving

DIM, BATCH = 300, 500
CONFIG: dict[str, Any] = {
    "algorithm": "cbr",
    "params": {"capacity": 50},
    "features": {"kind": "dense", "dim": DIM},
}


def bodies(count: int) -> list[bytes]:
    """Update requests of a noisy stream with 5 % positives: hard, so that most pairs move the model."""
    rng = np.random.default_rng(1)
    made = []
    for _ in range(count):
        y = (rng.random(BATCH) < 0.05).astype(int)
        X = rng.normal(size=(BATCH, DIM)).round(4)
        X[:, 0] += 0.3 * y
        made.append(
            json.dumps(
                {"events": [{"x": x, "label": int(label)} for x, label in zip(X.tolist(), y, strict=True)]}
            ).encode()
        )
    return made


def learn(url: str, stop: threading.Event, learnt: list[int]) -> None:
    """Post batches until told to stop."""
    requests = bodies(8)
    with httpx.Client(timeout=120, trust_env=False) as http:
        while not stop.is_set():
            for body in requests:
                http.post(f"{url}/update", content=body).raise_for_status()
                learnt.append(BATCH)
                if stop.is_set():
                    break


def predict(url: str, seconds: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Milliseconds of each prediction."""
    body = json.dumps({"events": [{"x": np.linspace(-1, 1, DIM).tolist()}]}).encode()
    taken = []
    with httpx.Client(timeout=60, trust_env=False) as http:
        for _ in range(50):
            http.post(f"{url}/predict", content=body).raise_for_status()
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            began = time.perf_counter()
            http.post(f"{url}/predict", content=body).raise_for_status()
            taken.append(1000 * (time.perf_counter() - began))
    return np.array(taken)


def row(name: str, taken: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, Any]:
    """The figures of one condition."""
    p50, p99, p999 = np.percentile(taken, [50, 99, 99.9])
    return {"while": name, "predictions": len(taken), "p50": p50, "p99": p99, "p99.9": p999, "max": taken.max()}


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each of the two measurements")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(f"sqlite:///{Path(folder) / 'log.db'}", Path(folder)) as base:
        url = f"{base}/v1/learners/wide"
        httpx.put(url, json=CONFIG, timeout=60, trust_env=False).raise_for_status()
        for body in bodies(2):  # compile, and fill the buffers
            httpx.post(f"{url}/update", content=body, timeout=300, trust_env=False).raise_for_status()
        stop, learnt = threading.Event(), [0]
        idle = row("nothing learns", predict(url, chosen.seconds))
        learner = threading.Thread(target=learn, args=(url, stop, learnt))
        learner.start()
        began = time.perf_counter()
        busy = row("cbr learns flat out", predict(url, chosen.seconds))
        rate = sum(learnt) / (time.perf_counter() - began)
        stop.set()
        learner.join()
    for one in (idle, busy):
        print(
            f"{one['while']:20}  {one['predictions']:7} predictions  p50 {one['p50']:6.2f} ms  p99 {one['p99']:6.2f} ms"
            f"  p99.9 {one['p99.9']:6.2f} ms  max {one['max']:6.2f} ms"
        )
    verdict = "under" if busy["p99"] < 10 else "NOT under"
    print(f"cbr learnt {rate:.0f} events/s of {DIM} columns meanwhile; its p99 is {verdict} 10 ms")
    if chosen.json:
        chosen.json.write_text(json.dumps({"idle": idle, "busy": busy, "events_per_second": rate}, indent=2))


if __name__ == "__main__":
    main()
