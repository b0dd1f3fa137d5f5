"""Replies of the service as rows and frames: events, thresholds, segments, alarms, and every other list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

__all__ = ["frame", "rows"]

_LISTS = (  # members of replies that are lists
    *("events", "points", "segments", "alarms", "annotations", "history", "fields", "weights", "snapshots"),
    *("learners", "groups", "algorithms"),
)


def rows(reply: Mapping[str, Any], member: str | None = None) -> list[dict[str, Any]]:
    """Return the list of a reply, each entry flat: `confusion.tp`, and `auc_low` and `auc_high` of an interval.

    `member`: which list; the first that the reply has if absent. Takes the lists of `thresholds()["points"]`, too.
    Raises `ValueError` if there is none. `polars.DataFrame` takes the rows as they are.
    """
    name = member or next((name for name in _LISTS if isinstance(reply.get(name), list | Mapping)), None)
    if name is None or reply.get(name) is None:
        raise ValueError(f"the reply has no list {name or 'of these: ' + ', '.join(_LISTS)}")
    entries = reply[name]
    if isinstance(entries, Mapping):  # a list for each column
        columns = {key: values for key, values in _columns(entries) if values is not None}
        entries = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [dict(_flat(entry)) for entry in entries]


def frame(reply: Mapping[str, Any], member: str | None = None) -> pandas.DataFrame:
    """Return the list of a reply as a pandas frame; columns `..._iso` are times. See `rows`."""
    import pandas

    table = pandas.DataFrame(rows(reply, member))
    for column in table.columns:
        if column.endswith("_iso"):
            table[column] = pandas.to_datetime(table[column], utc=True)
    return table


def _columns(entry: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what is not a mapping, by names such as `confusion.tp`."""
    for name, value in entry.items():
        if isinstance(value, Mapping):
            yield from _columns(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _flat(entry: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the columns of an entry; those of an interval are its ends."""
    for name, value in _columns(entry):
        if name.endswith("_interval"):
            low, high = value or (None, None)
            yield f"{name.removesuffix('interval')}low", low
            yield f"{name.removesuffix('interval')}high", high
        else:
            yield name, value
