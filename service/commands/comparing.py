"""`rarestream groups` and `rarestream compare`: learners side by side on one stream, and which of them is better."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.commands.connection import (
    DEFAULT_URL,
    AsJson,
    Key,
    Url,
    connected,
    console,
    group_names,
    plain_table,
    print_json,
    reporting,
)
from service.commands.figures import share

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["compare", "groups"]

Document = Mapping[str, Any]

_HOW = "PUT /v1/groups/NAME makes one, as does the dashboard under Compare"


def groups(as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """List the groups: learners that get the same stream, to be compared."""
    with reporting(), connected(url, key) as api:
        found = api.groups()
        if as_json:
            print_json(found)
            return
        if not (found["groups"] or found["unavailable"]):
            print(f"there is no group yet; {_HOW}")
            return
        table = plain_table("group", "learners", "events")
        for one in found["groups"]:
            told = f"{one['events']:,}" if one["failed"] is None else f"failed: {one['failed']}"
            table.add_row(one["name"], ", ".join(one["config"]["learners"]), told)
        for name, why in found["unavailable"].items():
            table.add_row(name, "", f"unavailable: {why}")
        console().print(table)


def compare(
    group: Annotated[
        str, typer.Argument(help="The group's name; `rarestream groups` lists them.", autocompletion=group_names)
    ],
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Say which learner of a group is better, by its AUC on the same events.

    The verdict is right however often one looks. The intervals are of the
    window, and right for one look.
    """
    with reporting(), connected(url, key) as api:
        told = api.compare(group)
        if as_json:
            print_json(told)
            return
        out = console()
        if not told["events"]:
            out.print(f"Nothing is compared yet: send events to /v1/groups/{group}/update, they go to each learner")
        else:
            for test, late in zip(told["tests"], told["window"]["differences"], strict=True):
                out.print(verdict_of(test, told["alpha"], late["difference"]))
        out.print(_compared(told))
        out.print(_areas(told["window"]))
        out.print()
        out.print(_differences(told["window"]))


def verdict_of(test: Document, alpha: float, difference: float | None = None) -> str:
    """What a pair's test has found, in words; `alpha` is the risk of a verdict on two that are equal.

    A verdict is on all that was compared: where the window's `difference` points the other way, that is said.
    """
    a, b, evidence = test["a"], test["b"], test["evidence"]
    decides = math.log10(2 / alpha)  # evidence is given by its log10
    if test["verdict"] is None:
        leader, log = (
            (a, evidence["a_better"]) if evidence["a_better"] >= evidence["b_better"] else (b, evidence["b_better"])
        )
        leaning = f"it leans to {leader}, " if log > 0.5 else ""
        return f"{a} or {b}: not decided. Keep watching: {leaning}evidence {_odds(log)}; {_odds(decides)} decides"
    better, other, log = (a, b, evidence["a_better"]) if test["verdict"] == "a" else (b, a, evidence["b_better"])
    since = f"event {test['since_events']:,}"
    if test["since_clock"] is not None:
        since = f"{datetime.fromtimestamp(test['since_clock']).astimezone().isoformat(' ', 'seconds')} ({since})"
    behind = f"{(difference or 0) * (-1 if test['verdict'] == 'a' else 1):.4f}"
    late = f"; in the window its AUC is behind by {behind}" if float(behind) > 0 else ""
    if log >= decides:
        return f"{better} is better than {other}: decided at {since}, evidence {_odds(log)}{late}"
    return f"{better} was better than {other}: decided at {since}, but the evidence is {_odds(log)} by now{late}"


def _odds(log: float) -> str:
    if log >= 6:
        return f"10^{math.floor(log)} to 1"
    return f"{float(f'{10**log:.2g}'):,.6g} to 1" if log > -3 else "0 to 1"


def _compared(told: Document) -> str:
    window = told["window"]
    counts = ", ".join(f"{count:,} {name}" for name, count in window["class_counts"].items())
    said = f"{told['events']:,} events compared, the last {window['events']:,} of them in the window ({counts})"
    gone = f"; no longer there: {', '.join(told['gone'])}" if told["gone"] else ""
    return f"{said}; equal learners get a verdict with a probability of at most {share(told['alpha'])}{gone}\n"


def _areas(window: Document) -> Table:
    table = plain_table("learner", "AUC", "95 % interval", right=2)
    for name, one in window["auc"].items():
        table.add_row(name, *_figures(one["auc"], one["interval"], ".4f"))
    return table


def _differences(window: Document) -> Table:
    table = plain_table("difference", "of AUC", "95 % interval", right=2)
    for one in window["differences"]:
        table.add_row(f"{one['a']} - {one['b']}", *_figures(one["difference"], one["interval"], "+.4f"))
    return table


def _figures(value: float | None, ends: tuple[float, float] | None, form: str) -> tuple[str, str]:
    """A figure and its interval, each - where there is none."""
    interval = "-" if ends is None else " to ".join(format(end, form) for end in ends)
    return ("-" if value is None else format(value, form)), interval
