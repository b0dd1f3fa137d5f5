"""`rarestream update`, `predict` and `labels`: send events of arguments, files or standard input in chunks."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from service.cli.options import Drop, Id, Label, Negative, Positive, RankLabels, Time, Weight, flag, parse_ranks
from service.cli.options_files import with_file_options
from service.cli.options_service import (
    DEFAULT_URL,
    AsJson,
    Key,
    Name,
    RetrySeconds,
    Url,
    connected,
    console,
    plain_table,
    print_json,
    reporting,
)
from service.exits import CommandFailed, ExitStatus
from service.refusals import blamed_events
from service.text import counted

if TYPE_CHECKING:
    from rich.console import Console

    from rarestream import Client
    from service.datasets import BadRows, FileOptions, RequestBody, RowColumns

__all__ = ["labels", "predict", "update"]

_MAX_RESULTS = 20  # events whose results are printed one by one
_PLAIN_EVERY = 5.0  # seconds between lines of progress

Events = Annotated[
    list[str] | None,
    typer.Argument(help="Events as JSON, or files; - or nothing: standard input.", show_default=False),
]
Format = Annotated[str, typer.Option(help="json, csv, tsv, parquet, libsvm or npz (default: by the name).")]
Size = Annotated[int, typer.Option(min=1, max=100_000, help="Maximum events per request.")]


@with_file_options
def update(
    name: Name,
    events: Events = None,
    format: Format = "",
    label: Label = "label",
    positive: Positive = None,
    negative: Negative = None,
    ranks: RankLabels = None,
    drop: Drop = None,
    id: Id = None,
    time: Time = None,
    weight: Weight = None,
    unlabelled: Annotated[
        Literal["stop", "skip"], typer.Option(help="At a row without a label: as at a malformed one, or leave it out.")
    ] = "stop",
    batch: Size = 1000,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    retry_seconds: RetrySeconds = 60.0,
    *,
    form: FileOptions,
) -> None:
    """Learn labelled events: JSON, or the formats of replay.

    JSON is one event, a list, {"events": [...]}, or one event per line:
    {"id": "tx-1", "features": {"amount": 9.5}, "label": 1}, or a flat object
    of features and the label. Options that name columns are for flat
    objects, CSV and TSV.

    Events with an id are learnt once, however often you send them. Without
    ids, a request whose response is lost is not retried, because it may have
    been learnt. For large files that may be interrupted, use replay.
    """
    with reporting():
        form = replace(form, unlabelled=unlabelled)
        columns = _columns(label, positive, negative, ranks, drop, id, time, weight, form)
        _learn("update", name, events, format, columns, batch, as_json, url, key, retry_seconds)


@with_file_options
def labels(
    name: Name,
    events: Annotated[
        list[str] | None,
        typer.Argument(help="ID=LABEL, JSON, or files; - or nothing: standard input.", show_default=False),
    ] = None,
    format: Annotated[str, typer.Option(help="json, csv, tsv or parquet (default: by the name).")] = "",
    positive: Positive = None,
    negative: Negative = None,
    ranks: RankLabels = None,
    batch: Size = 1000,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    retry_seconds: RetrySeconds = 60.0,
    *,
    form: FileOptions,
) -> None:
    """Send the labels of scored events, by their ids.

    rarestream labels fraud tx-1=1 tx-2=0

    A CSV file has the columns id,label[,time[,weight]], in any order if it
    has a header. JSON: {"id": "tx-1", "label": 1}.
    """
    with reporting():
        columns = _columns("label", positive, negative, ranks, None, None, None, None, form)
        _learn("labels", name, events, format, columns, batch, as_json, url, key, retry_seconds)


@with_file_options
def predict(
    name: Name,
    events: Events = None,
    format: Format = "",
    label: Annotated[str, typer.Option(help="Column of the label, which is left out.")] = "label",
    drop: Drop = None,
    id: Id = None,
    time: Time = None,
    explain: Annotated[int | None, typer.Option(min=1, max=1000, help="Show the largest contributions.")] = None,
    at_least: Annotated[
        int | None, typer.Option(min=1, max=2**53, help="Wait until the update at this position is learnt.")
    ] = None,
    batch: Size = 1000,
    as_json: Annotated[bool, flag("--json", help="Print a JSON object in each line.")] = False,
    as_csv: Annotated[bool, flag("--csv", help="Print CSV.")] = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    retry_seconds: RetrySeconds = 60.0,
    *,
    form: FileOptions,
) -> None:
    """Score events, and print a line for each, in order.

    The input is that of update; labels and weights are left out. Events with
    an id are remembered, so that `rarestream labels` can label them. Use
    --batch 1 to score lines as they arrive.
    """
    with reporting():
        if as_json and as_csv:
            raise typer.BadParameter("does not go with --json", param_hint="--csv")
        from service.cli.score_output import CsvLines, JsonLines, ScoreWriter, TableLines

        out: ScoreWriter = JsonLines() if as_json else CsvLines() if as_csv else TableLines(console())
        columns = _columns(label, None, None, None, drop, id, time, None, form)
        with _open_sending("predict", name, events, format, columns, batch, url, key, retry_seconds) as sending:
            forgotten, away = 0, False

            def score(chunk: RequestBody) -> None:
                nonlocal forgotten, away
                reply = sending.client.learner(name).predict_json(chunk.body(), explain=explain, at_least=at_least)
                out.write(reply["results"], sending.answered)
                sys.stdout.flush()  # the reader may wait for these before it sends more
                forgotten += len({result["id"] for result in reply["results"]} - {None}) - reply["remembered"]
                away = away or reply["stale_seconds"] > 0

            try:
                sending.run(score, "scored", quiet=console().is_terminal)
            finally:
                if forgotten:
                    console(stderr=True).print(_forgotten_warning(forgotten, away=away))


def _forgotten_warning(events: int, *, away: bool) -> str:
    """Return the warning about scored events that the service does not remember."""
    why = "the service's store is away" if away else "their times are too long ago"
    return f"warning: {counted(events, 'event')} with an id cannot be labelled later: {why}"


def _columns(
    label: str,
    positive: list[str] | None,
    negative: list[str] | None,
    ranks: str | None,
    drop: list[str] | None,
    id: str | None,
    time: str | None,
    weight: str | None,
    form: FileOptions,
) -> RowColumns:
    from service.datasets import RowColumns

    order = parse_ranks(ranks) if ranks is not None else ()
    named = tuple(positive or ()), order, tuple(drop or ())
    return RowColumns(label, *named, id, time, weight, form, tuple(negative or ()))


def _learn(
    kind: Literal["update", "labels"],
    name: str,
    events: list[str] | None,
    format: str,
    columns: RowColumns,
    batch: int,
    as_json: bool,
    url: str,
    key: str | None,
    patience: float,
) -> None:
    from service.cli.field_notes import FieldChanges

    with _open_sending(kind, name, events, format, columns, batch, url, key, patience) as sending:
        sums = dict.fromkeys(("applied", "duplicate", "relabelled", "unknown", "expired"), 0)
        each: list[dict[str, Any]] = []
        last = 0
        changes: FieldChanges | None = None

        def learn(chunk: RequestBody) -> None:
            nonlocal last, changes
            if changes is None and kind == "update":
                changes = FieldChanges(sending.client.learner(name))
            repeatable = kind == "labels" or chunk.identified == chunk.count
            reply = sending.client.learner(name).update_json(chunk.body(), repeatable=repeatable, results=True)
            for status in sums:
                sums[status] += getattr(reply, status)
            last = reply.position
            if sending.answered < _MAX_RESULTS:
                each.extend(reply.results[: _MAX_RESULTS + 1])

        began = time.monotonic()
        sending.run(learn, "learnt", quiet=False)
        seconds = time.monotonic() - began
        line = None if changes is None else changes.line()
    if line is not None:
        print(line, file=sys.stderr)
    if as_json:
        print_json(
            {"learner": name, "events": sending.answered, **sums, "position": last, "seconds": round(seconds, 3)}
        )
        return
    if not sending.answered:
        return
    if sending.answered <= _MAX_RESULTS:
        _print_results(each)
    words = {"applied": "learnt", "relabelled": "corrected"}
    outcomes = [f"{count:,} {words.get(status, status)}" for status, count in sums.items() if count]
    print(f"{counted(sending.answered, 'label' if kind == 'labels' else 'event')}: {', '.join(outcomes)}")


def _print_results(results: list[dict[str, Any]]) -> None:
    """Print the result of each event, and its prediction before it was learnt."""
    from service.cli.score_output import decision_of

    ranks = bool(results) and "rank" in results[0]
    decided = "rank" if ranks else "decision"
    table = plain_table("event", "result", "score before", f"{decided} before", right=2)
    for number, result in enumerate(results):
        scored = result["score"] is not None  # a duplicate is not scored again
        values = (f"{result['score']:.6g}", decision_of(result[decided], ranks=ranks)) if scored else ("-", "-")
        table.add_row(str(number) if result["id"] is None else result["id"], result["status"], *values)
    console().print(table)


class _Sending:
    """Sends chunks one at a time; a signal waits for the response of the one in flight."""

    def __init__(self, notes: Console) -> None:
        self.client: Client  # set before `run`, like `chunks` and `bad`
        self.chunks: Iterator[RequestBody]
        self.bad: BadRows
        self.answered = 0  # events with a response
        self._notes = notes
        self._in_flight = False
        self._stopped = threading.Event()
        self.wait = self._stopped.wait

    def run(self, send: Callable[[RequestBody], None], verb: str, *, quiet: bool) -> None:
        """Send all chunks. Raises `CommandFailed`, which says how many events were answered before."""
        from rarestream import ClientError
        from service.cli.replay_engine import located
        from service.cli.request_errors import similar_learners
        from service.datasets import REMEDY, send_accepted
        from service.pacing import WaitInterrupted

        def send_part(part: RequestBody) -> None:
            send(part)
            self.answered += part.count

        chunk: RequestBody | None = None
        began = last_report = time.monotonic()
        live = self._notes.is_terminal and not quiet
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            for chunk in self.chunks:
                self._in_flight = True
                send_accepted(chunk, send_part, self.bad)
                self._in_flight = False
                now = time.monotonic()
                if now - last_report >= (0.2 if live else _PLAIN_EVERY) and not (quiet and self._notes.is_terminal):
                    last_report = now
                    self._show(
                        f"{counted(self.answered, 'event')} {verb}, {self.answered / (now - began):,.0f}/s", live
                    )
                if self._stopped.is_set():
                    raise KeyboardInterrupt
            if not self.answered:
                self._notes.print("no events: nothing was sent")
        except (KeyboardInterrupt, WaitInterrupted):
            self._notes.print(f"{counted(self.answered, 'event')} {'was' if self.answered == 1 else 'were'} {verb}")
            raise KeyboardInterrupt from None
        except (ClientError, CommandFailed) as error:
            cause = error
            if isinstance(error, ClientError):
                events = chunk.events if chunk else ()
                hints = similar_learners(error, self.client)
                if len(events) > 1 and blamed_events(error, len(events)):
                    hints.append(REMEDY)
                cause = located(error, events, hints)
            if not self.answered:
                raise cause from None
            failed = CommandFailed(
                f"{cause}\n{counted(self.answered, 'event')} before {'was' if self.answered == 1 else 'were'} {verb}"
            )
            failed.exit_status = ExitStatus.PARTLY
            raise failed from None
        finally:
            signal.signal(signal.SIGINT, before)
            if live and last_report != began:
                self._show("", live)

    def _show(self, text: str, live: bool) -> None:
        """Print a line of progress, which replaces the last one on a terminal."""
        self._notes.file.write(f"\r{text}\x1b[K" if live else f"{text}\n")
        self._notes.file.flush()

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if not self._in_flight or self._stopped.is_set():  # it waits for input, or the user insists
            raise KeyboardInterrupt
        self._stopped.set()


@contextmanager
def _open_sending(
    kind: Literal["update", "predict", "labels"],
    name: str,
    events: list[str] | None,
    format: str,
    columns: RowColumns,
    batch: int,
    url: str,
    key: str | None,
    patience: float,
) -> Iterator[_Sending]:
    """Open the service, and prepare the events to send."""
    from service.datasets import Inputs, chunks, labels_for, labels_of_options

    notes = console(stderr=True)
    sending = _Sending(notes)
    with connected(url, key, patience=patience, wait=sending.wait, notice=notes.print) as client:
        document = _document(client, name)
        labels = labels_of_options(columns) if document is None else labels_for(columns, document)
        inputs = Inputs(tuple(events or ()), kind, document, columns, format, labels)
        sending.client = client
        sending.chunks = chunks(inputs.events(), batch)
        sending.bad = inputs.bad
        try:
            with inputs.bad:
                yield sending
        finally:
            for line in [*inputs.notes, *inputs.bad.notes()]:
                notes.print(line, markup=False, highlight=False)


def _document(client: Client, name: str) -> dict[str, Any] | None:
    """Return the learner's document; None if the key may not read it: complete events do not need it."""
    from rarestream import ClientError

    try:
        return client.learner(name).describe()
    except ClientError as error:
        if error.code != "forbidden":
            raise
        return None
