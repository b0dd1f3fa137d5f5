"""Describe the fields of a learner: a table, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rarestream import ClientError, RemoteLearner, RequestRefused
from service.cli.options_service import plain_table
from service.text import counted

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["FieldChanges", "field_warnings", "fields_table"]

Document = Mapping[str, Any]

_LISTED = 5  # fields that a warning names
_REMARKS = {
    "constant": "the same for long",
    "unique": "new in each event, as an id",
    "stopped": "missing for long",
    "rounded": "numbers beyond 2^53, which have lost digits if they are ids (send ids as text)",
}


def field_warnings(fields: Document | None) -> Iterator[str]:
    """Yield what is wrong with the fields, if anything."""
    if fields is None:
        return
    if fields["absent"]:
        yield f"no event has had {', '.join(fields['absent'])}, declared for this learner"
    if fields["omitted"]:
        yield f"{len(fields['fields']):,} fields are remembered, and no further ones: are values sent as names?"
    contradicted = [field for field in fields["fields"] if field["contradictions"]]
    if contradicted:
        most = sorted(contradicted, key=lambda field: -field["contradictions"])[:_LISTED]
        listed = ", ".join(f"{field['name']} ({field['contradictions']:,})" for field in most)
        yield f"values contradict the kind of {counted(len(contradicted), 'field')}: {listed}; see --fields"
    for remark, text in _REMARKS.items():  # an older service has no remarks
        if names := [field["name"] for field in fields["fields"] if remark in field.get("remarks", ())]:
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            yield f"{text}: {', '.join(names[:_LISTED])}{more}"


class FieldChanges:
    """What happens to the fields of a learner from now on, for a line at the end of a command."""

    def __init__(self, learner: RemoteLearner) -> None:
        self._learner = learner
        self._before: Document | None = None
        with suppress(RequestRefused):  # the key may not read the fields
            self._before = learner.fields()

    def line(self) -> str | None:
        """Describe the changes that matter; None if there are none, or the key may not read the fields."""
        if self._before is None or self._before["reason"] is not None:
            return None
        try:
            after = self._learner.fields()
        except ClientError:  # the events are learnt in any case
            return None
        earlier = {field["name"]: field for field in self._before["fields"]}
        changes = [_change(field, earlier.get(field["name"])) for field in after["fields"]]
        as_text = sum(field["numbers_as_text"] for field in changes if field["kind"] == "number")
        parts = [f"{counted(as_text, 'number')} sent as text"] if as_text else []
        absent = [name for name in after["absent"] if name not in self._before["absent"]]
        changed = {"fields": changes, "absent": absent, "omitted": after["omitted"] and not self._before["omitted"]}
        parts += [text.removesuffix("; see --fields") for text in field_warnings(changed)]
        return f"fields: {'; '.join(parts)} (rarestream fields {self._learner.name})" if parts else None


def _change(field: Document, before: Document | None) -> Document:
    """Return a field with the counts and the remarks since `before`."""
    if before is None:
        return field
    counts = {name: field[name] - before[name] for name in ("numbers_as_text", "contradictions")}
    remarks = [remark for remark in field.get("remarks", ()) if remark not in before.get("remarks", ())]
    return {**field, **counts, "remarks": remarks}


_COUNTS = {
    "missing": "missing",
    "as text": "numbers_as_text",
    "contradict": "contradictions",
    "new": "new_categories",
    "out of range": "out_of_range",
}


def fields_table(fields: Document) -> Table | str:
    """Return a table of the fields, with the counts that are not 0 for all, or why there are none."""
    if fields["reason"] is not None:
        return f"\nno fields: {fields['reason']}"
    counts = {title: name for title, name in _COUNTS.items() if any(field.get(name) for field in fields["fields"])}
    numbers = ("smallest", "1 %", "99 %", "largest")
    titles = ("values", *counts, *numbers, "last")
    table = plain_table(f"field ({len(fields['fields']):,})", "kind", *titles, right=len(titles))
    for field in fields["fields"]:
        kind = field["kind"] + (" (declared)" if field["declared"] else "")
        bounds = (field.get(name) for name in ("smallest", "low", "high", "largest"))  # an older service has no range
        last = "never" if field["last"] is None else f"{field['last']:,}"
        table.add_row(
            field["name"],
            kind,
            *(f"{field.get(name, 0):,}" for name in ("values", *counts.values())),
            *("-" if bound is None else f"{bound:.6g}" for bound in bounds),
            last,
        )
    return table
