"""Makes the recordings with the code at hand: `python -m tests.compatibility record [PART ...]`."""

from __future__ import annotations

import sys
from typing import Any

from tests.compatibility.recordings import brief, without_reasons, write_cases
from tests.compatibility.served import run_served, served_cases
from tests.compatibility.serving import serve
from tests.compatibility.streams import cases, machine, run

_WHOLE_METRICS = {
    "cbr-dense",
    "fofo-table",
    "few-ids",
    "metrics",
    "npsvor-dense",
    "ranksvm-sparse",
    "window-seconds",
    "cbr-diag-named-negative",
    "npsvor-nothing",
    "window-seconds-negative",
}


def _recorded(name: str, outcome: dict[str, Any]) -> dict[str, Any]:
    shorten = without_reasons if name in _WHOLE_METRICS else brief
    return {**outcome, "metrics": shorten(outcome["metrics"])}


def record_streams() -> None:
    """Record the scores, digests and metrics of every stream."""
    streams = {case["name"]: _recorded(case["name"], run(case)) for case in cases()}
    with serve("memory:") as service:
        served = {case["name"]: _recorded(case["name"], run_served(service, case)) for case in served_cases()}
    write_cases("streams.json", {"machine": {"libraries": machine()}, "streams": streams, "served": served})


_PARTS = {"streams": record_streams}


def main(arguments: list[str]) -> int:
    """Record the parts that are named, or all; return the exit status."""
    if not arguments or arguments[0] != "record" or not set(arguments[1:]) <= set(_PARTS):
        print(f"usage: python -m tests.compatibility record [{' | '.join(_PARTS)}]", file=sys.stderr)
        return 2
    for name, record in _PARTS.items():
        if name in (arguments[1:] or _PARTS):
            record()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
