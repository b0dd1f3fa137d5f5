"""Lists served events with their labels: what an analyst sees of a learner.

    store.served (newest first, in steps) -> labels that the learner remembers -> filter -> a page -> explanations

The store remembers what was served, and the labels that came since, until the bounds of `late` drop it. The learner
remembers the labels of its last `remembered_ids` ids: these are in force. A page looks through a bounded number of
events, which it counts.
Features are there if the learner keeps them, and only for those who may see them: nobody else can filter by them.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from learners import InvalidInput, Problem, explain_scores
from service.engine.records import ServedColumns, served_document, unpack_served
from service.engine.replica import LearnerReplica
from service.errors import Damaged, Invalid, UnknownEvent
from service.storage import ServedEvent, ServedLabel, add_labels, pack_labels, unpack_labels
from service.wire import explanation, finite_or_none, iso_time

__all__ = [
    "EventDetails",
    "EventFilter",
    "EventOrder",
    "EventPage",
    "EventStatus",
    "erase_event",
    "find_event",
    "find_events",
    "list_events",
]

EventStatus = Literal["alert", "unlabelled", "labelled", "expired"]
EventOrder = Literal["time", "score"]
MAX_SCANNED = 10_000  # events that one page looks through
_STEP = 1_000  # events that are decoded together
_NO_LABEL = ServedLabel(0, -1, math.nan)
Document = dict[str, Any]


class EventFilter(NamedTuple):
    """Which events to list; None and the empty prefix take all."""

    status: EventStatus | None = None
    decision: int | None = None
    label: int | None = None
    start: float | None = None  # seconds, of the events' times
    stop: float | None = None
    min_probability: float | None = None
    text: str = ""  # with which the id begins, or FIELD=VALUE of a named event
    id: str | None = None  # of the one event to list

    def takes(self, event: Document) -> bool:
        """Tell whether an event, described with the features that may be seen, is to be listed."""
        alerts = self.status == "alert"
        return (
            (self.status is None or event["status"] == ("unlabelled" if alerts else self.status))
            and (not alerts or event["decision"] == 1)
            and (self.decision is None or event["decision"] == self.decision)
            and (self.label is None or event["label"] == self.label)
            and (self.start is None or event["time"] >= self.start)
            and (self.stop is None or event["time"] < self.stop)
            and (self.min_probability is None or (event["probability"] or 0.0) >= self.min_probability)
            and (event["id"].startswith(self.text) or self._has_value(event.get("features")))
        )

    def _has_value(self, features: Document | None) -> bool:
        """Tell whether a field has the value of `text`; the names of fields may have an equals sign, too."""
        if features is None:
            return False
        for match in re.finditer("=", self.text):
            name, value = self.text[: match.start()], self.text[match.end() :]
            members = features[name] if isinstance(features.get(name), list) else []
            if name in features and any(_spells(value, member) for member in [features[name], *members]):
                return True
        return False


def _spells(text: str, value: Any) -> bool:
    """Tell whether a text is a value, or the JSON of one: 12, 12.0 and 1.2e1 are the same number."""
    if text == value:
        return True
    try:
        spelled = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return False
    return bool(spelled == value) and isinstance(spelled, bool) == isinstance(value, bool)


class EventDetails(NamedTuple):
    """What is described of events beside their scores and labels."""

    features: bool = False  # those that are kept
    explain: int | None = None  # contributions to the score of an event whose features are kept


class EventPage(NamedTuple):
    """Which part of a list."""

    limit: int = 50  # events at most
    cursor: int = 0  # that of the page before; 0: the newest
    after: int = 0  # `newest` of an earlier page: only events that were scored since
    sort: EventOrder = "time"


async def list_events(
    learner: LearnerReplica, event_filter: EventFilter, part: EventPage, details: EventDetails
) -> Document:
    """List served events: the newest served first, or of those looked through the highest scores first.

    Raises `Invalid` for a filter that the learner's decisions do not have, and for explanations that it cannot give.
    Takes time linear in the events looked through, at most `MAX_SCANNED`.
    """
    _check_ordinal(learner, event_filter, details)
    if event_filter.id is not None:
        try:
            matches = [await find_event(learner, event_filter.id, details)]
        except UnknownEvent:
            matches = []
        matches = [event for event in matches if event_filter.takes(event)]
        return {"events": matches, "cursor": None, "newest": 0, "scanned": 1}
    limit, cursor, after, sort = part
    store, matches, scanned, more = learner.node.store, list[Document](), 0, True
    newest = after
    step = limit if sort == "time" and event_filter == EventFilter() else _STEP
    unreported = learner.label_expiry.unreported()  # before the store is asked: a report may come between
    while more and scanned < MAX_SCANNED and (sort == "score" or len(matches) < limit):
        page = await learner.node.call(store.served(learner.name, learner.birth, step, cursor))
        arrived = [
            _join_labels(labels, unreported.get(event.id))
            for event, labels in zip(page.events, page.labels, strict=True)
        ]
        events, more = await _describe(learner, page.events, arrived, details.features), page.more
        if not cursor and page.numbers and page.numbers[0] < after:
            after = newest = 0  # of a learner of this name that was deleted: the numbers have begun anew
        for event, number in zip(events, page.numbers, strict=True):
            if number <= after:
                more = False
                break
            if sort == "time" and len(matches) == limit:
                more = True
                break
            newest = max(newest, number)
            scanned, cursor = scanned + 1, number
            if event_filter.takes(event):
                matches.append(event)
        if sort == "score":  # of all the steps no more are held than are wanted
            matches = heapq.nlargest(
                limit, matches, key=lambda event: -math.inf if event["score"] is None else event["score"]
            )
    await _explain(learner, matches, details.explain)
    return {"events": matches, "cursor": cursor if more else None, "newest": newest, "scanned": scanned}


async def find_event(learner: LearnerReplica, id: str, details: EventDetails) -> Document:
    """Describe one served event. Raises `UnknownEvent`, and `Invalid` for an explanation that cannot be given."""
    (event,) = await find_events(learner, [id], details)
    if isinstance(event, dict):
        return event
    why = "is no longer remembered" if event else "was not scored, or was scored long ago"
    raise UnknownEvent(f"an event of this id {why}")


async def find_events(
    learner: LearnerReplica, ids: Sequence[str], details: EventDetails
) -> list[Document | bool | None]:
    """Describe served events with their history: True for one that is no longer remembered, None for an unknown id.

    Raises `Invalid` for an explanation that cannot be given.
    """
    _check_ordinal(learner, EventFilter(), details)
    store, unreported = learner.node.store, learner.label_expiry.unreported()
    recalled = await learner.node.call(store.recall(learner.name, learner.birth, ids))
    stored = await learner.node.call(store.labels(learner.name, learner.birth, ids))
    events = [event for event in recalled if isinstance(event, ServedEvent)]
    labels = {id: _join_labels(earlier, unreported.get(id)) for id, earlier in zip(ids, stored, strict=True)}
    described = await _describe(learner, events, [labels[event.id] for event in events], details.features)
    await _explain(learner, described, details.explain)
    ttl = learner.learner.config.late.label_ttl
    histories = {event["id"]: _history(event, labels[event["id"]] or [], ttl) for event in described}
    documents = {event["id"]: {**event, "history": histories[event["id"]]} for event in described}
    return [documents[event.id] if isinstance(event, ServedEvent) else event for event in recalled]


async def erase_event(learner: LearnerReplica, id: str) -> Document:
    """Erase what the store remembers of a served event; the log and the snapshots age out. Raises `UnknownEvent`."""
    node, name = learner.node, learner.name
    if not await node.call(node.store.erase(name, learner.birth, id)):
        raise UnknownEvent("an event of this id was not scored, or is no longer remembered")
    learner.served_events.pending = await node.call(node.store.pending(name, learner.birth))
    head = await node.call(node.store.head(name))
    return {"id": id, "position": learner.position if head is None else head.position}


def _check_ordinal(learner: LearnerReplica, event_filter: EventFilter, details: EventDetails) -> None:
    if learner.learner.config.labels.ranks is None:
        return
    problems = [
        Problem(at, "is for learners of two classes; this one predicts ranks", "conflict")
        for at, used in (
            ("/status", event_filter.status == "alert"),
            ("/min_probability", event_filter.min_probability is not None),
            ("/explain", details.explain is not None),
        )
        if used
    ]
    if problems:
        raise Invalid("the filter does not fit the learner", problems)


def _join_labels(stored: list[ServedLabel] | None, unreported: list[ServedLabel] | None) -> list[ServedLabel] | None:
    """Return the labels that were sent for an event, oldest first; None if there is none."""
    if unreported is None:
        return stored
    return unpack_labels(add_labels(pack_labels(stored or []), pack_labels(unreported)))


def _history(event: Document, labels: Sequence[ServedLabel], label_ttl: float) -> list[Document]:
    """Return what happened to an event, oldest first."""
    entries: list[tuple[str, float, int | None, int | None]] = [("served", event["time"], event["position"], None)]
    for number, label in enumerate(labels):
        entries.append(("corrected" if number else "labelled", label.time, label.position, label.label))
    label = event["label"]
    if event["label_source"] == "assumed":
        entries.append(("assumed", event["time"] + label_ttl, None, label))
    elif label is not None and (not labels or labels[-1].label != label):  # it came with features
        entries.append(("corrected" if labels else "labelled", math.nan, None, label))
    return [
        {"kind": kind, "time": finite_or_none(time), "time_iso": iso_time(time), "position": position, "label": label}
        for kind, time, position, label in entries
    ]


async def _describe(
    learner: LearnerReplica,
    events: Sequence[ServedEvent],
    arrived: Sequence[list[ServedLabel] | None],
    features: bool,
) -> list[Document]:
    """Describe served events, with the labels that the learner remembers, and the `features` that are kept.

    `arrived`: the labels that were sent for each; None if there is none.
    """
    if not events:
        return []
    config = learner.learner.config
    what, like = f"a served event of {learner.name}", config.encode([])

    def unpack() -> tuple[ServedColumns, list[Document]]:
        columns, member = unpack_served([event.data for event in events], like, what), config.features.MEMBER
        return columns, [_as_sent(member, packed, what) if features else {} for packed in columns.features]

    columns, values = await asyncio.to_thread(unpack)
    ids = [event.id for event in events]
    labels = await learner.read(lambda core: core.learnt_labels(ids))
    expiry = learner.view.figures.clock - config.late.label_ttl  # NaN without a clock: then nothing has expired
    assumes = config.late.unlabelled == "negative"
    described: list[Document] = []
    for i, event in enumerate(events):
        expired = event.time < expiry
        has_label = not math.isnan(labels[i])
        assumed = assumes and expired and labels[i] == 0 and arrived[i] is None
        status = "labelled" if has_label else "unlabelled"
        if expired and (not has_label or assumed):
            status = "expired"
        source = "assumed" if assumed else "given"
        last = (arrived[i] or [_NO_LABEL])[-1]  # it may have been rolled back
        label_time = last.time if has_label and last.label == labels[i] else math.nan
        described.append(
            {
                **served_document(event, columns, i),
                "status": status,
                "label": int(labels[i]) if has_label else None,
                "label_source": source if has_label else None,
                "label_time": finite_or_none(label_time),
                "label_time_iso": iso_time(label_time),
                "label_delay": finite_or_none(label_time - event.time),
                **values[i],
            }
        )
    return described


def _as_sent(member: str, packed: bytes | None, what: str) -> Document:
    """Return the members of a request's event that had its features; `member` is that of the learner's kind."""
    try:
        carried = None if packed is None else msgspec.json.decode(packed)
    except msgspec.DecodeError as error:
        raise Damaged(f"{what} has features that are not readable: {error}") from error
    if member != "indices":
        return {member: carried}
    indices, values = carried or (None, None)
    return {"indices": indices, "values": values}


async def _explain(learner: LearnerReplica, described: Sequence[Document], most: int | None) -> None:
    """Add what contributes to the score that the present model gives each event; None without its features."""
    if most is None:
        return
    member = learner.learner.config.features.MEMBER
    explained = [event for event in described if event.get(member) is not None]
    carried = [(event["indices"], event["values"]) if member == "indices" else event[member] for event in explained]
    try:
        reasons = await asyncio.to_thread(explain_scores, learner.view.scorer.frozen(), carried, most)
    except InvalidInput as error:
        raise Invalid("the explanation is refused", error.problems) from None
    for event in described:
        event["explanation"] = None
    for event, reason in zip(explained, reasons, strict=True):
        event["explanation"] = explanation(reason)
