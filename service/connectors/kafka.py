"""Topics of Kafka, by aiokafka. Partitions are assigned by hand: what has been read is for the learner to say.

The group's committed offsets are where scoring goes on, and what tools show as the consumer's lag.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from service.connectors.connection_errors import reason_of
from service.connectors.feed import Document, FeedError, Message, OffsetRange, Output, Removed

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

__all__ = ["KafkaFeed", "KafkaPartition", "Security"]

_LOOK_SECONDS = 60.0  # from one look for new partitions to the next
_MISSING = "Kafka needs a package that is not installed: pip install '.[kafka]' in the clone"


@dataclass(frozen=True)
class Security:
    """How to connect. The password is in no message."""

    tls: bool = False
    ca: Path | None = None  # file of certificates; None: the system's
    certificate: Path | None = None  # file of the client's own
    key: Path | None = None  # file of its private key
    username: str | None = None  # of SASL; None: none
    password: str | None = field(default=None, repr=False)
    mechanism: str = "SCRAM-SHA-512"

    def options(self) -> Document:
        """For aiokafka. Raises `FeedError` where a file cannot be read."""
        protocol = ("SASL_" if self.username is not None else "") + ("SSL" if self.tls else "PLAINTEXT")
        found: Document = {"security_protocol": protocol}
        if self.tls:
            try:
                found["ssl_context"] = ssl.create_default_context(cafile=self.ca)
                if self.certificate is not None:
                    found["ssl_context"].load_cert_chain(self.certificate, self.key)
            except OSError as error:  # ssl.SSLError is one
                files = [str(name) for name in (self.ca, self.certificate, self.key) if name is not None]
                raise FeedError(f"{', '.join(files)}: {error.strerror or error}") from None
        if self.username is not None:
            found |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password or "",
            }
        return found


class KafkaFeed:
    """Partitions of one topic: those named, or all that it has when it is opened."""

    def __init__(
        self, servers: str, topic: str, wanted: Sequence[int], group: str, prefix: str, security: Security
    ) -> None:
        self.partitions: list[KafkaPartition] = []
        self._servers = servers
        self._topic = topic
        self._wanted = wanted
        self._group = group
        self._prefix = prefix
        self._security = security
        self._consumer: AIOKafkaConsumer
        self._producer: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()  # partitions write side by side

    async def __aenter__(self) -> Self:
        try:
            from aiokafka import AIOKafkaConsumer, TopicPartition
        except ModuleNotFoundError:
            raise FeedError(_MISSING) from None
        self._options = {"bootstrap_servers": self._servers, "client_id": "rarestream", **self._security.options()}
        self._consumer = AIOKafkaConsumer(
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="none",  # an offset that is gone is told, not passed over
            isolation_level="read_committed",
            metadata_max_age_ms=int(_LOOK_SECONDS * 1000),
            **self._options,
        )
        try:
            async with told(f"kafka://{self._servers}"):
                await _started(self._consumer)
                await self._consumer.topics()
                there = self._consumer.partitions_for_topic(self._topic) or set()
            if not there:
                raise FeedError(f"kafka://{self._servers} has no topic {self._topic}")
            if missing := set(self._wanted) - there:
                raise FeedError(f"topic {self._topic} has the partitions {_listed(there)}, not {_listed(missing)}")
            chosen = [TopicPartition(self._topic, one) for one in sorted(set(self._wanted) or there)]
            self._consumer.assign(chosen)
        except BaseException:
            await self._consumer.stop()
            raise
        self.partitions = [KafkaPartition(self._consumer, one, self._prefix) for one in chosen]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._producer is not None:
            await self._producer.stop()
        await self._consumer.stop()

    def added(self) -> list[str]:
        """As `Feed.added`: at most a minute old."""
        there = set() if self._wanted else self._consumer.partitions_for_topic(self._topic) or set()
        sources = [f"{self._prefix}{self._topic}/{number}" for number in sorted(there)]
        known = {partition.source for partition in self.partitions}
        return [source for source in sources if source not in known]

    async def produce(self, to: str, outputs: Sequence[Output]) -> None:
        """As `Feed.produce`: acknowledged by all replicas in sync."""
        async with told(f"topic {to}"):
            async with self._starting:
                producer = self._producer or await self._started()
            sent = [
                await producer.send(to, one.value, key=None if one.key is None else one.key.encode()) for one in outputs
            ]
            await asyncio.gather(*sent)

    async def _started(self) -> AIOKafkaProducer:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(acks="all", **self._options)
        try:
            await _started(producer)
        except BaseException:
            await producer.stop()
            raise
        self._producer = producer
        return producer


class KafkaPartition:
    """One partition; its numbers are Kafka's offsets."""

    counted = True

    def __init__(self, consumer: AIOKafkaConsumer, partition: TopicPartition, prefix: str) -> None:
        self.source = f"{prefix}{partition.topic}/{partition.partition}"
        self._consumer = consumer
        self._partition = partition

    async def bounds(self) -> OffsetRange:
        """As `Partition.bounds`."""
        async with told(self.source):
            first = await self._consumer.beginning_offsets([self._partition])
            end = await self._consumer.end_offsets([self._partition])
        return OffsetRange(first[self._partition], end[self._partition], end[self._partition])

    async def committed(self) -> int | None:
        """As `Partition.committed`."""
        async with told(self.source):
            found: int | None = await self._consumer.committed(self._partition)
            return found

    def seek(self, offset: int) -> None:
        """As `Partition.seek`."""
        self._consumer.seek(self._partition, offset)

    async def read(self, most: int, seconds: float) -> list[Message]:
        """As `Partition.read`."""
        from aiokafka.errors import OffsetOutOfRangeError

        try:
            async with told(self.source, OffsetOutOfRangeError):
                found = await self._consumer.getmany(self._partition, timeout_ms=int(seconds * 1000), max_records=most)
        except OffsetOutOfRangeError:
            raise Removed(f"{self.source}: what is to be read next is not there any more") from None
        return [Message(one.offset, one.value) for one in found.get(self._partition, ())]

    async def position(self) -> int:
        """As `Partition.position`: beyond markers of transactions, too."""
        found: int = await self._consumer.position(self._partition)
        return found

    async def commit(self, offset: int) -> None:
        """As `Partition.commit`, to the group."""
        async with told(self.source):
            await self._consumer.commit({self._partition: offset})

    def place(self, offset: int) -> str:
        """As `Partition.place`."""
        return f"topic {self._partition.topic}, partition {self._partition.partition}, offset {offset}"

    def origin(self, offset: int) -> Document:
        """As `Partition.origin`."""
        return {"topic": self._partition.topic, "partition": self._partition.partition, "offset": offset}


async def _started(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Connect. What a broker says to a wrong login by SCRAM aiokafka reads as if it were a right one's."""
    from aiokafka.errors import SaslAuthenticationFailed

    try:
        await client.start()
    except KeyError as error:
        if error.args != ("v",):
            raise
        raise SaslAuthenticationFailed from None


@asynccontextmanager
async def told(what: str, *but: type[Exception]) -> AsyncIterator[None]:
    """Raise what aiokafka does as `FeedError`, `but` for these."""
    from aiokafka.errors import KafkaConnectionError, KafkaError

    try:
        yield
    except but:
        raise
    except KafkaConnectionError:  # its log has the reason: see `log_to_notes`
        raise FeedError(f"{what}: no broker can be reached") from None
    except (KafkaError, TimeoutError, OSError) as error:
        raise FeedError(f"{what}: {reason_of(error)}") from None


def _listed(numbers: set[int]) -> Any:
    return ", ".join(map(str, sorted(numbers)))
