"""`rarestream replay`: a file of labelled rows through a learner."""

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
    file: Annotated[Path, typer.Argument(help="CSV, TSV, JSONL, .npz or LIBSVM text; may be gzipped. No pipe.")],
    learner: Annotated[str, typer.Option(help="Name of the learner.", autocompletion=learner_names)],
    label: Label = "label",
    positive: Positive = None,
    ranks: RankLabels = None,
    drop: Drop = None,
    id: Id = None,
    time: Time = None,
    weight: Weight = None,
    format: Annotated[str, typer.Option(help="csv, tsv, jsonl, npz or libsvm, where the name does not tell.")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this row of the file.")] = None,
    rate: Annotated[float | None, typer.Option(min=1e-3, help="Events per second at most.")] = None,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="Rows per request at most.")] = 1000,
    wait: Annotated[bool, flag("--wait", help="Batch algorithms: wait for each fit before the next rows.")] = False,
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
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    retry_seconds: RetrySeconds = 60.0,
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
            notes.print("stopped; the same command goes on from there")
            raise typer.Exit(128 + (interruption.signal or 0))
