"""`rarestream replay`: sends a file of labelled rows to a learner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from service.cli.options import (
    Drop,
    Id,
    Label,
    Negative,
    Positive,
    RankLabels,
    Time,
    Weight,
    check_label_delay,
    duration,
    flag,
    parse_ranks,
)
from service.cli.options_files import with_file_options
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

if TYPE_CHECKING:
    from service.datasets import FileOptions

__all__ = ["replay"]

_INSPECTED = 20_000  # rows at a dry run


@with_file_options
def replay(
    file: Annotated[
        Path,
        typer.Argument(
            help="CSV, TSV, JSONL or LIBSVM, also by gzip, bz2, xz, zstd or zip; Parquet, .npz; - or a pipe."
        ),
    ],
    learner: Annotated[str, typer.Option(help="Name of the learner.", autocompletion=learner_names)],
    label: Label = "label",
    positive: Positive = None,
    negative: Negative = None,
    ranks: RankLabels = None,
    drop: Drop = None,
    id: Id = None,
    time: Time = None,
    weight: Weight = None,
    unlabelled: Annotated[
        Literal["stop", "skip", "score"],
        typer.Option(help="At a row without a label: as at a malformed one, leave it out, or score it."),
    ] = "stop",
    format: Annotated[str, typer.Option(help="csv, tsv, jsonl, parquet, npz or libsvm (default: by the name).")] = "",
    first: Annotated[
        int | None,
        typer.Option("--from", min=0, metavar="ROW", help="Learn from this row on, counted from 0 without bad rows."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this row of the file.")] = None,
    rate: Annotated[float | None, typer.Option(min=1e-3, help="Maximum events per second.")] = None,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="Maximum rows per request.")] = 1000,
    again: Annotated[bool, flag("--again", help="Of a file that has changed, learn the rows that are new.")] = False,
    all: Annotated[bool, flag("--all", help="Of a file that has changed, learn all rows.")] = False,
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
    dry_run: Annotated[bool, flag("--dry-run", help="Send nothing; print what `rarestream inspect` does.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    retry_seconds: RetrySeconds = 60.0,
    *,
    form: FileOptions,
) -> None:
    """Send a file of labelled rows to a learner, in order; resume where an earlier replay of the file ended.

    A replay resumes if the file is unchanged and --label, --positive,
    --negative, --ranks, --drop, --id, --time, --weight, --format and the options of files
    except --on-bad are the same. Another file of this name, and one that
    begins as a learnt one does, are refused without --again, --from or --all,
    or the same --id in all replays. With --again, rows that were sent from this
    machine are left out. A pipe is copied to a temporary file first.

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
        from service.cli.replay_engine import ReplayPlan, count_rows, inspect_replay, print_outcome, replay_file
        from service.datasets import RowColumns, local_file
        from service.exits import ExitStatus, WrongUsage
        from service.pacing import Interruption, WaitInterrupted

        check_label_delay(label_delay, label_every, id, time, wait)
        if again + all + (first is not None) > 1:
            raise WrongUsage(
                "--again leaves out the rows that were learnt; --all learns them, too, and --from those from a row on: "
                "choose one"
            )
        if again and unlabelled == "score":
            raise WrongUsage(
                "--again does not know which rows without a label were scored: choose --unlabelled skip, and score "
                "them with rarestream predict"
            )
        if again and label_delay is not None:
            raise WrongUsage("--again is not for --label-delay, which knows rows by their --id")
        order = parse_ranks(ranks) if ranks is not None else ()
        form = replace(form, unlabelled=unlabelled)
        named = tuple(positive or ()), order, tuple(drop or ())
        columns = RowColumns(label, *named, id, time, weight, form, tuple(negative or ()))
        delay = None if label_delay is None else Delay(label_delay, label_every or 0.0)
        notes = console(stderr=True)
        with (
            local_file(file) as rows,  # before signals are held back: a pipe may be silent
            Interruption() as interruption,
            connected(url, key, patience=retry_seconds, wait=interruption.wait, notice=notes.print) as client,
        ):
            plan = ReplayPlan(
                rows, learner, columns, format, limit, rate, batch, wait, delay, again, 0 if all else first
            )
            if dry_run:
                inspection = inspect_replay(plan, client, _INSPECTED)
                if again:
                    count_rows(plan, client, interruption, notes)
                if as_json:
                    print_json(inspection.to_json(learner))
                else:
                    print("\n".join(inspection.lines(learner)))
                return
            try:
                outcome = replay_file(plan, client, interruption, notes)
            except WaitInterrupted:  # before the first batch, or after the last
                outcome = None
        if outcome is not None:
            if as_json:
                print_json(outcome.to_json() | {"learner": learner, "file": str(file)})
            else:
                print_outcome(outcome, plan, notes, console())
            if outcome.barren:
                raise typer.Exit(ExitStatus.REFUSED)
        if interruption:
            notes.print("stopped; the same command resumes from there")
            raise typer.Exit(128 + (interruption.signal or 0))
