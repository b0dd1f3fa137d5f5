"""Cores and what runs on them: who is pinned where, and what a process has used, from /proc (Linux)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

__all__ = ["Cores", "choose", "cpu_seconds", "pinned", "resident_bytes"]

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Cores(NamedTuple):
    """One core each for the server and for the load; Redis has a third where there is one, else the load's."""

    server: int
    client: int
    redis: int

    @property
    def shared(self) -> bool:
        """Whether the machine has no second core: then the figures say little."""
        return self.server == self.client


def choose(available: set[int] | None = None, siblings: dict[int, set[int]] | None = None) -> Cores:
    """Cores that share nothing: the second and third are hardware threads of other cores, as far as there are others.

    `available` and `siblings` (of each core, the hardware threads of its physical core) are the machine's if not given.
    """
    cores = sorted(os.sched_getaffinity(0) if available is None else available)
    threads = {core: _siblings(core) for core in cores} if siblings is None else siblings
    physical: list[int] = []
    for core in cores:
        if not any(core in threads[other] for other in physical):
            physical.append(core)
    ordered = physical + [core for core in cores if core not in physical]
    server = ordered[0]
    client = ordered[1] if len(ordered) > 1 else server
    return Cores(server, client, ordered[2] if len(ordered) > 2 else client)


def _siblings(core: int) -> set[int]:
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    if not path.exists():
        return {core}
    siblings: set[int] = set()
    for part in path.read_text().strip().split(","):
        first, _, last = part.partition("-")
        siblings.update(range(int(first), int(last or first) + 1))
    return siblings


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Pin this thread, and the processes and threads that it starts, to one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_seconds(pid: int) -> float:
    """Return user and system seconds of a process, its threads and its running children, in ticks of 1/100 s."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    used = (int(fields[11]) + int(fields[12])) / _TICKS  # fields 14 and 15; field 2, a name, may contain spaces
    started = [child for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]
    return used + sum(cpu_seconds(int(child)) for child in started)


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
