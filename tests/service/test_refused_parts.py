"""What a door refuses changes nothing: the rest has the results that it would have without the bad members.

Messages of a stream are in `connectors/test_refused_messages.py`.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import Config, InvalidInput, create
from service.datasets import readers, rows
from service.datasets.bad_rows import BadRows
from service.datasets.file_options import FileOptions
from service.datasets.readers import open_rows
from service.datasets.values import RowColumns
from service.storage.memory import MemoryStore
from tests.harness.msgpack_bodies import HEADERS, plain
from tests.harness.nodes import app_over, digest, node, serving
from tests.harness.websocket import websocket

pytestmark = pytest.mark.integration

NAMED = {"algorithm": "cbr-diag", "features": {"kind": "named"}, "window": 50, "seed": 3}

# Requests: a bad event refuses its request as a whole

EVENT = st.fixed_dictionaries(
    {
        "features": st.fixed_dictionaries({"a": st.sampled_from([0.5, 2, 9]), "shop": st.sampled_from(["s1", "s2"])}),
        "label": st.sampled_from([0, 1]),
    },
    optional={"id": st.sampled_from(["i1", "i2", "i3"]), "time": st.sampled_from([1e9, 1.1e9])},
)
WRONG = st.sampled_from(
    [
        {"label": 2},
        {"label": None},
        {"time": 1e300},
        {"weight": -1},
        {"id": ""},
        {"features": {"a": {"b": 1}}},
        {"features": {"\ud800": 1}},
        {"surplus": 1},
        {"time": "yesterday", "id": "i1"},
    ]
)
GOOD_REQUEST = st.lists(EVENT, min_size=1, max_size=3)
BAD_REQUEST = st.builds(
    lambda before, event, wrong, after: [*before, {**event, **wrong}, *after],
    st.lists(EVENT, max_size=2),
    EVENT,
    WRONG,
    st.lists(EVENT, max_size=2),
)


class Request(NamedTuple):
    """Events, whether a door takes them, and what it does with them."""

    events: list[dict[str, Any]]
    good: bool
    operation: str

    def is_judged(self) -> bool:
        """Tell whether `good` is right: an event to be scored may have a label that is null."""
        return self.operation == "update" or all(event["label"] is not None for event in self.events)

    def request_events(self) -> list[dict[str, Any]]:
        """Return the events as they are sent: to be scored, they have a time, and no label that is right."""
        if self.operation == "update":
            return self.events
        timed: list[dict[str, Any]] = [{"time": 1e9, **event} for event in self.events]
        return [{k: v for k, v in event.items() if k != "label" or v not in (0, 1)} for event in timed]


REQUESTS = st.lists(
    st.tuples(
        GOOD_REQUEST.map(lambda events: (events, True)) | BAD_REQUEST.map(lambda events: (events, False)),
        st.sampled_from(["update", "predict"]),
    )
    .map(lambda draws: Request(*draws[0], draws[1]))
    .filter(Request.is_judged),
    max_size=8,
)


def content_of(request: Request, coding: str) -> tuple[bytes, dict[str, str]]:
    """Return the body and its headers."""
    events = request.request_events()
    if coding == "ndjson":
        lines = "".join(json.dumps(event) + "\n" for event in events)
        return lines.encode(), {"content-type": "application/x-ndjson"}
    if coding == "json":
        return json.dumps({"events": events}).encode(), {"content-type": "application/json"}
    return msgpack.packb(columns(events), unicode_errors="surrogatepass"), HEADERS


def columns(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the members of a body of columns, wrong ones included."""
    names = dict.fromkeys(name for event in events for name in event["features"])
    members: dict[str, Any] = {"features": {name: [event["features"].get(name) for event in events] for name in names}}
    for member, column in (("label", "labels"), ("time", "times"), ("id", "ids"), ("weight", "weights")):
        if any(member in event for event in events):
            members[column] = [event.get(member, 1 if member == "weight" else None) for event in events]
    return members | {name: 1 for event in events for name in event if name == "surplus"}


async def by_requests(requests: Sequence[Request], coding: str) -> tuple[Any, Any]:
    """Return the replies to the good requests, and the digest of the learner."""
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=NAMED)
        replies = []
        for request in requests:
            content, headers = content_of(request, coding)
            reply = await http.post(f"/learners/a/{request.operation}", content=content, headers=headers)
            assert reply.status_code in ((200,) if request.good else (400, 422)), reply.text
            if request.good:
                replies.append(reply.content)
        return replies, await digest(http)


@settings(max_examples=15, deadline=None)
@given(REQUESTS, st.sampled_from(["json", "msgpack", "ndjson"]))
def test_a_refused_request_changes_nothing(requests: list[Request], coding: str) -> None:
    good = [request for request in requests if request.good]
    assert asyncio.run(by_requests(requests, coding)) == asyncio.run(by_requests(good, coding))


def by_library(requests: Sequence[Request]) -> tuple[Any, str]:
    """Return the predictions of the good calls, and the digest of the learner."""
    learner, predicted = create(**NAMED), []
    for events, good, operation in requests:
        X = [event["features"] for event in events]
        more = {name: [event.get(name[:-1]) for event in events] for name in ("times", "weights")}
        more["times"] = [float("nan") if time is None else time for time in more["times"]]
        more["weights"] = [1.0 if weight is None else weight for weight in more["weights"]]
        try:
            if operation == "predict":
                predicted.append(learner.score(X).tolist())
            else:
                labels, ids = [event["label"] for event in events], [event.get("id") for event in events]
                learner.learn(X, labels, ids=ids, **more)
        except InvalidInput:
            assert not good
    return predicted, learner.digest()


LIBRARY_WRONG = st.sampled_from([{"label": 2}, {"time": 1e300}, {"weight": -1}, {"id": ["i"]}, {"features": {"a": {}}}])
LIBRARY_CALLS = st.lists(
    st.builds(Request, GOOD_REQUEST, st.just(True), st.sampled_from(["update", "predict"]))
    | st.builds(lambda event, wrong: Request([event, {**event, **wrong}], False, "update"), EVENT, LIBRARY_WRONG),
    max_size=8,
)


@settings(max_examples=15, deadline=None)
@given(LIBRARY_CALLS)
def test_a_refused_call_of_the_library_changes_nothing(calls: list[Request]) -> None:
    assert by_library(calls) == by_library([call for call in calls if call.good])


async def by_websocket(requests: Sequence[Request], binary: bool, at_once: bool) -> tuple[Any, Any]:
    """Return the replies to the good messages, and the digest; those sent `at_once` are joined with neighbours."""
    async with node(MemoryStore()) as engine:
        replica, _ = await engine.create("a", Config.of(NAMED))
        async with websocket(app_over(engine), "/v1/learners/a/ws") as client:
            received: list[Any] = []
            for seq, request in enumerate(requests):
                head = {"seq": seq, "op": request.operation}
                if binary:
                    client.send(msgpack.packb(head | columns(request.request_events()), unicode_errors="surrogatepass"))
                else:
                    client.send(json.dumps({**head, "events": request.request_events()}))
                if not at_once:
                    received += await client.replies(1)
            received += await client.replies(len(requests) - len(received))
        replies = {reply["seq"]: plain(reply) for reply in received}
        refused = [seq for seq, request in enumerate(requests) if not request.good]
        assert [seq for seq, reply in sorted(replies.items()) if "title" in reply] == refused
        texts = [
            {name: value for name, value in replies[seq].items() if name not in ("seq", "position", "class_counts")}
            for seq, request in enumerate(requests)
            if request.good
        ]
        return repr(texts), replica.learner.digest()


@settings(max_examples=15, deadline=None)
@given(REQUESTS, st.booleans(), st.booleans())
def test_a_refused_message_of_a_websocket_changes_nothing(requests: list[Request], binary: bool, at_once: bool) -> None:
    if at_once:  # what an event is scored by depends on the updates that are joined before it
        requests = [request for request in requests if request.operation == "update"]
    good = [request for request in requests if request.good]
    expected = asyncio.run(by_websocket(good, binary, at_once))
    assert asyncio.run(by_websocket(requests, binary, at_once)) == expected


# Rows of a file

NAMES = ("a", "later", "when", "weight", "label")
ROW = st.tuples(
    st.sampled_from(["1", "2.5", "7", ""]),
    st.sampled_from(["", "", "3", "text"]),
    st.sampled_from(["2026-01-02", "1600000000", ""]),
    st.sampled_from(["1", "2", ""]),
    st.sampled_from(["0", "1"]),
)
FIRST = (
    "1",
    "",
    "1600000000",
    "1",
    "1",
)  # of rows that are surveyed: `later` is undecided, and so is the pair of the labels
BAD_ROW = st.sampled_from(
    [
        ("x", "text", "yesterday", "1", "-1"),
        ("x", "9", "1600000000", "-3", "no"),
        ("x", "text", "1600000000", "heavy", "false"),
        ("x", "text", "1600000000", "1", ""),
        ("x", "9", "1600000000", "1", "NULL"),
    ]
)


def read(form: str, table: Sequence[tuple[str, ...]], ahead: int) -> tuple[Any, ...]:
    """Return the events of a file, its shape, what is taken of it, and its notes without places."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"rows.{form}"
        if form == "csv":
            path.write_text("\n".join(map(",".join, (NAMES, *table))) + "\n")
        elif form == "parquet":
            import pyarrow
            from pyarrow import parquet

            columns_of_text = (list(column) for column in zip(*table, strict=True))
            parquet.write_table(pyarrow.table(dict(zip(NAMES, columns_of_text, strict=True))), path)
        else:
            path.write_text("".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in table))
        columns = RowColumns(time="when", weight="weight")
        with (
            patch.object(rows, "AHEAD_ROWS", ahead),
            patch.object(readers, "AHEAD_ROWS", ahead),
            BadRows("skip") as bad,
            open_rows(path, columns, bad=bad) as opened,
        ):
            events = list(opened.events())
            return (
                events,
                opened.shape,
                opened.guesses,
                [re.sub(r"(line|row) \d+", r"\1", text) for text in opened.notes()],
            )


TABLE = st.lists(ROW.map(lambda row: (row, True)) | BAD_ROW.map(lambda row: (row, False)), max_size=10)


@settings(max_examples=60, deadline=None)
@given(TABLE, st.sampled_from([2, 10_000]), st.sampled_from(["csv", "jsonl"]))
def test_a_bad_row_changes_nothing(draws: list[tuple[tuple[str, ...], bool]], ahead: int, form: str) -> None:
    first = [FIRST] * 2  # the survey has as many rows with and without the bad ones
    good = [row for row, is_good in draws if is_good]
    assert read(form, [*first, *(row for row, _ in draws)], ahead) == read(form, [*first, *good], ahead)


@pytest.mark.integration
@settings(max_examples=60, deadline=None)
@given(TABLE, st.sampled_from([2, 10_000]))
def test_a_bad_row_of_parquet_changes_nothing(draws: list[tuple[tuple[str, ...], bool]], ahead: int) -> None:
    good = [row for row, is_good in draws if is_good]
    assert read("parquet", [FIRST, FIRST, *(row for row, _ in draws)], ahead) == read(
        "parquet", [FIRST, FIRST, *good], ahead
    )


PAIRS = st.sampled_from(["1 qid:7 1:2", "0 3:1.5 2:1", "1 5:1 # words", "0"])
BAD_PAIRS = st.sampled_from(["1 qid:7 1:x", "0 qid:7 1:2 1:3", "qid:7 1:2", "1 0:nan", "1 1:inf"])


@settings(max_examples=60, deadline=None)
@given(st.lists(PAIRS.map(lambda line: (line, True)) | BAD_PAIRS.map(lambda line: (line, False)), max_size=10))
def test_a_bad_row_of_libsvm_changes_nothing(draws: list[tuple[str, bool]]) -> None:
    results = []
    for lines in ([line for line, _ in draws], [line for line, good in draws if good]):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.libsvm"
            path.write_text("".join(f"{line}\n" for line in ["1 2:1", "0 1:1", *lines]))
            columns = RowColumns(form=FileOptions(zero_based="no"))
            with BadRows("skip") as bad, open_rows(path, columns, bad=bad) as opened:
                results.append((list(opened.events()), opened.shape, opened.guesses, opened.notes()))
    assert results[0] == results[1]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_bad_rows_among_the_first_decide_nothing(form: str) -> None:
    bad = [("x", "9", "yesterday", "1", "1")] * 30
    good = [("1", "", "1600000000", "1", "0"), ("2", "", "1600000000", "1", "1")]
    assert read(form, [*bad, *good], 10_000) == read(form, good, 10_000)
