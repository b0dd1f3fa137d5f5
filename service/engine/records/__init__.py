"""Encodes records and snapshots, and validates those that a log returns. Start with `codec`."""

from service.engine.records.codec import (
    Created,
    Record,
    Snapshot,
    config_of,
    pack_record,
    pack_snapshot,
    unpack_record,
    unpack_snapshot,
)
from service.engine.records.served_codec import (
    ServedColumns,
    pack_features,
    pack_served,
    served_document,
    unpack_served,
)
from service.engine.records.trusted_snapshots import TrustedSnapshots
from service.engine.records.validation import check_compared, check_record, check_scaling

__all__ = [
    "Created",
    "Record",
    "ServedColumns",
    "Snapshot",
    "TrustedSnapshots",
    "check_compared",
    "check_record",
    "check_scaling",
    "config_of",
    "pack_features",
    "pack_record",
    "pack_served",
    "pack_snapshot",
    "served_document",
    "unpack_record",
    "unpack_served",
    "unpack_snapshot",
]
