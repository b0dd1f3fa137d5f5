"""`rarestream threshold` and `thresholds`: change a learner's threshold, and try others before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.format import format_threshold
from service.cli.options import OBJECTIVES, Alerts, Set, Target, assign, objective_names, without_empty
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
from service.text import figure, share

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["threshold", "thresholds"]

Document = Mapping[str, Any]

_DAY = 86_400.0  # seconds: a budget's default unit of time
_WIDE = 175  # width of a terminal from which on a table has intervals
_COVERED = 0.9  # share of labelled events below which alerts per day are incomplete
_COLUMNS = ("precision", "recall", "f1", "alerts_per_day", "cost")
_METRICS = ("precision", "recall", "f1", "fpr", "alert_rate", "alerts_per_day", "cost")
_CELLS = ("tp", "fp", "fn", "tn")
_HEADINGS = {"f1": "F1", "fpr": "FPR", "alert_rate": "alert rate", "alerts_per_day": "alerts/day"}
_IN_FORCE, _ACTUAL = ">", "as decided"


def threshold(
    name: Name,
    objective: Annotated[
        str, typer.Argument(help=f"Objective of the threshold: {OBJECTIVES}.", autocompletion=objective_names)
    ],
    target: Target = None,
    alerts: Alerts = None,
    set: Set = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Change the threshold objective of a learner. The model is kept.

    Other settings keep their values if the objective stays the same. Another
    objective begins with its defaults. `thresholds --preview` tries it before.
    """
    with reporting():
        from rarestream import ClientError
        from service.cli.suggestions import settings_refused

        body = _changes(objective, target, alerts, set)
        with connected(url, key) as client:
            learner = client.learner(name)
            before = learner.describe()["threshold"]
            try:
                document = learner.change(**body)
            except ClientError as error:
                raise settings_refused(error, objective="OBJECTIVE") from None
        if as_json:
            print_json(document)
            return
        current = document["config"]["threshold"]
        print(f"{name} has the threshold of {format_threshold(current)}")
        costing = f" (where {current['field']} is 1)" if current["field"] is not None else ""
        now = document["threshold"]
        if now is None:
            print(f"no threshold yet: {document['not_ready']}")
        else:
            earlier = "" if before is None else f"{before:.4g} -> "
            print(f"threshold: {earlier}{now:.4g}{costing}")


def thresholds(
    name: Name,
    preview: Annotated[
        str | None,
        typer.Option(
            metavar="OBJECTIVE",
            help=f"Show what this objective would have decided: {OBJECTIVES}.",
            autocompletion=objective_names,
        ),
    ] = None,
    target: Target = None,
    alerts: Alerts = None,
    set: Set = None,
    points: Annotated[int, typer.Option("--points", "-n", min=2, max=1000, help="Number of thresholds at most.")] = 20,
    false_positive: Annotated[
        float | None, typer.Option(help="Cost of a false alarm. Default: as the threshold is set.")
    ] = None,
    false_negative: Annotated[float | None, typer.Option(help="Cost of a missed positive. Likewise.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Show what other thresholds would have done over the window.

    With --preview, --target, --alerts or --set threshold.NAME=VALUE it compares
    another objective with what was decided. It changes nothing.
    """
    with reporting():
        from rarestream import ClientError
        from service.cli.suggestions import settings_refused

        costs = without_empty({"false_positive": false_positive, "false_negative": false_negative})
        body = _changes(preview, target, alerts, set)
        if others := sorted(body.keys() - {"threshold"}):
            raise typer.BadParameter(f"{others[0]} is no part of a threshold; only threshold.* is", param_hint="--set")
        with connected(url, key) as client:
            learner = client.learner(name)
            if not body["threshold"]:
                document = learner.thresholds(points=points, **costs)
            else:
                try:
                    document = learner.preview_threshold(body["threshold"], **costs)
                except ClientError as error:
                    raise settings_refused(error, objective="--preview", within="/threshold") from None
        if as_json:
            print_json(document)
            return
        if "settings" in document:
            _print_preview(name, document)
        else:
            _print_points(document)


def _changes(
    objective: str | None, target: float | None, alerts: float | None, assignments: Sequence[str] | None
) -> dict[str, Any]:
    """Return the changes that options ask for: of `threshold`, and of other parts that --set names."""
    body: dict[str, Any] = {"threshold": without_empty({"objective": objective, "target": target, "alerts": alerts})}
    assign(body, assignments)
    settings = body["threshold"]
    if "rate" in settings and settings.keys().isdisjoint({"alerts", "unit_seconds"}):  # one replaces the other
        settings |= {"alerts": None, "unit_seconds": _DAY}
    elif "alerts" in settings and "rate" not in settings:
        settings["rate"] = None
    return body


def _print_points(document: Document) -> None:
    points = document["points"]
    if points is None:
        print(document["undefined"]["/points"])
        return
    count = len(points["threshold"])
    rows = [
        {
            **{name: None if column is None else column[i] for name, column in points.items() if name != "confusion"},
            "confusion": {cell: points["confusion"][cell][i] for cell in _CELLS},
        }
        for i in range(count)
    ]
    if document["live"] is not None:
        rows.append({"threshold": document["threshold"], **document["live"], "mark": _IN_FORCE})
    rows.sort(key=lambda row: (row["threshold"], "mark" in row))
    rows.append({"threshold": None, **document["actual"]})
    out = console()
    out.print(_table(rows, out.width >= _WIDE))
    print(f"\n{_IN_FORCE} is in force now; {_ACTUAL}: by the thresholds of the time")
    for note in _notes(document, "points"):
        print(note)


def _table(rows: Sequence[Document], wide: bool) -> Table:
    table = plain_table("threshold", *(_heading(name) for name in _COLUMNS), *map(str.upper, _CELLS[:3]), right=9)
    for row in rows:
        level = _ACTUAL if row["threshold"] is None else f"{row.get('mark', '')} {row['threshold']:.6g}"
        cells = [row["confusion"][cell] for cell in _CELLS[:3]]
        figures = [_figure(row, name, wide) for name in _COLUMNS]
        table.add_row(level, *figures, *(f"{cell:,}" for cell in cells))
    return table


def _print_preview(name: str, document: Document) -> None:
    settings, level = document["settings"], document["threshold"]
    now = "none yet" if level is None else f"{level:.4g} now"
    extent = document["threshold_range"]
    moved = f", from {extent[0]:.4g} to {extent[1]:.4g} over the window" if extent is not None else ""
    print(f"{format_threshold(settings)}: the threshold would be {now}{moved}")
    table = plain_table("", _ACTUAL, "preview", right=2)
    trials = [document["actual"], document["preview"]]
    for metric in _METRICS:
        table.add_row(_heading(metric), *("-" if trial is None else _figure(trial, metric, True) for trial in trials))
    for cell in _CELLS:
        table.add_row(cell.upper(), *("-" if trial is None else f"{trial['confusion'][cell]:,}" for trial in trials))
    console().print(table)
    print()
    for note in _notes(document, "preview"):
        print(note)
    print(f"`rarestream threshold {name}` sets it")


def _heading(name: str) -> str:
    return _HEADINGS.get(name, name)


def _figure(row: Document, name: str, interval: bool) -> str:
    """Format a figure, with its interval if there is room."""
    value, ends = row[name], row[f"{name}_interval"]
    if value is None:
        return "-"
    if name in ("alerts_per_day", "cost"):
        texts = [f"{number:,.4g}" if abs(number) < 1e4 else f"{number:,.0f}" for number in (value, *ends)]
    else:
        texts = [figure(number) for number in (value, *ends)]
    return f"{texts[0]} ({texts[1]} to {texts[2]})" if interval else texts[0]


def _notes(document: Document, part: str) -> Iterator[str]:
    """Yield the events and costs behind the figures, and why some are missing."""
    window, costs = document["window"], document["costs"]
    positives = window["class_counts"]["positive"]
    priced = (
        ""
        if costs is None
        else f"; a false alarm costs {costs['false_positive']:g}, a miss {costs['false_negative']:g}"
    )
    yield f"over {window['events']:,} labelled events of the window, {positives:,} positive{priced}"
    coverage = window["label_coverage"]
    if coverage is not None and coverage < _COVERED:
        yield f"labels of {share(coverage)} of the scored events: the others may be alerts, too, and are not counted"
    undefined = document["undefined"]
    for at in ("/threshold", f"/{part}", *(f"/{part}/{name}" for name in _METRICS)):
        if at in undefined:
            yield f"no {_heading(at.rpartition('/')[2])}: {undefined[at]}"
