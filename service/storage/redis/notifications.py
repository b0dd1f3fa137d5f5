"""How nodes notify each other over Redis.

Publications are one stream for all learners, in its own slot, of about a thousand entries: the node and its notices.
The stream is in the append-only file like everything else, but nothing relies on it: a node that misses something finds
it when it next looks at all heads. If a node's cursor is no longer in the stream, because the stream was trimmed,
flushed or belongs to another server, the node learns that any log may have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from redis.asyncio import Redis, RedisCluster

from service.storage.redis.key_names import KeyNames
from service.storage.redis.topology import Servers
from service.storage.store_protocol import NOTICES, LogNotice, merge_notices

__all__ = ["LISTEN_SECONDS", "poll", "publish"]

LISTEN_SECONDS = 10.0  # longest blocked read: a connection that died unnoticed is detected soon after

_START = b"0-0"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, LogNotice]).decode


async def publish(redis: Redis | RedisCluster, keys: KeyNames, node: bytes, moved: Mapping[str, LogNotice]) -> None:
    """Add an entry to the stream."""
    await redis.xadd(keys.publications, {"n": node, "m": _encode(moved)}, maxlen=NOTICES, approximate=True)


async def poll(
    servers: Servers, keys: KeyNames, node: bytes, after: bytes, seconds: float
) -> tuple[bytes, dict[str, LogNotice] | None]:
    """Implement `Store.poll`. Needs `servers` of its own, with a reply time-out above `LISTEN_SECONDS`."""
    if not after:
        newest: Any = await servers.client.xrevrange(keys.publications, count=1)
        return (newest[0][0] if newest else _START), None
    block = max(1, int(1000 * min(seconds, LISTEN_SECONDS)))  # 0 would be forever
    streams, place = await servers.together(
        keys.publications,
        ("XREAD", "BLOCK", block, "STREAMS", keys.publications, after),
        ("XRANGE", keys.publications, after, after),  # runs after the read
    )
    for reply in (streams, place):
        if isinstance(reply, Exception):
            raise reply
    entries = streams[0][1] if streams else []
    last: bytes = entries[-1][0] if entries else after
    gap = len(entries) >= NOTICES if after == _START else not place  # a full stream may have been trimmed
    if gap:
        return (last if entries else b""), None
    try:
        return last, merge_notices(_decode(fields[b"m"]) for _, fields in entries if fields[b"n"] != node)
    except (msgspec.MsgspecError, KeyError):  # written by another release or program
        return last, None
