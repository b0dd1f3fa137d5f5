"""Services, each on a port of this machine, from where a connection goes to one of the pods that are ready."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Coroutine
from contextlib import suppress
from itertools import count

from tests.deploy.kubernetes.objects import Object, Objects
from tests.deploy.kubernetes.pods import Pods

__all__ = ["Network"]


class Network:
    """Of all Services. With no pod that is ready, a connection is taken and ended."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._ports: dict[tuple[str, str, int], int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = count()
        self.pods: Pods

    def address(self, namespace: str, named: str) -> str | None:
        """Of this machine, for "service:port" as a pod of the namespace says it; None where that is no Service."""
        found = re.fullmatch(r"([a-z0-9-]+)(?:\.([a-z0-9-]+)(?:\.svc(?:\.cluster\.local)?)?)?:(\d+)", named)
        if found is None:
            return None
        name, within, port = found[1], found[2] or namespace, int(found[3])
        service = self._objects.find("Service", within, name)
        if service is None or all(one["port"] != port for one in service["spec"]["ports"]):
            return None
        if (within, name, port) not in self._ports:
            listener = socket.create_server(("127.0.0.1", 0))
            self._ports[within, name, port] = listener.getsockname()[1]
            self._run(self._serve(listener, within, name, port))
        return f"127.0.0.1:{self._ports[within, name, port]}"

    async def close(self) -> None:
        """With all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, listener: socket.socket, namespace: str, name: str, port: int) -> None:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._run(self._carry(reader, writer, namespace, name, port))

        async with await asyncio.start_server(connected, sock=listener) as server:
            await server.serve_forever()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, namespace: str, name: str, port: int
    ) -> None:
        service = self._objects.find("Service", namespace, name)
        local = None if service is None else self._chosen(service, port)
        try:
            if local is not None:
                with suppress(OSError):
                    there = await asyncio.open_connection("127.0.0.1", local)
                    try:
                        await asyncio.gather(_copied(reader, there[1]), _copied(there[0], writer))
                    finally:
                        there[1].close()
        finally:
            writer.close()

    def _chosen(self, service: Object, port: int) -> int | None:
        """The port of this machine for one of its pods, in turn."""
        spec = service["spec"]
        ready = self.pods.containers(service["metadata"]["namespace"], spec["selector"])
        (target,) = (one.get("targetPort", port) for one in spec["ports"] if one["port"] == port)
        return ready[next(self._turn) % len(ready)].port(target) if ready else None


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All that comes, to its end."""
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
