"""`AsyncClient` and `AsyncRemoteLearner`: as in `sync`, awaited."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

import httpx

from rarestream.client.batch import DEFAULT_BOUNDS, EventBatch, RequestBounds, UploadSummary
from rarestream.client.client_calls import ClientCalls, Upload, learner_path
from rarestream.client.connections import AsyncConnections
from rarestream.client.documents import Document, EventDecoder, ServerEvent, UpdateCounts, UpdateDocument, decode_json
from rarestream.client.errors import error_of
from rarestream.client.exchange import Answer, ApiRequest, ApiResponse, Call, Failure, Retries, RetryPause
from rarestream.client.redirects import MAX_REDIRECTS, redirect_target
from rarestream.client.service_address import SILENCE, ServiceAddress, open_timeout, response_of

if TYPE_CHECKING:
    from rarestream.client.aio_stream import AsyncLearnerStream
    from rarestream.client.decode import PredictResult, UpdateResult
    from rarestream.client.source import Source

__all__ = ["AsyncClient", "AsyncRemoteLearner"]

Result = TypeVar("Result")


class AsyncClient:
    """`Client`, awaited. An async context manager; tasks may share it, and event loops, each with its own connections.

    The arguments are those of `Client`, but `sleep` is awaited.
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
        transport: httpx.AsyncBaseTransport | None = None,
        on_retry: Callable[[RetryPause], object] = lambda _: None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        trace: Callable[[ApiRequest], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._calls = ClientCalls(Retries(patience), bounds)
        self._address = ServiceAddress(url, timeout, headers, verify, trust_env, key)
        self._connections = AsyncConnections({"transport": transport, **self._address.http})
        self._on_retry = on_retry
        self._sleep = sleep
        self._trace = trace

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Call `Client.close`."""
        await self._connections.close()

    @property
    def url(self) -> str:
        """Call `Client.url`."""
        return self._address.url

    def learner(self, name: str) -> AsyncRemoteLearner:
        """Call `Client.learner`."""
        return AsyncRemoteLearner(self, name)

    async def create(
        self, name: str, *, algorithm: str | None = None, features: Mapping[str, Any], **settings: Any
    ) -> AsyncRemoteLearner:
        """Call `Client.create`."""
        await self.create_document(name, {"algorithm": algorithm, "features": features, **settings})
        return self.learner(name)

    async def create_document(self, name: str, config: Mapping[str, Any]) -> tuple[Document, bool]:
        """Call `Client.create_document`."""
        return await self._run(self._calls.create(name, config))

    async def import_learner(self, name: str, parts: AsyncIterable[bytes]) -> Document:
        """Call `Client.import_learner`."""
        request = ApiRequest("POST", learner_path(name, "import"), repeatable=False)
        try:
            with self._trace(request):
                headers = {"Content-Type": "application/octet-stream"}
                response = response_of(await self._connections.http.post(request.path, content=parts, headers=headers))
        except httpx.RequestError as error:
            failure = await asyncio.to_thread(self._address.failure, error)
            raise failure.to_error(request) from None
        if not 200 <= response.status < 300:
            raise error_of(response.status, response.headers, response.body, url=response.url)
        return decode_json(response.body, Document, response.url)

    async def learners(self, *, figures: bool = False, limit: int | None = None, cursor: str | None = None) -> Document:
        """Call `Client.learners`."""
        return await self._run(
            self._calls.get("learners", figures="true" if figures else None, limit=limit, cursor=cursor)
        )

    async def version(self) -> str:
        """Call `Client.version`."""
        return str((await self._run(self._calls.get("version")))["version"])

    async def algorithms(self) -> Document:
        """Call `Client.algorithms`."""
        return await self._run(self._calls.get("algorithms"))

    async def delete(self, name: str) -> None:
        """Call `Client.delete`."""
        await self._run(self._calls.delete(name))

    async def groups(self, *, limit: int | None = None, cursor: str | None = None) -> Document:
        """Call `Client.groups`."""
        return await self._run(self._calls.get("groups", limit=limit, cursor=cursor))

    async def create_group(self, group: str, learners: Sequence[str]) -> Document:
        """Call `Client.create_group`."""
        return await self._run(self._calls.create_group(group, learners))

    async def delete_group(self, group: str) -> None:
        """Call `Client.delete_group`."""
        await self._run(self._calls.delete_group(group))

    async def update_group(self, group: str, body: bytes) -> Document:
        """Call `Client.update_group`."""
        return await self._run(self._calls.update_group(group, body))

    async def predict_group(self, group: str, body: bytes) -> Document:
        """Call `Client.predict_group`."""
        return await self._run(self._calls.predict_group(group, body))

    async def group_events(self, group: str, **query: str | float) -> Document:
        """Call `Client.group_events`."""
        return await self._run(self._calls.about_group(group, "events", **query))

    async def group_event(self, group: str, id: str, *, explain: int | None = None) -> Document:
        """Call `Client.group_event`."""
        return await self._run(self._calls.group_event(group, id, explain=explain))

    async def compare(self, group: str) -> Document:
        """Call `Client.compare`."""
        return await self._run(self._calls.about_group(group, "compare"))

    async def _run(self, call: Call[Result]) -> Result:
        answer: Answer = None
        while True:
            try:
                step = call.send(answer)
            except StopIteration as end:
                result: Result = end.value
                return result
            if isinstance(step, RetryPause):
                self._on_retry(step)
                await self._sleep(step.seconds)
                answer = None
            else:
                answer = await self._send(step)

    async def _send(self, request: ApiRequest) -> ApiResponse | Failure:
        try:
            with self._trace(request):
                arguments = self._address.arguments(request)
                response = await self._connections.http.request(**arguments)
                for _ in range(MAX_REDIRECTS):
                    if (target := redirect_target(response)) is None:
                        break
                    response = await self._connections.http.request(**{**arguments, "url": target})
        except httpx.RequestError as error:
            return await asyncio.to_thread(self._address.failure, error)
        return response_of(response)

    @asynccontextmanager
    async def _stream(self, request: ApiRequest, **options: Any) -> AsyncIterator[httpx.Response]:
        """Open a successful reply that is read piece by piece. Errors while it is read are converted, too."""
        url, redirects = request.path, 0
        try:
            while True:
                async with self._connections.http.stream("GET", url, **options) as response:
                    target = redirect_target(response) if redirects < MAX_REDIRECTS else None
                    if target is not None:
                        url, redirects = target, redirects + 1
                        continue
                    if not response.is_success:
                        await response.aread()
                        reply = response_of(response)
                        error = error_of(reply.status, reply.headers, reply.body, url=reply.url)
                        error.path = request.path
                        raise error
                    yield response
                    return
        except httpx.RequestError as error:
            failure = await asyncio.to_thread(self._address.failure, error)
            raise failure.to_error(request) from None


class AsyncRemoteLearner:
    """`RemoteLearner`, awaited. Calls that wait for each other keep their order; concurrent calls do not."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.name = name
        self._client = client

    async def update(
        self,
        X: Any,
        y: Any,
        ids: Any = None,
        weights: Any = None,
        times: Any = None,
        source: Source | None = None,
    ) -> UpdateResult:
        """Call `RemoteLearner.update`."""
        return await self._client._run(
            self._client._calls.update(self.name, EventBatch(X, y, ids, weights, times), source)
        )

    async def labels(self, ids: Any, y: Any, weights: Any = None, times: Any = None) -> UpdateResult:
        """Call `RemoteLearner.labels`."""
        return await self.update(None, y, ids, weights, times)

    async def predict(
        self, X: Any, ids: Any = None, times: Any = None, explain: int | None = None, at_least: int | None = None
    ) -> PredictResult:
        """Call `RemoteLearner.predict`."""
        return await self._client._run(self._client._calls.predict(self.name, X, ids, times, explain, at_least))

    async def upload(
        self,
        batches: Iterable[EventBatch | tuple[Any, ...]] | AsyncIterable[EventBatch | tuple[Any, ...]],
        *,
        ids: Literal["auto"] | None = None,
        source: Source | None = None,
        progress: Callable[[UploadSummary], None] | None = None,
    ) -> UploadSummary:
        """Call `RemoteLearner.upload`."""
        upload = Upload(self._client._calls, self.name, ids, source, progress)
        if isinstance(batches, AsyncIterable):
            async for batch in batches:
                await self._client._run(upload.send(batch))
        else:
            for batch in batches:
                await self._client._run(upload.send(batch))
        return upload.summary

    def stream(self, window: int = 64) -> AsyncLearnerStream:
        """Call `RemoteLearner.stream`."""
        from rarestream.client.aio_stream import AsyncLearnerStream

        return AsyncLearnerStream(self._client._address, self.name, window)

    async def describe(self) -> Document:
        """Call `RemoteLearner.describe`."""
        return await self._client._run(self._client._calls.about(self.name))

    async def change(self, **settings: Mapping[str, Any]) -> Document:
        """Call `RemoteLearner.change`."""
        return await self._client._run(self._client._calls.change(self.name, settings))

    async def metrics(self) -> Document:
        """Call `RemoteLearner.metrics`."""
        return await self._client._run(self._client._calls.about(self.name, "metrics"))

    async def digest(self) -> Document:
        """Call `RemoteLearner.digest`."""
        return await self._client._run(self._client._calls.about(self.name, "digest"))

    async def snapshot(self) -> Document:
        """Call `RemoteLearner.snapshot`."""
        return await self._client._run(self._client._calls.snapshot(self.name))

    async def history(self) -> Document:
        """Call `RemoteLearner.history`."""
        return await self._client._run(self._client._calls.about(self.name, "metrics/history"))

    async def scored_events(self, **query: str | float) -> Document:
        """Call `RemoteLearner.scored_events`."""
        return await self._client._run(self._client._calls.about(self.name, "events", **query))

    async def erase_event(self, id: str) -> Document:
        """Call `RemoteLearner.erase_event`."""
        return await self._client._run(self._client._calls.erase_event(self.name, id))

    async def scored_event(self, id: str, *, explain: int | None = None) -> Document:
        """Call `RemoteLearner.scored_event`."""
        return await self._client._run(self._client._calls.event(self.name, id, explain=explain))

    async def thresholds(self, **query: float) -> Document:
        """Call `RemoteLearner.thresholds`."""
        return await self._client._run(self._client._calls.about(self.name, "thresholds", **query))

    async def preview_threshold(self, settings: Mapping[str, Any], **costs: float) -> Document:
        """Call `RemoteLearner.preview_threshold`."""
        return await self._client._run(self._client._calls.preview_threshold(self.name, settings, costs))

    async def segments(self, by: str, *, limit: int | None = None, positives: int | None = None) -> Document:
        """Call `RemoteLearner.segments`."""
        call = self._client._calls.about(self.name, "segments", by=by, limit=limit, positives=positives)
        return await self._client._run(call)

    async def alarms(self, *, limit: int | None = None, cursor: int | None = None) -> Document:
        """Call `RemoteLearner.alarms`."""
        return await self._client._run(self._client._calls.about(self.name, "alarms", limit=limit, cursor=cursor))

    async def acknowledge(self, number: int, note: str = "", *, by: str | None = None) -> Document:
        """Call `RemoteLearner.acknowledge`."""
        return await self._client._run(self._client._calls.acknowledge(self.name, number, note, by))

    async def annotations(self, *, limit: int | None = None, cursor: int | None = None) -> Document:
        """Call `RemoteLearner.annotations`."""
        return await self._client._run(self._client._calls.about(self.name, "annotations", limit=limit, cursor=cursor))

    async def annotate(self, text: str, *, by: str | None = None) -> Document:
        """Call `RemoteLearner.annotate`."""
        return await self._client._run(self._client._calls.annotate(self.name, text, by))

    async def weights(self, top: int) -> Document:
        """Call `RemoteLearner.weights`."""
        return await self._client._run(self._client._calls.about(self.name, "weights", top=top))

    async def fields(self, *, limit: int | None = None, cursor: int | None = None) -> Document:
        """Call `RemoteLearner.fields`."""
        return await self._client._run(self._client._calls.about(self.name, "fields", limit=limit, cursor=cursor))

    async def snapshots(self, *, limit: int | None = None, cursor: int | None = None) -> Document:
        """Call `RemoteLearner.snapshots`."""
        return await self._client._run(self._client._calls.about(self.name, "snapshots", limit=limit, cursor=cursor))

    async def restore(self, position: int) -> Document:
        """Call `RemoteLearner.restore`."""
        return await self._client._run(self._client._calls.restore(self.name, position))

    async def clone(self, to: str) -> Document:
        """Call `RemoteLearner.clone`."""
        return await self._client._run(self._client._calls.clone(self.name, to))

    async def export(self, write: Callable[[bytes], object]) -> int:
        """Call `RemoteLearner.export`."""
        size = 0
        async with self._client._stream(ApiRequest("GET", learner_path(self.name, "export"))) as response:
            async for piece in response.aiter_bytes():
                write(piece)
                size += len(piece)
        return size

    def events(self, last_id: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[ServerEvent]]:
        """Call `RemoteLearner.events`."""
        return self._server_events("metrics/stream", last_id)

    def alerts(self, last_id: str | None = None) -> AbstractAsyncContextManager[AsyncIterator[ServerEvent]]:
        """Call `RemoteLearner.alerts`."""
        return self._server_events("alerts/stream", last_id)

    @asynccontextmanager
    async def _server_events(self, stream: str, last_id: str | None) -> AsyncIterator[AsyncIterator[ServerEvent]]:
        request = ApiRequest("GET", learner_path(self.name, stream))
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        async with self._client._stream(request, headers=headers, timeout=open_timeout(SILENCE)) as response:
            decoder = EventDecoder()
            yield (event async for line in response.aiter_lines() for event in decoder.feed(line))

    # Events as JSON, without NumPy

    @overload
    async def update_json(self, body: bytes, *, repeatable: bool, results: Literal[True]) -> UpdateDocument: ...
    @overload
    async def update_json(self, body: bytes, *, repeatable: bool, results: Literal[False] = False) -> UpdateCounts: ...
    async def update_json(self, body: bytes, *, repeatable: bool, results: bool = False) -> UpdateCounts:
        """Call `RemoteLearner.update_json`."""
        reply = UpdateDocument if results else UpdateCounts
        return await self._client._run(self._client._calls.update_json(self.name, body, repeatable, reply))

    async def predict_json(
        self, body: bytes, *, explain: int | None = None, at_least: int | None = None, remember: int = 0
    ) -> Document:
        """Call `RemoteLearner.predict_json`."""
        return await self._client._run(self._client._calls.predict_json(self.name, body, explain, at_least, remember))
