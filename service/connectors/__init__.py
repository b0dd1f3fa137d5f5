"""Topics of Kafka and Redis streams as events. Start with `run`."""

from service.connectors.base import Feed
from service.connectors.kafka import KafkaFeed, Security
from service.connectors.partition import Plan, Start
from service.connectors.redis_streams import RedisFeed, number_of
from service.connectors.run import consume

__all__ = ["Feed", "KafkaFeed", "Plan", "RedisFeed", "Security", "Start", "consume", "number_of"]
