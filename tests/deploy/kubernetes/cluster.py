"""A cluster on a thread: the API server and what the cluster does by itself, on one event loop."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import uvicorn
import yaml
from starlette.websockets import WebSocket

from tests.deploy.kubernetes.api import application
from tests.deploy.kubernetes.controllers import control
from tests.deploy.kubernetes.network import Network
from tests.deploy.kubernetes.objects import KINDS, OPERATOR, Object, Objects
from tests.deploy.kubernetes.pods import Pods
from tests.deploy.kubernetes.tunnel import WebSocketProtocol, forward

__all__ = ["Cluster"]

STEP_SECONDS = 0.05


class Cluster:
    """`outside`: what stands for an address beyond the cluster; `operator`: it has the Prometheus operator's kinds."""

    def __init__(self, folder: Path, *, outside: dict[str, str] | None = None, operator: bool = False) -> None:
        self.folder = folder
        self._outside = outside or {}
        self._kinds = [one for one in KINDS if operator or one.group != OPERATOR]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = ThreadPoolExecutor(1, "cluster")
        self._running: Future[None]
        self._started = threading.Event()
        self._server: uvicorn.Server
        self.objects: Objects  # to be read

    @property
    def environment(self) -> dict[str, object]:
        """With which `helm` and `kubectl` find it, and keep what they keep in its folder."""
        home = self.folder / "home"
        kept = {f"HELM_{one}_HOME": home / one.lower() for one in ("CACHE", "CONFIG", "DATA")}
        return {"KUBECONFIG": self.folder / "kubeconfig", "HOME": home, **kept}

    def found(self, path: str) -> Any:
        """What a GET of the API replies."""
        reply = httpx.get(f"{self.url}{path}", trust_env=False, timeout=30)
        reply.raise_for_status()
        return reply.json()

    def names(self, namespace: str) -> set[tuple[str, str]]:
        """Every object of a namespace, by kind and name, but the account that each namespace has."""
        listed = {f"/apis/{one.api}" if one.group else f"/api/{one.api}": one for one in self._kinds}
        found: list[Object] = []
        for prefix in listed:
            for one in self.found(prefix)["resources"]:
                if one["namespaced"]:
                    found += self.found(f"{prefix}/namespaces/{namespace}/{one['name']}")["items"]
        return {(one["kind"], one["metadata"]["name"]) for one in found} - {("ServiceAccount", "default")}

    def logs(self) -> str:
        """The last that each pod has printed, in the order of their starts."""
        files = sorted((self.folder / "pods").glob("*/log.txt"), key=lambda one: int(one.parent.name))
        return "\n".join(f"{one.parent.name}: {one.read_text()[-2000:]}" for one in files)

    async def _run(self) -> None:
        self.objects = objects = Objects(self._kinds)
        network = Network(objects)
        network.pods = pods = Pods(objects, self.folder / "pods", self._outside, network.address)

        async def forwarded(websocket: WebSocket, pod: Object) -> None:
            await forward(websocket, pods.of(pod))

        app = application(objects, forwarded)
        config = uvicorn.Config(
            app, lifespan="off", log_config=None, access_log=False, ws=WebSocketProtocol, timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        self._started.set()
        try:
            while not serving.done():
                control(objects)
                pods.step()
                await asyncio.sleep(STEP_SECONDS)
        finally:
            pods.kill()
            await network.close()
            self._server.should_exit = True
            objects.wake()
            await serving

    def __enter__(self) -> Self:
        (self.folder / "home").mkdir(parents=True)
        context = {"cluster": "stand-in", "user": "anyone"}
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "stand-in", "cluster": {"server": self.url}}],
            "users": [{"name": "anyone", "user": {}}],
            "contexts": [{"name": "stand-in", "context": context}],
            "current-context": "stand-in",
        }
        (self.folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        self._running = self._thread.submit(asyncio.run, self._run())
        while not self._started.wait(0.1):
            if self._running.done():
                self._running.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.shutdown()
        self._running.result()
