"""A roll-back to a retained snapshot: the record of it, which holds the whole state that every node goes on from."""

from __future__ import annotations

from learners import CHANGEABLE, Config, InvalidInput, Rollback, check_state
from service.engine.node import Node
from service.engine.records import check_scaling, unpack_snapshot
from service.errors import Damaged, UnknownSnapshot

__all__ = ["roll_back"]


async def roll_back(node: Node, name: str, birth: bytes, config: Config, position: int) -> Rollback:
    """The record that takes a learner of this configuration back to its snapshot at a position.

    Nothing may fail once it is in the log: raises `UnknownSnapshot`, or `Damaged` where the snapshot is not one of this
    learner, or no state. O(state).
    """
    found = await node.reached(node.store.load(name, birth, position))
    if found is None:
        raise UnknownSnapshot(f"{name} has no snapshot at position {position}")
    what = f"snapshot {position} of {name}"
    snapshot = await node.in_thread(lambda: unpack_snapshot(found[1], what))
    then = snapshot.config
    if not isinstance(then, Config) or then.immutable_part != config.immutable_part:
        raise Damaged(f"{what} is of another configuration")
    parts = {part: then.to_json()[part] for part in CHANGEABLE if getattr(then, part) is not None}
    try:
        await node.in_thread(lambda: check_state(then, snapshot.state))
        check_scaling(then, snapshot.state)
    except InvalidInput as error:
        raise Damaged(f"{what} does not fit its configuration: {error}") from error
    return Rollback(snapshot.position, snapshot.state, parts)
