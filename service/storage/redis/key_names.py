"""The names of all keys of the Redis store. Each begins with the prefix, so that two services can share one Redis.

The prefix is the option `prefix` of the store's URL, or the setting `store_prefix`; without them it is `rarestream`.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from service.settings import PREFIX

__all__ = [
    "DROPPED",
    "HISTORIES",
    "IDS",
    "KEYS",
    "LABELS",
    "LEASE_KEY",
    "LOG",
    "META",
    "PART",
    "SERVED",
    "SNAPSHOTS",
    "TOKENS",
    "WAITED",
    "KeyNames",
    "prefix_of",
]

DEFAULT_PREFIX = "rarestream"

# What a learner has, each with the name of the learner as hash tag: see `KeyNames.of`.
META = "meta"  # hash: birth, head, trimmed, cut: the token there; served, bytes, expired, evicted, settled; bookmarks
LOG = "log"  # stream: <position>-0, t = token, d = data
TOKENS = "tokens"  # sorted set: the tokens in the log, by position
SNAPSHOTS = "snapshots"  # hash: position -> "<id> <parts> <size> <time>"
SERVED = "served"  # stream: <number>-0, i = id, d = time (a double, little-endian) and data
IDS = "ids"  # hash: id -> number of the served event or tombstone
DROPPED = "dropped"  # list: <number>:<id> of each tombstone, in the order of dropping
LABELS = "labels"  # set: the numbers of served events whose label arrived, as earlier releases noted it
HISTORIES = "histories"  # hash: number of a served event -> the labels that arrived, see `served_labels`
WAITED = "waited"  # written before waiting for an acknowledgement; expires soon
LEASE_KEY = "claim"  # birth and node of the holder of the lease, and the tail: see `leases`
PART = "part:"  # then <id>:<number>: up to SNAPSHOT_PART bytes of a snapshot
KEYS = (META, LOG, TOKENS, SNAPSHOTS, SERVED, IDS, DROPPED, LABELS, HISTORIES)

_TWICE = (
    "the option prefix of the store's URL is {url}, but RARESTREAM_STORE_PREFIX is {setting}: leave out one of them"
)
_MALFORMED = (
    "the prefix of the store's keys is {prefix!r}; expected up to 64 letters, digits, dots, dashes or underscores"
)


class KeyNames:
    """The names of the keys of one service. Its learners' keys share a hash tag: they are in one slot of a Cluster."""

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        self.prefix = prefix
        self.learners = (
            f"{self.prefix}:learners"  # set of <birth in hex>:<name>: every learner, and possibly deleted ones
        )
        self.creating = f"{{{self.learners}}}:creating"  # set of those of `learners` that may have no log yet
        self.listed_waited = f"{{{self.learners}}}:waited"  # as WAITED, in the slot of `learners`
        self.deleted = f"{{{self.learners}}}:deleted"  # sorted set: the births of the last deleted learners, by time
        self.publications = f"{self.prefix}:bell"  # stream: n = node, m = notices (MessagePack)
        # The hash tag keeps these three in one slot. They differ from the keys of every learner.
        self.nodes = f"{self.prefix}:nodes:{{nodes}}"  # set of the ids; some nodes may be dead
        self.node = f"{self.prefix}:node:{{nodes}}:"  # then the id: the node's address
        self.secret = f"{self.nodes}:key"  # with which nodes sign their requests to each other

    def of(self, learner: str, part: str) -> str:
        """Return the key of a part of a learner."""
        return f"{self.prefix}:{{{quote(learner, safe='')}}}:{part}"


def prefix_of(option: str | None, setting: str | None) -> str:
    """Return the prefix that the option of the URL, the setting, or neither names. Raises `ValueError`."""
    if option is not None and setting not in (None, option):
        raise ValueError(_TWICE.format(url=option, setting=setting))
    prefix = option if option is not None else setting if setting is not None else DEFAULT_PREFIX
    if not re.fullmatch(PREFIX, prefix):
        raise ValueError(_MALFORMED.format(prefix=prefix))
    return prefix
