"""The command line: serve, create, threshold, replay, demo, warm.

Each command imports what it needs, so that `--help` is quick.

Exit status: 0 done, 1 failed (the reason is on stderr), 2 wrong usage, 130 a replay stopped by Ctrl-C (143: SIGTERM).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service import __version__
from service.commands.failure import CommandFailed
from service.commands.options import (
    OBJECTIVES,
    Alerts,
    Beta,
    CostField,
    FalseNegative,
    FalsePositive,
    Rate,
    Target,
    Unit,
    Value,
    check_late,
    duration,
    field_of,
    given,
    json_file,
    param_of,
    ranks_of,
    threshold_of,
)

if TYPE_CHECKING:
    from rich.console import Console

    from service.settings import Settings

__all__ = ["app", "main"]

app = typer.Typer(
    help="Online learning for imbalanced streams: named learners behind a durable log, with live AUC and F-measure.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback is for a bug report: plain and whole
)

_DAY = 86_400.0  # seconds: the usual unit of time of a budget

Url = Annotated[str, typer.Option(envvar="RARESTREAM_URL", help="Where the service is.")]


Store = Annotated[
    str | None, typer.Option(help="sqlite:///path (three slashes relative, four absolute) or redis://host:port/db.")
]


class LogLevel(StrEnum):
    """What `--log-level` takes."""

    error = "error"
    warning = "warning"
    info = "info"
    debug = "debug"


def main() -> None:
    """Run the command line."""
    app()


def _print_version(asked: bool) -> None:
    if asked:
        print(f"rarestream {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before the command; typer prints the help text of `app` in the place of this one."""


@app.command()
def serve(
    store: Store = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = None,
    log_level: Annotated[LogLevel, typer.Option(help="How much is logged, on stderr.")] = LogLevel.warning,
) -> None:
    """Run the service. Options go before RARESTREAM_* variables, these before the defaults."""
    with _reporting():
        from service.server import serve as run

        settings = _settings(store=store, host=host, port=port)
        for name in _unknown_variables(os.environ):
            print(f"warning: {name} is not a setting; it is ignored", file=sys.stderr)
        run(settings, log_level=log_level.value)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="The learner's name.")],
    algorithm: Annotated[str | None, typer.Option(help="See /v1/algorithms for all and their parameters.")] = None,
    features: Annotated[str | None, typer.Option(help="dense, sparse, named (hashed) or table (declared).")] = None,
    dim: Annotated[int | None, typer.Option(help="dense, sparse: columns.")] = None,
    bits: Annotated[int | None, typer.Option(help="named: hashed to 2^bits columns.")] = None,
    text: Annotated[list[str] | None, typer.Option(help="named: a field of words. Repeatable.")] = None,
    categorical: Annotated[list[str] | None, typer.Option(help="named: its numbers are names. Repeatable.")] = None,
    log: Annotated[list[str] | None, typer.Option(help="named: take this number's log. Repeatable.")] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(help="table: NAME:numeric, NAME:numeric:log or NAME:categorical[:CATEGORIES]. Repeatable."),
    ] = None,
    extra: Annotated[str | None, typer.Option(help="table: refuse or ignore undeclared features.")] = None,
    param: Annotated[list[str] | None, typer.Option(help="A parameter of the algorithm, C=0.1. Repeatable.")] = None,
    scaling: Annotated[str | None, typer.Option(help="none, unit, standard or maxabs.")] = None,
    calibration: Annotated[
        str | None, typer.Option(help="Score to probability: posterior, platt, isotonic, histogram or none.")
    ] = None,
    embedding: Annotated[str | None, typer.Option(help="none, nystroem or fourier: nonlinear features.")] = None,
    components: Annotated[int | None, typer.Option(help="embedding: how many landmarks or features.")] = None,
    warmup: Annotated[int | None, typer.Option(help="embedding: events that it is fitted to.")] = None,
    width: Annotated[float | None, typer.Option(help="embedding: b of the kernel exp(-|x - u|^2 / b).")] = None,
    threshold: Annotated[str | None, typer.Option(help=f"What it is learnt for: {OBJECTIVES}.")] = None,
    value: Value = None,
    beta: Beta = None,
    target: Target = None,
    false_positive: FalsePositive = None,
    false_negative: FalseNegative = None,
    cost_field: CostField = None,
    alerts: Alerts = None,
    unit: Unit = None,
    rate: Rate = None,
    label_ttl: Annotated[
        float | None,
        typer.Option(parser=duration, metavar="DURATION", help="How long an event waits for its label: 90d."),
    ] = None,
    unlabelled: Annotated[str | None, typer.Option(help="What it becomes then: nothing or negative.")] = None,
    window: Annotated[int | None, typer.Option(help="Events that the windowed figures look back on.")] = None,
    window_seconds: Annotated[float | None, typer.Option(help="Seconds that they look back on at most.")] = None,
    refit_every: Annotated[int | None, typer.Option(help="Batch algorithms: labelled events between fits.")] = None,
    refit_window: Annotated[int | None, typer.Option(help="Batch algorithms: events retained for fits.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the random choices.")] = None,
    config: Annotated[Path | None, typer.Option(help="The body of the request as JSON; options go before it.")] = None,
    url: Url = "http://127.0.0.1:8000",
) -> None:
    """Create a learner. The same name and configuration once more is no error."""
    with _reporting():
        from service.commands.api import Api, ApiError
        from service.commands.hints import misplaced

        body: dict[str, Any] = json_file(config) if config else {}
        chosen = {
            "kind": features,
            "dim": dim,
            "bits": bits,
            "text": text,
            "categorical": categorical,
            "log": log,
            "fields": [field_of(one) for one in field] if field else None,
            "extra": extra,
        }
        described = given(chosen)
        if described and features is None:
            said = "it is dense or sparse" if described.keys() == {"dim"} else "one of dense, sparse, named, table"
            option = next(iter(described)).replace("fields", "field")
            raise typer.BadParameter(f"missing beside --{option}; {said}", param_hint="--features")
        settings = {
            "algorithm": algorithm,
            "features": described,
            "params": dict(param_of(one) for one in param or ()),
            "scaling": given({"kind": scaling}),
            "embedding": given({"kind": embedding, "components": components, "warmup": warmup, "width": width}),
            "calibration": given({"kind": calibration}),
            "threshold": threshold_of(
                threshold, value, beta, target, false_positive, false_negative, cost_field, alerts, unit, rate
            ),
            "late": given({"label_ttl": label_ttl, "unlabelled": unlabelled}),
            "window": window,
            "window_seconds": window_seconds,
            "refit_every": refit_every,
            "refit_window": refit_window,
            "seed": seed,
        }
        body |= given(settings)
        with Api(url) as api:
            try:
                document, new = api.create(name, body)
            except ApiError as error:
                raise CommandFailed("\n".join([str(error), *misplaced(body, error.pointers)])) from None
        print(f"{name} is created" if new else f"{name} exists already, with this configuration")
        print(json.dumps(document["config"], indent=2))


@app.command()
def threshold(
    name: Annotated[str, typer.Argument(help="The learner's name.")],
    objective: Annotated[str, typer.Argument(help=f"What it is learnt for: {OBJECTIVES}.")],
    value: Value = None,
    beta: Beta = None,
    target: Target = None,
    false_positive: FalsePositive = None,
    false_negative: FalseNegative = None,
    cost_field: CostField = None,
    alerts: Alerts = None,
    unit: Unit = None,
    rate: Rate = None,
    url: Url = "http://127.0.0.1:8000",
) -> None:
    """Change what a learner's threshold is learnt for. Nothing that was learnt is lost.

    Settings that are not given stay as they are where the objective stays,
    and are the usual ones of another.
    """
    with _reporting():
        from service.commands.api import Api

        settings = threshold_of(
            objective, value, beta, target, false_positive, false_negative, cost_field, alerts, unit, rate
        )
        if rate is not None and alerts is None and unit is None:  # one takes the place of the other
            settings |= {"alerts": None, "unit_seconds": _DAY}
        elif alerts is not None and rate is None:
            settings["rate"] = None
        with Api(url) as api:
            before = api.learner(name)["threshold"]
            document = api.change(name, {"threshold": settings})
        print(f"{name} has the threshold of {objective}")
        field = document["config"]["threshold"]["field"]
        costing = f" (where {field} is 1)" if field is not None else ""
        print(f"it was {before} and is {document['threshold']} now{costing}")
        print(json.dumps(document["config"]["threshold"], indent=2))


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="CSV, TSV, JSONL, .npz or LIBSVM text; may be gzipped. No pipe.")],
    learner: Annotated[str, typer.Option(help="The learner's name.")],
    label: Annotated[str, typer.Option(help="Column of the label (.npz: array, y if not given).")] = "label",
    positive: Annotated[list[str] | None, typer.Option(help="A label that is positive. Repeatable.")] = None,
    ranks: Annotated[
        str | None, typer.Option(help="Ordinal: the labels, lowest first, LOW,MEDIUM,HIGH, if they are not 1 to p.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A column to leave out. Repeatable.")] = None,
    id: Annotated[str | None, typer.Option(help="Column of the event's id.")] = None,
    time: Annotated[str | None, typer.Option(help="Column of its time: epoch seconds or ISO 8601.")] = None,
    weight: Annotated[str | None, typer.Option(help="Column of its weight.")] = None,
    format: Annotated[str, typer.Option(help="csv, tsv, jsonl, npz or libsvm, where the name does not tell.")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this row of the file.")] = None,
    rate: Annotated[float | None, typer.Option(min=1e-3, help="Events per second at most.")] = None,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="Rows per request at most.")] = 1000,
    wait: Annotated[
        bool, typer.Option("--wait", help="Batch algorithms: wait for each fit before the next rows.")
    ] = False,
    label_delay: Annotated[
        float | None,
        typer.Option(
            parser=duration,
            metavar="DURATION",
            help="Score each row when it comes, send its label so much later by its --time: 7d, 12h, 30m, 45s.",
        ),
    ] = None,
    label_every: Annotated[
        float | None,
        typer.Option(
            parser=duration, metavar="DURATION", help="With it: labels come in rounds so far apart, 1h; much faster."
        ),
    ] = None,
    retry_seconds: Annotated[float, typer.Option(min=0, help="How long a request is tried again.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
    url: Url = "http://127.0.0.1:8000",
) -> None:
    """Send a file of labelled rows to a learner, in order; go on where an earlier replay of the file ended.

    Resuming holds for the unchanged file with the same --label, --positive,
    --ranks, --drop, --id, --time, --weight and --format. Otherwise it counts
    as a new file and is learnt from its first row. With --id, from the first
    replay on, a row that comes again is not learnt twice.

    Batch algorithms are fitted in the background while rows come, so the
    figures of such a replay depend on how fast it is. With --wait they do
    not: to a new learner, with the same --batch, it gives the same figures.

    With --label-delay it goes as in production: a row is scored by what was
    known at its --time, and learnt when its label comes, by its --id. Rows of
    the file have to be in the order of time, or nearly. It is resumed with
    the same --label-delay and --label-every only.
    """
    with _reporting():
        from service.commands.api import Api, Stopped
        from service.commands.cells import Columns
        from service.commands.late import Delay
        from service.commands.pacing import Interruption
        from service.commands.replay import Plan, replay_file
        from service.commands.summary import tell

        check_late(label_delay, label_every, id, time, wait)
        order = ranks_of(ranks) if ranks is not None else ()
        columns = Columns(label, tuple(positive or ()), order, tuple(drop or ()), id, time, weight)
        delay = None if label_delay is None else Delay(label_delay, label_every or 0.0)
        notes = _console(stderr=True)
        with (
            Interruption() as interruption,
            Api(url, patience=retry_seconds, wait=interruption.wait, notice=notes.print) as api,
        ):
            plan = Plan(file, learner, columns, format, limit, rate, batch, wait, delay)
            try:
                outcome = replay_file(plan, api, interruption, notes)
            except Stopped:  # before the first batch, or after the last
                outcome = None
        if outcome is not None:
            if as_json:
                print(json.dumps(outcome.to_json() | {"learner": learner, "file": str(file)}))
            else:
                tell(outcome, plan, notes, _console(stderr=False))
        if interruption:
            notes.print("stopped; the same command goes on from there")
            raise typer.Exit(128 + (interruption.signal or 0))
        if outcome is not None and outcome.unmet is not None:
            notes.print(f"warning: {outcome.unmet}")
            if outcome.rows.start == 0:  # of a resumed file the rows before may have been positive
                raise typer.Exit(1)


@app.command()
def demo(
    store: Annotated[str, typer.Option(help="Where the demo's learners live.")] = "sqlite:///rarestream-demo.db",
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = None,
    rate: Annotated[float, typer.Option(min=0, help="Events per second to each learner; 0: no limit.")] = 1000.0,
    events: Annotated[int, typer.Option(min=2, help="Events in all; the fraud changes half-way.")] = 200_000,
) -> None:
    """Serve four learners on one simulated stream of card fraud. Ctrl-C stops; starting again goes on from there."""
    with _reporting():
        from service.commands.demo import demo as run

        settings = _settings(store=store, host=host, port=port)
        run(settings, rate=rate or None, events=events, console=_console(stderr=False))


@app.command()
def warm() -> None:
    """Compile every kernel into the cache, so that no request waits for the compiler."""
    from learners.jit import cache_directory
    from learners.warm import warm as run
    from service.scan.events import scan

    for name in run():
        print(f"compiled {name}", flush=True)
    scan(b'{"events": [{"x": [0]}]}', 1, labelled=False, most=1)
    print(f"the kernels are in {cache_directory()}")


def _settings(**options: Any) -> Settings:
    from pydantic import ValidationError

    from service.settings import Settings

    try:
        return Settings(**given(options))
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, one['loc']))}: {one['msg']}, not {one['input']!r}" for one in error.errors()]
        raise CommandFailed("\n".join(["some settings are wrong (options, RARESTREAM_*):", *lines])) from None


def _unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """The RARESTREAM_* variables that nothing reads: misspelt ones, most likely."""
    from service.settings import Settings

    prefix = Settings.model_config["env_prefix"]
    known = {"URL", *map(str.upper, Settings.model_fields)}  # URL is an option of the commands that call the service
    names = [name for name in environment if name.upper().startswith(prefix)]
    return sorted(name for name in names if name.upper().removeprefix(prefix) not in known)


@contextmanager
def _reporting() -> Iterator[None]:
    """What a user can do something about ends the command with a message and status 1."""
    try:
        yield
    except CommandFailed as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from None


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, soft_wrap=True)
