"""Compiled scanners of JSON, MessagePack heads and websocket frames.

Start with `json_events`, the scanner of updates; `json_text` and `floats` are its parts. `warmup` compiles all of them.
"""

from service.wire.kernels.floats import FLOATS, narrowed, widened
from service.wire.kernels.json_events import MAX_ID, RefusedEvents, ScannedEvents, scan
from service.wire.kernels.msgpack_heads import (
    COLUMNS,
    COUNT,
    DTYPES,
    KINDS,
    LEARNER,
    LEARNER_END,
    LIST,
    MAKE,
    OPERATION,
    PLACES,
    SEQ,
    WIDTH,
    columnar_heads,
)
from service.wire.kernels.warmup import SERVICE_REHEARSALS, load_kernels
from service.wire.kernels.websocket import BINARY, MASKED, MAX_SEQ, OPERATIONS, TEXT, heads, payloads

__all__ = [
    "BINARY",
    "COLUMNS",
    "COUNT",
    "DTYPES",
    "FLOATS",
    "KINDS",
    "LEARNER",
    "LEARNER_END",
    "LIST",
    "MAKE",
    "MASKED",
    "MAX_ID",
    "MAX_SEQ",
    "OPERATION",
    "OPERATIONS",
    "PLACES",
    "SEQ",
    "SERVICE_REHEARSALS",
    "TEXT",
    "WIDTH",
    "RefusedEvents",
    "ScannedEvents",
    "columnar_heads",
    "heads",
    "load_kernels",
    "narrowed",
    "payloads",
    "scan",
    "widened",
]
