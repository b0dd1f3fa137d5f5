"""The words of errors that operators see: of stores, records, snapshots, the keys file and settings.

All other tests look at classes, codes, exit statuses and values in messages. A changed sentence changes one row here.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import APIRouter
from pydantic import ValidationError
from redis.exceptions import ResponseError
from typer.testing import CliRunner

from learners.config import Config
from learners.learner import Learner
from learners.records import LabelledBatch, LateColumns, Note, Rollback, Segment
from learners.scorer import Predictions
from service.api import static
from service.api.routes.dependencies import AccessRoute
from service.auth.keys import load, new_key, save
from service.cli.main import app as command_line
from service.engine.cluster.placement import Placement
from service.engine.node_resources import Node
from service.engine.records.codec import Created, pack_record, pack_snapshot, unpack_record, unpack_snapshot
from service.engine.records.served_codec import pack_served, unpack_served
from service.engine.records.validation import check_record
from service.errors import ServiceError
from service.exits import CommandFailed
from service.server.listen import listen
from service.server.run import Server
from service.server.supervisor import supervise
from service.settings import Settings
from service.storage.memory import MemoryStore
from service.storage.open_store import open_store
from service.storage.redis.durability import SETTINGS, Acks
from service.storage.redis.redis_store import RedisStore
from service.storage.sqlite import SqliteStore
from service.storage.store_protocol import Store
from tests.harness.apps import DENSE
from tests.harness.redis_server import RedisServer
from tests.harness.store_records import BIRTH, filled, record, token

Trigger = Callable[[], Any]  # which may be a coroutine function
Row = tuple[Trigger, str]
IT = "record 2 of a"

DENSE_CONFIG = Config.of(DENSE)
ROWS = LabelledBatch(np.ones((3, 3)), np.array([1.0, -1.0, 1.0]))
RECORD = pack_record(Created(DENSE_CONFIG.to_json()))
LEARNER = Learner(DENSE_CONFIG)
SNAPSHOT = pack_snapshot(3, LEARNER.config, LEARNER.state())
SCORES = Predictions(np.ones(1), np.array([1]), np.ones(1), np.ones(1))
SERVED = pack_served(np.ones((1, 3)), SCORES, None, 7)[0]


def checked(**changes: Any) -> Trigger:
    """Return a check of a batch with these changes."""
    return lambda: check_record(replace(ROWS, **changes), DENSE_CONFIG, IT)


def unpacked(*data: bytes, width: int = 3) -> Trigger:
    """Return the decoding of served events."""
    return lambda: unpack_served(data, np.empty((0, width)), "event e1 of a")


LATE = LateColumns.none(3)
RECORDS: list[Row] = [
    # records and snapshots
    (lambda: unpack_record(b"", IT), "record 2 of a is cut short: 0 bytes"),
    (lambda: unpack_record(RECORD[:-1], IT), "record 2 of a does not match its checksum"),
    (lambda: unpack_record(b"PK" + RECORD, IT), "record 2 of a is not a record or snapshot of rarestream"),
    (
        lambda: unpack_record(RECORD[:4] + b"\x09" + RECORD[5:], IT),
        "record 2 of a has format version 9; this release reads version 1"
    ),
    (lambda: unpack_record(SNAPSHOT, IT), "record 2 of a has the unknown kind 4"),
    (lambda: unpack_snapshot(RECORD, "snapshot 3 of a"), "snapshot 3 of a is not a snapshot (kind 1)"),
    # what no learner logs
    (checked(labels=np.array([1.0, 0.0, 1.0])), "record 2 of a has labels that are not -1 or 1"),
    (checked(rows=np.ones((3, 4))), "record 2 of a has features of shape (3, 4); expected (3, 3)"),
    (checked(rows=np.full((3, 3), np.nan)), "record 2 of a has features that are not numbers of at most 1e+30"),
    (checked(weights=np.array([1.0, -1.0, 1.0])), "record 2 of a has weights that are not 3 numbers of at least 0"),
    (checked(times=np.array([1.0, np.inf, 1.0])), "record 2 of a has times that are not 3 numbers of seconds"),
    (checked(costs=np.array([1.0, np.nan, 1.0])), "record 2 of a has costs that are not 3 numbers of at least 0"),
    (checked(ids=("a",)), "record 2 of a has 1 id for 3 events"),
    (
        checked(segments=(Segment(0, 4, "file", 0, 0),)),
        "record 2 of a has a source segment 0 to 4; expected one from 0 to at most 3"
    ),
    (checked(segments=(Segment(0, 3, "file", -1, -1),)), "record 2 of a has a source at -1, after -1"),
    (checked(segments=(Segment(0, 3, "", 0, 0),)), "record 2 of a has a source whose name is empty or too long"),
    (
        checked(rows=np.ones((2, 3)), late=LATE._replace(bare=np.array([False, True, False])), ids=("a", None, "b")),
        "record 2 of a has late labels without an id"
    ),
    (
        checked(late=LATE._replace(served=np.ones(3, np.bool_)), ids=("a", "b", "c")),
        "record 2 of a has probabilities that are not from 0 to 1"
    ),
    (
        checked(late=LateColumns.none(2), ids=("a", "b", "c")),
        "record 2 of a has late labels with the column served, which is not 3 values of bool"
    ),
    (
        lambda: check_record(Rollback(-1, LEARNER.state()), DENSE_CONFIG, IT),
        "record 2 of a goes back to the impossible position -1"
    ),
    # notes
    (
        lambda: check_record(Note("\a", 5.0), DENSE_CONFIG, IT),
        "record 2 of a has a note whose text has control characters"
    ),
    (
        lambda: check_record(Note("a", 5.0, by=" "), DENSE_CONFIG, IT),
        "record 2 of a has a note whose writer has no name"
    ),
    (
        lambda: check_record(Note("", float("nan"), alarm=0), DENSE_CONFIG, IT),
        "record 2 of a has a note of an impossible time or alarm"
    ),
    # served events
    (unpacked(b""), "event e1 of a is not readable: Input data was truncated"),
    (unpacked(SERVED[:1] + b"\x02" + SERVED[2:]), "event e1 of a has events served by another release"),
    (unpacked(SERVED, width=2), "event e1 of a has rows of the wrong width"),
    # durability
    (lambda: Acks("disk", 5.0), "acks is 'disk'; expected memory, aof or replicas:n"),
    (
        lambda: Acks("aof", 5.0).check(Acks("aof", 5.0).command(), [0, 0]),
        "acks=aof, but the write was not on the disk of Redis after 3 s; the last write may or may not be lost: "
        "repeat it"
    ),
    (
        lambda: Acks("aof", 5.0).check(Acks("aof", 5.0).command(), ResponseError("appendonly is off")),
        "acks=aof, but this Redis has no append-only file: set `appendonly yes` there, or change acks here; the "
        "last write may or may not be lost: repeat it"
    ),
    (
        lambda: Acks("aof", 5.0).check(SETTINGS, []),
        "acks=aof, but this Redis has no WAITAOF (it is older than 7.2) and lacks `appendonly yes`, `appendfsync "
        "always` or `no-appendfsync-on-rewrite no`: set these there, use a newer Redis, or change acks here; the "
        "last write may or may not be lost: repeat it"
    ),
    (
        lambda: Acks("aof", 5.0).check(SETTINGS, ResponseError("no permissions")),
        "acks=aof, but this Redis has no WAITAOF (it is older than 7.2) and refuses to show its settings (no "
        "permissions): allow CONFIG GET there, use a newer Redis, or change acks here; the last write may or may "
        "not be lost: repeat it"
    ),
    (
        lambda: Acks("replicas:1", 3.0).check(Acks("replicas:1", 3.0).command(), 0),
        "acks=replicas:1, but only 0 of 1 replicas had the write after 1.8 s; the last write may or may not be "
        "lost: repeat it"
    ),
    # the installation and the settings
    (lambda: no_plotly(), "plotly is not installed, or its package_data/plotly.min.js is missing; expected plotly>=6"),
    (lambda: silent_route(), "the route /new does not state who may call it"),
    (
        lambda: Settings(advertise="10.0.0.7:8000"),
        "Value error, is '10.0.0.7:8000'; expected an address such as http://10.0.0.7:8000 or "
        "http://[fd00::7]:8000, without a path"
    ),
    (lambda: placed(MemoryStore(), advertise="http://a:1"), "replication needs a store that nodes share: use Redis"),
    (
        lambda: placed(RedisStore("redis://127.0.0.1:1")),
        "replication needs advertise: the address at which other nodes reach this one"
    ),
    (
        lambda: Server(Settings(tls_certificate="nowhere.pem"), listen("127.0.0.1", 0), ready=lambda: None),
        "the service cannot start: TLS with nowhere.pem, and the key in it: No such file or directory"
    ),
    # several processes
    (
        lambda: supervise(Settings(store="memory:", workers=2)),
        "several workers need a Redis store, for example redis://localhost:6379/0: processes do not share memory"
    ),
    (
        lambda: supervise(Settings(store="sqlite:///a.db", workers=2)),
        "several workers need a Redis store, for example redis://localhost:6379/0: only one process can write to "
        "SQLite"
    ),
]  # fmt: skip


def no_plotly() -> None:
    """Look for Plotly's files as if it were not installed."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("importlib.util.find_spec", lambda _name: None)
        static._plotly_bundle()


def silent_route() -> None:
    """Add a route that does not say who may call it."""
    APIRouter(route_class=AccessRoute).get("/new")(lambda: None)


def placed(store: Store, **settings: Any) -> None:
    """Place learners on one node each."""
    Placement(Node(store, Settings(store="memory:", replication=1, **settings)))


async def words_of(trigger: Trigger) -> str:
    """Return what an error says that is raised by a function or coroutine function."""
    try:
        result = trigger()
        if inspect.isawaitable(result):
            await result
    except ServiceError as error:
        return error.detail
    except ValidationError as error:
        return error.errors()[0]["msg"]
    except (CommandFailed, ValueError, RuntimeError) as error:
        return str(error)
    return "nothing was raised"


async def compare(rows: list[Row], folder: Path) -> None:
    """Compare all rows, and show those that differ; `TMP` stands for the folder."""
    actual = [(await words_of(trigger)).replace(str(folder), "TMP") for trigger, _ in rows]
    pairs = zip(actual, (expected for _, expected in rows), strict=True)
    differences = [f"{words!r}, expected {expected!r}" for words, expected in pairs if words != expected]
    assert not differences, "\n".join(differences)


async def test_records_and_settings(tmp_path: Path) -> None:
    await compare(RECORDS, tmp_path)


async def test_warnings_about_durability() -> None:
    rows = [
        (
            "memory", {"aof_enabled": 0},
            "acks=memory, and this Redis has no append-only file: a crash of Redis loses acknowledged data; set "
            "`appendonly yes` there, or change acks here"
        ),
        (
            "replicas:2", {"connected_slaves": 0},
            "acks=replicas:2, but this Redis has 0 replicas: no write is acknowledged; add replicas, or change acks"
        ),
    ]  # fmt: skip
    actual = [Acks(acks, 5.0).caution([info]) for acks, info, _ in rows]
    assert actual == [expected for _, _, expected in rows]
    acks = Acks("aof", 5.0)
    assert acks.fault_at_start(acks.command(), [1, 0], [b"appendfsync", b"no"]) == (
        "acks=aof, but this Redis has `appendfsync no`, so it never syncs its file to the disk: set everysec or always "
        "there, or change acks here"
    )


async def test_stores(tmp_path: Path, store: Store) -> None:
    await filled(store, 5)
    await store.save("a", BIRTH, 4, b"four", 1, trim=True)
    rows: list[Row] = [
        (lambda: store.append("a", token(9), [record(9)], 0), "the learner a was deleted, or deleted and created anew"),
        (
            lambda: store.append("a", BIRTH, [record(9)], 7),
            "position 7 of the learner a is ahead of its log, which ends at 5: the store lost records",
        ),
        (
            lambda: store.read("a", BIRTH, 3, 10),
            "position 3 of the learner a is behind its log, which was trimmed up to 4",
        ),
        (
            lambda: store.append("a", BIRTH, [record(6)], 5, token(9)),
            "record 5 in the log of the learner a was replaced by another one: the store lost records",
        ),
    ]
    await compare(rows, tmp_path)
    await store.close()
    await compare([(store.heads, "the store is closed")], tmp_path)


def sqlite_file(path: Path, *statements: str) -> Trigger:
    """Return the opening of a store after these statements by another program."""

    async def opened() -> None:
        if statements[0].startswith("PRAGMA"):
            await (await SqliteStore.open(path)).close()
        with closing(sqlite3.connect(path)) as db, db:
            for statement in statements:
                db.execute(statement)
        await SqliteStore.open(path)

    return opened


async def test_urls_and_files_of_stores(tmp_path: Path) -> None:
    letter = tmp_path / "letter"
    letter.write_bytes(b"a letter to my aunt" * 100)
    rows: list[Row] = [
        (
            lambda: open_store("memory:", "aof"),
            "acks=aof applies to Redis stores only: SQLite always waits for its disk; leave acks at memory",
        ),
        (
            lambda: open_store(f"sqlite:///{tmp_path}/a.db", "replicas:1"),
            "acks=replicas:1 applies to Redis stores only: SQLite always waits for its disk; leave acks at memory",
        ),
        (lambda: open_store("redis://127.0.0.1:1", "disk"), "acks is 'disk'; expected memory, aof or replicas:n"),
        (
            lambda: open_store("mysql://localhost"),
            "a store's URL is sqlite:///relative.db, sqlite:////absolute.db, redis://host:port/db, "
            "redis+sentinel://host:port,host:port/db?master=name, redis+cluster://host:port,host:port (each also "
            "as rediss, with TLS) or memory:",
        ),
        (
            lambda: SqliteStore.open(tmp_path / "nowhere" / "store.db"),
            "the directory TMP/nowhere of the store does not exist; create it first",
        ),
        (lambda: SqliteStore.open(tmp_path), "cannot open the store TMP: unable to open database file"),
        (lambda: SqliteStore.open(letter), "cannot open the store TMP/letter: file is not a database"),
        (
            sqlite_file(tmp_path / "recipes.db", "CREATE TABLE recipe (name)"),
            "the file TMP/recipes.db is an SQLite database of another program",
        ),
        (
            sqlite_file(tmp_path / "newer.db", "PRAGMA user_version = 7"),
            "the store TMP/newer.db has schema version 7; this rarestream reads versions 1 to 6",
        ),
    ]
    await compare(rows, tmp_path)


@asynccontextmanager
async def redis_store(url: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(url)
    try:
        yield store
    finally:
        await store.close()


async def test_redis(tmp_path: Path, redis_server: RedisServer) -> None:
    redis_server.command("ACL", "SETUSER", "ann", "on", ">right", "~*", "+@all")

    async def refused(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(2**16)
        writer.write(b"-ERR unknown command `AUTH`, with args beginning with: `hunter2`\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refused, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    try:
        async with (
            redis_store(redis_server.url) as store,
            redis_store(f"redis://ann:hunter2@127.0.0.1:{redis_server.port}") as wrong,
            redis_store(f"redis://:hunter2@127.0.0.1:{port}") as repeating,
            redis_store("redis://127.0.0.1:1") as away,
        ):
            await filled(store, 3)
            await store.save("a", BIRTH, 2, b"two", 2, trim=False)
            (part,) = [key for key in redis_server.key_names() if ":part:" in key]
            redis_server.command("DEL", part)
            rows: list[Row] = [
                (lambda: store.load("a", BIRTH), "the snapshot of a at 2 lacks a part; does Redis evict keys?"),
                (wrong.heads, "Redis: invalid username-password pair or user is disabled."),
                (repeating.heads, "Redis: unknown command `AUTH`, with args beginning with: `***`"),
                (away.heads, "Redis: Error 111 connecting to 127.0.0.1:1. Connect call failed ('127.0.0.1', 1)."),
            ]
            await compare(rows, tmp_path)
    finally:
        redis_server.command("ACL", "DELUSER", "ann")
        server.close()
        await server.wait_closed()


def keys_file(path: Path, content: bytes | list[Any]) -> Trigger:
    """Return the reading of a keys file with this content."""

    def read() -> None:
        path.write_bytes(content if isinstance(content, bytes) else json.dumps({"keys": content}).encode())
        load(path)

    return read


async def test_keys_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    save(path, [new_key("one", ["read"])[0]])
    (entry,) = json.loads(path.read_bytes())["keys"]
    rows: list[Row] = [
        (lambda: load(tmp_path / "other.json"), "cannot read the keys file TMP/other.json: No such file or directory"),
        (lambda: load(tmp_path), "cannot read the keys file TMP: Is a directory"),
        (
            lambda: save(tmp_path / "nowhere" / "keys.json", []),
            "cannot write the keys file TMP/nowhere/keys.json: No such file or directory",
        ),
        (keys_file(path, b""), "TMP/keys.json is not a keys file: Input data was truncated"),
        (
            keys_file(path, b'{"keys": {}}'),
            "TMP/keys.json is not a keys file: Expected `array`, got `object` - at `$.keys`",
        ),
        (
            keys_file(path, [{**entry, "id": "A"}]),
            "TMP/keys.json is not a keys file: Expected `str` matching regex '\\\\A[a-z0-9]{12}\\\\Z' - at "
            "`$.keys[0].id`",
        ),
        (
            keys_file(path, [{**entry, "scope": 1}]),
            "TMP/keys.json is not a keys file: Object contains unknown field `scope` - at `$.keys[0]`",
        ),
        (keys_file(path, [entry, entry]), "TMP/keys.json is not a keys file: an id occurs more than once"),
        (
            lambda: new_key("", ["read"]),
            "cannot create the key: Expected `str` matching regex '\\\\A[^\\\\x00-\\\\x1f\\\\x7f]{1,100}\\\\Z' - "
            "at `$.name`",
        ),
    ]
    await compare(rows, tmp_path)
    keys_file(path, [entry])()
    revocation = CliRunner().invoke(command_line, ["keys", "revoke", "team", "--keys", str(path)])
    assert revocation.stderr.splitlines()[0].replace(str(tmp_path), "TMP") == (
        "error: no key has the id or name team; `rarestream keys list --keys TMP/keys.json` shows them"
    )
    monkeypatch.setattr("service.auth.keys._LARGEST", 100)
    await compare([(keys_file(path, [entry]), "TMP/keys.json is not a keys file: it exceeds 100 bytes")], tmp_path)
