"""Coordination of nodes: notifications, placement, residency and synchronisation. Start with `store_sync`."""

from service.engine.cluster.notifier import Notifier
from service.engine.cluster.placement import Placement
from service.engine.cluster.residency import Residency
from service.engine.cluster.store_sync import StoreSync

__all__ = ["Notifier", "Placement", "Residency", "StoreSync"]
