"""Probability -> label: a threshold for the objective that matters, learnt beside any algorithm.

An event is called positive where p >= the live threshold. What is learnt is the same whatever the objective, so the
objective can be changed at any time and loses nothing.

"f1" is FOFO, which holds half of the best F by stages of a stochastic gradient (`stages.py`).

"f1-window", "fbeta", "jaccard", "fpr", "precision", "recall" and "optroc" (accuracy) need no step size and forgive
probabilities that are off: they search a sketch of both classes, faded by `memory` and sooner while it is young, after
each of the first 64 labelled events and then after every 32nd. "fpr", "precision" and "recall" search for an aim that
is led by how far the target was met, so that it is also met while probabilities drift (`objectives.py`).

"f1-ofo" is half of the F that it has reached itself: TP / (positives + called positive) of the events before, 0 before
the first. It has nothing to set and gets near from the start, but never forgets. "fixed" stays at `value`.

"cost" is Bayes' rule for the cost of errors: positive where p >= fp / (fp + fn c), c the event's own factor, from its
feature `field` (0 where negative, 1 where not a number). It needs probabilities that are right.

"budget" is for those who can check so many alerts per unit of time, or a share of all events (`budget.py`). It looks
at what was decided, labelled or not: after each alert, when a unit or a 24th of it begins, after each of the first 64
events and then after every 32nd. A unit never gets more than its alerts: once they are spent no event is called
positive, and the threshold is 1.

Before the first event "f1", "f1-ofo", "f1-window", "fbeta", "jaccard" and "recall" are at 0 and call it positive, as
FOFO's paper does; "fpr", "precision", "optroc" and "budget" are at 1. O(1) per event, and O(256) for each search.

References
----------
Busa-Fekete, Szörényi, Dembczyński, Hüllermeier. Online F-Measure Optimization. NeurIPS 2015, Algorithm 1: f1-ofo.
Elkan. The Foundations of Cost-Sensitive Learning. IJCAI 2001, section 1: cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.decisions import alert_budget, fofo_stages, threshold_kernels, threshold_search
from learners.decisions.alert_budget import Account
from learners.decisions.threshold_kernels import BUDGET, COST, FIXED, FOFO, OFO, Rule
from learners.decisions.threshold_search import ACCURACY, BINS, F_BETA, FPR, PRECISION, RECALL
from learners.numerics import MAX_COUNT, Counts, Issues, Matrix, Vector, counters, outside
from learners.settings import InvalidInput, Parameters, Problem, param

__all__ = [
    "Threshold",
    "ThresholdState",
    "change_settings",
    "current",
    "init",
    "learn",
    "look",
    "note",
    "problems",
    "restart",
    "scoring_inputs",
    "serve",
]


@dataclass(frozen=True)
class Threshold(Parameters):
    """Settings of the threshold. A setting of another objective than the chosen one has to be left at its default."""

    objective: Literal[
        "f1",
        "f1-window",
        "f1-ofo",
        "fixed",
        "fbeta",
        "jaccard",
        "cost",
        "fpr",
        "precision",
        "recall",
        "budget",
        "optroc",
    ] = param(
        "f1",
        "f1: FOFO's stages, f1-window: a histogram's best F, f1-ofo: half of the F reached, fixed: a value, "
        "fbeta, jaccard: the largest, cost: the least cost of errors, fpr, precision, recall: as set by target, "
        "budget: so many alerts, optroc: the largest accuracy",
    )
    horizon: int | None = param(None, "f1: events there will be; null for a stream without end", least=2, most=2**50)
    n1: int = param(256, "f1 without a horizon: events of the first block", least=2, most=2**40)
    kappa: float = param(8.0, "f1 without a horizon: a block's first radius in last radii", above=0, most=2.0**20)
    memory: int | None = param(
        30_000,
        "f1-window, fbeta, jaccard, fpr, precision, recall, optroc, budget: events after which a past event counts "
        "1/e, once many times as many are met; null: all count alike",
        least=100,
        most=10**9,
    )
    value: float = param(0.5, "fixed: the threshold", least=0, most=1)
    beta: float = param(1.0, "fbeta: how many times as much recall counts as precision", above=0, most=100)
    target: float | None = param(
        None,
        "fpr: largest share of negatives called positive; precision: least share of alerts that are right; "
        "recall: least share of positives found; required",
        above=0,
        most=1,
    )
    false_positive: float = param(1.0, "cost: of an event wrongly called positive", above=0, most=1e12)
    false_negative: float = param(1.0, "cost: of a positive that is missed", above=0, most=1e12)
    field: str | None = param(None, "cost: the feature that multiplies an event's false_negative, such as its amount")
    alerts: float | None = param(
        None, "budget: events called positive per unit of time at most; required, or else rate", least=1, most=1e9
    )
    unit_seconds: float = param(
        86_400.0, "budget with alerts: length of the unit of time", least=1, most=1e9, unit="seconds"
    )
    rate: float | None = param(None, "budget: share of all events called positive, instead of alerts", above=0, most=1)

    def __post_init__(self) -> None:
        """The settings have to go together, once each is right."""
        super().__post_init__()
        own = _OWN.get(self.objective, frozenset())
        problems = [
            Problem(f"/{item.name}", f"is for {_users(item.name)}; the objective is {self.objective}")
            for item in fields(self)
            if item.name != "objective" and item.name not in own and getattr(self, item.name) != item.default
        ]
        if "target" in own and self.target is None:
            problems.append(Problem("/target", f"is missing; {self.objective} needs a share, above 0 and at most 1"))
        if self.objective == "budget":
            if (self.alerts is None) == (self.rate is None):
                both = "is missing" if self.alerts is None else "is given, and rate too"
                problems.append(Problem("/alerts", f"{both}; expected alerts per unit, or else rate"))
            elif self.rate is not None and self.unit_seconds != type(self).unit_seconds:
                problems.append(Problem("/unit_seconds", "is for alerts; rate knows no unit of time"))
        if problems:
            raise InvalidInput(problems)

    @cached_property
    def rule(self) -> Rule:
        """The same as kernels take it."""
        return Rule(
            kind=_KINDS[self.objective],
            aim=self.beta**2 if self.target is None else self.target,
            memory=math.inf if self.memory is None else float(self.memory),
            kappa=self.kappa if self.horizon is None else 0.0,
            n1=self.horizon or self.n1,
            value=self.value,
            false_positive=self.false_positive,
            false_negative=self.false_negative,
            alerts=self.alerts or 0.0,
            unit=self.unit_seconds,
            rate=self.rate or 0.0,
        )


_SKETCH = frozenset({"memory"})
_OWN: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "f1": frozenset({"horizon", "n1", "kappa"}),
        "f1-window": _SKETCH,
        "fixed": frozenset({"value"}),
        "fbeta": _SKETCH | {"beta"},
        "jaccard": _SKETCH,
        "cost": frozenset({"false_positive", "false_negative", "field"}),
        "fpr": _SKETCH | {"target"},
        "precision": _SKETCH | {"target"},
        "recall": _SKETCH | {"target"},
        "budget": _SKETCH | {"alerts", "unit_seconds", "rate"},
        "optroc": _SKETCH,
    }
)


def _users(name: str) -> str:
    """The objectives that a setting belongs to."""
    return ", ".join(objective for objective, own in _OWN.items() if name in own)


_KINDS: Mapping[str, int] = MappingProxyType(
    {
        "f1": FOFO,
        "f1-window": F_BETA,
        "f1-ofo": OFO,
        "fixed": FIXED,
        "fbeta": F_BETA,
        "jaccard": F_BETA,  # the same events, see `objectives.py`
        "cost": COST,
        "fpr": FPR,
        "precision": PRECISION,
        "recall": RECALL,
        "budget": BUDGET,
        "optroc": ACCURACY,
    }
)


class ThresholdState(NamedTuple):
    """What is learnt for every objective; `live` alone is the chosen one's."""

    live: Vector  # (1,) the threshold; of an event of cost 1
    seen: Counts  # (2,) labelled events per class: negatives, positives
    mean: Vector  # (1,) of the iterates of FOFO's stage
    theta: Vector  # (1,) FOFO's iterate
    centre: Vector  # (1,) the iterate that the stage started from
    radius: Vector  # (1,) how far from there the stage may go
    block: Counts  # (4,) the block's events n, its stages m, their length n0, events into the block
    stage: Counts  # (2,) the stage's number in the block, events into the stage
    called: Counts  # (2,) f1-ofo: events it would have called positive, and how many of them were
    bins: Matrix  # (3, BINS) events by probability, faded: negatives, positives; those decided, labelled or not
    decided: Counts  # (1,) events that the last of these rows has met
    aim: Vector  # (1,) fpr, precision, recall: the share that is searched for; 0 of other objectives
    clock: Vector  # this and what follows: the account of a budget, see `budget.Account`
    spent: Counts
    opening: Vector
    traffic: Matrix
    credit: Vector


def init(settings: Threshold) -> ThresholdState:
    """The state before any event."""
    n = settings.horizon or settings.n1
    rule = settings.rule
    state = ThresholdState(
        live=np.zeros(1),
        seen=np.zeros(2, dtype=np.int64),
        mean=np.zeros(1),
        theta=np.zeros(1),
        centre=np.zeros(1),
        radius=np.array([0.5]),
        block=np.array([n, *fofo_stages.stages(n), 0], dtype=np.int64),
        stage=np.zeros(2, dtype=np.int64),
        called=np.zeros(2, dtype=np.int64),
        bins=np.zeros((3, BINS)),
        decided=np.zeros(1, dtype=np.int64),
        aim=np.array([_start(rule)]),
        **alert_budget.init()._asdict(),
    )
    threshold_kernels.refresh(rule, state, threshold_search.edges())
    return state


def _start(rule: Rule) -> float:
    """The aim before any event."""
    return rule.aim if rule.kind in (FPR, PRECISION, RECALL) else 0.0


def restart(settings: Threshold, state: ThresholdState) -> ThresholdState:
    """The state for the scores of another model: nothing is known of them, but what was spent of a budget is spent."""
    fresh = init(settings)._replace(**{name: getattr(state, name).copy() for name in Account._fields})
    threshold_kernels.refresh(settings.rule, fresh, threshold_search.edges())
    return fresh


def change_settings(was: Threshold, settings: Threshold, state: ThresholdState) -> ThresholdState:
    """The state under other settings: what was learnt stays, and the live threshold follows from it at once.

    FOFO begins a first block where its own settings differ, from the threshold that it has reached. Another objective
    or target is what is searched for, whatever became of the aim of the one before. An account of
    another unit of time goes on with what was spent, and without a forecast; a share of all events starts at no credit.
    """
    old, new = was.rule, settings.rule
    state = ThresholdState._make(array.copy() for array in state)
    if (old.n1, old.kappa) != (new.n1, new.kappa):
        start = init(settings)
        state = state._replace(
            theta=state.mean.copy(), centre=state.mean.copy(), radius=start.radius, block=start.block, stage=start.stage
        )
    if old.unit != new.unit:
        state = state._replace(**alert_budget.change_unit(_account(state), new.unit)._asdict())
    if old.rate != new.rate:
        state.credit[0] = 0.0
    if (old.kind, old.aim) != (new.kind, new.aim):
        state.aim[0] = _start(new)
    threshold_kernels.refresh(new, state, threshold_search.edges())
    return state


def problems(settings: Threshold, state: ThresholdState) -> Issues:
    """What no events can have led to in a state of the right shapes."""
    wrong = list(counters({name: getattr(state, name) for name in ("seen", "called", "block", "stage", "decided")}))
    yield from wrong
    yield from outside("live", state.live, 0.0, 1.0)
    for name in ("mean", "theta", "centre", "radius"):
        yield from outside(name, getattr(state, name), 0.0, 0.5)
    yield from outside("bins", state.bins, 0.0, MAX_COUNT)
    yield from outside("aim", state.aim, 0.0, 1.0)
    if not wrong and state.called[1] > min(state.called[0], state.seen[1]):
        yield "called", f"has {state.called[1]} positives of {state.called[0]} called positive; {state.seen[1]} were"
    yield from alert_budget.problems(_account(state))
    first = settings.horizon or settings.n1
    events, count, each, into = state.block.tolist()
    doubled = max(events, first) // first  # 2^j
    possible = events == first * doubled and doubled & (doubled - 1) == 0 and events <= MAX_COUNT
    if not possible or (settings.horizon and doubled > 1):
        yield "block", f"has a block of {events} events; expected {first}{'' if settings.horizon else ', doubled'}"
    elif (count, each) != fofo_stages.stages(events):
        yield "block", f"has {count} stages of {each}; {events} events make {fofo_stages.stages(events)}"
    else:
        yield from outside("block", state.block[3:], 0, MAX_COUNT if settings.horizon else events - 1)
        yield from outside("stage", state.stage[:1], 0, count - 1)
        yield from outside("stage", state.stage[1:], 0, min(each - 1, into))


def current(settings: Threshold, state: ThresholdState) -> float:  # noqa: ARG001
    """The live threshold; of an event of cost 1."""
    return float(state.live[0])


def learn(
    settings: Threshold,
    state: ThresholdState,
    probabilities: Vector,
    y: Vector,
    decided: NDArray[np.bool_],
    costs: Vector,
    clocks: Vector,
    thresholds: Vector,
    decisions: Counts,
) -> None:
    """Learn n labelled events in order; `thresholds` and `decisions` (n,) get what was said of each before.

    An event that is `decided` (n,) only now goes into the account; of another, decided when it was served, is said what
    would be said now. `costs` (n,) are the events' factors, `clocks` (n,) the learner's clock after each, NaN while
    unknown. Moves the state in place.
    """
    rule = tuple(settings.rule)
    threshold_kernels.learn(
        rule, tuple(state), threshold_search.edges(), probabilities, y, decided, costs, clocks, thresholds, decisions
    )


def serve(
    settings: Threshold,
    state: ThresholdState,
    probabilities: Vector,
    costs: Vector,
    clocks: Vector,
    thresholds: Vector,
    decisions: Counts,
) -> None:
    """Decide n unlabelled events in order, and account for them; fills `thresholds` and `decisions` (n,)."""
    rule = tuple(settings.rule)
    threshold_kernels.decide(
        rule, tuple(state), threshold_search.edges(), probabilities, costs, clocks, False, thresholds, decisions
    )


def note(settings: Threshold, state: ThresholdState, probabilities: Vector, decisions: Counts, clocks: Vector) -> None:
    """Account for n unlabelled events that were decided elsewhere: after what `serve` said, the same bits as there."""
    columns = [np.array(column, dtype=np.float64) for column in (probabilities, clocks)]  # a record's are read-only
    known = np.array(decisions, dtype=np.int64)
    rule, unused = tuple(settings.rule), np.empty(0)
    threshold_kernels.decide(
        rule, tuple(state), threshold_search.edges(), columns[0], unused, columns[1], True, unused, known
    )


def look(settings: Threshold, state: ThresholdState, probabilities: Vector, costs: Vector) -> tuple[Vector, Counts]:
    """What would be said of each event now, were it the next: thresholds and decisions, (n,); the state stays."""
    thresholds, decisions = np.empty(len(probabilities)), np.empty(len(probabilities), dtype=np.int64)
    threshold_kernels.look(*scoring_inputs(settings, state), probabilities, costs, thresholds, decisions)
    return thresholds, decisions


def scoring_inputs(settings: Threshold, state: ThresholdState) -> tuple[int, float, float, Vector]:
    """What of it `rules.say` needs: the rule's kind, its costs of errors, and the live threshold (1,), a view."""
    return _KINDS[settings.objective], settings.false_positive, settings.false_negative, state.live


def _account(state: ThresholdState) -> Account:
    return Account._make(getattr(state, name) for name in Account._fields)
