"""Capacity of the service on loopback, with client and server on one core each: tables and targets.

    python -m benchmarks.service [--case NAME ...] [--peers] [--quick] [--json FILE] [--datasets DIR]

Cases: predict, update, ingest, socket, reading, fair, memory, workers, and with --peers also what other programs
make of one stream.
Contestants are measured in turn, A B A B; figures are medians over the rounds. They say little on a machine that does
anything else meanwhile.

The peers are installed by `pip install '.[peers]'`; those that clash with what rarestream needs (mlserver) go into an
environment of their own, whose interpreter is named by --peers-python. What is not installed is left out, and said.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.papers.datasets import file_of
from benchmarks.service import fairness, ingest, many, peers, pipelined, predict, reading, update, workers
from benchmarks.service.processors import Cores, choose, pinned
from benchmarks.service.report import print_case
from benchmarks.service.rounds import Run

__all__ = ["CASES", "main"]

CASES = {
    "predict": predict.measure,
    "update": update.measure,
    "ingest": ingest.measure,
    "socket": pipelined.measure,
    "reading": reading.measure,
    "fair": fairness.measure,
    "memory": many.measure,
    "workers": workers.measure,
    "peers": peers.measure,
}
ROUNDS, SECONDS = 5, 1.5  # seconds of a contestant in a round
QUICK_ROUNDS, QUICK_SECONDS = 2, 0.05


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.service", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this one; may be repeated")
    parser.add_argument("--peers", action="store_true", help="other programs on the same stream, too")
    parser.add_argument(
        "--peers-python", type=Path, default=sys.executable, help="that has the peers; default: this one"
    )
    parser.add_argument("--rounds", type=int, help=f"turns of each contestant ({ROUNDS})")
    parser.add_argument("--seconds", type=float, help=f"of a turn ({SECONDS})")
    parser.add_argument("--quick", action="store_true", help="tiny turns: whether it runs, no figures to rely on")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--datasets", type=Path, help="the folder with covtype, the peers' stream; made up without it")
    options = parser.parse_args(arguments)
    if options.datasets is not None and file_of(options.datasets, "covtype") is None:
        parser.error(f"{options.datasets} has no covtype.npz and no covtype.svm")
    if (options.rounds is not None and options.rounds < 1) or (options.seconds is not None and options.seconds <= 0):
        parser.error("--rounds and --seconds have to be more than 0")
    names = options.case or [name for name in CASES if name != "peers"]
    names = list(dict.fromkeys([*names, "peers"] if options.peers else names))
    cores = choose()
    console = Console(width=None if sys.stdout.isatty() else 160)
    machine = _machine(cores)
    console.print(machine, highlight=False)
    cases = []
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, pinned(cores.client):
        usual = (QUICK_ROUNDS, QUICK_SECONDS) if options.quick else (ROUNDS, SECONDS)
        rounds, seconds = options.rounds or usual[0], options.seconds or usual[1]
        for name in names:
            place = Path(folder, name)
            place.mkdir()
            run = Run(cores, place, rounds, seconds, options.quick, options.datasets, options.peers_python)
            cases.append(CASES[name](run))
            print_case(cases[-1], console)
    console.print(f"{time.perf_counter() - began:.0f} s, {rounds} rounds of {seconds:g} s", highlight=False)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        figures: dict[str, Any] = {"machine": machine, "cores": cores._asdict(), "rounds": rounds, "seconds": seconds}
        options.json.write_text(json.dumps({**figures, "cases": [case.as_json() for case in cases]}, indent=1))


def _machine(cores: Cores) -> str:
    text = (
        f"Python {platform.python_version()}, {os.cpu_count()} cores: server on {cores.server}, "
        f"sender on {cores.client}, Redis on {cores.redis}; load {os.getloadavg()[0]:.1f} before the start"
    )
    return f"{text}\nONE CORE ONLY: the sender takes its time from the server" if cores.shared else text


if __name__ == "__main__":
    main()
