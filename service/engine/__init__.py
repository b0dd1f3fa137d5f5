"""Learners over a store: replicas, groups, copies, and the synchronisation of nodes.

Start with `engine`, the facade, then `replica.learner_replica`, a learner on this node. `records` encodes the log,
`cluster` keeps up with other nodes, `node_resources` has the store, the threads and recovery.
"""

from service.engine import copies
from service.engine.batch_cost import LARGE, run_by_size
from service.engine.copies import import_limits
from service.engine.engine import Engine
from service.engine.node_resources import BACKGROUND
from service.engine.score_threshold import score_threshold
from service.engine.weights import MAX_TOP, copy_weights, rank_weights

__all__ = [
    "BACKGROUND",
    "LARGE",
    "MAX_TOP",
    "Engine",
    "copies",
    "copy_weights",
    "import_limits",
    "rank_weights",
    "run_by_size",
    "score_threshold",
]
