"""Consumes one partition into one learner, in order, with one request in progress at a time.

There are two positions:

    learnt     in the learner's log, by `source`: the next labelled message. It moves with the state in one record. So a
               labelled event is learnt exactly once, even after a crash, and a roll-back moves it back.
    committed  in the consumer group of Kafka or of the stream: everything before it is handled, and its scores and
               alerts are acknowledged. After a crash between the two, messages are scored and written again.

A start resumes at the smaller one, and skips the messages that each position covers. Messages are handled in batches:
unlabelled ones are scored and the scores written, then labelled ones are learnt, then the position is committed. So a
label that follows its event in the topic finds the prediction.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from rarestream import ClientError, RemoteLearner
from service.connectors.feed import Document, Feed, Message, MessageRemoved, Output, Partition
from service.connectors.message_decoding import BadMessage, MessageEvent, MessageKind, Reading
from service.connectors.progress import ReadCounts
from service.exits import CommandFailed
from service.refusals import blamed_events

__all__ = ["ConsumePlan", "Consumption", "Start"]

Start = Literal["earliest", "latest"] | int
Result = TypeVar("Result")

_LOOK = 0.5  # seconds that a read waits for the first message, which delays a stop
_LOOKS = 20  # reads of a learner's document after a roll-back, which its node may not have applied yet
_BODY = 4 * 2**20  # bytes of a request
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class ConsumePlan:
    """The options of a consumer."""

    learner: str
    what: MessageKind = "auto"
    start: Start = "earliest"  # of the first reading
    skip_bad: bool = False  # skip malformed messages; else the first one is an error
    skip_lost: bool = False  # skip messages that were removed before they were read; else they are an error
    scores: str | None = None  # topic or stream of all scores
    alerts: str | None = None  # topic or stream of the scores with label 1
    batch: int = 1000  # messages per batch
    linger: float = 0.05  # seconds that a batch waits for more messages
    once: bool = False  # stop at the end that the partition has at the start
    time_format: str = ""  # of the messages' times, as of files
    time_unit: str = ""  # likewise


class Consumption:
    """Consumes a partition until it is stopped, `once` ends it, or something fails."""

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
        self.handled_to = 0  # every message below this offset is handled
        self._plan = plan
        self._feed = feed
        self._partition = partition
        self._reading = reading
        self._learner = learner
        self._threads = threads
        self._stop = stop
        self._counts = counts
        self._note = note
        self._learnt = 0  # every labelled message below this offset is in the learner's log
        self._after = 0  # number at which the learner's source goes on
        self._unnumbered = 0  # events without a number that were learnt since the last one with a number
        self._remembered_ids = 0  # of the learner
        self._end: int | None = None
        self._read = 0  # every message below this offset is read

    async def run(self) -> None:
        """Consume. Raises `CommandFailed` or `WaitInterrupted`; neither loses a message."""
        await self._begin()
        while not self._stop.is_set():
            try:
                messages = await self._gather()
            except MessageRemoved:
                await self._skip_removed()
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

    # Positions

    async def _begin(self) -> None:
        plan, partition = self._plan, self._partition
        first, end, ever = await partition.bounds()
        number = await self._read_number()
        learnt = None if number is None else partition.resume(number)
        committed = await partition.committed()
        offset = {"earliest": first, "latest": end}.get(str(plan.start), plan.start)
        assert isinstance(offset, int)
        positions = [
            position for position in (None if plan.what == "predict" else learnt, committed) if position is not None
        ]
        if (partition.counted or ever) and max(positions, default=0) > ever:
            raise self._recreated(max(positions), ever)
        match plan.what:
            case "update":
                start = offset if learnt is None else learnt
            case "predict":
                start = offset if committed is None else committed
            case "auto":
                labelled = offset if learnt is None else learnt
                start = labelled if committed is None else min(labelled, committed)
        if start < first:
            if start in positions:
                self._report_gap(start, first)
            start = first
        self._learnt = start if learnt is None else learnt
        self._after = partition.number(start) if number is None else number
        self.handled_to = start if committed is None else max(start, committed)
        if plan.once and self._end is None:
            self._end = end
        self._resume_from(start)

    def _resume_from(self, offset: int) -> None:
        self._read = offset
        self._partition.seek(offset)

    def _recreated(self, read: int, ever: int) -> CommandFailed:
        """Return the error of a partition that ends before the position: it would skip new messages."""
        partition = self._partition
        kind = "topic" if partition.counted else "stream"
        return CommandFailed(
            f"{partition.source} was read up to {partition.show(read)} but ends at {partition.show(ever)}: the {kind} "
            "was probably deleted and created again, or lost its last messages. Read it under another name, with "
            "--prefix and --group"
        )

    async def _skip_removed(self) -> None:
        """Continue after removed messages."""
        first, _, ever = await self._partition.bounds()
        if self._read > ever:
            raise self._recreated(self._read, ever)
        if self._read < first:
            self._report_gap(self._read, first)
        self._resume_from(max(self._read, first))

    async def _read_number(self) -> int | None:
        """Return the number at which the learner's source goes on; None if the learner does not have this source."""
        document = await self._call(self._learner.describe)
        self._remembered_ids = document["config"]["remembered_ids"]
        number: int | None = document["sources"].get(self._partition.source)
        return number

    def _report_gap(self, read: int, first: int) -> None:
        if not self._partition.counted:  # nobody can tell whether there were messages in between
            self._note(
                f"{self._partition.source}: any messages between {self._partition.place(read)} and "
                f"{self._partition.place(first)} were trimmed"
            )
            return
        text = f"{self._partition.source}: {first - read} messages from {read} on were removed before they were read"
        if not self._plan.skip_lost:
            raise CommandFailed(f"{text}; --on-lost skip continues without them")
        self._note(text)

    async def _go_back(self, error: ClientError) -> None:
        """Resume at the position of a learner that was rolled back."""
        before = self._learnt
        for _ in range(_LOOKS):  # its node may not have applied the roll-back yet
            await self._begin()
            if self._learnt < before:
                self._note(
                    f"{self._partition.source}: the learner was rolled back, reading again from "
                    f"{self._partition.show(self._learnt)}"
                )
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
            except MessageRemoved:  # the next read raises it again, after these messages
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
        headers = self._reading.schema_headers
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
            elif message.offset < (self._learnt if event.labelled else self.handled_to):
                self._counts.passed += 1
            else:
                (labelled if event.labelled else unlabelled).append(event)
        for warning in self._reading.warnings():
            self._note(f"warning: {self._partition.source}: {warning}")
        self._counts.schema_headers += self._reading.schema_headers - headers
        refused = await self._send(unlabelled, self._score)
        if refused is not None:
            end, failed = refused
            labelled = [event for event in labelled if event.offset < end]
        refused = await self._send(labelled, self._learn)
        if refused is not None:
            end, failed = refused
        if end > self.handled_to:
            self.handled_to = end
            await self._partition.commit(end)
        if failed is not None:
            raise CommandFailed(f"{failed}; --on-bad skip continues without such messages")

    def _bad(self, offset: int, why: str) -> BadMessage | None:
        """Return the error that ends it, or None if it skips the message."""
        if offset < self.handled_to:  # it was skipped before
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
        """Post events in bodies of bounded size, without refused ones; return the refused event that ends it, or None.

        A refusal names its events. If it does not, the halves are sent, down to a single event.
        """
        waiting = deque(_bodies(events, self._partition.numbered))
        ended: tuple[int, BadMessage] | None = None
        while waiting:
            part = waiting.popleft()
            try:
                await post(part)
                continue
            except ClientError as error:
                blamed = blamed_events(error, len(part))
                if blamed is None:
                    raise
            if not blamed:
                waiting.extendleft([part[len(part) // 2 :], part[: len(part) // 2]])
                continue
            rest: list[MessageEvent] = []
            for i, event in enumerate(part):
                if i not in blamed:
                    rest.append(event)
                elif (bad := self._bad(event.offset, blamed[i])) is not None:
                    ended = event.offset, bad
                    waiting.clear()
                    break
            if rest:
                waiting.appendleft(rest)
        return ended

    async def _learn(self, events: Sequence[MessageEvent]) -> None:
        """Learn events that all have a number, or none. Those without get an id, so that they are learnt once."""
        partition = self._partition
        numbers = [partition.number(event.offset) for event in events] if partition.numbered(events[0].offset) else []
        if numbers:
            source = _encode({"name": partition.source, "offsets": numbers, "after": self._after})
            body = b'{"source":%b,"events":[%b]}' % (source, b",".join(event.body for event in events))
        else:
            body = b'{"events":[%b]}' % b",".join(map(self._identified, events))
        reply = await self._call(lambda: self._learner.update_json(body, repeatable=True))
        for status in ("applied", "duplicate", "relabelled", "unknown", "expired"):
            self._counts.learnt[status] = self._counts.learnt.get(status, 0) + getattr(reply, status)
        self._learnt = events[-1].offset + 1
        if numbers:
            self._after, self._unnumbered = numbers[-1] + 1, 0
            return
        before, self._unnumbered = self._unnumbered, self._unnumbered + len(events)
        if before <= self._remembered_ids < self._unnumbered:
            self._note(
                f"warning: {partition.source}: one millisecond has more entries than the learner has remembered_ids "
                f"({self._remembered_ids:,}): after a restart among them, some may be learnt twice"
            )

    def _identified(self, event: MessageEvent) -> bytes:
        """Return the body of an event with an id: its own, or one of its place."""
        if event.id is not None:
            return event.body
        members = msgspec.json.decode(event.body, type=dict[str, msgspec.Raw])
        return _encode({**members, "id": f"{self._partition.source}/{self._partition.show(event.offset + 1)}"})

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
            output = Output(event.id, value)
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


def _bodies(events: Sequence[MessageEvent], numbered: Callable[[int], bool]) -> list[Sequence[MessageEvent]]:
    """Split events into parts of at most about `_BODY` bytes, and at least one event; all have a number, or none."""
    parts: list[Any] = []
    room = 0
    for event in events:
        room -= len(event.body)
        if room < 0 or numbered(event.offset) != numbered(parts[-1][-1].offset):
            parts.append([])
            room = _BODY - len(event.body)
        parts[-1].append(event)
    return parts
