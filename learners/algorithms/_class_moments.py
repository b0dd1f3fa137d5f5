"""Running means and covariances of the two classes, and the gradient steps of one-pass AUC methods.

The squared loss of one example over its pairs with *all* examples of the other class depends only on their mean c and
covariance Gamma:

    z = x - c,  s = +-1:   gradient  lam w - s z + z (z.w) + Gamma w        curvature: lam I + z z^T + Gamma
"""

from __future__ import annotations

import math

import numpy as np

from learners.numerics import dot, kernel, simd

__all__ = ["absorb", "descend_in_ball", "gradient", "rounding"]


@kernel
def rounding(n):  # type: ignore[no-untyped-def]
    """Return the share of a value by which rounding can move its mean, for n equal values summed one by one.

    Each addition errs by at most 2^-53 of the partial sum, which makes (n + 1) / 2 times 2^-53 of the mean; the
    division adds two roundings. So a smaller residual cannot be told from 0. Running means of equal values are exact.
    """
    return (n + 8.0) * 2.0**-54


@kernel
def absorb(x, n, mean, gamma, delta):  # type: ignore[no-untyped-def]
    """Add the n-th row of a class to `mean` (dim,) and `gamma` (dim, dim), in place; `delta` (dim,) is scratch.

    With delta = x - mean of the rows before: Gamma = (1 - 1/n) Gamma + (1/n)(1 - 1/n) delta delta^T. delta_i delta_j is
    the same number as delta_j delta_i, so Gamma stays symmetric to the bit. O(dim^2).
    """
    dim = x.shape[0]
    share = 1.0 / n
    keep = 1.0 - share
    for j in range(dim):
        delta[j] = x[j] - mean[j]
        mean[j] += share * delta[j]
    for i in range(dim):
        di = delta[i]
        for j in range(dim):
            gamma[i, j] = simd.within(gamma, keep * np.float64(gamma[i, j]) + (share * keep) * (di * delta[j]))


@kernel
def gradient(x, y, w, lam, mean, gamma, z, g):  # type: ignore[no-untyped-def]
    """Fill `g` (dim,) and the scratch `z` (dim,); return lam + z.z + trace Gamma, which bounds the curvature. O(dim^2).

    Gamma w is a sum of Gamma's rows (it is symmetric), first to last: a fixed order that vectorises.
    """
    dim = x.shape[0]
    for j in range(dim):
        z[j] = x[j] - mean[j]
        g[j] = lam * np.float64(w[j])
    bound = lam + dot(z, z)
    for i in range(dim):
        wi = np.float64(w[i])
        bound += gamma[i, i]
        for j in range(dim):
            g[j] += wi * gamma[i, j]
    pull = dot(z, w) - y
    for j in range(dim):
        g[j] += pull * z[j]
    return bound


@kernel
def descend_in_ball(w, g, step, bound, lam):  # type: ignore[no-untyped-def]
    """Step w -= step g, with the step at most 2 / `bound`, and scale back to |w| <= 1 / sqrt(lam). O(dim).

    The loss at 0 is 1/2 and the penalty lam/2 |w|^2, so the minimiser is in that ball. An estimate of the curvature
    need not be positive in all directions; without the ball, w would grow along such a direction without bound.
    """
    if step * bound > 2.0:
        step = 2.0 / bound
    for j in range(w.shape[0]):
        w[j] = simd.within(w, w[j] - step * g[j])
    norm = lam * dot(w, w)
    if norm > 1.0:
        back = 1.0 / math.sqrt(norm)
        for j in range(w.shape[0]):
            w[j] = simd.within(w, np.float64(w[j]) * back)
