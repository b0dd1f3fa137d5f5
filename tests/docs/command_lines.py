"""Command lines as the programs themselves parse them, without running anything: `rarestream`, and `python -m X`."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Any
from unittest import mock

import typer

from service.cli.main import app

__all__ = ["COMMANDS", "Wrong", "parse", "parse_module"]

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
_GLOBAL_OPTIONS = {option for param in typer.main.get_command(app).params for option in param.opts} | {"--help", "-h"}


_UsageError: Any = typer.BadParameter.__base__  # typer gives neither this nor what is below it a public name


class Wrong(Exception):
    """The program would not take it."""


class _Parsed(Exception):
    """The parser is through; what would follow is left out."""


def parse(words: Sequence[str], *, complete: bool = True) -> None:
    """Parse the words after `rarestream`. Raises `Wrong`; unless `complete`, arguments and values may be missing."""
    name, *rest = words
    if name.startswith("-"):  # an option of the program itself: it would be run at once
        if name not in _GLOBAL_OPTIONS:
            raise Wrong(f"rarestream has no option {name}")
        return
    command = COMMANDS.get(name)
    while hasattr(command, "commands") and rest:
        name, *rest = rest
        command = command.commands.get(name)
    if command is None:
        raise Wrong(f"there is no command {name}")
    if hasattr(command, "commands"):
        if complete:
            raise Wrong(f"{name} wants a command")
        return
    try:
        command.make_context(name, list(rest))
    except typer.Exit:
        return  # --help
    except _UsageError as error:
        message = error.format_message()
        lacking = type(error).__name__ == "MissingParameter" or "requires an argument" in message
        if complete or not lacking:
            raise Wrong(f"{name}: {message}") from None


def parse_module(module: str, words: Sequence[str]) -> argparse.Namespace | None:
    """Parse the words after `python -m`. Raises `Wrong`; None if the program takes no options."""
    if importlib.util.find_spec(module) is None:
        raise Wrong(f"there is no module {module}")
    imported = importlib.import_module(module)
    if hasattr(imported, "__path__"):
        imported = importlib.import_module(f"{module}.__main__")
    parse_args = argparse.ArgumentParser.parse_args
    namespaces: list[argparse.Namespace] = []

    def stop(parser: argparse.ArgumentParser, arguments: Any = None, namespace: Any = None) -> argparse.Namespace:
        namespaces.append(parse_args(parser, arguments, namespace))
        raise _Parsed

    if not hasattr(imported, "argparse"):
        return None
    with (
        mock.patch.object(sys, "argv", [module, *words]),
        mock.patch.object(argparse.ArgumentParser, "parse_args", stop),
    ):
        try:
            imported.main()
        except _Parsed:
            return namespaces[0]
        except SystemExit:
            raise Wrong(f"{module} does not take {' '.join(words)}") from None
    raise Wrong(f"{module} parses nothing")
