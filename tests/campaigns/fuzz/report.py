"""What a part of the campaign has tried, what became of it, and what did not hold."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Report", "until"]

_MAX_LINES = 20  # of what did not hold


@dataclass
class Report:
    """Of one part."""

    part: str
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # by what was tried, and what became of it
    figures: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Something was tried, and all of it held."""
        return bool(self.counts) and not self.wrong

    @property
    def tried(self) -> int:
        """How much was tried."""
        return sum(self.counts.values())

    def note(self, what: str, became: object) -> None:
        """One was tried."""
        self.counts[what, str(became)] += 1

    def fail(self, detail: str) -> None:
        """Something did not hold."""
        self.wrong.append(detail)

    def lines(self) -> list[str]:
        """As a table, for people."""
        kinds = sorted({what for what, _ in self.counts})
        report = [f"{self.part}: {self.tried} tried, {len(self.wrong)} did not hold"]
        for what in kinds:
            became = {name: n for (kind, name), n in sorted(self.counts.items()) if kind == what}
            parts = ", ".join(f"{name} {n}" for name, n in became.items())
            report.append(f"  {what:<44} {sum(became.values()):>8}  {parts}")
        report += [f"  {name:<44} {value}" for name, value in self.figures.items()]
        report += [f"  WRONG: {item[:1000]}" for item in self.wrong[:_MAX_LINES]]
        return report


def until(seconds: float, count: int | None = None) -> Iterator[int]:
    """0, 1, 2, ... for so many seconds, and at most `count` of them."""
    end = time.monotonic() + seconds
    i = 0
    while time.monotonic() < end and (count is None or i < count):
        yield i
        i += 1
