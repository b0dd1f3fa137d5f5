"""The Redis store: standalone, Sentinel or Cluster. Start with `redis_store`."""

from service.storage.redis.redis_store import RedisStore
from service.storage.redis.topology import Servers, servers_of

__all__ = ["RedisStore", "Servers", "servers_of"]
