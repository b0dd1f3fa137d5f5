"""One partition into one learner, in order, one request under way at a time.

Two positions are kept, each where what it counts ends up:

    learnt     in the learner's own log, by `source`: the next labelled message. It moves with the state, in one record;
               so a labelled event is learnt once, whatever is killed and whenever, and a roll-back brings it back.
    committed  with Kafka's group, or a stream's: everything before has been dealt with, scores and alerts have been
               acknowledged. A kill between the two has messages scored and written again.

A start goes on from the lesser of the two, and passes over what each of them covers. Messages are taken in batches.
In a batch, first those without a label are scored and the scores written, then the labelled ones are learnt, then the
position is committed: a label that follows its event in the topic finds it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, TypeVar

import msgspec

from rarestream import ClientError, RemoteLearner
from service.connectors.feed import Document, Feed, Message, Output, Partition, Removed
from service.connectors.message_decoding import BadMessage, MessageEvent, Reading, What
from service.connectors.progress import ReadCounts
from service.exits import CommandFailed

__all__ = ["ConsumePlan", "Consumption", "Start"]

Start = Literal["earliest", "latest"] | int
Result = TypeVar("Result")

_LOOK = 0.5  # seconds that a read waits for the first message: how soon a stop is seen
_LOOKS = 20  # at a learner that was rolled back, by other nodes than the one that is asked
_BODY = 4 * 2**20  # bytes after which a request ends, however few its events
_FAULTY = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY})
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class ConsumePlan:
    """What is to be done with the messages."""

    learner: str
    what: What = "auto"
    start: Start = "earliest"  # where nothing has been read yet
    skip_bad: bool = False  # malformed messages; else the first one ends it
    skip_lost: bool = False  # messages that were removed before they were read; else they end it
    scores: str | None = None  # topic, or stream, that every score goes to
    alerts: str | None = None  # those with label 1
    batch: int = 1000  # messages at a time
    linger: float = 0.05  # seconds that a batch waits for more
    once: bool = False  # end where the partition ended at the start


class Consumption:
    """`run` goes on until it is stopped, `once` ends it, or something fails."""

    def __init__(
        self,
        plan: ConsumePlan,
        feed: Feed,
        partition: Partition,
        reading: Reading,
        learner: RemoteLearner,
        threads: ThreadPoolExecutor,
        stop: threading.Event,
        counts: ReadCounts,
        note: Callable[[str], None],
    ) -> None:
        self.done = 0  # every message below this number has been dealt with
        self._plan = plan
        self._feed = feed
        self._partition = partition
        self._reading = reading
        self._learner = learner
        self._threads = threads
        self._stop = stop
        self._counts = counts
        self._note = note
        self._learnt = 0  # every labelled message below this number is in the learner's log
        self._end: int | None = None
        self._read = 0  # every message below this number has been read

    async def run(self) -> None:
        """Raises `CommandFailed`, or `Stopped`; nothing is lost by either."""
        await self._begin()
        while not self._stop.is_set():
            try:
                messages = await self._gather()
            except Removed:
                await self._behind()
                continue
            if messages:
                try:
                    await self._take(messages)
                except ClientError as error:
                    if error.code != "source-gap":
                        raise
                    await self._go_back(error)
            elif self._end is not None and await self._partition.position() >= self._end:
                return

    # Where to go on

    async def _begin(self) -> None:
        plan, partition = self._plan, self._partition
        first, end, ever = await partition.bounds()
        learnt = await self._known()
        committed = await partition.committed()
        chosen = {"earliest": first, "latest": end}.get(str(plan.start), plan.start)
        assert isinstance(chosen, int)
        known = [one for one in (None if plan.what == "predict" else learnt, committed) if one is not None]
        if (partition.counted or ever) and max(known, default=0) > ever:
            raise self._anew(max(known), ever)
        match plan.what:
            case "update":
                start = chosen if learnt is None else learnt
            case "predict":
                start = chosen if committed is None else committed
            case "auto":
                labelled = chosen if learnt is None else learnt
                start = labelled if committed is None else min(labelled, committed)
        if start < first:
            if start in known:
                self._lost(start, first)
            start = first
        self._learnt = start if learnt is None else learnt
        self.done = start if committed is None else max(start, committed)
        if plan.once and self._end is None:
            self._end = end
        self._go_on_from(start)

    def _go_on_from(self, offset: int) -> None:
        self._read = offset
        self._partition.seek(offset)

    def _anew(self, read: int, ever: int) -> CommandFailed:
        """What has gone further than its partition ever went ends, or it would pass over what comes now."""
        source, kind = self._partition.source, "topic" if self._partition.counted else "stream"
        return CommandFailed(
            f"{source} was read up to {read} and ends at {ever}: the {kind} was made anew, it seems, or has lost its "
            "last messages. Read it under another name, with --prefix and --group"
        )

    async def _behind(self) -> None:
        """What was to be read next is not there any more."""
        first, _, ever = await self._partition.bounds()
        if self._read > ever:
            raise self._anew(self._read, ever)
        if self._read < first:
            self._lost(self._read, first)
        self._go_on_from(max(self._read, first))

    async def _known(self) -> int | None:
        """The next labelled message by the learner's log; None: it knows nothing of this source."""
        document = await self._call(self._learner.describe)
        found: int | None = document["sources"].get(self._partition.source)
        return found

    def _lost(self, read: int, first: int) -> None:
        if not self._partition.counted:  # whether there was anything between cannot be known
            self._note(
                f"what {self._partition.source} had between {self._partition.place(read)} and "
                f"{self._partition.place(first)} was trimmed, if there was anything"
            )
            return
        text = f"{self._partition.source}: {first - read} messages from {read} on were removed before they were read"
        if not self._plan.skip_lost:
            raise CommandFailed(f"{text}; --on-lost skip goes on without them")
        self._note(text)

    async def _go_back(self, error: ClientError) -> None:
        """The learner was rolled back: it goes on from what it has now."""
        before = self._learnt
        for _ in range(_LOOKS):  # the node that is asked may not have seen it yet
            await self._begin()
            if self._learnt < before:
                went = f"the learner went back to {self._learnt}, so it is read again from there"
                self._note(f"{self._partition.source}: {went}")
                return
            await asyncio.sleep(_LOOK)
        raise error

    # Messages

    async def _gather(self) -> list[Message]:
        messages = await self._partition.read(self._plan.batch, _LOOK)
        until = time.monotonic() + self._plan.linger
        while messages and len(messages) < self._plan.batch and (left := until - time.monotonic()) > 0:
            try:
                more = await self._partition.read(self._plan.batch - len(messages), left)
            except Removed:  # which the next read says again, when what is here has been dealt with
                break
            messages += more
        if messages:
            self._read = messages[-1].offset + 1
        self._counts.read += len(messages)
        return messages

    async def _take(self, messages: Sequence[Message]) -> None:
        unlabelled: list[MessageEvent] = []
        labelled: list[MessageEvent] = []
        failed: BadMessage | None = None
        end = messages[-1].offset + 1
        for message in messages:
            try:
                event = self._reading.event(message)
            except BadMessage as error:
                failed = self._bad(message.offset, str(error))
                if failed is not None:
                    end = message.offset
                    break
                continue
            if event is None:
                self._counts.empty += 1
            elif message.offset < (self._learnt if event.labelled else self.done):
                self._counts.passed += 1
            else:
                (labelled if event.labelled else unlabelled).append(event)
        refused = await self._send(unlabelled, self._score)
        if refused is not None:
            end, failed = refused
            labelled = [event for event in labelled if event.offset < end]
        refused = await self._send(labelled, self._learn)
        if refused is not None:
            end, failed = refused
        if end > self.done:
            self.done = end
            await self._partition.commit(end)
        if failed is not None:
            raise CommandFailed(f"{failed}; --on-bad skip goes on without such messages")

    def _bad(self, offset: int, why: str) -> BadMessage | None:
        """The end, or None where it goes on without that message."""
        if offset < self.done:  # it was passed over before
            self._counts.passed += 1
            return None
        error = BadMessage(f"{self._partition.place(offset)}: {why}")
        if not self._plan.skip_bad:
            return error
        self._counts.skipped += 1
        self._note(f"skipped: {error}")
        return None

    # Requests

    async def _send(
        self, events: Sequence[MessageEvent], post: Callable[[Sequence[MessageEvent]], Awaitable[None]]
    ) -> tuple[int, BadMessage] | None:
        """Post events in bodies of bounded size, without those that the service refuses; the first, if that is the end.

        A refusal names the events that it is about. Where it does not, halves are sent, down to the one that it is.
        """
        waiting = deque(_bodies(events))
        ended: tuple[int, BadMessage] | None = None
        while waiting:
            part = waiting.popleft()
            try:
                await post(part)
                continue
            except ClientError as error:
                if error.status not in _FAULTY or any(
                    problem.pointer.startswith("/source") for problem in error.problems
                ):
                    raise
                refusal, blamed = error, _blamed(error, len(part))
            if not blamed and len(part) > 1:
                waiting.extendleft([part[len(part) // 2 :], part[: len(part) // 2]])
                continue
            rest: list[MessageEvent] = []
            for i, event in enumerate(part):
                if i not in (blamed or {0}):
                    rest.append(event)
                elif (bad := self._bad(event.offset, _why(refusal, i))) is not None:
                    ended = event.offset, bad
                    waiting.clear()
                    break
            if rest:
                waiting.appendleft(rest)
        return ended

    async def _learn(self, events: Sequence[MessageEvent]) -> None:
        source = {
            "name": self._partition.source,
            "offsets": [event.offset for event in events],
            "after": self._learnt,
        }
        body = b'{"source":%b,"events":[%b]}' % (_encode(source), b",".join(event.body for event in events))
        reply = await self._call(lambda: self._learner.update_json(body, repeatable=True))
        for status in ("applied", "duplicate", "relabelled", "unknown", "expired"):
            self._counts.learnt[status] = self._counts.learnt.get(status, 0) + getattr(reply, status)
        self._learnt = events[-1].offset + 1

    async def _score(self, events: Sequence[MessageEvent]) -> None:
        body = b'{"events":[%b]}' % b",".join(event.body for event in events)
        identified = sum(event.id is not None for event in events)
        reply = await self._call(lambda: self._learner.predict_json(body, remember=identified))
        results: list[Document] = reply["results"]
        outputs: list[Output] = []
        alerts: list[Output] = []
        for event, result in zip(events, results, strict=True):
            origin = self._partition.origin(event.offset)
            value = _encode({**result, "position": reply["position"], "source": origin})
            output = Output(None if event.id is None else str(event.id), value)
            outputs.append(output)
            if result.get("label") == 1:
                alerts.append(output)
        for to, written in ((self._plan.scores, outputs), (self._plan.alerts, alerts)):
            if to is not None and written:
                await self._feed.produce(to, written)
        self._counts.scored += len(events)
        self._counts.alerts += len(alerts)

    async def _call(self, call: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _bodies(events: Sequence[MessageEvent]) -> list[Sequence[MessageEvent]]:
    """The events in parts of about `_BODY` bytes at most, but of at least one."""
    parts: list[Any] = []
    room = 0
    for event in events:
        room -= len(event.body)
        if room < 0:
            parts.append([])
            room = _BODY - len(event.body)
        parts[-1].append(event)
    return parts


def _blamed(error: ClientError, count: int) -> set[int]:
    """The events of a request that its refusal points at."""
    found = set()
    for problem in error.problems:
        _, *path = problem.pointer.split("/")
        if len(path) > 1 and path[0] == "events" and path[1].isdecimal() and int(path[1]) < count:
            found.add(int(path[1]))
    return found


def _why(error: ClientError, number: int) -> str:
    """Return what a refusal says about that event."""
    prefix = f"/events/{number}"
    return "; ".join(
        f"{problem.pointer.removeprefix(prefix).removeprefix('/')}: {problem.detail}".removeprefix(": ")
        for problem in error.problems
        if problem.pointer == prefix or problem.pointer.startswith(f"{prefix}/")
    ) or str(error)
