"""Errors that end a command with a message instead of a traceback, and exit statuses."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["CommandFailed", "ExitStatus", "WrongUsage"]


class ExitStatus(IntEnum):
    """Exit statuses for scripts. After a signal the status is 128 plus its number, e.g. 130 for Ctrl-C."""

    DONE = 0
    FAILED = 1  # an internal error (5xx), a lost answer, a file that cannot be written, a declined confirmation
    USAGE = 2  # wrong options, arguments, settings or files; nothing was done
    UNREACHABLE = 3  # no rarestream service answers at the URL
    NOT_FOUND = 4  # no such learner or snapshot
    REFUSED = 5  # the service refused the request (another 4xx); nothing was changed
    PARTLY = 6  # the service accepted some events before the failure; the message says how many


class CommandFailed(Exception):
    """The command cannot continue; the text tells the user why and what to do."""

    exit_status = ExitStatus.FAILED


class WrongUsage(CommandFailed):
    """An option, argument, variable or file is invalid. Nothing was done."""

    exit_status = ExitStatus.USAGE
