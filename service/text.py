"""Format metrics and counts for people."""

from __future__ import annotations

import json

__all__ = ["counted", "figure", "printable", "share"]


def counted(n: int, thing: str) -> str:
    """Format a count: `1 event`, `1,234 events`."""
    return f"{n:,} {thing}{'s' * (n != 1)}"


def figure(value: float | None) -> str:
    """Format a metric to four places, `0.9312`; `-` if it is undefined."""
    return "-" if value is None else f"{value:.4f}"


def share(value: float | None) -> str:
    """Format a share in per cent, `1.06 %`; `-` if it is undefined."""
    return "-" if value is None else f"{float(f'{100 * value:.3g}'):.15g} %"


def printable(value: object) -> str:
    """Return a value as it was sent, without characters that would control a terminal."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)
