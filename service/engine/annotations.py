"""What people note on a learner's time line: annotations, and acknowledgements of alarms.

Both are records of the log. So every node has them, restarts keep them, and of two acknowledgements of one alarm the
first in the log counts. See `learners.metrics.journal`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Any

from learners import MAX_NOTE, MAX_WRITER, InvalidInput, Note, Parameters, Problem, param, required, text_fault
from service.auth import Permissions
from service.engine.replica import LearnerReplica
from service.errors import AlreadyAcknowledged, Invalid, UnknownAlarm

__all__ = ["AcknowledgementBody", "AnnotationBody", "acknowledge", "annotate"]

Document = dict[str, Any]

_WRITER = f"Who writes it, at most {MAX_WRITER} characters."


@dataclass(frozen=True)
class _Written(Parameters):
    """What a person writes: each member is a text, or null."""

    def __post_init__(self) -> None:
        super().__post_init__()
        problems = []
        for item in fields(self):
            value, longest = getattr(self, item.name), MAX_WRITER if item.name == "by" else MAX_NOTE
            if value is not None and (fault := text_fault(value, longest, empty=item.name == "note")):
                problems.append(Problem(f"/{item.name}", fault, value=value[:MAX_WRITER]))
        if problems:
            raise InvalidInput(problems)


@dataclass(frozen=True)
class AnnotationBody(_Written):
    """The body of an annotation."""

    text: str = required(f"What happened, at most {MAX_NOTE} characters.")
    by: str | None = param(None, _WRITER)


@dataclass(frozen=True)
class AcknowledgementBody(_Written):
    """The body of an acknowledgement."""

    note: str = param("", f"What is known, or done, about the alarm, at most {MAX_NOTE} characters.")
    by: str | None = param(None, _WRITER)


async def annotate(learner: LearnerReplica, values: object, permissions: Permissions) -> Document:
    """Add an annotation at this moment; return it. Raises `Invalid` or a `StoreError`."""
    try:
        body = AnnotationBody.of(values)  # type: ignore[arg-type]  # `of` refuses values of other types
    except InvalidInput as error:
        raise Invalid("the annotation is refused; nothing was noted", error.problems) from None
    note = Note(body.text, time.time(), body.by, _name(permissions))

    async def run() -> Document:
        await learner.log.append(note, small=True, reserve=True)
        entries = reversed(learner.learner.journal.entries)  # those of other nodes may follow
        return next(entry._asdict() for entry in entries if (entry.time, entry.text) == (note.time, note.text))

    return await learner.mailbox.run(run)


async def acknowledge(learner: LearnerReplica, number: int, values: object, permissions: Permissions) -> Document:
    """Acknowledge an alarm; return it. A repetition changes nothing.

    Raises `UnknownAlarm`, `AlreadyAcknowledged` if somebody else was first, `Invalid` or a `StoreError`.
    """
    try:
        body = AcknowledgementBody.of(values)  # type: ignore[arg-type]
    except InvalidInput as error:
        raise Invalid("the acknowledgement is refused; nothing was noted", error.problems) from None
    note = Note(body.note, time.time(), body.by, _name(permissions), number)

    def alarm() -> Document:
        alike = [alarm for alarm in learner.learner.view().alarms(number) if alarm["number"] == number]
        if not alike:
            raise UnknownAlarm(f"{learner.name} has no alarm {number} among its last ones")
        return alike[0]

    async def run() -> Document:
        await learner.log.read_on()
        if alarm()["acknowledged"] is None:
            await learner.log.append(note, small=True, reserve=True)
        return alarm()

    document = await learner.mailbox.run(run)
    present = document["acknowledged"]
    if (present["note"], present["by"], present["key"]) != (note.text, note.by, note.key):
        author = present["by"] or present["key"] or "somebody"
        raise AlreadyAcknowledged(f"{author} has acknowledged alarm {number} already; your note was not added")
    return document


def _name(permissions: Permissions) -> str | None:
    """Return the name of the key, or its id if it has none that can be shown."""
    if permissions.key is None:
        return None
    return permissions.key.id if text_fault(permissions.key.name, MAX_WRITER) else permissions.key.name
