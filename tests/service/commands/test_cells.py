"""What label values mean, and what is said of those that mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.commands.cells import Columns
from service.commands.readers import open_rows
from service.commands.rows import ReadError


def labelled(folder: Path, *labels: str) -> Path:
    path = folder / "a.csv"
    path.write_text("x,label\n" + "".join(f"1,{label}\n" for label in labels))
    return path


def read(path: Path, *positive: str) -> list[int]:
    with open_rows(path, Columns(positive=positive)) as rows:
        return [event["label"] for event in rows.events()]


@pytest.mark.parametrize(
    ("negative", "positive"),
    [("0", "1"), ("-1", "1"), ("-1", "+1"), ("False", "True"), ("no", "yes"), ("0.0", "1.0")],
)
def test_labels_that_need_no_telling(tmp_path: Path, negative: str, positive: str) -> None:
    assert read(labelled(tmp_path, positive, negative, positive)) == [1, 0, 1]


@pytest.mark.parametrize("labels", [["1", "2"], ["ham", "spam"], ["0", "1", "-1"], ["yes", "0"], ["0", "1", "unknown"]])
def test_unclear_labels_are_refused_before_the_first_event(tmp_path: Path, labels: list[str]) -> None:
    with pytest.raises(ReadError, match="--positive") as caught:
        open_rows(labelled(tmp_path, *labels), Columns())
    assert all(repr(label) in str(caught.value) for label in labels)


def test_many_labels_are_not_all_quoted(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"the labels seen are '0', .*'9', \.\.\.; expected 0/1"):
        open_rows(labelled(tmp_path, *map(str, range(5000))), Columns())


def test_a_label_that_turns_up_late(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="line 10,002: the labels seen are '1', '2'; expected 0/1"):
        read(labelled(tmp_path, *["1"] * 10_000, "2"))


def test_positive_labels_are_named(tmp_path: Path) -> None:
    assert read(labelled(tmp_path, "2", "1", "3", "fraud", "Fraud "), "2.0", "fraud", " Fraud") == [1, 0, 0, 1, 1]


@pytest.mark.parametrize(("label", "positive"), [("fraud", "Fraud"), (" FRAUD", "fraud "), ("true", "True")])
def test_a_positive_label_that_is_spelt_otherwise_in_the_file(tmp_path: Path, label: str, positive: str) -> None:
    with pytest.raises(ReadError) as caught:
        open_rows(labelled(tmp_path, "ok", label, "other"), Columns(positive=(positive,)))
    spelt, said = label.strip(), positive.strip()
    assert f"the file has the label {spelt!r}, --positive says {said!r}" in str(caught.value)
    assert f"the labels seen are 'ok', {spelt!r}, 'other'" in str(caught.value)


@pytest.mark.parametrize("late", ["no", "yes"])
def test_positive_labels_that_never_come(tmp_path: Path, late: str) -> None:
    with open_rows(labelled(tmp_path, "no", *["0"] * 10_000, late), Columns(positive=("yes", "1"))) as rows:
        assert rows.labels.unmet() == "had the label 'yes' or '1'; labels seen: 'no', '0'"
        assert sum(event["label"] for event in rows.events()) == (late == "yes")
        assert (rows.labels.unmet() is None) == (late == "yes")


def test_labels_seen_are_told_in_a_few_words(tmp_path: Path) -> None:
    labels = ["x" * 1000, *(f"class {i}" for i in range(3000))]
    with open_rows(labelled(tmp_path, *labels), Columns(positive=("fraud",))) as rows:
        text = str(rows.labels.unmet())
    assert text.startswith(f"had the label 'fraud'; labels seen: '{'x' * 60}...', 'class 0', ")
    assert text.endswith("'class 8', ...")


def test_without_named_labels_none_is_missed(tmp_path: Path) -> None:
    with open_rows(labelled(tmp_path, "0", "0"), Columns()) as rows:
        assert rows.labels.unmet() is None


@pytest.mark.parametrize("text", ['{"x": 1, "label": null}', '{"x": 1, "label": ""}', '{"x": 1, "label": " "}'])
def test_a_missing_label(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1, "label": 2}\n' + text + "\n")
    with pytest.raises(ReadError, match="line 2: the label is missing"):
        read(path, "2")
