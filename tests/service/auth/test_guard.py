"""Who may do what: every route and operation with every kind of key, limits, and what a stranger is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from fastapi import APIRouter

from service.api.app import create_app
from service.api.routes.dependencies import AccessRoute
from service.auth.guard import ExposedWithoutKeys, Guard
from service.auth.keys import SCOPES
from service.auth.permissions import UNRESTRICTED
from service.errors import ForeignHost, ForeignOrigin, Unauthorized
from service.settings import Settings
from service.wire import iso_time
from tests.harness.apps import client, events
from tests.harness.keyring import Keyring, authorization, bearer, create_learners, keyed
from tests.harness.websocket import websocket

OPEN = {"GET /v1/health/live", "GET /v1/health/ready", "GET /v1/version"}
ANY = {"GET /v1/key"}
ADMIN = {
    "PUT /v1/learners/{name}",
    "PATCH /v1/learners/{name}",
    "DELETE /v1/learners/{name}",
    "DELETE /v1/learners/{name}/events",
    "DELETE /v1/learners/{name}/events/{id}",
    "POST /v1/learners/{name}/clone",
    "GET /v1/learners/{name}/export",
    "POST /v1/learners/{name}/import",
    "POST /v1/learners/{name}/snapshots",
    "POST /v1/learners/{name}/snapshots/{position}/restore",
    "PUT /v1/groups/{name}",
    "DELETE /v1/groups/{name}",
}
READ = {"POST /v1/learners/{name}/thresholds/preview"}  # and every GET
PREDICT = {"POST /v1/learners/{name}/predict", "POST /v1/groups/{name}/predict"}
UPDATE = {f"POST /v1/{kind}/{{name}}/{what}" for kind in ("learners", "groups") for what in ("update", "labels")}
UPDATE |= {"POST /v1/learners/{name}/alarms/{number}/acknowledge", "POST /v1/learners/{name}/annotations"}


DESCRIPTION = create_app(Settings(store="memory:")).openapi()


def routes() -> Iterator[str]:
    for path, operations in DESCRIPTION["paths"].items():
        for method in operations:
            yield f"{method.upper()} {path}"


ROUTES = sorted(routes())


def scope_of(route: str) -> str:
    """Return what the documents say that a route needs."""
    for scope, actual in (
        ("open", OPEN),
        ("any", ANY),
        ("admin", ADMIN),
        ("read", READ),
        ("predict", PREDICT),
        ("update", UPDATE),
    ):
        if route in actual:
            return scope
    assert route.startswith("GET "), f"{route} is new: say here and in docs/how-to/secure.md which scope it needs"
    return "read"


async def send(http: httpx.AsyncClient, route: str, key: dict[str, str], name: str = "fraud-a") -> httpx.Response:
    method, path = route.split(" ")
    path = path.replace("{name}", name).replace("{position}", "1").removeprefix("/v1")
    return await http.request(method, path, headers=key, json={} if method != "GET" else None)


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path)


# Every route


@pytest.mark.parametrize("route", ROUTES)
def test_openapi_states_which_routes_require_a_key(route: str) -> None:
    method, path = route.split(" ")
    operation = DESCRIPTION["paths"][path][method.lower()]
    assert DESCRIPTION["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert operation.get("security") == (None if scope_of(route) == "open" else [{"key": []}])
    if scope_of(route) != "open":
        assert {"401", "403", "421", "429"} <= operation["responses"].keys()


async def test_every_route_requires_a_key_with_its_scope(ring: Keyring) -> None:
    for scope in SCOPES:
        ring.make(scope, scope)
    async with keyed(ring, max_streams=0) as (_, http):  # a stream of all that there is would have no end
        # nothing is there, so that what is let in is refused for that, and the next finds all as it was
        for route in [*ROUTES, "GET /metrics"]:
            needed = scope_of(route)
            url = "http://rarestream/metrics" if route == "GET /metrics" else route.split(" ")[1]
            reply = await (http.get(url) if route == "GET /metrics" else send(http, route, {}))
            if needed == "open":
                assert reply.status_code == 200, route
                continue
            assert reply.status_code == 401, route
            assert reply.headers["www-authenticate"].startswith("Bearer"), route
            assert reply.headers["content-type"] == "application/problem+json"
            assert reply.json()["code"] == "unauthorized"
            for scope in SCOPES:
                key = ring[scope]
                reply = await (http.get(url, headers=key) if route == "GET /metrics" else send(http, route, key))
                if needed in ("any", scope) or scope == "admin":
                    if route == "GET /v1/stream":
                        assert (reply.status_code, reply.json()["code"]) == (429, "too-many-streams")
                        continue
                    assert reply.status_code in (200, 404, 415, 422), (route, scope, reply.text)
                else:
                    assert (reply.status_code, reply.json()["code"]) == (403, "forbidden"), (route, scope)


async def test_pages_and_the_openapi_document_are_public(ring: Keyring) -> None:
    ring.make("one", "read")
    async with keyed(ring) as (_, http):
        for path in (
            "/",
            "/static/app.js",
            "/docs",
            "/openapi.json",
            "/v1/health/live",
            "/v1/health/ready",
            "/problems/invalid",
        ):
            assert (await http.get(f"http://rarestream{path}")).status_code == 200, path


def test_a_route_without_an_access_rule_is_refused() -> None:
    router = APIRouter(route_class=AccessRoute)
    with pytest.raises(RuntimeError, match="/new"):
        router.get("/new")(lambda: None)


async def test_unknown_methods_and_paths_are_refused_without_a_key(ring: Keyring) -> None:
    ring.make("one", "read")
    async with keyed(ring) as (_, http):
        assert (await http.delete("/learners")).status_code == 405
        assert (await http.get("/nowhere")).status_code == 404


# Learners by name


async def test_a_restricted_key_sees_no_other_learners_anywhere(ring: Keyring) -> None:
    root = ring.make("root", "admin")
    partial = ring.make("some", "admin", pattern="fraud-*")
    async with keyed(ring) as (_, http):
        await create_learners(http, root, "fraud-a", "fraud-b", "spam")
        assert (await http.post("/learners/spam/snapshots", headers=root)).status_code == 201
        groups = {
            "fraud-g": ["fraud-a", "fraud-b"],
            "fraud-mixed": ["fraud-a", "spam"],
            "other": ["fraud-a", "fraud-b"],
        }
        for name, learners in groups.items():
            reply = await http.put(f"/groups/{name}", json={"learners": learners}, headers=root)
            assert reply.status_code == 201, reply.text

        listed = (await http.get("/learners", headers=partial)).json()["learners"]
        assert [item["name"] for item in listed] == ["fraud-a", "fraud-b"]
        listing = (await http.get("/learners?figures=true", headers=partial)).json()["learners"]
        assert [item["name"] for item in listing] == ["fraud-a", "fraud-b"]
        assert [group["name"] for group in (await http.get("/groups", headers=partial)).json()["groups"]] == ["fraud-g"]
        scraped = (await http.get("http://rarestream/metrics", headers=partial)).text
        assert 'learner="fraud-a"' in scraped
        assert "spam" not in scraped
        assert 'learner="spam"' in (await http.get("http://rarestream/metrics", headers=root)).text

        before = (await http.get("/learners/spam/digest", headers=root)).json()
        for route in ROUTES:
            if "{name}" not in route:
                continue
            hidden = ("spam", "nobody") if "/learners/" in route else ("other", "fraud-mixed", "nobody")
            replies = [await send(http, route, partial, name) for name in hidden]
            # what is there and what is not get the same answer
            creates = route.startswith("PUT") or route.endswith("/import")
            for name, reply in zip(hidden, replies, strict=True):
                if name == "fraud-mixed" and creates:
                    continue  # its name is one that the key may give; see below
                assert reply.status_code == (403 if creates else 404), (route, name, reply.text)
            message = [re.sub("spam|other|nobody", "NAME", item.json()["detail"]) for item in (replies[0], replies[-1])]
            assert message[0] == message[1], route
        assert (await http.get("/learners/spam/digest", headers=root)).json() == before

        body = {"learners": ["fraud-a", "fraud-b"]}
        accepted = await http.put("/groups/fraud-mixed", json=body, headers=partial)
        assert (accepted.status_code, accepted.json()["errors"]) == (409, [])  # nothing of what it is
        mixed = await http.put("/groups/fraud-new", json={"learners": ["fraud-a", "spam"]}, headers=partial)
        assert [(error["pointer"], error["code"]) for error in mixed.json()["errors"]] == [("/learners/1", "unknown")]
        copy = await http.post("/learners/fraud-a/clone", json={"to": "spam-2"}, headers=partial)
        assert (copy.status_code, copy.json()["code"]) == (403, "forbidden")
        assert (await http.post("/learners/fraud-a/clone", json={"to": "fraud-c"}, headers=partial)).status_code == 201
        assert (
            await http.post("/groups/fraud-g/update", json={"events": events(3)}, headers=partial)
        ).status_code == 200
        assert (await http.delete("/groups/fraud-mixed", headers=partial)).status_code == 404
        assert (await http.delete("/groups/fraud-g", headers=partial)).status_code == 204
        assert (await http.delete("/learners/fraud-b", headers=partial)).status_code == 204


@pytest.mark.parametrize(("pattern", "name", "sees"), [
    ("fraud-*", "fraud-a", True), ("fraud-*", "Fraud-a", False), ("fraud-*", "my-fraud-a", False),
    ("fraud", "fraud", True), ("fraud", "fraud2", False), ("f?", "fa", True), ("f[ab]", "fb", True),
    ("f[!ab]", "fb", False), ("a.c", "abc", False), ("*", "anything", True),
])  # fmt: skip
def test_patterns_match_whole_names(ring: Keyring, pattern: str, name: str, sees: bool) -> None:
    key = ring.make("one", "read", pattern=pattern)
    guard = Guard(Settings(store="memory:", keys=str(ring.path)))
    permissions = guard.admit([(b"authorization", key["Authorization"].encode())], "read")
    assert permissions.sees(name) == sees


# The key itself


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer rs_",
        "Bearer rs_{id}_",
        "Bearer rs_{id}",
        "Bearer rs_{id}_{other}",
        "Bearer rs_{unknown}_{secret}",
        "Bearer xx_{id}_{secret}",
        "Bearer {id}_{secret}",
        "Bearer rs_{id}_{secret}0",
        "Bearer rs_{id}_{upper}",
        "Bearer rs_{id}_{secret}" + "0" * 100_000,
        "Bearer rs_\xff_{secret}",
        "Basic rs_{id}_{secret}",
        "rs_{id}_{secret}",
    ],
)
async def test_an_invalid_key_is_refused_and_never_repeated(ring: Keyring, header: str) -> None:
    key = ring.make("one", "admin")["Authorization"].removeprefix("Bearer ")
    secret = key.split("_")[2]
    parts = {"id": ring.id_of("one"), "unknown": "a" * 12, "secret": secret, "upper": secret.upper() + "X"}
    value = header.format(**parts, other=ring.make("two", "read")["Authorization"].split("_")[2])
    async with keyed(ring) as (_, http):
        reply = await http.get("/key", headers={"Authorization": value.encode("latin-1")} if value else {})
        assert (reply.status_code, reply.json()["code"]) == (401, "unauthorized")
        assert secret not in reply.text
        assert secret not in str(reply.headers)
        assert (await http.get("/key", headers=bearer(key))).status_code == 200


async def test_a_key_reports_its_permissions(ring: Keyring) -> None:
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    key = ring.make("team", "update", "predict", pattern="fraud-*", expires=end, requests_per_second=50.0)
    nothing = dict.fromkeys(
        ("requests_per_second", "events_per_second", "body_bytes", "learners", "dimensions", "remembered_events")
    )
    async with keyed(ring) as (_, http):
        assert (await http.get("/key", headers=key)).json() == {
            "name": "team",
            "id": ring.id_of("team"),
            "scopes": ["predict", "update"],
            "learners": "fraud-*",
            "limits": {**nothing, "requests_per_second": 50.0},
            "expires": end.timestamp(),
            "expires_iso": iso_time(end.timestamp()),
        }
        assert (
            await http.get("/key", headers={**key, "authorization": key["Authorization"].lower()})
        ).status_code == 401
    async with client() as http:  # which asks for no keys
        assert (await http.get("/v1/key")).json() == {
            "name": None, "id": None, "scopes": list(SCOPES), "learners": None, "limits": nothing, "expires": None,
            "expires_iso": None,
        }  # fmt: skip


async def test_an_expired_key_is_refused(ring: Keyring) -> None:
    key = ring.make("old", "admin", expires=datetime.now(UTC) - timedelta(seconds=1))
    async with keyed(ring) as (_, http):
        assert (await http.get("/key", headers=key)).status_code == 401


@pytest.mark.parametrize("parameter", ["key", "access_token", "api_key", "Authorization", "token"])
async def test_a_key_in_a_url_is_refused_with_advice(ring: Keyring, parameter: str) -> None:
    key = ring.make("one", "admin")
    async with keyed(ring) as (app, http):
        for path in ("/learners", "http://rarestream/metrics"):
            reply = await http.get(path, headers=key, params={parameter: ring.secret("one")})
            assert reply.status_code == 422, path
            assert [each["pointer"] for each in reply.json()["errors"]] == [f"/{parameter}"]
            assert ring.secret("one") not in reply.text
            assert (await http.get(path, params={parameter: ring.secret("one")})).status_code == 401
        for path in ("/", "/static/app.js"):  # open to whoever asks
            assert (await http.get(f"http://rarestream{path}?whatever=1")).status_code == 200
            reply = await http.get(f"http://rarestream{path}", params={parameter: ring.secret("one")})
            assert (reply.status_code, ring.secret("one") in reply.text) == (422, False)
        assert (await http.get("http://rarestream/metrics?whatever=1", headers=key)).status_code == 200
        await create_learners(http, key, "fraud-a")
        reply = await http.post(
            f"/learners/fraud-a/predict?{parameter}=x", json={"events": [{"x": [1, 2, 3]}]}, headers=key
        )
        assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (422, f"/{parameter}")
        headers = [(b"authorization", key["Authorization"].encode())]
        async with websocket(app, headers=headers, query=f"{parameter}=x".encode(), greeted=False) as socket:
            assert (await socket.event())["type"] == "websocket.accept"
            assert (await socket.closed())[0] == 1008


async def test_two_authorization_headers_are_refused(ring: Keyring) -> None:
    ring.make("one", "read")
    guard = Guard(Settings(store="memory:", keys=str(ring.path)))
    header = (b"authorization", ring["one"]["Authorization"].encode())
    assert guard.admit([header], "read").id == ring.id_of("one")
    with pytest.raises(Unauthorized):
        guard.admit([header, header], "read")


# Without keys


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1", "fe80::1%eth0"])
def test_other_machines_are_refused_without_keys(ring: Keyring, address: str) -> None:
    with pytest.raises(ExposedWithoutKeys):
        Guard(Settings(store="memory:")).listens(address)
    report = Guard(Settings(store="memory:", insecure=True)).listens(address)
    assert report is not None
    assert report.startswith("insecure: ")
    assert address in report
    ring.make("one", "read")
    assert Guard(Settings(store="memory:", keys=str(ring.path))).listens(address) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"])
def test_this_machine_is_served_without_keys(address: str) -> None:
    guard = Guard(Settings(store="memory:"))
    assert guard.listens(address) is None
    assert guard.admit([(b"host", b"localhost:8000")], "admin") is UNRESTRICTED


HOSTS = {
    "127.0.0.1:8000": True, "localhost": True, "LocalHost:8000": True, "a.localhost:1": True, "[::1]:8000": True,
    "192.0.2.7": True, "": True, "evil.example": False, "evil.example:8000": False, "127.0.0.1.evil.example": False,
    "localhost.evil.example": False, "1.2.3": False, "good.example": False, "x.wild.example": False,
}  # fmt: skip


ALSO = ("good.example", "x.wild.example", "node-7.nodes.example:8000")


@pytest.mark.parametrize("host", [*HOSTS, ALSO[-1]])
def test_foreign_host_names_are_refused_on_loopback(host: str) -> None:
    guard = Guard(Settings(store="memory:"))
    guard.listens("127.0.0.1")
    named = Guard(
        Settings(
            store="memory:",
            insecure=True,
            hosts="good.example, *.wild.example",
            advertise="http://Node-7.nodes.example:8000",
        )
    )
    named.listens("0.0.0.0")
    for item, accepted in ((guard, HOSTS.get(host, False)), (named, HOSTS.get(host) or host in ALSO)):
        headers = [(b"host", host.encode())] if host else []
        for _ in range(2):  # what was found good is remembered
            if accepted:
                assert item.admit(headers, "read", changes=False) is UNRESTRICTED
            else:
                with pytest.raises(ForeignHost):
                    item.admit(headers, "read", changes=False)


ORIGINS = [
    ({"origin": "http://rarestream:8000"}, True),
    ({"origin": "https://rarestream:8000"}, True),  # behind a proxy that speaks TLS
    ({"origin": "http://rarestream"}, False),
    ({"origin": "http://evil.example"}, False),
    ({"origin": "null"}, False),
    ({"origin": "http://[bad"}, False),
    ({"origin": "https://ours.example"}, True),
    ({"origin": "http://public.example", "sec-fetch-site": "same-origin"}, True),  # a proxy has changed the Host
    ({"origin": "http://evil.example", "sec-fetch-site": "cross-site"}, False),
    ({"origin": "http://other.rarestream:8000", "sec-fetch-site": "same-site"}, False),
    ({}, True),
]


@pytest.mark.parametrize(("headers", "accepted"), ORIGINS, ids=lambda item: str(item))
def test_pages_of_other_sites_change_nothing_without_keys(headers: dict[str, str], accepted: bool) -> None:
    guard = Guard(Settings(store="memory:", insecure=True, cors_origins="https://ours.example/"))
    guard.listens("0.0.0.0")
    headers_of = [(b"host", b"rarestream:8000"), *((name.encode(), value.encode()) for name, value in headers.items())]
    assert guard.admit(headers_of, "read", changes=False) is UNRESTRICTED  # what it is told, it cannot read
    if accepted:
        assert guard.admit(headers_of, "update") is UNRESTRICTED
    else:
        with pytest.raises(ForeignOrigin):
            guard.admit(headers_of, "update")


def test_with_keys_host_and_origin_do_not_matter(ring: Keyring) -> None:
    ring.make("one", "update")
    guard = Guard(Settings(store="memory:", keys=str(ring.path)))
    guard.listens("127.0.0.1")
    headers_of = [(b"host", b"evil.example"), (b"origin", b"http://evil.example"), *authorization(ring["one"])]
    assert guard.admit(headers_of, "update").id == ring.id_of("one")
    with pytest.raises(Unauthorized):
        guard.admit(headers_of[:2], "update")
