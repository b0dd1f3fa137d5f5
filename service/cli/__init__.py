"""The command line. Start with `main`; the commands are in `commands`."""

from service.cli.api import Api, ApiError, Document, Stopped
from service.cli.main import main

__all__ = ["Api", "ApiError", "Document", "Stopped", "main"]
