"""`rarestream create`: a learner's settings, by shortcuts and `--set`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.format import format_config
from service.cli.options import (
    OBJECTIVES,
    Alerts,
    Set,
    Target,
    assign,
    duration,
    json_file,
    name_and_value,
    objective_names,
    parse_field,
    without_empty,
)
from service.cli.options_service import (
    DEFAULT_URL,
    AsJson,
    Key,
    Url,
    algorithm_names,
    connected,
    print_json,
    reporting,
)
from service.text import counted

__all__ = ["create"]

_SUMMARY = {"algorithm": "algorithm", "features": "features", "objective": "threshold"}


def create(
    name: Annotated[str, typer.Argument(help="Name of the learner.")],
    algorithm: Annotated[
        str | None,
        typer.Option(
            help="Algorithm; /v1/algorithms lists all with their parameters. Default: auto.",
            autocompletion=algorithm_names,
        ),
    ] = None,
    features: Annotated[str | None, typer.Option(help="dense, sparse, named (hashed) or table (declared).")] = None,
    dim: Annotated[int | None, typer.Option(help="dense, sparse: number of columns. Implies dense.")] = None,
    text: Annotated[list[str] | None, typer.Option(help="named: a text field. Repeatable.")] = None,
    categorical: Annotated[
        list[str] | None, typer.Option(help="named: a field whose numbers are names. Repeatable.")
    ] = None,
    log: Annotated[list[str] | None, typer.Option(help="named: a number to log-transform. Repeatable.")] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(help="table: NAME:numeric, NAME:numeric:log or NAME:categorical[:CATEGORIES]. Repeatable."),
    ] = None,
    param: Annotated[list[str] | None, typer.Option(help="A parameter of the algorithm, C=0.1. Repeatable.")] = None,
    scaling: Annotated[str | None, typer.Option(help="none, unit, standard or maxabs.")] = None,
    threshold: Annotated[
        str | None, typer.Option(help=f"Objective of the threshold: {OBJECTIVES}.", autocompletion=objective_names)
    ] = None,
    target: Target = None,
    alerts: Alerts = None,
    label_ttl: Annotated[
        float | None,
        typer.Option(parser=duration, metavar="DURATION", help="How long an event waits for its label: 90d."),
    ] = None,
    window: Annotated[int | None, typer.Option(help="Events in the window of the metrics.")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    set: Set = None,
    config: Annotated[
        Path | None, typer.Option(help="A file with the configuration as JSON; options take precedence.")
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Create a learner. It is safe to repeat with the same configuration.

    Every setting of the HTTP API is available by --set, for example
    --set embedding.kind=nystroem --set features.bits=18.
    """
    with reporting():
        from rarestream import ClientError
        from service.cli.suggestions import misplaced_params, settings_refused

        body: dict[str, Any] = json_file(config) if config else {}
        settings = without_empty(
            {
                "algorithm": algorithm,
                "features": without_empty(
                    {
                        "kind": features,
                        "dim": dim,
                        "text": text,
                        "categorical": categorical,
                        "log": log,
                        "fields": [parse_field(declaration) for declaration in field] if field else None,
                    }
                ),
                "params": dict(name_and_value(assignment, "--param") for assignment in param or ()),
                "scaling": without_empty({"kind": scaling}),
                "threshold": without_empty({"objective": threshold, "target": target, "alerts": alerts}),
                "late": without_empty({"label_ttl": label_ttl}),
                "window": window,
                "seed": seed,
            }
        )
        assign(settings, set)
        _check_features(settings, body)
        body |= settings
        with connected(url, key) as client:
            try:
                document, new = client.create_document(name, body)
            except ClientError as error:
                hints = misplaced_params(body, error, client)
                raise settings_refused(error, settings if config else None, hints) from None
        if as_json:
            print_json(document | {"created": new})
            return
        for warning in document["warnings"]:
            print(f"warning: {warning['pointer'][1:]} {warning['detail']}", file=sys.stderr)
        print(f"{name} is created" if new else f"{name} exists already, with this configuration")
        for part, text_ in format_config(document["config"]):
            if part in _SUMMARY:
                print(f"  {_SUMMARY[part]:<10} {text_}")
        print(f"  {'position':<10} {document['position']:,} in its log, {counted(document['events'], 'event')} learnt")
        print(f"`rarestream update {name}` or `replay` teaches it, `rarestream show {name}` shows all settings")


def _check_features(settings: dict[str, Any], body: dict[str, Any]) -> None:
    """Take `dim` alone as dense features; refuse other features without their kind."""
    features = settings.get("features")
    if not isinstance(features, dict) or "kind" in features:
        return
    if features.keys() == {"dim"} and "features" not in body:
        features["kind"] = "dense"
        return
    kinds = "dense or sparse" if features.keys() == {"dim"} else "one of dense, sparse, named, table"
    option = {"fields": "--field"}.get(name := next(iter(features)), f"--{name}")
    raise typer.BadParameter(f"missing beside {option}; expected {kinds}", param_hint="--features")
