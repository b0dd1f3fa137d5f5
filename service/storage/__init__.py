"""Logs, snapshots and served events, durable: in memory, SQLite or Redis.

Start with `store_protocol`, the protocol whose docstrings carry the promises; `open_store` opens one by its URL.
"""

from service.storage.open_store import open_store
from service.storage.reply_checks import UNREADABLE, checked, damaged
from service.storage.served_labels import ServedLabel, add_labels, pack_labels, unpack_labels
from service.storage.store_protocol import (
    MAX_POSITION,
    OPERATIONS,
    RECORD_BYTES,
    ExpiredEvents,
    LogEntry,
    LogHead,
    LogNotice,
    ServedCounts,
    ServedEvent,
    ServedLimits,
    ServedPage,
    ServeReceipt,
    SharedStore,
    SnapshotInfo,
    Store,
)

__all__ = [
    "MAX_POSITION",
    "OPERATIONS",
    "RECORD_BYTES",
    "UNREADABLE",
    "ExpiredEvents",
    "LogEntry",
    "LogHead",
    "LogNotice",
    "ServeReceipt",
    "ServedCounts",
    "ServedEvent",
    "ServedLabel",
    "ServedLimits",
    "ServedPage",
    "SharedStore",
    "SnapshotInfo",
    "Store",
    "add_labels",
    "checked",
    "damaged",
    "open_store",
    "pack_labels",
    "unpack_labels",
]
