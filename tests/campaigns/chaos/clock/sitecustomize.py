"""A clock that can be set: Python imports this before anything else where its folder is in PYTHONPATH.

`CHAOS_CLOCK` names a file of eight bytes, a double: by how many seconds the clock of this process is ahead.
"""

import mmap
import os
import struct
import time

_real, _real_ns = time.time, time.time_ns
_offset = struct.Struct("d")


def _install(path: str) -> None:
    with open(path, "rb") as file:
        ahead = mmap.mmap(file.fileno(), _offset.size, access=mmap.ACCESS_READ)
    time.time = lambda: _real() + _offset.unpack_from(ahead)[0]
    time.time_ns = lambda: _real_ns() + int(_offset.unpack_from(ahead)[0] * 1e9)


if "CHAOS_CLOCK" in os.environ:
    _install(os.environ["CHAOS_CLOCK"])
