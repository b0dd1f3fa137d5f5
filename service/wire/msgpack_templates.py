"""Encode the replies to several messages that were executed as one request, in MessagePack.

    {"seq", counts of the message, members of all replies, ARRAYs with a value for each event of the message}

The common parts of messages of the same length are encoded once, with gaps for the parts that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["begin", "in_parts"]

_DTYPES = {"d": ("float64", 8), "b": ("int8", 1)}
_encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
_SEQ = _encode("seq")


@lru_cache(1024)
def begin(name: str, kind: str, n: int) -> bytes:
    """Return the bytes of an ARRAY of n numbers up to its data; `n` numbers of a NumPy type's character."""
    dtype, size = _DTYPES[kind]
    numbers = bytes(size * n)
    array = _encode({"dtype": dtype, "shape": [n], "data": numbers})
    return _encode(name) + array[: len(array) - len(numbers)]


def in_parts(
    seqs: Sequence[int | None],
    counts: Sequence[int],
    remembered: Sequence[bytes],
    alike: Mapping[str, Any],
    columns: Mapping[str, NDArray[np.generic]],
) -> list[bytes]:
    """Encode the replies to messages of so many events each, with their `seq`. O(bytes).

    `remembered`: members of each reply, a small MessagePack map; `alike`: members of all replies; `columns`: arrays
    over all events.
    """
    members = 1 + (remembered[0][0] & 0x0F) + len(alike) + len(columns)
    assert members < 16
    head, shared = bytes([0x80 + members]) + _SEQ, _encode(alike)[1:]
    templates = {}
    for n in set(counts):
        arrays = [begin(name, column.dtype.char, n) for name, column in columns.items()]
        parts = [item.replace(b"%", b"%%") + b"%b" for item in (head, b"", *arrays)]
        parts[2] = shared.replace(b"%", b"%%") + parts[2]
        templates[n] = b"".join(parts)
    stops = list(accumulate(counts))
    local = [list(map(_encode, seqs)), [item[1:] for item in remembered]]
    for column in columns.values():
        data, size = column.tobytes(), column.itemsize
        local.append([data[size * (stop - n) : size * stop] for stop, n in zip(stops, counts, strict=True)])
    return [templates[n] % numbers for n, numbers in zip(counts, zip(*local, strict=True), strict=True)]
