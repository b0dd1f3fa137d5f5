"""`rarestream alarms` and `annotate`: a learner's alarms and notes on one time line."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.commands.show import describe_alarm
from service.cli.format import format_threshold
from service.cli.options_service import (
    DEFAULT_URL,
    AsJson,
    Key,
    Name,
    Url,
    connected,
    console,
    plain_table,
    print_json,
    reporting,
)
from service.text import counted

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["alarms", "annotate"]

Document = Mapping[str, Any]

_LOUD = {"open": "red", "reopened": "red", "acknowledged": "yellow"}


class AlarmAction(StrEnum):
    """What to do to an alarm."""

    ack = "ack"


By = Annotated[str | None, typer.Option(envvar="USER", help="Who writes it.", show_envvar=True)]


def alarms(
    name: Name,
    action: Annotated[
        AlarmAction | None, typer.Argument(help="`ack`: acknowledge an alarm.", show_default=False)
    ] = None,
    number: Annotated[int | None, typer.Argument(min=0, help="Number of the alarm.", show_default=False)] = None,
    note: Annotated[str | None, typer.Option(help="What is known of the alarm, or done about it.")] = None,
    by: By = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """List the alarms with their state, and notes and changes between them; `alarms NAME ack NUMBER` acknowledges one.

    An alarm is open until its figure is back; then it is resolved.
    """
    with reporting():
        if (action is None) != (number is None):
            raise typer.BadParameter("`ack` and the number of an alarm go together", param_hint="ACTION NUMBER")
        if note is not None and number is None:
            raise typer.BadParameter("goes with `ack NUMBER`", param_hint="--note")
        with connected(url, key) as client:
            remote = client.learner(name)
            if number is not None:
                alarm = remote.acknowledge(number, note or "", by=by)
                if as_json:
                    print_json(alarm)
                else:
                    print(f"alarm {number} of {name} is acknowledged; it is {alarm['state']}")
                return
            raised = remote.alarms()
            listed = {name: raised[name] for name in ("counts", "open", "alarms")}
            listed |= {"annotations": remote.annotations()["annotations"]}
        if as_json:
            print_json(listed)
        elif listed["alarms"] or listed["annotations"]:
            console().print(_time_line(listed))
        else:
            print("no alarm, and no annotation")


def annotate(
    name: Name,
    text: Annotated[str, typer.Argument(help="What happened.")],
    by: By = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Note a deployment, or whatever else explains the metrics, on the time line of a learner."""
    with reporting(), connected(url, key) as client:
        annotation = client.learner(name).annotate(text, by=by)
        if as_json:
            print_json(annotation)
        else:
            print(f"noted at {counted(annotation['events'], 'event')} of {name}")


def _time_line(listed: Mapping[str, list[Document]]) -> Table:
    """Return alarms and annotations in the order of events, the oldest first."""
    from rich.text import Text

    rows = [(alarm["events"], alarm["number"], alarm) for alarm in listed["alarms"]]
    rows += [(note["events"], note["number"], note) for note in listed["annotations"]]
    table = plain_table("when", "alarm", "state", "what")
    for events, number, entry in sorted(rows, key=lambda row: row[:2]):
        clock = entry["clock"]
        when = f"event {events:,}" if clock is None else _local(clock)
        if "state" in entry:
            state = Text(entry["state"], _LOUD.get(entry["state"], ""))
            table.add_row(when, str(number), state, "\n".join([describe_alarm(entry), *_signed(entry["acknowledged"])]))
        else:
            table.add_row(when, "", Text(entry["kind"], "dim"), _described(entry))
    return table


def _signed(signature: Document | None) -> list[str]:
    """Return the line about an acknowledgement, if there is any."""
    if signature is None:
        return []
    author = signature["by"] or signature["key"] or "somebody"
    return [f"acknowledged by {author}{': ' if signature['note'] else ''}{signature['note']}"]


def _described(annotation: Document) -> str:
    """Describe an annotation in a few words."""
    kind, data = annotation["kind"], annotation["data"]
    if kind == "note":
        author = annotation["by"] or annotation["key"]
        return f"{annotation['text']} ({author})" if author else str(annotation["text"])
    if kind == "restore":
        return f"rolled back to position {data['position']:,}"
    if kind == "fit":
        return f"fitted after {counted(data['events'], 'event')}"
    return ", ".join(
        f"threshold {format_threshold(part)}" if name == "threshold" else f"other settings of {name}"
        for name, part in data.items()
    )


def _local(clock: float) -> str:
    return datetime.fromtimestamp(clock).astimezone().isoformat(" ", "seconds")
