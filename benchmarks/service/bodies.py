"""Streams of events, and the bodies that carry them, built before anything is timed.

Ids and sequence numbers have to be new in each request. So a body is encoded once with `FIRST` in their places, and
`numbered` puts another number of the same width there: one `%` per request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, cycle
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.datasets import Task, make

__all__ = [
    "DIM",
    "FIRST",
    "JSON",
    "MSGPACK",
    "Stream",
    "array",
    "encoded",
    "event",
    "numbered",
    "requests",
    "stream",
    "update",
]

DIM = 54  # columns of covtype
JSON, MSGPACK = "application/json", "application/msgpack"
FIRST = 10**11  # the number that stands for another; always twelve digits, and eight bytes in MessagePack
_POSITIVES = 0.04  # of the made stream; covtype's class 7 has as many
_COVTYPE = Task("covtype", (7,))


class Stream(NamedTuple):
    """Labelled rows."""

    name: str
    X: NDArray[np.float32]  # (n, DIM)
    y: NDArray[np.int8]  # (n,), 0 or 1


def stream(n: int, datasets: Path | None = None) -> Stream:
    """n events of covtype, class 7 against the others in a fixed random order; without its file, events made up."""
    if datasets is not None:
        data = make(datasets, _COVTYPE)
        X = np.asarray(data.rows)
        order = np.random.default_rng(1).permutation(len(X))[:n]
        return Stream("covtype, class 7 (3.5 %)", X[order].astype(np.float32), (data.y[order] > 0).astype(np.int8))
    random = np.random.default_rng(1)
    y = (random.random(n) < _POSITIVES).astype(np.int8)
    X = random.normal(size=(n, DIM))
    X[:, :8] += 0.5 * y[:, None]
    return Stream(f"made up, {_POSITIVES:.0%} positives", X.round(4).astype(np.float32), y)


def array(values: NDArray[Any]) -> dict[str, Any]:
    """Encode an array for a MessagePack body."""
    return {"dtype": str(values.dtype), "shape": list(values.shape), "data": values.tobytes()}


def event(x: NDArray[np.float32], media_type: str, **members: Any) -> dict[str, Any]:
    """Return the body of a request to score one row (DIM,), with further `members` at the top level."""
    if media_type == MSGPACK:
        return {**members, "x": array(x[None])}
    return {**members, "events": [{"x": _numbers(x)}]}


def update(X: NDArray[np.float32], y: NDArray[np.int8], media_type: str, ids: bool, **members: Any) -> dict[str, Any]:
    """Return the body of a request to learn rows (n, DIM); with `ids`, of one row with the id FIRST."""
    if media_type == MSGPACK:
        columns = {"x": array(X), "labels": array(y)}
        return {**members, **columns, "ids": [str(FIRST)]} if ids else {**members, **columns}
    named = {"id": str(FIRST)} if ids else {}
    return {
        **members,
        "events": [{**named, "x": _numbers(x), "label": int(label)} for x, label in zip(X, y, strict=True)],
    }


def _numbers(x: NDArray[np.float32]) -> list[float]:
    numbers: list[float] = x.astype(np.float64).round(4).tolist()  # without the long tail of a float32
    return numbers


def encoded(body: dict[str, Any], media_type: str) -> bytes:
    """Bytes of a body."""
    if media_type == MSGPACK:
        return msgspec.msgpack.encode(body)
    return json.dumps(body, separators=(",", ":")).encode()


def requests(path: str, bodies: Iterable[dict[str, Any]], media_type: str, method: str = "POST") -> list[bytes]:
    """Return HTTP/1.1 requests with these bodies."""
    messages = []
    for body in bodies:
        content = encoded(body, media_type)
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {media_type}\r\n"
        messages.append(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    return messages


def numbered(templates: Sequence[bytes], first: int = FIRST) -> Iterator[bytes]:
    """Repeat the templates endlessly, with ascending numbers from `first` in place of FIRST."""
    digits, packed = str(FIRST).encode(), FIRST.to_bytes(8, "big")
    prepared = [
        template.replace(b"%", b"%%").replace(digits, b"%(digits)b").replace(packed, b"%(packed)b")
        for template in templates
    ]
    for number, template in zip(count(first), cycle(prepared), strict=False):
        yield template % {b"digits": b"%d" % number, b"packed": number.to_bytes(8, "big")}
