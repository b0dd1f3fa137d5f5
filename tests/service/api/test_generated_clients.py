"""Clients that others generate from the OpenAPI document: no warning, and they update, predict and label.

The generators are programs with dependencies of their own, so they are run where they are installed: see CONTRIBUTING.
A service is started because the clients connect to an address.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness.process import Process

pytestmark = pytest.mark.integration

PYTHON = shutil.which("openapi-python-client")
TYPESCRIPT, COMPILER, NODE = shutil.which("openapi-ts"), shutil.which("tsc"), shutil.which("node")

PYTHON_PROGRAM = """
import sys
from fraud_client import Client
from fraud_client.api.events import get_event, label_events, list_events, predict_events, update_events
from fraud_client.api.learners import create_learner
from fraud_client.models import LabelsBody, LearnerConfig, PredictBody, UpdateBody

client = Client(base_url=sys.argv[1], raise_on_unexpected_status=True)
learner = {"algorithm": "lr", "features": {"kind": "dense", "dim": 1}}
made = create_learner.sync("python", client=client, body=LearnerConfig.from_dict(learner))
assert made.name == "python", made
events = [{"id": f"u{i}", "x": [float(i)], "label": int(i > 2)} for i in range(6)]
learnt = update_events.sync("python", client=client, body=UpdateBody.from_dict({"events": events}))
assert learnt.applied == 6, learnt
scored = predict_events.sync("python", client=client, body=PredictBody.from_dict({"events": [{"id": "p", "x": [9.0]}]}))
assert scored.remembered == 1, scored
labelled = label_events.sync("python", client=client, body=LabelsBody.from_dict({"events": [{"id": "p", "label": 1}]}))
assert labelled.results[0].status == "applied", labelled
page = list_events.sync("python", client=client, status="labelled")
assert [event.id for event in page.events] == ["p"], page
event = get_event.sync("python", "p", client=client)
assert (event.label, [step.kind for step in event.history]) == (1, ["served", "labelled"]), event
print(event.status)
"""

TYPESCRIPT_PROGRAM = """
import { createLearner, getEvent, labelEvents, listEvents, predictEvents, updateEvents } from './client';
import { client } from './client/client.gen';

declare const process: { argv: string[] };

async function main(): Promise<void> {
  client.setConfig({ baseUrl: process.argv[2], throwOnError: true });
  const path = { name: 'typescript' };
  await createLearner({ path, body: { algorithm: 'lr', features: { kind: 'dense', dim: 1 } }, throwOnError: true });
  const events = [0, 1, 2, 3, 4, 5].map((i) => ({ id: `u${i}`, x: [i], label: i > 2 ? 1 : 0 }));
  const learnt = await updateEvents({ path, body: { events }, throwOnError: true });
  const scored = await predictEvents({ path, body: { events: [{ id: 'p', x: [9] }] }, throwOnError: true });
  const labels = await labelEvents({ path, body: { events: [{ id: 'p', label: 1 }] }, throwOnError: true });
  const page = await listEvents({ path, query: { status: 'labelled' }, throwOnError: true });
  const event = await getEvent({ path: { ...path, id: 'p' }, throwOnError: true });
  console.log(learnt.data.applied, scored.data.remembered, labels.data.results[0].status);
  console.log(page.data.events.map((item) => item.id), event.data.status);
}

main();
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a program that must end well; return all of its output."""
    result = subprocess.run(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("server")
    with Process("memory:", folder / "log") as process:
        yield process


@pytest.fixture
def document(server: Process, tmp_path: Path) -> Path:
    path = tmp_path / "openapi.json"
    path.write_bytes(httpx.get(f"{server.url}/openapi-clients.json", trust_env=False).raise_for_status().content)
    return path


@pytest.mark.skipif(PYTHON is None, reason="needs openapi-python-client")
def test_a_python_client_is_generated_and_works(server: Process, document: Path, tmp_path: Path) -> None:
    assert PYTHON is not None
    output = run(
        PYTHON, "generate", "--path", document, "--output-path", "fraud_client", "--meta", "none", cwd=tmp_path
    )
    assert "warning" not in output.lower()
    (tmp_path / "use.py").write_text(PYTHON_PROGRAM)
    assert run(Path(PYTHON).parent / "python", "use.py", server.url, cwd=tmp_path) == "labelled\n"


@pytest.mark.skipif(None in (TYPESCRIPT, COMPILER, NODE), reason="needs openapi-ts, tsc and node")
def test_a_typescript_client_is_generated_and_works(server: Process, document: Path, tmp_path: Path) -> None:
    assert TYPESCRIPT is not None and COMPILER is not None and NODE is not None  # noqa: PT018
    output = run(TYPESCRIPT, "-i", document, "-o", "client", cwd=tmp_path)
    assert "warn" not in output.lower()
    (tmp_path / "use.ts").write_text(TYPESCRIPT_PROGRAM)
    options = ["--module", "commonjs", "--target", "es2022", "--lib", "es2022,dom,dom.iterable", "--skipLibCheck"]
    run(COMPILER, "--strict", *options, "--outDir", "js", "use.ts", cwd=tmp_path)
    assert run(NODE, "js/use.js", server.url, cwd=tmp_path).split() == [
        "6",
        "1",
        "applied",
        "[",
        "'p'",
        "]",
        "labelled",
    ]


def test_the_document_for_clients_has_json_alone(document: Path) -> None:
    contents = []

    def collect(value: object) -> None:
        if isinstance(value, dict):
            if "content" in value and isinstance(value["content"], dict):
                contents.append(set(value["content"]))
            for item in value.values():
                collect(item)
        elif isinstance(value, list):
            for item in value:
                collect(item)

    collect(json.loads(document.read_text()))
    assert len(contents) > 100
    assert all(len(types) == 1 for types in contents)
