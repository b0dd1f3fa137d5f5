"""Options that several commands share, and their parsers. Quick to import for `--help`."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.format import parse_duration
from service.exits import WrongUsage

__all__ = [
    "OBJECTIVES",
    "Alerts",
    "Drop",
    "Id",
    "Label",
    "Positive",
    "RankLabels",
    "Set",
    "Target",
    "Time",
    "Weight",
    "assign",
    "check_label_delay",
    "duration",
    "flag",
    "json_file",
    "name_and_value",
    "objective_names",
    "parse_field",
    "parse_names",
    "parse_ranks",
    "without_empty",
]


def flag(*names: str, **about: Any) -> Any:
    """Declare an option without a value; without `metavar` the help would show `<bool>` behind it."""
    return typer.Option(*names, metavar="", **about)


def duration(text: str) -> float:
    """Parse `7d` to 604800.0."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="A setting by its path, threshold.beta=2; the value is JSON or text. Repeatable.",
    ),
]
Target = Annotated[float | None, typer.Option(help="Target rate: maximum FPR, or minimum precision or recall.")]
Alerts = Annotated[float | None, typer.Option(help="budget: maximum alerts a day.")]
# Columns of files
Label = Annotated[str, typer.Option(help="Column of the label.")]
Positive = Annotated[
    list[str] | None, typer.Option(help="A label that is positive; the only other one is negative. Repeatable.")
]
Negative = Annotated[
    list[str] | None,
    typer.Option(
        help="A label that is negative; others are positive, or no labels beside --positive. Repeatable, * all."
    ),
]
RankLabels = Annotated[
    str | None, typer.Option(help="Ordinal: the labels, lowest first, LOW,MEDIUM,HIGH, if they are not 1 to p.")
]
Drop = Annotated[list[str] | None, typer.Option(help="A column to leave out, or its position from 1. Repeatable.")]
Id = Annotated[str | None, typer.Option(help="Column of event ids.")]
Time = Annotated[str | None, typer.Option(help="Column of event times: epoch seconds or ISO 8601.")]
Weight = Annotated[str | None, typer.Option(help="Column of event weights.")]
_OBJECTIVES = [
    "f1",
    "f1-window",
    "f1-ofo",
    "fixed",
    "fbeta",
    "jaccard",
    "cost",
    "fpr",
    "precision",
    "recall",
    "budget",
    "optroc",
]
OBJECTIVES = f"{', '.join(_OBJECTIVES[:-1])} or {_OBJECTIVES[-1]} (accuracy)"


def objective_names(incomplete: str) -> list[str]:
    """Complete the name of a threshold's objective."""
    return [name for name in _OBJECTIVES if name.startswith(incomplete)]


def without_empty(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values without those that were not given."""
    return {name: value for name, value in values.items() if value not in (None, [], {})}


def assign(settings: dict[str, Any], assignments: Iterable[str] | None) -> None:
    """Set values by `path=value` in nested settings: `threshold.target=0.9`."""
    for text in assignments or ():
        path, value = name_and_value(text, "--set")
        *parents, name = path.split(".")
        part = settings
        for parent in parents:
            part = part.setdefault(parent, {})
            if not isinstance(part, dict):
                raise typer.BadParameter(f"{path}: {parent} is not an object", param_hint="--set")
        part[name] = value


def name_and_value(text: str, option: str) -> tuple[str, Any]:
    """Split `C=0.1` into ("C", 0.1); a value that is not JSON is a string."""
    name, equals, value = text.partition("=")
    if not equals or not all(name.split(".")):
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def check_label_delay(delay: float | None, every: float | None, id: str | None, time: str | None, wait: bool) -> None:
    """Check the options of a replay with delayed labels."""
    if delay is None:
        if every is not None:
            raise typer.BadParameter("needs --label-delay", param_hint="--label-every")
        return
    if not delay:
        raise typer.BadParameter("is 0; leave it out to send each label at once", param_hint="--label-delay")
    for option, column in (("--id", id), ("--time", time)):
        if column is None:
            reason = f"needs {option}: a label is sent by its event's id, so long after its time"
            raise typer.BadParameter(reason, param_hint="--label-delay")
    if wait:
        reason = "does not go with --label-delay: each row is scored by the model of its time"
        raise typer.BadParameter(reason, param_hint="--wait")


def parse_names(text: str, option: str) -> tuple[str, ...]:
    """Parse `low,medium,high`; a name with a comma is in double quotes, as in a CSV file."""
    names = [name.strip() for line in csv.reader(text.splitlines(), skipinitialspace=True) for name in line]
    if not names or "" in names:
        raise typer.BadParameter(f"{text!r}; expected names, NAME,NAME", param_hint=option)
    return tuple(names)


def parse_ranks(text: str) -> tuple[str, ...]:
    """Parse the ranks of `--ranks`."""
    labels = parse_names(text, "--ranks")
    if len(labels) < 2:
        raise typer.BadParameter(f"{text!r}; expected two or more labels, LOW,MEDIUM,HIGH", param_hint="--ranks")
    return labels


def parse_field(text: str) -> dict[str, Any]:
    """Parse `country:categorical:16` to a declared field; the service checks it."""
    name, *rest = text.split(":")
    match rest if name else []:
        case ["numeric"]:
            return {"name": name, "kind": "numeric"}
        case ["numeric", "log"]:
            return {"name": name, "kind": "numeric", "log": True}
        case ["categorical"]:
            return {"name": name, "kind": "categorical"}
        case ["categorical", categories] if categories.isdecimal():
            return {"name": name, "kind": "categorical", "categories": int(categories)}
    expected = "NAME:numeric, NAME:numeric:log or NAME:categorical[:CATEGORIES]"
    raise typer.BadParameter(f"{text!r}; expected {expected}", param_hint="--field")


def json_file(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file."""
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise WrongUsage(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise WrongUsage(f"{path} is not JSON in UTF-8: {error}") from None
    if not isinstance(values, dict):
        raise WrongUsage(f"{path}: not a JSON object")
    return values
