"""Writes and reads MessagePack bodies with the package `msgpack`, which the service does not use."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

__all__ = ["HEADERS", "array", "body", "columns_of", "plain", "unpacked"]

HEADERS = {"content-type": "application/msgpack"}


def array(values: Any, dtype: str) -> dict[str, Any]:
    """Return an array in the MessagePack form of the interface."""
    packed = np.array(values, dtype=np.dtype(dtype).newbyteorder("<"))
    return {"dtype": dtype, "shape": list(packed.shape), "data": packed.tobytes()}


def body(members: dict[str, Any]) -> bytes:
    """Encode the members of a body."""
    encoded: bytes = msgpack.packb(members)
    return encoded


def plain(value: Any) -> Any:
    """Replace arrays by lists, at any depth."""
    if isinstance(value, dict) and value.keys() == {"dtype", "shape", "data"}:
        return np.frombuffer(value["data"], dtype=value["dtype"]).reshape(value["shape"]).tolist()
    return {name: plain(item) for name, item in value.items()} if isinstance(value, dict) else value


def unpacked(reply: Any) -> Any:
    """Decode a reply, with lists for arrays."""
    assert reply.headers["content-type"] == "application/msgpack", reply.text
    return plain(msgpack.unpackb(reply.content))


def columns_of(events: list[dict[str, Any]], number: str = "float32") -> dict[str, Any]:
    """Return JSON events, all of one kind, as columns."""
    members: dict[str, Any] = {}
    first = events[0]
    if "x" in first:
        members["x"] = array([event["x"] for event in events], number)
    if "indices" in first:
        ends = np.cumsum([0, *(len(item["indices"]) for item in events)])
        members["csr"] = {
            "indptr": array(ends, "int32"),
            "indices": array([k for item in events for k in item["indices"]], "int32"),
            "values": array([v for item in events for v in item["values"]], number),
        }
    if "features" in first:
        names = dict.fromkeys(name for item in events for name in item["features"])
        members["features"] = {name: [item["features"].get(name) for item in events] for name in names}
    if "label" in first:
        members["labels"] = array([item["label"] for item in events], "int8")
    for name, column in (("weight", "weights"), ("time", "times"), ("id", "ids")):
        if any(item.get(name) is not None for item in events):
            members[column] = [item.get(name) for item in events]
    return members
