"""The Dockerfile's own steps, run in order without a container engine, and what they make run as an image is.

Each stage gets a directory of its own as its root file system. In the place of the base image stands this machine's
/usr, under an overlay that takes what a step writes, a copy of its /etc, and its Python as `python` and `pip`; nothing
else of the machine is seen. A RUN is a shell in a chroot there, with its own mounts and processes. `Container` then
starts the entrypoint as the image's user, as process 1, without network, and on a root file system that is read-only.

It takes root on Linux, some minutes and two gigabytes of disk. `python -m tests.deploy.image` shows each step's time,
what the image is made of and how long it takes to start. Instructions that the Dockerfile has not are refused.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pip

from tests.docs.documents import ROOT
from tests.harness.waiting import eventually

__all__ = ["DOCKERFILE", "Container", "Stage", "build", "context", "instructions", "refused", "sizes"]

DOCKERFILE = ROOT / "docker" / "Dockerfile"
UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
NOBODY = ["setpriv", "--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]  # and a user's ids
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# How this machine reaches the package index: Docker takes proxies from the machine, too.
PASSED = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_TRUSTED_HOST",
    "PIP_CERT",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
LOOPBACK_UP = (
    "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh', b'lo', 1))"  # SIOCSIFFLAGS
)


def instructions(text: str | None = None) -> list[tuple[str, str]]:
    """Parse the Dockerfile into (INSTRUCTION, rest) without comments, with continued lines joined."""
    text = DOCKERFILE.read_text() if text is None else text
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def refused() -> str:
    """Return the error that prevents this process from executing the steps; "" if there is none.

    Tried is what they need: processes, a network and mounts of their own, chroot, and to become a user without rights.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root on Linux may"
    programs = ("unshare", "nsenter", "mount", "chroot", "setpriv")
    if lacking := [name for name in programs if not shutil.which(name)]:
        return f"not on PATH: {', '.join(lacking)}"
    with tempfile.TemporaryDirectory() as folder:
        for name in ("usr", "upper", "work"):
            Path(folder, name).mkdir()
        tried = [
            "mount --bind usr usr",
            "mount -t overlay overlay -o lowerdir=/usr,upperdir=upper,workdir=work usr",
            "mount -t proc proc usr",
            "mount -t tmpfs tmpfs usr",
            shlex.join(["chroot", "/", *NOBODY, "--reuid=1", "--regid=1", "true"]),
        ]
        command = [*UNSHARE, "--net", "sh", "-c", "\n".join(["set -eu", *tried])]
        process = subprocess.run(
            command, check=False, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    return "" if process.returncode == 0 else " ".join(process.stderr.split()) or f"it ended with {process.returncode}"


# The build context


def _expression(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of .dockerignore."""
    parts = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    tokens = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(parts.get(item, re.escape(item)) for item in tokens))


def context(root: Path = ROOT) -> list[str]:
    """Return the files of the build context relative to the root; the last matching pattern decides on each."""
    lines = [line.strip() for line in (root / ".dockerignore").read_text().splitlines()]
    patterns = [
        (line.startswith("!"), _expression(line.lstrip("!"))) for line in lines if line and not line.startswith("#")
    ]

    def is_in_context(path: Path) -> bool:
        names = [str(path), *(str(parent) for parent in path.parents)]
        decided = [include for include, pattern in patterns if any(pattern.fullmatch(name) for name in names)]
        return decided[-1] if decided else True

    paths = (path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts)
    return sorted(str(path.relative_to(root)) for path in paths if is_in_context(path.relative_to(root)))


# Stages


@dataclass
class Stage:
    """A root file system, and what the image says beside it."""

    folder: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    arguments: dict[str, str] = field(default_factory=dict)
    user: str = "0:0"
    workdir: str = "/"
    others: dict[str, str] = field(default_factory=dict)  # the last of every other instruction
    steps: list[tuple[str, float]] = field(default_factory=list)  # and the seconds it took

    @property
    def root(self) -> Path:
        """Its root file system, but for what it adds to /usr."""
        return self.folder / "root"

    @property
    def usr(self) -> Path:
        """What it adds to /usr."""
        return self.folder / "usr"

    def path(self, inside: str) -> Path:
        """Where a path of the image is on this machine."""
        joined = Path(os.path.normpath(Path(self.workdir) / inside))
        top = self.usr if joined.is_relative_to("/usr") else self.root
        return top / joined.relative_to("/usr" if top == self.usr else "/")

    def mounts(self) -> str:
        """Shell lines that complete the root file system in a separate mount namespace."""
        root = shlex.quote(str(self.root))
        lines = [
            "set -eu",
            f"mount --bind {root} {root}",
            f"mount -t overlay overlay -o lowerdir=/usr,upperdir={self.usr},workdir={self.folder}/work {root}/usr",
            f"mount -t proc proc {root}/proc",
            f"mount -t tmpfs tmpfs {root}/dev/shm",
        ]
        lines += [f"mount --bind /dev/{item} {root}/dev/{item}" for item in ("null", "zero", "random", "urandom")]
        if not Path(sys.base_prefix).is_relative_to("/usr"):
            lines.append(f"mount --bind -o ro {shlex.quote(sys.base_prefix)} {root}{shlex.quote(sys.base_prefix)}")
        return "\n".join(lines) + "\n"

    def command(self, arguments: list[str], **environment: str) -> str:
        """Return the shell line that runs a command of the image as its user, in its directory and environment."""
        uid, gid = self.user.split(":")
        assignments = [f"{name}={value}" for name, value in {**self.environment, **environment}.items()]
        wrapped = ["chroot", str(self.root), "env", "-i", f"--chdir={self.workdir}", *assignments]
        if uid != "0":  # rights as an engine leaves them with cap_drop: ALL and no-new-privileges
            wrapped += [*NOBODY, f"--reuid={uid}", f"--regid={gid}"]
        return "exec " + shlex.join(wrapped + arguments) + "\n"


def _base(folder: Path) -> Stage:
    """Make a substitute for the base image: a Linux with `python` and `pip`."""
    stage = Stage(folder)
    folders = ["proc", "dev/shm", "tmp", "var/cache", "var/tmp", "root", "opt", "home", "usr"]
    for name in [*folders, sys.base_prefix.lstrip("/")]:
        (stage.root / name).mkdir(parents=True, exist_ok=True)
    (stage.root / "tmp").chmod(0o1777)
    for name in ("null", "zero", "random", "urandom"):
        (stage.root / "dev" / name).touch()
    for name in ("bin", "sbin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            (stage.root / name).symlink_to(f"usr/{name}")
    for name in ("local/bin", "local/lib/pip", "../work"):
        (stage.usr / name).mkdir(parents=True)
    shutil.copytree("/etc", stage.root / "etc", symlinks=True)
    shutil.copytree(Path(pip.__file__).parent, stage.usr / "local/lib/pip/pip")
    python = os.path.realpath(sys.executable)
    run = "import runpy, sys; sys.path.insert(0, '/usr/local/lib/pip'); runpy.run_module('pip', run_name='__main__')"
    for name, text in {
        "python": f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n',  # no link: a venv would look for its library here
        "pip": f"#!{python}\n{run}\n",
    }.items():
        script = stage.usr / "local/bin" / name
        script.write_text(text)
        script.chmod(0o755)
    return stage


def _copied(stage: Stage, stages: dict[str, Stage], rest: str) -> None:
    """COPY: files of the context, or of another stage, belong to root."""
    words = rest.split()
    options = dict(word.removeprefix("--").split("=", 1) for word in words if word.startswith("--"))
    *sources, target = [word for word in words if not word.startswith("--")]
    if unknown := options.keys() - {"from"}:
        raise NotImplementedError(f"COPY with {unknown}")
    goal = stage.path(target)
    into = target.endswith("/") or target == "." or len(sources) > 1
    if "from" in options:
        (source,) = sources
        goal.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", f"{stages[options['from']].path(source)}/.", f"{goal}/"], check=True)
        return
    files = context()
    for source in sources:
        selection = [file for file in files if source == "." or file == source or file.startswith(f"{source}/")]
        if not selection:
            raise FileNotFoundError(f"{source} does not reach the build: see .dockerignore")
        for file in selection:
            inner = os.path.relpath(file, source) if source == "." or file != source else ""
            copy = goal / inner if inner else goal / Path(source).name if into else goal
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, copy)


def _filled(stage: Stage, text: str) -> str:
    """With variables of the stage in their places."""
    variables = {**stage.arguments, **stage.environment}
    return re.sub(r"\$\{?(\w+)\}?", lambda match: variables[match[1]], text)


def _pairs(rest: str) -> Iterator[tuple[str, str]]:
    for pair in shlex.split(rest):
        name, _, value = pair.partition("=")
        yield name, value


def build(folder: Path) -> Stage:
    """Every instruction of the Dockerfile in its order; returns the last stage.

    Raises RuntimeError where a step fails, with what it printed.
    """
    stages: dict[str, Stage] = {}
    stage = Stage(folder)
    for number, (name, rest) in enumerate(instructions(), 1):
        began = time.perf_counter()
        if name == "FROM":
            source, _, alias = rest.partition(" AS ")
            at = folder / str(number)
            if source in stages:
                source_stage = stages[source]
                subprocess.run(["cp", "-a", source_stage.folder, at], check=True)
                stage = Stage(
                    at,
                    {**source_stage.environment},
                    {},
                    source_stage.user,
                    source_stage.workdir,
                    {**source_stage.others},
                    stage.steps,
                )
            else:
                stage = _base(at)
            stages[alias or str(number)] = stage
        elif name == "RUN":
            passed = {item: os.environ[item] for item in PASSED if item in os.environ}
            line = stage.command(["/bin/sh", "-c", rest], **stage.arguments, **passed)
            command = [*UNSHARE, "sh", "-c", stage.mounts() + line]
            reply = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            if reply.returncode:
                raise RuntimeError(f"{rest}\nended with {reply.returncode}:\n{reply.stdout}{reply.stderr}")
        elif name == "COPY":
            _copied(stage, stages, rest)
        elif name == "ENV":
            stage.environment |= {name: _filled(stage, value) for name, value in _pairs(rest)}
        elif name == "ARG":
            stage.arguments |= dict(_pairs(rest))
        elif name == "USER":
            stage.user = rest
        elif name == "WORKDIR":
            stage.workdir = rest
            stage.path(rest).mkdir(parents=True, exist_ok=True)
        elif name in ("LABEL", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"):
            stage.others[name] = rest
        else:
            raise NotImplementedError(name)
        stage.steps.append((f"{name} {' '.join(rest.split())}", time.perf_counter() - began))
    return stage


def sizes(stage: Stage) -> dict[str, int]:
    """Bytes of what the last stage has from the build, by directory, and of the largest packages."""
    (site,) = stage.path("/opt/rarestream/lib").glob("python*/site-packages")
    top = {f"/opt/rarestream/{item.name}": _bytes(item) for item in sorted(stage.path("/opt/rarestream").iterdir())}
    packages = {f"  {item.name}": _bytes(item) for item in site.iterdir()}
    return top | dict(sorted(packages.items(), key=lambda item: -item[1])[:15])


def _bytes(path: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        return sum(item.lstat().st_size for item in path.rglob("*") if item.is_symlink() or item.is_file())
    return path.lstat().st_size


# What runs


class Container:
    """The entrypoint of a stage with its command, as an engine starts it with `--read-only`, two tmpfs and a volume.

    It has processes and a loopback of its own, and may write to /tmp, to the kernels' directory and to the volume.
    """

    def __init__(self, stage: Stage, volume: Path, **environment: str) -> None:
        self.stage = stage
        self.environment = environment
        self.printed: str | None = None
        uid, gid = stage.user.split(":")
        volume.mkdir(exist_ok=True)
        os.chown(volume, int(uid), int(gid))  # an engine gives a new volume the owner of the image's directory
        root, kernels = stage.root, stage.environment["NUMBA_CACHE_DIR"]
        mounts = stage.mounts() + "\n".join(
            [
                f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp",
                f"mount -t tmpfs -o uid={uid},gid={gid},mode=0700 tmpfs {root}{kernels}",
                f"mount --bind {shlex.quote(str(volume))} {root}/data",
                f"mount -o remount,ro {root}/usr",
                f"mount -o remount,bind,ro {root}",
                f"{shlex.quote(sys.executable)} -c {shlex.quote(LOOPBACK_UP)}\n",
            ]
        )
        arguments = json.loads(stage.others["ENTRYPOINT"]) + json.loads(stage.others["CMD"])
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [*UNSHARE, "--net", "sh", "-c", mounts + stage.command(arguments, **environment)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of its process 1, as seen from outside; 0 before the start."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int((children.read_text().split() or ["0"])[0])

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as `docker exec` does."""
        into = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "sh", "-c"]
        line = self.stage.command([*arguments], **self.environment, **environment)
        return subprocess.run([*into, line], check=False, capture_output=True, text=True)

    def healthy(self, seconds: float = 120) -> float:
        """Wait for the health check; return the seconds since the start. Raises an error if it fails."""
        check = json.loads(self.stage.others["HEALTHCHECK"].partition(" CMD ")[2])

        def passes() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(f"it ended:\n{self.stop()}")
            return bool(self.pid) and self.run(*check).returncode == 0

        eventually(passes, lambda: f"healthy:\n{self.stop()}", seconds=seconds)
        return time.perf_counter() - self.began

    def stop(self, seconds: float = 60) -> str:
        """Send the stop signal of the image to process 1 and wait for its end, else kill it; return its output."""
        if self.printed is not None:
            return self.printed
        if self.process.poll() is None:
            os.kill(self.pid, signal.Signals[self.stage.others["STOPSIGNAL"]])
        try:
            self.printed = self.process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.kill(self.pid or self.process.pid, signal.SIGKILL)  # with process 1 ends all that runs in there
            self.printed = self.process.communicate()[0]
        return self.printed


def main() -> None:
    """Build the image in a temporary directory, start it twice, and print a report."""
    with tempfile.TemporaryDirectory() as folder:
        stage = build(Path(folder))
        for step, seconds in stage.steps:
            print(f"{seconds:7.1f} s  {step[:100]}")
        for name, count in sizes(stage).items():
            print(f"{count / 2**20:7.1f} MiB  {name}")
        for start in ("empty volume", "again"):
            with Container(stage, Path(folder) / "volume", RARESTREAM_INSECURE="true") as container:
                print(f"{container.healthy():7.2f} s  from the start to the first health check that succeeds, {start}")


if __name__ == "__main__":
    main()
