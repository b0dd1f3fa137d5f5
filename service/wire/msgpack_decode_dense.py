"""Decode the most frequent MessagePack bodies in one typed pass: dense rows, with or without ids and int8 labels.

The result is None for any other body and for an invalid one: `msgpack_decode.py` reads that member by member and
reports its problems. So nothing is refused here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from learners import Config, InvalidInput
from learners.features import Dense
from learners.numerics import Matrix, Vector
from service.wire.json_errors import MAX_EVENTS
from service.wire.kernels import FLOATS, MAX_ID, widened
from service.wire.msgpack_bounds import PackedArray
from service.wire.msgpack_members import DTYPES

__all__ = ["DenseEvents", "are_ids", "dense_events"]


class DenseEvents(NamedTuple):
    """n events."""

    rows: Matrix
    costs: Vector | None
    labels: Vector | None  # as a learner's log has them
    ids: tuple[str, ...] | None


class _DenseBody(msgspec.Struct, forbid_unknown_fields=True):
    x: PackedArray
    labels: PackedArray | msgspec.UnsetType = msgspec.UNSET
    ids: PackedArray | Annotated[list[str], msgspec.Meta(max_length=MAX_EVENTS)] | msgspec.UnsetType = msgspec.UNSET


_body = msgspec.msgpack.Decoder(_DenseBody).decode


def dense_events(body: bytes, config: Config) -> DenseEvents | None:
    """Decode the events of a body. O(bytes)."""
    if not isinstance(config.features, Dense):
        return None
    try:
        value = _body(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    rows = _rows(value.x, config.features.dim)
    if rows is None:
        return None
    labels = ids = None
    if value.labels is not msgspec.UNSET and (labels := _labels(value.labels, len(rows), config)) is None:
        return None
    if value.ids is not msgspec.UNSET and (ids := _ids(value.ids, len(rows))) is None:
        return None
    try:
        return DenseEvents(rows, config.costs(rows), labels, ids)
    except InvalidInput:
        return None


def are_ids(ids: Sequence[str]) -> bool:
    """Tell whether all of some texts may be ids; there is at least one."""
    return 0 < min(map(len, ids)) <= max(map(len, ids)) <= MAX_ID and "".join(ids).isprintable()


def _fits(array: PackedArray, dtype: str, n: int) -> bool:
    return array.dtype == dtype and array.shape == [n] and len(array.data) == n * DTYPES[dtype].itemsize


def _rows(x: PackedArray, dim: int) -> Matrix | None:
    dtype, shape = FLOATS.get(x.dtype), x.shape
    if dtype is None or len(shape) != 2 or shape[1] != dim:
        return None
    n = shape[0]
    if not 0 < n <= MAX_EVENTS or len(x.data) != n * dim * dtype.itemsize:
        return None
    return widened(x.data, dtype, dim)


def _labels(labels: PackedArray, n: int, config: Config) -> Vector | None:
    if not _fits(labels, "int8", n):
        return None
    y = np.frombuffer(labels.data, np.int8).astype(np.float64)
    return config.labels.columns(y) if config.labels.good(y).all() else None


def _ids(ids: PackedArray | list[str], n: int) -> tuple[str, ...] | None:
    if isinstance(ids, list):
        return tuple(ids) if len(ids) == n and are_ids(ids) else None
    if not _fits(ids, "uint64", n):
        return None
    return tuple(map(str, np.frombuffer(ids.data, DTYPES["uint64"]).tolist()))
