"""What the commands that call the service share: their options, each declared once, and how a failure is told.

Nothing here is slow to import: `--help` needs it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.options import flag
from service.exits import CommandFailed, ExitStatus

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from service.cli.api import Api

__all__ = [
    "DEFAULT_URL",
    "AsJson",
    "Key",
    "Name",
    "RetrySeconds",
    "Url",
    "algorithm_names",
    "connected",
    "console",
    "group_names",
    "learner_names",
    "plain_table",
    "print_json",
    "reporting",
    "snapshot_positions",
]

DEFAULT_URL = "http://127.0.0.1:8000"
_COMPLETION_SECONDS = 1.0  # that the shell waits for names at most
_PANEL = "Service"
_WAITING = (
    "waiting for the service: where it meets an algorithm for the first time it compiles the kernels, once for the "
    "machine, which may take a minute"
)
_SAID_AGAIN = 10.0  # seconds after which the same is told again
_WIDE = 1000  # columns of what is no terminal: nothing is cut there


def _asked(context: typer.Context, incomplete: str, ask: Callable[[Api], Iterable[str]]) -> list[str]:
    """What the service has that begins like this, for the shell; nothing, and not a word, where it cannot be had."""
    from service.cli.api import Api

    url, key = context.params.get("url") or DEFAULT_URL, context.params.get("key")
    try:
        with Api(url, key=key, ca=_ca(), timeout=_COMPLETION_SECONDS) as api:
            return [one for one in ask(api) if one.startswith(incomplete)]
    except (CommandFailed, KeyError, TypeError):  # or what answers there is something else
        return []


def learner_names(context: typer.Context, incomplete: str) -> list[str]:
    """The learners whose names begin like this."""

    def ask(api: Api) -> list[str]:
        found = api.learners()
        return sorted([one["name"] for one in found["learners"]] + found["asleep"])

    return _asked(context, incomplete, ask)


def group_names(context: typer.Context, incomplete: str) -> list[str]:
    """The groups whose names begin like this."""

    def ask(api: Api) -> list[str]:
        found = api.groups()
        return sorted([one["name"] for one in found["groups"]] + list(found["unavailable"]))

    return _asked(context, incomplete, ask)


def algorithm_names(context: typer.Context, incomplete: str) -> list[str]:
    """The algorithms whose names begin like this."""
    return _asked(context, incomplete, lambda api: [one["name"] for one in api.algorithms()])


def snapshot_positions(context: typer.Context, incomplete: str) -> list[str]:
    """The positions of the learner's snapshots, newest first."""
    name = context.params["name"]
    return _asked(context, incomplete, lambda api: [str(one["position"]) for one in api.snapshots(name)])


Url = Annotated[
    str, typer.Option(envvar="RARESTREAM_URL", metavar="URL", help="Where the service is.", rich_help_panel=_PANEL)
]
Key = Annotated[
    str | None,
    typer.Option(
        envvar="RARESTREAM_KEY",
        metavar="KEY",
        help="Sent as a bearer token. The variable keeps it out of the list of processes.",
        rich_help_panel=_PANEL,
    ),
]
RetrySeconds = Annotated[float, typer.Option(min=0, help="How long a request is tried again.", rich_help_panel=_PANEL)]
AsJson = Annotated[bool, flag("--json", help="Print JSON, for programs.")]
Name = Annotated[str, typer.Argument(help="The learner's name.", autocompletion=learner_names)]


def _ca() -> str | None:
    """A file of certificates that the environment has commands trust."""
    return os.environ.get("RARESTREAM_CA") or None


def connected(
    url: str,
    key: str | None,
    *,
    patience: float = 0.0,
    wait: Callable[[float], bool] | None = None,
    notice: Callable[[str], None] | None = None,
) -> Api:
    """The service; see `Api`. On a terminal it is told where the first answer takes long."""
    from service.cli.api import Api

    slow = None
    if sys.stderr.isatty():
        say = notice or console(stderr=True).print

        def slow() -> None:
            say(_WAITING)

    sparing = None if notice is None else _sparing(notice)
    return Api(url, key=key, ca=_ca(), patience=patience, wait=wait, notice=sparing, slow=slow)


def _sparing(say: Callable[[str], None]) -> Callable[[str, str], None]:
    """Tells of attempts that fail: of the same reason once in some seconds."""
    last: tuple[str, float] | None = None

    def note(why: str, what: str) -> None:
        nonlocal last
        now = time.monotonic()
        if last is None or last[0] != why or now - last[1] >= _SAID_AGAIN:
            last = why, now
            say(f"{why}; {what} (--retry-seconds)")

    return note


def console(*, stderr: bool = False, width: int = _WIDE) -> Console:
    """Standard output, or error: on a terminal as wide as that is and in colour, elsewhere plain, with nothing cut.

    `width`: columns elsewhere, after which lines are broken.
    """
    from rich.console import Console

    found = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not found.is_terminal:
        return Console(stderr=stderr, markup=False, highlight=False, emoji=False, width=width)
    return found


def plain_table(*headings: str, right: int = 0) -> Table:
    """A table without lines, the last `right` columns of which are numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, heading in enumerate(headings):
        numbers = number >= len(headings) - right
        table.add_column(heading, justify="right" if numbers else "left", overflow="fold", no_wrap=numbers)
    return table


def print_json(document: Mapping[str, Any]) -> None:
    """One document on standard output: in many lines for people, in one for programs."""
    print(json.dumps(document, indent=2 if sys.stdout.isatty() else None))


@contextmanager
def reporting() -> Iterator[None]:
    """What a user can do something about ends the command with a message, what to do, and a status; see `ExitStatus`.

    So does Ctrl-C: 130.
    """
    try:
        yield
    except CommandFailed as error:
        print(f"error: {error}", file=sys.stderr)
        for line in _remedies(error):
            print(line, file=sys.stderr)
        raise typer.Exit(error.exit_status) from None
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        raise typer.Exit(130) from None


def _remedies(error: CommandFailed) -> list[str]:
    """What may help, where the error alone does not say."""
    status, code = getattr(error, "status", None), getattr(error, "code", None)
    if getattr(error, "lasting", False):  # it says what to do
        return []
    if error.exit_status == ExitStatus.UNREACHABLE:
        if re.search(r"CERTIFICATE_VERIFY_FAILED.* mismatch", str(error)):
            return ["The certificate is for another name: --url or RARESTREAM_URL has to have one that it is for."]
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return ["RARESTREAM_CA names a file of certificates to trust besides those of the system."]
        return ["Is it running? `rarestream serve` starts one; --url or RARESTREAM_URL says where it is."]
    if code == "unknown-learner" and "\n" not in str(error):
        return ["`rarestream list` shows the learners."]
    if code == "unknown-group" and "\n" not in str(error):
        return ["`rarestream groups` shows the groups."]
    if code == "unknown-snapshot":
        return ["`rarestream snapshots NAME` shows those that are kept."]
    if code == "store-unavailable":
        return ["The service does not reach its store. Look after that one, then give the command again."]
    if status == 401:
        return ["Give a key of the service by RARESTREAM_KEY or --key."]
    if code == "forbidden":
        return ["Give a key that may do it by RARESTREAM_KEY or --key; `rarestream keys create --keys FILE` makes one."]
    return []
