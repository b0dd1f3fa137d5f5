"""Matches a file's rows to a learner: checks them before the first is sent, and adapts them without loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from learners.features import FieldKind, normalised
from service.datasets.column_profile import FieldPast
from service.datasets.rows import Event, Shape
from service.datasets.values import BinaryLabels, Ranks, RowColumns
from service.exits import WrongUsage
from service.text import counted

__all__ = [
    "SchemaMismatch",
    "adapter",
    "declared",
    "labels_for",
    "labels_of_options",
    "remembered",
    "suggest_options",
]

_LISTED = 8  # columns in a message


class SchemaMismatch(WrongUsage):
    """The rows of a file do not match the learner."""


def declared(features: Mapping[str, Any]) -> dict[str, bool]:
    """Return the columns that a learner's features declare, and whether each is numeric."""
    if features["kind"] == "table":
        return {normalised(field["name"]): field["kind"] == "numeric" for field in features["fields"]}
    numbers, texts = features.get("log", ()), (*features.get("text", ()), *features.get("categorical", ()))
    return {normalised(name): True for name in numbers} | {normalised(name): False for name in texts}


def remembered(features: Mapping[str, Any], fields: Iterable[Mapping[str, Any]]) -> dict[str, FieldPast]:
    """Return what a learner knows of columns, by its features and the entries of its `fields`."""
    kinds = {True: FieldKind.NUMBER, False: FieldKind.CATEGORY}
    return {name: FieldPast(kinds[numeric], declared=True) for name, numeric in declared(features).items()} | {
        field["name"]: FieldPast(
            FieldKind[field["kind"].upper()], field["contradictions"], field["values"], field["declared"]
        )
        for field in fields
    }


def labels_for(columns: RowColumns, learner: Mapping[str, Any], *, stream: bool = False) -> BinaryLabels | Ranks:
    """Return the meaning of labels of a file, or of a `stream`, for the learner of this document.

    An ordinal learner takes the ranks 1 to p, or `columns.ranks`. Raises `SchemaMismatch` if the options do not suit
    the learner.
    """
    classes = learner["class_counts"]
    if "positive" in classes:
        if columns.ranks:
            raise SchemaMismatch(f"--ranks is for ordinal learners; {learner['name']} has two classes: use --positive")
        try:
            return BinaryLabels(columns.positive, columns.negative, stream=stream)
        except ValueError as error:
            raise SchemaMismatch(str(error)) from None
    if columns.positive or columns.negative:
        option = "--positive" if columns.positive else "--negative"
        raise SchemaMismatch(f"{option} is for learners of two classes; {learner['name']} is ordinal: use --ranks")
    if len(columns.ranks) not in (0, len(classes)):
        raise SchemaMismatch(
            f"--ranks names {counted(len(columns.ranks), 'label')}; {learner['name']} has {len(classes)} ranks"
        )
    try:
        return Ranks(columns.ranks or tuple(classes))
    except ValueError as error:
        raise SchemaMismatch(f"--ranks: {error}") from None


def labels_of_options(columns: RowColumns) -> Callable[[Any], int]:
    """Return the meaning of labels by the options alone, for an unknown learner; else numbers stay."""
    if columns.ranks:
        return Ranks(columns.ranks)
    if columns.positive or columns.negative:
        return BinaryLabels(columns.positive, columns.negative)
    return _as_given


def _as_given(label: Any) -> int:
    try:
        number = float(label)
        if number.is_integer():
            return int(number)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(
        f"the label is {str(label)[:60]!r}; expected a number of the API, or --positive or --ranks, because the key "
        "may not read the learner's labels"
    )


def adapter(shape: Shape, features: Mapping[str, Any]) -> Callable[[Event], Event] | None:
    """Return a function that adapts each event of a file to the learner; None if they match already.

    Named columns of numbers become dense rows in their order; dense and sparse rows become each other. Raises
    `SchemaMismatch` if the rows cannot match; the function refuses later rows that do not.
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
        return partial(_check_indices, features["dim"], shape.base) if shape.base else None
    return partial(_spread, features["dim"], shape.base) if kind == "dense" else _nonzero


def suggest_options(shape: Shape, ranks: int = 0) -> str:
    """Return options of `rarestream create` that match the rows and the number of ranks."""
    features = "named" if shape.kind == "named" else f"{shape.kind} --dim {shape.width or 'N'}"
    return f"--features {features}" + (f" --param ranks={ranks}" if ranks else "")


def _misfit(shape: Shape, features: Mapping[str, Any]) -> SchemaMismatch:
    takes = f"{features['kind']} features"
    if "dim" in features:
        takes += f" of {counted(features['dim'], 'column')}"
    return SchemaMismatch(f"the file has {shape}; the learner takes {takes}")


def _check_names(shape: Shape, features: Mapping[str, Any]) -> None:
    if shape.kind != "named":
        raise _misfit(shape, features)
    if features["kind"] == "table" and features["extra"] == "refuse":
        declared_names = declared(features)
        unknown = [name for name in shape.columns if normalised(name) not in declared_names]
        if unknown:
            drop = " ".join(f"--drop {name}" for name in unknown[:_LISTED])
            raise SchemaMismatch(f"the learner does not declare {_join_names(unknown)}; omit them with {drop}")


def _numbers(shape: Shape, dim: int) -> Callable[[Event], Event]:
    if shape.texts:
        raise SchemaMismatch(f"the learner takes {dim} numbers; {_join_names(shape.texts)} of the file are not numeric")
    if len(shape.columns) != dim:
        raise SchemaMismatch(
            f"the learner takes {dim} numbers; the file has {len(shape.columns)}: {_join_names(shape.columns)}"
        )
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


def _check_indices(dim: int, base: int, event: Event) -> Event:
    """Refuse indices that are no columns of the learner, in terms of the file, which counts from `base`."""
    for index in event["indices"]:
        if not isinstance(index, int) or not 0 <= index < dim:
            named = index + base if isinstance(index, int) else index
            raise ValueError(f"has index {named}; expected {base} to {base + dim - 1}, the learner's columns")
    return event


def _spread(dim: int, base: int, event: Event) -> Event:
    x = [0.0] * dim
    event = _check_indices(dim, base, event)
    for index, value in zip(event.pop("indices"), event.pop("values"), strict=True):
        x[index] = value
    event["x"] = x
    return event


def _nonzero(event: Event) -> Event:
    entries = [(k, value) for k, value in enumerate(event.pop("x")) if value != 0]
    event["indices"] = [k for k, _ in entries]
    event["values"] = [value for _, value in entries]
    return event


def _join_names(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
