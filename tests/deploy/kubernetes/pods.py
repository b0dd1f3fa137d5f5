"""Pods as processes of this machine: what a cluster's machines do with a pod, from its Secrets to its end."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from rarestream import __version__
from tests.deploy.image import instructions
from tests.deploy.kubernetes.controllers import is_ready
from tests.deploy.kubernetes.objects import Object, Objects, now
from tests.docs.documents import ROOT
from tests.harness.process import free_port
from tests.harness.redis_server import REDIS

__all__ = ["Pods"]

PROBE_SECONDS = 0.2  # between two questions, whatever their period, so that no test waits for one
RESTART_SECONDS = 1.0
ANYWHERE = "0.0.0.0"


def _images() -> dict[str, tuple[list[str], dict[str, str]]]:
    """What a container runs of itself, and its programs, each a line of shell; {port} is that of this machine."""
    said = dict(instructions())
    return {
        f"rarestream:{__version__}": (
            json.loads(said["CMD"]),  # the entrypoint before it copies the image's kernels, and then is this
            {
                "rarestream": f'exec {sys.executable} -m service "$@"',
                "healthcheck": f'exec {sys.executable} {ROOT}/docker/healthcheck.py "$@"',
            },
        ),
        "redis:7.4": (
            ["redis-server"],
            {
                "redis-server": f'exec {REDIS} "$@" --port {{port}} --bind 127.0.0.1',
                "redis-cli": f'exec {Path(REDIS).parent}/redis-cli -p {{port}} "$@"',
            },
        ),
    }


class Waiting(Exception):
    """A container that cannot be started now; what it is called says why, as in `kubectl get pods`."""


class Container:
    """The one of a pod."""

    def __init__(self, pod: Object, folder: Path) -> None:
        self.pod, self.folder = pod, folder
        self.spec: dict[str, Any] = pod["spec"]["containers"][0]
        self.ports: dict[int, int] = {}  # of this machine, by those of the pod
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts = -1
        self.ended = 0.0  # when it did, by the clock that only goes on
        self.ready = False
        self.told = False  # to end
        self.asked: asyncio.Task[None] | None = None
        folder.mkdir(parents=True)

    def port(self, named: int | str) -> int:
        """Of this machine, by a port of the pod. Raises KeyError."""
        names = {one["name"]: one["containerPort"] for one in self.spec.get("ports", [])}
        return self.ports[names[named] if isinstance(named, str) else named]

    @property
    def log(self) -> Path:
        """What it has printed."""
        return self.folder / "log.txt"

    def send(self, number: signal.Signals) -> None:
        """To all of its processes, where they run."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, number)


class Pods:
    """Of all namespaces. `address`: of "service:port" in a namespace, on this machine, or None."""

    def __init__(
        self, objects: Objects, folder: Path, outside: dict[str, str], address: Callable[[str, str], str | None]
    ) -> None:
        self._objects, self._folder, self._outside, self._address = objects, folder, outside, address
        self._containers: dict[str, Container] = {}  # by the pod's uid
        self._images = _images()
        self._numbers = count()

    def step(self) -> None:
        """Start what is to run, and see what has become of what does."""
        for pod in self._objects.all("Pod"):
            uid = pod["metadata"]["uid"]
            if uid not in self._containers:
                self._containers[uid] = Container(pod, self._folder / f"{next(self._numbers)}")
            container = self._containers[uid]
            container.pod = pod
            if "deletionTimestamp" in pod["metadata"]:
                self._end(container)
            elif pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                self._run(container)

    def containers(self, namespace: str, selector: dict[str, str]) -> list[Container]:
        """Of the pods that are ready and that a Service selects."""
        return [
            one
            for one in self._containers.values()
            if one.pod["metadata"]["namespace"] == namespace
            and is_ready(one.pod)
            and selector.items() <= one.pod["metadata"].get("labels", {}).items()
        ]

    def of(self, pod: Object) -> Container:
        """A pod's. Raises KeyError."""
        return self._containers[pod["metadata"]["uid"]]

    def kill(self) -> None:
        """Everything, at once."""
        for one in self._containers.values():
            one.send(signal.SIGKILL)
            if one.asked is not None:
                one.asked.cancel()
            if one.process is not None:
                one.process.wait()

    # One container

    def _run(self, container: Container) -> None:
        process, pod = container.process, container.pod
        state: Object = {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}}
        phase = "Running"
        if process is None:
            if time.monotonic() - container.ended < RESTART_SECONDS and container.restarts >= 0:
                return
            try:
                self._start(container)
            except Waiting as error:
                phase, state = "Pending", {"waiting": {"reason": str(error)}}
        elif process.poll() is not None:
            container.ready = False
            if pod["spec"].get("restartPolicy") == "Never":
                phase = "Failed" if process.returncode else "Succeeded"
                state = {"terminated": {"exitCode": process.returncode, "finishedAt": now()}}
            else:
                state = {"waiting": {"reason": "CrashLoopBackOff"}}
            container.process, container.ended = None, time.monotonic()
            if container.asked is not None:
                container.asked.cancel()
        self._tell(container, phase, state)

    def _end(self, container: Container) -> None:
        """In order: its service has the time that it asked for."""
        if container.process is None or container.process.poll() is not None:
            about = container.pod["metadata"]
            del self._containers[about["uid"]]
            self._objects.delete(self._objects.kind("Pod"), about["namespace"], about["name"], ended=True)
            if container.asked is not None:
                container.asked.cancel()
        elif not container.told:
            container.told, container.ended = True, time.monotonic()
            container.process.send_signal(signal.SIGTERM)
        elif time.monotonic() - container.ended > container.pod["spec"].get("terminationGracePeriodSeconds", 30):
            container.send(signal.SIGKILL)

    def _tell(self, container: Container, phase: str, state: Object) -> None:
        spec = container.spec
        ready = str(container.ready)
        about = {"name": spec["name"], "image": spec["image"], "imageID": "", "state": state}
        counted = {"ready": container.ready, "restartCount": max(0, container.restarts)}
        since = container.pod["metadata"]["creationTimestamp"]
        conditions = {"PodScheduled": "True", "Initialized": "True", "ContainersReady": ready, "Ready": ready}
        self._objects.status(
            "Pod",
            container.pod,
            {
                "phase": phase,
                "podIP": "127.0.0.1",
                "startTime": since,
                "conditions": [
                    {"type": name, "status": value, "lastTransitionTime": since} for name, value in conditions.items()
                ],
                "containerStatuses": [{**about, **counted}],
            },
        )

    def _start(self, container: Container) -> None:
        """Raises `Waiting`."""
        spec, folder = container.spec, container.folder
        image = self._images.get(spec["image"].rpartition("/")[2])
        if image is None:
            raise Waiting("ErrImagePull")
        command, programs = image
        mounts = self._mounted(container)
        # others at each start: someone may have come to listen to the one before
        container.ports = {one["containerPort"]: free_port() for one in spec.get("ports", [])}
        binaries = folder / "bin"
        binaries.mkdir(exist_ok=True)
        for name, line in programs.items():
            line = line.replace("{port}", str(next(iter(container.ports.values()), "")))
            (binaries / name).write_text(f"#!/bin/sh\n{line}\n")
            (binaries / name).chmod(0o755)
        own = {name: value for name, value in os.environ.items() if not name.startswith("RARESTREAM_")}
        environment = {**own, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        given: dict[str, str] = {}
        for one in spec.get("env", []):
            value = self._value(container.pod, one)
            given[one["name"]] = re.sub(r"\$\((\w+)\)", lambda found: given.get(found[1], found[0]), value)
        for name, value in given.items():
            here = self._here(container, mounts, value)
            local = {str(inside): str(outside) for inside, outside in container.ports.items()}
            environment[name] = {ANYWHERE: "127.0.0.1", **local}.get(here, here)
        words = [*spec["command"], *spec.get("args", [])] if "command" in spec else spec.get("args") or command
        (folder / "tmp").mkdir(exist_ok=True)
        try:
            with container.log.open("ab") as log:
                container.process = subprocess.Popen(
                    [self._here(container, mounts, one) for one in words],
                    cwd=folder / "tmp",
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except FileNotFoundError:
            raise Waiting("RunContainerError") from None
        container.restarts += 1
        container.asked = asyncio.get_running_loop().create_task(self._ask(container, environment))

    def _value(self, pod: Object, variable: Object) -> str:
        """Of a variable. Raises `Waiting`."""
        source = variable.get("valueFrom", {})
        if "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            data = self._data("Secret", pod, reference["name"])
            if reference["key"] not in data:
                raise Waiting("CreateContainerConfigError")
            return data[reference["key"]].decode()
        if "fieldRef" in source:
            path = source["fieldRef"]["fieldPath"]
            return str({"status.podIP": "127.0.0.1", "metadata.name": pod["metadata"]["name"]}[path])
        return str(variable.get("value", ""))

    def _data(self, kind: str, pod: Object, name: str) -> dict[str, bytes]:
        """Of a Secret or a ConfigMap. Raises `Waiting`."""
        found = self._objects.find(kind, pod["metadata"]["namespace"], name)
        if found is None:
            raise Waiting("CreateContainerConfigError")
        if kind == "ConfigMap":
            return {one: text.encode() for one, text in found.get("data", {}).items()}
        return {one: base64.b64decode(text) for one, text in found.get("data", {}).items()}

    def _mounted(self, container: Container) -> dict[str, Path]:
        """The folder of each place where something is mounted, with its files. Raises `Waiting`."""
        volumes = {one["name"]: one for one in container.pod["spec"].get("volumes", [])}
        claims = self._folder / "claims" / container.pod["metadata"]["namespace"]
        folders = {}
        for mount in container.spec.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            claim = volume.get("persistentVolumeClaim")
            folder = claims / claim["claimName"] if claim else container.folder / "volumes" / mount["name"]
            folder.mkdir(parents=True, exist_ok=True)
            folders[mount["mountPath"]] = folder
        for mount in container.spec.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            kind = {"secret": "Secret", "configMap": "ConfigMap"}.get(next(one for one in volume if one != "name"))
            if kind is not None:
                source = volume["secret" if kind == "Secret" else "configMap"]
                data = self._data(kind, container.pod, source.get("secretName") or source["name"])
                items = source.get("items") or [{"key": one, "path": one} for one in data]
                if any(one["key"] not in data for one in items):
                    raise Waiting("ContainerCreating")
                for one in items:
                    text = self._here(container, folders, data[one["key"]].decode())
                    (folders[mount["mountPath"]] / one["path"]).write_text(text)
        return folders

    def _here(self, container: Container, mounts: dict[str, Path], text: str) -> str:
        """A text of the pod for this machine: other folders for its own, other addresses for Services and outside."""
        for shown, here in self._outside.items():
            text = text.replace(shown, here)
        if mounts:
            places = "|".join(re.escape(one) for one in sorted(mounts, key=len, reverse=True))
            text = re.sub(rf"(?<![\w/.-])({places})(?![\w.-])", lambda found: str(mounts[found[1]]), text)
        namespace = container.pod["metadata"]["namespace"]
        return re.sub(r"[a-z][a-z0-9.-]*:\d+", lambda found: self._address(namespace, found[0]) or found[0], text)

    # Probes

    async def _ask(self, container: Container, environment: dict[str, str]) -> None:
        """First until it is started, then for ever whether it is ready."""
        spec = container.spec
        started = "startupProbe" not in spec
        async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
            while True:
                probe = spec.get("readinessProbe" if started else "startupProbe")
                good = probe is None or await self._answers(container, probe, client, environment)
                started, container.ready = started or good, started and good
                await asyncio.sleep(PROBE_SECONDS)

    async def _answers(
        self, container: Container, probe: Object, client: httpx.AsyncClient, environment: dict[str, str]
    ) -> bool:
        if "exec" in probe:
            words = probe["exec"]["command"]
            done = await asyncio.to_thread(
                subprocess.run, words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
            return done.returncode == 0
        about = probe["httpGet"]
        url = f"{about.get('scheme', 'HTTP').lower()}://127.0.0.1:{container.port(about['port'])}{about['path']}"
        try:
            return (await client.get(url)).is_success
        except httpx.TransportError:
            return False
