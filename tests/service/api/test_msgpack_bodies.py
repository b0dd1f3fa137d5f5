"""MessagePack bodies: the same log, state and replies as the same events in JSON; what is refused, and where."""

from __future__ import annotations

import base64
import json
import math
import re
import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.config import Config
from service.errors import BadBody, Invalid
from service.wire import json_decode, msgpack_decode
from tests.harness.apps import DENSE, client
from tests.harness.msgpack_bodies import HEADERS, array, body, columns_of, unpacked
from tests.service.wire.test_json_decode import KINDS, plain

pytestmark = pytest.mark.integration

NAMED = {"kind": "named", "bits": 8, "text": ["t"], "categorical": ["c"], "log": ["v"]}
TABLE = {"kind": "table", "fields": [{"name": "v", "kind": "numeric"}, {"name": "c", "kind": "categorical"}]}
LEARNERS: dict[str, dict[str, Any]] = {
    "dense": DENSE,
    "sparse": {"algorithm": "fofo", "features": {"kind": "sparse", "dim": 20}},
    "named": {"algorithm": "cbr-diag", "features": NAMED},
    "table": {"algorithm": "loam-ada", "features": TABLE},
    "ordinal": {"algorithm": "npsvor", "params": {"ranks": 3}, "features": {"kind": "dense", "dim": 3}},
    "costs": {**DENSE, "threshold": {"objective": "cost", "field": "1", "false_positive": 0.5}},
    "sparse costs": {
        "algorithm": "fofo",
        "features": {"kind": "sparse", "dim": 20},
        "threshold": {"objective": "cost", "field": "3", "false_positive": 0.5},
    },
}


def made(kind: str, n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Labelled events whose numbers are float32; every third has an id, some have a weight and a time."""
    rng = np.random.default_rng(seed)
    events = []
    for i in range(n):
        event: dict[str, Any] = {"label": int(rng.random() < 0.3)}
        numbers = np.abs(rng.standard_normal(3)).astype(np.float32).tolist()
        if "sparse" in kind:
            columns = sorted(rng.choice(20, size=rng.integers(0, 4), replace=False).tolist())
            event |= {"indices": columns, "values": numbers[: len(columns)]}
        elif kind in ("named", "table"):
            event["features"] = {"v": numbers[0] if i % 4 else None, "c": ["a", "b", True, None][rng.integers(4)]}
            if kind == "named":
                event["features"]["t"] = [["one", "two"], "free money now"][i % 2]
        else:
            event["x"] = numbers
        if kind == "ordinal":
            event["label"] = int(rng.integers(1, 4))
        event |= {"id": f"e{i}" if i % 3 else None, "weight": 2.0 if i % 5 == 0 else None}
        event["time"] = 1.7e9 + i if i % 7 else None
        events.append({name: value for name, value in event.items() if value is not None})
    return events


def bare(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: event[name] for name in event if name not in ("label", "weight")} for event in events]


async def state_of(http: Any, name: str) -> Any:
    reply = (await http.get(f"/v1/learners/{name}/digest")).json()
    return reply["position"], reply["digest"]


@pytest.mark.parametrize(
    ("kind", "number"),
    [pytest.param("dense", "float32", marks=pytest.mark.integration), *((kind, "float64") for kind in LEARNERS)],
)
async def test_both_encodings_give_the_same_state_and_replies(kind, number):
    async with client() as http:
        for name in ("a", "b"):
            assert (await http.put(f"/v1/learners/{name}", json=LEARNERS[kind])).status_code == 201
        for start in range(0, 60, 20):
            events = made(kind, 60)[start : start + 20]
            source = {"name": "f", "offset": start}
            message = await http.post("/v1/learners/a/update", json={"events": events, "source": source})
            payload = body({**columns_of(events, number), "source": source})
            reply = await http.post("/v1/learners/b/update", content=payload, headers=HEADERS)
            _agree(message.json(), unpacked(reply))
        assert await state_of(http, "a") == await state_of(http, "b")
        request = [{**item, "id": f"s{i}", "time": 1.7e9 + 70} for i, item in enumerate(bare(made(kind, 5, seed=1)))]
        message = await http.post("/v1/learners/a/predict", json={"events": request})
        reply = await http.post("/v1/learners/b/predict", content=body(columns_of(request, number)), headers=HEADERS)
        _agree(message.json(), unpacked(reply))
        labels = [{"id": text, "label": 1, "time": 1.7e9 + 80} for text in ("s0", "e1", "never", "s4")]
        message = await http.post("/v1/learners/a/labels", json={"events": labels})
        reply = await http.post("/v1/learners/b/labels", content=body(columns_of(labels)), headers=HEADERS)
        _agree(message.json(), unpacked(reply))
        assert (unpacked(reply)["applied"], unpacked(reply)["unknown"]) == (2, 1)
        assert await state_of(http, "a") == await state_of(http, "b")


def _agree(json_reply: dict[str, Any], reply: dict[str, Any]) -> None:
    """Compare a reply in JSON with one in columns."""
    results = json_reply.pop("results")
    columns = {"score": "scores", "probability": "probabilities", "threshold": "thresholds"}
    columns |= {"decision": "decisions", "label": "labels", "rank": "ranks"}
    if "statuses" in reply:
        names = reply.pop("statuses")
        assert [names[item] for item in reply.pop("status")] == [result["status"] for result in results]
    for name in results[0].keys() - {"id", "status"}:
        column = reply.pop(columns[name])
        nothing = columnar_nothing(name)
        assert [None if item == nothing or item != item else item for item in column] == [
            result[name] for result in results
        ]
    assert reply == json_reply


def columnar_nothing(name: str) -> int | None:
    return -128 if name in ("decision", "label", "rank") else None


async def test_a_learner_that_is_not_ready_returns_no_labels_and_thresholds():
    async with client() as http:
        await http.put("/v1/learners/a", json=DENSE)
        request = [{"x": [1, i, 0]} for i in range(3)]
        payload = body(columns_of(request))
        for ready in (False, True):
            document = (await http.post("/v1/learners/a/predict", json={"events": request})).json()
            reply = unpacked(await http.post("/v1/learners/a/predict", content=payload, headers=HEADERS))
            assert (reply["ready"], document["results"][0]["threshold"] is not None) == (ready, ready)
            _agree(document, reply)
            learnt = [{"x": [1, i, 0], "label": i} for i in range(2)]
            await http.post("/v1/learners/a/update", json={"events": learnt})


async def test_numeric_ids_equal_their_digits():
    async with client() as http:
        for name in ("a", "b"):
            await http.put(f"/v1/learners/{name}", json=DENSE)
        events = [{"x": [1, i, 0], "label": i % 2, "id": i * 2**60} for i in range(8)]
        await http.post("/v1/learners/a/update", json={"events": events})
        payload = {**columns_of(events), "ids": array([i * 2**60 for i in range(8)], "uint64")}
        reply = await http.post("/v1/learners/b/update", content=body(payload), headers=HEADERS)
        assert unpacked(reply)["applied"] == 8
        again = await http.post("/v1/learners/b/update", content=body(payload), headers=HEADERS)
        assert unpacked(again)["duplicate"] == 8
        await http.post("/v1/learners/a/update", json={"events": events})
        assert await state_of(http, "a") == await state_of(http, "b")


async def test_explanations_equal_those_of_json():
    async with client() as http:
        for kind in ("dense", "sparse", "named"):
            await http.put(f"/v1/learners/{kind}", json=LEARNERS[kind])
            await http.post(f"/v1/learners/{kind}/update", json={"events": made(kind, 50)})
            request = [
                {name: item[name] for name in item if name not in ("id", "time")} for item in bare(made(kind, 4, 2))
            ]
            url = f"/v1/learners/{kind}/predict?explain=2"
            document = (await http.post(url, json={"events": request})).json()
            reply = unpacked(await http.post(url, content=body(columns_of(request)), headers=HEADERS))
            assert reply["explanations"] == [result["explanation"] for result in document["results"]]


async def test_the_reply_has_the_accepted_media_type():
    async with client() as http:
        await http.put("/v1/learners/a", json=DENSE)
        request = bare(made("dense", 3))
        packed = body(columns_of(request))
        url = "/v1/learners/a/predict"
        in_json = await http.post(url, content=packed, headers={**HEADERS, "accept": "application/json"})
        assert [result["id"] for result in in_json.json()["results"]] == [None, "e1", "e2"]
        in_columns = await http.post(url, json={"events": request}, headers={"accept": "application/msgpack"})
        assert unpacked(in_columns)["labels"] == [-128] * 3
        neither = await http.post(url, json={"events": request}, headers={"accept": "text/html"})
        assert (neither.status_code, neither.json()["code"]) == (406, "not-acceptable")


async def test_openapi_describes_every_encoding():
    async with client() as http:
        document = (await http.get("/openapi.json")).json()
    expected = document["components"]["schemas"]
    for operation in ("update", "labels", "predict"):
        route = document["paths"][f"/v1/learners/{{name}}/{operation}"]["post"]
        payload, report = route["requestBody"]["content"], route["responses"]["200"]["content"]
        assert set(payload) == set(report) == {"application/json", "application/msgpack", "application/x-ndjson"}
        read, written = payload["application/msgpack"]["schema"]["allOf"][0], report["application/msgpack"]["schema"]
        assert {item["$ref"].rpartition("/")[2] for item in (read, written)} <= expected.keys()
        assert "application/problem+json" in route["responses"]["406"]["content"]
        lines = route["responses"]["200"]["content"]["application/x-ndjson"]["schema"]["anyOf"]
        assert {line["$ref"].rpartition("/")[2] for line in lines} <= expected.keys()
        assert "Retry-After" in route["responses"]["429"]["headers"]
        encodings = [parameter for parameter in route["parameters"] if parameter["name"] == "Content-Encoding"]
        assert [encoding["schema"]["enum"] for encoding in encodings] == [["identity", "gzip", "zstd"]]
    assert expected["UpdateBody"]["properties"]["events"]["maxItems"] == 100_000
    assert "/v1/learners/{name}/ws" in document["info"]["description"]
    assert set(expected["ColumnarUpdate"]["properties"]) == {
        "x", "csr", "features", "labels", "weights", "times", "ids", "source"
    }  # fmt: skip


async def test_the_documented_columns_and_lines_are_accepted():
    def packed(packed_value: Any) -> Any:
        return (
            {**packed_value, "data": base64.b64decode(packed_value["data"])}
            if isinstance(packed_value, dict)
            else packed_value
        )

    async with client() as http:
        await http.put("/v1/learners/a", json=DENSE)
        document = (await http.get("/openapi.json")).json()
        for operation in ("update", "predict", "labels"):
            url = f"/v1/learners/a/{operation}"
            content = document["paths"][f"/v1/learners/{{name}}/{operation}"]["post"]["requestBody"]["content"]
            (columns,) = (example["value"] for example in content["application/msgpack"]["examples"].values())
            members = {name: packed(item) for name, item in columns.items()}
            reply = await http.post(url, content=body(members), headers=HEADERS)
            assert reply.status_code == 200, unpacked(reply)
            (lines,) = (example["value"] for example in content["application/x-ndjson"]["examples"].values())
            reply = await http.post(url, content=lines, headers={"content-type": "application/x-ndjson"})
            assert (reply.status_code, json.loads(reply.text.splitlines()[-1])["lines"]) == (200, 2)


# Columns


@st.composite
def batches(draw: Any) -> tuple[str, list[dict[str, Any]]]:
    """Good labelled events of one kind, as JSON has them."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    numbers = st.one_of(st.floats(-(2.0**99), 2.0**99, width=32), st.integers(-1000, 1000).map(float))
    events = []
    for _ in range(draw(st.integers(1, 4))):
        if kind == "dense":
            event: dict[str, Any] = {"x": draw(st.lists(numbers, min_size=2, max_size=2))}
        elif kind == "sparse":
            columns = sorted(draw(st.sets(st.integers(0, 9), max_size=4)))
            event = {"indices": columns, "values": [draw(numbers) for _ in columns]}
        else:
            event = {
                "features": {"v": draw(st.one_of(st.none(), numbers)), "c": draw(st.sampled_from(["a", True, 2.0]))}
            }
        event["label"] = draw(st.sampled_from([-1, 0, 1]))
        event["id"] = draw(st.sampled_from([None, "a", "\u00e9\u6f22", 7]))
        event["weight"] = draw(st.sampled_from([None, 0.0, 2.5]))
        event["time"] = draw(st.sampled_from([None, 1.6e9, 1.7e9]))
        events.append(event)
    return kind, events


@given(batch=batches(), number=st.sampled_from(["float32", "float64"]))
@settings(max_examples=80)
def test_columns_of_both_encodings_are_equal_bit_for_bit(batch, number):
    kind, events = batch
    config = KINDS[kind]
    members = columns_of(events, number)
    text = json.dumps({"events": events}).encode()
    (packed_update, of_update), (update, local) = (
        msgpack_decode.decode_update(body(members), config), json_decode.decode_update(text, config)
    )  # fmt: skip
    assert plain(packed_update) == plain(update)
    assert [list(map(_list, _pair(it))) for it in of_update] == [list(map(_list, _pair(item))) for item in local]
    request = bare(events)
    del members["labels"]
    members.pop("weights", None)
    message, carried = json_decode.decode_events(json.dumps({"events": request}).encode(), config)
    packed, local = msgpack_decode.decode_events(body(members), config)
    for entry, other in zip((*_flat(message.rows), message.times), (*_flat(packed.rows), packed.times), strict=True):
        assert repr(None if entry is None else entry.tolist()) == repr(None if other is None else other.tolist())
    assert message.ids == packed.ids
    assert [list(map(_list, _pair(item))) for item in carried] == [list(map(_list, _pair(item))) for item in local]


def _flat(rows: Any) -> list[Any]:
    return list(rows) if isinstance(rows, tuple) else [rows]


def _pair(carried: Any) -> Any:
    return list(carried.items()) if isinstance(carried, dict) else carried


def _list(event_: Any) -> Any:
    return list(event_) if isinstance(event_, (list, tuple)) else float(event_)


def test_arrays_for_kernels_are_writable_and_aligned():
    events = made("sparse", 5)
    rows = msgpack_decode.decode_update(body(columns_of(events)), Config.of(LEARNERS["sparse"]))[0].rows
    dense = msgpack_decode.decode_update(body(columns_of(made("dense", 5), "float64")), Config.of(DENSE))[0].rows
    for item in (*rows, dense):
        assert item.flags.writeable
        assert item.flags.aligned
        assert item.flags.c_contiguous


# What is refused

GOOD = columns_of([{"x": [1, 2, 3], "label": 1, "id": "a"}, {"x": [4, 5, 6], "label": 0, "id": "b"}])
SPARSE = columns_of([{"indices": [1, 4], "values": [1, 2], "label": 1}, {"indices": [0], "values": [3], "label": 0}])


def x(**changed: Any) -> dict[str, Any]:
    return {**GOOD, "x": {**GOOD["x"], **changed}}


def csr(**changed: Any) -> dict[str, Any]:
    return {**SPARSE, "csr": {**SPARSE["csr"], **changed}}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key != name}


REFUSED: list[tuple[str, Any, list[str]]] = [
    ("dense", without("x"), ["/x"]),
    ("dense", without("labels"), ["/labels"]),
    ("dense", {**GOOD, "odd": 1, 7: 2}, ["/odd", "/7"]),
    ("dense", {**GOOD, "csr": {}}, ["/csr"]),
    ("dense", [1], [""]),
    ("dense", {**GOOD, "x": [[1, 2, 3], [4, 5, 6]]}, ["/x"]),
    ("dense", x(dtype="float16"), ["/x/dtype"]),
    ("dense", x(dtype="int8"), ["/x/dtype"]),
    ("dense", x(dtype=["float32"]), ["/x/dtype"]),
    ("dense", x(shape=[6]), ["/x/shape"]),
    ("dense", x(shape=[3, 2]), ["/x/shape"]),
    ("dense", x(shape=[-2, -3]), ["/x/shape"]),
    ("dense", x(shape=[2.0, 3]), ["/x/shape"]),
    ("dense", x(shape=[2**40, 0], data=b""), ["/x/shape"]),
    ("dense", x(shape=[0, 3], data=b""), ["/x/shape"]),
    ("dense", x(shape=[200_000, 3], data=bytes(2_400_000)), ["/x/shape"]),
    ("dense", x(data=b"\0" * 23), ["/x/data"]),
    ("dense", x(data=b"\0" * 28), ["/x/data"]),
    ("dense", x(data="text"), ["/x/data"]),
    ("dense", {**GOOD, "x": array([[1, 2, math.nan], [math.inf, 5, 6]], "float32")}, ["/x/0/2", "/x/1/0"]),
    ("dense", {**GOOD, "x": array([[1, 2, 3], [4, -2e30, 6]], "float64")}, ["/x/1/1"]),
    ("dense", {**GOOD, "labels": array([1], "int8")}, ["/labels"]),
    ("dense", {**GOOD, "labels": array([1, 300], "int64")}, ["/labels/1"]),
    ("dense", {**GOOD, "labels": {**array([1, 1], "int8"), "dtype": "int16"}}, ["/labels/dtype"]),
    ("dense", {**GOOD, "x": {"shape": [2, 3], "data": b""}}, ["/x/dtype"]),
    ("dense", x(order="C"), ["/x/order"]),
    ("dense", {**GOOD, "x": {"dtype": "float32", "size": 6}}, ["/x/size", "/x/shape", "/x/data"]),
    ("dense", {**GOOD, "labels": array([2, 1], "int8")}, ["/labels/0"]),
    ("dense", {**GOOD, "labels": array([1, math.nan], "float32")}, ["/labels/1"]),
    ("dense", {**GOOD, "labels": [None, "1"]}, ["/labels/0", "/labels/1"]),
    ("dense", {**GOOD, "labels": "11"}, ["/labels"]),
    ("dense", {**GOOD, "weights": array([1, -1], "float64")}, ["/weights/1"]),
    ("dense", {**GOOD, "weights": array([math.nan, 2e6], "float32")}, ["/weights/0", "/weights/1"]),
    ("dense", {**GOOD, "weights": [1, True]}, ["/weights/1"]),
    ("dense", {**GOOD, "weights": [1]}, ["/weights"]),
    ("dense", {**GOOD, "times": [None, 1e13]}, ["/times/1"]),
    ("dense", {**GOOD, "times": array([math.inf, 1.7e9], "float64")}, ["/times/0"]),
    ("dense", {**GOOD, "times": 3}, ["/times"]),
    ("dense", {**GOOD, "ids": ["a", ""]}, ["/ids/1"]),
    ("dense", {**GOOD, "ids": ["x" * 257, "\n"]}, ["/ids/0", "/ids/1"]),
    ("dense", {**GOOD, "ids": [True, 1.5]}, ["/ids/0", "/ids/1"]),
    ("dense", {**GOOD, "ids": ["a"]}, ["/ids"]),
    ("dense", {**GOOD, "ids": array([1, 2], "float64")}, ["/ids/dtype"]),
    ("dense", {**GOOD, "weights": array([1, -1], "int32")}, ["/weights/1"]),
    ("dense", {**GOOD, "weights": array([True, True], "bool")}, ["/weights/dtype"]),
    ("dense", {**GOOD, "source": {"name": "", "offset": 0}}, ["/source/name"]),
    ("dense", {**GOOD, "source": 3}, ["/source"]),
    ("dense", {**GOOD, "source": {}}, ["/source/name", "/source/offset"]),
    ("ordinal", {**GOOD, "labels": [True, 1]}, ["/labels/0"]),
    ("ordinal", {**GOOD, "labels": array([4, 1], "int8")}, ["/labels/0"]),
    ("ordinal", {**GOOD, "labels": array([True, True], "bool")}, ["/labels/0", "/labels/1"]),
    ("costs", {**GOOD, "x": array([[1, 2, 3], [4, -5, 6]], "float32")}, ["/x/1/1"]),
    ("sparse", {**SPARSE, "csr": 1}, ["/csr"]),
    ("sparse", csr(odd=1), ["/csr/odd"]),
    ("sparse", csr(indptr=array([], "int32")), ["/csr/indptr/0"]),
    (
        "sparse",
        csr(indptr=array([0], "int32"), indices=array([], "int32"), values=array([], "float32")),
        ["/csr/indptr"],
    ),
    ("sparse", csr(indptr=array([1, 2, 3], "int32")), ["/csr/indptr/0"]),
    ("sparse", csr(indptr=array([0, 4, 3], "int32")), ["/csr/indptr/2"]),
    ("sparse", csr(indptr=array([0, 2, 4], "int32")), ["/csr/indptr/2"]),
    ("sparse", csr(indptr=[0, 2, 3]), ["/csr/indptr"]),
    ("sparse", csr(indices=array([1, 4], "int32")), ["/csr/values"]),
    ("sparse", csr(indices=array([4, 1, 0], "int32")), ["/csr/indices/1"]),
    ("sparse", csr(indices=array([1, 1, -1], "int32")), ["/csr/indices/1", "/csr/indices/2"]),
    ("sparse", csr(indices=array([1, 2, 20], "int64")), ["/csr/indices/2"]),
    ("sparse", csr(values=array([1, math.nan, math.inf], "float32")), ["/csr/values/1", "/csr/values/2"]),
    ("sparse costs", csr(indices=array([1, 3, 0], "int32"), values=array([1, -2, 3], "float32")), ["/csr/values/1"]),
    ("named", {"features": {}, "labels": []}, ["/labels"]),
    ("named", {"features": {}, "labels": [1, 2]}, ["/labels/1"]),
    ("named", {"features": {}, "labels": [1, 0], "ids": ["a"]}, ["/ids"]),
    ("named", {"features": {"v": []}, "labels": []}, ["/features/v"]),
    ("named", {"features": {7: [1]}, "labels": [1]}, ["/features"]),
    ("named", {"features": {"v": [1, 2], "c": [1]}, "labels": [1, 0]}, ["/features/c"]),
    ("named", {"features": {"v": 1}, "labels": [1]}, ["/features/v"]),
    (
        "named",
        {"features": {"v": [1, {}], "a/b": array([1, math.nan], "float32")}, "labels": [1, 0]},
        ["/features/v/1"],
    ),
    ("named", {"features": {"a/b": array([[1], [2]], "float32")}, "labels": [1, 0]}, ["/features/a~1b/shape"]),
    ("named", {"features": {"c": [["a"], ["b", None]]}, "labels": [1, 0]}, ["/features/c/1/1"]),
    ("named", {"features": {str(i): array([0] * 5000, "int8") for i in range(900)}, "labels": []}, ["/features"]),
    ("table", {"features": {"v": [1], "other": ["a"]}, "labels": [1]}, ["/features/other/0"]),
]


@pytest.mark.parametrize(
    ("kind", "members", "pointers"), REFUSED, ids=lambda item: item if isinstance(item, str) else ""
)
def test_each_fault_is_refused_with_a_pointer(kind, members, pointers):
    with pytest.raises(Invalid) as refused:
        msgpack_decode.decode_update(body(members), Config.of(LEARNERS[kind]))
    assert [problem.pointer for problem in refused.value.problems] == pointers
    assert all(problem.detail for problem in refused.value.problems)


def signalling(values: list[Any], dtype: str) -> dict[str, Any]:
    """Return an ARRAY whose NaNs are those that signal: arithmetic with them, and a cast, raise the invalid flag."""
    bits, word = ("<u4", 0x7FA00000) if dtype == "float32" else ("<u8", 0x7FF4000000000000)
    made = array(values, dtype)
    words = np.frombuffer(made["data"], bits).copy()
    words[np.isnan(np.array(values)).ravel()] = word
    return {**made, "data": words.tobytes()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
async def test_signalling_nans_become_nan_without_a_warning(dtype):
    async with client() as http:
        await http.put("/v1/learners/a", json=DENSE)
        await http.put("/v1/learners/s", json=LEARNERS["sparse"])
        bad = [
            ("a", {**GOOD, "x": signalling([[1, 2, math.nan], [4, 5, 6]], dtype)}, "/x/0/2"),
            ("a", {**GOOD, "weights": signalling([1, math.nan], dtype)}, "/weights/1"),
            ("a", {**GOOD, "labels": signalling([1, math.nan], dtype)}, "/labels/1"),
            ("s", csr(values=signalling([1, math.nan, 2], dtype)), "/csr/values/1"),
        ]
        for name, members, pointer in bad:
            reply = await http.post(f"/v1/learners/{name}/update", content=body(members), headers=HEADERS)
            assert reply.status_code == 422, reply.content
            assert [error["pointer"] for error in reply.json()["errors"]] == [pointer]
        timed = {**GOOD, "times": signalling([math.nan, 1.7e9], dtype)}
        reply = await http.post("/v1/learners/a/update", content=body(timed), headers=HEADERS)
        assert reply.status_code == 200, reply.content
        assert (await http.get("/v1/learners/a")).json()["events"] == 2


@pytest.mark.parametrize(
    ("kind", "members", "json_reply"),
    [
        ("dense", x(dtype="float16"), "'float16'.*float32, float64"),
        ("dense", x(shape=[-1, 3]), r"\[-1, 3\].* 2 "),
        ("dense", {**GOOD, "x": {"shape": [2, 3], "data": b""}}, "dtype, shape, data"),
        ("dense", {**GOOD, "source": {"name": "a"}}, "2\\^53"),
        ("dense", {**GOOD, "ids": {}}, "{}.*uint64, int64, int32"),
        (
            "sparse",
            csr(indptr=[0, 2, 3]),
            r"\[0, 2, 3\].*int32, int64",
        ),
    ],
)
def test_the_expected_type_is_reported(kind, members, json_reply):
    with pytest.raises(Invalid) as refused:
        msgpack_decode.decode_update(body(members), Config.of(LEARNERS[kind]))
    assert re.search(json_reply, refused.value.problems[0].detail)


@pytest.mark.parametrize("data", [b'{"events": []}', b' [{"x": [1, 2, 3]}]', b"{", b"[\n"])
def test_json_sent_as_messagepack_is_recognised(data):
    with pytest.raises((BadBody, Invalid)) as refused:
        msgpack_decode.decode_update(data, Config.of(DENSE))
    problems = getattr(refused.value, "problems", [])
    assert "JSON" in "".join([refused.value.detail, *(problem.detail for problem in problems)])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "int64", "uint64", "float32", "float64"])
def test_labels_of_any_dtype_and_integer_ids(dtype):
    config = Config.of(DENSE)
    read, _ = msgpack_decode.decode_update(body({**GOOD, "labels": array([1, 0], dtype)}), config)
    assert read.labels.tolist() == [1.0, -1.0]
    if dtype in ("int32", "int64", "uint64"):
        ids = array([5, 2**31 - 1], dtype)
        assert msgpack_decode.decode_update(body({**GOOD, "ids": ids}), config)[0].ids == ("5", "2147483647")
        assert msgpack_decode.decode_labels(body({"ids": ids, "labels": [1, 0]}), config)[0].ids == ("5", "2147483647")
    if dtype != "bool":
        weighted, _ = msgpack_decode.decode_update(body({**GOOD, "weights": array([2, 0], dtype)}), config)
        assert weighted.weights.tolist() == [2.0, 0.0]


def test_a_boolean_column_equals_a_list_of_booleans():
    config = Config.of(LEARNERS["named"])
    flags = {"dtype": "bool", "shape": [3], "data": b"\1\0\2"}  # whatever is not 0 is true
    read = [
        msgpack_decode.decode_update(body({"features": {"c": item, "v": [1, 2, 3]}, "labels": [1, 0, 1]}), config)[0]
        for item in (flags, [True, False, True])
    ]
    assert plain(read[0]) == plain(read[1])


@pytest.mark.parametrize(
    ("members", "pointers"),
    [
        ({"labels": [1]}, ["/ids"]),
        ({"ids": [], "labels": []}, ["/ids"]),
        ({"ids": [None, "a"], "labels": [1, 1]}, ["/ids/0"]),
        ({"ids": array([1], "float64"), "labels": [1]}, ["/ids/dtype"]),
        ({"ids": ["a"], "labels": [1], "x": GOOD["x"]}, ["/x"]),
        ({"ids": ["a"] * 100_001, "labels": [1]}, ["/ids"]),
    ],
)
def test_every_label_by_id_needs_an_id(members, pointers):
    with pytest.raises(Invalid) as refused:
        msgpack_decode.decode_labels(body(members), Config.of(DENSE))
    assert [problem.pointer for problem in refused.value.problems] == pointers


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x81",
        b"\xc1",
        b"\x80\x80",
        b"\x81\x80\x01",
        b"\x81\xa1\xff\x01",
        b"\x91" * 5000 + b"\xc0",
        b'{"events": []}',
    ],
)
def test_invalid_messagepack_is_a_bad_body(data):
    with pytest.raises(BadBody):
        msgpack_decode.decode_update(data, Config.of(DENSE))


BOMB = b"\xdd" + (2**20).to_bytes(4, "big") + b"\x90" * 2**20  # a list of lists: 64 times as large once it is decoded
PLAIN = b"\x82\xa5dtype\xa7float32\xa5shape" + BOMB


@pytest.mark.parametrize(
    ("kind", "data", "pointers"),
    [
        ("dense", BOMB, [""]),
        ("dense", b"\x81\xa3odd" + BOMB, ["/odd", "/x"]),
        ("dense", b"\x81\xa1x" + BOMB, ["/x"]),
        ("dense", b"\x81\xa1x" + PLAIN, ["/x/data"]),
        ("dense", b"\x81\xa1x\x83\xa4data\xc0" + PLAIN[1:], ["/x/shape"]),
        ("dense", body({**without("labels"), "labels": None})[:-1] + BOMB, ["/labels"]),
        ("dense", body({**GOOD, "source": None})[:-1] + BOMB, ["/source"]),
        ("dense", body({**without("ids"), "ids": None})[:-1] + BOMB, ["/ids"]),
        ("sparse", b"\x81\xa3csr\x81\xa6indptr" + BOMB, ["/csr/indptr", "/csr/indices", "/csr/values"]),
        ("named", b"\x81\xa8features\x81\xa1v" + BOMB, ["/features/v"]),
        ("named", b"\x81\xa8features" + BOMB, ["/features"]),
        (
            "named",
            b"\x81\xa8features\xdf\x00\x04\x00\x00"
            + b"".join(b"\xce%b\x01" % i.to_bytes(4, "big") for i in range(2**18)),
            ["/features"],
        ),
    ],
)
def test_refusing_a_body_needs_less_memory_than_the_body(kind, data, pointers):
    config = Config.of(LEARNERS[kind])
    tracemalloc.start()
    try:
        with pytest.raises(Invalid) as refused:
            msgpack_decode.decode_update(data, config)
        assert tracemalloc.get_traced_memory()[1] < 2**19
    finally:
        tracemalloc.stop()
    assert [problem.pointer for problem in refused.value.problems] == pointers


def test_a_non_scalar_entry_is_located_and_not_decoded():
    deep = [[[0] * 1000] * 1000]
    for name in ("labels", "weights", "ids"):
        with pytest.raises(Invalid) as refused:
            msgpack_decode.decode_update(body({**GOOD, name: [1, deep]}), Config.of(DENSE))
        (actual,) = refused.value.problems
        assert actual.pointer == f"/{name}/1"
    with pytest.raises(BadBody):
        msgpack_decode.decode_update(
            body({**GOOD, "ids": None}).replace(b"\xa3ids\xc0", b"\xa3ids\x92\x01\xa1\xff"), Config.of(DENSE)
        )


def test_the_number_of_body_members_is_limited():
    with pytest.raises(Invalid) as refused:
        msgpack_decode.decode_update(body({str(i): i for i in range(101)}), Config.of(DENSE))
    assert [each.pointer for each in refused.value.problems] == [""]


async def test_a_refused_body_changes_nothing():
    async with client() as http:
        await http.put("/v1/learners/a", json=DENSE)
        await http.post("/v1/learners/a/update", content=body(GOOD), headers=HEADERS)
        before = await state_of(http, "a")
        for members, status in ((x(shape=[3, 2]), 422), ({**GOOD, "labels": [1, 3]}, 422)):
            reply = await http.post("/v1/learners/a/update", content=body(members), headers=HEADERS)
            assert (reply.status_code, reply.headers["content-type"]) == (status, "application/problem+json")
        assert (await http.post("/v1/learners/a/update", content=b"\xc1", headers=HEADERS)).status_code == 400
        assert await state_of(http, "a") == before


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(), st.binary()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(), st.integers(0, 9)), inner, max_size=3),
    ),
    max_leaves=8,
)
odd_arrays = st.fixed_dictionaries(
    {
        "dtype": st.one_of(st.sampled_from(["float32", "float64", "int8", "int32", "int64", "uint64"]), anything),
        "shape": st.one_of(st.lists(st.integers(0, 3), max_size=3), anything),
        "data": st.one_of(st.binary(max_size=48), anything),
    }
)
odd_members = st.dictionaries(
    st.sampled_from(["x", "csr", "features", "labels", "weights", "times", "ids", "source"]),
    st.one_of(
        odd_arrays,
        anything,
        st.lists(st.one_of(st.none(), st.integers(0, 1), st.text(max_size=3)), max_size=3),
        st.fixed_dictionaries({"indptr": odd_arrays, "indices": odd_arrays, "values": odd_arrays}),
        st.dictionaries(st.text(max_size=3), st.one_of(odd_arrays, st.lists(anything, max_size=3)), max_size=2),
    ),
    max_size=5,
)


@pytest.mark.parametrize("kind", KINDS)
@given(members=st.one_of(odd_members, anything), cut=st.integers(0, 200))
@settings(max_examples=60)
def test_any_body_is_accepted_or_refused_with_a_pointer(kind, members, cut):
    for data in (body(members), body(members)[:cut]):
        for decode in (msgpack_decode.decode_update, msgpack_decode.decode_labels, msgpack_decode.decode_events):
            error = refusal(lambda decode=decode, data=data: decode(data, KINDS[kind]))
            assert error is None or error.problems or isinstance(error, BadBody)
            assert error is None or msgspec.json.encode(error.document())


def refusal(read: Any) -> Invalid | BadBody | None:
    try:
        read()
    except (Invalid, BadBody) as error:
        return error
    return None
