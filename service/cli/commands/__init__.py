"""The commands of the command line, a module for each command or few that belong together; `main` registers them.

Start with `show`, a short one; `replay` and `consume` are the longest.
"""

__all__ = [
    "bench",
    "compare",
    "consume",
    "create",
    "demo",
    "keys_file",
    "replay",
    "scored_events",
    "segments",
    "send_events",
    "show",
    "states",
    "thresholds",
    "watch",
]
