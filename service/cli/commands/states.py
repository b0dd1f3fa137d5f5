"""`rarestream snapshot`, `snapshots`, `restore`, `clone`, `export`, `import`, `delete`: operations on a learner."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.format import format_bytes
from service.cli.options import flag
from service.cli.options_service import (
    DEFAULT_URL,
    AsJson,
    Key,
    Name,
    Url,
    Yes,
    confirm,
    connected,
    console,
    plain_table,
    print_json,
    reporting,
    snapshot_positions,
)
from service.exits import CommandFailed, WrongUsage
from service.text import counted

if TYPE_CHECKING:
    from rarestream import RemoteLearner

__all__ = ["clone", "delete", "export", "import_state", "restore", "snapshot", "snapshots"]

_PIECE = 2**20  # bytes of a file per read
_DASH = "-"
_BEGINNING = b"rare"  # of an exported file (`service/engine/records/codec.py`)

NewName = Annotated[str, typer.Argument(help="Name of the new learner.")]


def snapshot(name: Name, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """Save the state of a learner now, so that `restore` can go back to it.

    The service keeps only the newest few (RARESTREAM_SNAPSHOTS_KEPT),
    including its own snapshots. Use `export` to keep a state for good.
    """
    with reporting(), connected(url, key) as client:
        info = client.learner(name).snapshot()
        if as_json:
            print_json(info)
        else:
            print(f"{name} has a snapshot at position {info['position']:,} ({format_bytes(info['size'])})")


def snapshots(name: Name, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """List the stored snapshots of a learner, newest first."""
    with reporting(), connected(url, key) as client:
        stored = client.learner(name).snapshots()["snapshots"]
        if as_json:
            print_json({"snapshots": stored})
            return
        if not stored:
            print(f"{name} has no snapshot yet; `rarestream snapshot {name}` takes one")
            return
        table = plain_table("position", "size", "taken", right=3)
        for info in stored:
            time = datetime.fromtimestamp(info["time"]).astimezone().isoformat(" ", "seconds")
            table.add_row(str(info["position"]), format_bytes(info["size"]), time)
        console().print(table)


def restore(
    name: Name,
    position: Annotated[
        int,
        typer.Argument(
            min=1, help="Position of the snapshot; see `rarestream snapshots`.", autocompletion=snapshot_positions
        ),
    ],
    yes: Yes = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Roll a learner back to a snapshot: everything learnt after it is undone.

    It asks on a terminal; elsewhere --yes is required. The roll-back is a
    record of the log. To be able to undo it, take a snapshot before.
    """
    with reporting(), connected(url, key) as client:

        def question() -> str:
            at = client.learner(name).describe()["position"]
            return f"Roll {name} back from position {at:,} to {position:,}? Everything learnt after it is undone"

        confirm(yes, question, "it undoes everything learnt after the snapshot", "nothing was rolled back")
        result = client.learner(name).restore(position)
        if as_json:
            print_json({"learner": name, "restored": position, **result})
        else:
            print(
                f"{name} is restored to the snapshot at position {position:,}; "
                f"the roll-back is at position {result['position']:,}"
            )


def clone(name: Name, to: NewName, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """Create an independent learner with the same configuration and state.

    Scored events that await their labels stay with the original. Send their
    labels there.
    """
    with reporting(), connected(url, key) as client:
        document = client.learner(name).clone(to)
        if as_json:
            print_json(document)
        else:
            print(f"{to} is created as a copy of {name}: {counted(document['events'], 'event')} learnt")


def delete(
    name: Name,
    yes: Yes = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Delete a learner, its log and its snapshots. It asks on a terminal; elsewhere --yes is required."""
    with reporting(), connected(url, key) as client:

        def question() -> str:
            events = client.learner(name).describe()["events"]
            return f"Delete {name}, which has learnt {counted(events, 'event')}? This cannot be undone"

        confirm(yes, question, "it deletes the learner, its log and its snapshots for good", "nothing was deleted")
        client.delete(name)
        if as_json:
            print_json({"deleted": name})
        else:
            print(f"{name} is deleted")


def export(
    name: Name,
    file: Annotated[Path, typer.Argument(help="File, folder, or - for standard output (without --json).")],
    force: Annotated[bool, flag("--force", "-f", help="Replace an existing file.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Save the configuration and state of a learner to a file, for `import` on any server.

    The file appears only when it is complete. If a record of the learner's
    log is damaged, it has the state before that record.
    """
    with reporting(), connected(url, key) as client:
        if str(file) == _DASH:
            if as_json:
                reason = "does not go with -, which writes the state to standard output: name a file"
                raise typer.BadParameter(reason, param_hint="--json")
            if sys.stdout.isatty():
                raise WrongUsage("the state is binary: name a file, or pipe it to a program")
            client.learner(name).export(sys.stdout.buffer.write)
            sys.stdout.buffer.flush()
            _warn_of_failure(client.learner(name))
            return
        path = file / f"{name}.rarestream" if file.is_dir() else file
        if path.exists() and not force:
            raise WrongUsage(f"{path} exists already; --force replaces it")
        written = 0

        def fill(take: Any) -> None:
            nonlocal written
            written = client.learner(name).export(take)

        _write_atomically(path, fill)
        _warn_of_failure(client.learner(name))
        if as_json:
            print_json({"learner": name, "file": str(path), "bytes": written})
        else:
            print(f"{name} is saved to {path} ({format_bytes(written)})")


def _warn_of_failure(learner: RemoteLearner) -> None:
    if (failed := learner.describe()["failed"]) is not None:
        console(stderr=True).print(f"warning: {learner.name} has failed ({failed}): the file has the state before that")


def import_state(
    file: Annotated[Path, typer.Argument(help="Exported file; - is standard input.")],
    name: NewName,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Create a learner from an exported file. A damaged or foreign file creates nothing."""
    with reporting(), connected(url, key) as client:
        if str(file) == _DASH and sys.stdin.isatty():
            raise WrongUsage("standard input is a terminal: name a file, or pipe one")
        document = client.import_learner(name, _read_export(file))
        if as_json:
            print_json(document)
        else:
            print(f"{name} is created from {file}: {counted(document['events'], 'event')} learnt")


def _read_export(file: Path) -> Iterator[bytes]:
    """Yield the pieces of an exported file after a check of its beginning; the service checks the rest."""
    pieces = _pieces(file)
    first = next(pieces, b"")
    if not first.startswith(_BEGINNING):
        what = "standard input" if str(file) == _DASH else file
        raise WrongUsage(f"{what} is no file of `rarestream export`; nothing was sent")
    return chain([first], pieces)


def _pieces(file: Path) -> Iterator[bytes]:
    if str(file) == _DASH:
        while piece := sys.stdin.buffer.read(_PIECE):
            yield piece
        return
    try:
        with file.open("rb") as stream:
            while piece := stream.read(_PIECE):
                yield piece
    except OSError as error:
        raise WrongUsage(f"{file}: {error.strerror or error}") from None


def _write_atomically(path: Path, fill: Any) -> None:
    """Write a file by `fill(write)`; it gets its name, and replaces another, when it is complete."""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise WrongUsage(f"{path}: {error.strerror or error}") from None
    part = Path(temporary)
    try:
        with os.fdopen(handle, "wb") as stream:
            fill(stream.write)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        part.chmod(0o666 & ~mask)  # as for any file; a temporary one is private
        part.replace(path)
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror or error}") from None
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
