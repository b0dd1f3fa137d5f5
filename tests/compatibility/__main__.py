"""Makes the recordings with the code at hand: `python -m tests.compatibility record [PART ...]`."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from base64 import b64decode, b64encode
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from redis import Redis

from service.api import create_app
from tests.compatibility.exchanges import all_courses
from tests.compatibility.recordings import brief, differences, read_json, without_reasons, write_cases, write_json
from tests.compatibility.served import run_served, served_cases
from tests.compatibility.serving import serve
from tests.compatibility.stores import SETTINGS, dump, load, proceed, write
from tests.compatibility.streams import cases, machine, run
from tests.harness.redis_server import RedisServer

_WHOLE_METRICS = {
    "cbr-dense",
    "fofo-table",
    "few-ids",
    "metrics",
    "npsvor-dense",
    "ranksvm-sparse",
    "window-seconds",
    "cbr-diag-named-negative",
    "npsvor-nothing",
    "window-seconds-negative",
}


def _recorded(name: str, outcome: dict[str, Any]) -> dict[str, Any]:
    shorten = without_reasons if name in _WHOLE_METRICS else brief
    return {**outcome, "metrics": shorten(outcome["metrics"])}


def record_streams() -> None:
    """Record the scores, digests and metrics of every stream."""
    streams = {case["name"]: _recorded(case["name"], run(case)) for case in cases()}
    with serve("memory:") as service:
        served = {case["name"]: _recorded(case["name"], run_served(service, case)) for case in served_cases()}
    write_cases("streams.json", {"machine": {"libraries": machine()}, "streams": streams, "served": served})


def record_stores() -> None:
    """Write a store of each kind, and record what its continuation replies."""
    with TemporaryDirectory() as folder, RedisServer() as redis, Redis.from_url(redis.url) as client:
        file = Path(folder, "store.db")
        export, *others = [_written(url) for url in (f"sqlite:///{file}", redis.url)]
        with closing(sqlite3.connect(file)) as connection:  # closing it moves the write-ahead log into the file
            connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()
        database, keys = file.read_bytes(), dump(client)
        redis.flush()
        load(client, keys)
        outcomes = []
        for url in (f"sqlite:///{file}", redis.url):
            with serve(url, settings=SETTINGS) as service:
                outcomes.append(proceed(service, export))
        actual = list(differences(*outcomes))
        assert not actual, "the two stores differ:\n" + "\n".join(actual)
    assert others
    stores = {"sqlite": b64encode(database).decode(), "redis": keys, "export": b64encode(export).decode()}
    write_json("stores.json.xz", {**stores, "replies": outcomes[0]})


def _written(url: str) -> bytes:
    """Fill a store and kill the service, so that records stand behind the snapshots; return an export."""
    with serve(url, settings=SETTINGS, kill=True) as service:
        return write(service)


def record_replies() -> None:
    """Record what a continuation of the recorded stores replies now: of settings that old configurations lack."""
    recorded = read_json("stores.json.xz")
    with TemporaryDirectory() as folder:
        file = Path(folder, "store.db")
        file.write_bytes(b64decode(recorded["sqlite"]))
        with serve(f"sqlite:///{file}", settings=SETTINGS) as service:
            replies = proceed(service, b64decode(recorded["export"]))
    write_json("stores.json.xz", {**recorded, "replies": replies})


def record_exchanges() -> None:
    """Record the replies of every route and websocket."""
    with TemporaryDirectory() as folder:
        write_json("exchanges.json.xz", asyncio.run(all_courses(create_app, Path(folder))))


_PARTS = {
    "streams": record_streams,
    "stores": record_stores,
    "replies": record_replies,
    "exchanges": record_exchanges,
}


def main(arguments: list[str]) -> int:
    """Record the parts that are named, or all; return the exit status."""
    if not arguments or arguments[0] != "record" or not set(arguments[1:]) <= set(_PARTS):
        print(f"usage: python -m tests.compatibility record [{' | '.join(_PARTS)}]", file=sys.stderr)
        return 2
    for name, record in _PARTS.items():
        if name in (arguments[1:] or _PARTS):
            record()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
