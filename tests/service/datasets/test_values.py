"""Meanings of label values, and errors for those without one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from service.datasets.file_options import FileOptions
from service.datasets.readers import open_rows
from service.datasets.rows import ReadError
from service.datasets.values import BinaryLabels, Ranks, RowColumns


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


@pytest.mark.parametrize("labels", [["1", "2"], ["ham", "spam"], ["0", "1", "-1"], ["yes", "0"], ["0", "1", "perhaps"]])
def test_ambiguous_labels_are_refused_before_the_first_event(tmp_path: Path, labels: list[str]) -> None:
    with pytest.raises(ReadError, match="--positive") as caught:
        open_rows(labelled(tmp_path, *labels), RowColumns())
    assert all(repr(label) in str(caught.value) for label in labels)


MISSING = ["", "NULL", "None", "?", "-", "pending", "NaN", "Unknown", "(null)", "N.A.", "nil", ".", "Not reviewed"]
MISSING += ["#NULL!", "#REF!", "n/d", "not yet"]


@pytest.mark.parametrize(("good", "bad"), [("ok", "fraud"), ("0", "1")])
@pytest.mark.parametrize("pairs", [2, 6000], ids=["first rows", "later rows"])
def test_a_missing_label_is_never_negative(tmp_path: Path, good: str, bad: str, pairs: int) -> None:
    """Labels of the first 10,000 rows are read before the first event."""
    options = RowColumns(positive=("fraud",) if bad == "fraud" else ())
    rows = [good, bad] * pairs
    for label in MISSING if pairs == 2 else MISSING[:1]:
        path = labelled(tmp_path, *rows, label, good)
        with pytest.raises(ReadError, match=rf"line {len(rows) + 2:,}: .*label"), open_rows(path, options) as lines:
            list(lines.events())
    path = labelled(tmp_path, *rows, *MISSING, good)
    for unlabelled in ("skip", "score"):
        form = FileOptions(unlabelled=unlabelled)
        with open_rows(path, replace(options, form=form)) as lines:
            labels = [event.get("label") for event in lines.events(skip=len(rows) - 1)]
            (note,) = lines.notes()
        assert labels == [1, *[None] * len(MISSING) * (unlabelled == "score"), 0]
        assert note.startswith(f"{len(MISSING)} rows ")
        assert f"line {len(rows) + 2:,}" in note


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.libsvm", "a.npz"])
def test_rows_without_a_label_are_scored_in_every_format(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    labels = ["1", "?", "0"]
    match path.suffix:
        case ".csv":
            path.write_text("x,label\n" + "".join(f"1,{label}\n" for label in labels))
        case ".jsonl":
            path.write_text('{"x": 1, "label": 1}\n{"x": 1}\n{"x": 1, "label": 0}\n')
        case ".libsvm":
            path.write_text("".join(f"{label} 1:1\n" for label in labels))
        case ".npz":
            np.savez(path, X=np.ones((3, 1)), y=np.array([1.0, np.nan, 0.0]))
    with open_rows(path, RowColumns(form=FileOptions(unlabelled="score"))) as rows:
        assert [event.get("label") for event in rows.events()] == [1, None, 0]


def test_a_word_for_missing_may_be_a_label(tmp_path: Path) -> None:
    path = labelled(tmp_path, "none", "theft", "pending")
    with open_rows(path, RowColumns(positive=("theft",), negative=("none", "pending"))) as rows:
        assert [event["label"] for event in rows.events()] == [0, 1, 0]
    with open_rows(labelled(tmp_path, "+", "-"), RowColumns(positive=("+",))) as rows:  # the UCI's credit approval
        assert [event["label"] for event in rows.events()] == [1, 0]


def test_negative_labels_can_be_named(tmp_path: Path) -> None:
    path = labelled(tmp_path, "BENIGN", "DoS", "PortScan", "NULL")
    with open_rows(path, RowColumns(negative=("BENIGN",), form=FileOptions(unlabelled="skip"))) as rows:
        assert [event["label"] for event in rows.events()] == [0, 1, 1]
        assert rows.labels.unmet() is None
    with pytest.raises(ReadError, match="'benign'"):
        open_rows(path, RowColumns(negative=("benign",)))
    with open_rows(path, RowColumns(negative=("OK",), form=FileOptions(unlabelled="skip"))) as rows:
        list(rows.events())
        assert "'OK'" in str(rows.labels.unmet())
    columns = RowColumns(positive=("DoS",), negative=("BENIGN",))
    with pytest.raises(ReadError, match=r"line 4: .*'PortScan'"), open_rows(path, columns) as rows:
        list(rows.events())


def test_a_label_is_not_of_both_classes() -> None:
    with pytest.raises(ValueError, match="'1'"):
        BinaryLabels(["1.0"], ["0", "1"])


def test_only_some_of_many_labels_are_quoted(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="'9'"):
        open_rows(labelled(tmp_path, *map(str, range(5000))), RowColumns())


def test_a_late_unexpected_label_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="10,002:"):
        read(labelled(tmp_path, *["1"] * 10_000, "2"))


def test_positive_labels_can_be_named(tmp_path: Path) -> None:
    assert read(labelled(tmp_path, "2", "1", "3", "fraud", "Fraud "), "2.0", "fraud", " Fraud", "3") == [1, 0, 1, 1, 1]


@pytest.mark.parametrize(("label", "positive"), [("fraud", "Fraud"), (" FRAUD", "fraud "), ("true", "True")])
def test_a_differently_spelled_positive_label_is_refused(tmp_path: Path, label: str, positive: str) -> None:
    with pytest.raises(ReadError) as caught:
        open_rows(labelled(tmp_path, "ok", label, "other"), RowColumns(positive=(positive,)))
    assert f"{label.strip()!r}," in str(caught.value)
    assert repr(positive.strip()) in str(caught.value)
    assert "'other'" in str(caught.value)


@pytest.mark.parametrize("late", ["no", "yes"])
def test_positive_labels_that_never_occur_are_reported(tmp_path: Path, late: str) -> None:
    columns = RowColumns(positive=("yes", "1"), negative=("*",))
    with open_rows(labelled(tmp_path, "no", *["0"] * 10_000, late), columns) as rows:
        assert re.search("'yes'.*'1'.*'no', '0'", rows.labels.unmet() or "")
        assert sum(event["label"] for event in rows.events()) == (late == "yes")
        assert (rows.labels.unmet() is None) == (late == "yes")


def test_observed_labels_are_listed_briefly(tmp_path: Path) -> None:
    labels = ["x" * 1000, *(f"class {i}" for i in range(3000))]
    with open_rows(labelled(tmp_path, *labels), RowColumns(positive=("fraud",), negative=("*",))) as rows:
        text = str(rows.labels.unmet())
    assert "'fraud'; " in text
    assert f" '{'x' * 60}...', 'class 0', " in text
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
    assert re.search(f"{seen}; .*'1', '2', '3'.*--ranks {order}$", str(caught.value))


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


def test_several_labels_beside_the_positive_one_are_listed_with_their_counts(tmp_path: Path) -> None:
    path = labelled(tmp_path, "fraud", *["ok"] * 3, *["chargeback"] * 2, "NULL")
    with pytest.raises(ReadError, match=r"several classes, 'fraud' \(1\), 'ok' \(3\), 'chargeback' \(2\); name the"):
        open_rows(path, RowColumns(positive=("fraud",)))
    columns = RowColumns(positive=("fraud",), negative=("*",), form=FileOptions(unlabelled="skip"))
    with open_rows(path, columns) as rows:
        assert [event["label"] for event in rows.events()] == [1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("late", ["chargeback", "OK", "3"])
def test_a_third_class_in_a_later_row_is_no_label(tmp_path: Path, late: str) -> None:
    path = labelled(tmp_path, "fraud", *["ok"] * 10_000, late, "ok")
    with pytest.raises(ReadError, match=rf"10,003: the label '{late}' is of a third class beside 'fraud', 'ok'"):
        read(path, "fraud")
    for unlabelled, labels in (("skip", [0]), ("score", [None, 0])):
        columns = RowColumns(positive=("fraud",), form=FileOptions(unlabelled=unlabelled))
        with open_rows(path, columns) as rows:
            assert [event.get("label") for event in rows.events()][-len(labels) :] == labels
            assert f"1 row without a label: {'left out' if unlabelled == 'skip' else 'scored'}" in rows.notes()[0]


def test_a_refused_row_does_not_decide_which_label_is_negative() -> None:
    labels = BinaryLabels(("fraud",))
    assert labels("fraud") == 1
    labels.undo.clear()
    assert labels("chargeback") == 0
    labels.undo.pop()()  # the row is bad for another reason
    assert [labels("ok"), labels("fraud")] == [0, 1]
    with pytest.raises(ValueError, match="third class"):
        labels("chargeback")


def test_a_star_names_all_other_labels() -> None:
    for positive, negative in ((("*",), ()), ((), ("*",)), (("a", "*"), ("b",)), (("*",), ("*",))):
        with pytest.raises(ValueError, match=r"\*"):
            BinaryLabels(positive, negative)
    assert [BinaryLabels(("*",), ("BENIGN",))(text) for text in ("DoS", "BENIGN")] == [1, 0]
