"""Bodies of lines: chunk by chunk the same as JSON, in bounded memory; what stands where one breaks off."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.config import Config
from service.api.body import Bodies
from service.api.fast_path import ndjson_stream
from service.api.fast_path.ndjson_stream import ndjson_replies
from service.api.schemas import Prediction
from service.api.schemas.bodies import LearntLines, LearntProgressLine, RefusedLines, ScoredLines
from service.engine.engine import Engine
from service.engine.replica.learner_replica import LearnerReplica
from service.errors import Invalid, QueueFull, TooLarge, TooSlow
from service.settings import Settings
from service.storage.memory import MemoryStore
from service.wire import ndjson
from tests.harness.apps import DENSE, client, events
from tests.service.api.test_msgpack_bodies import LEARNERS, bare, made

pytestmark = pytest.mark.integration

HEADERS = {"content-type": "application/x-ndjson"}
EVENTS = 50_000


def lines_of(listed: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in listed)


def read(reply: httpx.Response) -> list[dict[str, Any]]:
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/x-ndjson"), reply.text
    return [json.loads(line) for line in reply.text.splitlines()]


@asynccontextmanager
async def replica(**changed: Any) -> AsyncIterator[LearnerReplica]:
    """Return a learner on a node of its own."""
    engine = Engine(MemoryStore(), Settings(store="memory:", **changed))
    await engine.start()
    learner, _ = await engine.create("a", Config.of(DENSE))
    yield learner
    await engine.stop()


async def pieces(data: bytes, size: int = 10_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, a chunk is cut where it is full."""
    monkeypatch.setattr(ndjson_stream, "_LIVE", 3600.0)


async def gathered(body: AsyncIterator[bytes], longest: int, **sizes: int) -> list[ndjson_stream.LineChunk]:
    """All chunks of a body."""
    share = ndjson_stream.BodyShare(Bodies(Settings()), 2**30)
    actual = ndjson_stream.LineReader(body, share, longest, 60.0, asyncio.Event(), **sizes)
    try:
        return [item async for item in _each(actual)]
    finally:
        await actual.close()


async def _each(reader: ndjson_stream.LineReader) -> AsyncIterator[ndjson_stream.LineChunk]:
    while (chunk := await reader.next()) is not None:
        yield chunk


@pytest.mark.parametrize("kind", LEARNERS)
async def test_ndjson_gives_the_same_state_as_json(kind):
    body = made(kind, 2300)
    served = [{**item, "id": f"s{i}", "time": 1.7e9} for i, item in enumerate(bare(made(kind, 3, seed=1)))]
    labels = [{"id": text, "label": 1, "time": 1.7e9 + 9} for text in ("s0", "s2", "never")]
    async with client() as http:
        for name in ("a", "b"):
            await http.put(f"/v1/learners/{name}", json=LEARNERS[kind])
        await http.post("/v1/learners/a/update", json={"events": body})
        *results, last = read(await http.post("/v1/learners/b/update", content=lines_of(body), headers=HEADERS))
        assert [item["lines"] for item in results] == [1000, 2000, 2300]
        assert [item["applied"] for item in results] == [1000, 1000, 300]
        assert results[-1]["bytes"] == len(lines_of(body))
        assert last == results[-1] | {"done": True, "applied": 2300}
        document = (await http.post("/v1/learners/a/predict", json={"events": served})).json()
        *scored, end = read(await http.post("/v1/learners/b/predict", content=lines_of(served), headers=HEADERS))
        assert scored == document.pop("results")
        document["position"] = end["position"]  # lines make records of their own
        assert end == {"done": True, "lines": 3, "bytes": len(lines_of(served)), **document}
        await http.post("/v1/learners/a/labels", json={"events": labels})
        late, _ = read(await http.post("/v1/learners/b/labels", content=lines_of(labels), headers=HEADERS))
        assert (late["lines"], late["applied"], late["unknown"]) == (3, 2, 1)
        digests = [(await http.get(f"/v1/learners/{name}/digest")).json() for name in ("a", "b")]
        assert digests[0]["digest"] == digests[1]["digest"]
        assert digests[1]["position"] == late["position"]


async def test_blank_lines_missing_last_newline_and_compression_are_accepted():
    body = b"\n  \r\n" + lines_of(events(3)).replace(b"\n", b"\r\n\n").rstrip()
    async with client() as http:
        await http.put("/v1/learners/a", json=DENSE)
        headers = {**HEADERS, "content-encoding": "gzip"}
        results, _ = read(await http.post("/v1/learners/a/update", content=gzip.compress(body), headers=headers))
        assert (results["lines"], results["bytes"], results["applied"]) == (7, len(body), 3)
        *message, _ = read(
            await http.post("/v1/learners/a/predict?explain=1", content=lines_of(bare(events(2))), headers=HEADERS)
        )
        assert [len(item["explanation"]["features"]) for item in message] == [1, 1]


@given(
    texts=st.lists(
        st.one_of(st.just(b""), st.binary(max_size=30).map(lambda entry: entry.replace(b"\n", b"-"))), max_size=30
    ),
    cuts=st.lists(st.integers(0, 500), max_size=8),
    ended=st.booleans(),
)
@settings(max_examples=80)
def test_chunks_contain_whole_lines_for_any_body_split(texts, cuts, ended):
    data = b"\n".join(texts) + (b"\n" if ended else b"")

    async def chunks() -> list[Any]:
        async def cut() -> AsyncIterator[bytes]:
            ends = [*sorted(cuts), len(data)]
            for start, stop in zip([0, *ends], ends, strict=False):
                yield data[start:stop]

        return await gathered(cut(), 30, lines=4, size=50)

    completed = asyncio.run(chunks())
    assert b"".join(item.body for item in completed) == data
    assert [item.lines for item in completed] == [len(item.body.splitlines()) or 1 for item in map(_plain, completed)]
    assert all(item.body.endswith(b"\n") for item in completed[:-1])
    assert all(item.lines == 4 or len(item.body) >= 50 for item in completed[:-1])


def _plain(chunk: Any) -> Any:
    """With no other byte that bytes.splitlines takes for an end of a line."""
    return chunk._replace(body=bytes(item if item == 10 else 45 for item in chunk.body))


async def test_others_have_a_turn_before_each_chunk():
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    data = b"\n" * 4000
    share = ndjson_stream.BodyShare(Bodies(Settings()), 2**30)
    reader = ndjson_stream.LineReader(pieces(data, len(data)), share, 30, 60.0, asyncio.Event())
    counting = asyncio.create_task(count())
    seen = [turns]
    while await reader.next() is not None:
        seen.append(turns)
    counting.cancel()
    await reader.close()
    assert len(seen) == 5
    assert all(before < after for before, after in itertools.pairwise(seen))


# What is refused


@pytest.mark.parametrize(
    ("operation", "body", "status", "pointers"),
    [
        ("update", b"", 422, ["/lines"]),
        ("update", b"\n \n", 422, ["/lines"]),
        ("update", b'{"x":[1,2],"label":1}\n', 422, ["/lines/1/x"]),
        ("update", b'\n\n{"x":[1,2,3],"label":1}\n{"x":[1,2,"3"],"label":0}\n', 422, ["/lines/4/x/2"]),
        ("update", b'{"x":[1,2,3],"label":2,"odd":1}\n[1]\n3', 422, ["/lines/1/odd", "/lines/2", "/lines/3"]),
        ("update", b'{"x":[1,2,3],"label":1} {"x":[1,2,3],"label":1}\n', 400, ["/lines/1"]),
        ("update", b'{"x":[1,2,3],"label":1},{"x":[1\n,2,3],"label":1}\n', 400, ["/lines/1"]),
        ("update", b'{"x":[1,2,3],\n"label":1}\n', 400, ["/lines/1"]),
        ("update", b'{"x":[1,2,3],"label":1}]}, {"events": [{"x":[1,2,3],"label":1}\n', 400, ["/lines/1"]),
        ("update", b'{"x":[1,2,3],"label":1}\n{"x":[1,2,3],"id":"\xff","label":1}\n', 400, ["/lines/2"]),
        ("update", b"[" * 5000 + b"]" * 5000, 400, ["/lines/1"]),
        ("update", b'{"x":[1,2,3],"label":1}\n\n{"x":[1,NaN,3],"label":1}\n', 422, ["/lines/3/x/1"]),
        (
            "update",
            b'{"x":[1,2,Infinity],"label":1}\n{"x":[1,2,3],"label":NaN}\n',
            422,
            ["/lines/1/x/2", "/lines/2/label"],
        ),
        ("update", b'{"x":[1,2,3],"label":1,"id":"\\ud800"}\n', 422, ["/lines/1/id"]),
        ("update", b'{"x":[1,2,NaN],"label":1}\n{"x":[1\n', 400, ["/lines/2"]),
        ("labels", b'{"id":"a","label":1}\n{"label":1}\n', 422, ["/lines/2/id"]),
        ("predict", b'{"x":[1,2,3],"label":1}\n', 422, ["/lines/1/label"]),
    ],
)
async def test_a_refused_first_chunk_refuses_the_request(operation, body, status, pointers):
    async with client() as http:
        await http.put("/v1/learners/a", json=DENSE)
        before = (await http.get("/v1/learners/a/digest")).json()
        reply = await http.post(f"/v1/learners/a/{operation}", content=body, headers=HEADERS)
        assert (reply.status_code, reply.headers["content-type"]) == (status, "application/problem+json")
        assert [error["pointer"] for error in reply.json()["errors"]] == pointers
        assert (await http.get("/v1/learners/a/digest")).json() == before


async def test_invalid_json_is_reported_with_its_column():
    async with client() as http:
        await http.put("/v1/learners/a", json=DENSE)
        text = lines_of(events(2)) + b'{"x": nothing}\n'
        (problem,) = (await http.post("/v1/learners/a/update", content=text, headers=HEADERS)).json()["errors"]
        assert (problem["pointer"], problem["code"]) == ("/lines/3", "invalid")


async def test_errors_unrelated_to_lines_have_the_same_pointer_as_json():
    async with client() as http:
        await http.put("/v1/learners/a", json=LEARNERS["ordinal"])
        body = bare(made("ordinal", 3))
        refusal = await http.post("/v1/learners/a/predict?explain=1", content=lines_of(body), headers=HEADERS)
        document = await http.post("/v1/learners/a/predict?explain=1", json={"events": body})
        assert refusal.status_code == document.status_code == 422
        assert refusal.json()["errors"] == document.json()["errors"] != []


@pytest.mark.parametrize(
    ("bad", "code", "pointers"),
    [
        (b'{"x":[1,2,3],"label":7}\n', "invalid", ["/lines/2003/label"]),
        (b'{"x":[1,2,3]\n', "bad-body", ["/lines/2003"]),
        (b'{"x":[1,2,3],"label":1,"id":"' + b"a" * 70_000 + b'"}\n', "too-large", ["/lines/2003"]),
    ],
)
async def test_a_refused_later_chunk_ends_the_reply_and_keeps_earlier_events(bad, code, pointers):
    good = events(2500)
    async with client(max_body_bytes=2**16) as http:
        for name in ("a", "b"):
            await http.put(f"/v1/learners/{name}", json=DENSE)
        body = lines_of(good[:2002]) + bad + lines_of(good[2002:])
        reply = await http.post("/v1/learners/a/update", content=body, headers=HEADERS)
        *results, last = read(reply)
        assert [item["lines"] for item in results] == [1000, 2000]
        assert (last["code"], last["lines"], last["bytes"]) == (code, 2000, len(lines_of(good[:2000])))
        assert last["done"] is False
        assert [error["pointer"] for error in last["errors"]] == pointers
        assert last["request_id"] == reply.headers["x-request-id"]
        await http.post("/v1/learners/b/update", content=lines_of(good[:2000]), headers=HEADERS)
        digests = [(await http.get(f"/v1/learners/{name}/digest")).json() for name in ("a", "b")]
        assert digests[0] == digests[1]


async def test_a_stalled_body_times_out(monkeypatch):
    monkeypatch.setattr(ndjson_stream, "_LIVE", 0.01)

    async def stalling() -> AsyncIterator[bytes]:
        yield lines_of(events(1001, ids=False))
        await asyncio.Event().wait()

    async with replica(body_seconds=0.05) as learner:
        message = [json.loads(line) async for line in ndjson_replies(learner, "update", stalling(), Bodies(Settings()))]
        assert [item["lines"] for item in message] == [1000, 1001, 1001]
        assert message[2]["code"] == "too-slow"
        with pytest.raises(TooSlow):
            await anext(ndjson_replies(learner, "update", _never(), Bodies(Settings())))


async def test_a_started_line_must_end_in_time(monkeypatch):
    monkeypatch.setattr(ndjson_stream, "_LIVE", 0.01)

    async def trickling() -> AsyncIterator[bytes]:
        yield lines_of(events(1)) + b" "
        while True:
            await asyncio.sleep(0.005)
            yield b" "

    async with replica(body_seconds=0.1) as learner:
        message = [
            json.loads(line) async for line in ndjson_replies(learner, "update", trickling(), Bodies(Settings()))
        ]
        assert [item["lines"] for item in message] == [1, 1]
        assert message[1]["code"] == "too-slow"


async def test_slowly_arriving_lines_are_answered_continuously(monkeypatch):
    monkeypatch.setattr(ndjson_stream, "_LIVE", 0.01)
    pieces_queue: asyncio.Queue[bytes] = asyncio.Queue()

    async def drips() -> AsyncIterator[bytes]:
        while piece := await pieces_queue.get():
            yield piece

    body = events(20)
    each = lines_of(body).splitlines(keepends=True)
    async with replica() as learner, replica() as other:
        holder = Bodies(Settings())
        reply = ndjson_replies(learner, "update", drips(), holder)
        for i, line in enumerate(each):
            following = each[i + 1][:5] if i + 1 < len(each) else b""
            pieces_queue.put_nowait((line if i == 0 else line[5:]) + following)
            results = json.loads(await anext(reply))
            assert (results["lines"], results["applied"]) == (i + 1, 1)
            assert holder.bytes == len(following)  # the beginning of the next line
        pieces_queue.put_nowait(b"")
        last = json.loads(await anext(reply))
        assert (last["done"], last["lines"], last["applied"], last["bytes"]) == (True, 20, 20, len(lines_of(body)))
        assert await anext(reply, None) is None
        assert holder.bytes == 0
        await _all(ndjson_replies(other, "update", pieces(lines_of(body)), holder))
        digests = [await item.log.digest() for item in (learner, other)]
        assert digests[0][1] == digests[1][1]  # after as many records as there were chunks


@pytest.mark.parametrize("waits", ["for a line", "for room"])
async def test_shutdown_ends_a_body(waits):
    closing = asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        yield lines_of(events(1001))
        await asyncio.Event().wait()

    async with replica(queue_bytes=2**16) as learner:
        holder = Bodies(Settings())
        reply = ndjson_replies(learner, "update", stalling(), holder, closing=closing)
        assert json.loads(await anext(reply))["lines"] == 1000
        if waits == "for room":
            learner.queued_bytes += 2**16
        last = asyncio.ensure_future(anext(reply))
        await asyncio.sleep(0)
        closing.set()
        report = json.loads(await last)
        assert (report["status"], report["code"], report["done"], report["lines"]) == (503, "stopping", False, 1000)
        assert report["retry_after"] == 1
        assert holder.bytes == 0
        assert await anext(reply, None) is None
        learner.queued_bytes = 0


async def _never() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


# Long bodies


async def test_a_long_body_is_read_at_the_speed_of_learning():
    text = lines_of(events(EVENTS, ids=False))
    holder, body, most = Bodies(Settings()), 0, 0

    async def counted() -> AsyncIterator[bytes]:
        nonlocal body
        async for piece in pieces(text, 2**16):
            body += len(piece)
            yield piece

    async with replica() as learner:
        results: list[dict[str, Any]] = []
        async for line in ndjson_replies(learner, "update", counted(), holder):
            results.append(json.loads(line))
            most = max(most, body - results[-1]["bytes"])
            assert holder.bytes == body - results[-1]["bytes"]  # of what is answered nothing is kept
        assert holder.bytes == 0
        assert results.pop()["done"]
        assert [item["lines"] for item in results] == list(range(1000, EVENTS + 1, 1000))
        assert sum(item["applied"] for item in results) == learner.view.figures.counts.sum() == EVENTS
        assert most <= 2**16  # read ahead of what is answered: a piece


async def test_an_aborted_body_keeps_earlier_answers():
    class HungUp(Exception):
        pass

    body = events(5000)

    async def breaking() -> AsyncIterator[bytes]:
        async for piece in pieces(lines_of(body[:3500])):
            yield piece
        raise HungUp

    async with replica() as learner, replica() as other:
        results: list[dict[str, Any]] = []
        holder = Bodies(Settings())
        with pytest.raises(HungUp):
            await _into(results, ndjson_replies(learner, "update", breaking(), holder))
        assert [item["lines"] for item in results] == [1000, 2000, 3000]
        assert holder.bytes == 0
        async for _ in ndjson_replies(other, "update", pieces(lines_of(body[:3000])), Bodies(Settings())):
            pass
        assert await learner.log.digest() == await other.log.digest()
        # sent once more, what was learnt is known by its ids
        message = await _all(ndjson_replies(learner, "update", pieces(lines_of(body)), holder))
        assert [item["duplicate"] for item in message] == [1000, 1000, 1000, 0, 0]


async def _into(results: list[dict[str, Any]], reply: AsyncIterator[bytes]) -> None:
    async for line in reply:
        results.append(json.loads(line))


async def _all(reply: AsyncIterator[bytes]) -> list[dict[str, Any]]:
    """Return the lines of a reply but the last, which says that it is whole."""
    *message, last = [json.loads(line) async for text in reply for line in text.splitlines()]
    assert last["done"]
    return message


async def test_reading_pauses_while_the_queue_is_full():
    async with replica(queue_bytes=2**12, body_seconds=60) as learner:
        learner.queued_bytes += 2**12
        reply = asyncio.ensure_future(
            _all(ndjson_replies(learner, "update", pieces(lines_of(events(5))), Bodies(Settings())))
        )
        await asyncio.wait([reply], timeout=0.05)
        assert not reply.done()
        learner.queued_bytes -= 2**12
        assert [item["applied"] for item in await reply] == [5]


@pytest.mark.parametrize("full", ["queue", "node"])
async def test_waiting_for_queue_space_times_out(full):
    async with replica(queue_bytes=2**12, max_buffered_bytes=2**12, body_seconds=0.05) as learner:
        holder = Bodies(Settings())
        holder.bytes = 2**12 if full == "node" else 0
        learner.queued_bytes += 2**12 if full == "queue" else 0
        with pytest.raises(QueueFull):
            await _all(ndjson_replies(learner, "update", pieces(lines_of(events(5))), holder))
        if full == "queue":  # scoring does not stand in the queue
            assert len(await _all(ndjson_replies(learner, "predict", pieces(lines_of(bare(events(5)))), holder))) == 5
        learner.queued_bytes = 0


async def test_collected_lines_count_as_buffered_and_wait_for_space():
    beginning, departure, holder = asyncio.Event(), asyncio.Event(), Bodies(Settings())

    async def slowly() -> AsyncIterator[bytes]:
        yield b" " * 3000
        beginning.set()  # asked for more, once these are counted
        await departure.wait()
        yield b"\n"

    async with replica(max_buffered_bytes=2**12, body_seconds=60) as learner:
        first = asyncio.ensure_future(_all(ndjson_replies(learner, "update", slowly(), holder)))
        await beginning.wait()
        text = lines_of(events(20))
        assert 3000 + len(text) > 2**12 > holder.bytes == 3000
        second = asyncio.ensure_future(_all(ndjson_replies(learner, "update", pieces(text), holder)))
        await asyncio.wait([second], timeout=0.05)
        assert not second.done()
        assert holder.bytes == 3000
        departure.set()
        with pytest.raises(Invalid):
            await first
        assert [item["applied"] for item in await second] == [20]
        assert holder.bytes == 0


async def test_abandoned_lines_are_released():
    holder = Bodies(Settings())
    text = lines_of(events(1500, ids=False))
    async with replica() as learner:
        reply = ndjson_replies(learner, "update", pieces(text, len(text)), holder)
        results = json.loads(await anext(reply))
        assert holder.bytes == len(text) - results["bytes"] > 0
        await reply.aclose()
        assert holder.bytes == 0


async def test_an_error_in_the_last_line_has_a_retry_after():
    holder = Bodies(Settings())
    async with replica(queue_bytes=2**16, body_seconds=0.05) as learner:
        reply = ndjson_replies(learner, "update", pieces(lines_of(events(1500, ids=False))), holder)
        assert json.loads(await anext(reply))["lines"] == 1000
        learner.queued_bytes += 2**16
        last = json.loads(await anext(reply))
        learner.queued_bytes -= 2**16
        assert (last["code"], last["retry_after"], last["lines"]) == ("queue-full", QueueFull.retry_after, 1000)
        assert holder.bytes == 0


@pytest.mark.parametrize("before", [0, 1000])
async def test_a_decompression_bomb_in_a_line_is_refused(before):
    body = lines_of(events(before)) + b" " * 2**24
    async with client(max_body_bytes=2**16) as http:
        await http.put("/v1/learners/a", json=DENSE)
        headers = {**HEADERS, "content-encoding": "gzip"}
        reply = await http.post("/v1/learners/a/update", content=gzip.compress(body), headers=headers)
        last = json.loads(reply.text.splitlines()[-1])
        assert (last["code"], last["errors"][0]["pointer"]) == ("too-large", f"/lines/{before + 1}")
        assert reply.status_code == (200 if before else 413)
        assert (await http.get("/v1/learners/a")).json()["events"] == before


def test_a_line_is_limited_to_the_body_size():
    async def chunks(data: Sequence[bytes]) -> list[Any]:
        async def each() -> AsyncIterator[bytes]:
            for item in data:
                yield item

        return await gathered(each(), 10)

    assert asyncio.run(chunks([b"123456789\n", b"12345", b"67890"]))[0].lines == 2
    for data in ([b"1\n2\n12345", b"678901"], [b"1\n2\n12345678901\n"]):
        with pytest.raises(TooLarge):
            asyncio.run(chunks(data))


def test_the_encoding_alone_can_read_an_ndjson_body():
    body = lines_of(events(3))
    config = Config.of(DENSE)
    assert ndjson.NDJSON.decode_update(body, config)[0].ids == ("e0", "e1", "e2")
    with pytest.raises(Invalid):
        ndjson.NDJSON.decode_update(b"\n", config)


async def test_reply_lines_match_their_documentation():
    good = events(1500)
    bad = b'{"x":[1,2,3],"label":7}\n'
    async with client() as http:
        await http.put("/v1/learners/a", json=DENSE)
        for operation, listed, models in (
            ("update", good, (LearntProgressLine, LearntLines)),
            ("predict", bare(good), (Prediction, ScoredLines)),
        ):
            text = lines_of(listed)
            *each, last = read(await http.post(f"/v1/learners/a/{operation}", content=text, headers=HEADERS))
            for line in each:
                models[0].model_validate(line)
            models[1].model_validate(last)
            *_, last = read(await http.post(f"/v1/learners/a/{operation}", content=text + bad, headers=HEADERS))
            RefusedLines.model_validate(last)
