"""Segments: metrics of the values of some declared fields, such as of each country.

segment_values    reads the values of these fields from events that arrive
segment_ring      remembers the values of the labelled events of the window
segment_review    computes the metrics of each value
"""

from learners.segments.segment_review import SegmentReview
from learners.segments.segment_ring import SegmentRing
from learners.segments.segment_values import (
    MAX_SEGMENT_VALUE,
    NO_VALUE,
    POOLED,
    UNRECORDED,
    SegmentColumns,
    join_segment_columns,
    segment_misfit,
    segments_of,
)

__all__ = [
    "MAX_SEGMENT_VALUE",
    "NO_VALUE",
    "POOLED",
    "UNRECORDED",
    "SegmentColumns",
    "SegmentReview",
    "SegmentRing",
    "join_segment_columns",
    "segment_misfit",
    "segments_of",
]
