"""The SQLite store. Start with `sqlite_store`."""

from service.storage.sqlite.sqlite_store import SqliteStore

__all__ = ["SqliteStore"]
