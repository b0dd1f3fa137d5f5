"""Load or compile the kernels of this folder before a request needs them."""

from __future__ import annotations

import numpy as np

from learners import REHEARSALS
from learners.numerics import Rehearsal
from service.wire.kernels.floats import FLOATS, narrowed, widened
from service.wire.kernels.json_events import scan
from service.wire.kernels.msgpack_heads import columnar_heads
from service.wire.kernels.websocket import heads, payloads

__all__ = ["SERVICE_REHEARSALS", "load_kernels"]

SERVICE_REHEARSALS = (Rehearsal(__name__, "load_kernels", (1,)), *REHEARSALS)


def load_kernels(dim: int | None) -> None:
    """Compile what reads messages and rows of numbers; with `dim`, dense JSON events of that width, too."""
    heads([""])
    columnar_heads([b""])
    payloads(b"", 0, 0)
    for dtype in FLOATS.values():
        widened(memoryview(bytes(dtype.itemsize)), dtype, 1)
    narrowed(np.zeros((1, 1)))
    if dim is not None:
        scan(b"", dim, True, 1)
