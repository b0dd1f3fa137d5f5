"""`rarestream keys`: creates, lists and revokes the keys in a keys file. It needs no running service.

A running server reloads the file within a second.
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

app = typer.Typer(help="Create, list and revoke the keys of a service.", no_args_is_help=True)

File = Annotated[Path, typer.Option("--keys", envvar="RARESTREAM_KEYS", metavar="FILE", help="The keys file.")]


class UnknownKey(CommandFailed):
    """No key has this id or name, or several keys have the name."""

    exit_status = ExitStatus.NOT_FOUND


class DuplicateKeyName(CommandFailed):
    """A key of this name exists."""

    exit_status = ExitStatus.REFUSED


def scope_names(incomplete: str) -> list[str]:
    """Complete the name of a scope."""
    from service.auth import SCOPES

    return [name for name in SCOPES if name.startswith(incomplete)]


@app.command()
def create(
    keys: File,
    name: Annotated[str, typer.Option(help="Name of the owner, for people.")],
    scope: Annotated[
        list[str],
        typer.Option(
            help="read, predict, update, events or admin (which includes all). Repeatable.", autocompletion=scope_names
        ),
    ],
    learners: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only for learners with such names: fraud-*")
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="requests_per_second=100. Repeatable.")
    ] = None,
    expires: Annotated[
        float | None, typer.Option(parser=duration, metavar="DURATION", help="Lifetime: 90d, 12h.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it, once: the file keeps only its hash."""
    with reporting():
        from service.auth import SCOPES, changing, new_key

        for requested in scope:
            if requested not in SCOPES:
                raise typer.BadParameter(f"{requested!r}; expected {', '.join(SCOPES)}", param_hint="--scope")
        until = None if expires is None else datetime.now(UTC) + timedelta(seconds=expires)
        with changing(keys) as stored:
            if any(entry.name == name for entry in stored):
                way = f"revoke it first (`rarestream keys revoke {name} --keys {keys}`), or give this one another name"
                raise DuplicateKeyName(f"there is a key named {name}; {way}")
            entry, key = new_key(
                name, [scope_ for scope_ in SCOPES if scope_ in scope], learners, _limits(limit or []), until
            )
            stored.append(entry)
        if as_json:
            print_json({**_document(entry), "key": key})
        else:
            print(key)
            print(f"{name} has the id {entry.id}; the key is shown only here", file=sys.stderr)
            print(f"`rarestream keys revoke {name} --keys {keys}` revokes it", file=sys.stderr)


@app.command("list")
def list_keys(keys: File, as_json: AsJson = False) -> None:
    """List the keys of the file, without their secrets."""
    with reporting():
        from service.auth import load

        entries = load(keys)
        if as_json:
            print_json({"keys": [_document(entry) for entry in entries]})
            return
        if not entries:
            print(f"{keys} has no keys; `rarestream keys create --keys {keys} --name NAME --scope SCOPE` creates one")
            return
        table = plain_table("id", "name", "scopes", "learners", "limits", "created", "expires")
        for entry in entries:
            limits = ", ".join(f"{name}={value:g}" for name, value in _set_limits(entry).items())
            table.add_row(
                entry.id,
                entry.name,
                ", ".join(entry.scopes),
                entry.learners or "all",
                limits,
                _day(entry.created),
                _end(entry),
            )
        console().print(table)


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID|NAME", help="The id of the key, or its name.")],
    keys: File,
    as_json: AsJson = False,
) -> None:
    """Revoke a key: within a second a running server refuses it and ends its connections."""
    with reporting():
        from service.auth import changing

        with changing(keys) as stored:
            matches = [entry for entry in stored if entry.id == key] or [entry for entry in stored if entry.name == key]
            if len(matches) != 1:
                many = (
                    f"{len(matches)} keys are named {key}: give the id"
                    if matches
                    else f"no key has the id or name {key}"
                )
                raise UnknownKey(f"{many}; `rarestream keys list --keys {keys}` shows them")
            stored.remove(matches[0])
        if as_json:
            print_json({"revoked": _document(matches[0])})
        else:
            print(f"revoked {matches[0].id} ({matches[0].name})", file=sys.stderr)


def _limits(assignments: list[str]) -> Limits:
    """Parse limits such as `requests_per_second=100`."""
    import msgspec

    from service.auth import LIMITS, Limits

    limits: dict[str, Any] = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        try:
            limits[name] = float(value) if name.endswith("_per_second") else int(value)
        except ValueError:
            raise typer.BadParameter(f"{assignment!r} is not NAME=NUMBER", param_hint="--limit") from None
        if name not in LIMITS:
            raise typer.BadParameter(f"{assignment!r}; expected one of {', '.join(LIMITS)}", param_hint="--limit")
    try:
        return msgspec.convert(limits, Limits)
    except msgspec.ValidationError as error:
        raise typer.BadParameter(str(error), param_hint="--limit") from None


def _set_limits(key: Key) -> dict[str, float]:
    from service.auth import LIMITS

    return {name: value for name in LIMITS if (value := getattr(key.limits, name)) is not None}


def _document(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "scopes": list(key.scopes),
        "learners": key.learners,
        "limits": _set_limits(key),
        "created": key.created.isoformat(),
        "expires": None if key.expires is None else key.expires.isoformat(),
    }


def _day(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _end(key: Key) -> str:
    if key.expires is None:
        return "never"
    return _day(key.expires) + (" (expired)" if key.expires <= datetime.now(UTC) else "")
