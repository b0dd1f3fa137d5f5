"""A learner on this node: a state machine that follows its log. Start with `replica`, then `learner`."""

from service.engine.replica.group import HostedGroup
from service.engine.replica.learner import Hosted
from service.engine.replica.served_events import Predicted

__all__ = ["Hosted", "HostedGroup", "Predicted"]
