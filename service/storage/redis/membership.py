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

# node, address or '', milliseconds -> id and address of each that is alive. At once: a node that comes back while
# another looks is not taken from the set.
MEET = """
if ARGV[2] ~= '' then
  redis.call('SET', KEYS[2] .. ARGV[1], ARGV[2], 'PX', ARGV[3])
  redis.call('SADD', KEYS[1], ARGV[1])
end
local alive = {}
for _, id in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local address = redis.call('GET', KEYS[2] .. id)
  if address then
    alive[#alive + 1] = id
    alive[#alive + 1] = address
  else
    redis.call('SREM', KEYS[1], id)
  end
end
return alive
"""


async def meet(redis: Redis | RedisCluster, node: str, address: str | None, seconds: float) -> dict[str, str]:
    """See `SharedStore.meet`. One round trip."""
    milliseconds = max(1, int(seconds * 1000))
    found = await redis.eval(MEET, 2, IDS, NODE, node, "" if address is None else address, milliseconds)
    flat = [part.decode() for part in found]
    return dict(sorted(zip(flat[::2], flat[1::2], strict=True)))


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
