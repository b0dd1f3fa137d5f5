"""The options of files, declared once for all commands that read files. Quick to import for `--help`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Literal, TypeVar

import typer

from service.cli.options import parse_names

__all__ = ["TimeFormat", "TimeUnit", "with_file_options"]

Command = TypeVar("Command", bound=Callable[..., Any])

_PANEL = "How the file is written"
_NAMES = {"tab": "\t", "\\t": "\t", "space": " ", "none": "none"}


def _option(metavar: str, help: str) -> Any:
    return typer.Option(metavar=metavar, help=help, rich_help_panel=_PANEL)


TimeFormat = Annotated[str, _option("FORMAT", "Of times, as in strptime: %d/%m/%Y %H:%M.")]
TimeUnit = Annotated[
    Literal["", "s", "ms", "us", "ns", "min", "h", "d"],
    _option("s|ms|us|ns|min|h|d", "Of times that are numbers (default: by their size, from 1980 on)."),
]


def _file_options(
    columns: Annotated[str | None, _option("NAME,NAME", "CSV, TSV: the columns of a file without a header.")] = None,
    delimiter: Annotated[str, _option("MARK", "Between cells: one character or tab (default: found).")] = "",
    quote: Annotated[
        str, _option("MARK", "Around cells, or none (default: double in CSV, none in TSV without a quoted header).")
    ] = "",
    decimal: Annotated[str, _option("MARK", "Of numbers: . or , (default: found).")] = "",
    thousands: Annotated[str, _option("MARK", "Between thousands: , . space or apostrophe (default: found).")] = "",
    time_format: TimeFormat = "",
    time_unit: TimeUnit = "",
    missing: Annotated[list[str] | None, _option("TEXT", "A cell that is missing. Repeatable.")] = None,
    encoding: Annotated[str, _option("NAME", "Such as cp1252 (default: UTF-8, or UTF-16 by its mark).")] = "",
    zero_based: Annotated[
        str, _option("auto|yes|no", "LIBSVM: indices count from 0; auto: if the file has an index 0.")
    ] = "auto",
    on_bad: Annotated[
        str, _option("stop|skip|FILE", "At a malformed row: end, leave it out, or write it to FILE with the reason.")
    ] = "stop",
) -> Any:
    """Return the options as `FileOptions`."""
    from service.datasets import FileOptions

    marks = {
        "delimiter": _mark("--delimiter", delimiter),
        "quote": quote if quote == "none" else _mark("--quote", quote),
        "decimal": _mark("--decimal", decimal),
        "thousands": "" if thousands == "none" else _mark("--thousands", thousands),
    }
    if marks["decimal"] not in ("", ".", ","):
        raise typer.BadParameter(f"{decimal!r}; expected . or ,", param_hint="--decimal")
    if marks["thousands"] and marks["thousands"] == (marks["decimal"] or "."):
        raise typer.BadParameter(f"{thousands!r} is the decimal mark, too; use --decimal", param_hint="--thousands")
    names = parse_names(columns, "--columns") if columns is not None else ()
    return FileOptions(
        names,
        **marks,
        time_format=time_format,
        time_unit=time_unit,
        missing=tuple(missing or ()),
        encoding=encoding,
        zero_based=zero_based,
        on_bad=on_bad,
    )


def _mark(option: str, text: str) -> str:
    mark = _NAMES.get(text, text)
    if len(mark) > 1 or mark in ("\n", "\r"):
        raise typer.BadParameter(f"{text!r}; expected one character", param_hint=option)
    return mark


def with_file_options(command: Command) -> Command:
    """Replace the parameter `form` of a command by the options of files."""
    options = inspect.signature(_file_options, eval_str=True)
    signature = inspect.signature(command, eval_str=True, locals={"FileOptions": Any})

    @wraps(command)
    def call(*args: Any, **values: Any) -> Any:
        form = _file_options(**{name: values.pop(name) for name in options.parameters})
        return command(*args, form=form, **values)

    others = [parameter for name, parameter in signature.parameters.items() if name != "form"]
    added = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in options.parameters.values()]
    parameters = [*others, *added]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call  # type: ignore[return-value]
