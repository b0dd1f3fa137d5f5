"""Writes and reads MessagePack bodies with the package `msgpack`, which the service does not use."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

__all__ = ["HEADERS", "array", "body", "columns_of", "plain", "unpacked"]

HEADERS = {"content-type": "application/msgpack"}


def array(values: Any, dtype: str) -> dict[str, Any]:
    """An ARRAY."""
    made = np.array(values, dtype=np.dtype(dtype).newbyteorder("<"))
    return {"dtype": dtype, "shape": list(made.shape), "data": made.tobytes()}


def body(members: dict[str, Any]) -> bytes:
    """Encode the members of a body."""
    encoded: bytes = msgpack.packb(members)
    return encoded


def plain(value: Any) -> Any:
    """The same with lists for arrays."""
    if isinstance(value, dict) and value.keys() == {"dtype", "shape", "data"}:
        return np.frombuffer(value["data"], dtype=value["dtype"]).reshape(value["shape"]).tolist()
    return {name: plain(one) for name, one in value.items()} if isinstance(value, dict) else value


def unpacked(reply: Any) -> Any:
    """A reply's members, with lists for arrays."""
    assert reply.headers["content-type"] == "application/msgpack", reply.text
    return plain(msgpack.unpackb(reply.content))


def columns_of(events: list[dict[str, Any]], number: str = "float32") -> dict[str, Any]:
    """The columnar members of events in JSON, which are all of one kind."""
    members: dict[str, Any] = {}
    first = events[0]
    if "x" in first:
        members["x"] = array([one["x"] for one in events], number)
    if "indices" in first:
        ends = np.cumsum([0, *(len(one["indices"]) for one in events)])
        members["csr"] = {
            "indptr": array(ends, "int32"),
            "indices": array([k for one in events for k in one["indices"]], "int32"),
            "values": array([v for one in events for v in one["values"]], number),
        }
    if "features" in first:
        names = dict.fromkeys(name for one in events for name in one["features"])
        members["features"] = {name: [one["features"].get(name) for one in events] for name in names}
    if "label" in first:
        members["labels"] = array([one["label"] for one in events], "int8")
    for name, column in (("weight", "weights"), ("time", "times"), ("id", "ids")):
        if any(one.get(name) is not None for one in events):
            members[column] = [one.get(name) for one in events]
    return members
