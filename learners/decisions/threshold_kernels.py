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

__all__ = [
    "BUDGET",
    "COST",
    "FIXED",
    "FOFO",
    "OFO",
    "POSITIVES",
    "Rule",
    "decide",
    "decide_one",
    "is_paced",
    "learn",
    "preview",
    "refresh",
]

POSITIVES = 20  # labels after which a learner is no longer young
_LEAST, _TIMES = 0.05, 10.0  # share of alerts before: at most, and in estimated shares of positives
_IMAGINED = 200.0  # events, one of them positive, of that estimate's prior: ten times its share is the 5 % above

_SILENT, _LONGEST = 10.0, 3.0  # mean gaps, and longest gaps, without a positive label
_RECENT = 1024  # decisions that make the share of alerts before

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
    cautious: bool  # limit the alerts while there are few positive labels


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


@inlined
def _limited(rule, labels, silence, count):  # type: ignore[no-untyped-def]
    """Return the rule with the share of alerts to keep to as its rate, if there is one.

    With few positive `labels`, at most that share of events are alerts. While positive labels do not arrive, the
    share is kept as by a budget. An objective that needs no positive labels stays as it is. `count` events were
    decided; those without a label count as negatives here, because positive labels often come first.
    """
    if rule.kind == FPR or BUDGET <= rule.kind <= FIXED:
        return rule
    kind, share = rule.kind, 0.0
    if rule.cautious and labels[1] < POSITIVES:
        events = max(labels[0] + labels[1], count)
        share = max(_LEAST, _TIMES * (labels[1] + 1.0) / (events + _IMAGINED))
    elif silence[4] > 0.0:
        kind, share = BUDGET, silence[4]
    return Rule(
        int(kind), rule.aim, rule.memory, rule.kappa, rule.n1, rule.value, rule.false_positive, rule.false_negative,
        0.0, rule.unit, share, rule.cautious,
    )  # fmt: skip


@inlined
def _account(state):  # type: ignore[no-untyped-def]
    """Return the account in a state, which has the order of `threshold.ThresholdState`."""
    return Account(state[12], state[13], state[14], state[15], state[16])


@inlined
def _paced(rule):  # type: ignore[no-untyped-def]
    """Return whether decisions depend on the alerts before."""
    return rule.kind == BUDGET or rule.rate > 0.0


@bare_kernel
def _silent(seen, silence):  # type: ignore[no-untyped-def]
    """Return the share of alerts to keep to if positive labels have stopped arriving, else 0; 0 if there were none."""
    events, longest, share = silence[0], silence[1], silence[3]
    mean = (seen[0] + seen[1] - events) / max(seen[1], 1)
    if seen[1] < POSITIVES or events < max(_SILENT * mean, _LONGEST * longest):
        return 0.0
    return share


@inlined
def _count_alert(silence, count, decision):  # type: ignore[no-untyped-def]
    """Take the decision on event number `count` into the share of alerts, while positive labels arrive."""
    if silence[4] == 0.0:
        silence[2] += (decision - silence[2]) / min(count, _RECENT)


@bare_kernel
def is_paced(ruled, state):  # type: ignore[no-untyped-def]
    """Do what `threshold.paced` does."""
    return _paced(_limited(Rule(*ruled), state[18], state[17], state[10][0]))


@bare_kernel
def _threshold(rule, state, edges):  # type: ignore[no-untyped-def]
    """Compute the live threshold by the objective, and by the share of alerts to keep to."""
    seen, mean, called, bins, aim = state[1], state[2], state[8], state[9], state[11]
    affordable = 0.0
    if _paced(rule):
        affordable = _affordable(rule, bins[2], _account(state))
    if rule.kind == BUDGET:
        return affordable
    if rule.kind == FOFO:
        best = mean[0]
    elif rule.kind == OFO:
        best = _reached(seen, called)
    elif rule.kind == COST:
        best = rule.false_positive / (rule.false_positive + rule.false_negative)
    elif rule.kind == FIXED:
        best = rule.value
    else:
        best = search(rule.kind, aim[0] if FPR <= rule.kind <= RECALL else rule.aim, bins, edges)
    return max(best, affordable)


@bare_kernel
def refresh(ruled, state, edges):  # type: ignore[no-untyped-def]
    """Set the live threshold."""
    rule = _limited(Rule(*ruled), state[18], state[17], state[10][0])
    state[0][0] = _threshold(rule, state, edges)


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
def _after(rule, state, edges):  # type: ignore[no-untyped-def]
    """Search and fade after a recorded event; due from time to time."""
    live, row, count = state[0], state[9][2], state[10][0]
    if _paced(rule):
        live[0] = _threshold(rule, state, edges)
    if count % EVERY == 0 and rule.memory < np.inf:
        budget = rule.kind == BUDGET
        memory = lookback(_account(state), rule.unit, rule.alerts, rule.rate, count, budget)
        keep = 1.0 - EVERY / min(rule.memory, memory)
        for i in range(BINS):
            row[i] *= keep


@bare_kernel
def _move(rule, state, edges, clock):  # type: ignore[no-untyped-def]
    """Move the clock past the certain end of the slot; return the new slot and its certain end."""
    account = _account(state)
    if tick(account, rule.unit, clock) and _paced(rule):
        state[0][0] = _threshold(rule, state, edges)
    return find_slot(account.clock[0], rule.unit)


@bare_kernel
def learn(ruled, state, edges, probabilities, y, decided, costs, clocks, thresholds, decisions):  # type: ignore[no-untyped-def]
    """Do what `threshold.learn` does; plain tuples, because numba unpacks them in a tenth of the time of named ones."""
    live, seen, mean, theta, centre, radius, block, stage, called, bins, count, aim = state[:12]
    clock, spent, opening, traffic, credit, silence, labels = state[12:19]
    objective = Rule(*ruled)
    rule = _limited(objective, labels, silence, count[0])
    false_positive, false_negative = rule.false_positive, rule.false_negative
    row = bins[2]
    steered = FPR <= objective.kind <= RECALL
    slot, until = find_slot(clock[0], rule.unit)
    step, reached = fofo_stages.step(radius, block), _reached(seen, called)
    for t in range(y.shape[0]):
        p = probabilities[t]
        b = bin_of(edges, p)
        if clocks[t] >= until:  # false for NaN, which moves no clock
            slot, until = _move(rule, state, edges, clocks[t])
        elif clocks[t] > clock[0]:
            clock[0] = clocks[t]
        paced = _paced(rule)
        thresholds[t], decisions[t] = decide_one(
            BUDGET if paced else rule.kind, false_positive, false_negative, live[0], p, costs[t]
        )
        if decided[t]:
            record(clock, spent, opening, traffic, credit, slot, rule.unit, rule.rate, decisions[t])
            row[b] += 1.0
            count[0] += 1
            _count_alert(silence, count[0], decisions[t])
            if count[0] % EVERY == 0 or (paced and (decisions[t] == 1 or count[0] <= FIRST)):
                _after(rule, state, edges)
        positive = 1 if y[t] > 0.0 else 0
        labels[positive] += 1
        limited = rule.rate > 0.0
        if positive == 0:
            silence[0] += 1.0
        else:
            silence[1] = max(silence[1], silence[0] + 1.0)
            silence[3] = silence[2]
            silence[0] = silence[4] = 0.0
        if limited or labels[1] < POSITIVES:
            rule = _limited(objective, labels, silence, count[0])
        free = rule.rate == 0.0
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
        if free and rule.kind == FOFO:
            live[0] = mean[0]
        elif free and rule.kind == OFO:
            live[0] = reached
        elif rule.kind <= OFO:
            if steered and free:
                aim[0] = feedback_aim(rule.kind, aim[0], rule.aim, positive, decisions[t])
            if events <= FIRST or events % EVERY == 0 or (limited and free):
                live[0] = _threshold(rule, state, edges)
                if steered and free:
                    aim[0] = relax_aim(rule.kind, aim[0], rule.aim, live[0])
        if events % EVERY == 0 and silence[4] == 0.0:
            silence[4] = _silent(seen, silence)
            if silence[4] > 0.0:
                rule = _limited(objective, labels, silence, count[0])
                if objective.kind != BUDGET:
                    credit[0] = 0.0
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
    live, row, count = state[0], state[9][2], state[10]  # in the order of `threshold.ThresholdState`
    clock, spent, opening, traffic, credit, silence, labels = state[12:19]
    objective = Rule(*ruled)
    rule = _limited(objective, labels, silence, count[0])
    paced = _paced(rule)
    kind, false_positive, false_negative = BUDGET if paced else rule.kind, rule.false_positive, rule.false_negative
    slot, until = find_slot(clock[0], rule.unit)
    for t in range(probabilities.shape[0]):
        if clocks[t] >= until:  # false for NaN, which moves no clock
            slot, until = _move(rule, state, edges, clocks[t])
        elif clocks[t] > clock[0]:
            clock[0] = clocks[t]
        if not decided:
            thresholds[t], decisions[t] = decide_one(
                kind, false_positive, false_negative, live[0], probabilities[t], costs[t]
            )
        record(clock, spent, opening, traffic, credit, slot, rule.unit, rule.rate, decisions[t])
        row[bin_of(edges, probabilities[t])] += 1.0
        count[0] += 1
        _count_alert(silence, count[0], decisions[t])
        if count[0] % EVERY == 0 or (paced and (decisions[t] == 1 or count[0] <= FIRST)):
            _after(rule, state, edges)
        if labels[1] < POSITIVES:
            rule = _limited(objective, labels, silence, count[0])


@bare_kernel
def preview(kind, false_positive, false_negative, live, probabilities, costs, thresholds, decisions):  # type: ignore[no-untyped-def]
    """Do what `threshold.preview` does, with the live threshold (1,)."""
    for t in range(probabilities.shape[0]):
        thresholds[t], decisions[t] = decide_one(
            kind, false_positive, false_negative, live[0], probabilities[t], costs[t]
        )
