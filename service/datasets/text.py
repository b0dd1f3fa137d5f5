"""A figure as people read it, `-` where there is none; and counts in words."""

from __future__ import annotations

__all__ = ["counted", "figure", "share"]


def counted(n: int, thing: str) -> str:
    """1 event, 1,234 events."""
    return f"{n:,} {thing}{'s' * (n != 1)}"


def figure(value: float | None) -> str:
    """To four places: 0.9312."""
    return "-" if value is None else f"{value:.4f}"


def share(value: float | None) -> str:
    """In per cent, as the dashboard has it: 1.06 %."""
    return "-" if value is None else f"{float(f'{100 * value:.3g}'):.15g} %"
