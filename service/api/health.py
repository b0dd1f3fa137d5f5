"""Describes what is wrong with this node and its store, for the health routes and the dashboard."""

from __future__ import annotations

from typing import Any

from learners.numerics import kernel_counts, kernel_trouble
from service.engine import Engine
from service.text import counted

__all__ = ["health_of"]


def health_of(engine: Engine) -> dict[str, Any]:
    """Return the document `Health`. O(learners in memory)."""
    status = "ok"
    unavailable = len(engine.registry.unavailable)
    node = engine.node
    rewinds, damages = node.rewinds, node.damaged_logs
    wrong_clock, trouble, uncompiled = node.clock_check.problem, node.background.trouble, kernel_trouble()
    details = [
        node.unreachable,
        node.full,
        node.store.fault,
        node.store.caution,
        wrong_clock,
        trouble,
        node.webhooks.trouble,
        uncompiled,
    ]
    if damages:
        details.append(
            f"damaged snapshots of {counted(damages, 'log')} in the last ten minutes: older ones and the log "
            "are used instead. Check the disk of the store"
        )
    failed = sum(replica.failure is not None for replica in engine.registry.all())
    if failed:
        details.append(
            f"learners or groups that cannot continue: {failed}. `failed` in GET /v1/learners or /v1/groups says why, "
            "and what to do"
        )
    if rewinds:
        details.append(
            f"the store lost acknowledged records of {counted(rewinds, 'log')} in the last ten minutes. "
            "The log says which and how far; send the events since then again"
        )
    if unavailable:
        details.append(
            f"learners or groups that cannot be recovered: {unavailable}. GET /v1/learners says which and why"
        )
    if node.unreachable is not None:
        status = "store-unavailable"
    elif not engine.ready:
        status = "starting"
    elif node.full is not None:
        status = "store-full"
    elif any((unavailable, failed, rewinds, damages, wrong_clock, trouble, uncompiled, node.store.fault)):
        status = "degraded"
    return {
        "status": status,
        "detail": "; ".join(filter(None, details)) or None,
        "learners": engine.learners,
        "unavailable": unavailable,
        "stale_seconds": node.stale_seconds,
        "kernels": kernel_counts()._asdict(),
    }
