"""Bodies of lines: chunk by chunk the same as JSON, in bounded memory; what stands where one breaks off."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.config import Config
from service import ndjson
from service.bodies import Bodies
from service.engine import Engine
from service.errors import Invalid, QueueFull, TooLarge, TooSlow
from service.hosted import Hosted
from service.settings import Settings
from service.store.memory import MemoryStore
from tests.service.apps import DENSE, client, events
from tests.service.test_columnar import LEARNERS, bare, made
from tests.service.test_compression import run

HEADERS = {"content-type": "application/x-ndjson"}
EVENTS = 50_000


def lines_of(listed: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in listed)


def read(reply: httpx.Response) -> list[dict[str, Any]]:
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/x-ndjson"), reply.text
    return [json.loads(line) for line in reply.text.splitlines()]


@asynccontextmanager
async def hosted(**changed: Any) -> AsyncIterator[Hosted]:
    """A learner on a node of its own."""
    engine = Engine(MemoryStore(), Settings(store="memory:", **changed))
    await engine.start()
    learner, _ = await engine.create("a", Config.of(DENSE))
    yield learner
    await engine.stop()


async def pieces(data: bytes, size: int = 10_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def share() -> Any:
    return ndjson._Share(Bodies(Settings()), 2**30)


@pytest.mark.parametrize("kind", LEARNERS)
async def test_lines_give_the_state_that_json_gives(kind):
    sent = made(kind, 2300)
    served = [{**one, "id": f"s{i}", "time": 1.7e9} for i, one in enumerate(bare(made(kind, 3, seed=1)))]
    labels = [{"id": one, "label": 1, "time": 1.7e9 + 9} for one in ("s0", "s2", "never")]
    async with client() as http:
        for name in ("a", "b"):
            await http.put(f"/v1/learners/{name}", json=LEARNERS[kind])
        await http.post("/v1/learners/a/update", json={"events": sent})
        taken = read(await http.post("/v1/learners/b/update", content=lines_of(sent), headers=HEADERS))
        assert [one["lines"] for one in taken] == [1000, 2000, 2300]
        assert [one["applied"] for one in taken] == [1000, 1000, 300]
        assert taken[-1]["bytes"] == len(lines_of(sent))
        said = (await http.post("/v1/learners/a/predict", json={"events": served})).json()["results"]
        assert read(await http.post("/v1/learners/b/predict", content=lines_of(served), headers=HEADERS)) == said
        await http.post("/v1/learners/a/labels", json={"events": labels})
        (late,) = read(await http.post("/v1/learners/b/labels", content=lines_of(labels), headers=HEADERS))
        assert (late["lines"], late["applied"], late["unknown"]) == (3, 2, 1)
        digests = [(await http.get(f"/v1/learners/{name}/digest")).json() for name in ("a", "b")]
        assert digests[0]["digest"] == digests[1]["digest"]
        assert digests[1]["position"] == late["position"]


async def test_blank_lines_a_missing_last_end_and_compression_are_fine():
    body = b"\n  \r\n" + lines_of(events(3)).replace(b"\n", b"\r\n\n").rstrip()
    async with client() as http:
        await http.put("/v1/learners/a", json=DENSE)
        headers = {**HEADERS, "content-encoding": "gzip"}
        (taken,) = read(await http.post("/v1/learners/a/update", content=gzip.compress(body), headers=headers))
        assert (taken["lines"], taken["bytes"], taken["applied"]) == (7, len(body), 3)
        said = read(
            await http.post("/v1/learners/a/predict?explain=1", content=lines_of(bare(events(2))), headers=HEADERS)
        )
        assert [len(one["explanation"]["features"]) for one in said] == [1, 1]


@given(
    lines=st.lists(
        st.one_of(st.just(b""), st.binary(max_size=30).map(lambda one: one.replace(b"\n", b"-"))), max_size=30
    ),
    cuts=st.lists(st.integers(0, 500), max_size=8),
    ended=st.booleans(),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_chunks_are_whole_lines_wherever_the_body_is_cut(lines, cuts, ended):
    data = b"\n".join(lines) + (b"\n" if ended else b"")

    async def chunks() -> list[Any]:
        async def cut() -> AsyncIterator[bytes]:
            ends = [*sorted(cuts), len(data)]
            for start, stop in zip([0, *ends], ends, strict=False):
                yield data[start:stop]

        return [one async for one in ndjson._chunks(cut(), 30, share(), lines=4, size=50)]

    found = run(chunks())
    assert b"".join(one.body for one in found) == data
    assert [one.lines for one in found] == [len(one.body.splitlines()) or 1 for one in map(_plain, found)]
    assert all(one.body.endswith(b"\n") for one in found[:-1])
    assert all(one.lines == 4 or len(one.body) >= 50 for one in found[:-1])


def _plain(chunk: Any) -> Any:
    """With no other byte that bytes.splitlines takes for an end of a line."""
    return chunk._replace(body=bytes(one if one == 10 else 45 for one in chunk.body))


# What is refused


@pytest.mark.parametrize(
    ("operation", "lines", "status", "pointers"),
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
async def test_a_first_chunk_that_is_refused_refuses_the_request(operation, lines, status, pointers):
    async with client() as http:
        await http.put("/v1/learners/a", json=DENSE)
        before = (await http.get("/v1/learners/a/digest")).json()
        reply = await http.post(f"/v1/learners/a/{operation}", content=lines, headers=HEADERS)
        assert (reply.status_code, reply.headers["content-type"]) == (status, "application/problem+json")
        assert [one["pointer"] for one in reply.json()["errors"]] == pointers
        assert (await http.get("/v1/learners/a/digest")).json() == before


async def test_a_refusal_of_no_line_points_where_it_does_for_json():
    async with client() as http:
        await http.put("/v1/learners/a", json=LEARNERS["ordinal"])
        sent = bare(made("ordinal", 3))
        lines = await http.post("/v1/learners/a/predict?explain=1", content=lines_of(sent), headers=HEADERS)
        document = await http.post("/v1/learners/a/predict?explain=1", json={"events": sent})
        assert lines.status_code == document.status_code == 422
        assert lines.json()["errors"] == document.json()["errors"] != []


@pytest.mark.parametrize(
    ("bad", "code", "pointers"),
    [
        (b'{"x":[1,2,3],"label":7}\n', "invalid", ["/lines/2003/label"]),
        (b'{"x":[1,2,3]\n', "bad-body", ["/lines/2003"]),
        (b'{"x":[1,2,3],"label":1,"id":"' + b"a" * 70_000 + b'"}\n', "too-large", ["/lines/2003"]),
    ],
)
async def test_a_later_chunk_that_is_refused_is_the_last_line_and_what_stood_before_stays(bad, code, pointers):
    good = events(2500)
    async with client(max_body_bytes=2**16) as http:
        for name in ("a", "b"):
            await http.put(f"/v1/learners/{name}", json=DENSE)
        sent = lines_of(good[:2002]) + bad + lines_of(good[2002:])
        reply = await http.post("/v1/learners/a/update", content=sent, headers=HEADERS)
        *taken, last = read(reply)
        assert [one["lines"] for one in taken] == [1000, 2000]
        assert (last["code"], last["lines"], last["bytes"]) == (code, 2000, len(lines_of(good[:2000])))
        assert [one["pointer"] for one in last["errors"]] == pointers
        assert last["request_id"] == reply.headers["x-request-id"]
        await http.post("/v1/learners/b/update", content=lines_of(good[:2000]), headers=HEADERS)
        digests = [(await http.get(f"/v1/learners/{name}/digest")).json() for name in ("a", "b")]
        assert digests[0] == digests[1]


async def test_a_body_that_stops_coming_is_given_up():
    async def stalling() -> AsyncIterator[bytes]:
        yield lines_of(events(1001, ids=False))
        await asyncio.Event().wait()

    async with hosted(body_seconds=0.05) as learner:
        said = [json.loads(line) async for line in ndjson.replies(learner, "update", stalling(), Bodies(Settings()))]
        assert [one["lines"] for one in said] == [1000, 1000]
        assert said[1]["code"] == "too-slow"
        with pytest.raises(TooSlow, match="what follows line 0"):
            await anext(ndjson.replies(learner, "update", _never(), Bodies(Settings())))


async def _never() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


# Long bodies


async def test_a_long_body_is_read_no_faster_than_it_is_learnt():
    text = lines_of(events(EVENTS, ids=False))
    held, sent, most = Bodies(Settings()), 0, 0

    async def counted() -> AsyncIterator[bytes]:
        nonlocal sent
        async for piece in pieces(text, 2**16):
            sent += len(piece)
            yield piece

    async with hosted() as learner:
        taken: list[dict[str, Any]] = []
        async for line in ndjson.replies(learner, "update", counted(), held):
            taken.append(json.loads(line))
            most = max(most, sent - taken[-1]["bytes"])
            assert held.bytes == sent - taken[-1]["bytes"]  # of what is answered nothing is kept
        assert held.bytes == 0
        assert [one["lines"] for one in taken] == list(range(1000, EVENTS + 1, 1000))
        assert sum(one["applied"] for one in taken) == learner.view.figures.counts.sum() == EVENTS
        assert most <= 2**16  # read ahead of what is answered: a piece


async def test_a_body_that_breaks_off_leaves_what_was_answered():
    class HungUp(Exception):
        pass

    sent = events(5000)

    async def breaking() -> AsyncIterator[bytes]:
        async for piece in pieces(lines_of(sent[:3500])):
            yield piece
        raise HungUp

    async with hosted() as learner, hosted() as other:
        taken: list[dict[str, Any]] = []
        held = Bodies(Settings())
        with pytest.raises(HungUp):
            await _into(taken, ndjson.replies(learner, "update", breaking(), held))
        assert [one["lines"] for one in taken] == [1000, 2000, 3000]
        assert held.bytes == 0
        async for _ in ndjson.replies(other, "update", pieces(lines_of(sent[:3000])), Bodies(Settings())):
            pass
        assert await learner.digest() == await other.digest()
        # sent once more, what was learnt is known by its ids
        said = await _all(ndjson.replies(learner, "update", pieces(lines_of(sent)), held))
        assert [one["duplicate"] for one in said] == [1000, 1000, 1000, 0, 0]


async def _into(taken: list[dict[str, Any]], lines: AsyncIterator[bytes]) -> None:
    async for line in lines:
        taken.append(json.loads(line))


async def _all(lines: AsyncIterator[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) async for line in lines]


async def test_reading_waits_while_the_queue_is_full():
    async with hosted(queue_bytes=2**12, body_seconds=60) as learner:
        learner.queued_bytes += 2**12
        reply = asyncio.ensure_future(
            _all(ndjson.replies(learner, "update", pieces(lines_of(events(5))), Bodies(Settings())))
        )
        await asyncio.wait([reply], timeout=0.05)
        assert not reply.done()
        learner.queued_bytes -= 2**12
        assert [one["applied"] for one in await reply] == [5]


@pytest.mark.parametrize("full", ["queue", "node"])
async def test_there_is_an_end_to_waiting_for_room(full):
    async with hosted(queue_bytes=2**12, max_buffered_bytes=2**12, body_seconds=0.05) as learner:
        held = Bodies(Settings())
        held.bytes = 2**12 if full == "node" else 0
        learner.queued_bytes += 2**12 if full == "queue" else 0
        with pytest.raises(QueueFull):
            await _all(ndjson.replies(learner, "update", pieces(lines_of(events(5))), held))
        if full == "queue":  # scoring does not stand in the queue
            (said,) = [one async for one in ndjson.replies(learner, "predict", pieces(lines_of(bare(events(5)))), held)]
            assert said.count(b"\n") == 5
        learner.queued_bytes = 0


async def test_lines_that_are_gathered_count_as_held_and_wait_for_room():
    begun, gone, held = asyncio.Event(), asyncio.Event(), Bodies(Settings())

    async def slowly() -> AsyncIterator[bytes]:
        yield b" " * 3000
        begun.set()  # asked for more, once these are counted
        await gone.wait()
        yield b"\n"

    async with hosted(max_buffered_bytes=2**12, body_seconds=60) as learner:
        first = asyncio.ensure_future(_all(ndjson.replies(learner, "update", slowly(), held)))
        await begun.wait()
        text = lines_of(events(20))
        assert 3000 + len(text) > 2**12 > held.bytes == 3000
        second = asyncio.ensure_future(_all(ndjson.replies(learner, "update", pieces(text), held)))
        await asyncio.wait([second], timeout=0.05)
        assert not second.done()
        assert held.bytes == 3000
        gone.set()
        with pytest.raises(Invalid, match="no lines"):
            await first
        assert [one["applied"] for one in await second] == [20]
        assert held.bytes == 0


async def test_lines_that_nobody_waits_for_any_more_are_not_held():
    held = Bodies(Settings())
    text = lines_of(events(1500, ids=False))
    async with hosted() as learner:
        reply = ndjson.replies(learner, "update", pieces(text, len(text)), held)
        taken = json.loads(await anext(reply))
        assert held.bytes == len(text) - taken["bytes"] > 0
        await reply.aclose()
        assert held.bytes == 0


async def test_an_error_in_the_last_line_says_when_to_try_again():
    held = Bodies(Settings())
    async with hosted(queue_bytes=2**16, body_seconds=0.05) as learner:
        reply = ndjson.replies(learner, "update", pieces(lines_of(events(1500, ids=False))), held)
        assert json.loads(await anext(reply))["lines"] == 1000
        learner.queued_bytes += 2**16
        last = json.loads(await anext(reply))
        learner.queued_bytes -= 2**16
        assert (last["code"], last["retry_after"], last["lines"]) == ("queue-full", QueueFull.retry_after, 1000)
        assert held.bytes == 0


@pytest.mark.parametrize("before", [0, 1000])
async def test_a_bomb_in_a_line_is_refused_where_the_line_is_too_long(before):
    body = lines_of(events(before)) + b" " * 2**24
    async with client(max_body_bytes=2**16) as http:
        await http.put("/v1/learners/a", json=DENSE)
        headers = {**HEADERS, "content-encoding": "gzip"}
        reply = await http.post("/v1/learners/a/update", content=gzip.compress(body), headers=headers)
        last = json.loads(reply.text.splitlines()[-1])
        assert (last["code"], last["errors"][0]["pointer"]) == ("too-large", f"/lines/{before + 1}")
        assert reply.status_code == (200 if before else 413)
        assert (await http.get("/v1/learners/a")).json()["events"] == before


def test_a_line_is_no_longer_than_a_body_may_be():
    async def chunks(data: Sequence[bytes]) -> list[Any]:
        async def each() -> AsyncIterator[bytes]:
            for one in data:
                yield one

        return [one async for one in ndjson._chunks(each(), 10, share())]

    assert run(chunks([b"123456789\n", b"12345", b"67890"]))[0].lines == 2
    for data in ([b"1\n2\n12345", b"678901"], [b"1\n2\n12345678901\n"]):
        with pytest.raises(TooLarge, match="line 3"):
            run(chunks(data))


def test_the_coding_alone_reads_a_body_of_lines():
    body = lines_of(events(3))
    config = Config.of(DENSE)
    assert ndjson.NDJSON.decode_update(body, config).ids == ("e0", "e1", "e2")
    with pytest.raises(Invalid):
        ndjson.NDJSON.decode_update(b"\n", config)
