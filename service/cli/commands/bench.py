"""`rarestream bench`: a short load on a temporary learner, which is always deleted at the end.

It uses one connection and one JSON request at a time. So it measures what one client of the HTTP API sees, including
the client's own work. Many clients, websockets or MessagePack reach other rates.
"""

from __future__ import annotations

import json
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from service.cli.options import flag
from service.cli.options_service import (
    DEFAULT_URL,
    AsJson,
    Key,
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
    from rarestream import Client

__all__ = ["Measurement", "bench", "measure_requests"]

_POSITIVE_SHARE = 0.05  # share of positives
_WARM_UP = 20  # requests of each kind that do not count: the first ones load or compile kernels
_START_SECONDS = 120.0  # time-out of the start of a server, which may compile kernels


def bench(
    requests: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Number of events to score, one per request.")
    ] = 2000,
    updates: Annotated[int, typer.Option(min=1, max=100_000, help="Number of updates to send.")] = 100,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="Events per update.")] = 500,
    algorithm: Annotated[str, typer.Option(help="Algorithm of the learner.")] = "cbr-diag",
    dim: Annotated[int, typer.Option(min=1, max=10_000, help="Numbers per event.")] = 20,
    start: Annotated[bool, flag("--start", help="Start a server with a store in a temporary folder.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Measure the speed of a service: updates in batches, events scored one by one.

    It creates a learner named bench-..., sends random events, and deletes
    the learner at the end, also after Ctrl-C. Other learners of the service
    are not touched, but share its time.
    """
    from rarestream import ClientError
    from service.cli.suggestions import settings_refused

    with reporting(), ExitStack() as stack:
        before = signal.signal(signal.SIGTERM, _raise_exit)  # so that the learner is deleted on SIGTERM too
        stack.callback(signal.signal, signal.SIGTERM, before)
        if start:
            url = stack.enter_context(_server())
        client = stack.enter_context(connected(url, key))
        name = f"bench-{secrets.token_hex(4)}"
        config = {"algorithm": algorithm, "features": {"kind": "dense", "dim": dim}, "late": {"max_events": 1000}}
        try:
            stack.callback(_delete, client, name)  # first, because an interrupted creation may have succeeded
            try:
                document, _ = client.create_document(name, config)
            except ClientError as error:
                raise settings_refused(error) from None
            ranks = 0 if "positive" in document["class_counts"] else len(document["class_counts"])
            measurements = list(_load(client, name, requests, updates, batch, dim, ranks, show=not as_json))
        except KeyboardInterrupt:
            print(f"stopped; {name} is deleted", file=sys.stderr)
            raise typer.Exit(130) from None
        if as_json:
            print_json(
                {
                    "url": client.url,
                    "algorithm": algorithm,
                    "dim": dim,
                    **{measurement.name: measurement.to_json() for measurement in measurements},
                }
            )
        else:
            _print(
                measurements,
                f"{algorithm}, {dim} numbers per event, at {client.url}: one client, one request at a time",
            )


class Measurement:
    """Requests of one kind and their times."""

    def __init__(self, name: str, seconds: Sequence[float], events: int, warm: int) -> None:
        """`events`: per request. `warm`: requests before these."""
        self.name = name
        self.warm_requests, self.warm_events = warm, events * warm
        self.requests = len(seconds)
        self.events = events * len(seconds)
        self.seconds = sum(seconds)
        ordered = sorted(seconds)
        self.p50, self.p99 = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.99))

    @property
    def speed(self) -> float:
        """Events per second."""
        return self.events / max(self.seconds, 1e-9)

    def to_json(self) -> dict[str, Any]:
        """Return the measurement for programs."""
        return {
            "requests": self.requests,
            "events": self.events,
            "seconds": round(self.seconds, 4),
            "events_per_second": round(self.speed, 1),
            "p50_ms": round(1000 * self.p50, 3),
            "p99_ms": round(1000 * self.p99, 3),
            "warm_up_requests": self.warm_requests,
            "warm_up_events": self.warm_events,
        }


def measure_requests(
    name: str, bodies: Sequence[bytes], events: int, send: Callable[[bytes], object], warm: int = _WARM_UP
) -> Measurement:
    """Send each body and measure it, except for the first `warm`."""
    for body in bodies[:warm]:
        send(body)
    seconds = []
    for body in bodies[warm:]:
        began = time.perf_counter()
        send(body)
        seconds.append(time.perf_counter() - began)
    return Measurement(name, seconds, events, warm)


def _load(
    client: Client, name: str, requests: int, updates: int, batch: int, dim: int, ranks: int, *, show: bool
) -> Iterator[Measurement]:
    """Yield the measurements; `ranks`: of an ordinal learner, 0 for one of two classes."""
    learner = client.learner(name)
    rng = random.Random(0)
    notes = console(stderr=True)
    if show:
        notes.print(f"{_WARM_UP} updates of {counted(batch, 'event')} to warm up, then {updates:,} that count ...")
    bodies = [_body(rng, batch, dim, ranks, labelled=True) for _ in range(updates + _WARM_UP)]
    yield measure_requests("update", bodies, batch, lambda body: learner.update_json(body, repeatable=False))
    if show:
        notes.print(f"{_WARM_UP} events scored one by one to warm up, then {requests:,} that count ...")
    bodies = [_body(rng, 1, dim, ranks, labelled=False) for _ in range(requests + _WARM_UP)]
    yield measure_requests("predict", bodies, 1, learner.predict_json)


def _body(rng: random.Random, count: int, dim: int, ranks: int, *, labelled: bool) -> bytes:
    import msgspec

    events = []
    for _ in range(count):
        label = rng.randint(1, ranks) if ranks else int(rng.random() < _POSITIVE_SHARE)
        event: dict[str, Any] = {"x": [round(rng.gauss(label, 1.0), 6) for _ in range(dim)]}
        events.append({**event, "label": label} if labelled else event)
    return msgspec.json.encode({"events": events})


def _delete(client: Client, name: str) -> None:
    """Delete the learner if it exists; print a warning if that fails."""
    from rarestream import ClientError
    from service.cli.request_errors import exit_status_of

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # do not stop half-way
    try:
        client.delete(name)
    except ClientError as error:
        if exit_status_of(error) in (ExitStatus.NOT_FOUND, ExitStatus.UNREACHABLE):  # not created, or no service
            return
        print(f"warning: cannot delete {name} ({error}); delete it by `rarestream delete {name}`", file=sys.stderr)
    finally:
        signal.signal(signal.SIGINT, before)


def _print(measurements: Sequence[Measurement], title: str) -> None:
    table = plain_table("", "requests", "events", "events/s", "p50", "p99", right=5)
    for measurement in measurements:
        times = [f"{1000 * seconds:.2f} ms" for seconds in (measurement.p50, measurement.p99)]
        table.add_row(
            measurement.name,
            f"{measurement.requests:,}",
            f"{measurement.events:,}",
            f"{measurement.speed:,.0f}",
            *times,
        )
    out = console()
    out.print(title)
    out.print(table)
    warm = ", ".join(
        f"{counted(measurement.warm_requests, measurement.name)} ({counted(measurement.warm_events, 'event')})"
        for measurement in measurements
    )
    out.print(f"not counted, to warm up before: {warm}")


@contextmanager
def _server() -> Iterator[str]:
    """Start a server with a temporary store and return its URL; end both at the end."""
    with tempfile.TemporaryDirectory(prefix="rarestream-bench-") as folder:
        log = Path(folder) / "log"
        store = f"sqlite:///{folder}/bench.db"
        command = [sys.executable, "-m", "service", "serve", "--json", "--port", "0", "--store", store]
        with log.open("wb") as stderr:
            # in its own process group: Ctrl-C is for this process, which ends the server after deleting the learner
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
            )
        try:
            print("starting a server ...", file=sys.stderr)
            yield _wait_for_url(process, log)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _wait_for_url(process: subprocess.Popen[str], log: Path) -> str:
    """Return the URL that the server prints when it is ready."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.wait(_START_SECONDS)
        raise CommandFailed(f"the server did not start: {log.read_text().strip()[-1000:]}")
    url: str = json.loads(line)["url"]
    return url


def _raise_exit(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise SystemExit(128 + number)
