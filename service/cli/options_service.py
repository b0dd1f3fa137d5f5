"""Options of the commands that call a service, the connection, and error reports. Quick to import for `--help`."""

from __future__ import annotations

import json
import os
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.contexts import DEFAULT_URL, own_key
from service.cli.options import flag
from service.exits import CommandFailed, ExitStatus, WrongUsage

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rarestream import ApiRequest, Client, RetryPause

__all__ = [
    "DEFAULT_URL",
    "AsJson",
    "Key",
    "Name",
    "RetrySeconds",
    "Url",
    "Yes",
    "algorithm_names",
    "confirm",
    "connected",
    "console",
    "group_names",
    "learner_names",
    "open_client",
    "plain_table",
    "print_json",
    "reporting",
    "snapshot_positions",
]

_COMPLETION_SECONDS = 1.0  # time-out of completions in the shell
_PANEL = "Service"
_WAITING = "waiting for the service, which has not answered for some seconds"
_SLOW = 3.0  # seconds without the first answer before `_WAITING` is printed
_REPEAT = 10.0  # seconds after which the same reason is printed again
_WIDE = 1000  # width without a terminal: nothing is cut
_SETTING_NAMES = {"url": "--url or RARESTREAM_URL: ", "key": "--key or RARESTREAM_KEY: "}


def _complete(context: typer.Context, incomplete: str, list_names: Callable[[Client], Iterable[str]]) -> list[str]:
    """Return the names that begin like this, for the shell; nothing if the service does not answer."""
    from rarestream import ClientError

    url, key = context.params.get("url") or DEFAULT_URL, context.params.get("key")
    try:
        with open_client(url, key, timeout=_COMPLETION_SECONDS) as client:
            return [name for name in list_names(client) if name.startswith(incomplete)]
    except (ClientError, CommandFailed, KeyError, TypeError):  # the last two if another program answers
        return []


def learner_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a learner."""

    def list_names(client: Client) -> list[str]:
        listing = client.learners()
        return sorted([learner["name"] for learner in listing["learners"]] + listing["asleep"])

    return _complete(context, incomplete, list_names)


def group_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a group."""

    def list_names(client: Client) -> list[str]:
        listing = client.groups()
        return sorted([group["name"] for group in listing["groups"]] + list(listing["unavailable"]))

    return _complete(context, incomplete, list_names)


def algorithm_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of an algorithm."""
    return _complete(
        context, incomplete, lambda client: [algorithm["name"] for algorithm in client.algorithms()["algorithms"]]
    )


def snapshot_positions(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the position of a learner's snapshot, newest first."""
    name = context.params["name"]
    return _complete(
        context,
        incomplete,
        lambda client: [str(snapshot["position"]) for snapshot in client.learner(name).snapshots()["snapshots"]],
    )


Url = Annotated[
    str,
    typer.Option(
        envvar="RARESTREAM_URL",
        metavar="URL",
        help="URL of the service; http:// if it says nothing else.",
        rich_help_panel=_PANEL,
        show_default=f"that of the current context, or {DEFAULT_URL}",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        envvar="RARESTREAM_KEY",
        metavar="KEY",
        help="Bearer token. The variable keeps it out of the list of processes.",
        rich_help_panel=_PANEL,
        callback=own_key,
        show_default="that of the current context",
    ),
]
RetrySeconds = Annotated[
    float, typer.Option(min=0, help="How long a failing request is retried.", rich_help_panel=_PANEL)
]
AsJson = Annotated[bool, flag("--json", help="Print JSON, for programs.")]
Yes = Annotated[bool, flag("--yes", "-y", help="Do not ask for confirmation.")]
Name = Annotated[str, typer.Argument(help="Name of the learner.", autocompletion=learner_names)]


def open_client(
    url: str,
    key: str | None,
    *,
    timeout: float = 120.0,
    patience: float = 0.0,
    wait: Callable[[float], bool] | None = None,
    notice: Callable[[str, str], None] | None = None,
    slow: Callable[[], None] | None = None,
) -> Client:
    """Return a client.

    `wait` pauses between attempts and returns True to give up, by `WaitInterrupted`. `notice` is called before each
    pause with the reason and what happens next, `slow` if the first change takes long. RARESTREAM_CA is a
    file of certificates to trust.
    """
    from rarestream import Client, InvalidSetting, __version__
    from service.pacing import interruptible_sleep

    def note(pause: RetryPause) -> None:
        if notice is not None:
            notice(pause.error.detail, f"trying again in {pause.seconds:.2g} s, for {pause.left:.0f} s more")

    try:
        return Client(
            url,
            key=key or None,
            timeout=timeout,
            patience=patience,
            headers={"User-Agent": f"rarestream-cli/{__version__}"},
            verify=_tls_context(),
            on_retry=note,
            sleep=time.sleep if wait is None else interruptible_sleep(wait),
            trace=_SlowRequests(slow),
        )
    except InvalidSetting as error:
        failed = WrongUsage(f"{_SETTING_NAMES.get(error.setting, '')}{error}")
        if error.setting == "network":
            failed.exit_status = ExitStatus.UNREACHABLE
        raise failed from None


@contextmanager
def connected(
    url: str,
    key: str | None,
    *,
    patience: float = 0.0,
    wait: Callable[[float], bool] | None = None,
    notice: Callable[[str], None] | None = None,
) -> Iterator[Client]:
    """Open a client; see `open_client`. Errors become `RequestFailed`, with similar names for an unknown learner."""
    from rarestream import ClientError
    from service.cli.request_errors import RequestFailed, similar_learners

    say = notice or (console(stderr=True).print if sys.stderr.isatty() else None)
    slow = None if say is None or not sys.stderr.isatty() else lambda: say(_WAITING)
    limited = None if notice is None else _limit_repeats(notice)
    with open_client(url, key, patience=patience, wait=wait, notice=limited, slow=slow) as client:
        try:
            yield client
        except ClientError as error:
            raise RequestFailed(error, similar_learners(error, client)) from None


class _SlowRequests:
    """Calls `slow` if the first PUT, or the first POST, has no answer after some seconds."""

    def __init__(self, slow: Callable[[], None] | None) -> None:
        self._slow = slow
        self._answered = {"GET", "DELETE", "PATCH"}  # methods that are not watched any more

    @contextmanager
    def _watch(self, request: ApiRequest, slow: Callable[[], None]) -> Iterator[None]:
        timer = threading.Timer(_SLOW, slow)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
        self._answered.add(request.method)

    def __call__(self, request: ApiRequest) -> AbstractContextManager[object]:
        if self._slow is None or request.method in self._answered:
            return nullcontext()
        return self._watch(request, self._slow)


def _tls_context() -> ssl.SSLContext | None:
    """Return a context that also trusts the certificates in the file RARESTREAM_CA."""
    ca = os.environ.get("RARESTREAM_CA", "").strip()
    if not ca:
        return None
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(ca)
    except OSError as error:  # also ssl.SSLError
        raise WrongUsage(f"RARESTREAM_CA is {ca}: {error.strerror or error}") from None
    return context


def _limit_repeats(say: Callable[[str], None]) -> Callable[[str, str], None]:
    """Limit the report of failing attempts: each reason once in `_REPEAT` seconds."""
    last: tuple[str, float] | None = None

    def note(reason: str, plan: str) -> None:
        nonlocal last
        now = time.monotonic()
        if last is None or last[0] != reason or now - last[1] >= _REPEAT:
            last = reason, now
            say(f"{reason}; {plan} (--retry-seconds)")

    return note


def console(*, stderr: bool = False, width: int = _WIDE) -> Console:
    """Return a console on standard output or error: coloured and of the terminal's width, else plain and of `width`."""
    from rich.console import Console

    terminal = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not terminal.is_terminal:
        return Console(stderr=stderr, markup=False, highlight=False, emoji=False, width=width)
    return terminal


def plain_table(*headings: str, right: int = 0) -> Table:
    """Return a table without lines; its last `right` columns are numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, heading in enumerate(headings):
        numbers = number >= len(headings) - right
        table.add_column(heading, justify="right" if numbers else "left", overflow="fold", no_wrap=numbers)
    return table


def print_json(document: Mapping[str, Any]) -> None:
    """Print a document: indented on a terminal, else in one line."""
    print(json.dumps(document, indent=2 if sys.stdout.isatty() else None))


def confirm(yes: bool, question: Callable[[], str], why: str, otherwise: str) -> None:
    """Ask for confirmation unless --yes was given; without a terminal --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"is required without a terminal: {why}", param_hint="--yes")
    if not typer.confirm(question(), err=True):
        print(otherwise, file=sys.stderr)
        raise typer.Exit(ExitStatus.FAILED)


@contextmanager
def reporting() -> Iterator[None]:
    """End the command with a message, a hint and an exit status (`ExitStatus`) if the user can act on the error.

    Ctrl-C ends it with 130.
    """
    try:
        yield
    except CommandFailed as error:
        print(f"error: {error}", file=sys.stderr)
        if (remedy := getattr(error, "remedy", None)) is not None:
            print(remedy, file=sys.stderr)
        raise typer.Exit(error.exit_status) from None
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        raise typer.Exit(130) from None
