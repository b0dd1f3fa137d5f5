"""What the Redis store does so that nodes hear of each other: the bell, and claims.

The bell is one stream for all learners, in a slot of its own, of some thousand entries: who rang, and what had moved.
It is in the append-only file like everything else, but nothing relies on it: a node that misses something finds it when
it next looks at all heads. Where the place that a node has heard up to is not in the stream any more, because it was
trimmed, flushed or is another server's, the node is told that anything may have moved.

A claim is a key that vanishes by itself. Its value begins with the learner's birth, so that one created anew is free.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from redis.asyncio import Redis, RedisCluster

from service.storage.redis.scripts import Script
from service.storage.redis.topology import Servers
from service.storage.store_protocol import NOTICES, LogNotice, together

__all__ = ["BELL", "CLAIM", "CLAIMED", "LISTEN_SECONDS", "listen", "ring"]

BELL = "rarestream:bell"  # stream: n = node, m = what moved (MessagePack)
CLAIMED = "rarestream:{}:claim"  # {} as in `redis.KEYS`; birth and node of the one that takes snapshots
LISTEN_SECONDS = 10.0  # of one blocked read at most: a connection that died unnoticed is found out soon after

_START = b"0-0"

# keys: meta, claim; birth, node, milliseconds -> 1 where the claim is this node's, else 0
CLAIM = Script("""
if redis.call('HGET', KEYS[1], 'birth') ~= ARGV[1] then return false end
local own, holder = ARGV[1] .. ARGV[2], redis.call('GET', KEYS[2])
if holder and holder ~= own and string.sub(holder, 1, #ARGV[1]) == ARGV[1] then return 0 end
if tonumber(ARGV[3]) > 0 then
  redis.call('SET', KEYS[2], own, 'PX', ARGV[3])
elseif holder then
  redis.call('DEL', KEYS[2])
end
return 1
""")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, LogNotice]).decode


async def ring(redis: Redis | RedisCluster, node: bytes, moved: Mapping[str, LogNotice]) -> None:
    """One more entry."""
    await redis.xadd(BELL, {"n": node, "m": _encode(moved)}, maxlen=NOTICES, approximate=True)


async def listen(
    servers: Servers, node: bytes, after: bytes, seconds: float
) -> tuple[bytes, dict[str, LogNotice] | None]:
    """See `Store.rung`; of `servers` nobody else waits for the connections, and they have time for `LISTEN_SECONDS`."""
    if not after:
        newest: Any = await servers.client.xrevrange(BELL, count=1)
        return (newest[0][0] if newest else _START), None
    block = max(1, int(1000 * min(seconds, LISTEN_SECONDS)))  # 0 would be forever
    streams, place = await servers.together(
        BELL,
        ("XREAD", "BLOCK", block, "STREAMS", BELL, after),
        ("XRANGE", BELL, after, after),  # carried out when the read is over
    )
    for reply in (streams, place):
        if isinstance(reply, Exception):
            raise reply
    entries = streams[0][1] if streams else []
    last: bytes = entries[-1][0] if entries else after
    lost = len(entries) >= NOTICES if after == _START else not place  # so many are kept, if there were as many
    if lost:
        return (last if entries else b""), None
    try:
        return last, together(_decode(fields[b"m"]) for _, fields in entries if fields[b"n"] != node)
    except (msgspec.MsgspecError, KeyError):  # of another release, or another program
        return last, None
