"""What ends a command with a message instead of a traceback, and the status that the process then has."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["CommandFailed", "ExitStatus", "WrongUsage"]


class ExitStatus(IntEnum):
    """What a script can tell an end by. Besides these a signal's end is 128 and its number: 130 for Ctrl-C."""

    DONE = 0
    FAILED = 1  # an error of the service's own (5xx), an answer that was lost, a file that cannot be written, a "no"
    USAGE = 2  # wrong options, arguments, settings or files; nothing was done
    UNREACHABLE = 3  # no rarestream service answers there
    NOT_FOUND = 4  # no such learner, or snapshot
    REFUSED = 5  # the service said no (another 4xx); of this nothing was done
    PARTLY = 6  # some of the events were taken before it failed; the message says how many


class CommandFailed(Exception):
    """The command cannot go on, for a reason that its user can do something about; the text says which."""

    exit_status = ExitStatus.FAILED


class WrongUsage(CommandFailed):
    """What was given cannot be used: an option, an argument, a variable, a file. Nothing was done."""

    exit_status = ExitStatus.USAGE
