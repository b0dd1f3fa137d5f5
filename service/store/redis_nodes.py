"""Which nodes over one Redis are alive: a key of each, with a time to live, and a set of their ids.

And what they have in common: the key by which they know each other's requests.
"""

from __future__ import annotations

from redis.asyncio import Redis, RedisCluster

__all__ = ["key", "leave", "meet"]

# The hash tag keeps them in one slot of a Cluster. No key of a learner begins like these, whatever its name.
IDS = "rarestream:nodes:{nodes}"  # set of the ids; some may be gone
NODE = "rarestream:node:{nodes}:"  # then the id: the node's address
KEY = "rarestream:nodes:{nodes}:key"  # what nodes mark their requests to each other with


async def meet(redis: Redis | RedisCluster, node: str, address: str | None, seconds: float) -> dict[str, str]:
    """See `SharedStore.meet`. Two round trips, and one more where a node is gone."""
    async with redis.pipeline(transaction=False) as pipe:
        if address is not None:
            pipe.set(NODE + node, address, px=max(1, int(seconds * 1000)))
            pipe.sadd(IDS, node)
        pipe.smembers(IDS)
        members = (await pipe.execute())[-1]
    ids = sorted(member.decode() for member in members)
    found = await redis.mget([NODE + id for id in ids]) if ids else []
    alive = {id: told.decode() for id, told in zip(ids, found, strict=True) if isinstance(told, bytes)}
    if gone := [id for id in ids if id not in alive]:
        await redis.srem(IDS, *gone)
    return alive


async def leave(redis: Redis | RedisCluster, node: str) -> None:
    """See `SharedStore.leave`."""
    async with redis.pipeline(transaction=False) as pipe:
        pipe.delete(NODE + node)
        pipe.srem(IDS, node)
        await pipe.execute()


async def key(redis: Redis | RedisCluster, known: bytes) -> bytes:
    """See `SharedStore.key`. One round trip."""
    async with redis.pipeline(transaction=False) as pipe:
        pipe.set(KEY, known, nx=True)
        pipe.get(KEY)
        found: bytes = (await pipe.execute())[-1]
    return found
