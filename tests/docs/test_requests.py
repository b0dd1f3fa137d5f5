"""Every request that a document names or lists is carried out: by the API guide's blocks, or here behind them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import httpx
import pytest

from tests.docs.consoles import Console, kill_group
from tests.docs.documents import DOCUMENTS, ROOT, Block, block, blocks, inline, instead
from tests.docs.sessions import RUN, Session
from tests.harness.waiting import eventually

pytestmark = pytest.mark.integration

API = ROOT / "docs" / "reference" / "http-api.md"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """After every block of the guide."""
    with Session(tmp_path_factory.mktemp("api"), started=True, log_level="debug") as session:
        for block in blocks(API):
            if block.language in RUN:
                session.run(block)
        yield session


def named(method: str) -> list[str]:
    """Paths, with what is to be filled in as the documents have it."""
    snippets = chain.from_iterable(map(inline, DOCUMENTS))
    ours = {text for text in snippets if re.match(f"{method} /(?!api/)", text)}  # not chantilly's
    return sorted(text.removeprefix(f"{method} ") for text in ours)


def filled(path: str) -> str:
    name = "trial" if path.startswith("/v1/groups") else "regions" if "/segments" in path else "fraud"
    path += "?by=country" if path.endswith("/segments") else ""  # which is required
    return re.sub(r"\{name\}|NAME", name, path).replace("{id}", "tx-3")


def status(session: Session, method: str, path: str) -> int:
    """Of the reply, of which only the head is read."""
    with httpx.stream(method, session.url + filled(path), timeout=300, trust_env=False) as reply:
        return reply.status_code


def test_every_get_in_the_text_is_answered(session: Session) -> None:
    paths = named("GET")
    assert len(paths) > 20
    assert {path: status(session, "GET", path) for path in paths} == dict.fromkeys(paths, 200)


def test_every_curl_in_the_text_is_answered(session: Session, tmp_path: Path) -> None:
    snippets = {text for document in DOCUMENTS for text in inline(document) if re.match(r"(tail .*\| )?curl ", text)}
    (dripping,) = (text for text in snippets if text.startswith("tail "))
    assert len(snippets) > 1
    for text in snippets - {dripping}:
        session.run(Block("the text", 0, "sh", text))
        assert session.reply
    events = tmp_path / "events.ndjson"
    events.write_text('{"id": "drip-1", "features": {"amount": 3}, "label": 0}\n')
    rest = f"-X POST {session.url}/v1/learners/fraud/update -H 'content-type: application/x-ndjson'"
    with Console(tmp_path).start(instead(dripping, {"...": rest})) as drip:
        assert drip.stdout is not None
        first = json.loads(drip.stdout.readline())  # while the body goes on
        with events.open("a") as file:
            file.write('{"id": "drip-2", "features": {"amount": 4}, "label": 1}\n')
        second = json.loads(drip.stdout.readline())
        kill_group(drip)
    assert [(item["lines"], item["applied"]) for item in (first, second)] == [(1, 1), (2, 1)]


def acknowledge_silence(session: Session) -> None:
    """Acknowledge the alarm of a learner whose positive labels stopped arriving."""
    labels = [*[1, *[0] * 9] * 60, *[0] * 400]
    with httpx.Client(base_url=f"{session.url}/v1/learners", timeout=300, trust_env=False) as http:
        http.put("/silent", json={"algorithm": "cbr-diag", "features": {"kind": "dense", "dim": 1}}).raise_for_status()
        http.post("/silent/update", json={"events": [{"x": [y], "label": y} for y in labels]}).raise_for_status()
        http.post("/silent/alarms/0/acknowledge", json={}).raise_for_status()


def test_every_listed_request_was_executed(session: Session) -> None:
    """By the log. What no block sends comes first."""
    listed = re.findall(r"^\| `([A-Z]+ /v1[^`]*)` \|", API.read_text(), re.MULTILINE)
    assert len(listed) > 30
    learners_own = block("docs/reference/http-api.md", 'POST /v1/learners/fraud/update\n\n{"events"').text
    session.run(Block("the list", 0, "http", instead(learners_own, {"learners/fraud": "groups/trial"})))
    acknowledge_silence(session)
    session.finish()
    for path in ("/v1/groups/trial", "/v1/learners/fraud-new"):
        assert status(session, "DELETE", path) == 204
    log = session.folder / "service.log"
    eventually(lambda: "DELETE /v1/learners/{name} 204 " in log.read_text())  # lines are written by a thread
    requested = set(re.findall(r"(?:DEBUG|INFO) +([A-Z]+ /v1\S*) 20\d ", log.read_text()))
    assert [item for item in listed if item not in requested] == []
