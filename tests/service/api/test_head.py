"""HEAD, trailing slashes and idle connections over a real server."""

from __future__ import annotations

import httpx
import pytest

from tests.harness.apps import DENSE
from tests.harness.raw import Service, served

PATHS = [
    "/",
    "/metrics",
    "/docs",
    "/openapi.json",
    "/v1/health/live",
    "/v1/health/ready",
    "/v1/learners",
    "/v1/learners/a",
    "/v1/learners/a/metrics",
    "/v1/learners/a/export",
    "/v1/learners/a/metrics/stream",
    "/v1/stream",
    "/v1/groups",
]


def client_of(service: Service) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{service.port}", trust_env=False, timeout=300)


def test_head_has_the_headers_of_get_and_no_body() -> None:
    with served() as service, client_of(service) as http:
        assert http.put("/v1/learners/a", json=DENSE).status_code == 201
        for path in PATHS:
            head = http.head(path)
            with http.stream("GET", path) as get:
                assert head.status_code == get.status_code == 200, path
                assert head.headers["content-type"] == get.headers["content-type"]
            assert head.content == b""
        assert http.head("/v1/learners/missing").status_code == 404
        assert http.head("/v1/learners/a/update").status_code == 405
        refused = http.request("POST", "/v1/learners")
        assert refused.status_code == 405
        assert "HEAD" in refused.headers["allow"]
        assert service.app.state.streams == 0


@pytest.mark.parametrize("path", ["/v1/learners/", "/v1/health/live/?a=b%20c", "/docs/"])
def test_a_trailing_slash_is_redirected_within_the_host(path: str) -> None:
    with served() as service, client_of(service) as http:
        reply = http.get(path, headers={"Host": "localhost"})
        assert reply.status_code == 307
        assert reply.headers["location"] == path.replace("/?", "?").removesuffix("/")


def test_unknown_paths_with_a_trailing_slash_are_not_found() -> None:
    with served() as service:
        for path in (b"/v1/nothing/", b"//evil.example/", b"//evil.example//"):
            assert service.ask(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path).status == 404


def test_idle_connections_are_kept_for_the_seconds_of_the_setting() -> None:
    with served(keep_alive_seconds=100) as service:
        connection = service.connect()
        assert connection.ask(b"GET /v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n").status == 200
        (entry,) = service.server.server_state.connections
        assert entry.timeout_keep_alive == 100
