"""Read and write the keys file: who may call the service, and what for. It has only the SHA-256 of each secret.

    {"keys": [{"id": "k3v9x0a7m2qd", "name": "scoring", "sha256": "9f86...", "scopes": ["predict"],
               "learners": "fraud-*", "limits": {"requests_per_second": 100},
               "created": "2026-11-22T12:00:00Z", "expires": "2027-11-22T12:00:00Z"}]}

A key is `rs_<id>_<secret>`. The secret has 256 random bits, so nobody can guess it. Therefore a fast hash is enough,
unlike for passwords, and it costs a microsecond per request.

The file is replaced as a whole, so readers see the old one or the new one. `guard.py` reads it while a server runs.
`rarestream keys` writes it with mode 0600; it may also come from elsewhere, for example a mounted secret.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import tempfile
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from service.exits import CommandFailed, WrongUsage

__all__ = [
    "LIMITS",
    "SCOPES",
    "BadKeys",
    "Key",
    "Limits",
    "Scope",
    "Unwritable",
    "changing",
    "load",
    "new_key",
    "read",
    "save",
]

Scope = Literal["read", "predict", "update", "events", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

_LARGEST = 2**24  # bytes of a file that is read
_ID = "abcdefghijklmnopqrstuvwxyz0123456789"
_ID_LENGTH = 12

_Rate = Annotated[float, Meta(ge=1e-6, le=1e9)]  # from one in eleven days on
_Count = Annotated[int, Meta(ge=0, le=2**53)]


class BadKeys(WrongUsage):
    """The keys file cannot be read, or is not one."""


class Unwritable(CommandFailed):
    """The keys file cannot be written."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Limits of a key; rates are per process. None: the limits of the node."""

    requests_per_second: _Rate | None = None  # requests, and messages of websockets
    events_per_second: _Rate | None = None  # events that are scored, learnt or labelled
    body_bytes: _Count | None = None  # of one body; of bodies of lines, of one line
    learners: _Count | None = None  # learners and groups there may be, of those it sees, when it has made one more
    dimensions: _Count | None = None  # columns of a learner that it makes
    remembered_events: _Count | None = None  # late.max_events of a learner that it makes or changes


LIMITS: tuple[str, ...] = Limits.__struct_fields__


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The entry of one key in the file."""

    id: Annotated[str, Meta(pattern=rf"\A[a-z0-9]{{{_ID_LENGTH}}}\Z")]  # public: logs may contain it
    name: Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f]{1,100}\Z")]  # whose it is, for people
    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]  # of the secret
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1)]  # admin is all of them
    learners: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9._*?\[\]!-]{1,200}\Z")] | None = None  # of their names
    limits: Limits = Limits()
    created: Annotated[datetime, Meta(tz=True)]
    expires: Annotated[datetime, Meta(tz=True)] | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    keys: list[Key]


_decode = msgspec.json.Decoder(_File).decode


def new_key(
    name: str,
    scopes: Sequence[Scope],
    learners: str | None = None,
    limits: Limits = Limits(),  # noqa: B008 (it is frozen)
    expires: datetime | None = None,
) -> tuple[Key, str]:
    """Create the entry of a new key, and the key itself, which is not stored. Raises `BadKeys`."""
    own_id = "".join(secrets.choice(_ID) for _ in range(_ID_LENGTH))
    secret = secrets.token_hex(32)
    key = Key(
        id=own_id,
        name=name,
        sha256=hashlib.sha256(secret.encode()).hexdigest(),
        scopes=tuple(scope for scope in SCOPES if scope in scopes),
        learners=learners,
        limits=limits,
        created=datetime.now(UTC).replace(microsecond=0),
        expires=None if expires is None else expires.replace(microsecond=0),
    )
    try:
        msgspec.convert(msgspec.to_builtins(key), Key)  # what is written has to be what is read
    except msgspec.ValidationError as error:
        raise BadKeys(f"cannot create the key: {error}") from None
    return key, f"rs_{own_id}_{secret}"


def read(data: bytes, path: Path) -> list[Key]:
    """Parse the content of a keys file. Raises `BadKeys`, which quotes only names of members."""
    try:
        keys = _decode(data.removeprefix(BOM_UTF8)).keys
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadKeys(f"{path} is not a keys file: {error}") from None
    ids = [key.id for key in keys]
    if len(set(ids)) < len(ids):
        raise BadKeys(f"{path} is not a keys file: an id occurs more than once")
    return keys


def load(path: Path) -> list[Key]:
    """Read the keys file. Raises `BadKeys`."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise BadKeys(f"cannot read the keys file {path}: {error.strerror or error}") from None
    if len(data) > _LARGEST:
        raise BadKeys(f"{path} is not a keys file: it exceeds {_LARGEST} bytes")
    return read(data, path)


def save(path: Path, keys: Sequence[Key]) -> None:
    """Write the file atomically, readable only by its owner. Raises `Unwritable`."""
    target = Path(os.path.realpath(path))  # of a link, what it leads to: the link stays
    data = msgspec.json.format(msgspec.json.encode(_File(list(keys))), indent=2) + b"\n"
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # of mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
        with _opened(target.parent) as folder:
            os.fsync(folder)
    except OSError as error:
        raise Unwritable(f"cannot write the keys file {path}: {error.strerror or error}") from None


@contextmanager
def changing(path: Path) -> Iterator[list[Key]]:
    """Give the block the keys of the file (none without a file), and write the list that it leaves.

    Concurrent commands wait for each other. Raises `BadKeys` or `Unwritable`.
    """
    try:
        folder = os.open(Path(os.path.realpath(path)).parent, os.O_RDONLY)
    except OSError as error:
        raise Unwritable(f"cannot write the keys file {path}: {error.strerror or error}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        keys = load(path) if path.exists() else []
        yield keys
        save(path, keys)
    finally:
        os.close(folder)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)
