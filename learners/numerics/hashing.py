"""Hash strings to 64-bit numbers: feature names, categories and event ids.

The hash is part of the stored format and must never change. It is neither keyed nor cryptographic.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.numerics.arrays import Words
from learners.numerics.jit import bare_kernel

__all__ = ["hash_bytes", "hash_strings", "mix"]


@bare_kernel
def mix(z):  # type: ignore[no-untyped-def]
    """Return splitmix64's finaliser of a word."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@bare_kernel
def hash_bytes(buffer, start, stop):  # type: ignore[no-untyped-def]
    """Hash the bytes from `start` to `stop`: splitmix64's finaliser chained over words of 8 bytes."""
    h = mix(np.uint64(stop - start) + np.uint64(0x9E3779B97F4A7C15))
    word = np.uint64(0)
    shift = 0
    for k in range(start, stop):
        word |= np.uint64(buffer[k]) << np.uint64(shift)
        shift += 8
        if shift == 64:
            h = mix(h ^ word)
            word = np.uint64(0)
            shift = 0
    return mix(h ^ word)


@bare_kernel
def _hash(buffer, offsets, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0]):
        out[i] = hash_bytes(buffer, offsets[i], offsets[i + 1])


def hash_strings(texts: Sequence[str]) -> Words:
    """Hash each string's UTF-8 bytes, (n,). O(bytes)."""
    joined = "".join(texts)
    parts: Sequence[str | bytes] = texts  # in ASCII characters are bytes, so all are encoded at once
    if not joined.isascii():
        parts = [text.encode("utf-8", "surrogatepass") for text in texts]
    offsets = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)), out=offsets[1:])
    out = np.empty(len(parts), dtype=np.uint64)
    _hash(np.frombuffer(joined.encode("utf-8", "surrogatepass") or b"\0", dtype=np.uint8), offsets, out)
    return out
