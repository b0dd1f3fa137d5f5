"""The commands of the command line, a module for each command or few that belong together; `main` registers them."""

__all__ = [
    "bench",
    "compare",
    "consume",
    "create",
    "demo",
    "keys_file",
    "replay",
    "send_events",
    "show",
    "states",
    "watch",
]
