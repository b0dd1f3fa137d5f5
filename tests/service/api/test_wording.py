"""The words of HTTP problems and of websocket errors. All other tests look at codes, pointers and statuses only.

A changed sentence changes one row here. Rows are read top down; a row with the request, then the expected words.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import httptools
import msgspec
import numpy as np
import pytest

from learners.config import Config
from learners.learner import Learner
from service.engine.records.codec import Created, pack_record, pack_snapshot
from service.errors import Invalid, ServiceError
from service.server.bad_request import no_request
from service.storage.memory import MemoryStore
from service.wire import msgpack_decode
from service.wire.msgpack_bounds import glance
from tests.harness.apps import DENSE, client, events
from tests.harness.keyring import Keyring, create_learners, keyed
from tests.harness.msgpack_bodies import HEADERS as MSGPACK
from tests.harness.msgpack_bodies import body
from tests.harness.nodes import app_over, node, serving
from tests.harness.websocket import Gated, websocket
from tests.service.api.test_msgpack_bodies import GOOD, LEARNERS, csr, x
from tests.service.api.websocket.test_websocket import SINGLE, updates
from tests.service.api.websocket.test_websocket import serving as serving_app
from tests.service.engine.replica.test_group import MEMBERS, labelled
from tests.service.engine.replica.test_served_events import SETUPS
from tests.service.server.test_ws_protocol import BAD, read_of

TITLES = {
    "acknowledged": "The alarm is acknowledged already",
    "bad-body": "Malformed body",
    "bad-request": "Malformed HTTP request",
    "behind": "This node is behind",
    "beyond-log": "The log is shorter",
    "damaged": "Stored data is damaged",
    "forbidden": "The key does not permit this",
    "foreign-host": "The request is for another host",
    "foreign-origin": "The page has another origin",
    "gone": "The client went away",
    "head-too-large": "The request headers are too large",
    "host-unavailable": "The learner's node does not respond",
    "internal": "Internal error",
    "invalid": "Invalid values",
    "limit-reached": "A limit is reached",
    "name-taken": "The name is already in use",
    "not-acceptable": "No reply has an accepted type",
    "not-found": "No such path",
    "queue-full": "The learner's queue is full",
    "rate-limited": "The key exceeds its rate limit",
    "source-gap": "Events of the source are missing",
    "stopping": "This node is shutting down",
    "store-full": "The store is full",
    "store-unavailable": "The store is unavailable",
    "too-large": "The body is too large",
    "too-many-failures": "Too many wrong keys",
    "too-many-streams": "Too many streams are open",
    "too-slow": "The body did not arrive in time",
    "unauthorized": "A valid API key is required",
    "unknown-alarm": "No such alarm",
    "unknown-event": "No such event",
    "unknown-group": "No such group",
    "unknown-learner": "No such learner",
    "unknown-snapshot": "No such snapshot",
    "unsupported-type": "The media type is not supported",
    "upgrade-required": "This path is a websocket",
    "vanished": "The store lost the learner",
}


def subclasses(error: type[ServiceError]) -> set[type[ServiceError]]:
    """Collect an error class and everything below it."""
    return {error}.union(*(subclasses(each) for each in error.__subclasses__() if each.__module__[:7] == "service"))


def test_every_code_has_one_title() -> None:
    assert {(error.code, error.title) for error in subclasses(ServiceError)} == set(TITLES.items())


FRAUD = "/v1/learners/fraud"
ROW = {"x": [1, 2, 3], "label": 1}
PREDICT = {"json": {"events": [{"x": [1, 2, 3]}]}}
NDJSON = {"content-type": "application/x-ndjson"}
GZIP, ZSTD = ({"content-type": "application/json", "content-encoding": name} for name in ("gzip", "zstd"))
WIDE = b"(\xb5/\xfd\x00\x88U\x00\x00\x18abc\x01\x00&\xaan\x08"  # a frame of Zstandard that may look back on 128 MiB
BEARER = "send it as `Authorization: Bearer KEY`, never in the URL"
NAME = "expected 1 to 100 of letters, digits, '.', '_', '-', a letter or digit first"

Row = tuple[str, str, dict[str, Any], int, str, str, dict[str, str]]


def update(**members: Any) -> dict[str, Any]:
    """Return the arguments of a request that has a JSON object as its body."""
    return {"json": members}


def event(**members: Any) -> dict[str, Any]:
    """Return the arguments of an update with one event."""
    return update(events=[{**ROW, **members}])


# method, path, arguments; status, code, detail, and what `errors` say at each pointer
PROBLEMS: list[Row] = [
    # paths and queries
    ("GET", "/v1/nothing", {}, 404, "not-found", "there is no path /v1/nothing; the API is described at /docs", {}),
    (
        "POST", FRAUD, {}, 405, "method-not-allowed",
        "POST is no method of this path; it takes DELETE, GET, HEAD, PATCH, PUT", {},
    ),
    ("GET", "/problems/nothing", {}, 404, "not-found", "no problem has this code; /problems lists all", {}),
    (
        "PUT", "/v1/learners/a/b", update(**DENSE), 404, "not-found",
        "there is no path /v1/learners/a/b; the API is described at /docs",
        {"/name": "a name of a learner or group holds no slash"},
    ),
    (
        "GET", f"{FRAUD}?form=1", {}, 422, "invalid", "the query is refused",
        {"/form": "unknown query parameter; expected at_least"},
    ),
    (
        "GET", "/v1/health/ready?form=1", {}, 422, "invalid", "the query is refused",
        {"/form": "unknown query parameter; this endpoint accepts none"},
    ),
    (
        "GET", f"{FRAUD}?key=rs_a_b", {}, 422, "invalid", "the query is refused",
        {
            "/key": "API keys are not accepted in the URL, where logs would record them; "
            "send `Authorization: Bearer KEY`"
        },
    ),
    *(
        (
            "POST", f"{FRAUD}/predict?explain={value}", PREDICT, 422, "invalid", "the query is refused",
            {"/explain": f"is '{value}'; expected a whole number from 1 to 1000"},
        )
        for value in ("0", "1001", "many", "", "2.0")
    ),
    (
        "POST", f"{FRAUD}/predict?explain=2&explain=3", PREDICT, 422, "invalid", "the query is refused",
        {"/explain": "is given 2 times; expected once"},
    ),
    ("GET", "/v1/ws", {}, 426, "upgrade-required", "this path is a websocket: connect to it as ws:// or wss://", {}),
    # names
    ("GET", "/v1/learners/nobody", {}, 404, "unknown-learner", "there is no learner named nobody", {}),
    ("GET", "/v1/groups/nobody", {}, 404, "unknown-group", "there is no group named nobody", {}),
    (
        "POST", f"{FRAUD}/snapshots/99/restore", {}, 404, "unknown-snapshot",
        "fraud has no snapshot at position 99", {},
    ),
    (
        "POST", f"{FRAUD}/alarms/3/acknowledge", update(), 404, "unknown-alarm",
        "fraud has no alarm 3 among its last ones", {},
    ),
    (
        "POST", f"{FRAUD}/alarms/3/acknowledge", update(note=" \a"), 422, "invalid",
        "the acknowledgement is refused; nothing was noted", {"/note": "has control characters"},
    ),
    (
        "POST", f"{FRAUD}/annotations", update(text=" ", by="x" * 101), 422, "invalid",
        "the annotation is refused; nothing was noted",
        {"/text": "is blank", "/by": "has 101 characters; expected at most 100"},
    ),
    (
        "GET", f"{FRAUD}/events/nobody", {}, 404, "unknown-event",
        "an event of this id was not scored, or was scored long ago", {},
    ),
    ("PUT", "/v1/learners/a b", update(**DENSE), 422, "invalid", "the name is invalid", {"/name": f"is 'a b'; {NAME}"}),
    (
        "PUT", "/v1/learners/a b", update(**{**DENSE, "window": 0}), 422, "invalid",
        "the name and the configuration are refused; nothing was created",
        {"/name": f"is 'a b'; {NAME}", "/window": "is 0; expected at least 1"},
    ),
    (
        "PUT", "/v1/groups/ ", update(learners=["fraud"]), 422, "invalid",
        "the name and the group are refused; nothing was created",
        {"/name": f"is ' '; {NAME}", "/learners": "has 1 name; expected 2 to 8"},
    ),
    # configurations
    (
        "PUT", FRAUD, update(**{**DENSE, "window": 50, "late": {"label_ttl": 60}}), 409, "name-taken",
        "fraud exists with another configuration; delete it first, or choose another name",
        {
            "/window": "is 100; this request, with its defaults, would make it 50",
            "/late/label_ttl": "is 7776000.0; this request, with its defaults, would make it 60.0",
        },
    ),
    (
        "PUT", FRAUD, update(**{**DENSE, "late": {"label_ttl": 60}}), 409, "name-taken",
        "fraud exists with another configuration; PATCH changes these settings",
        {"/late/label_ttl": "is 7776000.0; this request, with its defaults, would make it 60.0"},
    ),
    (
        "PUT", "/v1/learners/new", update(**{**DENSE, "scaling": {"kind": "odd"}}), 422, "invalid",
        "the configuration is refused; nothing was created",
        {"/scaling/kind": "is 'odd'; expected one of none, unit, standard, maxabs"},
    ),
    (
        "PUT", "/v1/learners/full", update(**DENSE), 409, "limit-reached",
        "this node has 2 learners and groups, its limit", {},
    ),
    # bodies
    (
        "POST", f"{FRAUD}/update", {"content": b'{"events": ['}, 400, "bad-body",
        "the body is not JSON: Expecting value at line 1, column 13", {},
    ),
    ("POST", f"{FRAUD}/update", {"content": b'{"\xff"}'}, 400, "bad-body", "the body is not UTF-8: byte 2", {}),
    (
        "POST", f"{FRAUD}/update", {"content": b"[1]"}, 422, "invalid", "the body is not an object",
        {"": "is [1]; expected an object"},
    ),
    (
        "POST", f"{FRAUD}/update", update(events=[]), 422, "invalid", "the body has no events",
        {"/events": "is []; expected a list of at least one event"},
    ),
    (
        "POST", f"{FRAUD}/update", update(events=[ROW], surplus=1), 422, "invalid", "refused the body",
        {"/surplus": "unknown member; expected one of events, source"},
    ),
    (
        "POST", f"{FRAUD}/update", {"content": b" " * (2**20 + 1)}, 413, "too-large",
        "the body has 1048577 bytes; at most 1048576 are taken: send smaller batches", {},
    ),
    (
        "POST", f"{FRAUD}/update", {"content": b"{}", "headers": {"content-type": "text/csv"}}, 415, "unsupported-type",
        "the body is text/csv; expected one of application/json, application/msgpack, application/x-ndjson, "
        "text in UTF-8", {},
    ),
    (
        "POST", f"{FRAUD}/update",
        {"content": b"{}", "headers": [("content-encoding", "identity"), ("content-encoding", "br")]},
        415, "unsupported-type",
        "the body's Content-Encoding is identity,br; expected one of identity, gzip, zstd", {},
    ),
    (
        "POST", f"{FRAUD}/update",
        {"content": b"{}", "headers": {"content-type": "application/x-www-form-urlencoded"}}, 415, "unsupported-type",
        "the body is application/x-www-form-urlencoded; expected one of application/json, application/msgpack, "
        "application/x-ndjson, text in UTF-8; curl -d says so unless it is given -H 'content-type: application/json'",
        {},
    ),
    (
        "POST", f"{FRAUD}/update", {"content": b"nonsense", "headers": GZIP}, 400, "bad-body",
        "the body is not gzip: Error -3 while decompressing data: incorrect header check", {},
    ),
    (
        "POST", f"{FRAUD}/update", {"content": gzip.compress(b"{}") + b"nonsense", "headers": GZIP},
        400, "bad-body",
        "what follows the end of the gzip stream is not gzip: "
        "Error -3 while decompressing data: incorrect header check",
        {},
    ),
    (
        "POST", f"{FRAUD}/update", {"content": gzip.compress(b"", mtime=0) * 10_001, "headers": GZIP}, 400, "bad-body",
        "over 10000 parts of the gzip stream, one after the other, hold nothing", {},
    ),
    (
        "POST", f"{FRAUD}/update", {"content": WIDE, "headers": ZSTD}, 400, "bad-body",
        "the zstd window is over 8 MiB; compress without --long and --ultra", {},
    ),
    (
        "PUT", "/v1/learners/new", {"content": b'{"a": 1, "b": 2, "a": 1}'}, 400, "bad-body",
        "the body has an object with the member 'a' more than once", {},
    ),
    (
        "POST", f"{FRAUD}/predict", {**PREDICT, "headers": {"accept": "text/csv"}}, 406, "not-acceptable",
        "the request accepts text/csv; this reply is written as one of application/json, application/msgpack", {},
    ),
    (
        "POST", f"{FRAUD}/update", {"content": b'{"x": nothing}\n', "headers": NDJSON}, 400, "bad-body",
        "a line is not JSON", {"/lines/1": "is not JSON: Expecting value at column 7"},
    ),
    (
        "POST", f"{FRAUD}/update", {"content": b"\n", "headers": NDJSON}, 422, "invalid",
        "the body has no lines", {"/lines": "is empty; expected at least one event"},
    ),
    (
        "POST", f"{FRAUD}/update", {"content": b'{"events": []}', "headers": MSGPACK}, 400, "bad-body",
        "the body is not MessagePack: MessagePack data is malformed: trailing characters (byte 1); "
        "it looks like JSON, whose Content-Type is application/json", {},
    ),
    (
        "POST", "/v1/learners/new/import",
        {"content": b"x", "headers": {"content-type": "application/octet-stream"}}, 422, "invalid",
        "the file is cut short: 1 bytes; nothing was created. Expected a file of GET /v1/learners/NAME/export", {},
    ),
    # events
    (
        "POST", f"{FRAUD}/update", event(label=2), 422, "invalid", "refused the event",
        {"/events/0/label": "is 2; expected -1, 0 or 1, or a boolean"},
    ),
    (
        "POST", f"{FRAUD}/update", PREDICT, 422, "invalid", "refused the event",
        {"/events/0/label": "is missing; expected -1, 0 or 1, or a boolean"},
    ),
    (
        "POST", "/v1/learners/ranks/update", event(label=4), 422, "invalid", "refused the event",
        {"/events/0/label": "is 4; expected a rank: a whole number from 1 to 3"},
    ),
    (
        "POST", f"{FRAUD}/update", event(x=[1]), 422, "invalid", "refused the event",
        {"/events/0/x": "has 1 numbers; expected 3"},
    ),
    (
        "POST", f"{FRAUD}/update", event(lable=1), 422, "invalid", "refused the event",
        {"/events/0/lable": "unknown member; expected one of id, label, time, weight, x"},
    ),
    (
        "POST", f"{FRAUD}/update", update(events=[{**ROW, "x": [1]}] * 300), 422, "invalid",
        "refused at least 100 of 300 events",
        {f"/events/{i}/x": "has 1 numbers; expected 3" for i in range(100)},
    ),
    (
        "POST", f"{FRAUD}/update", update(events=[ROW], source={"name": "t", "offset": 20}), 409, "source-gap",
        "the source 't' goes on at 10, not at 20; nothing of the request was learnt", {},
    ),
    (
        "POST", "/v1/learners/ranks/predict?explain=1", PREDICT, 422, "invalid",
        "the explanation is refused; nothing was served",
        {"": "explanations are for learners of two classes; npsvor predicts ranks"},
    ),
    # limits and positions
    ("GET", f"{FRAUD}/metrics/stream", {}, 429, "too-many-streams", "0 streams are open, this node's limit", {}),
    (
        "GET", f"{FRAUD}?at_least=99", {}, 409, "beyond-log",
        "this node has applied fraud up to position 3, not 99, within 0.01 s: the log has no such position", {},
    ),
]  # fmt: skip


async def test_wording_of_http_problems() -> None:
    ranks = {"algorithm": "npsvor", "params": {"ranks": 3}, "features": DENSE["features"]}
    async with client(max_body_bytes=2**20, max_learners=2, max_streams=0, at_least_seconds=0.01) as http:
        for path, config in ((FRAUD, DENSE), ("/v1/learners/ranks", ranks)):
            reply = await http.put(path, json=config)
            assert reply.status_code == 201, reply.text
        await http.post(f"{FRAUD}/update", json={"events": [ROW], "source": {"name": "t", "offset": 9}})
        actual = []
        for method, path, arguments, *_ in PROBLEMS:
            reply = await http.request(method, path, **arguments)
            actual.append((method, path, arguments, *words(reply.json())))
        compare(actual, PROBLEMS)


def words(problem: dict[str, Any]) -> tuple[int, str, str, dict[str, str]]:
    """Return status, code and words of a problem document, and check its title."""
    framework = {"not-found": "Not Found", "method-not-allowed": "Method Not Allowed"}  # of a path or method
    assert problem["title"] in (TITLES.get(problem["code"]), framework.get(problem["code"]))
    return (
        problem["status"],
        problem["code"],
        problem["detail"],
        {each["pointer"]: each["detail"] for each in problem["errors"]},
    )


def compare(detail: list[Any], expected: list[Any]) -> None:
    """Compare row by row, and show all that differ."""
    pairs = zip(detail, expected, strict=True)
    differences = [f"{row}, expected {expected_row[-4:]}" for row, expected_row in pairs if row != expected_row]
    assert not differences, "\n".join(differences)


KEYS: dict[str, dict[str, Any]] = {
    "root": {"scopes": ["admin"]},
    "reader": {"scopes": ["read"]},
    "slow": {"scopes": ["read"], "requests_per_second": 1.0},
    "few": {"scopes": ["update"], "events_per_second": 0.1},
    "team": {"scopes": ["admin"], "pattern": "t-*", "body_bytes": 300, "dimensions": 3, "remembered_events": 1000},
    "full": {"scopes": ["admin"], "pattern": "t-*", "learners": 1},
}
SMALL = {**DENSE, "late": {"max_events": 1000}}

# key, method, path, arguments; status, code, detail, and what `errors` say at each pointer
KEYED: list[tuple[str | None, *Row]] = [
    (None, "GET", "/learners", {}, 401, "unauthorized", f"an API key is required: {BEARER}", {}),
    (
        None, "GET", "/learners", {"headers": {"Authorization": "Bearer rs_a_b"}}, 401, "unauthorized",
        "the API key is unknown, revoked or expired", {},
    ),
    (
        None, "GET", "/learners", {"headers": {"Authorization": "Basic rs_a_b"}}, 401, "unauthorized",
        f"the Authorization header is not a single bearer key: {BEARER}", {},
    ),
    (
        "reader", "DELETE", "/learners/t-a", {}, 403, "forbidden", "the admin scope is required; the key has read", {},
    ),
    ("team", "GET", "/learners/spam", {}, 404, "unknown-learner", "there is no learner named spam", {}),
    (
        "team", "PUT", "/learners/b", update(**DENSE), 403, "forbidden",
        "the key only permits names like t-*; nothing was created", {},
    ),
    (
        "team", "POST", "/learners/t-a/clone", update(to="b"), 403, "forbidden",
        "the key only permits names like t-*; nothing was created", {},
    ),
    (
        "team", "POST", "/learners/t-a/update", update(events=[{**ROW, "id": "l" * 300}]), 413, "too-large",
        "the body has 344 bytes; at most 300 are taken: send smaller batches", {},
    ),
    (
        "team", "PUT", "/learners/t-b", update(**{**SMALL, "features": {"kind": "dense", "dim": 4}}), 422, "invalid",
        "the configuration exceeds the limits of the key",
        {"/features": "results in 4; the key's limit dimensions is 3"},
    ),
    (
        "team", "PUT", "/learners/t-b", update(**DENSE), 422, "invalid",
        "the configuration exceeds the limits of the key",
        {"/late/max_events": "results in 1000000; the key's limit remembered_events is 1000"},
    ),
    (
        "full", "PUT", "/learners/t-b", update(**DENSE), 409, "limit-reached",
        "the key has 1 learners and groups; its limit learners is 1", {},
    ),
    (
        "slow", "GET", "/learners", {}, 429, "rate-limited",
        "the key's limit requests_per_second is 1; nothing was changed", {},
    ),
    (
        "few", "POST", "/learners/t-a/update", update(events=events(30)), 429, "rate-limited",
        "the key's limit events_per_second is 0.1; nothing was changed", {},
    ),
]  # fmt: skip


async def test_wording_of_key_problems(tmp_path: Path) -> None:
    ring = Keyring(tmp_path)
    for name, settings in KEYS.items():
        ring.make(name, *settings["scopes"], **{key: value for key, value in settings.items() if key != "scopes"})
    async with keyed(ring) as (_, http):
        await create_learners(http, ring["root"], "t-a", "spam")
        assert (await http.get("/learners", headers=ring["slow"])).status_code == 200
        body = {"events": events(30, 100)}
        assert (await http.post("/learners/t-a/update", json=body, headers=ring["few"])).status_code == 200
        actual = []
        for key, method, path, arguments, *_ in KEYED:
            headers = ring[key] if key else arguments.get("headers", {})
            reply = await http.request(method, path, **{**arguments, "headers": headers})
            actual.append((key, method, path, arguments, *words(reply.json())))
        compare(actual, KEYED)


def message(**members: Any) -> dict[str, Any]:
    """Return an update of one event as a websocket message."""
    return {"seq": 5, "op": "update", "events": [ROW], **members}


# message; status, code, detail, and what `errors` say at each pointer
MESSAGES: list[tuple[dict[str, Any] | str | bytes, int, str, str, dict[str, str]]] = [
    (
        "nonsense", 400, "bad-body",
        "the message is not a map of JSON: the body is not JSON: Expecting value at line 1, column 1", {},
    ),
    (
        b"\xc1", 400, "bad-body",
        "the message is not a map of MessagePack: MessagePack data is malformed: invalid opcode '\\xc1' (byte 0)", {},
    ),
    (
        message(seq="1"), 422, "invalid", "the message is refused",
        {"/seq": "is '1'; expected a whole number from 0 to 2^53"},
    ),
    (
        message(op="delete"), 422, "invalid", "the message is refused",
        {"/op": "is 'delete'; expected one of update, predict, labels"},
    ),
    (
        message(surplus=1), 422, "invalid", "refused the body",
        {"/surplus": "unknown member; expected one of events, source"},
    ),
    (message(learner="no body"), 422, "invalid", "the message is refused", {"/learner": f"is 'no body'; {NAME}"}),
    (message(learner=None), 422, "invalid", "the message is refused", {"/learner": "is missing; expected a name"}),
    (
        {"seq": 5, "op": "predict", "events": [{"x": [1, 2, 3]}], "at_least": 0}, 422, "invalid",
        "the message is refused",
        {"/at_least": "is 0; expected a whole number from 1 to 2^53"},
    ),
    (message(learner="nobody"), 404, "unknown-learner", "there is no learner named nobody", {}),
    (
        message(events=[{**ROW, "label": 2}]), 422, "invalid", "refused the event",
        {"/events/0/label": "is 2; expected -1, 0 or 1, or a boolean"},
    ),
    (
        message(op="labels", events=[{"id": "a", "label": 1}], explain=2), 422, "invalid", "the message is refused",
        {"/explain": "is a member of predict, not of labels"},
    ),
]  # fmt: skip


async def test_wording_of_websocket_message_errors() -> None:
    async with node(MemoryStore()) as engine:
        app = app_over(engine)
        await engine.create("a", Config.of(DENSE))
        async with websocket(app) as socket:
            actual = []
            for sent_message, *_ in MESSAGES:
                socket.send({"learner": "a", **sent_message} if isinstance(sent_message, dict) else sent_message)
                actual.append((sent_message, *words(await socket.reply())))
            compare(actual, MESSAGES)


# path, headers, query; code and reason of the close
CLOSES: list[tuple[str, list[tuple[bytes, bytes]], bytes, int, str]] = [
    ("/v1/learners/nobody/ws", [], b"", 4404, "there is no learner named nobody"),
    ("/v1/ws", [], b"b/c=1", 1008, "/b~1c unknown query parameter; this endpoint accepts none"),
    (
        "/v1/ws", [], b"key=rs_a_b", 1008,
        "/key API keys are not accepted in the URL, where logs would record them; send `Authorization: Bearer KEY`",
    ),
    (
        "/v1/other/ws", [], b"", 1008,
        "there is no websocket at /v1/other/ws; they are at /v1/learners/NAME/ws and /v1/ws",
    ),
    (
        "/v1/ws", [(b"host", b"rarestream"), (b"origin", b"http://elsewhere")], b"", 1008,
        "a page may open websockets only of the site that it comes from",
    ),
]  # fmt: skip


async def test_wording_of_websocket_close_reasons() -> None:
    async with node(MemoryStore()) as engine:
        app = app_over(engine)
        actual = []
        for path, headers, query, *_ in CLOSES:
            async with websocket(app, path, headers, query=query, greeted=False) as socket:
                sent_message = await socket.event()
                while sent_message["type"] != "websocket.close":
                    sent_message = await socket.event()
                actual.append((path, headers, query, sent_message["code"], sent_message["reason"]))
        compare(actual, CLOSES)


async def test_reasons_of_messages_beyond_the_credit() -> None:
    for repeated, reason in (
        (None, "more than 10 messages are unanswered"),
        (6, "seq 6 is that of a message that is not answered yet"),
    ):
        store = Gated()
        async with serving_app(store, ws_credit=10) as (app, _, _), websocket(app, SINGLE, batched=True) as socket:
            gate = store.shut("a")
            made = list(updates(12))
            if repeated is not None:
                made[8]["seq"] = made[repeated]["seq"]
            socket.send(*made)
            assert await socket.closed() == (1008, reason)
            gate.set()


# kind of features, MessagePack of an update; pointer and what is wrong
ARRAYS: list[tuple[str, dict[str, Any], str, str]] = [
    ("dense", x(dtype="float16"), "/x/dtype", "is 'float16'; expected one of float32, float64"),
    ("dense", x(shape=[-1, 3]), "/x/shape", "is [-1, 3]; expected 2 sizes, whole numbers of at least 0"),
    (
        "dense", {**GOOD, "x": {"shape": [2, 3], "data": b""}}, "/x/dtype",
        "is missing; an array is a map of dtype, shape, data",
    ),
    (
        "dense", {**GOOD, "source": {"name": "a"}}, "/source/offset",
        "is missing; expected a whole number from 0 to 2^53",
    ),
    (
        "dense", {**GOOD, "ids": {}}, "/ids",
        "is {}; expected a list or an array of uint64, int64, int32: a map of dtype, shape, data",
    ),
    (
        "sparse", csr(indptr=[0, 2, 3]), "/csr/indptr",
        "is [0, 2, 3]; expected an array of int32, int64: a map of dtype, shape, data",
    ),
]  # fmt: skip


def test_arrays() -> None:
    for kind, members, pointer, detail in ARRAYS:
        with pytest.raises(Invalid) as refused:
            msgpack_decode.decode_update(body(members), Config.of(LEARNERS[kind]))
        assert refused.value.problems[0][:2] == (pointer, detail)


def test_values_that_were_not_decoded() -> None:
    values = ([1] * 600, {str(i): i for i in range(600)}, msgspec.msgpack.Ext(7, bytes(600)))
    texts = [repr(glance(msgspec.Raw(msgspec.msgpack.encode(value)))) for value in values]
    assert texts == ["a list of 600", "a map of 600", "604 bytes"]


async def test_reasons_why_a_learner_has_no_weights() -> None:
    embedding = {"kind": "nystroem", "components": 4, "warmup": 20}
    configs = [
        {"algorithm": "nsauc", "embedding": embedding},
        {"algorithm": "npsvor", "params": {"ranks": 3}},
        {"algorithm": "ranksvm", "refit_every": 500},
    ]
    async with client() as http:
        reasons = []
        for i, config in enumerate(configs):
            await http.put(f"/v1/learners/c{i}", json={"features": DENSE["features"], **config})
            reasons.append((await http.get(f"/v1/learners/c{i}/weights")).json()["reason"])
    assert reasons == [
        "nsauc scores behind a nystroem embedding: its weights belong to components, not to features",
        "npsvor predicts ranks by 3 planes, each with its own weights",
        "no labelled event has been learnt yet: weights need a model",
    ]


async def test_reason_of_a_stop() -> None:
    async with node(MemoryStore()) as engine:
        app = app_over(engine)
        async with websocket(app) as socket:
            await app.state.close_websockets(1)
            assert await socket.closed() == (1001, "this node stops")


async def test_reason_of_text_that_is_not_utf8() -> None:
    _, written, _ = await read_of(BAD)
    assert [body[2:].decode() for _, body in written] == ["the text is not UTF-8 from byte 2 on"]


def test_words_about_other_protocols() -> None:
    error = httptools.HttpParserInvalidMethodError("Invalid method encountered")
    for sent_message, detail in (
        (b"\x16\x03\x01\x02\x00", "this is TLS, which this port does not speak: use http://; the connection is closed"),
        (b"PRI * HTTP/2.0\r\n\r\n", "this is HTTP/2, which this port does not speak; the connection is closed"),
        (b"nonsense\r\n\r\n", "this is not an HTTP/1.1 request: Invalid method encountered; the connection is closed"),
    ):
        assert no_request(error, sent_message).detail == detail


def files() -> list[tuple[bytes, str]]:
    """Return files that no import takes, each with the words about it."""
    learner = Learner(Config.of(DENSE))
    good = pack_snapshot(3, learner.config, learner.state())
    other = Learner(Config.of({**DENSE, "features": {"kind": "dense", "dim": 4}})).state()
    lacking = dict(learner.state())
    del lacking["ids.count"]
    nan = {name: array.copy() for name, array in learner.state().items()}
    nan["algorithm.w"][...] = np.nan
    unfit = "the state in the file does not fit its configuration"
    shapes = "/algorithm.w has shape (4,); expected (3,); /algorithm.h has shape (4,); expected (3,)"
    more = "/algorithm.sums has shape (2, 4); expected (2, 3); and 5 more"
    return [
        (good[:7], "the file is cut short: 7 bytes"),
        (good[:-1], "the file does not match its checksum"),
        (b"PK" + good, "the file is not a record or snapshot of rarestream"),
        (good[:4] + b"\x09" + good[5:], "the file has format version 9; this release reads version 1"),
        (pack_record(Created(learner.config.to_json())), "the file is not a snapshot (kind 1)"),
        (pack_snapshot(3, learner.config, other), f"{unfit}: {shapes}; {more}"),
        (pack_snapshot(3, learner.config, lacking), f"{unfit}: /ids.count is missing"),
        (pack_snapshot(3, learner.config, nan), f"{unfit}: /algorithm.w has numbers that are not finite"),
    ]


async def test_words_about_files() -> None:
    end = "; nothing was created. Expected a file of GET /v1/learners/NAME/export"
    async with client() as http:
        details = [(await http.post(f"{FRAUD}/import", content=data)).json()["detail"] for data, _ in files()]
    assert details == [f"{words}{end}" for _, words in files()]


async def test_words_about_groups() -> None:
    async with serving(MemoryStore()) as (http, engine):
        for name, config in MEMBERS.items():
            await http.put(f"/learners/{name}", json=config)
        await http.put("/groups/g", json={"learners": list(MEMBERS)})
        machine = (await engine.group("g")).log.machine.core
        file = pack_snapshot(2, machine.config, machine.state())
        rows = labelled(0, 1)
        details = [(await http.post("/learners/c/import", content=file)).json()["detail"]]
        for name in ("one", "three"):
            await http.post(f"/learners/{name}/update", json={"events": rows, "source": {"name": "f", "offset": 0}})
        source = {"events": rows, "source": {"name": "f", "offset": 1}}
        details.append((await http.post("/groups/g/update", json=source)).json()["detail"])
        for name in ("two", "three"):
            await http.delete(f"/learners/{name}")
        details.append((await http.post("/groups/g/update", json={"events": rows})).json()["detail"])
        for name in ("two", "three"):
            config = SETUPS["ordinal"] if name == "two" else MEMBERS[name]
            await http.put(f"/learners/{name}", json={**config, "features": MEMBERS[name]["features"]})
        details.append((await http.post("/groups/g/update", json={"events": rows})).json()["detail"])
    assert details == [
        "the file is the state of a group, not of a learner; nothing was created. "
        "Expected a file of GET /v1/learners/NAME/export",
        "not every learner knows the source 'f', which would begin at 1: one at 1, two has no offset, three at 1",
        "two, three of this group no longer exist; nothing was changed. Create what is missing, or delete the group",
        "two of this group is an ordinal learner now; groups compare AUCs. Nothing was changed",
    ]
