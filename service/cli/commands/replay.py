"""`rarestream replay`: sends a file of labelled rows to a learner."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import (
    Drop,
    Id,
    Label,
    Positive,
    RankLabels,
    Time,
    Weight,
    check_label_delay,
    duration,
    flag,
    parse_ranks,
)
from service.cli.options_service import (
    DEFAULT_URL,
    AsJson,
    Key,
    RetrySeconds,
    Url,
    connected,
    console,
    learner_names,
    print_json,
    reporting,
)

__all__ = ["replay"]


def replay(
    file: Annotated[Path, typer.Argument(help="CSV, TSV, JSONL, .npz or LIBSVM text, possibly gzipped; no pipe.")],
    learner: Annotated[str, typer.Option(help="Name of the learner.", autocompletion=learner_names)],
    label: Label = "label",
    positive: Positive = None,
    ranks: RankLabels = None,
    drop: Drop = None,
    id: Id = None,
    time: Time = None,
    weight: Weight = None,
    format: Annotated[str, typer.Option(help="csv, tsv, jsonl, npz or libsvm (default: by the name).")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this row of the file.")] = None,
    rate: Annotated[float | None, typer.Option(min=1e-3, help="Maximum events per second.")] = None,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="Maximum rows per request.")] = 1000,
    wait: Annotated[bool, flag("--wait", help="Batch algorithms: wait for each fit before the next rows.")] = False,
    label_delay: Annotated[
        float | None,
        typer.Option(
            parser=duration,
            metavar="DURATION",
            help="Score each row first, and send its label so much later by --time: 7d, 12h, 30m, 45s.",
        ),
    ] = None,
    label_every: Annotated[
        float | None,
        typer.Option(
            parser=duration, metavar="DURATION", help="With --label-delay: send labels in rounds, 1h; much faster."
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    retry_seconds: RetrySeconds = 60.0,
) -> None:
    """Send a file of labelled rows to a learner, in order; resume where an earlier replay of the file ended.

    A replay resumes if the file is unchanged and --label, --positive,
    --ranks, --drop, --id, --time, --weight and --format are the same.
    Otherwise it begins at the first row. If all replays use --id, no row is
    learnt twice.

    Batch algorithms are fitted in the background, so the metrics of a replay
    depend on its speed. With --wait they do not: a new learner gets the same
    metrics for the same --batch.

    With --label-delay, a row is scored by the model of its --time and learnt
    by its --id when its label arrives, as in production. The file must be
    sorted by time, at least roughly. It resumes only with the same
    --label-delay and --label-every.
    """
    with reporting():
        from service.cli.late_replay import Delay
        from service.cli.replay_engine import ReplayPlan, print_outcome, replay_file
        from service.datasets import Interruption, RowColumns, Stopped

        check_label_delay(label_delay, label_every, id, time, wait)
        order = parse_ranks(ranks) if ranks is not None else ()
        columns = RowColumns(label, tuple(positive or ()), order, tuple(drop or ()), id, time, weight)
        delay = None if label_delay is None else Delay(label_delay, label_every or 0.0)
        notes = console(stderr=True)
        with (
            Interruption() as interruption,
            connected(url, key, patience=retry_seconds, wait=interruption.wait, notice=notes.print) as client,
        ):
            plan = ReplayPlan(file, learner, columns, format, limit, rate, batch, wait, delay)
            try:
                outcome = replay_file(plan, client, interruption, notes)
            except Stopped:  # before the first batch, or after the last
                outcome = None
        if outcome is not None:
            if as_json:
                print_json(outcome.to_json() | {"learner": learner, "file": str(file)})
            else:
                print_outcome(outcome, plan, notes, console())
        if interruption:
            notes.print("stopped; the same command resumes from there")
            raise typer.Exit(128 + (interruption.signal or 0))
