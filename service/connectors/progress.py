"""The counts of a consumer, for people and programs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from service.connectors.feed import Document
from service.text import counted

__all__ = ["ReadCounts"]


@dataclass
class ReadCounts:
    """The counts of all partitions since the start of the process."""

    read: int = 0  # messages, including those read again after a restart
    empty: int = 0  # of them: without a value
    passed: int = 0  # of them: handled by an earlier process
    schema_headers: int = 0  # of them: with the header of a schema registry
    skipped: int = 0  # of them: malformed, or refused
    learnt: dict[str, int] = field(default_factory=dict)  # labelled events by status: "applied", ...
    scored: int = 0
    alerts: int = 0  # scored events with label 1
    began: float = field(default_factory=time.monotonic)

    def line(self) -> str:
        """Return the counts as a line for people."""
        learnt = {"applied": 0} | {status: count for status, count in self.learnt.items() if count}
        words = {"applied": "learnt", "relabelled": "corrected"}
        parts = [counted(self.read, "message"), *(f"{n:,} {words.get(status, status)}" for status, n in learnt.items())]
        parts += [f"{self.scored:,} scored ({counted(self.alerts, 'alert')})"] if self.scored else []
        parts += [f"{self.passed:,} passed over"] if self.passed else []
        parts += [f"{self.skipped:,} skipped"] if self.skipped else []
        speed = self.read / max(time.monotonic() - self.began, 1e-9)
        return f"{', '.join(parts)}, {speed:,.0f}/s"

    def document(self) -> Document:
        """Return the counts for programs."""
        members = ("read", "empty", "passed", "schema_headers", "skipped", "scored")
        document: Document = {name: getattr(self, name) for name in members}
        statuses = ("applied", "duplicate", "relabelled", "unknown", "expired")
        document |= {"alerts": self.alerts, **{status: self.learnt.get(status, 0) for status in statuses}}
        return document | {"seconds": round(time.monotonic() - self.began, 3)}
