"""The labels that a store keeps beside a served event: how they came, oldest first, in 17 bytes each.

A label is one of many reports: they may overlap, and be repeated after a crash. So a label is added only if its record
is behind those that are stored, and says something else than the last one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["LABEL_BYTES", "MAX_LABELS", "ServedLabel", "add_labels", "pack_labels", "unpack_labels"]

MAX_LABELS = 32  # of one event; older ones are dropped
_LABEL = struct.Struct("<dbd")
LABEL_BYTES = _LABEL.size


class ServedLabel(NamedTuple):
    """A label of a served event."""

    position: int  # of its record in the log
    label: int  # 0, 1, or the rank
    time: float  # when it became known, in seconds since the epoch; NaN: unknown


def pack_labels(labels: Sequence[ServedLabel]) -> bytes:
    """Encode labels."""
    return b"".join([_LABEL.pack(*label) for label in labels])


def unpack_labels(packed: bytes) -> list[ServedLabel]:
    """Decode labels. Raises `struct.error`."""
    return [ServedLabel(int(position), label, time) for position, label, time in _LABEL.iter_unpack(packed)]


def add_labels(packed: bytes, new: bytes) -> bytes:
    """Add labels to those that are stored, both encoded: those of later records that differ from the last one."""
    stored = unpack_labels(packed)
    reported = stored[-1].position if stored else -1
    for label in unpack_labels(new):
        if label.position > reported and (not stored or label.label != stored[-1].label):
            stored.append(label)
    return pack_labels(stored[-MAX_LABELS:])
