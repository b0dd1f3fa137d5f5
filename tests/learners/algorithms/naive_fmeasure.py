"""The baselines of the F-measure again, slow and plain, written from the maths: what the kernels are compared with.

Each takes dense rows (n, dim), labels and weights, and returns the prequential scores with what its state holds at the
end; a w has the bias as its last entry. Nothing is imported from the package.
"""

from __future__ import annotations

import math

import numpy as np

from tests.learners.algorithms.naive import SplitMix


def f_measure(called, y):  # type: ignore[no-untyped-def]
    """F of calling some of the events positive; 0 where nothing is called and nothing was positive."""
    positive = np.asarray(y) > 0
    return float(2 * np.sum(positive & called) / max(1, np.sum(positive) + np.sum(called)))


def ofo_threshold(p, y):  # type: ignore[no-untyped-def]
    """Return the threshold before each event: half of the F of all predictions before."""
    thresholds: list[float] = []
    for t in range(len(p)):
        called = np.array([p[i] >= thresholds[i] for i in range(t)], dtype=bool)
        thresholds.append(f_measure(called, y[:t]) / 2)
    return np.array(thresholds)


def omcsl(X, y, weight, *, c=2.0, learners=10, power=128, seed=0):  # type: ignore[no-untyped-def]
    """Scores, the learners' w, which of them was drawn last."""
    X = np.column_stack([X, np.ones(len(X))])
    w, random, draws, steps = np.zeros((learners, X.shape[1])), SplitMix(seed), 0, 0
    levels = np.arange(1, learners + 1) / (learners + 1)
    scores, calls = [], []
    for t in range(len(y)):
        values = w @ X[t]
        scores.append(values[draws])
        calls.append(values >= 0)
        if weight[t] == 0:
            continue
        steps += 1
        cost, target = (1 - levels / 2, 1) if y[t] > 0 else (levels / 2, 0)
        w = w + weight[t] * c / math.sqrt(steps) * np.outer(cost * (target - 1 / (1 + np.exp(-values))), X[t])
        reached = [f_measure(called, y[: t + 1]) for called in np.transpose(calls)]
        chances = np.array([(f / max(reached)) ** power if max(reached) else 1.0 for f in reached])
        draws = int(np.searchsorted(np.cumsum(chances), np.sum(chances) * (random.next() >> 11) / 2**53, side="right"))
    return np.array(scores), w, draws


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
        level_events = list(stage(length // 4))
        if len(level_events) == length // 4:
            k, positive, score = weight[level_events], y[level_events] > 0, scores[level_events]
            if level == "calls":
                r = (score >= 0) == positive
            else:
                r = np.maximum(0, 1 - np.log2(1 + np.exp(-y[level_events] * score)))
            hits, misses = np.sum((k * r)[positive]), np.sum((k * (1 - r))[~positive])
            every = np.sum(k[positive])
            if every > 0:
                v = max(2 * hits / (every + hits + misses), 2 * every / (every + np.sum(k)))
        length *= 2
    return scores, w, v


def best_edge(objective, p, y, weight, aim=1.0):  # type: ignore[no-untyped-def]
    """Return the best threshold for an objective by the weights of past events; `aim` is beta or the target."""
    edges = np.append([0.0], 1 / (1 + np.exp(-(np.arange(1, 256) * 24 / 256 - 12))))
    positive = np.asarray(y) > 0
    P, N = np.sum(weight[positive]), np.sum(weight[~positive])
    values = []
    for edge in edges:
        tp, fp = np.sum(weight[positive & (p >= edge)]), np.sum(weight[~positive & (p >= edge)])
        fn = P - tp
        values.append(
            {
                "fbeta": (1 + aim**2) * tp / ((1 + aim**2) * (tp + 1) + aim**2 * fn + fp),
                "jaccard": tp / (tp + fn + fp + 2),
                "optroc": tp - fp,
                "fpr": fp + 1 <= aim * (N + 1),
                "precision": tp >= aim * (tp + fp + 1),
                "recall": tp >= aim * P - 1e-9,
            }[objective]
        )
    values = np.array(values)
    if objective in ("fpr", "precision"):
        return edges[np.argmax(values)] if values.any() else 1.0
    if objective == "recall":
        return edges[np.flatnonzero(values)[-1]] if P else 0.0
    if objective == "optroc" and values.max() <= 0:
        return 1.0
    return edges[np.flatnonzero(values >= values.max() - 1e-12)[-1]] if len(p) else 0.0


def sketch_threshold(objective, p, y, memory=None, aim=1.0):  # type: ignore[no-untyped-def]
    """Return the threshold before each event: the best edge after the first 64 events and every 32nd, fading.

    A target is what the mean outcome of the events that it is about is led to, by moving what is searched for.
    """
    target, weight = aim, np.zeros(0)
    step = min(0.005, target / 4, (1 - target) / 4)
    live, thresholds = best_edge(objective, p[:0], y[:0], np.ones(0), aim), []
    for t in range(1, len(p) + 1):
        thresholds.append(live)
        called, positive = p[t - 1] >= live, y[t - 1] > 0
        rates = {"fpr": (not positive, called), "recall": (positive, called), "precision": (called, positive)}
        concerned, outcome = rates.get(objective, (False, False))
        if concerned:
            aim = float(np.clip(aim + step * (target - outcome), 0, 1))
        weight = np.append(weight, 1.0)
        if t <= 64 or t % 32 == 0:
            live = best_edge(objective, p[:t], y[:t], weight, aim)
            if objective == "precision" and live == 1.0 and aim > target:
                aim = 0.95 * aim + 0.05 * target
        if t % 32 == 0 and memory is not None:
            weight = weight * (1 - 32 / min(memory, max(1000, t / 8)))
    return np.array(thresholds)


class Budget:
    """Alerts by a budget, event by event: the account is plain lists, and every count is computed afresh."""

    def __init__(self, alerts=0.0, rate=0.0, unit=86400.0, memory=30000):  # type: ignore[no-untyped-def]
        self.alerts, self.rate, self.unit, self.memory = alerts, rate, unit, memory
        self.clock = math.nan
        self.now: list[tuple[float, int]] = []  # of the unit: the share of it that was gone, the decision
        self.follows = False
        self.usual: list[float | None] = [None] * 24
        self.recent: list[list[float]] = []  # probability, weight
        self.credit, self.live, self.count = 0.0, 1.0, 0

    def decide(self, p, clock):  # type: ignore[no-untyped-def]
        """(threshold, decision) of an event."""
        self.tick(clock)
        prediction = (self.live, int(self.live < 1 and p >= self.live))
        self.now.append((math.nan if math.isnan(self.clock) else self.clock / self.unit % 1, prediction[1]))
        self.recent.append([p, 1.0])
        self.credit = min(self.credit + self.rate, 40.0) - (prediction[1] if self.rate else 0.0)
        self.count += 1
        if prediction[1] or self.count <= 64 or self.count % 32 == 0:
            self.live = self.search()
        if self.count % 32 == 0 and self.memory is not None:
            memory = min(self.memory, self.looks_back())
            for event in self.recent:
                event[1] *= 1 - 32 / memory
        return prediction

    def tick(self, clock):  # type: ignore[no-untyped-def]
        before = self.clock
        if math.isnan(clock) or clock <= before:
            return
        self.clock = clock
        if math.isnan(before):
            self.now = []
        elif clock // self.unit == before // self.unit:
            if int(clock / self.unit % 1 * 24) == int(before / self.unit % 1 * 24):
                return
        else:
            units = clock // self.unit - before // self.unit
            if self.now:
                first = 0 if self.follows else math.ceil(self.now[0][0] * 24)
                last = 24 if units == 1 else int(before / self.unit % 1 * 24)
                for s in range(first, last):
                    arrivals, usual = self.arrivals(s), self.usual[s]
                    self.usual[s] = arrivals if usual is None else usual + 0.3 * (arrivals - usual)
            self.now, self.follows = [], units == 1
        self.live = self.search()

    def arrivals(self, s):  # type: ignore[no-untyped-def]
        return float(sum(int(elapsed * 24) == s for elapsed, _ in self.now if not math.isnan(elapsed)))

    def rest(self):  # type: ignore[no-untyped-def]
        if math.isnan(self.clock):
            return 100 * self.alerts + 4 * len(self.now)
        slots = [value for value in self.usual if value is not None]
        first = sum(slots) == 0
        average = 100 * self.alerts / 24 if first else sum(slots) / len(slots)
        usual = [average if first or value is None else value for value in self.usual]
        total = sum(usual)
        elapsed = self.clock / self.unit % 1
        opening = self.now[0][0] if self.now else elapsed

        def between(start, stop):  # type: ignore[no-untyped-def]
            return sum(usual[s] * max(0.0, min((s + 1) / 24, stop) - max(s / 24, start)) * 24 for s in range(24))

        arrivals = sum(
            self.arrivals(s) if first else min(self.arrivals(s), 3 * usual[s] + total / 24) for s in range(24)
        )
        prior = (0.01 if first else 0.1) * total
        return between(elapsed, 1.0) * (arrivals + prior) / (between(opening, elapsed) + prior)

    def search(self):  # type: ignore[no-untyped-def]
        if self.rate:
            if self.credit + self.rate < 1 - 8:
                return 1.0
            share = min(max(self.rate * (1 + self.credit / 20), 0.0), 3 * self.rate)
            return self.quantile(share * 2 ** max(0.0, (self.credit - 8) / 4), self.credit > 8)
        spent, planned, rest, unit_events = self.plan()
        left = math.floor(self.alerts) - spent
        if left < 1 or spent > self.most(planned):
            return 1.0
        share = min(1.0, left / max(rest, 1e-300), 3 * self.alerts / unit_events)
        share *= 2 ** max(0.0, 4 * ((planned - spent) / self.chance() - 1))
        return self.quantile(share, spent < planned - max(1, self.alerts / 10))

    def plan(self):  # type: ignore[no-untyped-def]
        """Alerts of the unit, those planned by now, events still to come, events of the whole unit."""
        events, rest = len(self.now), self.rest()
        unit_events = max(events + rest, 1.0)
        return sum(decision for _, decision in self.now), self.alerts * events / unit_events, rest, unit_events

    def most(self, planned):  # type: ignore[no-untyped-def]
        return planned * (5 if math.isnan(self.clock) else 1) + max(2, self.alerts / 5)

    def chance(self):  # type: ignore[no-untyped-def]
        return max(self.alerts / 10, min(1.5 * math.sqrt(self.alerts), self.alerts / 3))

    def looks_back(self):  # type: ignore[no-untyped-def]
        """Events after which a past event counts 1/e."""
        slots = sum(value for value in self.usual if value is not None)
        memory = max(2 * slots, 1000) if slots else math.inf
        if self.rate:
            memory = max(min(memory, max(1000, self.count / 8)), 20 / self.rate)
            changed = self.credit > 8 or self.credit + self.rate < 1 - 8
            short = 5 / self.rate
        else:
            spent, planned, _, unit_events = self.plan()
            changed = spent < planned - self.chance() or spent > self.most(planned)
            short = max(1 / 8, 5 / self.alerts) * unit_events
        return min(memory, max(short, 64)) if changed else memory

    def quantile(self, share, at_edge):  # type: ignore[no-untyped-def]
        masses = np.zeros(256)
        for p, weight in self.recent:
            odds = math.log(p / (1 - p)) if 0 < p < 1 else math.copysign(100, p - 0.5)
            masses[min(max(int((odds + 12) / 24 * 256), 0), 255)] += weight
        if not masses.sum() or share <= 0:
            return 1.0
        if share >= 1:
            return 0.0
        above = np.cumsum(masses[::-1])[::-1]
        b = int(np.flatnonzero(above > share * masses.sum() * (1 + 1e-12))[-1])
        low = b * 24 / 256 - 12 if b else -37.0
        high = (b + 1) * 24 / 256 - 12 if b < 255 else 37.0
        if at_edge:
            return 1 / (1 + math.exp(-low)) if b else 0.0
        inside = (share * masses.sum() - (above[b] - masses[b])) / masses[b]
        return min(1 / (1 + math.exp(-(high - (high - low) * inside))), 1 - 2**-53)
