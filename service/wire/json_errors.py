"""Read a JSON body member by member and report every problem of it.

It is slow: `json_decode.py` uses it only for bodies that its fast decoders refuse.
"""

from __future__ import annotations

from typing import Any, Literal

from learners import (
    ABSENT,
    MAX_SOURCE_NAME,
    MAX_WEIGHT,
    Config,
    InvalidInput,
    Problem,
    Segment,
    pointer,
    show,
)
from learners.features import MAX_PROBLEMS
from rarestream.values import EARLIEST_TIME, EXPECTED_ID, MAX_ID, id_text, parse_time
from service import clock
from service.errors import Invalid
from service.wire.iso_times import ISO_SCHEMA, iso_time

__all__ = [
    "AHEAD",
    "ID_SCHEMA",
    "MAX_EVENTS",
    "MAX_OFFSET",
    "TOP",
    "ErrorReport",
    "segments_of",
    "source_problems",
    "time_words",
]

MAX_EVENTS = 100_000  # of one request: its reply is bounded, too
MAX_OFFSET = 2**53
_SOURCE = ("name", "offset", "offsets", "after")  # members
AHEAD = 86_400.0  # seconds that a time may lie ahead of this node's: a clock that runs fast, not an error of units

ID_SCHEMA = {"anyOf": [{"type": "string", "minLength": 1, "maxLength": MAX_ID}, {"type": "integer"}]}
_MEMBERS = {
    "x": ("x",),
    "indices": ("indices", "values"),
    "features": ("features",),
}
_CARRIED = ("x", "indices", "values", "features")
TOP = ("id", "x", "indices", "values", "features", "label", "weight", "time")


def time_words(latest: float) -> str:
    """Return what a time must be, given the largest one: it names this node's clock, which may be wrong."""
    shows = iso_time(latest - AHEAD) or f"{latest - AHEAD:.0f}"
    return (
        "seconds since the epoch or an ISO 8601 time, from 1980 on (no counter of hours or rows) and at most "
        f"a day ahead of this node's clock, which shows {shows}"
    )


def source_problems(source: Any, n: int) -> list[Problem]:
    """List what is wrong with the `source` of n events, as parsed JSON; at most one problem of the offsets. O(n)."""
    if not isinstance(source, dict):
        return [Problem.mismatch("/source", source, "an object of name and offset, or offsets", {"type": "object"})]
    problems = [Problem.unknown("/source", name, _SOURCE, "member") for name in source if name not in _SOURCE]
    name = source.get("name")
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.encode()) <= MAX_SOURCE_NAME:
        words, expected = f"1 to {MAX_SOURCE_NAME} bytes of text", {"type": "string", "minLength": 1}
        problems.append(Problem.mismatch("/source/name", source.get("name", ABSENT), words, expected))
    first: int | None = None
    if source.get("offsets") is not None:
        if source.get("offset") is not None:
            problems.append(Problem("/source", "has both offset and offsets; expected one of them", "conflict"))
        first = _first(source["offsets"], n, problems)
    elif not _is_offset(source.get("offset")):
        words = "a whole number from 0 to 2^53"
        problems.append(Problem.mismatch("/source/offset", source.get("offset", ABSENT), words, _whole(0)))
    else:
        first = source["offset"]
    after = source.get("after")
    if after is not None and not (_is_offset(after) and (first is None or after <= first)):
        words = "a whole number from 0 to " + ("2^53" if first is None else f"{first}, the first event's")
        expected = _whole(0, MAX_OFFSET if first is None else first)
        problems.append(Problem.mismatch("/source/after", after, words, expected))
    return problems


def segments_of(source: dict[str, Any], n: int) -> tuple[Segment, ...]:
    """Return the segments of n events of a valid source."""
    name, after, offset = source["name"], source.get("after"), source.get("offset")
    if offset is None:
        return Segment.of(0, name, source["offsets"], after)
    return (Segment(0, n, name, offset, offset if after is None else after),)


def _is_offset(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_OFFSET


def _whole(least: int, most: int = MAX_OFFSET) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


def _first(offsets: Any, n: int, problems: list[Problem]) -> int | None:
    """Return the first offset if there are n ascending ones; else add the problem."""
    if not isinstance(offsets, list) or len(offsets) != n:
        actual = f"a list of {len(offsets)}" if isinstance(offsets, list) else show(offsets)
        expected = {"type": "array", "minItems": n, "maxItems": n}
        detail = f"is {actual}; expected one for each of the {n} events"
        problems.append(Problem("/source/offsets", detail, expected=expected))
        return None
    last = -1
    for i, offset in enumerate(offsets):
        if not _is_offset(offset) or offset <= last:
            words = f"a whole number from {last + 1} to 2^53"
            problems.append(Problem.mismatch(f"/source/offsets/{i}", offset, words, _whole(last + 1)))
            return None
        last = offset
    first: int = offsets[0]
    return first


def _in_range(value: Any, least: float, most: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most


def _is_unicode(text: str) -> bool:
    """Tell whether a text has a form in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class ErrorReport:
    """Reads a body member by member and remembers everything that is wrong with it."""

    def __init__(self, config: Config, what: Literal["update", "predict", "labels"]) -> None:
        self.config = config
        self.features = config.features
        self.what = what
        self.members = _MEMBERS[config.features.MEMBER]
        self.allowed = {
            *(() if what == "labels" else self.members),
            "id",
            "time",
            *(() if what == "predict" else ("label", "weight")),
        }
        self.problems: list[Problem] = []  # of the body itself
        self.bad: dict[int, Problem] = {}  # the first one of each bad event

    def read(self, body: Any) -> tuple[list[dict[str, Any]], list[Any]]:
        """Return the events, and the features of those that have some. Raises `Invalid` with every problem."""
        if not isinstance(body, dict):
            raise Invalid("the body is not an object", [Problem.mismatch("", body, "an object", {"type": "object"})])
        names = ("events", "source") if self.what == "update" else ("events",)
        for name in body:
            if name not in names:
                self.problems.append(Problem.unknown("", name, names, "member"))
        events = body.get("events")
        if body.get("source") is not None and self.what == "update":
            self.problems += source_problems(body["source"], len(events) if isinstance(events, list) else 0)
        if not isinstance(events, list) or not events:
            expected: dict[str, Any] = {"type": "array", "minItems": 1}
            words = "a list of at least one event"
            self.problems.append(Problem.mismatch("/events", body.get("events", ABSENT), words, expected))
            raise Invalid("the body has no events", self.problems)
        if len(events) > MAX_EVENTS:
            detail = f"has {len(events)} events; expected at most {MAX_EVENTS}"
            self.problems.append(Problem("/events", detail, expected={"maxItems": MAX_EVENTS}))
            raise Invalid("the body has too many events", self.problems)
        for i, event in enumerate(events):
            self._check(i, event)
            if len(self.bad) == MAX_PROBLEMS:
                break
        carried = self._check_features(events)
        if self.problems or self.bad or carried is None:
            least = "at least " if len(self.bad) == MAX_PROBLEMS else ""
            several = "the event" if len(events) == 1 else f"{least}{len(self.bad)} of {len(events)} events"
            what = several if self.bad else "the body"
            listed = [self.bad[i] for i in sorted(self.bad)]
            raise Invalid(f"refused {what}", self.problems + listed)
        return events, carried

    def _note(self, i: int, problem: Problem) -> None:
        """Keep the first problem of an event."""
        if len(self.bad) < MAX_PROBLEMS:
            self.bad.setdefault(i, problem.under(f"/events/{i}"))

    def _check(self, i: int, event: Any) -> None:
        """Note the first problem of an event, except in the values of its features."""
        if not isinstance(event, dict):
            self._note(i, Problem.mismatch("", event, "an object", {"type": "object"}))
            return
        for name in event:
            if name not in self.allowed and not (event[name] is None and name in TOP):
                self._note(i, Problem.unknown("", name, sorted(self.allowed), "member"))
        name = event.get("id")
        if self._carries(event):
            for member in self.members:
                if event.get(member) is None:
                    detail = f"is missing; this learner takes {self.features.KIND} features"
                    if self.what == "update":
                        detail += ", or the id of an event that was served"
                    self._note(i, Problem(f"/{member}", detail, "missing"))
        elif name is None:
            self._note(i, Problem.mismatch("/id", ABSENT, "the id of an event that was served", ID_SCHEMA))
        try:
            id_text(name)
        except ValueError:
            self._note(i, Problem.mismatch("/id", name, EXPECTED_ID, ID_SCHEMA))
        if isinstance(event.get("features"), dict):
            self._check_texts(i, event["features"])
        if self.what != "predict":
            self._check_label(i, event)
        limits = {"time": (EARLIEST_TIME, clock.now() + AHEAD)}
        if self.what != "predict":
            limits["weight"] = (0.0, MAX_WEIGHT)
        for member, (least, most) in limits.items():
            value = event.get(member)
            if member == "time" and isinstance(value, str):
                event[member] = parse_time(value)
                value = value if event[member] is None else event[member]
            if value is not None and not _in_range(value, least, most):
                expected: dict[str, Any] = {"type": "number", "minimum": least, "maximum": most}
                words = f"a number from {least:g} to {most:g}"
                if member == "time":
                    words, expected = time_words(most), {"anyOf": [expected, ISO_SCHEMA]}
                self._note(i, Problem.mismatch(f"/{member}", value, words, expected))

    def _check_texts(self, i: int, features: dict[str, Any]) -> None:
        """Refuse half a surrogate pair in names and values: it is no character, and other codings cannot carry it."""
        for name, value in features.items():
            texts = (name, *(value if isinstance(value, list) else (value,)))
            if any(isinstance(text, str) and not _is_unicode(text) for text in texts):
                words = "text without half a surrogate pair, which is no character"
                self._note(i, Problem.mismatch(f"/features{pointer(name)}", value, words))

    def _carries(self, event: dict[str, Any]) -> bool:
        """Tell whether an event needs features; if its label may be sent by id alone, whether it has any."""
        if self.what == "labels":
            return False
        return (
            self.what == "predict" or event.get("id") is None or any(event.get(item) is not None for item in _CARRIED)
        )

    def _check_label(self, i: int, event: dict[str, Any]) -> None:
        if "label" not in event:
            self._note(i, self.config.labels.mismatch("/label", ABSENT))
        elif not self.config.labels.accepts(event["label"]):
            self._note(i, self.config.labels.mismatch("/label", event["label"]))

    def _check_features(self, events: list[Any]) -> list[Any] | None:
        """Return the features if all are valid; add the problems that only encoding them shows."""
        if len(self.bad) == MAX_PROBLEMS:
            return None
        well = [i for i in range(len(events)) if i not in self.bad and self._carries(events[i])]
        carried = [
            tuple(events[i][member] for member in self.members) if len(self.members) > 1 else events[i][self.members[0]]
            for i in well
        ]
        try:
            self.config.encode(carried)
            self.config.costs(carried)
        except InvalidInput as error:
            prefix = "" if len(self.members) > 1 else f"/{self.members[0]}"
            for problem in error.problems:
                number, _, rest = problem.pointer[1:].partition("/")
                inner = problem._replace(pointer=prefix + (f"/{rest}" if rest else ""))
                self._note(well[int(number)], inner)
            return None
        return carried
