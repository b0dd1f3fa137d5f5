"""`rarestream snapshot`, `snapshots`, `restore`, `clone`, `export`, `import`, `delete`: a learner as a whole."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.format import format_bytes
from service.cli.options import flag
from service.cli.options_service import (
    DEFAULT_URL,
    AsJson,
    Key,
    Name,
    Url,
    connected,
    console,
    plain_table,
    print_json,
    reporting,
    snapshot_positions,
)
from service.exits import CommandFailed, ExitStatus, WrongUsage
from service.text import counted

__all__ = ["clone", "delete", "export", "import_state", "restore", "snapshot", "snapshots"]

_PIECE = 2**20  # bytes of a file that are read at once
_DASH = "-"
_BEGINNING = b"rare"  # of what `export` writes (`service/engine/records/codec.py`)

Yes = Annotated[bool, flag("--yes", "-y", help="Do not ask.")]
NewName = Annotated[str, typer.Argument(help="The new learner's name.")]


def snapshot(name: Name, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """Save the state of a learner now, so that `restore` can go back to it.

    The newest few are kept (RARESTREAM_SNAPSHOTS_KEPT of the service), those
    among them that it takes by itself: `export` saves a state for good.
    """
    with reporting(), connected(url, key) as client:
        taken = client.learner(name).snapshot()
        if as_json:
            print_json(taken)
        else:
            print(f"{name} has a snapshot at position {taken['position']:,} ({format_bytes(taken['size'])})")


def snapshots(name: Name, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """List the snapshots that are kept of a learner, newest first."""
    with reporting(), connected(url, key) as client:
        stored = client.learner(name).snapshots()["snapshots"]
        if as_json:
            print_json({"snapshots": stored})
            return
        if not stored:
            print(f"{name} has no snapshot yet; `rarestream snapshot {name}` takes one")
            return
        table = plain_table("position", "size", "taken", right=3)
        for one in stored:
            taken = datetime.fromtimestamp(one["time"]).astimezone().isoformat(" ", "seconds")
            table.add_row(str(one["position"]), format_bytes(one["size"]), taken)
        console().print(table)


def restore(
    name: Name,
    position: Annotated[
        int,
        typer.Argument(min=1, help="Of the snapshot; see `rarestream snapshots`.", autocompletion=snapshot_positions),
    ],
    yes: Yes = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Roll a learner back to a snapshot: what was learnt after it is undone.

    Asks on a terminal; elsewhere --yes is needed. The roll-back stands in the
    learner's log. Take a snapshot before it, and that can be restored again.
    """
    with reporting(), connected(url, key) as client:

        def question() -> str:
            at = client.learner(name).describe()["position"]
            return f"Roll {name} back from position {at:,} to {position:,}? What was learnt after it is undone"

        _confirmed(yes, question, "it undoes what was learnt after the snapshot", "nothing was rolled back")
        done = client.learner(name).restore(position)
        if as_json:
            print_json({"learner": name, "restored": position, **done})
        else:
            print(f"{name} goes on from the snapshot at position {position:,}; that stands at {done['position']:,}")


def clone(name: Name, to: NewName, as_json: AsJson = False, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """Make another learner of the same configuration and state, which then goes its own way.

    Events that wait for their labels stay with the first: labels by id go
    to the learner that scored the event.
    """
    with reporting(), connected(url, key) as client:
        made = client.learner(name).clone(to)
        if as_json:
            print_json(made)
        else:
            print(f"{to} is created as a copy of {name}: {counted(made['events'], 'event')} learnt")


def delete(
    name: Name,
    yes: Yes = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Delete a learner, with its log and its snapshots. Asks on a terminal; elsewhere --yes is needed."""
    with reporting(), connected(url, key) as client:

        def question() -> str:
            events = client.learner(name).describe()["events"]
            return f"Delete {name}, which has learnt {counted(events, 'event')}? It cannot be brought back"

        _confirmed(yes, question, "it deletes the learner for good, its log and snapshots too", "nothing was deleted")
        client.delete(name)
        if as_json:
            print_json({"deleted": name})
        else:
            print(f"{name} is deleted")


def export(
    name: Name,
    file: Annotated[
        Path, typer.Argument(help="Where to; - is standard output, without --json. A folder: the usual name in it.")
    ],
    force: Annotated[bool, flag("--force", "-f", help="Replace a file that is there.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Save the configuration and state of a learner to a file, which `import` makes a learner of, on any server.

    The file appears when it is complete: there is never half of one.
    """
    with reporting(), connected(url, key) as client:
        if str(file) == _DASH:
            if as_json:
                reason = "does not go with -, by which the state itself goes to standard output: name a file"
                raise typer.BadParameter(reason, param_hint="--json")
            if sys.stdout.isatty():
                raise WrongUsage("the state is bytes, and no text for a terminal: name a file, or send it on by a pipe")
            client.learner(name).export(sys.stdout.buffer.write)
            sys.stdout.buffer.flush()
            return
        path = file / f"{name}.rarestream" if file.is_dir() else file
        if path.exists() and not force:
            raise WrongUsage(f"{path} is there already; --force replaces it")
        written = 0

        def fill(take: Any) -> None:
            nonlocal written
            written = client.learner(name).export(take)

        _whole(path, fill)
        if as_json:
            print_json({"learner": name, "file": str(path), "bytes": written})
        else:
            print(f"{name} is saved to {path} ({format_bytes(written)})")


def import_state(
    file: Annotated[Path, typer.Argument(help="What `export` wrote; - is standard input.")],
    name: NewName,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Make a learner of an exported state. Nothing is created of a file that is damaged or not ours."""
    with reporting(), connected(url, key) as client:
        if str(file) == _DASH and sys.stdin.isatty():
            raise WrongUsage("standard input is a terminal: name a file, or send one to it")
        made = client.import_learner(name, _exported(file))
        if as_json:
            print_json(made)
        else:
            print(f"{name} is created from {file}: {counted(made['events'], 'event')} learnt")


def _confirmed(yes: bool, question: Callable[[], str], why: str, otherwise: str) -> None:
    """Go on where it was said so beforehand, or is said now. Where nobody can be asked, that is wrong usage."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"is needed where nobody can be asked: {why}", param_hint="--yes")
    if not typer.confirm(question(), err=True):
        print(otherwise, file=sys.stderr)
        raise typer.Exit(ExitStatus.FAILED)


def _exported(file: Path) -> Iterator[bytes]:
    """The pieces of a file that `export` wrote, by its beginning: the service reads the rest."""
    pieces = _pieces(file)
    first = next(pieces, b"")
    if not first.startswith(_BEGINNING):
        what = "standard input" if str(file) == _DASH else file
        raise WrongUsage(f"{what}: not what `rarestream export` writes; nothing was sent")
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


def _whole(path: Path, fill: Any) -> None:
    """Write a file by `fill`, which is handed its `write`; it gets its name, and replaces another, when it is whole."""
    try:
        handle, made = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise WrongUsage(f"{path}: {error.strerror or error}") from None
    part = Path(made)
    try:
        with os.fdopen(handle, "wb") as stream:
            fill(stream.write)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        part.chmod(0o666 & ~mask)  # as of any file; a temporary one is for its owner only
        part.replace(path)
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror or error}") from None
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
