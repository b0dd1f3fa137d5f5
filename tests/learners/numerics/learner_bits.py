"""Prints a hash of what whole learners make of a stream: state, scores, live metrics and explanations.

    python -m tests.learners.numerics.learner_bits [ALGORITHM ...]

What it prints has to be the same with machine code and with plain Python (NUMBA_DISABLE_JIT=1).
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import numpy as np

from learners import Config, Learner, algorithms, explain_scores
from learners.kernel_warmup import _FEATURES, _SCALINGS, _configuration
from learners.numerics import hashes_of
from learners.records import ServedBatch

__all__ = ["hashes"]

_EVENTS = 150


def hashes(names: list[str]) -> dict[str, str]:
    """Hash learners of each algorithm, kind of features, and the combinations of settings that `warm` compiles."""
    result = {}
    for name in names:
        algorithm = algorithms()[name]
        for features in _FEATURES:
            sparse = features["kind"] in ("named", "sparse")
            if not (algorithm.TRAITS.sparse if sparse else algorithm.TRAITS.dense):
                continue
            for number in range(len(_SCALINGS)):
                config = _configuration(name, algorithm, features, number) | {"window": 40, "remembered_ids": 20}
                for precision in ("float64", "float32")[: 2 if number == 1 else 1]:
                    label = f"{name} {features['kind']} {number} {precision}"
                    result[label] = _hash(Learner(Config.of({**config, "precision": precision})), features["kind"])
    return result


def _events(kind: str) -> list[Any]:
    chance = np.random.default_rng(7)
    values = np.round(chance.normal(size=(_EVENTS, 3)) * [1.0, 10.0, 1e-3], 4)
    values[chance.random(values.shape) < 0.1] = 0.0
    words = chance.integers(0, 6, _EVENTS)
    make: Any = {
        "dense": lambda row, _: row[:2].tolist(),
        "table": lambda row, word: {"a": float(row[0]), "b": f"w{word}"} if word else {"a": None},
        "named": lambda row, word: {"a": float(row[0]), "b": f"w{word}", "c": float(row[1]), f"d{word}": 1},
        "sparse": lambda row, word: ([0, 1 + int(word)], row[:2].tolist()),
    }[kind]
    return [make(row, int(word)) for row, word in zip(values, words, strict=True)]


def _hash(learner: Learner, kind: str) -> str:
    events = _events(kind)
    ordinal = learner.config.labels.ranks is not None
    chance = np.random.default_rng(8)
    labels = [int(label) + ordinal for label in chance.random(_EVENTS) < 0.2]
    out: list[Any] = []
    for start in range(0, _EVENTS, 30):
        part = slice(start, start + 30)
        times = [1e9 + 7.0 * i for i in range(start, start + 30)]
        applied = learner.learn(
            events[part], labels[part], ids=[f"e{i}" for i in range(start, start + 30)], times=times
        )
        scores = learner.scorer().score(learner.encode(events[part]))
        hashes = hashes_of([f"s{i}" for i in range(start, start + 30)])
        learner.apply(ServedBatch(hashes, np.array(times), *scores))
        out += [applied, *scores]
    learner.learn(events[:1], [1 + ordinal], ids=["e140"])  # a correction
    out.append(json.dumps(learner.view().figures.as_json(), default=repr))
    if not ordinal:
        out.append(repr(explain_scores(learner.scorer(), events[:3], 2)))
    out += [item for name, array in sorted(learner.state().items()) for item in (name, array)]
    digest = hashlib.blake2b(digest_size=8)
    for item in out:
        digest.update(
            f"{item}".encode() if item is None or isinstance(item, str) else np.ascontiguousarray(item).tobytes()
        )
    return digest.hexdigest()


if __name__ == "__main__":
    json.dump(hashes(sys.argv[1:] or list(algorithms())), sys.stdout, indent=0)
