"""The examples against a service: each prints what it found out, and finds the same once more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.documents import ROOT
from tests.harness.process import Process

pytestmark = pytest.mark.integration

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("service")
    with Process(f"sqlite:///{folder / 'log.db'}", folder / "server.log") as process:
        yield process


def printed(name: str, service: Process, *options: str) -> str:
    """Run an example, which must not warn, and return its output."""
    command = [sys.executable, "-W", "error", f"examples/{name}.py", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RARESTREAM_URL": service.url}
    completed = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr == ""
    return completed.stdout


def numbers(text: str, pattern: str) -> list[float]:
    match = re.search(pattern, text)
    assert match, text
    return [float(number) for number in match.groups()]


def test_spam_is_detected_in_raw_text_despite_changing_words(service: Process) -> None:
    text = printed("spam", service)
    f1, auc = numbers(text, r"6,000 messages: F1 ([\d.]+), AUC ([\d.]+) of the last 1,000")
    assert f1 > 0.9
    assert auc > 0.9
    assert re.search(r"^spam \([\d.]+\): omar, your account is locked", text, re.MULTILINE)
    assert re.search(r"^ham \([\d.]+\): anna, is the report done\?", text, re.MULTILINE)
    assert printed("spam", service) == text


def test_a_budget_finds_card_fraud_with_late_labels(service: Process) -> None:
    text = printed("card_fraud", service)
    alerts, busiest = numbers(text, r"alerts: (\d+) in days 11 to 30, (\d+) on the busiest; 10 a day were allowed")
    assert 150 <= alerts <= 200
    assert busiest <= 10
    precision, caught, frauds = numbers(text, r"precision: ([\d.]+) .*; (\d+) of (\d+) frauds were among them")
    assert precision > 0.5
    assert caught / frauds > 0.5
    auc, delay = numbers(text, r"AUC: ([\d.]+), labels after ([\d.]+) days")
    assert auc > 0.9
    assert 3 <= delay <= 4
    assert printed("card_fraud", service) == text


def test_severity_is_predicted_by_ranks(service: Process) -> None:
    text = printed("severity", service)
    error, constant = numbers(text, r"mean absolute error: ([\d.]+) ranks; always saying 1: ([\d.]+)")
    assert error < constant / 3
    assert re.search(r"^severity 5: money is gone", text, re.MULTILINE)
    assert re.search(r"^severity 1: posted twice", text, re.MULTILINE)
    assert printed("severity", service) == text


def test_an_address_argument_overrides_the_environment() -> None:
    command = [sys.executable, "examples/spam.py", "--url", "ftp://given.example"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RARESTREAM_URL": "http://127.0.0.1:1"}
    completed = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert completed.returncode != 0
    assert "ftp://given.example" in completed.stderr


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda item: item.stem)
def test_examples_are_short_and_import_the_client_only(example: Path) -> None:
    text = example.read_text()
    assert len(text.splitlines()) < 80
    assert set(re.findall(r"^(?:from|import) ((?:rarestream|service|learners)[\w.]*)", text, re.MULTILINE)) == {
        "rarestream"
    }


def test_every_example_is_tested() -> None:
    assert [example.stem for example in EXAMPLES] == ["card_fraud", "severity", "spam"]
