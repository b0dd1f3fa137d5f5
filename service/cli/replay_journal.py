"""Keeps a journal of the rows that a replay sends, by which the replay of a repaired file leaves out learnt ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from service.cli.learnt_rows import EarlierEvents, LearntRows, state_folder
from service.datasets import RequestBody, earlier_sources

__all__ = ["ReplayJournal"]


class ReplayJournal:
    """The rows of a source and those of earlier files, on this machine.

    A source that was begun elsewhere, or whose rows cannot be written, has no journal: then none of its rows is
    recognised.
    """

    def __init__(self, url: str, learner: dict[str, Any], source: str, note: Callable[[str], None]) -> None:
        self._learnt: dict[str, int] = learner["sources"]
        self._note = note
        self._rows: LearntRows | None = None
        self._earlier: dict[str, LearntRows] = {}
        self.covers_earlier = False  # the rows of all earlier files are recognised
        try:
            folder = state_folder(url, learner["name"])
            self._rows = LearntRows(folder, source)
            sources = [name for name in self._learnt if name in earlier_sources(learner, source)]
            rows = {name: LearntRows(folder, name) for name in sources}
            self._earlier = {name: whole for name, whole in rows.items() if whole.reaches(self._learnt[name])}
            self.covers_earlier = len(self._earlier) == len(sources)
        except (OSError, RuntimeError) as error:
            self._give_up(error)

    def begin(self, again: bool) -> EarlierEvents | None:
        """Begin or resume the source; return the rows of earlier files to leave out, None if there are none.

        With `again`, a source that begins leaves out those that are known; one that is resumed, the same ones.
        """
        if self._rows is None:
            return None
        learnt = self._learnt.get(self._rows.source, 0)
        try:
            if not learnt:
                after = list(self._earlier) if again else []
                self._rows.begin(after)
            elif self._rows.reaches(learnt):
                after = self._rows.resume()
            else:  # begun elsewhere, or by an earlier version
                self._rows.remove()
                self._rows = None
                return None
            parts = [self._earlier[name].hashes(self._learnt[name]) for name in after if name in self._earlier]
            return EarlierEvents(np.concatenate(parts)) if parts else None
        except OSError as error:
            self._give_up(error)
            return None

    def note(self, batch: RequestBody) -> None:
        """Remember labelled rows that are about to be sent."""
        if self._rows is None or batch.kind != "labelled":
            return
        try:
            self._rows.note(batch.numbers, (event.body for event in batch.events))
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        if self._rows is not None:
            with suppress(OSError):
                self._rows.remove()
        self._rows = None
        self._note(f"warning: this machine does not remember the rows, for the replay of a repaired file: {error}")
