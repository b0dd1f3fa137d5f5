"""`rarestream update`, `predict` and `labels`: events from arguments, files or standard input, sent in chunks."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from service.cli.options import Drop, Id, Label, Positive, RankLabels, Time, Weight, flag, parse_ranks
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
from service.text import counted

if TYPE_CHECKING:
    from rich.console import Console

    from rarestream import Client
    from service.datasets import EventChunk, RowColumns

__all__ = ["labels", "predict", "update"]

_SHOWN = 20  # events of which it is told what became of each
_PLAIN_EVERY = 5.0  # seconds between lines on progress

Events = Annotated[
    list[str] | None,
    typer.Argument(help="Events as JSON, or files of them; - or nothing: standard input.", show_default=False),
]
Format = Annotated[str, typer.Option(help="json, csv, tsv, libsvm or npz, where the name does not tell.")]
Size = Annotated[int, typer.Option(min=1, max=100_000, help="Events per request at most.")]


def update(
    name: Name,
    events: Events = None,
    format: Format = "",
    label: Label = "label",
    positive: Positive = None,
    ranks: RankLabels = None,
    drop: Drop = None,
    id: Id = None,
    time: Time = None,
    weight: Weight = None,
    batch: Size = 1000,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    retry_seconds: RetrySeconds = 60.0,
) -> None:
    """Learn labelled events: JSON, or what replay reads.

    JSON is one event, a list, {"events": [...]}, or an event in each line:
    {"id": "tx-1", "features": {"amount": 9.5}, "label": 1}, or a flat object
    of features with the label among them. Options that name columns are for
    flat objects, CSV and TSV.

    Events with an id are learnt once, however often they are sent. Without
    ids, a request whose answer is lost is not sent again: it may have been
    learnt. To send a large file that may be interrupted, use replay.
    """
    with reporting():
        columns = _columns(label, positive, ranks, drop, id, time, weight)
        _learn("update", name, events, format, columns, batch, as_json, url, key, retry_seconds)


def labels(
    name: Name,
    events: Annotated[
        list[str] | None,
        typer.Argument(help="ID=LABEL, JSON, or files; - or nothing: standard input.", show_default=False),
    ] = None,
    format: Annotated[str, typer.Option(help="json, csv or tsv, where the name does not tell.")] = "",
    positive: Positive = None,
    ranks: RankLabels = None,
    batch: Size = 1000,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    retry_seconds: RetrySeconds = 60.0,
) -> None:
    """Send the labels of events that were scored, by their ids.

    rarestream labels fraud tx-1=1 tx-2=0

    A CSV file holds id,label[,time[,weight]], with a header that names them,
    in any order, or without. JSON: {"id": "tx-1", "label": 1}.
    """
    with reporting():
        columns = _columns("label", positive, ranks, None, None, None, None)
        _learn("labels", name, events, format, columns, batch, as_json, url, key, retry_seconds)


def predict(
    name: Name,
    events: Events = None,
    format: Format = "",
    label: Annotated[str, typer.Option(help="Column of a label, which is left out.")] = "label",
    drop: Drop = None,
    id: Id = None,
    time: Time = None,
    explain: Annotated[int | None, typer.Option(min=1, max=1000, help="Tell the largest contributions.")] = None,
    at_least: Annotated[
        int | None, typer.Option(min=1, max=2**53, help="Position of an update that has to be learnt before.")
    ] = None,
    batch: Size = 1000,
    as_json: Annotated[bool, flag("--json", help="Print a JSON object in each line.")] = False,
    as_csv: Annotated[bool, flag("--csv", help="Print CSV.")] = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    retry_seconds: RetrySeconds = 60.0,
) -> None:
    """Score events, and write a line for each, in order.

    Input is as for update; labels and weights in it are left out. Events with
    an id are remembered: `rarestream labels` takes their labels. Lines that
    come one by one are scored at once with --batch 1.
    """
    with reporting():
        if as_json and as_csv:
            raise typer.BadParameter("does not go with --json", param_hint="--csv")
        from service.cli.score_output import CsvLines, JsonLines, ScoreWriter, TableLines

        out: ScoreWriter = JsonLines() if as_json else CsvLines() if as_csv else TableLines(console())
        columns = _columns(label, None, None, drop, id, time, None)
        with _sending("predict", name, events, format, columns, batch, url, key, retry_seconds) as sending:
            forgotten, away = 0, False

            def score(chunk: EventChunk) -> None:
                nonlocal forgotten, away
                reply = sending.client.learner(name).predict_json(chunk.body, explain=explain, at_least=at_least)
                out.write(reply["results"], chunk.first)
                sys.stdout.flush()  # whoever reads them may wait for these before it sends more
                forgotten += len({one["id"] for one in reply["results"]} - {None}) - reply["remembered"]
                away = away or reply["stale_seconds"] > 0

            try:
                sending.run(score, "scored", quiet=console().is_terminal)
            finally:
                if forgotten:
                    console(stderr=True).print(_not_remembered(forgotten, away=away))


def _not_remembered(events: int, *, away: bool) -> str:
    """What became of events with ids that were scored and no more."""
    why = "the service's store is away" if away else "their time is too long ago"
    return f"warning: {counted(events, 'event')} with an id, not remembered for a label: {why}"


def _columns(
    label: str,
    positive: list[str] | None,
    ranks: str | None,
    drop: list[str] | None,
    id: str | None,
    time: str | None,
    weight: str | None,
) -> RowColumns:
    from service.datasets import RowColumns

    order = parse_ranks(ranks) if ranks is not None else ()
    return RowColumns(label, tuple(positive or ()), order, tuple(drop or ()), id, time, weight)


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
    with _sending(kind, name, events, format, columns, batch, url, key, patience) as sending:
        sums = dict.fromkeys(("applied", "duplicate", "relabelled", "unknown", "expired"), 0)
        each: list[dict[str, Any]] = []
        last = 0

        def learn(chunk: EventChunk) -> None:
            nonlocal last
            repeatable = kind == "labels" or chunk.identified
            reply = sending.client.learner(name).update_json(chunk.body, repeatable=repeatable, results=True)
            for status in sums:
                sums[status] += getattr(reply, status)
            last = reply.position
            if sending.done < _SHOWN:
                each.extend(reply.results[: _SHOWN + 1])

        began = time.monotonic()
        sending.run(learn, "learnt", quiet=False)
    seconds = time.monotonic() - began
    if as_json:
        print_json({"learner": name, "events": sending.done, **sums, "position": last, "seconds": round(seconds, 3)})
        return
    if not sending.done:
        return
    if sending.done <= _SHOWN:
        _tell_each(each)
    words = {"applied": "learnt", "duplicate": "known before", "relabelled": "corrected"}
    said = [f"{count:,} {words.get(status, status)}" for status, count in sums.items() if count]
    print(f"{counted(sending.done, 'label' if kind == 'labels' else 'event')}: {', '.join(said)}")


def _tell_each(results: list[dict[str, Any]]) -> None:
    """What became of each, and what was said of it before it was learnt."""
    from service.cli.score_output import decision_of

    ranks = bool(results) and "rank" in results[0]
    decided = "rank" if ranks else "decision"
    table = plain_table("event", "became", "score before", f"{decided} before", right=2)
    for number, one in enumerate(results):
        scored = one["score"] is not None  # a duplicate is not scored again
        values = (f"{one['score']:.6g}", decision_of(one[decided], ranks=ranks)) if scored else ("-", "-")
        table.add_row(str(number) if one["id"] is None else one["id"], one["status"], *values)
    console().print(table)


class _Sending:
    """Chunks on their way, of which one is in flight at a time; a signal lets that one have its answer."""

    def __init__(self, notes: Console) -> None:
        self.client: Client  # set before `run`, as what is sent is
        self.chunks: Iterator[EventChunk]
        self.done = 0  # events that were answered
        self._notes = notes
        self._flying = False
        self._stopped = threading.Event()
        self.wait = self._stopped.wait

    def run(self, send: Callable[[EventChunk], None], verb: str, *, quiet: bool) -> None:
        """Send all of them. Raises `CommandFailed`, which says how many events were answered before."""
        from rarestream import ClientError
        from service.cli.replay_engine import numbered_rows
        from service.cli.request_errors import similar_learners
        from service.datasets import Stopped

        began = shown = time.monotonic()
        live = self._notes.is_terminal and not quiet
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            for chunk in self.chunks:
                self._flying = True
                send(chunk)
                self._flying = False
                self.done += chunk.count
                now = time.monotonic()
                if now - shown >= (0.2 if live else _PLAIN_EVERY) and not (quiet and self._notes.is_terminal):
                    shown = now
                    self._show(f"{counted(self.done, 'event')} {verb}, {self.done / (now - began):,.0f}/s", live)
                if self._stopped.is_set():
                    raise KeyboardInterrupt
            if not self.done:
                self._notes.print("there are no events: nothing was sent")
        except (KeyboardInterrupt, Stopped):
            self._notes.print(f"{counted(self.done, 'event')} {'was' if self.done == 1 else 'were'} {verb}")
            raise KeyboardInterrupt from None
        except (ClientError, CommandFailed) as error:
            cause = error
            if isinstance(error, ClientError):
                cause = numbered_rows(error, self.done, "event", similar_learners(error, self.client))
            if not self.done:
                raise cause from None
            failed = CommandFailed(
                f"{cause}\n{counted(self.done, 'event')} before {'was' if self.done == 1 else 'were'} {verb}"
            )
            failed.exit_status = ExitStatus.PARTLY
            raise failed from None
        finally:
            signal.signal(signal.SIGINT, before)
            if live and shown != began:
                self._show("", live)

    def _show(self, text: str, live: bool) -> None:
        """A line of its own, or on a terminal in the place of the one before."""
        self._notes.file.write(f"\r{text}\x1b[K" if live else f"{text}\n")
        self._notes.file.flush()

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if not self._flying or self._stopped.is_set():  # waits for input; or someone insists
            raise KeyboardInterrupt
        self._stopped.set()


@contextmanager
def _sending(
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
    """What is to be sent, and the service that it goes to."""
    from service.datasets import Inputs, chunks, labels_for, labels_said

    notes = console(stderr=True)
    sending = _Sending(notes)
    with connected(url, key, patience=patience, wait=sending.wait, notice=notes.print) as client:
        document = _document(client, name)
        labels = labels_said(columns) if document is None else labels_for(columns, document)
        inputs = Inputs(tuple(events or ()), kind, document, columns, format, labels)
        sending.client = client
        sending.chunks = chunks(inputs.events(), batch)
        yield sending


def _document(client: Client, name: str) -> dict[str, Any] | None:
    """The learner's document; None where the key may not read, as it need not for events that say all themselves."""
    from rarestream import ClientError

    try:
        return client.learner(name).describe()
    except ClientError as error:
        if error.code != "forbidden":
            raise
        return None
