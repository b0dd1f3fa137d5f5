"""How often alarms and verdicts are wrong, and how soon right ones come.

    python -m benchmarks.alarms [--quick] [--streams 1000] [--json FILE]

Streams of scores and labels without a learner (`alarm_streams.py`). Three questions:

1. The sequential tests (`learners/metrics/sequential_tests.py`), read after every event: the share of streams of two
   different scorers of equal AUC with a verdict (at most 5 %), and the positives until a verdict if one is better.
2. The drift alarms (`learners/metrics/drift.py`): false alarms per 100,000 stationary events, and the delay after a
fall
   by ten points after 500 positives. The same for the scores of served events, also of learners that go on learning,
   for positive labels that stop arriving, and for fields that get worse (`learners/features/field_quality.py`).
3. The cost of an event and of a poll.

Limits are 95 % upper limits: Clopper-Pearson for shares, Garwood for rates.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any

import numba
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from scipy.stats import beta, chi2

from benchmarks.alarm_streams import (
    BEFORE,
    CHANGES,
    EARLY,
    FIELDS,
    LEARNERS,
    LONGEST,
    NUMBERS,
    RUN_IN,
    SETTINGS,
    STEADY,
    WITHIN,
    WORSE,
    WORSE_NUMBERS,
    Effort,
    costs,
    falls,
    false_alarms,
    learning,
    served,
    silences,
    steady_fields,
    steady_numbers,
    verdicts,
    worse_fields,
    worse_numbers,
)

__all__ = ["main"]

FULL = Effort(1000, 300, 10_000, 40_000, 200, 100_000, 0.5)
QUICK = Effort(40, 10, 2_000, 10_000, 2, 100_000, 0.05)


def most_of(k: int, n: int) -> float:
    """Return the 95 % upper limit of a share, from k of n."""
    return 1.0 if k == n else float(beta.ppf(0.95, k + 1, n - k))


def most_rate(k: int) -> float:
    """Return the 95 % upper limit of the mean of a Poisson variable, from a count k."""
    return float(chi2.ppf(0.95, 2 * k + 2) / 2)


def measured(effort: Effort, console: Console) -> dict[str, Any]:
    """All figures; each table is printed once it is there."""

    def show(title: str, columns: list[str], rows: list[list[str]]) -> None:
        table = Table(columns[0], box=box.SIMPLE_HEAD, pad_edge=False)
        for column in columns[1:]:
            table.add_column(column, justify="right")
        for row in rows:
            table.add_row(*row)
        console.print(title, highlight=False, soft_wrap=True)
        console.print(table)

    figures: dict[str, Any] = {}
    rows = figures["equals"] = []
    for setting in SETTINGS:
        k = int(np.count_nonzero(verdicts(setting, effort, 0.8) >= 0))
        rows.append({"setting": setting.name, "share": setting.share, "verdicts": k, "streams": effort.streams})
    show(
        "1. two different scorers of equal AUC: streams with a verdict, looked at after every event (at most 5 % may)",
        ["stream", "positives", "verdicts", "of streams", "share", "limit"],
        [
            [
                row["setting"],
                f"{row['share']:.0%}",
                str(row["verdicts"]),
                f"{row['streams']:,}",
                f"{row['verdicts'] / row['streams']:.1%}",
                f"{most_of(row['verdicts'], row['streams']):.1%}",
            ]
            for row in rows
        ],
    )
    rows = figures["differences"] = []
    for setting in SETTINGS[:4]:
        for difference in (0.02, 0.05, 0.1):
            counts = verdicts(setting, effort, 0.8 + difference)
            delays = np.where(counts < 0, np.inf, counts)
            middle = float(np.median(delays))
            rows.append(
                {
                    "setting": setting.name,
                    "difference": difference,
                    "found": float((counts >= 0).mean()),
                    "median": middle if np.isfinite(middle) else None,
                }
            )
    show(
        f"   AUC .8 against .82, .85, .9: median number of positives until a verdict ({effort.powers} streams each)",
        ["stream", ".02", ".05", ".1"],
        [
            [
                setting.name,
                *(
                    f"{row['median']:,.0f} ({row['found']:.0%})" if row["median"] else f"more ({row['found']:.0%})"
                    for row in rows
                    if row["setting"] == setting.name
                ),
            ]
            for setting in SETTINGS[:4]
        ],
    )
    shares = (0.005, 0.05, 0.5)
    rows = figures["false alarms"] = []
    stationary = ((0.6, 0.0), (0.75, 0.0), (0.75, 0.5), (0.75, 1.5), (0.9, 0.0), (0.99, 0.0))
    for auc, levels in stationary:
        for share in shares:
            k, events = false_alarms(auc, levels, share, effort)
            rows.append({"auc": auc, "levels": levels, "share": share, "alarms": k, "events": events})
    scale = effort.stationary * effort.events / 100_000
    show(
        f"2. false alarms of a fall of AUC per 100,000 stationary events, and limit ({effort.stationary} streams each)",
        ["AUC", *(f"{share:.1%} positives" for share in shares)],
        [
            [
                f"{auc}, scores rounded to {levels}" if levels else str(auc),
                *(
                    f"{row['alarms'] / scale:.3f} (< {most_rate(row['alarms']) / scale:.3f})"
                    for row in rows
                    if (row["auc"], row["levels"]) == (auc, levels)
                ),
            ]
            for auc, levels in stationary
        ],
    )
    rows = figures["falls"] = []
    for before in (0.95, 0.9, 0.85, 0.75):
        for share in shares:
            streams = effort.streams if share > 0.01 else -(-effort.streams // 5)
            late, early = falls(before, share, streams)
            rows.append(
                {
                    "before": before,
                    "share": share,
                    "streams": streams,
                    "within": float(np.count_nonzero(late <= WITHIN) / streams),
                    "median": float(np.median(late)) if len(late) else None,
                    "mean": float(late.mean()) if len(late) else None,
                    "found": len(late) / streams,
                    "early": early,
                }
            )
    show(
        f"   a fall by ten points after {RUN_IN} positives: found within {WITHIN} positives; median and mean delay in"
        f" positives of those found within {LONGEST}, and how many these are",
        ["fall", *(f"{share:.1%} positives" for share in shares)],
        [
            [
                f"{before} -> {before - 0.1:.2f}",
                *(
                    "{within:.1%}; {median:.0f}, {mean:.0f}, {found:.1%}".format_map(row) if row["found"] else "none"
                    for row in rows
                    if row["before"] == before
                ),
            ]
            for before in (0.95, 0.9, 0.85, 0.75)
        ],
    )
    rows = figures["served"] = [served(change, effort) for change in CHANGES]
    show(
        "   scores of served events: alarms",
        ["change", "alarms", "median delay in events"],
        [
            [
                row["change"],
                f"{row['alarms'] / scale:.3f} (< {most_rate(row['alarms']) / scale:.3f}) per 100,000"
                if "alarms" in row
                else f"{row['found']:.1%} found",
                f"{row['median']:,.0f}" if row.get("median") else "",
            ]
            for row in rows
        ],
    )
    rows = figures["learning"] = []
    for algorithm in LEARNERS:
        alarms, events = learning(algorithm, effort)
        rows.append({"algorithm": algorithm, "alarms": alarms, "events": events})
    show(
        "   scores of learners that learn, from their first event on, on stationary streams: alarms per 100,000 events",
        ["algorithm", "alarms"],
        [
            [
                row["algorithm"],
                f"{row['alarms'] / row['events'] * 1e5:.3f} (< {most_rate(row['alarms']) / row['events'] * 1e5:.3f})",
            ]
            for row in rows
        ],
    )
    rows = figures["silences"] = [silences(share, burst, effort) for share in shares for burst in (1, 10)]
    show(
        f"   positive labels that stop after {RUN_IN} positives: false alarms per 100,000 stationary events; found, and"
        " median delay in mean gaps between bursts",
        ["positives", "false alarms", "found", "delay"],
        [
            [
                f"{row['share']:.1%}" + (f" in bursts of {row['burst']}" if row["burst"] > 1 else ""),
                f"{row['alarms'] / scale:.3f} (< {most_rate(row['alarms']) / scale:.3f})",
                f"{row['found']:.1%}",
                f"{row['median']:.1f}" if row["median"] else "",
            ]
            for row in rows
        ],
    )
    rows = figures["steady fields"] = []
    for name in STEADY:
        alarms, early, events = steady_fields(name, effort)
        rows.append({"stream": name, "alarms": alarms, "early": early, "events": events})
    show(
        f"   {FIELDS} fields whose missing values, new categories, values of the wrong kind and numbers out of range"
        f" all come like this: alarms per 100,000 events, and of these in the first {EARLY:,}",
        ["stream", "alarms", "early"],
        [
            [
                row["stream"],
                f"{row['alarms'] / row['events'] * 1e5:.3f} (< {most_rate(row['alarms']) / row['events'] * 1e5:.3f})",
                f"{row['early'] / row['events'] * 1e5:.3f}",
            ]
            for row in rows
        ],
    )
    rows = figures["steady numbers"] = []
    for name in NUMBERS:
        alarms, early, out, events = steady_numbers(name, effort)
        rows.append({"numbers": name, "alarms": alarms, "early": early, "out": out, "events": events})
    show(
        f"   {FIELDS} fields of numbers like this: share out of range, alarms per 100,000 events, and of these in the"
        f" first {EARLY:,}",
        ["numbers", "out of range", "alarms", "early"],
        [
            [
                row["numbers"],
                f"{row['out']:.3%}",
                f"{row['alarms'] / row['events'] * 1e5:.3f} (< {most_rate(row['alarms']) / row['events'] * 1e5:.3f})",
                f"{row['early'] / row['events'] * 1e5:.3f}",
            ]
            for row in rows
        ],
    )
    rows = figures["worse fields"] = []
    for run in BEFORE:
        rows += [worse_fields(change, run, effort) for change in range(len(WORSE))]
        rows += [worse_numbers(change, run, effort) for change in range(len(WORSE_NUMBERS))]
    show(
        "   a field that gets worse after so many events: found, and delay in events",
        ["change", "after", "found", "median delay", "longest"],
        [
            [
                row["change"],
                f"{row['after']:,}",
                f"{row['found']:.1%}",
                f"{row['median']:,.0f}" if row["median"] else "",
                f"{row['most']:,}" if row["most"] else "",
            ]
            for row in rows
        ],
    )
    rows = figures["costs"] = costs(effort)
    show("3. costs", ["what", "median"], [[row["what"], f"{row['median']:,.1f} {row['unit']}"] for row in rows])
    return figures


def main() -> None:
    """Measure, print the tables, write JSON."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.alarms", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few and short streams: some seconds once compiled")
    parser.add_argument("--streams", type=int, help="streams of equal scorers, and of falls; default 1000")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/alarms.json"), help="written here")
    options = parser.parse_args()
    effort = QUICK if options.quick else FULL
    if options.streams is not None:
        if options.streams < 1:
            parser.error("--streams: expected at least 1")
        effort = effort._replace(streams=options.streams)
    console = Console(width=max(100, Console().width))
    figures = measured(effort, console)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    versions = {"python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(
        json.dumps({"effort": effort._asdict(), "machine": machine | versions, **figures}, indent=1)
    )
    console.print(f"Written: {options.json}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
