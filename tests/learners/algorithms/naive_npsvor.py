"""Nonparallel support vectors again, slow and plain, written from the maths: what the kernels are compared with.

All take dense rows; planes are (ranks, dim + 1), the bias at their end. Nothing is imported from the package.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from tests.learners.algorithms.naive import SplitMix

Matrix = Vector = NDArray[np.float64]


def with_bias(X: Matrix, bias: float = 1.0) -> Matrix:
    return np.column_stack([X, np.full(len(X), bias)])


def coordinate(a: float, B: float, A: float, at_rank: bool, eps: float, cap: float) -> float:
    """Minimise over one dual, as in the paper."""
    if not at_rank:
        return float(np.clip(a - (B - 1) / A, 0, cap))
    soft = np.sign(a - B / A) * max(abs(a - B / A) - eps / A, 0)
    return float(np.clip(soft, -cap, cap))


def online(X, y, weight, *, ranks=5, C=0.25, C1=None, eps=0.1, replays=4, capacity=1000, seed=0):  # type: ignore[no-untyped-def]
    """Prequential values, last iterate and average (ranks, dim + 1)."""
    X = with_bias(X)
    w, average = np.zeros((ranks, X.shape[1])), np.zeros((ranks, X.shape[1]))
    buffer: list[Any] = []
    random, t, values = SplitMix(seed), 0, []

    def step(x, label, cap, duals):  # type: ignore[no-untyped-def]
        for k in range(ranks):
            s = 1 if label > k + 1 else -1
            most = cap * (C1 or C) / C if label == k + 1 else cap
            new = coordinate(duals[k], s * (w[k] @ x), x @ x, label == k + 1, eps, most)
            w[k] += (new - duals[k]) * s * x
            duals[k] = new

    for x, label, share in zip(X, y, weight, strict=True):
        values.append(average @ x)
        if share == 0:
            continue
        event = (x, label, C * share, np.zeros(ranks))
        step(*event)
        buffer = [*buffer, event] if len(buffer) < capacity else buffer
        buffer[t % capacity] = event
        for _ in range(replays):
            step(*buffer[random.next() % len(buffer)])
        t += 1
        average += min(1, 8 / (t + 7)) * (w - average)
    return np.array(values), w, average


def batch(X, y, weight, *, ranks=5, C=1.0, C1=None, eps=0.1, bias=True, tolerance=0.1, sweeps=1000, seed=0):  # type: ignore[no-untyped-def]
    """Planes (ranks, dim + 1), and how often an event was shrunk: DCD-2 in the words of the module."""
    X, usual, random = with_bias(X, float(bias)), C * weight, SplitMix(seed)
    w, shrunk = np.zeros((ranks, X.shape[1])), 0
    everyone = [i for i in range(len(y)) if usual[i] > 0 and X[i].any()]
    order = list(everyone)
    for k in range(ranks):
        a, M, first, size = np.zeros(len(y)), np.inf, None, len(order)
        caps = caps_of(y, k + 1, weight, C, C1)
        for _ in range(sweeps):
            violations, at = [], 0
            while at < size:
                index = at + random.next() % (size - at)
                order[at], order[index] = order[index], order[at]
                i = order[at]
                s, at_rank = (1 if y[i] > k + 1 else -1), y[i] == k + 1
                B = s * (w[k] @ X[i])
                G, up, down = B - 1, B + eps, B - eps
                if at_rank:
                    settled = [a[i] == 0 and up > M and down < -M, a[i] == caps[i] and up < -M]
                    settled.append(a[i] == -caps[i] and down > M)
                else:
                    settled = [a[i] == 0 and G > M, a[i] == caps[i] and G < -M]
                if any(settled):
                    size, shrunk = size - 1, shrunk + 1
                    order[at], order[size] = order[size], order[at]
                    continue
                # the distance of 0 from the subdifferential over the box
                low, high = ((up if a[i] > 0 else down), (up if a[i] >= 0 else down)) if at_rank else (G, G)
                low = -np.inf if a[i] == (-caps[i] if at_rank else 0) else low
                high = np.inf if a[i] == caps[i] else high
                violations.append(max(0, low, -high))
                new = coordinate(a[i], B, X[i] @ X[i], at_rank, eps, caps[i])
                w[k] += (new - a[i]) * s * X[i]
                a[i] = new
                at += 1
            M = max(violations, default=0.0)
            first = sum(violations) if first is None else first
            if sum(violations) <= tolerance * first:
                if size == len(order):
                    break
                size, M = len(order), np.inf
    return w, shrunk


def caps_of(y: Vector, k: int, weight: Vector, C: float, C1: float | None = None) -> Vector:
    """Return the cap of each event's dual for the plane of rank k."""
    return weight * np.where(y == k, C if C1 is None else C1, C)


def primal(w: Vector, X: Matrix, y: Vector, k: int, caps: Vector, eps: float) -> float:
    """Return the objective of the plane of rank k."""
    value, s = X @ w, np.where(y > k, 1.0, -1.0)
    loss = np.where(y == k, np.maximum(0, np.abs(value) - eps), np.maximum(0, 1 - s * value))
    return float(w @ w / 2 + caps @ loss)


def dual(X: Matrix, y: Vector, k: int, caps: Vector, eps: float) -> float:
    """Return the dual value at the end of SLSQP: a lower bound, tight up to the accuracy of scipy.

    The variables are the duals of the other ranks' events, then the positive and the negative parts of the own ones'.
    """
    at_rank, s = y == k, np.where(y > k, 1.0, -1.0)
    Z = np.vstack([(s[:, None] * X)[~at_rank], -X[at_rank], X[at_rank]])
    gain = np.concatenate([np.ones((~at_rank).sum()), np.full(2 * at_rank.sum(), -eps)])
    bounds = [(0.0, cap) for cap in (*caps[~at_rank], *caps[at_rank], *caps[at_rank])]
    result = minimize(
        lambda a: ((a @ Z) @ (a @ Z) / 2 - gain @ a, Z @ (a @ Z) - gain),
        np.zeros(len(Z)),
        jac=True,
        method="SLSQP",
        bounds=bounds,
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return -float(result.fun)
