"""`rarestream context`: names for services, so that commands need no --url and --key."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from service.cli.contexts import ContextFile, contexts_path
from service.cli.options_service import AsJson, console, open_client, plain_table, print_json, reporting
from service.exits import WrongUsage

__all__ = ["app"]

app = typer.Typer(help="Name the services that commands call: `context set`, then `context use`.", no_args_is_help=True)


def context_names(incomplete: str) -> list[str]:
    """Complete the name of a context."""
    try:
        return sorted(name for name in ContextFile(contexts_path()).contexts if name.startswith(incomplete))
    except WrongUsage:
        return []


ContextName = Annotated[str, typer.Argument(help="Name of the context.", autocompletion=context_names)]


@app.command("list")
def list_contexts(as_json: AsJson = False) -> None:
    """List the contexts, without their keys; the current one is marked."""
    with reporting():
        file = ContextFile(contexts_path())
        rows: list[dict[str, Any]] = [
            {"name": name, "url": context["url"], "key": context["key"] is not None, "current": name == file.current}
            for name, context in sorted(file.contexts.items())
        ]
        if as_json:
            print_json({"contexts": rows})
            return
        if not rows:
            print("there is no context yet; `rarestream context set NAME --url URL` makes one")
            return
        table = plain_table("", "context", "url", "key")
        for row in rows:
            table.add_row("*" if row["current"] else "", row["name"], row["url"], "yes" if row["key"] else "no")
        console().print(table)


@app.command("set")
def set_context(
    name: ContextName,
    url: Annotated[str, typer.Option(envvar="RARESTREAM_URL", metavar="URL", help="URL of the service.")],
    key: Annotated[
        str | None,
        typer.Option(
            envvar="RARESTREAM_KEY",
            metavar="KEY",
            help="Bearer token. The variable keeps it out of the list of processes.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make or replace a context; the first one becomes the current one."""
    with reporting():
        if not name.isprintable() or not name.strip():
            raise WrongUsage("the name of a context is printable text")
        open_client(url, key).close()  # checks both
        file = ContextFile(contexts_path())
        file.contexts[name] = {"url": url, "key": key or None}
        file.current = file.current or name
        file.save()
        _print_change(file, name, "is set", as_json)


@app.command()
def use(name: ContextName, as_json: AsJson = False) -> None:
    """Make a context the current one."""
    with reporting():
        file = ContextFile(contexts_path())
        file.find(name)
        file.current = name
        file.save()
        _print_change(file, name, "is used", as_json)


@app.command()
def remove(name: ContextName, as_json: AsJson = False) -> None:
    """Remove a context with its key. If it was the current one, none is."""
    with reporting():
        file = ContextFile(contexts_path())
        file.find(name)
        del file.contexts[name]
        file.current = None if file.current == name else file.current
        file.save()
        _print_change(file, name, "is removed", as_json)


def _print_change(file: ContextFile, name: str, change: str, as_json: bool) -> None:
    if as_json:
        print_json({"context": name, "current": file.current, "file": str(file.path)})
    else:
        now = "no context is current" if file.current is None else f"the current one is {file.current}"
        print(f"context {name} {change} in {file.path}; {now}")
