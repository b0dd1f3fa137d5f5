"""Lists the events that a group has scored: what each of its learners said of the same event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.engine.replica import LearnerReplica
from service.engine.served_list import EventDetails, EventFilter, EventPage, find_events, list_events
from service.errors import UnknownEvent

__all__ = ["find_group_event", "list_group_events"]

Document = dict[str, Any]


async def list_group_events(
    members: Mapping[str, LearnerReplica], name: str, event_filter: EventFilter, part: EventPage, details: EventDetails
) -> Document:
    """List events that the learner `name` of the group has scored, with what each learner says of them.

    The filter and the order are those of this learner. A learner that does not remember an event has None.
    """
    document = await list_events(members[name], event_filter, part, details._replace(explain=None))
    events = await _beside(members, [event["id"] for event in document["events"]], details)
    for event in events:
        for of_learner in event["learners"].values():
            (of_learner or {}).pop("history", None)
    return {**document, "learner": name, "events": events}


async def find_group_event(members: Mapping[str, LearnerReplica], id: str, details: EventDetails) -> Document:
    """Describe an event as each learner of the group has it. Raises `UnknownEvent` if none remembers it."""
    (event,) = await _beside(members, [id], details)
    if not any(event["learners"].values()):
        raise UnknownEvent("no learner of the group remembers an event of this id")
    return event


async def _beside(members: Mapping[str, LearnerReplica], ids: Sequence[str], details: EventDetails) -> list[Document]:
    columns = {name: await find_events(member, ids, details) for name, member in members.items()}

    def of(event: Document | bool | None) -> Document | None:
        return event if isinstance(event, dict) else None

    return [
        {"id": id, "learners": {name: of(events[i]) for name, events in columns.items()}} for i, id in enumerate(ids)
    ]
