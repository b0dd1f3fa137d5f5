"""Sequential tests of which scorer has the larger AUC: valid at any time, however often they are read.

For each pair (A, B) of scorers there are two hypotheses, "A is no better" and "B is no better". Each has a wealth that
starts at 1 and is bet on fresh pairs of a positive and a negative:

    d = (share of pairs that A orders rightly) - (share of pairs that B orders rightly)    a tie is one half, |d| <= 1
    wealth_A *= 1 + lambda_A d,   wealth_B *= 1 - lambda_B d
    lambda_A = clip(sum d / (1 + sum d^2), 0, 1/2),   lambda_B = clip(-sum d / (1 + sum d^2), 0, 1/2)    of the past d

If A is no better, E[d | past] <= 0 and wealth_A is a non-negative supermartingale. By Ville's inequality it ever
reaches 2 / alpha with a probability of at most alpha / 2. With both sides, the probability of a verdict on two equal
scorers is at most alpha. There is no correction for several pairs of scorers.

Blocks. Events of one class gather until an event of the other class arrives. That event with the last 1024 gathered
ones is a block, and the block gives one d. Every event is used once. If negatives were reused, as from a window, their
sampling error would recur with each positive, and a bet would win by it although both scorers are equal. The end of a
block depends on labels alone. So for independent events its d has the mean AUC_A - AUC_B, given everything before. For
scorers that learn meanwhile, the hypothesis is that A's scores are no better in any block.

The stake lambda follows the adaptive rule aGRAPA: mean over second moment of the past, the best stake up to second
order. One imagined d^2 of 1 at the start keeps the first stakes small.

O(m) per event of m scorers, O(m^2) more per block, and O(m) for each gathered event.

References
----------
Waudby-Smith, Ramdas. Estimating means of bounded random variables by betting. JRSS-B 86, 2024: aGRAPA.
Ramdas, Grünwald, Vovk, Shafer. Game-theoretic statistics and safe anytime-valid inference. Statistical Science 38,
2023.
Ville. Étude critique de la notion de collectif. 1939.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.numerics import MAX_COUNT, Counts, Issues, Matrix, Vector, counters, kernel, log, not_finite, outside

__all__ = ["GATHERED", "SequentialTest", "decimal_log", "init", "observe", "pairs", "problems", "wealth_limit"]

GATHERED = 1024  # events of one class that wait for the other: more would hardly reduce the noise of a block
_PRIOR = 1.0  # sum of d^2 before the first block
_MOST = 0.5  # largest stake, as a share of the wealth


class SequentialTest(NamedTuple):
    """The arrays of the tests of all P = m (m - 1) / 2 pairs of m scorers, in the order of `pairs`."""

    gathered: Matrix  # (GATHERED, m) scores of the events since the last block as a ring, all of one class
    waiting: Counts  # (2,) number of those events: negatives, positives; one of the two is 0
    blocks: Counts  # (1,)
    sums: Matrix  # (P, 2) of d and d^2
    wealth: Matrix  # (P, 2) logarithms: on "A is better", on "B is better"
    verdicts: NDArray[np.int8]  # (P,) 0 none yet, 1 A is better, 2 B is better; the first verdict stays
    verdict_events: Counts  # (P,) events at the verdict
    verdict_clocks: Vector  # (P,) the clock at the verdict; NaN if unknown


def pairs(m: int) -> list[tuple[int, int]]:
    """List the pairs (A, B) of m scorers."""
    return list(combinations(range(m), 2))


def init(m: int) -> SequentialTest:
    """Return the state for m scorers before any event."""
    size = len(pairs(m))
    return SequentialTest(
        gathered=np.zeros((GATHERED, m)),
        waiting=np.zeros(2, dtype=np.int64),
        blocks=np.zeros(1, dtype=np.int64),
        sums=np.zeros((size, 2)),
        wealth=np.zeros((size, 2)),
        verdicts=np.zeros(size, dtype=np.int8),
        verdict_events=np.zeros(size, dtype=np.int64),
        verdict_clocks=np.full(size, np.nan),
    )


@kernel
def _right(gathered, n, j, score, label):  # type: ignore[no-untyped-def]
    """Count, twice, the n gathered events that scorer j orders rightly with an event of `label` at `score`."""
    twice = 0
    for i in range(n):
        other = gathered[i, j]
        if other == score:
            twice += 1
        elif (other < score) == (label == 1):
            twice += 2
    return twice


@kernel
def _bet(state, pair, d, limit, events, clock):  # type: ignore[no-untyped-def]
    """Bet both wealths of a pair on a block, and note a verdict."""
    first, second = state.sums[pair, 0], state.sums[pair, 1]
    stake = min(abs(first) / (_PRIOR + second), _MOST)
    if first > 0.0:
        state.wealth[pair, 0] += log(1.0 + stake * d)
    elif first < 0.0:
        state.wealth[pair, 1] += log(1.0 - stake * d)
    state.sums[pair, 0] = first + d
    state.sums[pair, 1] = second + d * d
    if state.verdicts[pair] == 0:
        for side in range(2):
            if state.wealth[pair, side] >= limit:
                state.verdicts[pair] = 1 + side
                state.verdict_events[pair] = events
                state.verdict_clocks[pair] = clock


@kernel
def observe(state, limit, label, scores, events, clock):  # type: ignore[no-untyped-def]
    """Take an event of `label` 0 or 1 with the `scores` (m,) of the m scorers, none of them NaN.

    `limit` is the logarithm of the deciding wealth; `events` and `clock` are noted with a verdict.
    """
    m = scores.shape[0]
    n = min(state.waiting[1 - label], GATHERED)
    if n == 0:
        slot = state.waiting[label] % GATHERED
        for j in range(m):
            state.gathered[slot, j] = scores[j]
        state.waiting[label] += 1
        return
    right = np.empty(m, dtype=np.int64)
    for j in range(m):
        right[j] = _right(state.gathered, n, j, scores[j], label)
    pair = 0
    for a in range(m):
        for b in range(a + 1, m):
            _bet(state, pair, (right[a] - right[b]) / (2.0 * n), limit, events, clock)
            pair += 1
    state.blocks[0] += 1
    state.waiting[1 - label] = 0


def problems(state: SequentialTest, events: int) -> Issues:
    """Report what no `events` events can have led to in arrays of the right shapes. O(GATHERED * m + m^2)."""
    wrong = list(counters({"waiting": state.waiting, "blocks": state.blocks}))
    yield from wrong
    if not wrong and state.waiting.all():
        yield "waiting", "has events of both classes, which would have made a block"
    if not wrong and 2 * int(state.blocks[0]) + int(state.waiting.sum()) > events:
        yield "blocks", f"is {state.blocks[0]}, which needs more events than {events}"
    if np.isnan(state.gathered).any():
        yield "gathered", "has numbers that are not a number"
    yield from not_finite("sums", state.sums)
    yield from outside("sums", state.sums[:, 1], 0.0, float(MAX_COUNT))
    yield from not_finite("wealth", state.wealth)
    yield from outside("verdicts", state.verdicts, 0, 2)
    yield from outside("verdict_events", state.verdict_events, 0, events)
    if np.isinf(state.verdict_clocks).any():
        yield "verdict_clocks", "has infinite numbers"


def wealth_limit(alpha: float) -> float:
    """Return the logarithm of the deciding wealth at the level alpha, half of it for each side."""
    limit: float = log(2.0 / alpha)
    return limit


def decimal_log(wealth: float) -> float:
    """Convert the natural logarithm of a wealth to the decimal one."""
    return wealth / math.log(10.0)
