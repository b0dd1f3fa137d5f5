"""Compressed bodies: what comes out, in whatever pieces it comes in; bombs, damage, and what the routes answer."""

from __future__ import annotations

import contextlib
import gzip
import json
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import BadBody, TooLarge, WrongType
from service.wire import compression
from service.wire.compression import expanded
from tests.harness.apps import DENSE, client, events
from tests.harness.msgpack_bodies import HEADERS, array, body, unpacked

pytestmark = pytest.mark.integration

zstd = compression.zstd  # of the standard library or its backport

COMPRESS: dict[str, Any] = {"gzip": gzip.compress, "zstd": zstd.compress, "identity": bytes}


async def pieces(data: bytes, cuts: Iterable[int] = ()) -> AsyncIterator[bytes]:
    start = 0
    for stop in [*sorted(cuts), len(data)]:
        yield data[start:stop]
        start = stop


async def read(data: bytes, encoding: str, limit: int | None = 2**20, cuts: Iterable[int] = ()) -> bytes:
    return b"".join([piece async for piece in expanded(pieces(data, cuts), encoding, limit)])


def run(coroutine: Any) -> Any:
    """Drive a coroutine that never blocks."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as done:
        return done.value


@pytest.mark.parametrize("encoding", COMPRESS)
@given(
    parts=st.lists(st.one_of(st.binary(max_size=400), st.integers(0, 300_000).map(bytes)), min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 1500), max_size=6),
)
@settings(max_examples=40)
def test_several_members_in_any_pieces_are_decompressed(encoding, parts, cuts):
    data = b"".join(COMPRESS[encoding](part) for part in parts)
    assert run(read(data, encoding, cuts=cuts)) == b"".join(parts)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@given(part=st.binary(min_size=1, max_size=300), cut=st.integers(0, 1000), flip=st.integers(0, 1000))
@settings(max_examples=40)
def test_truncated_and_damaged_data_raise_the_expected_error(encoding, part, cut, flip):
    data = COMPRESS[encoding](part)
    with pytest.raises(BadBody):
        run(read(data[: cut % len(data)], encoding))
    damaged = bytearray(data)
    damaged[flip % len(data)] ^= 0xFF
    with contextlib.suppress(BadBody):  # a flip in what a header does not protect may pass
        run(read(bytes(damaged), encoding))


def test_a_wrong_checksum_is_refused():
    with_checksum = zstd.compress(b"text" * 100, options={zstd.CompressionParameter.checksum_flag: 1})
    for encoding, data in (("gzip", gzip.compress(b"text" * 100)), ("zstd", with_checksum)):
        bad = bytearray(data)
        bad[-5 if encoding == "gzip" else -1] ^= 1
        with pytest.raises(BadBody):
            run(read(bytes(bad), encoding))


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_decompression_bomb_is_refused_at_the_limit(encoding):
    zeros = bytes(2**20)
    if encoding == "gzip":
        packer = zlib.compressobj(9, wbits=31)
        bomb = b"".join([packer.compress(zeros) for _ in range(64)]) + packer.flush()
    else:
        frame = zstd.ZstdCompressor()
        bomb = b"".join([frame.compress(zeros) for _ in range(64)]) + frame.flush()
    assert len(bomb) < 2**19
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            run(read(bomb, encoding, limit=2**20))
        assert tracemalloc.get_traced_memory()[1] < 2**23  # of the 64 MiB that it would become
    finally:
        tracemalloc.stop()


def test_empty_members_are_limited_by_their_input_size():
    with pytest.raises(TooLarge):
        run(read(gzip.compress(b"", mtime=0) * 1000, "gzip", limit=10_000))


SKIPPED = b"\x50\x2a\x4d\x18\0\0\0\0"  # a frame of Zstandard that stands for nothing


@pytest.mark.parametrize(("encoding", "member"), [("gzip", gzip.compress(b"", mtime=0)), ("zstd", zstd.compress(b""))])
def test_each_empty_member_yields_to_other_tasks(encoding, member):
    coroutine = read(member * 500, encoding)
    for _ in range(500):
        coroutine.send(None)
    with pytest.raises(StopIteration):
        coroutine.send(None)


@pytest.mark.parametrize(
    ("encoding", "member"), [("gzip", gzip.compress(b"", mtime=0)), ("zstd", zstd.compress(b"")), ("zstd", SKIPPED)]
)
def test_consecutive_empty_members_are_limited(encoding, member):
    data = COMPRESS[encoding](b"some")
    assert run(read((member * 6000 + data) * 2, encoding)) == b"somesome"
    with pytest.raises(BadBody, match=r"\b10000\b"):
        run(read(data + member * 10_001 + data, encoding))


def test_a_frame_with_an_excessive_window_is_refused():
    frame = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    with pytest.raises(BadBody, match=r"\b8\b"):
        run(read(frame.compress(b"abc" * 100) + frame.flush(), "zstd"))


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_trailing_data_and_a_foreign_stream_have_different_errors(encoding):
    for start in (COMPRESS[encoding](b"text"), b""):
        with pytest.raises(BadBody, match=encoding) as caught:
            run(read(start + b"something else", encoding))
        assert ("follows" in caught.value.detail) == bool(start)


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "deflate", "gzip;q=1"])
def test_unsupported_encodings_are_named(encoding):
    with pytest.raises(WrongType, match="zstd"):
        run(read(b"", encoding))


async def test_routes_accept_bodies_in_every_compression():
    request = events(20, ids=False)
    packed = body(
        {
            "x": array([item["x"] for item in request], "float64"),
            "labels": array([item["label"] for item in request], "int8"),
        }
    )
    async with client(max_body_bytes=2**16) as http:
        for name in ("plain", "gzip", "zstd", "columns"):
            await http.put(f"/v1/learners/{name}", json=DENSE)
        text = json.dumps({"events": request}).encode()
        await http.post("/v1/learners/plain/update", content=text)
        for encoding in ("gzip", "zstd"):
            headers = {"content-encoding": encoding.upper(), "content-type": "application/json"}
            reply = await http.post(
                f"/v1/learners/{encoding}/update", content=COMPRESS[encoding](text), headers=headers
            )
            assert reply.json()["applied"] == 20
        headers = {**HEADERS, "content-encoding": "zstd"}
        reply = await http.post("/v1/learners/columns/update", content=zstd.compress(packed), headers=headers)
        assert unpacked(reply)["applied"] == 20
        digests = [(await http.get(f"/v1/learners/{name}/digest")).json()["digest"] for name in ("plain", "columns")]
        assert digests[0] == digests[1]
        for data, encoding, status in (
            (gzip.compress(bytes(2**17)), "gzip", 413),
            (zstd.compress(bytes(2**17)), "zstd", 413),
            (gzip.compress(text)[:-1], "gzip", 400),
            (b"not gzip", "gzip", 400),
            (text, "br", 415),
        ):
            headers = {"content-encoding": encoding, "content-type": "application/json"}
            reply = await http.post("/v1/learners/plain/update", content=data, headers=headers)
            assert (reply.status_code, reply.headers["content-type"]) == (status, "application/problem+json")
        assert (await http.get("/v1/learners/plain/digest")).json()["digest"] == digests[0]
