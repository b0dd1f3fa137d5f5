"""The documents' commands that run on, or go to servers elsewhere: each run as printed, addresses replaced.

`tests/docs/test_sessions.py` runs all other blocks, and checks that every block is read by some test.
"""

from __future__ import annotations

import hashlib
import json
import re
import signal
import ssl
from pathlib import Path

import httpx
import pytest
import trustme
import yaml

from service.auth.keys import load
from tests.docs.consoles import Console
from tests.docs.documents import ROOT, block, commands, inline, instead
from tests.docs.sessions import compare
from tests.harness.consumer import Target, event
from tests.harness.kafka_broker import KafkaBroker
from tests.harness.process import Process, free_port
from tests.harness.redis_fleet import cluster, watched
from tests.harness.redis_server import RedisServer
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.campaign]

LATER = "2999-11-22"  # in place of a key's last day, which comes


def get(url: str, **headers: str) -> httpx.Response:
    return httpx.get(url, headers=headers, timeout=300, trust_env=False)


def learners(console: Console, url: str) -> list[dict[str, object]]:
    """List the learners as `rarestream list` reports them."""
    rows: list[dict[str, object]] = json.loads(console.run(f"rarestream list --json --url {url}").stdout)["learners"]
    return rows


# README.md


def test_the_documented_session_ends_its_service(tmp_path: Path) -> None:
    """By the shell that started it, as at a terminal, in order."""
    (end,) = (text for text in inline(ROOT / "README.md") if text.startswith("kill %"))
    start, _, _ = block("README.md", "rarestream serve --store sqlite:///rarestream.db").text.partition("\n\n")
    port = free_port()
    command = instead(start, {"localhost:8000": f"127.0.0.1:{port}"})
    completed = Console(tmp_path, RARESTREAM_PORT=port).run(f"{command}\n{end}\nwait %1", status=128 + signal.SIGTERM)
    assert "stopped" in completed.stderr
    assert (tmp_path / "rarestream.db").exists()


# operations.md


def test_kernels_are_compiled_before_the_service_starts(tmp_path: Path) -> None:
    warm, serve = commands(block("docs/how-to/run.md", "$ rarestream warm"))
    console = Console(tmp_path)
    assert Path(console.run(warm).stdout.splitlines()[-1].split()[-1]).is_dir()
    store = tmp_path / "rarestream.db"
    with console.serving(instead(serve, {"/var/lib/rarestream/rarestream.db": store})) as url:
        assert learners(console, url) == []
    assert store.exists()


def test_several_processes_start(tmp_path: Path) -> None:
    (serve,) = commands(block("docs/how-to/run.md", "$ rarestream serve --store redis://localhost:6379/0 --workers"))
    console = Console(tmp_path)
    with RedisServer() as redis:
        with console.serving(instead(serve, {"localhost:6379": f"127.0.0.1:{redis.port}"})) as url:
            workers = set(re.findall(r'worker="(\d+)"', get(f"{url}/metrics").text))
            assert learners(console, url) == []
        assert {"1", "2", "3", "4"} == workers
    assert "worker=4" in console.errors()


def test_sentinels_and_a_cluster_start(tmp_path: Path) -> None:
    of_sentinels, of_cluster = commands(block("docs/how-to/store.md", "$ rarestream serve --acks replicas:1"))
    console = Console(tmp_path)
    create = "rarestream create fraud --features named --url"
    learn = """rarestream update fraud '{"features": {"amount": 12.5}, "label": 0}' --url"""
    with watched(password="PASSWORD", sentinel_password="SECRET") as fleet:
        sentinels = f"127.0.0.1:1,127.0.0.1:{fleet.sentinel.port}"
        with console.serving(instead(of_sentinels, {"s1:26379,s2:26379,s3:26379": sentinels})) as url:
            console.run(f"{create} {url}")
            console.run(f"{learn} {url}")
        assert "PASSWORD" not in console.errors()
    with cluster(user="default", password="PASSWORD") as servers:
        sentinels = ",".join(f"127.0.0.1:{server.port}" for server in servers.masters)
        with console.serving(instead(of_cluster, {"c1:6379,c2:6379,c3:6379": sentinels})) as url:
            console.run(f"{create} {url}")
            console.run(f"{learn} {url}")


def test_learners_are_spread_over_nodes(tmp_path: Path) -> None:
    (serve,) = commands(block("docs/how-to/several-nodes.md", "$ RARESTREAM_REPLICATION=2"))
    port = free_port()
    console = Console(tmp_path, RARESTREAM_PORT=port)
    console.run("rarestream keys create --keys keys.json --name me --scope admin > me.key")
    key = (tmp_path / "me.key").read_text().strip()
    service_url = f"http://127.0.0.1:{port}"
    with RedisServer() as redis:
        command = {"redis:6379": f"127.0.0.1:{redis.port}", "http://10.0.0.7:8000": service_url}
        with console.serving(instead(serve, command)) as url:
            nodes = get(f"{url}/v1/nodes", authorization=f"Bearer {key}").raise_for_status().json()
    assert service_url in json.dumps(nodes)


def masked(line: str) -> str:
    """Remove from a line of the log what differs between runs."""
    line = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIME", line)
    line = re.sub(r'(request_id"?[=:]"?)[0-9a-f]{32}\b', r"\1ID", line)
    line = re.sub(r'(bytes"?[=:])\d+', r"\1N", line)
    return re.sub(r'(\d+\.\d+)ms|(?<="milliseconds":)\d+\.\d+', "MS", line)


def test_documented_log_lines_match(tmp_path: Path) -> None:
    printed = block("docs/how-to/monitor.md", "2026-11-20T19:49:26.696Z INFO").text.splitlines()
    config = {"algorithm": "cbr-diag", "features": {"kind": "named"}}
    events = [{"features": {"amount": i}, "label": i % 2} for i in range(20)]
    for form, line in zip(("text", "json"), printed, strict=True):
        log = tmp_path / form
        with Process("memory:", log, log_format=form) as service:
            with httpx.Client(base_url=f"{service.url}/v1/learners/", timeout=300, trust_env=False) as http:
                http.put("fraud", json=config).raise_for_status()
                http.post("fraud/update", json={"events": events}).raise_for_status()
                assert http.post("fraud/update", json={"events": [{"label": 2}]}).status_code == 422
            service.stop()
        assert masked(line) in [masked(item) for item in log.read_text().splitlines()]


# security.md


def test_the_service_refuses_public_addresses_without_keys(tmp_path: Path) -> None:
    refused = block("docs/how-to/secure.md", "$ rarestream serve --host 0.0.0.0")
    (serve,) = commands(refused)
    expected = refused.text.partition("\n")[2].strip()
    assert expected.endswith(" ...")
    assert Console(tmp_path).run(serve, status=2).stderr.startswith(expected.removesuffix(" ..."))


def test_tls_commands_run(tmp_path: Path) -> None:
    create, serve, look = commands(block("docs/how-to/secure.md", "$ rarestream keys create"))
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    for pem in certificate.cert_chain_pems:
        pem.write_to_path(tmp_path / "chain.pem", append=True)
    console = Console(tmp_path)
    console.run(create)
    with console.serving(serve) as url:
        assert url.startswith("https://127.0.0.1:")
        assert console.run(instead(look, {"https://rarestream.example:8000": url})).stdout != ""
        trusting = ssl.create_default_context(cafile=tmp_path / "authority.pem")
        assert httpx.get(f"{url}/v1/learners", verify=trusting, trust_env=False, timeout=300).status_code == 401


def test_a_keys_file_is_created_and_used(tmp_path: Path) -> None:
    text = block("docs/how-to/secure.md", '{"keys": [{').text
    secret = "5" * 64
    path = tmp_path / "keys.json"
    command = {"b5bb9d80...": hashlib.sha256(secret.encode()).hexdigest(), "2027-11-22": LATER}
    path.write_text(instead(text, command))
    (key,) = load(path)
    with Process("memory:", tmp_path / "log", keys=path) as service:
        reply = get(f"{service.url}/v1/key", authorization=f"Bearer rs_{key.id}_{secret}").raise_for_status().json()
    assert (reply["name"], reply["scopes"], reply["learners"]) == ("scoring", ["predict"], "fraud-*")
    assert reply["limits"]["requests_per_second"] == 200


def test_a_scrape_uses_a_key(tmp_path: Path) -> None:
    """As Prometheus does by this configuration: the file's content, without space around it, as a bearer token."""
    (job,) = yaml.safe_load(block("docs/how-to/secure.md", "scrape_configs").text)["scrape_configs"]
    assert set(job) == {"job_name", "authorization", "static_configs"}
    assert job["authorization"] == {"credentials_file": "/etc/prometheus/rarestream.key"}
    assert job["static_configs"] == [{"targets": ["rarestream:8000"]}]
    console = Console(tmp_path)
    console.run("rarestream keys create --keys keys.json --name prometheus --scope read > rarestream.key")
    with console.serving("rarestream serve --keys keys.json --store memory:") as url:
        target = job["static_configs"][0]["targets"][0].replace("rarestream:8000", httpx.URL(url).netloc.decode())
        credentials = (tmp_path / Path(job["authorization"]["credentials_file"]).name).read_text().strip()
        scraped = get(f"http://{target}/metrics", authorization=f"Bearer {credentials}").raise_for_status()
    assert "# TYPE rarestream_" in scraped.text


# consume


def test_kafka_consumers_run(tmp_path: Path) -> None:
    of_events, of_labels, secured = commands(block("docs/how-to/read-kafka-and-redis.md", "$ rarestream consume kafka"))
    message = json.loads(block("docs/how-to/read-kafka-and-redis.md", '{"id":"tx-10"').text)
    with (
        KafkaBroker() as broker,
        Process("memory:", tmp_path / "log") as service,
        Target(service.url, "terminals") as cards,
    ):
        console = Console(tmp_path, RARESTREAM_URL=service.url)
        broker.create(payments=1, labels=1, scores=1, alerts=1)
        with console.start(instead(of_events, {"kafka-1:9092,kafka-2:9092": broker.address})) as consumer:
            broker.produce("payments", [(0, event(i)) for i in range(10)])
            eventually(lambda: cards.learnt == 10)
            broker.produce("payments", [(0, event(10, labelled=False, id="tx-10"))])
            ((_, scored),) = broker.messages("scores", 1)
            consumer.send_signal(signal.SIGTERM)
        assert consumer.returncode == 0, console.errors()
        reply = json.loads(scored)
        numbers = {name: reply[name] for name in ("score", "probability", "threshold", "label")}  # depend on the model
        assert numbers.pop("label") == (numbers["probability"] >= numbers["threshold"])
        assert all(isinstance(value, float) for value in numbers.values())
        compare(message | numbers | {"label": reply["label"]}, reply)
        with console.start(instead(of_labels, {"kafka-1:9092": broker.address})) as consumer:
            broker.produce("labels", [(0, b"no event"), (0, json.dumps({"id": "tx-10", "label": 1}).encode())])
            eventually(lambda: cards.learnt == 11)
            consumer.send_signal(signal.SIGTERM)
        assert consumer.returncode == 0, console.errors()
        assert "labels/0" in console.errors()  # the message that was skipped
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    nobody = f"127.0.0.1:{free_port()}"
    with Process("memory:", tmp_path / "log") as service, Target(service.url, "terminals"):
        console = Console(tmp_path / "second", RARESTREAM_URL=service.url)
        completed = console.run(instead(secured, {"kafka-1:9093": nobody, "ca.pem": "../ca.pem"}), status=1)
    assert nobody in completed.stderr


def test_a_kafka_consumer_and_a_redis_consumer_run(tmp_path: Path) -> None:
    of_kafka, of_redis = commands(block("docs/reference/command-line.md", "$ rarestream consume"))
    with Process("memory:", tmp_path / "log") as service, Target(service.url, "cards") as cards:
        console = Console(tmp_path, RARESTREAM_URL=service.url)
        with KafkaBroker() as broker:
            broker.create(payments=1, scores=1, alerts=1)
            broker.produce("payments", [(0, event(i)) for i in range(3)])
            with console.start(instead(of_kafka, {"kafka-1:9092": broker.address})) as consumer:
                eventually(lambda: cards.learnt == 3)
                consumer.send_signal(signal.SIGINT)
            assert consumer.returncode == 0, console.errors()
        with RedisServer() as redis:
            for i in range(4):
                redis.command("XADD", "payments", "*", "event", event(i))
            console.run(instead(of_redis, {"localhost:6379": f"127.0.0.1:{redis.port}"}))
        assert cards.learnt == 7


# What runs on needs an end


def test_a_failing_command_is_reported(tmp_path: Path) -> None:
    console = Console(tmp_path)
    with pytest.raises(RuntimeError, match=r"nonsense\D+2:"):
        console.run("rarestream list --nonsense")
    with pytest.raises(RuntimeError, match=r"\bready:"), console.serving("rarestream serve --acks replicas:1"):
        pass
