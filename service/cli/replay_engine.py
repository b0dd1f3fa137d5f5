"""Replays a file of labelled rows to a learner over HTTP, in order; each row is learnt exactly once.

Row k of the file is event k of a *source*, whose name depends on the file and on the options that shape its rows. The
learner's state keeps its offset in each source. So a replay that was cut off, by Ctrl-C, SIGKILL or a lost server,
resumes at its next start, and an update without a response is simply sent again.

One request is in flight at a time. Meanwhile a thread reads and encodes the next batch.

With `ReplayPlan.delay`, rows are scored first and their labels follow; see `late_replay.py`.

A batch algorithm is fitted in the background, so the model that scores a row depends on the speed of the replay. With
`ReplayPlan.wait`, the next batch waits for the fit that the last one made due, so that a replay can be repeated.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

from rich.console import Console

from rarestream import Client, ClientError, RemoteLearner
from service.cli.display import ReplayDisplay, describe_fit, describe_metrics, figures_table, fit_notes
from service.cli.field_notes import FieldChanges
from service.cli.inspection import Inspection, inspect_file
from service.cli.late_replay import Delay, check_delay, late_source, require_id_and_time, schedule
from service.cli.replay_journal import Opening, ReplayJournal, Selection, begin
from service.cli.request_errors import RequestFailed, similar_learners
from service.datasets import (
    BadRows,
    BinaryLabels,
    ColumnNote,
    EncodedEvent,
    File,
    LongTexts,
    ReadError,
    RequestBody,
    RowColumns,
    RowHash,
    RowOrigin,
    Rows,
    adapter,
    batches,
    declared,
    labels_for,
    open_rows,
    remembered,
    resolve_format,
    send_accepted,
    source_name,
    suggest_options,
)
from service.exits import CommandFailed, ExitStatus, WrongUsage
from service.pacing import Interruption, Meter, Pace, WaitInterrupted
from service.text import counted

__all__ = [
    "Outcome",
    "ReplayPlan",
    "ReplayResult",
    "count_rows",
    "inspect_replay",
    "located",
    "prefetch",
    "print_outcome",
    "replay",
    "replay_file",
]

Item = TypeVar("Item")

_LOOK_EVERY = 1.0  # seconds between reads of the learner's metrics
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5  # seconds between reads of a running fit
_TABLE_ROWS = 10_000  # rows that the table of columns describes
_UNKNOWN_LEARNER = "unknown-learner"
_BAD_ROW = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})  # statuses for errors in the file


@dataclass
class ReplayResult:
    """The result of a replay."""

    start: int  # the first row whose label was sent
    next: int  # the row after the last label with a response
    applied: int = 0
    duplicate: int = 0
    complete: bool = False  # the end of the file, or the limit, was reached
    relabelled: int = 0  # rows whose label corrected a learnt one
    missing: int = 0  # late labels of events that are not remembered (any more)
    scored: int = 0  # rows that were scored before their late label, or without one
    reached: int = 0  # the row after the last scored one
    left_out: int = 0  # rows that were learnt before, of an earlier content of the file
    refused: int = 0  # rows that the service has refused


def prefetch(items: Iterator[Item]) -> Generator[Item]:
    """Yield the items; a thread computes the next one while the caller handles one."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        future = thread.submit(next, items, None)
        while (item := future.result()) is not None:
            future = thread.submit(next, items, None)
            yield item


def replay(
    learner: RemoteLearner,
    work: Iterator[RequestBody],
    replayed: ReplayResult,
    pace: Pace,
    interruption: Interruption,
    progress: Callable[[RequestBody], None],
    bad: BadRows,
    journal: ReplayJournal,
) -> ReplayResult:
    """Send the batches one after the other, call `progress` after each, and return `replayed` with the result.

    Rows that the service refuses go to `bad`, or end it. Unlike rows that the reader refuses they have a number in the
    source, so a resumed replay skips as many. An interruption ends it after the batch in flight. Raises `RequestFailed`
    if the service refuses or stays away, and `ReadError` at a malformed row, after sending the batches before it.
    """
    refused: set[RowOrigin | None] = set()  # scored rows, whose labels are not sent
    with closing(prefetch(work)) as pipeline:
        for batch in pipeline:
            if pace(0 if batch.kind == "labels" else batch.count):
                return replayed
            part: RequestBody | None = batch
            if batch.kind == "labels":
                part = batch.without({i for i, event in enumerate(batch.events) if event.origin in refused})
            journal.note(batch)
            try:
                origins = [] if part is None else send_accepted(part, partial(_send, learner, replayed), bad)
                progress(batch)
            except WaitInterrupted:
                return replayed
            except ClientError as error:
                if error.status in _BAD_ROW:
                    journal.take_back(replayed.next)
                raise located(error, batch.events) from None
            if batch.kind == "unlabelled":
                refused.update(origin and origin._replace(row=None) for origin in origins)
            journal.refuse(batch, origins)
            replayed.refused += len(origins)
            if interruption:
                return replayed
    replayed.complete = True
    return replayed


def _send(learner: RemoteLearner, replayed: ReplayResult, batch: RequestBody) -> None:
    """Send one batch and record its result."""
    if batch.kind == "unlabelled":
        learner.predict_json(batch.body(), remember=batch.identified)
        replayed.scored += batch.count
        replayed.reached = batch.next
        return
    reply = learner.update_json(batch.body(replayed.next), repeatable=True)
    replayed.applied += reply.applied
    replayed.duplicate += reply.duplicate
    replayed.relabelled += reply.relabelled
    replayed.missing += reply.unknown + reply.expired
    replayed.next = batch.next


def located(error: ClientError, events: Sequence[EncodedEvent], hints: Iterable[str] = ()) -> RequestFailed:
    """Return the failure with the place of each event in its file instead of the index in the request."""

    def label(pointer: str) -> str:
        _, *path = pointer.split("/")
        if len(path) < 2 or path[0] != "events" or not path[1].isdecimal() or int(path[1]) >= len(events):
            return pointer
        origin = events[int(path[1])].origin
        place = str(origin) if origin is not None else f"event {path[1]}"
        return f"{place}: /{'/'.join(path[2:])}" if path[2:] else place

    return RequestFailed(error, hints, label)


@dataclass(frozen=True)
class ReplayPlan:
    """The options of a replay."""

    file: File
    learner: str
    columns: RowColumns
    format: str = ""  # empty: by the file's name
    limit: int | None = None  # rows, counted from the file's beginning
    rate: float | None = None  # events per second at most
    batch: int = 1000  # rows per request at most
    wait: bool = False  # for the fit of a batch algorithm after each request
    delay: Delay | None = None  # of labels; None: each row is learnt at once
    again: bool = False  # of a file that has changed, learn the rows that are new
    first: int | None = None  # the first row to learn, whether it was learnt before or not


@dataclass(frozen=True)
class Outcome:
    """The outcome of a replay for the user."""

    rows: ReplayResult
    selection: Selection  # of the rows
    seconds: float
    metrics: dict[str, Any] | None  # of the learner at the end; None after a signal
    learner: dict[str, Any] | None = None  # its document at the end; None after a signal
    fields: str | None = None  # a line on the learner's fields

    @property
    def barren(self) -> str | None:
        """Say why a complete replay has found no row to learn; None if it has."""
        if not self._idle or (self.selection.place and not self.rows.refused):
            return None
        why = f"the service refused {counted(self.rows.refused, 'row')}" if self.rows.refused else "it has no good row"
        return f"no row of the file was learnt: {why}"

    @property
    def nothing(self) -> str | None:
        """Say why a complete replay has learnt and scored nothing; None if it has."""
        left = "all were learnt before" if self.selection.checked else "none is behind those that were learnt"
        return self.barren or (f"no rows left: {left}" if self._idle else None)

    @property
    def _idle(self) -> bool:
        return self.rows.complete and self.rows.next <= self.rows.start and not self.rows.scored

    @property
    def speed(self) -> float:
        """Rows per second."""
        return max(self.rows.scored, self.rows.next - self.rows.start) / max(self.seconds, 1e-9)

    def to_json(self) -> dict[str, Any]:
        """Return the outcome for programs."""
        state = {} if self.learner is None else {key: self.learner[key] for key in ("ready", "not_ready", "fit")}
        return {
            **dataclasses.asdict(self.rows),
            **state,
            "seconds": round(self.seconds, 3),
            "events_per_second": round(self.speed, 1),
            "metrics": self.metrics,
        }


def replay_file(plan: ReplayPlan, client: Client, interruption: Interruption, notes: Console) -> Outcome:
    """Execute the plan; show progress on `notes`.

    An interruption ends it after the batch in flight. Raises `CommandFailed` if the learner does not exist or does not
    take such rows, if a row is malformed, or if the service refuses or stays away. The text says how many rows are
    learnt and how to continue.
    """
    with BadRows(plan.columns.form.on_bad) as bad:
        outcome = _replay_rows(plan, bad, client, interruption, notes)
    assert outcome is not None
    return outcome


def count_rows(plan: ReplayPlan, client: Client, interruption: Interruption, notes: Console) -> None:
    """Print which rows a replay would send. Nothing is sent; raises what `replay_file` does before that."""
    _replay_rows(plan, BadRows("skip"), client, interruption, notes, read_only=True)


def _replay_rows(
    plan: ReplayPlan, bad: BadRows, client: Client, interruption: Interruption, notes: Console, read_only: bool = False
) -> Outcome | None:
    began = time.monotonic()
    file = plan.file
    format = plan.format or resolve_format(file)
    try:
        learner = client.learner(plan.learner)
        document = learner.describe()
        features = document["config"]["features"]
        changes = FieldChanges(learner)
        with ExitStack() as stack:
            rows = stack.enter_context(_open(plan, document, format, bad))
            rows.long_texts = LongTexts(document["config"])
            hash = RowHash(plan.columns, rows.header)
            journal = ReplayJournal(document["birth"], hash, partial(_print_line, notes), read_only)
            stack.enter_context(journal)
            document = learner.describe()  # after other replays from here have ended
            journal.follow(document["sources"])
            source = source_name(file, plan.columns, format, journal.offsets)
            if plan.delay is not None:
                check_delay(document, source, plan.delay)
                source = late_source(source, plan.delay)
            if source not in journal.offsets:
                _check_positive(plan, document, format)
            opening = Opening(source, partial(_open, plan, document, format), interruption)
            selection = begin(plan, opening, journal, notes)
            if read_only:
                return None
            start, learnt = selection.start, journal.offsets.get(selection.source, 0)
            guesses = rows.guesses
            if learnt == 0:
                past = remembered(features, learner.fields()["fields"])
                inspection = inspect_file(file, plan.columns, format, _TABLE_ROWS, declared(features), past, find=False)
                _print_plain(notes, inspection.table())
                reasons = inspection.reasons
                guesses = [note for note in guesses if not (isinstance(note, ColumnNote) and note.column in reasons)]
            _print_plain(notes, guesses)
            work = _work(plan, rows, selection)
            with ReplayDisplay(notes) as display:
                progress = _Progress(learner, plan, display, start, interruption.wait)
                pace = Pace(plan.rate, interruption.wait)
                try:
                    progress.wait()
                    result = ReplayResult(start, learnt)
                    replayed = replay(learner, work, result, pace, interruption, progress, bad, journal)
                    replayed.left_out = selection.left_out
                    seconds = time.monotonic() - began
                    reached = progress.end() if replayed.complete else None
                except (RequestFailed, ReadError) as error:
                    if isinstance(error, RequestFailed) and error.error.code == _UNKNOWN_LEARNER:
                        raise error.error from None
                    failed = CommandFailed(f"{error}\n{_how_to_go_on(error, plan, progress.next)}")
                    failed.exit_status = ExitStatus.PARTLY if progress.next > start else error.exit_status
                    raise failed from None
                finally:
                    _print_plain(notes, [*rows.notes(), *bad.notes()])
        metrics, after = reached or (None, None)
        return Outcome(replayed, selection, seconds, metrics, after, changes.line() if reached else None)
    except ClientError as error:
        if error.code != _UNKNOWN_LEARNER:
            raise
        raise RequestFailed(error, [*similar_learners(error, client), _how_to_create(plan, format)]) from None


def inspect_replay(plan: ReplayPlan, client: Client, rows: int) -> Inspection:
    """Look at up to `rows` rows of a replay's file. Nothing is sent; raises what `replay_file` does before that."""
    format = plan.format or resolve_format(plan.file)
    learner = client.learner(plan.learner)
    document = learner.describe()
    features = document["config"]["features"]
    past = remembered(features, learner.fields()["fields"])
    with _open(plan, document, format, BadRows("skip")):
        return inspect_file(plan.file, plan.columns, format, rows, declared(features), past, find=False)


def _print_line(notes: Console, line: str) -> None:
    notes.print(line, markup=False, highlight=False)


def _print_plain(notes: Console, lines: Iterable[str]) -> None:
    for line in lines:
        _print_line(notes, line)


@contextmanager
def _open(plan: ReplayPlan, document: dict[str, Any], format: str, bad: BadRows) -> Iterator[Rows[Any]]:
    """Open the file, with its rows as they are sent."""
    features, labels = document["config"]["features"], labels_for(plan.columns, document)
    with open_rows(plan.file, plan.columns, declared(features), format, labels, bad=bad) as rows:
        rows.adapt = adapter(rows.shape, features)
        yield rows


def _work(plan: ReplayPlan, rows: Rows[Any], selection: Selection) -> Iterator[RequestBody]:
    """Yield the remaining requests."""
    source, start = selection.source, selection.start
    size = plan.batch if plan.rate is None else max(1, min(plan.batch, int(plan.rate)))
    if plan.delay is not None:
        rows.adapt = require_id_and_time(rows.adapt)
        return schedule(rows.events(), plan.delay, source, start, size, plan.limit, time.time(), rows.fraction)
    return batches(selection(rows.events()), source, start, size, rows.fraction)


class _Progress:
    """Shows each batch on the display, and reads the learner's metrics at most once a second.

    Then it waits for the learner's fit if the plan says so. Raises `WaitInterrupted` if `pause` says to give up.
    """

    def __init__(
        self,
        learner: RemoteLearner,
        plan: ReplayPlan,
        display: ReplayDisplay,
        start: int,
        pause: Callable[[float], bool],
    ) -> None:
        self.next = start  # the row after the last learnt one
        self._row = start  # the row after the last learnt or scored one
        self._learner = learner
        self._plan = plan
        self._display = display
        self._pause = pause
        self._meter = Meter()
        self._read_at = float("-inf")
        self._figures = ""

    def __call__(self, batch: RequestBody) -> None:
        row = batch.next
        if batch.kind != "unlabelled":
            self.next = row
        if batch.kind != "labels":
            self._meter.add(batch.count)
            self._row = row
        if time.monotonic() - self._read_at >= _LOOK_EVERY:
            self._read_at = time.monotonic()
            self._figures = describe_metrics(self._learner.metrics(), self._learner.describe())
        limit = self._plan.limit
        fraction = batch.fraction if limit is None else max(batch.fraction, self._row / limit)
        self._display.show(self._row, fraction, self._meter.speed(), self._figures)
        self.wait()

    def end(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the metrics and the learner after the last batch, and show them."""
        metrics, learner = self._learner.metrics(), self._learner.describe()
        if self._figures:
            self._display.show(self._row, 1.0, self._meter.speed(), describe_metrics(metrics, learner))
        return metrics, learner

    def wait(self) -> None:
        """Wait until no fit is running."""
        pause = _FIRST_PAUSE
        while self._plan.wait and (fit := self._learner.describe()["fit"]) is not None and fit["running"]:
            if self._pause(pause):
                raise WaitInterrupted
            pause = min(2 * pause, _LONGEST_PAUSE)


def _how_to_go_on(error: RequestFailed | ReadError, plan: ReplayPlan, learnt: int) -> str:
    """Describe how much of the file is learnt, and what another replay does."""
    so_far = f"rows 0 to {learnt:,} are learnt" if learnt else "none of the file's rows is learnt"
    so_far = "the new rows before it are learnt" if plan.again else so_far
    if isinstance(error, RequestFailed) and error.error.status not in _BAD_ROW:
        return f"{so_far}; the same command resumes from there"
    option = "--again" if plan.delay is None else f"--from {learnt}"
    repaired = f"; of a repaired file {option} learns the others" if learnt or plan.again else ""
    if isinstance(error, RequestFailed) or error.remedy is not None:
        then = "resumes from there" if learnt else "leaves bad rows out"
        return f"{so_far}; the same command with --on-bad skip or --on-bad FILE {then}{repaired}"
    return f"{so_far}{repaired}"


def _check_positive(plan: ReplayPlan, document: dict[str, Any], format: str) -> None:
    """Refuse a file without any of the given positive labels: every row would be learnt as negative.

    It reads the file up to the first one. Raises `WrongUsage`.
    """
    labels = labels_for(plan.columns, document)
    if labels.unmet() is None:
        return
    skip = BadRows("skip")
    with (
        open_rows(plan.file, plan.columns, None, format, labels, bad=skip) as rows,
        suppress(ReadError),
    ):  # the replay reports it
        for _ in rows.events():
            if labels.unmet() is None:
                return
        if (unmet := labels.unmet()) is not None:  # else all rows are bad, which the replay reports, too
            bad = skip.notes() if labels.named_are_bad else []
            raise WrongUsage("\n".join([f"no row {unmet}; nothing was sent", *bad]))


class _AnyLabels(BinaryLabels):
    """Accepts any labels, for a look at a file before its learner exists."""

    def check(self, values: Iterable[Any]) -> None:
        """Accept all labels."""
        del values


def _how_to_create(plan: ReplayPlan, format: str) -> str:
    with open_rows(plan.file, plan.columns, None, format, _AnyLabels(), bad=BadRows("skip")) as rows:
        options = suggest_options(rows.shape, len(plan.columns.ranks))
    return f"create it first, for example: rarestream create {plan.learner} --algorithm ALGORITHM {options}"


def print_outcome(outcome: Outcome, plan: ReplayPlan, notes: Console, out: Console) -> None:
    """Print how far the replay came to `notes`, and the learner's metrics to `out`."""
    rows = outcome.rows
    if (nothing := outcome.nothing) is not None:
        notes.print(nothing)
    else:
        if plan.delay is not None or rows.scored:
            notes.print(f"{counted(rows.scored, 'row')} scored")
        counts = [f"{rows.applied:,} learnt", counted(rows.duplicate, "duplicate")]
        counts += [f"{rows.relabelled:,} corrected"] if rows.relabelled else []
        counts += [f"{rows.left_out:,} left out"] if rows.left_out else []
        where = "new rows" if plan.again else f"rows {rows.start:,} to {rows.next:,}"
        notes.print(f"{where}: {', '.join(counts)}")
    if rows.missing:
        events = "its event is" if rows.missing == 1 else "their events are"
        notes.print(f"warning: {counted(rows.missing, 'label')} arrived too late: {events} not remembered any more")
    if plan.delay is not None and rows.complete and rows.reached > rows.next:
        rest = counted(rows.reached - rows.next, "row")
        notes.print(f"the labels of {rest} have not arrived yet: a resumed replay sends them")
    if outcome.fields is not None:
        _print_plain(notes, [outcome.fields])
    if outcome.metrics is not None:
        out.print(figures_table(outcome.metrics, outcome.speed))
    if outcome.learner is not None:
        if (fit := describe_fit(outcome.learner)) is not None:
            notes.print(f"last fit: {fit}")
        for line in fit_notes(outcome.learner):
            notes.print(line)
        if not outcome.learner["ready"]:
            notes.print(f"{plan.learner} is not ready: {outcome.learner['not_ready']}")
