"""`Client` and `RemoteLearner`: they block. The calls are in `client_calls`, their async twins in `aio`."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

import httpx

from rarestream.client.batch import DEFAULT_BOUNDS, EventBatch, RequestBounds, UploadSummary
from rarestream.client.client_calls import ClientCalls, Upload, learner_path
from rarestream.client.connections import Connections
from rarestream.client.documents import Document, EventDecoder, ServerEvent, UpdateCounts, UpdateDocument, decode_json
from rarestream.client.errors import error_of
from rarestream.client.exchange import Answer, ApiRequest, ApiResponse, Call, Failure, Retries, RetryPause
from rarestream.client.redirects import MAX_REDIRECTS, redirect_target
from rarestream.client.service_address import SILENCE, ServiceAddress, open_timeout, response_of

if TYPE_CHECKING:
    from rarestream.client.decode import PredictResult, UpdateResult
    from rarestream.client.source import Source
    from rarestream.client.sync_stream import LearnerStream

__all__ = ["Client", "RemoteLearner"]

Result = TypeVar("Result")


class Client:
    """A service at `url`. A context manager; threads may share it, and processes, each with connections of its own.

    `key`: sent with every request as a bearer token.
    `patience`: seconds of failing after which a request is not sent again; 0 sends each request once.
    `timeout`: seconds one answer may take. An update waits for its learning, the very first also for the compiler.
    `headers`: sent with every request, for a proxy.
    `verify`: TLS context of an https URL, such as `ssl.create_default_context(cafile=...)` for your own authority.
    `trust_env`: use the proxies of the environment, as httpx does; never for a loopback address.
    `bounds`: size of one request; larger calls are split.
    `transport`: httpx's, instead of a network connection.
    `on_retry`: called before each pause between attempts; may raise to give up.
    `sleep`: makes the pause, `time.sleep` by default; may raise to give up.
    `trace`: returns a context manager that is entered around each attempt.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        patience: float = 60.0,
        timeout: float = 120.0,
        headers: Mapping[str, str] | None = None,
        verify: ssl.SSLContext | None = None,
        trust_env: bool = True,
        bounds: RequestBounds = DEFAULT_BOUNDS,
        transport: httpx.BaseTransport | None = None,
        on_retry: Callable[[RetryPause], object] = lambda _: None,
        sleep: Callable[[float], object] = time.sleep,
        trace: Callable[[ApiRequest], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._calls = ClientCalls(Retries(patience), bounds)
        self._address = ServiceAddress(url, timeout, headers, verify, trust_env, key)
        self._connections = Connections({"transport": transport, **self._address.http})
        self._on_retry = on_retry
        self._sleep = sleep
        self._trace = trace

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Streams have their own."""
        self._connections.close()

    @property
    def url(self) -> str:
        """The service's URL without a password."""
        return self._address.url

    def learner(self, name: str) -> RemoteLearner:
        """Return the learner of this name, without a request."""
        return RemoteLearner(self, name)

    def create(
        self, name: str, *, algorithm: str | None = None, features: Mapping[str, Any], **settings: Any
    ) -> RemoteLearner:
        """Create a learner, or find it with this configuration; `RequestRefused` (409) if it has another.

        Without `algorithm` the service chooses `auto`.
        `settings`: params, scaling, embedding, calibration, threshold, ..., as in the body of the PUT.
        """
        self.create_document(name, {"algorithm": algorithm, "features": features, **settings})
        return self.learner(name)

    def create_document(self, name: str, config: Mapping[str, Any]) -> tuple[Document, bool]:
        """Create a learner as `create` does; return its document, and whether it is new."""
        return self._run(self._calls.create(name, config))

    def import_learner(self, name: str, parts: Iterable[bytes]) -> Document:
        """Create a learner from an exported state; return its document. Sent once, never again."""
        request = ApiRequest("POST", learner_path(name, "import"), repeatable=False)
        try:
            with self._trace(request):
                headers = {"Content-Type": "application/octet-stream"}
                response = response_of(self._connections.http.post(request.path, content=parts, headers=headers))
        except httpx.RequestError as error:
            raise self._address.failure(error).to_error(request) from None
        if not 200 <= response.status < 300:
            raise error_of(response.status, response.headers, response.body, url=response.url)
        return decode_json(response.body, Document, response.url)

    def learners(self, *, figures: bool = False, limit: int | None = None, cursor: str | None = None) -> Document:
        """List the node's learners: `learners`, `asleep` (names), and `unavailable` with reasons.

        `figures`: with the main metrics of each in place of its settings. `limit`: names at most; `cursor` of the reply
        leads to the next page, and is None at the end.
        """
        return self._run(self._calls.get("learners", figures="true" if figures else None, limit=limit, cursor=cursor))

    def version(self) -> str:
        """Return the version of the service."""
        return str(self._run(self._calls.get("version"))["version"])

    def algorithms(self) -> Document:
        """List the algorithms under `algorithms`, and the settings of every part of a learner under `parts`."""
        return self._run(self._calls.get("algorithms"))

    def delete(self, name: str) -> None:
        """Delete a learner with its log and its snapshots."""
        self._run(self._calls.delete(name))

    def groups(self, *, limit: int | None = None, cursor: str | None = None) -> Document:
        """List the groups: `groups`, and `unavailable` with reasons."""
        return self._run(self._calls.get("groups", limit=limit, cursor=cursor))

    def create_group(self, group: str, learners: Sequence[str]) -> Document:
        """Create a group that compares these learners, or find it with the same learners."""
        return self._run(self._calls.create_group(group, learners))

    def delete_group(self, group: str) -> None:
        """Delete a group with its comparison; the learners stay."""
        self._run(self._calls.delete_group(group))

    def update_group(self, group: str, body: bytes) -> Document:
        """Send labelled events, encoded as JSON, to each learner of a group. Needs a source, or an id per event."""
        return self._run(self._calls.update_group(group, body))

    def predict_group(self, group: str, body: bytes) -> Document:
        """Score events, encoded as JSON, by each learner of a group, which remembers those with an id."""
        return self._run(self._calls.predict_group(group, body))

    def group_events(self, group: str, **query: str | float) -> Document:
        """List the events that a group scored, newest first, under `events`: for each its `id`, and `learners`.

        `query`: the parameters of the route. Pass the reply's `cursor` to read on; it is None at the end.
        """
        return self._run(self._calls.about_group(group, "events", **query))

    def group_event(self, group: str, id: str, *, explain: int | None = None) -> Document:
        """Read one event as each learner of the group remembers it, under `learners`."""
        return self._run(self._calls.group_event(group, id, explain=explain))

    def compare(self, group: str) -> Document:
        """Compare the learners of a group."""
        return self._run(self._calls.about_group(group, "compare"))

    def _run(self, call: Call[Result]) -> Result:
        answer: Answer = None
        while True:
            try:
                step = call.send(answer)
            except StopIteration as end:
                result: Result = end.value
                return result
            if isinstance(step, RetryPause):
                self._on_retry(step)
                self._sleep(step.seconds)
                answer = None
            else:
                answer = self._send(step)

    def _send(self, request: ApiRequest) -> ApiResponse | Failure:
        try:
            with self._trace(request):
                arguments = self._address.arguments(request)
                response = self._connections.http.request(**arguments)
                for _ in range(MAX_REDIRECTS):
                    if (target := redirect_target(response)) is None:
                        break
                    response = self._connections.http.request(**{**arguments, "url": target})
        except httpx.RequestError as error:
            return self._address.failure(error)
        return response_of(response)

    @contextmanager
    def _stream(self, request: ApiRequest, **options: Any) -> Iterator[httpx.Response]:
        """Open a successful reply that is read piece by piece. Errors while it is read are converted, too."""
        url, redirects = request.path, 0
        try:
            while True:
                with self._connections.http.stream("GET", url, **options) as response:
                    target = redirect_target(response) if redirects < MAX_REDIRECTS else None
                    if target is not None:
                        url, redirects = target, redirects + 1
                        continue
                    if not response.is_success:
                        response.read()
                        reply = response_of(response)
                        error = error_of(reply.status, reply.headers, reply.body, url=reply.url)
                        error.path = request.path
                        raise error
                    yield response
                    return
        except httpx.RequestError as error:
            raise self._address.failure(error).to_error(request) from None


class RemoteLearner:
    """A learner of the service.

    X of n events is one of: an array (n, d), float32 or float64 as it is; a scipy sparse matrix (n, d); named features,
    as a sequence of n mappings, as a mapping of names to columns of n values, or as a data frame, whose NaN, None
    and NA are missing values. Send a frame of numbers to a learner of dense features as `frame.to_numpy()`. A call that
    is too large for one request is split.
    """

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self._client = client

    def update(
        self,
        X: Any,
        y: Any,
        ids: Any = None,
        weights: Any = None,
        times: Any = None,
        source: Source | None = None,
    ) -> UpdateResult:
        """Learn n labelled events in order. With X None: labels of served events, by their ids.

        `ids`: n strings or whole numbers, or "auto" for random ones. An event with an id is learnt once, however often
        it is sent, so a request without an answer is sent again. If some events have no id, such a request raises
        `OutcomeUnknown` instead, because a repeat might learn them twice.
        `source`: name of the events' origin and number of the first event; protects from repeats as ids do. If the
        numbers have gaps, ("topic/0", [15, 16, 20], 12) gives each number and says that nothing is between 12 and 15.
        `times`: seconds since the epoch, or datetime64 in UTC.
        """
        return self._client._run(self._client._calls.update(self.name, EventBatch(X, y, ids, weights, times), source))

    def labels(self, ids: Any, y: Any, weights: Any = None, times: Any = None) -> UpdateResult:
        """Send labels of served events by their ids; `times`: when each label became known, default now."""
        return self.update(None, y, ids, weights, times)

    def predict(
        self, X: Any, ids: Any = None, times: Any = None, explain: int | None = None, at_least: int | None = None
    ) -> PredictResult:
        """Score n events. Events with ids are remembered; their labels may arrive weeks later.

        `explain`: return so many of the largest contributions to each score. `at_least`: the `position` in the reply to
        an update; the answering node, whichever it is, has learnt up to there. Without its store the service still
        scores, but remembers nothing; see `remembered`. If X is split, updates of others may happen in between.
        """
        return self._client._run(self._client._calls.predict(self.name, X, ids, times, explain, at_least))

    def upload(
        self,
        batches: Iterable[EventBatch | tuple[Any, ...]],
        *,
        ids: Literal["auto"] | None = None,
        source: Source | None = None,
        progress: Callable[[UploadSummary], None] | None = None,
    ) -> UploadSummary:
        """Learn labelled events batch by batch, each (X, y[, ids[, weights[, times]]]), and return the sums.

        The next batch is taken from the iterator when the previous one is learnt. `ids="auto"` makes ids for batches
        without. `source`: name, and number of the first event; an interrupted upload can continue at the number in
        `describe()["sources"]`. `progress` is called after each request. `done` of an error: events answered before.
        """
        upload = Upload(self._client._calls, self.name, ids, source, progress)
        for batch in batches:
            self._client._run(upload.send(batch))
        return upload.summary

    def stream(self, window: int = 64) -> LearnerStream:
        """Open a websocket for pipelined requests, of which at most `window` are unanswered."""
        from rarestream.client.sync_stream import LearnerStream

        return LearnerStream(self._client._address, self.name, window)

    def describe(self) -> Document:
        """Read the learner's document: configuration, position, class counts, readiness, sources, ..."""
        return self._client._run(self._client._calls.about(self.name))

    def change(self, **settings: Mapping[str, Any]) -> Document:
        """Change the given members of `threshold`, `figures` or `late`; return the document after the change."""
        return self._client._run(self._client._calls.change(self.name, settings))

    def metrics(self) -> Document:
        """Read the live metrics."""
        return self._client._run(self._client._calls.about(self.name, "metrics"))

    def digest(self) -> Document:
        """Read the `position`, and the `digest` of the whole state there."""
        return self._client._run(self._client._calls.about(self.name, "digest"))

    def snapshot(self) -> Document:
        """Save the state now; return `position`, `size` and `time` of the snapshot."""
        return self._client._run(self._client._calls.snapshot(self.name))

    def history(self) -> Document:
        """Read the metrics over time."""
        return self._client._run(self._client._calls.about(self.name, "metrics/history"))

    def scored_events(self, **query: str | float) -> Document:
        """List scored events with their labels under `events`, newest first; `query`: the parameters of the route.

        Pass the reply's `cursor` to read on; it is None at the end.
        """
        return self._client._run(self._client._calls.about(self.name, "events", **query))

    def erase_event(self, id: str) -> Document:
        """Erase what is remembered of a scored event; `position`: log records up to there age out.

        What was learnt from the event stays learnt. Raises `RequestRefused` if nothing is remembered of it.
        """
        return self._client._run(self._client._calls.erase_event(self.name, id))

    def scored_event(self, id: str, *, explain: int | None = None) -> Document:
        """Read one scored event with its label, and with `explain` contributions to its present score.

        Raises `RequestRefused` if it is not remembered.
        """
        return self._client._run(self._client._calls.event(self.name, id, explain=explain))

    def thresholds(self, **query: float) -> Document:
        """Read precision, recall, alerts per day and cost at other thresholds of the window, under `points`.

        `query`: the parameters of the route, `points`, `false_positive` and `false_negative`.
        """
        return self._client._run(self._client._calls.about(self.name, "thresholds", **query))

    def preview_threshold(self, settings: Mapping[str, Any], **costs: float) -> Document:
        """Read what other settings of the threshold would have decided over the window; changes nothing.

        `settings` are as for `change(threshold=...)`; `costs` may be `false_positive` and `false_negative`.
        """
        return self._client._run(self._client._calls.preview_threshold(self.name, settings, costs))

    def segments(self, by: str, *, limit: int | None = None, positives: int | None = None) -> Document:
        """Read AUC, precision, alert rate and label rate of the largest values of a field, under `segments`.

        `by` is a field of the setting `figures.segments`. Figures need so many `positives`.
        """
        return self._client._run(
            self._client._calls.about(self.name, "segments", by=by, limit=limit, positives=positives)
        )

    def alarms(self, *, limit: int | None = None, cursor: int | None = None) -> Document:
        """Read the drift alarms with their state under `alarms`, and the counts of all and of open ones by kind."""
        return self._client._run(self._client._calls.about(self.name, "alarms", limit=limit, cursor=cursor))

    def acknowledge(self, number: int, note: str = "", *, by: str | None = None) -> Document:
        """Acknowledge an alarm, and return it; a repeat changes nothing.

        `by` says who does. Raises `RequestRefused` if somebody else has done so, or no such alarm is stored.
        """
        return self._client._run(self._client._calls.acknowledge(self.name, number, note, by))

    def annotations(self, *, limit: int | None = None, cursor: int | None = None) -> Document:
        """Read the notes and changes on the learner's time line, under `annotations`."""
        return self._client._run(self._client._calls.about(self.name, "annotations", limit=limit, cursor=cursor))

    def annotate(self, text: str, *, by: str | None = None) -> Document:
        """Note something at this moment of the learner, and return the annotation; `by` says who does."""
        return self._client._run(self._client._calls.annotate(self.name, text, by))

    def weights(self, top: int) -> Document:
        """Read the `top` largest weights."""
        return self._client._run(self._client._calls.about(self.name, "weights", top=top))

    def fields(self, *, limit: int | None = None, cursor: int | None = None) -> Document:
        """Read what the learner remembers of each field of named events."""
        return self._client._run(self._client._calls.about(self.name, "fields", limit=limit, cursor=cursor))

    def snapshots(self, *, limit: int | None = None, cursor: int | None = None) -> Document:
        """List the stored snapshots under `snapshots`, newest first."""
        return self._client._run(self._client._calls.about(self.name, "snapshots", limit=limit, cursor=cursor))

    def restore(self, position: int) -> Document:
        """Roll back to the snapshot at this position."""
        return self._client._run(self._client._calls.restore(self.name, position))

    def clone(self, to: str) -> Document:
        """Copy configuration and state to a new learner; return its document."""
        return self._client._run(self._client._calls.clone(self.name, to))

    def export(self, write: Callable[[bytes], object]) -> int:
        """Call `write` with each piece of the learner's state; return the number of bytes."""
        size = 0
        with self._client._stream(ApiRequest("GET", learner_path(self.name, "export"))) as response:
            for piece in response.iter_bytes():
                write(piece)
                size += len(piece)
        return size

    def events(self, last_id: str | None = None) -> AbstractContextManager[Iterator[ServerEvent]]:
        """Open the stream of live events: metrics, points, alarms. `last_id`: continue after the event of this id.

        Raises `ClientError` if it cannot be opened or breaks off.
        """
        return self._server_events("metrics/stream", last_id)

    def alerts(self, last_id: str | None = None) -> AbstractContextManager[Iterator[ServerEvent]]:
        """Open the stream of alerts: events of the kind `alert` as they come, first an id of no kind.

        `last_id`: continue after the alert of this id, on whichever node. Raises `ClientError` as `events` does.
        """
        return self._server_events("alerts/stream", last_id)

    @contextmanager
    def _server_events(self, stream: str, last_id: str | None) -> Iterator[Iterator[ServerEvent]]:
        request = ApiRequest("GET", learner_path(self.name, stream))
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        with self._client._stream(request, headers=headers, timeout=open_timeout(SILENCE)) as response:
            decoder = EventDecoder()
            yield (event for line in response.iter_lines() for event in decoder.feed(line))

    # Events as JSON, without NumPy

    @overload
    def update_json(self, body: bytes, *, repeatable: bool, results: Literal[True]) -> UpdateDocument: ...
    @overload
    def update_json(self, body: bytes, *, repeatable: bool, results: Literal[False] = False) -> UpdateCounts: ...
    def update_json(self, body: bytes, *, repeatable: bool, results: bool = False) -> UpdateCounts:
        """Learn labelled events, encoded as JSON. `repeatable`: the body has a source, or an id per event.

        `results`: with a result per event.
        """
        reply = UpdateDocument if results else UpdateCounts
        return self._client._run(self._client._calls.update_json(self.name, body, repeatable, reply))

    def predict_json(
        self, body: bytes, *, explain: int | None = None, at_least: int | None = None, remember: int = 0
    ) -> Document:
        """Score events, encoded as JSON. `remember`: retry until the store is back if fewer are remembered."""
        return self._client._run(self._client._calls.predict_json(self.name, body, explain, at_least, remember))
