"""Kafka topics by aiokafka. Partitions are assigned explicitly, because the learner keeps the position of learning.

Scoring resumes at the committed offsets of the consumer group, from which tools compute its lag.
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
from service.connectors.feed import Document, FeedError, Message, MessageRemoved, OffsetRange, Output

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

__all__ = ["KafkaFeed", "KafkaPartition", "Security"]

_LOOK_SECONDS = 60.0  # between checks for new partitions
_MISSING = "Kafka needs a package that is not installed: pip install '.[kafka]' in the clone"


@dataclass(frozen=True)
class Security:
    """The options of TLS and SASL. The password is in no message."""

    tls: bool = False
    ca: Path | None = None  # CA certificates; None: those of the system
    certificate: Path | None = None  # client certificate
    key: Path | None = None  # its private key
    username: str | None = None  # of SASL; None: no SASL
    password: str | None = field(default=None, repr=False)
    mechanism: str = "SCRAM-SHA-512"

    def options(self) -> Document:
        """Return the options of aiokafka. Raises `FeedError` if a file cannot be read."""
        protocol = ("SASL_" if self.username is not None else "") + ("SSL" if self.tls else "PLAINTEXT")
        options: Document = {"security_protocol": protocol}
        if self.tls:
            try:
                options["ssl_context"] = ssl.create_default_context(cafile=self.ca)
                if self.certificate is not None:
                    options["ssl_context"].load_cert_chain(self.certificate, self.key)
            except OSError as error:  # ssl.SSLError is one
                files = [str(name) for name in (self.ca, self.certificate, self.key) if name is not None]
                raise FeedError(f"{', '.join(files)}: {error.strerror or error}") from None
        if self.username is not None:
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password or "",
            }
        return options


class KafkaFeed:
    """Partitions of a topic: the given ones, or all that exist at its start."""

    def __init__(
        self, servers: str, topic: str, numbers: Sequence[int], group: str, prefix: str, security: Security
    ) -> None:
        self.partitions: list[KafkaPartition] = []
        self._servers = servers
        self._topic = topic
        self._numbers = numbers
        self._group = group
        self._prefix = prefix
        self._security = security
        self._consumer: AIOKafkaConsumer
        self._producer: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()  # partitions write concurrently

    async def __aenter__(self) -> Self:
        try:
            from aiokafka import AIOKafkaConsumer, TopicPartition
        except ModuleNotFoundError:
            raise FeedError(_MISSING) from None
        self._options = {"bootstrap_servers": self._servers, "client_id": "rarestream", **self._security.options()}
        self._consumer = AIOKafkaConsumer(
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="none",  # a removed offset is an error
            isolation_level="read_committed",
            metadata_max_age_ms=int(_LOOK_SECONDS * 1000),
            **self._options,
        )
        try:
            async with translate_errors(f"kafka://{self._servers}"):
                await _start(self._consumer)
                await self._consumer.topics()
                present = self._consumer.partitions_for_topic(self._topic) or set()
            if not present:
                raise FeedError(f"kafka://{self._servers} has no topic {self._topic}")
            if missing := set(self._numbers) - present:
                raise FeedError(f"topic {self._topic} has the partitions {_join(present)}, not {_join(missing)}")
            partitions = [TopicPartition(self._topic, number) for number in sorted(set(self._numbers) or present)]
            self._consumer.assign(partitions)
        except BaseException:
            await self._consumer.stop()
            raise
        self.partitions = [KafkaPartition(self._consumer, partition, self._prefix) for partition in partitions]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._producer is not None:
            await self._producer.stop()
        await self._consumer.stop()

    def added(self) -> list[str]:
        """See `Feed.added`; the list is at most a minute old."""
        present = set() if self._numbers else self._consumer.partitions_for_topic(self._topic) or set()
        sources = [f"{self._prefix}{self._topic}/{number}" for number in sorted(present)]
        read = {partition.source for partition in self.partitions}
        return [source for source in sources if source not in read]

    async def produce(self, to: str, outputs: Sequence[Output]) -> None:
        """See `Feed.produce`; all in-sync replicas acknowledge."""
        async with translate_errors(f"topic {to}"):
            async with self._starting:
                producer = self._producer or await self._start_producer()
            acknowledgements = [
                await producer.send(to, output.value, key=None if output.key is None else output.key.encode())
                for output in outputs
            ]
            await asyncio.gather(*acknowledgements)

    async def _start_producer(self) -> AIOKafkaProducer:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(acks="all", **self._options)
        try:
            await _start(producer)
        except BaseException:
            await producer.stop()
            raise
        self._producer = producer
        return producer


class KafkaPartition:
    """One partition, numbered by Kafka's offsets."""

    counted = True

    def __init__(self, consumer: AIOKafkaConsumer, partition: TopicPartition, prefix: str) -> None:
        self.source = f"{prefix}{partition.topic}/{partition.partition}"
        self._consumer = consumer
        self._partition = partition

    async def bounds(self) -> OffsetRange:
        """See `Partition.bounds`."""
        async with translate_errors(self.source):
            first = await self._consumer.beginning_offsets([self._partition])
            end = await self._consumer.end_offsets([self._partition])
        return OffsetRange(first[self._partition], end[self._partition], end[self._partition])

    async def committed(self) -> int | None:
        """See `Partition.committed`."""
        async with translate_errors(self.source):
            offset: int | None = await self._consumer.committed(self._partition)
            return offset

    def seek(self, offset: int) -> None:
        """See `Partition.seek`."""
        self._consumer.seek(self._partition, offset)

    async def read(self, most: int, seconds: float) -> list[Message]:
        """See `Partition.read`."""
        from aiokafka.errors import OffsetOutOfRangeError

        try:
            async with translate_errors(self.source, OffsetOutOfRangeError):
                records = await self._consumer.getmany(
                    self._partition, timeout_ms=int(seconds * 1000), max_records=most
                )
        except OffsetOutOfRangeError:
            raise MessageRemoved(f"{self.source}: the next message was removed") from None
        return [Message(record.offset, record.value) for record in records.get(self._partition, ())]

    async def position(self) -> int:
        """See `Partition.position`; it also passes markers of transactions."""
        offset: int = await self._consumer.position(self._partition)
        return offset

    async def commit(self, offset: int) -> None:
        """See `Partition.commit`; the consumer group keeps it."""
        async with translate_errors(self.source):
            await self._consumer.commit({self._partition: offset})

    def number(self, offset: int) -> int:
        """See `Partition.number`."""
        return offset

    def numbered(self, offset: int) -> bool:  # noqa: ARG002
        """See `Partition.numbered`."""
        return True

    def resume(self, number: int) -> int:
        """See `Partition.resume`."""
        return number

    def show(self, offset: int) -> int:
        """See `Partition.show`."""
        return offset

    def place(self, offset: int) -> str:
        """See `Partition.place`."""
        return f"topic {self._partition.topic}, partition {self._partition.partition}, offset {offset}"

    def origin(self, offset: int) -> Document:
        """See `Partition.origin`."""
        return {"topic": self._partition.topic, "partition": self._partition.partition, "offset": offset}


async def _start(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Connect. aiokafka raises KeyError("v") if a broker refuses a login by SCRAM."""
    from aiokafka.errors import SaslAuthenticationFailed

    try:
        await client.start()
    except KeyError as error:
        if error.args != ("v",):
            raise
        raise SaslAuthenticationFailed from None


@asynccontextmanager
async def translate_errors(what: str, *but: type[Exception]) -> AsyncIterator[None]:
    """Raise errors of aiokafka as `FeedError`, except for `but`."""
    from aiokafka.errors import KafkaConnectionError, KafkaError

    try:
        yield
    except but:
        raise
    except KafkaConnectionError:  # its log has the reason: see `log_to_notes`
        raise FeedError(f"{what}: no broker can be reached") from None
    except (KafkaError, TimeoutError, OSError) as error:
        raise FeedError(f"{what}: {reason_of(error)}") from None


def _join(numbers: set[int]) -> Any:
    return ", ".join(map(str, sorted(numbers)))
