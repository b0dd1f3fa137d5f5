"""A learner on this node: a state machine that follows its log. Start with `replica`, then `learner`."""

from service.engine.replica.group import GroupReplica
from service.engine.replica.learner import LearnerReplica
from service.engine.replica.served_events import Predicted

__all__ = ["GroupReplica", "LearnerReplica", "Predicted"]
