"""Prints a hash of what every online algorithm and embedding makes of a short stream, in each precision.

    python -m tests.learners.numerics.bits

What it prints has to be the same with and without compilation (NUMBA_DISABLE_JIT=1).
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np

from learners import algorithms
from learners.algorithms import model_scores
from learners.features import kernel_approximation
from learners.features.kernel_approximation import Embedding
from learners.numerics.arrays import Rows, Vector
from learners.numerics.float32 import Precision
from tests.learners.streams import as_sparse, labels_for, run, stream

__all__ = ["hashes"]


def hashes() -> dict[str, str]:
    """Hash states and scores for each algorithm, its options, kind of rows and precision; also for embedded rows."""
    result = {}
    X, y = stream(40, 11, seed=12, density=0.7)
    X[:, 3] *= 1e20  # squares are beyond float32,
    X[20:, 5] *= 1e-30  # and vanish there
    for name, algorithm in algorithms().items():
        if not hasattr(algorithm, "learn"):
            continue
        for words in [np.ascontiguousarray] * algorithm.TRAITS.dense + [as_sparse] * algorithm.TRAITS.sparse:
            for precision in get_args(Precision):
                for number, params in enumerate(_choices(algorithm)):
                    label = f"{name} {words.__name__} {precision} {number}"
                    result[label] = _hash(algorithm, params, words(X), labels_for(algorithm, y), precision)
    for kind in ("nystroem", "fourier"):
        for precision in get_args(Precision):
            settings = Embedding.of({"kind": kind, "components": 9})
            space = kernel_approximation.fit(settings, X[:, :3], 5, precision)
            result[f"{kind} {precision}"] = _digest([*space, kernel_approximation.transform(settings, space, X[:, :3])])
    return result


def _choices(algorithm: Any) -> Iterator[Any]:
    """Return the defaults, then each option of each choice."""
    yield algorithm.Params()
    for name, entry in algorithm.Params.schema()["properties"].items():
        for option in entry.get("enum", ()):
            yield algorithm.Params(**{name: option})


def _hash(algorithm: Any, params: Any, rows: Rows, y: Vector, precision: Precision) -> str:
    state, scores = run(algorithm, params, rows, y, weight=np.arange(len(y)) % 3 / 2.0, precision=precision)
    return _digest([*state, scores, model_scores(algorithm.weights(params, state), rows)])


def _digest(arrays: list[Any]) -> str:
    out = hashlib.blake2b(digest_size=8)
    for array in arrays:
        out.update(np.ascontiguousarray(array).tobytes())
    return out.hexdigest()


if __name__ == "__main__":
    warnings.simplefilter("ignore", RuntimeWarning)  # splitmix64 wraps around 2^64, which NumPy's scalars tell of
    json.dump(hashes(), sys.stdout)
