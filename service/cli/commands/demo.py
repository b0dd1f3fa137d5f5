"""`rarestream demo`: the service on an embedded store, four learners, and one simulated stream of card fraud.

The server runs in a thread of this process. The stream goes over HTTP to a group that compares the four learners: each
payment is scored, and its label follows later, as in production. Each learner keeps how many labels it has learnt, and
the stream resumes at the lowest number. So a demo that was stopped or killed misses no label and learns none twice.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

from rich.console import Console

from rarestream import ClientError, RequestRefused
from service.cli.display import FiguresLines, LearnersDisplay
from service.cli.late_replay import Delay, schedule
from service.cli.options_service import open_client
from service.cli.request_errors import RequestFailed
from service.datasets import CardFraud, Event, first_day, max_events
from service.exits import CommandFailed, WrongUsage
from service.pacing import Interruption, Meter, Pace, WaitInterrupted
from service.server import CannotServe, listen, mask_passwords
from service.server.run import Server
from service.settings import Settings

__all__ = ["GROUP", "LEARNERS", "SOURCE", "StallNotice", "demo"]

logger = logging.getLogger("rarestream")  # parent of all loggers of the service

SOURCE = "simulated-card-fraud"
GROUP = "demo"

_LOG = ["amount", "card_age_days", "seconds_since_last"]
_TABLE: dict[str, Any] = {
    "kind": "table",
    "fields": [
        {"name": "amount", "kind": "numeric", "log": True},
        {"name": "merchant", "kind": "categorical", "categories": 10},
        {"name": "country", "kind": "categorical", "categories": 8},
        {"name": "channel", "kind": "categorical", "categories": 4},
        {"name": "hour", "kind": "categorical", "categories": 24},
        {"name": "card_age_days", "kind": "numeric", "log": True},
        {"name": "seconds_since_last", "kind": "numeric", "log": True},
        {"name": "transactions_today", "kind": "numeric"},
        {"name": "new_device", "kind": "categorical", "categories": 2},
    ],
}
_HASHED: dict[str, Any] = {"kind": "named", "bits": 16, "categorical": ["hour"], "log": _LOG}

_LATE: dict[str, Any] = {"max_events": 20_000}  # more than come within the delay
_QUEUE: dict[str, Any] = {  # of the learner whose alerts people look at
    "threshold": {"objective": "budget", "alerts": 60},
    "late": {"keep_features": True, **_LATE},
    "figures": {"segments": ["country", "channel"]},
}

LEARNERS: dict[str, dict[str, Any]] = {
    "demo-cbr": {"algorithm": "cbr", "params": {"buffer": "fifo"}, "features": _TABLE, "late": _LATE},
    "demo-auto": {"features": _HASHED, **_QUEUE},
    "demo-loam-ada": {"algorithm": "loam-ada", "features": _HASHED, "late": _LATE},
    "demo-fofo": {
        "algorithm": "fofo",
        "params": {"c": 8.0, "averaging": "last"},
        "features": _HASHED,
        "late": _LATE,
    },
}
_REVIEWED = "demo-auto"
_PREFIX = "transaction-"  # of ids
_BATCHES_PER_SECOND = 4
_LARGEST_BATCH = 1000  # events
_DELAY = 43_200.0  # seconds of the stream until a label comes, and at most 1 % of the stream
_DAY = 4000  # payments
_ROUND = 3600.0  # seconds of the stream between rounds of labels
_PATIENCE = 60.0  # seconds of retries of a call
_TIMEOUT = 600.0  # seconds for one response: this process is the server, and may be compiling
_REFRESH = 1.0  # seconds between refreshes of the metrics
_STANDSTILL = 3.0  # seconds of failing calls before the reason is printed
_SILENCE = 1.5  # seconds without a first response before `_COMPILING` is printed
_COMPILING = "Kernels are being compiled, once per machine and version. Until then events are learnt more slowly."


def demo(settings: Settings, *, rate: float | None, events: int, console: Console, as_json: bool = False) -> None:
    """Serve, create the learners and stream, until Ctrl-C or SIGTERM.

    `rate`: events per second to each learner, None for no limit. The fraud pattern changes after half of `events`.
    `as_json`: print lines of JSON, first the address; `console` gets the text. Raises `CannotListen` if the port is
    taken, `RequestFailed` if the learners cannot be created, `WrongUsage` if there are too many events, and
    `CannotServe` if the server fails.
    """
    listener = listen(settings.host, settings.port)
    with Interruption() as interruption, _Serving(settings, listener, interruption) as serving:
        console.print(
            f"dashboard  {serving.url}/\nAPI docs   {serving.url}/docs\nstore      {mask_passwords(settings.store)}"
        )
        if serving.warning is not None:
            console.print(serving.warning)
        if as_json:
            about = {
                "url": serving.url,
                "pid": os.getpid(),
                "store": mask_passwords(settings.store),
                "learners": list(LEARNERS),
            }
            print(json.dumps({"event": "ready", **about}), flush=True)
        with _DemoStream(serving.url, events, interruption, console.print) as stream:
            complete = stream.run(rate, console, FiguresLines() if as_json else LearnersDisplay(console))
        if complete:
            console.print("Still serving; Ctrl-C stops.")
            while not interruption.wait(_REFRESH):
                serving.check()
    if serving.complaints:
        console.print("\n".join(["Stopped, but not cleanly:", *(f"  {complaint}" for complaint in serving.complaints)]))
        console.print("All learnt events are in the log. The same command resumes from here.")
    else:
        console.print("Stopped cleanly. The same command resumes from here.")


class StallNotice:
    """Prints why the stream makes no progress: after a few seconds, then once per further reason. Thread-safe."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._lock = threading.Lock()
        self._since: float | None = None
        self._noted: set[str] = set()

    def note(self, reason: str, what: str) -> None:
        """Note that a call has failed for a reason, and what happens next."""
        with self._lock:
            now = self._clock()
            self._since = now if self._since is None else self._since
            if now - self._since >= _STANDSTILL and reason not in self._noted:
                self._noted.add(reason)
                self._say(f"{reason}; {what}")

    def over(self) -> None:
        """Note that a call has succeeded."""
        with self._lock:
            self._since = None
            self._noted.clear()


class _Serving:
    """The server in a thread, from its readiness to its clean end."""

    def __init__(self, settings: Settings, listener: socket.socket, interruption: Interruption) -> None:
        self._ready = threading.Event()
        self._interruption = interruption
        self._server = Server(settings, listener, ready=self._ready.set)
        self._thread = threading.Thread(target=self._serve, name="server")
        self._failure: CommandFailed | None = None
        self.complaints: list[str] = []  # warnings of the service during its stop
        self.url = self._server.url
        self.warning = self._server.warning

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            while not self._ready.wait(0.05) and not self._interruption:
                self.check()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        handler = _Complaints(self.complaints)
        logger.addHandler(handler)
        self._server.should_exit = True
        try:
            self._thread.join()
        except KeyboardInterrupt:  # Ctrl-C again: do not wait for open requests
            self._server.force_exit = True
            self._thread.join()
        finally:
            logger.removeHandler(handler)

    def _serve(self) -> None:
        try:
            self._server.run()
        except CommandFailed as failure:
            self._failure = failure

    def check(self) -> None:
        """Raise the error of a server that did not start, or `CannotServe` if it has ended by itself."""
        if not self._thread.is_alive():
            raise self._failure or CannotServe("the server has ended by itself; see its log above")


class _Complaints(logging.Handler):
    """Collects the texts of warnings and errors."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        """Collect the text of a record."""
        self._texts.append(record.getMessage())


class _DemoStream:
    """One stream to the group of all learners: each batch goes to all at once, and the slowest sets the rate."""

    def __init__(self, url: str, events: int, interruption: Interruption, say: Callable[[str], None]) -> None:
        self._simulation = CardFraud(change=events // 2)
        self._delay = Delay(min(_DELAY, 0.01 * 86_400 * events / _DAY), every=_ROUND)
        self._events = events
        self._interruption = interruption
        self._standstill = StallNotice(say)
        self._client = open_client(
            url, None, timeout=_TIMEOUT, patience=_PATIENCE, wait=interruption.wait, notice=self._standstill.note
        )
        self._learners = [self._client.learner(name) for name in LEARNERS]
        self._threads = ThreadPoolExecutor(max_workers=len(LEARNERS))
        self._meter = Meter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown()
        self._client.close()

    def run(self, rate: float | None, console: Console, view: LearnersDisplay | FiguresLines) -> bool:
        """Create missing learners and stream to the end; return False if a signal came first."""
        hint = threading.Timer(_SILENCE, console.print, (_COMPILING,))
        hint.start()
        try:
            offsets = self._create()
            at = min(offsets.values())
            newest = self._newest()
            self._simulation = CardFraud(self._events // 2, first=self._first_day(at, newest))
            self._announce(at, console)
            with view as display:
                complete = self._send(at, 0 if newest is None else newest[0] + 1, rate, display, hint)
                display.show(self._figures(), self._meter.speed(), final=True)
        except WaitInterrupted:
            return False
        except RequestRefused as error:
            if error.status == HTTPStatus.CONFLICT:  # an older demo, or somebody's learners
                raise WrongUsage(f"--store: {error}; name another store, or delete this one") from None
            raise RequestFailed(error) from None
        except ClientError as error:
            raise RequestFailed(error) from None
        finally:
            hint.cancel()
        if complete and at < self._events:
            console.print(f"All {self._events:,} events have been streamed.")
        return complete

    def _create(self) -> dict[str, int]:
        """Create missing learners, all at once, so that the dashboard shows them; return the offset of each."""
        requests = [
            self._threads.submit(self._client.create_document, name, config) for name, config in LEARNERS.items()
        ]
        documents = [reply.result()[0] for reply in requests]
        self._client.create_group(GROUP, list(LEARNERS))
        self._standstill.over()
        return {document["name"]: document["sources"].get(SOURCE, 0) for document in documents}

    def _newest(self) -> tuple[int, float] | None:
        """Return number and time of the event that was scored last, if there is one."""
        events = self._client.learner(_REVIEWED).scored_events(q=_PREFIX, limit=1)["events"]
        return (int(events[0]["id"].removeprefix(_PREFIX)), events[0]["time"]) if events else None

    def _first_day(self, at: int, newest: tuple[int, float] | None) -> int:
        """Return the day on which the stream begins, or began if it resumes: no label is in the future.

        Raises `WrongUsage` if so many events do not fit in between.
        """
        now = time.time() - self._delay.seconds - _ROUND
        first = first_day(self._events, now) if newest is None else first_day(newest[0] + 1, now, newest[1])
        if self._events > at and self._events > (fit := max_events(max(first, 0), now)):
            raise WrongUsage(f"--events: {fit:,} at most; later events would be in the future")
        return first

    def _announce(self, at: int, console: Console) -> None:
        if at >= self._events:
            console.print(
                f"The learners have already learnt {at:,} events of the stream. Use --events N for a longer one."
            )
        elif at:
            console.print(f"Resuming at event {at:,} of {self._events:,}.")
        if at < self._simulation.change:
            console.print(f"The fraud pattern changes at event {self._simulation.change:,}.")

    def _send(
        self, at: int, scored: int, rate: float | None, display: LearnersDisplay | FiguresLines, hint: threading.Timer
    ) -> bool:
        pace = Pace(rate, self._interruption.wait)
        size = _LARGEST_BATCH if rate is None else min(_LARGEST_BATCH, max(1, round(rate / _BATCHES_PER_SECOND)))
        refreshed = time.monotonic()
        first = max(0, at - _DAY)  # the labels of earlier events have come
        requests = schedule(
            self._payments(first), self._delay, SOURCE, at, size, now=time.time(), first=first, scored=scored
        )
        for request in requests:
            if request.kind == "labels":  # after a crash, a learner may be ahead, and then reports duplicates
                self._client.update_group(GROUP, request.body())
            elif pace(request.count):
                return False
            else:
                self._client.predict_group(GROUP, request.body())
                self._meter.add(request.count)
            self._standstill.over()
            hint.cancel()
            if time.monotonic() - refreshed >= _REFRESH:
                refreshed = time.monotonic()
                display.show(self._figures(), self._meter.speed())
        return True

    def _payments(self, first: int) -> Iterator[Event]:
        for start in range(first, self._events, _LARGEST_BATCH):
            yield from self._simulation.events(start, min(start + _LARGEST_BATCH, self._events))

    def _figures(self) -> list[dict[str, Any]]:
        return [learner.metrics() for learner in self._learners]
