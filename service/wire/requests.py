"""Decoded requests and results: what every coding reads and writes, and the engine executes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners import BatchOutcome, LabelledBatch, Segment, slice_rows
from learners.numerics import Rows, Vector
from learners.segments import SegmentColumns

__all__ = ["Events", "Labelled", "Learnt"]


class Events(NamedTuple):
    """n unlabelled events as columns."""

    rows: Rows
    ids: tuple[str | None, ...]
    times: Vector | None = None  # seconds since the epoch, NaN where not given
    costs: Vector | None = None
    fields: tuple[str, ...] = ()  # names of the fields, if the learner remembers fields
    features: Sequence[Any] | None = None  # what each carries, to be remembered; None: nothing is
    segment_values: SegmentColumns | None = None  # None: the learner has no segment fields


class Labelled(NamedTuple):
    """n labelled events as columns, some of which carry no features but the id of an event that was served."""

    rows: Rows  # of those that carry features, in order
    carried: NDArray[np.bool_]  # (n,) which these are
    labels: Vector
    weights: Vector | None
    times: Vector | None  # of the event; of a label without features when that became known
    ids: tuple[str | None, ...] | None
    segments: tuple[Segment, ...] = ()
    costs: Vector | None = None  # (k,) of those that carry features
    fields: tuple[str, ...] = ()  # as of `Events`
    segment_values: SegmentColumns | None = None  # (k,) of those that carry features

    @property
    def plain(self) -> bool:
        """Whether all events carry their features, so that none is joined with a served event."""
        return bool(self.carried.all())

    def batch(self) -> LabelledBatch:
        """Return the batch for a learner, if the events are `plain`."""
        return LabelledBatch(
            self.rows,
            self.labels,
            self.weights,
            self.times,
            self.ids,
            self.segments,
            self.costs,
            fields=self.fields,
            segment_values=self.segment_values,
        )

    def part(self, start: int, stop: int) -> Labelled:
        """Return some neighbouring events, as views."""
        cut = slice(start, stop)
        local = slice(int(np.count_nonzero(self.carried[:start])), int(np.count_nonzero(self.carried[:stop])))
        whole = LabelledBatch(self.labels, self.labels, segments=self.segments)  # the rows play no part in its segments
        return Labelled(
            slice_rows(self.rows, local.start, local.stop),
            self.carried[cut],
            self.labels[cut],
            None if self.weights is None else self.weights[cut],
            None if self.times is None else self.times[cut],
            None if self.ids is None else self.ids[cut],
            whole.part(start, stop).segments,
            None if self.costs is None else self.costs[local],
            self.fields,
            None if self.segment_values is None else self.segment_values.of(local),
        )


class Learnt(NamedTuple):
    """The answer to one update."""

    outcome: BatchOutcome
    position: int
    class_counts: dict[str, int]
    expired: NDArray[np.bool_] | None = None  # labels without features that came too late
