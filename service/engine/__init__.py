"""Learners over a store: replicas, groups, copies, and the synchronisation of nodes.

Start with `engine`, the facade, then `replica.learner_replica`, a learner on this node. `records` encodes the log,
`cluster` keeps up with other nodes, `node_resources` has the store, the threads and recovery.
"""

from service.engine import copies
from service.engine.annotations import AcknowledgementBody, AnnotationBody, acknowledge, annotate
from service.engine.batch_cost import LARGE, LARGE_WINDOW, run_by_size
from service.engine.copies import import_limits
from service.engine.engine import Engine
from service.engine.field_summaries import describe_fields
from service.engine.group_served_list import find_group_event, list_group_events
from service.engine.node_resources import BACKGROUND
from service.engine.score_threshold import score_threshold
from service.engine.segment_metrics import segment_metrics
from service.engine.served_list import (
    EventDetails,
    EventFilter,
    EventOrder,
    EventPage,
    EventStatus,
    erase_event,
    find_event,
    list_events,
)
from service.engine.threshold_trials import preview_threshold, threshold_points
from service.engine.weights import MAX_TOP, copy_weights, rank_weights

__all__ = [
    "BACKGROUND",
    "LARGE",
    "LARGE_WINDOW",
    "MAX_TOP",
    "AcknowledgementBody",
    "AnnotationBody",
    "Engine",
    "EventDetails",
    "EventFilter",
    "EventOrder",
    "EventPage",
    "EventStatus",
    "acknowledge",
    "annotate",
    "copies",
    "copy_weights",
    "describe_fields",
    "erase_event",
    "find_event",
    "find_group_event",
    "import_limits",
    "list_events",
    "list_group_events",
    "preview_threshold",
    "rank_weights",
    "run_by_size",
    "score_threshold",
    "segment_metrics",
    "threshold_points",
]
