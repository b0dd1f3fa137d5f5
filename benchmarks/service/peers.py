"""Other programs on the same stream: prequential AUC and events per second, over a socket and in process.

Each event is scored, then learnt. Libraries learn in a process of their own, on the server's core; what they read is
built before the time begins. Services take one event a request, 16 under way, and keep no log. A peer is compared with
rarestream's loam-ilsc at the same job, over HTTP with the one whose log is SQLite's. Vowpal Wabbit's daemon is left
out, as it listens on every address of the machine. AUCs are of the first round: after it, services have seen the
stream.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.service.bodies import DIM, JSON, Stream, requests, stream, update
from benchmarks.service.http_load import drive
from benchmarks.service.processors import pinned
from benchmarks.service.rounds import TICK, Case, Run
from benchmarks.service.servers import STORES, Server, rarestream, store_urls
from benchmarks.serving import free_port, started

__all__ = ["measure"]

ROOT = Path(__file__).parents[2]
PROGRAMS = "benchmarks.service.peer_programs"
EVENTS, QUICK = 10_000, 300
SERVED, SERVED_QUICK = 4_000, 200  # the first of them, which go to services
IN_FLIGHT = 16
_START = 600.0  # seconds for a library to learn the stream
IN_PROCESS, DURABLE = "rarestream, loam-ilsc", "rarestream, loam-ilsc, sqlite"  # what peers are compared with
SINGLE, MANY, SOCKET = "in process, one by one", "in process, 1,000 a call", "HTTP, one event a request"


class Round(NamedTuple):
    """Result of one round."""

    scores: NDArray[np.float64]
    seconds: float
    used: float  # processor seconds of the peer


class Peer(NamedTuple):
    """Another program, or ours, at one job."""

    name: str
    job: str
    run: Callable[[], Round]
    ours: bool = False


class Library(NamedTuple):
    """A program among `peer_programs.libraries`."""

    entry: str
    name: str
    job: str
    distributions: tuple[str, ...] = ()  # its packages; the first one has the version to report; none: rarestream


LIBRARIES = (
    Library("loam-ilsc", IN_PROCESS, SINGLE),
    Library("loam-ada", "rarestream, loam-ada", SINGLE),
    Library("river", "river, scaler | LogisticRegression", SINGLE, ("river",)),
    Library("vw-text", "Vowpal Wabbit, lines of text", SINGLE, ("vowpalwabbit",)),
    Library("vw-prepared", "Vowpal Wabbit, prepared examples", SINGLE, ("vowpalwabbit",)),
    Library("sklearn", "scikit-learn, partial_fit", SINGLE, ("scikit-learn",)),
    Library("loam-ilsc-many", IN_PROCESS, MANY),
    Library("loam-ada-many", "rarestream, loam-ada", MANY),
    Library("river-many", "river, learn_many", MANY, ("river", "pandas")),
    Library("sklearn-many", "scikit-learn, partial_fit", MANY, ("scikit-learn",)),
)


class Service(NamedTuple):
    """A service among the peers: its packages, command and requests."""

    name: str
    distributions: tuple[str, ...]
    command: Callable[[int, Path], list[str]]  # arguments of the interpreter, by port and folder
    ready: str
    path: str
    body: Callable[[list[float], int], dict[str, Any]]
    score: Callable[[Any], float]


def _plain(x: list[float], label: int) -> dict[str, Any]:
    return {"x": x, "label": label}


def _tensors(x: list[float], label: int) -> dict[str, Any]:
    return {
        "inputs": [
            {"name": "x", "shape": [1, len(x)], "datatype": "FP64", "data": x},
            {"name": "label", "shape": [1], "datatype": "INT64", "data": [label]},
        ]
    }


SERVICES = (
    Service(
        "Flask + river",
        ("flask", "gunicorn", "river"),
        lambda port, _: ["-m", "gunicorn", "-b", f"127.0.0.1:{port}", "--threads", "16", f"{PROGRAMS}.flask_river:app"],
        "/ready",
        "/update",
        _plain,
        lambda reply: float(reply["score"]),
    ),
    Service(
        "FastAPI + pydantic + river",
        ("fastapi", "uvicorn", "river"),
        lambda port, _: ["-m", "uvicorn", f"{PROGRAMS}.fastapi_river:app", "--port", str(port), "--no-access-log"],
        "/ready",
        "/update",
        _plain,
        lambda reply: float(reply["score"]),
    ),
    Service(
        "MLServer + river",
        ("mlserver", "river"),
        lambda port, folder: ["-m", f"{PROGRAMS}.mlserver_river", str(folder), str(port)],
        "/v2/health/ready",
        "/v2/models/river/infer",
        _tensors,
        lambda reply: float(reply["outputs"][0]["data"][0]),
    ),
)


def measure(run: Run) -> Case:
    """Every peer that is installed, in turn, round by round."""
    events = stream(run.few(EVENTS, QUICK), run.datasets)
    served = Stream(events.name, events.X[: run.few(SERVED, SERVED_QUICK)], events.y[: run.few(SERVED, SERVED_QUICK)])
    np.savez(run.folder / "stream.npz", X=events.X, y=events.y)
    with ExitStack() as running:
        peers = [*_libraries(run), *_services(run, served, running)]
        absent = [peer for peer in peers if isinstance(peer, dict)]
        present = [peer for peer in peers if isinstance(peer, Peer)]
        rounds: list[list[Round]] = [[] for _ in present]
        for _ in range(run.rounds):
            for peer, results in zip(present, rounds, strict=True):
                results.append(peer.run())
    rows = [_row(peer, results, events.y) for peer, results in zip(present, rounds, strict=True)]
    held_against = {
        row["job"]: row for peer, row in zip(present, rows, strict=True) if peer.name in (IN_PROCESS, DURABLE)
    }
    for peer, row in zip(present, rows, strict=True):
        if not peer.ours:
            row["rarestream is"] = _compared(held_against[row["job"]], row)
    notes = [f"stream: {events.name}; {len(events.y):,} events in process, {len(served.y):,} over HTTP"]
    return Case(
        "peers: each event scored, then learnt", [*sorted(rows, key=lambda row: row["job"]), *absent], (), notes
    )


def _row(peer: Peer, rounds: list[Round], y: NDArray[np.int8]) -> dict[str, Any]:
    scores = rounds[0].scores
    n = len(scores)
    return {
        "job": peer.job,
        "who": peer.name,
        "events/s": median(n / item.seconds for item in rounds),
        "per core-second": median(n / max(item.used, TICK) for item in rounds),
        "AUC": float(roc_auc_score(y[:n], scores)),
    }


def _compared(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Compare rarestream with a peer in words."""
    speed, auc = ours["events/s"] / theirs["events/s"], ours["AUC"] - theirs["AUC"]
    faster = f"{speed:.1f} x as fast" if speed >= 1 else f"SLOWER, {speed:.2f} x"
    return f"{faster}; AUC {auc:+.3f}" + ("" if auc >= 0 else " BEHIND")


def _libraries(run: Run) -> Iterator[Peer | dict[str, Any]]:
    installed = _versions(run.peers_python, {needed for library in LIBRARIES for needed in library.distributions})
    for library in LIBRARIES:
        if lacking := tuple(distribution for distribution in library.distributions if distribution not in installed):
            yield _missing(f"{library.name}, {library.job}", lacking)
        elif library.distributions:
            name = f"{library.name} ({installed[library.distributions[0]]})"
            yield Peer(name, library.job, _learning(run, run.peers_python, library.entry))
        else:
            yield Peer(library.name, library.job, _learning(run, Path(sys.executable), library.entry), ours=True)


def _learning(run: Run, python: Path, entry: str) -> Callable[[], Round]:
    scores = run.folder / f"{entry}.npy"
    command = [str(python), "-m", f"{PROGRAMS}.libraries", entry, str(run.folder / "stream.npz"), str(scores)]

    def learn() -> Round:
        with pinned(run.cores.server):
            results = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_START, check=False)
        if results.returncode:
            raise RuntimeError(f"{entry} failed: {results.stderr[-2000:]}")
        seconds, used = map(float, results.stdout.split()[-2:])
        return Round(np.load(scores), seconds, used)

    return learn


def _services(run: Run, served: Stream, running: ExitStack) -> Iterator[Peer | dict[str, Any]]:
    urls = running.enter_context(store_urls(run.cores, run.folder))
    for store in STORES:
        server = running.enter_context(rarestream(run.cores, run.folder, urls[store]))
        for algorithm in ("loam-ilsc", "loam-ada"):
            path = server.blank(algorithm, {"algorithm": algorithm, "features": {"kind": "dense", "dim": DIM}})
            name = f"rarestream, {algorithm}, {'no log' if store == 'memory' else store}"
            yield Peer(name, SOCKET, _ours(server, path, served), ours=True)
    distributions = {distribution for service in SERVICES for distribution in service.distributions}
    installed = _versions(run.peers_python, distributions)
    for service in SERVICES:
        if lacking := tuple(distribution for distribution in service.distributions if distribution not in installed):
            yield _missing(f"{service.name}, {SOCKET}", lacking)
            continue
        try:
            server = running.enter_context(_started(run, service))
        except RuntimeError as error:  # a failure of one peer does not stop the others
            yield {"what": f"{service.name}, {SOCKET}", "absent": str(error)}
            continue
        name = f"{service.name} ({installed[service.distributions[0]]})"
        yield Peer(name, SOCKET, _theirs(server, service, served))


@contextmanager
def _started(run: Run, service: Service) -> Iterator[Server]:
    port = free_port()
    folder = run.folder / service.name.replace(" ", "")
    folder.mkdir()
    command = [str(run.peers_python), *service.command(port, folder)]
    with ExitStack() as running:
        with pinned(run.cores.server):
            ready = f"http://127.0.0.1:{port}{service.ready}"
            process = running.enter_context(started(command, ready, folder / "log", {"PYTHONPATH": str(ROOT)}))
        yield Server(port, process.pid)


def _ours(server: Server, path: str, served: Stream) -> Callable[[], Round]:
    bodies = (update(served.X[[i]], served.y[[i]], JSON, ids=False) for i in range(len(served.y)))
    messages = requests(f"{path}/update", bodies, JSON)
    return lambda: _round(server, messages, lambda reply: float(reply["results"][0]["score"]))


def _theirs(server: Server, service: Service, served: Stream) -> Callable[[], Round]:
    rows = served.X.astype(np.float64).round(4).tolist()
    bodies = (service.body(x, label) for x, label in zip(rows, served.y.tolist(), strict=True))
    messages = requests(service.path, bodies, JSON)
    return lambda: _round(server, messages, service.score)


def _round(server: Server, messages: list[bytes], score: Callable[[Any], float]) -> Round:
    traffic = drive(server.port, iter(messages), IN_FLIGHT, meter=server.cpu, keep_replies=True)
    scores = np.array([score(json.loads(reply)) for reply in traffic.replies])
    return Round(scores, traffic.seconds, traffic.server)


def _versions(python: Path, distributions: set[str]) -> dict[str, str]:
    """Return the versions of the distributions that an interpreter has."""
    program = (
        "import importlib.metadata as m, json, sys; found = {}\n"
        "for name in sys.argv[1:]:\n"
        "    try: found[name] = m.version(name)\n"
        "    except m.PackageNotFoundError: pass\n"
        "print(json.dumps(found))"
    )
    process = subprocess.run(
        [python, "-c", program, *sorted(distributions)], capture_output=True, text=True, check=True
    )
    versions: dict[str, str] = json.loads(process.stdout)
    return versions


def _missing(what: str, distributions: tuple[str, ...]) -> dict[str, Any]:
    return {"what": what, "absent": f"not installed: pip install {' '.join(distributions)}"}
