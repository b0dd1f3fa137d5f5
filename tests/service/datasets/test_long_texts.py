"""Texts of files with more words than an event can have are learnt by the first ones, and this is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from service.datasets.event_inputs import Inputs
from service.datasets.notes import LongTexts
from service.datasets.readers import open_rows
from service.datasets.values import RowColumns

MOST = 2**15
FEATURES: dict[str, Any] = {"kind": "named", "bits": 18, "text": ["body"], "words": "normalised"}
CONFIG: dict[str, Any] = {"algorithm": "cbr-diag", "features": FEATURES}
LEARNER = {"name": "a", "config": CONFIG}
LONG = " ".join(f"W{i}" for i in range(MOST + 1))
TEXTS = ["hello there", LONG, " ".join(LONG.split()[: MOST - 1]), "\u65e5\u672c" * MOST, "x" * 3 * MOST]


def write(folder: Path, form: str) -> Path:
    path = folder / f"rows.{form}"
    rows = [{"body": text, "other": "a, b " * MOST, "label": i % 2} for i, text in enumerate(TEXTS)]
    if form == "jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        path.write_text("body\tother\tlabel\n" + "".join("\t".join(map(str, row.values())) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
def test_long_texts_are_reported_and_stay_as_they_are(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, form)
    with open_rows(path, RowColumns()) as rows:
        rows.long_texts = LongTexts(CONFIG)
        events = list(rows.events())
        (note,) = rows.notes()
    assert [event["features"]["body"] for event in events] == TEXTS
    assert note.startswith("body: 2 texts ")
    assert "line 2" in note.replace("line 3", "line 2")
    inputs = Inputs([str(path)], "update", LEARNER, RowColumns())
    assert list(inputs.events()) == events
    assert inputs.notes == [note]


def test_texts_longer_than_what_the_learner_stores_of_an_event_are_reported() -> None:
    texts = LongTexts({"algorithm": "npsvor", "features": FEATURES})
    for k, words in enumerate((100, 523, 600, 2000)):
        texts.note({"features": {"body": " ".join(LONG.split()[:words])}}, f"line {k + 1}")
    (note,) = texts.notes()
    assert note.startswith("body: 2 texts ")
    assert note.endswith("line 3")


def test_a_configuration_of_a_later_service_reports_nothing() -> None:
    texts = LongTexts({"algorithm": "later", "features": FEATURES})
    texts.note({"features": {"body": LONG}}, "line 1")
    assert texts.notes() == []


def test_events_without_names_have_no_texts() -> None:
    texts = LongTexts({"algorithm": "cbr-diag", "features": {"kind": "dense", "dim": 1}})
    texts.note({"x": [1.0]}, "line 1")
    assert texts.notes() == []
