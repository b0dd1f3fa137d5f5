"""Any value gives the same feature, or the same refusal, at every door.

Doors of values (JSON, NDJSON, MessagePack, websocket, client, JSON lines, standard input, Parquet, messages of a topic)
are compared with the library by the state that learning leaves. Doors of text (CSV, TSV, CSV on standard input, Parquet
columns of text, flat messages) are compared with the same text in JSON, by what the learner makes of it.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import msgpack
import numpy as np
import pandas as pd
import pyarrow
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from learners import Config, InvalidInput, create
from learners.features import Features
from learners.features import columns_of as stage_of
from rarestream import EventBatch
from rarestream.client.encode import encode_labelled
from service.connectors.feed import Message
from service.connectors.message_decoding import BadMessage, Reading
from service.datasets import BadRows, BinaryLabels, FileOptions, Inputs, ReadError, RowColumns, declared, open_rows
from service.storage.memory import MemoryStore
from tests.harness.msgpack_bodies import HEADERS, columns_of
from tests.harness.nodes import app_over, digest, node, over
from tests.harness.websocket import Websocket, websocket

pytestmark = pytest.mark.integration

FEATURES: dict[str, dict[str, Any]] = {
    "new": {"kind": "named", "bits": 16},
    "categorical": {"kind": "named", "bits": 16, "categorical": ["f"]},
    "log": {"kind": "named", "bits": 16, "log": ["f"]},
    "text": {"kind": "named", "bits": 16, "text": ["f"]},
    "table number": {"kind": "table", "fields": [{"name": "f", "kind": "numeric", "log": True}]},
    "table category": {"kind": "table", "fields": [{"name": "f", "kind": "categorical"}]},
}
SPELLINGS = [
    *("17", "17.0", "+17", " 17 ", "-0", "0", "0.0", "12.50", "1e3", "1E-2", ".5", "5.", "007", "007.5", "00", "-01"),
    *("9007199254740992", "9007199254740993", "1" * 40, "1e30", "1e31", "1e999", "-1e999", "1_000", "1,234.50", "12,5"),
    *("2e35", "$12.50", "12%", "\u0661\u0662", "\u00b2", "0x1F", "1 000", "+-5", "--1"),
    *("nan", "NaN", "-nan", "inf", "-Infinity", "+inf", "-", "?", "NA", "<na>", "#N/A", "NULL", "\\N", "None", ""),
    *("true", "True", "FALSE", "yes", " DE ", "DE", "Co\u0301rdoba", "C\u00f3rdoba", "\u0391\u03b8\u03ae\u03bd\u03b1"),
    *("\u6771\u4eac\u30bf\u30ef\u30fc", "\u200b", "\u00a0", " ", "2019-11-30", "30.11.2019 13:01", "20191130"),
]
TEXTS = st.sampled_from(SPELLINGS) | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)
NUMBERS = (
    st.sampled_from([0, -0.0, 17, 17.0, 0.5, 2**53, 2**53 + 1, 2.0**60, 10**25, 10**31, 1e30, 1e31, 5e-324, -1e308])
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
)
PLAIN = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = PLAIN | st.lists(PLAIN, max_size=3) | st.just({"a": 1}) | st.just([["a"]])

ODD: list[Any] = [
    *(17, 17.0, -0.0, 0.5, 2**53, 2**53 + 1, 2.0**60, 10**31, 1e30, 1e31, -2e35, 3.5e18, 5e-324, True, False),
    *(None, ["a", "b"], [1, 2], [0.5], [True], [], [2**53 + 1], [3.5e18], ["3.5e+18"], ["a", None], {"a": 1}, [["a"]]),
]

Event = dict[str, Any]


@contextmanager
def standard_input(content: str) -> Iterator[None]:
    """Put a content on standard input, in place of a process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
        yield


class Doors:
    """The doors of values, each to a learner of its name: a method learns one event, and tells if it was accepted."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        socket: Websocket,
        learner: str = "",
        declarations: Mapping[str, bool] | None = None,
    ) -> None:
        self._http = http
        self._socket = socket
        self._learner = learner  # of all doors; empty: each door has its own
        self._declarations = declarations or {}  # of the learner

    async def _post(self, door: str, content: bytes, headers: dict[str, str] | None = None) -> bool:
        reply = await self._http.post(
            f"/learners/{self._learner or door}/update", content=content, headers=headers or {}
        )
        assert reply.status_code in (200, 422), reply.text
        return reply.status_code == 200

    async def json(self, event: Event, label: int) -> bool:
        return await self._post("json", json.dumps({"events": [{"features": event, "label": label}]}).encode())

    async def ndjson(self, event: Event, label: int) -> bool:
        line = json.dumps({"features": event, "label": label}, ensure_ascii=False).encode()
        reply = await self._http.post(
            f"/learners/{self._learner or 'ndjson'}/update",
            content=line,
            headers={"content-type": "application/x-ndjson"},
        )
        return "position" in json.loads(reply.text.splitlines()[-1])

    async def msgpack(self, event: Event, label: int) -> bool:
        try:
            body = msgpack.packb(columns_of([{"features": event, "label": label}]))
        except OverflowError:  # MessagePack has no such whole number
            return await self._post("msgpack", json.dumps({"events": [{"features": event, "label": label}]}).encode())
        return await self._post("msgpack", body, HEADERS)

    async def websocket(self, event: Event, label: int) -> bool:
        self._socket.send(json.dumps({"seq": 1, "op": "update", "events": [{"features": event, "label": label}]}))
        return bool((await self._socket.reply()).get("status", 200) == 200)

    async def _client(self, door: str, X: Any, event: Event, label: int) -> bool:
        try:
            body = encode_labelled(EventBatch(X, [label])).body(0, 1)
        except ValueError:  # a whole number that MessagePack has not
            return await self._post(door, json.dumps({"events": [{"features": event, "label": label}]}).encode())
        return await self._post(door, body, HEADERS)

    async def client(self, event: Event, label: int) -> bool:
        return await self._client("client", [{name: scalar(value) for name, value in event.items()}], event, label)

    async def frame(self, event: Event, label: int) -> bool:
        return await self._client(
            "frame", pd.DataFrame({name: pd.Series([value]) for name, value in event.items()}, index=[0]), event, label
        )

    async def message(self, event: Event, label: int) -> bool:
        body = json.dumps({"features": event, "label": label}).encode()
        try:
            read = Reading("auto", BinaryLabels(stream=True)).event(Message(1, body))
        except BadMessage:
            return False
        assert read is not None
        return await self._post("message", b'{"events":[%b]}' % read.body)

    async def lines(self, event: Event, label: int) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.jsonl"
            path.write_text(json.dumps({**event, "label": label}, ensure_ascii=False) + "\n")
            with open_rows(path, RowColumns(), bad=BadRows("skip")) as rows:
                events = list(rows.events())
        return bool(events) and await self._post("lines", json.dumps({"events": events}).encode())

    async def stdin(self, event: Event, label: int) -> bool:
        with standard_input(json.dumps({**event, "label": label}) + "\n"):
            try:
                (row,) = Inputs(["-"], "update", None, RowColumns()).events()
            except ReadError:
                return False
        return await self._post("stdin", json.dumps({"events": [row]}).encode())

    async def parquet(self, event: Event, label: int) -> bool:
        """Learn a file of one row. Text goes by JSON: the cells of its column decide on it, as in CSV."""
        row = {name: value for name, value in event.items() if value is not None}
        try:
            table = pyarrow.Table.from_pylist([{**row, "label": label}])
        except (OverflowError, pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):  # Arrow has no such number or list
            table = None
        if table is None or not row or any(isinstance(value, str) for value in row.values()):
            return await self._post("parquet", json.dumps({"events": [{"features": event, "label": label}]}).encode())
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.parquet"
            parquet.write_table(table, path)
            try:
                with open_rows(path, RowColumns(), self._declarations, bad=BadRows("skip")) as rows:
                    events = list(rows.events())
            except ReadError:
                return False
        return bool(events) and await self._post("parquet", json.dumps({"events": events}).encode())

    async def group(self, event: Event, label: int) -> bool:
        body = {"events": [{"features": event, "label": label}]}
        reply = await self._http.post(
            f"/{'learners/' + self._learner if self._learner else 'groups/all'}/update", json=body
        )
        assert reply.status_code in (200, 422), reply.text
        return reply.status_code == 200

    async def command(self, event: Event, label: int) -> bool:
        inputs = Inputs([json.dumps({**event, "label": label})], "update", None, RowColumns())
        try:
            (row,) = inputs.events()
        except ReadError:
            return False
        return await self._post("command", json.dumps({"events": [row]}).encode())


DOORS = ("json", "ndjson", "msgpack", "websocket", "client", "frame", "message", "lines", "command", "stdin", "group")


def scalar(value: Any) -> Any:
    """Return a NumPy scalar, if the value has one."""
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, float):
        return np.float64(value)
    return np.int64(value) if isinstance(value, int) and -(2**63) <= value < 2**63 else value


async def learn_at_every_door(config: dict[str, Any], events: Sequence[Event], names: Sequence[str] = DOORS) -> None:
    """Learn each event by a request of its own, at every door and by the library, and compare."""
    local, expected = create(**config), []
    for i, event in enumerate(events):
        try:
            local.learn([event], [i % 2])
            expected.append(True)
        except InvalidInput:
            expected.append(False)
    async with node(MemoryStore()) as engine:
        app = app_over(engine)
        for door in names:
            await engine.create(door, Config.of(config))
        async with over(engine) as http, websocket(app, "/v1/learners/websocket/ws") as socket:
            await http.put("/learners/other", json=config)
            assert (await http.put("/groups/all", json={"learners": ["group", "other"]})).status_code == 201
            doors = Doors(http, socket, declarations=declared(config["features"]))
            for door in names:
                accepted = [await getattr(doors, door)(event, i % 2) for i, event in enumerate(events)]
                assert (accepted, (await digest(http, door))[1]) == (expected, local.digest()), door


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(sorted(FEATURES)), st.lists(VALUES, min_size=1, max_size=12))
@example("new", [1.5, *ODD])
@example("new", ["DE", *ODD])
@example("categorical", ODD)
@example("log", ODD)
@example("text", ODD)
@example("table number", ODD)
@example("table category", ODD)
def test_a_value_is_learnt_or_refused_alike_at_every_door(kind: str, values: list[Any]) -> None:
    config = {"algorithm": "cbr-diag", "features": FEATURES[kind], "seed": 3}
    asyncio.run(learn_at_every_door(config, [{"f": value} for value in values], [*DOORS, "parquet"]))


NAMES = st.sampled_from(
    [
        "f",
        " f",
        "F",
        "\u0192",
        "C\u00f3",
        "Co\u0301",
        "\u00a0f ",
        "1",
        "a~b",
        "a=b",
        "",
        " ",
        "\u0661",
        "n" * 256,
        "n" * 257,
    ]
)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.dictionaries(NAMES, PLAIN, min_size=1, max_size=3), min_size=1, max_size=8))
def test_a_name_is_read_or_refused_alike_at_every_door(events: list[Event]) -> None:
    config = {"algorithm": "cbr-diag", "features": FEATURES["new"], "seed": 3}
    asyncio.run(learn_at_every_door(config, events))


PAST_EVENTS: list[Event] = [{"f": 1.5 + i, "g": "DE" if i % 2 else "FR"} for i in range(20)]


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(sorted(FEATURES)), st.lists(VALUES, min_size=1, max_size=6))
def test_values_are_scored_or_refused_alike_at_every_door(kind: str, values: list[Any]) -> None:
    """Of several events, a refused one refuses all: the words name it, and nothing is learnt or remembered."""
    document = FEATURES[kind]
    past = [{"f": event["f"]} if document["kind"] == "table" else event for event in PAST_EVENTS]
    config = {"algorithm": "cbr-diag", "features": document, "seed": 3}
    local, events = create(**config), [{"f": value} for value in values]
    local.learn(past, [i % 2 for i in range(len(past))])
    try:
        expected: Any = local.score(events).tolist()
    except InvalidInput as error:
        expected = [(int(problem.pointer.split("/")[1]), problem.detail) for problem in error.problems]

    async def check() -> None:
        async with node(MemoryStore()) as engine:
            replica, _ = await engine.create("a", Config.of(config))
            app = app_over(engine)
            async with over(engine) as http, websocket(app, "/v1/learners/a/ws") as socket:
                labelled = [{"features": event, "label": i % 2} for i, event in enumerate(past)]
                assert (await http.post("/learners/a/update", json={"events": labelled})).status_code == 200
                before = replica.learner.digest()
                for door, reply in await scored(http, socket, events):
                    assert outcome(reply) == expected, door
                assert replica.learner.digest() == before

    asyncio.run(check())


async def scored(http: httpx.AsyncClient, socket: Websocket, events: list[Event]) -> list[tuple[str, dict[str, Any]]]:
    """Score events at the doors that refuse them together; return each door with its reply."""
    body: dict[str, Any] = {"events": [{"features": event} for event in events]}
    replies = [("json", (await http.post("/learners/a/predict", json=body)).json())]
    socket.send(json.dumps({"seq": 1, "op": "predict", **body}))
    replies.append(("websocket", await socket.reply()))
    with suppress(OverflowError):  # MessagePack has no such whole number
        content = msgpack.packb(columns_of(body["events"]))
        reply = await http.post("/learners/a/predict", content=content, headers=HEADERS)
        replies.append(("msgpack", reply.json() if reply.status_code != 200 else msgpack.unpackb(reply.content)))
    return replies


def outcome(reply: dict[str, Any]) -> Any:
    """Return the scores of a reply, or the events that it refuses, each with the words."""
    if "results" in reply:
        return [result["score"] for result in reply["results"]]
    if "scores" in reply:
        return np.frombuffer(reply["scores"]["data"], reply["scores"]["dtype"]).tolist()
    numbers = ([int(part) for part in problem["pointer"].split("/") if part.isdecimal()] for problem in reply["errors"])
    return [(places[0], problem["detail"]) for places, problem in zip(numbers, reply["errors"], strict=True)]


@pytest.mark.integration
@pytest.mark.parametrize(("algorithm", "words"), [("cbr-diag", 2**15 + 1), ("oam", 11_000)])
def test_a_text_of_too_many_words_is_cut_alike_at_every_door(algorithm: str, words: int) -> None:
    config = {"algorithm": algorithm, "features": FEATURES["text"], "seed": 3}
    long = " ".join(f"w{i % 10_900}" for i in range(words))
    asyncio.run(learn_at_every_door(config, [{"f": "a few words"}, {"f": long}, {"f": long, "g": 1}]))


@pytest.mark.parametrize("kind", ["new", "log", "categorical", "table number"])
def test_a_number_that_messagepack_lacks_is_learnt_as_its_text(kind: str) -> None:
    async def learn() -> None:
        config: dict[str, Any] = {"algorithm": "cbr-diag", "features": FEATURES[kind], "seed": 3}
        large: list[Event] = [{"f": value} for value in (float("inf"), float("-inf"), 2**70, -(10**29))]
        events: list[Event] = [{"f": 1.5}, *large, {"f": -2.5}]
        local = create(**config)
        for i, event in enumerate(events):
            local.learn([{"f": str(event["f"])} if event in large else event], [i % 2])
        async with node(MemoryStore()) as engine:
            app = app_over(engine)
            for door in ("client", "frame"):
                await engine.create(door, Config.of(config))
            await engine.create("websocket", Config.of(config))
            async with over(engine) as http, websocket(app, "/v1/learners/websocket/ws") as socket:
                doors = Doors(http, socket)
                for door in ("client", "frame"):
                    accepted = [await getattr(doors, door)(event, i % 2) for i, event in enumerate(events)]
                    assert (accepted, (await digest(http, door))[1]) == ([True] * len(events), local.digest()), door

    asyncio.run(learn())


GOOD = st.fixed_dictionaries(
    {"a": st.sampled_from([0.5, 17, "17"])},
    optional={name: st.sampled_from([0.5, 17, "17", "12.50", "DE", "-", "", True, None, ["a"]]) for name in "bc"},
)


@pytest.mark.parametrize("kind", ["new", "table number"])
def test_an_event_without_features_is_learnt_alike_at_every_door_that_can_send_it(kind: str) -> None:
    async def learn() -> None:
        config: dict[str, Any] = {"algorithm": "cbr-diag", "features": FEATURES[kind], "seed": 3}
        events: list[Event] = [{"f": 1}, {}, {"f": None}, {}]
        local = create(**config)
        for i, event in enumerate(events):
            local.learn([event], [i % 2])
        async with node(MemoryStore()) as engine:
            for door in (named := ("json", "ndjson", "msgpack", "websocket", "client", "frame", "message")):
                await engine.create(door, Config.of(config))
            app = app_over(engine)
            async with over(engine) as http, websocket(app, "/v1/learners/websocket/ws") as socket:
                doors = Doors(http, socket)
                for door in named:
                    accepted = [await getattr(doors, door)(event, i % 2) for i, event in enumerate(events)]
                    assert (accepted, (await digest(http, door))[1]) == ([True] * 4, local.digest()), door

    asyncio.run(learn())


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(GOOD, st.sampled_from(DOORS)), max_size=12))
def test_a_stream_through_shuffled_doors_leads_to_the_same_state(events_and_doors: list[tuple[Event, str]]) -> None:
    config = {"algorithm": "cbr-diag", "features": FEATURES["new"], "seed": 3}
    local = create(**config)
    local.learn([event for event, _ in events_and_doors], [i % 2 for i in range(len(events_and_doors))])

    async def digest_of_shuffled() -> str:
        async with node(MemoryStore()) as engine:
            replica, _ = await engine.create("a", Config.of(config))
            app = app_over(engine)
            async with over(engine) as http, websocket(app, "/v1/learners/a/ws") as socket:
                doors = Doors(http, socket, "a")
                for i, (event, door) in enumerate(events_and_doors):
                    assert await getattr(doors, door)(event, i % 2), door
            return replica.learner.digest()

    assert asyncio.run(digest_of_shuffled()) == local.digest()


PAST: dict[str, list[str]] = {"numbers": ["1.5", "-2", "17"], "names": ["DE", "FR", "17"]}  # of the field


def of_flat(text: str, declared_as_text: bool, past: list[str]) -> Event | None:
    """Return the features of a flat message of a stream; None if it is refused."""
    del past
    reading = Reading("auto", BinaryLabels(stream=True), frozenset("f" if declared_as_text else ""))
    read = reading.event(Message(1, {"f": text, "label": "1"}))
    assert read is not None
    features: Event = json.loads(read.body)["features"]
    return features


def of_file(form: str, text: str, document: dict[str, Any], past: list[str]) -> Event | None:
    """Return the features of the last row of a file, whose column has other cells before; None if it is refused."""
    cells = [*past * 150, text]
    declarations = declared(document)
    columns = RowColumns(drop=("a",), form=FileOptions(on_bad="skip"))
    if form == "stdin":
        content = io.StringIO()
        csv.writer(content).writerows([["f", "a", "label"], *([cell, "1", "1"] for cell in cells)])
        with standard_input(content.getvalue()):
            inputs = Inputs(
                ["-"], "update", {"config": {"algorithm": "cbr-diag", "features": document}}, columns, "csv"
            )
            events: list[Any] = list(inputs.events())
        return events[-1]["features"] if len(events) == len(cells) else None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"rows.{form}"
        with path.open("w", newline="", encoding="utf-8") as file:
            if form == "parquet":
                parquet.write_table(pyarrow.table({"f": cells, "a": [1] * len(cells), "label": [1] * len(cells)}), path)
            elif form == "csv":
                csv.writer(file).writerows([["f", "a", "label"], *([cell, "1", "1"] for cell in cells)])
            else:
                file.write("".join(f"{cell}\t{a}\t{label}\n" for cell, a, label in [("f", "a", "label")]))
                file.write("".join(f"{cell}\t1\t1\n" for cell in cells))
        with BadRows("skip") as bad, open_rows(path, columns, declarations, bad=bad) as rows:
            events = list(rows.events())
    return events[-1]["features"] if len(events) == len(cells) else None


def becomes(features: Features, stage: Any, event: Event | None) -> Any:
    """Return the columns that an event becomes; None if it is refused."""
    try:
        rows = None if event is None else features.encode([event])
    except InvalidInput:
        return None
    if isinstance(rows, np.ndarray):
        return rows.tobytes()
    return None if rows is None else [part.tobytes() for part in stage.encoded(rows)]


@pytest.mark.parametrize(
    ("kind", "door"),
    [
        *product(["numbers", "names", *sorted(FEATURES.keys() - {"new"})], ["flat", "csv"]),
        *product(["numbers", "log", "categorical"], ["stdin", "parquet"]),  # which read cells as CSV does
        ("numbers", "tsv"),  # which is CSV with another delimiter, and without quotes
        ("text", "tsv"),
    ],
)
def test_a_text_is_read_as_in_json_at_every_door_of_text(kind: str, door: str) -> None:
    """`new` is no kind here: a door of text takes what spells a number for one, and a file has a look at the column."""
    document = FEATURES["new" if kind in PAST else kind]
    features = Config.of({"algorithm": "cbr-diag", "features": document}).features
    past = PAST.get(kind, [])
    stage: Any = stage_of(features)
    if past:
        events = [{"f": float(cell) if kind == "numbers" else cell} for cell in past]
        stage.note_fields(features.field_names(events))
        stage.learn(features.encode(events))
    declarations = declared(document)

    @settings(max_examples=20, deadline=None)  # after all `SPELLINGS`
    @given(TEXTS)
    def check(text: str) -> None:
        if door == "flat":
            event = of_flat(text, declarations.get("f") is False, past)
        else:
            event = of_file(door, text, document, past or ["17"])
        assert becomes(features, stage, event) == becomes(features, stage, {"f": text})

    for text in SPELLINGS:
        if not (kind in ("log", "table number") and "," in text):  # a file has a look at the column for decimal marks
            check = example(text)(check)
    check()
