"""The output of `predict`: a line per event, in order, as soon as it is scored."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.text import Text

__all__ = ["CsvLines", "JsonLines", "ScoreWriter", "TableLines", "decision_of"]

Result = Mapping[str, Any]

_ID_WIDTH = 24  # of a table; longer ids shift the rest of their line


def decision_of(decision: int | None, *, ranks: bool = False) -> str:
    """Format a decision, or the rank of an ordinal learner."""
    if decision is None:
        return "not ready"
    return str(decision) if ranks else ("no", "ALERT")[decision]


class ScoreWriter(Protocol):
    """Prints results on standard output."""

    def write(self, results: Sequence[Result], first: int) -> None:
        """Print the results of events from number `first` on."""
        ...


class JsonLines:
    """Prints each result of the service as a line of JSON."""

    def write(self, results: Sequence[Result], first: int) -> None:  # noqa: ARG002 (the order is enough)
        """Print the results; see `ScoreWriter`."""
        for result in results:
            print(json.dumps(result))


class CsvLines:
    """Prints id, score, probability, threshold and label, or for ordinal learners id, score and rank; null is empty."""

    def __init__(self) -> None:
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        self._names: list[str] = []

    def write(self, results: Sequence[Result], first: int) -> None:  # noqa: ARG002 (the order is enough)
        """Print the results without explanations, which only JSON has; see `ScoreWriter`."""
        if results and not self._names:
            self._names = [name for name in results[0] if name != "explanation"]
            self._writer.writerow(self._names)
        for result in results:
            self._writer.writerow([result[name] for name in self._names])


class TableLines:
    """Prints a table, with alerts in red on a terminal and explanations at the end of lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._has_rows = False

    def write(self, results: Sequence[Result], first: int) -> None:
        """Print the results; see `ScoreWriter`."""
        for number, result in enumerate(results, first):
            ranks = "rank" in result
            if not self._has_rows:
                self._has_rows = True
                names = ["score"] if ranks else ["score", "probability", "threshold"]
                head = f"{'event':<{_ID_WIDTH}}" + "".join(f"{name:>12}" for name in names)
                self._print(f"{head}  {'rank' if ranks else 'decision'}", "bold")
            name = str(number) if result["id"] is None else result["id"]
            values = [result["score"]] if ranks else [result[key] for key in ("score", "probability", "threshold")]
            line = f"{name:<{_ID_WIDTH}}" + "".join(map(_cell, values))
            decision = decision_of(result["rank"] if ranks else result["label"], ranks=ranks)
            line += f"  {decision}"
            if result.get("explanation") is not None:
                line = f"{line:<{_ID_WIDTH + 50}} {_why(result['explanation'])}"
            self._print(line.rstrip(), "red" if decision == "ALERT" else "")

    def _print(self, line: str, style: str) -> None:
        self._console.print(Text(line, style), soft_wrap=True)


def _cell(value: float | None) -> str:
    return f"{'-':>12}" if value is None else f"{value:>12.6g}"


def _why(explanation: Mapping[str, Any]) -> str:
    return ", ".join(f"{feature['name']} {feature['contribution']:+.3g}" for feature in explanation["features"])
