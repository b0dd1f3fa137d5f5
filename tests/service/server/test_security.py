"""The real server as a stranger meets it: where it listens, TLS, keys over every door, pages, and what its log says."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from rarestream import AsyncClient, Client, RequestRefused
from service.api.app import create_app
from service.server.run import CannotServe, Server, listen
from service.settings import Settings
from tests.harness.apps import DENSE, client, events
from tests.harness.keyring import Keyring, bearer
from tests.harness.process import Process
from tests.harness.waiting import eventually

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
PREDICT = {"events": [{"x": [1, 2, 3]}]}


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`rarestream` as a process of its own, without the variables of whoever runs the tests."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RARESTREAM_")}
    return subprocess.run(
        [sys.executable, "-m", "service", *arguments],
        env={**variables, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    reply = Keyring(tmp_path)
    reply.make("root", "admin")
    return reply


@pytest.fixture
def served(tmp_path: Path, ring: Keyring) -> Iterator[Process]:
    with Process("memory:", tmp_path / "log", keys=ring.path, log_level="debug") as process:
        yield process


# Where it listens


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_the_service_refuses_public_addresses_without_keys(host: str) -> None:
    completed = command("serve", "--host", host, "--port", "0", "--store", "memory:")
    assert completed.returncode == 2
    assert f" {host}, " in completed.stderr
    assert "rarestream keys create --keys FILE" in completed.stderr
    assert "--insecure" in completed.stderr


def test_the_service_refuses_an_unreadable_keys_file(tmp_path: Path) -> None:
    completed = command("serve", "--port", "0", "--store", "memory:", "--keys", str(tmp_path / "keys.json"))
    assert completed.returncode == 2
    assert str(tmp_path / "keys.json") in completed.stderr


def test_insecure_listens_on_every_address_with_a_warning(tmp_path: Path) -> None:
    process = Process("memory:", tmp_path / "log", host="0.0.0.0", insecure="true")
    with process:
        assert httpx.get(f"{process.url}/v1/learners", trust_env=False, timeout=300).status_code == 200
    assert re.search(r"\binsecure\b.*\b0\.0\.0", (tmp_path / "log").read_text())


def test_keys_allow_listening_on_every_address(tmp_path: Path, ring: Keyring) -> None:
    process = Process("memory:", tmp_path / "log", host="0.0.0.0", keys=ring.path)
    with process:
        assert httpx.get(f"{process.url}/v1/learners", trust_env=False, timeout=300).status_code == 401
        assert (
            httpx.get(f"{process.url}/v1/learners", headers=ring["root"], trust_env=False, timeout=300).status_code
            == 200
        )


def test_the_demo_needs_no_keys(ring: Keyring) -> None:
    completed = command("demo", "--port", "0", "--store", "memory:", RARESTREAM_KEYS=str(ring.path))
    assert (completed.returncode, "RARESTREAM_KEYS" in completed.stderr) == (2, True)


def test_without_keys_foreign_host_names_and_pages_are_refused(tmp_path: Path) -> None:
    with Process("memory:", tmp_path / "log") as process:

        def status(method: str, path: str, body: object = None, **headers: str) -> int:
            body_text = None if body is None else json.dumps(body)
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return httpx.request(
                method, f"{process.url}{path}", content=body_text, headers=named, timeout=300, trust_env=False
            ).status_code

        assert status("PUT", "/v1/learners/a", DENSE) == 201
        for path in ("/v1/learners", "/metrics", "/v1/learners/a"):
            assert status("GET", path, host="evil.example") == 421
        assert status("POST", "/v1/learners/a/predict", PREDICT, host="evil.example") == 421
        assert status("POST", "/v1/learners/a/update", {"events": events(1)}, origin="http://evil.example") == 403
        assert status("DELETE", "/v1/learners/a", origin="null") == 403
        assert status("POST", "/v1/learners/a/update", {"events": events(1)}, origin=process.url) == 200
        assert status("GET", "/v1/health/ready", host="evil.example") == 200  # as a probe may ask
        with pytest.raises(InvalidStatus) as caught:
            connect(f"ws{process.url[4:]}/v1/ws", origin="http://evil.example", proxy=None)  # type: ignore[arg-type]
        assert caught.value.response.status_code == 403


# Keys over the network


def test_clients_send_keys_and_the_log_contains_no_secret(tmp_path: Path, served: Process, ring: Keyring) -> None:
    key = ring.secret("root")
    guess = f"rs_{ring.id_of('root')}_{'5ec4e7' * 10}"
    with Client(served.url, key=key) as service:
        learner = service.create("fraud", algorithm="loam-ada", features={"kind": "dense", "dim": 3})
        learner.update([[1, 2, 3]], [1])
        with learner.stream() as stream:
            assert stream.predict([[1, 2, 3]]).result().scores.shape == (1,)
        assert key not in repr(service)
        assert key not in repr(vars(service))
    with Client(served.url, key=guess, patience=0) as stranger, pytest.raises(RequestRefused) as caught:
        stranger.learners()
    assert (caught.value.status, caught.value.code) == (401, "unauthorized")
    assert guess not in str(caught.value)

    async def asynchronous() -> None:
        async with AsyncClient(served.url, key=key) as service:
            assert [item["name"] for item in (await service.learners())["learners"]] == ["fraud"]
            async with service.learner("fraud").stream() as stream:
                assert (await (await stream.predict([[1, 2, 3]]))).scores.shape == (1,)

    asyncio.run(asynchronous())
    for option in ("a b", "a\nb", "", "schlüssel"):
        with pytest.raises(ValueError, match="ASCII"):
            Client(served.url, key=option)

    url = {"RARESTREAM_URL": served.url}
    assert command("list", RARESTREAM_KEY=key, **url).returncode == 0
    assert command("show", "fraud", "--key", key, **url).returncode == 0
    denied = command("list", RARESTREAM_KEY=guess, **url)
    assert (denied.returncode, "--key" in denied.stderr) == (5, True)
    assert guess not in denied.stderr

    # whatever is sent where: in URLs, bodies, names, malformed heads
    secret = key.split("_")[2]
    raw = http.client.HTTPConnection("127.0.0.1", served.port, timeout=300)
    for path in (f"/v1/learners?key={key}", f"/{key}", f"/v1/learners/{key}", f"/metrics?access_token={key}"):
        raw.request("GET", path, headers={"X-Request-ID": key[:64]})
        raw.getresponse().read()
    raw.close()
    with pytest.raises(InvalidStatus):
        connect(f"ws{served.url[4:]}/v1/ws?key={key}", proxy=None)
    served.stop()
    expected = (tmp_path / "log").read_text()
    assert secret not in expected
    assert secret[:32] not in expected  # nor a part of it
    assert f"learner=rs_{ring.id_of('root')}_*** " in expected
    assert guess.split("_")[2] not in expected
    line = next(item for item in expected.splitlines() if "/update 200" in item)
    assert f" key={ring.id_of('root')} " in line  # who it was can be told
    assert re.search(r"GET /v1/learners 401 .* code=unauthorized ", expected)


def test_commands_need_only_their_own_scope_with_json(served: Process, ring: Keyring, tmp_path: Path) -> None:
    ring.make("scores", "predict")
    ring.make("learns", "update")
    with Client(served.url, key=ring.secret("root")) as service:
        service.create("cards", algorithm="cbr-diag", features={"kind": "named"})
        service.create("severity", algorithm="npsvor", features={"kind": "named"}, params={"ranks": 3})
    scores = {"RARESTREAM_URL": served.url, "RARESTREAM_KEY": ring.secret("scores")}
    learns = {"RARESTREAM_URL": served.url, "RARESTREAM_KEY": ring.secret("learns")}
    flat = '{"id": "tx-%d", "amount": 12.5, "kind": "a", "label": %s}'

    scored = command("predict", "cards", flat % (1, 0), "--id", "id", "--json", **scores)
    assert (scored.returncode, scored.stderr) == (0, "")
    assert json.loads(scored.stdout)["id"] == "tx-1"
    for option in (
        ["update", "cards", flat % (2, 1), flat % (3, 0), "--id", "id"],
        ["update", "cards", flat % (4, '"fraud"'), "--id", "id", "--positive", "fraud"],
        ["labels", "cards", "tx-1=1"],
        ["update", "severity", flat % (1, 2)],
        ["update", "severity", flat % (2, '"high"'), "--ranks", "low,medium,high"],
    ):
        completed = command(*option, **learns)
        assert completed.returncode == 0, (option, completed.stderr)
    for name, counts in (("cards", {"negative": 1, "positive": 3}), ("severity", {"1": 0, "2": 1, "3": 1})):
        reply = httpx.get(f"{served.url}/v1/learners/{name}", headers=ring["root"], trust_env=False, timeout=300).json()
        assert reply["class_counts"] == counts

    unknown = command("update", "cards", flat % (5, '"fraud"'), **learns)
    assert unknown.returncode == 2
    assert re.search("'fraud'.*--positive", unknown.stderr)
    table = tmp_path / "cards.csv"
    table.write_text("amount,kind,label\n12.5,7,1\n")  # whether 7 is a number, or a name, only the learner knows
    refused = command("update", "cards", str(table), **learns)
    assert (refused.returncode, re.search(r"\bread\b", refused.stderr) is not None) == (2, True)
    other = command("predict", "cards", flat % (6, 0), **learns)
    assert (other.returncode, re.search(r"\bpredict\b", other.stderr) is not None) == (5, True)


def test_a_revoked_key_expires_within_seconds(served: Process, ring: Keyring) -> None:
    token = command("keys", "create", "--keys", str(ring.path), "--name", "new", "--scope", "read").stdout.strip()

    def until(status: int) -> None:
        url, headers = f"{served.url}/v1/learners", bearer(token)
        eventually(lambda: httpx.get(url, headers=headers, trust_env=False, timeout=300).status_code == status)

    until(200)
    assert command("keys", "revoke", "new", "--keys", str(ring.path)).returncode == 0
    until(401)


# TLS


def test_https_uses_the_configured_certificate(tmp_path: Path, ring: Keyring, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    trusted, chain, private = tmp_path / "ca.pem", tmp_path / "chain.pem", tmp_path / "key.pem"
    authority.cert_pem.write_to_path(str(trusted))
    issued.private_key_pem.write_to_path(str(private))
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(chain), append=True)
    process = Process("memory:", tmp_path / "log", keys=ring.path, tls_certificate=chain, tls_key=private)
    context = ssl.create_default_context(cafile=str(trusted))
    process.url = process.url.replace("http:", "https:")
    with contextlib.ExitStack() as stack:
        asking = stack.enter_context(httpx.Client(verify=context, trust_env=False, timeout=300))

        def get(url: str, **_: object) -> httpx.Response:
            return asking.get(url, timeout=5)

        monkeypatch.setattr("tests.harness.process.httpx.get", get)  # by which it is waited for
        stack.enter_context(process)
        assert f"{process.url} (dashboard)" in (tmp_path / "log").read_text()
        with Client(process.url, key=ring.secret("root"), verify=context) as service:
            learner = service.create("a", algorithm="loam-ada", features={"kind": "dense", "dim": 3})
            with learner.stream() as stream:  # wss
                assert stream.predict([[1, 2, 3]]).result().scores.shape == (1,)
        environment = {"RARESTREAM_URL": process.url, "RARESTREAM_KEY": ring.secret("root")}
        assert command("list", RARESTREAM_CA=str(trusted), **environment).returncode == 0
        assert command("list", **environment).returncode == 3  # nobody it trusts
        wrong = command("list", RARESTREAM_CA=str(ring.path), **environment)
        assert (wrong.returncode, "RARESTREAM_CA" in wrong.stderr) == (2, True)
        with connect_tls(process.port, context) as secured:
            assert secured.version() in ("TLSv1.2", "TLSv1.3")
        old = ssl.create_default_context(cafile=str(trusted))
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        old.set_ciphers("AES256-SHA:AES128-SHA:ECDHE-RSA-AES128-SHA:ECDHE-ECDSA-AES128-SHA")
        with pytest.raises(ssl.SSLError):
            connect_tls(process.port, old)


def connect_tls(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=300)
    try:
        return context.wrap_socket(plain, server_hostname="127.0.0.1")
    except ssl.SSLError:
        plain.close()
        raise


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"tls_key": "nowhere.pem"}, "tls_key .*tls_certificate"),
        ({"tls_certificate": "nowhere.pem"}, rf"nowhere\.pem\b.*{os.strerror(errno.ENOENT)}"),
        ({"tls_certificate": __file__}, re.escape(__file__)),
    ],
)
def test_invalid_tls_files_are_reported_at_the_start(option: dict[str, str], expected: str) -> None:
    listener = listen("127.0.0.1", 0)
    with pytest.raises(CannotServe, match=expected):
        Server(Settings(store="memory:", **option), listener, ready=lambda: None)
    assert listener.fileno() == -1


# Pages


async def test_every_page_has_a_policy_for_its_own_scripts_only() -> None:
    async with client() as asking:
        for path in ("/", "/docs", "/docs/oauth2-redirect"):
            reply = await asking.get(path)
            policy = dict(item.split(" ", 1) for item in reply.headers["content-security-policy"].split("; "))
            scripts = policy.get("script-src", policy["default-src"])
            assert "unsafe" not in scripts, path
            assert policy["frame-ancestors"] == policy["object-src"] == policy["base-uri"] == "'none'"
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["referrer-policy"] == "no-referrer"
            inline = re.findall(r"<script>(.*?)</script>", reply.text, re.DOTALL)
            assert len(re.findall("'sha256-", scripts)) == len(inline), path


async def test_only_listed_sites_may_read_replies(ring: Keyring) -> None:
    asks = {"origin": "https://ours.example", "access-control-request-method": "POST"}
    asks["access-control-request-headers"] = "authorization"
    async with client() as asking:
        assert (await asking.options("/v1/learners/a/predict", headers=asks)).status_code == 405
        for path in ("/v1/learners", "/v1/health/live"):
            reply = await asking.get(path, headers={"origin": "https://ours.example"})
            assert not any("access-control" in name for name in reply.headers)
    async with client(cors_origins="https://ours.example, https://more.example", keys=str(ring.path)) as asking:
        await asking.put("/v1/learners/a", json=DENSE, headers=ring["root"])
        for path in ("/v1/learners/a/predict", "/v1/learners"):
            reply = await asking.options(path, headers=asks)
            assert reply.status_code == 200
            assert reply.headers["access-control-allow-origin"] == "https://ours.example"
            assert "authorization" in reply.headers["access-control-allow-headers"]
            assert "access-control-allow-credentials" not in reply.headers
            refused = await asking.options(path, headers={**asks, "origin": "https://evil.example"})
            assert "access-control-allow-origin" not in refused.headers
        reply = await asking.post("/v1/learners/a/predict", json=PREDICT, headers={**asks, **ring["root"]})
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, "https://ours.example")
        reply = await asking.post("/v1/learners/a/predict", json=PREDICT, headers=asks)
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (401, "https://ours.example")


# What is read


def test_no_module_executes_received_or_stored_data() -> None:
    """No module takes anything that could run what was sent or stored.

    The cache of machine code has numba's format, a pickle: it is the user's own, and what it holds runs anyway. The
    names of its files are made from the project's own code.
    """
    forbidden = re.compile(
        r"\b(pickle|cPickle|dill|cloudpickle|joblib|shelve|marshal)\b|allow_pickle=(?!False)|(?<![\w.])(eval|exec|compile)\("
        r"|yaml\.(load|unsafe_load)\b|shell=True|os\.system\("
    )
    for folder in ("service", "learners"):
        for source in sorted((ROOT / folder).rglob("*.py")):
            if source.name in ("kernel_cache.py", "kernel_reach.py"):
                continue
            code = re.sub(r'"""(?s:.*?)"""|#.*', "", source.read_text())
            assert not forbidden.search(code), f"{source.name}: {forbidden.search(code)}"


def test_settings_never_show_a_key(ring: Keyring) -> None:
    app = create_app(Settings(store="memory:", keys=str(ring.path)))
    secret = ring.secret("root").split("_")[2]
    for item in (app.state.settings, app.state.guard, *app.state.guard._permissions.values()):
        assert secret not in repr(item)
        assert secret not in str(getattr(item, "__dict__", item))
