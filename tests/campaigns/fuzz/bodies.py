"""Bodies that nearly fit, for every route that takes one, in every coding: JSON, lines, MessagePack, compressed.

Spoken over ASGI in this process, so that after each refusal the learner can be looked at: it stands where it stood, to
the bit. A body that was taken has moved it, and what it then is has to be sound.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import tracemalloc
from random import Random
from typing import Any

import httpx
import msgspec
import numpy as np

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from learners.learner import check_state
from learners.settings import InvalidInput
from service.engine.engine import Engine
from service.storage.memory import MemoryStore
from tests.campaigns.fuzz.mutations import mutated_bytes, mutated_value, packed
from tests.campaigns.fuzz.report import Report, until
from tests.campaigns.fuzz.serving import LEARNERS
from tests.harness.nodes import node, over

__all__ = ["bodies", "bombs", "columns", "events", "jsonable"]

_JSON, _MSGPACK, _LINES = "application/json", "application/msgpack", "application/x-ndjson"
_BOMB_BYTES = 64 * 2**20  # that come out
_HELD_BYTES = 24 * 2**20  # that may be held while a bomb is refused whose limit is 1 MiB


def _event(name: str, i: int) -> dict[str, Any]:
    """Return an event that the learner takes."""
    x = [float(i % 2), 0.5 * i, -1.0]
    if name in ("dense", "ordinal"):
        return {"x": x}
    if name == "sparse":
        return {"indices": [i % 3, 7, 40], "values": x}
    return {"features": {"amount": 1.5 * i, "shop": f"s{i % 3}"}}


def events(name: str, operation: str) -> list[dict[str, Any]]:
    made = []
    for i in range(6):
        item: dict[str, Any] = {"id": f"e{i}", "time": 1e9 + i}
        if operation != "labels":
            item |= _event(name, i)
        if operation != "predict":
            item |= (
                {"label": 1 + i % 2, "weight": 1.0 + i} if name == "ordinal" else {"label": i % 2, "weight": 1.0 + i}
            )
        made.append(item)
    return made


def _array(dtype: str, *values: float) -> dict[str, Any]:
    column = np.array(values, dtype=dtype)
    return {"dtype": dtype, "shape": [len(values)], "data": column.tobytes()}


def columns(name: str, operation: str) -> dict[str, Any]:
    """Return the same by columns."""
    body: dict[str, Any] = {
        "ids": [f"e{i}" for i in range(6)],
        "times": _array("float64", *(1e9 + i for i in range(6))),
    }
    if operation != "predict":
        body["labels"] = _array("int8", *(1 + i % 2 if name == "ordinal" else i % 2 for i in range(6)))
        body["weights"] = [1.0, None, 2, 0.5, 1e6, 0]
    if operation == "labels":
        return body
    if name in ("dense", "ordinal"):
        x = _array("float32", *(float(i) for i in range(18)))
        body["x"] = x | {"shape": [6, 3]}
    elif name == "sparse":
        body["csr"] = {
            "indptr": _array("int64", 0, 1, 2, 2, 3, 4, 6),
            "indices": _array("int32", 1, 7, 40, 3, 0, 49),
            "values": _array("float64", 1, 2, 3, 4, 5, 6),
        }
    else:
        body["features"] = {"amount": _array("float64", *range(6)), "shop": ["a", "b", None, "c", "d", "a"]}
    return body


def _body(random: Random, name: str, operation: str, coding: str) -> bytes:
    """Return a body of the learner's that has been mutated, mostly in what it says."""
    deep = random.random() < 0.75
    if coding == _MSGPACK:
        value = columns(name, operation)
        if operation == "update" and random.random() < 0.3:
            value["source"] = {"name": "file", "offset": 3, "after": 1}
        data = packed(mutated_value(random, value)) if deep else None
        return data if data is not None else mutated_bytes(random, msgspec.msgpack.encode(value))
    made: Any = events(name, operation)
    if coding == _LINES:
        lines = [
            json.dumps(jsonable(mutated_value(random, item)) if deep and random.random() < 0.3 else item)
            for item in made
        ]
        data = "\n".join(lines).encode()
        return data if deep else mutated_bytes(random, data)
    value = {"events": made}
    if operation == "update" and random.random() < 0.3:
        value["source"] = {"name": "file", "offset": 3, "after": 1}
    if deep:
        return json.dumps(jsonable(mutated_value(random, value))).encode()
    return mutated_bytes(random, json.dumps(value).encode())


def jsonable(value: Any) -> Any:
    """Return the same without bytes, which JSON does not have, and with names that are text."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    return [jsonable(item) for item in value] if isinstance(value, list) else value


def _encoded(random: Random, data: bytes) -> tuple[bytes, dict[str, str]]:
    """Compress some bodies, and damage some of these."""
    kind = random.randrange(12)
    if kind > 2:
        return data, {}
    encoding = ("gzip", "zstd", "gzip")[kind]
    data = zstd.compress(data) if encoding == "zstd" else gzip.compress(data, 1)
    if random.random() < 0.5:
        data = mutated_bytes(random, data)
    return data, {"content-encoding": encoding}


def bodies(seconds: float, seed: int = 0, count: int | None = None) -> Report:
    """Mutated bodies of every kind."""
    return asyncio.run(_bodies(seconds, seed, count))


async def _bodies(seconds: float, seed: int, count: int | None) -> Report:
    report, random = Report("bodies of requests"), Random(seed)
    async with node(MemoryStore(), max_learners=100, max_body_bytes=2**20) as engine, over(engine) as http:
        for name, config in LEARNERS.items():
            (await http.put(f"/learners/{name}", json=config)).raise_for_status()
            body = {"events": events(name, "update")}
            (await http.post(f"/learners/{name}/update", json=body)).raise_for_status()
        files = {name: (await http.get(f"/learners/{name}/export")).content for name in LEARNERS}
        for name in LEARNERS:
            await engine.replicas[name].log.catch_up()
        stood = {name: (engine.replicas[name].position, engine.replicas[name].learner.digest()) for name in LEARNERS}
        for i in until(seconds, count):
            name = random.choice(list(LEARNERS))
            kind = random.random()
            if kind < 0.85:
                operation, coding = (
                    random.choice(["update", "predict", "labels"]),
                    random.choice([_JSON, _MSGPACK, _LINES]),
                )
                data, headers = _encoded(random, _body(random, name, operation, coding))
                headers |= {"content-type": coding, "accept": random.choice([_JSON, coding, "*/*"])}
                what = f"{operation}, {coding.partition('/')[2]}{', compressed' if len(headers) > 2 else ''}"
                reply = await http.post(f"/learners/{name}/{operation}", content=data, headers=headers)
            elif kind < 0.9:
                what, data = "import", mutated_bytes(random, files[name], list(files.values()))
                reply = await http.post(
                    f"/learners/new{i}/import", content=data, headers={"content-type": "application/octet-stream"}
                )
                await _deleted(http, f"new{i}", reply)
            elif kind < 0.95:
                what, data = "PUT", json.dumps(jsonable(mutated_value(random, LEARNERS[name] | {"late": {}}))).encode()
                reply = await http.put(f"/learners/new{i}", content=data, headers={"content-type": _JSON})
                await _deleted(http, f"new{i}", reply)
            else:
                change = {"figures": {"k": 3}, "late": {"label_ttl": 5.0}, "threshold": {"objective": "f1-window"}}
                what, data = "PATCH", json.dumps(jsonable(mutated_value(random, change))).encode()
                reply = await http.patch(f"/learners/{name}", content=data, headers={"content-type": _JSON})
            report.note(what, reply.status_code)
            detail = f"{what} of {name}: {reply.status_code} {reply.text[:300]!r} to {data[:600]!r}"
            if reply.status_code >= 500 or (reply.status_code >= 400 and not _summary(reply)):
                report.fail(detail)
            await _stands(report, engine, name, stood, reply.status_code < 300, detail)
    return report


async def _deleted(http: httpx.AsyncClient, name: str, reply: httpx.Response) -> None:
    if reply.status_code < 300:
        (await http.delete(f"/learners/{name}")).raise_for_status()


def _summary(reply: httpx.Response) -> bool:
    """Whether it is a problem document with a word of what is wrong."""
    kind = reply.headers.get("content-type", "")
    if kind != "application/problem+json":
        return False
    document = reply.json()
    return bool(document["detail"]) and document["status"] == reply.status_code


async def _stands(
    report: Report, engine: Engine, name: str, stood: dict[str, tuple[int, str]], accepted: bool, detail: str
) -> None:
    """Check that a learner without accepted events is unchanged, and that every other state is valid."""
    replica = engine.replicas[name]
    if replica.failure is not None:
        report.fail(f"it stopped: {replica.failure.detail}: {detail}")
        return
    if accepted:  # a record of what was served is applied in its turn, after the reply
        await replica.log.catch_up()
    now = replica.position, replica.learner.digest()
    if accepted and now != stood[name]:
        try:
            check_state(replica.learner.config, {key: array.copy() for key, array in replica.learner.state().items()})
        except InvalidInput as error:
            report.fail(f"taken, and then {error}: {detail}")
    elif now != stood[name]:
        report.fail(f"refused, and moved from {stood[name]} to {now}: {detail}")
    stood[name] = now


def bombs(seconds: float, seed: int = 0, count: int | None = None) -> Report:
    """Bodies that become far larger than they are: refused with 413, in bounded memory."""
    del seed  # nothing is drawn
    return asyncio.run(_bombs(seconds, count))


async def _bombs(seconds: float, count: int | None) -> Report:
    report = Report("compressed bombs")
    spaces, zeros = b" " * _BOMB_BYTES, b"\0" * _BOMB_BYTES
    layers = gzip.compress(gzip.compress(spaces))
    made = {
        "gzip": ("gzip", gzip.compress(spaces)),
        "zstd": ("zstd", zstd.compress(zeros)),
        "gzip in gzip": ("gzip, gzip", layers),
        "members of gzip": ("gzip", gzip.compress(spaces[: 2**20]) * 64),
        "empty members of gzip": ("gzip", gzip.compress(b"") * 30_000),
        "frames of zstd": ("zstd", zstd.compress(zeros[: 2**20]) * 64),
    }
    largest = 0
    async with node(MemoryStore(), max_body_bytes=2**20) as engine, over(engine) as http:
        (await http.put("/learners/dense", json=LEARNERS["dense"])).raise_for_status()
        for i in until(seconds, count or 3 * len(made)):
            what, (encoding, data) = list(made.items())[i % len(made)]
            coding = (_JSON, _MSGPACK, _LINES)[i // len(made) % 3]
            headers = {"content-type": coding, "content-encoding": encoding}
            tracemalloc.start()
            reply = await http.post("/learners/dense/update", content=data, headers=headers)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            largest = max(largest, peak)
            report.note(f"{what}, {coding.partition('/')[2]}", reply.status_code)
            if reply.status_code not in (400, 413, 415, 422) or not _summary(reply):
                report.fail(f"{what}: {reply.status_code} {reply.text[:300]}")
            if peak > _HELD_BYTES:
                report.fail(f"{what}: {peak} bytes were held")
    report.figures["bytes held at most, of a 64 MiB bomb"] = f"{largest:,}"
    return report
