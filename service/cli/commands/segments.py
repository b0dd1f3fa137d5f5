"""`rarestream segments`: the metrics of each value of a field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

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
from service.text import counted, figure, printable

__all__ = ["segments"]

Document = Mapping[str, Any]

_WIDE = 150  # width of a terminal from which on a table has intervals
_FIGURES = {"auc": "AUC", "precision": "precision", "alert_rate": "alert rate", "label_rate": "label rate"}


def segments(
    name: Name,
    by: Annotated[str, typer.Option(help="Field of the setting figures.segments.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=64, help="Number of values at most.")] = 20,
    positives: Annotated[int, typer.Option(min=1, help="Positive labels that AUC and precision need.")] = 10,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Show AUC, precision, alert rate and label rate of the largest values of a field.

    They are of the labelled events of the window.
    """
    with reporting():
        with connected(url, key) as client:
            document = client.learner(name).segments(by, limit=limit, positives=positives)
        if as_json:
            print_json(document)
            return
        from rich.text import Text

        out = console()
        wide = out.width >= _WIDE
        table = plain_table("value", "events", "positives", "alerts", *_FIGURES.values(), right=7)
        for value, row in _rows(document):
            counts = row["events"], row["class_counts"]["positive"], row["alerts"]
            table.add_row(
                Text(value), *(f"{count:,}" for count in counts), *(_figure(row, what, wide) for what in _FIGURES)
            )
        out.print(table)
        print()
        for note in _notes(document):
            print(note)


def _rows(document: Document) -> Iterator[tuple[str, Document]]:
    """Yield the rows of the table; without those of no event, but for the whole."""
    for row in document["segments"]:
        yield printable(row["value"]), row
    for what in ("other", "missing"):
        if document[what]["events"]:
            yield f"({what})", document[what]
    yield "(all)", document["all"]


def _figure(row: Document, what: str, interval: bool) -> str:
    """Format a figure, with its interval if there is room."""
    value, ends = row[what], row[f"{what}_interval"]
    if value is None:
        return "-"
    return f"{figure(value)} ({figure(ends[0])} to {figure(ends[1])})" if interval and ends else figure(value)


def _notes(document: Document) -> Iterator[str]:
    """Yield what the table leaves out."""
    if any(" positives" in reason for reason in document["undefined"].values()):
        yield f"-: AUC, precision and label rate need {counted(document['minimum_positives'], 'positive')}"
    if document["pooled_values"]:
        yield f"(other) has {counted(document['pooled_values'], 'value')} more; see --limit"
    if document["unrecorded"]:
        yield f"{counted(document['unrecorded'], 'event')} of the window came before the field was declared"
