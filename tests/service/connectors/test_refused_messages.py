"""A refused message changes nothing: the others are learnt and scored as if it had never been there."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, Self

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.cli.options_service import connected
from service.connectors.feed import Document, Message, OffsetRange, Output
from service.connectors.message_decoding import Reading
from service.connectors.partition import ConsumePlan, Consumption
from service.connectors.progress import ReadCounts
from service.datasets.values import BinaryLabels
from tests.harness.consumer import Target
from tests.harness.process import Process

pytestmark = pytest.mark.integration

NAMED = {"algorithm": "cbr-diag", "features": {"kind": "named"}, "window": 100, "seed": 7}
Value = bytes | Mapping[str, str] | None


class ListedMessages:
    """A feed of one partition, whose messages are a list with increasing offsets."""

    source, counted = "list", False

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._next = 0
        self._committed: int | None = None
        self.partitions = [self]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    def added(self) -> list[str]:
        return []

    async def produce(self, to: str, outputs: Sequence[Output]) -> None:
        del to, outputs

    async def bounds(self) -> OffsetRange:
        end = self._messages[-1].offset + 1 if self._messages else 0
        return OffsetRange(0, end, end)

    async def committed(self) -> int | None:
        return self._committed

    def seek(self, offset: int) -> None:
        self._next = offset

    async def read(self, most: int, seconds: float) -> list[Message]:
        del seconds
        messages = [message for message in self._messages if message.offset >= self._next][:most]
        self._next = messages[-1].offset + 1 if messages else (await self.bounds()).end
        return messages

    async def position(self) -> int:
        return self._next

    async def commit(self, offset: int) -> None:
        self._committed = offset

    def number(self, offset: int) -> int:
        return offset

    def numbered(self, offset: int) -> bool:
        return offset >= 0

    def resume(self, number: int) -> int:
        return number

    def show(self, offset: int) -> int:
        return offset

    def place(self, offset: int) -> str:
        return f"message {offset}"

    def origin(self, offset: int) -> Document:
        return {"message": offset}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with Process("memory:", tmp_path_factory.mktemp("service") / "service.log") as process:
        yield process


NUMBERS = count()


def consumed(service: Process, messages: Sequence[Message], batch: int = 1000) -> tuple[Target, ReadCounts, list[str]]:
    """Let a new learner consume the messages, and skip those that are refused."""
    target = Target(service.url, f"learner-{next(NUMBERS)}", NAMED)
    feed, counts, notes = ListedMessages(messages), ReadCounts(), list[str]()

    async def run() -> None:
        plan = ConsumePlan(target.name, skip_bad=True, once=True, batch=batch, linger=0.0)
        reading, stop = Reading("auto", BinaryLabels(stream=True)), threading.Event()
        with connected(target.url, None) as client, ThreadPoolExecutor(1) as threads:
            learner = client.learner(target.name)
            await Consumption(plan, feed, feed, reading, learner, threads, stop, counts, notes.append).run()

    asyncio.run(run())
    return target, counts, notes


def state(target: Target) -> Any:
    probes = [{"features": {"a": a, "shop": shop}} for a in (0.5, 2, 9) for shop in ("s1", "s2", "s3")]
    document, metrics = target.get(), target.get("/metrics")
    scores = target.post("/predict", {"events": probes})["results"]
    return document["class_counts"], document["sources"], scores, metrics["window"], metrics["duplicates"]


FLAT = st.fixed_dictionaries({"a": st.sampled_from(["0.5", "2", "9"]), "shop": st.sampled_from(["s1", "s2"])})
GOOD = st.one_of(
    st.builds(lambda fields, label: {**fields, "label": label}, FLAT, st.sampled_from(["0", "1", "1.0", "0"])),
    st.builds(
        lambda a, label: json.dumps({"features": {"a": a, "shop": "s3"}, "label": label}).encode(),
        st.floats(-9, 9),
        st.sampled_from([0, 1]),
    ),
)
BAD_FIELDS = [
    {"label": "maybe"},
    {"label": "2"},
    {"label": "-1", "weight": "-3"},
    {"label": "no", "time": "yesterday"},
    {"label": "yes", "id": "x" * 1000},  # refused by the service
    {"label": "-1", "time": "1e999"},
]
BAD = st.one_of(
    st.builds(lambda fields, more: {**fields, **more}, FLAT, st.sampled_from(BAD_FIELDS)),
    st.sampled_from(
        [
            b"{",
            b"\xff",
            b'{"features": {"a": 1}, "label": "1"}',
            b'{"features": {"a": 1}, "label": 2}',
            b'{"features": {"a": 1}, "label": 1, "weight": -1}',
            b'{"features": {"a": {"b": 1}, "c": 2}, "label": 1}',
            b'{"x": [1, 2], "label": 1}',
        ]
    ),
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(GOOD.map(lambda value: (value, True)) | BAD.map(lambda value: (value, False))), max_size=12),
    st.sampled_from([1, 3, 1000]),
)
def test_other_messages_are_learnt_as_if_refused_ones_had_not_been_there(
    service: Process, sequence: list[tuple[tuple[Value, bool]]], batch: int
) -> None:
    messages = [(Message(offset, value), good) for offset, ((value, good),) in enumerate(sequence)]
    expected, _, _ = consumed(service, [message for message, good in messages if good], 1)
    target, counts, notes = consumed(service, [message for message, _ in messages], batch)
    assert counts.skipped == sum(not good for _, good in messages)
    assert sum(note.startswith("skipped: message ") for note in notes) == counts.skipped
    assert counts.learnt.get("applied", 0) == sum(good for _, good in messages)
    assert state(target) == state(expected)


def test_labels_mean_the_same_whatever_came_before_them() -> None:
    labels = BinaryLabels(stream=True)
    for text in ("maybe", "2"):
        with pytest.raises(ValueError, match=text):
            labels(text)
    assert [labels(text) for text in ("0", "1", "1.0", "0")] == [0, 1, 1, 0]
    assert labels.mixture() is None
    assert [labels(text) for text in ("-1", "no", "TRUE", "0")] == [0, 0, 1, 0]
    assert labels.mixture() is not None


def test_labels_of_several_kinds_are_reported_once(service: Process) -> None:
    values = ["0", "1", "-1", "1", "-1", "0"]
    messages = [Message(offset, {"a": "1", "label": label}) for offset, label in enumerate(values)]
    target, counts, notes = consumed(service, messages, 2)
    assert (counts.learnt["applied"], counts.skipped) == (6, 0)
    assert target.get()["class_counts"] == {"positive": 2, "negative": 4}
    assert len(notes) == 1
    assert "'-1'" in notes[0]
