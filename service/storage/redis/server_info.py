"""What INFO tells of a server before it is entrusted with data: whether it evicts keys or is in a Cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["INFO", "eviction", "refusal"]

INFO = ("INFO",)  # the command

_EVICTS = (
    "this Redis deletes any key when its memory is full (maxmemory-policy {policy}), learners too: "
    "set `maxmemory-policy noeviction` there"
)
_EXPIRES = (
    "this Redis deletes keys with an expiry time when its memory is full (maxmemory-policy {policy}), leases and "
    "addresses of nodes among them: set `maxmemory-policy noeviction` there"
)
_CLUSTER = "this Redis is a node of a Cluster: begin the store's URL with redis+cluster:// (rediss+cluster:// with TLS)"


def refusal(infos: Iterable[Mapping[str, Any]], *, cluster: bool) -> str | None:
    """Return why these servers cannot be the store, or None. `cluster`: the URL names a Cluster."""
    for info in infos:
        if not cluster and info.get("cluster_enabled") == 1:
            return _CLUSTER
        if _policy(info).startswith("allkeys"):
            return _EVICTS.format(policy=_policy(info))
    return None


def eviction(infos: Iterable[Mapping[str, Any]]) -> str | None:
    """Return a warning if one of the servers evicts keys, or None."""
    policies = sorted({_policy(info) for info in infos} - {"", "noeviction"})  # allkeys before volatile
    if not policies:
        return None
    return (_EVICTS if policies[0].startswith("allkeys") else _EXPIRES).format(policy=policies[0])


def _policy(info: Mapping[str, Any]) -> str:
    return str(info.get("maxmemory_policy", ""))
