"""Meanings of label values, and errors for those without one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.datasets.readers import open_rows
from service.datasets.rows import ReadError
from service.datasets.values import Ranks, RowColumns


def labelled(folder: Path, *labels: str) -> Path:
    path = folder / "a.csv"
    path.write_text("x,label\n" + "".join(f"1,{label}\n" for label in labels))
    return path


def read(path: Path, *positive: str) -> list[int]:
    with open_rows(path, RowColumns(positive=positive)) as rows:
        return [event["label"] for event in rows.events()]


@pytest.mark.parametrize(
    ("negative", "positive"),
    [("0", "1"), ("-1", "1"), ("-1", "+1"), ("False", "True"), ("no", "yes"), ("0.0", "1.0")],
)
def test_common_binary_labels_need_no_option(tmp_path: Path, negative: str, positive: str) -> None:
    assert read(labelled(tmp_path, positive, negative, positive)) == [1, 0, 1]


@pytest.mark.parametrize("labels", [["1", "2"], ["ham", "spam"], ["0", "1", "-1"], ["yes", "0"], ["0", "1", "unknown"]])
def test_ambiguous_labels_are_refused_before_the_first_event(tmp_path: Path, labels: list[str]) -> None:
    with pytest.raises(ReadError, match="--positive") as caught:
        open_rows(labelled(tmp_path, *labels), RowColumns())
    assert all(repr(label) in str(caught.value) for label in labels)


def test_only_some_of_many_labels_are_quoted(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="'9'"):
        open_rows(labelled(tmp_path, *map(str, range(5000))), RowColumns())


def test_a_late_unexpected_label_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="10,002:"):
        read(labelled(tmp_path, *["1"] * 10_000, "2"))


def test_positive_labels_can_be_named(tmp_path: Path) -> None:
    assert read(labelled(tmp_path, "2", "1", "3", "fraud", "Fraud "), "2.0", "fraud", " Fraud") == [1, 0, 0, 1, 1]


@pytest.mark.parametrize(("label", "positive"), [("fraud", "Fraud"), (" FRAUD", "fraud "), ("true", "True")])
def test_a_differently_spelled_positive_label_is_refused(tmp_path: Path, label: str, positive: str) -> None:
    with pytest.raises(ReadError) as caught:
        open_rows(labelled(tmp_path, "ok", label, "other"), RowColumns(positive=(positive,)))
    assert f"{label.strip()!r}," in str(caught.value)
    assert repr(positive.strip()) in str(caught.value)
    assert "'other'" in str(caught.value)


@pytest.mark.parametrize("late", ["no", "yes"])
def test_positive_labels_that_never_occur_are_reported(tmp_path: Path, late: str) -> None:
    with open_rows(labelled(tmp_path, "no", *["0"] * 10_000, late), RowColumns(positive=("yes", "1"))) as rows:
        assert rows.labels.unmet() == "had the label 'yes' or '1'; labels seen: 'no', '0'"
        assert sum(event["label"] for event in rows.events()) == (late == "yes")
        assert (rows.labels.unmet() is None) == (late == "yes")


def test_observed_labels_are_listed_briefly(tmp_path: Path) -> None:
    labels = ["x" * 1000, *(f"class {i}" for i in range(3000))]
    with open_rows(labelled(tmp_path, *labels), RowColumns(positive=("fraud",))) as rows:
        text = str(rows.labels.unmet())
    assert text.startswith(f"had the label 'fraud'; labels seen: '{'x' * 60}...', 'class 0', ")
    assert text.endswith("'class 8', ...")


def test_without_named_labels_no_label_is_reported_missing(tmp_path: Path) -> None:
    with open_rows(labelled(tmp_path, "0", "0"), RowColumns()) as rows:
        assert rows.labels.unmet() is None


# Ranks


def ranks(path: Path, *lowest_first: str) -> list[int]:
    with open_rows(path, RowColumns(), labels=Ranks(lowest_first)) as rows:
        return [event["label"] for event in rows.events()]


def test_ranks_are_read_as_numbers_or_by_their_position(tmp_path: Path) -> None:
    assert ranks(labelled(tmp_path, "3", "1.0", "2", "+3"), "1", "2", "3") == [3, 1, 2, 3]
    assert ranks(labelled(tmp_path, "0", "2", "-1"), "-1", "0", "1", "2") == [2, 4, 1]
    assert ranks(labelled(tmp_path, "good", "bad ", "fair"), "bad", " fair", "good") == [3, 1, 2]


def test_ranks_are_read_from_an_array(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, X=np.ones((4, 2)), y=np.array([0.0, 2.0, 1.0, 0.0]))
    assert ranks(path, "0", "1", "2") == [1, 3, 2, 1]


@pytest.mark.parametrize(
    ("labels", "seen", "order"),
    [
        (["2", "0", "1"], "'0', '1', '2'", "0,1,2"),
        (["10", "9", "2"], "'2', '9', '10'", "2,9,10"),
        (["4", "0"], "'0', '4'", "LOWEST,...,HIGHEST"),
        (["good", "bad", "fair"], "'good', 'bad', 'fair'", "LOWEST,...,HIGHEST"),
        (["1", "2", "true"], "'1', '2', 'true'", "LOWEST,...,HIGHEST"),
    ],
)
def test_labels_other_than_ranks_are_refused_before_the_first_event(
    tmp_path: Path, labels: list[str], seen: str, order: str
) -> None:
    with pytest.raises(ReadError) as caught:
        open_rows(labelled(tmp_path, *labels), RowColumns(), labels=Ranks(["1", "2", "3"]))
    expected = "expected the learner's 3 ranks as '1', '2', '3': name the file's with --ranks"
    assert str(caught.value).endswith(f"the labels seen are {seen}; {expected} {order}")


def test_a_late_invalid_rank_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="'7'"):
        ranks(labelled(tmp_path, *["1", "2"] * 5_000, "7"), "1", "2")


def test_an_unused_rank_is_accepted(tmp_path: Path) -> None:
    with open_rows(labelled(tmp_path, "1", "3"), RowColumns(), labels=Ranks(["1", "2", "3"])) as rows:
        assert [event["label"] for event in rows.events()] == [1, 3]
        assert rows.labels.unmet() is None


@pytest.mark.parametrize("text", ['{"x": 1, "label": null}', '{"x": 1, "label": ""}', '{"x": 1, "label": " "}'])
def test_a_missing_label_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1, "label": 2}\n' + text + "\n")
    with pytest.raises(ReadError, match=r"\b2:.*missing"):
        read(path, "2")
