"""A learner or a group on this node: a state machine that follows its log.

Start with `learner_replica`, which owns a `mailbox` (jobs, one at a time) and a `log_follower` (append, read, apply).
Snapshots, fits, the join of labels and label expiry use these; `lease` decides which node does such work.
"""

from service.engine.replica.group_replica import GroupReplica
from service.engine.replica.label_join import ScoredEvents
from service.engine.replica.learner_replica import LearnerReplica

__all__ = ["GroupReplica", "LearnerReplica", "ScoredEvents"]
