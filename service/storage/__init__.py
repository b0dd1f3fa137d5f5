"""Logs, snapshots and served events, durable: in memory, SQLite or Redis.

Start with `base`, the protocol whose docstrings carry the promises; `open_store` opens one by its URL.
"""

from service.storage.base import (
    MAX_POSITION,
    OPERATIONS,
    RECORD_BYTES,
    Bounds,
    Entry,
    Head,
    Moved,
    Pending,
    Remembered,
    ServeReceipt,
    SharedStore,
    SnapshotInfo,
    Store,
    open_store,
)
from service.storage.reply_checks import UNREADABLE, checked, damaged

__all__ = [
    "MAX_POSITION",
    "OPERATIONS",
    "RECORD_BYTES",
    "UNREADABLE",
    "Bounds",
    "Entry",
    "Head",
    "Moved",
    "Pending",
    "Remembered",
    "ServeReceipt",
    "SharedStore",
    "SnapshotInfo",
    "Store",
    "checked",
    "damaged",
    "open_store",
]
