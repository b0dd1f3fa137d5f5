"""`rarestream list` and `rarestream show`: the learners of a node, and one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.commands.connection import (
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
from service.commands.durations import roughly, spoken
from service.commands.states import size

if TYPE_CHECKING:
    from rich.table import Table

    from service.commands.api import Api

__all__ = ["alarm_of", "list_learners", "show"]

Document = Mapping[str, Any]

_ASKED = 100  # learners whose figures are asked for without being told to: a request each
_NARROW = 100  # columns of a terminal below which a list leaves out what is looked for least,
_NARROWER = 75  # and below which the algorithm, too
_SETTINGS = {  # of a threshold, those that its objective goes by
    "fixed": ("value",),
    "fbeta": ("beta",),
    "cost": ("false_positive", "false_negative", "field"),
    "fpr": ("target",),
    "precision": ("target",),
    "recall": ("target",),
    "budget": ("alerts", "unit_seconds", "rate"),
}


class SortBy(StrEnum):
    """What `--sort` takes."""

    name = "name"
    events = "events"
    auc = "auc"
    f1 = "f1"
    pending = "pending"
    size = "size"


def list_learners(
    prefix: Annotated[str, typer.Argument(help="Only those whose names begin like this.", show_default=False)] = "",
    sort: Annotated[SortBy, typer.Option(help="By what; figures and sizes from the largest.")] = SortBy.name,
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="The other way round.")] = False,
    figures: Annotated[
        bool | None, typer.Option(help="Ask for each learner's figures; without either, of 100 at most.")
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """List the learners, with their figures over the window.

    Learners that are asleep, swapped out to the store, are named only: to ask
    for more would wake them.
    """
    with reporting(), connected(url, key) as api:
        found = api.learners()
        learners = [one for one in found["learners"] if one["name"].startswith(prefix)]
        asleep = [name for name in found["asleep"] if name.startswith(prefix)]
        unavailable = {name: why for name, why in found["unavailable"].items() if name.startswith(prefix)}
        wanted = figures if figures is not None else len(learners) <= _ASKED or sort in (SortBy.auc, SortBy.f1)
        rows = [{**one, "metrics": _metrics(api, one["name"]) if wanted else None} for one in learners]
        rows.sort(key=lambda row: _rank(row, sort), reverse=reverse)
        if as_json:
            print_json({"learners": rows, "asleep": asleep, "unavailable": unavailable})
            return
        if not (rows or asleep or unavailable):
            beginning = f" whose name begins with {prefix}" if prefix else " yet; `rarestream create` makes one"
            print(f"there is no learner{beginning}")
            return
        out = console()
        out.print(_listed(rows, asleep, unavailable, out.width))
        notes = console(stderr=True)
        if not wanted:
            notes.print(f"{len(rows):,} learners: figures are left out; --figures asks for them")


def _metrics(api: Api, name: str) -> Document | None:
    """The learner's figures; None where it has gone meanwhile, or cannot tell."""
    from service.commands.api import ApiError

    try:
        return api.metrics(name)
    except ApiError as error:
        if error.status is None:
            raise
        return None


def _rank(row: Document, sort: SortBy) -> tuple[Any, ...]:
    """Where a row stands: by name from the first, by numbers from the largest, unknown ones last."""
    window = _window(row)
    number = {
        SortBy.name: 0,
        SortBy.events: row["events"],
        SortBy.auc: window.get("auc"),
        SortBy.f1: window.get("f1"),
        SortBy.pending: (row["pending"] or {}).get("events"),
        SortBy.size: row["state_bytes"],
    }[sort]
    return (number is None, -(number or 0), row["name"])


def _listed(rows: list[dict[str, Any]], asleep: list[str], unavailable: Mapping[str, str], width: int) -> Table:
    """A line for each, with as many columns as a terminal of this width has room for."""
    from rich.text import Text

    texts: dict[str, Callable[[Document], str]] = {"learner": lambda row: row["name"]}
    if width >= _NARROWER:
        texts["algorithm"] = lambda row: row["config"]["algorithm"]
    numbers: dict[str, Callable[[Document], str]] = {
        "events": lambda row: f"{row['events']:,}",
        "AUC": lambda row: _number(_window(row).get("auc")),
        "F1": lambda row: _number(_window(row).get("f1")),
    }
    if any(row["threshold"] is None for row in rows):  # ordinal ones
        numbers["MAE"] = lambda row: _number(_window(row).get("mae"))
    if width >= _NARROW:
        numbers["threshold"] = lambda row: _number(row["threshold"])
        numbers["remembered"] = lambda row: "-" if row["pending"] is None else f"{row['pending']['events']:,}"
        numbers["size"] = lambda row: size(row["state_bytes"])
    columns = texts | numbers
    table = plain_table(*columns, right=len(numbers))
    table.add_column("state", overflow="fold")
    for row in rows:
        table.add_row(*(told(row) for told in columns.values()), _state(row))
    blank = [""] * (len(columns) - 1)
    for name in asleep:
        table.add_row(name, *blank, Text("asleep", "dim"))
    for name, why in unavailable.items():
        table.add_row(name, *blank, Text(f"unavailable: {why}", "red"))
    return table


def _window(row: Document) -> Document:
    """The figures of the window; none where they were not asked for, or could not be had."""
    found: Document = (row["metrics"] or {}).get("window", {})
    return found


def _state(row: Document) -> Any:
    from rich.text import Text

    if row["failed"] is not None:
        return Text(f"failed: {row['failed']}", "red")
    if row["stale_seconds"]:
        return Text(f"no store for {roughly(row['stale_seconds'])}", "red")
    return Text("ready", "green") if row["ready"] else Text("not ready", "yellow")


def show(
    name: Name,
    weights: Annotated[int | None, typer.Option(min=1, max=1000, help="Show so many of the largest weights.")] = None,
    config: Annotated[bool, typer.Option("--config", help="Print the configuration only, as JSON.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Show a learner: its settings, how far it is, and its figures.

    What --config prints, `rarestream create --config` takes.
    """
    with reporting(), connected(url, key) as api:
        learner = api.learner(name)
        if config:
            print_json(learner["config"])
            return
        metrics, alarms = api.metrics(name), api.alarms(name)
        told = api.weights(name, weights) if weights is not None else None
        if as_json:
            more = {} if told is None else {"weights": told}
            print_json({"learner": learner, "metrics": metrics, "alarms": alarms, **more})
            return
        from service.commands.console import figures_table

        out = console()
        out.print(_about(learner, alarms))
        out.print(figures_table(metrics))
        if told is not None:
            out.print(_weighed(told))


def _about(learner: Document, alarms: Document) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    state = Text.assemble((learner["name"], "bold"), "  ", _state(learner))
    if learner["not_ready"]:
        state.append(f": {learner['not_ready']}")
    table.add_row("learner", state)
    for what, said in (*_settings(learner["config"]), *_progress(learner)):
        table.add_row(what, said)
    counts = ", ".join(f"{count} of the {_ALARMS.get(kind, kind)}" for kind, count in alarms["counts"].items() if count)
    last = f"; the last {alarm_of(alarms['alarms'][-1])}" if alarms["alarms"] else ""
    table.add_row("alarms", (counts or "none") + last)
    return table


_ALARMS = {"auc": "AUC", "scores": "scores"}


def alarm_of(alarm: Document) -> str:
    """One alarm in a few words."""
    what = {"auc": "the AUC fell", "scores": "the served scores changed"}.get(alarm["kind"], alarm["kind"])
    return f"after {alarm['events']:,} events: {what} from {_number(alarm['before'])} to {_number(alarm['after'])}"


def _settings(config: Document) -> Iterator[tuple[str, str]]:
    """The parts of a configuration that do something."""
    yield "algorithm", " ".join([config["algorithm"], *_pairs(config["params"] or {})])
    features = {**config["features"]}
    fields = [f"{one['name']} ({one['kind']})" for one in features.pop("fields", ())]
    yield "features", " ".join([features.pop("kind"), *_pairs(features), *([", ".join(fields)] if fields else [])])
    for part in ("scaling", "embedding", "calibration"):
        settings = {**(config[part] or {})}
        kind = settings.pop("kind", "none")
        if kind != "none":
            yield part, " ".join([kind, *_pairs(settings)])
    if config["threshold"] is not None:
        objective = config["threshold"]["objective"]
        chosen = {name: config["threshold"][name] for name in _SETTINGS.get(objective, ())}
        yield "objective", " ".join([objective, *_pairs(chosen)])
    late = config["late"]
    yield "late labels", f"for {spoken(late['label_ttl'])}, then {late['unlabelled']}"
    if config["refit_every"] is not None:
        yield "fits", f"every {config['refit_every']:,} events, of the last {config['refit_window']:,}"


def _pairs(settings: Mapping[str, Any]) -> list[str]:
    """`C=0.1 categorical=merchant,country`; what is empty is left out."""
    shown = {name: ",".join(map(str, one)) if isinstance(one, list) else one for name, one in settings.items()}
    return [
        f"{name}={one:.6g}" if isinstance(one, float) else f"{name}={one}"
        for name, one in shown.items()
        if one not in (None, "")
    ]


def _progress(learner: Document) -> Iterator[tuple[str, str]]:
    """How far it is, and what it takes."""
    from service.commands.console import fit_of

    rank = "of rank " if learner["threshold"] is None else ""
    counts = ", ".join(f"{count:,} {rank}{name}" for name, count in learner["class_counts"].items())
    yield "events", f"{learner['events']:,} learnt ({counts})"
    if learner["threshold"] is not None:
        yield "threshold", f"{_number(learner['threshold'])} of the probability"
    if (fit := fit_of(learner)) is not None:
        yield "fit", fit
    if learner["pending"] is not None:
        pending = learner["pending"]
        gone = f"; {pending['expired']:,} expired, {pending['evicted']:,} evicted"
        kept = f"{pending['events']:,} served event{'s' * (pending['events'] != 1)}"
        yield "remembered", f"{kept}, for labels and corrections ({size(pending['bytes'])}){gone}"
    if learner["queued_events"]:
        yield "queue", f"{learner['queued_events']:,} events"
    snapshot = learner["snapshot"]
    if snapshot is not None:
        ago = roughly(max(0.0, time.time() - snapshot["time"]))
        taken = f"; snapshot at {snapshot['position']:,} ({size(snapshot['size'])}, {ago} ago)"
    else:
        taken = "; no snapshot yet"
    yield "position", f"{learner['position']:,}{taken}"
    yield "state", f"{size(learner['state_bytes'])}, {learner['columns']:,} columns"
    for source, offset in learner["sources"].items():
        yield "source", f"{source}: {offset:,}"


def _weighed(weights: Document) -> Table | str:
    if weights["reason"] is not None:
        return f"\nno weights: {weights['reason']}"
    told, intercept = len(weights["weights"]), _signed(weights["intercept"])
    table = plain_table(f"feature ({told} of {weights['total']:,})", "weight, as scaled", right=1)
    for one in weights["weights"]:
        table.add_row(one["name"], _signed(one["weight"]))
    table.add_row("intercept", intercept, style="dim")
    return table


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.4g}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
