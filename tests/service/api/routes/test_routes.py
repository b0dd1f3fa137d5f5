"""The HTTP interface as its users see it: what each route answers, and how bad input is refused."""

from __future__ import annotations

import asyncio
import json
import math
import re
from typing import Any

import httpx
import pytest

from service.api.schemas import examples
from tests.harness.apps import DENSE, client, events
from tests.harness.msgpack_bodies import HEADERS, columns_of, unpacked
from tests.harness.msgpack_bodies import body as packed_body
from tests.service.engine.replica.test_served_events import FIELDS

URL = "/v1/learners/fraud"


@pytest.fixture
async def http():
    async with client(max_body_bytes=2**20) as item:
        await item.put(URL, json=DENSE)
        yield item


async def state_of(http: httpx.AsyncClient, url: str = URL) -> Any:
    return (await http.get(f"{url}/digest")).json()


# The normal course


async def test_create_is_idempotent_and_a_name_keeps_its_configuration(http):
    same = await http.put(URL, json={**DENSE, "scaling": {"kind": "standard"}})  # the default, written out
    other = await http.put(URL, json={**DENSE, "seed": 1})
    assert same.status_code == 200
    assert other.status_code == 409
    assert other.json()["code"] == "name-taken"
    assert (await http.put("/v1/learners/second", json=DENSE)).status_code == 201
    assert [learner["name"] for learner in (await http.get("/v1/learners")).json()["learners"]] == ["fraud", "second"]


async def test_a_taken_name_reports_the_conflicting_settings(http):
    await http.patch(URL, json={"threshold": {"objective": "fixed", "value": 0.25}, "late": {"label_ttl": 60}})
    reply = await http.put(URL, json=DENSE)
    document = reply.json()
    assert (reply.status_code, document["code"]) == (409, "name-taken")
    assert {error["pointer"]: (error["code"], error["expected"], error["value"]) for error in document["errors"]} == {
        "/threshold/objective": ("conflict", {"const": "fixed"}, "f1-window"),
        "/threshold/value": ("conflict", {"const": 0.25}, 0.5),
        "/late/label_ttl": ("conflict", {"const": 60.0}, 7776000.0),
    }
    other = {**DENSE, "algorithm": "cbr", "features": {"kind": "table", "fields": FIELDS}, "seed": 3}
    document = (await http.put(URL, json=other)).json()
    pointers = {error["pointer"] for error in document["errors"]}
    assert pointers >= {"/algorithm", "/features/kind", "/seed", "/threshold/objective"}
    assert "/features/dim" not in pointers  # a table has none
    table = {"algorithm": "cbr", "features": {"kind": "table", "fields": FIELDS}}
    assert (await http.put("/v1/learners/table", json=table)).status_code == 201
    table["features"] = {"kind": "table", "fields": [FIELDS[0], {**FIELDS[1], "categories": 9}]}
    document = (await http.put("/v1/learners/table", json=table)).json()
    (problem,) = document["errors"]
    assert (problem["pointer"], problem["value"], problem["expected"]) == (
        "/features/fields/1/categories",
        9,
        {"const": 4},
    )
    table["features"] = {"kind": "table", "fields": FIELDS[:1]}
    document = (await http.put("/v1/learners/table", json=table)).json()
    assert [error["pointer"] for error in document["errors"]] == ["/features/fields"]


async def test_update_returns_the_status_of_each_event(http):
    first = (await http.post(f"{URL}/update", json={"events": events(10)})).json()
    again = (await http.post(f"{URL}/update", json={"events": events(12)})).json()
    assert first["applied"] == 10
    assert first["class_counts"] == {"negative": 8, "positive": 2}
    assert [result["status"] for result in again["results"]] == ["duplicate"] * 10 + ["applied"] * 2
    assert again["results"][0] == {
        "id": "e0", "status": "duplicate", "score": None, "probability": None, "threshold": None, "decision": None
    }  # fmt: skip
    assert again["position"] == first["position"] + 1
    document = (await http.get(URL)).json()
    assert document["events"] == 12
    assert document["ready"]


async def test_predict_equals_the_scores_of_update_and_changes_nothing(http):
    await http.post(f"{URL}/update", json={"events": events(50)})
    before = await state_of(http)
    event = events(1, 60)[0]
    bare = {"x": event["x"]}
    document = (await http.post(f"{URL}/predict", json={"events": [bare, bare]})).json()
    assert await state_of(http) == before
    learnt = (await http.post(f"{URL}/update", json={"events": [event]})).json()
    for name in ("score", "probability", "threshold"):
        assert document["results"][0][name] == document["results"][1][name] == learnt["results"][0][name]
    assert document["results"][0]["label"] == learnt["results"][0]["decision"]
    assert document["ready"] is True
    assert document["stale_seconds"] == 0


async def test_a_learner_that_is_not_ready_makes_no_decisions(http):
    await http.post(f"{URL}/update", json={"events": [{"x": [0, 0, 0], "label": 0}]})
    document = (await http.post(f"{URL}/predict", json={"events": [{"x": [1, 2, 3]}]})).json()
    assert document["ready"] is False
    assert (document["results"][0]["label"], document["results"][0]["threshold"]) == (None, None)
    await http.post(f"{URL}/update", json={"events": [{"x": [1, 1, 1], "label": 1}]})
    document = (await http.post(f"{URL}/predict", json={"events": [{"x": [1, 2, 3]}]})).json()
    assert document["ready"] is True
    assert document["results"][0]["label"] in (0, 1)
    assert document["results"][0]["threshold"] is not None


async def test_a_learner_that_is_not_ready_has_no_threshold_unless_fixed(http):
    await http.post(f"{URL}/update", json={"events": [{"x": [0, 0, k], "label": 1} for k in range(2)]})
    report = [(await http.get(at)).json() for at in (URL, f"{URL}/metrics")]
    report += [(await http.get(f"/v1/learners{text}")).json()["learners"][0] for text in ("", "?figures=true")]
    report.append((await http.put(URL, json=DENSE)).json())
    assert [item["threshold"] for item in report] == [None] * 5
    changed = (await http.patch(URL, json={"threshold": {"objective": "recall", "target": 0.9}})).json()
    assert (changed["ready"], changed["threshold"]) == (False, None)
    changed = (await http.patch(URL, json={"threshold": {"objective": "fixed", "value": 0.25}})).json()
    assert (changed["ready"], changed["threshold"]) == (False, 0.25)
    await http.patch(URL, json={"threshold": {"objective": "f1"}})
    await http.post(f"{URL}/update", json={"events": [{"x": [1, 1, 1], "label": 0}]})
    report = [(await http.get(at)).json()["threshold"] for at in (URL, f"{URL}/metrics")]
    assert report[0] == report[1] is not None


async def test_a_source_resumes_exactly(http):
    source = {"name": "file.csv", "offset": 0}
    await http.post(f"{URL}/update", json={"events": events(10, ids=False), "source": source})
    overlapping = {"events": events(10, 5, ids=False), "source": {"name": "file.csv", "offset": 5}}
    reply = (await http.post(f"{URL}/update", json=overlapping)).json()
    assert (reply["applied"], reply["duplicate"]) == (5, 5)
    assert (await http.get(URL)).json()["sources"] == {"file.csv": 15}


@pytest.mark.parametrize("form", ["json", "msgpack"])
async def test_a_source_may_skip_numbers(http, form):
    await http.post(f"{URL}/update", json={"events": events(3, ids=False), "source": {"name": "t", "offset": 0}})

    async def learn(offsets, after=None):
        source = {"name": "t", "offsets": offsets, **({} if after is None else {"after": after})}
        value = events(len(offsets), ids=False)
        if form == "json":
            return await http.post(f"{URL}/update", json={"events": value, "source": source})
        packed = packed_body({**columns_of(value), "source": source})
        return await http.post(f"{URL}/update", content=packed, headers=HEADERS)

    message = unpacked if form == "msgpack" else httpx.Response.json
    assert (await learn([5, 9])).json()["code"] == "source-gap"  # 3 and 4 may have got lost
    learnt = message(await learn([5, 9, 10], after=3))
    assert (learnt["applied"], learnt["duplicate"]) == (3, 0)
    assert (await http.get(URL)).json()["sources"] == {"t": 11}
    again = message(await learn([9, 10, 14], after=5))
    assert (again["applied"], again["duplicate"]) == (1, 2)
    refused = await learn([17], after=16)
    assert (refused.status_code, refused.json()["code"]) == (409, "source-gap")
    assert (await http.get(URL)).json()["sources"] == {"t": 15}
    assert (await learn([4, 4])).json()["errors"][0]["pointer"] == "/source/offsets/1"


async def test_a_gap_in_a_source_is_refused(http):
    def body(offset: int) -> dict[str, Any]:
        return {"events": events(10, offset, ids=False), "source": {"name": "topic", "offset": offset}}

    await http.post(f"{URL}/update", json=body(100))  # a new source may begin anywhere
    early = await http.post(f"{URL}/update", json=body(120))
    assert (early.status_code, early.json()["code"]) == (409, "source-gap")
    assert (await http.get(URL)).json()["sources"] == {"topic": 110}
    for offset in (110, 120):
        assert (await http.post(f"{URL}/update", json=body(offset))).json()["applied"] == 10
    assert (await http.get(f"{URL}/metrics")).json()["duplicates"] == 0


async def test_every_null_metric_has_a_reason(http):
    empty = (await http.get(f"{URL}/metrics")).json()
    await http.post(f"{URL}/update", json={"events": [{"x": [0, 0, 0], "label": 0}]})
    one_class = (await http.get(f"{URL}/metrics")).json()
    for document in (empty, one_class):
        for scope in ("window", "since_start"):
            for name, value in document[scope].items():
                if name != "seconds":  # a setting
                    assert (value is None) == (f"/{scope}/{name}" in document["undefined"])
    assert empty["window"]["auc"] is None
    assert "positives" in one_class["undefined"]["/window/auc"]
    await http.post(f"{URL}/update", json={"events": events(200)})
    full = (await http.get(f"{URL}/metrics")).json()
    about = ("label_", "events_per_second", "alert_rate", "clock")  # no labels came late, and no event has a time
    assert all(at.rpartition("/")[2].startswith(about) for at in full["undefined"])
    assert full["window"]["events"] == 100
    assert (await http.get(f"{URL}/metrics/history")).json()["points"][0]["events"] == 64


async def test_restoring_a_snapshot_undoes_later_updates(http):
    await http.post(f"{URL}/update", json={"events": events(30)})
    snapshot = await http.post(f"{URL}/snapshots")
    at_snapshot = await state_of(http)
    await http.post(f"{URL}/update", json={"events": events(30, 30)})
    assert (await state_of(http))["digest"] != at_snapshot["digest"]
    position = snapshot.json()["position"]
    assert snapshot.status_code == 201
    assert (await http.get(f"{URL}/snapshots")).json()["snapshots"] == [snapshot.json()]
    restored = await http.post(f"{URL}/snapshots/{position}/restore")
    assert restored.status_code == 200
    assert (await state_of(http)) == {"position": restored.json()["position"], "digest": at_snapshot["digest"]}
    assert (await http.post(f"{URL}/snapshots/99/restore")).status_code == 404


async def test_delete_and_create_starts_from_scratch(http):
    fresh = await state_of(http)
    await http.post(f"{URL}/update", json={"events": events(5)})
    assert (await http.delete(URL)).status_code == 204
    assert (await http.get(URL)).status_code == 404
    assert (await http.post(f"{URL}/update", json={"events": events(5)})).json()["code"] == "unknown-learner"
    await http.put(URL, json=DENSE)
    assert await state_of(http) == fresh


async def test_the_catalogue_describes_every_parameter():
    async with client() as http:
        catalogue = (await http.get("/v1/algorithms")).json()
    assert {"cbr", "cbr-diag", "loam-ada", "fofo"} <= {algorithm["name"] for algorithm in catalogue["algorithms"]}
    for item in catalogue["algorithms"]:
        for schema in item["params"]["properties"].values():
            assert schema["description"]
            assert "default" in schema


async def test_the_catalogue_lists_the_defaults():
    async with client() as http:
        for item in (await http.get("/v1/algorithms")).json()["algorithms"]:
            assert ("named" in item["usual"], "dense" in item["usual"]) == (item["sparse"], item["dense"])
        made = (await http.put(URL, json={"algorithm": "lr", "features": {"kind": "named"}})).json()["config"]
        [lr] = [
            algorithm
            for algorithm in (await http.get("/v1/algorithms")).json()["algorithms"]
            if algorithm["name"] == "lr"
        ]
    assert lr["usual"]["named"] == {
        part: made[part] for part in made if part not in ("algorithm", "params", "features")
    }
    assert lr["usual"]["named"]["scaling"] == {"kind": "standard", "clip": 10.0, "outliers": "limited"}
    assert lr["usual"]["named"]["threshold"]["objective"] == "fixed"


@pytest.mark.parametrize("name", examples.CREATE)
async def test_the_documented_examples_work_as_printed(name):
    async with client() as http:
        assert (await http.put(URL, json=examples.CREATE[name])).status_code == 201
        assert (await http.post(f"{URL}/update", json=examples.UPDATE[name])).json()["duplicate"] == 0
        assert (await http.post(f"{URL}/predict", json=examples.PREDICT[name])).status_code == 200


async def test_openapi_has_examples_and_errors_for_every_body():
    async with client() as http:
        document = (await http.get("/openapi.json")).json()
    references = json.dumps(document).split('"$ref": "#/components/schemas/')[1:]
    assert {reference.partition('"')[0] for reference in references} <= set(document["components"]["schemas"])
    for path, verb in (("/v1/learners/{name}", "put"), ("/v1/learners/{name}/update", "post")):
        operation = document["paths"][path][verb]
        assert operation["requestBody"]["content"]["application/json"]["examples"]
        assert "application/problem+json" in operation["responses"]["422"]["content"]


async def test_the_interactive_page_loads_nothing_from_other_hosts():
    async with client() as http:
        page = (await http.get("/docs")).text
        linked = re.findall(r"""(?:src|href)=["']([^"']+)["']""", page)
        assert linked
        assert all(link.startswith("/") for link in linked), linked
        for link in linked:
            assert (await http.get(link)).status_code == 200
        assert (await http.get("/redoc")).status_code == 404  # whose script would ask another host


# Bad input


def body_of(event: dict[str, Any], **members: Any) -> str:
    return json.dumps({"events": [{"x": [1, 2, 3], "label": 1}, event], **members})


GOOD = {"x": [0.5, 0, 1], "label": 0}
BAD_UPDATES: dict[str, tuple[str, int, str]] = {
    "too few numbers": (body_of({**GOOD, "x": [1, 2]}), 422, "/events/1/x"),
    "too many numbers": (body_of({**GOOD, "x": [1, 2, 3, 4]}), 422, "/events/1/x"),
    "nan": (body_of({**GOOD, "x": [1, math.nan, 3]}), 422, "/events/1/x/1"),
    "infinity": (body_of({**GOOD, "x": [1, 2, math.inf]}), 422, "/events/1/x/2"),
    "minus infinity": (body_of({**GOOD, "x": [-math.inf, 2, 3]}), 422, "/events/1/x/0"),
    "overflowing literal": (body_of({**GOOD, "x": [1, 2, 3]}).replace("2", "1e999", 1), 422, "/events/0/x/1"),
    "huge but finite": (body_of({**GOOD, "x": [1e31, 2, 3]}), 422, "/events/1/x/0"),
    "huge whole number": (body_of({**GOOD, "x": [10**400, 2, 3]}), 422, "/events/1/x/0"),
    "a whole number beyond reading": (body_of(GOOD).replace("0.5", "9" * 5000), 400, ""),
    "string for a number": (body_of({**GOOD, "x": ["1", 2, 3]}), 422, "/events/1/x/0"),
    "boolean for a number": (body_of({**GOOD, "x": [True, 2, 3]}), 422, "/events/1/x/0"),
    "null for a number": (body_of({**GOOD, "x": [None, 2, 3]}), 422, "/events/1/x/0"),
    "nested list": (body_of({**GOOD, "x": [[1, 2, 3]]}), 422, "/events/1/x"),
    "no features": (body_of({"label": 1}), 422, "/events/1/x"),
    "another kind of features": (body_of({"features": {"a": 1}, "label": 1}), 422, "/events/1/features"),
    "two kinds of features": (body_of({**GOOD, "features": {"a": 1}}), 422, "/events/1/features"),
    "label 2": (body_of({**GOOD, "label": 2}), 422, "/events/1/label"),
    "label one half": (body_of({**GOOD, "label": 0.5}), 422, "/events/1/label"),
    "label as string": (body_of({**GOOD, "label": "1"}), 422, "/events/1/label"),
    "label null": (body_of({**GOOD, "label": None}), 422, "/events/1/label"),
    "label missing": (body_of({"x": [1, 2, 3]}), 422, "/events/1/label"),
    "unknown member": (body_of({**GOOD, "lable": 1}), 422, "/events/1/lable"),
    "weight negative": (body_of({**GOOD, "weight": -1}), 422, "/events/1/weight"),
    "weight nan": (body_of({**GOOD, "weight": math.nan}), 422, "/events/1/weight"),
    "weight huge": (body_of({**GOOD, "weight": 1e7}), 422, "/events/1/weight"),
    "time as text": (body_of({**GOOD, "time": "now"}), 422, "/events/1/time"),
    "time infinite": (body_of({**GOOD, "time": math.inf}), 422, "/events/1/time"),
    "id empty": (body_of({**GOOD, "id": ""}), 422, "/events/1/id"),
    "id too long": (body_of({**GOOD, "id": "x" * 257}), 422, "/events/1/id"),
    "id with a control character": (body_of({**GOOD, "id": "a\u0000b"}), 422, "/events/1/id"),
    "id with half a character": (body_of({**GOOD, "id": "\ud800"}), 422, "/events/1/id"),
    "id as list": (body_of({**GOOD, "id": [1]}), 422, "/events/1/id"),
    "id fractional": (body_of({**GOOD, "id": 1.5}), 422, "/events/1/id"),
    "label of 400 digits": (body_of({**GOOD, "label": 10**400}), 422, "/events/1/label"),
    "a member that is half a character": (body_of({**GOOD, "\ud800": 1}), 422, "/events/1/\\ud800"),
    "a member with a slash": (body_of({**GOOD, "a/b~c": 1}), 422, "/events/1/a~1b~0c"),
    "an odd member on top": (body_of(GOOD, **{"events/²": 1}), 422, "/events~1²"),
    "half a character on top": (body_of(GOOD, **{"\ud800": 1}), 422, "/\\ud800"),
    "half a character in the source": (
        body_of(GOOD, source={"name": "a", "offset": 0, "\ud800": 1}), 422, "/source/\\ud800"
    ),
    "too many events": ('{"events": [' + ",".join(["{}"] * 100_001) + "]}", 422, "/events"),
    "UTF-16": (body_of(GOOD).encode("utf-16"), 400, ""),
    "event not an object": ('{"events": [{"x": [1, 2, 3], "label": 1}, 7]}', 422, "/events/1"),
    "unknown member on top": (body_of(GOOD, source_name="a"), 422, "/source_name"),
    "source without offset": (body_of(GOOD, source={"name": "a"}), 422, "/source/offset"),
    "source offset negative": (body_of(GOOD, source={"name": "a", "offset": -1}), 422, "/source/offset"),
    "source offset and offsets": (body_of(GOOD, source={"name": "a", "offset": 1, "offsets": [1, 2]}), 422, "/source"),
    "too many offsets of a source": (body_of(GOOD, source={"name": "a", "offsets": [1, 2, 3]}), 422, "/source/offsets"),
    "not an offset": (body_of(GOOD, source={"name": "a", "offsets": [True, 1]}), 422, "/source/offsets/0"),
    "source after its offset": (body_of(GOOD, source={"name": "a", "offset": 1, "after": 2}), 422, "/source/after"),
    "source name too long": (body_of(GOOD, source={"name": "a" * 201, "offset": 0}), 422, "/source/name"),
    "no events": ('{"events": []}', 422, "/events"),
    "events missing": ("{}", 422, "/events"),
    "events not a list": ('{"events": {"x": [1]}}', 422, "/events"),
    "not an object": ("[1, 2]", 422, ""),
    "malformed": ('{"events": [', 400, ""),
    "empty": ("", 400, ""),
    "not UTF-8": (b'{"events": "\xff"}', 400, ""),
    "deep nesting": ("[" * 100_000, 400, ""),
    "deep nesting inside": ('{"events": ' + "[" * 900 + "]" * 900 + "}", 422, "/events/0"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_UPDATES)
async def test_an_invalid_update_is_refused_completely_with_a_pointer(http, case):
    body, status, pointer = BAD_UPDATES[case]
    await http.post(f"{URL}/update", json={"events": events(10)})
    before = await state_of(http)
    reply = await http.post(f"{URL}/update", content=body)
    problem = reply.json()
    assert reply.status_code == status, problem
    assert reply.headers["content-type"] == "application/problem+json"
    assert problem["status"] == status
    assert problem["request_id"] == reply.headers["x-request-id"]
    assert [error["pointer"] for error in problem["errors"]] == ([pointer] if status == 422 else [])
    assert await state_of(http) == before


async def test_every_invalid_event_is_listed_up_to_a_hundred(http):
    batch = events(300, ids=False)
    for i in range(0, 300, 2):
        batch[i]["x"] = [1.0]
    problem = (await http.post(f"{URL}/update", json={"events": batch})).json()
    assert [error["pointer"] for error in problem["errors"]] == [f"/events/{i}/x" for i in range(0, 200, 2)]


async def test_an_oversized_body_is_refused_by_its_length_or_while_reading(http):
    async def endless():
        for _ in range(1000):
            yield b" " * 10_000

    declared = await http.post(f"{URL}/update", content=b" " * (2**20 + 1))
    streamed = await http.post(f"{URL}/update", content=endless())
    for reply in (declared, streamed):
        assert reply.status_code == 413
        assert reply.json()["code"] == "too-large"


async def test_a_missing_body_times_out_and_its_space_is_freed():
    async def half():
        yield b'{"events": '
        await asyncio.sleep(60)

    async with client(body_seconds=0.05, max_buffered_bytes=1024) as http:
        await http.put(URL, json=DENSE)
        replies = await asyncio.gather(*(http.post(f"{URL}/update", content=half()) for _ in range(5)))
        assert {(reply.status_code, reply.json()["code"]) for reply in replies} == {(408, "too-slow")}
        assert (await http.post(f"{URL}/update", json={"events": events(3)})).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/csv"},
        {"content-type": "application/json; charset=utf-16"},
        {"content-type": "application/json", "content-encoding": "br"},
    ],
)
async def test_other_media_types_are_refused(http, headers):
    reply = await http.post(f"{URL}/update", content=b"a,b", headers=headers)
    assert reply.status_code == 415


BAD_CONFIGS: dict[str, tuple[Any, list[str]]] = {
    "unknown algorithm": ({**DENSE, "algorithm": "svm"}, ["/algorithm"]),
    "features missing": ({"algorithm": "cbr"}, ["/features"]),
    "unknown kind": ({**DENSE, "features": {"kind": "text"}}, ["/features/kind"]),
    "dim out of range": ({**DENSE, "features": {"kind": "dense", "dim": 0}}, ["/features/dim"]),
    "dim missing": ({**DENSE, "features": {"kind": "dense"}}, ["/features/dim"]),
    "bits out of range": ({**DENSE, "features": {"kind": "named", "bits": 40}}, ["/features/bits"]),
    "parameter out of range": ({"algorithm": "cbr", "features": DENSE["features"], "params": {"C": -1}}, ["/params/C"]),
    "parameter unknown": ({**DENSE, "params": {"gamma": 1}}, ["/params/gamma"]),
    "parameter of another type": ({**DENSE, "params": {"eta": "big"}}, ["/params/eta"]),
    "parameter nan": ({**DENSE, "params": {"eta": math.nan}}, ["/params/eta"]),
    "several": (
        {**DENSE, "params": {"eta": -1}, "scaling": {"kind": "odd"}, "window": 0},
        ["/window", "/params/eta", "/scaling/kind"],
    ),
    "unknown setting": ({**DENSE, "windw": 5}, ["/windw"]),
    "sparse rows for cbr": ({"algorithm": "cbr", "features": {"kind": "named"}}, ["/features/kind"]),
    "too many columns for cbr": ({"algorithm": "cbr", "features": {"kind": "dense", "dim": 9999}}, ["/features"]),
    "not an object": ([1], [""]),
    "eta one half": ({"algorithm": "cbr", "features": DENSE["features"], "params": {"eta": 0.5}}, ["/params/eta"]),
    "too large buffers": (
        {"algorithm": "cbr-diag", "features": {"kind": "dense", "dim": 100_000}, "params": {"capacity": 1000}},
        ["/params/capacity"],
    ),
    "too many text fields": (
        {"algorithm": "fofo", "features": {"kind": "named", "text": [f"f{i}" for i in range(257)]}},
        ["/features/text"],
    ),
    "table without fields": ({"algorithm": "cbr", "features": {"kind": "table", "fields": []}}, ["/features/fields"]),
}


@pytest.mark.parametrize("case", BAD_CONFIGS)
async def test_an_invalid_configuration_is_refused_with_every_pointer(http, case):
    config, pointers = BAD_CONFIGS[case]
    reply = await http.put("/v1/learners/new", content=json.dumps(config))
    assert reply.status_code == 422
    assert sorted(error["pointer"] for error in reply.json()["errors"]) == sorted(pointers)
    assert (await http.get("/v1/learners/new")).status_code == 404


@pytest.mark.parametrize("name", ["a%2Fb", "a/b", "-a", ".hidden", "a b", "é", "a" * 101, "%00", ".."])
async def test_invalid_names_are_refused(http, name):
    reply = await http.put(f"/v1/learners/{name}", json=DENSE)
    assert 400 <= reply.status_code < 500
    assert reply.headers["content-type"] == "application/problem+json"
    assert len((await http.get("/v1/learners")).json()["learners"]) == 1


async def test_an_invalid_name_and_invalid_settings_are_reported_together(http):
    wrong = {**DENSE, "params": {"eta": -1}, "window": 0}
    reply = await http.put("/v1/learners/a b", json=wrong)
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid")
    assert [error["pointer"] for error in reply.json()["errors"]] == ["/name", "/params/eta", "/window"]
    reply = await http.put("/v1/learners/a b", json=DENSE)
    assert reply.json()["code"] == "invalid"
    assert [error["pointer"] for error in reply.json()["errors"]] == ["/name"]
    reply = await http.put("/v1/groups/ ", json={"learners": ["fraud"]})
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid")
    assert [error["pointer"] for error in reply.json()["errors"]] == ["/name", "/learners"]


async def test_at_most_a_hundred_problems_are_listed_starting_with_the_name(http):
    many = {f"x{i}": 1 for i in range(300)}
    for path, wrong in (
        ("learners/a b", {**DENSE, **many}),
        ("learners/a b", {**DENSE, "params": many, "scaling": many}),
        ("learners/a b", {**DENSE, "features": {"kind": "table", "fields": [{}] * 300}}),
        ("groups/a b", {"learners": ["fraud", "other"], **many}),
    ):
        errors = (await http.put(f"/v1/{path}", json=wrong)).json()["errors"]
        assert (len(errors), errors[0]["pointer"]) == (100, "/name")
    errors = (await http.put("/v1/groups/a b", json={"learners": ["a b"] * 300})).json()["errors"]
    pointers = ["/name", "/learners", *(f"/learners/{i}" for i in range(8))]
    assert [error["pointer"] for error in errors] == pointers
    errors = (await http.patch("/v1/learners/fraud", json={"late": many})).json()["errors"]
    assert [error["pointer"] for error in errors] == [f"/late/x{i}" for i in range(100)]
    body = {"events": [{"x": 1}] * 300, **many}
    assert len((await http.post("/v1/learners/fraud/update", json=body)).json()["errors"]) == 100


async def test_a_slash_in_a_name_is_located(http):
    for path in ("learners/a/b", "learners/a%2Fb", "groups/a%2fb"):
        document = (await http.put(f"/v1/{path}", json=DENSE)).json()
        assert [error["pointer"] for error in document["errors"]] == ["/name"]
    for reply in (await http.delete("/v1/learners/a/b"), await http.get("/v1/learners/a%2Fb")):
        assert (reply.status_code, reply.json()["errors"]) == (404, document["errors"])


async def test_an_event_too_long_for_the_buffers_is_refused(http):
    sparse = {"algorithm": "cbr-diag", "features": {"kind": "sparse", "dim": 5000}, "params": {"capacity": 1000}}
    await http.put("/v1/learners/wide", json=sparse)
    made = [{"indices": list(range(n)), "values": [1.0] * n, "label": 1} for n in (10, 1049)]
    reply = await http.post("/v1/learners/wide/update", json={"events": made})
    assert reply.status_code == 422
    assert [error["pointer"] for error in reply.json()["errors"]] == ["/events/1"]


async def test_unknown_paths_and_methods_return_problem_documents(http):
    for method, path in (
        ("GET", "/v1/nothing"),
        ("GET", "/v1/learners/fraud/metrcs"),
        ("POST", "/v1/learners/fraud/snapshots/1/load"),
        ("PUT", "/nothing/of/ours"),
        ("GET", f"/{'long' * 100}"),
    ):
        missing = await http.request(method, path)
        document = missing.json()
        assert (missing.status_code, document["code"], document["errors"]) == (404, "not-found", [])
        assert len(document["detail"]) < 300
    wrong = await http.delete("/v1/learners")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method-not-allowed")
    assert wrong.headers["allow"] == "GET, HEAD"
    wrong = await http.post("/v1/learners/fraud", json={})
    assert wrong.headers["allow"].split(", ") == ["DELETE", "GET", "HEAD", "PATCH", "PUT"]
    for path, takes in (("/", "GET, HEAD"), ("/metrics", "GET, HEAD")):
        wrong = await http.put(path)
        assert (wrong.status_code, wrong.headers["allow"]) == (405, takes)


@pytest.mark.parametrize(
    ("method", "path", "documented_bounds"),
    [
        ("GET", "/v1/learners", "figures or limit or cursor"),
        ("GET", "/v1/health/ready", ""),
        ("GET", "/v1/algorithms", "limit or cursor"),
        ("PUT", URL, ""),
        ("DELETE", URL, ""),
        ("POST", f"{URL}/update", ""),
        ("POST", f"{URL}/predict", "explain or at_least"),
        ("GET", f"{URL}/metrics/stream", ""),
        ("GET", "/v1/stream", "learners"),
        ("GET", f"{URL}/metrics/curves", "points"),
        ("GET", f"{URL}/alarms", "since or limit or cursor or at_least"),
        ("GET", "/v1/groups/any/compare", ""),
    ],
)
async def test_unknown_query_parameters_are_refused(http, method, path, documented_bounds):
    before = await state_of(http)
    reply = await http.request(method, path, params={"a/b": "1", "Explain": ""}, json={"events": []})
    expected = {"enum": documented_bounds.split(" or ") if documented_bounds else []}
    document = reply.json()
    assert (reply.status_code, document["code"]) == (422, "invalid")
    assert reply.headers["content-type"] == "application/problem+json"
    assert [(error["pointer"], error["code"], error["expected"]) for error in document["errors"]] == [
        ("/a~1b", "unknown", expected),
        ("/Explain", "unknown", expected),
    ]
    assert await state_of(http) == before


async def test_a_repeated_query_parameter_is_refused(http):
    reply = await http.get(f"{URL}/metrics/history?step=1&step=2&by=events")
    assert reply.status_code == 422
    (problem,) = reply.json()["errors"]
    assert (problem["pointer"], problem["code"]) == ("/step", "conflict")


async def test_all_known_query_parameters_are_listed_and_accepted(http):
    reply = await http.get(f"{URL}/metrics/history?form=1")
    (problem,) = reply.json()["errors"]
    assert problem["pointer"] == "/form"
    names = problem["expected"]["enum"]
    assert {"from", "to", "step", "by"} <= set(names)
    documented = (await http.get("/openapi.json")).json()["paths"]["/v1/learners/{name}/metrics/history"]["get"]
    assert sorted(names) == sorted(
        parameter["name"] for parameter in documented["parameters"] if parameter["in"] == "query"
    )
    for query in ("from=1&to=5", "step=2&by=events", ""):
        assert (await http.get(f"{URL}/metrics/history?{query}")).status_code == 200
    many = await http.get(URL, params={f"p{i}": 1 for i in range(1000)})
    assert len(many.json()["errors"]) == 100


@pytest.mark.parametrize("path", ["/metrics", "/", "/static/app.js"])
async def test_pages_outside_the_api_accept_any_parameters(http, path):
    assert (await http.get(f"{path}?utm_source=mail")).status_code == 200


async def test_the_number_of_learners_is_limited():
    async with client(max_learners=1) as http:
        await http.put(URL, json=DENSE)
        reply = await http.put("/v1/learners/second", json=DENSE)
    assert (reply.status_code, reply.json()["code"]) == (409, "limit-reached")


async def test_a_full_queue_answers_429_and_applies_nothing():
    async with client(queue_bytes=1024, record_events=1) as http:
        await http.put(URL, json=DENSE)
        batches = [{"events": events(1, i)} for i in range(50)]
        replies = await asyncio.gather(*(http.post(f"{URL}/update", json=batch) for batch in batches))
        refused = [reply for reply in replies if reply.status_code == 429]
        assert refused
        assert {reply.status_code for reply in replies} == {200, 429}
        assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
        learnt = (await http.get(URL)).json()["events"]
        assert learnt == 50 - len(refused)
        for batch in batches:  # the retry that the answer asks for
            assert (await http.post(f"{URL}/update", json=batch)).status_code == 200
        assert (await http.get(URL)).json()["events"] == 50


async def test_the_bytes_of_unanswered_requests_are_limited():
    padding = " " * 30_000
    async with client(max_buffered_bytes=50_000, record_events=1) as http:
        await http.put(URL, json=DENSE)
        bodies = [json.dumps({"events": events(1, i)}) + padding for i in range(20)]
        replies = await asyncio.gather(*(http.post(f"{URL}/update", content=body) for body in bodies))
        assert {reply.status_code for reply in replies} == {200, 429}
        for body in bodies:  # nothing is held once everything is answered
            assert (await http.post(f"{URL}/update", content=body)).status_code == 200
        assert (await http.get(URL)).json()["events"] == 20


async def test_a_request_id_of_the_client_is_returned(http):
    value = await http.get("/v1/health/live", headers={"x-request-id": "abc-123"})
    odd = await http.get("/v1/health/live", headers={"x-request-id": "x" * 65})
    assert value.headers["x-request-id"] == "abc-123"
    assert odd.headers["x-request-id"] != "x" * 65
