"""Learner: the whole pipeline as one state machine.

    labelled events -> deduplication -> model (`model.py`) -> decision (`decision.py`) -> metrics
    served events   -> the decision's account, metrics
    corrected label -> model, decision, metrics

It has no clock, no network and no file. Its state is a function of its records: the same events in the same order give
the same bits, however they are cut into batches.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.config import Config
from learners.decision import BinaryDecision, Predictions, decision_of
from learners.deduplication import RecentIds, Sources
from learners.features import FieldBlock
from learners.inputs import encode_features, read_batch
from learners.metrics import BinaryMetrics, Journal, RankMetrics
from learners.model import FitJob, Model, check_arrays, check_shapes
from learners.numerics import Counts, Rows, Vector, Words, hashes_of
from learners.records import (
    BatchOutcome,
    FitResult,
    LabelledBatch,
    LateColumns,
    Note,
    Rollback,
    ServedBatch,
    SettingsChange,
    Status,
    join_outcomes,
    slice_rows,
)
from learners.scorer import LearnerView, Scorer
from learners.segments import SegmentReview, SegmentRing
from learners.settings import InvalidInput, Problem
from learners.state_checks import check_values, completed

__all__ = ["Learner", "check_state"]

State = dict[str, NDArray[np.generic]]

_APPLIED, _DUPLICATE = int(Status.APPLIED), int(Status.DUPLICATE)


class Learner:
    """One named learner, moved forward by records. No I/O, no await, no clock.

    A batch that `Config.encode` and `Labels.read` accept raises nothing.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._start()

    def _start(self) -> None:
        """Reset every stage to its state before any event."""
        config = self.config
        self._model = Model(config)
        self._decision = decision_of(config)
        self._ids = RecentIds(config.remembered_ids)
        self._sources = Sources()
        self._segments = SegmentRing(config.window, config.figures.segments)
        self.rollbacks = 0
        self.journal = Journal()
        ranks = config.labels.ranks
        window = config.window, config.window_seconds
        self.metrics: BinaryMetrics | RankMetrics = (
            BinaryMetrics(*window, config.figures) if ranks is None else RankMetrics(*window, ranks)
        )

    # Moving forward

    def apply(
        self, record: LabelledBatch | SettingsChange | FitResult | Rollback | ServedBatch | Note
    ) -> BatchOutcome | None:
        """Move forward by one record of the log; return the outcome of a batch.

        Raises `InvalidInput` for a rollback, a fit or a change of another kind of learner; then nothing changed.
        """
        if isinstance(record, ServedBatch):
            self._serve(record)
            return None
        if isinstance(record, SettingsChange):
            self._change(self.config.with_changes(record.parts))
            self._enter("settings", record.parts)
            return None
        if isinstance(record, Note):
            self._note(record)
            return None
        if isinstance(record, Rollback):
            before, rollbacks, journal = self._model, self.rollbacks, self.journal
            self._restore(self.config if record.parts is None else self.config.with_changes(record.parts), record.state)
            self._model.follow_rollback(before)
            self.rollbacks, self.journal = rollbacks + 1, journal
            self._enter("restore", {"position": record.position})
            return None
        if isinstance(record, FitResult):
            if self.accepts(record):
                self._apply_fit(record)
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
        """Learn n labelled events in order; return the prequential scores, (n,), or the ranks of an ordinal learner.

        Each event is scored before it is learnt, and fits run as soon as they are due.

        - `X`: a (n, dim) array, a scipy sparse matrix, or a list of events (lists, (indices, values) pairs, dicts of
          named features), whichever the learner's features take.
        - `y`: 0/1 or -1/1, or ranks from 1.
        - `weights` (n,): at least 0; they multiply each event's step.
        - `ids`: text or whole numbers. An event whose id was learnt before changes nothing and has the score NaN. With
          another label it corrects the label, and has the score from when it was learnt.
        - `times` (n,): seconds since the epoch from 1980 on, ISO 8601 text or `datetime`; NaN if unknown. Alert budgets
          per day and windows of seconds need them.

        Raises `InvalidInput` (a ValueError); then nothing was learnt.
        """
        batch = read_batch(self.config, X, y, weights, ids, times)
        outcome = self._learn_and_fit(batch) if self._model.fits else self._learn(batch)
        if self.config.labels.ranks is None:
            return outcome.scores
        return np.where(np.isin(outcome.status, (Status.APPLIED, Status.RELABELLED)), outcome.decisions, np.nan)

    def fit(self, X: Any = None, y: Any = None, *, weights: Any = None) -> None:
        """Fit now, to the retained events, or to n labelled events that replace them.

        For a batch algorithm, or one whose embedding is not fitted yet. The events are not scored, and the live metrics
        do not change. Raises `InvalidInput` for arguments that `learn` would refuse, or if nothing needs a fit. Raises
        ValueError if these events cannot be fitted. Then the model is unchanged.
        """
        if not (self.config.batch or self._model.warming):
            raise InvalidInput([Problem("", f"{self.config.algorithm} learns from each event: use learn")])
        model = self._model
        if X is not None:
            batch = read_batch(self.config, X, y, weights)
            model = model.copy()  # replaces the model once the fit has succeeded
            model.columns.note_fields(batch.fields)
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
        self._apply_fit(fitted)

    def score(self, X: Any) -> Vector:
        """Score n events, (n,), without learning; `scorer()` also gives probabilities and decisions."""
        return self.scorer().score(self.encode(X)).scores

    def encode(self, X: Any) -> Rows:
        """Encode n events' features as columns; see `learners.features`. Raises `InvalidInput`."""
        return encode_features(self.config, X)

    def _learn_and_fit(self, batch: LabelledBatch) -> BatchOutcome:
        """Learn a batch, with fits where they are due."""
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
        self._model.columns.note_fields(batch.fields)
        if n and batch.ids is None and not batch.segments:  # all events are new: the same as below, but faster
            predictions = self._learn_new(batch, batch.rows, slice(0, n), np.zeros(n, dtype=np.uint64))
            return BatchOutcome(np.zeros(n, dtype=np.int8), *predictions)
        outcome = self._empty_outcome(n)
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
        repeated = status == _DUPLICATE  # an expiry after the label is no duplicate
        self.metrics.count_duplicates(int(np.count_nonzero(repeated if late is None else repeated & ~late.assumed)))
        return outcome

    def clocks(self, batch: LabelledBatch) -> Vector:
        """Preview the clock after each of a batch's n events, (n,), including duplicates by id; changes nothing.

        Events that their source leaves out do not move the clock. NaN before the first time.
        """
        times = np.full(len(batch), np.nan) if batch.times is None else batch.times
        if batch.late is not None:
            times = np.where(np.isnan(batch.late.labelled), times, batch.late.labelled)
        if batch.segments:
            status = np.zeros(len(batch), dtype=np.int8)
            self._sources.copy().admit(batch.segments, status)
            times = np.where(status == _APPLIED, times, np.nan)
        clocks: Vector = np.fmax.accumulate(np.concatenate([[self.metrics.clock], times]))[1:]
        return clocks

    def _empty_outcome(self, n: int) -> BatchOutcome:
        nan = np.full(n, np.nan)
        binary = self.config.labels.ranks is None
        return BatchOutcome(
            np.zeros(n, dtype=np.int8),
            nan,
            np.zeros(n, dtype=np.int64),
            nan.copy() if binary else None,
            nan.copy() if binary else None,
        )

    def _learn_run(
        self, batch: LabelledBatch, hashes: Words, slots: Counts, outcome: BatchOutcome, start: int, stop: int
    ) -> None:
        """Learn the new events from `start` to `stop`, and write their predictions to `outcome`."""
        cut = slice(start, stop)
        new = start + np.flatnonzero(outcome.status[cut] == _APPLIED)
        if not len(new):
            return
        selection: slice | Counts = cut
        if len(new) == stop - start:
            rows = batch.rows_of(start, stop)
        else:
            mask = np.zeros(len(batch), dtype=np.bool_)
            mask[new] = True
            rows, selection = batch.rows_at(mask), new
        number = self.metrics.events
        scores, decisions, probabilities, thresholds = self._learn_new(batch, rows, selection, hashes[selection])
        noted = np.full(len(new), np.nan) if probabilities is None else probabilities
        self._ids.note(slots[selection], number, scores, noted, decisions)
        outcome.scores[selection], outcome.decisions[selection] = scores, decisions
        if outcome.probabilities is not None and outcome.thresholds is not None:
            outcome.probabilities[selection], outcome.thresholds[selection] = probabilities, thresholds

    def _learn_new(self, batch: LabelledBatch, rows: Rows, selection: slice | Counts, hashes: Words) -> Predictions:
        """Learn the `selection` events, with their rows and id hashes; return their predictions from before."""
        y = batch.labels[selection]
        times = _column(batch.times, selection, len(y), np.nan)
        weights = _column(batch.weights, selection, len(y), 1.0)
        costs = _column(batch.costs, selection, len(y), 1.0)
        if batch.late is None:
            clocks = self.metrics.tick(times)
            no = np.zeros(len(y), dtype=np.bool_)
            predictions = self._advance(rows, y, weights, ~no, costs, clocks)
            arrived, delays = no, _filled(len(y), np.nan)
        else:
            late = LateColumns._make(column[selection] for column in batch.late)
            clocks = self.metrics.tick(np.where(np.isnan(late.labelled), times, late.labelled))
            predictions = _as_served(late, self._advance(rows, y, weights, ~late.served, costs, clocks))
            arrived = late.served & ~late.assumed  # the label of a served event, not its expiry
            delays = np.where(late.assumed, np.nan, late.labelled - times)
            self.metrics.count_expired(int(np.count_nonzero(late.assumed)))
        scores, decisions, probabilities, thresholds = predictions
        if self._segments.fields:
            values = batch.segment_values
            self._segments.learn(self.metrics.events, len(y), None if values is None else values.of(selection))
        columns = scores, probabilities, thresholds, y, decisions, clocks, delays, hashes, arrived
        blocks = self._model.columns.take_blocks()
        if blocks and (self.metrics.field_alarms or any(block.alarms for block in blocks)):
            self._measure(columns, blocks)
        else:
            self.metrics.learn(*columns)
        return predictions

    def _measure(self, columns: tuple[Any, ...], blocks: Sequence[FieldBlock]) -> None:
        """Let the metrics take learnt events, and judge and store the alarms of fields after each block."""

        def part(start: int, stop: int) -> Any:
            return tuple(None if column is None else column[start:stop] for column in columns)

        n, clocks = len(columns[3]), columns[5]
        first, start = self._model.columns.field_events - n, 0  # field events before these
        for block in blocks:
            stop = block.event - first
            self.metrics.learn(*part(start, stop))
            clock = float(clocks[stop - 1])
            self.metrics.judge_fields(block.shares, clock)
            for alarm in block.alarms:
                self.metrics.note_fields(alarm.kind, clock, alarm.before, alarm.after, alarm.field, alarm.fields)
            start = stop
        self.metrics.learn(*part(start, n))

    def _advance(
        self,
        rows: Rows,
        y: Vector,
        weights: Vector,
        decided: NDArray[np.bool_],
        costs: Vector,
        clocks: Vector,
        *,
        relearning: bool = False,
    ) -> Predictions:
        """Let model and decision learn n events; return their predictions from before.

        `decided` (n,) marks events that are decided now, not when they were served. `relearning` means that the events
        were learnt before, with other labels.
        """
        model, n = self._model, len(y)
        # one call of each stage for the whole batch, or for some millions of numbers
        if n > 1 and n > (step := model.step_rows):
            parts = []
            for start in range(0, n, step):
                part, cut = slice_rows(rows, start, start + step), slice(start, start + step)
                columns = y[cut], weights[cut], decided[cut], costs[cut], clocks[cut]
                parts.append(self._advance(part, *columns, relearning=relearning))
            return _concatenate(parts)
        values = model.learn(rows, y, weights, relearning=relearning)
        return (
            self._decision.learn(values, y, decided, costs, clocks)
            if model.has_model
            else self._decision.without_model(values)
        )

    def _relabel(self, batch: LabelledBatch, late: LateColumns, slot: int, outcome: BatchOutcome, at: int) -> None:
        """Correct the label of a learnt event: exactly in the metrics, as far as possible in the model."""
        y = batch.labels[at : at + 1]
        number, label, score, probability, decision = self._ids.relabel(slot, float(y[0]))
        time = late.labelled[at] if batch.times is None or not np.isnan(late.labelled[at]) else batch.times[at]
        clocks = self.metrics.tick(np.array([time]))
        self.metrics.advance(self.metrics.clock)
        events = self.metrics.events
        binary = self.config.labels.ranks is None
        before, after = (int(label > 0), int(y[0] > 0)) if binary else (int(label), int(y[0]))
        self.metrics.correct(number, before, after, score, probability, decision)
        exact = self._model.relabel(number, float(y[0]), events)
        if not exact and not late.bare[at]:  # learn it again, with its right label
            selection = slice(at, at + 1)
            weights, costs = _column(batch.weights, selection, 1, 1.0), _column(batch.costs, selection, 1, 1.0)
            row, undecided = batch.rows_of(at, at + 1), np.zeros(1, dtype=np.bool_)
            self._advance(row, y, weights, undecided, costs, clocks, relearning=True)
        outcome.scores[at], outcome.decisions[at] = score, decision
        if outcome.probabilities is not None:
            outcome.probabilities[at] = probability
        if outcome.thresholds is not None:
            outcome.thresholds[at] = late.thresholds[at]

    def _serve(self, served: ServedBatch) -> None:
        """Count events that were scored and decided, and whose labels may arrive later."""
        scores = Predictions(served.scores, served.decisions, served.probabilities, served.thresholds)
        self._model.columns.note_fields(served.fields)
        clocks = self.metrics.tick(served.times)
        self._decision.note(scores, clocks, served.ready)
        columns = served.scores, served.thresholds, served.decisions
        self.metrics.serve(served.hashes, *columns, clocks, served.ready)

    def _change(self, config: Config) -> None:
        """Switch to other settings; what was learnt stays."""
        if config.threshold is not None and config.threshold != self.config.threshold:
            assert isinstance(self._decision, BinaryDecision)  # `Config.with_changes` refuses thresholds of ranks
            self._decision.change(config.threshold)
        self.config = config
        self._model.config = config
        self.metrics.change(config.figures)
        self._segments.change(config.figures.segments, self.metrics.events)

    def _note(self, note: Note) -> None:
        """Enter a note; one of an alarm that is not stored, or acknowledged already, changes nothing."""
        data = {}
        if note.alarm is not None:
            alarm = next((alarm for alarm in self.view().alarms(note.alarm) if alarm["number"] == note.alarm), None)
            if alarm is None or alarm["acknowledged"] is not None:
                return
            data = {"alarm": note.alarm, "reopened": alarm["reopened"]}
        kind = "note" if note.alarm is None else "acknowledgement"
        self._enter(kind, data, time=note.time, by=note.by, key=note.key, text=note.text)

    def _enter(self, kind: str, data: Mapping[str, Any], **more: Any) -> None:
        """Add an entry to the journal."""
        self.journal = self.journal.add(kind, self.metrics.events, self.metrics.clock, data, **more)

    # Fits

    @property
    def fit_due(self) -> bool:
        """Whether to run `fit_job()` and apply the result."""
        return self._model.fit_due(self.metrics.events)

    def events_until_fit(self, batch: LabelledBatch) -> int:
        """Return how many of a batch's events, at least 1, can be learnt before a fit may be due."""
        return self._model.events_until_fit(batch, self.metrics.events)

    @property
    def fit_urgent(self) -> bool:
        """Whether a due fit should precede the next event, because what is learnt without it is learnt again."""
        return self._model.warming

    def fit_job(self) -> FitJob:
        """Copy the retained events into a job, which any thread may run. O(retained numbers)."""
        return self._model.fit_job(self.metrics.events)

    def accepts(self, fitted: FitResult) -> bool:
        """Return whether applying a fit would change anything. Raises `InvalidInput` for another kind of learner."""
        return self._model.accepts(fitted, self.metrics.events)

    def postpone_fit(self) -> None:
        """Postpone the next fit after a failure, by as many events as a fit waits for."""
        self._model.postpone_fit(self.metrics.events)

    def _refit(self) -> None:
        try:
            fitted = self.fit_job().run()
        except (ValueError, MemoryError):  # these events have no model, or memory is short; the last model stays
            self.postpone_fit()
        else:
            self._apply_fit(fitted)

    def _apply_fit(self, fitted: FitResult) -> None:
        restarted = False
        for values, y in self._model.apply_fit(fitted):
            if not restarted:
                self._decision.restart()
                restarted = True
            n = len(y)  # these events were decided when they arrived
            self._decision.learn(values, y, np.zeros(n, dtype=np.bool_), np.ones(n), np.full(n, np.nan))
        self._enter("fit", {"events": fitted.events})

    # Reading

    def scorer(self) -> Scorer:
        """Return the present scorer: a view that is right until the next `apply`, or for good once `frozen()`."""
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
        """Columns in use so far."""
        return self._model.columns.used

    @property
    def class_counts(self) -> dict[str, int]:
        """Labelled events learnt, by class."""
        return dict(zip(self.config.labels.classes, self.metrics.counts.tolist(), strict=True))

    def view(self) -> LearnerView:
        """Return what readers see: right until the next `apply`, or for good once `frozen()`."""
        model = self._model
        return LearnerView(
            self.scorer(),
            self.metrics.view(),
            dict(self._sources.next),
            model.columns.used,
            model.pending_fit(self.metrics.events),
            model.fitted_events,
            self.rollbacks,
            self.journal,
        )

    def review_segments(self, field: str) -> SegmentReview:
        """Copy what the metrics of the values of a declared segment field follow from. O(window)."""
        assert isinstance(self.metrics, BinaryMetrics)  # `Config` refuses segment fields of ranks
        return SegmentReview.of(self._segments, field, self.metrics.columns())

    def figures(self) -> dict[str, Any]:
        """Return the live metrics as JSON: numbers, or None with the reason under `undefined`."""
        return self.view().as_json()

    def new_fields(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of fields that the learner does not remember yet, and would. O(names)."""
        return self._model.columns.new_fields(names)

    def find_learnt(self, ids: Sequence[str]) -> NDArray[np.bool_]:
        """Return which of n ids were learnt, (n,), as far as they are remembered."""
        return self._ids.find_learnt(ids)

    def learnt_scores(self, ids: Sequence[str]) -> Vector:
        """Return the score that each of n ids was learnt with, (n,); NaN if it is not remembered."""
        return self._ids.scores(ids)

    def learnt_labels(self, ids: Sequence[str]) -> Vector:
        """Return the latest label of each of n ids, (n,): 0, 1, or the rank; NaN if it is not remembered."""
        labels = self._ids.labels(ids)
        return labels if self.config.labels.ranks is not None else (labels + 1.0) / 2.0

    # Saving

    def state(self) -> State:
        """Return every array of the state by name, as views: copy what must last. Leaves out derived arrays."""
        life: State = {"rollbacks": np.array([self.rollbacks], dtype=np.int64), "journal": self.journal.array}
        parts = {
            **self._model.state(),
            **self._decision.state(),
            "ids": self._ids.state(),
            "metrics": self.metrics.state(),
            "sources": self._sources.state(),
            "segments": self._segments.state(),
            "life": life,
        }
        return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}

    def digest(self) -> str:
        """Hash the configuration and every array's bytes: only equal states have equal digests. O(state).

        A rollback restores the digest of the state, so neither the number of rollbacks nor the journal is in it.
        """
        out = hashlib.blake2b(digest_size=16)
        out.update(json.dumps(self.config.to_json(), sort_keys=True).encode())
        for name, array in sorted(self.state().items()):
            if name in ("fits.restores", "life.rollbacks", "life.journal"):
                continue
            out.update(f"\0{name} {array.dtype.str} {array.shape}\0".encode())
            out.update(np.ascontiguousarray(array).data)
        return out.hexdigest()

    @classmethod
    def restored(cls, config: Config, state: State, *, trusted: bool = False) -> Learner:
        """Restore a learner from its configuration and `state()`. Raises `InvalidInput` if they do not match.

        `trusted` skips all checks, for a state that certainly comes from such a learner.
        """
        if not trusted:
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
        """Take copies of the arrays of a state, before any event."""
        groups = _groups(completed(state, self.state()))
        self._model.restore(groups)
        self._decision.restore(groups)
        self._ids.restore(groups["ids"])
        self._sources.restore(groups["sources"])
        self.rollbacks = int(groups["life"]["rollbacks"][0])
        self.journal = Journal.of(groups["life"]["journal"])
        self.metrics.restore(groups["metrics"])
        self._segments.restore(groups["segments"])
        self._segments.change(self.config.figures.segments, self.metrics.events)  # as of the configuration

    def shapes(self, state: State) -> dict[str, tuple[int, ...]]:
        """Return the shapes that a state's arrays must have by its counts.

        Only for a learner before any event, which must not be used afterwards.
        """
        counted = ("ids.count", *(f"metrics.{name}" for name in self.metrics.counted))
        check_shapes(state, {name: array.shape for name, array in self.state().items() if name in counted})
        groups = _groups(state)
        model = self._model.expected_shapes(groups)
        lengths = state["sources.lengths"]
        binary = isinstance(self.metrics, BinaryMetrics)
        events = max(0, int(groups["metrics"]["window_span"][1])) if binary else 0
        remembered = max(0, min(int(groups["ids"]["count"].sum()), self.config.remembered_ids))
        others = {
            **{f"ids.{name}": (remembered,) for name in groups["ids"] if name != "count"},
            **{f"metrics.{name}": shape for name, shape in self.metrics.shapes(groups["metrics"]).items()},
            "life.journal": (state["life.journal"].size,),
            **{f"segments.{name}": shape for name, shape in self._segments.shapes(groups["segments"], events).items()},
            "sources.lengths": lengths.shape,
            "sources.names": (int(lengths.sum()),),
            "sources.offsets": lengths.shape,
        }
        return {name: array.shape for name, array in self.state().items()} | model | others


def check_state(config: Config, state: State) -> None:
    """Check a state's names, dtypes, shapes and values against a configuration. Raises `InvalidInput`."""
    learner = Learner(config)
    optional = learner._model.optional_arrays()
    state = completed(state, learner.state())
    check_arrays(state, {**learner.state(), **(optional if optional.keys() & state.keys() else {})})
    # an axis of an algorithm's array that starts empty may grow with the events
    check_shapes(state, learner.shapes(state), grows="algorithm.")
    check_values(config, state)


def _groups(state: State) -> defaultdict[str, State]:
    """Group the arrays by part of the learner, and by name within it."""
    groups: defaultdict[str, State] = defaultdict(dict)
    for name, array in state.items():
        part, _, field = name.partition(".")
        groups[part][field] = array
    return groups


def _column(column: Vector | None, selection: slice | Counts, n: int, missing: float) -> Vector:
    return _filled(n, missing) if column is None else column[selection]


def _filled(n: int, value: float) -> Vector:
    """Do what `np.full` does, in a third of its time for small n."""
    filled = np.empty(n)
    filled.fill(value)
    return filled


def _as_served(late: LateColumns, now: Predictions) -> Predictions:
    """Replace the present predictions of served events by those from when they were served."""
    scores = np.where(late.served, late.scores, now.scores)
    decisions = np.where(late.served, late.decisions, now.decisions)
    if now.probabilities is None or now.thresholds is None:
        return Predictions(scores, decisions)
    probabilities = np.where(late.served, late.probabilities, now.probabilities)
    return Predictions(scores, decisions, probabilities, np.where(late.served, late.thresholds, now.thresholds))


def _concatenate(parts: Sequence[Predictions]) -> Predictions:
    return Predictions._make(
        None if columns[0] is None else np.concatenate(columns) for columns in zip(*parts, strict=True)
    )
