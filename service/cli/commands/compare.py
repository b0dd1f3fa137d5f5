"""`rarestream groups` and `rarestream compare`: learners on the same stream, and which of them is better."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.options_service import (
    DEFAULT_URL,
    AsJson,
    Key,
    Url,
    Yes,
    confirm,
    connected,
    console,
    group_names,
    learner_names,
    plain_table,
    print_json,
    reporting,
)
from service.text import counted, share

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["compare", "groups_app"]

Document = Mapping[str, Any]

_CREATE_HINT = "`rarestream groups create NAME LEARNER LEARNER` makes one, as the Compare page of the dashboard does"

groups_app = typer.Typer(help="List the groups of learners on the same stream; create and delete them.")
GroupName = Annotated[
    str, typer.Argument(help="The group's name; `rarestream groups` lists them.", autocompletion=group_names)
]


@groups_app.callback(invoke_without_command=True)
def groups(context: typer.Context, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """List the groups of learners that are compared on the same stream."""
    if context.invoked_subcommand is not None:
        for name in ("as_json", "url", "key"):
            if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE":
                option = {"as_json": "--json"}.get(name, f"--{name}")
                raise typer.BadParameter(f"belongs behind {context.invoked_subcommand}", param_hint=option)
        return
    with reporting(), connected(url, key) as client:
        listing = client.groups()
        if as_json:
            print_json(listing)
            return
        if not (listing["groups"] or listing["unavailable"]):
            print(f"there is no group yet; {_CREATE_HINT}")
            return
        table = plain_table("group", "learners", "events")
        for group in listing["groups"]:
            events = f"{group['events']:,}" if group["failed"] is None else f"failed: {group['failed']}"
            table.add_row(group["name"], ", ".join(group["config"]["learners"]), events)
        for name, why in listing["unavailable"].items():
            table.add_row(name, "", f"unavailable: {why}")
        console().print(table)


@groups_app.command("create")
def create_group(
    group: Annotated[str, typer.Argument(help="Name of the new group.")],
    learners: Annotated[
        list[str], typer.Argument(help="Two to eight learners.", autocompletion=learner_names, metavar="LEARNER...")
    ],
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Create a group of learners, which then receive the same stream.

    It is no error if the group exists with the same learners.
    """
    with reporting(), connected(url, key) as client:
        document = client.create_group(group, learners)
        if as_json:
            print_json(document)
        else:
            print(f"the group {group} compares {', '.join(document['config']['learners'])}")


@groups_app.command("delete")
def delete_group(
    group: GroupName, yes: Yes = False, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None
) -> None:
    """Delete a group with its comparison; its learners stay.

    It asks on a terminal; elsewhere --yes is required.
    """
    with reporting(), connected(url, key) as client:

        def question() -> str:
            events = client.compare(group)["events"]
            return f"Delete the group {group} with its comparison of {counted(events, 'event')}? The learners stay"

        confirm(yes, question, "it deletes the comparison", "nothing was deleted")
        client.delete_group(group)
        if as_json:
            print_json({"deleted": group})
        else:
            print(f"the group {group} is deleted; its learners stay")


def compare(
    group: GroupName,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Tell which learner of a group is better, by its AUC on the same events.

    The verdict is valid however often you look. The intervals belong to the
    window and are valid for a single look.
    """
    with reporting(), connected(url, key) as client:
        comparison = client.compare(group)
        if as_json:
            print_json(comparison)
            return
        out = console()
        if not comparison["events"]:
            out.print(
                f"Nothing is compared yet. Send events to /v1/groups/{group}/update, for all its learners. "
                "Events that are sent to a single learner are not compared."
            )
        else:
            for test, late in zip(comparison["tests"], comparison["window"]["differences"], strict=True):
                out.print(verdict_of(test, comparison["alpha"], late["difference"]))
        out.print(_summary(comparison))
        out.print(_areas(comparison["window"]))
        out.print()
        out.print(_differences(comparison["window"], comparison["tests"]))


def verdict_of(test: Document, alpha: float, difference: float | None = None) -> str:
    """Return the result of a pair's test in the words of the dashboard (`verdicts.js`).

    `alpha` is the risk of a verdict on equal learners. A verdict is about all compared events. If the window's
    `difference` points the other way, a second line says so.
    """
    a, b, evidence = test["a"], test["b"], test["evidence"]
    decides = math.log10(2 / alpha)  # log10 of the evidence
    if test["verdict"] is None:
        leader, log = (
            (a, evidence["a_better"]) if evidence["a_better"] >= evidence["b_better"] else (b, evidence["b_better"])
        )
        leaning = f"it leans to {leader}, " if log > 0.5 else ""
        return f"{a} or {b}: not decided. Keep watching: {leaning}{_beside(log, decides)}"
    better, other, log = (a, b, evidence["a_better"]) if test["verdict"] == "a" else (b, a, evidence["b_better"])
    since = f"event {test['since_events']:,}"
    if test["since_clock"] is not None:
        since = f"{datetime.fromtimestamp(test['since_clock']).astimezone().isoformat(' ', 'seconds')} ({since})"
    deficit = f"{(difference or 0) * (-1 if test['verdict'] == 'a' else 1):.4f}"
    now = f"\n  In the window its AUC is behind by {deficit}." if float(deficit) > 0 else ""
    if log >= decides:
        verdict = f"{better} is better than {other}: {_beside(log, decides)} Decided at {since}; keep watching."
    else:
        present = f"the evidence is {_odds(log)} to 1 by now"
        verdict = f"{better} was better than {other}: decided at {since}, but {present}; keep watching."
    return verdict + now


_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹"


def _odds(log: float) -> str:
    """Format evidence, given by its log10."""
    if log >= 10:
        return "over 10¹⁰"
    if log >= 6:
        return f"10{_RAISED[math.floor(log)]}"
    return f"{float(f'{10**log:.2g}'):,.3f}".rstrip("0").rstrip(".") if log > -3 else "0"


def _beside(log: float, decides: float) -> str:
    """Format evidence beside what decides; both are given by their log10."""
    return f"evidence {_odds(log)} to 1; {_odds(decides)} to 1 decides."


def _summary(comparison: Document) -> str:
    window = comparison["window"]
    counts = ", ".join(f"{count:,} {name}" for name, count in window["class_counts"].items())
    events = (
        f"{counted(comparison['events'], 'event')} compared, the last {window['events']:,} in the window ({counts})"
    )
    risk = f"equal learners get a verdict with a probability of at most {share(comparison['alpha'])}"
    deletions = f"; deleted: {', '.join(comparison['gone'])}" if comparison["gone"] else ""
    return f"{events}; {risk}{deletions}\n"


def _areas(window: Document) -> Table:
    table = plain_table("learner", "AUC", "95 % interval", right=2)
    for name, area in window["auc"].items():
        table.add_row(name, *_value_and_interval(area["auc"], area["interval"], ".4f"))
    return table


def _differences(window: Document, tests: Sequence[Document]) -> Table:
    table = plain_table("A - B", "difference of AUC", "95 % interval", "evidence for A", "evidence for B", right=4)
    for difference, test in zip(window["differences"], tests, strict=True):
        figures = _value_and_interval(difference["difference"], difference["interval"], "+.4f")
        evidence = (f"{_odds(test['evidence'][which])} to 1" for which in ("a_better", "b_better"))
        table.add_row(f"{difference['a']} - {difference['b']}", *figures, *evidence)
    return table


def _value_and_interval(value: float | None, ends: tuple[float, float] | None, form: str) -> tuple[str, str]:
    """Format a value and its interval; - stands for none."""
    interval = "-" if ends is None else " to ".join(format(end, form) for end in ends)
    return ("-" if value is None else format(value, form)), interval
