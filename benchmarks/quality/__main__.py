"""Quality of learners on real streams, untuned, beside what one would use instead.

    python -m benchmarks.quality --datasets DIR [--peers] [--only ijcnn1 ...] [--events N] [--out DIR]
    python -m benchmarks.quality --stream FILE --label COLUMN [--peers]

Each contestant scores an event before its label is known. The first table has AUC and average precision of the last
half, and the gap of `auto` to the best peer with its bootstrap interval. The second one has all figures of `auto`, and
the third one its decisions: at the start, and from 100 known positives on beside the best threshold in hindsight.
`--out` gets every figure as JSON, the tables as Markdown, and a picture. A contestant's scores are kept there, and a
second run goes on where the first stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress, TaskID, TimeElapsedColumn

from benchmarks.quality.contestants import OURS, PEERS, Outcome
from benchmarks.quality.scoring import ENOUGH, FEW, YOUNG, Decisions, decisions_of, interval, judge
from benchmarks.quality.streams import STREAMS, Stream, read, read_file

Row = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__.split("\n")[0])
    parser.add_argument("--datasets", type=Path, help="folder of the data sets")
    parser.add_argument("--only", nargs="+", choices=sorted(STREAMS), metavar="STREAM", help="some of the streams")
    parser.add_argument("--stream", type=Path, help="a CSV file with a header instead")
    parser.add_argument("--label", default="label", help="its column of labels; the rarest value is positive")
    parser.add_argument("--peers", action="store_true", help="also run River, Vowpal Wabbit, scikit-learn and LightGBM")
    parser.add_argument("--contestants", nargs="+", choices=[*OURS, *PEERS], help="some of the contestants")
    parser.add_argument("--events", type=int, help="only the first N events of each stream")
    parser.add_argument("--out", type=Path, default=Path("quality-results"), help="folder of the results")
    options = parser.parse_args(arguments)
    if (options.datasets is None) == (options.stream is None):
        parser.error("give --datasets or --stream")
    contestants = options.contestants or [*OURS, *(PEERS if options.peers else ())]
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    names = (options.only or list(STREAMS)) if options.stream is None else [str(options.stream)]
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(names) * len(contestants))
        for name in names:
            progress.update(task, description=name)
            stream = (
                read(name, options.datasets) if options.stream is None else read_file(options.stream, options.label)
            ).first(options.events)
            rows += _run(stream, contestants, options.out, progress, task)
            (options.out / "table.md").write_text(_tables(rows))
            (options.out / "figures.json").write_text(json.dumps(rows, indent=1))
    print(_tables(rows))
    _picture(rows, options.out / "gaps.png")
    return 0


def _run(stream: Stream, contestants: list[str], folder: Path, progress: Progress, task: TaskID) -> list[Row]:
    half = slice(len(stream) // 2, None)
    outcomes: dict[str, Outcome] = {}
    for number, name in enumerate(contestants):
        progress.update(task, description=f"{stream.name}: {name}", advance=number > 0)
        file = folder / f"{stream.name}-{len(stream)}-{name}.npz"
        if file.exists():
            with np.load(file) as arrays:
                outcomes[name] = Outcome(**{field: arrays[field] for field in arrays})
            continue
        try:
            outcomes[name] = ({**OURS, **PEERS})[name](stream)
        except ModuleNotFoundError as error:
            progress.console.print(f"{name} is left out ({error}): pip install '.[bench,peers]'", markup=False)
            continue
        except (ValueError, TypeError) as error:  # the contestant does not take such events
            progress.console.print(f"{stream.name}: {name}: {error}", markup=False)
            continue
        fields = {field: value for field, value in outcomes[name]._asdict().items() if value is not None}
        np.savez(file, **fields)
    progress.advance(task)
    rows: list[Row] = []
    for name, outcome in outcomes.items():
        if not np.isfinite(outcome.scores).all():
            continue
        parts = [
            judge(
                stream.positive[part],
                outcome.scores[part],
                *(None if column is None else column[part] for column in (outcome.decisions, outcome.probabilities)),
            )
            for part in (slice(None), half)
        ]
        row = {"stream": stream.name, "contestant": name, "events": len(stream), "seconds": float(outcome.seconds)}
        row["positive"] = [float(stream.positive.mean()), float(stream.positive[half].mean())]
        row |= {"whole": parts[0]._asdict(), "half": parts[1]._asdict()}
        if outcome.decisions is not None:
            judged = decisions_of(stream.positive, stream.known_positives(), outcome.decisions, outcome.probabilities)
            row["decisions"] = judged._asdict()
        rows.append(row)
        figures = "  ".join(f"{field} {value:.4f}" for field, value in parts[1]._asdict().items())
        progress.console.print(f"{stream.name:20} {name:14} {figures}  {outcome.seconds:.0f} s", highlight=False)
    peers = [row for row in rows if row["contestant"] in PEERS]
    if peers and "auto" in outcomes:
        best = max(peers, key=lambda row: row["half"]["auc"])["contestant"]
        low, high = interval(stream.positive[half], outcomes["auto"].scores[half], outcomes[best].scores[half])
        next(row for row in rows if row["contestant"] == "auto")["interval"] = [low, high]
    return rows


def _tables(rows: list[Row]) -> str:
    return "\n".join([_comparison(rows), _figures_of_auto(rows), _decisions_of_auto(rows)])


def _decisions_of_auto(rows: list[Row]) -> str:
    """Return a Markdown table of what `auto` decided, beside the one threshold that is best in hindsight."""
    titles = [
        f"alerts until {FEW} positives are known",
        "positive among these",
        f"alerts from {ENOUGH} on, by those of the best threshold",
        "F1",
        "best F1",
        f"ECE after {YOUNG:,} events",
    ]
    lines = [f"| stream | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
    for row in rows:
        if row["contestant"] == "auto":
            cells = [
                f"{row['decisions'][name]:.4f}" if name == "ece" else f"{row['decisions'][name]:.3f}"
                for name in Decisions._fields
            ]
            lines.append(f"| {row['stream']} | {' | '.join(cells)} |".replace("nan", "-"))
    return "\n".join(lines) + "\n"


def _figures_of_auto(rows: list[Row]) -> str:
    """Return a Markdown table of all figures of `auto`: of the whole stream / of its last half."""
    titles = {"auc": "AUC", "ap": "AP", "recall": "recall at 1 % FPR", "f1": "F1", "alerts": "alert rate", "ece": "ECE"}
    lines = [f"| stream | positive | {' | '.join(titles.values())} |", "|---" * (len(titles) + 2) + "|"]
    for row in rows:
        if row["contestant"] == "auto":
            cells = [f"{row['whole'][name]:.3f} / {row['half'][name]:.3f}" for name in titles]
            shares = f"{row['positive'][0]:.3f} / {row['positive'][1]:.3f}"
            lines.append(f"| {row['stream']} | {shares} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _comparison(rows: list[Row]) -> str:
    """Return a Markdown table: a stream in a row, a contestant in a column, AUC / AP of the last half."""
    names = list(dict.fromkeys(row["contestant"] for row in rows))
    lines = [f"| stream | {' | '.join(names)} | auto - best peer |", "|---" * (len(names) + 2) + "|"]
    gaps = []
    for stream in dict.fromkeys(row["stream"] for row in rows):
        cells = {row["contestant"]: row for row in rows if row["stream"] == stream}
        line = [f"{r['half']['auc']:.3f} / {r['half']['ap']:.3f}" if (r := cells.get(name)) else "-" for name in names]
        line.append("-")
        if gap := _gap(cells):
            gaps.append(gap)
            low, high = cells["auto"].get("interval", (np.nan, np.nan))
            line[-1] = f"{gap[0]:+.3f} ({low:+.3f} to {high:+.3f}) / {gap[1]:+.3f}"
        lines.append(f"| {stream} | {' | '.join(line)} |")
    if gaps:
        wins = sum(gap[0] >= 0 for gap in gaps), sum(gap[1] >= 0 for gap in gaps)
        mean = np.mean(gaps, axis=0)
        lines.append(
            f"\nMean gap of auto to the best peer: AUC {mean[0]:+.4f}, AP {mean[1]:+.4f}. At or above it on {wins[0]} "
            f"and {wins[1]} of {len(gaps)} streams."
        )
    return "\n".join(lines) + "\n"


def _gap(cells: dict[str, Row]) -> tuple[float, float] | None:
    """Return the gaps of auto to the best peer's AUC and to the best peer's AP."""
    peers = [row["half"] for name, row in cells.items() if name in PEERS]
    if not peers or "auto" not in cells:
        return None
    ours = cells["auto"]["half"]
    return ours["auc"] - max(p["auc"] for p in peers), ours["ap"] - max(p["ap"] for p in peers)


def _picture(rows: list[Row], path: Path) -> None:
    """Draw the gap of auto to the best peer on each stream."""
    from matplotlib.figure import Figure

    streams = {row["stream"]: {r["contestant"]: r for r in rows if r["stream"] == row["stream"]} for row in rows}
    gaps = {name: gap for name, cells in streams.items() if (gap := _gap(cells))}
    if not gaps:
        return
    figure = Figure(figsize=(8, 0.35 * len(gaps) + 1.5), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(gaps))
    axes.barh(places - 0.2, [gap[0] for gap in gaps.values()], 0.4, label="AUC")
    axes.barh(places + 0.2, [gap[1] for gap in gaps.values()], 0.4, label="average precision")
    axes.set_yticks(places, list(gaps))
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel("auto minus the best peer, last half of the stream")
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
