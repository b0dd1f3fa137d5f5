"""The algorithms again, slow and plain, written from the maths: what the kernels are compared with.

Each takes dense rows (n, dim), labels and weights, and returns the prequential scores with what its state holds at the
end. Nothing is imported from the package.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np


class SplitMix:
    """splitmix64 on Python's whole numbers."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def next(self) -> int:
        mask = 2**64 - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)


class Buffers:
    """Stored examples per class, as lists in slot order."""

    def __init__(self, capacity: int, kind: str, seed: int) -> None:
        self.capacity, self.kind, self.random = capacity, kind, SplitMix(seed)
        self.rows: dict[int, list[Any]] = {-1: [], 1: []}
        self.count = {-1: 0, 1: 0}

    def add(self, label: int, row: Any) -> None:
        self.count[label] += 1
        stored = self.rows[label]
        if len(stored) < self.capacity:
            stored.append(row)
        elif self.kind == "fifo":
            stored[(self.count[label] - 1) % self.capacity] = row
        else:
            at = self.random.next() % self.count[label]
            if at < self.capacity:
                stored[at] = row


def scw(m: float, v: float, cap: float, phi: float) -> tuple[float, float, float]:
    """alpha, beta and the growth of the inverse as Wang, Zhao and Hoi print them."""
    psi, zeta = 1 + phi**2 / 2, 1 + phi**2
    alpha = max(0.0, (-m * psi + math.sqrt(m**2 * phi**4 / 4 + v * phi**2 * zeta)) / (v * zeta))
    alpha = min(cap, alpha)
    root = (-alpha * v * phi + math.sqrt(alpha**2 * v**2 * phi**2 + 4 * v)) / 2
    return alpha, alpha * phi / (root + v * alpha * phi), alpha * phi / root


def cbr(X, y, weight, *, C=2.0**-8, eta=0.7, capacity=10, buffer="fifo", seed=0):  # type: ignore[no-untyped-def]
    """Scores, mu, Sigma."""
    phi = NormalDist().inv_cdf(eta)
    mu, sigma, buffers, scores = np.zeros(X.shape[1]), np.eye(X.shape[1]), Buffers(capacity, buffer, seed), []
    for x, label, share in zip(X, y, weight, strict=True):
        scores.append(mu @ x)
        buffers.add(int(label), x)
        for b in buffers.rows[-int(label)]:
            z = x - b
            m, v = label * (mu @ z), z @ sigma @ z
            if v > 0 and m < phi * math.sqrt(v):
                alpha, beta, _ = scw(m, v, C * share, phi)
                u = sigma @ z
                mu = mu + alpha * label * u
                sigma = sigma - beta * np.outer(u, u)
    return np.array(scores), mu, sigma


def cbr_diag(X, y, weight, *, C=2.0**-8, eta=0.7, capacity=10, buffer="fifo", mode="covariance", seed=0):  # type: ignore[no-untyped-def]
    """Scores, mu, G."""
    phi = NormalDist().inv_cdf(eta)
    mu, G, buffers, scores = np.zeros(X.shape[1]), np.ones(X.shape[1]), Buffers(capacity, buffer, seed), []
    for x, label, share in zip(X, y, weight, strict=True):
        scores.append(mu @ x)
        buffers.add(int(label), x)
        for b in buffers.rows[-int(label)]:
            z = x - b
            m, v = label * (mu @ z), float(np.sum(z**2 / (G + C)) if mode == "paper" else np.sum(z**2 * G))
            if not (v > 0 and m < phi * math.sqrt(v)):
                continue
            alpha, beta, growth = scw(m, v, C * share, phi)
            mu = mu + alpha * label * (z / G if mode == "paper" else z * G)
            if mode == "paper":
                G = G + beta * z**2
            elif mode == "exact":
                G = 1 / (1 / G + growth * z**2)
            else:
                G = G - beta * (G * z) ** 2
    return np.array(scores), mu, G


def loam_ada(X, y, weight, *, eta=2.0**-2, lam=2.0**-11, delta=1e-8):  # type: ignore[no-untyped-def]
    """Scores, w, h."""
    w, h, scores = np.zeros(X.shape[1]), np.zeros(X.shape[1]), []
    for t in range(len(y)):
        scores.append(w @ X[t])
        X_own, X_other = X[: t + 1][y[: t + 1] == y[t]], X[: t + 1][y[: t + 1] != y[t]]
        if not len(X_other):
            continue
        s = 1 / math.sqrt(2 * len(X_own) / (t + 1))
        xh = s * y[t] * (X[t] - X_other.mean(axis=0))
        g = weight[t] * (lam * w - (s - w @ xh) * xh)
        h = h + g**2
        w = w - eta * g / (delta + np.sqrt(h))
    return np.array(scores), w, h


def fofo(X, y, weight, *, c=1.0, averaging="last"):  # type: ignore[no-untyped-def]
    """Scores (log-odds), and what scores next: w with the bias at its end."""
    X = np.hstack([X, np.ones((len(X), 1))])
    w, t, scores = np.zeros(X.shape[1]), 0, []
    iterates = [w]  # those that the mean is over
    for x, label, share in zip(X, y, weight, strict=True):
        scores.append((np.mean(iterates, axis=0) if averaging == "suffix" else w) @ x)
        if share == 0:
            continue
        t += 1
        p = 1 / (1 + math.exp(-(w @ x)))
        w = w + share * c / math.sqrt(t) * ((label > 0) - p) * x
        iterates = [w] if t in {2**j for j in range(40)} else [*iterates, w]
    return np.array(scores), np.mean(iterates, axis=0) if averaging == "suffix" else w


def stages(n: int) -> tuple[int, int]:
    """FOFO's m and n0."""
    m = max(1, math.floor(math.log2(2 * n / math.log2(n)) / 2) - 1)
    return m, n // m


def fofo_threshold(p, y, *, horizon=None, n1=256, kappa=8.0):  # type: ignore[no-untyped-def]
    """Return the threshold before each event: FOFO(horizon), or in blocks of doubling length."""
    thresholds: list[float] = []
    theta_hat, first, n = 0.0, 0.5, horizon or n1
    while len(thresholds) < len(p):
        m, n0 = stages(n)
        R, stage = first, 1
        block_ends = len(thresholds) + n if horizon is None else len(p)
        while len(thresholds) < min(len(p), block_ends):
            gamma = R / math.sqrt(10 * n0)
            start = theta = theta_hat
            iterates = [theta]
            for _ in range(min(n0, block_ends - len(thresholds), len(p) - len(thresholds))):
                t = len(thresholds)
                thresholds.append(float(np.mean(iterates)))
                pi = np.mean(y[: t + 1] > 0)
                g = pi * theta - max(p[t] - theta, 0)
                theta = float(np.clip(theta - gamma * g, max(0, start - R), min(0.5, start + R)))
                iterates.append(theta)
            theta_hat = float(np.mean(iterates))
            if len(thresholds) < block_ends and stage < m:
                R, stage = R / 2, stage + 1
        first, n = min(0.5, kappa * R), 2 * n
    return np.array(thresholds)


def window_threshold(p, y, memory=None):  # type: ignore[no-untyped-def]
    """Return the threshold before each event: the best F of a histogram over log-odds, fading every 32 events."""
    edges = np.arange(256) * 24 / 256 - 12
    keep = 1.0 if memory is None else 1 - 32 / memory
    live, thresholds = 0.0, []
    for t in range(1, len(p) + 1):
        thresholds.append(live)
        if t > 64 and t % 32:
            continue
        weight = keep ** ((t - 1) // 32 - np.arange(t) // 32)
        odds = np.log(p[:t] / (1 - p[:t]))
        places = np.clip(np.floor((odds + 12) / (24 / 256)), 0, 255)
        positive = y[:t] > 0
        best = -1.0
        for b in range(255, -1, -1):
            called = places >= b
            f = 2 * np.sum(weight[called & positive]) / (np.sum(weight[positive]) + np.sum(weight[called]) + 2)
            if f > best:
                best, live = f, 1 / (1 + math.exp(-edges[b])) if b else 0.0
    return np.array(thresholds)
