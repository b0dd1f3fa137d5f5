"""A file's rows as a learner takes them: checked before the first is sent, adapted where that changes no meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from service.datasets.rows import Event, Shape
from service.datasets.values import BinaryLabels, Ranks, RowColumns
from service.exits import WrongUsage
from service.text import counted

__all__ = ["Misfit", "adapter", "declared", "features_of", "labels_for", "labels_said", "suitable"]

_LISTED = 8  # columns that a message names


class Misfit(WrongUsage):
    """The rows of the file are not what the learner takes."""


def declared(features: Mapping[str, Any]) -> dict[str, bool]:
    """The columns that a learner's features declare, and whether each is numeric."""
    if features["kind"] == "table":
        return {field["name"]: field["kind"] == "numeric" for field in features["fields"]}
    texts = dict.fromkeys((*features.get("text", ()), *features.get("categorical", ())), False)
    return texts | dict.fromkeys(features.get("log", ()), True)


def labels_for(columns: RowColumns, learner: Mapping[str, Any]) -> BinaryLabels | Ranks:
    """What the labels of a file mean to a learner, of which this is the document.

    An ordinal one takes the ranks 1 to p as they are, or `columns.ranks`. Raises `Misfit` where what is said of the
    labels is not for such a learner.
    """
    classes = learner["class_counts"]
    if "positive" in classes:
        if columns.ranks:
            raise Misfit(f"--ranks is for ordinal learners; {learner['name']} tells two classes: use --positive")
        return BinaryLabels(columns.positive)
    if columns.positive:
        raise Misfit(f"--positive is for learners of two classes; {learner['name']} tells ranks: use --ranks")
    if len(columns.ranks) not in (0, len(classes)):
        raise Misfit(
            f"--ranks names {counted(len(columns.ranks), 'label')}; {learner['name']} tells {len(classes)} ranks"
        )
    try:
        return Ranks(columns.ranks or tuple(classes))
    except ValueError as error:
        raise Misfit(f"--ranks: {error}") from None


def labels_said(columns: RowColumns) -> Callable[[Any], int]:
    """What labels mean to a learner of which nothing is known: what the options say, else numbers as they are."""
    if columns.ranks:
        return Ranks(columns.ranks)
    return BinaryLabels(columns.positive) if columns.positive else _as_given


def _as_given(label: Any) -> int:
    try:
        number = float(label)
        if number.is_integer():
            return int(number)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(
        f"the label is {str(label)[:60]!r}; expected a number as the API takes it, or --positive or --ranks, since the "
        "key may not read what the learner's labels are"
    )


def adapter(shape: Shape, features: Mapping[str, Any]) -> Callable[[Event], Event] | None:
    """What turns each event of a file into one that the learner takes; None where it is one already.

    Named columns of numbers go to a dense learner in their order, dense and sparse rows to each other's kind. Raises
    `Misfit` where the rows cannot be what the learner takes; what only later rows show is refused when they come.
    """
    kind = features["kind"]
    if kind in ("named", "table"):
        _check_names(shape, features)
        return None
    if shape.kind == "named" and kind == "dense":
        return _numbers(shape, features["dim"])
    if (
        shape.kind == "named"
        or (shape.width or 0) > features["dim"]
        or (kind == shape.kind == "dense" and shape.width != features["dim"])
    ):
        raise _misfit(shape, features)
    if kind == shape.kind:
        return None
    return _spread(features["dim"]) if kind == "dense" else _nonzero


def features_of(shape: Shape) -> str | None:
    """What is learnt from of each row, in words, so that what was not meant to be is seen; None: it has no names."""
    if not shape.columns:
        return None
    return f"features: {_listed(shape.columns)}; --drop COLUMN leaves one out"


def suitable(shape: Shape, ranks: int = 0) -> str:
    """The features that fit the rows, and how many ranks the labels have, as options of `rarestream create`."""
    features = "named" if shape.kind == "named" else f"{shape.kind} --dim {shape.width or 'N'}"
    return f"--features {features}" + (f" --param ranks={ranks}" if ranks else "")


def _misfit(shape: Shape, features: Mapping[str, Any]) -> Misfit:
    takes = f"{features['kind']} features"
    if "dim" in features:
        takes += f" of {counted(features['dim'], 'column')}"
    return Misfit(f"the file has {shape}; the learner takes {takes}")


def _check_names(shape: Shape, features: Mapping[str, Any]) -> None:
    if shape.kind != "named":
        raise _misfit(shape, features)
    if features["kind"] == "table" and features["extra"] == "refuse":
        known = {field["name"] for field in features["fields"]}
        unknown = [name for name in shape.columns if name not in known]
        if unknown:
            drop = " ".join(f"--drop {name}" for name in unknown[:_LISTED])
            raise Misfit(f"the learner does not declare {_listed(unknown)}; leave such columns out with {drop}")


def _numbers(shape: Shape, dim: int) -> Callable[[Event], Event]:
    if shape.texts:
        raise Misfit(f"the learner takes {dim} numbers; {_listed(shape.texts)} of the file are not numeric")
    if len(shape.columns) != dim:
        raise Misfit(f"the learner takes {dim} numbers; the file has {len(shape.columns)}: {_listed(shape.columns)}")
    names = shape.columns

    def adapt(event: Event) -> Event:
        features = event.pop("features")
        try:
            event["x"] = [features[name] for name in names]
        except KeyError as error:
            raise ValueError(f"has no {error.args[0]}, as the first row has") from None
        if len(features) != dim:
            raise ValueError(f"has {counted(len(features), 'column')}; the first row has {dim}")
        if None in event["x"]:
            empty = names[event["x"].index(None)]
            raise ValueError(f"column {empty} has no value; a dense learner takes numbers only")
        return event

    return adapt


def _spread(dim: int) -> Callable[[Event], Event]:
    def adapt(event: Event) -> Event:
        x = [0.0] * dim
        for index, value in zip(event.pop("indices"), event.pop("values"), strict=True):
            if not isinstance(index, int) or not 0 <= index < dim:
                raise ValueError(f"names column {index}; the learner's are 0 to {dim - 1}")
            x[index] = value
        event["x"] = x
        return event

    return adapt


def _nonzero(event: Event) -> Event:
    entries = [(k, value) for k, value in enumerate(event.pop("x")) if value != 0]
    event["indices"] = [k for k, _ in entries]
    event["values"] = [value for _, value in entries]
    return event


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
