"""The SQLite store. Start with `store`."""

from service.storage.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
