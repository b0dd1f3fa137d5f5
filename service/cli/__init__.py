"""The command line. Start with `main`; the commands are in `commands`."""

from service.cli.main import main

__all__ = ["main"]
