"""Kafka topics and Redis streams as sources of events. Start with `consumer`."""

from service.connectors.consumer import consume
from service.connectors.feed import Feed
from service.connectors.kafka import KafkaFeed, Security
from service.connectors.partition import ConsumePlan, Start
from service.connectors.redis_streams import RedisFeed, offset_of

__all__ = ["ConsumePlan", "Feed", "KafkaFeed", "RedisFeed", "Security", "Start", "consume", "offset_of"]
