"""Describe the fields of a learner of named events: how their values were sent, and what contradicts their kinds."""

from __future__ import annotations

from typing import Any

from learners import LearnerView

__all__ = ["describe_fields"]

_NO_NAMES = "only learners of named features remember fields"


def describe_fields(view: LearnerView, position: int) -> dict[str, Any]:
    """Return the document of `GET /v1/learners/{name}/fields`. O(fields)."""
    summaries, events = view.fields, view.field_events
    fields = [
        {
            "name": field.name.encode("utf-8", "backslashreplace").decode(),
            "kind": field.kind.name.lower(),
            "declared": field.declared,
            "values": field.values,
            "missing": events - field.values,
            **field.counts,
            "smallest": field.smallest,
            "largest": field.largest,
            "low": field.low,
            "high": field.high,
            "last": field.last,
            "remarks": field.remarks(events),
        }
        for field in summaries or []
    ]
    reason = _NO_NAMES if summaries is None else None
    return {
        "position": position,
        "events": events,
        "fields": fields,
        "absent": view.absent_fields,
        "omitted": view.fields_full,
        "reason": reason,
    }
