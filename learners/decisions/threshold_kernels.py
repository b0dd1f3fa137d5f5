"""Compiled code of all objectives: from a probability to its decision, and the update after it.

A `Rule` holds the settings of `threshold.py` as numbers; `state` is a `ThresholdState`, changed in place. Each event
updates FOFO's stages, OFO's counts, the sketch and the budget's account, whatever the objective: O(1), and O(256) when
a search is due.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from learners.decisions import fofo_stages
from learners.decisions.alert_budget import EVERY, Account, allowed_share, find_slot, lookback, quantile, record, tick
from learners.decisions.threshold_search import (
    ACCURACY,
    BINS,
    FPR,
    RECALL,
    bin_of,
    effective_memory,
    feedback_aim,
    relax_aim,
    search,
)
from learners.numerics import bare_kernel, inlined

__all__ = ["BUDGET", "COST", "FIXED", "FOFO", "OFO", "Rule", "decide", "decide_one", "learn", "preview", "refresh"]

FIRST = 64  # a search after each of so many events, then after every 32nd
_FACTOR = 1e100  # the largest cost of an event: its products are finite

FOFO, OFO, BUDGET, COST, FIXED = range(10, 15)  # kinds without a search; those with a search have its numbers


class Rule(NamedTuple):
    """The settings as the kernels take them."""

    kind: int
    aim: float  # beta^2, or the target
    memory: float  # events; infinite: never fade
    kappa: float  # 0: there is a horizon
    n1: int  # events of FOFO's first block, or of all
    value: float
    false_positive: float
    false_negative: float
    alerts: float  # 0: no budget per unit
    unit: float  # seconds
    rate: float  # 0: no budget by share


@inlined
def _reached(seen, called):  # type: ignore[no-untyped-def]
    """Compute half of the F that f1-ofo has reached."""
    calls = seen[1] + called[0]
    return called[1] / calls if calls > 0 else 0.0


@bare_kernel
def _affordable(rule, row, account):  # type: ignore[no-untyped-def]
    """Compute the threshold that a budget allows, from the probabilities in the third row of the sketch."""
    share, behind = allowed_share(account, rule.unit, rule.alerts, rule.rate)
    return quantile(row, share, behind)


@bare_kernel
def refresh(rule, state, edges):  # type: ignore[no-untyped-def]
    """Set the live threshold by the objective."""
    live = state.live
    if rule.kind == FOFO:
        live[0] = state.mean[0]
    elif rule.kind == OFO:
        live[0] = _reached(state.seen, state.called)
    elif rule.kind == BUDGET:
        account = Account(state.clock, state.spent, state.opening, state.traffic, state.credit)
        live[0] = _affordable(rule, state.bins[2], account)
    elif rule.kind == COST:
        live[0] = rule.false_positive / (rule.false_positive + rule.false_negative)
    elif rule.kind == FIXED:
        live[0] = rule.value
    else:
        aim = state.aim[0] if FPR <= rule.kind <= RECALL else rule.aim
        live[0] = search(rule.kind, aim, state.bins, edges)


@inlined
def decide_one(kind, false_positive, false_negative, live, p, cost):  # type: ignore[no-untyped-def]
    """Return (threshold, decision) of an event; the first three arguments are from a `Rule`."""
    if kind == COST:
        factor = 1.0 if math.isnan(cost) else min(max(cost, 0.0), _FACTOR)
        live = false_positive / (false_positive + false_negative * factor)
    elif kind == BUDGET and live == 1.0:  # no alert now, not even for a probability of 1
        return live, 0
    return live, 1 if p >= live else 0


@bare_kernel
def _after(rule, live, row, count, account):  # type: ignore[no-untyped-def]
    """Search and fade after a recorded event; due from time to time."""
    if rule.kind == BUDGET:
        live[0] = _affordable(rule, row, account)
    if count % EVERY == 0 and rule.memory < np.inf:
        paced = rule.kind == BUDGET
        keep = 1.0 - EVERY / min(rule.memory, lookback(account, rule.unit, rule.alerts, rule.rate, count, paced))
        for i in range(BINS):
            row[i] *= keep


@bare_kernel
def _move(rule, live, row, account, clock):  # type: ignore[no-untyped-def]
    """Move the clock past the certain end of the slot; return the new slot and its certain end."""
    if tick(account, rule.unit, clock) and rule.kind == BUDGET:
        live[0] = _affordable(rule, row, account)
    return find_slot(account.clock[0], rule.unit)


@bare_kernel
def learn(ruled, state, edges, probabilities, y, decided, costs, clocks, thresholds, decisions):  # type: ignore[no-untyped-def]
    """Do what `threshold.learn` does; plain tuples, because numba unpacks them in a tenth of the time of named ones."""
    rule = Rule(*ruled)
    kind, false_positive, false_negative = rule.kind, rule.false_positive, rule.false_negative
    live, seen, mean, theta, centre, radius, block, stage, called, bins, count, aim = state[:12]
    clock, spent, opening, traffic, credit = state[12:]
    row = bins[2]
    steered = FPR <= rule.kind <= RECALL
    slot, until = find_slot(clock[0], rule.unit)
    step, reached = fofo_stages.step(radius, block), _reached(seen, called)
    for t in range(y.shape[0]):
        p = probabilities[t]
        b = bin_of(edges, p)
        if clocks[t] >= until:  # false for NaN, which moves no clock
            account = Account(clock, spent, opening, traffic, credit)
            slot, until = _move(rule, live, row, account, clocks[t])
        elif clocks[t] > clock[0]:
            clock[0] = clocks[t]
        thresholds[t], decisions[t] = decide_one(kind, false_positive, false_negative, live[0], p, costs[t])
        if decided[t]:
            record(clock, spent, opening, traffic, credit, slot, rule.unit, rule.rate, decisions[t])
            row[b] += 1.0
            count[0] += 1
            if count[0] % EVERY == 0 or (rule.kind == BUDGET and (decisions[t] == 1 or count[0] <= FIRST)):
                account = Account(clock, spent, opening, traffic, credit)
                _after(rule, live, row, count[0], account)
        positive = 1 if y[t] > 0.0 else 0
        call = p >= reached  # at 0 the first event is predicted positive
        seen[positive] += 1
        if call:
            called[0] += 1
            called[1] += positive
        reached = _reached(seen, called)
        if fofo_stages.advance(seen, mean, theta, centre, radius, block, stage, step, p, rule.kappa):
            step = fofo_stages.step(radius, block)
        bins[positive, b] += 1.0
        events = seen[0] + seen[1]
        if rule.kind == FOFO:
            live[0] = mean[0]
        elif rule.kind == OFO:
            live[0] = reached
        elif rule.kind <= ACCURACY:
            if steered:
                aim[0] = feedback_aim(rule.kind, aim[0], rule.aim, positive, decisions[t])
            if events <= FIRST or events % EVERY == 0:
                live[0] = search(rule.kind, aim[0] if steered else rule.aim, bins, edges)
                if steered:
                    aim[0] = relax_aim(rule.kind, aim[0], rule.aim, live[0])
        if events % EVERY == 0 and rule.memory < np.inf:
            keep = 1.0 - EVERY / effective_memory(rule.memory, events)
            for i in range(BINS):
                bins[0, i] *= keep
                bins[1, i] *= keep


@bare_kernel
def decide(ruled, state, edges, probabilities, costs, clocks, decided, thresholds, decisions):  # type: ignore[no-untyped-def]
    """Do what `threshold.serve` does, or `threshold.note` if the `decisions` are `decided` already.

    Rule and `state` are as for `learn`; `thresholds` is not used if `decided`.
    """
    rule = Rule(*ruled)
    kind, false_positive, false_negative = rule.kind, rule.false_positive, rule.false_negative
    live, row, count = state[0], state[9][2], state[10]  # in the order of `threshold.State`
    clock, spent, opening, traffic, credit = state[12:]
    slot, until = find_slot(clock[0], rule.unit)
    for t in range(probabilities.shape[0]):
        if clocks[t] >= until:  # false for NaN, which moves no clock
            account = Account(clock, spent, opening, traffic, credit)
            slot, until = _move(rule, live, row, account, clocks[t])
        elif clocks[t] > clock[0]:
            clock[0] = clocks[t]
        if not decided:
            thresholds[t], decisions[t] = decide_one(
                kind, false_positive, false_negative, live[0], probabilities[t], costs[t]
            )
        record(clock, spent, opening, traffic, credit, slot, rule.unit, rule.rate, decisions[t])
        row[bin_of(edges, probabilities[t])] += 1.0
        count[0] += 1
        if count[0] % EVERY == 0 or (rule.kind == BUDGET and (decisions[t] == 1 or count[0] <= FIRST)):
            account = Account(clock, spent, opening, traffic, credit)
            _after(rule, live, row, count[0], account)


@bare_kernel
def preview(kind, false_positive, false_negative, live, probabilities, costs, thresholds, decisions):  # type: ignore[no-untyped-def]
    """Do what `threshold.preview` does, with the live threshold (1,)."""
    for t in range(probabilities.shape[0]):
        thresholds[t], decisions[t] = decide_one(
            kind, false_positive, false_negative, live[0], probabilities[t], costs[t]
        )
