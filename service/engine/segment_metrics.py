"""Compute the metrics of the values of a learner's segment fields."""

from __future__ import annotations

import asyncio
from typing import Any

from learners import Problem, show
from service.engine.batch_cost import LARGE_WINDOW
from service.engine.replica import LearnerReplica
from service.errors import Invalid

__all__ = ["segment_metrics"]


async def segment_metrics(learner: LearnerReplica, field: str, limit: int, positives: int) -> dict[str, Any]:
    """Return the metrics of the `limit` largest values of a field, of those with so many `positives`.

    Raises `Invalid` for a field that the learner does not declare.
    """
    config = learner.learner.config
    declared = config.figures.segments
    if field not in declared:
        expected = f"expected a segment field: {', '.join(declared)[:300]}"
        detail = f"is {show(field)}; {expected if declared else 'the learner declares no segment fields'}"
        problem = Problem("/by", detail, "invalid", field, {"enum": list(declared)})
        raise Invalid("these segments are not counted", [problem])
    large = config.window > LARGE_WINDOW
    position, review = await learner.read(lambda core: (learner.position, core.review_segments(field)), in_thread=large)
    document = await asyncio.to_thread(review.document, limit, positives)
    return {"name": learner.name, "position": position, **document}
