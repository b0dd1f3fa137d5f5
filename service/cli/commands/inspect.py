"""`rarestream inspect`: what a file's columns are taken for, and the commands that learn it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import Drop, Id, Time, Weight
from service.cli.options_files import with_file_options
from service.cli.options_service import (
    DEFAULT_URL,
    AsJson,
    Key,
    Url,
    connected,
    learner_names,
    print_json,
    reporting,
)

if TYPE_CHECKING:
    from service.datasets import FileOptions

__all__ = ["inspect"]


@with_file_options
def inspect(
    file: Annotated[Path, typer.Argument(help="A file as for replay; - or a pipe.")],
    learner: Annotated[
        str | None, typer.Option(help="Name of a learner that exists.", autocompletion=learner_names)
    ] = None,
    label: Annotated[str, typer.Option(help="Column of the label (default: label, or the likely one).")] = "label",
    drop: Drop = None,
    id: Id = None,
    time: Time = None,
    weight: Weight = None,
    format: Annotated[str, typer.Option(help="csv, tsv, jsonl, parquet, npz or libsvm (default: by the name).")] = "",
    rows: Annotated[int, typer.Option(min=1, max=1_000_000, help="Rows to read.")] = 20_000,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    *,
    form: FileOptions,
) -> None:
    """Show what each column of a file is taken for and why, the first bad rows, and commands to paste.

    Nothing is sent. With --learner, the columns that it declares and the
    fields that it remembers count. Without, the commands create one first.
    """
    with reporting():
        from service.cli.inspection import inspect_file
        from service.datasets import RowColumns, declared, local_file, remembered, resolve_format

        columns = RowColumns(label, drop=tuple(drop or ()), id=id, time=time, weight=weight, form=form)
        declarations = past = None
        if learner is not None:
            with connected(url, key) as client:
                handle = client.learner(learner)
                features = handle.describe()["config"]["features"]
                declarations, past = declared(features), remembered(features, handle.fields()["fields"])
        with local_file(file) as opened:
            format = format or resolve_format(opened)
            inspection = inspect_file(opened, columns, format, rows, declarations, past, find=True)
        if as_json:
            print_json(inspection.to_json(learner))
        else:
            print("\n".join(inspection.lines(learner)))
