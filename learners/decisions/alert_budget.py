"""The account of a budget of alerts: so many per unit of time (a day), or a share of all events. Needs no labels.

Per unit of time, with k alerts for each: E events have come in the unit, `rest` are still expected. Of those

    share = min(1, (alerts left) / rest, 3 k / (E + rest))

may be called positive, so the threshold is the quantile of recent probabilities that has this share above it; errors of
the forecast and drift of the scores correct themselves. The 3 keeps the end of a unit from being filled with whatever
comes. By now k E / (E + rest) should be spent. Where more than max(2, k / 5) beyond that are, and once all k are, the
threshold is 1 and no event is called positive: neither a burst of high scores nor many that tie can take what the rest
of the unit should have. Where more than max(1, k / 10) are lacking, it goes down to the edge of its bin, since many
probabilities may tie there.

What a unit brings is learnt by its 24 slots (hours of a day): an average that takes in 3/10 of each new unit. With T
events in the average unit, and G of them in the slots that are gone since this unit's first event,

    rest = (events of the average unit in the slots left) (E + T / 10) / (G + T / 10)

where a slot adds to this E at most 3 times what it has on average, and T / 24: a burst says little of the hours after
it. A unit that does not follow directly on another teaches nothing about the time before its first event, nor one that
is followed by a gap about the time from its last slot on. In the first unit T is 100 k, spread evenly, and weighs 1/100
instead of 1/10: it only matters until some events are seen. Where no event has a time there is one unit without end,
and rest = 100 k + 4 E: a third of the budget is spent over the first 100 k events, then ever more slowly.

As a share r of all events: a credit rises by r with each event, up to 40, and falls by 1 with each alert. The share is
r (1 + credit / 20), from 0 to 3 r; where an alert would take the credit below -8 the threshold is 1, and beyond 8 it
goes down to the edge of its bin. So after n events at most r n + 8 alerts were made, and in steady traffic their number
stays within some sqrt(10) of r n.

The probabilities' quantile comes from the third row of the sketch (`objectives.py`): every event that was decided, in
256 bins of log-odds, with the log-odds within a bin taken as spread evenly. An event counts 1/e after `memory` more, or
fewer: two average units, for a share r also an 8th of all events; but at least 1,000 events, and 20 / r. Where the
share is less than one of these events, only what lies above all of them is called positive.

When the probabilities change at once, old ones are a wrong measure. This shows in the account: a unit lags behind what
is planned by more than v = max(k / 10, min(k / 3, 1.5 sqrt k)) alerts, which for k from 20 to 200 is three deviations
of what chance does half way, or it is held back. Then an event counts 1/e after max(1/8, 5 / k) of a unit already (of a
share, where 8 alerts are lacking: 5 / r), so that a few alerts' worth of new events soon outweigh the old; and a share
that lags is doubled for each v / 4 (4 alerts) more. In the second unit after a tenfold fall of all odds most is spent
again.

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
    "allowed",
    "change_unit",
    "init",
    "lookback",
    "present",
    "problems",
    "quantile",
    "record",
    "tick",
]

EVERY = 32  # events between searches, once there are some
SLOTS = 24
SLACK = 8.0  # alerts beyond a share of all events
_SAVED = 40.0  # alerts that a share of all events may fall behind, to be made up for
_GAIN = 20.0  # alerts behind that double the share
_STEEPEST = 3.0  # times the share of an even spread
_BURST = 3.0  # times what a slot brings otherwise
_LEARNT = 0.3  # of a new unit in the average
_PRIOR, _FIRST_PRIOR = 0.1, 0.01  # units that the forecast weighs against what has come
_EVENTS_PER_ALERT = 100.0  # as long as nothing else is known
_ENDLESS = 4.0  # events expected for each that has come, where there is no clock
_UNITS, _LEAST_MEMORY = 2.0, 1000.0  # that the quantile looks back on: average units, or events where they have few
_SHARE_OF_ALL, _OF_A_SHARE = 0.125, 20.0  # for a share of all events: of those met at most, alerts' worth at least
_SHORT, _FEWEST = 0.125, 5.0  # while the account shows a change: units, and alerts' worth of events
_SHORTEST = 64.0  # events
_LOG_2 = math.log(2.0)
_DOUBLED = 4.0  # a lagging share, by so many parts of what it may lag
_UNKNOWN = -1.0
_NO_TRAFFIC = 1e-6  # events of the average unit: as good as none
_EDGE = 37.0  # log-odds at which a probability is 1 to the last bit
_BELOW_ONE = 1.0 - 2.0**-53


class Account(NamedTuple):
    """What has been decided, in the present unit and before."""

    clock: Vector  # (1,) the largest time met, in seconds since the epoch; NaN while there is none
    spent: Counts  # (3,) of the unit: events decided, alerts; 1 where the unit follows directly on another, else 0
    opening: Vector  # (1,) share of the unit that was gone at its first event
    traffic: Matrix  # (2, SLOTS) events by slot: of this unit; of the average unit, -1 where it is not known
    credit: Vector  # (1,) alerts that a share of all events is behind


def init() -> Account:
    """The account before any event."""
    return Account(
        clock=np.full(1, np.nan),
        spent=np.zeros(3, dtype=np.int64),
        opening=np.zeros(1),
        traffic=np.stack([np.zeros(SLOTS), np.full(SLOTS, _UNKNOWN)]),
        credit=np.zeros(1),
    )


def problems(account: Account) -> Issues:
    """What no events can have led to in an account of the right shapes."""
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
    """The account in another unit of so many seconds: what was spent counts as spent in it, its traffic is unknown."""
    fresh = init()
    fresh.spent[:2] = account.spent[:2]
    if account.spent[0] and not np.isnan(account.clock[0]):
        fresh.opening[0] = _gone(float(account.clock[0]), unit)
    return fresh._replace(clock=account.clock.copy(), credit=account.credit.copy())


@bare_kernel
def _gone(clock, unit):  # type: ignore[no-untyped-def]
    """The share of the unit that is gone, in [0, 1)."""
    units = clock / unit  # np.floor gives a float: a whole number has no room for every clock
    return units - np.floor(units)


@bare_kernel
def _slot(gone):  # type: ignore[no-untyped-def]
    return min(int(gone * SLOTS), SLOTS - 1)


@bare_kernel
def tick(account, unit, clock):  # type: ignore[no-untyped-def]
    """Move the clock, in units of so many seconds; whether another unit or slot has begun."""
    if not -np.inf < clock < np.inf or clock <= account.clock[0]:
        return False
    before = account.clock[0]
    account.clock[0] = clock
    if math.isnan(before):  # what was decided before any time was known was of no unit
        account.spent[:] = 0
        account.traffic[0] = 0.0
        return True
    units = np.floor(clock / unit) - np.floor(before / unit)
    if units == 0.0:
        return _slot(_gone(clock, unit)) != _slot(_gone(before, unit))
    if account.spent[0] > 0:
        _close(account, units == 1.0, _slot(_gone(before, unit)))
    account.spent[0] = account.spent[1] = 0
    account.spent[2] = 1 if units == 1.0 else 0
    return True


@bare_kernel
def _close(account, followed, last):  # type: ignore[no-untyped-def]
    """Take the unit's traffic into the average, as far as it says something of other units; `last` is its last slot."""
    now, usual = account.traffic[0], account.traffic[1]
    first = 0 if account.spent[2] == 1 else math.ceil(account.opening[0] * SLOTS)
    stop = SLOTS if followed else last
    for s in range(SLOTS):
        if first <= s < stop:
            usual[s] = now[s] if usual[s] < 0.0 else usual[s] + _LEARNT * (now[s] - usual[s])
        now[s] = 0.0


@bare_kernel
def present(clock, unit):  # type: ignore[no-untyped-def]
    """(slot, until): the slot of the clock, and a time up to which it surely stays there: a little early, for rounding.

    So that not every event has to divide. Before any time is known nothing is sure.
    """
    if math.isnan(clock):
        return 0, -np.inf
    gone = _gone(clock, unit)
    slot = _slot(gone)
    return slot, clock + 0.999 * max((slot + 1.0) / SLOTS - gone, 0.0) * unit


@inlined
def record(clock, spent, opening, traffic, credit, slot, unit, rate, alert):  # type: ignore[no-untyped-def]
    """Account for an event decided now, in this slot; 1 for an alert. `rate`: a share of all events, or 0."""
    if spent[0] == 0 and not math.isnan(clock[0]):
        opening[0] = _gone(clock[0], unit)
    traffic[0, slot] += 1.0
    spent[0] += 1
    spent[1] += alert
    if rate > 0.0:
        credit[0] = min(credit[0] + rate, _SAVED) - alert


@bare_kernel
def _rest(account, unit, alerts):  # type: ignore[no-untyped-def]
    """Events that the unit may still bring."""
    events = float(account.spent[0])
    if math.isnan(account.clock[0]):
        return _EVENTS_PER_ALERT * alerts + _ENDLESS * events
    usual = account.traffic[1]
    known, average = 0, 0.0
    for s in range(SLOTS):
        if usual[s] >= 0.0:
            known += 1
            average += usual[s]
    prior = _PRIOR
    if average < _NO_TRAFFIC:
        known, average, prior = 0, _EVENTS_PER_ALERT * alerts / SLOTS, _FIRST_PRIOR
    else:
        average /= known
    first = known == 0
    total = average * SLOTS
    if not first:
        total = 0.0
        for s in range(SLOTS):
            total += average if usual[s] < 0.0 else usual[s]
    gone = _gone(account.clock[0], unit) * SLOTS
    opening = account.opening[0] * SLOTS if events > 0.0 else gone
    come = past = rest = 0.0
    for s in range(SLOTS):
        expected = average if first or usual[s] < 0.0 else usual[s]
        after = expected * min(max(s + 1.0 - gone, 0.0), 1.0)
        missed = expected * min(max(opening - s, 0.0), 1.0)
        rest += after
        past += max(expected - after - missed, 0.0)
        now = account.traffic[0, s]
        come += now if first else min(now, _BURST * (expected + total / (_BURST * SLOTS)))
    return rest * ((come + prior * total) / (past + prior * total))


@bare_kernel
def _planned(account, unit, alerts):  # type: ignore[no-untyped-def]
    """(alerts that should be spent by now, events that the unit may still bring, events of the whole unit)."""
    events = float(account.spent[0])
    rest = _rest(account, unit, alerts)
    whole = max(events + rest, 1.0)
    return alerts * (events / whole), rest, whole


@bare_kernel
def _slack(account, planned, alerts):  # type: ignore[no-untyped-def]
    """Alerts that may be spent by now at most; what is planned never ends where there is no clock."""
    most = planned * (1.0 + _ENDLESS) if math.isnan(account.clock[0]) else planned
    return most + max(2.0, alerts / 5.0)


@bare_kernel
def _visible(alerts):  # type: ignore[no-untyped-def]
    """Alerts that a unit may lag behind its plan by chance."""
    return max(alerts / 10.0, min(1.5 * math.sqrt(alerts), alerts / 3.0))


@bare_kernel
def lookback(account, unit, alerts, rate, count, paced):  # type: ignore[no-untyped-def]
    """Events after which one in the third row counts 1/e, when it has met `count`; infinite in a first unit.

    `paced`: by the account's budget; otherwise it only keeps the books.
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
        planned, _, whole = _planned(account, unit, alerts)
        spent = float(account.spent[1])
        changed = planned - spent > _visible(alerts) or spent > _slack(account, planned, alerts)
        short = max(_SHORT, _FEWEST / alerts) * whole
    return min(memory, max(short, _SHORTEST)) if changed else memory


@bare_kernel
def allowed(account, unit, alerts, rate):  # type: ignore[no-untyped-def]
    """The share of coming events that may be called positive, 0 to hold back, and whether too few were so far.

    Of `alerts` per unit where `rate` is 0.
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
    planned, rest, whole = _planned(account, unit, alerts)
    if spent > _slack(account, planned, alerts):
        return 0.0, False
    share = min(left / max(rest, left), _STEEPEST * alerts / whole)
    lag, visible = planned - spent, _visible(alerts)
    share *= exp(_LOG_2 * max(_DOUBLED * (lag / visible - 1.0), 0.0))
    return min(share, 1.0), lag > max(1.0, alerts / 10.0)


@bare_kernel
def quantile(masses, share, whole):  # type: ignore[no-untyped-def]
    """The probability above which a share of the events in the sketch's bins lies; 1 where there are none.

    `whole`: the lowest of its bin. Below 1 otherwise, however many probabilities are 1: the account holds them back.
    """
    total = 0.0
    for b in range(BINS):
        total += masses[b]
    if total <= 0.0 or share <= 0.0:
        return 1.0
    if share >= 1.0:
        return 0.0
    wanted = share * total
    width = 2.0 * REACH / BINS
    for b in range(BINS - 1, -1, -1):
        if masses[b] > wanted:
            low = -REACH + b * width if b > 0 else -_EDGE
            high = -REACH + (b + 1) * width if b < BINS - 1 else _EDGE
            if whole:
                return sigmoid(low) if b > 0 else 0.0
            return min(sigmoid(high - (high - low) * (wanted / masses[b])), _BELOW_ONE)
        wanted -= masses[b]
    return 0.0
