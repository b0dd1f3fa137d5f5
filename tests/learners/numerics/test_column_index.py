"""Pairs are sorted by their keys: in place, and stable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learners.numerics import sort_pairs
from learners.numerics.plain_kernels import plain

function: Any = sort_pairs


@pytest.mark.parametrize("sort", [sort_pairs, plain(function.py_func)], ids=["machine code", "plain Python"])
@pytest.mark.parametrize("n", [0, 1, 2, 16, 64, 65, 128, 129, 500, 1025])
def test_pairs_of_equal_keys_keep_their_order(sort: Any, n: int) -> None:
    keys = np.random.default_rng(n).integers(0, max(n // 3, 1), n)
    values = np.arange(float(n))
    order = np.argsort(keys, kind="stable")
    expected = keys[order].tolist(), values[order].tolist()
    sort(keys, values)
    assert (keys.tolist(), values.tolist()) == expected
