"""The baselines of the AUC papers again, slow and plain, written from the maths: what the kernels are compared with.

Each takes dense rows (n, dim), labels and weights, and returns the prequential scores with what its state holds at the
end. Nothing is imported from the package, and none of its guards is repeated here.
"""

from __future__ import annotations

import math

import numpy as np

from tests.learners.algorithms.naive import Buffers, SplitMix


def transformed(X, y):  # type: ignore[no-untyped-def]
    """LOAM's samples: (xh, s) of each event that comes when both classes are there, else None."""
    result = []
    for t in range(len(y)):
        X_own, X_other = X[: t + 1][y[: t + 1] == y[t]], X[: t + 1][y[: t + 1] != y[t]]
        s = 1 / math.sqrt(2 * len(X_own) / (t + 1))
        result.append((s * y[t] * (X[t] - X_other.mean(axis=0)), s) if len(X_other) else None)
    return result


def loam_ilsc(X, y, weight, *, lam=1.0):  # type: ignore[no-untyped-def]
    """Scores, w, S: the closed form, solved anew before each event."""
    w, H, target, scores = np.zeros(X.shape[1]), lam * np.eye(X.shape[1]), np.zeros(X.shape[1]), []
    for x, sample, k in zip(X, transformed(X, y), weight, strict=True):
        scores.append(w @ x)
        if sample is not None:
            xh, s = sample
            H = H + k * np.outer(xh, xh)
            target = target + k * s * xh
            w = np.linalg.solve(H, target)
    return np.array(scores), w, np.linalg.inv(H)


def pairwise_minimiser(X, y, lam):  # type: ignore[no-untyped-def]
    """argmin of LOAM's objective (1): lam/2 |w|^2 + mean over the pairs of (1 - w.(p - q))^2 / 2."""
    Z = np.array([p - q for p in X[y > 0] for q in X[y < 0]])
    return np.linalg.solve(lam * np.eye(X.shape[1]) + Z.T @ Z / len(Z), Z.mean(axis=0))


def univariate_minimiser(X, y, lam):  # type: ignore[no-untyped-def]
    """argmin of LOAM's objective (3): lam/2 |w|^2 + mean of q (1 - w.(x - c-))^2 and q (1 - w.(c+ - x))^2."""
    P, positive, negative = np.mean(y > 0), X[y > 0], X[y < 0]
    Z = np.vstack([positive - negative.mean(axis=0), positive.mean(axis=0) - negative])
    q = np.concatenate([np.full(len(positive), 1 / (4 * P)), np.full(len(negative), 1 / (4 * (1 - P)))]) / len(y)
    return np.linalg.solve(lam * np.eye(X.shape[1]) + 2 * Z.T @ (q[:, None] * Z), 2 * Z.T @ q)


def oam(X, y, weight, *, C=2.0**-10, capacity=50, buffer="reservoir", weighted=False, seed=0):  # type: ignore[no-untyped-def]
    """Scores, w."""
    w, buffers, scores = np.zeros(X.shape[1]), Buffers(capacity, buffer, seed), []
    for x, label, k in zip(X, y, weight, strict=True):
        scores.append(w @ x)
        buffers.add(int(label), x)
        cap = k * C * (max(1, buffers.count[-int(label)] / capacity) if weighted else 1)
        for b in buffers.rows[-int(label)]:
            z = x - b
            m = label * (w @ z)
            if m < 1 and z.any():
                w = w + min(cap, (1 - m) / (z @ z)) * label * z
    return np.array(scores), w


def _pull(w, x, label, others, lam):  # type: ignore[no-untyped-def]
    """Return the gradient of the loss of OPAUC: squared over the pairs of x with all others, by mean and covariance."""
    z = x - np.mean(others, axis=0)
    return lam * w - label * z + z * (z @ w) + np.cov(others, rowvar=False, bias=True).reshape(len(w), len(w)) @ w


def opauc(X, y, weight, *, eta=2.0**-8, lam=2.0**-10):  # type: ignore[no-untyped-def]
    """Scores, w, class means and class covariances (negatives, positives)."""
    w, scores = np.zeros(X.shape[1]), []
    for t in range(len(y)):
        scores.append(w @ X[t])
        others = X[:t][y[:t] != y[t]]
        if len(others):
            w = w - weight[t] * eta * _pull(w, X[t], y[t], others, lam)
    classes = [X[y < 0], X[y > 0]]
    covariances = [np.cov(rows, rowvar=False, bias=True).reshape(len(w), len(w)) for rows in classes]
    return np.array(scores), w, [rows.mean(axis=0) for rows in classes], covariances


def _in_ball(w, lam):  # type: ignore[no-untyped-def]
    return w * min(1, 1 / max(math.sqrt(lam) * np.linalg.norm(w), 1e-300))


def adaoam(X, y, weight, *, eta=2.0**-4, lam=2.0**-10, delta=0.5):  # type: ignore[no-untyped-def]
    """Scores, w, h."""
    w, h, scores = np.zeros(X.shape[1]), np.zeros(X.shape[1]), []
    for t in range(len(y)):
        scores.append(w @ X[t])
        others = X[:t][y[:t] != y[t]]
        if len(others) and weight[t] > 0:
            g = weight[t] * _pull(w, X[t], y[t], others, lam)
            h = h + g**2
            w = w - eta * g / (delta + np.sqrt(h))
            w = _in_ball(w, lam)
    return np.array(scores), w, h


def uni_exp(X, y, weight, *, eta=2.0**-10):  # type: ignore[no-untyped-def]
    """Scores, w."""
    w, scores = np.zeros(X.shape[1]), []
    for t in range(len(y)):
        scores.append(w @ X[t])
        n_own = np.sum(y[: t + 1] == y[t])
        if n_own <= t:
            margin = y[t] * (w @ X[t])
            w = w + weight[t] * eta * (t + 1) / (2 * n_own) * math.exp(-margin) * y[t] * X[t]
    return np.array(scores), w


def solam(X, y, weight, *, R=0.5, c=0.5):  # type: ignore[no-untyped-def]
    """Scores, w, its average, (a, b, alpha)."""
    w = np.full(X.shape[1], R / math.sqrt(X.shape[1]))
    a, b, alpha = R, R, 2 * R
    iterates, steps, scores = [], [], []
    for t in range(len(y)):
        scores.append(np.average(iterates, axis=0, weights=steps) @ X[t] if steps else 0.0)
        if weight[t] == 0:
            continue
        g, p, f = weight[t] * c / math.sqrt(t + 1), np.mean(y[: t + 1] > 0), w @ X[t]
        iterates.append(w)
        steps.append(g)
        if y[t] > 0:
            k = 2 * (1 - p) * (f - a) - 2 * (1 + alpha) * (1 - p)
            a, alpha = a + 2 * g * (1 - p) * (f - a), alpha + g * (-2 * (1 - p) * f - 2 * p * (1 - p) * alpha)
        else:
            k = 2 * p * (f - b) + 2 * (1 + alpha) * p
            b, alpha = b + 2 * g * p * (f - b), alpha + g * (2 * p * f - 2 * p * (1 - p) * alpha)
        w = w - g * k * X[t]
        w = w * min(1, R / np.linalg.norm(w))
        a, b, alpha = min(a, R), min(b, R), float(np.clip(alpha, -2 * R, 2 * R))
    return np.array(scores), w, np.average(iterates, axis=0, weights=steps), [a, b, alpha]


def normal(random: SplitMix) -> float:
    """Twelve uniform numbers, the quarters of three words, less 6."""
    words = [random.next() for _ in range(3)]
    return sum(((word >> shift) % 2**16 + 0.5) / 2**16 for word in words for shift in (0, 16, 32, 48)) - 6


def opaucr(X, y, weight, *, eta=2.0**-10, lam=2.0**-10, tau=50, seed=0):  # type: ignore[no-untyped-def]
    """Scores, w."""
    random = SplitMix(seed)
    A = np.array([[normal(random) for _ in range(tau)] for _ in y]) / math.sqrt(tau)
    w, scores = np.zeros(X.shape[1]), []
    for t in range(len(y)):
        scores.append(w @ X[t])
        others, a = X[:t][y[:t] != y[t]], A[:t][y[:t] != y[t]]
        if len(others) and weight[t] > 0:
            c, Z, abar = others.mean(axis=0), others.T @ a, a.mean(axis=0)
            z = X[t] - c
            gamma_w = Z @ (Z.T @ w) / len(others) - (w @ c) * (abar @ abar) * c
            w = _in_ball(w - weight[t] * eta * (lam * w - y[t] * z + z * (z @ w) + gamma_w), lam)
    return np.array(scores), w


def kept_products(rows, tau):  # type: ignore[no-untyped-def]
    """Return the entries of OPAUCs for a class: per column {earlier column: sum of products}, in order of places."""
    entries: list[dict[int, float]] = [{} for _ in range(rows.shape[1])]
    for x in rows:
        for j, mine in enumerate(entries):
            rest = []
            for i in range(j):
                if i in mine:
                    mine[i] += x[i] * x[j]
                elif x[i] * x[j] != 0 and len(mine) < tau:
                    mine[i] = x[i] * x[j]
                elif x[i] * x[j] != 0:
                    rest.append(i)
            if not rest:
                continue
            best = max(rest, key=lambda i: abs(x[i] * x[j]))
            p, worst = x[best] * x[j], min(mine, key=lambda i: abs(mine[i]))
            if abs(mine[worst]) > abs(p):
                mine[worst] -= math.copysign(p, mine[worst])
            else:
                took = math.copysign(abs(p) - abs(mine[worst]), p)
                entries[j] = {best if i == worst else i: took if i == worst else v for i, v in mine.items()}
                mine = entries[j]
    return entries


def opaucs(X, y, weight, *, eta=2.0**-8, lam=2.0**-10, tau=50):  # type: ignore[no-untyped-def]
    """Scores, w."""
    w, scores = np.zeros(X.shape[1]), []
    for t in range(len(y)):
        scores.append(w @ X[t])
        others = X[:t][y[:t] != y[t]]
        if not len(others) or weight[t] == 0:
            continue
        c, gamma = others.mean(axis=0), np.diag(others.var(axis=0))
        for j, mine in enumerate(kept_products(others, tau)):
            for i, product in mine.items():
                most = others[:, i].std() * others[:, j].std()
                gamma[i, j] = gamma[j, i] = np.clip(product / len(others) - c[i] * c[j], -most, most)
        z = X[t] - c
        w = _in_ball(w - weight[t] * eta * (lam * w - y[t] * z + z * (z @ w) + gamma @ w), lam)
    return np.array(scores), w
