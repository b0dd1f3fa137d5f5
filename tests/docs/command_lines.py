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
_OWN = {option for one in typer.main.get_command(app).params for option in one.opts} | {"--help", "-h"}


_UsageError: Any = typer.BadParameter.__base__  # typer gives neither this nor what is below it a public name


class Wrong(Exception):
    """The program would not take it."""


class _Parsed(Exception):
    """The parser is through; what would follow is left out."""


def parse(words: Sequence[str], *, whole: bool = True) -> None:
    """What stands behind `rarestream`. Raises `Wrong`; where it is not `whole`, arguments and values may be missing."""
    name, *rest = words
    if name.startswith("-"):  # an option of the program itself: it would be carried out at once
        if name not in _OWN:
            raise Wrong(f"rarestream has no option {name}")
        return
    command = COMMANDS.get(name)
    while hasattr(command, "commands") and rest:
        name, *rest = rest
        command = command.commands.get(name)
    if command is None:
        raise Wrong(f"there is no command {name}")
    if hasattr(command, "commands"):
        if whole:
            raise Wrong(f"{name} wants a command")
        return
    try:
        command.make_context(name, list(rest))
    except typer.Exit:
        return  # --help
    except _UsageError as error:
        said = error.format_message()
        lacking = type(error).__name__ == "MissingParameter" or "requires an argument" in said
        if whole or not lacking:
            raise Wrong(f"{name}: {said}") from None


def parse_module(module: str, words: Sequence[str]) -> argparse.Namespace | None:
    """What stands behind `python -m`. Raises `Wrong`; None of a program that takes no options."""
    if importlib.util.find_spec(module) is None:
        raise Wrong(f"there is no module {module}")
    found = importlib.import_module(module)
    if hasattr(found, "__path__"):
        found = importlib.import_module(f"{module}.__main__")
    whole = argparse.ArgumentParser.parse_args
    chosen: list[argparse.Namespace] = []

    def stop(parser: argparse.ArgumentParser, given: Any = None, namespace: Any = None) -> argparse.Namespace:
        chosen.append(whole(parser, given, namespace))
        raise _Parsed

    if not hasattr(found, "argparse"):
        return None
    with (
        mock.patch.object(sys, "argv", [module, *words]),
        mock.patch.object(argparse.ArgumentParser, "parse_args", stop),
    ):
        try:
            found.main()
        except _Parsed:
            return chosen[0]
        except SystemExit:
            raise Wrong(f"{module} does not take {' '.join(words)}") from None
    raise Wrong(f"{module} parses nothing")
