"""Copies of a learner: another one of the same state, and a state as a file that makes one elsewhere.

A copy has the configuration and the exact state of its source after everything that was in the source's log: an equal
digest. From there on it goes its own way, with its own log. That log begins with one record that holds configuration
and state together, a snapshot at position 1. So the store creates it in one step: whatever is killed when, the copy is
there whole, or not at all.

What is state goes along: the model, the figures, the calibration, the ids that were learnt (they stay duplicates), how
far each source has come. Served events that wait for their labels are not state: they stay with the source, and so do
labels that come for them.

The file is a snapshot as the store has them (`codec.py`): magic, version, checksum, configuration, arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

from learners import Config, InvalidInput, Parameters, check_state, required
from service.auth import FREE, Grant
from service.engine.engine import Engine
from service.engine.records import Snapshot, check_scaling, pack_snapshot, unpack_snapshot
from service.engine.replica import LearnerReplica
from service.errors import Damaged, Invalid
from service.names import check_name, problems_of
from service.settings import Settings

__all__ = ["MEDIA_TYPE", "Clone", "clone", "export_state", "file_name", "import_limits", "import_state"]

MEDIA_TYPE = "application/octet-stream"


@dataclass(frozen=True)
class Clone(Parameters):
    """What the body of a clone says."""

    to: str = required("the new learner's name")


async def clone(engine: Engine, source: LearnerReplica, values: object, grant: Grant = FREE) -> LearnerReplica:
    """Make a learner of the state that `source` has after everything in its log; `values`: see `Clone`.

    Raises `Invalid`, `Forbidden`, `NameTaken`, `LimitReached`, `TooLarge` or a `StoreError`, and then there is no new
    learner.
    """
    try:
        to = Clone.of(values).to  # type: ignore[arg-type]  # what is no mapping is refused there
    except InvalidInput as error:
        raise Invalid("the clone is refused; nothing was created", error.problems) from None
    check_name(to, "/to")
    grant.may_make(to)
    engine.check_free(to)  # before all the work; again when it is done
    found = await _copied(source)
    assert isinstance(found.config, Config)
    return await engine.copy(to, found.config, found.state, grant)


async def export_state(source: LearnerReplica) -> tuple[int, bytes]:
    """The position that is reached, and the state there as a file. O(state); packed by a thread."""
    found = await _copied(source)
    return found.position, await source.node.in_thread(lambda: pack_snapshot(found.position, found.config, found.state))


async def import_state(engine: Engine, name: str, data: bytes, grant: Grant = FREE) -> LearnerReplica:
    """Make a learner of what `exported` gave. Raises `Invalid` for anything else, of the name and the file at once, and
    as `clone`."""
    wrong = problems_of(name)
    if not wrong:
        engine.check_free(name)
    try:
        found = await engine.node.in_thread(lambda: _checked(data, grant))
    except Invalid as error:
        raise Invalid(error.detail, [*wrong, *error.problems]) from None
    check_name(name)
    assert isinstance(found.config, Config)
    return await engine.copy(name, found.config, found.state, grant)


def file_name(name: str, position: int) -> str:
    """What an exported file is called: of characters that every system, and a header, takes as they are."""
    return f"{name}-{position}.rarestream"


def import_limits(settings: Settings) -> Settings:
    """The settings as they hold for the bodies of imports: one of the largest size at a time, in as much more time."""
    most = settings.max_import_bytes
    seconds = settings.body_seconds * max(1.0, most / settings.max_body_bytes)
    return settings.model_copy(
        update={"max_body_bytes": most, "max_buffered_bytes": most, "body_seconds": seconds},
    )


async def _copied(source: LearnerReplica) -> Snapshot:
    """A copy of the state after everything that is in the log by now, other nodes' records included."""
    found: list[Snapshot] = []

    async def run() -> None:
        await source.log.read_on()
        state = source.learner.state()
        copy = await source.node.in_thread(lambda: {name: array.copy() for name, array in state.items()})
        found.append(Snapshot(source.position, source.learner.config, copy))

    await source.mailbox.run(run)
    return found[0]


def _checked(data: bytes, grant: Grant) -> Snapshot:
    """The snapshot in a file, which is known to make a learner that may be made. Raises `Invalid`."""
    try:
        found = unpack_snapshot(data, "the file")
        if not isinstance(found.config, Config):
            raise Damaged("the file is the state of a group, not of a learner")
        grant.check_config(found.config)  # before anything as large is made
        check_state(found.config, found.state)
        check_scaling(found.config, found.state)
    except Damaged as error:
        raise _refused(error.detail) from None
    except InvalidInput as error:
        said = "; ".join(f"{one.pointer} {one.detail}".strip() for one in error.problems[:3])
        more = f"; and {len(error.problems) - 3} more" if len(error.problems) > 3 else ""
        raise _refused(f"the state in the file does not fit its configuration: {said}{more}") from None
    except MemoryError:
        raise _refused("a learner of this configuration needs more memory than there is") from None
    return found


def _refused(detail: str) -> Invalid:
    return Invalid(f"{detail}; nothing was created. Expected what GET /v1/learners/NAME/export gave")
