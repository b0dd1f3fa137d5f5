"""Contexts: URLs and keys of services by name, in a file of the user. Quick to import for `--help`.

    {"current": "prod", "contexts": {"prod": {"url": "https://fraud.example", "key": "rs_..."}}}

Options and environment variables win over the current context. Its key goes to its own URL only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from service.exits import CommandFailed, ExitStatus, WrongUsage

__all__ = ["DEFAULT_URL", "ContextFile", "CurrentContext", "UnknownContext", "contexts_path", "own_key"]

DEFAULT_URL = "http://127.0.0.1:8000"  # without a context
_SECRET_MODE = 0o600


class UnknownContext(CommandFailed):
    """No context has this name."""

    exit_status = ExitStatus.NOT_FOUND


def contexts_path() -> Path:
    """Return the path of the file, in the platform's folder for configurations."""
    return Path(typer.get_app_dir("rarestream"), "contexts.json")


class ContextFile:
    """The contexts of a file; without the file there are none. Raises `WrongUsage` if it is not such a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.current: str | None = None
        self.contexts: dict[str, dict[str, str | None]] = {}
        try:
            document = json.loads(path.read_text())
            self.current = document["current"]
            self.contexts = {
                name: {"url": str(context["url"]), "key": context.get("key")}
                for name, context in document["contexts"].items()
            }
        except FileNotFoundError:
            pass
        except OSError as error:
            raise WrongUsage(f"cannot read the contexts in {path}: {error.strerror}") from None
        except (ValueError, LookupError, TypeError, AttributeError):
            raise WrongUsage(f"{path} is no file of contexts; repair it, or delete it") from None

    def find(self, name: str) -> dict[str, str | None]:
        """Return a context. Raises `UnknownContext`."""
        if name not in self.contexts:
            names = ", ".join(sorted(self.contexts)) or "none yet; `rarestream context set NAME --url URL` makes one"
            raise UnknownContext(f"there is no context named {name}; there are: {names}")
        return self.contexts[name]

    def save(self) -> None:
        """Replace the file, which only its owner may read. Raises `CommandFailed`."""
        beside = self.path.with_suffix(".new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside.unlink(missing_ok=True)
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _SECRET_MODE), "w") as file:
                json.dump({"current": self.current, "contexts": self.contexts}, file, indent=2)
            beside.replace(self.path)
        except OSError as error:
            raise CommandFailed(f"cannot write the contexts to {self.path}: {error.strerror}") from None


class CurrentContext:
    """Defaults of commands from the current context, which is read by the first command that needs it."""

    def __init__(self) -> None:
        self._context: Mapping[str, str | None] | None = None

    def defaults(self, commands: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `default_map` of a group of commands: what its options are, and those of the groups in it."""
        inner = {name: self.defaults(getattr(command, "commands", {})) for name, command in commands.items()}
        return {**inner, "url": lambda: self._member("url") or DEFAULT_URL, "key": lambda: self._member("key")}

    def _member(self, name: str) -> str | None:
        if self._context is None:
            try:
                contexts = ContextFile(contexts_path())
                self._context = {} if contexts.current is None else contexts.find(contexts.current)
            except CommandFailed as error:
                raise typer.BadParameter(str(error)) from None
        return self._context.get(name)


def own_key(context: typer.Context, key: str | None) -> str | None:
    """Return the key unless it is that of a context whose URL is not used: another service must not get it."""
    sources = {name: getattr(context.get_parameter_source(name), "name", None) for name in ("url", "key")}
    return None if sources["key"] == "DEFAULT_MAP" != sources["url"] else key
