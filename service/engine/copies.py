"""Clones, exports and imports: a new learner with the state of another, directly or by a file.

A copy has the configuration and the exact state of its source after every record in the source's log. Both digests are
equal. From then on the copy has its own log, which begins with one record of configuration and state: a snapshot at
position 1. The store creates it in one step, so a crash leaves the complete copy or none.

The copied state includes the model, the metrics, the calibration, the learnt ids (they stay duplicates) and the offsets
of the sources. Predictions awaiting a label are not state: they stay with the source, and so do their labels.

The file is a snapshot in the format of the store (`codec.py`): magic, version, checksum, configuration, arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from learners import Config, InvalidInput, Parameters, check_state, required
from service.auth import UNRESTRICTED, Permissions
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
    """The body of a clone request."""

    to: str = required("the new learner's name")


async def clone(
    engine: Engine, source: LearnerReplica, values: object, permissions: Permissions = UNRESTRICTED
) -> LearnerReplica:
    """Create a learner with the state that `source` has after every record in its log; `values`: see `Clone`.

    If it raises `Invalid`, `Forbidden`, `NameTaken`, `LimitReached`, `TooLarge` or a `StoreError`, nothing was created.
    """
    try:
        to = Clone.of(values).to  # type: ignore[arg-type]  # `of` refuses values of other types
    except InvalidInput as error:
        raise Invalid("the clone is refused; nothing was created", error.problems) from None
    check_name(to, "/to")
    permissions.may_make(to)
    engine.check_free(to)  # before the work; `copy` checks again
    snapshot = await _copy_snapshot(source)
    assert isinstance(snapshot.config, Config)
    return await engine.copy(to, snapshot.config, snapshot.state, permissions)


async def export_state(source: LearnerReplica) -> tuple[int, bytes]:
    """Return the position of the source, and its state as a file. O(state); a thread packs it.

    If the log is damaged, the state is that before the first record that cannot be read.
    """
    try:
        snapshot = await _copy_snapshot(source)
    except Damaged:  # from now on nothing moves the state
        snapshot = await _copy_readable(source)
    pack = partial(pack_snapshot, snapshot.position, snapshot.config, snapshot.state)
    return snapshot.position, await source.node.in_thread(pack)


async def import_state(
    engine: Engine, name: str, data: bytes, permissions: Permissions = UNRESTRICTED
) -> LearnerReplica:
    """Create a learner from an exported file.

    Raises `Invalid` with all that is wrong with the name and the file, else as `clone`.
    """
    problems = problems_of(name)
    if not problems:
        engine.check_free(name)
    try:
        snapshot = await engine.node.in_thread(lambda: _check_file(data, permissions))
    except Invalid as error:
        raise Invalid(error.detail, [*problems, *error.problems]) from None
    check_name(name)
    assert isinstance(snapshot.config, Config)
    return await engine.copy(name, snapshot.config, snapshot.state, permissions)


def file_name(name: str, position: int) -> str:
    """Return the name of an exported file; every file system and HTTP header takes its characters."""
    return f"{name}-{position}.rarestream"


def import_limits(settings: Settings) -> Settings:
    """Return the settings for the bodies of imports: one of the largest size at a time, with more time."""
    most = settings.max_import_bytes
    seconds = settings.body_seconds * max(1.0, most / settings.max_body_bytes)
    return settings.model_copy(
        update={"max_body_bytes": most, "max_buffered_bytes": most, "body_seconds": seconds},
    )


async def _copy_snapshot(source: LearnerReplica) -> Snapshot:
    """Copy the state after every record in the log, including those of other nodes."""

    async def run() -> Snapshot:
        await source.log.read_on()
        return await _copy_readable(source)

    return await source.mailbox.run(run)


async def _copy_readable(source: LearnerReplica) -> Snapshot:
    """Copy the state after the records that were applied here."""
    state = source.learner.state()
    copy = await source.node.in_thread(lambda: {name: array.copy() for name, array in state.items()})
    return Snapshot(source.position, source.learner.config, copy)


def _check_file(data: bytes, permissions: Permissions) -> Snapshot:
    """Return the snapshot in a file after checks against the configuration and the permissions. Raises `Invalid`."""
    try:
        snapshot = unpack_snapshot(data, "the file")
        if not isinstance(snapshot.config, Config):
            raise Damaged("the file is the state of a group, not of a learner")
        permissions.check_config(snapshot.config)  # before anything as large is allocated
        check_state(snapshot.config, snapshot.state)
        check_scaling(snapshot.config, snapshot.state)
    except Damaged as error:
        raise _refuse(error.detail) from None
    except InvalidInput as error:
        problems = "; ".join(f"{problem.pointer} {problem.detail}".strip() for problem in error.problems[:3])
        more = f"; and {len(error.problems) - 3} more" if len(error.problems) > 3 else ""
        raise _refuse(f"the state in the file does not fit its configuration: {problems}{more}") from None
    except MemoryError:
        raise _refuse("a learner of this configuration needs more memory than there is") from None
    return snapshot


def _refuse(detail: str) -> Invalid:
    return Invalid(f"{detail}; nothing was created. Expected a file of GET /v1/learners/NAME/export")
