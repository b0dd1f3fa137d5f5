"""The pairwise squared hinge: value, gradient and Hessian over all pairs by sorting, and a Newton minimiser.

With the score s = w.x of each event, p for positives and q for negatives, and the weight u of an event:

    F(w) = |w|^2 / 2 + (C / 2) sum u_i u_j max(0, 1 - (p_i - q_j))^2 / sum u_i u_j        i positive, j negative

The code never lists the pairs. A positive i has a loss with exactly the negatives above p_i - 1, and sorting makes them
contiguous. So with cumulative sums a_i of their weights and b_i of their weighted scores

    dL/dp_i = -u_i (a_i (1 - p_i) + b_i)         dL/dq_j = u_j (a_j (1 + q_j) - b_j), b_j over the p_i below q_j + 1
    (L'' e)_i = u_i (a_i e_i - sum of u_j e_j)   (L'' e)_j = u_j (a_j e_j - sum of u_i e_i)

O(n log n) for a value and gradient, then O(n) for each product with the Hessian, O(n) memory; a step of the solver adds
up to 30 products with the rows and with their transpose.

The sum is divided by the total weight of the pairs, so C does not depend on the number of events or on the scale of
their weights. |w|^2 <= C holds for the minimiser and for every iterate before it, because F(0) = C / 2.

References
----------
Chapelle, Keerthi. Efficient algorithms for ranking with SVMs. Information Retrieval 13, 2010, PRSVM+.
Khalid, Ray, Chitsaz. Scalable Nonlinear AUC Maximization Methods. ECML PKDD 2018, NBAUC.
Hager, Zhang. A new conjugate gradient method with guaranteed descent and an efficient line search. SIAM Journal on
Optimization 16, 2005, section 4: the approximate Wolfe conditions.
Departures: event weights; the mean instead of the sum over pairs; step halving instead of an exact line search.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.numerics import Counts, Matrix, Vector

if TYPE_CHECKING:
    from scipy import sparse

__all__ = ["Expansion", "Minimum", "PairLoss", "minimise"]

_INNER_TOLERANCE = 0.1  # conjugate gradients stop at this share of the gradient's norm,
_INNER_ITERATIONS = 30  # or after this number of products with the Hessian
_HALVINGS = 60  # of a step; after that rounding hides any lower point
_DECREASE = 1e-4  # least share of the decrease predicted by the slope (Armijo)
_ROUNDING = 1e-12  # of F: below it differences are noise, and the slope at the end of the step decides
_FLOOR = 1e-140  # a gradient with a smaller norm counts as 0: its square would underflow


class PairLoss:
    """Half the mean squared hinge over all (positive, negative) pairs, as a function of the scores of n events.

    Raises ValueError if a class has no event of positive weight.
    """

    def __init__(self, y: Vector, weight: Vector) -> None:
        self.positives = _of_class(y > 0, weight, "+1")
        self.negatives = _of_class(y < 0, weight, "-1")
        self.share = np.zeros(len(y))  # (n,) of the weight of the class; the weight of a pair is share_i share_j
        for events in (self.positives, self.negatives):
            self.share[events] = weight[events] / weight[events].sum()

    def at(self, scores: Vector) -> Expansion:
        """Expand the loss at scores (n,). O(n log n)."""
        centred = scores - scores.mean()  # only differences matter, and sums of smaller numbers are more exact
        positives = self.positives[np.argsort(centred[self.positives], kind="stable")]
        negatives = self.negatives[np.argsort(centred[self.negatives], kind="stable")]
        return Expansion(centred, self.share, positives, negatives)


class Expansion:
    """Value, gradient and Hessian of a `PairLoss` at one point: `positives` and `negatives` ascend by score.

    Attributes
    ----------
    value
        The loss.
    slopes
        (n,) the derivatives by the scores.
    """

    def __init__(self, scores: Vector, share: Vector, positives: Counts, negatives: Counts) -> None:
        self._positives, self._negatives = positives, negatives
        p, q = scores[positives], scores[negatives]
        self._u, self._v = share[positives], share[negatives]
        # both sides test q_j > fl(p_i - 1): with different rounding the Hessian would not be symmetric
        bound = p - 1.0
        self._first = np.searchsorted(q, bound, side="right")  # (m,) positive i pairs with negatives first[i], ...
        self._last = np.searchsorted(bound, q, side="left")  # (k,) negative j pairs with positives ..., last[j] - 1
        self._pairs_p = _above(self._v, self._first)
        self._pairs_q = _below(self._u, self._last)
        down = self._u * (self._pairs_p * (1.0 - p) + _above(self._v * q, self._first))
        up = self._v * (self._pairs_q * (1.0 + q) - _below(self._u * p, self._last))
        self.slopes = np.zeros(len(scores))
        self.slopes[positives] = -down
        self.slopes[negatives] = up
        # sum of r^2 = sum of r (1 - p) + r q over the pairs; `down` and `up` are sums of r
        self.value = max(0.0, 0.5 * float(down @ (1.0 - p) + up @ q))

    def curve(self, direction: Vector) -> Vector:
        """Multiply the Hessian by a direction in the space of scores, (n,). O(n)."""
        centred = direction - direction.mean()
        p, q = centred[self._positives], centred[self._negatives]
        out = np.zeros(len(direction))
        out[self._positives] = self._u * (self._pairs_p * p - _above(self._v * q, self._first))
        out[self._negatives] = self._v * (self._pairs_q * q - _below(self._u * p, self._last))
        return out


class Minimum(NamedTuple):
    """The result of the solver: the state of the algorithms with this loss."""

    w: Vector  # (dim,)
    objective: Vector  # (1,) F(w)
    gradient: Vector  # (1,) norm of the gradient, as a share of the norm at w = 0
    iterations: Counts  # (1,) Newton steps


def minimise(
    X: Matrix | sparse.csr_array, loss: PairLoss, C: float, *, tolerance: float = 1e-3, iterations: int = 100
) -> Minimum:
    """Minimise F for rows X (n, dim), dense or CSR, by truncated Newton steps from w = 0.

    Stops when the norm of the gradient is at most `tolerance` times the norm at w = 0, after `iterations` steps, or if
    rounding hides any lower point. The result is finite for rows up to 1e100 and C up to 2^40. If all rows are below
    about 1e-140 / C, squares would underflow, and w is 0.
    """
    objective = _Objective(X, loss, C)
    v = np.zeros(X.shape[1])
    scores = np.zeros(X.shape[0])
    at = loss.at(scores)
    gradient = objective.gradient(v, at)
    norm = start = float(np.linalg.norm(gradient))
    value = objective.value(v, at)
    steps = 0
    while steps < iterations and norm > max(tolerance * start, _FLOOR):
        direction = objective.newton(gradient, at)
        step = objective.step(v, scores, direction, at)
        if step == 0.0:
            break
        v += step * direction
        scores = objective.scores(v)
        at = loss.at(scores)
        gradient = objective.gradient(v, at)
        steps += 1
        before, value = value, objective.value(v, at)
        steeper, norm = norm, float(np.linalg.norm(gradient))
        # stop at rounding: before that F falls, or near the minimum the gradient falls to about a tenth
        if value >= (1.0 - _ROUNDING) * before and norm > 0.5 * steeper:
            break
    return Minimum(
        w=v / objective.scale,
        objective=np.array([value]),
        gradient=np.array([norm / start if start > 0.0 else 0.0]),
        iterations=np.array([steps], dtype=np.int64),
    )


class _Objective:
    """F as a function of v = scale w, which multiplies rows X / scale; then |w|^2 is `ridge` |v|^2.

    The scale is a power of two, so it changes no bit; it keeps all squares in range for any rows. X is not copied: the
    vectors are divided instead.
    """

    def __init__(self, X: Matrix | sparse.csr_array, loss: PairLoss, C: float) -> None:
        self._X, self._transposed, self._loss, self._C = X, X.T, loss, C
        values: Vector = X if isinstance(X, np.ndarray) else X.data
        largest = max(float(values.max()), -float(values.min())) if values.size else 0.0
        self.scale = max(1.0, math.ldexp(1.0, math.frexp(largest)[1]))
        self._ridge = 1.0 / (self.scale * self.scale)

    def scores(self, v: Vector) -> Vector:
        scores: Vector = self._X @ (v / self.scale)
        return scores

    def value(self, v: Vector, at: Expansion) -> float:
        return 0.5 * self._ridge * float(v @ v) + self._C * at.value

    def gradient(self, v: Vector, at: Expansion) -> Vector:
        return self._ridge * v + self._gathered(at.slopes)

    def newton(self, gradient: Vector, at: Expansion) -> Vector:
        """Approximate -gradient / Hessian by conjugate gradients; any partial solution is a direction of descent."""
        solution = np.zeros_like(gradient)
        residual = -gradient
        along = residual.copy()
        square = first = float(residual @ residual)
        for _ in range(_INNER_ITERATIONS):
            curved = self._ridge * along + self._gathered(at.curve(self.scores(along)))
            curvature = float(along @ curved)
            if not curvature > 0.0:  # the Hessian is positive definite, so this is rounding
                break
            length = square / curvature
            solution += length * along
            residual -= length * curved
            previous, square = square, float(residual @ residual)
            if square <= _INNER_TOLERANCE * _INNER_TOLERANCE * first:
                break
            along = residual + (square / previous) * along
        return solution

    def step(self, v: Vector, scores: Vector, direction: Vector, at: Expansion) -> float:
        """Return the first of the steps 1, 1/2, 1/4, ... along `direction` that lowers F enough; 0 if none does.

        A trial costs O(n log n) for any rows, because scores are linear in the step. Near the minimum rounding hides
        changes of F long before changes of its slope. Then the step must reduce the slope instead.
        """
        moved = self.scores(direction)
        linear, square = self._ridge * float(v @ direction), self._ridge * float(direction @ direction)
        slope = linear + self._C * float(at.slopes @ moved)
        rounding = _ROUNDING * self.value(v, at)
        step = 1.0
        for _ in range(_HALVINGS if slope < 0.0 else 0):
            trial = self._loss.at(scores + step * moved)
            change = step * (linear + 0.5 * step * square) + self._C * (trial.value - at.value)
            if change <= _DECREASE * step * slope:
                return step
            late = linear + step * square + self._C * float(trial.slopes @ moved)
            if change <= rounding and late <= (2.0 * _DECREASE - 1.0) * slope:
                return step
            step *= 0.5
        return 0.0

    def _gathered(self, slopes: Vector) -> Vector:
        gathered: Vector = self._transposed @ (slopes / self.scale)
        gathered *= self._C
        return gathered


def _of_class(mask: NDArray[np.bool_], weight: Vector, label: str) -> Counts:
    events: Counts = np.flatnonzero(mask & (weight > 0))
    if not len(events):
        raise ValueError(f"no event of positive weight has the label {label}; a ranking needs both classes")
    return events


def _above(values: Vector, first: Counts) -> Vector:
    """Return the sum of values[k:] for each k in `first`."""
    tails = np.zeros(len(values) + 1)
    tails[:-1] = np.cumsum(values[::-1])[::-1]
    return tails[first]


def _below(values: Vector, last: Counts) -> Vector:
    """Return the sum of values[:k] for each k in `last`."""
    heads = np.zeros(len(values) + 1)
    np.cumsum(values, out=heads[1:])
    return heads[last]
