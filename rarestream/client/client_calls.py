"""Every call of the API as a generator without I/O; see `exchange`.

Calls with arrays load NumPy at their first use: commands and programs that send JSON start faster without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from rarestream.client.batch import EventBatch, RequestBounds, UploadSummary
from rarestream.client.documents import Document, UpdateCounts, decode_json
from rarestream.client.errors import ClientError, OutcomeUnknown, RequestRefused
from rarestream.client.exchange import MSGPACK, ApiRequest, ApiResponse, Call, Retries, exchange

if TYPE_CHECKING:
    from rarestream.client.decode import PredictResult, UpdateResult
    from rarestream.client.encode import EncodedEvents
    from rarestream.client.source import Source

__all__ = ["ClientCalls", "Upload", "learner_path"]

Counts = TypeVar("Counts", bound=UpdateCounts)
_REMEDY = "with ids, ids='auto' or a source it would be safe to send these events again"
_CREATED = 201
_DOTS = (".", "..")  # ids that are no path: HTTP clients would send another one


class ClientCalls:
    """The calls that a client makes."""

    def __init__(self, retries: Retries, bounds: RequestBounds) -> None:
        self._retries = retries
        self._bounds = bounds

    # Documents

    def get(self, path: str, **query: Any) -> Call[Document]:
        """Read a document."""
        return (yield from self._read(ApiRequest("GET", with_query(path, query))))

    def about(self, name: str, what: str | None = None, **query: Any) -> Call[Document]:
        """Read a learner's document, or one below it."""
        return (yield from self.get(learner_path(name, what), **query))

    def event(self, name: str, id: str, **query: Any) -> Call[Document]:
        """Read one scored event."""
        if id not in _DOTS:
            return (yield from self.about(name, f"events/{quote(id, safe='')}", **query))
        page = yield from self.about(name, "events", id=id, **query)
        if not page["events"]:
            raise RequestRefused("no event of this id is remembered", status=404, code="unknown-event")
        event: Document = page["events"][0]
        return event

    def erase_event(self, name: str, id: str) -> Call[Document]:
        """Erase one scored event."""
        path = learner_path(name, "events" if id in _DOTS else f"events/{quote(id, safe='')}")
        return (yield from self._read(ApiRequest("DELETE", with_query(path, {"id": id if id in _DOTS else None}))))

    def create(self, name: str, config: Mapping[str, Any]) -> Call[tuple[Document, bool]]:
        """Create a learner; True if it is new, False if it exists with this configuration."""
        response, _ = yield from self._exchange(ApiRequest("PUT", learner_path(name), msgspec.json.encode(config)))
        return decode_json(response.body, Document, response.url), response.status == _CREATED

    def change(self, name: str, settings: Mapping[str, Any]) -> Call[Document]:
        """Change settings."""
        return (yield from self._read(ApiRequest("PATCH", learner_path(name), msgspec.json.encode(settings))))

    def preview_threshold(self, name: str, settings: Mapping[str, Any], costs: Mapping[str, float]) -> Call[Document]:
        """Try settings of the threshold."""
        path = with_query(learner_path(name, "thresholds/preview"), costs)
        return (yield from self._read(ApiRequest("POST", path, msgspec.json.encode(settings))))

    def delete(self, name: str) -> Call[None]:
        """Delete a learner. A repeat accepts that it is gone."""
        yield from exchange(ApiRequest("DELETE", learner_path(name)), self._retries, deleting=True)

    def snapshot(self, name: str) -> Call[Document]:
        """Save a learner's state now."""
        return (yield from self._read(ApiRequest("POST", learner_path(name, "snapshots"))))

    def restore(self, name: str, position: int) -> Call[Document]:
        """Roll back to a snapshot."""
        path = learner_path(name, f"snapshots/{position}/restore")
        return (yield from self._read(ApiRequest("POST", path, repeatable=False)))

    def clone(self, name: str, to: str) -> Call[Document]:
        """Copy a learner."""
        body = msgspec.json.encode({"to": to})
        return (yield from self._read(ApiRequest("POST", learner_path(name, "clone"), body, repeatable=False)))

    def acknowledge(self, name: str, number: int, note: str, by: str | None) -> Call[Document]:
        """Acknowledge an alarm; a repeat changes nothing."""
        body = msgspec.json.encode({"note": note, "by": by})
        return (yield from self._read(ApiRequest("POST", learner_path(name, f"alarms/{number}/acknowledge"), body)))

    def annotate(self, name: str, text: str, by: str | None) -> Call[Document]:
        """Note something on the time line."""
        body = msgspec.json.encode({"text": text, "by": by})
        return (yield from self._read(ApiRequest("POST", learner_path(name, "annotations"), body, repeatable=False)))

    def create_group(self, group: str, learners: Sequence[str]) -> Call[Document]:
        """Create a group."""
        body = msgspec.json.encode({"learners": learners})
        return (yield from self._read(ApiRequest("PUT", group_path(group), body)))

    def delete_group(self, group: str) -> Call[None]:
        """Delete a group. A repeat accepts that it is gone."""
        yield from exchange(ApiRequest("DELETE", group_path(group)), self._retries, deleting=True)

    def about_group(self, group: str, what: str, **query: Any) -> Call[Document]:
        """Read a document below a group."""
        return (yield from self.get(group_path(group, what), **query))

    def group_event(self, group: str, id: str, **query: Any) -> Call[Document]:
        """Read one scored event of a group."""
        return (yield from self.about_group(group, f"events/{quote(id, safe='')}", **query))

    # Events as JSON

    def update_group(self, group: str, body: bytes) -> Call[Document]:
        """Send labelled events to each learner of a group."""
        return (yield from self._read(ApiRequest("POST", group_path(group, "update"), body)))

    def predict_group(self, group: str, body: bytes) -> Call[Document]:
        """Score events by each learner of a group."""
        return (yield from self._read(ApiRequest("POST", group_path(group, "predict"), body)))

    def update_json(self, name: str, body: bytes, repeatable: bool, reply: type[Counts]) -> Call[Counts]:
        """Learn labelled events."""
        request = ApiRequest("POST", learner_path(name, "update"), body, repeatable=repeatable)
        response, _ = yield from self._exchange(request)
        return decode_json(response.body, reply, response.url)

    def predict_json(
        self, name: str, body: bytes, explain: int | None, at_least: int | None, remember: int
    ) -> Call[Document]:
        """Score events; `remember`: how many the service must remember."""
        path = with_query(learner_path(name, "predict"), {"explain": explain, "at_least": at_least})

        def check(response: ApiResponse) -> ClientError | None:
            reply = decode_json(response.body, _Remembered, response.url)
            if reply.remembered >= remember or not reply.stale_seconds:  # some events may be too old for a label
                return None
            return OutcomeUnknown("the service's store is away: it cannot remember the events it scores", status=503)

        response, _ = yield from exchange(ApiRequest("POST", path, body), self._retries, check=check)
        return decode_json(response.body, Document, response.url)

    # Events as arrays

    def update(self, name: str, batch: EventBatch, source: Source | None) -> Call[UpdateResult]:
        """Learn labelled events, or take labels by id."""
        from rarestream.client.decode import join_updates
        from rarestream.client.encode import encode_labelled

        events = encode_labelled(batch, source)
        parts: list[UpdateResult] = []
        yield from self.learn(name, events, parts.append)
        return parts[0] if len(parts) == 1 else join_updates(parts, events.ids)

    def learn(self, name: str, events: EncodedEvents, on_reply: Callable[[UpdateResult], None]) -> Call[None]:
        """Learn in as many requests as needed; call `on_reply` with each reply."""
        from rarestream.client.decode import decode_update

        operation = "labels" if events.features is None else "update"

        def take(response: ApiResponse, start: int, stop: int, repeats: int) -> None:
            on_reply(decode_update(response.body, stop - start, events.ids and events.ids[start:stop], repeats))

        yield from self._in_parts(events, learner_path(name, operation), events.repeatable, take)

    def predict(
        self, name: str, X: Any, ids: Any, times: Any, explain: int | None, at_least: int | None
    ) -> Call[PredictResult]:
        """Score events."""
        from rarestream.client.decode import decode_predict, join_predictions
        from rarestream.client.encode import encode_unlabelled

        events = encode_unlabelled(X, ids, times)
        path = with_query(learner_path(name, "predict"), {"explain": explain, "at_least": at_least})
        parts: list[PredictResult] = []

        def take(response: ApiResponse, start: int, stop: int, _: int) -> None:
            parts.append(decode_predict(response.body, stop - start))

        yield from self._in_parts(events, path, True, take)
        return parts[0] if len(parts) == 1 else join_predictions(parts)

    # Requests

    def _in_parts(
        self,
        events: EncodedEvents,
        path: str,
        repeatable: bool,
        take: Callable[[ApiResponse, int, int, int], None],
    ) -> Call[None]:
        answered = 0
        try:
            for part in events.parts(self._bounds):
                request = ApiRequest("POST", path, part.body, MSGPACK, repeatable, _REMEDY)
                response, repeats = yield from self._exchange(request)
                take(response, part.start, part.stop, repeats)
                answered = part.stop
        except ClientError as error:
            error.done, error.ids = answered, events.ids
            raise

    def _exchange(self, request: ApiRequest) -> Call[tuple[ApiResponse, int]]:
        return (yield from exchange(request, self._retries))

    def _read(self, request: ApiRequest) -> Call[Document]:
        response, _ = yield from self._exchange(request)
        return decode_json(response.body, Document, response.url)


class _Remembered(msgspec.Struct):
    remembered: int
    stale_seconds: float


class Upload:
    """An upload in progress: `send` makes the call for one batch after the other."""

    def __init__(
        self,
        calls: ClientCalls,
        name: str,
        ids: str | None,
        source: Source | None,
        progress: Callable[[UploadSummary], None] | None,
    ) -> None:
        from rarestream.client.source import checked_source

        if ids not in (None, "auto"):
            raise ValueError(f"ids of an upload are {ids!r}; expected 'auto' or None: each batch has its own")
        self.summary = UploadSummary()
        self._calls = calls
        self._name = name
        self._ids = ids
        self._source = checked_source(source)
        if self._source is not None and not isinstance(self._source.first, int):
            raise ValueError("source of an upload has a number for each event; expected the number of the first")
        self._progress = progress

    def send(self, batch: EventBatch | tuple[Any, ...]) -> Call[None]:
        """Send one batch; skip an empty one."""
        from rarestream.client.encode import encode_labelled

        batch = EventBatch(*batch)
        if len(batch.y) == 0:
            return
        if batch.ids is None:
            batch = batch._replace(ids=self._ids)
        before = self.summary.events
        source = None if self._source is None else self._source.after_events(before)
        try:
            yield from self._calls.learn(self._name, encode_labelled(batch, source), self._add)
        except ClientError as error:
            error.done += before
            raise

    def _add(self, reply: UpdateResult) -> None:
        total = self.summary
        self.summary = UploadSummary(
            total.events + len(reply.status),
            total.requests + 1,
            total.repeats + reply.repeats,
            total.applied + reply.applied,
            total.duplicate + reply.duplicate,
            total.relabelled + reply.relabelled,
            total.unknown + reply.unknown,
            total.expired + reply.expired,
            reply.position,
        )
        if self._progress is not None:
            self._progress(self.summary)


def learner_path(name: str, what: str | None = None) -> str:
    """Return the path of a learner, or of something below it."""
    return _path("learners", name, what)


def group_path(name: str, what: str | None = None) -> str:
    """Return the path of a group, or of something below it."""
    return _path("groups", name, what)


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """Append the parameters that are not None."""
    parameters = urlencode({name: value for name, value in query.items() if value is not None})
    return f"{path}?{parameters}" if parameters else path


def _path(kind: str, name: str, what: str | None) -> str:
    return f"{kind}/{quote(name, safe='')}" + ("" if what is None else f"/{what}")
