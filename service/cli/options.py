"""What the options of the command line mean: their values as settings, and those that several commands have.

Nothing here is slow to import: `--help` needs it.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.durations import seconds_of
from service.exits import WrongUsage

__all__ = [
    "OBJECTIVES",
    "Alerts",
    "Beta",
    "CostField",
    "FalseNegative",
    "FalsePositive",
    "Rate",
    "Target",
    "Unit",
    "Value",
    "check_late",
    "duration",
    "field_of",
    "flag",
    "given",
    "json_file",
    "objective_names",
    "param_of",
    "ranks_of",
    "threshold_of",
]


def flag(*names: str, **about: Any) -> Any:
    """An option without a value; the help would show `<bool>` behind it, as if one were to follow."""
    return typer.Option(*names, metavar="", **about)


def duration(text: str) -> float:
    """`7d` -> 604800.0."""
    try:
        return seconds_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


# The settings of a threshold, an option for each
Value = Annotated[float | None, typer.Option(help="fixed: the threshold.")]
Beta = Annotated[float | None, typer.Option(help="fbeta: how many times as much recall counts as precision.")]
Target = Annotated[float | None, typer.Option(help="fpr: the largest; precision, recall: the least share.")]
FalsePositive = Annotated[float | None, typer.Option(help="cost: of an event wrongly called positive.")]
FalseNegative = Annotated[float | None, typer.Option(help="cost: of a positive that is missed.")]
CostField = Annotated[str | None, typer.Option(help="cost: the feature by which --false-negative is multiplied.")]
Alerts = Annotated[float | None, typer.Option(help="budget: events called positive per --unit at most.")]
Unit = Annotated[
    float | None, typer.Option(parser=duration, metavar="DURATION", help="budget: 1d (the default), 8h, 30m.")
]
Rate = Annotated[float | None, typer.Option(help="budget: share of all events called positive, instead of --alerts.")]
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
    """The objectives of a threshold whose names begin like this, for the shell."""
    return [name for name in _OBJECTIVES if name.startswith(incomplete)]


def given(values: dict[str, Any]) -> dict[str, Any]:
    """Without what was not given."""
    return {name: value for name, value in values.items() if value not in (None, [], {})}


def threshold_of(
    objective: str | None,
    value: float | None,
    beta: float | None,
    target: float | None,
    false_positive: float | None,
    false_negative: float | None,
    cost_field: str | None,
    alerts: float | None,
    unit: float | None,
    rate: float | None,
) -> dict[str, Any]:
    """The settings of the threshold that were given; the service checks that they belong together."""
    return given(
        {
            "objective": objective,
            "value": value,
            "beta": beta,
            "target": target,
            "false_positive": false_positive,
            "false_negative": false_negative,
            "field": cost_field,
            "alerts": alerts,
            "unit_seconds": unit,
            "rate": rate,
        }
    )


def check_late(delay: float | None, every: float | None, id: str | None, time: str | None, wait: bool) -> None:
    """Refuse what makes no sense of a replay whose labels come late."""
    if delay is None:
        if every is not None:
            raise typer.BadParameter("is for a replay with --label-delay", param_hint="--label-every")
        return
    if not delay:
        raise typer.BadParameter("is 0; without it each label comes at once", param_hint="--label-delay")
    for option, column in (("--id", id), ("--time", time)):
        if column is None:
            reason = f"needs {option}: a label comes by its event's id, so long after its time"
            raise typer.BadParameter(reason, param_hint="--label-delay")
    if wait:
        reason = "does not go with --label-delay: a row is scored by the model of its time, whatever is being fitted"
        raise typer.BadParameter(reason, param_hint="--wait")


def param_of(text: str) -> tuple[str, Any]:
    """`C=0.1` -> ("C", 0.1); a value that is not JSON is a string."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--param")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def ranks_of(text: str) -> tuple[str, ...]:
    """`low,medium,high` -> the labels; one that has a comma stands in double quotes, as in a CSV file."""
    labels = [label.strip() for line in csv.reader(text.splitlines(), skipinitialspace=True) for label in line]
    if len(labels) < 2 or "" in labels:
        raise typer.BadParameter(f"{text!r}; expected two or more labels, LOW,MEDIUM,HIGH", param_hint="--ranks")
    return tuple(labels)


def field_of(text: str) -> dict[str, Any]:
    """`country:categorical:16` -> a declared field; the service checks it."""
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
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WrongUsage(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise WrongUsage(f"{path} is not JSON in UTF-8: {error}") from None
    if not isinstance(values, dict):
        raise WrongUsage(f"{path}: not a JSON object")
    return values
