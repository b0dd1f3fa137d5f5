"""The command line: `serve`, `demo` and `warm`, and the registration of the commands that call a service.

Each command imports its dependencies itself, so that `--help` and short commands are quick.

Exit status: 0 done, 1 failed (the reason is on stderr), 2 wrong usage, 3 no service answers, 4 no such learner or
snapshot, 5 refused, 6 partly done, 130 stopped by Ctrl-C (143: SIGTERM).
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from rarestream import __version__
from service.cli.commands import (
    algorithms,
    bench,
    compare,
    consume,
    context,
    create,
    incidents,
    inspect,
    keys_file,
    replay,
    scored_events,
    segments,
    send_events,
    show,
    states,
    thresholds,
    watch,
)
from service.cli.contexts import CurrentContext
from service.cli.options import flag, without_empty
from service.cli.options_service import AsJson, console, print_json, reporting
from service.exits import ExitStatus, WrongUsage

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from service.settings import Settings

__all__ = ["app", "main"]

_STATUSES = (
    "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no service answers, 4 no such learner or snapshot, 5 refused, "
    "6 partly done, 130 stopped by Ctrl-C. With --json every command prints one JSON document on standard output, or "
    "one per line of a stream; everything else goes to standard error. RARESTREAM_URL and RARESTREAM_KEY stand for "
    "--url and --key; both win over the current context. RARESTREAM_CA names a file of certificates to trust."
)


class _Commands(TyperGroup):
    """The group of commands."""

    def make_context(self, *arguments: Any, **extra: Any) -> Any:
        """Parse the options; those that are absent are those of the current context."""
        others = {name: command for name, command in self.commands.items() if name != "context"}  # which changes them
        return super().make_context(*arguments, **{"default_map": CurrentContext().defaults(others), **extra})

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run a command; report a refused value by the text of the check, without the words of pydantic."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if (check := _failed_check(error.__cause__)) is not None:
                error.message = check
            raise


def _failed_check(error: BaseException | None) -> str | None:
    """Return the text of the ValueError behind an error of pydantic, with which typer checks values."""
    from pydantic import ValidationError

    problems = error.errors() if isinstance(error, ValidationError) else []
    return _check_text(problems[0]) if problems else None


def _check_text(problem: ErrorDetails) -> str | None:
    """Return the text of the ValueError that a check raised; None if pydantic itself refused the value."""
    return str(problem["ctx"]["error"]) if problem["type"] == "value_error" else None


app = typer.Typer(
    cls=_Commands,
    help="Online learning for imbalanced streams: named learners behind a durable log, with live AUC and F-measure.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_STATUSES,
    pretty_exceptions_enable=False,  # tracebacks in bug reports are plain and complete
)

_EXPECTED = {  # type of pydantic's error -> expected value
    "literal_error": "{expected}",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "bool_parsing": "true or false",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}
_UNWRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPIPE})  # errors of writes to the output
_NODE, _LEARNERS, _EVENTS, _STATES = "A node", "Learners", "Events", "States"  # panels of the help

Store = Annotated[
    str | None,
    typer.Option(
        help="sqlite:///path (three slashes relative, four absolute) or redis://host:port/db; redis+sentinel:// and "
        "redis+cluster:// name several hosts."
    ),
]


class LogLevel(StrEnum):
    """Values of `--log-level`."""

    error = "error"
    warning = "warning"
    info = "info"
    debug = "debug"


class LogFormat(StrEnum):
    """Values of `--log-format`."""

    text = "text"
    json = "json"


def main() -> None:
    """Run the command line."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # do not fail on a terminal without UTF-8
    try:
        try:
            app(prog_name="rarestream")
        finally:
            sys.stdout.flush()  # buffered output may fail as well
    except OSError as error:
        if error.errno not in _UNWRITTEN or error.filename is not None:  # an error of a named file
            raise
        if error.errno != errno.EPIPE:  # else the reader has closed the pipe
            print(f"error: cannot write the output: {error.strerror}", file=sys.stderr)
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # discards the rest, which is flushed at the exit
        sys.exit(ExitStatus.FAILED)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"rarestream {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, flag("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options before the command; typer prints the help of `app` instead of this text."""


@app.command(rich_help_panel=_NODE)
def serve(
    store: Store = None,
    acks: Annotated[
        str | None, typer.Option(help="Durability that Redis confirms before a reply: memory, aof or replicas:n.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = None,
    keys: Annotated[str | None, typer.Option(metavar="FILE", help="File of API keys; see `keys`.")] = None,
    insecure: Annotated[bool | None, flag("--insecure", help="Listen beyond loopback without API keys.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of processes behind the port, with Redis.")] = None,
    log_level: Annotated[LogLevel | None, typer.Option(help="Log level (default: info).")] = None,
    log_format: Annotated[LogFormat | None, typer.Option(help="Format of log lines (default: text).")] = None,
    as_json: Annotated[
        bool, flag("--json", help="Print a JSON object when ready, and log as JSON by default.")
    ] = False,
) -> None:
    """Run the service. Options override RARESTREAM_* variables, which override the defaults."""
    with reporting():
        settings = _settings(
            store=store,
            acks=acks,
            host=host,
            port=port,
            workers=workers,
            keys=keys,
            insecure=insecure,
            log_level=log_level,
            log_format=log_format,
        )
        if as_json and "log_format" not in settings.model_fields_set:
            settings = settings.model_copy(update={"log_format": "json"})
        if settings.workers > 1:
            from service.server import supervise as run
        else:
            from service.server.run import serve as run
        run(settings, _unknown_variables(os.environ), as_json=as_json)


@app.command(rich_help_panel=_NODE)
def demo(
    store: Annotated[str, typer.Option(help="Store of the learners.")] = "sqlite:///rarestream-demo.db",
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = None,
    rate: Annotated[float, typer.Option(min=0, help="Events per second and learner; 0: no limit.")] = 1000.0,
    events: Annotated[int, typer.Option(min=2, help="Total events; the fraud changes half-way.")] = 200_000,
    as_json: Annotated[bool, flag("--json", help="Print a JSON object per line: the address, then metrics.")] = False,
) -> None:
    """Serve four learners on one simulated stream of card fraud. Ctrl-C stops it, the next start resumes it."""
    with reporting():
        from service.cli.commands.demo import demo as run

        settings = _settings(store=store, host=host, port=port)
        if settings.keys is not None:
            raise WrongUsage("the demo does not use API keys; unset RARESTREAM_KEYS, or use `serve`")
        run(settings, rate=rate or None, events=events, console=console(stderr=as_json), as_json=as_json)


@app.command(rich_help_panel=_NODE)
def warm(
    everything: Annotated[bool, typer.Option("--all", help="Also compile the baselines of the papers.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compile the kernels into the cache, so that no request waits for the compiler."""
    with reporting():
        from learners import warm as run
        from learners.numerics import cache_directory, kernel_counts, rehearse_here
        from service.wire.kernels import SERVICE_REHEARSALS

        began, names = time.monotonic(), []
        for name in run(baselines=everything):
            names.append(name)
            print(f"compiled {name}", flush=True, file=sys.stderr if as_json else sys.stdout)
        rehearse_here(SERVICE_REHEARSALS)
        seconds = round(time.monotonic() - began, 3)
        counts, cache = kernel_counts(), str(cache_directory())
        if as_json:
            numbers = {"compiled": counts.compiled, "all": counts.all}
            print_json({"kernels": names, **numbers, "cache": cache, "seconds": seconds})
        else:
            print(f"kernels: {counts.compiled} of {counts.all} are compiled, in {cache}")


_CALLING: list[tuple[str, Callable[..., None], str]] = [
    ("bench", bench.bench, _NODE),
    ("algorithms", algorithms.algorithms, _NODE),
    ("create", create.create, _LEARNERS),
    ("list", show.list_learners, _LEARNERS),
    ("show", show.show, _LEARNERS),
    ("fields", show.fields, _LEARNERS),
    ("watch", watch.watch, _LEARNERS),
    ("alarms", incidents.alarms, _LEARNERS),
    ("annotate", incidents.annotate, _LEARNERS),
    ("threshold", thresholds.threshold, _LEARNERS),
    ("thresholds", thresholds.thresholds, _LEARNERS),
    ("segments", segments.segments, _LEARNERS),
    ("delete", states.delete, _LEARNERS),
    ("compare", compare.compare, _LEARNERS),
    ("update", send_events.update, _EVENTS),
    ("predict", send_events.predict, _EVENTS),
    ("labels", send_events.labels, _EVENTS),
    ("events", scored_events.events, _EVENTS),
    ("event", scored_events.event, _EVENTS),
    ("label", scored_events.label, _EVENTS),
    ("alerts", scored_events.alerts, _EVENTS),
    ("erase", scored_events.erase, _EVENTS),
    ("inspect", inspect.inspect, _EVENTS),
    ("replay", replay.replay, _EVENTS),
    ("consume", consume.consume, _EVENTS),
    ("snapshot", states.snapshot, _STATES),
    ("snapshots", states.snapshots, _STATES),
    ("restore", states.restore, _STATES),
    ("clone", states.clone, _STATES),
    ("export", states.export, _STATES),
    ("import", states.import_state, _STATES),
]
for _name, _command, _panel in _CALLING:
    app.command(_name, rich_help_panel=_panel)(_command)
app.add_typer(compare.groups_app, name="groups", rich_help_panel=_LEARNERS)
app.add_typer(keys_file.app, name="keys", rich_help_panel=_NODE)
app.add_typer(context.app, name="context", rich_help_panel=_NODE)


def _settings(**options: Any) -> Settings:
    from pydantic import ValidationError

    from service.settings import Settings

    try:
        return Settings(**without_empty(options))
    except ValidationError as error:
        lines = [
            f"  {_setting_source(str(problem['loc'][0]), options)}: {_describe(problem)}" for problem in error.errors()
        ]
        raise WrongUsage("\n".join(["some settings are wrong:", *lines])) from None


def _setting_source(name: str, options: Mapping[str, Any]) -> str:
    """Return the option, or the variable, that a setting came from."""
    return f"--{name.replace('_', '-')}" if options.get(name) is not None else f"RARESTREAM_{name.upper()}"


def _describe(problem: ErrorDetails) -> str:
    """Return what is wrong with a value, and what is expected."""
    if (check := _check_text(problem)) is not None:
        return check
    message = problem["msg"]
    expected = _EXPECTED.get(problem["type"])
    if expected is None:
        return f"is {problem['input']!r}; {message[:1].lower()}{message[1:]}"
    return f"is {problem['input']!r}; expected {expected.format(**problem.get('ctx', {})).replace(chr(39), '')}"


def _unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return warnings about RARESTREAM_* variables that nothing reads, with the nearest setting."""
    from service.settings import Settings

    prefix = Settings.model_config["env_prefix"]
    names_ = {
        "URL",
        "KEY",
        "CA",
        *map(str.upper, Settings.model_fields),
    }  # the first three are for commands that call a service
    names = [name for name in environment if name.upper().startswith(prefix)]
    warnings = []
    for name in sorted(name for name in names if name.upper().removeprefix(prefix) not in names_):
        near = get_close_matches(name.upper().removeprefix(prefix), names_, 1)
        warnings.append(f"{name} is not a setting; it is ignored{f' (is it {prefix}{near[0]}?)' if near else ''}")
    return warnings
