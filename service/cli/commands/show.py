"""`rarestream list` and `rarestream show`: all learners of a node, or one of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from service.cli.format import format_bytes, format_config, format_duration, rough_duration
from service.cli.options import flag
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
from service.text import counted, figure, share

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["describe_alarm", "describe_budget", "fields", "list_learners", "show"]

Document = Mapping[str, Any]

_WIDE = 130  # width of a terminal below which a list omits the least important columns,
_NARROW = 100  # further columns,
_NARROWER = 75  # and the algorithm, too
_PAGE = 100  # width of the output of `show` to a file or a pipe


class SortBy(StrEnum):
    """Values of `--sort`."""

    name = "name"
    events = "events"
    auc = "auc"
    f1 = "f1"
    alerts = "alerts"
    pending = "pending"
    size = "size"


_SIZES = (SortBy.pending, SortBy.size)
_METRICS = (SortBy.auc, SortBy.f1, SortBy.alerts)


def list_learners(
    prefix: Annotated[str, typer.Argument(help="Only learners whose names begin like this.", show_default=False)] = "",
    sort: Annotated[SortBy, typer.Option(help="Order; numbers from the largest.")] = SortBy.name,
    reverse: Annotated[bool, flag("--reverse", "-r", help="Reverse the order.")] = False,
    sizes: Annotated[
        bool, flag("--sizes", help="Show sizes instead of metrics, as --sort pending or size does.")
    ] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """List the learners with the metrics of the window, or with their sizes.

    Of learners that are asleep, evicted to the store, it shows only the
    names, because more would load them.
    """
    with reporting(), connected(url, key) as client:
        if sizes and sort in _METRICS:
            raise typer.BadParameter(f"does not go with --sizes: {sort} is a metric", param_hint="--sort")
        sizes = sizes or sort in _SIZES
        listing = client.learners(figures=not sizes)
        rows = [learner for learner in listing["learners"] if learner["name"].startswith(prefix)]
        asleep = [name for name in listing["asleep"] if name.startswith(prefix)]
        creating = [learner["name"] for learner in listing.get("creating", ()) if learner["name"].startswith(prefix)]
        unavailable = {name: why for name, why in listing["unavailable"].items() if name.startswith(prefix)}
        rows.sort(key=lambda row: _sort_key(row, sort), reverse=reverse)
        if as_json:
            print_json({"learners": rows, "asleep": asleep, "creating": creating, "unavailable": unavailable})
            return
        if not (rows or asleep or creating or unavailable):
            beginning = f" whose name begins with {prefix}" if prefix else " yet; `rarestream create` creates one"
            print(f"there is no learner{beginning}")
            return
        out = console()
        columns = _size_columns() if sizes else _figure_columns(rows)
        out.print(_list_table(rows, asleep, creating, unavailable, columns, out.width))


def _sort_key(row: Document, sort: SortBy) -> tuple[Any, ...]:
    """Return the sort key of a row: names ascending, numbers descending, missing ones last."""
    window = row.get("window") or {}
    number = {  # members of the other list are missing
        SortBy.name: 0,
        SortBy.events: row["events"],
        SortBy.auc: window.get("auc"),
        SortBy.f1: window.get("f1"),
        SortBy.alerts: window.get("alert_rate"),
        SortBy.pending: (row.get("pending") or {}).get("events"),
        SortBy.size: row.get("state_bytes"),
    }[sort]
    return (number is None, -(number or 0), row["name"])


class _ListColumn(NamedTuple):
    text: Callable[[Document], str]
    width: int = 0  # of a terminal below which it is omitted


def _figure_columns(rows: Sequence[Document]) -> dict[str, _ListColumn]:
    """Return the columns for the rows of `GET /v1/learners?figures=true`."""

    def window(key: str, text_of: Callable[[Any], str], width: int = 0) -> _ListColumn:
        def cell(row: Document) -> str:
            value = row["window"].get(key)
            return "-" if value is None else text_of(value)

        return _ListColumn(cell, width)

    columns = {
        "algorithm": _ListColumn(lambda row: row["algorithm"], _NARROWER),
        "events": _ListColumn(lambda row: f"{row['events']:,}"),
        "positives": _ListColumn(lambda row: _count(row["class_counts"].get("positive")), _WIDE),
        "AUC": window("auc", figure),
        "95 %": window("auc_interval", lambda ends: "-".join(f"{end:.3f}" for end in ends), _WIDE),
        "F1": window("f1", figure),
        "alerts": window("alert_rate", share, _NARROW),
        "threshold": _ListColumn(lambda row: figure(row["threshold"]), _NARROW),
        "label delay": window("label_delay_median", format_duration, _WIDE),
        "alarms": _ListColumn(lambda row: f"{sum(row['alarms'].values()):,}"),
    }
    if any("mae" in row["window"] for row in rows):  # of ordinal learners
        columns["MAE"] = window("mae", figure)
    return columns


def _size_columns() -> dict[str, _ListColumn]:
    """Return the columns for the rows of `GET /v1/learners`."""
    return {
        "algorithm": _ListColumn(lambda row: row["config"]["algorithm"], _NARROWER),
        "events": _ListColumn(lambda row: f"{row['events']:,}"),
        "queued": _ListColumn(lambda row: f"{row['queued_events']:,}", _NARROW),
        "columns": _ListColumn(lambda row: f"{row['columns']:,}", _NARROW),
        "remembered": _ListColumn(lambda row: "-" if row["pending"] is None else f"{row['pending']['events']:,}"),
        "size": _ListColumn(lambda row: format_bytes(row["state_bytes"])),
    }


def _list_table(
    rows: Sequence[Document],
    asleep: Sequence[str],
    creating: Sequence[str],
    unavailable: Mapping[str, str],
    columns: Mapping[str, _ListColumn],
    width: int,
) -> Table:
    """Return the table, with the columns that fit a terminal of this width."""
    from rich.text import Text

    cells = {heading: column.text for heading, column in columns.items() if width >= column.width}
    table = plain_table("learner", *cells, right=len(cells) - ("algorithm" in cells))
    if left_out := [heading for heading in columns if heading not in cells]:
        table.caption = f"no space for {', '.join(left_out)}; --json shows all"
        table.caption_justify = "left"
    table.add_column("state", overflow="fold")
    for row in rows:
        table.add_row(row["name"], *(text_of(row) for text_of in cells.values()), _state(row))
    blank = [""] * len(cells)
    for name in asleep:
        table.add_row(name, *blank, Text("asleep", "dim"))
    for name in creating:
        table.add_row(name, *blank, Text("being created", "dim"))
    for name, why in unavailable.items():
        table.add_row(name, *blank, Text(f"unavailable: {why}", "red"))
    return table


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _state(row: Document) -> Any:
    from rich.text import Text

    if row["failed"] is not None:
        return Text(f"failed: {row['failed']}", "red")
    if row["stale_seconds"]:
        return Text(f"no store for {rough_duration(row['stale_seconds'])}", "red")
    return Text("ready", "green") if row["ready"] else Text("not ready", "yellow")


def show(
    name: Name,
    weights: Annotated[int | None, typer.Option(min=1, max=1000, help="Number of largest weights to show.")] = None,
    fields: Annotated[bool, flag("--fields", help="Show the fields of named events.")] = False,
    config: Annotated[bool, flag("--config", help="Print only the configuration, as JSON.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Show a learner: its settings, progress and metrics.

    `rarestream create --config` reads the output of --config.
    """
    with reporting(), connected(url, key) as client:
        remote = client.learner(name)
        learner = remote.describe()
        if config:  # also a file for `create --config`
            print(json.dumps(learner["config"], indent=None if as_json else 2))
            return
        metrics, alarms = remote.metrics(), remote.alarms()
        top_weights = remote.weights(weights) if weights is not None else None
        field_list = remote.fields() if fields or learner["config"]["features"]["kind"] == "named" else None
        if as_json:
            more: dict[str, Any] = {} if top_weights is None else {"weights": top_weights}
            more |= {"fields": field_list} if fields else {}
            print_json({"learner": learner, "metrics": metrics, "alarms": alarms, **more})
            return
        from rich.text import Text

        from service.cli.display import figures_table
        from service.cli.field_notes import fields_table

        out = console(width=_PAGE)
        parts: list[Any] = [_about(learner, alarms, field_list), figures_table(metrics)]
        if learner["members"] is not None:
            parts.append(_members_table(learner["members"]))
        if fields and field_list is not None:
            parts.append(fields_table(field_list))
        if top_weights is not None:
            parts.append(_weights_table(top_weights))
            if top_weights["unnamed"]:
                lacking = f"{top_weights['unnamed']:,} without a name until the next event that has the feature"
                parts.append(Text(lacking, style="dim"))
        _print_page(out, parts)


def fields(name: Name, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """Show the fields of named events: their kinds, what contradicts them, and what is odd."""
    with reporting(), connected(url, key) as client:
        document = client.learner(name).fields()
        if as_json:
            print_json(document)
            return
        from service.cli.field_notes import field_warnings, fields_table

        _print_page(console(), [fields_table(document), *field_warnings(document)])


def _print_page(out: Console, parts: list[Any]) -> None:
    if out.is_terminal:
        out.print(*parts, sep="\n")
        return
    with out.capture() as written:
        out.print(*parts, sep="\n")
    print("\n".join(map(str.rstrip, written.get().splitlines())))  # tables are padded with blanks


def _about(learner: Document, alarms: Document, fields: Document | None) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    state = Text.assemble((learner["name"], "bold"), "  ", _state(learner))
    if learner["not_ready"]:
        state.append(f": {learner['not_ready']}")
    table.add_row("learner", state)
    for what, text in (*format_config(learner["config"]), *_progress(learner)):
        table.add_row(what, text)
    counts = ", ".join(f"{count} of the {_ALARMS.get(kind, kind)}" for kind, count in alarms["counts"].items() if count)
    last = f"; the last {describe_alarm(alarms['alarms'][-1])}" if alarms["alarms"] else ""
    pending = sum(alarms["open"].values())
    table.add_row("alarms", (counts or "none") + (f" ({pending:,} open)" if pending else "") + last)
    from service.cli.field_notes import field_warnings

    for text in field_warnings(fields):
        table.add_row("fields", Text(text, "yellow"))
    return table


_OF_FIELDS = {
    "missing": "missing values",
    "new_categories": "new categories",
    "contradictions": "values of the wrong kind",
    "out_of_range": "numbers out of range",
}
_ALARMS = {"auc": "AUC", "scores": "scores", "positives": "positive labels", **_OF_FIELDS}


def describe_alarm(alarm: Document) -> str:
    """Describe an alarm in a few words."""
    before, after = alarm["before"], alarm["after"]
    others = f" and {counted(alarm['fields'] - 1, 'other field')}" if alarm.get("fields", 0) > 1 else ""
    what = {
        "auc": f"the AUC fell from {figure(before)} to {figure(after)}",
        "scores": f"the served scores changed: {share(after)} exceed a score that {share(before)} exceeded before",
        "positives": f"positive labels stopped arriving; before, they were {share(before)} of the events",
        **{
            kind: f"more {cells} of {alarm.get('field')}{others}: {share(after)} of the events, {share(before)} before"
            for kind, cells in _OF_FIELDS.items()
        },
    }
    return f"after {counted(alarm['events'], 'event')}: {what.get(alarm['kind'], alarm['kind'])}"


def describe_budget(use: Document) -> str:
    """Describe the alerts so far of a budget, by `alert_budget` of a learner's document."""
    resets = f"; resets {use['resets_iso']}" if use["resets_iso"] else ""
    return f"{use['alerts']:,} of {counted(round(use['limit']), 'alert')}{resets}"


def _progress(learner: Document) -> Iterator[tuple[str, str]]:
    """Yield the progress and the sizes of a learner."""
    from service.cli.display import describe_fit

    ordinal = learner["config"]["threshold"] is None
    rank = "of rank " if ordinal else ""
    counts = ", ".join(f"{count:,} {rank}{name}" for name, count in learner["class_counts"].items())
    yield "events", f"{learner['events']:,} learnt ({counts})"
    if not ordinal:
        now = learner["threshold"]
        yield "threshold", "none yet" if now is None else f"probability {figure(now)}"
    if (budget := learner.get("alert_budget")) is not None:
        yield "budget", describe_budget(budget)
    if (fit := describe_fit(learner)) is not None:
        yield "fit", fit
    if learner["pending"] is not None:
        pending = learner["pending"]
        drops = f"; {pending['expired']:,} expired, {pending['evicted']:,} evicted"
        events = counted(pending["events"], "served event")
        yield "remembered", f"{events}, for labels and corrections ({format_bytes(pending['bytes'])}){drops}"
    if learner["queued_events"]:
        yield "queue", counted(learner["queued_events"], "event")
    snapshot = learner["snapshot"]
    if snapshot is not None:
        ago = rough_duration(max(0.0, time.time() - snapshot["time"]))
        snapshot_text = f"; snapshot at {snapshot['position']:,} ({format_bytes(snapshot['size'])}, {ago} ago)"
    else:
        snapshot_text = "; no snapshot yet"
    yield "position", f"{learner['position']:,}{snapshot_text}"
    yield "state", f"{format_bytes(learner['state_bytes'])}, {counted(learner['columns'], 'column')}"
    for source, offset in learner["sources"].items():
        yield "source", f"{source}: {offset:,}"


def _members_table(members: list[Document]) -> Table:
    table = plain_table("model", "kind", "weight", "AUC", "AP", "events", right=4)
    for member in members:
        weight = "-" if member["weight"] is None else f"{member['weight']:+.2f}"
        metrics = (figure(member[name]) for name in ("auc", "average_precision"))
        table.add_row(member["name"], member["kind"], weight, *metrics, f"{member['events']:,}")
    return table


def _weights_table(weights: Document) -> Table | str:
    if weights["reason"] is not None:
        return f"\nno weights: {weights['reason']}"
    cells, intercept = len(weights["weights"]), _signed(weights["intercept"])
    table = plain_table(f"feature ({cells} of {weights['total']:,})", "weight (scaled)", right=1)
    for weight in weights["weights"]:
        table.add_row(weight["name"], _signed(weight["weight"]))
    table.add_row("intercept", intercept, style="dim")
    return table


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.4g}"
