"""`rarestream bench`: a short load on a learner of its own, which is deleted at the end, however that comes.

One connection, one request at a time, in JSON: what one client of the HTTP API sees, its own work included. It says
nothing of what many clients together, websockets or MessagePack would reach.
"""

from __future__ import annotations

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

__all__ = ["Measured", "bench", "measured"]

_RARE = 0.05  # share of positives
_WARM = 20  # requests of each kind before those that count: kernels are loaded, or compiled, by the first ones
_STARTING = 120.0  # seconds that a server of ours may take: a first start compiles


def bench(
    requests: Annotated[int, typer.Option(min=1, max=1_000_000, help="Events that are scored one by one.")] = 2000,
    updates: Annotated[int, typer.Option(min=1, max=100_000, help="Updates that are sent.")] = 100,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="Events of each update.")] = 500,
    algorithm: Annotated[str, typer.Option(help="Of the learner.")] = "cbr-diag",
    dim: Annotated[int, typer.Option(min=1, max=10_000, help="Numbers of each event.")] = 20,
    start: Annotated[bool, flag("--start", help="Start a server for it, with a store in a temporary folder.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Measure what a service answers: updates in batches, events scored one by one.

    It takes a learner of its own, named bench-..., with random events, and
    deletes it at the end, also after Ctrl-C. The service's other learners
    are not touched, but share its time.
    """
    from rarestream import ClientError
    from service.cli.suggestions import settings_refused

    with reporting(), ExitStack() as stack:
        before = signal.signal(signal.SIGTERM, _ended)  # so that the learner is deleted then, too
        stack.callback(signal.signal, signal.SIGTERM, before)
        if start:
            url = stack.enter_context(_server())
        client = stack.enter_context(connected(url, key))
        name = f"bench-{secrets.token_hex(4)}"
        config = {"algorithm": algorithm, "features": {"kind": "dense", "dim": dim}, "late": {"max_events": 1000}}
        try:
            stack.callback(_deleted, client, name)  # first, for an interrupted creation may have been carried out
            try:
                made, _ = client.create_document(name, config)
            except ClientError as error:
                raise settings_refused(error) from None
            ranks = 0 if "positive" in made["class_counts"] else len(made["class_counts"])
            found = list(_load(client, name, requests, updates, batch, dim, ranks, show=not as_json))
        except KeyboardInterrupt:
            print(f"stopped; {name} is deleted", file=sys.stderr)
            raise typer.Exit(130) from None
        if as_json:
            print_json(
                {"url": client.url, "algorithm": algorithm, "dim": dim, **{one.name: one.to_json() for one in found}}
            )
        else:
            _tell(found, f"{algorithm}, {dim} numbers per event, at {client.url}: one client, one request at a time")


class Measured:
    """Requests of one kind, and how long each took."""

    def __init__(self, name: str, seconds: Sequence[float], events: int, warm: int) -> None:
        """`events`: of each request. `warm`: requests before these."""
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
        """For programs."""
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


def measured(
    name: str, bodies: Sequence[bytes], events: int, send: Callable[[bytes], object], warm: int = _WARM
) -> Measured:
    """Send each body, the first `warm` of them without counting."""
    for body in bodies[:warm]:
        send(body)
    seconds = []
    for body in bodies[warm:]:
        began = time.perf_counter()
        send(body)
        seconds.append(time.perf_counter() - began)
    return Measured(name, seconds, events, warm)


def _load(
    client: Client, name: str, requests: int, updates: int, batch: int, dim: int, ranks: int, *, show: bool
) -> Iterator[Measured]:
    """`ranks`: that an ordinal learner tells; 0: it tells two classes."""
    learner = client.learner(name)
    rng = random.Random(0)
    notes = console(stderr=True)
    if show:
        notes.print(f"{_WARM} updates of {counted(batch, 'event')} to warm up, then {updates:,} that count ...")
    bodies = [_body(rng, batch, dim, ranks, labelled=True) for _ in range(updates + _WARM)]
    yield measured("update", bodies, batch, lambda body: learner.update_json(body, repeatable=False))
    if show:
        notes.print(f"{_WARM} events scored one by one to warm up, then {requests:,} that count ...")
    bodies = [_body(rng, 1, dim, ranks, labelled=False) for _ in range(requests + _WARM)]
    yield measured("predict", bodies, 1, learner.predict_json)


def _body(rng: random.Random, count: int, dim: int, ranks: int, *, labelled: bool) -> bytes:
    import msgspec

    events = []
    for _ in range(count):
        label = rng.randint(1, ranks) if ranks else int(rng.random() < _RARE)
        event: dict[str, Any] = {"x": [round(rng.gauss(label, 1.0), 6) for _ in range(dim)]}
        events.append({**event, "label": label} if labelled else event)
    return msgspec.json.encode({"events": events})


def _deleted(client: Client, name: str) -> None:
    """Delete the learner, if it came to be; where that fails, too, say that it is left."""
    from rarestream import ClientError
    from service.cli.request_errors import exit_status_of

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # not to be stopped half-way
    try:
        client.delete(name)
    except ClientError as error:
        if exit_status_of(error) in (
            ExitStatus.NOT_FOUND,
            ExitStatus.UNREACHABLE,
        ):  # not created, or no service
            return
        print(f"warning: {name} could not be deleted ({error}); `rarestream delete {name}` does it", file=sys.stderr)
    finally:
        signal.signal(signal.SIGINT, before)


def _tell(found: Sequence[Measured], title: str) -> None:
    table = plain_table("", "requests", "events", "events/s", "p50", "p99", right=5)
    for one in found:
        times = [f"{1000 * seconds:.2f} ms" for seconds in (one.p50, one.p99)]
        table.add_row(one.name, f"{one.requests:,}", f"{one.events:,}", f"{one.speed:,.0f}", *times)
    out = console()
    out.print(title)
    out.print(table)
    warm = ", ".join(f"{counted(one.warm_requests, one.name)} ({counted(one.warm_events, 'event')})" for one in found)
    out.print(f"before these, to warm up, and not counted: {warm}")


@contextmanager
def _server() -> Iterator[str]:
    """The URL of a server of ours, as a process of its own; it and its store are gone at the end."""
    with tempfile.TemporaryDirectory(prefix="rarestream-bench-") as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-m", "service", "serve", "--port", "0", "--store", f"sqlite:///{folder}/bench.db"]
        with log.open("wb") as stderr:
            # in a group of its own: Ctrl-C is for this process, which ends that one when the learner is deleted
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
            )
        try:
            print("starting a server ...", file=sys.stderr)
            yield _ready(process, log)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _ready(process: subprocess.Popen[str], log: Path) -> str:
    """The URL that the server tells when it is ready."""
    assert process.stdout is not None
    told = process.stdout.readline()
    words = [word for word in told.split() if word.startswith("http://")]
    if not words:
        process.wait(_STARTING)
        raise CommandFailed(f"the server did not start: {log.read_text().strip()[-1000:]}")
    return words[0]


def _ended(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise SystemExit(128 + number)
