"""Python's collector of cycles, kept from stopping the process for long.

A full collection walks through everything that is in memory, in which nobody is answered: 0.1 s with a thousand
learners. What has outlived one is set aside here, so that the next walks only through what has come since. Learners
need no collector to go, and leave the memory from there, too; a cycle that dies there stays, until all is walked
through once more: when there is twice as much as the last time. Python's own does so when a quarter has come, whether
or not as much has gone.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["set_aside"]

_GROWN = 2
_MIDDLE_PER_FULL = 2  # collections of what is neither young nor old between two full ones; Python's own is 10


class _Aside:
    """Called by the collector as it begins and ends."""

    def __init__(self, left: int) -> None:
        self._all = left  # objects after the last collection of all
        self._since = 0  # that were set aside after it
        self._of_all = False  # the collection under way

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            self._of_all = False
            if self._since > (_GROWN - 1) * self._all:  # so much has come, but how much of it has stayed?
                self._since = 0
                self._of_all = gc.get_freeze_count() > _GROWN * self._all
            if self._of_all:
                gc.unfreeze()
            return
        left = len(gc.get_objects(generation=2))
        if self._of_all:
            self._all = left
        else:
            self._since += left
        gc.freeze()


class _Shared:
    """What all that ask for it share, as a process has one collector: begun by the first, ended by the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asking = 0
        self._before = gc.get_threshold()
        self._aside = _Aside(0)

    def begin(self) -> None:
        with self._lock:
            self._asking += 1
            if self._asking > 1:
                return
            self._before = gc.get_threshold()
            self._aside = _Aside(len(gc.get_objects()))
            gc.freeze()
            gc.callbacks.append(self._aside)
            gc.set_threshold(*self._before[:2], _MIDDLE_PER_FULL)

    def end(self) -> None:
        with self._lock:
            self._asking -= 1
            if self._asking > 0:
                return
            gc.callbacks.remove(self._aside)
            gc.set_threshold(*self._before)


_shared = _Shared()


@contextmanager
def set_aside() -> Iterator[None]:
    """Collect so meanwhile; what there is by now is set aside. Several may ask for it at a time, in any order."""
    _shared.begin()
    try:
        yield
    finally:
        _shared.end()
