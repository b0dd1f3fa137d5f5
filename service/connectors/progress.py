"""What a consumer has done so far, and how it is told."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from service.connectors.feed import Document
from service.text import counted

__all__ = ["ReadCounts"]


@dataclass
class ReadCounts:
    """Of all partitions together, since the start of the process."""

    read: int = 0  # messages; what is read again after a start is counted again
    empty: int = 0  # of them: without a value
    passed: int = 0  # of them: dealt with before, by a process before this one
    skipped: int = 0  # of them: malformed, or refused
    learnt: dict[str, int] = field(default_factory=dict)  # labelled events by what became of them: "applied", ...
    scored: int = 0
    alerts: int = 0  # scored events with label 1
    began: float = field(default_factory=time.monotonic)

    def line(self) -> str:
        """For people, on one line."""
        learnt = {"applied": 0} | {status: count for status, count in self.learnt.items() if count}
        words = {"applied": "learnt", "duplicate": "known before", "relabelled": "corrected"}
        said = [counted(self.read, "message"), *(f"{n:,} {words.get(status, status)}" for status, n in learnt.items())]
        said += [f"{self.scored:,} scored ({counted(self.alerts, 'alert')})"] if self.scored else []
        said += [f"{self.passed:,} passed over"] if self.passed else []
        said += [f"{self.skipped:,} skipped"] if self.skipped else []
        speed = self.read / max(time.monotonic() - self.began, 1e-9)
        return f"{', '.join(said)}, {speed:,.0f}/s"

    def document(self) -> Document:
        """For programs."""
        found: Document = {name: getattr(self, name) for name in ("read", "empty", "passed", "skipped", "scored")}
        statuses = ("applied", "duplicate", "relabelled", "unknown", "expired")
        found |= {"alerts": self.alerts, **{status: self.learnt.get(status, 0) for status in statuses}}
        return found | {"seconds": round(time.monotonic() - self.began, 3)}
