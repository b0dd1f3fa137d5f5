"""`rarestream create` and `rarestream threshold`: a learner's settings, an option for each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.format_config import aim_of, settings_of
from service.cli.options import (
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
    duration,
    field_of,
    given,
    json_file,
    objective_names,
    param_of,
    threshold_of,
)
from service.cli.options_service import (
    DEFAULT_URL,
    AsJson,
    Key,
    Name,
    Url,
    algorithm_names,
    connected,
    print_json,
    reporting,
)
from service.datasets import counted

__all__ = ["create", "threshold"]

_TITLES = {"objective": "threshold"}
_DAY = 86_400.0  # seconds: the usual unit of time of a budget


def create(
    name: Annotated[str, typer.Argument(help="The learner's name.")],
    algorithm: Annotated[
        str | None,
        typer.Option(help="See /v1/algorithms for all and their parameters.", autocompletion=algorithm_names),
    ] = None,
    features: Annotated[str | None, typer.Option(help="dense, sparse, named (hashed) or table (declared).")] = None,
    dim: Annotated[int | None, typer.Option(help="dense, sparse: columns. By itself: dense.")] = None,
    bits: Annotated[int | None, typer.Option(help="named: hashed to 2^bits columns.")] = None,
    text: Annotated[list[str] | None, typer.Option(help="named: a field of words. Repeatable.")] = None,
    categorical: Annotated[list[str] | None, typer.Option(help="named: its numbers are names. Repeatable.")] = None,
    log: Annotated[list[str] | None, typer.Option(help="named: take the log of this number. Repeatable.")] = None,
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
    threshold: Annotated[
        str | None, typer.Option(help=f"What it is learnt for: {OBJECTIVES}.", autocompletion=objective_names)
    ] = None,
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
    precision: Annotated[
        str | None, typer.Option(help="Of the large arrays of the state: float64, or float32 in half the memory.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="The body of the request as JSON; options go before it.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Create a learner. The same name and configuration once more is no error."""
    with reporting():
        from service.cli.api import ApiError
        from service.cli.suggestions import misplaced, named

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
        if described.keys() == {"dim"} and "features" not in body:
            described["kind"] = "dense"  # as in the library: `dim=8` is short for dense features
        if described and "kind" not in described:
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
            "precision": precision,
        }
        body |= given(settings)
        with connected(url, key) as api:
            try:
                document, new = api.create(name, body)
            except ApiError as error:
                raise named(error, given(settings) if config else None, misplaced(body, error.pointers)) from None
        if as_json:
            print_json(document | {"created": new})
            return
        print(f"{name} is created" if new else f"{name} exists already, with this configuration")
        for what, said in settings_of(document["config"]):
            if what in ("algorithm", "features", "objective"):
                print(f"  {_TITLES.get(what, what):<10} {said}")
        print(f"  {'position':<10} {document['position']:,} in its log, {counted(document['events'], 'event')} learnt")
        print(f"`rarestream update {name}` or `replay` teaches it, `rarestream show {name}` tells all of its settings")


def threshold(
    name: Name,
    objective: Annotated[
        str, typer.Argument(help=f"What it is learnt for: {OBJECTIVES}.", autocompletion=objective_names)
    ],
    value: Value = None,
    beta: Beta = None,
    target: Target = None,
    false_positive: FalsePositive = None,
    false_negative: FalseNegative = None,
    cost_field: CostField = None,
    alerts: Alerts = None,
    unit: Unit = None,
    rate: Rate = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Change what the threshold of a learner is learnt for. Nothing that was learnt is lost.

    Settings that are not given stay as they are where the objective stays,
    and are the usual ones of another.
    """
    with reporting():
        from service.cli.api import ApiError
        from service.cli.suggestions import named

        settings = threshold_of(
            objective, value, beta, target, false_positive, false_negative, cost_field, alerts, unit, rate
        )
        if rate is not None and alerts is None and unit is None:  # one takes the place of the other
            settings |= {"alerts": None, "unit_seconds": _DAY}
        elif alerts is not None and rate is None:
            settings["rate"] = None
        with connected(url, key) as api:
            before = api.learner(name)["threshold"]
            try:
                document = api.change(name, {"threshold": settings})
            except ApiError as error:
                raise named(error, objective="OBJECTIVE") from None
        if as_json:
            print_json(document)
            return
        chosen = document["config"]["threshold"]
        print(f"{name} has the threshold of {aim_of(chosen)}")
        costing = f" (where {chosen['field']} is 1)" if chosen["field"] is not None else ""
        now = document["threshold"]
        if now is None:
            print(f"there is none yet: {document['not_ready']}")
        else:
            was = "" if before is None else f"was {before:.4g} and "
            print(f"it {was}is {now:.4g} now{costing}")
