"""The SQLite store. Start with `store`."""

from service.storage.sqlite.sqlite_store import SqliteStore

__all__ = ["SqliteStore"]
