"""`rarestream algorithms`: the catalogue of a service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from service.cli.options_service import (
    DEFAULT_URL,
    AsJson,
    Key,
    Url,
    algorithm_names,
    connected,
    console,
    plain_table,
    print_json,
    reporting,
)
from service.cli.request_errors import near_names
from service.exits import CommandFailed, ExitStatus

__all__ = ["algorithms"]


class UnknownAlgorithm(CommandFailed):
    """The service has no algorithm of this name."""

    exit_status = ExitStatus.NOT_FOUND


def algorithms(
    name: Annotated[
        str | None, typer.Argument(help="An algorithm, to see its parameters.", autocompletion=algorithm_names)
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """List the algorithms of the service, or the parameters of one."""
    with reporting(), connected(url, key) as client:
        catalogue = client.algorithms()
        entries: dict[str, Mapping[str, Any]] = {entry["name"]: entry for entry in catalogue["algorithms"]}
        if name is not None and name not in entries:
            near = ", ".join(near_names(name, entries))
            raise UnknownAlgorithm(f"there is no algorithm {name}{f' (is it {near}?)' if near else ''}")
        if as_json:
            print_json(catalogue if name is None else entries[name])
            return
        out = console()
        if name is None:
            table = plain_table("algorithm", "features", "learns", "summary")
            for entry in entries.values():
                features = ", ".join(kind for kind in ("dense", "sparse") if entry[kind])
                learns = "by fits" if entry["batch"] else "each event"
                table.add_row(entry["name"], features, learns, entry["summary"])
            out.print(table)
            return
        entry = entries[name]
        out.print(f"{name}: {entry['summary']}\ncost of an event: {entry['cost']}\n")
        table = plain_table("parameter", "default", "meaning")
        for parameter, schema in entry["params"].get("properties", {}).items():
            table.add_row(parameter, str(schema.get("default", "-")), schema.get("description", ""))
        out.print(table if table.row_count else "it has no parameters")
