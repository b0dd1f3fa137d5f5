"""A file of labelled rows through a learner, in order, over HTTP; each row is learnt once, however often it is sent.

Row k of the file is event k of a *source* whose name is made of the file and of what shapes its rows. The learner's
state keeps how far it has come in each source, so a replay that was cut off anywhere, by Ctrl-C, SIGKILL or a server
that went away, goes on from there when it is started again, and an update whose answer got lost is simply sent again.

One request is in flight at a time. Meanwhile a thread reads and encodes the next batch, never more than one.

With `Plan.delay` rows are scored first and their labels come later; see `late.py`.

A batch algorithm is fitted in the background: which model scores a row depends on how fast rows come. With
`Plan.wait` the next batch goes out when the fit that the last one made due is in use, so that a replay can be repeated.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import httpx
from rich.console import Console

from service.cli.api import Api, ApiError, Document, Stopped
from service.cli.display import ReplayDisplay, so_far
from service.cli.late_replay import Delay, check, late_source, needed, schedule
from service.datasets import (
    Batch,
    Columns,
    Interruption,
    Labels,
    Meter,
    Pace,
    ReadError,
    Rows,
    adapter,
    batches,
    check_regular,
    counted,
    declared,
    earlier_rows,
    features_of,
    format_of,
    labels_for,
    open_rows,
    source_name,
    suitable,
)
from service.exits import CommandFailed, ExitStatus, WrongUsage

__all__ = ["Outcome", "Plan", "Replayed", "ahead", "by_row", "replay", "replay_file"]

Item = TypeVar("Item")

_LOOK_EVERY = 1.0  # seconds between looks at the learner's figures
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5  # seconds between looks at a fit that is waited for
_GONE = "unknown-learner"
_BAD_ROW = frozenset({httpx.codes.BAD_REQUEST, httpx.codes.UNPROCESSABLE_ENTITY})  # what is wrong is in the file


@dataclass
class Replayed:
    """What a replay did."""

    start: int  # the first row whose label was sent
    next: int  # the row after the last whose label was answered
    applied: int = 0
    duplicate: int = 0
    complete: bool = False  # the file's end, or the limit, was reached
    relabelled: int = 0  # rows whose label corrected another
    missing: int = 0  # late labels: of events that are not remembered, or not any more
    scored: int = 0  # late labels: rows that were sent without theirs
    reached: int = 0  # late labels: the row after the last of these


def ahead(items: Iterator[Item]) -> Generator[Item]:
    """The same items, each computed in a thread while the one before it is dealt with."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        future = thread.submit(next, items, None)
        while (item := future.result()) is not None:
            future = thread.submit(next, items, None)
            yield item


def replay(
    api: Api,
    learner: str,
    work: Iterator[Batch],
    start: int,
    pace: Pace,
    interruption: Interruption,
    progress: Callable[[Batch], None],
) -> Replayed:
    """Send the batches one after the other; `progress` is told of each that was learnt, or scored.

    An interruption ends it after the batch in flight. Raises `ApiError` when the service refuses or stays away, and
    `ReadError` at a malformed row; all batches before that one have been carried out.
    """
    done = Replayed(start, start)
    with closing(ahead(work)) as pipeline:
        for batch in pipeline:
            if pace(0 if batch.kind == "labels" else batch.count):
                return done
            try:
                _send(api, learner, batch, done)
                progress(batch)
            except Stopped:
                return done
            except ApiError as error:
                raise by_row(error, batch.offset) from None
            if interruption:
                return done
    done.complete = True
    return done


def _send(api: Api, learner: str, batch: Batch, done: Replayed) -> None:
    """Send one batch and note what came of it."""
    after = batch.offset + batch.count
    if batch.kind == "unlabelled":
        api.predict(learner, batch.body, batch.count)
        done.scored += batch.count
        done.reached = after
        return
    reply = api.update(learner, batch.body)
    done.applied += reply.applied
    done.duplicate += reply.duplicate
    done.relabelled += reply.relabelled
    done.missing += reply.unknown + reply.expired
    done.next = after


def by_row(error: ApiError, offset: int, what: str = "row") -> ApiError:
    """The error with the file's row numbers, or the numbers of what else, in the place of the request's."""
    text = re.sub(r"(?m)^  /events/(\d+)", lambda found: f"  {what} {offset + int(found[1]):,} ", str(error))
    said = ApiError(text, error.status, code=error.code)
    said.exit_status = error.exit_status
    return said


@dataclass(frozen=True)
class Plan:
    """What a replay is asked to do."""

    file: Path
    learner: str
    columns: Columns
    format: str = ""  # empty: told by the file's name
    limit: int | None = None  # rows, counted from the file's beginning
    rate: float | None = None  # events per second at most
    batch: int = 1000  # rows per request at most
    wait: bool = False  # for the fits of a batch algorithm, after each request
    delay: Delay | None = None  # of the labels; None: each row is learnt at once


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    rows: Replayed
    seconds: float
    metrics: Document | None  # of the learner at the end; None where a signal came first
    learner: Document | None = None  # as it stood then, likewise

    @property
    def speed(self) -> float:
        """Rows per second."""
        return max(self.rows.scored, self.rows.next - self.rows.start) / max(self.seconds, 1e-9)

    def to_json(self) -> Document:
        """Everything, for programs."""
        state = {} if self.learner is None else {key: self.learner[key] for key in ("ready", "not_ready", "fit")}
        return {
            **dataclasses.asdict(self.rows),
            **state,
            "seconds": round(self.seconds, 3),
            "events_per_second": round(self.speed, 1),
            "metrics": self.metrics,
        }


def replay_file(plan: Plan, api: Api, interruption: Interruption, notes: Console) -> Outcome:
    """Carry out the plan; `notes` shows how it goes.

    An interruption ends it early, after the batch in flight. Raises `CommandFailed`: the learner does not exist or
    does not take such rows, a row is malformed, or the service refuses or stays away. The text then says how many rows
    are learnt and how to go on.
    """
    began = time.monotonic()
    check_regular(plan.file)
    format = plan.format or format_of(plan.file)
    try:
        document = api.learner(plan.learner)
        features = document["config"]["features"]
        labels = labels_for(plan.columns, document)
        with open_rows(plan.file, plan.columns, declared(features), format, labels) as rows:
            rows.adapt = adapter(rows.shape, features)
            source = source_name(plan.file, plan.columns, format)
            if plan.delay is not None:
                check(document, source, plan.delay)
                source = late_source(source, plan.delay)
            start = document["sources"].get(source, 0)
            if start == 0:
                _check_positive(plan, document, format)
            _say_where(start, earlier_rows(document, source), notes)
            if start == 0 and (said := features_of(rows.shape)) is not None:
                notes.print(said, markup=False, highlight=False)
            work = _work(plan, rows, source, start)
            with ReplayDisplay(notes) as display:
                progress = _Progress(api, plan, display, start, interruption.wait)
                pace = Pace(plan.rate, interruption.wait)
                try:
                    progress.wait()
                    done = replay(api, plan.learner, work, start, pace, interruption, progress)
                    seconds = time.monotonic() - began
                    reached = progress.end() if done.complete else None
                except (ApiError, ReadError) as error:
                    if isinstance(error, ApiError) and error.code == _GONE:
                        raise
                    failed = CommandFailed(f"{error}\n{_how_to_go_on(error, progress.next, plan)}")
                    failed.exit_status = ExitStatus.PARTLY if progress.next > start else error.exit_status
                    raise failed from None
        return Outcome(done, seconds, *(reached or (None, None)))
    except ApiError as error:
        if error.code == _GONE:
            raise ApiError(f"{error}\n{_how_to_create(plan, format)}", error.status, code=error.code) from None
        raise


def _work(plan: Plan, rows: Rows[Any], source: str, start: int) -> Iterator[Batch]:
    """The requests that are left to be made, from row `start` of the file on."""
    size = plan.batch if plan.rate is None else max(1, min(plan.batch, int(plan.rate)))
    if plan.delay is not None:
        rows.adapt = needed(rows.adapt)
        return schedule(rows.events(), plan.delay, source, start, size, plan.limit, time.time(), rows.fraction)
    left = None if plan.limit is None else max(0, plan.limit - start)
    return batches(islice(rows.events(start), left), source, start, size, rows.fraction)


class _Progress:
    """Tells the display of each batch, with a fresh look at the learner's figures at most once a second.

    Then waits for the learner's fit, if that was asked for. Raises `Stopped` where `pause` tells to give up.
    """

    def __init__(
        self, api: Api, plan: Plan, display: ReplayDisplay, start: int, pause: Callable[[float], bool]
    ) -> None:
        self.next = start  # the row after the last that is known to be learnt
        self._row = start  # the row after the last that was learnt, or scored
        self._api = api
        self._plan = plan
        self._display = display
        self._pause = pause
        self._meter = Meter()
        self._looked = float("-inf")
        self._figures = ""

    def __call__(self, batch: Batch) -> None:
        row = batch.offset + batch.count
        if batch.kind != "unlabelled":
            self.next = row
        if batch.kind != "labels":
            self._meter.add(batch.count)
            self._row = row
        if time.monotonic() - self._looked >= _LOOK_EVERY:
            self._looked = time.monotonic()
            name = self._plan.learner
            self._figures = so_far(self._api.metrics(name), self._api.learner(name))
        limit = self._plan.limit
        fraction = batch.fraction if limit is None else max(batch.fraction, self._row / limit)
        self._display.show(self._row, fraction, self._meter.speed(), self._figures)
        self.wait()

    def end(self) -> tuple[Document, Document]:
        """The figures, and the learner, after the last batch; the display ends with them."""
        name = self._plan.learner
        metrics, learner = self._api.metrics(name), self._api.learner(name)
        if self._figures:
            self._display.show(self._row, 1.0, self._meter.speed(), so_far(metrics, learner))
        return metrics, learner

    def wait(self) -> None:
        """Until no fit is under way, however long that takes; a failed one is not waited for."""
        pause = _FIRST_PAUSE
        while self._plan.wait and (fit := self._api.learner(self._plan.learner)["fit"]) is not None and fit["running"]:
            if self._pause(pause):
                raise Stopped
            pause = min(2 * pause, _LONGEST_PAUSE)


def _say_where(start: int, earlier: int, notes: Console) -> None:
    if start:
        notes.print(f"resuming at row {start:,}")
    elif earlier:
        notes.print(
            f"warning: the learner has learnt {counted(earlier, 'row')} of a file of this name before, but of other "
            "content or read with other options: this one is learnt from its first row"
        )


def _how_to_go_on(error: ApiError | ReadError, learnt: int, plan: Plan) -> str:
    """What of the file is learnt, and what becomes of it in another replay."""
    so_far = f"rows 0 to {learnt:,} are learnt" if learnt else "none of the file's rows is learnt"
    if isinstance(error, ApiError) and error.status not in _BAD_ROW:
        return f"{so_far}; the same command goes on from there"
    if not learnt:
        return so_far
    again = "a repaired file counts as a new one and is learnt from its first row"
    if plan.columns.id is None:
        return f"{so_far}; {again}: leave those out of it. With --id, from the first replay on, no row is learnt twice"
    return f"{so_far}; {again}, but for the rows whose id the learner has met"


def _check_positive(plan: Plan, document: Document, format: str) -> None:
    """Refuse a file without one of the positive labels that were named: every row of it would be learnt as negative.

    It is read as far as the first one. Raises `WrongUsage`.
    """
    labels = labels_for(plan.columns, document)
    if labels.unmet() is None:
        return
    with open_rows(plan.file, plan.columns, None, format, labels) as rows, suppress(ReadError):  # told in its turn
        for _ in rows.events():
            if labels.unmet() is None:
                return
        raise WrongUsage(f"no row {labels.unmet()}; nothing was sent")


class _AnyLabels(Labels):
    """For a look at a file before there is a learner to say what its labels have to be."""

    def check(self, values: Iterable[Any]) -> None:
        """Refuse none."""
        del values


def _how_to_create(plan: Plan, format: str) -> str:
    with open_rows(plan.file, plan.columns, None, format, _AnyLabels()) as rows:
        options = suitable(rows.shape, len(plan.columns.ranks))
    return f"create it first, for example: rarestream create {plan.learner} --algorithm ALGORITHM {options}"
