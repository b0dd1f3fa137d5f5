"""Every snippet of the documents does what they say: each document is a session against a service of its own."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.docs.documents import DOCUMENTS, ROOT, Block, block, blocks
from tests.docs.sessions import RUN, Differs, Session, compare

pytestmark = pytest.mark.integration

# Blocks that nothing can carry out: how each begins, and why. Every other block is run here, or read by a test.
NOTHING_TO_RUN = {
    ("README.md", "update ---> decode once"): "a diagram of what happens to a request",
    ("docs/explanation/privacy.md", "rarestream erase fraud"): "tests of the command and of erased bytes hold it",
    ("docs/how-to/monitor.md", "$ rarestream alarms cards\n"): "tests/service/cli/commands/test_incidents.py holds it",
    ("docs/how-to/monitor.md", "curl -X POST localhost:8000/v1/learners/cards"): "the same request is in http-api.md",
    ("docs/reference/http-api.md", "curl -o openapi.json"): "tests/service/api/test_generated_clients.py holds it",
    ("docs/reference/learners.md", "event -> features -> scaling"): "a diagram of what happens to an event",
}


def runnable(document: Path) -> list[Block]:
    return [block for block in blocks(document) if block.language in RUN]


def not_run(document: Path) -> list[Block]:
    return [block for block in blocks(document) if block.language not in RUN]


def read_by_tests() -> set[str]:
    """Where blocks stand that tests of documents, or constants beside them, read: `block("DOCUMENT", "BEGINNING")`."""
    sessions = set()
    for path in (path for folder in ("docs", "campaigns") for path in (ROOT / "tests" / folder).glob("test_*.py")):
        body = ast.parse(path.read_text()).body
        tests = [item for item in body if isinstance(item, ast.FunctionDef) and item.name.startswith("test_")]
        constants = [item for item in body if isinstance(item, ast.Assign)]
        for call in (item for part in (*tests, *constants) for item in ast.walk(part)):
            match call:
                case ast.Call(ast.Name("block"), [ast.Constant(str(document)), ast.Constant(str(begins))]):
                    sessions.add(block(document, begins).place)
    return sessions


@pytest.mark.parametrize("document", [item for item in DOCUMENTS if runnable(item)], ids=lambda entry: entry.name)
def test_every_snippet_runs_as_printed(document: Path, tmp_path: Path) -> None:
    sessions = runnable(document)
    if any(item.language == "sh" for item in sessions) and not (shutil.which("bash") and shutil.which("curl")):
        pytest.skip("bash and curl are not here")
    starts = any(re.search(r"^rarestream serve(?!.*--port 8001)", item.text, re.MULTILINE) for item in sessions)
    with Session(tmp_path, started=not starts) as session:
        for item in sessions:
            session.run(item)
        session.finish()
        if document.name == "api.md":
            for expected, name in zip(received(), ("hello", "learnt", "scored"), strict=True):
                compare(expected, session.names[name])


def test_every_other_block_is_covered_by_a_test() -> None:
    read = read_by_tests()
    left = [item for document in DOCUMENTS for item in not_run(document) if item.place not in read]
    pictures = [block(document, begins) for document, begins in NOTHING_TO_RUN]
    assert [item.place for item in left] == [picture.place for picture in pictures]
    assert {item.language for item in left} == {"text"}


def test_a_block_must_exist_exactly_once() -> None:
    for begins, count in (("$ rarestream nonsense", "0"), ("{", "[1-9]")):  # none, and several
        with pytest.raises(ValueError, match=rf"\.md\D+{count}"):
            block("docs/reference/http-api.md", begins)


def test_the_printed_websocket_conversation_matches_the_program() -> None:
    printed = block("docs/reference/http-api.md", '<- {"type": "hello"')
    (program,) = (
        item
        for item in blocks(ROOT / "docs/reference/http-api.md")
        if "websockets" in item.text and item.language == "python"
    )
    constants = [item.value for item in ast.walk(ast.parse(program.text)) if isinstance(item, ast.Constant)]
    messages = [line.removeprefix("-> ") for line in printed.text.splitlines() if line.startswith("-> ")]
    assert len(messages) == 2
    assert set(messages) <= set(constants)


def received() -> list[Any]:
    """Check the node's messages in the documented websocket conversation."""
    printed = block("docs/reference/http-api.md", '<- {"type": "hello"')
    lines = [line.removeprefix("<- ") for line in printed.text.splitlines() if line.startswith("<- ")]
    return [json.loads(line.replace(", ...}", ', "...": "..."}')) for line in lines]


# What holds the documents to what happened


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"a": 1.5}, {"a": 1.5496}),
        ({"a": 1e-8}, {"a": 1.4e-8}),
        ({"seconds": 1}, {"seconds": 2.5}),
        ({"a": 1, "...": "..."}, {"a": 1, "b": None}),
        ([1, "..."], [1, 2, 3]),
        ({"digest": "x"}, {"digest": "y"}),
        ([{"status": "applied"}], [{"status": "applied"}]),
    ],
)
def test_allowed_differences_between_documented_and_actual_output(expected: Any, actual: Any) -> None:
    compare(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1.5}, {"a": 1.56}),
        ({"a": 1e-8}, {"a": 1.6e-8}),
        ({"window": {"size": 10000}}, {"window": {"size": 9999}}),
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
def test_refused_differences_between_documented_and_actual_output(expected: Any, actual: Any) -> None:
    with pytest.raises(Differs):
        compare(expected, actual)


def test_a_session_fails_if_its_document_is_wrong(tmp_path: Path) -> None:
    with Session(tmp_path, started=True) as session:
        session.run(Block("made.md", 1, "http", "GET /v1/health/ready\n"))
        with pytest.raises(Differs, match=r"made\.md:2:.*/status\b.*'ok'.*'fine'"):
            session.run(Block("made.md", 2, "json", '{"status": "fine", "...": "..."}'))
        with pytest.raises(RuntimeError, match=r"made\.md:3\D+22:"):
            session.run(Block("made.md", 3, "sh", "curl localhost:8000/v1/learners/nobody\ntrue\n"))
        with pytest.raises(NameError):
            session.run(Block("made.md", 4, "python", "nobody\n"))
        session.finish()
        session.run(Block("made.md", 5, "http", "GET /v1/learners/nobody\n"))
        with pytest.raises(Differs, match=r"made\.md:5\b"):
            session.finish()
        with pytest.raises(Differs, match=r"made\.md:5\b"):
            session.run(Block("made.md", 6, "sh", "true\n"))
