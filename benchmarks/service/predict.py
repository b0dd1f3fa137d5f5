"""One event of 54 floats through `/predict`, compared with bare uvicorn and with FastAPI and pydantic.

Algorithms that cost more are compared with each other: `auto` with cbr-diag.

The event has no id, so the service stores nothing and the three do the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.service.bodies import JSON, MSGPACK, event, numbered, requests, stream
from benchmarks.service.http_load import drive
from benchmarks.service.rounds import Case, Contest, Measure, Run, Sample, Verdict, contest, sample
from benchmarks.service.servers import Server, echo, rarestream, sqlite, twin

__all__ = ["measure"]

CONNECTIONS = (1, 64)
OF_ECHO = 0.60  # requests per core-second, of the echo's
OF_TWIN = 3.5  # of the twin's
TAIL = 1.5  # p99 at the most connections, of the echo's
OF_DIAGONAL = 1.5  # p99 of auto at the most connections, of cbr-diag's
OURS, ECHO, TWIN = "rarestream", "echo", "FastAPI + pydantic"
CODINGS = {"JSON": JSON, "MessagePack": MSGPACK}


def measure(run: Run) -> Case:
    """Measure requests per core-second and tail latencies."""
    rows = stream(64).X
    with (
        rarestream(run.cores, run.folder, sqlite(run.folder)) as ours,
        echo(run.cores, run.folder) as bare,
        twin(run.cores, run.folder) as framework,
    ):
        path = f"{ours.taught('one')}/predict"
        contestants: dict[str, Measure] = {}
        for coding, media_type in CODINGS.items():
            peer: list[tuple[str, Server, str]] = [(OURS, ours, path), (ECHO, bare, "/")]
            if media_type == JSON:
                peer.append((TWIN, framework, "/predict"))
            for connections in CONNECTIONS:
                for name, server, at in peer:
                    messages = requests(at, (event(x, media_type) for x in rows), media_type)
                    contestants[_named(name, coding, connections)] = partial(_turn, server, messages, connections)
        for algorithm in ("auto", "cbr-diag"):
            messages = requests(f"{ours.taught(algorithm, algorithm)}/predict", (event(x, JSON) for x in rows), JSON)
            name = _named(algorithm, "JSON", CONNECTIONS[-1])
            contestants[name] = partial(_turn, ours, messages, CONNECTIONS[-1])
        result = contest(contestants, run.rounds, run.seconds)
    verdicts = [verdict for coding in CODINGS for verdict in _verdicts(result, coding)]
    names = [_named(algorithm, "JSON", CONNECTIONS[-1]) for algorithm in ("auto", "cbr-diag")]
    tail = result.ratio(names[0], names[1], lambda item: item.p99)
    verdicts.append(Verdict("p99 of auto by that of cbr-diag, JSON, 64 connections", tail, OF_DIAGONAL, "at most"))
    return Case("/predict, one event of 54 floats a request", result.rows(), verdicts)


def _verdicts(result: Contest, coding: str) -> Iterator[Verdict]:
    for connections in CONNECTIONS:
        setting = f"{coding}, {connections} connection{'s' if connections > 1 else ''}"
        for other, target in ((ECHO, OF_ECHO), (TWIN, OF_TWIN)):
            if other == TWIN and CODINGS[coding] != JSON:
                continue
            names = _named(OURS, coding, connections), _named(other, coding, connections)
            ratio = result.ratio(*names, lambda item: item.per_core_second)
            yield Verdict(f"requests per core-second by those of {other}, {setting}", ratio, target)
            if other == ECHO and connections == CONNECTIONS[-1]:
                yield Verdict(
                    f"p99 by that of {other}, {setting}", result.ratio(*names, lambda item: item.p99), TAIL, "at most"
                )


def _named(peer: str, coding: str, connections: int) -> str:
    return f"{peer}, {coding}, {connections}"


def _turn(server: Server, messages: list[bytes], connections: int, seconds: float) -> Sample:
    return sample(drive(server.port, numbered(messages), connections, seconds, server.cpu))
