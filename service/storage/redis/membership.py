"""The live nodes over one Redis: a key with a time to live for each, and a set of their ids.

They also share a secret with which they authenticate their requests to each other.
"""

from __future__ import annotations

from redis.asyncio import Redis, RedisCluster

from service.storage.redis.key_names import KeyNames
from service.storage.redis.scripts import RESERVE

__all__ = ["key", "leave", "meet", "time"]

# node, address or '', milliseconds -> id and address of each live node. Atomic: a node that returns while another one
# looks is not removed from the set.
MEET = (
    f"""{RESERVE}"""
    + """
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
)


async def meet(
    redis: Redis | RedisCluster, keys: KeyNames, node: str, address: str | None, seconds: float
) -> dict[str, str]:
    """Implement `SharedStore.meet`, in one round trip."""
    milliseconds = max(1, int(seconds * 1000))
    reply = await redis.eval(MEET, 2, keys.nodes, keys.node, node, "" if address is None else address, milliseconds)
    flat = [part.decode() for part in reply]
    return dict(sorted(zip(flat[::2], flat[1::2], strict=True)))


async def leave(redis: Redis | RedisCluster, keys: KeyNames, node: str) -> None:
    """Implement `SharedStore.leave`."""
    async with redis.pipeline(transaction=False) as pipe:
        pipe.delete(keys.node + node)
        pipe.srem(keys.nodes, node)
        await pipe.execute()


async def time(redis: Redis | RedisCluster, keys: KeyNames) -> float:
    """Implement `SharedStore.time`: by the server that has the keys of the live nodes."""
    seconds, micro = await redis.eval("return redis.call('TIME')", 1, keys.nodes)
    return int(seconds) + int(micro) / 1e6


async def key(redis: Redis | RedisCluster, keys: KeyNames, proposal: bytes) -> bytes:
    """Implement `SharedStore.key`, in one round trip."""
    async with redis.pipeline(transaction=False) as pipe:
        pipe.set(keys.secret, proposal, nx=True)
        pipe.get(keys.secret)
        secret: bytes = (await pipe.execute())[-1]
    return secret
