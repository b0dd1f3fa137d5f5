"""Every snippet of the documents does what they say: each document is a session against a service of its own."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.documents import DOCUMENTS, ROOT, Block, blocks
from tests.sessions import RUN, Differs, Session, compare

# Blocks that are not carried out, in order: how each begins, and why.
NOT_RUN = {
    "README.md": {
        "pip install . && rarestream demo": "installs; the demo has tests in tests/service/commands",
        "pip install '.[test]' && pytest": "installs, and runs this very test",
        "update ---> decode once": "a diagram",
    },
    "docs/api.md": {'<- {"type": "hello"': "a conversation; the python below it has it"},
    "docs/benchmarks.md": {
        "$ python -m benchmarks.papers": "up to hours, on data sets that are elsewhere; see tests/benchmarks",
    },
    "docs/command-line.md": {
        "$ rarestream consume": "runs until it is stopped; tests/service/test_consume_kafka.py and _redis.py",
    },
    "docs/learners.md": {"event -> features -> scaling": "a diagram"},
    "docs/operations.md": {
        "$ rarestream warm": "up to a minute; tests/service has tests of both commands",
        "$ rarestream serve --store redis://localhost:6379/0 --workers": "runs on; tests/service/test_workers.py",
        "[Service]": "a unit of systemd",
        "$ rarestream serve --acks replicas:1": "wants Sentinels and a Cluster; tests/service has tests of both",
        "$ RARESTREAM_REPLICATION=2": "wants other machines; tests/service/test_placement.py has nodes",
        "2026-11-20T19:49:26.696Z": "lines of a log; tests/service/test_logs.py has them",
        "$ docker build": "wants Docker; tests/test_image.py carries out the Dockerfile's steps",
        "$ docker compose": "wants Docker; tests/test_deploy.py reads the files",
        "$ helm install": "wants a cluster; tests/test_helm.py renders the chart",
        "$ kubectl --namespace": "wants a cluster",
        "# scores.yaml": "values that tests/test_helm.py renders the chart with",
    },
    "docs/security.md": {
        "scrape_configs": "Prometheus' own; tests/service/test_guard.py scrapes with a key",
        '{"keys": [{': "a file; tests/service/test_keys.py reads one",
        "$ rarestream serve --host 0.0.0.0": "refused; tests/service/test_security.py has it",
        "$ rarestream keys create": "wants a certificate; tests/service/test_security.py makes one",
    },
    "docs/sources.md": {
        "$ rarestream consume kafka": "wants a Kafka; tests/service/test_consume_kafka.py has one",
        '{"id":"tx-10"': "a message; tests/service/test_consume_kafka.py reads them",
    },
}


def runnable(document: Path) -> list[Block]:
    return [block for block in blocks(document) if block.language in RUN]


def not_run(document: Path) -> list[Block]:
    return [block for block in blocks(document) if block.language not in RUN]


@pytest.mark.parametrize("document", [one for one in DOCUMENTS if runnable(one)], ids=lambda one: one.name)
def test_every_snippet_runs_as_printed(document: Path, tmp_path: Path) -> None:
    found = runnable(document)
    if any(block.language == "sh" for block in found) and not (shutil.which("bash") and shutil.which("curl")):
        pytest.skip("bash and curl are not here")
    starts = any(re.search(r"^rarestream serve(?!.*--port 8001)", block.text, re.MULTILINE) for block in found)
    with Session(tmp_path, started=not starts) as session:
        for block in found:
            session.run(block)
        session.finish()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.name)
def test_what_is_not_run_is_known(document: Path) -> None:
    name = str(document.relative_to(ROOT))
    begins = list(NOT_RUN.get(name, {}))
    assert [block.text[: len(begin)] for block, begin in zip(not_run(document), begins, strict=True)] == begins
    assert {block.language for block in not_run(document)} <= {"console", "text"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.name)
def test_programs_that_are_not_run_are_there(document: Path) -> None:
    for block in not_run(document):
        for module in re.findall(r"python -m ([\w.]+)", block.text):
            path = ROOT / module.replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module


def test_the_conversation_over_a_websocket_is_the_one_that_is_run() -> None:
    printed = not_run(ROOT / "docs/api.md")[-1]
    (program,) = (one for one in blocks(ROOT / "docs/api.md") if "websockets" in one.text and one.language == "python")
    constants = [one.value for one in ast.walk(ast.parse(program.text)) if isinstance(one, ast.Constant)]
    sent = [line.removeprefix("-> ") for line in printed.text.splitlines() if line.startswith("-> ")]
    assert len(sent) == 2
    assert set(sent) <= set(constants)


# What holds the documents to what happened


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ({"a": 1}, {"a": 2.5}),
        ({"a": 1, "...": "..."}, {"a": 2, "b": None}),
        ([1, "..."], [1, 2, 3]),
        ({"digest": "x"}, {"digest": "y"}),
        ([{"status": "applied"}], [{"status": "applied"}]),
    ],
)
def test_what_may_differ_from_what_is_shown(shown: Any, found: Any) -> None:
    compare(shown, found)


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ({"a": 1}, {"a": 1, "b": 1}),
        ({"a": 1, "b": 1, "...": "..."}, {"a": 1, "c": 1}),
        ({"a": "x"}, {"a": "y"}),
        ({"a": 1}, {"a": None}),
        ({"a": 1}, {"a": True}),
        ({"a": True}, {"a": False}),
        ({"a": None}, {"a": 0}),
        ([1], [1, 2]),
        ([1, 2, "..."], [1]),
        ({"a": []}, {"a": {}}),
    ],
)
def test_what_may_not(shown: Any, found: Any) -> None:
    with pytest.raises(Differs):
        compare(shown, found)


def test_a_session_fails_where_its_document_is_wrong(tmp_path: Path) -> None:
    with Session(tmp_path, started=True) as session:
        session.run(Block("made.md", 1, "http", "GET /v1/health/ready\n"))
        with pytest.raises(Differs, match=r"made.md:2: /status is 'ok'; 'fine' is shown"):
            session.run(Block("made.md", 2, "json", '{"status": "fine", "...": "..."}'))
        with pytest.raises(RuntimeError, match=r"made.md:3 ended with 22"):
            session.run(Block("made.md", 3, "sh", "curl localhost:8000/v1/learners/nobody\ntrue\n"))
        with pytest.raises(NameError):
            session.run(Block("made.md", 4, "python", "nobody\n"))
        session.finish()
        session.run(Block("made.md", 5, "http", "GET /v1/learners/nobody\n"))
        with pytest.raises(Differs, match=r"made.md:5 is refused, and no refusal is shown"):
            session.finish()
        with pytest.raises(Differs, match=r"made.md:5 is refused"):
            session.run(Block("made.md", 6, "sh", "true\n"))
