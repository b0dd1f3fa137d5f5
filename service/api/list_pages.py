"""Pages of lists: at most `limit` entries behind a `cursor`, which is the last entry of the page before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

__all__ = ["WHOLE", "ListPage", "cut_list", "cut_numbered"]

Entry = TypeVar("Entry")


class ListPage(NamedTuple):
    """Which part of a list by name; without a limit all of it behind the cursor."""

    limit: int | None = None
    cursor: str = ""  # a name: "" comes before all

    @property
    def query(self) -> dict[str, str]:
        """Return the parameters of the page."""
        return {name: str(value) for name, value in self._asdict().items() if value}

    def names(self, names: Iterable[str]) -> list[str]:
        """Return the names of the page in order, and one more if there is one, by which `cut` knows that."""
        behind = sorted(name for name in names if name > self.cursor)
        return behind if self.limit is None else behind[: self.limit + 1]

    def cut(self, document: dict[str, Any], kind: str, *, more: bool = False) -> dict[str, Any]:
        """Return the page of a document with rows under `kind` and names elsewhere, and its `cursor`.

        `more`: whether names behind those of the document are known to exist.
        """
        asleep: list[str] = document.get("asleep", [])
        names = self.names([*(row["name"] for row in document[kind]), *asleep, *document["unavailable"]])
        page = names if self.limit is None else names[: self.limit]
        page_names = set(page)
        cut: dict[str, Any] = {
            kind: [row for row in document[kind] if row["name"] in page_names],
            "unavailable": {name: why for name, why in document["unavailable"].items() if name in page_names},
        }
        if "asleep" in document:
            cut["asleep"] = [name for name in asleep if name in page_names]
        return {**document, **cut, "cursor": page[-1] if page and (more or len(page) < len(names)) else None}


WHOLE = ListPage()


def cut_list(entries: Sequence[Entry], limit: int | None, start: int) -> tuple[list[Entry], int | None]:
    """Return the entries of a page from a number on, and the number of the next page's first; None at the end."""
    stop = len(entries) if limit is None else start + limit
    return list(entries[start:stop]), stop if stop < len(entries) else None


def cut_numbered(entries: Sequence[dict[str, Any]], limit: int | None) -> tuple[list[dict[str, Any]], int | None]:
    """Return the first entries of a list whose `number` ascends, and the number of the next page; None at the end."""
    page, stop = cut_list(entries, limit, 0)
    return page, None if stop is None else entries[stop]["number"]
