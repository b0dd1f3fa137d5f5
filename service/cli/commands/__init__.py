"""The commands of the command line, a module for each command or few that belong together; `main` registers them."""

__all__ = ["bench", "compare", "consume", "create", "demo", "events", "keys", "replay", "show", "states", "watch"]
