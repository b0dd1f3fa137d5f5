"""One event per message on a websocket, 64 under way at a time, beside a bare echo of the same messages.

`predict` has no ids, as over HTTP; `update` scores each event before it learns it, so it is predict and update in one
message, durable in SQLite before the reply.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import count
from typing import Any

from benchmarks.service.bodies import FIRST, JSON, MSGPACK, encoded, event, numbered, stream, update
from benchmarks.service.rounds import Case, Measure, Run, Sample, Verdict, contest, sample
from benchmarks.service.servers import Server, echo, rarestream, sqlite
from benchmarks.service.socket_load import BINARY, TEXT, drive, frame

__all__ = ["measure"]

WINDOW = 64
OF_ECHO = 0.6  # messages per core-second of predict, of the echo's
DURABLE = 50_000  # events a second of predict and update in one
CODINGS = {"JSON": JSON, "MessagePack": MSGPACK}
VOWPAL_WABBIT = (
    "measured once on a machine of two cores: Vowpal Wabbit's daemon, which keeps no log, scores and learns 106,000"
    " lines a second pipelined, and 16,500 one at a time"
)
_A_TURN = 10**8  # numbers that a turn has for its ids


def measure(run: Run) -> Case:
    """Messages per core-second and tails."""
    events = stream(64)
    rows = range(len(events.y))
    with (
        rarestream(run.cores, run.folder, sqlite(run.folder)) as ours,
        rarestream(run.cores, run.folder, "memory:") as memory,
        echo(run.cores, run.folder) as bare,
    ):
        contestants: dict[str, Measure] = {}
        turns = count(FIRST, _A_TURN)
        for coding, media in CODINGS.items():
            predictions = _frames((event(events.X[i], media, seq=FIRST, op="predict") for i in rows), media)
            taught = _frames(
                (update(events.X[[i]], events.y[[i]], media, ids=True, seq=FIRST, op="update") for i in rows), media
            )
            path = f"{ours.taught(f'predict-{coding.lower()}')}/ws"
            contestants[f"rarestream predict, {coding}"] = partial(_turn, ours, path, predictions, turns)
            contestants[f"echo, {coding}"] = partial(_turn, bare, "/", predictions, turns)
            for store, server in (("sqlite", ours), ("no log", memory)):
                path = f"{server.taught(f'update-{coding.lower()}')}/ws"
                contestants[f"rarestream update, {store}, {coding}"] = partial(_turn, server, path, taught, turns)
        result = contest(contestants, run.rounds, run.seconds)
    verdicts = []
    for coding in CODINGS:
        ratio = result.ratio(f"rarestream predict, {coding}", f"echo, {coding}", lambda item: item.per_core_second)
        verdicts.append(Verdict(f"messages per core-second of predict by the echo's, {coding}", ratio, OF_ECHO))
        rate = result.median(f"rarestream update, sqlite, {coding}", lambda item: item.events_per_second)
        verdicts.append(Verdict(f"events/s of predict and update in one, durable, {coding}", rate, DURABLE))
    title = f"websocket, one event of 54 floats a message, {WINDOW} under way"
    return Case(title, result.rows(), verdicts, [VOWPAL_WABBIT])


def _frames(messages: Iterable[dict[str, Any]], media: str) -> list[bytes]:
    opcode = TEXT if media == JSON else BINARY
    return [frame(encoded(message, media), opcode) for message in messages]


def _turn(server: Server, path: str, frames: list[bytes], turns: count[int], seconds: float) -> Sample:
    messages = numbered(frames, next(turns))
    return sample(drive(server.port, path, messages, WINDOW, seconds, server.cpu, greeting=path != "/"))
