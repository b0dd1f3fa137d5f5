"""Stages of FOFO: half of the best F as the minimiser of a strongly convex function (objective "f1").

The stochastic gradient at theta is

    g = pi theta - max(p - theta, 0)            pi: the running share of positives

    m = max(1, floor(log2(2n / log2 n) / 2) - 1) stages of n0 = floor(n / m) events, for n events in all;
    stage k: theta -= gamma g, clipped to within R of the stage's start and to [0, 1/2],  gamma = R / sqrt(10 n0)
    live: the mean of the stage's iterates, its start included; the next stage starts there, with R / 2

After the m stages the last stage repeats. Without a horizon, blocks of n1 2^j events are FOFO(n1 2^j) each. theta goes
on; the first radius is 1/2, later ones are min(1/2, kappa * radius of the last stage). O(1) per event.

References
----------
Liu, Zhang, Zhou, Yang. Faster Online Learning of Optimal Threshold for Consistent F-measure Optimization. NeurIPS 2018,
Algorithms 1 and 2. Departure: the doubling blocks are ours.
"""

from __future__ import annotations

import math

from learners.numerics import bare_kernel, inlined

__all__ = ["advance", "stages", "step"]


@bare_kernel
def _log2(n):  # type: ignore[no-untyped-def]
    """Compute log2 of an integer from 2 to 2^53 in plain arithmetic: exact at powers of two, equal on every machine."""
    x = float(n)
    result = 0.0
    while x >= 2.0:
        x *= 0.5
        result += 1.0
    bit = 0.5
    for _ in range(52):
        x *= x
        if x >= 2.0:
            x *= 0.5
            result += bit
        bit *= 0.5
    return result


@bare_kernel
def stages(n):  # type: ignore[no-untyped-def]
    """Return (m, n0) of FOFO(n).

    Counts floor(log2(q) / 2) in fours, so that n = 256, where q is 4^3, does not round to 2.
    """
    quotient = 2.0 * n / _log2(n)
    fours = 0
    while quotient >= 4.0:
        quotient *= 0.25
        fours += 1
    m = max(1, fours - 1)
    return m, n // m


@inlined
def step(radius, block):  # type: ignore[no-untyped-def]
    """Return gamma, which is constant in a stage."""
    return radius[0] / math.sqrt(10.0 * block[2])


@inlined
def advance(seen, mean, theta, centre, radius, block, stage, gamma, p, kappa):  # type: ignore[no-untyped-def]
    """Take a step of FOFO after `seen` counted the event; return whether another stage begins.

    `gamma` is from `step`; `kappa` is 0 with a horizon.
    """
    pi = seen[1] / (seen[0] + seen[1])
    g = pi * theta[0] - max(p - theta[0], 0.0)
    low = max(0.0, centre[0] - radius[0])
    high = min(0.5, centre[0] + radius[0])
    theta[0] = min(max(theta[0] - gamma * g, low), high)
    stage[1] += 1
    mean[0] = (stage[1] * mean[0] + theta[0]) / (stage[1] + 1)
    block[3] += 1
    if kappa > 0.0 and block[3] == block[0]:
        block[0] *= 2
        block[1], block[2] = stages(block[0])
        block[3] = 0
        radius[0] = min(0.5, kappa * radius[0])
        stage[0] = 0
    elif stage[1] == block[2]:
        if stage[0] + 1 < block[1]:
            stage[0] += 1
            radius[0] *= 0.5
    else:
        return False
    stage[1] = 0
    theta[0] = mean[0]
    centre[0] = mean[0]
    return True
