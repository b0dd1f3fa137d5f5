"""Probability -> decision: a threshold for the chosen objective, learnt beside any algorithm.

An event is predicted positive if p >= the live threshold. Every objective learns the same state. So a change of the
objective loses nothing.

f1         FOFO: half of the best F, by stages of a stochastic gradient (`fofo_stages.py`).
f1-ofo     Half of the F reached so far: TP / (positives + predicted positives) of earlier events, 0 before the first.
           It has no setting and is near the best from the start, but never forgets.
f1-window, fbeta, jaccard, fpr, precision, recall, optroc (accuracy)
           Search a sketch of both classes, faded by `memory` and faster while young (`threshold_search.py`). They
           search after each of the first 64 labelled events, then after every 32nd. They need no step size, and
           tolerate uncalibrated probabilities. For fpr, precision and recall, feedback moves the aim of the search, so
           that the target is met although probabilities drift.
fixed      Stays at `value`.
cost       Bayes' rule for the cost of errors: positive if p >= fp / (fp + fn c). The factor c comes from the event's
           feature `field` (0 if negative, 1 if not a number). It needs calibrated probabilities.
budget     A number of alerts per unit of time, or a share of all events (`alert_budget.py`). It follows all decided
           events, labelled or not. It searches after each alert, when a unit or a 24th of it begins, after each of the
           first 64 events, then after every 32nd. A unit never gets more than its alerts: once they are spent, the
           threshold is 1 and no event is predicted positive.

Events of interest are rare, and a young learner errs. So until 20 positive labels are known, a `cautious` threshold
also is at least that of a budget, with max(5 %, 10 (P + 1) / (n + 200)) of all events as alerts: ten times the
estimated share of positives, with P positive labels among n events. This holds for all objectives but fpr, budget, cost
and fixed.

Without positive labels, the objectives that need them would lead to a threshold that calls nothing positive, or all.
If a silence is longer than 10 mean gaps between positive labels and three times the longest one, the threshold follows
the rule of a budget, with the share of alerts at the last one. So the share stays, even if the scores fall, until the
next positive label. This holds for all objectives but fpr, which needs none, budget, cost and fixed. At least 20
positive labels, and one alert, are needed before. What the objectives learn goes on meanwhile.

Before the first event the threshold is at 1: nothing is predicted positive. If it is not `cautious`, "f1", "f1-ofo",
"f1-window", "fbeta", "jaccard" and "recall" are at 0 and predict positive, as in FOFO's paper. O(1) per event, and
O(256) per search.

References
----------
Busa-Fekete, Szörényi, Dembczyński, Hüllermeier. Online F-Measure Optimization. NeurIPS 2015, Algorithm 1: f1-ofo.
Elkan. The Foundations of Cost-Sensitive Learning. IJCAI 2001, section 1: cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from learners.settings import ABSENT, InvalidInput, Parameters, Problem, param

__all__ = [
    "CAUTIOUS",
    "BudgetUse",
    "Threshold",
    "ThresholdState",
    "budget_use",
    "change_settings",
    "current",
    "init",
    "learn",
    "note",
    "paced",
    "preview",
    "problems",
    "restart",
    "resume",
    "rewind",
    "scoring_inputs",
    "serve",
]


CAUTIOUS = ("f1", "f1-window", "f1-ofo", "fbeta", "jaccard", "precision", "recall", "optroc")  # need positive labels


def _only(*objectives: str) -> Mapping[str, Sequence[str]]:
    """Declare the objectives that use a setting."""
    return {"objective": objectives}


@dataclass(frozen=True)
class Threshold(Parameters):
    """Settings of the threshold. Settings of objectives other than the chosen one must keep their defaults."""

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
        "What the threshold optimises: F1 (f1, f1-window, f1-ofo), F-beta, the Jaccard index, accuracy (optroc) or "
        "expected cost; or the limit that it keeps to: fpr, precision, recall or alerts (budget); or a fixed value.",
    )
    horizon: int | None = param(
        None, "Events in the whole stream; null: unlimited.", least=2, most=2**50, applies_to=_only("f1")
    )
    n1: int = param(
        256, "Events of the first block, if there is no horizon.", least=2, most=2**40, applies_to=_only("f1")
    )
    kappa: float = param(
        8.0,
        "First radius of a block in last radii of the block before, if there is no horizon.",
        above=0,
        most=2.0**20,
        applies_to=_only("f1"),
    )
    memory: int | None = param(
        30_000,
        "How fast old events fade: an event this many events ago has weight 1/e (37 %). null: never fade.",
        least=100,
        most=10**9,
        applies_to=_only("f1-window", "fbeta", "jaccard", "fpr", "precision", "recall", "optroc", "budget"),
    )
    value: float = param(0.5, "The threshold.", least=0, most=1, applies_to=_only("fixed"))
    beta: float = param(
        1.0, "How many times as much recall counts as precision.", above=0, most=100, applies_to=_only("fbeta")
    )
    target: float | None = param(
        None,
        "Target rate: maximum FPR, or minimum precision or recall. Required.",
        above=0,
        most=1,
        applies_to=_only("fpr", "precision", "recall"),
    )
    false_positive: float = param(1.0, "Cost of a false alarm.", above=0, most=1e12, applies_to=_only("cost"))
    false_negative: float = param(1.0, "Cost of a missed positive.", above=0, most=1e12, applies_to=_only("cost"))
    field: str | None = param(
        None,
        "Feature that multiplies the event's false_negative, such as its amount; null: none.",
        applies_to=_only("cost"),
    )
    alerts: float | None = param(
        None,
        "Maximum number of alerts per unit of time. Either alerts or rate is required.",
        least=1,
        most=1e9,
        applies_to=_only("budget"),
    )
    unit_seconds: float = param(
        86_400.0,
        "Length of the unit of time, if alerts is set.",
        least=1,
        most=1e9,
        unit="seconds",
        applies_to=_only("budget"),
    )
    rate: float | None = param(
        None,
        "Share of all events that become alerts, instead of alerts.",
        above=0,
        most=1,
        applies_to=_only("budget"),
    )

    cautious: bool = param(
        True,
        "Whether at most 5 % of the events, or ten times the estimated share of positives if that is more, become "
        "alerts until 20 positive labels are known.",
        applies_to=_only(*CAUTIOUS),
        earlier=False,
    )

    def __post_init__(self) -> None:
        """Check that the settings go together, once each is valid."""
        super().__post_init__()
        problems = [
            Problem(f"/{name}", f"is for {', '.join(users)}; the objective is {self.objective}", "conflict")
            for name, users in _USERS.items()
            if self.objective not in users and getattr(self, name) != getattr(type(self), name)
        ]
        if self.objective in _USERS["target"] and self.target is None:
            detail = f"is missing; {self.objective} needs a share, above 0 and at most 1"
            problems.append(Problem("/target", detail, "missing", ABSENT, self.schema()["properties"]["target"]))
        if self.objective == "budget":
            if self.alerts is None and self.rate is None:
                problems.append(Problem("/alerts", "is missing; expected either alerts or rate", "missing"))
            elif self.alerts is not None and self.rate is not None:
                detail = "is set together with rate; expected either alerts or rate"
                problems.append(Problem("/alerts", detail, "conflict"))
            elif self.rate is not None and self.unit_seconds != type(self).unit_seconds:
                problems.append(Problem("/unit_seconds", "is for alerts; rate has no unit of time", "conflict"))
        if problems:
            raise InvalidInput(problems)

    @cached_property
    def rule(self) -> Rule:
        """The settings in the form that kernels take."""
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
            cautious=self.cautious,
        )


_USERS: Mapping[str, Sequence[str]] = MappingProxyType(  # setting -> the objectives that use it
    {item.name: item.metadata["applies_to"]["objective"] for item in fields(Threshold) if item.name != "objective"}
)

_KINDS: Mapping[str, int] = MappingProxyType(
    {
        "f1": FOFO,
        "f1-window": F_BETA,
        "f1-ofo": OFO,
        "fixed": FIXED,
        "fbeta": F_BETA,
        "jaccard": F_BETA,  # the same decisions, see `threshold_search.py`
        "cost": COST,
        "fpr": FPR,
        "precision": PRECISION,
        "recall": RECALL,
        "budget": BUDGET,
        "optroc": ACCURACY,
    }
)


class ThresholdState(NamedTuple):
    """What is learnt for every objective; only `live` depends on the chosen one."""

    live: Vector  # (1,) the threshold for an event of cost 1
    seen: Counts  # (2,) labelled events per class: negatives, positives
    mean: Vector  # (1,) of the iterates of FOFO's stage
    theta: Vector  # (1,) FOFO's iterate
    centre: Vector  # (1,) the iterate at the start of the stage
    radius: Vector  # (1,) how far the stage may move from it
    block: Counts  # (4,) the block's events n, its stages m, their length n0, events into the block
    stage: Counts  # (2,) the stage's number in the block, events into the stage
    called: Counts  # (2,) f1-ofo: events it would predict positive, and those of them that were positive
    bins: Matrix  # (3, BINS) faded events by probability: negatives, positives; all decided events, labelled or not
    decided: Counts  # (1,) events counted in the last of these rows
    aim: Vector  # (1,) fpr, precision, recall: the share to search for; 0 for other objectives
    clock: Vector  # from here on: the account of a budget, see `alert_budget.Account`
    spent: Counts
    opening: Vector
    traffic: Matrix
    credit: Vector
    silence: Vector  # (5,) events since the last positive; longest gap; share of alerts: now, then, and kept to, or 0
    labels: Counts  # (2,) labelled events per class, of all models: negatives, positives


def init(settings: Threshold) -> ThresholdState:
    """Return the state before any event."""
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
        silence=np.zeros(5),
        labels=np.zeros(2, dtype=np.int64),
    )
    _refresh(settings, state)
    return state


def _refresh(settings: Threshold, state: ThresholdState) -> None:
    threshold_kernels.refresh(tuple(settings.rule), tuple(state), threshold_search.edges())


def _start(rule: Rule) -> float:
    """Return the aim before any event."""
    return rule.aim if rule.kind in (FPR, PRECISION, RECALL) else 0.0


def restart(settings: Threshold, state: ThresholdState) -> ThresholdState:
    """Return the state for the scores of another model: keeps the account of a budget and the number of labels."""
    fresh = init(settings)._replace(**{name: getattr(state, name).copy() for name in (*Account._fields, "labels")})
    _refresh(settings, fresh)
    return fresh


def resume(state: ThresholdState) -> None:
    """Estimate the share of alerts in a state of an earlier release, which has none: that of probabilities so far."""
    labelled = state.silence[:2].any()  # each label counts here
    probabilities = state.bins[2]
    if labelled or not state.seen.any() or not probabilities.any():
        return
    first = np.searchsorted(threshold_search.edges(), state.live[0], side="right") - 1
    state.silence[2:4] = probabilities[first:].sum() / probabilities.sum()


def change_settings(before: Threshold, settings: Threshold, state: ThresholdState) -> ThresholdState:
    """Return the state under other settings: keeps what was learnt, and updates the live threshold at once.

    With other settings of its own, FOFO starts a first block at the threshold reached so far. Another objective or
    target resets the aim of the search. With another unit of time the account keeps what was spent and drops its
    forecast. Another share of all events resets the credit.
    """
    old, new = before.rule, settings.rule
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
    _refresh(settings, state)
    return state


def rewind(settings: Threshold, state: ThresholdState, clock: float, rate: float) -> ThresholdState:
    """Return the state for events from an earlier clock on; see `alert_budget.rewind`.

    What was learnt stays; only a silence of positive labels ends.
    """
    state = ThresholdState._make(array.copy() for array in state)
    account = alert_budget.rewind(_account(state), settings.rule.unit, settings.rule.alerts, clock, rate)
    state = state._replace(**account._asdict())
    state.silence[[0, 4]] = 0.0
    _refresh(settings, state)
    return state


def problems(settings: Threshold, state: ThresholdState) -> Issues:
    """Report what no events can have led to in a state of the right shapes."""
    wrong = list(
        counters({name: getattr(state, name) for name in ("seen", "labels", "called", "block", "stage", "decided")})
    )
    yield from wrong
    yield from outside("live", state.live, 0.0, 1.0)
    for name in ("mean", "theta", "centre", "radius"):
        yield from outside(name, getattr(state, name), 0.0, 0.5)
    yield from outside("bins", state.bins, 0.0, MAX_COUNT)
    yield from outside("aim", state.aim, 0.0, 1.0)
    if not wrong and state.called[1] > min(state.called[0], state.seen[1]):
        called, right = state.called.tolist()
        yield "called", f"has {right} of {called} events predicted positive; {state.seen[1]} were positive"
    if not wrong and (state.labels < state.seen).any():
        yield "seen", f"counts {state.seen.tolist()} labels; expected at most the {state.labels.tolist()} of all models"
    yield from outside("silence", state.silence, 0.0, MAX_COUNT)
    yield from outside("silence", state.silence[2:], 0.0, 1.0)
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
    """Return the live threshold for an event of cost 1."""
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
    """Learn n labelled events in order; fill `thresholds` and `decisions` (n,) with those from before each label.

    An event that is `decided` (n,) only now goes into the account. Another one was decided when it was served; its
    decision is what it would be now. `costs` (n,) are the events' factors, `clocks` (n,) the learner's clock after
    each, NaN if unknown. Changes the state in place.
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
    """Account for n unlabelled events that another node decided; leads to the same bits as `serve` there."""
    columns = [np.array(column, dtype=np.float64) for column in (probabilities, clocks)]  # a record's are read-only
    copy = np.array(decisions, dtype=np.int64)
    rule, unused = tuple(settings.rule), np.empty(0)
    threshold_kernels.decide(
        rule, tuple(state), threshold_search.edges(), columns[0], unused, columns[1], True, unused, copy
    )


def preview(settings: Threshold, state: ThresholdState, probabilities: Vector, costs: Vector) -> tuple[Vector, Counts]:
    """Preview the threshold and decision of each event, (n,), as if it came next; does not change the state."""
    thresholds, decisions = np.empty(len(probabilities)), np.empty(len(probabilities), dtype=np.int64)
    threshold_kernels.preview(*scoring_inputs(settings, state), probabilities, costs, thresholds, decisions)
    return thresholds, decisions


def paced(settings: Threshold, state: ThresholdState) -> bool:
    """Return whether decisions depend on the alerts before, so that all must be made in order on one account."""
    return bool(threshold_kernels.is_paced(tuple(settings.rule), tuple(state)))


class BudgetUse(NamedTuple):
    """Use of a budget of alerts in the unit of time that the clock is in."""

    alerts: int
    limit: float
    resets: float | None  # when the unit ends, in seconds since the epoch; None if no event had a time


def budget_use(settings: Threshold, state: ThresholdState) -> BudgetUse | None:
    """Return the alerts of the unit so far; None without a budget of alerts per unit of time. O(1)."""
    if settings.alerts is None:
        return None
    clock, unit = float(state.clock[0]), settings.unit_seconds
    resets = None if math.isnan(clock) else (math.floor(clock / unit) + 1.0) * unit
    return BudgetUse(int(state.spent[1]), settings.alerts, resets)


def scoring_inputs(settings: Threshold, state: ThresholdState) -> tuple[int, float, float, Vector]:
    """Return what `decide_one` needs: kind, costs of errors, and a view of the live threshold (1,)."""
    kind = BUDGET if paced(settings, state) else _KINDS[settings.objective]
    return kind, settings.false_positive, settings.false_negative, state.live


def _account(state: ThresholdState) -> Account:
    return Account._make(getattr(state, name) for name in Account._fields)
