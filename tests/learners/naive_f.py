"""The baselines of the F-measure again, slow and plain, written from the maths: what the kernels are compared with.

Each takes dense rows (n, dim), labels and weights, and returns the prequential scores with what its state holds at the
end; a w has the bias as its last entry. Nothing is imported from the package.
"""

from __future__ import annotations

import math

import numpy as np

from tests.learners.naive import SplitMix


def f_measure(called, y):  # type: ignore[no-untyped-def]
    """F of calling some of the events positive; 0 where nothing is called and nothing was positive."""
    positive = np.asarray(y) > 0
    return float(2 * np.sum(positive & called) / max(1, np.sum(positive) + np.sum(called)))


def ofo_threshold(p, y):  # type: ignore[no-untyped-def]
    """The threshold before each event: half of the F of all calls before."""
    thresholds: list[float] = []
    for t in range(len(p)):
        called = np.array([p[i] >= thresholds[i] for i in range(t)], dtype=bool)
        thresholds.append(f_measure(called, y[:t]) / 2)
    return np.array(thresholds)


def omcsl(X, y, weight, *, c=2.0, learners=10, power=128, seed=0):  # type: ignore[no-untyped-def]
    """Scores, the learners' w, which of them was drawn last."""
    X = np.column_stack([X, np.ones(len(X))])
    w, random, drawn, steps = np.zeros((learners, X.shape[1])), SplitMix(seed), 0, 0
    levels = np.arange(1, learners + 1) / (learners + 1)
    scores, calls = [], []
    for t in range(len(y)):
        own = w @ X[t]
        scores.append(own[drawn])
        calls.append(own >= 0)
        if weight[t] == 0:
            continue
        steps += 1
        cost, target = (1 - levels / 2, 1) if y[t] > 0 else (levels / 2, 0)
        w = w + weight[t] * c / math.sqrt(steps) * np.outer(cost * (target - 1 / (1 + np.exp(-own))), X[t])
        reached = [f_measure(called, y[: t + 1]) for called in np.transpose(calls)]
        chances = np.array([(f / max(reached)) ** power if max(reached) else 1.0 for f in reached])
        drawn = int(np.searchsorted(np.cumsum(chances), np.sum(chances) * (random.next() >> 11) / 2**53, side="right"))
    return np.array(scores), w, drawn


def stamp(X, y, weight, *, c=1.0, level="calls", length=64):  # type: ignore[no-untyped-def]
    """Scores, w, the level."""
    X = np.column_stack([X, np.ones(len(X))])
    w, v, steps, scores = np.zeros(X.shape[1]), 1.0, 0, X[:, 0] * 0
    todo = list(range(len(y)))  # events still to come

    def stage(size):  # type: ignore[no-untyped-def]
        """Score the events up to the `size`-th that has weight; yields those that have."""
        while size and todo:
            t = todo.pop(0)
            scores[t] = w @ X[t]
            if weight[t] > 0:
                size -= 1
                yield t

    while todo:
        for t in stage(length):
            steps += 1
            cost = 2 - v if y[t] > 0 else v
            w = w + weight[t] * c / math.sqrt(steps) * cost * y[t] / (1 + math.exp(y[t] * scores[t])) * X[t]
        met = list(stage(length // 4))
        if len(met) == length // 4:
            k, positive, score = weight[met], y[met] > 0, scores[met]
            if level == "calls":
                r = (score >= 0) == positive
            else:
                r = np.maximum(0, 1 - np.log2(1 + np.exp(-y[met] * score)))
            hits, misses = np.sum((k * r)[positive]), np.sum((k * (1 - r))[~positive])
            every = np.sum(k[positive])
            if every > 0:
                v = max(2 * hits / (every + hits + misses), 2 * every / (every + np.sum(k)))
        length *= 2
    return scores, w, v
