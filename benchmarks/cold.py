"""The first requests of a service whose kernel cache is empty, beside their bars, and what each kernel takes.

    python -m benchmarks.cold [--quick] [--algorithm auto ...] [--json FILE]

Each algorithm and kind of features gets a new service and an empty cache. Another learner's predictions are measured
until all kernels are compiled. Then a process with another empty cache compiles the same kernels without a service, and
notes the processor's seconds that each takes by itself, without those that it calls.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from numba.core import event
from rich import box
from rich.console import Console
from rich.table import Table

from learners.kernel_warmup import rehearse
from rarestream import Client

__all__ = ["BARS", "KernelCost", "first_requests", "kernel_costs", "main"]

BARS = {"ready": 2.0, "create": 1.0, "update": 1.0, "predict": 1.0, "explain": 1.0, "metrics": 1.0}  # seconds
LATER_BARS = {"compiled": 60.0, "p99": 0.05}  # of the learners' kernels; of predictions by another learner meanwhile
ALGORITHMS = ("auto", "cbr-diag", "loam-ada", "fofo", "gbdt")
KINDS = ("dense", "named")
_COLUMNS = 20
_PATIENCE = 600.0  # seconds until all kernels have to be compiled
_NUMBA = "(functions of numba's own)"
_PAUSE = 0.05  # seconds between predictions of the other learner


class KernelCost(NamedTuple):
    """What it takes to compile a kernel."""

    name: str
    signatures: int
    seconds: float  # of the processor, for all of them, without the kernels that it calls


@contextmanager
def _service(cache: str) -> Iterator[tuple[str, float]]:
    """Run a service with its cache in a folder; yield its address and the seconds until it was ready."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "service", "serve", "--json", "--port", "0", "--log-level", "error"],
        env={**os.environ, "NUMBA_CACHE_DIR": cache, "RARESTREAM_STORE": "memory:"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        url = json.loads(process.stdout.readline())["url"]
        while httpx.get(f"{url}/v1/health/ready").status_code != 200:
            time.sleep(0.01)
        yield url, time.perf_counter() - began
    finally:
        process.terminate()
        process.communicate()


def first_requests(algorithm: str, kind: str, *, until_compiled: bool = True) -> dict[str, float]:
    """Return the seconds of each first request, those until all is compiled, and of another learner's predictions."""
    chance = random.Random(1)
    seconds: dict[str, float] = {}

    def make_event() -> Any:
        values = [chance.gauss(0.0, 1.0) for _ in range(_COLUMNS)]
        return values if kind == "dense" else {f"f{i}": value for i, value in enumerate(values)}

    def measure(name: str, call: Callable[[], Any]) -> None:
        began = time.perf_counter()
        call()
        seconds[name] = time.perf_counter() - began

    with tempfile.TemporaryDirectory() as cache, _service(cache) as (url, ready), Client(url) as client:
        seconds["ready"] = ready
        features = {"kind": "dense", "dim": _COLUMNS} if kind == "dense" else {"kind": "named"}
        events, labels = [make_event() for _ in range(4)], [0, 1, 0, 1]
        learner, other = client.learner("first"), client.learner("other")
        measure("create", lambda: client.create("first", algorithm=algorithm, features=features))
        measure("update", lambda: learner.update(events, labels, ids=["a", "b", "c", "d"]))
        measure("predict", lambda: learner.predict(events[:1]))
        measure("explain", lambda: learner.predict(events[:1], explain=3))
        measure("metrics", learner.metrics)
        if until_compiled:
            seconds |= _observe(url, learner, client.create(other.name, algorithm="fofo", features=features), events)
    return seconds


def _observe(url: str, learner: Any, other: Any, events: list[Any]) -> dict[str, float]:
    """Send small updates to one learner and predictions to another until the kernels that they need are compiled."""
    began = time.perf_counter()
    waits = []
    kernels = {"waiting": 1}
    while kernels["waiting"] and time.perf_counter() - began < _PATIENCE:
        learner.update(events, [0, 1, 0, 1])
        start = time.perf_counter()
        other.predict(events[:1])
        waits.append(time.perf_counter() - start)
        time.sleep(_PAUSE)
        kernels = httpx.get(f"{url}/v1/health/live").json()["kernels"]
    waits.append(waits[-1])  # two, at least
    return {"compiled": time.perf_counter() - began, "p99": statistics.quantiles(waits, n=100)[-1]}


def kernel_costs(algorithms: Sequence[str], kinds: Sequence[str] = KINDS) -> list[KernelCost]:
    """Compile the kernels of learners into an empty cache; return what each took, the longest first."""
    with tempfile.TemporaryDirectory() as cache:
        before = os.environ.get("NUMBA_CACHE_DIR")
        os.environ["NUMBA_CACHE_DIR"] = cache  # of the new process
        try:
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                return pool.submit(_compile, algorithms, kinds).result()
        finally:
            if before is None:
                del os.environ["NUMBA_CACHE_DIR"]
            else:
                os.environ["NUMBA_CACHE_DIR"] = before


class _Stopwatch(event.Listener):
    """Sums the seconds of each kernel, without those of the kernels that it compiles first."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.signatures: Counter[str] = Counter()
        self._open: list[str] = []
        self._since = 0.0

    def on_start(self, event: event.Event) -> None:
        """Begin with a kernel, and interrupt the one that needs it."""
        self._lap()
        function = event.data["dispatcher"].py_func
        ours = function.__module__.startswith(("learners.", "service."))
        self._open.append(f"{function.__module__}.{function.__qualname__}" if ours else _NUMBA)
        self.signatures[self._open[-1]] += 1

    def on_end(self, event: event.Event) -> None:  # noqa: ARG002
        """Continue with the kernel that needed this one."""
        self._lap()
        self._open.pop()

    def _lap(self) -> None:
        now = time.thread_time()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now


def _compile(algorithms: Sequence[str], kinds: Sequence[str]) -> list[KernelCost]:
    stopwatch = _Stopwatch()
    event.register("numba:compile", stopwatch)
    for algorithm in algorithms:
        for kind in kinds:
            rehearse(algorithm, kind)
    return [KernelCost(name, stopwatch.signatures[name], seconds) for name, seconds in stopwatch.seconds.most_common()]


def _print_requests(results: dict[str, dict[str, float]], console: Console) -> None:
    bars = BARS | LATER_BARS
    table = Table(title="seconds of the first requests, with an empty cache", box=box.SIMPLE_HEAD)
    for name in ("", *bars):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("at most", *(f"{bar:g}" for bar in bars.values()))
    for label, seconds in results.items():
        cells = [f"{seconds[name]:.3f}" + "!" * (seconds[name] > bar) for name, bar in bars.items() if name in seconds]
        table.add_row(label, *cells)
    console.print(table)


def _print_kernels(costs: list[KernelCost], console: Console) -> None:
    total = sum(cost.seconds for cost in costs)
    signatures = sum(cost.signatures for cost in costs)
    title = f"{len(costs)} kernels with {signatures} signatures: {total:.1f} s of the processor"
    table = Table(title=title, box=box.SIMPLE_HEAD)
    for name in ("kernel", "signatures", "seconds"):
        table.add_column(name, justify="left" if name == "kernel" else "right")
    for cost in costs:
        table.add_row(cost.name, str(cost.signatures), f"{cost.seconds:.2f}")
    console.print(table)


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.cold", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="dense features, the first requests only")
    parser.add_argument("--algorithm", action="append", help=f"instead of {', '.join(ALGORITHMS)}; repeatable")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args(arguments)
    algorithms, kinds = options.algorithm or ALGORITHMS, KINDS[:1] if options.quick else KINDS
    console = Console()
    results = {
        f"{algorithm} {kind}": first_requests(algorithm, kind, until_compiled=not options.quick)
        for algorithm in algorithms
        for kind in kinds
    }
    _print_requests(results, console)
    costs = [] if options.quick else kernel_costs(algorithms)
    if costs:
        _print_kernels(costs, console)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        document = {"requests": results, "kernels": [cost._asdict() for cost in costs]}
        options.json.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
