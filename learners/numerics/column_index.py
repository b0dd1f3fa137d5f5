"""Find whole numbers by open addressing, and sort rows: what the maps of columns are made of.

`np.argsort` would do, but numba compiles it for more than a second.
"""

from __future__ import annotations

import numpy as np

from learners.numerics.jit import kernel

__all__ = ["find_place", "insert_all", "sort_pairs", "sum_pairs"]

_SHORT = 64  # entries up to which insertion sort is faster than merging
_RUN = 16  # entries of longer rows that are sorted so, before they are merged


@kernel
def find_place(keys, key):  # type: ignore[no-untyped-def]
    """Return the place of `key` in the open-addressing table, or the free place for it; -1 is free."""
    mask = keys.shape[0] - 1
    at = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask
    while keys[at] != -1 and keys[at] != key:
        at = (at + 1) & mask
    return at


@kernel
def insert_all(keys, places, order):  # type: ignore[no-untyped-def]
    """Insert each key of `order` with its index into an empty table."""
    for place in range(order.shape[0]):
        at = find_place(keys, order[place])
        keys[at] = order[place]
        places[at] = place


@kernel
def sort_pairs(keys, values):  # type: ignore[no-untyped-def]
    """Sort both by the keys, in place and stable: O(n log n), and fast for short rows, which are the most frequent."""
    n = keys.shape[0]
    if n <= _SHORT:
        _insert_pairs(keys, values)
        return
    for start in range(0, n, _RUN):
        _insert_pairs(keys[start : start + _RUN], values[start : start + _RUN])
    width, other_keys, other_values = _RUN, np.empty(n, keys.dtype), np.empty(n, values.dtype)
    while width < n:
        _merge_runs(keys, values, width, other_keys, other_values)
        _merge_runs(other_keys, other_values, 2 * width, keys, values)
        width *= 4


@kernel
def _insert_pairs(keys, values):  # type: ignore[no-untyped-def]
    """Sort a few pairs: stable, O(n^2)."""
    for k in range(1, keys.shape[0]):
        key, value = keys[k], values[k]
        to = k
        while to > 0 and keys[to - 1] > key:
            keys[to] = keys[to - 1]
            values[to] = values[to - 1]
            to -= 1
        keys[to] = key
        values[to] = value


@kernel
def _merge_runs(keys, values, width, merged_keys, merged_values):  # type: ignore[no-untyped-def]
    """Merge every two ascending runs of `width` pairs: stable, O(n)."""
    n = np.uint64(keys.shape[0])  # unsigned, so that no index may count from the end
    low = np.uint64(0)
    while low < n:
        i, k = low, min(low + np.uint64(width), n)
        middle, high = k, min(k + np.uint64(width), n)
        for at in range(low, high):
            if k == high or (i < middle and keys[i] <= keys[k]):
                merged_keys[at] = keys[i]
                merged_values[at] = values[i]
                i += np.uint64(1)
            else:
                merged_keys[at] = keys[k]
                merged_values[at] = values[k]
                k += np.uint64(1)
        low = high


@kernel
def sum_pairs(keys, values, start, stop, out):  # type: ignore[no-untyped-def]
    """Sort the pairs from `start` to `stop`, sum values of equal keys in order, and move them to `out`; return the end.

    In place; `out` is at most `start`. O(n log n).
    """
    sort_pairs(keys[start:stop], values[start:stop])
    first = out
    for k in range(start, stop):
        if out > first and keys[out - 1] == keys[k]:
            values[out - 1] += values[k]
        else:
            keys[out] = keys[k]
            values[out] = values[k]
            out += 1
    return out
