"""`rarestream keys`: make, list and revoke the keys of a service, in its keys file. It needs no running service.

A server that has the file reads it again within a second.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.options import duration
from service.cli.options_service import AsJson, console, plain_table, print_json, reporting
from service.exits import CommandFailed, ExitStatus

if TYPE_CHECKING:
    from service.auth import Key, Limits

__all__ = ["app", "create", "list_keys", "revoke"]

app = typer.Typer(help="Make, list and revoke the keys of a service.", no_args_is_help=True)

File = Annotated[Path, typer.Option("--keys", envvar="RARESTREAM_KEYS", metavar="FILE", help="The keys file.")]


class UnknownKey(CommandFailed):
    """No key has this id or name, or several have the name."""

    exit_status = ExitStatus.NOT_FOUND


class TakenName(CommandFailed):
    """There is a key of this name."""

    exit_status = ExitStatus.REFUSED


def scope_names(incomplete: str) -> list[str]:
    """The scopes whose names begin like this, for the shell."""
    from service.auth import SCOPES

    return [name for name in SCOPES if name.startswith(incomplete)]


@app.command()
def create(
    keys: File,
    name: Annotated[str, typer.Option(help="Whose key it is, for people.")],
    scope: Annotated[
        list[str],
        typer.Option(
            help="read, predict, update or admin (which is all); may be repeated.", autocompletion=scope_names
        ),
    ],
    learners: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only for learners named like this: fraud-*")
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="requests_per_second=100; may be repeated.")
    ] = None,
    expires: Annotated[
        float | None, typer.Option(parser=duration, metavar="DURATION", help="After which it ends: 90d, 12h.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it: this once, as only its hash is kept."""
    with reporting():
        from service.auth import SCOPES, changing, new_key

        for one in scope:
            if one not in SCOPES:
                raise typer.BadParameter(f"{one!r}; expected {', '.join(SCOPES)}", param_hint="--scope")
        until = None if expires is None else datetime.now(UTC) + timedelta(seconds=expires)
        with changing(keys) as there:
            if any(one.name == name for one in there):
                way = f"revoke it first (`rarestream keys revoke {name} --keys {keys}`), or give this one another name"
                raise TakenName(f"there is a key named {name}; {way}")
            made, key = new_key(name, [one for one in SCOPES if one in scope], learners, _limits(limit or []), until)
            there.append(made)
        if as_json:
            print_json({**_document(made), "key": key})
        else:
            print(key)
            print(f"{name} has the id {made.id}; the key is shown only here", file=sys.stderr)
            print(f"`rarestream keys revoke {name} --keys {keys}` takes it away again", file=sys.stderr)


@app.command("list")
def list_keys(keys: File, as_json: AsJson = False) -> None:
    """The keys of the file: not themselves, which nothing keeps."""
    with reporting():
        from service.auth import load

        found = load(keys)
        if as_json:
            print_json({"keys": [_document(one) for one in found]})
            return
        if not found:
            print(f"{keys} has no keys; `rarestream keys create --keys {keys} --name NAME --scope SCOPE` makes one")
            return
        table = plain_table("id", "name", "scopes", "learners", "limits", "created", "expires")
        for one in found:
            limits = ", ".join(f"{name}={value:g}" for name, value in _given(one).items())
            table.add_row(
                one.id, one.name, ", ".join(one.scopes), one.learners or "all", limits, _day(one.created), _end(one)
            )
        console().print(table)


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID|NAME", help="The id of the key, or its name.")],
    keys: File,
    as_json: AsJson = False,
) -> None:
    """Take a key away: a running server refuses it within a second, and ends what goes on by it."""
    with reporting():
        from service.auth import changing

        with changing(keys) as there:
            found = [one for one in there if one.id == key] or [one for one in there if one.name == key]
            if len(found) != 1:
                many = (
                    f"{len(found)} keys are named {key}: give the id" if found else f"no key has the id or name {key}"
                )
                raise UnknownKey(f"{many}; `rarestream keys list --keys {keys}` shows them")
            there.remove(found[0])
        if as_json:
            print_json({"revoked": _document(found[0])})
        else:
            print(f"revoked {found[0].id} ({found[0].name})", file=sys.stderr)


def _limits(given: list[str]) -> Limits:
    """`requests_per_second=100` and others -> the limits."""
    import msgspec

    from service.auth import LIMITS, Limits

    found: dict[str, Any] = {}
    for one in given:
        name, _, value = one.partition("=")
        try:
            found[name] = float(value) if name.endswith("_per_second") else int(value)
        except ValueError:
            raise typer.BadParameter(f"{one!r} is not NAME=NUMBER", param_hint="--limit") from None
        if name not in LIMITS:
            raise typer.BadParameter(f"{one!r}; expected one of {', '.join(LIMITS)}", param_hint="--limit")
    try:
        return msgspec.convert(found, Limits)
    except msgspec.ValidationError as error:
        raise typer.BadParameter(str(error), param_hint="--limit") from None


def _given(key: Key) -> dict[str, float]:
    from service.auth import LIMITS

    return {name: value for name in LIMITS if (value := getattr(key.limits, name)) is not None}


def _document(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "scopes": list(key.scopes),
        "learners": key.learners,
        "limits": _given(key),
        "created": key.created.isoformat(),
        "expires": None if key.expires is None else key.expires.isoformat(),
    }


def _day(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _end(key: Key) -> str:
    if key.expires is None:
        return "never"
    return _day(key.expires) + (" (expired)" if key.expires <= datetime.now(UTC) else "")
