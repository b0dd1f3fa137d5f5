"""Try thresholds and objectives on the labelled events of a learner's window, without a change of the learner."""

from __future__ import annotations

import asyncio
from typing import Any

from learners import CostChoice, ThresholdReview
from service.engine.batch_cost import LARGE_WINDOW
from service.engine.replica import LearnerReplica
from service.errors import Invalid

__all__ = ["preview_threshold", "threshold_points"]

Document = dict[str, Any]

_PART = "threshold"  # of a learner's settings


async def threshold_points(learner: LearnerReplica, most: int, costs: CostChoice) -> Document:
    """Return the figures at up to `most` thresholds. Raises `Invalid` for an ordinal learner."""
    position, review = await _copy(learner)
    return _named(learner, position, await asyncio.to_thread(review.points, most, costs))


async def preview_threshold(learner: LearnerReplica, settings: object, costs: CostChoice) -> Document:
    """Return what settings of the threshold would have decided. Raises `Invalid` where a change would."""
    try:
        changed = learner.changed_config({_PART: settings})
    except Invalid as error:
        problems = [problem._replace(pointer=problem.pointer.removeprefix(f"/{_PART}")) for problem in error.problems]
        raise Invalid("the preview is refused", problems) from None
    position, review = await _copy(learner)
    return _named(learner, position, await asyncio.to_thread(review.preview, changed, costs))


async def _copy(learner: LearnerReplica) -> tuple[int, ThresholdReview]:
    """Copy what a review reads while the learner is at rest, and its position."""
    config = learner.learner.config
    if config.threshold is None:
        raise Invalid(f"thresholds are for learners of two classes; {config.algorithm} predicts ranks")
    large = config.window > LARGE_WINDOW
    return await learner.read(lambda core: (learner.position, ThresholdReview.of(core)), in_thread=large)


def _named(learner: LearnerReplica, position: int, document: Document) -> Document:
    return {"name": learner.name, "position": position, **document}
