"""Learner: the whole pipeline as one state machine.

    labelled events -> duplicates out -> model (`model.py`) -> decision (`decision.py`) -> metrics
    served events   -> the decision's account, metrics
    a corrected label -> model, decision, metrics

It has no clock, no network and no file. Its state is a function of the records it was given: the same events in the
same order give the same bits, however they were cut into batches.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.config import Config
from learners.decision import BinaryDecision, Predictions, decision_of
from learners.deduplication import RecentIds, Sources
from learners.fitting import FitJob
from learners.inputs import encode_features, read_batch
from learners.metrics import BinaryMetrics, RankMetrics
from learners.model import Model, check_arrays, check_shapes
from learners.numerics import Counts, Rows, Vector, Words, hashes_of
from learners.records import (
    BatchOutcome,
    FitResult,
    LabelledBatch,
    LateColumns,
    Rollback,
    ServedBatch,
    SettingsChange,
    Status,
    join_outcomes,
    slice_rows,
)
from learners.scorer import LearnerView, Scorer
from learners.settings import InvalidInput, Problem
from learners.state_checks import check_values

__all__ = ["Learner", "check_state"]

State = dict[str, NDArray[np.generic]]

_APPLIED, _DUPLICATE = int(Status.APPLIED), int(Status.DUPLICATE)


class Learner:
    """One named learner moved forward by records. No I/O, no await, no clock.

    Raises nothing after the constructor for a batch that `Config.encode` and `Labels.read` let through.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._start()

    def _start(self) -> None:
        config = self.config
        self._model = Model(config)
        self._decision = decision_of(config)
        self._ids = RecentIds(config.remembered_ids)
        self._sources = Sources()
        self.rollbacks = 0
        ranks = config.labels.ranks
        window = config.window, config.window_seconds
        # the ranks of an ordinal learner come without probabilities: its metrics look at none
        self.metrics: BinaryMetrics | RankMetrics = (
            BinaryMetrics(*window, config.figures) if ranks is None else RankMetrics(*window, ranks)
        )

    # Moving forward

    def apply(self, record: LabelledBatch | SettingsChange | FitResult | Rollback | ServedBatch) -> BatchOutcome | None:
        """Move forward by one record of the log; what became of each event of a batch.

        Raises `InvalidInput` for a roll-back, a fit or a change of another kind of learner; then nothing changed.
        """
        if isinstance(record, ServedBatch):
            self._serve(record)
            return None
        if isinstance(record, SettingsChange):
            self._change(self.config.with_changes(record.parts))
            return None
        if isinstance(record, Rollback):
            before, rollbacks = self._model, self.rollbacks
            self._restore(self.config if record.parts is None else self.config.with_changes(record.parts), record.state)
            self._model.rolled_back(before)
            self.rollbacks = rollbacks + 1
            return None
        if isinstance(record, FitResult):
            if self.accepts(record):
                self._take(record)
            return None
        return self._learn(record)

    def learn(
        self,
        X: Any,
        y: Any,
        *,
        weights: Any = None,
        ids: Sequence[str | None] | None = None,
        times: Any = None,
    ) -> Vector:
        """Learn n labelled events in order; return the prequential scores, (n,); of an ordinal learner the ranks.

        Each event is scored before it is learnt, and fits are made as soon as they are due. `X` is a (n, dim) array, a
        scipy sparse matrix, or a list of what an event carries (lists, (indices, values) pairs, dicts of named
        features), as the learner's features want it. `y` holds 0/1 or -1/1, or ranks from 1. `weights` (n,), at least
        0, multiply each event's step. `times` (n,) are seconds since the epoch, NaN where not known: what follows the
        clock (a budget of alerts per day, a window of seconds) needs them. An event whose id was learnt before changes
        nothing and has the score NaN; with another label it corrects that, and has the score of then.
        Raises `InvalidInput` (a ValueError), and then nothing was learnt.
        """
        batch = read_batch(self.config, X, y, weights, ids, times)
        outcome = self._learn_and_fit(batch) if self._model.fits else self._learn(batch)
        if self.config.labels.ranks is None:
            return outcome.scores
        return np.where(np.isin(outcome.status, (Status.APPLIED, Status.RELABELLED)), outcome.decisions, np.nan)

    def fit(self, X: Any = None, y: Any = None, *, weights: Any = None) -> None:
        """Fit now, to n labelled events, which take the place of those retained, or else to those retained.

        For a batch algorithm, or for one whose embedding is not there yet. The events are not scored, and the live
        figures do not change. Raises `InvalidInput` for arguments that `learn` would refuse and where nothing is to be
        fitted, and ValueError where these events cannot be fitted; then the model is as it was.
        """
        if not (self.config.batch or self._model.warming):
            raise InvalidInput([Problem("", f"{self.config.algorithm} learns from each event: use learn")])
        model = self._model
        if X is not None:
            batch = read_batch(self.config, X, y, weights)
            model = model.copy()  # to be taken once the fit has succeeded
            model.retain(
                batch.rows,
                batch.labels,
                np.ones(len(batch)) if batch.weights is None else batch.weights,
                self.metrics.events,
            )
        fitting = model.fit_job(self.metrics.events)
        if not len(fitting.y):
            raise ValueError("there are no events to fit to")
        fitted = fitting.run()
        self._model = model
        self._take(fitted)

    def score(self, X: Any) -> Vector:
        """The score of each event, (n,), without learning; `scorer()` also gives probabilities and decisions."""
        return self.scorer().score(self.encode(X)).scores

    def encode(self, X: Any) -> Rows:
        """The columns of n events' features; see `features.py`. Raises `InvalidInput`."""
        return encode_features(self.config, X)

    def _learn_and_fit(self, batch: LabelledBatch) -> BatchOutcome:
        outcomes: list[BatchOutcome] = []
        start = 0
        while start < len(batch) or not outcomes:
            rest = batch.part(start, len(batch))
            part = rest.part(0, self.events_until_fit(rest))
            outcomes.append(self._learn(part))
            start += len(part)
            if self.fit_due:
                self._refit()
        return join_outcomes(outcomes)

    def _learn(self, batch: LabelledBatch) -> BatchOutcome:
        n = len(batch)
        if n and batch.ids is None and not batch.segments:  # then they are all new: the same as below, sooner
            said = self._learn_new(batch, batch.rows, slice(0, n), np.zeros(n, dtype=np.uint64))
            return BatchOutcome(np.zeros(n, dtype=np.int8), *said)
        outcome = self._nothing_said(n)
        status = outcome.status
        self._sources.admit(batch.segments, status)
        hashes = np.zeros(n, dtype=np.uint64) if batch.ids is None else hashes_of(batch.ids)
        late = LateColumns.none(n) if batch.late is None and batch.ids is not None else batch.late
        slots = np.full(n, -1, dtype=np.int64)
        start = 0
        while start < n:
            stop = n
            if late is not None and batch.ids is not None:
                stop = self._ids.admit(hashes, batch.labels, late, status, slots, start)
            self._learn_run(batch, hashes, slots, outcome, start, stop)
            if late is not None and stop < n:
                self._relabel(batch, late, int(slots[stop]), outcome, stop)
                if late.served[stop]:
                    self.metrics.mark_labelled(int(hashes[stop]))
            start = stop + 1
        repeated = status == _DUPLICATE  # an assumption that comes too late repeats nothing
        self.metrics.count_duplicates(int(np.count_nonzero(repeated if late is None else repeated & ~late.assumed)))
        return outcome

    def clocks(self, batch: LabelledBatch) -> Vector:
        """The clock after each of a batch's n events as they come, (n,), duplicates by id among them; nothing changes.

        Those that their source leaves out do not move it. NaN while no time is known.
        """
        met = np.full(len(batch), np.nan) if batch.times is None else batch.times
        if batch.late is not None:
            met = np.where(np.isnan(batch.late.labelled), met, batch.late.labelled)
        if batch.segments:
            status = np.zeros(len(batch), dtype=np.int8)
            self._sources.copy().admit(batch.segments, status)
            met = np.where(status == _APPLIED, met, np.nan)
        clocks: Vector = np.fmax.accumulate(np.concatenate([[self.metrics.clock], met]))[1:]
        return clocks

    def _nothing_said(self, n: int) -> BatchOutcome:
        nan = np.full(n, np.nan)
        two = self.config.labels.ranks is None
        return BatchOutcome(
            np.zeros(n, dtype=np.int8),
            nan,
            np.zeros(n, dtype=np.int64),
            nan.copy() if two else None,
            nan.copy() if two else None,
        )

    def _learn_run(
        self, batch: LabelledBatch, hashes: Words, slots: Counts, outcome: BatchOutcome, start: int, stop: int
    ) -> None:
        """Learn those events from `start` to `stop` that are new, and say in `outcome` what was said of them."""
        cut = slice(start, stop)
        new = start + np.flatnonzero(outcome.status[cut] == _APPLIED)
        if not len(new):
            return
        chosen: slice | Counts = cut
        if len(new) == stop - start:
            rows = batch.rows_of(start, stop)
        else:
            mask = np.zeros(len(batch), dtype=np.bool_)
            mask[new] = True
            rows, chosen = batch.rows_at(mask), new
        number = self.metrics.events
        said = self._learn_new(batch, rows, chosen, hashes[chosen])
        nan = np.full(len(new), np.nan) if said.probabilities is None else said.probabilities
        self._ids.note(slots[chosen], number, said.scores, nan, said.decisions)
        outcome.scores[chosen], outcome.decisions[chosen] = said.scores, said.decisions
        if outcome.probabilities is not None and outcome.thresholds is not None:
            outcome.probabilities[chosen], outcome.thresholds[chosen] = said.probabilities, said.thresholds

    def _learn_new(self, batch: LabelledBatch, rows: Rows, chosen: slice | Counts, hashes: Words) -> Predictions:
        """Learn the `chosen` events, with their rows and the hashes of their ids; what was said of each before."""
        y = batch.labels[chosen]
        times = _column(batch.times, chosen, len(y), np.nan)
        weights = _column(batch.weights, chosen, len(y), 1.0)
        costs = _column(batch.costs, chosen, len(y), 1.0)
        if batch.late is None:
            clocks = self.metrics.tick(times)
            no = np.zeros(len(y), dtype=np.bool_)
            said = self._advance(rows, y, weights, ~no, costs, clocks)
            known, delays = no, _filled(len(y), np.nan)
        else:
            late = LateColumns._make(column[chosen] for column in batch.late)
            clocks = self.metrics.tick(np.where(np.isnan(late.labelled), times, late.labelled))
            said = self._advance(rows, y, weights, ~late.served, costs, clocks)
            said = _as_served(late, said)
            known = late.served & ~late.assumed
            delays = np.where(late.assumed, np.nan, late.labelled - times)
            self.metrics.count_expired(int(np.count_nonzero(late.assumed)))
        scores, decisions, probabilities, thresholds = said
        self.metrics.learn(scores, probabilities, thresholds, y, decisions, clocks, delays, hashes, known)
        return said

    def _advance(
        self,
        rows: Rows,
        y: Vector,
        weights: Vector,
        decided: NDArray[np.bool_],
        costs: Vector,
        clocks: Vector,
        *,
        again: bool = False,
    ) -> Predictions:
        """Model and decision learn n events; what they said of each before. `decided` (n,): now, not when served.

        `again`: the events were learnt before, with other labels.
        """
        model, n = self._model, len(y)
        # one call of each stage for the whole batch, or for some millions of numbers
        if n > 1 and n > (step := model.step_rows):
            said = []
            for start in range(0, n, step):
                part, cut = slice_rows(rows, start, start + step), slice(start, start + step)
                own = y[cut], weights[cut], decided[cut], costs[cut], clocks[cut]
                said.append(self._advance(part, *own, again=again))
            return _concatenated(said)
        values = model.learn(rows, y, weights, again=again)
        return (
            self._decision.learn(values, y, decided, costs, clocks)
            if model.has_model
            else self._decision.without_model(values)
        )

    def _relabel(self, batch: LabelledBatch, late: LateColumns, slot: int, outcome: BatchOutcome, at: int) -> None:
        """Correct the label of an event that was learnt: exactly in the figures, in the model as far as it can."""
        y = batch.labels[at : at + 1]
        number, was, score, probability, decision = self._ids.relabel(slot, float(y[0]))
        met = late.labelled[at] if batch.times is None or not np.isnan(late.labelled[at]) else batch.times[at]
        clocks = self.metrics.tick(np.array([met]))
        self.metrics.advance(self.metrics.clock)
        events = self.metrics.events
        two = self.config.labels.ranks is None
        before, after = (int(was > 0), int(y[0] > 0)) if two else (int(was), int(y[0]))
        self.metrics.correct(number, before, after, score, probability, decision)
        undone = self._model.relabel(number, float(y[0]), events)
        if not undone and not late.bare[at]:  # learnt anew, with its right label
            chosen = slice(at, at + 1)
            weights, costs = _column(batch.weights, chosen, 1, 1.0), _column(batch.costs, chosen, 1, 1.0)
            row, decided = batch.rows_of(at, at + 1), np.zeros(1, dtype=np.bool_)
            self._advance(row, y, weights, decided, costs, clocks, again=True)
        outcome.scores[at], outcome.decisions[at] = score, decision
        if outcome.probabilities is not None:
            outcome.probabilities[at] = probability
        if outcome.thresholds is not None:
            outcome.thresholds[at] = late.thresholds[at]

    def _serve(self, served: ServedBatch) -> None:
        """Take note of events that were scored and decided, and whose labels may come."""
        scores = Predictions(served.scores, served.decisions, served.probabilities, served.thresholds)
        clocks = self.metrics.tick(served.times)
        self._decision.note(scores, clocks, served.ready)
        said = served.scores, served.thresholds, served.decisions
        self.metrics.serve(served.hashes, *said, clocks, served.ready)

    def _change(self, config: Config) -> None:
        """Go on with other settings; what was learnt stays."""
        if config.threshold is not None and config.threshold != self.config.threshold:
            assert isinstance(self._decision, BinaryDecision)  # a threshold for ranks is refused by `Config.changed`
            self._decision.change(config.threshold)
        self.config = config
        self._model.config = config
        self.metrics.change(config.figures)

    # Fits

    @property
    def fit_due(self) -> bool:
        """Whether `fitting()` should be run and what comes out applied."""
        return self._model.fit_due(self.metrics.events)

    def events_until_fit(self, batch: LabelledBatch) -> int:
        """How many of a batch's events, at least 1, can be learnt before a fit may be due."""
        return self._model.events_until_fit(batch, self.metrics.events)

    @property
    def fit_urgent(self) -> bool:
        """Whether a fit that is due should come before the next event: what is learnt without it is learnt anew."""
        return self._model.warming

    def fit_job(self) -> FitJob:
        """The fit of the retained events as they are now; run it where it suits. O(numbers retained)."""
        return self._model.fit_job(self.metrics.events)

    def accepts(self, fitted: FitResult) -> bool:
        """Whether applying a fit would change anything. Raises `InvalidInput` for one that is not of such a learner."""
        return self._model.accepts(fitted, self.metrics.events)

    def postpone_fit(self) -> None:
        """A fit has failed: the next may be due after as many events as the first one waited for."""
        self._model.postpone_fit(self.metrics.events)

    def _refit(self) -> None:
        try:
            fitted = self.fit_job().run()
        except (ValueError, MemoryError):  # no such model for these events, or no room for it; the last one stays
            self.postpone_fit()
        else:
            self._take(fitted)

    def _take(self, fitted: FitResult) -> None:
        anew = False
        for values, y in self._model.take(fitted):
            if not anew:
                self._decision.restart()
                anew = True
            n = len(y)  # they were decided when they came
            self._decision.learn(values, y, np.zeros(n, dtype=np.bool_), np.ones(n), np.full(n, np.nan))

    # Looking

    def scorer(self) -> Scorer:
        """The present scorer: a view that is right until the next `apply`; `frozen()` makes it last."""
        model = self._model
        return Scorer(
            self.config,
            model.columns,
            model.scaled,
            model.scaling,
            model.embedding,
            model.weights,
            self._decision,
            model.has_model,
        )

    @property
    def threshold(self) -> float | None:
        """The live threshold on the probability; None for an ordinal learner."""
        return self._decision.threshold

    @property
    def columns(self) -> int:
        """Columns that have a meaning so far."""
        return self._model.columns.used

    @property
    def class_counts(self) -> dict[str, int]:
        """Labelled events learnt, by class."""
        return dict(zip(self.config.labels.classes, self.metrics.counts.tolist(), strict=True))

    def view(self) -> LearnerView:
        """What readers see, right until the next `apply`; `frozen()` makes it last."""
        model = self._model
        return LearnerView(
            self.scorer(),
            self.metrics.view(),
            dict(self._sources.next),
            model.columns.used,
            model.pending_fit(self.metrics.events),
            model.fitted_events,
            self.rollbacks,
        )

    def figures(self) -> dict[str, Any]:
        """The live figures, JSON-ready: numbers, or None with the reason under `undefined`."""
        return self.view().as_json()

    def find_learnt(self, ids: Sequence[str]) -> NDArray[np.bool_]:
        """Which of n ids have been learnt, as far as is remembered."""
        return self._ids.find_learnt(ids)

    def learnt_scores(self, ids: Sequence[str]) -> Vector:
        """The score that each of n ids was learnt with, (n,); NaN of one that is not remembered."""
        return self._ids.scores(ids)

    # Saving

    def state(self) -> State:
        """Every array of the state by name, as views: copy what has to last. Derived arrays are left out."""
        parts = {
            **self._model.state(),
            **self._decision.state(),
            "ids": self._ids.state(),
            "metrics": self.metrics.state(),
            "sources": self._sources.state(),
            "life": {"rollbacks": np.array([self.rollbacks], dtype=np.int64)},
        }
        return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}

    def digest(self) -> str:
        """A hash of the configuration and of every array's bytes: equal states, and only those, agree. O(state)."""
        out = hashlib.blake2b(digest_size=16)
        out.update(json.dumps(self.config.to_json(), sort_keys=True).encode())
        for name, array in sorted(self.state().items()):
            if name in ("fits.restores", "life.rollbacks"):  # a roll-back gives the digest back that the state had
                continue
            out.update(f"\0{name} {array.dtype.str} {array.shape}\0".encode())
            out.update(np.ascontiguousarray(array).data)
        return out.hexdigest()

    @classmethod
    def restored(cls, config: Config, state: State, *, sound: bool = False) -> Learner:
        """A learner with this configuration and the state that `state()` gave. Raises `InvalidInput` where they differ.

        With `sound`, it is known for certain to be one that such a learner gave: nothing of it is looked at.
        """
        if not sound:
            check_state(config, state)
        learner = cls(config)
        learner._fill(state)
        return learner

    def _restore(self, config: Config, state: State) -> None:
        check_state(config, state)
        self.config = config
        self._start()
        self._fill(state)

    def _fill(self, state: State) -> None:
        """Take the arrays of a state, copied; of a learner that has met nothing."""
        groups = _groups(state)
        self._model.restore(groups)
        self._decision.restore(groups)
        self._ids.restore(groups["ids"])
        self._sources.restore(groups["sources"])
        self.rollbacks = int(groups["life"]["rollbacks"][0])
        self.metrics.restore(groups["metrics"])

    def shapes(self, state: State) -> dict[str, tuple[int, ...]]:
        """The shapes that a state's arrays have by what they say they have met.

        For a learner that has met nothing yet, and is not used for anything else.
        """
        counted = ("ids.count", *(f"metrics.{name}" for name in self.metrics.counted))
        check_shapes(state, {name: array.shape for name, array in self.state().items() if name in counted})
        groups = _groups(state)
        model = self._model.shaped(groups)
        lengths = state["sources.lengths"]
        held = max(0, min(int(groups["ids"]["count"].sum()), self.config.remembered_ids))
        own = {
            **{f"ids.{name}": (held,) for name in groups["ids"] if name != "count"},
            **{f"metrics.{name}": shape for name, shape in self.metrics.shapes(groups["metrics"]).items()},
            "sources.lengths": lengths.shape,
            "sources.names": (int(lengths.sum()),),
            "sources.offsets": lengths.shape,
        }
        return {name: array.shape for name, array in self.state().items()} | model | own


def check_state(config: Config, state: State) -> None:
    """Refuse a state whose arrays are not those of such a learner: names, dtypes and shapes."""
    learner = Learner(config)
    check_arrays(state, learner.state())
    # an axis of an algorithm's that starts empty may grow with what events it has met
    check_shapes(state, learner.shapes(state), grows="algorithm.")
    check_values(config, state)


def _groups(state: State) -> defaultdict[str, State]:
    """The arrays by part of the learner, and by name within it."""
    groups: defaultdict[str, State] = defaultdict(dict)
    for name, array in state.items():
        part, _, field = name.partition(".")
        groups[part][field] = array
    return groups


def _column(column: Vector | None, chosen: slice | Counts, n: int, missing: float) -> Vector:
    return _filled(n, missing) if column is None else column[chosen]


def _filled(n: int, value: float) -> Vector:
    """As `np.full`, in a third of its time where n is small."""
    filled = np.empty(n)
    filled.fill(value)
    return filled


def _as_served(late: LateColumns, said: Predictions) -> Predictions:
    """What was said of each event: when it was served, if it was, else now."""
    scores = np.where(late.served, late.scores, said.scores)
    decisions = np.where(late.served, late.decisions, said.decisions)
    if said.probabilities is None or said.thresholds is None:
        return Predictions(scores, decisions)
    probabilities = np.where(late.served, late.probabilities, said.probabilities)
    return Predictions(scores, decisions, probabilities, np.where(late.served, late.thresholds, said.thresholds))


def _concatenated(said: Sequence[Predictions]) -> Predictions:
    return Predictions._make(
        None if columns[0] is None else np.concatenate(columns) for columns in zip(*said, strict=True)
    )
