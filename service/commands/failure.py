"""What ends a command with a message instead of a traceback."""

from __future__ import annotations

__all__ = ["CommandFailed"]


class CommandFailed(Exception):
    """The command cannot go on, for a reason that its user can do something about; the text says which."""
