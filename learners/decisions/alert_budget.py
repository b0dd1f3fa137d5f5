"""Account of an alert budget: so many alerts per unit of time (a day), or a share of all events. Needs no labels.

Per unit of time, with k alerts each. E events came in this unit, and `rest` more are expected. Of those

    share = min(1, (alerts left) / rest, 3 k / (E + rest))

may be alerts. So the threshold is the quantile of recent probabilities with this share above it. Errors of the forecast
and drift of the scores correct themselves. The factor 3 keeps arbitrary events from filling the end of a unit.

By now k E / (E + rest) alerts are planned. With more than max(2, k / 5) beyond the plan, and once all k are spent, the
threshold is 1 and there is no alert. So neither a burst of high scores nor many ties can use up the rest of the unit.
With more than max(1, k / 10) below the plan, the threshold moves down to the edge of its bin, because many
probabilities may tie there.

The traffic of a unit is learnt in 24 slots (hours of a day), as an average that takes in 3/10 of each new unit. The
average unit has T events, of them G in the slots since this unit's first event:

    rest = (events of the average unit in the slots left) (E + T / 10) / (G + T / 10)

A slot adds to this E at most 3 times its average and T / 24, because a burst predicts little of later hours. A unit
that does not directly follow another teaches nothing about the time before its first event. A unit before a gap teaches
nothing about the time from its last slot on. In the first unit T is 100 k, spread evenly, with weight 1/100 instead of
1/10, so that it matters only for the first events. If no event has a time, there is one endless unit with
rest = 100 k + 4 E: the first 100 k events spend a third of the budget, later ones ever less.

As a share r of all events. A credit rises by r with each event, up to 40, and falls by 1 with each alert. The share is
r (1 + credit / 20), from 0 to 3 r. If an alert would take the credit below -8, the threshold is 1. Above 8 it moves
down to the edge of its bin. So n events give at most r n + 8 alerts, and with steady traffic about r n +- sqrt(10).

The quantile comes from the third row of the sketch (`threshold_search.py`): every decided event in 256 bins of
log-odds, evenly spread within a bin. An event has weight 1/e after `memory` more events, or fewer: two average units,
for a share r also an 8th of all events; but at least 1,000 events and 20 / r. If the share is less than one of these
events, only probabilities above all of them are alerts.

If all probabilities change at once, old ones mislead. The account shows this: the unit is held back, or lags behind the
plan by more than v = max(k / 10, min(k / 3, 1.5 sqrt k)) alerts. For k from 20 to 200 that is three standard deviations
of chance half way. Then an event has weight 1/e after max(1/8, 5 / k) of a unit (for a share with 8 alerts missing:
after 5 / r), so that a few alerts' worth of new events outweigh the old. A lagging share is doubled for each v / 4 (or
4 alerts) more. After a tenfold fall of all odds, the second unit spends most of its budget again.

O(1) per event, and O(256 + 24) per search.

References
----------
Ours. Throttling by a forecast of the unit's traffic is known from the pacing of advertising budgets: Agarwal, Ghosh,
Wei, You. Budget Pacing for Targeted Online Advertisements at LinkedIn. KDD 2014.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from learners.decisions.threshold_search import BINS, REACH
from learners.numerics import (
    MAX_COUNT,
    Counts,
    Issues,
    Matrix,
    Vector,
    bare_kernel,
    counters,
    exp,
    inlined,
    outside,
    sigmoid,
)

__all__ = [
    "EVERY",
    "SLACK",
    "SLOTS",
    "Account",
    "allowed_share",
    "change_unit",
    "find_slot",
    "init",
    "lookback",
    "problems",
    "quantile",
    "record",
    "rewind",
    "tick",
]

EVERY = 32  # events between searches, after the first ones
SLOTS = 24
SLACK = 8.0  # alerts beyond a share of all events
_SAVED = 40.0  # largest credit of a share of all events, in alerts
_GAIN = 20.0  # credit that doubles the share
_STEEPEST = 3.0  # largest share, in shares of an even spread
_BURST = 3.0  # largest traffic of a slot in the forecast, in averages
_RATE = 0.3  # weight of a new unit in the average
_PRIOR, _FIRST_PRIOR = 0.1, 0.01  # weight of the average unit in the forecast
_EVENTS_PER_ALERT = 100.0  # before any traffic is known
_ENDLESS = 4.0  # expected events per event so far, without a clock
_UNITS, _LEAST_MEMORY = 2.0, 1000.0  # memory of the quantile: average units, least events
_SHARE_OF_ALL, _OF_A_SHARE = 0.125, 20.0  # for a share of all events: at most of all events, at least in alerts' worth
_SHORT, _FEWEST = 0.125, 5.0  # memory during a change: units, and alerts' worth of events
_SHORTEST = 64.0  # events
_LOG_2 = math.log(2.0)
_DOUBLED = 4.0  # doublings of a lagging share per visible lag
_UNKNOWN = -1.0
_NO_TRAFFIC = 1e-6  # events of the average unit below which it has no traffic
_EDGE = 37.0  # log-odds at which a probability is 1 to the last bit
_BELOW_ONE = 1.0 - 2.0**-53


class Account(NamedTuple):
    """The decisions of the present unit, and the traffic of earlier ones."""

    clock: Vector  # (1,) the largest time so far, in seconds since the epoch; NaN if unknown
    spent: Counts  # (3,) of the unit: decided events, alerts; 1 if the unit directly follows another, else 0
    opening: Vector  # (1,) elapsed share of the unit at its first event
    traffic: Matrix  # (2, SLOTS) events by slot: of this unit; of the average unit, -1 if unknown
    credit: Vector  # (1,) alerts that a share of all events has saved


def init() -> Account:
    """Return the account before any event."""
    return Account(
        clock=np.full(1, np.nan),
        spent=np.zeros(3, dtype=np.int64),
        opening=np.zeros(1),
        traffic=np.stack([np.zeros(SLOTS), np.full(SLOTS, _UNKNOWN)]),
        credit=np.zeros(1),
    )


def problems(account: Account) -> Issues:
    """Report what no events can have led to in an account of the right shapes."""
    yield from counters({"spent": account.spent})
    yield from outside("spent", account.spent[2:], 0, 1)
    if account.spent[1] > account.spent[0]:
        yield "spent", "has more alerts than events"
    if np.isinf(account.clock).any():
        yield "clock", "is infinite"
    yield from outside("opening", account.opening, 0.0, 1.0)
    yield from outside("traffic", account.traffic[0], 0.0, MAX_COUNT)
    yield from outside("traffic", account.traffic[1], _UNKNOWN, MAX_COUNT)
    yield from outside("credit", account.credit, -MAX_COUNT, _SAVED)


def change_unit(account: Account, unit: float) -> Account:
    """Return the account in another unit of so many seconds: keeps what was spent, forgets the traffic."""
    fresh = init()
    fresh.spent[:2] = account.spent[:2]
    if account.spent[0] and not np.isnan(account.clock[0]):
        fresh.opening[0] = _elapsed(float(account.clock[0]), unit)
    return fresh._replace(clock=account.clock.copy(), credit=account.credit.copy())


def rewind(account: Account, unit: float, alerts: float, clock: float, rate: float) -> Account:
    """Return the account at an earlier clock, as if the budget had been spent by its plan up to there.

    The unit's traffic until then is that of the average unit or, if that is unknown, `rate` events per second. Without
    a clock or a rate (NaN) nothing is spent.
    """
    fresh = init()
    fresh.traffic[1] = account.traffic[1]
    if math.isnan(clock) or math.isnan(rate):
        return fresh
    measured = account.traffic[1] >= 0.0
    even = account.traffic[1][measured].mean() if measured.any() else min(rate * unit, MAX_COUNT) / SLOTS
    usual = np.where(measured, account.traffic[1], even)
    fresh.clock[0] = clock
    fresh.traffic[0] = usual * np.clip(_elapsed(clock, unit) * SLOTS - np.arange(SLOTS), 0.0, 1.0)
    events, total = fresh.traffic[0].sum(), usual.sum()
    fresh.spent[:] = events, alerts * events / total if total > 0.0 else 0.0, 1
    return fresh


@bare_kernel
def _elapsed(clock, unit):  # type: ignore[no-untyped-def]
    """Compute the elapsed share of the unit, in [0, 1)."""
    units = clock / unit  # np.floor gives a float, because an integer cannot hold every clock
    return units - np.floor(units)


@bare_kernel
def _slot(elapsed):  # type: ignore[no-untyped-def]
    """Return the slot of an elapsed share of the unit."""
    return min(int(elapsed * SLOTS), SLOTS - 1)


@bare_kernel
def tick(account, unit, clock):  # type: ignore[no-untyped-def]
    """Move the clock, in units of so many seconds; return whether another unit or slot began."""
    if not -np.inf < clock < np.inf or clock <= account.clock[0]:
        return False
    before = account.clock[0]
    account.clock[0] = clock
    if math.isnan(before):  # decisions from before the first time belong to no unit
        account.spent[:] = 0
        account.traffic[0] = 0.0
        return True
    units = np.floor(clock / unit) - np.floor(before / unit)
    if units == 0.0:
        return _slot(_elapsed(clock, unit)) != _slot(_elapsed(before, unit))
    if account.spent[0] > 0:
        _close(account, units == 1.0, _slot(_elapsed(before, unit)))
    account.spent[0] = account.spent[1] = 0
    account.spent[2] = 1 if units == 1.0 else 0
    return True


@bare_kernel
def _close(account, followed, last):  # type: ignore[no-untyped-def]
    """Add the unit's traffic to the average, as far as it predicts other units; `last` is its last slot."""
    now, usual = account.traffic[0], account.traffic[1]
    first = 0 if account.spent[2] == 1 else math.ceil(account.opening[0] * SLOTS)
    stop = SLOTS if followed else last
    for s in range(SLOTS):
        if first <= s < stop:
            usual[s] = now[s] if usual[s] < 0.0 else usual[s] + _RATE * (now[s] - usual[s])
        now[s] = 0.0


@bare_kernel
def find_slot(clock, unit):  # type: ignore[no-untyped-def]
    """Return the clock's slot, and a time before which the clock is certainly still in it.

    So most events need no division. The time is slightly early, against rounding, and -inf if the clock is unknown.
    """
    if math.isnan(clock):
        return 0, -np.inf
    elapsed = _elapsed(clock, unit)
    slot = _slot(elapsed)
    return slot, clock + 0.999 * max((slot + 1.0) / SLOTS - elapsed, 0.0) * unit


@inlined
def record(clock, spent, opening, traffic, credit, slot, unit, rate, alert):  # type: ignore[no-untyped-def]
    """Account for an event decided in this slot; `alert` is 0 or 1, `rate` a share of all events or 0."""
    if spent[0] == 0 and not math.isnan(clock[0]):
        opening[0] = _elapsed(clock[0], unit)
    traffic[0, slot] += 1.0
    spent[0] += 1
    spent[1] += alert
    if rate > 0.0:
        credit[0] = min(credit[0] + rate, _SAVED) - alert


@bare_kernel
def _rest(account, unit, alerts):  # type: ignore[no-untyped-def]
    """Forecast the events still to come in the unit."""
    events = float(account.spent[0])
    if math.isnan(account.clock[0]):
        return _EVENTS_PER_ALERT * alerts + _ENDLESS * events
    usual = account.traffic[1]
    known_slots, average = 0, 0.0
    for s in range(SLOTS):
        if usual[s] >= 0.0:
            known_slots += 1
            average += usual[s]
    prior = _PRIOR
    if average < _NO_TRAFFIC:
        known_slots, average, prior = 0, _EVENTS_PER_ALERT * alerts / SLOTS, _FIRST_PRIOR
    else:
        average /= known_slots
    first = known_slots == 0
    total = average * SLOTS
    if not first:
        total = 0.0
        for s in range(SLOTS):
            total += average if usual[s] < 0.0 else usual[s]
    elapsed = _elapsed(account.clock[0], unit) * SLOTS
    opening = account.opening[0] * SLOTS if events > 0.0 else elapsed
    actual = past = rest = 0.0
    for s in range(SLOTS):
        expected = average if first or usual[s] < 0.0 else usual[s]
        after = expected * min(max(s + 1.0 - elapsed, 0.0), 1.0)
        missed = expected * min(max(opening - s, 0.0), 1.0)
        rest += after
        past += max(expected - after - missed, 0.0)
        now = account.traffic[0, s]
        actual += now if first else min(now, _BURST * (expected + total / (_BURST * SLOTS)))
    return rest * ((actual + prior * total) / (past + prior * total))


@bare_kernel
def _planned(account, unit, alerts):  # type: ignore[no-untyped-def]
    """Return the alerts planned by now, the events still to come in the unit, and all events of the unit."""
    events = float(account.spent[0])
    rest = _rest(account, unit, alerts)
    unit_events = max(events + rest, 1.0)
    return alerts * (events / unit_events), rest, unit_events


@bare_kernel
def _slack(account, planned, alerts):  # type: ignore[no-untyped-def]
    """Return the most alerts that may be spent by now; without a clock the plan has no end."""
    most = planned * (1.0 + _ENDLESS) if math.isnan(account.clock[0]) else planned
    return most + max(2.0, alerts / 5.0)


@bare_kernel
def _visible(alerts):  # type: ignore[no-untyped-def]
    """Return by how many alerts a unit may lag behind its plan by chance."""
    return max(alerts / 10.0, min(1.5 * math.sqrt(alerts), alerts / 3.0))


@bare_kernel
def lookback(account, unit, alerts, rate, count, paced):  # type: ignore[no-untyped-def]
    """Return after how many events an event of the third row has weight 1/e; infinite in a first unit.

    `count` events were decided so far. `paced`: the budget is the objective; else the account only follows.
    """
    usual = account.traffic[1]
    events = 0.0
    for s in range(SLOTS):
        events += max(usual[s], 0.0)
    memory = max(_UNITS * events, _LEAST_MEMORY) if events > 0.0 else np.inf
    if not paced:
        return memory
    if rate > 0.0:
        credit = account.credit[0]
        memory = max(min(memory, max(_LEAST_MEMORY, _SHARE_OF_ALL * count)), _OF_A_SHARE / rate)
        changed = credit > SLACK or credit + rate < 1.0 - SLACK
        short = _FEWEST / rate
    else:
        planned, _, unit_events = _planned(account, unit, alerts)
        spent = float(account.spent[1])
        changed = planned - spent > _visible(alerts) or spent > _slack(account, planned, alerts)
        short = max(_SHORT, _FEWEST / alerts) * unit_events
    return min(memory, max(short, _SHORTEST)) if changed else memory


@bare_kernel
def allowed_share(account, unit, alerts, rate):  # type: ignore[no-untyped-def]
    """Return the share of coming events that may be alerts, 0 to hold back, and whether there were too few so far.

    The budget is `alerts` per unit if `rate` is 0.
    """
    if rate > 0.0:
        credit = account.credit[0]
        if credit + rate < 1.0 - SLACK:
            return 0.0, False
        share = min(max(rate * (1.0 + credit / _GAIN), 0.0), _STEEPEST * rate)
        return min(share * exp(_LOG_2 * max((credit - SLACK) / _DOUBLED, 0.0)), 1.0), credit > SLACK
    spent = float(account.spent[1])
    left = math.floor(alerts) - spent
    if left < 1.0:
        return 0.0, False
    planned, rest, unit_events = _planned(account, unit, alerts)
    if spent > _slack(account, planned, alerts):
        return 0.0, False
    share = min(left / max(rest, left), _STEEPEST * alerts / unit_events)
    lag, visible = planned - spent, _visible(alerts)
    share *= exp(_LOG_2 * max(_DOUBLED * (lag / visible - 1.0), 0.0))
    return min(share, 1.0), lag > max(1.0, alerts / 10.0)


@bare_kernel
def quantile(masses, share, lower_edge):  # type: ignore[no-untyped-def]
    """Return the probability with a share of the events in the sketch's bins above it; 1 for an empty sketch.

    `lower_edge`: return the lower edge of its bin. The result is below 1 even if many probabilities are 1.
    """
    total = 0.0
    for b in range(BINS):
        total += masses[b]
    if total <= 0.0 or share <= 0.0:
        return 1.0
    if share >= 1.0:
        return 0.0
    mass = share * total
    width = 2.0 * REACH / BINS
    for b in range(BINS - 1, -1, -1):
        if masses[b] > mass:
            low = -REACH + b * width if b > 0 else -_EDGE
            high = -REACH + (b + 1) * width if b < BINS - 1 else _EDGE
            if lower_edge:
                return sigmoid(low) if b > 0 else 0.0
            return min(sigmoid(high - (high - low) * (mass / masses[b])), _BELOW_ONE)
        mass -= masses[b]
    return 0.0
