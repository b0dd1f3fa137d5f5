"""What nodes do about each other: notifications, placement, residency, synchronisation. Start with `sync`."""

from service.engine.cluster.notifier import Bell
from service.engine.cluster.placement import Placement
from service.engine.cluster.residency import Sleeping
from service.engine.cluster.sync import Following

__all__ = ["Bell", "Following", "Placement", "Sleeping"]
