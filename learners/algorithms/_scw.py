"""Soft confidence-weighted learning (SCW-I): how far one constraint moves a Gaussian N(mu, Sigma) over linear models.

For a direction z with v = z.Sigma z and margin m = y mu.z, the constraint "correct with probability eta" is
m >= phi sqrt(v), phi = Phi^-1(eta). If it fails, the nearest Gaussian (in KL, with slack at the rate `cap`) has

    mu + alpha y Sigma z    and    Sigma - beta (Sigma z)(Sigma z)^T,  that is  Sigma^-1 + growth z z^T
    psi = 1 + phi^2/2,  zeta = 1 + phi^2,  r = sqrt(m^2 phi^4/4 + v phi^2 zeta),  alpha = min(cap, (r - m psi)/(v zeta))
    su = the root of the new variance,  beta = alpha phi / (su + v alpha phi),  growth = alpha phi / su

References
----------
Wang, Zhao, Hoi. Exact Soft Confidence-Weighted Learning. ICML 2012, Proposition 1.
Departure: r - m psi and the printed su cancel for m > 0 and for large alpha; both are multiplied by their conjugates.
"""

from __future__ import annotations

import math

from learners.numerics import kernel

__all__ = ["coefficients"]


@kernel
def coefficients(m, v, cap, phi):  # type: ignore[no-untyped-def]
    """Return (alpha, beta, growth) for the margin m and the variance v > 0; all are 0 if the constraint holds.

    The result is finite if m^2 is: v is divided out before another small factor multiplies it, and `cap` bounds alpha
    before a division could overflow.
    """
    squared = phi * phi
    if m > 0.0 and m * m >= squared * v:
        return 0.0, 0.0, 0.0
    psi = 1.0 + 0.5 * squared
    zeta = 1.0 + squared
    r = math.sqrt(0.25 * m * m * squared * squared + v * squared * zeta)
    if m > 0.0:
        over, under = squared - m / v * m, m * psi + r
    else:
        over, under = r - m * psi, v * zeta
    if not over > 0.0:  # the constraint fails by less than rounding
        return 0.0, 0.0, 0.0
    alpha = cap if over >= cap * under else over / under
    p = alpha * v * phi
    twice = p + math.sqrt(p * p + 4.0 * v)  # 2v / su
    return alpha, alpha * phi * twice / (2.0 * v + p * twice), 0.5 * alpha * phi * twice / v
